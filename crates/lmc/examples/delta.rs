//! Makes a delta of a checkpoint and restores the checkpoint from it, in memory: `delta OLD NEW`

use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Decompressor};

type Done<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// `new`, given `old`.
pub fn make(old: &[u8], new: &[u8]) -> lmc::Result<Vec<u8>> {
    let mut delta = Vec::new();
    Compressor::new(&CompressOptions::default())?.compress(new, &[Base::new(old)?], &mut delta)?;
    Ok(delta)
}

/// The new one again. Another base than that of [`make`] is an error.
pub fn apply(old: &[u8], delta: &[u8]) -> lmc::Result<Vec<u8>> {
    let mut new = Vec::new();
    Decompressor::new(&DecompressOptions::default())?.decompress(delta, &[Base::new(old)?], &mut new)?;
    Ok(new)
}

fn main() -> Done {
    let files: Vec<Vec<u8>> = std::env::args_os().skip(1).map(std::fs::read).collect::<Result<_, _>>()?;
    let [old, new] = &files[..] else { return Err("usage: delta OLD NEW".into()) };
    let delta = make(old, new)?;
    assert_eq!(&apply(old, &delta)?, new);
    println!("{} bytes => {}", new.len(), delta.len());
    Ok(())
}
