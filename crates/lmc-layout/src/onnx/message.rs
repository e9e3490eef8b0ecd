//! The messages of a model on the way to its tensors. Their names and the numbers of their fields are those of `onnx.proto`.

use std::borrow::Cow;
use std::ops::Range;

use super::data_type::dtype_of;
use super::wire::{Stop, Value, Wire};
use crate::account::Account;
use crate::dtype::Dtype;
use crate::segment::{MAX_RANK, Names, Segment, Shape, tensor_len};

/// The most graphs inside each other that are looked into.
pub(super) const MAX_DEPTH: u32 = 16;

/// Bytes of the longest name that a tensor keeps.
pub(super) const MAX_NAME: u64 = 1 << 12;

/// Where external data are.
#[derive(Default)]
struct External {
    /// The file, as the model calls it.
    location: String,
    place: Place,
}

/// Collects the tensors of a model.
pub(super) struct Walk<'a> {
    pub(super) wire: Wire<'a>,
    pub(super) names: Names,
    pub(super) tensors: Vec<Segment>,
    pub(super) account: Account,
    /// Memory that further tensors may take, in bytes.
    pub(super) left: usize,
    /// The file of external data whose tensors are collected, as models call it; `None` for those of the model itself.
    pub(super) location: Option<&'a str>,
}

/// Where the bytes of a tensor are, if they are in the file that is read.
#[derive(Default)]
struct Place {
    start: u64,
    /// Unknown for external data that do not say it.
    len: Option<u64>,
}

