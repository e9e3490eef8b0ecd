//! Commands that read very many files have few of them open at a time.

use crate::support::{Dir, noise, safetensors};

/// A directory of some files.
fn many(dir: &Dir, count: usize) {
    (0..count).for_each(|i| _ = dir.write(&format!("many/{i:04}"), format!("file {i}").as_bytes()));
}

#[test]
fn a_snapshot_of_more_files_than_may_be_open() {
    let dir = Dir::new();
    many(&dir, 1500);
    dir.shell("ulimit -n 256; exec $LMC snapshot save st many").ok();
    dir.run(["snapshot", "restore", "st", "-o", "out"]).ok();
    dir.shell("diff -r many out").silent();
    dir.write("out/0007", b"another one");
    // Files that are replaced together are open together.
    dir.shell("ulimit -n 256; exec $LMC snapshot restore st -f -o out").fails(&[
        "1500 files are to be replaced together, and a process can have 256 open files here: raise the limit",
    ]);
    assert_eq!(dir.read("out/0007"), b"another one");
    dir.shell("ulimit -S -n 256; exec $LMC snapshot restore st -f -o out").ok();
    dir.shell("diff -r many out").silent();
}

/// Restoring a snapshot takes a chain of deltas for each part of a tensor.
#[test]
fn longer_chains_than_may_be_open() {
    let dir = Dir::new();
    let mut bytes = noise(40 << 16, 1);
    for step in 1..=16 {
        // An element of each tensor, none of which is small.
        (0..40).for_each(|i| bytes[(i << 16) + step] ^= 1);
        let names: Vec<String> = (0..40).map(|i| format!("t{i:02}")).collect();
        let tensors: Vec<_> =
            names.iter().zip(bytes.chunks(1 << 16)).map(|(n, data)| (&n[..], "U8", &[1u64 << 16][..], data)).collect();
        dir.write("w.safetensors", &safetensors(&tensors));
        dir.run(["snapshot", "save", "st", "w.safetensors", "--step", &step.to_string(), "--anchor-every", "16"]).ok();
    }
    let chains = "ulimit -n 160; exec $LMC snapshot restore st -o back -T 16";
    dir.shell(chains).ok();
    assert_eq!(dir.read("back/w.safetensors"), dir.read("w.safetensors"));
}

#[test]
fn more_bases_than_may_be_open() {
    let dir = Dir::new();
    many(&dir, 999);
    let old = noise(100_000, 1);
    dir.write("many/base", &old);
    dir.write("new", &[&old[..], b"more"].concat());
    let bases = "$(printf -- '--base %s ' many/*)";
    dir.shell(&format!("ulimit -n 256; exec $LMC compress new {bases}")).silent();
    assert!(dir.read("new.lmc").len() < 50_000, "it is a delta");
    // Of several files each may need only some bases.
    dir.shell("mkdir back && mv new.lmc back").silent();
    dir.run(["compress", "many/0000", "-o", "back/plain.lmc"]).silent();
    dir.shell(&format!("ulimit -n 256; exec $LMC decompress back/new.lmc back/plain.lmc {bases}")).silent();
    assert_eq!((dir.read("back/new"), dir.read("back/plain")), (dir.read("new"), dir.read("many/0000")));
}

#[test]
fn a_size_that_the_system_reports_wrongly() {
    let dir = Dir::new();
    let parts = ["/proc/self/status: its size is given as 0 bytes, but it has more: give it as standard input"];
    dir.run(["compress", "/proc/self/status", "-o", "x"]).fails(&parts);
    dir.run(["snapshot", "save", "st", "/proc/self/status"]).fails(&parts);
    assert_eq!(dir.names(), Vec::<String>::new());
    // The advice works.
    dir.shell("$LMC compress -o x </proc/version && $LMC decompress -c x | cmp - /proc/version").silent();
}
