//! `lmc mount`.

mod args;
#[cfg(target_os = "linux")]
mod daemon;
#[cfg(target_os = "linux")]
mod directory;
#[cfg(target_os = "linux")]
mod point;
#[cfg(target_os = "linux")]
mod session;
#[cfg(target_os = "linux")]
mod snapshots;

pub(crate) use args::MountArgs;
#[cfg(target_os = "linux")]
pub(crate) use session::run;

/// Says that there is no such file system here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn run(_: &MountArgs, _: &crate::ui::messages::Ui) -> crate::ui::failure::Result {
    let what = "mount needs Linux: restore the files instead (lmc decompress, lmc snapshot restore)";
    Err(crate::ui::failure::Failure::Usage(what.to_owned()))
}
