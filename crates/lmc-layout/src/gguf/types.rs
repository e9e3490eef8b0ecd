//! The types of tensors in GGUF files (`ggml_type` and the blocks in `ggml-common.h`).

use crate::dtype::{Dtype, NamedDtype};

/// Code, name, elements of a block, bytes of a block. Codes that are missing were removed from ggml, or
/// stand for results on the way, which no file has (Q8_1, Q8_K).
const BLOCKS: &[(u32, &str, u64, u32)] = &[
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (29, "IQ1_M", 256, 56),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
];

/// The dtype of a type's blocks, and the elements of each; `None` if the type is not known.
pub(super) fn of(kind: u32) -> Option<(Dtype, u64)> {
    let dtype = match kind {
        0 => Dtype::F32,
        1 => Dtype::F16,
        24 => Dtype::I8,
        25 => Dtype::I16,
        26 => Dtype::I32,
        27 => Dtype::I64,
        28 => Dtype::F64,
        30 => Dtype::Bf16,
        _ => {
            let &(_, name, elements, bytes) = BLOCKS.iter().find(|b| b.0 == kind)?;
            return Some((Dtype::Named(NamedDtype::new(name, 8 * bytes)?), elements));
        }
    };
    Some((dtype, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantised::fields_of;

    #[test]
    fn every_block_has_a_dtype() {
        for &(code, name, elements, bytes) in BLOCKS {
            let (dtype, of_block) = of(code).expect("it is listed");
            assert_eq!((dtype.name(), dtype.bits(), of_block), (name, 8 * bytes, elements));
        }
        // Each is coded field by field.
        for &(code, name, ..) in BLOCKS {
            let (dtype, _) = of(code).expect("it is listed");
            assert!(fields_of(dtype).is_some(), "{name}");
        }
        assert!(BLOCKS.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!((of(4), of(31), of(u32::MAX)), (None, None, None));
    }
}
