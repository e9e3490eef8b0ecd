//! Tables and lanes (§5).

use super::bytes::Bytes;
use super::faults::{Faults, must};
use std::iter::repeat_n;

/// The meanings of slots, which are the low bits of a state.
#[derive(Clone, Copy)]
struct Entry {
    /// `None` is the escape.
    symbol: Option<u8>,
    step: Step,
}

/// The transition of a state.
#[derive(Clone, Copy)]
enum Step {
    Huffman {
        length: u8,
    },
    /// The slots from `start` on.
    Rans {
        freq: u32,
        start: u32,
    },
}

pub(super) struct Table {
    /// Bits of a symbol.
    s: u32,
    /// The number of slots is 2^7, or 2^12 for rANS.
    log_slots: u32,
    /// The entry of each slot.
    slots: Vec<u16>,
    entries: Vec<Entry>,
    pad: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Coder {
    None,
    Huffman,
    /// With 2^`log_slots` slots.
    Rans {
        log_slots: u8,
    },
}

/// An entry of a table: the escape is symbol 256.
const ESCAPE: u16 = 256;

impl Table {
    /// Reads a table (§5.3) for symbols of `s` bits.
    pub(super) fn parse(head: &mut Bytes<'_>, coder: Coder, s: u32) -> Result<Self, String> {
        let first = u16::from(head.u8()?);
        let count = u16::from(head.u8()?) + 1;
        must(first + count - 1 <= 255, "a table has symbols above 255")?;

        let values: Vec<u64> = match coder {
            Coder::Rans { .. } => (0..count + 1).map(|_| head.varint()).collect::<Result<_, String>>()?,
            _ => {
                let packed = head.take((u64::from(count) + 1).div_ceil(2))?;
                let mut halves: Vec<u8> = packed.iter().flat_map(|byte| [byte & 15, byte >> 4]).collect();
                if halves.len() > usize::from(count) + 1 {
                    must(halves.pop() == Some(0), "the last half-byte of a table is not 0")?;
                }
                halves.into_iter().map(u64::from).collect()
            }
        };
        let symbols = (first..first + count).chain([ESCAPE]);
        let entries: Vec<(u16, u64)> = symbols.zip(values).filter(|&(_, value)| value != 0).collect();

        let below = |&(symbol, _): &(u16, u64)| symbol == ESCAPE || symbol < 1 << s;
        must(entries.iter().all(below), "a table has a symbol that is too wide")?;
        let (log_slots, slots, steps) = match coder {
            Coder::Rans { log_slots } => {
                let escape = entries.iter().any(|&(symbol, _)| symbol == ESCAPE);
                must(!escape || entries.len() - 1 <= 255, "a table has more than 255 symbols and an escape")?;
                let (slots, steps) = rans_slots(&entries, 1 << log_slots)?;
                (u32::from(log_slots), slots, steps)
            }
            _ => {
                let (slots, steps) = huffman_slots(&entries)?;
                (7, slots, steps)
            }
        };
        // The first of the best: entries are in the order of their symbols.
        let symbols = entries.iter().filter(|&&(symbol, _)| symbol != ESCAPE);
        let pad = match coder {
            Coder::Rans { .. } => symbols.rev().max_by_key(|&&(_, freq)| freq),
            _ => symbols.min_by_key(|&&(_, length)| length),
        };
        let pad = pad.ok_or("a table has no symbol but the escape")?.0 as u8;
        let meaning = |(&(symbol, _), step): (&(u16, u64), Step)| Entry { symbol: u8::try_from(symbol).ok(), step };
        let entries = entries.iter().zip(steps).map(meaning).collect();
        Ok(Self { s, log_slots, slots, entries, pad })
    }
}

/// The entry of each slot, and the step of each entry.
fn rans_slots(entries: &[(u16, u64)], count: u64) -> Result<(Vec<u16>, Vec<Step>), String> {
    if entries.iter().any(|&(_, freq)| freq >= count) {
        return Err(format!("a frequency exceeds {}", count - 1));
    }
    let sum: u64 = entries.iter().map(|&(_, freq)| freq).sum();
    if sum != count {
        return Err(format!("the frequencies of a table do not sum to {count}"));
    }
    let mut slots = Vec::with_capacity(count as usize);
    let mut steps = Vec::with_capacity(entries.len());
    for (entry, &(_, freq)) in (0..).zip(entries) {
        steps.push(Step::Rans { freq: freq as u32, start: slots.len() as u32 });
        slots.extend(repeat_n(entry, freq as usize));
    }
    Ok((slots, steps))
}

/// The entry of each slot, and the step of each entry.
fn huffman_slots(entries: &[(u16, u64)]) -> Result<(Vec<u16>, Vec<Step>), String> {
    must(entries.iter().all(|&(_, length)| length <= 7), "a code length exceeds 7")?;
    let kraft: u32 = entries.iter().map(|&(_, length)| 1 << (7 - length)).sum();
    must(kraft == 128, "the code of a table is not complete")?;

    // Entries are in the order of their symbols.
    let mut sorted: Vec<(u8, u16)> = (0..).zip(entries).map(|(entry, &(_, length))| (length as u8, entry)).collect();
    sorted.sort();
    let mut slots = [None; 128];
    let mut code = 0u32;
    let mut previous = sorted[0].0;
    for (i, &(length, entry)) in sorted.iter().enumerate() {
        if i > 0 {
            code = (code + 1) << (length - previous);
        }
        previous = length;
        let reversed = code.reverse_bits() >> (32 - u32::from(length));
        // The slots whose low bits are the code.
        for slot in slots.iter_mut().skip(reversed as usize).step_by(1 << length) {
            *slot = Some(entry);
        }
    }
    let slots = slots.into_iter().map(|slot| slot.expect("a complete code covers every slot")).collect();
    Ok((slots, entries.iter().map(|&(_, length)| Step::Huffman { length: length as u8 }).collect()))
}

/// The lane sets of a block, their words, and the literals (§5.1).
pub(super) struct Lanes<'a> {
    sets: Vec<LaneSet<'a>>,
    literals: Bytes<'a>,
}

