//! Residuals: the distances of elements from their predictions, in units in the last place.

use crate::cluster::element::{Element, with_element};
use crate::inline::{zip, zip3};

/// The residual of `u` with prediction `p`: their distance, zigzag.
#[inline(always)]
pub fn of<E: Element>(u: E, p: E) -> E {
    let d = u.ordered().sub(p.ordered());
    d.shl(1).xor(d.sign_fill())
}

/// The element with residual `e` and prediction `p`.
#[inline(always)]
pub fn element<E: Element>(e: E, p: E) -> E {
    e.shr(1).xor(e.low_fill()).add(p.ordered()).ordered()
}

/// Replaces `out` by the residuals of `elements`. All have one length.
#[inline(always)]
pub fn residuals(width: usize, elements: &[u8], prediction: &[u8], out: &mut [u8]) {
    with_element!(width, E => zip3(E::all_mut(out), E::all(elements), E::all(prediction), |to, u, p| {
        *to = of(E::from_bytes(*u), E::from_bytes(*p)).to_bytes();
    }));
}

/// Replaces residuals by their elements.
#[inline(always)]
pub(crate) fn restore(width: usize, prediction: &[u8], residuals: &mut [u8]) {
    with_element!(width, E => zip(E::all_mut(residuals), E::all(prediction), |e, p| {
        *e = element(E::from_bytes(*e), E::from_bytes(*p)).to_bytes();
    }));
}
