//! What loops over elements are made of, so that every build makes the same of them.
//!
//! A call in such a loop costs more than the work of what is called; values that should stay in registers, and constants that loops are made
//! for, end there. Whether the compiler puts a function in line depends on the build: with one codegen unit, or with link-time optimisation, it sees
//! all functions and how often each is called; with cargo's own profiles a function without an attribute is known in one codegen unit
//! alone, those of the standard library's generic ones among them. Others build this crate with their profiles. Therefore, in loops over
//! elements and in kernels:
//!
//! * What is called and is plain Rust is `#[inline(always)]`: [`Element`](crate::cluster::element::Element), bits, lanes, runs, loops that
//!   several instruction sets share (those are compiled for each of them).
//! * What takes intrinsics is declared by `kernels!`, which makes it `#[inline]`, for `#[inline(always)]` does not go with
//!   `#[target_feature]`: every codegen unit that calls it has a copy.
//! * Of the standard library there is what has such an attribute: `next` of slices, ranges, chunks, `enumerate`, `rev`, `map`, `filter`;
//!   `as_chunks`, `first_chunk`. These do not: `map` of arrays and `array::from_fn`, [`Each::each`] and [`array`] here; `zip`, [`zip`] here;
//!   `copy_from_slice` (arrays are assigned instead); `copied`, `sum`, and other ends of chains of iterators.
//! * What is rare has no attribute, or is `#[cold]`.
//!
//! `bench/profiles/run` compares builds.

use std::mem::MaybeUninit;

/// An array of what `f` makes of each index: `std::array::from_fn`.
#[inline(always)]
pub(crate) fn array<T: Copy, const N: usize>(mut f: impl FnMut(usize) -> T) -> [T; N] {
    let mut all = [const { MaybeUninit::uninit() }; N];
    let mut i = 0;
    while i < N {
        all[i].write(f(i));
        i += 1;
    }
    // SAFETY: every element was written, and an array of `MaybeUninit` is laid out as one of what is in them.
    unsafe { all.as_ptr().cast::<[T; N]>().read() }
}

/// `map` of arrays.
pub(crate) trait Each<T, const N: usize> {
    /// What `f` makes of each element.
    fn each<U: Copy>(self, f: impl FnMut(T) -> U) -> [U; N];
}

impl<T: Copy, const N: usize> Each<T, N> for [T; N] {
    #[inline(always)]
    fn each<U: Copy>(self, mut f: impl FnMut(T) -> U) -> [U; N] {
        array(|i| f(self[i]))
    }
}

/// Calls `f` with the elements of two slices that have the same place, up to where the shorter one ends. A loop with one end, which compilers
/// make vectors of.
#[inline(always)]
pub(crate) fn zip<A, B>(a: &mut [A], b: &[B], mut f: impl FnMut(&mut A, &B)) {
    let n = a.len().min(b.len());
    let (a, b) = (&mut a[..n], &b[..n]);
    let mut i = 0;
    while i < n {
        f(&mut a[i], &b[i]);
        i += 1;
    }
}

/// The same with three slices.
#[inline(always)]
pub(crate) fn zip3<A, B, C>(a: &mut [A], b: &[B], c: &[C], mut f: impl FnMut(&mut A, &B, &C)) {
    let n = a.len().min(b.len()).min(c.len());
    let (a, b, c) = (&mut a[..n], &b[..n], &c[..n]);
    let mut i = 0;
    while i < n {
        f(&mut a[i], &b[i], &c[i]);
        i += 1;
    }
}
