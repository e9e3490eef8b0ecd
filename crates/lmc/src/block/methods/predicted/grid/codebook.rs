//! The levels of number formats that weights are quantised to.

use std::sync::LazyLock;

/// The levels that a format has, without their signs where they are symmetric.
pub(super) struct Codebook {
    name: &'static str,
    /// The levels of positive and of negative elements: magnitudes, rising, without 0.
    sides: [Side; 2],
}

/// Levels of one sign.
#[derive(Clone)]
pub(super) struct Side {
    /// As magnitudes, rising.
    pub(super) levels: Vec<f32>,
    /// By the top bits of a magnitude, a level that is not above the nearest one of any magnitude with these bits.
    first: Vec<u8>,
}

/// Bits of a binary32 below those that a table of [`Side`] has entries for.
const SHIFT: u32 = 18;

impl Side {
    fn new(levels: Vec<f32>) -> Self {
        let mut at = 0;
        let first = (0u32..1 << (31 - SHIFT)).map(|key| {
            let x = f32::from_bits(key << SHIFT);
            if x.is_nan() {
                return 0;
            }
            // The nearest level rises with the magnitude.
            at = nearest(&levels, x, at);
            at as u8
        });
        Self { first: first.collect(), levels }
    }

    /// The index of the level that is nearest to a magnitude, from 1 on; 0 for the level 0.
    #[inline(always)]
    pub(super) fn nearest(&self, x: f32) -> usize {
        let first = self.first[(x.to_bits() >> SHIFT) as usize & (self.first.len() - 1)];
        nearest(&self.levels, x, first.into())
    }

    /// The magnitude of a level with an index of [`Self::nearest`].
    pub(super) fn level(&self, index: usize) -> f32 {
        if index == 0 { 0.0 } else { self.levels[index - 1] }
    }

    /// The first level that is at least `x`, from 0 on.
    pub(super) fn first_at_least(&self, x: f64) -> usize {
        let mut at = usize::from(self.first[((x as f32).to_bits() >> SHIFT) as usize & (self.first.len() - 1)]);
        at = at.saturating_sub(2);
        while self.levels.get(at).is_some_and(|&level| f64::from(level) < x) {
            at += 1;
        }
        at
    }
}

/// The index of the level that is nearest to `x`, if it is at least `at`.
#[inline(always)]
fn nearest(levels: &[f32], x: f32, mut at: usize) -> usize {
    while let Some(&above) = levels.get(at) {
        let below = if at == 0 { 0.0 } else { levels[at - 1] };
        if x * 2.0 < below + above || x.is_nan() {
            break;
        }
        at += 1;
    }
    at
}

impl Codebook {
    fn symmetric(name: &'static str, levels: Vec<f32>) -> Self {
        let side = Side::new(levels);
        Self { name, sides: [side.clone(), side] }
    }

    fn has(&self, level: f32) -> bool {
        level == 0.0 || self.side(level < 0.0).levels.contains(&level.abs())
    }

    /// The levels of elements with the given sign.
    #[inline(always)]
    pub(super) fn side(&self, negative: bool) -> &Side {
        &self.sides[usize::from(negative)]
    }
}

/// The positive values of a float of 8 bits or fewer, without infinities and NaNs: `top` is the largest code.
fn small_float(mantissa: u32, bias: i32, top: u32) -> Vec<f32> {
    let value = |code: u32| {
        let (e, m) = ((code >> mantissa) as i32, (code & ((1 << mantissa) - 1)) as f32 / (1 << mantissa) as f32);
        if e == 0 { m * 2f32.powi(1 - bias) } else { (1.0 + m) * 2f32.powi(e - bias) }
    };
    (1..=top).map(value).collect()
}

/// The 4-bit NormalFloat of QLoRA (Dettmers et al. 2023), as in bitsandbytes, and as it is often written down.
const NF4: [f32; 15] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];
const NF4_SHORT: [f32; 15] = [
    -1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.7230,
    1.0,
];

fn signed(levels: &[f32]) -> Codebook {
    let side = |sign: f32| {
        let mut levels: Vec<f32> = levels.iter().map(|level| level * sign).filter(|level| *level > 0.0).collect();
        levels.sort_by(f32::total_cmp);
        Side::new(levels)
    };
    Codebook { name: "nf4", sides: [side(1.0), side(-1.0)] }
}

fn integers(name: &'static str, most: u32) -> Codebook {
    Codebook::symmetric(name, (1..=most).map(|i| i as f32).collect())
}

