//! Small files that expand to as much as the format allows.

use crate::support::Dir;

/// Address space in KiB: for the data of a block, and for all segments written out.
const TEST: u64 = 256 << 10;
const LIST: u64 = 640 << 10;

#[test]
fn hostile_files_are_checked_and_listed_in_little_memory() {
    let dir = Dir::new();
    for (name, file) in lmc_testing::hostile::files() {
        dir.write(name, &file);
        let list = match name {
            // In one row.
            "segments" => "list",
            _ => "list --json",
        };
        for (command, limit) in [("test -q -T 1", TEST), (list, LIST)] {
            dir.shell(&format!("ulimit -v {limit}; exec $LMC {command} {name} >/dev/null")).silent();
        }
    }
}
