//! Tables of files with very long names: memory is bounded by the truncated cells.

use crate::support::{Dir, safetensors};

const TENSORS: usize = 20_000;
const LONGEST: usize = 60_000;
/// Of memory, in KiB. Padded to the longest name, the rows took 4 GB.
const LIMIT: u64 = 1 << 20;

/// Many tensors, one of them with a very long name.
fn checkpoint(step: u8) -> Vec<u8> {
    let names: Vec<String> = (0..TENSORS).map(|i| format!("layers.{i}")).chain(["n".repeat(LONGEST)]).collect();
    let data = [step, 1, 2, 3];
    safetensors(&names.iter().map(|name| (&name[..], "BF16", &[2][..], &data[..])).collect::<Vec<_>>())
}

#[test]
fn one_long_name_does_not_widen_all_rows() {
    let dir = Dir::new();
    dir.write("old", &checkpoint(1));
    dir.write("new", &checkpoint(2));
    dir.run(["compress", "new"]).silent();
    dir.run(["compress", "old"]).silent();
    for command in ["list -v new.lmc", "diff -v -T 1 old.lmc new.lmc"] {
        let run = dir.shell(&format!("ulimit -v {LIMIT}; exec $LMC {command}"));
        run.silent();
        assert!(run.stdout().lines().filter(|l| l.starts_with("layers.")).count() >= TENSORS, "{command}");
        let cut = run.stdout().lines().find(|l| l.starts_with("nnn")).unwrap();
        assert!(cut.contains("n…  ") && cut.chars().count() < 1000, "{command}");
        let json = dir.shell(&format!("ulimit -v {LIMIT}; exec $LMC {command} --json"));
        json.silent();
        assert!(json.stdout().contains(&"n".repeat(LONGEST)), "{command}");
    }
}
