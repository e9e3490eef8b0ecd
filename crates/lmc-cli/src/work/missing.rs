//! Tensors that a file declares, and that a command cannot give.

use std::path::Path;

use lmc::layout::Tensors;

use crate::ui::format::{Name, count};
use crate::ui::messages::Ui;

/// How many are named in a message.
const SHOWN: usize = 5;

/// Which tensors are missing, and why.
pub(crate) fn reasons(of: &Tensors) -> String {
    let shown: Vec<_> = of.missing.iter().take(SHOWN).map(|m| Name::text(&m.to_string()).to_string()).collect();
    let text = shown.join("; ");
    match of.missing.len() as u64 + of.more_missing {
        n if n > SHOWN as u64 => format!("{} cannot be given: {text}; …", count(n, "tensor")),
        _ => text,
    }
}

/// Says which of the tensors that a file declares a command does not show, if there are any. What keeps it from knowing them is said, too, and is no
/// failure: the command shows what it can.
pub(crate) fn note(path: &Path, declared: &lmc::Result<Tensors>, ui: &Ui) {
    if let Some(text) = text(declared) {
        ui.warn(format_args!("{}: {text}", Name::path(path)));
    }
}

/// The message of [`note`].
pub(crate) fn text(declared: &lmc::Result<Tensors>) -> Option<String> {
    match declared {
        Err(e) => Some(format!("it may have more tensors than are shown: {e}")),
        Ok(of) => (!of.is_complete()).then(|| format!("not shown: {}", reasons(of))),
    }
}
