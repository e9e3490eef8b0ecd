//! Splits by bit position: element = symbol | raw bits | dropped bits, raw bits in byte planes and bit planes (`docs/format.md` §3.5).

use super::RUN;
use super::element::Element;
use crate::inline::zip;
use crate::map::Map;

/// The split of a cluster's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The map that elements are put through first.
    pub map: Map,
    /// Low bits dropped.
    pub low: u32,
    /// Bits of an element that are stored as they are.
    pub raw_bits: u32,
    /// Bit 0 has its own bit plane, after the others.
    pub sign_plane: bool,
    /// The bits that all elements have, and that are not stored.
    pub constant: u64,
}

impl Shape {
    /// Position of the symbol's lowest bit.
    #[inline(always)]
    pub(crate) fn symbol_shift(&self) -> u32 {
        self.low + self.raw_bits
    }
    #[inline(always)]
    pub(crate) fn byte_planes(&self) -> usize {
        self.raw_bits as usize / 8
    }
    /// Bit planes, the sign plane included.
    #[inline(always)]
    pub(crate) fn bit_planes(&self) -> usize {
        self.raw_bits as usize % 8 + usize::from(self.sign_plane)
    }
    /// Position, in the mapped element, of the raw bits above the byte planes.
    #[inline(always)]
    pub(crate) fn rest_shift(&self) -> u32 {
        self.low + self.raw_bits / 8 * 8
    }
    /// Position of bit plane `j` in the mapped element.
    #[inline(always)]
    pub(crate) fn bit_position(&self, j: usize) -> u32 {
        let j = j as u32;
        if j < self.raw_bits % 8 { self.rest_shift() + j } else { 0 }
    }
    /// Whether the symbol is the exponent of a float of `bits` bits, and all raw bits are in byte planes.
    #[inline(always)]
    fn is_exponent(&self, bits: u32) -> bool {
        self.map == Map::Rotate && self.constant == 0 && self.symbol_shift() + 8 == bits && self.bit_planes() == 0
    }
    /// Bytes of the raw bits of a run of `t` elements.
    #[inline(always)]
    pub fn raw_len(&self, t: usize) -> usize {
        self.byte_planes() * t + self.bit_planes() * t.div_ceil(8)
    }
}

/// Splits a whole run into its symbols (if there are any) and its raw bits; `raw` has `shape.raw_len(RUN)` bytes.
#[inline(always)]
pub fn split_run<E: Element>(shape: &Shape, elements: &[u8], symbols: &mut [u8; RUN], raw: &mut [u8]) {
    let elements = &E::all(elements)[..RUN];
    if shape.is_exponent(E::BITS) {
        match raw.as_chunks_mut::<RUN>().0 {
            [a] if E::BYTES > 1 => return split_exponents::<E, 1>(elements, symbols, [a]),
            [a, b, c] if E::BYTES > 3 => return split_exponents::<E, 3>(elements, symbols, [a, b, c]),
            _ => {}
        }
    }
    let c = E::cut(shape.constant);
    let mut v = [E::default(); RUN];
    // A loop for each map: compilers do not reliably unswitch a single one.
    match shape.map {
        Map::Identity => zip(&mut v, elements, |v, e| *v = E::from_bytes(*e).xor(c)),
        Map::Rotate => zip(&mut v, elements, |v, e| *v = E::from_bytes(*e).map(Map::Rotate).xor(c)),
        Map::Zigzag => zip(&mut v, elements, |v, e| *v = E::from_bytes(*e).map(Map::Zigzag).xor(c)),
    }
    let shift = shape.symbol_shift();
    zip(symbols, &v, |s, v| *s = v.shr(shift).wide() as u8);
    let (bytes, bits) = raw.split_at_mut(shape.byte_planes() * RUN);
    for (i, plane) in bytes.as_chunks_mut::<RUN>().0.iter_mut().enumerate() {
        zip(plane, &v, |p, v| *p = v.shr(shape.low + 8 * i as u32).wide() as u8);
    }
    for (j, plane) in bits.as_chunks_mut::<{ RUN / 8 }>().0.iter_mut().enumerate() {
        let at = shape.bit_position(j);
        zip(plane, v.as_chunks::<8>().0, |p, v| {
            *p = v.iter().enumerate().fold(0, |b, (i, v)| b | ((v.shr(at).wide() as u8 & 1) << i));
        });
    }
}

/// The inverse of [`split_run`]. Symbols that are too wide lose the bits that do not fit, as the format says.
#[inline(always)]
pub fn merge_run<E: Element>(shape: &Shape, symbols: &[u8; RUN], raw: &[u8], elements: &mut [u8]) {
    merge_with::<E>(shape, symbols, raw, elements, |v, planes| {
        for (j, plane) in planes.iter().enumerate() {
            let at = shape.bit_position(j);
            zip(v.as_chunks_mut::<8>().0, plane, |v, &p| {
                for (i, v) in v.iter_mut().enumerate() {
                    *v = v.xor(E::cut(u64::from(p >> i & 1)).shl(at));
                }
            });
        }
    });
}

