//! `lmc --version`.

use lmc_kernels::isa::Isa;

use crate::ui::failure::{Failure, Result};
use crate::ui::messages::Ui;

/// Prints the versions, and with `-v` the instruction sets of this machine.
pub(crate) fn run(ui: &Ui) -> Result {
    let mut text = format!("lmc {} (file format {})\n", env!("CARGO_PKG_VERSION"), lmc::FORMAT_VERSION);
    if ui.verbose() {
        let available: Vec<_> = Isa::available().into_iter().map(Isa::name).collect();
        let used = Isa::detect().map_err(|e| Failure::Usage(e.to_string()))?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        text += &format!("instruction sets: {}; using {}\n", available.join(", "), used.name());
        text += &format!("threads: {threads}\n");
    }
    ui.print(&text)
}
