//! `neon in|out LEVEL TIMES DTYPE FILE [BASE]`: compresses or decompresses FILE, raw elements of DTYPE, TIMES times on
//! one thread, as a delta if there is a BASE. `bench/neon/run` counts the instructions that it takes.

use std::error::Error;
use std::hint::black_box;

use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Decompressor, Dtype};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, way, level, times, dtype, file, base @ ..] = &args[..] else {
        return Err("usage: neon in|out LEVEL TIMES DTYPE FILE [BASE]".into());
    };
    let times: usize = times.parse()?;
    let raw = std::fs::read(file)?;
    let base = base.first().map(std::fs::read).transpose()?;
    let bases: Vec<_> = base.iter().map(|b| Base::new(&b[..])).collect::<Result<_, _>>()?;
    let o = CompressOptions::default().with_level(level.parse()?).with_dtype(dtype.parse::<Dtype>()?).with_threads(1);
    let d = DecompressOptions::default().with_threads(1);
    let (mut compressor, mut decompressor) = (Compressor::new(&o)?, Decompressor::new(&d)?);
    let (mut compressed, mut back) = (Vec::new(), vec![0; raw.len()]);
    let (ins, outs) = if way == "in" { (times, 1) } else { (1, times) };
    for _ in 0..ins {
        compressor.compress(black_box(&raw), &bases, &mut compressed)?;
    }
    for _ in 0..outs {
        decompressor.decompress(black_box(&compressed), &bases, &mut back[..])?;
    }
    if back != raw {
        return Err("other bytes came back".into());
    }
    println!("{}", compressed.len());
    Ok(())
}
