//! The files in which models of ONNX keep their tensors: `-r` takes them with the models.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use lmc::layout::tensors;
use lmc::{DecompressOptions, Reader};

use crate::fs::input::Source;
use crate::fs::names::SUFFIX;

const MODEL: &str = "onnx";

/// The files that were `found`, and those of the `others` in which models keep tensors, whatever they are called. They come before their
/// models: as long as a model is there, it says what the bytes are.
pub(crate) fn with_data(found: Vec<PathBuf>, others: &[PathBuf]) -> Vec<PathBuf> {
    let is_compressed = |path: &Path| path.extension().is_some_and(|e| e == SUFFIX);
    let there: HashSet<&Path> =
        found.iter().chain(others).map(PathBuf::as_path).filter(|path| !is_compressed(path)).collect();
    let (mut all, mut taken) = (Vec::with_capacity(found.len()), HashSet::new());
    // Of models that were compressed before, the data may be left.
    let compressed = others.iter().filter(|path| is_compressed(path) && is_model(&path.with_extension("")));
    for path in found.iter().chain(compressed) {
        let own = is_model(path) || is_compressed(path);
        for data in if own { data_of(path) } else { Vec::new() } {
            if there.contains(&*data) && data != *path && taken.insert(data.clone()) {
                all.push(data);
            }
        }
        if !is_compressed(path) && taken.insert(path.clone()) {
            all.push(path.clone());
        }
    }
    all
}

fn is_model(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case(MODEL))
}

/// The files that a model names. None if it cannot be read: whoever works on it says why.
fn data_of(model: &Path) -> Vec<PathBuf> {
    let Ok(source) = Source::open(model) else { return Vec::new() };
    let declared = match Reader::open(&source, &DecompressOptions::default().with_threads(1)) {
        Ok(reader) => tensors(&reader, "", &[], ""),
        Err(_) => tensors(&source, "", &[], ""),
    };
    let names = declared.map(|of| of.files).unwrap_or_default();
    // Relative to the model, and never outside of its directory.
    let is_inside = |name: &String| {
        Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    };
    names.iter().filter(|name| is_inside(name)).map(|name| clean(&model.with_file_name(name))).collect()
}

/// A path as a walk through directories gives it.
fn clean(path: &Path) -> PathBuf {
    path.components().collect()
}
