//! Temporary files of killed runs: their names, and their removal by a later run.
//!
//! A writer holds a lock on its temporary file, so one that can be locked is abandoned.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::fs::input::same_file;

/// Between the target's name and the random letters.
const MARK: &str = ".lmc-tmp-";
/// Number of random letters.
pub(crate) const RANDOM: usize = 8;
/// Bytes of the target's name that are kept: most systems limit file names to 255 bytes.
const KEPT: usize = 200;
/// Files modified more recently are left alone: their writer's lock may be invisible here.
const OLD: Duration = Duration::from_secs(60 * 60);

/// The prefix of a file's temporary names.
pub(crate) fn prefix(name: &OsStr) -> String {
    let mut prefix: String = name.to_string_lossy().chars().scan(KEPT, cut_bytes).collect();
    prefix.push_str(MARK);
    prefix
}

/// Takes characters as long as their bytes fit.
fn cut_bytes(room: &mut usize, c: char) -> Option<char> {
    *room = room.checked_sub(c.len_utf8())?;
    Some(c)
}

/// Whether a name has exactly the form of temporary names.
fn is_temporary(name: &OsStr) -> bool {
    let Some((front, random)) = name.as_bytes().split_last_chunk::<RANDOM>() else { return false };
    let stem = front.strip_suffix(MARK.as_bytes()).unwrap_or_default();
    (1..=KEPT).contains(&stem.len()) && random.iter().all(u8::is_ascii_alphanumeric)
}

/// Hashes of the directories that this process has cleaned. Atomics, so that no lock is held across a fork.
static SEEN: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// Whether the process meets a directory for the first time. With very many directories some may be forgotten.
fn is_new(directory: (u64, u64)) -> bool {
    let mut hasher = DefaultHasher::new();
    directory.hash(&mut hasher);
    let hash = hasher.finish() | 1; // 0 marks an empty slot
    let home = hash as usize / 2;
    let near = || (home..home + 8).map(|i| &SEEN[i % SEEN.len()]);
    for slot in near() {
        match slot.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(other) if other == hash => return false,
            Err(_) => {}
        }
    }
    SEEN[home % SEEN.len()].store(hash, Ordering::Relaxed);
    true
}

/// Removes leftovers of killed runs from a directory when the process first uses it. Errors are ignored.
pub(crate) fn sweep(directory: &Path) {
    let Ok(this) = fs::metadata(directory) else { return };
    if is_new((this.dev(), this.ino())) {
        remove_leftovers(directory);
    }
}

fn remove_leftovers(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if is_temporary(&entry.file_name()) && entry.file_type().is_ok_and(|t| t.is_file()) {
            let _ = remove_if_left(&entry.path());
        }
    }
}

/// Removes a regular file that is old and not locked.
fn remove_if_left(path: &Path) -> std::io::Result<()> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let opened = file.metadata()?;
    let is_old = opened.modified()?.elapsed().is_ok_and(|age| age > OLD);
    if opened.is_file() && is_old && file.try_lock().is_ok() && same_file(&fs::symlink_metadata(path)?, &opened) {
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::FileTimes;
    use std::os::unix::fs::symlink;
    use std::time::SystemTime;

    #[test]
    fn names_are_recognised_exactly() {
        let long = "ä".repeat(150);
        for name in ["a", "model.safetensors.lmc", ".hidden", &long] {
            let prefix = prefix(name.as_ref());
            assert!(prefix.len() <= KEPT + MARK.len());
            assert!(is_temporary(format!("{prefix}0aZ9bY8c").as_ref()), "{name}");
        }
        assert!(is_temporary(OsStr::from_bytes(b"\xff\xfe.lmc-tmp-abcdefgh")));
        for name in [
            "",
            "a",
            ".lmc-tmp-abcdefgh",
            "a.lmc-tmp-abcdefg",
            "a.lmc-tmp-abcdefghi",
            "a.lmc-tmp-abcdefg_",
            "a.lmc-tmp-abcdefgh.lmc",
            "a.lmc-tmp-",
            "a.tmp-abcdefgh",
            "a.LMC-tmp-abcdefgh",
            &format!("{}.lmc-tmp-abcdefgh", "a".repeat(201)),
        ] {
            assert!(!is_temporary(name.as_ref()), "{name}");
        }
    }

    #[test]
    fn only_what_is_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let hours_ago = |hours: u64| SystemTime::now() - Duration::from_secs(60 * 60 * hours + 60);
        let make = |name: &str, time: SystemTime| {
            let file = File::create(at(name)).unwrap();
            file.set_times(FileTimes::new().set_modified(time)).unwrap();
            file
        };
        make("left.lmc-tmp-00000000", hours_ago(1));
        make("left.lmc-tmp-11111111", hours_ago(10_000));
        make("young.lmc-tmp-00000000", hours_ago(1) + Duration::from_secs(120));
        make("ahead.lmc-tmp-00000000", SystemTime::now() + Duration::from_secs(9999));
        make("other.tmp-00000000", hours_ago(2));
        make("target", hours_ago(2));
        symlink("target", at("link.lmc-tmp-00000000")).unwrap();
        fs::create_dir(at("directory.lmc-tmp-00000000")).unwrap();
        let written = make("written.lmc-tmp-00000000", hours_ago(2));
        written.try_lock().unwrap();
        remove_leftovers(dir.path());
        let entries = fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let stay = ["ahead", "directory", "link"].map(|n| format!("{n}.lmc-tmp-00000000"));
        let stay = stay.into_iter().chain(["other.tmp-00000000".into(), "target".into()]);
        let stay = stay.chain(["written", "young"].map(|n| format!("{n}.lmc-tmp-00000000")));
        assert_eq!(names, stay.collect::<Vec<_>>());
        // Its writer was killed.
        drop(written);
        remove_leftovers(dir.path());
        assert!(!at("written.lmc-tmp-00000000").exists());
    }

    #[test]
    fn directories_are_swept_once() {
        assert!(is_new((u64::MAX, 7)) && is_new((u64::MAX, 8)));
        assert!(!is_new((u64::MAX, 7)) && !is_new((u64::MAX, 8)));
    }
}
