//! The contents of a valid file, field by field in the terms of `docs/format.md`, as JSON.

use super::block::Head;
use super::bytes::Bytes;
use super::derived::{CAST, CODES, FIELD, SCALES};
use super::dtypes::bits_of;
use super::entropy::Lanes;
use super::frames::zstd_frame;
use super::optimizer::parts;
use super::predicted::{GRID, ROW_TERMS, TERMS};
use super::ranges::Sources;
use super::stream::Steps;
use crate::json::Json;

/// The longest list of numbers that is given in full.
const LONGEST: usize = 600;

type Fields = Vec<(&'static str, Json)>;

/// The fields of a valid file of at most `limit` raw bytes with these bases.
///
/// # Errors
/// When the file is not valid.
pub fn describe(file: &[u8], bases: &[&[u8]], limit: usize) -> Result<Json, String> {
    let mut rest = Bytes::new(file);
    rest.take(8)?;
    let (version, hash, _, features) = (rest.u16()?, rest.u8()?, rest.u8()?, rest.u32()?);
    let header = vec![
        ("version", u64::from(version).into()),
        ("hash", u64::from(hash).into()),
        ("required features", u64::from(features).into()),
    ];
    let mut sources = Sources::new(features, bases.to_vec());
    let mut records = Vec::new();
    loop {
        let at = rest.position();
        let check = rest.peek(24)?[16..].to_vec();
        let record = super::record(&mut rest)?;
        let mut fields: Fields = vec![
            ("at", at.into()),
            ("tag", Json::Text(String::from_utf8_lossy(&record.tag).into_owned())),
            ("head length", (record.head.len() as u64).into()),
            ("body length", (record.body.len() as u64).into()),
            ("check", Json::hex(&check)),
        ];
        let head = At { bytes: Bytes::new(record.head), start: at + 24 };
        match &record.tag {
            b"BASE" => fields.push(("bases", named_bases(head)?)),
            b"BLCK" => fields.extend(block(head, record.head, record.body, &mut sources, limit)?),
            b"INDX" => fields.extend(index(head)?),
            b"dIGS" => fields.push(("digests", digests(head)?)),
            _ => fields.push(("head", Json::hex(record.head))),
        }
        records.push(Json::Object(fields));
        if record.tag == *b"INDX" {
            break;
        }
    }
    let trailer = vec![
        ("at", rest.position().into()),
        ("offset of the index", rest.u64()?.into()),
        ("length of the index", rest.u64()?.into()),
        ("check", Json::hex(rest.take(8)?)),
    ];
    let parts =
        [("header", Json::Object(header)), ("records", Json::List(records)), ("trailer", Json::Object(trailer))];
    Ok(Json::Object(parts.into()))
}

/// The head of a record, and where it starts in the file.
struct At<'a> {
    bytes: Bytes<'a>,
    start: u64,
}

impl At<'_> {
    /// Where the next byte is in the file.
    fn at(&self) -> Json {
        (self.start + self.bytes.position()).into()
    }

    fn u8(&mut self) -> Result<Json, String> {
        Ok(u64::from(self.bytes.u8()?).into())
    }

    fn varint(&mut self) -> Result<Json, String> {
        Ok(self.bytes.varint()?.into())
    }
}

fn named_bases(mut head: At<'_>) -> Result<Json, String> {
    let count = head.bytes.varint()?;
    let base = |_| -> Result<Json, String> {
        let content_hash = Json::hex(head.bytes.take(16)?);
        let raw_length = head.varint()?;
        let name = head.bytes.string()?.into();
        Ok(Json::Object(vec![("content hash", content_hash), ("raw length", raw_length), ("file name", name)]))
    };
    (0..count).map(base).collect::<Result<_, _>>().map(Json::List)
}

fn digests(mut head: At<'_>) -> Result<Json, String> {
    let count = head.bytes.varint()?;
    let entry = |_| -> Result<Json, String> {
        let (whose, algorithm, digest) = (head.varint()?, head.u8()?, Json::hex(head.bytes.take(32)?));
        Ok(Json::Object(vec![("whose", whose), ("algorithm", algorithm), ("digest", digest)]))
    };
    (0..count).map(entry).collect::<Result<_, _>>().map(Json::List)
}

