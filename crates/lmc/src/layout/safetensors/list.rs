//! A header as a list of its tensors (`docs/format.md` §3.8): a header from the `safetensors` crate follows from their names, dtypes and
//! shapes, and is mostly punctuation.

use super::header::compact::scan;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::format::tensors::{put_tensor, walk};
use crate::format::varint::{Cursor, put, put_string, string};
use crate::segment::{Shape, tensor_len};

/// Appends the list of a header, which `part` holds from its length on; `None` if the list would not restore it.
pub(crate) fn list(part: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (len, json) = part.split_first_chunk()?;
    // Most parts end here.
    if u64::from_le_bytes(*len) != json.len() as u64 || json.first() != Some(&b'{') {
        return None;
    }
    let json = std::str::from_utf8(json).ok()?;
    let (mut tensors, mut count) = (Vec::new(), 0);
    let (mut name, mut shape) = ("", Shape::default());
    let (mut end, mut len) = (0u64, 0);
    let (mut first, mut last) = (None, 0);
    // The scan compares all bytes of a tensor with its canonical text, so that it can be restored.
    scan(json, |t| {
        let dtype = t.dtype?;
        let same = t.alike || (count > 0 && shape == *t.shape);
        if !t.alike {
            len = tensor_len(dtype, t.shape)?;
        }
        let begin = end;
        end = begin.checked_add(len)?;
        // A comma is between two tensors, not metadata.
        if t.offsets != (begin, end) || first.is_some() && t.place.start != last + 1 {
            return None;
        }
        put_tensor(&mut tensors, name, t.name, dtype, (!same).then_some(&t.shape[..]));
        if !same {
            shape.clone_from(t.shape);
        }
        first.get_or_insert(t.place.start);
        (name, last, count) = (t.name, t.place.end, count + 1);
        Some(())
    })?;
    put_string(out, &json[..first?]);
    put(out, count);
    out.extend_from_slice(&tensors);
    put_string(out, &json[last..]);
    Some(())
}

/// Prefix of errors in a list, whose messages do not mention it.
pub(crate) const CANNOT_WRITE: &str = "the file's safetensors header cannot be made from its list of tensors: ";

/// Writes the header of a list; it must have exactly the length of `out`.
pub(crate) fn write(list: &[u8], out: &mut [u8]) -> Result<()> {
    write_header(list, out).map_err(|e| e.after(CANNOT_WRITE))
}

fn write_header(list: &[u8], out: &mut [u8]) -> Result<()> {
    let mut c = Cursor::of("the list", list);
    let json_len = out.len().checked_sub(8).ok_or_else(other_length)?;
    let mut text = Text { out, at: 0 };
    text.put(&(json_len as u64).to_le_bytes())?;
    text.put(string(&mut c)?.as_bytes())?;
    let mut line = Line::new();
    let (mut kind, mut len, mut end) = (None, 0, 0u64);
    walk(&mut c, |t| {
        let dtype = t.dtype.ok_or_else(|| Error::damaged("the list has opaque bytes"))?;
        let alike = t.same_shape && kind == Some(dtype);
        if !alike {
            len = tensor_len(dtype, t.shape).ok_or_else(|| no_length().in_tensor(t.name))?;
        }
        end = end.checked_add(len).ok_or_else(|| no_length().in_tensor(t.name))?;
        if alike {
            line.rename(t.name, t.shared);
        } else {
            line.reset(t.name, dtype, t.shape);
        }
        let len = line.end_at(end);
        // The first one has no comma before it.
        let start = usize::from(kind.replace(dtype).is_none());
        text.put(&line.text[start..len])
    })?;
    if kind.is_none() {
        return Err(Error::damaged("the list has no tensors"));
    }
    text.put(string(&mut c)?.as_bytes())?;
    c.finish()?;
    if text.at < text.out.len() { Err(other_length()) } else { Ok(()) }
}

fn no_length() -> Error {
    Error::damaged("a tensor's shape, or its offset, gives no length below 2^64")
}

fn other_length() -> Error {
    Error::damaged("the list does not give its number of bytes")
}

/// A buffer that is filled from the front.
struct Text<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Text<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let room = self.out[self.at..].get_mut(..bytes.len()).ok_or_else(other_length)?;
        room.copy_from_slice(bytes);
        self.at += bytes.len();
        Ok(())
    }
}

/// The longest number in decimal.
const DIGITS: usize = 20;
/// Both offsets of a tensor with their punctuation.
const TAIL: usize = 2 * DIGITS + 4;

