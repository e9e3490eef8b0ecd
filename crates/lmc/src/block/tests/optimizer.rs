//! States of optimizers: moments that shrink, rows that change by other amounts, and terms of rows and columns.

use super::predicted::{Files, reference};
use super::*;
use crate::block::Matrix;
use crate::block::methods::Method;
use crate::block::methods::predicted::Predicted;
use crate::block::methods::predicted::operand::Operand;

const ROW: usize = 512;
const ROWS: usize = 400;

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn extent(raw: &[u8], dtype: Dtype, position: u64) -> Extent {
    let matrix = Some(Matrix { row: ROW as u64, position });
    Extent { matrix, group: Group::Segment(0), ..Extent::plain(Some(dtype), raw.len()) }
}

/// The only column, which must be predicted.
fn predicted(record: &[u8]) -> Option<Predicted> {
    let [column] = &head_of(record).columns[..] else { panic!("there is one column") };
    if let Method::Predicted(p) = &column.method { Some((**p).clone()) } else { None }
}

/// A power of two, not whole: products instead of a function of the mathematical library.
fn power(r: &mut Random, octaves: f32) -> f32 {
    let x = r.normal() * octaves;
    f32::from_bits(((127.0 + x.clamp(-100.0, 100.0)) * 8_388_608.0) as u32)
}

/// Averages of squared gradients of a layer, with those of a step: inputs and outputs have sizes of their own.
fn moments(r: &mut Random) -> (Vec<f32>, Vec<f32>) {
    let columns: Vec<f32> = (0..ROW).map(|_| power(r, 2.0)).collect();
    let (mut old, mut squares) = (vec![], vec![]);
    for _ in 0..ROWS {
        let row = 1e-9 * power(r, 2.0);
        for column in &columns {
            old.push(row * column * power(r, 0.5));
            let g = r.normal();
            squares.push(row * column * g * g);
        }
    }
    (old, squares)
}

#[test]
fn second_moments_have_terms_of_rows_and_columns() {
    let mut r = Random(1);
    let raw = bytes(&moments(&mut r).0);
    for position in [0, 77] {
        let record = round_trip(&raw, &[extent(&raw, Dtype::F32, position)], Level::Default);
        let p = predicted(&record).expect("terms predict it");
        assert!(matches!(p.operand, Operand::Factored(_)) && p.contexts.is_none());
        let plain = round_trip(&raw, &[Extent::plain(Some(Dtype::F32), raw.len())], Level::Default);
        assert!(record.len() * 100 < plain.len() * 98, "{} of {}", record.len(), plain.len());
    }
    // Weights of both signs, and moments without rows and columns, have none.
    let weights = bytes(&weights(ROW * ROWS, 3));
    let scattered = bytes(&(0..ROW * ROWS).map(|_| 1e-9 * power(&mut r, 3.0)).collect::<Vec<_>>());
    for raw in [weights, scattered] {
        assert!(predicted(&round_trip(&raw, &[extent(&raw, Dtype::F32, 0)], Level::Default)).is_none());
    }
}

#[test]
fn second_moments_are_multiples_of_those_before() {
    let mut r = Random(2);
    let (old, squares) = moments(&mut r);
    let after = |steps: i32| -> Vec<f32> {
        let decay = (0..steps).fold(1.0, |all, _| all * 0.999f32);
        old.iter().zip(&squares).map(|(v, g)| v * decay + (1.0 - decay) * g).collect()
    };
    for steps in [1, 9, 40] {
        let (raw, base) = (bytes(&after(steps)), bytes(&old));
        let files = Files(vec![vec![], base]);
        let own = extent(&raw, Dtype::F32, 0);
        let record = round_trip_from(&raw, &[Extent { base: Some(reference(1, 0)), ..own }], &files, Level::Default);
        let p = predicted(&record).expect("it is a delta");
        let Operand::Scaled(scaled) = &p.operand else { panic!("{steps}: {:?}", p.operand) };
        let expected = (0..steps).fold(1.0, |all, _| all * 0.999f64);
        assert!((f64::from(scaled.factor) - expected).abs() < 1e-5, "{} for {expected}", scaled.factor);
        // All are above their predictions.
        for (new, old) in after(steps).iter().zip(&old) {
            assert!(*new >= scaled.factor * old);
        }
    }
}

#[test]
fn rows_that_change_more_than_others_have_terms() {
    let mut r = Random(3);
    let sizes: Vec<f32> = (0..ROWS).map(|_| 1e-5 * power(&mut r, 2.5)).collect();
    let old = weights(ROW * ROWS, 4);
    let changed: Vec<f32> = old.iter().enumerate().map(|(i, w)| w + sizes[i / ROW] * r.normal()).collect();
    let narrow = |w: &[f32]| w.iter().flat_map(|&x| bf16(x)).collect::<Vec<u8>>();
    for (dtype, raw, base) in
        [(Dtype::F32, bytes(&changed), bytes(&old)), (Dtype::Bf16, narrow(&changed), narrow(&old))]
    {
        let files = Files(vec![vec![], base]);
        let own = Extent { base: Some(reference(1, 0)), ..extent(&raw, dtype, 0) };
        for &level in Level::ALL {
            let record = round_trip_from(&raw, &[own], &files, level);
            let without = round_trip_from(&raw, &[Extent { matrix: None, ..own }], &files, level);
            let p = predicted(&record).expect("it is a delta");
            assert!(p.terms.is_some(), "{dtype}");
            assert!(record.len() * 100 < without.len() * 99, "{dtype}: {} of {}", record.len(), without.len());
        }
    }
    // Where all rows change alike, terms would cost more than they save.
    let changed: Vec<f32> = old.iter().map(|w| w + 1e-5 * r.normal()).collect();
    let (raw, files) = (bytes(&changed), Files(vec![vec![], bytes(&old)]));
    let own = Extent { base: Some(reference(1, 0)), ..extent(&raw, Dtype::F32, 0) };
    assert!(predicted(&round_trip_from(&raw, &[own], &files, Level::Default)).is_some_and(|p| p.terms.is_none()));
}
