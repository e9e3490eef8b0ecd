//! Writes the test vectors of the format: `cargo run -p lmc-testing --example format1 -- testdata/format1`.
//!
//! With `--check` before the folder it writes nothing, and fails if a file there is missing, differs, or is not one
//! of them. With `--freeze` it writes only the list of frozen vectors: new ones are added, and none may have changed.

use lmc_testing::format1::{FROZEN, contents, frozen_lines, unfrozen};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

/// The manifest: digests of all files that are made.
const MANIFEST: &str = "SHA256SUMS";

/// What is not made.
const OTHERS: [&str; 4] = [MANIFEST, FROZEN, "README.md", "run.py"];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--check", folder] => check(Path::new(folder)),
        ["--freeze", folder] => freeze(Path::new(folder)),
        [folder] if !folder.starts_with('-') => write(Path::new(folder)),
        _ => {
            eprintln!("usage: format1 [--check | --freeze] FOLDER");
            Ok(ExitCode::from(2))
        }
    }
}

/// The files of a folder but [`OTHERS`], by name.
fn files_of(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, Box<dyn Error>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !OTHERS.contains(&&*name) {
            files.insert(name, fs::read(entry.path())?);
        }
    }
    Ok(files)
}

fn write(folder: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let files = contents()?;
    fs::create_dir_all(folder)?;
    for name in files_of(folder)?.keys() {
        fs::remove_file(folder.join(name))?;
    }
    for (name, bytes) in &files {
        fs::write(folder.join(name), bytes)?;
    }
    let names = files.iter().map(|(name, _)| name);
    let sums = Command::new("sha256sum").args(names).current_dir(folder).output()?;
    if !sums.status.success() {
        return Err(format!("sha256sum: {}", String::from_utf8_lossy(&sums.stderr)).into());
    }
    fs::write(folder.join(MANIFEST), sums.stdout)?;
    println!("{} files of {} bytes", files.len(), files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>());
    Ok(ExitCode::SUCCESS)
}

fn check(folder: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let mut there = files_of(folder)?;
    let mut wrong = Vec::new();
    for (name, bytes) in contents()? {
        match there.remove(&name) {
            None => wrong.push(format!("{name} is missing")),
            Some(other) if other != bytes => wrong.push(format!("{name} differs")),
            Some(_) => (),
        }
    }
    wrong.extend(there.into_keys().map(|name| format!("{name} is not one of the files")));
    Ok(told(folder, &wrong, "make the folder again with the example `format1` of lmc-testing"))
}

/// Adds the vectors of a folder to its list of frozen ones.
fn freeze(folder: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let list = folder.join(FROZEN);
    let frozen = if list.exists() { fs::read_to_string(&list)? } else { String::new() };
    let lines = frozen_lines(&files_of(folder)?)?;
    let wrong = unfrozen(&frozen, &lines);
    if wrong.is_empty() {
        fs::write(&list, lines.concat())?;
    }
    Ok(told(folder, &wrong, "a frozen vector never changes: make a new one beside it"))
}

/// Says what is wrong with a folder.
fn told(folder: &Path, wrong: &[String], instead: &str) -> ExitCode {
    for line in wrong {
        eprintln!("{}: {line}; {instead}", folder.display());
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
