//! Writes the test vectors of the format: `cargo run -p lmc-testing --example format1 -- testdata/format1`.
//!
//! With `--check` before the folder it writes nothing, and fails if a file there is missing, differs, or is not one
//! of them.

use lmc_testing::format1::contents;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

/// The manifest: digests of all other files but [`PAGE`].
const MANIFEST: &str = "SHA256SUMS";

/// The page about the folder, which is not made.
const PAGE: &str = "README.md";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--check", folder] => check(Path::new(folder)),
        [folder] if !folder.starts_with('-') => write(Path::new(folder)),
        _ => {
            eprintln!("usage: format1 [--check] FOLDER");
            Ok(ExitCode::from(2))
        }
    }
}

/// The files of a folder but [`PAGE`], and of `bad` in it, by name.
fn files_of(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, Box<dyn Error>> {
    let mut files = BTreeMap::new();
    for (prefix, folder) in [("", folder.to_path_buf()), ("bad/", folder.join("bad"))] {
        for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
                files.insert(name, fs::read(entry.path())?);
            }
        }
    }
    files.remove(PAGE);
    Ok(files)
}

fn write(folder: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let files = contents()?;
    fs::create_dir_all(folder.join("bad"))?;
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
    if there.remove(MANIFEST).is_none() {
        wrong.push(format!("{MANIFEST} is missing"));
    }
    for (name, bytes) in contents()? {
        match there.remove(&name) {
            None => wrong.push(format!("{name} is missing")),
            Some(other) if other != bytes => wrong.push(format!("{name} differs")),
            Some(_) => (),
        }
    }
    wrong.extend(there.into_keys().map(|name| format!("{name} is not one of the files")));
    for line in &wrong {
        eprintln!("{}: {line}; make the folder again with the example `format1` of lmc-testing", folder.display());
    }
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
