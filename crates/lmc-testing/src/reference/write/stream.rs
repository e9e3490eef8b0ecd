//! Streams (§3.3.1) and their clusters from a description.

use super::super::ranges::bytes_of;
use super::entropy::{Chunk, Coder, Pad};
use super::numbers::NumberCode;
use super::varint;

/// How the elements of a stream are coded.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub map: u8,
    /// The elements that indices stand for, with map 3.
    pub palette: Vec<u64>,
    /// The cluster of each run; not used when there is one cluster.
    pub cluster_of: Vec<u8>,
    /// How the cluster map is coded.
    pub cluster_map: Cluster,
    /// Without any, the elements that are not 0 are listed.
    pub clusters: Vec<Cluster>,
    pub mask: Mask,
    /// Whether the mask selects each element, 0 or not; `None`: those other than 0, or with signs, other than 0 and 1.
    pub selected: Option<Vec<bool>>,
    pub patches: Vec<Patch>,
    pub patch_codes: PatchCodes,
}

/// How it is written which elements are coded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mask {
    /// All, if there are clusters.
    #[default]
    None,
    /// Bits in a cluster.
    Bits(Cluster),
    /// Bits, and the signs of all elements.
    BitsAndSigns(Cluster),
    /// A list of the elements and their values, under the codes of patches.
    List,
}

/// How patches, gaps and listed values are coded.
#[derive(Clone, Debug, Default)]
pub struct PatchCodes {
    /// Low bits that no patch changes.
    pub low: u8,
    /// `None`: built for the patches, without raw bits.
    pub gaps: Option<NumberCode>,
    pub changes: Option<NumberCode>,
}

/// A patch: an element whose value from its cluster differs by `x` from its mapped value (§3.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Index in the stream; patches are in rising order.
    pub element: u64,
    pub x: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    pub constant: Option<u64>,
    pub z: u8,
    pub h: u8,
    pub k: u8,
    /// Whether bit 0 of each element has a plane of its own.
    pub sign_plane: bool,
    pub coder: Coder,
    pub pad: Pad,
}

/// The parts of a block that its streams are encoded to.
pub(super) struct Output<'a, 'c> {
    pub(super) lane_sets: usize,
    /// Chunks of all columns, in order.
    pub(super) chunks: &'a mut Vec<Chunk<'c>>,
    /// The head of this column.
    pub(super) head: Vec<u8>,
    pub(super) bulk: Vec<u8>,
}

impl Stream {
    /// A stream of one cluster.
    pub fn of(map: u8, cluster: Cluster) -> Self {
        Self { map, clusters: vec![cluster], ..Self::default() }
    }

    /// One cluster of indices of these elements.
    pub fn of_palette(palette: &[u64], cluster: Cluster) -> Self {
        Self { palette: palette.to_vec(), ..Self::of(3, cluster) }
    }

    /// The mapped value of an element of `w` bits (§4.1).
    ///
    /// # Errors
    /// When the element is not in the palette.
    pub fn mapped(&self, u: u64, w: u32) -> Result<u64, String> {
        match self.map {
            3 => self.palette.iter().position(|&of| of == u).map(|v| v as u64).ok_or("no palette has it".into()),
            map => Ok(mapped(u, w, map)),
        }
    }

    /// The element of a mapped value of `w` bits (§4.1).
    ///
    /// # Panics
    /// When there is no such value in the palette.
    pub fn unmapped(&self, v: u64, w: u32) -> u64 {
        match self.map {
            3 => self.palette[v as usize],
            map => unmapped(v, w, map),
        }
    }

