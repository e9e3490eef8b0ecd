//! A contender: a codec, the data it gets, and its times.

use std::rc::Rc;

use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Decompressor, Level, Result};
use lmc_kernels::isa::Isa;

use crate::codec::Codec;
use crate::planes::Planes;
use crate::timing::Times;
use crate::xor::Xor;

/// Data that a codec gets besides the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Nothing,
    /// The bases as they are.
    Base,
    /// The exclusive or with the counterparts in the bases, in place of the data.
    Xor,
    /// The bases as if they came before the data.
    Prefix,
}

impl Given {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Given::Nothing => "nothing",
            Given::Base => "base",
            Given::Xor => "xor",
            Given::Prefix => "prefix",
        }
    }
}

/// One row of the results.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    /// Level of the codec; empty where it has only one.
    pub(crate) level: String,
    /// Instruction set, of `lmc` only.
    pub(crate) isa: Option<&'static str>,
    /// Whether the codec gets the bytes in planes.
    pub(crate) grouped: bool,
    pub(crate) given: Given,
    pub(crate) codec: Box<dyn Codec>,
    /// The part of the data that a slow codec gets.
    pub(crate) sample: Option<Rc<[u8]>>,
    pub(crate) size: usize,
    pub(crate) compress: Times,
    pub(crate) decompress: Times,
    /// Seconds of time taken so far.
    pub(crate) spent: f64,
}

impl Contender {
    pub(crate) fn new(name: &'static str, level: impl Into<String>, codec: Box<dyn Codec>) -> Self {
        Self {
            name,
            level: level.into(),
            isa: None,
            grouped: false,
            given: Given::Nothing,
            codec,
            sample: None,
            size: 0,
            compress: Times::default(),
            decompress: Times::default(),
            spent: 0.0,
        }
    }

    /// `lmc` with bases, if there are any.
    pub(crate) fn lmc(bases: Rc<[Base<'static>]>, level: Level, isa: Isa) -> Result<Self> {
        let given = if bases.is_empty() { Given::Nothing } else { Given::Base };
        let codec = Lmc {
            compressor: Compressor::new(&CompressOptions::default().with_level(level).with_threads(1).with_isa(isa))?,
            decompressor: Decompressor::new(&DecompressOptions::default().with_threads(1).with_isa(isa))?,
            bases,
        };
        let new = Self::new("lmc", level.name(), Box::new(codec));
        Ok(Self { isa: Some(isa.name()), given, ..new })
    }

    /// The same codec behind byte grouping, which is part of the time.
    pub(crate) fn grouped(mut self, planes: Rc<Planes>) -> Self {
        self.codec = Box::new(Grouped { codec: self.codec, planes, buffer: Vec::new() });
        self.grouped = true;
        self
    }

    /// The same codec on the exclusive or with the expected data; computing it is part of the time.
    pub(crate) fn xored(mut self, expected: Rc<[u8]>) -> Self {
        self.codec = Box::new(Xor::new(self.codec, expected));
        self.given = Given::Xor;
        self
    }
}

struct Lmc {
    compressor: Compressor,
    decompressor: Decompressor,
    bases: Rc<[Base<'static>]>,
}

impl Codec for Lmc {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        self.compressor.compress(raw, &self.bases, packed).map(drop)
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        self.decompressor.decompress(packed, &self.bases, out).map(drop)
    }
}

struct Grouped {
    codec: Box<dyn Codec>,
    planes: Rc<Planes>,
    buffer: Vec<u8>,
}

impl Codec for Grouped {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        self.buffer.resize(raw.len(), 0);
        self.planes.split(raw, &mut self.buffer);
        self.codec.compress(&self.buffer, packed)
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        self.buffer.resize(out.len(), 0);
        self.codec.decompress(packed, &mut self.buffer)?;
        self.planes.merge(&self.buffer, out);
        Ok(())
    }
}
