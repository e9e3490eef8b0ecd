//! The file that says how a service is.

use std::path::Path;

use lmc_store::Step;
use serde_json::json;

use crate::ui::failure::{Failure, Result};
use crate::ui::time::now;

/// Replaces the file: readers see one whole object at every moment.
pub(super) fn write(path: &Path, step: Option<Step>, waiting: Option<&str>, error: Option<&Failure>) -> Result {
    let error = error.map(ToString::to_string);
    let health = json!({ "time": now(), "step": step.map(Step::get), "waiting": waiting, "error": error });
    let mut new = path.as_os_str().to_owned();
    new.push(".tmp");
    let written = std::fs::write(&new, format!("{health}\n")).and_then(|()| std::fs::rename(&new, path));
    written.map_err(|e| Failure::io(path, "cannot write", &e))
}
