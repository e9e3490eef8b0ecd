//! The input of a delta: the bytes of the bases that correspond to those of a file, and the file's tensors that they
//! belong to.

use std::ops::Range;

use lmc::internals::read_base;
use lmc::{Base, Dtype, Result};
use lmc_layout::layout_of;

use crate::diff::counterparts;
use crate::diff::entropy::DifferenceEntropy;

/// For each byte of a file, the corresponding byte of a base, converted to the file's dtype; 0 where there is none.
pub struct Expected {
    /// As many as the file has.
    pub bytes: Vec<u8>,
    /// The stretches of the file that have counterparts, in whole elements, and the dtype of these.
    pub stretches: Vec<(Range<usize>, Option<Dtype>)>,
}

impl Expected {
    /// Finds the counterparts, as compression does.
    ///
    /// # Errors
    /// Those of reading the bases.
    pub fn new(raw: &[u8], dtype: Option<Dtype>, bases: &[Base<'_>]) -> Result<Self> {
        let layout = layout_of(&raw, raw.len() as u64, dtype)?;
        let segments = layout.covering(raw.len() as u64);
        let found = counterparts::find(&layout, &segments, &raw, bases)?;
        let (mut bytes, mut stretches) = (vec![0; raw.len()], vec![]);
        let (mut buf, mut converted) = (vec![], vec![]);
        for (segment, c) in segments.iter().zip(found) {
            let Some(c) = c.filter(|c| c.len > 0) else { continue };
            let start = segment.offset as usize;
            let old = c.read(segment, 0, c.len as usize, bases, &mut buf, &mut converted)?;
            bytes[start..start + old.len()].copy_from_slice(old);
            stretches.push((start..start + old.len(), segment.dtype));
        }
        Ok(Self { bytes, stretches })
    }

    /// The entropy of the difference for the elements of each float dtype in `raw` that have counterparts.
    pub fn entropies(&self, raw: &[u8]) -> Vec<DifferenceEntropy> {
        let mut found: Vec<_> = Dtype::ALL.iter().filter_map(|&d| DifferenceEntropy::new(d)).collect();
        for (bytes, dtype) in &self.stretches {
            if let Some(e) = found.iter_mut().find(|e| Some(e.dtype()) == *dtype) {
                e.add(&raw[bytes.clone()], &self.bytes[bytes.clone()]);
            }
        }
        found.retain(|e| e.elements() > 0);
        found
    }

    /// [`Self::bytes`] with zeros for bytes without a dtype: the exclusive or with them keeps a file's header, and so
    /// its layout.
    pub fn of_tensors(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes.len()];
        for (s, _) in self.stretches.iter().filter(|s| s.1.is_some()) {
            bytes[s.clone()].copy_from_slice(&self.bytes[s.clone()]);
        }
        bytes
    }
}

/// The raw bytes of a base.
///
/// # Errors
/// Those of reading it.
pub fn raw_bytes(base: &Base<'_>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; base.raw_size() as usize];
    read_base(base, 0, &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_is_what_the_base_has() {
        let base: Vec<u8> = (0..600u32).flat_map(|i| i.to_le_bytes()).collect();
        let raw: Vec<u8> = (0..500u32).flat_map(|i| (i + 1).to_le_bytes()).collect();
        let bases = [Base::new(&base[..]).unwrap()];
        let e = Expected::new(&raw, Some(Dtype::F32), &bases).unwrap();
        assert_eq!((e.bytes.len(), &e.bytes[..]), (2000, &base[..2000]));
        assert_eq!(e.stretches, [(0..2000, Some(Dtype::F32))]);
        let [f32] = &e.entropies(&raw)[..] else { panic!() };
        assert_eq!((f32.dtype(), f32.elements(), f32.bits()), (Dtype::F32, 500, 0.0));
        assert_eq!(e.of_tensors(), e.bytes);
        assert_eq!(raw_bytes(&bases[0]).unwrap(), base);
    }
}
