//! Predicted columns (§3.7): the writer's output for known residuals and predictions, byte by byte, which all decoders
//! restore; and every predictor with every conversion, context and width.

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
fn operands(conversion: u8, base: &[u8]) -> Vec<Operand> {
    vec![Operand::Ranges { conversion, ranges: vec![Range::of_base(1, base)] }]
}

/// A block of one column with these residuals, context by context; of `raw` only the length matters.
fn block_of(mut column: Predicted, residuals: Vec<Vec<u64>>) -> Block {
    column.set_residuals(residuals).expect("the base has the elements");
    Block::of(Column::Predicted(column), 0)
}

/// Elements of `width` bytes as a base that predicts `elements`: decoders and writer must find these residuals.
#[track_caller]
fn known(width_code: u8, predictor: u8, conversion: u8, predictions: &[u8], residuals: &[u64], elements: &[u64]) {
    let width = 1 << width_code;
    let column = Predicted {
        raw: to_bytes(elements, width),
        width_code,
        predictor,
        operands: operands(conversion, predictions),
        boundaries: vec![],
        streams: vec![plain(width)],
    };
    let fields = Block::of(Column::Predicted(column), 0).encode().expect("the block can be coded");

    // Raw bits of all bits are byte planes.
    let planes: Vec<u8> = (0..width).flat_map(|i| residuals.iter().map(move |e| (e >> (8 * i)) as u8)).collect();
    assert_eq!(fields.bulk[0], planes, "the residuals are others");
    let n = elements.len() as u8;
    assert!(n < 128, "the number of elements is to take a byte");
    let stream = [0, 0, 1, 0, 0, 0, 0, 8 * width as u8, 0];
    // One operand of one range, from the start of the base.
    let operand = [&[1, conversion, 1, 1, 0][..], &varint(predictions.len())].concat();
    let head = [&[3, width_code, predictor][..], &operand, &[0, n], &stream].concat();
    assert_eq!(fields.columns[0], head);
    assert_eq!(decoded(&fields, predictions), Ok(to_bytes(elements, width)));
}

fn varint(value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    lmc_testing::reference::write::varint(&mut out, value as u64);
    out
}

#[test]
fn difference_of_integers() {
    // Residuals 0, 1, 2, 3, 4 mean 0, −1, 1, −2, 2; the largest ones mean −128 and 127.
    known(0, 2, 0, &[5, 5, 5, 5, 5, 5, 5], &[0, 1, 2, 3, 4, 255, 254], &[5, 4, 6, 3, 7, 133, 132]);
    // They wrap around.
    known(0, 2, 0, &[255, 0], &[2, 1], &[0, 255]);
    known(1, 2, 0, &to_bytes(&[0xffff, 0x0100], 2), &[4, 0x0201], &[0x0001, 0xffff]);
    known(2, 2, 0, &to_bytes(&[0x8000_0000], 4), &[1], &[0x7fff_ffff]);
    known(3, 2, 0, &to_bytes(&[u64::MAX, 7], 8), &[2, u64::MAX], &[0, 7 + (1 << 63)]);
}

#[test]
fn difference_of_floats() {
    // BF16 1.0 and its neighbours, 1 and 2 units up and down.
    let one = 0x3f80;
    let predictions = to_bytes(&[one; 5], 2);
    known(1, 1, 0, &predictions, &[0, 2, 1, 4, 3], &[0x3f80, 0x3f81, 0x3f7f, 0x3f82, 0x3f7e]);
    // Of negative numbers the larger ones have the smaller bits: −1.0 and one unit up is −0.996.
    let predictions = to_bytes(&[one | 0x8000; 3], 2);
    known(1, 1, 0, &predictions, &[0, 2, 1], &[0xbf80, 0xbf7f, 0xbf81]);
    // ord takes −0 to 0xffff, that is −1: next below 0, and one unit above the negative number nearest to 0.
    let predictions = to_bytes(&[0x0000, 0x8000, 0x8000, 0x8001, 0x0001], 2);
    known(1, 1, 0, &predictions, &[1, 2, 1, 2, 3], &[0x8000, 0x0000, 0x8001, 0x8000, 0x8000]);
    // From infinity one up is the first number that is none, and from the largest integer it goes to the smallest.
    let predictions = to_bytes(&[0x7f80, 0xff80, 0x7fff, 0xffff], 2);
    known(1, 1, 0, &predictions, &[2, 1, 2, 1], &[0x7f81, 0xff81, 0xffff, 0x7fff]);
}

#[test]
fn difference_of_floats_of_every_width() {
    known(0, 1, 0, &[0x38, 0x80, 0xb8], &[2, 2, 1], &[0x39, 0x00, 0xb9]);
    known(2, 1, 0, &to_bytes(&[0x3f80_0000, 0xbf80_0000], 4), &[1, 4], &[0x3f7f_ffff, 0xbf7f_fffe]);
    let one = 0x3ff0_0000_0000_0000;
    known(3, 1, 0, &to_bytes(&[one, 1 << 63], 8), &[3, 2], &[one - 2, 0]);
}

