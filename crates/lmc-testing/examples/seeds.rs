//! Writes inputs to start fuzzing from: `cargo run -p lmc-testing --example seeds -- FOLDER`.

use lmc_testing::input::Random;
use lmc_testing::reference::write::{File, Record};
use lmc_testing::{samples, targets};
use std::{env, fs, io, path::Path};

/// The file with a skippable record.
fn noted(file: &[u8]) -> Vec<u8> {
    let mut file = File::parse(file).expect("the sample is valid");
    file.records.push(Record::new(*b"note", b"skipped".to_vec(), Vec::new()));
    file.to_bytes()
}

fn main() -> io::Result<()> {
    let Some(corpus) = env::args_os().nth(1) else {
        eprintln!("usage: seeds FOLDER");
        std::process::exit(2);
    };
    let mut random = Random::new(1);
    let layouts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/layouts");
    let folder = Path::new(&corpus).join("layout");
    fs::create_dir_all(&folder)?;
    for entry in fs::read_dir(&layouts)?.chain(fs::read_dir(layouts.join("torch"))?) {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension != "py") && file.is_file() {
            let name = file.file_name().expect("it is a file").display().to_string();
            fs::write(folder.join(name), [&[0][..], &fs::read(&file)?].concat())?;
        }
    }
    for entry in fs::read_dir(layouts.join("dcp"))? {
        let entry = entry?;
        if let Ok(metadata) = fs::read(entry.path().join(".metadata")) {
            let name = format!("{}.metadata", entry.file_name().display());
            fs::write(folder.join(name), [&[0][..], &metadata].concat())?;
        }
    }
    for (target, _) in targets::TARGETS {
        let folder = Path::new(&corpus).join(target);
        fs::create_dir_all(&folder)?;
        for i in 0..40 {
            fs::write(folder.join(format!("seed-{i:02}")), random.bytes(20 + 5 * i))?;
        }
        for (i, (_, file, raw)) in samples::all().into_iter().enumerate() {
            let seeds: &[(u8, &[u8])] = match target {
                // As it is, with checks made to fit, and with a skippable record.
                "container" => &[(0, &file), (2, &file), (4, &noted(&file))],
                // As a whole file, and the header alone.
                "layout" => &[(0, &raw), (1, raw.get(8..).unwrap_or(&[]))],
                _ => &[],
            };
            for (mode, bytes) in seeds {
                fs::write(folder.join(format!("sample-{i}-{mode}")), [&[*mode], *bytes].concat())?;
            }
        }
    }
    Ok(())
}
