//! Damage, and hostile versions.

use std::fs;
use std::path::Path;

use lmc_store::interchange::{Checksum, DeltaEncoding, InterchangeOptions};
use lmc_store::{ErrorKind, FollowOptions};
use lmc_testing::exhaustive;

use super::{Run, follow, follow_with, is, options, refused};

/// Copies a directory that follows: by links, as it knows its inodes.
fn link_all(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (kind, from) = entry.map(|e| (e.file_type().unwrap(), e.path())).unwrap();
        let to = to.join(from.file_name().unwrap());
        match () {
            () if kind.is_dir() => link_all(&from, &to),
            () if kind.is_symlink() => std::os::unix::fs::symlink(fs::read_link(&from).unwrap(), to).unwrap(),
            () => fs::hard_link(&from, to).unwrap(),
        }
    }
}

/// Follows a copy of the versions in which a file is other bytes. The followed version is then right, or there is none.
fn damaged(run: &Run, file: &Path, bytes: &[u8], from: Option<&Path>) -> bool {
    let whole = fs::read(file).unwrap();
    fs::write(file, bytes).unwrap();
    let to = run.to("damaged");
    _ = fs::remove_dir_all(&to);
    if let Some(from) = from {
        link_all(from, &to);
    }
    let followed = follow_with(&run.versions(), &to, None, FollowOptions::default());
    let right = match &followed {
        Ok(Some(n)) => is(&to.join("current"), &run.models[*n as usize - 1]),
        Ok(None) => from.is_some() && is(&to.join("current"), &run.models[0]),
        Err(_) => from.is_none_or(|_| is(&to.join("current"), &run.models[0])),
    };
    assert!(right, "{}: {followed:?}, with {}", file.display(), String::from_utf8_lossy(bytes));
    fs::write(file, whole).unwrap();
    followed.is_err()
}

#[test]
fn damage_is_an_error_or_does_not_matter() {
    let mut o = options(DeltaEncoding::Xor, Checksum::Xxh3);
    for encoding in DeltaEncoding::ALL {
        o.encoding = encoding;
        let mut run = Run::new(o, 4);
        follow(&run, "first").unwrap();
        run.train(&["embed", "norm"]);
        let first = run.to("first");
        let mut noticed = [0, 0];
        for version in [1, 2] {
            for entry in fs::read_dir(run.version(version)).unwrap() {
                let file = entry.unwrap().path();
                let whole = fs::read(&file).unwrap();
                // Without a current version the full version is read; with it only the delta.
                let from = (version == 2).then_some(first.as_path());
                for at in (0..whole.len()).filter(|at| exhaustive() || at % 9 == 4) {
                    let mut bytes = whole.clone();
                    bytes[at] ^= 1 << (at % 7);
                    noticed[usize::from(damaged(&run, &file, &bytes, from))] += 1;
                }
                for len in [0, 1, 8, whole.len() / 2, whole.len() - 1] {
                    assert!(damaged(&run, &file, &whole[..len], from), "{} of {len} bytes", file.display());
                }
                let longer = [&whole[..], b"x"].concat();
                assert!(damaged(&run, &file, &longer, from), "{}", file.display());
            }
        }
        // Names in lmc's entry, and sizes that are not read.
        assert!(noticed[1] > 10 * noticed[0], "{noticed:?}");
    }
}

#[test]
fn hostile_versions_are_refused() {
    let run = Run::of_three(InterchangeOptions::default(), 50);
    follow(&run, "m").unwrap();
    let shard = "model-00000-of-00001.safetensors";
    let path = run.version(3).join(shard);
    let whole = fs::read(&path).unwrap();
    let index = fs::read(run.index(3)).unwrap();
    let fails = |why: &str| {
        let e = follow(&run, "n").unwrap_err();
        assert!(e.to_string().contains(why), "{e}");
        assert!(!run.to("n").join("current").exists());
        fs::write(run.index(3), &index).unwrap();
    };
    for name in ["../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "a\\\\b.safetensors"] {
        run.rewrite(3, &format!(r#":"{shard}""#), &format!(r#":"{name}""#));
        fails("not the name of a .safetensors file");
    }
    // Without lmc's own hashes, as others write them.
    run.rewrite(3, r#""lmc""#, r#""other""#);
    let index = fs::read(run.index(3)).unwrap();
    let fails = |why: &str| {
        let e = follow(&run, "n").unwrap_err();
        assert!(e.to_string().contains(why), "{e}");
        fs::write(run.index(3), &index).unwrap();
        _ = fs::remove_file(&path);
        fs::write(&path, &whole).unwrap();
    };
    fs::write(&path, u64::MAX.to_le_bytes()).unwrap();
    fails("its header has");
    fs::write(&path, [&99_999_999u64.to_le_bytes()[..], b"{}"].concat()).unwrap();
    fails("its header has");
    run.rewrite(3, r#""norm""#, r#""nose""#);
    fails("in this file or in");
    let other = String::from_utf8_lossy(&whole).into_owned();
    assert!(other.contains("norm"));
    let renamed: Vec<u8> = {
        let mut bytes = whole.clone();
        while let Some(at) = bytes.windows(4).position(|w| w == b"norm") {
            bytes[at..at + 4].copy_from_slice(b"nose");
        }
        bytes
    };
    fs::write(&path, renamed).unwrap();
    run.rewrite(3, r#""norm""#, r#""nose""#);
    fails("changes \"nose\", which its base has not");
    // Links and others lead elsewhere, or block.
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(run.version(2).join(shard), &path).unwrap();
    fails("not a regular file");
    fs::remove_file(&path).unwrap();
    // The path of a socket is short.
    let short = tempfile::tempdir().unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(short.path().join("s")).unwrap();
    fs::rename(short.path().join("s"), &path).unwrap();
    fails("not a regular file");
    // A sparse file instead of an index.
    fs::File::create(run.index(3)).unwrap().set_len(1 << 40).unwrap();
    fails("at most 100000000 are read");
    assert_eq!(follow(&run, "n").unwrap(), Some(3));
    assert!(run.is_at("n", 3) && run.is_at("m", 3));
}
/// Changes a byte of a file that is followed, and leaves no other trace.
fn rot(file: &Path, find: &[u8]) {
    let modified = fs::metadata(file).unwrap().modified().unwrap();
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.windows(find.len()).position(|w| w == find).unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
    fs::File::options().write(true).open(file).unwrap().set_modified(modified).unwrap();
}

#[test]
fn damage_in_what_no_delta_changes_is_noticed() {
    let mut run = Run::new(InterchangeOptions::default(), 100);
    follow(&run, "m").unwrap();
    run.train(&["embed"]);
    let file = run.to("m/current/model-0.safetensors");
    let still = run.models[0].tensors()["still"].2.clone();
    let whole = fs::read(&file).unwrap();
    rot(&file, &still);
    refused(follow(&run, "m"), ErrorKind::Damaged, "\"still\": was changed");
    assert_eq!(fs::metadata(&file).unwrap().len(), whole.len() as u64);
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, whole).unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
    // Other files are read if that is asked for.
    rot(&run.to("m/current/config.json"), b"hidden_size");
    let mut verifying = FollowOptions::default();
    verifying.verify = true;
    let verified = follow_with(&run.versions(), &run.to("m"), None, verifying);
    refused(verified, ErrorKind::Damaged, "config.json: was changed");
    assert_eq!(follow(&run, "m").unwrap(), Some(2));
}