/// [`merge_run`] without vectors for the bit planes: a table turns a byte of a plane into one byte for each element.
#[inline(always)]
pub(crate) fn merge_run_by_table<E: Element>(shape: &Shape, symbols: &[u8; RUN], raw: &[u8], elements: &mut [u8]) {
    merge_with::<E>(shape, symbols, raw, elements, |v, planes| {
        if planes.is_empty() {
            return;
        }
        // By element: up to seven of the raw bits, and the sign above them.
        let mut rest = [0; RUN / 8];
        for (j, plane) in planes.iter().enumerate() {
            let place = if j < shape.raw_bits as usize % 8 { j } else { 7 };
            zip(&mut rest, plane, |rest, &p| *rest |= SPREAD[usize::from(p)] << place);
        }
        let at = shape.rest_shift();
        let mut bytes = [0; RUN];
        zip(bytes.as_chunks_mut().0, &rest, |bytes, rest| *bytes = rest.to_le_bytes());
        zip(v, &bytes, |v, &b| *v = v.xor(E::cut(u64::from(b & 0x7f)).shl(at)).xor(E::cut(u64::from(b >> 7))));
    });
}

/// Bit i of the index in byte i.
static SPREAD: [u64; 256] = {
    let mut spread = [0; 256];
    let mut i = 0;
    while i < 8 * 256 {
        spread[i / 8] |= ((i as u64 / 8) >> (i % 8) & 1) << (8 * (i % 8));
        i += 1;
    }
    spread
};

/// `merge_bits` adds the bit planes.
#[inline(always)]
fn merge_with<E: Element>(
    shape: &Shape,
    symbols: &[u8; RUN],
    raw: &[u8],
    elements: &mut [u8],
    merge_bits: impl Fn(&mut [E; RUN], &[[u8; RUN / 8]]),
) {
    let elements = &mut E::all_mut(elements)[..RUN];
    let raw = &raw[..shape.raw_len(RUN)];
    if shape.is_exponent(E::BITS) {
        match raw.as_chunks::<RUN>().0 {
            [a] if E::BYTES > 1 => return merge_exponents::<E, 1>(symbols, [a], elements),
            [a, b, c] if E::BYTES > 3 => return merge_exponents::<E, 3>(symbols, [a, b, c], elements),
            _ => {}
        }
    }
    let shift = shape.symbol_shift();
    let c = E::cut(shape.constant);
    let mut v = [E::default(); RUN];
    zip(&mut v, symbols, |v, &s| *v = E::cut(u64::from(s)).shl(shift).xor(c));
    let (bytes, bits) = raw.split_at(shape.byte_planes() * RUN);
    for (i, plane) in bytes.as_chunks::<RUN>().0.iter().enumerate() {
        zip(&mut v, plane, |v, &p| *v = v.xor(E::cut(u64::from(p)).shl(shape.low + 8 * i as u32)));
    }
    merge_bits(&mut v, bits.as_chunks().0);
    match shape.map {
        Map::Identity => zip(elements, &v, |e, v| *e = v.to_bytes()),
        Map::Rotate => zip(elements, &v, |e, v| *e = v.unmap(Map::Rotate).to_bytes()),
        Map::Zigzag => zip(elements, &v, |e, v| *e = v.unmap(Map::Zigzag).to_bytes()),
    }
}

/// [`split_run`] of rotated elements into the highest byte, the symbol, and `N` byte planes, in one pass with constant shifts.
#[inline(always)]
fn split_exponents<E: Element, const N: usize>(
    elements: &[E::Bytes],
    symbols: &mut [u8; RUN],
    mut planes: [&mut [u8; RUN]; N],
) {
    let elements: &[E::Bytes; RUN] = elements.first_chunk().expect("a run");
    for i in 0..RUN {
        let v = E::from_bytes(elements[i]).map(Map::Rotate);
        symbols[i] = v.shr(E::BITS - 8).wide() as u8;
        for (j, plane) in planes.iter_mut().enumerate() {
            plane[i] = v.shr(E::BITS - 8 * (N - j) as u32 - 8).wide() as u8;
        }
    }
}

