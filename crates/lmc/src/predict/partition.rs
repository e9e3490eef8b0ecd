//! Residuals by class and back, in plain Rust: the measure of every kernel.

use super::Classes;
use super::job::{Model, Sections};
use crate::group::element::{Element, with_element};

/// Numbers of elements of every class.
pub(crate) fn count(m: &Model<'_>) -> Vec<usize> {
    let Some((bytes, width)) = m.context() else { return vec![m.len] };
    let classes = m.classes.expect("it was checked");
    let mut keys = [[0usize; 256]; 4];
    with_element!(width, C => {
        for quad in bytes.chunks(4 * C::BYTES) {
            for (c, n) in quad.chunks_exact(C::BYTES).zip(&mut keys) {
                n[usize::from(Classes::key(C::load(c), classes.shift))] += 1;
            }
        }
    });
    let mut counts = vec![0; classes.count()];
    for (key, class) in classes.table().into_iter().enumerate() {
        counts[usize::from(class)] += keys.iter().map(|k| k[key]).sum::<usize>();
    }
    counts
}

/// Puts the residuals of `elements` into `sections`, which has room for what [`count`] says.
pub(crate) fn partition(m: &Model<'_>, elements: &[u8], sections: &mut Sections) {
    with_element!(m.width, E => each::<E>(m, elements.len(), sections.count(), |i, class, next| {
        let u = E::load(&elements[i * E::BYTES..]);
        let p = if m.prediction.is_empty() { E::default() } else { E::load(&m.prediction[i * E::BYTES..]) };
        let to = &mut sections.get_mut(class)[*next..];
        m.predictor.residual(u, p).store(to);
        *next += E::BYTES;
        true
    }));
}

/// The inverse of [`partition`]. False if the sections do not have as many elements as there are of their classes; then `out` holds
/// nothing of use.
#[must_use]
pub(crate) fn restore(m: &Model<'_>, sections: &Sections, out: &mut [u8]) -> bool {
    with_element!(m.width, E => each::<E>(m, out.len(), sections.count(), |i, class, next| {
        let Some(from) = sections.get(class).get(*next..*next + E::BYTES) else { return false };
        let p = if m.prediction.is_empty() { E::default() } else { E::load(&m.prediction[i * E::BYTES..]) };
        m.predictor.restore(E::load(from), p).store(&mut out[i * E::BYTES..]);
        *next += E::BYTES;
        true
    }))
}

/// Calls `f` with every element's place, its class, and how many bytes of the class are used, until it says false. Whether it never did.
#[inline(always)]
fn each<E: Element>(
    m: &Model<'_>,
    bytes: usize,
    classes: usize,
    mut f: impl FnMut(usize, usize, &mut usize) -> bool,
) -> bool {
    let n = bytes / E::BYTES;
    let mut next = [0usize; super::MAX_BOUNDARIES + 1];
    let Some((context, width)) = m.context() else { return (0..n).all(|i| f(i, 0, &mut next[0])) };
    let c = m.classes.expect("it was checked");
    assert!(c.count() <= classes, "a section for every class");
    let table = c.table();
    with_element!(width, C => (0..n).all(|i| {
        let class = usize::from(table[usize::from(Classes::key(C::load(&context[i * C::BYTES..]), c.shift))]);
        f(i, class, &mut next[class])
    }))
}
