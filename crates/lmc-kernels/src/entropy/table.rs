//! Look-up tables of the kernels, built from checked tables.

use super::coder::Coder;
use super::entries::ESCAPE;
use super::huffman::Huffman;
use super::rans::{COARSE, COARSE_BITS, FINE, FINE_BITS, Rans};
use crate::inline::array;

/// A decoder's look-up table.
#[derive(Clone, Debug)]
pub struct DecodeTable {
    pub(crate) slots: Slots,
    /// A byte that is no symbol of the table and marks the escape's slots; `None` without an escape.
    pub(crate) escape_mark: Option<u8>,
    pub(crate) pad: u8,
}

/// By slot: symbol or escape mark in bits 0 … 7, frequency in bits 8 … 19, offset above; for Huffman codes, too.
#[derive(Clone, Debug)]
pub(crate) enum Slots {
    Coarse(Box<[u32; COARSE]>),
    Fine(Box<[u32; FINE]>),
}

/// An encoder's look-up table by symbol; symbols that are not in the table have the escape's entry.
#[derive(Clone, Debug)]
pub struct EncodeTable {
    pub(crate) kind: EncodeKind,
    /// Whether the symbol is in the table.
    pub(crate) kept: [bool; 256],
    pub(crate) pad: u8,
}

#[derive(Clone, Debug)]
pub(crate) enum EncodeKind {
    /// `x ← x << len | code`
    Huffman(Box<Codes>),
    /// 128 slots: two symbols are pushed at once.
    Coarse(Box<[Row; 256]>),
    /// 4096 slots.
    Fine(Box<[Row; 256]>),
}

#[derive(Clone, Debug)]
pub(crate) struct Codes {
    pub(crate) len: [u8; 256],
    pub(crate) code: [u8; 256],
}

/// How a symbol is pushed onto a state, in two halves of a `u64`.
///
/// The lower one is the reciprocal M of the frequency f: for every state x below f·2^32 / slots, which is where they are
/// pushed, x div f = (x + more)·M >> (32 + shift). With c = ⌈log2 f⌉ and K = 31 + c, M is 2^K / f rounded up with
/// `more` = 0, or rounded down with `more` = 1. Let e be the difference of M·f and 2^K. Rounded up, the quotient is exact
/// while x·e < 2^K, which is always so for f ≤ 64 and 128 slots; otherwise M is rounded down, and the quotient exact while
/// (x + 1)·e ≤ 2^K. One of the two has e ≤ f/2, and x·f/2 < f²·2^31 / slots ≤ 2^K because f ≤ 2^c ≤ slots (after Robison,
/// N-bit unsigned division via N-bit multiply-add, 2005). For f = 1, M = 2^32 − 1 with `more` = 1 does.
///
/// The upper half: bits 0 … 11 the first slot, 12 … 15 the shift, 16 `more`, 20 … 31 the frequency, so that clearing
/// the others leaves 2^20·f in the half: the bound of a fine table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Row(pub(crate) u64);

impl Row {
    fn new(freq: u16, start: u16, log_slots: u32) -> Self {
        let f = u64::from(freq);
        debug_assert!((1..1 << log_slots).contains(&f) && start >> log_slots == 0);
        let (reciprocal, shift, more) = if f == 1 {
            (u64::from(u32::MAX), 0, 1)
        } else {
            let c = u64::from(64 - (f - 1).leading_zeros());
            let k = 1u64 << (31 + c);
            let up = k.div_ceil(f);
            let exact = (up * f - k) * (f << (32 - log_slots)) <= k;
            (if exact { up } else { k / f }, c - 1, u64::from(!exact))
        };
        Self(reciprocal | u64::from(start) << 32 | shift << 44 | more << 48 | f << 52)
    }

    #[inline(always)]
    pub(crate) fn reciprocal(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(crate) fn start(self) -> u32 {
        (self.0 >> 32) as u32 & 0xfff
    }

    #[inline(always)]
    pub(crate) fn shift(self) -> u32 {
        (self.0 >> 44) as u32 & 15
    }

    #[inline(always)]
    pub(crate) fn more(self) -> bool {
        self.0 >> 48 & 1 == 1
    }

    #[inline(always)]
    pub(crate) fn freq(self) -> u32 {
        (self.0 >> 52) as u32
    }

    /// `(x div f)·2^LOG_SLOTS + x mod f + start` for an x below f·2^(32 − LOG_SLOTS).
    #[inline(always)]
    pub(crate) fn push<const LOG_SLOTS: u32>(self, x: u32) -> u32 {
        let product = (u64::from(x) + u64::from(self.more())) * u64::from(self.reciprocal());
        let quotient = (product >> 32) as u32 >> self.shift();
        x + quotient * ((1 << LOG_SLOTS) - self.freq()) + self.start()
    }
}

impl DecodeTable {
    /// The symbol that fills partial runs.
    pub fn pad(&self) -> u8 {
        self.pad
    }