fn index(mut head: At<'_>) -> Result<Fields, String> {
    let mut fields: Fields = vec![("raw size", head.bytes.u64()?.into())];
    fields.push(("content hash", Json::hex(head.bytes.take(16)?)));
    fields.push(("exact features", u64::from(head.bytes.u32()?).into()));
    let blocks = head.bytes.varint()?;
    fields.push(("number of blocks", blocks.into()));
    let length = head.bytes.varint()?;
    fields.push(("length of the table", length.into()));
    fields.push(("frame", Json::hex(head.bytes.rest())));
    let table = zstd_frame(head.bytes.rest(), length as usize)?;
    let mut table = At { bytes: Bytes::new(&table), start: 0 };
    let lengths = |_| -> Result<Json, String> {
        Ok(Json::Object(vec![("record length", table.varint()?), ("raw length", table.varint()?)]))
    };
    fields.push(("blocks", Json::List((0..blocks).map(lengths).collect::<Result<_, _>>()?)));
    fields.push(("layout", table.bytes.string()?.into()));
    fields.push(("writer", table.bytes.string()?.into()));
    let segments = table.bytes.varint()?;
    let segment = |_| -> Result<Json, String> {
        let kind = table.bytes.u8()?;
        let mut fields: Fields =
            vec![("dtype", u64::from(kind & 0x7f).into()), ("same shape", Json::Bool(kind > 0x7f))];
        if kind & 0x7f == 0 {
            fields.push(("raw length", table.varint()?));
            return Ok(Json::Object(fields));
        }
        if kind & 0x7f == 127 {
            fields.push(("name of the dtype", table.bytes.string()?.into()));
            fields.push(("bits of an element", table.varint()?));
        }
        fields.push(("shared", table.varint()?));
        fields.push(("rest of the name", table.bytes.string()?.into()));
        if kind < 0x80 {
            let rank = table.bytes.varint()?;
            let shape = (0..rank).map(|_| table.bytes.varint()).collect::<Result<Vec<u64>, _>>()?;
            fields.push(("shape", Json::numbers(&shape)));
        }
        Ok(Json::Object(fields))
    };
    fields.push(("segments", Json::List((0..segments).map(segment).collect::<Result<_, _>>()?)));
    Ok(fields)
}

fn block(
    mut head: At<'_>,
    bytes: &[u8],
    body: &[u8],
    sources: &mut Sources<'_>,
    limit: usize,
) -> Result<Fields, String> {
    let parsed = Head::parse(bytes, sources, limit)?;
    let decoded = parsed.decode_in_steps(body, Some(Vec::new()))?;
    if let Some(fault) = decoded.fault {
        return Err(fault);
    }
    let mut steps = decoded.steps.into_iter();

    let raw_length = head.bytes.varint()?;
    let lane_sets = head.bytes.u8()?;
    let words = (0..lane_sets).map(|_| head.bytes.u32()).collect::<Result<Vec<u32>, _>>()?;
    let mut fields: Fields = vec![("raw length", raw_length.into()), ("lane sets", u64::from(lane_sets).into())];
    let mut literals = 0;
    if lane_sets > 0 {
        literals = head.bytes.u32()?;
        fields.extend([("words", Json::numbers(&words)), ("literals", u64::from(literals).into())]);
    }
    let columns = head.bytes.u8()?;
    let mut extents = vec![(0, raw_length)];
    if columns > 1 {
        let (mut stated, mut list) = (Vec::new(), Vec::new());
        for _ in 0..head.bytes.varint()? {
            let (column, number) = (head.bytes.u8()?, head.bytes.varint()?);
            if column == 255 {
                let times = head.bytes.varint()?;
                let period: Vec<(u8, u64)> = list[list.len() - number as usize..].to_vec();
                (0..times).for_each(|_| list.extend(&period));
                stated.push(Json::Object(vec![("repeated extents", number.into()), ("times", times.into())]));
            } else {
                list.push((column, number));
                stated.push(Json::Object(vec![("column", u64::from(column).into()), ("length", number.into())]));
            }
        }
        fields.push(("extents", Json::List(stated)));
        extents = list;
    }
    let mut described = Vec::new();
    for column in 0..columns {
        let length = extents.iter().filter(|extent| extent.0 == column).map(|extent| extent.1).sum::<u64>();
        let mut fields: Fields = vec![("at", head.at()), ("length", length.into())];
        fields.extend(self::column(&mut head, &mut steps)?);
        described.push(Json::Object(fields));
    }
    fields.push(("columns", Json::List(described)));
    fields.push(("digest", Json::hex(head.bytes.take(16)?)));
    if parsed.body_check.is_some() {
        fields.push(("xxh3-64 of the body", Json::hex(head.bytes.take(8)?)));
    }
    fields.extend([("depth", u64::from(parsed.depth).into()), ("cost", parsed.cost.into())]);
    fields.push(("body", parts_of_body(body, &words, literals)?));
    sources.add(decoded.raw, parsed.depth, parsed.cost);
    Ok(fields)
}