/// The name of the format that has these levels, the bits of a binary32 each; `None` if none is known. With offsets, all integers can be the
/// levels of unsigned ones.
pub fn name_of(levels: &[u32], has_offsets: bool) -> Option<&'static str> {
    let levels = || levels.iter().map(|&bits| f32::from_bits(bits));
    if has_offsets {
        let integers = || levels().map(|level| (level >= 0.0 && level.fract() == 0.0).then_some(level));
        let largest = integers().try_fold(0.0f32, |a, level| Some(a.max(level?)))?;
        let unsigned = ["uint1", "uint2", "uint3", "uint4", "uint5", "uint6", "uint7", "uint8"];
        return unsigned.into_iter().zip(1..).find(|(_, bits)| largest < (1 << bits) as f32).map(|(name, _)| name);
    }
    let magnitudes: std::collections::BTreeSet<u32> =
        levels().filter(|&level| level != 0.0).map(|level| level.abs().to_bits()).collect();
    if magnitudes.len() <= 1 {
        return Some("ternary");
    }
    ALL.iter().find(|book| levels().all(|level| book.has(level))).map(|book| book.name)
}

/// All formats that are searched for, those with few levels first: values that fit one of these fit many of the others,
/// too.
pub(super) static ALL: LazyLock<Vec<Codebook>> = LazyLock::new(|| {
    vec![
        // E2M1: FP4, MXFP4, NVFP4.
        Codebook::symmetric("fp4 e2m1", small_float(1, 1, 7)),
        // Signed integers of 4 bits.
        integers("int4", 8),
        signed(&NF4),
        signed(&NF4_SHORT),
        // Integers of 4 bits less a zero point.
        integers("int4 with zero points", 15),
        // Signed integers of 5 and 6 bits.
        integers("int5", 16),
        integers("int6", 32),
        // E4M3, largest value 448, and E5M2.
        Codebook::symmetric("fp8 e4m3", small_float(3, 7, 126)),
        // Integers of 8 bits.
        integers("int8", 128),
        Codebook::symmetric("fp8 e5m2", small_float(2, 15, 123)),
    ]
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_floats_have_their_values() {
        assert_eq!(small_float(1, 1, 7), [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        let e4m3 = small_float(3, 7, 126);
        assert_eq!((e4m3[0], e4m3[7], e4m3[125]), (2f32.powi(-9), 2f32.powi(-6), 448.0));
        let e5m2 = small_float(2, 15, 123);
        assert_eq!((e5m2[0], e5m2[122]), (2f32.powi(-16), 57344.0));
    }

    #[test]
    fn formats_are_known_by_their_levels() {
        let bits = |levels: &[f32]| levels.iter().map(|level| level.to_bits()).collect::<Vec<_>>();
        let name = |levels: &[f32]| name_of(&bits(levels), false);
        assert_eq!(name(&[-6.0, 0.0, -0.0, 6.0]), Some("ternary"));
        assert_eq!(name(&[-6.0, 0.5, 1.5, 3.0]), Some("fp4 e2m1"));
        assert_eq!(name(&[-8.0, 0.0, 5.0, 7.0]), Some("int4"));
        assert_eq!(name(&[-13.0, 0.0, 5.0, 9.0]), Some("int4 with zero points"));
        assert_eq!(name(&[-127.0, 0.0, 5.0, 113.0]), Some("int8"));
        assert_eq!(name(&[-448.0, 0.001953125, 5.0]), Some("fp8 e4m3"));
        assert_eq!(name(&[-1.0, 0.0, 0.440_709_83]), Some("nf4"));
        assert_eq!(name(&[-57344.0, 0.0, 1.0]), Some("fp8 e5m2"));
        assert_eq!(name(&[0.3, 1.0]), None);
        assert_eq!(name(&[-16.0, 0.0, 15.0]), Some("int5"));
        assert_eq!(name(&[-32.0, 0.0, 15.0]), Some("int6"));
        let with_offsets = |levels: &[f32]| name_of(&bits(levels), true);
        assert_eq!(with_offsets(&[0.0, 1.0, 3.0]), Some("uint2"));
        assert_eq!(with_offsets(&[0.0, 15.0]), Some("uint4"));
        assert_eq!(with_offsets(&[0.0, 16.0]), Some("uint5"));
        assert_eq!(with_offsets(&[-1.0, 16.0]), None);
        assert_eq!(with_offsets(&[0.5]), None);
        assert_eq!(with_offsets(&[256.0]), None);
    }

    #[test]
    fn the_nearest_level_is_found() {
        for book in ALL.iter() {
            for side in &book.sides {
                let top = *side.levels.last().unwrap();
                for i in 0..20_000 {
                    let x = top * 1.1 * i as f32 / 20_000.0;
                    let distance = |at: usize| (side.level(at) - x).abs();
                    let least = (0..=side.levels.len()).map(distance).fold(f32::MAX, f32::min);
                    assert_eq!(distance(side.nearest(x)), least, "{x}");
                    let from = side.first_at_least(x.into());
                    assert_eq!(from, side.levels.partition_point(|&level| level < x), "{x}");
                }
                assert_eq!(side.nearest(f32::INFINITY), side.levels.len());
                assert_eq!(side.nearest(f32::NAN), 0);
            }
        }
    }
}
