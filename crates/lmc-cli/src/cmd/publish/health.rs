//! The file that says how a service is.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lmc_store::Step;
use serde_json::json;

use crate::ui::failure::{Failure, Result};
use crate::ui::time::now;

/// The directory of the file.
pub(super) fn directory(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Replaces the file: readers see one whole object at every moment.
pub(super) fn write(path: &Path, step: Option<Step>, waiting: Option<&str>, error: Option<&Failure>) -> Result {
    let error = error.map(ToString::to_string);
    let health = json!({ "time": now(), "step": step.map(Step::get), "waiting": waiting, "error": error });
    // Whoever watches may be another user.
    let new = tempfile::Builder::new().permissions(Permissions::from_mode(0o644)).tempfile_in(directory(path));
    let written = new.and_then(|mut new| writeln!(new, "{health}").and_then(|()| Ok(new.persist(path).map(drop)?)));
    written.map_err(|e| Failure::io(path, "cannot write", &e))
}
