//! `lmc-roofline FILE [THREADS] [SECONDS]`: how much of the speed of the codec is that of memory, and how much of what it gains from
//! threads.
//!
//! Beside each direction of the codec runs a loop over the same blocks that moves the same bytes and computes nothing: compressing reads
//! the file once and writes a part of it as long as the compressed file, decompressing reads that part and writes the file. A copy of
//! the file, as in STREAM, reads and writes all of it. Wall clock, medians of the rounds, in memory; speeds are of bytes of the file.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use lmc::{CompressOptions, Compressor, DecompressOptions, Decompressor};

/// Bytes of the file that a thread takes at once, as those of the codec do.
const BLOCK: usize = 1 << 20;
const MIN_ROUNDS: usize = 5;

/// Moves blocks of `from` to `to` on some threads, each of them every so many blocks.
fn on_threads(threads: usize, from: &[u8], to: &mut [u8], lens: [usize; 2], one: fn(&[u8], &mut [u8])) {
    let mut parts: Vec<Vec<(&[u8], &mut [u8])>> = (0..threads).map(|_| vec![]).collect();
    let pairs = from.chunks(lens[0]).zip(to.chunks_mut(lens[1]));
    pairs.enumerate().for_each(|(i, pair)| parts[i % threads].push(pair));
    std::thread::scope(|scope| {
        for part in parts {
            scope.spawn(move || part.into_iter().for_each(|(from, to)| one(from, to)));
        }
    });
}

fn copy(from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(&black_box(from)[..to.len()]);
}

/// Reads all of a block, and writes a shorter one.
fn shrink(from: &[u8], to: &mut [u8]) {
    let (kept, rest) = from.split_at(to.len().min(from.len()));
    to[..kept.len()].copy_from_slice(kept);
    black_box(rest.as_chunks::<8>().0.iter().fold(0, |all, word| all ^ u64::from_le_bytes(*word)));
}

/// Reads a block, and writes a longer one.
fn grow(from: &[u8], to: &mut [u8]) {
    let (kept, rest) = to.split_at_mut(from.len().min(to.len()));
    kept.copy_from_slice(&from[..kept.len()]);
    rest.fill(black_box(1));
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, file, rest @ ..] = &args[..] else { return Err("usage: lmc-roofline FILE [THREADS] [SECONDS]".into()) };
    let most = rest.first().map_or(Ok(2), |n| n.parse())?;
    let budget = Duration::from_secs_f64(rest.get(1).map_or(Ok(5.0), |s| s.parse())?);
    let raw = std::fs::read(file)?;
    let mut packed = Vec::new();
    Compressor::new(&CompressOptions::default())?.compress(&raw[..], &[], &mut packed)?;
    let share = packed.len() as f64 / raw.len() as f64;
    let lens = [BLOCK, ((BLOCK as f64 * share) as usize).clamp(1, BLOCK)];
    let (mut back, mut again) = (vec![1; raw.len()], vec![1; raw.len()]);
    let mut times: Vec<[Vec<Duration>; 5]> = vec![Default::default(); 2];
    let start = Instant::now();
    while times[0][0].len() < MIN_ROUNDS || start.elapsed() < budget {
        for (threads, times) in [1, most].into_iter().zip(&mut times) {
            let mut compressor = Compressor::new(&CompressOptions::default().with_threads(threads))?;
            let mut decompressor = Decompressor::new(&DecompressOptions::default().with_threads(threads))?;
            let mut timed = |which: usize, run: &mut dyn FnMut() -> lmc::Result<()>| -> lmc::Result<()> {
                let begin = Instant::now();
                run()?;
                times[which].push(begin.elapsed());
                Ok(())
            };
            timed(0, &mut || Ok(on_threads(threads, &raw, &mut back, [BLOCK; 2], copy)))?;
            timed(1, &mut || Ok(on_threads(threads, &raw, &mut again, lens, shrink)))?;
            timed(2, &mut || compressor.compress(&raw[..], &[], &mut packed).map(drop))?;
            timed(3, &mut || Ok(on_threads(threads, &again, &mut back, [lens[1], BLOCK], grow)))?;
            timed(4, &mut || decompressor.decompress(&packed[..], &[], &mut back[..]).map(drop))?;
            if back != raw {
                return Err("other bytes came back".into());
            }
        }
    }
    println!("{} bytes, compressed to {:.2} %", raw.len(), 100.0 * share);
    println!("| | traffic, bytes a byte | GB/s, 1 thread | {most} threads | × |");
    println!("| --- | --: | --: | --: | --: |");
    let names = ["copy", "same bytes as compressing", "compress", "same bytes as decompressing", "decompress"];
    for (i, name) in names.into_iter().enumerate() {
        let [one, more] = [0, 1].map(|t| {
            times[t][i].sort_unstable();
            raw.len() as f64 / 1e9 / times[t][i][times[t][i].len() / 2].as_secs_f64()
        });
        let traffic = if i == 0 { 2.0 } else { 1.0 + share };
        println!("| {name} | {traffic:.2} | {one:.2} | {more:.2} | {:.2} |", more / one);
    }
    Ok(())
}