    /// The table of a coder, or `None` for the coder without symbols.
    pub fn new(coder: &Coder) -> Option<Self> {
        let (entries, pad) = match coder {
            Coder::None => return None,
            Coder::Huffman(h) => (&h.lens, h.pad()),
            Coder::Rans(r) => (&r.freqs, r.pad()),
        };
        let escape_mark = entries.escape_mark();
        let symbol = |s: usize| {
            if s == ESCAPE {
                escape_mark.expect("a checked table with an escape has a free byte value")
            } else {
                s as u8
            }
        };
        let slots = match coder {
            Coder::Rans(r) if r.log_slots == FINE_BITS => Slots::Fine(rans_slots(r, symbol)),
            Coder::Rans(r) => Slots::Coarse(rans_slots(r, symbol)),
            Coder::Huffman(h) => Slots::Coarse(huffman_slots(h, symbol)),
            Coder::None => return None,
        };
        Some(Self { slots, escape_mark, pad })
    }
}

fn rans_slots<const SLOTS: usize>(r: &Rans, symbol: impl Fn(usize) -> u8) -> Box<[u32; SLOTS]> {
    let mut slots = Box::new([0; SLOTS]);
    let mut rest = &mut slots[..];
    for (s, f) in r.freqs.all() {
        let (own, others) = rest.split_at_mut(usize::from(f));
        let first = u32::from(symbol(s)) | u32::from(f) << 8;
        for (offset, slot) in own.iter_mut().enumerate() {
            *slot = first | (offset as u32) << 20;
        }
        rest = others;
    }
    slots
}

fn huffman_slots(h: &Huffman, symbol: impl Fn(usize) -> u8) -> Box<[u32; COARSE]> {
    let mut slots = Box::new([0; COARSE]);
    let codes = h.codes();
    for (s, len) in h.lens.all() {
        for slot in (usize::from(codes[s])..COARSE).step_by(1 << len) {
            slots[slot] = u32::from(symbol(s)) | (COARSE as u32 >> len) << 8 | (slot as u32 >> len) << 20;
        }
    }
    slots
}

impl EncodeTable {
    /// The symbol that fills partial runs.
    pub fn pad(&self) -> u8 {
        self.pad
    }

    /// The table of a coder from an encoder, or `None` for the coder without symbols.
    pub fn new(coder: &Coder) -> Option<Self> {
        let (kind, pad) = match coder {
            Coder::None => return None,
            Coder::Huffman(h) => {
                let codes = h.codes();
                let len = h.lens.by_symbol(|s| h.lens.get(s) as u8);
                (EncodeKind::Huffman(Box::new(Codes { len, code: h.lens.by_symbol(|s| codes[s]) })), h.pad())
            }
            Coder::Rans(r) => {
                let starts = r.starts();
                let row = |s: usize| match r.freqs.get(s) {
                    // Neither in the table nor escaped: the symbol does not occur.
                    0 => Row::default(),
                    f => Row::new(f, starts[s], r.log_slots),
                };
                // Most symbols share the escape's row, which takes a division.
                let escape = row(ESCAPE);
                let rows = Box::new(r.freqs.by_symbol(|s| if s == ESCAPE { escape } else { row(s) }));
                (if r.log_slots == COARSE_BITS { EncodeKind::Coarse(rows) } else { EncodeKind::Fine(rows) }, r.pad())
            }
        };
        let entries = coder.entries()?;
        Some(Self { kept: array(|s| entries.of[s] != 0), pad, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The condition in [`Row`]'s description for every frequency, and the division itself where it is closest to failing.
    fn divides<const LOG_SLOTS: u32>() {
        for f in 1..1 << LOG_SLOTS {
            let row = Row::new(f as u16, 0, LOG_SLOTS);
            let (m, shift) = (u64::from(row.reciprocal()), row.shift());
            assert_eq!((u64::from(row.freq()), row.start()), (f, 0));
            let k = 1u128 << (32 + shift);
            let (product, states) = (u128::from(m * f), u128::from(f) << (32 - LOG_SLOTS));
            if row.more() {
                assert!(f == 1 || LOG_SLOTS == FINE_BITS || f > 64, "{f}: what kernels of coarse tables rely on");
                assert!(product < k && states * (k - product) <= k, "{f}");
            } else {
                assert!(product >= k && (states - 1) * (product - k) < k, "{f}");
            }
            let end = 1u64 << (32 - LOG_SLOTS);
            let quotients = (0..40).chain(end - 40..end).chain((0..32 - LOG_SLOTS).map(|i| 1 << i));
            for q in quotients {
                for r in [0, 1, f / 2, f - 1].into_iter().filter(|&r| r < f) {
                    let pushed = u64::from(row.push::<LOG_SLOTS>((q * f + r) as u32));
                    assert_eq!(pushed, (q << LOG_SLOTS) + r, "{q} · {f} + {r}");
                }
            }
        }
    }

    #[test]
    fn every_frequency_divides_exactly() {
        divides::<COARSE_BITS>();
        divides::<FINE_BITS>();
    }
}
