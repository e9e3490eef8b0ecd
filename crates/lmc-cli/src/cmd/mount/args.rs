//! The arguments of `lmc mount`.

use std::path::PathBuf;

use clap::Args;

use crate::ui::format::parse_size;
use crate::work::args::Threads;
use crate::work::bases::BaseArgs;

/// Show compressed files, or the snapshots of a store, as the files that they restore to.
///
/// MOUNTPOINT becomes a read-only file system, for programs that know nothing of lmc: they open, read and map files, which are decoded as
/// they are read, block by block.
///
/// A directory is shown as it is, but for its .lmc files: each has the name of its original. A .lmc file is shown as it is if its original
/// is there, too, or if it cannot be read. MOUNTPOINT may be the directory itself. Links to files are shown as files. A store has a
/// directory for each step, also for those that are saved later, and a link for each tag and for the latest step.
///
/// What is damaged gives an input/output error where it is read, and a message. The command runs until MOUNTPOINT is unmounted
/// (fusermount3 -u MOUNTPOINT) or the command is interrupted, which unmounts it. It needs Linux, and Debian's package fuse3 unless root runs it.
#[derive(Args)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "it only says that it needs Linux"))]
pub(crate) struct MountArgs {
    /// A directory, a store (as for lmc snapshot), or files.
    #[arg(value_name = "STORE|DIR|FILE", required = true)]
    pub(super) sources: Vec<PathBuf>,

    /// The directory to show them in; what it holds cannot be seen meanwhile.
    #[arg(value_name = "MOUNTPOINT", required = true)]
    pub(super) point: PathBuf,

    /// The most memory for decoded bytes: a number with k, M, G, Ki, Mi or Gi. By default 1Gi, or a tenth of the memory if that is less. The
    /// kernel's own cache of files comes on top, and gives way to programs.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) cache: Option<usize>,

    /// Go on in the background once MOUNTPOINT can be used, and return. Without --log, later messages are lost.
    #[arg(long)]
    pub(super) daemon: bool,

    /// Append messages about files to FILE, instead of writing them to standard error.
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,

    /// Let other users in, as far as the permissions of the files allow. For users other than root, user_allow_other has to be in
    /// /etc/fuse.conf.
    #[arg(long)]
    pub(super) allow_other: bool,

    #[command(flatten)]
    pub(super) bases: BaseArgs,

    #[command(flatten)]
    pub(super) threads: Threads,
}