fn parts_of_body(body: &[u8], words: &[u32], literals: u32) -> Result<Json, String> {
    let mut bytes = Bytes::new(body);
    let bulk = bytes.take((body.len() - Lanes::length(words, literals)) as u64)?;
    let mut fields: Fields = vec![("bulk", Json::hex(bulk))];
    let u16s = |bytes: &[u8]| bytes.chunks(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect::<Vec<_>>();
    let mut words_of_sets = Vec::new();
    for &count in words {
        words_of_sets.push(Json::numbers(&u16s(bytes.take(2 * u64::from(count))?)));
    }
    if !words.is_empty() {
        fields.push(("words", Json::List(words_of_sets)));
        fields.push(("literals", Json::numbers(bytes.take(literals.into())?)));
        let set =
            |_| (0..64).map(|_| bytes.u32()).collect::<Result<Vec<u32>, _>>().map(|states| Json::numbers(&states));
        fields.push(("states", Json::List((0..words.len()).map(set).collect::<Result<_, _>>()?)));
    }
    Ok(Json::Object(fields))
}

fn column(head: &mut At<'_>, steps: &mut impl Iterator<Item = Steps>) -> Result<Fields, String> {
    let method = head.bytes.u8()?;
    let names = ["stored", "zstd", "plain", "predicted"];
    let name = *names.get(usize::from(method)).ok_or("a column has an unknown method")?;
    let mut fields: Fields = vec![("method", name.into())];
    if method == 0 {
        return Ok(fields);
    }
    let width_code = head.bytes.u8()?;
    let width = 1 << width_code;
    fields.push(("width code", u64::from(width_code).into()));
    match method {
        1 => {
            fields.push(("length of the frame", head.varint()?));
        }
        2 => fields.push(("stream", stream(head, width, steps)?)),
        _ => {
            fields.push(("operand", operand(head, steps)?));
            let mut boundaries = head.bytes.u8()?;
            if boundaries >= ROW_TERMS {
                boundaries -= ROW_TERMS;
                let terms = vec![
                    ("elements of a row", head.varint()?),
                    ("position", head.varint()?),
                    ("terms", stream(head, 1, steps)?),
                ];
                fields.push(("row terms", Json::Object(terms)));
            }
            fields.push(("boundaries", Json::numbers(head.bytes.take(boundaries.into())?)));
            let mut contexts = Vec::new();
            for _ in 0..=boundaries {
                let elements = head.bytes.varint()?;
                let mut fields: Fields = vec![("elements", elements.into())];
                if elements > 0 {
                    fields.push(("stream", stream(head, width, steps)?));
                }
                contexts.push(Json::Object(fields));
            }
            fields.push(("contexts", Json::List(contexts)));
        }
    }
    Ok(fields)
}

fn operand(head: &mut At<'_>, steps: &mut impl Iterator<Item = Steps>) -> Result<Json, String> {
    let kind = head.bytes.u8()?;
    let mut fields: Fields = vec![("kind", u64::from(kind).into())];
    match (kind, parts(kind)) {
        (GRID, _) => fields.push(("grid", grid(head, steps)?)),
        (TERMS, _) => fields.extend([
            ("shift", head.u8()?),
            ("elements of a row", head.varint()?),
            ("position", head.varint()?),
            ("terms of rows", stream(head, 1, steps)?),
            ("terms of columns", stream(head, 1, steps)?),
        ]),
        (CAST..=FIELD, _) => fields.extend(derived(head, kind, steps)?),
        (_, None) => fields.push(("ranges", ranges(head)?)),
        (_, Some((constants, lists))) => {
            let constants = (0..constants).map(|_| head.bytes.u32()).collect::<Result<Vec<u32>, _>>()?;
            fields.push(("constants", Json::numbers(&constants)));
            let lists = (0..lists).map(|_| ranges(head)).collect::<Result<_, _>>()?;
            fields.extend([("ranges", Json::List(lists)), ("decoded", decoded(steps)?)]);
        }
    }
    Ok(Json::Object(fields))
}

/// The fields of an operand of kinds 9 to 12, after the kind.
fn derived(head: &mut At<'_>, kind: u8, steps: &mut impl Iterator<Item = Steps>) -> Result<Fields, String> {
    let mut fields: Fields = vec![("from", head.u8()?)];
    match kind {
        FIELD => fields.extend([("type of the blocks", head.u8()?), ("field", head.u8()?)]),
        _ => fields.push(("to", head.u8()?)),
    }
    let mut width = 0;
    if kind == CODES || kind == SCALES {
        fields.extend([("operation", head.u8()?), ("precision", head.u8()?)]);
        if kind == CODES {
            let dtype = head.bytes.u8()?;
            width = bits_of(dtype).unwrap_or(0) as u64 / 8;
            fields.push(("dtype of the scales", u64::from(dtype).into()));
        }
        fields.push(("f", u64::from(head.bytes.u32()?).into()));
    }
    if kind == CODES {
        for name in ["elements of a row", "rows of a group", "columns of a group", "position"] {
            fields.push((name, head.varint()?));
        }
    }
    if kind == SCALES {
        fields.push(("elements of a group", head.varint()?));
    }
    fields.push(("ranges", ranges(head)?));
    if kind == CODES {
        let of_scales = ranges(head)?;
        if matches!(&of_scales, Json::List(list) if list.is_empty()) {
            fields.push(("scales", stream(head, width, steps)?));
            return Ok(fields);
        }
        fields.push(("ranges of scales", of_scales));
    }
    fields.push(("decoded", decoded(steps)?));
    Ok(fields)
}

/// The steps of decoding the next stream, or operand without streams.
fn decoded(steps: &mut impl Iterator<Item = Steps>) -> Result<Json, String> {
    let steps = steps.next().ok_or("a stream was not decoded")?;
    Ok(Json::Object(steps.into_iter().map(|(name, numbers)| (name, few(&numbers))).collect()))
}

fn grid(head: &mut At<'_>, steps: &mut impl Iterator<Item = Steps>) -> Result<Json, String> {
    let conversion = head.u8()?;
    let has_offsets = head.bytes.u8()? == 1;
    let count = u64::from(head.bytes.u8()?) + 1;
    let levels = (0..count).map(|_| head.bytes.u32()).collect::<Result<Vec<u32>, _>>()?;
    let mut fields: Fields = vec![
        ("conversion", conversion),
        ("has offsets", Json::Bool(has_offsets)),
        ("levels", Json::numbers(&levels)),
        ("elements of a row", head.varint()?),
        ("rows of a group", head.varint()?),
        ("columns of a group", head.varint()?),
        ("position", head.varint()?),
        ("scales", stream(head, 4, steps)?),
    ];
    if has_offsets {
        fields.push(("offsets", stream(head, 4, steps)?));
    }
    fields.push(("indices", stream(head, 1, steps)?));
    Ok(Json::Object(fields))
}

fn ranges(head: &mut At<'_>) -> Result<Json, String> {
    let count = head.bytes.varint()?;
    let range = |_| -> Result<Json, String> {
        let fields = vec![("source", head.varint()?), ("offset", head.varint()?), ("length", head.varint()?)];
        Ok(Json::Object(fields))
    };
    (0..count).map(range).collect::<Result<_, _>>().map(Json::List)
}

fn stream(head: &mut At<'_>, width: u64, steps: &mut impl Iterator<Item = Steps>) -> Result<Json, String> {
    let mut fields: Fields = vec![("at", head.at())];
    let map = head.bytes.u8()?;
    fields.push(("map", ["identity", "rotate", "zigzag", "palette"][usize::from(map)].into()));
    if map == 3 {
        let count = u64::from(head.bytes.u8()?) + 1;
        let palette = (0..count).map(|_| element(head, width)).collect::<Result<Vec<u64>, _>>()?;
        fields.push(("palette", Json::numbers(&palette)));
    }
    let mask = head.bytes.u8()?;
    fields.push(("mask", ["none", "bits", "bits and signs", "list"][usize::from(mask)].into()));
    if mask > 0 {
        fields.push(("selected elements", head.varint()?));
        match mask {
            3 => {
                fields.extend([("code of gaps", code(head)?), ("bytes of gaps", head.varint()?)]);
                fields.extend([("code of values", code(head)?), ("bytes of values", head.varint()?)]);
            }
            _ => fields.push(("cluster of the mask", cluster(head, 1)?)),
        }
    }
    if mask != 3 {
        let clusters = head.bytes.varint()?;
        if head.bytes.u8()? > 0 {
            let patches = vec![
                ("number", head.varint()?),
                ("t", head.u8()?),
                ("code of gaps", code(head)?),
                ("code of changes", code(head)?),
                ("bytes", head.varint()?),
            ];
            fields.push(("patches", Json::Object(patches)));
        }
        if clusters > 1 {
            fields.push(("cluster of the cluster map", cluster(head, 1)?));
        }
        let clusters = (0..clusters).map(|_| cluster(head, width)).collect::<Result<_, _>>()?;
        fields.push(("clusters", Json::List(clusters)));
    }
    fields.push(("decoded", decoded(steps)?));
    Ok(Json::Object(fields))
}

/// Numbers; of many, how many there are, and the first of them.
fn few(numbers: &[u64]) -> Json {
    match numbers.get(LONGEST..) {
        None | Some([]) => Json::numbers(numbers),
        Some(_) => {
            Json::Object(vec![("count", (numbers.len() as u64).into()), ("first", Json::numbers(&numbers[..16]))])
        }
    }
}

fn element(head: &mut At<'_>, width: u64) -> Result<u64, String> {
    Ok(head.bytes.take(width)?.iter().rev().fold(0, |u, &byte| u << 8 | u64::from(byte)))
}

fn cluster(head: &mut At<'_>, width: u64) -> Result<Json, String> {
    let mut fields: Fields = vec![("at", head.at())];
    let flags = head.bytes.u8()?;
    fields.push(("sign plane", Json::Bool(flags & 2 != 0)));
    fields.extend([("low bits dropped", head.u8()?), ("high bits dropped", head.u8()?), ("raw bits", head.u8()?)]);
    let coder = head.bytes.u8()?;
    let name = match coder {
        0 => "none".to_owned(),
        1 => "Huffman".to_owned(),
        b => format!("rANS, {b} bits a slot"),
    };
    fields.push(("coder", Json::Text(name)));
    if flags & 1 != 0 {
        fields.push(("constant", element(head, width)?.into()));
    }
    if coder > 0 {
        fields.push(("table", table(head, coder)?));
    }
    Ok(Json::Object(fields))
}

fn table(head: &mut At<'_>, coder: u8) -> Result<Json, String> {
    let at = head.at();
    let first = head.bytes.u8()?;
    let count = usize::from(head.bytes.u8()?) + 1;
    let mut entries = if coder == 1 {
        let halves = head.bytes.take((count as u64 + 1).div_ceil(2))?;
        halves.iter().flat_map(|byte| [u64::from(byte & 15), u64::from(byte >> 4)]).collect()
    } else {
        (0..=count).map(|_| head.bytes.varint()).collect::<Result<Vec<u64>, _>>()?
    };
    entries.truncate(count + 1);
    let escape = entries.pop().ok_or("a table has no entries")?;
    let fields = vec![
        ("at", at),
        ("first", u64::from(first).into()),
        ("entries", Json::numbers(&entries)),
        ("escape", escape.into()),
    ];
    Ok(Json::Object(fields))
}

fn code(head: &mut At<'_>) -> Result<Json, String> {
    let at = head.at();
    let (raw, first) = (head.u8()?, head.u8()?);
    let count = usize::from(head.bytes.u8()?) + 1;
    let mut fields: Fields = vec![("at", at), ("raw bits", raw), ("first", first)];
    if count > 1 {
        let halves = head.bytes.take((count as u64).div_ceil(2))?;
        let mut lengths: Vec<u8> = halves.iter().flat_map(|byte| [byte & 15, byte >> 4]).collect();
        lengths.truncate(count);
        fields.push(("code lengths", Json::numbers(&lengths)));
    }
    Ok(Json::Object(fields))
}
