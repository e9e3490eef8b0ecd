//! Lane sets: 64 states and the word stream they share, for reading and for writing.

use super::{LANES, STATE_MIN};
use crate::inline::zip;
use lmc_layout::error::{Error, Result};

/// One lane set while decoding.
///
/// `bytes` begins with the set's words and runs to the end of the block's body, so that vector loads may look past the
/// last word; `pos` counts the words read, and [`Self::finish`] compares it with `words`.
pub struct LaneReader<'a> {
    pub(crate) x: [u32; LANES],
    pub(crate) bytes: &'a [u8],
    pub(crate) pos: usize,
    pub(crate) words: usize,
}

impl<'a> LaneReader<'a> {
    /// `states`: 64 little-endian states.
    pub fn new(states: &[u8], bytes: &'a [u8], words: usize) -> Result<Self> {
        assert!(states.len() == 4 * LANES && bytes.len() >= 2 * words);
        let mut x = [0; LANES];
        zip(&mut x, states.as_chunks::<4>().0, |x, b| *x = u32::from_le_bytes(*b));
        if let Some(x) = x.iter().find(|x| **x < STATE_MIN) {
            return Err(Error::damaged(format!("the state of a lane starts at {x}, below {STATE_MIN}")));
        }
        Ok(Self { x, bytes, pos: 0, words })
    }

    /// A lane set of a block without lanes.
    pub fn idle() -> Self {
        Self { x: [STATE_MIN; LANES], bytes: &[], pos: 0, words: 0 }
    }

    /// Fails unless all words are used up and the states are those that the encoder began with.
    pub fn finish(&self) -> Result<()> {
        if self.pos == self.words && self.x.iter().all(|&x| x == STATE_MIN) {
            Ok(())
        } else {
            let (read, words) = (self.pos, self.words);
            Err(Error::damaged(format!(
                "a lane set read {read} of its {words} words, or a state does not end at {STATE_MIN}"
            )))
        }
    }
}

/// The literals of a block while decoding; like [`LaneReader`], `bytes` runs on to the end of the body.
pub struct LiteralReader<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) pos: usize,
    pub(crate) len: usize,
}

impl<'a> LiteralReader<'a> {
    /// The first `len` of these bytes are literals.
    pub fn new(bytes: &'a [u8], len: usize) -> Self {
        assert!(len <= bytes.len());
        Self { bytes, pos: 0, len }
    }

    /// The number of literals read.
    pub fn position(&self) -> usize {
        self.pos
    }

    /// The literals read since [`Self::position`] was `position`.
    pub fn since(&self, position: usize) -> &'a [u8] {
        &self.bytes[position..self.pos]
    }

    /// Fails unless all literals are used up.
    pub fn finish(&self) -> Result<()> {
        if self.pos == self.len {
            return Ok(());
        }
        Err(Error::damaged(format!("a block's clusters use {} of its {} literals", self.pos, self.len)))
    }
}

/// Words or literals in front of those that are written, which vector stores may overwrite.
pub(crate) const WRITE_SLACK: usize = 64;

/// One lane set while encoding. Words are written from the end of `words` towards its front, because the encoder
/// runs backwards; `pos` is the first word in use.
pub struct LaneWriter {
    pub(crate) x: [u32; LANES],
    pub(crate) words: Vec<u16>,
    pub(crate) pos: usize,
}

/// One without room: see [`LaneWriter::reset`].
impl Default for LaneWriter {
    fn default() -> Self {
        Self { x: [STATE_MIN; LANES], words: Vec::new(), pos: 0 }
    }
}

impl LaneWriter {
    /// Starts anew, with room for `chunks` chunks.
    pub fn reset(&mut self, chunks: usize) {
        self.x = [STATE_MIN; LANES];
        let need = chunks * super::CHUNK_WORDS + WRITE_SLACK;
        if self.words.len() < need {
            self.words.resize(need, 0);
        }
        self.pos = self.words.len();
    }

    /// The states that a decoder begins with.
    pub fn states(&self) -> [u32; LANES] {
        self.x
    }

    /// The words of the stream, in the order in which a decoder reads them.
    pub fn written(&self) -> &[u16] {
        &self.words[self.pos..]
    }
}

/// Literals while encoding, written backwards like the words. A new one has no room: see [`Self::reset`].
#[derive(Default)]
pub struct LiteralWriter {
    pub(crate) bytes: Vec<u8>,
    pub(crate) pos: usize,
}

impl LiteralWriter {
    /// Starts anew, with room for `symbols` literals.
    pub fn reset(&mut self, symbols: usize) {
        let need = symbols + WRITE_SLACK;
        if self.bytes.len() < need {
            self.bytes.resize(need, 0);
        }
        self.pos = self.bytes.len();
    }

    /// The literals, in the order in which a decoder reads them.
    pub fn written(&self) -> &[u8] {
        &self.bytes[self.pos..]
    }
}