#[test]
fn f32_to_bf16() {
    #[rustfmt::skip]
    let known_values = [
        (0x3f80_0000, 0x3f80), // 1
        (0x3f80_7fff, 0x3f80), // below the middle
        (0x3f80_8000, 0x3f80), // a tie, to even
        (0x3f80_8001, 0x3f81), // above the middle
        (0x3f81_8000, 0x3f82), // a tie, to even
        (0x3f81_7fff, 0x3f81),
        (0xbf81_8000, 0xbf82), // negative
        (0x0000_0000, 0x0000),
        (0x8000_0000, 0x8000), // −0
        (0x0000_8000, 0x0000), // a subnormal tie
        (0x0000_8001, 0x0001),
        (0x007f_8000, 0x0080), // a subnormal that becomes normal: 0x007f is odd
        (0x7f7f_ffff, 0x7f80), // the largest number becomes infinite
        (0x7f7f_7fff, 0x7f7f),
        (0x7f80_0000, 0x7f80), // infinity
        (0xff80_0000, 0xff80),
        (0x7f80_0001, 0x7f80), // a NaN may become a number: it is rounded like one
        (0x7fc0_1234, 0x7fc0),
        (0x7fff_ffff, 0x8000), // even the sign may change
        (0xffff_ffff, 0x0000), // modulo 2^32
        (0xffff_8000, 0x0000),
        (0xffff_7fff, 0xffff),
    ];
    let (floats, converted): (Vec<u64>, Vec<u64>) = known_values.into_iter().unzip();
    let nothing = vec![0; floats.len()];
    known(1, 1, 1, &to_bytes(&floats, 4), &nothing, &converted);
    known(1, 2, 1, &to_bytes(&floats, 4), &nothing, &converted);
    // And a step up from there.
    known(1, 1, 1, &to_bytes(&[0x3f81_8000], 4), &[2], &[0x3f83]);
}

#[test]
fn bf16_to_f32() {
    let (bf16, f32) = ([0x3f80, 0xff81, 0x8000, 0x0001], [0x3f80_0000, 0xff81_0000, 0x8000_0000, 0x0001_0000]);
    for predictor in 1..=2 {
        known(2, predictor, 2, &to_bytes(&bf16, 2), &[0; 4], &f32);
    }
    known(2, 2, 2, &to_bytes(&[0x3f80], 2), &[0x2468], &[0x3f80_1234]);
    known(2, 1, 2, &to_bytes(&[0x3f80, 0x3f80], 2), &[1, 0x10], &[0x3f7f_ffff, 0x3f80_0008]);
}

#[test]
fn f32_to_f16() {
    #[rustfmt::skip]
    let known_values = [
        (0x3f80_0000, 0x3c00), // 1
        (0x3f80_1000, 0x3c00), // a tie between 1 and its neighbour, to even
        (0x3f80_1001, 0x3c01),
        (0x3f80_3000, 0x3c02), // a tie, to even
        (0x3fff_ffff, 0x4000), // just below 2
        (0xc000_0000, 0xc000), // −2
        (0x477f_e000, 0x7bff), // 65504, the largest
        (0x477f_efff, 0x7bff), // just below 65520
        (0x477f_f000, 0x7c00), // 65520, a tie, to infinity
        (0x4780_0000, 0x7c00), // 65536
        (0x7f7f_ffff, 0x7c00),
        (0x7f80_0000, 0x7c00), // infinity
        (0xff80_0000, 0xfc00),
        (0x7f80_0001, 0x7e00), // not a number
        (0xffff_ffff, 0xfe00),
        (0x7fc0_1234, 0x7e00),
        (0x3880_0000, 0x0400), // 2^−14, the smallest normal one
        (0x387f_ffff, 0x0400), // just below it
        (0x387f_e000, 0x0400), // a tie between it and the largest subnormal one, to even
        (0x387f_dfff, 0x03ff),
        (0x3380_0000, 0x0001), // 2^−24, the smallest
        (0x3300_0000, 0x0000), // 2^−25, a tie, to 0
        (0xb300_0000, 0x8000), // to −0
        (0x3300_0001, 0x0001),
        (0x33c0_0000, 0x0002), // 1.5 · 2^−24, a tie
        (0x0000_0001, 0x0000),
        (0x8000_0000, 0x8000), // −0
    ];
    let (floats, converted): (Vec<u64>, Vec<u64>) = known_values.into_iter().unzip();
    let nothing = vec![0; floats.len()];
    known(1, 1, 3, &to_bytes(&floats, 4), &nothing, &converted);
    known(1, 2, 3, &to_bytes(&floats, 4), &nothing, &converted);
    known(1, 1, 3, &to_bytes(&[0x3f80_3000], 4), &[1], &[0x3c01]);
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
        predictor: 1,
        operands: operands(3, &base),
        boundaries: vec![],
        streams: vec![plain(2)],
    };
    let fields = block_of(column, vec![vec![0; floats.len()]]).encode().expect("the block can be coded");
    assert!(decoded(&fields, &base) == Ok(to_bytes(&converted, 2)));
}