/// Each function walks one message, from the place of the walk to `end`, which is within the file.
impl Walk<'_> {
    /// `ModelProto`, the whole file. A field that it does not have, or has with another type of value, is refused.
    pub(super) fn model(&mut self, end: u64) -> Result<(), Stop> {
        let mut graphs = 0;
        while let Some((number, value)) = self.wire.field(end)? {
            match (number, value) {
                // ir_version, model_version
                (1 | 5, Value::Varint(_)) => {}
                // graph
                (7, Value::Bytes(end)) => {
                    graphs += 1;
                    self.graph(end, 0)?;
                }
                // training_info
                (20, Value::Bytes(end)) => self.training_info(end)?,
                // functions
                (25, Value::Bytes(end)) => self.function(end)?,
                // producer_name, producer_version, domain, doc_string, opset_import, metadata_props, configuration
                (2..=4 | 6 | 8 | 14 | 26, Value::Bytes(end)) => self.wire.skip_to(end),
                _ => return Err(Stop::Invalid),
            }
        }
        if graphs == 1 { Ok(()) } else { Err(Stop::Invalid) }
    }

    /// `TrainingInfoProto`: two graphs.
    fn training_info(&mut self, end: u64) -> Result<(), Stop> {
        while let Some((number, value)) = self.wire.field(end)? {
            match (number, value) {
                // initialization, algorithm
                (1 | 2, Value::Bytes(end)) => self.graph(end, 0)?,
                other => self.skip(other),
            }
        }
        Ok(())
    }

    /// `FunctionProto`: nodes.
    fn function(&mut self, end: u64) -> Result<(), Stop> {
        while let Some((number, value)) = self.wire.field(end)? {
            match (number, value) {
                // node
                (7, Value::Bytes(end)) => self.node(end, 0)?,
                other => self.skip(other),
            }
        }
        Ok(())
    }

    /// `GraphProto`, inside `depth` others.
    fn graph(&mut self, end: u64, depth: u32) -> Result<(), Stop> {
        if depth > MAX_DEPTH {
            self.account.missing("", "its graphs are inside each other, deeper than is read");
            self.wire.skip_to(end);
            return Ok(());
        }
        while let Some((number, value)) = self.wire.field(end)? {
            match (number, value) {
                // node
                (1, Value::Bytes(end)) => self.node(end, depth)?,
                // initializer
                (5, Value::Bytes(end)) => self.tensor(end, None, false)?,
                // sparse_initializer
                (15, Value::Bytes(end)) => self.sparse_tensor(end, None)?,
                (1 | 5 | 15, _) => return Err(Stop::Invalid),
                other => self.skip(other),
            }
        }
        Ok(())
    }

    /// `NodeProto`. The tensors of its attributes have the name of its output, unless they have their own.
    fn node(&mut self, end: u64, depth: u32) -> Result<(), Stop> {
        let mut output = None;
        while let Some((number, value)) = self.wire.field(end)? {
            match (number, value) {
                // output
                (2, Value::Bytes(end)) => {
                    output.get_or_insert(self.wire.at()..end);
                    self.wire.skip_to(end);
                }
                // attribute
                (5, Value::Bytes(end)) => self.attribute(end, output.clone(), depth)?,
                (2 | 5, _) => return Err(Stop::Invalid),
                other => self.skip(other),
            }
        }
        Ok(())
    }

    /// `AttributeProto`.
    fn attribute(&mut self, end: u64, output: Option<Range<u64>>, depth: u32) -> Result<(), Stop> {
        while let Some((number, value)) = self.wire.field(end)? {
            match (number, value) {
                // t, tensors
                (5 | 10, Value::Bytes(end)) => self.tensor(end, output.clone(), false)?,
                // g, graphs
                (6 | 11, Value::Bytes(end)) => self.graph(end, depth + 1)?,
                // sparse_tensor, sparse_tensors
                (22 | 23, Value::Bytes(end)) => self.sparse_tensor(end, output.clone())?,
                (5 | 6 | 10 | 11 | 22 | 23, _) => return Err(Stop::Invalid),
                other => self.skip(other),
            }
        }
        Ok(())
    }

    /// `SparseTensorProto`.
    fn sparse_tensor(&mut self, end: u64, output: Option<Range<u64>>) -> Result<(), Stop> {
        while let Some((number, value)) = self.wire.field(end)? {
            match (number, value) {
                // values, indices
                (1 | 2, Value::Bytes(end)) => self.tensor(end, output.clone(), true)?,
                (1 | 2, _) => return Err(Stop::Invalid),
                other => self.skip(other),
            }
        }
        Ok(())
    }

    /// `TensorProto`. Its bytes stay opaque if they are not those of its dtype and shape.
    fn tensor(&mut self, end: u64, output: Option<Range<u64>>, is_sparse: bool) -> Result<(), Stop> {
        let (mut shape, mut data_type) = (Shape::default(), 0);
        let (mut name, mut data, mut external, mut typed) = (None, None, None, None);
        while let Some((number, value)) = self.wire.field(end)? {
            match (number, value) {
                // dims
                (1, Value::Varint(dimension)) => push(&mut shape, dimension),
                (1, Value::Bytes(end)) => {
                    while self.wire.at() < end {
                        let dimension = self.wire.varint(end)?;
                        push(&mut shape, dimension);
                    }
                }
                // data_type
                (2, Value::Varint(code)) => data_type = code,
                // name
                (8, Value::Bytes(end)) => {
                    name = Some(self.wire.at()..end);
                    self.wire.skip_to(end);
                }
                // float_data, raw_data, double_data
                (4 | 9 | 10, Value::Bytes(end)) => {
                    let start = self.wire.at();
                    if data.replace((number, Place { start, len: Some(end - start) })).is_some() {
                        return Err(Stop::Invalid);
                    }
                    self.wire.skip_to(end);
                }
                // external_data
                (13, Value::Bytes(end)) => self.external_data(end, external.get_or_insert_default())?,
                (1 | 2 | 8 | 9 | 13, _) => return Err(Stop::Invalid),
                // segment, float_data, int32_data, string_data, int64_data, double_data, uint64_data
                (3..=7 | 10 | 11, value) => {
                    typed = Some(number);
                    self.skip((number, value));
                }
                other => self.skip(other),
            }
        }
        let is_external = external.is_some();
        match place(self.location, (data_type, &shape), (data, external, typed), end) {
            Ok((dtype, Place { start, len })) => {
                let text = self.text([name, output])?;
                let name = self.names.push(&text).ok_or(Stop::Invalid)?;
                self.left = self.left.checked_sub(Segment::cost(name.size(), shape.len())).ok_or(Stop::Invalid)?;
                if is_sparse {
                    self.account.missing(text, "it is part of a sparse tensor");
                }
                self.tensors.push(Segment::tensor(name, dtype, shape, start, len.unwrap_or(0)));
            }
            // Of a model's tensors, those in other files are missing; of those in a file, the others are not asked for.
            Err(why) if self.location.is_none() || is_external => {
                let Some(why) = why else { return Ok(()) };
                if let Some(file) = why.file {
                    self.account.file(&file);
                }
                let name = self.text([name, output])?;
                self.left = self.left.checked_sub(Segment::cost(name.len(), 0)).ok_or(Stop::Invalid)?;
                self.account.missing(name, why.text);
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// `StringStringEntryProto`: one fact about where the bytes of a tensor are.
    fn external_data(&mut self, end: u64, external: &mut External) -> Result<(), Stop> {
        let (mut key, mut value) = (0..0, 0..0);
        while let Some((number, field)) = self.wire.field(end)? {
            match (number, field) {
                (1 | 2, Value::Bytes(end)) => {
                    *(if number == 1 { &mut key } else { &mut value }) = self.wire.at()..end;
                    self.wire.skip_to(end);
                }
                other => self.skip(other),
            }
        }
        // Facts that are too long are skipped.
        if key.end - key.start > 16 || value.end - value.start > MAX_NAME {
            return Ok(());
        }
        let (key, value) = (self.wire.bytes(key)?, self.wire.bytes(value)?);
        let number = || str::from_utf8(&value).ok()?.parse().ok();
        match &key[..] {
            b"location" => external.location = String::from_utf8_lossy(&value).into_owned(),
            // Places in other files do not matter.
            _ if self.location.is_none() => {}
            b"offset" => external.place.start = number().ok_or(Stop::Invalid)?,
            b"length" => external.place.len = Some(number().ok_or(Stop::Invalid)?),
            _ => {}
        }
        Ok(())
    }

    /// The first name that is not empty, if it can be kept.
    fn text(&mut self, places: [Option<Range<u64>>; 2]) -> Result<String, Stop> {
        let place = places.into_iter().flatten().find(|place| !place.is_empty()).unwrap_or(0..0);
        let bytes = if place.end - place.start > MAX_NAME { Vec::new() } else { self.wire.bytes(place)? };
        Ok(String::from_utf8(bytes).unwrap_or_default())
    }

    /// Skips the rest of a field that does not lead to tensors.
    fn skip(&mut self, (_, value): (u64, Value)) {
        if let Value::Bytes(end) = value {
            self.wire.skip_to(end);
        }
    }
}

/// Why a tensor has no bytes in the file that is read.
struct Lack {
    text: Cow<'static, str>,
    /// The file that has them.
    file: Option<String>,
}

impl<T: Into<Cow<'static, str>>> From<T> for Lack {
    fn from(text: T) -> Self {
        Self { text: text.into(), file: None }
    }
}

/// The bytes of a tensor whose message ends at `end`, in the model, or in the file of external data called `location`. `Err(None)` for one
/// that is in another file than that.
fn place(
    location: Option<&str>,
    (data_type, shape): (u64, &[u64]),
    (data, external, typed): (Option<(u64, Place)>, Option<External>, Option<u64>),
    end: u64,
) -> Result<(Dtype, Place), Option<Lack>> {
    let lack = |text: Lack| Err(Some(text));
    let place = match (location, external) {
        (None, Some(External { location, .. })) => {
            let text = format!("its bytes are in the file {location:?}");
            return lack(Lack { text: text.into(), file: Some(location) });
        }
        (Some(wanted), Some(External { location, place })) if location == wanted => Some((9, place)),
        (Some(_), _) => return Err(None),
        (None, None) => data,
    };
    let Some(dtype) = dtype_of(data_type) else {
        return lack(match data_type {
            8 => "its elements are strings".into(),
            15 => "its elements are complex numbers of two binary64, for which lmc has no type".into(),
            _ => format!("its elements are of type {data_type}, which lmc does not know").into(),
        });
    };
    let len = tensor_len(dtype, shape).filter(|_| shape.len() <= MAX_RANK);
    let Some(len) = len else {
        return lack(format!("its {dtype} elements of shape {shape:?} are no whole bytes").into());
    };
    let place = match (place, typed) {
        (Some((9, place)), of) if of != Some(3) => place,
        (Some((4, place)), None) if matches!(dtype, Dtype::F32 | Dtype::C64) => place,
        (Some((10, place)), None) if dtype == Dtype::F64 => place,
        (None, None) if len == 0 => Place { start: end, len: Some(0) },
        (_, Some(3)) => return lack("it is a segment of a tensor".into()),
        (Some(_), _) | (_, Some(_)) => {
            let why = "its elements are in a field of numbers of variable length (such as int32_data), not in raw_data";
            return lack(why.into());
        }
        (None, None) => return lack("it has no elements".into()),
    };
    match place.len {
        Some(found) if found != len => {
            lack(format!("its shape {shape:?} has {len} bytes of {dtype}, and the file {found}").into())
        }
        _ => Ok((dtype, Place { start: place.start, len: Some(len) })),
    }
}

/// Appends a dimension. Those above the limit are not kept: one more than it shows that there are too many.
fn push(shape: &mut Shape, dimension: u64) {
    if shape.len() <= MAX_RANK {
        shape.push(dimension);
    }
}
