//! Writes valid files of every shape of the format, as test vectors for other decoders:
//! `cargo run -p lmc-testing --example vectors -- FOLDER`.
//!
//! A vector is `NAME.lmc`, its raw bytes in `NAME.raw`, and those of its bases in `NAME.base1`, `NAME.base2`, … In `fuzzed/` are the
//! files that fuzz targets make of their corpora, most of them damaged: those without raw bytes are refused by the reference decoder.
//! In `hostile/` are small valid files that take much to decode, without their raw bytes.

use lmc_testing::decoders::LIMIT;
use lmc_testing::input::{Input, Random};
use lmc_testing::reference::{self, write::File};
use lmc_testing::{blocks, deltas, hostile, samples, targets};
use std::{env, fs, io, path::Path};

/// Vectors of each kind whose contents are chosen at random.
const RANDOM: usize = 100;

fn main() -> io::Result<()> {
    let Some(folder) = env::args_os().nth(1) else {
        eprintln!("usage: vectors FOLDER");
        std::process::exit(2);
    };
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    let write_file = |name: &str, file: &[u8], bases: &[&[u8]]| {
        fs::write(folder.join(format!("{name}.lmc")), file)?;
        (1..).zip(bases).try_for_each(|(i, base)| fs::write(folder.join(format!("{name}.base{i}")), base))
    };
    let write = |name: String, file: &[u8], raw: &[u8], bases: &[&[u8]]| {
        write_file(&name, file, bases)?;
        fs::write(folder.join(format!("{name}.raw")), raw)
    };
    let file_name = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    for (name, file, raw) in samples::all() {
        write(format!("sample-{}", file_name(name)), &file, &raw, &[])?;
    }
    let mut random = Random::new(1);
    for i in 0..RANDOM {
        let choices = random.bytes(400);
        let mut input = Input::new(&choices);
        let mut blocks: Vec<_> = (0..1 + usize::from(i % 16 == 0)).map(|_| blocks::block(&mut input)).collect();
        let raw = blocks::fill(&mut blocks);
        let records = blocks.iter().map(|block| block.record().expect("valid blocks can be coded")).collect();
        write(format!("plain-{i:03}"), &File::new(records).to_bytes(), &raw, &[])?;
        let choices = random.bytes(400);
        let delta = deltas::delta(&mut Input::new(&choices));
        write(format!("delta-{i:03}"), &delta.file().to_bytes(), &delta.raw(), &delta.bases())?;
    }
    for folder_of in ["fuzzed", "hostile"] {
        fs::create_dir_all(folder.join(folder_of))?;
    }
    for (name, file) in hostile::files() {
        write_file(&format!("hostile/{name}"), &file, &[])?;
    }
    let fuzzed = |name: String, file: &[u8], bases: &[&[u8]]| {
        write_file(&name, file, bases)?;
        reference::decode_with_bases(file, bases, LIMIT)
            .map_or(Ok(()), |raw| fs::write(folder.join(format!("{name}.raw")), raw))
    };
    for (i, (_, bytes)) in targets::corpus("container")?.into_iter().enumerate() {
        if let Some((_, file)) = targets::container_file(&bytes) {
            fuzzed(format!("fuzzed/container-{i:04}"), &file, &[])?;
        }
    }
    for (i, (_, bytes)) in targets::corpus("decode_vs_reference")?.into_iter().enumerate() {
        let (_, file, _) = blocks::damaged(&mut Input::new(&bytes));
        fuzzed(format!("fuzzed/plain-{i:04}"), &file, &[])?;
    }
    for (i, (_, bytes)) in targets::corpus("delta_vs_reference")?.into_iter().enumerate() {
        let (delta, file, _) = deltas::damaged(&mut Input::new(&bytes));
        fuzzed(format!("fuzzed/delta-{i:04}"), &file, &delta.bases())?;
    }
    Ok(())
}
