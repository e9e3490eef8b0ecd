//! Deltas: the base in memory, and codecs that are given it.

use std::io::{Read, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use lmc::{Base, DecompressOptions, Error, ErrorKind, Result, Segment};

use crate::codec::Codec;
use crate::contender::{Contender, Given};
use crate::input::{Input, read};

/// The base of deltas.
pub(crate) struct Old {
    pub(crate) name: String,
    /// The base as `lmc` gets it.
    pub(crate) bases: Rc<[Base<'static>]>,
    raw: Arc<Vec<u8>>,
}

impl Old {
    /// Reads the base, whole, and hashes it.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let name = path.to_string_lossy().into_owned();
        let mut raw = read(path)?;
        if raw.starts_with(&lmc::MAGIC) {
            raw = lmc::decompress(&raw, &DecompressOptions::default())?;
        }
        let raw = Arc::new(raw);
        let base = Base::new(raw.clone())?.with_name(name.clone());
        let hash = base.content_hash(0)?;
        Ok(Self { name, bases: Rc::new([base.with_hash(hash).optional()]), raw })
    }

    /// For each byte of a file, the one of the tensor with the same name, dtype and shape in the base; 0 where there is
    /// none, so that the exclusive or keeps a file's header, and so its layout.
    pub(crate) fn expected(&self, input: &Input) -> Rc<[u8]> {
        let mut bytes = vec![0; input.raw.len()];
        let bytes_of = |s: &Segment| s.offset as usize..(s.offset + s.len) as usize;
        for s in input.segments.iter().filter(|s| s.dtype.is_some()) {
            let same = |t: &&Segment| (&t.name, t.dtype, &t.shape, t.len) == (&s.name, s.dtype, &s.shape, s.len);
            if let Some(old) = self.bases[0].segments().iter().find(same) {
                bytes[bytes_of(s)].copy_from_slice(&self.raw[bytes_of(old)]);
            }
        }
        bytes.into()
    }

    /// zstd with the base as the data before the input: `zstd --patch-from --single-thread`.
    pub(crate) fn patch(&self, raw_len: usize) -> Contender {
        let prefix = self.raw.to_vec();
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
    use lmc::Level;
    use lmc_kernels::isa::Isa;

    use super::*;
    use crate::codec::room_for;

    /// Two tensors of BF16; the elements of `w` are `value`.
    fn file(value: &[u8; 2]) -> Vec<u8> {
        let header = r#"{"w":{"dtype":"BF16","shape":[100000],"data_offsets":[0,200000]},"z":{"dtype":"BF16","shape":[1],"data_offsets":[200000,200002]}}"#;
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &value.repeat(100_001)].concat()
    }

    #[test]
    fn every_delta_is_undone() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        std::fs::write(&old, file(&[0x80, 0x3f])).unwrap();
        std::fs::write(&new, file(&[0x81, 0x3f])).unwrap();
        let (old, input) = (Old::load(&old).unwrap(), Input::load(&new).unwrap());
        let expected = old.expected(&input);
        let header = input.raw.len() - 200_002;
        assert!(expected[..header].iter().all(|&b| b == 0), "the header stays, so that XOR keeps the layout");
        assert_eq!(expected[header..], [0x80, 0x3f].repeat(100_001));
        let isa = Isa::detect().unwrap();
        let lmc = |bases| Contender::lmc(bases, Level::Default, isa).unwrap();
        let zstd = crate::peers::contender("zstd-1").unwrap().xored(expected.clone());
        let xor = lmc(Rc::new([])).xored(expected);
        for mut c in [zstd, lmc(old.bases.clone()), xor, old.patch(input.raw.len())] {
            let mut packed = room_for(input.raw.len());
            c.codec.compress(&input.raw, &mut packed).unwrap();
            assert!(packed.len() < input.raw.len() / 50, "{}: {}", c.name, packed.len());
            let mut out = vec![0; input.raw.len()];
            c.codec.decompress(&packed, &mut out).unwrap();
            assert!(out == input.raw, "{}", c.name);
        }
        assert!(Old::load(&dir.path().join("none")).is_err());
    }
}
