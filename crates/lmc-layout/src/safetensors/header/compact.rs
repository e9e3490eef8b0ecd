//! Parses headers as the `safetensors` crate writes them: no white space, fields in a fixed order, no escapes.
//!
//! ```text
//! {"__metadata__":{"format":"pt"},"name":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},…}
//! ```
//!
//! `None` for any other header, valid or not.

use std::ops::Range;

use super::parsed::{Pairs, Parsed, cost_of_pair, dtype_of, entry};
use crate::dtype::Dtype;
use crate::segment::{MAX_RANK, Names, Segment, Shape};

pub(super) fn parse(json: &str, max_cost: usize, with_metadata: bool) -> Option<Parsed> {
    let (mut names, mut entries) = (Names::default(), Vec::new());
    let (mut last, mut sorted) = (None, true);
    let metadata = scan(json, max_cost, with_metadata, |t| {
        sorted &= last < Some(t.name);
        last = Some(t.name);
        if entries.is_empty() {
            // Others mostly take as many bytes or more.
            entries.reserve(1 + json.len() / t.place.len());
        }
        entries.push(entry(names.push(t.name)?, t.dtype, t.shape.clone(), t.offsets));
        Some(())
    })?;
    names.finish();
    Some(Parsed { entries, sorted, metadata })
}

/// A tensor in a header.
struct Tensor<'a, 's> {
    name: &'a str,
    /// `None` for one that cannot be stored.
    dtype: Option<Dtype>,
    shape: &'s Shape,
    /// Its first and last offset, from the end of the header on.
    offsets: (u64, u64),
    /// From the quotation mark before its name to its last brace.
    place: Range<usize>,
}

/// Passes to `each` the tensors of a header that the crate may have written, until one is refused. Returns the metadata.
fn scan<'a>(
    json: &'a str,
    mut left: usize,
    with_metadata: bool,
    mut each: impl FnMut(Tensor<'a, '_>) -> Option<()>,
) -> Option<Option<Pairs>> {
    let mut metadata = None;
    // Neighbours often have equal dtypes and shapes, and adjacent offsets: their text is compared, not parsed again.
    let (mut like, mut ends): (Option<Kind<'_>>, _) = (None, ("", 0));
    // The crate pads headers with blanks.
    let mut s = Scanner { json: json.trim_end_matches(' '), at: 0 };
    s.expect(b"{")?;
    loop {
        let start = s.at;
        let name = s.string()?;
        s.expect(b":{")?;
        if name == "__metadata__" {
            if metadata.is_some() {
                return None;
            }
            metadata = Some(s.strings(with_metadata, &mut left)?);
        } else {
            let alike = like.as_ref().is_some_and(|kind| s.starts_with(kind.text));
            let kind = if alike { like.as_ref()? } else { like.insert(s.kind()?) };
            s.at += kind.text.len();
            let begin = s.number_like(ends)?;
            s.expect(b",")?;
            let number = s.at;
            let end = s.number()?;
            ends = (&s.json[number..s.at], end);
            s.expect(b"]}")?;
            let (dtype, shape, offsets) = (kind.dtype, &kind.shape, (begin, end));
            left = left.checked_sub(Segment::cost(name.len(), shape.len()))?;
            each(Tensor { name, dtype, shape, offsets, place: start..s.at })?;
        }
        if !s.accept(b",") {
            break;
        }
    }
    s.expect(b"}")?;
    (s.at == s.json.len()).then_some(metadata)
}

struct Scanner<'a> {
    json: &'a str,
    at: usize,
}

