//! The contents of `testdata/format1`, and the codec's errors for its broken files.

use super::{Broken, Feature, LIMIT};
use super::{broken_blocks, broken_derived, broken_files, broken_grids, broken_optimizer, broken_predictions};
use super::{broken_streams, broken_terms, codes, containers, derived, grid_offsets, grids, optimizer, predictions};
use super::{streams, terms};
use crate::json::Json;
use crate::reference;
use lmc::{Base, DecodeLimits, DecompressOptions, Decompressor, Result};
use lmc_kernels::isa::Isa;

/// All features.
pub fn features() -> Vec<Feature> {
    let of_predictions = [predictions::all(), grids::all(), grid_offsets::all(), optimizer::all(), terms::all()];
    let derived = [derived::all(), codes::all()];
    [containers::all(), streams::all()].into_iter().chain(of_predictions).chain(derived).flatten().collect()
}

/// All broken files.
pub fn broken() -> Vec<Broken> {
    let of_columns = [broken_streams::all(), broken_predictions::all(), broken_grids::all()];
    let of_features = [broken_optimizer::all(), broken_terms::all(), broken_derived::all()];
    [broken_files::all(), broken_blocks::all()].into_iter().chain(of_columns).chain(of_features).flatten().collect()
}

/// The files that are made, in the order of their names, each with its bytes: all but the manifest, the list of frozen ones, the page about the
/// folder, and the program that tests a decoder.
///
/// # Errors
/// When a file is wrong: the reference decoder or the codec does not restore a valid one, or restores a broken
/// one.
pub fn contents() -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut files = Vec::new();
    let (features, broken) = (features(), broken());
    for feature in &features {
        let Feature { name, section, shows, file, bases, raw } = feature;
        let file = file.to_bytes();
        let slices: Vec<&[u8]> = bases.iter().map(|base| &base[..]).collect();
        let decoded = reference::decode_with_bases(&file, &slices, LIMIT).map_err(|e| format!("{name}: {e}"))?;
        if decoded != *raw || restore(&file, &slices, Isa::PORTABLE).is_ok_and(|restored| restored != *raw) {
            return Err(format!("{name} is restored to other bytes"));
        }
        restore(&file, &slices, Isa::PORTABLE).map_err(|e| format!("{name}: {e}"))?;
        let fields = reference::describe::describe(&file, &slices, LIMIT).map_err(|e| format!("{name}: {e}"))?;
        let described = [("section", (*section).into()), ("shows", (*shows).into()), ("file", fields)];
        files.push((format!("{name}.json"), Json::Object(described.into()).pretty().into_bytes()));
        files.push((format!("{name}.lmc"), file));
        files.push((format!("{name}.raw"), raw.clone()));
        files.extend((1..).zip(bases).map(|(i, base)| (format!("{name}.base{i}"), base.clone())));
    }
    let mut list = Vec::new();
    for Broken { name, section, rule, file, bases, optional } in &broken {
        let slices: Vec<&[u8]> = bases.iter().map(|base| &base[..]).collect();
        let reason = reference::decode_with_bases(file, &slices, LIMIT).err();
        let reason = reason.ok_or_else(|| format!("the reference decoder restores {name}"))?;
        let error = restore(file, &slices, Isa::PORTABLE).err();
        let error = error.ok_or_else(|| format!("the codec restores {name}, but {reason}"))?;
        let mut fields = vec![
            ("name", Json::Text(name.clone())),
            ("section", (*section).into()),
            ("rule", (*rule).into()),
            ("error", Json::Text(error.to_string())),
            ("reason", Json::Text(reason)),
            ("file", Json::hex(file)),
            ("bases", Json::List(bases.iter().map(|base| Json::hex(base)).collect())),
        ];
        fields.extend(optional.map(|part| ("optional", part.into())));
        list.push(Json::Object(fields));
    }
    files.push(("bad.json".into(), Json::List(list).pretty().into_bytes()));
    files.sort();
    match files.windows(2).find(|two| two[0].0 == two[1].0) {
        Some(two) => Err(format!("two files have the name {}", two[0].0)),
        None => Ok(files),
    }
}

/// Restores a file from its bytes with an instruction set.
///
/// # Errors
/// Those of the codec, which `bad.json` has.
pub fn restore(file: &[u8], bases: &[&[u8]], isa: Isa) -> Result<Vec<u8>> {
    let limits = DecodeLimits::default().with_max_raw_size(LIMIT as u64);
    let options = DecompressOptions::default().with_threads(1).with_limits(limits).with_isa(isa);
    let bases = bases.iter().map(|&raw| Base::new(raw)).collect::<Result<Vec<_>>>()?;
    let mut raw = vec![0; Decompressor::raw_size(file)?.min(LIMIT as u64) as usize];
    Decompressor::new(&options)?.decompress(file, &bases, &mut raw[..])?;
    Ok(raw)
}
