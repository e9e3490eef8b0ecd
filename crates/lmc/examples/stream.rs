//! Compresses standard input to standard output, or with `-d` restores it, in bounded memory: `stream [-d] < IN > OUT`

use std::io::{self, Read, Write};

use lmc::{CompressOptions, Decoder, DecompressOptions, Encoder};

/// Compresses what can be read.
pub fn compress(mut from: impl Read, to: impl Write) -> Result<(), Box<dyn std::error::Error>> {
    let mut encoder = Encoder::new(to, &CompressOptions::default())?;
    io::copy(&mut from, &mut encoder)?;
    // What is left, and the index. Without it the file is cut, which readers notice.
    encoder.finish()?;
    Ok(())
}

/// Restores it. Bytes that were written before an error may be the beginning of the original.
pub fn restore(from: impl Read, mut to: impl Write) -> Result<(), Box<dyn std::error::Error>> {
    io::copy(&mut Decoder::new(from, &DecompressOptions::default())?, &mut to)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1).as_deref() {
        None => compress(io::stdin().lock(), io::stdout().lock()),
        Some("-d") => restore(io::stdin().lock(), io::stdout().lock()),
        Some(_) => Err("usage: stream [-d] < IN > OUT".into()),
    }
}
