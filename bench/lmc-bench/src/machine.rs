//! Where a measurement was made, and with which build.

use serde_json::{Value, json};

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|s| s.trim().to_owned()).filter(|s| !s.is_empty())
}

/// The value of `key : value` in a file of `/proc`.
fn field(path: &str, key: &str) -> Option<String> {
    let text = read(path)?;
    let line = text.lines().find(|l| l.starts_with(key))?;
    line.split_once(':').map(|(_, v)| v.trim().to_owned())
}

/// Model, family and stepping of the processor: virtual machines often hide the model's name but not its numbers.
fn cpu() -> String {
    let get = |key| field("/proc/cpuinfo", key);
    match (get("model name"), get("cpu family"), get("model\t"), get("stepping")) {
        (Some(name), Some(f), Some(m), Some(s)) => format!("{name} (family {f}, model {m}, stepping {s})"),
        (Some(name), ..) => name,
        _ => std::env::consts::ARCH.to_owned(),
    }
}

/// The machine and the build, for the record.
pub(crate) fn describe() -> Value {
    let isas: Vec<_> = lmc_kernels::isa::Isa::available().iter().map(|i| i.name()).collect();
    json!({
        "cpu": cpu(),
        "cores": std::thread::available_parallelism().map_or(0, |n| n.get()),
        "l2_cache": read("/sys/devices/system/cpu/cpu0/cache/index2/size"),
        "l3_cache": read("/sys/devices/system/cpu/cpu0/cache/index3/size"),
        "memory": field("/proc/meminfo", "MemTotal"),
        "huge_pages": read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "isas": isas,
        "os": std::env::consts::OS,
        "kernel": read("/proc/sys/kernel/osrelease"),
        "load": read("/proc/loadavg"),
        "lmc": env!("CARGO_PKG_VERSION"),
        "commit": option_env!("LMC_GIT_COMMIT"),
        "rustc": option_env!("LMC_RUSTC"),
        "profile": if cfg!(debug_assertions) { "debug" } else { "release" },
    })
}
