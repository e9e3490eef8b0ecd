//! The run of `lmc mount`: from its arguments to the end of the file system.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, mpsc};

use fuser::{Config, MountOption, Session, SessionACL};
use rustix::fs::{AtFlags, StatxFlags};

use super::args::MountArgs;
use super::directory::Directory;
use super::snapshots::Snapshots;
use super::{daemon, point};
use crate::cmd::snapshot::place::Place;
use crate::fs::input::Source;
use crate::fs::names::{STORE_MARKER, is_url};
use crate::mount::{Blocks, Log, Mounted, Tree};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, quoted};
use crate::ui::interrupt;
use crate::ui::messages::Ui;
use crate::work::args::decoding;

/// The cache's limit by default: this many bytes, or this fraction of the memory if that is less.
const CACHE: u64 = 1 << 30;
const FRACTION: u64 = 10;

/// KiB that the kernel reads ahead.
const READ_AHEAD: u32 = 1024;

/// Threads that take requests. Few of these take long: those for which a store is listed or a base is looked for.
const TAKING: usize = 8;

/// The fewest threads that decode blocks of a store: they mostly wait for it.
const OF_A_STORE: usize = 8;

/// Mounts a file system, and waits until it is unmounted.
pub(crate) fn run(args: &MountArgs, ui: &Ui) -> Result {
    let at = point::check(&args.point)?;
    if args.daemon && !daemon::is_one() {
        return daemon::start();
    }
    let log = args.log.as_ref().map(|path| {
        File::options()
            .append(true)
            .create(true)
            .open(path)
            .map_err(|e| Failure::io(path, "cannot write messages to", &e))
    });
    let log = Arc::new(Log::new(log.transpose()?));
    let (tree, threads) = tree(args, &at, &log)?;
    let failure = |e| point::failure(&args.point, &e);
    let blocks = Blocks::start(args.cache.unwrap_or_else(cache), threads, log).map_err(failure)?;
    let (ended, end) = mpsc::channel();
    let mounted = Mounted::new(tree, blocks, ended).map_err(failure)?;

    let mut config = Config::default();
    // A comma would end the name where fusermount3 mounts.
    let name = args.sources[0].to_string_lossy().replace(',', " ");
    config.mount_options = vec![
        MountOption::FSName(name),
        MountOption::Subtype("lmc".to_owned()),
        MountOption::RO,
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
    ];
    config.n_threads = Some(TAKING);
    if args.allow_other {
        config.acl = SessionACL::All;
    }
    let mut session = Session::new(mounted, &at, &config).map_err(failure)?;
    read_ahead(&at);
    let mut unmounter = session.unmount_callable();
    let point = at.clone();
    interrupt::at_end(move || {
        if unmounter.unmount().is_err() {
            point::detach(&point);
        }
    });
    let serve = std::thread::Builder::new().name("session".to_owned()).spawn(move || session.run());
    serve.map_err(failure)?;
    daemon::notify();
    if daemon::is_one() {
        daemon::detach().map_err(failure)?;
    } else {
        let unmount = format_args!("unmount it with fusermount3 -u {}", quoted(&args.point)).to_string();
        ui.done(format_args!("{} : mounted; {unmount}", Name::path(&args.point)));
    }
    let _ = end.recv();
    // A signal that unmounted it ends the process, too.
    drop(interrupt::hold());
    Ok(())
}

/// Lets the kernel read more ahead than the 128 KiB of a file system in user space: fewer requests load a model in 0.9 of
/// the time. Only root may; for others it stays as it is.
fn read_ahead(at: &Path) {
    // Without the flag, the kernel would ask this process, which does not answer yet.
    let found = rustix::fs::statx(rustix::fs::CWD, at, AtFlags::STATX_DONT_SYNC, StatxFlags::empty());
    if let Ok(found) = found {
        let device = format!("{}:{}", found.stx_dev_major, found.stx_dev_minor);
        let _ = std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), READ_AHEAD.to_string());
    }
}

/// What is shown at a mount point, and the number of threads that decode it.
fn tree(args: &MountArgs, at: &Path, log: &Arc<Log>) -> Result<(Box<dyn Tree>, usize)> {
    let threads = lmc_pool::threads(args.threads.count());
    let (first, several) = (&args.sources[0], args.sources.len() > 1);
    let is_store = is_url(first)? || first.join(STORE_MARKER).is_file() || (!several && is_other_file(first)?);
    if is_store && several {
        return Err(Failure::usage(first, "is a store: mount each at a directory of its own"));
    }
    if is_store {
        let place = Place { store: first.to_string_lossy().into_owned() };
        place.guard().check_replace(&args.point)?;
        let snapshots = Snapshots::open(place, log.clone())?;
        return Ok((Box::new(snapshots), threads.max(OF_A_STORE)));
    }
    let bases = args.bases.open_to_restore(true, threads)?;
    let options = decoding(&args.threads)?.with_threads(1);
    if !first.is_dir() {
        let shown = Directory::of_files(&args.sources, at, bases, options, log.clone())?;
        return Ok((Box::new(shown), threads));
    }
    if several {
        return Err(Failure::usage(first, "is a directory: mount each at a directory of its own"));
    }
    let there = first.canonicalize().map_err(|e| Failure::io(first, "cannot be mounted", &e))?;
    if at != there && at.starts_with(&there) {
        let what = format_args!(
            "is in {}, and would be shown in itself: mount elsewhere, or at that directory itself",
            Name::path(first)
        );
        return Err(Failure::usage(&args.point, what));
    }
    Ok((Box::new(Directory::open(first, bases, options, log.clone())?), threads))
}

/// Whether a path is a file that is not compressed: it may be an archive of a store.
fn is_other_file(path: &Path) -> Result<bool> {
    if path.is_dir() {
        return Ok(false);
    }
    let mut start = [0; lmc::MAGIC.len()];
    Ok(Source::open(path)?.start(&mut start)? != lmc::MAGIC)
}

/// The most memory for decoded bytes by default: less in a container with little memory.
fn cache() -> usize {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let of_machine =
        text("/proc/meminfo").split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).map(|n| n << 10);
    let of_container = text("/sys/fs/cgroup/memory.max").trim().parse::<u64>().ok();
    let memory = of_machine.into_iter().chain(of_container).min();
    memory.map_or(CACHE, |memory| CACHE.min(memory / FRACTION)) as usize
}
