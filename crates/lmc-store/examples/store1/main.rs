//! Writes the test vectors of stores: `cargo run -p lmc-codec-store --example store1 -- testdata/store1`.
//!
//! Stores that are in the folder stay as they are, because they are frozen and other versions write other bytes. With `--check` before the
//! folder it writes nothing, and fails if a file there is missing, differs, or is not one of them.

mod edits;
mod rule;
mod rules;
mod stores;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use serde_json::{Value, json};

/// The page about the folder, and the list of frozen vectors, which are not made.
const OTHERS: [&str; 2] = ["README.md", "frozen.txt"];

/// Names, with `/` between parts, and contents.
type Files = BTreeMap<String, Vec<u8>>;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--check", folder] => check(Path::new(folder)),
        [folder] if !folder.starts_with('-') => write(Path::new(folder)),
        _ => {
            eprintln!("usage: store1 [--check] FOLDER");
            Ok(ExitCode::from(2))
        }
    }
}

/// All files of a folder but [`OTHERS`].
fn contents(folder: &Path) -> Result<Files, Box<dyn Error>> {
    let mut files = Files::new();
    let mut stores = stores::all()?;
    for (name, made) in &mut stores {
        let frozen = folder.join(name);
        if frozen.is_dir() {
            made.objects = files_of(&frozen)?;
        }
    }
    let mut add = |name: &str, value: &Value| files.insert(name.into(), (format!("{value:#}\n")).into_bytes());
    for (name, made) in &stores {
        let expected =
            json!({ "shows": made.shows, "snapshots": made.saved, "tags": made.tags, "refuse": made.refuse });
        add(&format!("{name}.json"), &expected);
    }
    add("good.json", &rule::list(&rules::good(&stores), &stores));
    add("bad.json", &rule::list(&rules::bad(&stores), &stores));
    for (name, made) in stores {
        files.extend(made.objects.into_iter().map(|(key, bytes)| (format!("{name}/{key}"), bytes)));
    }
    Ok(files)
}

/// The files of a folder but [`OTHERS`].
fn files_of(folder: &Path) -> Result<Files, Box<dyn Error>> {
    let (mut files, mut folders) = (Files::new(), vec![folder.to_path_buf()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).map_err(|e| format!("{}: {e}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.strip_prefix(folder)?.to_string_lossy().into_owned(), fs::read(path)?);
            }
        }
    }
    files.retain(|name, _| !OTHERS.contains(&&**name));
    Ok(files)
}

fn write(folder: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let files = contents(folder)?;
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() && !OTHERS.iter().any(|other| path.ends_with(other)) {
            fs::remove_file(path)?;
        }
    }
    for (name, bytes) in &files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("it is below the folder"))?;
        fs::write(path, bytes)?;
    }
    println!("{} files of {} bytes", files.len(), files.values().map(Vec::len).sum::<usize>());
    Ok(ExitCode::SUCCESS)
}

fn check(folder: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let mut there = files_of(folder)?;
    let mut wrong = Vec::new();
    for (name, bytes) in contents(folder)? {
        match there.remove(&name) {
            None => wrong.push(format!("{name} is missing")),
            Some(other) if other != bytes => wrong.push(format!("{name} differs")),
            Some(_) => (),
        }
    }
    wrong.extend(there.into_keys().map(|name| format!("{name} is not one of the files")));
    for line in &wrong {
        eprintln!("{}: {line}; make the folder again with the example `store1` of lmc-codec-store", folder.display());
    }
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
