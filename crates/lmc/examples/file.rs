//! Compresses a file, or restores one whose name ends with `.lmc`: `cargo run --release --example file -- FILE`

use std::fs::File;
use std::path::Path;

use lmc::{CompressOptions, Compressor, DecompressOptions, Decompressor};

type Done<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Writes `input` to `output`, compressed. Returns the sizes of both.
pub fn compress(input: &Path, output: &Path) -> Done<(u64, u64)> {
    let (input, output) = (File::open(input)?, File::create_new(output)?);
    // Keeps its threads and buffers: one serves many files.
    let mut compressor = Compressor::new(&CompressOptions::default())?;
    let done = compressor.compress(&input, &[], &output)?;
    Ok((done.raw_size, done.compressed_size))
}

/// Restores `input` to `output`. After an error, the output has to be removed.
pub fn restore(input: &Path, output: &Path) -> Done {
    let (input, output) = (File::open(input)?, File::create_new(output)?);
    Decompressor::new(&DecompressOptions::default())?.decompress(&input, &[], &output)?;
    Ok(())
}

fn main() -> Done {
    let name = std::env::args().nth(1).ok_or("usage: file FILE")?;
    if let Some(original) = name.strip_suffix(".lmc") {
        return restore(Path::new(&name), Path::new(original));
    }
    let output = format!("{name}.lmc");
    let (raw, compressed) = compress(Path::new(&name), Path::new(&output))?;
    println!("{output}: {raw} bytes => {compressed}");
    Ok(())
}
