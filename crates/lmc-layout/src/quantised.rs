//! Blocks of quantised elements, as GGUF has them: a dtype whose elements are structs, each of a scale and small integers.
//!
//! The fields of `ggml-common.h`, in its order.

use crate::dtype::Dtype;

/// A field of every block of a dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// In bytes: a multiple of its dtype's coding width.
    pub len: usize,
    /// Their type.
    pub dtype: Dtype,
}

const F16: Field = Field { len: 2, dtype: Dtype::F16 };
const I8_16: Field = Field { len: 16, dtype: Dtype::I8 };

const fn bytes(len: usize) -> Field {
    Field { len, dtype: Dtype::U8 }
}

const FIELDS: &[(&str, &[Field])] = &[
    ("IQ1_M", &[bytes(32), bytes(16), bytes(8)]),
    ("IQ1_S", &[F16, bytes(32), bytes(16)]),
    ("IQ2_S", &[F16, bytes(64), bytes(8), bytes(8)]),
    ("IQ2_XS", &[F16, bytes(64), bytes(8)]),
    ("IQ2_XXS", &[F16, bytes(64)]),
    ("IQ3_S", &[F16, bytes(64), bytes(8), bytes(32), bytes(4)]),
    ("IQ3_XXS", &[F16, bytes(64), bytes(32)]),
    ("IQ4_NL", &[F16, bytes(16)]),
    ("IQ4_XS", &[F16, bytes(2), bytes(4), bytes(128)]),
    ("MXFP4", &[bytes(1), bytes(16)]),
    ("NVFP4", &[bytes(4), bytes(32)]),
    ("Q1_0", &[F16, bytes(16)]),
    ("Q2_K", &[bytes(16), bytes(64), F16, F16]),
    ("Q3_K", &[bytes(32), bytes(64), bytes(12), F16]),
    ("Q4_0", &[F16, bytes(16)]),
    ("Q4_1", &[F16, F16, bytes(16)]),
    ("Q4_K", &[F16, F16, bytes(12), bytes(128)]),
    ("Q5_0", &[F16, bytes(4), bytes(16)]),
    ("Q5_1", &[F16, F16, bytes(4), bytes(16)]),
    ("Q5_K", &[F16, F16, bytes(12), bytes(32), bytes(128)]),
    ("Q6_K", &[bytes(128), bytes(64), I8_16, F16]),
    ("Q8_0", &[F16, Field { len: 32, dtype: Dtype::I8 }]),
    ("TQ1_0", &[bytes(48), bytes(4), F16]),
    ("TQ2_0", &[bytes(64), F16]),
];

/// The fields of a block, and its length in bytes; `None` if the dtype has no blocks that are known.
pub fn fields_of(dtype: Dtype) -> Option<(&'static [Field], usize)> {
    if !dtype.is_block() {
        return None;
    }
    let name = dtype.name();
    let (_, fields) = FIELDS[FIELDS.binary_search_by_key(&name, |f| f.0).ok()?];
    let len: usize = fields.iter().map(|f| f.len).sum();
    (8 * len == dtype.bits() as usize).then_some((fields, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::NamedDtype;

    #[test]
    fn fields_fill_blocks_of_the_right_size() {
        assert!(FIELDS.is_sorted_by(|a, b| a.0 < b.0));
        for &(name, fields) in FIELDS {
            let len: usize = fields.iter().map(|f| f.len).sum();
            let of = |bits| NamedDtype::new(name, bits).and_then(|d| fields_of(Dtype::Named(d)));
            assert_eq!((of(8 * len as u32), of(8 * len as u32 + 8)), (Some((fields, len)), None), "{name}");
            assert!(fields.iter().all(|f| f.len.is_multiple_of(f.dtype.coding_width())));
        }
        assert_eq!(fields_of(Dtype::F32), None);
        assert_eq!(fields_of(Dtype::Named(NamedDtype::new("Q9_9", 144).unwrap())), None);
    }
}