    /// Codes elements of `width` bytes.
    pub(super) fn encode<'c>(
        &'c self,
        elements: &[u64],
        width: usize,
        output: &mut Output<'_, 'c>,
    ) -> Result<(), String> {
        let w = 8 * width as u32;
        let values = elements.iter().map(|&u| self.mapped(u, w)).collect::<Result<Vec<u64>, String>>()?;

        output.head.push(self.map);
        if self.map == 3 {
            output.head.push(self.palette.len().wrapping_sub(1) as u8);
            output.head.extend(bytes_of(&self.palette, width));
        }
        let signed = matches!(self.mask, Mask::BitsAndSigns(_));
        let is_other_than_0 = |v: &u64| v >> u32::from(signed) != 0;
        let is_selected: Vec<bool> =
            self.selected.clone().unwrap_or_else(|| values.iter().map(is_other_than_0).collect());
        let mask = match &self.mask {
            Mask::None if self.clusters.is_empty() && values.iter().any(|v| *v != 0) => &Mask::List,
            mask => mask,
        };
        if *mask == Mask::None {
            output.head.push(0);
            if !self.clusters.is_empty() {
                return self.encode_selected(values, width, output);
            }
            // One cluster of zeros, without patches.
            varint(&mut output.head, 1);
            output.head.push(0);
            Cluster { z: w as u8, ..Cluster::default() }.write_head(&mut output.head, width);
            return Ok(());
        }
        let (mut places, mut selected) = (Vec::new(), Vec::new());
        for (place, v) in values.iter().enumerate() {
            if is_selected[place] {
                places.push(place as u64);
                selected.push(if signed { v & !1 } else { *v });
            } else if is_other_than_0(v) {
                return Err("an element that is not 0 is not selected".into());
            }
        }
        let mut count = Vec::new();
        varint(&mut count, selected.len() as u64);
        match mask {
            Mask::Bits(cluster) | Mask::BitsAndSigns(cluster) => {
                output.head.push(if signed { 2 } else { 1 });
                output.head.extend(count);
                cluster.write_head(&mut output.head, 1);
                let bytes: Vec<u64> = packed(&is_selected).into_iter().map(u64::from).collect();
                cluster.encode(&bytes.chunks(128).collect::<Vec<_>>(), 8, output)?;
                if signed {
                    output.bulk.extend(packed(&values.iter().map(|v| v & 1 == 1).collect::<Vec<_>>()));
                }
                self.encode_selected(selected, width, output)
            }
            _ => {
                output.head.push(3);
                output.head.extend(count);
                let mut next = 0;
                let gaps: Vec<u64> = places.iter().map(|at| at - std::mem::replace(&mut next, at + 1)).collect();
                write_numbers(&gaps, self.patch_codes.gaps.as_ref(), output)?;
                let numbers = selected.iter().map(|v| v.checked_sub(1).ok_or("a listed element is 0"));
                write_numbers(&numbers.collect::<Result<Vec<u64>, _>>()?, self.patch_codes.changes.as_ref(), output)
            }
        }
    }

    /// Codes the mapped values of the selected elements in clusters.
    fn encode_selected<'c>(
        &'c self,
        mut values: Vec<u64>,
        width: usize,
        output: &mut Output<'_, 'c>,
    ) -> Result<(), String> {
        let w = 8 * width as u32;
        for patch in &self.patches {
            *values.get_mut(patch.element as usize).ok_or("a patch is not in its stream")? ^= patch.x;
        }
        varint(&mut output.head, self.clusters.len() as u64);
        output.head.push(u8::from(!self.patches.is_empty()));
        let patches = if self.patches.is_empty() { Vec::new() } else { self.write_patches(&mut output.head)? };
        if self.clusters.len() > 1 {
            self.cluster_map.write_head(&mut output.head, 1);
            let cluster_of: Vec<u64> = self.cluster_of.iter().map(|&number| u64::from(number)).collect();
            self.cluster_map.encode(&cluster_of.chunks(128).collect::<Vec<_>>(), 8, output)?;
        }
        for (number, cluster) in self.clusters.iter().enumerate() {
            cluster.write_head(&mut output.head, width);
            let mine = |run: &usize| self.clusters.len() == 1 || usize::from(self.cluster_of[*run]) == number;
            let runs: Vec<&[u64]> =
                values.chunks(128).enumerate().filter(|(run, _)| mine(run)).map(|(_, run)| run).collect();
            cluster.encode(&runs, w, output)?;
        }
        output.bulk.extend(patches);
        Ok(())
    }
}

/// Writes the code of numbers and their length to the head, and the numbers to the bulk.
fn write_numbers(numbers: &[u64], code: Option<&NumberCode>, output: &mut Output<'_, '_>) -> Result<(), String> {
    let code = code.cloned().unwrap_or_else(|| NumberCode::of(numbers, 0));
    let mut bits = Vec::new();
    numbers.iter().try_for_each(|&number| code.write(number, &mut bits))?;
    let bytes = packed(&bits);
    code.write_head(&mut output.head);
    varint(&mut output.head, bytes.len() as u64);
    output.bulk.extend(bytes);
    Ok(())
}

/// Bits in bytes, from bit 0 up.
fn packed(bits: &[bool]) -> Vec<u8> {
    bits.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit))).collect()
}

