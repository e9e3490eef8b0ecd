//! Predicted columns (§3.7): every conversion, context and width, and the rounding to F16.

use lmc_testing::decoders::agree_with_bases;
use lmc_testing::input::Random;
use lmc_testing::reference::write::File;
use lmc_testing::reference::write::block::{
    Block, BlockFields, Cluster, Column, Operand, Patch, Predicted, Range, Stream,
};
use lmc_testing::reference::write::entropy::Coder;

/// All bits of an element of `width` bytes as they are.
fn plain(width: usize) -> Stream {
    Stream::of(0, Cluster { k: 8 * width as u8, ..Cluster::default() })
}

fn to_bytes(elements: &[u64], width: usize) -> Vec<u8> {
    elements.iter().flat_map(|u| u.to_le_bytes()[..width].to_vec()).collect()
}

/// The result of all decoders for a block that names ranges of one base.
fn decoded(fields: &BlockFields, base: &[u8]) -> Result<Vec<u8>, String> {
    let file = File { features: 1, ..File::delta(&[base], vec![fields.record()]) };
    agree_with_bases(&file.to_bytes(), &[base])
}

/// All of the base, converted.
fn operand(conversion: u8, base: &[u8]) -> Operand {
    Operand::Ranges { conversion, ranges: vec![Range::of_base(1, base)] }
}

/// A block of one column with these residuals, context by context; of `raw` only the length matters.
fn block_of(mut column: Predicted, residuals: Vec<Vec<u64>>) -> Block {
    column.set_residuals(residuals).expect("the base has the elements");
    Block::of(Column::Predicted(column), 0)
}

/// The value of an F16, if it is a number.
fn f16(bits: u16) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 0x3ff));
    let magnitude =
        if exponent == 0 { fraction * 2f32.powi(-24) } else { (1024.0 + fraction) * 2f32.powi(exponent - 25) };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

#[test]
fn every_f16_is_what_its_neighbourhood_becomes() {
    // Rounding is monotonous, so it is right everywhere if it is right at the middles and next to them.
    let mut floats = Vec::new();
    let mut converted = Vec::new();
    for sign in [0, 0x8000] {
        for bits in 0..0x7c00u16 {
            // 65536 stands in the place of infinity.
            let middle = (f16(bits) + f16(bits + 1)) / 2.0;
            let even = bits + (bits & 1);
            let middle = middle.to_bits() | u32::from(sign) << 16;
            for (float, to) in [(middle - 1, bits), (middle, even), (middle + 1, bits + 1)] {
                floats.push(u64::from(float));
                converted.push(u64::from(to | sign));
            }
            floats.push(u64::from(f16(bits | sign).to_bits()));
            converted.push(u64::from(bits | sign));
        }
    }
    let base = to_bytes(&floats, 4);
    let column = Predicted {
        raw: vec![0; 2 * floats.len()],
        width_code: 1,
        operand: operand(3, &base),
        row_terms: None,
        boundaries: vec![],
        streams: vec![plain(2)],
    };
    let fields = block_of(column, vec![vec![0; floats.len()]]).encode().expect("the block can be coded");
    assert!(decoded(&fields, &base) == Ok(to_bytes(&converted, 2)));
}

/// Bytes as floats of all kinds: numbers, −0, infinities, and NaNs with every payload.
fn floats(width: usize, count: usize, random: &mut Random) -> Vec<u8> {
    let w = 8 * width as u32;
    let exponent_bits = [4, 5, 8, 11][width.trailing_zeros() as usize];
    let exponent = ((1u64 << exponent_bits) - 1) << (w - 1 - exponent_bits);
    let element = |random: &mut Random| {
        let (sign, noise) = (random.u64() << (w - 1), random.u64());
        match random.below(6) {
            0 => sign,
            1 => sign | exponent,
            2 => sign | exponent | noise & (exponent & exponent.wrapping_neg()).wrapping_sub(1),
            3 => sign | noise & 3,
            _ => noise,
        }
    };
    to_bytes(&(0..count).map(|_| element(random)).collect::<Vec<_>>(), width)
}

#[test]
fn every_conversion_and_width() {
    let mut random = Random::new(1);
    let mut cases = 0;
    for width_code in 0..4u8 {
        let width = 1 << width_code;
        let conversions: &[(u8, usize)] = match width {
            2 => &[(0, 2), (1, 4), (3, 4)],
            4 => &[(0, 4), (2, 2)],
            _ => &[(0, width)],
        };
        for &(conversion, takes) in conversions {
            for boundaries in [vec![], vec![1, 2, 100, 128, 250, 255]] {
                for count in [1, 127, 128, 129, 1000] {
                    let base = floats(takes, count, &mut random);
                    // Every context in another way: all bits raw, with symbols above, and with patches.
                    let symbols =
                        Cluster { k: 8 * width as u8 - 8, coder: Coder::rans(&[0, 0, 1], true), ..Cluster::default() };
                    let stream = |context: usize| match context % 3 {
                        0 => plain(width),
                        1 => Stream::of(1, symbols.clone()),
                        _ => Stream { patches: vec![Patch { element: 0, x: 0x81 }], ..plain(width) },
                    };
                    let column = Predicted {
                        raw: floats(width, count, &mut random),
                        width_code,
                        operand: operand(conversion, &base),
                        row_terms: None,
                        boundaries: boundaries.clone(),
                        streams: (0..7).map(stream).collect(),
                    };
                    let raw = column.raw.clone();
                    let block = Block::of(Column::Predicted(column), 2);
                    let fields = block.encode().expect("the block can be coded");
                    assert!(decoded(&fields, &base) == Ok(raw));
                    cases += 1;
                }
            }
        }
    }
    // Seven conversions in all, in one context and in seven.
    assert_eq!(cases, 5 * 7 * 2);
}