/// Dtype and shape of a tensor, and their text between its name and its offsets.
struct Kind<'a> {
    text: &'a str,
    dtype: Option<Dtype>,
    shape: Shape,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.json.as_bytes()[self.at..]
    }

    fn starts_with(&self, text: &str) -> bool {
        self.rest().starts_with(text.as_bytes())
    }

    fn accept<const N: usize>(&mut self, token: &[u8; N]) -> bool {
        let found = self.rest().first_chunk() == Some(token);
        self.at += if found { N } else { 0 };
        found
    }

    fn expect<const N: usize>(&mut self, token: &[u8; N]) -> Option<()> {
        self.accept(token).then_some(())
    }

    /// A string without escapes and without characters that need one.
    fn string(&mut self) -> Option<&'a str> {
        self.expect(b"\"")?;
        let start = self.at;
        while let Some(&eight) = self.rest().first_chunk() {
            let ends = ends_of_text(u64::from_le_bytes(eight));
            self.at += (ends.trailing_zeros() / 8) as usize;
            if ends != 0 {
                break;
            }
        }
        self.at += self.rest().iter().position(|&b| b == b'"' || b == b'\\' || b < b' ')?;
        let string = self.json.get(start..self.at);
        self.expect(b"\"")?;
        string
    }

    /// The rest of a map of strings to strings; nothing of it unless it is to be kept.
    fn strings(&mut self, keep: bool, left: &mut usize) -> Option<Pairs> {
        let mut pairs = Pairs::new();
        if self.accept(b"}") {
            return Some(pairs);
        }
        loop {
            let key = self.string()?;
            self.expect(b":")?;
            let value = self.string()?;
            if keep {
                *left = left.checked_sub(cost_of_pair(key, value))?;
                pairs.push((key.to_owned(), value.to_owned()));
            }
            if !self.accept(b",") {
                return self.expect(b"}").map(|()| pairs);
            }
        }
    }

    /// The text before a tensor's offsets, without advancing.
    fn kind(&self) -> Option<Kind<'a>> {
        let mut s = Scanner { ..*self };
        s.expect(b"\"dtype\":")?;
        let dtype = dtype_of(s.string()?);
        s.expect(b",\"shape\":[")?;
        let shape = s.shape()?;
        s.expect(b",\"data_offsets\":[")?;
        Some(Kind { text: &s.json[self.at..s.at], dtype, shape })
    }

    /// The rest of a list of at most [`MAX_RANK`](crate::segment::MAX_RANK) dimensions.
    fn shape(&mut self) -> Option<Shape> {
        let mut shape = Shape::default();
        if self.accept(b"]") {
            return Some(shape);
        }
        loop {
            if shape.len() == MAX_RANK {
                return None;
            }
            shape.push(self.number()?);
            if !self.accept(b",") {
                self.expect(b"]")?;
                return Some(shape);
            }
        }
    }

    /// [`Self::number`] for a number that may equal `like`, whose text and value are known.
    fn number_like(&mut self, (text, number): (&str, u64)) -> Option<u64> {
        let next = self.rest().get(text.len());
        if !text.is_empty() && self.starts_with(text) && next.is_some_and(|b| !b.is_ascii_digit()) {
            self.at += text.len();
            return Some(number);
        }
        self.number()
    }

    /// A number below 10^18, without a sign, a fraction or an exponent.
    fn number(&mut self) -> Option<u64> {
        let start = self.at;
        let mut number = 0;
        if let Some(&eight) = self.rest().first_chunk() {
            let digits;
            (number, digits) = digits_of(u64::from_le_bytes(eight));
            self.at += digits;
        }
        for &b in self.rest().iter().take(start + 19 - self.at).take_while(|b| b.is_ascii_digit()) {
            number = 10 * number + u64::from(b - b'0');
            self.at += 1;
        }
        let digits = self.at - start;
        let zeros = digits > 1 && self.json.as_bytes()[start] == b'0';
        ((1..=18).contains(&digits) && !zeros).then_some(number)
    }
}

/// A byte in every byte of a word.
const fn each(b: u8) -> u64 {
    u64::from_ne_bytes([b; 8])
}

/// Sets the top bit of the first byte that is a quotation mark, a backslash or a control character, and none before it
/// (*Bit Twiddling Hacks*, "determine if a word has a byte less than n").
fn ends_of_text(bytes: u64) -> u64 {
    let less = |x: u64, n| x.wrapping_sub(each(n)) & !x & each(0x80);
    less(bytes ^ each(b'"'), 1) | less(bytes ^ each(b'\\'), 1) | less(bytes, b' ')
}

