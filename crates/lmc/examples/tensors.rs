//! Lists the tensors of a `.lmc` file, or writes one to standard output: `tensors FILE [TENSOR]`

use std::fs::File;
use std::io::Write;
use std::path::Path;

use lmc::{DecompressOptions, Reader};

type Done<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// A line for each tensor: name, dtype, shape.
pub fn list(file: &Path) -> Done<Vec<String>> {
    // Reads the index at the end, and no tensor.
    let reader = Reader::open(File::open(file)?, &DecompressOptions::default())?;
    let tensors = reader.segments().iter().filter_map(|s| Some((s.name.as_deref()?, s.dtype?, &s.shape)));
    Ok(tensors.map(|(name, dtype, shape)| format!("{name} {} {shape:?}", dtype.name())).collect())
}

/// The bytes of a tensor. Only the blocks that hold it are read.
pub fn read(file: &Path, tensor: &str) -> Done<Vec<u8>> {
    Ok(Reader::open(File::open(file)?, &DecompressOptions::default())?.read_tensor(tensor)?)
}

fn main() -> Done {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: tensors FILE [TENSOR]")?;
    match arguments.next() {
        None => list(Path::new(&file))?.iter().for_each(|line| println!("{line}")),
        Some(tensor) => std::io::stdout().write_all(&read(Path::new(&file), &tensor)?)?,
    }
    Ok(())
}
