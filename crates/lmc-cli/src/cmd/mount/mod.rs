//! `lmc mount`.

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

use std::path::PathBuf;

use clap::Args;

use crate::args::Threads;
use crate::bases::BaseArgs;
use crate::failure::Result;
use crate::format::parse_size;
use crate::ui::Ui;

/// Show compressed files, or the snapshots of a store, as the files that they restore to.
///
/// MOUNTPOINT becomes a read-only file system, for programs that know nothing of lmc: they open, read and map files, which are decoded as
/// they are read, block by block.
///
/// A directory is shown as it is, but for its .lmc files: each has the name of its original. Those of which the original is there, too, or
/// that cannot be read, are shown as they are. MOUNTPOINT may be the directory itself. Links to files are shown as files. A store has a
/// directory for each step, also for those that are saved later, and a link for each tag and for the latest step.
///
/// What is damaged gives an input/output error where it is read, and a message. The command runs until MOUNTPOINT is unmounted
/// (fusermount3 -u MOUNTPOINT) or the command is interrupted, which unmounts it. It needs Linux, and Debian's package fuse3 unless root runs it.
#[derive(Args)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "it only says that it needs Linux"))]
pub(crate) struct MountArgs {
    /// A directory, a store (as for lmc snapshot), or files.
    #[arg(value_name = "STORE|DIR|FILE", required = true)]
    sources: Vec<PathBuf>,

    /// The directory to show them in; what it holds cannot be seen meanwhile.
    #[arg(value_name = "MOUNTPOINT", required = true)]
    point: PathBuf,

    /// The most memory for decoded bytes: a number with k, M, G, Ki, Mi or Gi. By default 1Gi, or a tenth of the memory if that is less. The
    /// kernel's own cache of files comes on top, and gives way to programs.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    cache: Option<usize>,

    /// Go on in the background once MOUNTPOINT can be used, and return. Without --log, later messages are lost.
    #[arg(long)]
    daemon: bool,

    /// Append messages about files to FILE, instead of writing them to standard error.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Let other users in, as far as the permissions of the files allow. For users other than root, user_allow_other has to be in
    /// /etc/fuse.conf.
    #[arg(long)]
    allow_other: bool,

    #[command(flatten)]
    bases: BaseArgs,

    #[command(flatten)]
    threads: Threads,
}

/// Shows files until they are unmounted.
#[cfg(target_os = "linux")]
pub(crate) fn run(args: &MountArgs, ui: &Ui) -> Result {
    session::run(args, ui)
}

/// Says that there is no such file system here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn run(_: &MountArgs, _: &Ui) -> Result {
    let what = "mount needs Linux: restore the files instead (lmc decompress, lmc snapshot restore)";
    Err(crate::failure::Failure::Usage(what.to_owned()))
}
