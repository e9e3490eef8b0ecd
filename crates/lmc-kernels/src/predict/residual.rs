//! Residuals of many elements, and back: loops that compilers vectorise.

use super::Predictor;
use crate::cluster::element::{Element, with_element};
use crate::inline::{zip, zip3};

/// Calls a function that is generic over elements, with the predictor as a constant.
macro_rules! with_predictor {
    ($width:expr, $predictor:expr, $f:ident($($arg:expr),*)) => {
        with_element!($width, E => match $predictor {
            Predictor::Float => $f::<E>(Predictor::Float, $($arg),*),
            Predictor::Integer => $f::<E>(Predictor::Integer, $($arg),*),
        })
    };
}

/// Replaces `out` by the residuals of `elements`. All have one length.
#[inline(always)]
pub fn residuals(width: usize, predictor: Predictor, elements: &[u8], prediction: &[u8], out: &mut [u8]) {
    with_predictor!(width, predictor, residuals_as(elements, prediction, out));
}

/// Replaces residuals by their elements.
#[inline(always)]
pub(crate) fn restore(width: usize, predictor: Predictor, prediction: &[u8], residuals: &mut [u8]) {
    with_predictor!(width, predictor, restore_as(prediction, residuals));
}

#[inline(always)]
fn residuals_as<E: Element>(predictor: Predictor, elements: &[u8], prediction: &[u8], out: &mut [u8]) {
    zip3(E::all_mut(out), E::all(elements), E::all(prediction), |to, u, p| {
        *to = predictor.residual(E::from_bytes(*u), E::from_bytes(*p)).to_bytes();
    });
}

#[inline(always)]
fn restore_as<E: Element>(predictor: Predictor, prediction: &[u8], residuals: &mut [u8]) {
    zip(E::all_mut(residuals), E::all(prediction), |e, p| {
        *e = predictor.restore(E::from_bytes(*e), E::from_bytes(*p)).to_bytes();
    });
}
