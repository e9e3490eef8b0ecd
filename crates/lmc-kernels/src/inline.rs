//! Building blocks of loops over elements that are inlined in every build.
//!
//! A call in such a loop costs more than the function's work, spills registers and loses constants. Whether the compiler inlines a function
//! depends on the build: with one codegen unit or link-time optimisation it sees all functions and their callers; with cargo's default
//! profiles a function without an attribute, generic ones of the standard library included, is visible in one codegen unit only. Users
//! build this crate with their own profiles. Therefore, in loops over elements and in kernels:
//!
//! * Plain Rust is `#[inline(always)]`: [`Element`](crate::cluster::element::Element), bits, lanes, runs, loops that several instruction
//!   sets share (compiled for each of them).
//! * Functions with intrinsics are declared by `kernels!`, which makes them `#[inline]`, as `#[inline(always)]` does not combine with
//!   `#[target_feature]`: every codegen unit that calls them has a copy.
//! * Of the standard library only functions with such an attribute are used: `next` of slices, ranges, chunks, `enumerate`, `rev`, `map`,
//!   `filter`; `as_chunks`, `first_chunk`. These have none: `map` of arrays and `array::from_fn` (use `Each::each` and [`array()`]); `zip`
//!   (use [`zip`]); `copy_from_slice` (assign arrays instead); `copied`, `sum`, and other consumers of iterators.
//! * Rare code has no attribute, or is `#[cold]`.
//!
//! `bench/profiles/run` compares builds.

use std::mem::MaybeUninit;

/// An array of `f` of each index: `std::array::from_fn`.
#[inline(always)]
pub fn array<T: Copy, const N: usize>(mut f: impl FnMut(usize) -> T) -> [T; N] {
    let mut all = [const { MaybeUninit::uninit() }; N];
    let mut i = 0;
    while i < N {
        all[i].write(f(i));
        i += 1;
    }
    // SAFETY: every element was written, and an array of `MaybeUninit` has the layout of an array of `T`.
    unsafe { all.as_ptr().cast::<[T; N]>().read() }
}

/// `map` of arrays.
pub(crate) trait Each<T, const N: usize> {
    /// An array of `f` of each element.
    fn each<U: Copy>(self, f: impl FnMut(T) -> U) -> [U; N];
}

impl<T: Copy, const N: usize> Each<T, N> for [T; N] {
    #[inline(always)]
    fn each<U: Copy>(self, mut f: impl FnMut(T) -> U) -> [U; N] {
        array(|i| f(self[i]))
    }
}

/// Calls `f` with the pairs of elements of two slices, up to the end of the shorter one. A loop with one end condition, which compilers
/// vectorise.
#[inline(always)]
pub fn zip<A, B>(a: &mut [A], b: &[B], mut f: impl FnMut(&mut A, &B)) {
    let n = a.len().min(b.len());
    let (a, b) = (&mut a[..n], &b[..n]);
    let mut i = 0;
    while i < n {
        f(&mut a[i], &b[i]);
        i += 1;
    }
}

/// [`zip`] of three slices.
#[inline(always)]
pub fn zip3<A, B, C>(a: &mut [A], b: &[B], c: &[C], mut f: impl FnMut(&mut A, &B, &C)) {
    let n = a.len().min(b.len()).min(c.len());
    let (a, b, c) = (&mut a[..n], &b[..n], &c[..n]);
    let mut i = 0;
    while i < n {
        f(&mut a[i], &b[i], &c[i]);
        i += 1;
    }
}
