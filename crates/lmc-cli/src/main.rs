//! The `lmc` command.

fn main() {}
