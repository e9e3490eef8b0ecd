//! The messages of a model on the way to its tensors. Their names and the numbers of their fields are those of `onnx.proto`.

use std::ops::Range;

use super::data_type::dtype_of;
use super::wire::{Stop, Value, Wire};
use crate::dtype::Dtype;
use crate::segment::{MAX_RANK, Name, Names, Segment, Shape, tensor_len};

/// The most graphs inside each other that are looked into.
pub(super) const MAX_DEPTH: u32 = 16;

/// Bytes of the longest name that a tensor keeps.
pub(super) const MAX_NAME: u64 = 1 << 12;

/// Where external data are.
#[derive(Default)]
struct External {
    /// Whether they are in the file that is read.
    here: bool,
    place: Place,
}

/// Collects the tensors of a model.
pub(super) struct Walk<'a> {
    pub(super) wire: Wire<'a>,
    pub(super) names: Names,
    pub(super) tensors: Vec<Segment>,
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
            self.wire.skip_to(end);
            return Ok(());
        }
        while let Some((number, value)) = self.wire.field(end)? {
            match (number, value) {
                // node
                (1, Value::Bytes(end)) => self.node(end, depth)?,
                // initializer
                (5, Value::Bytes(end)) => self.tensor(end, None)?,
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
                (5 | 10, Value::Bytes(end)) => self.tensor(end, output.clone())?,
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
                (1 | 2, Value::Bytes(end)) => self.tensor(end, output.clone())?,
                (1 | 2, _) => return Err(Stop::Invalid),
                other => self.skip(other),
            }
        }
        Ok(())
    }

    /// `TensorProto`. Its bytes stay opaque if they are not those of its dtype and shape.
    fn tensor(&mut self, end: u64, output: Option<Range<u64>>) -> Result<(), Stop> {
        let (mut shape, mut data_type) = (Shape::default(), 0);
        let (mut name, mut data, mut external) = (None, None, None);
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
                other => self.skip(other),
            }
        }
        let Some(dtype) = dtype_of(data_type) else { return Ok(()) };
        let place = match (self.location, data, external) {
            (None, Some((9, place)), None) => place,
            (None, Some((4, place)), None) if matches!(dtype, Dtype::F32 | Dtype::C64) => place,
            (None, Some((10, place)), None) if dtype == Dtype::F64 => place,
            (Some(_), None, Some(External { here: true, place })) => place,
            _ => return Ok(()),
        };
        let len = tensor_len(dtype, &shape).filter(|&len| place.len.is_none_or(|l| l == len));
        let Some(len) = len.filter(|_| shape.len() <= MAX_RANK) else { return Ok(()) };
        let name = self.name([name, output])?;
        self.left = self.left.checked_sub(Segment::cost(name.size(), shape.len())).ok_or(Stop::Invalid)?;
        self.tensors.push(Segment::tensor(name, dtype, shape, place.start, len));
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
        // Facts of other files are skipped, and so are those that are too long.
        let Some(location) = self.location else { return Ok(()) };
        if key.end - key.start > 16 || value.end - value.start > MAX_NAME {
            return Ok(());
        }
        let (key, value) = (self.wire.bytes(key)?, self.wire.bytes(value)?);
        let number = || str::from_utf8(&value).ok()?.parse().ok();
        match &key[..] {
            b"location" => external.here = value == location.as_bytes(),
            b"offset" => external.place.start = number().ok_or(Stop::Invalid)?,
            b"length" => external.place.len = Some(number().ok_or(Stop::Invalid)?),
            _ => {}
        }
        Ok(())
    }

    /// The first name that is not empty, if it can be kept.
    fn name(&mut self, places: [Option<Range<u64>>; 2]) -> Result<Name, Stop> {
        let place = places.into_iter().flatten().find(|place| !place.is_empty()).unwrap_or(0..0);
        let bytes = if place.end - place.start > MAX_NAME { Vec::new() } else { self.wire.bytes(place)? };
        self.names.push(str::from_utf8(&bytes).unwrap_or("")).ok_or(Stop::Invalid)
    }

    /// Skips the rest of a field that does not lead to tensors.
    fn skip(&mut self, (_, value): (u64, Value)) {
        if let Value::Bytes(end) = value {
            self.wire.skip_to(end);
        }
    }
}

/// Appends a dimension. Those above the limit are not kept: one more than it shows that there are too many.
fn push(shape: &mut Shape, dimension: u64) {
    if shape.len() <= MAX_RANK {
        shape.push(dimension);
    }
}