/// The number of the leading digits, and their count.
fn digits_of(bytes: u64) -> (u64, usize) {
    let x = bytes ^ each(b'0');
    let others = (x | x.wrapping_add(each(0x76))) & each(0x80);
    let digits = others.trailing_zeros() / 8;
    // Combines pairs, fours, then all eight, with leading zeros if there are fewer.
    let x = if digits == 0 { 0 } else { x << (64 - 8 * digits) };
    let x = (x * 10 + (x >> 8)) & 0x00ff_00ff_00ff_00ff;
    let x = (x * 100 + (x >> 16)) & 0x0000_ffff_0000_ffff;
    ((x * 10_000 + (x >> 32)) & 0xffff_ffff, digits as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use safetensors::tensor::{Dtype, TensorView, serialize};

    use super::super::with_serde;
    use super::*;

    #[test]
    fn what_the_crate_writes_is_read() {
        let view = |dtype, shape: &[usize], bytes| TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
        let bytes = [0; 24];
        let tensors = [
            ("a", view(Dtype::F32, &[2, 3], &bytes[..])),
            ("model.layers.0.ümläut.weight", view(Dtype::BF16, &[], &bytes[..2])),
            ("", view(Dtype::U8, &[3, 0, 5], &bytes[..0])),
        ];
        for metadata in [None, Some([("format".to_owned(), "pt".to_owned())].into())] {
            let file = serialize(tensors.clone(), metadata).unwrap();
            let len = u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
            let json = std::str::from_utf8(&file[8..8 + len]).unwrap();
            let parsed = parse(json, usize::MAX, true).expect("it is compact");
            assert_eq!((parsed.entries.len(), parsed.sorted), (tensors.len(), false));
            assert_eq!(parsed, with_serde(json, usize::MAX, true).unwrap());
        }
    }

    #[test]
    fn memory_is_bounded() {
        let json = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
        let cost = Segment::cost(1, 1);
        assert!(parse(json, cost, false).is_some() && parse(json, cost - 1, false).is_none());
        let json = r#"{"__metadata__":{"key":"value"}}"#;
        let cost = cost_of_pair("key", "value");
        let serde: fn(&str, usize, bool) -> Option<Parsed> = |json, max, with| with_serde(json, max, with).ok();
        for parse in [parse, serde] {
            assert!(parse(json, cost, true).is_some() && parse(json, cost - 1, true).is_none());
            assert_eq!(parse(json, 0, false).unwrap().metadata, Some(vec![]));
        }
    }

    /// A header of these names and numbers: of tensors that are alike or not, and begin where the one before ends, or with its digits.
    fn header(names: &[String], n: [u64; 4], metadata: bool) -> String {
        let [a, b, c, d] = n;
        let metadata = metadata.then(|| r#""__metadata__":{"k":"v"}"#.to_owned());
        let tensors = names.iter().enumerate().map(|(i, name)| {
            let (kind, offsets) = match i % 5 {
                0 => (format!(r#""BF16","shape":[{a},{b}]"#), format!("{c},{d}")),
                1 => (format!(r#""BF16","shape":[{a},{b}]"#), format!("{d},{c}")),
                2 => (format!(r#""BF16","shape":[{a},{b}]"#), format!("{c}7,{d}")),
                3 => (format!(r#""BF16","shape":[{a},{b}4]"#), format!("{d},{d}")),
                _ => (format!(r#""F32","shape":[{a}]"#), format!("{d},{d}3")),
            };
            format!(r#""{name}":{{"dtype":{kind},"data_offsets":[{offsets}]}}"#)
        });
        format!("{{{}}}", metadata.into_iter().chain(tensors).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn words_are_scanned() {
        for digits in 0..=8 {
            for other in [b'/', b':', b',', 0, 0x80, 0x8a, 0xff] {
                let mut bytes = [other; 8];
                bytes[..digits].copy_from_slice(&b"90817263"[..digits]);
                let expected = 90_817_263 / 10u64.pow(8 - digits as u32);
                assert_eq!(digits_of(u64::from_le_bytes(bytes)), (expected, digits));
            }
        }
        for at in 0..8 {
            for end in (0..b' ').chain(*b"\"\\") {
                for text in [b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xa2, 0xff] {
                    let bytes = std::array::from_fn(|i| if i == at { end } else { text });
                    assert_eq!(ends_of_text(u64::from_le_bytes(bytes)).trailing_zeros() / 8, at as u32);
                    assert_eq!(ends_of_text(u64::from_le_bytes([text; 8])), 0);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn compact_headers_are_read(
            names in prop::collection::vec("[a-z_.0-9é]{0,30}", 1..9), n in prop::array::uniform4(0u64..100_000_000_000_000_000), metadata: bool,
        ) {
            let json = header(&names, n, metadata);
            let parsed = parse(&json, usize::MAX, true).expect("it is compact");
            let sorted = names.is_sorted_by(|a, b| a < b);
            prop_assert_eq!(&parsed, &Parsed { sorted, ..with_serde(&json, usize::MAX, true).unwrap() });
        }

        /// Of headers that are one change away from compact ones, too.
        #[test]
        fn what_is_read_is_what_serde_reads(
            names in prop::collection::vec("[a-c_]{0,2}|__metadata__|[\\PC]{0,3}", 1..4), n: [u64; 4], shifts in prop::array::uniform4(0u32..64),
            metadata: bool, at: prop::sample::Index, put in "[ \\-0-9.e\"\\\\{}\\[\\],:\n]{0,2}", remove in 0usize..12,
        ) {
            let n = std::array::from_fn(|i| n[i] >> shifts[i]);
            let json = header(&names, n, metadata);
            let places: Vec<usize> = json.char_indices().map(|c| c.0).collect();
            let at = at.index(places.len());
            let to = (at + remove).min(places.len() - 1);
            let json = format!("{}{put}{}", &json[..places[at]], &json[places[to]..]);
            if let Some(read) = parse(&json, usize::MAX, true) {
                let serde = with_serde(&json, usize::MAX, true).unwrap();
                prop_assert_eq!(&read, &Parsed { sorted: read.sorted, ..serde });
            }
        }
    }
}
