//! Speeds of the codec on one thread, in memory, in GB/s of raw bytes: `profiles FILE BASE [SECONDS [CASES]]`. CASES is
//! a prefix of the names of the measured cases. `bench/profiles/run` compares builds.

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Decompressor, Level};

/// The least bytes of the compressed data: more than caches hold.
const SIZE: usize = 48 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, file, base, rest @ ..] = &args[..] else {
        return Err("usage: profiles FILE BASE [SECONDS [CASES]]".into());
    };
    let seconds = rest.first().map_or(Ok(1.0), |s| s.parse())?;
    let budget = Duration::from_secs_f64(seconds);
    let cases = rest.get(1).map_or("", |s| s);
    let (file, base) = (std::fs::read(file)?, std::fs::read(base)?);
    let elements = |width: usize| elements_of(&file, width);
    for (name, raw, dtype) in [("bf16", elements(2)?, "BF16"), ("fp32", elements(4)?, "F32")] {
        for &level in Level::ALL {
            let case = format!("{name} {}", level.name());
            if !case.starts_with(cases) {
                continue;
            }
            let dtype = lmc::Dtype::ALL.iter().copied().find(|d| d.name() == dtype);
            let o = CompressOptions::default().with_level(level).with_threads(1).with_dtype(dtype);
            measure(&case, &raw, &[], &o, budget)?;
        }
    }
    let o = CompressOptions::default().with_threads(1);
    if "delta default".starts_with(cases) {
        measure("delta default", &file, &[Base::new(&base[..])?.optional()], &o, budget)?;
    }
    Ok(())
}

/// The elements of a width in a safetensors file, again and again in other orders: all of them, every third, every fifth and so on, so
/// that nothing repeats.
fn elements_of(file: &[u8], width: usize) -> Result<Vec<u8>, Box<dyn Error>> {
    let compressed = lmc::compress(file, &CompressOptions::default())?;
    let reader = lmc::Reader::open(&compressed[..], &DecompressOptions::default())?;
    let of_width = |s: &&lmc::Segment| s.dtype.is_some_and(|d| d.bits() as usize == 8 * width);
    let all: Vec<u8> = reader
        .segments()
        .iter()
        .filter(of_width)
        .flat_map(|s| &file[s.offset as usize..][..s.len as usize])
        .copied()
        .collect();
    if all.is_empty() {
        return Err(format!("FILE has no elements of {width} bytes").into());
    }
    let count = all.len() / width;
    // Steps that have no divisor in common with the count reach all elements.
    let steps = (1..).step_by(2).filter(|&step| (2..=step).all(|d| step % d > 0 || count % d > 0));
    let order = steps.flat_map(|step| (0..count).map(move |i| i * step % count));
    Ok(order.take(count.max(SIZE / width)).flat_map(|i| &all[i * width..][..width]).copied().collect())
}

/// Processor time of this thread, so that the load of other programs matters less.
fn now() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Prints `name in GB/s` and `name out GB/s`, the medians.
fn measure(
    name: &str,
    raw: &[u8],
    bases: &[Base<'_>],
    o: &CompressOptions,
    budget: Duration,
) -> Result<(), Box<dyn Error>> {
    let d = DecompressOptions::default().with_threads(1);
    let (mut compressor, mut decompressor) = (Compressor::new(o)?, Decompressor::new(&d)?);
    let (mut file, mut back) = (Vec::new(), vec![0; raw.len()]);
    let (mut ins, mut outs) = (vec![], vec![]);
    let begin = now();
    while ins.len() < 3 || now() - begin < budget {
        let t = now();
        compressor.compress(black_box(raw), bases, &mut file)?;
        ins.push(now() - t);
        let t = now();
        decompressor.decompress(black_box(&file), bases, &mut back[..])?;
        outs.push(now() - t);
        if back != raw {
            return Err(format!("{name}: other bytes came back").into());
        }
    }
    for (way, times) in [("in", &mut ins), ("out", &mut outs)] {
        times.sort_unstable();
        println!("{name} {way} {:.3}", raw.len() as f64 / 1e9 / times[times.len() / 2].as_secs_f64());
    }
    Ok(())
}