/// The context of each prediction, which the keys decide.
#[track_caller]
fn known_contexts(width_code: u8, boundaries: &[u8], predictions: &[u64], contexts: &[usize]) {
    let width = 1 << width_code;
    let base = to_bytes(predictions, width);
    let column = Predicted {
        raw: vec![0; predictions.len() * width],
        width_code,
        predictor: 2,
        operands: operands(0, &base),
        boundaries: boundaries.to_vec(),
        streams: vec![plain(width); boundaries.len() + 1],
    };
    // Each context has its own residuals, so that it shows in the elements.
    let residuals =
        (0..boundaries.len() + 1).map(|context| vec![2 * (100 + context as u64); predictions.len()]).collect();
    let fields = block_of(column, residuals).encode().expect("the block can be coded");
    let elements: Vec<u64> =
        predictions.iter().zip(contexts).map(|(&p, &context)| p.wrapping_add(100 + context as u64)).collect();
    assert_eq!(decoded(&fields, &base), Ok(to_bytes(&elements, width)));
}

#[test]
fn contexts_of_bytes() {
    // Rotated, 0x80 is 1, 0x7f is 0xfe and 0xff is itself.
    known_contexts(0, &[1], &[0x00, 0x80, 0x7f, 0xff, 0x01], &[0, 1, 1, 1, 1]);
    known_contexts(0, &[255], &[0x7f, 0xff, 0x00], &[0, 1, 0]);
    known_contexts(0, &[2, 3, 0xfe], &[0x80, 0x01, 0x81, 0x7f, 0xff], &[0, 1, 2, 3, 3]);
}

#[test]
fn contexts_of_longer_elements() {
    // The key of BF16 1.0, rotated 0x7f00, is the exponent, as that of all from 1.0 to 2.0 is, of any sign.
    let predictions = [0x3f80, 0xbf80, 0x3fff, 0x3f7f, 0x4000, 0x8000, 0x7fc0, 0xffff];
    known_contexts(1, &[127, 128, 255], &predictions, &[1, 1, 1, 0, 2, 0, 3, 3]);
    known_contexts(2, &[127], &[0x3f80_0000, 0x3f7f_ffff, 0xbf80_0000], &[1, 0, 1]);
    known_contexts(3, &[127], &[0x3f80 << 48, 0x3f7f << 48, 0xbf80 << 48], &[1, 0, 1]);
}

#[test]
fn contexts_without_elements() {
    // The first, the last, one in the middle, and all but one.
    known_contexts(0, &[1, 2, 4, 200], &[0x80, 0x02, 0x02], &[1, 3, 3]);
    let every_sixteenth: Vec<u8> = (1..=15).map(|i| 16 * i).collect();
    known_contexts(0, &every_sixteenth, &[0x7f, 0x7f], &[15, 15]);
    known_contexts(0, &every_sixteenth, &[0, 1], &[0, 0]);
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
fn every_predictor_conversion_and_width() {
    let mut random = Random::new(1);
    let mut cases = 0;
    for width_code in 0..4u8 {
        let width = 1 << width_code;
        let conversions: &[(u8, usize)] = match width {
            2 => &[(0, 2), (1, 4), (3, 4)],
            4 => &[(0, 4), (2, 2)],
            _ => &[(0, width)],
        };
        for predictor in 1..3 {
            for &(conversion, takes) in conversions {
                for boundaries in [vec![], vec![1, 2, 100, 128, 250, 255]] {
                    for count in [1, 127, 128, 129, 1000] {
                        let base = floats(takes, count, &mut random);
                        // Every context in another way: all bits raw, with symbols above, and with patches.
                        let symbols = Cluster {
                            k: 8 * width as u8 - 8,
                            coder: Coder::rans(&[0, 0, 1], true),
                            ..Cluster::default()
                        };
                        let stream = |context: usize| match context % 3 {
                            0 => plain(width),
                            1 => Stream::of(1, symbols.clone()),
                            _ => Stream { patches: vec![Patch { element: 0, x: 0x81 }], ..plain(width) },
                        };
                        let column = Predicted {
                            raw: floats(width, count, &mut random),
                            width_code,
                            predictor,
                            operands: operands(conversion, &base),
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
    }
    // Seven conversions in all, with two predictors, in one context and in seven.
    assert_eq!(cases, 5 * 7 * 2 * 2);
}
