//! The predict stage: what is expected of an element, from a base snapshot or from other tensors (`docs/format.md` §3.7).

/// How an element of what a prediction is made from becomes one of the part's own width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// As it is.
    None = 0,
    /// F32 to BF16, to nearest, ties to even.
    NarrowBf16 = 1,
    /// BF16 to F32.
    WidenBf16 = 2,
    /// F32 to F16, to nearest, ties to even.
    NarrowF16 = 3,
}
