//! The conditions of the format that a file breaks.

/// Violations that did not stop the decoder; the first one is kept.
#[derive(Clone, Default)]
pub(super) struct Faults(pub(super) Option<String>);

impl Faults {
    pub(super) fn must(&mut self, holds: bool, otherwise: &str) {
        if !holds && self.0.is_none() {
            self.0 = Some(otherwise.to_owned());
        }
    }
}

/// Fails unless a condition of the format holds.
pub(super) fn must(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}