struct LaneSet<'a> {
    states: [u32; 64],
    words: Bytes<'a>,
}

impl<'a> Lanes<'a> {
    /// Bytes that they take in a body.
    pub(super) fn length(word_counts: &[u32], literal_count: u32) -> usize {
        let words: usize = word_counts.iter().map(|&count| count as usize).sum();
        2 * words + literal_count as usize + 256 * word_counts.len()
    }

    /// Takes them from the end of a body (§3.2).
    pub(super) fn parse(
        bytes: &'a [u8],
        word_counts: &[u32],
        literal_count: u32,
        faults: &mut Faults,
    ) -> Result<Self, String> {
        let mut bytes = Bytes::new(bytes);
        let words = word_counts.iter().map(|&count| bytes.take(2 * u64::from(count)).map(Bytes::new));
        let words = words.collect::<Result<Vec<_>, String>>()?;
        let literals = Bytes::new(bytes.take(u64::from(literal_count))?);
        let mut sets = Vec::new();
        for words in words {
            let mut states = [0; 64];
            for state in &mut states {
                *state = bytes.u32()?;
                faults.must(*state >= 1 << 16, "an initial state is below 2^16");
            }
            sets.push(LaneSet { states, words });
        }
        Ok(Self { sets, literals })
    }

    /// Decodes chunk `i` of a cluster: `t` symbols, then padding.
    pub(super) fn chunk(&mut self, i: usize, table: &Table, t: usize, faults: &mut Faults) -> Result<Vec<u8>, String> {
        let sets = self.sets.len();
        let set = &mut self.sets[i % sets];
        let mut symbols = Vec::with_capacity(128);
        symbols.extend(set.states.iter_mut().map(|x| table.step(x)));
        if table.log_slots == 12 {
            set.refill()?;
        }
        symbols.extend(set.states.iter_mut().map(|x| table.step(x)));
        set.refill()?;

        let literal_or = |symbol: Option<u8>| symbol.map_or_else(|| self.literals.u8(), Ok);
        let mut symbols = symbols.into_iter().map(literal_or).collect::<Result<Vec<u8>, String>>()?;
        faults.must(symbols.iter().all(|&symbol| u32::from(symbol) < 1 << table.s), "a literal is too wide");
        let padding = symbols.split_off(t);
        faults.must(padding.iter().all(|&symbol| symbol == table.pad), "padding is not the pad symbol");
        Ok(symbols)
    }

    /// Checks that everything has been used up.
    pub(super) fn finish(&self, faults: &mut Faults) {
        for set in &self.sets {
            faults.must(set.states == [1 << 16; 64], "a final state is not 2^16");
            faults.must(set.words.rest().is_empty(), "words are left over");
        }
        faults.must(self.literals.rest().is_empty(), "literals are left over");
    }
}

impl LaneSet<'_> {
    /// Gives every lane below 2^16 a word.
    fn refill(&mut self) -> Result<(), String> {
        for j in (0..4).flat_map(|first| (first..64).step_by(4)) {
            let x = &mut self.states[j];
            if *x < 1 << 16 {
                *x = *x << 16 | u32::from(self.words.u16()?);
            }
        }
        Ok(())
    }
}

impl Table {
    fn step(&self, x: &mut u32) -> Option<u8> {
        let slot = *x % (1 << self.log_slots);
        let entry = self.entries[usize::from(self.slots[slot as usize])];
        *x = match entry.step {
            Step::Huffman { length } => *x >> length,
            Step::Rans { freq, start } => freq * (*x >> self.log_slots) + slot - start,
        };
        entry.symbol
    }
}
