//! Boxes of tensors: cut into windows of bounded size, intersected and copied.

/// A box of a tensor: its first index in each dimension, and its lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cuboid {
    pub(super) from: Vec<u64>,
    pub(super) sizes: Vec<u64>,
}

impl Cuboid {
    /// The number of elements, of a box of a tensor that has no more than 2^64.
    pub(super) fn elements(&self) -> u64 {
        self.sizes.iter().product()
    }

    /// The elements that both have; `None` if there are none.
    pub(super) fn common(&self, from: &[u64], sizes: &[u64]) -> Option<Self> {
        let ranges = self.from.iter().zip(&self.sizes).zip(from.iter().zip(sizes));
        let common: Option<Vec<_>> = ranges
            .map(|((&a, &n), (&b, &m))| {
                let (from, to) = (a.max(b), (a + n).min(b + m));
                (from < to).then(|| (from, to - from))
            })
            .collect();
        let (from, sizes) = common?.into_iter().unzip();
        Some(Self { from, sizes })
    }

    /// The same box with indices that count from another one's first.
    pub(super) fn within(&self, first: &[u64]) -> Self {
        let from = self.from.iter().zip(first).map(|(a, b)| a - b).collect();
        Self { from, sizes: self.sizes.clone() }
    }

    /// Its first element among those of a tensor of this shape.
    pub(super) fn first_in(&self, shape: &[u64]) -> u64 {
        self.from.iter().zip(shape).fold(0, |at, (&i, &n)| at * n + i)
    }
}

/// Cuts a tensor with elements into ranges of at most `most` of them, which are boxes: one index in the outer
/// dimensions, a range in one, everything in the others. Intersected with any chunk, the common elements are a range of
/// the chunk, too.
pub(super) fn windows(shape: &[u64], most: u64) -> impl Iterator<Item = Cuboid> {
    let inner = |d: usize| shape[d + 1..].iter().product::<u64>();
    // The dimension that is cut.
    let cut = (0..shape.len()).find(|&d| inner(d) <= most);
    let rows = cut.map_or(1, |d| (most / inner(d)).clamp(1, shape[d]));
    let mut next = Some(vec![0; shape.len()]);
    let shape = shape.to_vec();
    std::iter::from_fn(move || {
        let from = next.take()?;
        let sizes = (0..shape.len())
            .map(|d| match cut {
                Some(cut) if d < cut => 1,
                Some(cut) if d == cut => rows.min(shape[d] - from[d]),
                _ => shape[d],
            })
            .collect::<Vec<_>>();
        let last = cut.and_then(|cut| (0..=cut).rev().find(|&d| from[d] + sizes[d] < shape[d]));
        if let Some(last) = last {
            let mut from = from.clone();
            from[last] += sizes[last];
            from[last + 1..].fill(0);
            next = Some(from);
        }
        Some(Cuboid { from, sizes })
    })
}

/// Copies a box of elements of `width` bytes, which `from` holds in order, to its place `at` among those that `to` holds in order.
pub(super) fn copy(from: &[u8], at: &Cuboid, to: &mut [u8], shape: &[u64], width: usize) {
    let rank = shape.len();
    // Dimensions that are copied at once: those that the box has whole, and the one before.
    let whole = (0..rank).rev().take_while(|&d| at.sizes[d] == shape[d]).count();
    let outer = rank.saturating_sub(whole + 1);
    let run = at.sizes[outer..].iter().product::<u64>() as usize * width;
    let mut index = at.from.clone();
    for piece in from.chunks_exact(run) {
        let start = index.iter().zip(shape).fold(0, |start, (&i, &n)| start * n + i) as usize * width;
        to[start..start + run].copy_from_slice(piece);
        for d in (0..outer).rev() {
            index[d] += 1;
            if index[d] < at.from[d] + at.sizes[d] {
                break;
            }
            index[d] = at.from[d];
        }
    }
}

/// Puts elements of `width` bytes in order that `from` holds with these strides, in elements.
pub(super) fn in_order(from: &[u8], shape: &[u64], strides: &[u64], width: usize) -> Vec<u8> {
    // A dimension of one element takes no step.
    let (shape, strides): (Vec<u64>, Vec<u64>) = shape.iter().zip(strides).filter(|&(&n, _)| n != 1).unzip();
    let n = shape.iter().product::<u64>() as usize;
    let mut out = Vec::with_capacity(n * width);
    let (mut index, mut at) = (vec![0; shape.len()], 0);
    for _ in 0..n {
        out.extend_from_slice(&from[at as usize * width..][..width]);
        for d in (0..shape.len()).rev() {
            index[d] += 1;
            at += strides[d];
            if index[d] < shape[d] {
                break;
            }
            at -= strides[d] * shape[d];
            index[d] = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_in_order() {
        for shape in [&[][..], &[7], &[3, 4], &[2, 3, 4], &[5, 1, 3], &[1, 1, 9], &[2, 2, 2, 2]] {
            let n = shape.iter().product::<u64>();
            for most in 1..=n + 1 {
                let mut next = 0;
                for window in windows(shape, most) {
                    assert_eq!(window.first_in(shape), next, "{shape:?} {most}");
                    assert!((1..=most).contains(&window.elements()), "{shape:?} {most}: {window:?}");
                    next += window.elements();
                }
                assert_eq!(next, n, "{shape:?} {most}");
            }
        }
    }

    /// Every way to cut a tensor in two, by every size of window.
    #[test]
    fn chunks_are_joined() {
        let shape = [3, 4, 2];
        let n = shape.iter().product::<u64>();
        let all: Vec<u8> = (0..n as u8).flat_map(|i| [i, 100 + i]).collect();
        for dimension in 0..3 {
            for cut in 1..shape[dimension] {
                let chunks = [0, cut].map(|from| {
                    let (mut first, mut sizes) = ([0; 3], shape);
                    first[dimension] = from;
                    sizes[dimension] = if from == 0 { cut } else { shape[dimension] - cut };
                    let strides = [8, 2, 1];
                    let start: u64 = first.iter().zip(strides).map(|(f, s)| f * s).sum();
                    (first, sizes, in_order(&all[start as usize * 2..], &sizes, &strides, 2))
                });
                for most in 1..=n {
                    let mut joined = Vec::new();
                    for window in windows(&shape, most) {
                        let mut out = vec![0; window.elements() as usize * 2];
                        for (first, sizes, bytes) in &chunks {
                            let Some(common) = window.common(first, sizes) else { continue };
                            let start = common.within(first).first_in(sizes) as usize * 2;
                            let bytes = &bytes[start..][..common.elements() as usize * 2];
                            copy(bytes, &common.within(&window.from), &mut out, &window.sizes, 2);
                        }
                        joined.extend(out);
                    }
                    assert_eq!(joined, all, "{dimension} {cut} {most}");
                }
            }
        }
    }

    #[test]
    fn turned_tensors() {
        assert_eq!(in_order(b"aabbccddeeff", &[3, 2], &[1, 3], 2), b"aaddbbeeccff");
        assert_eq!(in_order(b"abc", &[2, 2], &[0, 2], 1), b"acac", "one that is expanded");
        assert_eq!(in_order(b"ab", &[], &[], 2), b"ab");
    }
}
