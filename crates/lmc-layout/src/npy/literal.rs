//! The header of a `.npy` file: a dictionary of three entries, as Python writes it.

use smallvec::SmallVec;

use crate::segment::MAX_RANK;

/// The values of a header.
pub(super) struct Literal<'a> {
    /// The dtype's description, such as `<f4`.
    pub(super) descr: &'a str,
    /// Whether the first dimension is the innermost one.
    pub(super) fortran_order: bool,
    pub(super) shape: SmallVec<[u64; 4]>,
}

/// Parses a header: three keys in any order, each once; either quotes; blanks between tokens. `None` for anything else, such as the list
/// of fields of a structure.
pub(super) fn parse(text: &[u8]) -> Option<Literal<'_>> {
    let mut tokens = Tokens(text);
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    tokens.expect(b'{')?;
    while !tokens.take(b'}') {
        let again = match tokens.string()? {
            "descr" => {
                tokens.expect(b':')?;
                descr.replace(tokens.string()?).is_some()
            }
            "fortran_order" => {
                tokens.expect(b':')?;
                fortran_order.replace(tokens.boolean()?).is_some()
            }
            "shape" => {
                tokens.expect(b':')?;
                shape.replace(tokens.integers()?).is_some()
            }
            _ => return None,
        };
        if again || !tokens.take(b',') && tokens.peek()? != b'}' {
            return None;
        }
    }
    let Tokens(rest) = tokens;
    let literal = Literal { descr: descr?, fortran_order: fortran_order?, shape: shape? };
    rest.trim_ascii().is_empty().then_some(literal)
}

/// The rest of a text.
struct Tokens<'a>(&'a [u8]);

impl<'a> Tokens<'a> {
    /// The next byte that is no blank.
    fn peek(&mut self) -> Option<u8> {
        self.0 = self.0.trim_ascii_start();
        self.0.first().copied()
    }

    /// Skips the next byte if it is this one.
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.0 = &self.0[usize::from(is_next)..];
        is_next
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.take(byte).then_some(())
    }

    /// A string without escapes.
    fn string(&mut self) -> Option<&'a str> {
        let quote = self.peek().filter(|q| matches!(q, b'\'' | b'"'))?;
        let (string, rest) = self.0[1..].split_at_checked(self.0[1..].iter().position(|&b| b == quote)?)?;
        self.0 = &rest[1..];
        str::from_utf8(string).ok().filter(|s| !s.contains('\\'))
    }

    fn boolean(&mut self) -> Option<bool> {
        self.peek()?;
        let (value, rest) = match self.0 {
            [b'T', b'r', b'u', b'e', rest @ ..] => (true, rest),
            [b'F', b'a', b'l', b's', b'e', rest @ ..] => (false, rest),
            _ => return None,
        };
        self.0 = rest;
        Some(value)
    }

    /// A tuple of at most [`MAX_RANK`] integers; one of a single integer needs its comma.
    fn integers(&mut self) -> Option<SmallVec<[u64; 4]>> {
        let mut all = SmallVec::new();
        self.expect(b'(')?;
        while !self.take(b')') {
            if all.len() == MAX_RANK {
                return None;
            }
            all.push(self.integer()?);
            if !self.take(b',') && (self.peek()? != b')' || all.len() == 1) {
                return None;
            }
        }
        Some(all)
    }

    fn integer(&mut self) -> Option<u64> {
        self.peek()?;
        let digits = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
        let value = str::from_utf8(&self.0[..digits]).ok()?.parse().ok()?;
        self.0 = &self.0[digits..];
        // NumPy for Python 2 wrote `3L`.
        self.0 = self.0.strip_prefix(b"L").unwrap_or(self.0);
        Some(value)
    }
}
