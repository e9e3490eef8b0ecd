//! Blocks on every instruction set, and their predict stage, beside memcpy:
//! `cargo run --release -p lmc-bench --bin lmc-blocks -- FILE[@BASE] DTYPE [BLOCK_KIB [ONLY]]`.
//!
//! FILE holds raw elements and nothing else, BASE as many for a delta; only contenders whose name holds ONLY run, besides
//! memcpy. Contenders take turns, and medians are printed.

mod stages;

use lmc::internals::{build_table, digests};
use lmc::{Dtype, Level};
use lmc_kernels::isa::Isa;
use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use stages::{Blocks, PredictStage};

const BLOCK: usize = 1 << 20;
const ROUNDS: usize = 9;
/// With ONLY, for a profiler.
const MANY_ROUNDS: usize = 200;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, dtype, rest @ ..] = &args[..] else {
        eprintln!("usage: lmc-blocks FILE DTYPE [BLOCK_KIB [ONLY]]");
        return;
    };
    let dtype: Dtype = dtype.parse().expect("a dtype of safetensors");
    let block = rest.first().map_or(BLOCK, |k| k.parse::<usize>().expect("KiB") << 10);
    let (file, base) = file.split_once('@').map_or((file.as_str(), None), |(f, b)| (f, Some(b)));
    let raw = std::fs::read(file).expect("FILE is readable");
    let base = base.map(|b| std::sync::Arc::new(std::fs::read(b).expect("BASE is readable")));
    let blocks = |isa, level| match &base {
        None => Blocks::new(isa, level, block),
        Some(base) => Blocks::new(isa, level, block).with_base(base.clone()),
    };
    let mut copy = vec![1u8; raw.len()];
    type Contender<'a> = (String, Vec<f64>, Box<dyn FnMut() + 'a>);
    let mut sizes = Vec::new();
    let mut encoded = Vec::new();
    for &level in Level::ALL {
        let mut out = Vec::new();
        blocks(Isa::detect().expect("an ISA"), level).encode(dtype, &raw, &mut out);
        sizes.push((level, out.len()));
        encoded.push(out);
    }
    let mut contenders: Vec<Contender<'_>> = Vec::new();
    contenders.push(("memcpy".into(), vec![], Box::new(|| black_box(&mut copy).copy_from_slice(black_box(&raw)))));
    contenders.push(("hash".into(), vec![], Box::new(|| _ = black_box(digests(&raw)))));
    let stages: Vec<_> = match &base {
        None => vec![],
        Some(base) => {
            let stage = |isa: Isa| (isa, PredictStage::new(isa, block, encoded.last().expect("levels"), base.clone()));
            Isa::available().into_iter().map(stage).collect()
        }
    };
    for (isa, stage) in stages {
        if isa == Isa::PORTABLE {
            println!("{:<28} {:?}", "contexts of the blocks", stage.contexts());
        }
        let stage = Rc::new(RefCell::new(stage));
        stage.borrow_mut().partition(&raw);
        let (s, raw) = (stage.clone(), &raw);
        let partition = move || s.borrow_mut().partition(raw);
        contenders.push((format!("partition {}", isa.name()), vec![], Box::new(partition)));
        let mut out = vec![0; raw.len()];
        let restore = move || stage.borrow().restore(&mut out);
        contenders.push((format!("restore {}", isa.name()), vec![], Box::new(restore)));
    }
    for isa in Isa::available() {
        for (i, &level) in Level::ALL.iter().enumerate() {
            let name = format!("{} {}", isa.name(), level.name());
            let mut b = blocks(isa, level);
            let raw = &raw;
            contenders.push((format!("plan {name}"), vec![], Box::new(move || _ = black_box(b.plan(dtype, raw)))));
            let mut b = blocks(isa, level);
            let mut out = Vec::new();
            contenders.push((format!("encode {name}"), vec![], Box::new(move || b.encode(dtype, raw, &mut out))));
            let mut b = blocks(isa, level);
            let mut out = vec![0; raw.len()];
            let records = encoded[i].clone();
            contenders.push((format!("decode {name}"), vec![], Box::new(move || b.decode(&records, &mut out))));
        }
    }
    if let Some(only) = rest.get(1) {
        contenders.retain(|c| c.0 == "memcpy" || c.0.contains(only.as_str()));
    }
    for _ in 0..if rest.len() > 1 { MANY_ROUNDS } else { ROUNDS } {
        for (_, times, run) in &mut contenders {
            let t = Instant::now();
            run();
            times.push(t.elapsed().as_secs_f64());
        }
    }
    // Median and best: on a busy machine the best says what the code can do.
    let speeds = |t: &mut Vec<f64>| {
        t.sort_by(f64::total_cmp);
        [t[t.len() / 2], t[0]].map(|t| raw.len() as f64 / t / 1e9)
    };
    let memcpy = speeds(&mut contenders[0].1);
    for (name, times, _) in &mut contenders {
        let [median, best] = speeds(times);
        println!(
            "{name:<28} median {median:>6.2} GB/s {:.3} of memcpy; best {best:>6.2} GB/s {:.3}",
            median / memcpy[0],
            best / memcpy[1]
        );
    }
    for (level, size) in sizes {
        println!("{:<28} {:.3} % of {} bytes", level.name(), 100.0 * size as f64 / raw.len() as f64, raw.len());
    }
    let histogram =
        std::array::from_fn(|i| if (90..140).contains(&i) { 1 << (i - 90).min(140 - i).min(20) } else { 0 });
    for &level in Level::ALL {
        let t = Instant::now();
        (0..1000).for_each(|_| _ = black_box(build_table(level, black_box(&histogram))));
        println!("table {:<22} {:>7.2} us", level.name(), t.elapsed().as_secs_f64() * 1e3);
    }
}
