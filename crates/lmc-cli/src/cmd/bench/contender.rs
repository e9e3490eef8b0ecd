//! A contender: a codec, the data it gets, and its times.

use std::rc::Rc;

use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Decompressor, Dtype, Level, Result};
use lmc_kernels::isa::Isa;

use super::codec::Codec;
use super::planes::Planes;
use super::timing::Times;
use super::xor::Xor;

/// How the bytes were arranged for the codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    AsIs,
    Grouped,
}

impl Order {
    pub(super) fn name(self) -> &'static str {
        match self {
            Order::AsIs => "as is",
            Order::Grouped => "grouped",
        }
    }
}

/// Data that a codec gets besides the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    Nothing,
    /// The bases as they are.
    Base,
    /// The exclusive or with the counterparts in the bases, in place of the data.
    Xor,
    /// The bases as if they came before the data.
    Prefix,
}

impl Given {
    pub(super) fn name(self) -> &'static str {
        match self {
            Given::Nothing => "nothing",
            Given::Base => "base",
            Given::Xor => "xor",
            Given::Prefix => "prefix",
        }
    }
}

/// One row of the results.
pub(super) struct Contender {
    pub(super) name: &'static str,
    /// Level of the codec; empty where it has only one.
    pub(super) level: String,
    /// Instruction set, of `lmc` only.
    pub(super) isa: Option<&'static str>,
    pub(super) threads: usize,
    pub(super) order: Order,
    pub(super) given: Given,
    pub(super) codec: Box<dyn Codec>,
    /// The part of the data that a slow codec gets.
    pub(super) sample: Option<Rc<[u8]>>,
    pub(super) size: usize,
    pub(super) compress: Times,
    pub(super) decompress: Times,
    /// Seconds of time taken so far.
    pub(super) spent: f64,
}

impl Contender {
    pub(super) fn new(name: &'static str, level: impl Into<String>, codec: Box<dyn Codec>) -> Self {
        Self {
            name,
            level: level.into(),
            isa: None,
            threads: 1,
            order: Order::AsIs,
            given: Given::Nothing,
            codec,
            sample: None,
            size: 0,
            compress: Times::default(),
            decompress: Times::default(),
            spent: 0.0,
        }
    }

    pub(super) fn lmc(level: Level, isa: Isa, threads: usize, dtype: Option<Dtype>) -> Result<Self> {
        Self::lmc_given(Rc::new([]), level, isa, threads, dtype)
    }

    /// `lmc` with bases, if there are any.
    pub(super) fn lmc_given(
        bases: Rc<[Base<'static>]>,
        level: Level,
        isa: Isa,
        threads: usize,
        dtype: Option<Dtype>,
    ) -> Result<Self> {
        let given = if bases.is_empty() { Given::Nothing } else { Given::Base };
        let codec = Lmc {
            compressor: Compressor::new(&compress_options(level, isa, threads, dtype))?,
            decompressor: Decompressor::new(&decompress_options(isa, threads))?,
            bases,
        };
        let new = Self::new("lmc", level.name(), Box::new(codec));
        Ok(Self { isa: Some(isa.name()), threads, given, ..new })
    }

    /// The same codec behind byte grouping, which is part of the time.
    pub(super) fn grouped(mut self, planes: Rc<Planes>) -> Self {
        self.codec = Box::new(Grouped { codec: self.codec, planes, buffer: Vec::new() });
        self.order = Order::Grouped;
        self
    }

    /// The same codec on the exclusive or with the expected data; computing it is part of the time.
    pub(super) fn xored(mut self, expected: Rc<[u8]>) -> Self {
        self.codec = Box::new(Xor::new(self.codec, expected));
        self.given = Given::Xor;
        self
    }

    /// Name and variant, for display.
    pub(super) fn label(&self) -> String {
        let level = if self.level.is_empty() { String::new() } else { format!(" {}", self.level) };
        let given = match self.given {
            Given::Nothing => "",
            Given::Base => " delta",
            Given::Xor => " XOR",
            Given::Prefix => " prefix",
        };
        let order = if self.order == Order::Grouped { " grouped" } else { "" };
        match self.isa {
            Some(isa) => format!("{}{level}{given} {isa} {} threads", self.name, self.threads),
            None => format!("{}{level}{given}{order}", self.name),
        }
    }
}

struct Lmc {
    compressor: Compressor,
    decompressor: Decompressor,
    bases: Rc<[Base<'static>]>,
}

pub(super) fn compress_options(level: Level, isa: Isa, threads: usize, dtype: Option<Dtype>) -> CompressOptions {
    CompressOptions::default().with_level(level).with_threads(threads).with_dtype(dtype).with_isa(isa)
}

pub(super) fn decompress_options(isa: Isa, threads: usize) -> DecompressOptions {
    DecompressOptions::default().with_threads(threads).with_isa(isa)
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