/// [`merge_run`] of rotated elements with the symbol in the highest byte and `N` byte planes below it, in one pass with constant shifts.
#[inline(always)]
fn merge_exponents<E: Element, const N: usize>(
    symbols: &[u8; RUN],
    planes: [&[u8; RUN]; N],
    elements: &mut [E::Bytes],
) {
    let elements: &mut [E::Bytes; RUN] = elements.first_chunk_mut().expect("a run");
    for i in 0..RUN {
        let mut v = E::cut(u64::from(symbols[i]));
        for j in (0..N).rev() {
            v = v.shl(8).or(E::cut(u64::from(planes[j][i])));
        }
        elements[i] = v.shl(E::BITS - 8 - 8 * N as u32).unmap(Map::Rotate).to_bytes();
    }
}

/// Packs the raw bits of a whole run down to those of its first `t` elements.
pub fn shorten_raw(shape: &Shape, t: usize, whole: &[u8], out: &mut Vec<u8>) {
    let (bytes, bits) = whole[..shape.raw_len(RUN)].split_at(shape.byte_planes() * RUN);
    bytes.chunks_exact(RUN).for_each(|p| out.extend_from_slice(&p[..t]));
    for plane in bits.chunks_exact(RUN / 8) {
        let n = t.div_ceil(8);
        out.extend_from_slice(&plane[..n]);
        if !t.is_multiple_of(8) {
            *out.last_mut().expect("t > 0") &= (1 << (t % 8)) - 1;
        }
    }
}

/// The inverse of [`shorten_raw`]; the rest of the run is zero. False if an unused bit is set.
#[must_use]
pub fn lengthen_raw(shape: &Shape, t: usize, short: &[u8], whole: &mut [u8]) -> bool {
    whole.fill(0);
    let (bytes, bits) = whole[..shape.raw_len(RUN)].split_at_mut(shape.byte_planes() * RUN);
    let (short_bytes, short_bits) = short[..shape.raw_len(t)].split_at(shape.byte_planes() * t);
    bytes.chunks_exact_mut(RUN).zip(short_bytes.chunks_exact(t)).for_each(|(w, s)| w[..t].copy_from_slice(s));
    let n = t.div_ceil(8);
    let mut clean = true;
    for (w, s) in bits.chunks_exact_mut(RUN / 8).zip(short_bits.chunks_exact(n)) {
        w[..n].copy_from_slice(s);
        clean &= t.is_multiple_of(8) || s[n - 1] >> (t % 8) == 0;
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<E: Element>() {
        let elements: Vec<u8> = (0..RUN * E::BYTES).map(|i| (i * 151 + i / 7 * 13) as u8).collect();
        for map in [Map::Identity, Map::Rotate, Map::Zigzag] {
            let low_bits = (0..=13).chain([16, 32, 48]).filter(|&l| l <= E::BITS);
            for (low, sign_plane) in low_bits.flat_map(|l| [(l, false), (l, true)]) {
                for symbol_bits in 0..=8u32 {
                    let Some(raw_bits) = (E::BITS - low).checked_sub(symbol_bits) else { continue };
                    let sign_plane = sign_plane && low > 0;
                    let shape = Shape { map, low, raw_bits, sign_plane, constant: 0 };
                    // Elements whose dropped bits are zero.
                    let kept: Vec<u8> = elements
                        .chunks_exact(E::BYTES)
                        .flat_map(|e| {
                            let v = E::load(e).map(map);
                            let sign = if sign_plane { v.and(E::cut(1)) } else { E::default() };
                            let v = v.shr(low).shl(low).or(sign).unmap(map);
                            v.wide().to_le_bytes()[..E::BYTES].to_vec()
                        })
                        .collect();
                    let (mut s, mut raw) = ([0; RUN], vec![0; shape.raw_len(RUN)]);
                    split_run::<E>(&shape, &kept, &mut s, &mut raw);
                    let mut back = vec![0; kept.len()];
                    if symbol_bits == 0 {
                        s = [0; RUN];
                    }
                    merge_run::<E>(&shape, &s, &raw, &mut back);
                    assert_eq!(back, kept, "{shape:?}");
                    back.fill(0);
                    merge_run_by_table::<E>(&shape, &s, &raw, &mut back);
                    assert_eq!(back, kept, "{shape:?}, by table");
                    for t in [1, 7, 8, 127] {
                        let (mut short, mut whole) = (vec![], vec![0; raw.len()]);
                        shorten_raw(&shape, t, &raw, &mut short);
                        assert_eq!(short.len(), shape.raw_len(t));
                        assert!(lengthen_raw(&shape, t, &short, &mut whole));
                        merge_run::<E>(&shape, &s, &whole, &mut back);
                        assert_eq!(back[..t * E::BYTES], kept[..t * E::BYTES]);
                    }
                }
            }
        }
    }

    #[test]
    fn split_and_merge_are_inverse() {
        check::<u8>();
        check::<u16>();
        check::<u32>();
        check::<u64>();
    }
}
