//! Deltas: the bases in memory, and codecs that are given them.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use lmc::{Base, Dtype, Error, ErrorKind, Level, Result};
use lmc_inspect::DifferenceEntropy;
use lmc_inspect::bench::{Expected, raw_bytes};
use lmc_kernels::isa::Isa;

use super::codec::Codec;
use super::contender::{Contender, Given};
use super::input::{Input, repeat};
use crate::ui::failure::Failure;
use crate::ui::format::Name;
use crate::work::bases::Bases;

/// The bases of deltas.
pub(super) struct Old {
    bases: Rc<[Base<'static>]>,
    raw: Vec<Arc<Vec<u8>>>,
}

/// The counterparts of a file in the bases.
pub(super) struct Delta {
    /// Names of the bases.
    pub(super) bases: Vec<String>,
    /// Of each float dtype.
    pub(super) entropies: Vec<DifferenceEntropy>,
    /// For each byte of the file.
    pub(super) expected: Rc<[u8]>,
    /// The same, with zeros for bytes of no tensor.
    pub(super) of_tensors: Rc<[u8]>,
}

impl Delta {
    /// The entropy of the differences of all floats together, in bytes.
    pub(super) fn entropy_bytes(&self) -> f64 {
        self.entropies.iter().map(DifferenceEntropy::bits).sum::<f64>() / 8.0
    }

    /// How many bytes those floats have.
    pub(super) fn covered(&self) -> u64 {
        self.entropies.iter().map(|e| e.elements() * e.dtype().coding_width() as u64).sum()
    }
}

impl Old {
    /// Reads the bases, whole, and hashes them; `None` if there is none.
    pub(super) fn load(paths: &[PathBuf]) -> Result<Option<Self>, Failure> {
        if paths.is_empty() {
            return Ok(None);
        }
        let failed = |e: Error| Failure::Failed(e.to_string());
        let files = Bases::open(paths, true, 0)?;
        let (mut bases, mut raw) = (Vec::new(), Vec::new());
        for file in files.all() {
            let bytes = Arc::new(raw_bytes(file).map_err(failed)?);
            let hash = file.content_hash(0).map_err(failed)?;
            let base = Base::new(bytes.clone()).map_err(failed)?.with_hash(hash).with_name(file.name()).optional();
            bases.push(base);
            raw.push(bytes);
        }
        files.check_unchanged()?;
        Ok(Some(Self { bases: bases.into(), raw }))
    }

    /// The counterparts of a file.
    pub(super) fn expect(&self, raw: &[u8], dtype: Option<Dtype>) -> Result<Delta> {
        let expected = Expected::new(raw, dtype, &self.bases)?;
        let entropies = expected.entropies(raw);
        let all_typed = expected.stretches.iter().all(|s| s.1.is_some());
        let of_tensors = (!all_typed).then(|| expected.of_tensors().into());
        let bytes: Rc<[u8]> = expected.bytes.into();
        let of_tensors = of_tensors.unwrap_or_else(|| bytes.clone());
        Ok(Delta { bases: self.names(), entropies, expected: bytes, of_tensors })
    }

    fn names(&self) -> Vec<String> {
        self.bases.iter().map(|b| b.name().to_owned()).collect()
    }

    /// The elements of the file's most common dtype that have counterparts in the bases, and these counterparts, both
    /// repeated or cut to `size` bytes.
    pub(super) fn resized(&self, input: &Input, size: usize) -> Result<(Input, Self)> {
        let expected = Expected::new(&input.raw, input.dtype, &self.bases)?;
        let bytes_of = |d: Dtype| expected.stretches.iter().filter(move |s| s.1 == Some(d)).map(|s| s.0.clone());
        let common = Dtype::ALL.iter().copied().max_by_key(|&d| bytes_of(d).map(|s| s.len()).sum::<usize>());
        let (new, old): (Vec<_>, Vec<_>) =
            common.into_iter().flat_map(bytes_of).map(|s| (&input.raw[s.clone()], &expected.bytes[s])).unzip();
        let Some(dtype) = common.filter(|_| !new.is_empty()) else {
            let message = format!("{}: no tensor of it is in the base, which --size needs", Name::text(&input.name));
            return Err(Error::new(ErrorKind::Usage, message));
        };
        let resized = input.repeated(dtype, &new.concat(), size)?;
        let raw = Arc::new(repeat(dtype.coding_width(), &old.concat(), resized.raw.len()));
        let base = Base::new(raw.clone())?.with_name(self.names().join(", "));
        let hash = base.content_hash(0)?;
        Ok((resized, Self { bases: Rc::new([base.with_hash(hash).optional()]), raw: vec![raw] }))
    }

    /// `lmc` with the bases.
    pub(super) fn lmc(&self, level: Level, isa: Isa, threads: usize, dtype: Option<Dtype>) -> Result<Contender> {
        Contender::lmc_given(self.bases.clone(), level, isa, threads, dtype)
    }