/// The text of a tensor, from the comma before it on. Most of it is that of the tensor before.
struct Line {
    /// The text up to the offsets, and room for them.
    text: Vec<u8>,
    /// Place of the offsets.
    start: usize,
    name_len: usize,
    /// The first offset, the second one of the tensor before, and its length.
    begin: [u8; DIGITS],
    begin_len: usize,
}

impl Line {
    fn new() -> Self {
        Self { text: Vec::new(), start: 0, name_len: 0, begin: [b'0'; DIGITS], begin_len: 1 }
    }

    /// For a tensor that differs from the one before in its dtype or its shape.
    fn reset(&mut self, name: &str, dtype: Dtype, shape: &[u64]) {
        let text = &mut self.text;
        text.clear();
        text.extend_from_slice(b",\"");
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b"\":{\"dtype\":\"");
        text.extend_from_slice(dtype.name().as_bytes());
        text.extend_from_slice(b"\",\"shape\":[");
        for (i, &d) in shape.iter().enumerate() {
            if i > 0 {
                text.push(b',');
            }
            text.extend_from_slice(itoa::Buffer::new().format(d).as_bytes());
        }
        text.extend_from_slice(b"],\"data_offsets\":[");
        (self.start, self.name_len) = (text.len(), name.len());
        text.resize(self.start + TAIL, 0);
    }

    /// For a tensor that differs only in its name, which shares the first `shared` bytes with the name before.
    fn rename(&mut self, name: &str, shared: usize) {
        const NAME: usize = 2;
        let (rest, old) = (&name.as_bytes()[shared..], NAME + shared..NAME + self.name_len);
        if rest.len() == old.len() {
            self.text[old].copy_from_slice(rest);
        } else {
            self.text.splice(old, rest.iter().copied());
            self.start = self.text.len() - TAIL;
            self.name_len = name.len();
        }
    }

    /// Completes the text of a tensor that ends at `end`; returns its length.
    fn end_at(&mut self, end: u64) -> usize {
        let tail = &mut self.text[self.start..];
        // Fixed-length copies: excess bytes are overwritten.
        tail[..DIGITS].copy_from_slice(&self.begin);
        let mut n = self.begin_len;
        tail[n] = b',';
        n += 1;
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(end).as_bytes();
        tail[n..n + digits.len()].copy_from_slice(digits);
        self.begin[..digits.len()].copy_from_slice(digits);
        self.begin_len = digits.len();
        n += digits.len();
        tail[n..n + 2].copy_from_slice(b"]}");
        self.start + n + 2
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use safetensors::tensor::{TensorView, serialize};

    use super::*;

    /// What is written from the list of a part, and the list's length.
    fn told(part: &[u8]) -> Option<usize> {
        let mut made = Vec::new();
        list(part, &mut made)?;
        let mut back = vec![0xaa; part.len()];
        write(&made, &mut back).expect("a list can be written");
        assert!(back == part, "{:?} for {:?}", String::from_utf8_lossy(&back), String::from_utf8_lossy(part));
        for len in [part.len() - 1, part.len() + 1] {
            assert!(write(&made, &mut vec![0; len]).is_err());
        }
        Some(made.len())
    }

    fn part(json: &str) -> Vec<u8> {
        [&(json.len() as u64).to_le_bytes(), json.as_bytes()].concat()
    }

    #[test]
    fn what_the_crate_writes_is_listed() {
        use safetensors::Dtype::{BF16, F4, F32, I64, U8};
        let bytes = [0; 1 << 12];
        let view = |dtype: safetensors::Dtype, shape: &[usize]| {
            let bits: usize = shape.iter().product::<usize>() * dtype.bitsize();
            TensorView::new(dtype, shape.to_vec(), &bytes[..bits / 8]).unwrap()
        };
        let mut tensors = vec![
            ("a".to_owned(), view(F32, &[2, 3])),
            ("layers.0.ümläut.weight".to_owned(), view(BF16, &[])),
            (String::new(), view(U8, &[3, 0, 5])),
            ("halves".to_owned(), view(F4, &[3, 2])),
            ("z".repeat(300), view(I64, &[1, 1, 1, 1])),
        ];
        tensors.extend((0..120).map(|i| (format!("layers.{i}.weight"), view(BF16, &[8, 128]))));
        for metadata in [None, Some([("format".to_owned(), "pt\"}".to_owned())].into())] {
            let file = serialize(tensors.clone(), metadata.clone()).unwrap();
            let part = &file[..8 + u64::from_le_bytes(*file.first_chunk().unwrap()) as usize];
            let len = told(part);
            // An escape in metadata is as good as one in a name: such a header is left to others.
            assert_eq!(len.is_some(), metadata.is_none());
            assert!(len.is_none_or(|len| len < part.len() / 5));
        }
    }

    #[test]
    fn other_headers_are_not_listed() {
        let tensor = r#""a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}"#;
        assert!(told(&part(&format!("{{{tensor}}}"))).is_some());
        assert!(told(&part(&format!(r#"{{"__metadata__":{{"k":"v"}},{tensor}}}   "#))).is_some());
        assert!(told(&part(&format!(r#"{{{tensor},"__metadata__":{{"k":"v"}}}}"#))).is_some());
        let next = r#""b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}"#;
        assert!(told(&part(&format!("{{{tensor},{next}}}"))).is_some());
        for other in [
            String::new(),
            "{}".to_owned(),
            r#"{"__metadata__":{"k":"v"}}"#.to_owned(),
            // Metadata between tensors; another order; a gap; a wrong length; an unknown dtype; a blank.
            format!(r#"{{{tensor},"__metadata__":{{"k":"v"}},{next}}}"#),
            format!("{{{next},{tensor}}}"),
            format!("{{{tensor},{}}}", next.replace("[2,3]", "[3,4]")),
            format!("{{{tensor},{}}}", next.replace("[2,3]", "[2,4]")),
            format!("{{{}}}", tensor.replace("U8", "U9")),
            format!("{{ {tensor}}}"),
            format!("{{{tensor}}}\n"),
            format!("{{{tensor},}}"),
        ] {
            assert_eq!(told(&part(&other)), None, "{other}");
        }
        let mut longer = part(&format!("{{{tensor}}}"));
        longer.push(b' ');
        assert_eq!(told(&longer), None);
        let mut other = part(&format!("{{{tensor}}}"));
        other[10] = 0xff;
        assert_eq!(told(&other), None);
    }

    #[test]
    fn what_is_wrong_with_a_list_names_it() {
        let json = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
        let (part, mut made) = (part(json), Vec::new());
        list(&part, &mut made).unwrap();
        let why = |list: &[u8], len: usize| {
            let why = write(list, &mut vec![0; len]).unwrap_err().to_string();
            why.strip_prefix("the file's safetensors header cannot be made from its list of tensors: ")
                .unwrap()
                .to_owned()
        };
        assert_eq!(why(&[&made[..], &[0]].concat(), part.len()), "the list has 1 bytes left over");
        assert!(why(&made[..made.len() - 3], part.len()).starts_with("the list ends early"));
        assert_eq!(why(&made, part.len() + 1), "the list does not give its number of bytes");
        assert_eq!(why(&[0, 0, 0], 8), "the list has no tensors");
        assert_eq!(why(&[0, 1, 0x82, 0, 0], 8), "the first tensor of a list has no shape of its own (tensor \"\")");
    }

    proptest! {
        /// Of headers as the crate writes them, and of those that are one change away from such.
        #[test]
        fn what_is_listed_is_written_anew(
            tensors in prop::collection::vec(("[a-c.é]{0,40}", 0usize..22, prop::collection::vec(0u64..70_000, 0..4), any::<bool>()), 1..12),
            metadata: bool, change: bool, at: prop::sample::Index, put in "[ \\-0-9.e\"\\\\{}\\[\\],:\n]{0,2}", remove in 0usize..12,
        ) {
            let (mut end, mut texts) = (0, Vec::new());
            let mut last = None;
            for (name, dtype, shape, again) in tensors {
                let (dtype, shape) = last.filter(|_| again).unwrap_or((Dtype::ALL[dtype], shape));
                let len = tensor_len(dtype, &shape).unwrap_or(0);
                texts.push(format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{end},{}]}}"#, end + len).replace(", ", ","));
                end += len;
                last = Some((dtype, shape));
            }
            if metadata {
                texts.insert(0, r#""__metadata__":{"k":"v"}"#.to_owned());
            }
            let mut json = format!("{{{}}}  ", texts.join(","));
            if change {
                let places: Vec<usize> = json.char_indices().map(|c| c.0).collect();
                let at = at.index(places.len());
                let to = (at + remove).min(places.len() - 1);
                json = format!("{}{put}{}", &json[..places[at]], &json[places[to]..]);
            }
            let told = told(&part(&json));
            prop_assert!(change || told.is_some() || json.contains("F4") || json.contains("F6"));
        }
    }
}