impl Stream {
    /// Writes the description of the patches to the head; returns their bits.
    fn write_patches(&self, head: &mut Vec<u8>) -> Result<Vec<u8>, String> {
        let PatchCodes { low, gaps, changes } = &self.patch_codes;
        let mut next = 0;
        let mut numbers = (Vec::new(), Vec::new());
        for patch in &self.patches {
            numbers.0.push(patch.element.checked_sub(next).ok_or("patches are not in order")?);
            numbers.1.push((patch.x >> low).checked_sub(1).ok_or("a patch changes nothing")?);
            next = patch.element + 1;
        }
        let gaps = gaps.clone().unwrap_or_else(|| NumberCode::of(&numbers.0, 0));
        let changes = changes.clone().unwrap_or_else(|| NumberCode::of(&numbers.1, 0));
        let mut bits = Vec::new();
        for (&gap, &change) in numbers.0.iter().zip(&numbers.1) {
            gaps.write(gap, &mut bits)?;
            changes.write(change, &mut bits)?;
        }
        let bytes = packed(&bits);
        varint(head, self.patches.len() as u64);
        head.push(*low);
        gaps.write_head(head);
        changes.write_head(head);
        varint(head, bytes.len() as u64);
        Ok(bytes)
    }
}

impl Cluster {
    pub(super) fn write_head(&self, head: &mut Vec<u8>, width: usize) {
        let flags = u8::from(self.constant.is_some()) | u8::from(self.sign_plane) << 1;
        head.extend([flags, self.z, self.h, self.k, self.coder.code()]);
        if let Some(constant) = self.constant {
            head.extend(&constant.to_le_bytes()[..width]);
        }
        head.extend(self.coder.table());
    }

    pub(super) fn encode<'c>(&'c self, runs: &[&[u64]], w: u32, output: &mut Output<'_, 'c>) -> Result<(), String> {
        let (z, k) = (u32::from(self.z), u32::from(self.k));
        for (i, run) in runs.iter().enumerate() {
            let mut symbols = Vec::new();
            let mut raws = Vec::new();
            let mut signs = Vec::new();
            for &v in *run {
                let v = u128::from((v ^ self.constant.unwrap_or(0)) & (u64::MAX >> (64 - w)));
                let symbol = u8::try_from(v >> (k + z)).map_err(|_| "an element does not fit its cluster")?;
                let low = v % (1 << z);
                if low > u128::from(self.sign_plane) || self.coder == Coder::None && symbol != 0 {
                    return Err("an element does not fit its cluster".into());
                }
                symbols.push(symbol);
                signs.push(low as u64);
                raws.push((v >> z) as u64 & ((1u128 << k) - 1) as u64);
            }
            write_raw_bits(&raws, k, &mut output.bulk);
            if self.sign_plane {
                write_bit_plane(&signs, 0, &mut output.bulk);
            }
            if self.coder != Coder::None {
                let lane_set = i.checked_rem(output.lane_sets).ok_or("a coder needs lanes")?;
                output.chunks.push(Chunk { lane_set, coder: &self.coder, symbols, pad: self.pad });
            }
        }
        Ok(())
    }
}

/// Byte planes, then bit planes, of the raw values of a run (§3.5).
fn write_raw_bits(raws: &[u64], k: u32, bulk: &mut Vec<u8>) {
    for i in 0..k / 8 {
        bulk.extend(raws.iter().map(|raw| (raw >> (8 * i)) as u8));
    }
    for bit in 8 * (k / 8)..k {
        write_bit_plane(raws, bit, bulk);
    }
}

/// The given bit of each value.
fn write_bit_plane(values: &[u64], bit: u32, bulk: &mut Vec<u8>) {
    for eight in values.chunks(8) {
        bulk.push(eight.iter().rev().fold(0, |byte, value| byte << 1 | (value >> bit & 1) as u8));
    }
}

/// The mapped value of an element of `w` bits under a map that has no palette (§4.1).
pub fn mapped(u: u64, w: u32, map: u8) -> u64 {
    let mask = u64::MAX >> (64 - w);
    let sign = u >> (w - 1) & 1;
    match map {
        1 => (u << 1 | sign) & mask,
        2 => ((u << 1) ^ if sign == 1 { u64::MAX } else { 0 }) & mask,
        _ => u,
    }
}

/// The element of a mapped value of `w` bits under a map that has no palette (§4.1).
pub fn unmapped(v: u64, w: u32, map: u8) -> u64 {
    let mask = u64::MAX >> (64 - w);
    match map {
        1 => v >> 1 | (v & 1) << (w - 1),
        2 => (v >> 1) ^ if v & 1 == 1 { mask } else { 0 },
        _ => v,
    }
}