    /// zstd with the bases as the data before the input: `zstd --patch-from --single-thread`.
    pub(super) fn patch(&self, raw_len: usize) -> Contender {
        let prefix = self.raw.iter().flat_map(|r| r.iter()).copied().collect::<Vec<u8>>();
        // As the program chooses it.
        let window_log = (prefix.len().max(raw_len).max(1 << 9).ilog2() + 1).min(31);
        let mut c = Contender::new("zstd", PATCH_LEVEL.to_string(), Box::new(Patch { prefix, window_log }));
        c.given = Given::Prefix;
        c
    }
}

/// Level of `zstd --patch-from`: its default one.
const PATCH_LEVEL: i32 = 3;

struct Patch {
    prefix: Vec<u8>,
    window_log: u32,
}

impl Codec for Patch {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        packed.clear();
        let done = (|| {
            let mut encoder = zstd::stream::write::Encoder::with_ref_prefix(packed, PATCH_LEVEL, &self.prefix)?;
            encoder.long_distance_matching(true)?;
            encoder.window_log(self.window_log)?;
            encoder.set_pledged_src_size(Some(raw.len() as u64))?;
            encoder.write_all(raw)?;
            encoder.finish().map(drop)
        })();
        done.map_err(|e| Error::new(ErrorKind::Io, format!("zstd with a prefix failed: {e}")))
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        let done = (|| {
            let mut decoder = zstd::stream::read::Decoder::with_ref_prefix(packed, &self.prefix)?;
            decoder.window_log_max(self.window_log)?;
            decoder.read_exact(out)
        })();
        done.map_err(|e| Error::new(ErrorKind::Io, format!("zstd with a prefix failed: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::room_for;
    use super::*;

    #[test]
    fn every_delta_is_undone() {
        let dir = tempfile::tempdir().unwrap();
        let old: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut new = old.clone();
        new.iter_mut().step_by(1000).for_each(|b| *b ^= 1);
        let path = dir.path().join("old");
        std::fs::write(&path, &old).unwrap();
        let bases = Old::load(&[path]).unwrap().unwrap();
        let dtype = Some(Dtype::U8);
        let delta = bases.expect(&new, dtype).unwrap();
        assert_eq!((&delta.bases[..], &delta.expected[..]), (&["old".to_owned()][..], &old[..]));
        let mut zstd = super::super::peers::contender("zstd-1").unwrap();
        zstd = zstd.xored(delta.expected.clone());
        let isa = Isa::detect().unwrap();
        let lmc = bases.lmc(Level::Default, isa, 1, dtype).unwrap();
        let xor = Contender::lmc(Level::Default, isa, 1, dtype).unwrap().xored(delta.of_tensors.clone());
        for mut c in [zstd, lmc, xor, bases.patch(new.len())] {
            let mut packed = room_for(new.len());
            c.codec.compress(&new, &mut packed).unwrap();
            assert!(packed.len() < new.len() / 50, "{}: {}", c.label(), packed.len());
            let mut out = vec![0; new.len()];
            c.codec.decompress(&packed, &mut out).unwrap();
            assert!(out == new, "{}", c.label());
        }
        assert_eq!((delta.entropy_bytes(), delta.covered()), (0.0, 0), "integers are no floats");
        assert!(Old::load(&[]).unwrap().is_none());
        assert!(Old::load(&[dir.path().join("none")]).is_err());
    }

    /// One tensor of `elements` elements, all of one value.
    fn file(dtype: &str, elements: usize, value: &[u8]) -> Vec<u8> {
        let header = format!(
            r#"{{"w":{{"dtype":"{dtype}","shape":[{elements}],"data_offsets":[0,{}]}}}}"#,
            elements * value.len()
        );
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &value.repeat(elements)].concat()
    }

    #[test]
    fn old_and_new_are_repeated_alike() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        std::fs::write(&old, file("BF16", 1000, &[0x80, 0x3f])).unwrap();
        std::fs::write(&new, file("BF16", 1000, &[0x81, 0x3f])).unwrap();
        let bases = Old::load(&[old]).unwrap().unwrap();
        let input = Input::load(&new, None).unwrap();
        let whole = bases.expect(&input.raw, None).unwrap();
        assert_eq!((whole.entropy_bytes(), whole.covered()), (0.0, 2000));
        let header = input.raw.len() - 2000;
        assert!(whole.of_tensors[..header].iter().all(|&b| b == 0), "the header stays, so that XOR keeps the layout");
        assert_eq!(whole.of_tensors[header..], whole.expected[header..]);
        let (resized, repeated) = bases.resized(&input, 5000).unwrap();
        assert_eq!((resized.dtype, &resized.raw[..]), (Some(Dtype::Bf16), &[0x81, 0x3f].repeat(2500)[..]));
        let delta = repeated.expect(&resized.raw, resized.dtype).unwrap();
        assert_eq!((&delta.expected[..], delta.covered()), (&[0x80, 0x3f].repeat(2500)[..], 5000));
        // Of another dtype there is nothing to repeat.
        std::fs::write(&new, file("I32", 1000, &[1; 4])).unwrap();
        assert!(bases.resized(&Input::load(&new, None).unwrap(), 5000).is_err());
    }
}
