//! Valid files with features that random files rarely have: byte planes, prefixes, palettes, masks, writers, features.

mod masks;

pub use masks::masks;

use crate::data::noise;
use crate::decoders::LIMIT;
use crate::handmade::{FIRST, LEAF, copy, filled, prefixed, records, stored};
use crate::input::Random;
use crate::reference::write::File;
use crate::reference::write::block::{Block, BlockFields, Cluster, Column, Patch, Plain, Stream, Zstd};
use crate::reference::write::entropy::Coder;
use crate::streams::{low_bits, palette, to_bytes};

/// A valid file, its bases and its raw bytes.
#[derive(Debug)]
pub struct Vector {
    /// With blanks.
    pub name: String,
    /// The whole file.
    pub file: File,
    /// The raw bytes of each base.
    pub bases: Vec<Vec<u8>>,
    /// Its raw bytes.
    pub raw: Vec<u8>,
}

impl Vector {
    /// The raw bytes of each base.
    pub fn bases(&self) -> Vec<&[u8]> {
        self.bases.iter().map(|base| &base[..]).collect()
    }

    /// One column.
    fn of(name: String, column: Column, lane_sets: u8) -> Self {
        let block = Block::of(column, lane_sets);
        let record = block.record().expect("the block can be coded");
        Self { name, file: File::new(vec![record]), bases: Vec::new(), raw: block.raw() }
    }
}

/// All of them.
pub fn all() -> Vec<Vector> {
    [byte_planes(), prefixes(), palettes(), masks(), writers(), features()].into_iter().flatten().collect()
}

/// zstd columns of every width.
pub fn byte_planes() -> Vec<Vector> {
    let vector = |width_code: u8, count: usize| {
        let mut random = Random::new(width_code.into());
        // Most bits of the last byte are alike.
        let element = |_| u64::MAX << 62 | random.u64() >> 6;
        let elements: Vec<u64> = (0..count).map(element).map(|u| u >> (64 - (8 << width_code))).collect();
        let column = Zstd { width_code, ..Zstd::of(to_bytes(&elements, width_code)) };
        Vector::of(format!("planes of {count} elements of {} bytes", 1 << width_code), Column::Zstd(column), 0)
    };
    (0..4).flat_map(|width_code| [1, 2, 300].map(|count| vector(width_code, count))).collect()
}

/// The magic number of a zstd dictionary with tables.
const DICTIONARY: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

/// zstd columns whose frames reach into a prefix: of bases, of the file itself, and of both.
pub fn prefixes() -> Vec<Vector> {
    let base = [&DICTIONARY[..], &noise(3000, 1)].concat();
    let vector = |name: &str, earlier: &[u8], column: &[u8], prefix: &[(u64, u64, &[u8])]| {
        let mut blocks: Vec<BlockFields> = vec![prefixed(column, prefix)];
        let mut raw = column.to_vec();
        if !earlier.is_empty() {
            blocks.insert(0, stored(earlier));
            raw = earlier.to_vec();
            raw.resize(LEAF as usize, 0);
            raw.extend(column);
        }
        let bases = if prefix.iter().any(|&(source, ..)| source > 0) { vec![base.clone()] } else { Vec::new() };
        let slices: Vec<&[u8]> = bases.iter().map(|base| &base[..]).collect();
        let mut file = File::delta(&slices, records(&blocks));
        file.redigest(&slices, LIMIT);
        Vector { name: format!("prefix {name}"), file, bases, raw }
    };
    let own = noise(2000, 2);
    let changed = |bytes: &[u8]| [&bytes[bytes.len() / 3..], b" and something new, ", bytes].concat();
    let several: [(u64, u64, &[u8]); 4] =
        [(1, 1000, &base[1000..1500]), (0, 5, &own[5..900]), (1, 4, &base[4..700]), (0, 0, &own[..1])];
    let all_of_them = several.map(|(.., bytes)| bytes).concat();
    vec![
        vector("of a base", b"", &changed(&base[4..2000]), &[(1, 4, &base[4..2000])]),
        vector("of a base, like a dictionary", b"", &changed(&base), &[(1, 0, &base)]),
        vector("of a base, with a dictionary's magic alone", b"", &changed(&base[..4]), &[(1, 0, &base[..4])]),
        vector("of the file", &own, &changed(&own), &[(0, 0, &own)]),
        vector("of the file, like a dictionary", &base, &changed(&base), &[(0, 0, &base)]),
        vector("of both, in several ranges", &own, &changed(&all_of_them), &several),
        vector("of one byte", b"", b"t", &[(1, 7, &base[7..8])]),
        vector("that no match reaches", b"", &[7; 100], &[(1, 100, &base[100..200])]),
    ]
}

/// Palettes of few and of many values of every width, coded in every way that a stream may have.
pub fn palettes() -> Vec<Vector> {
    (0..4).flat_map(|width_code| [1, 2, 17, 256].map(|count| (width_code, count))).flat_map(palettes_of).collect()
}

fn palettes_of((width_code, count): (u8, usize)) -> Vec<Vector> {
    let w = 8 << width_code;
    let mut random = Random::new(count as u64);
    let palette = palette(&mut random, count, width_code);
    // As many bits as all indices but the last ones have.
    let bits = count.ilog2() as u8;
    let raw_bits = Cluster { k: bits, h: w - bits, ..Cluster::default() };
    let symbols: Vec<u8> = (0..300).map(|_| random.u64() as u8 & low_bits(bits) as u8).collect();
    let low = |symbols: &[u8]| symbols.iter().map(|&symbol| u64::from(symbol)).collect::<Vec<u64>>();

    let vector = |name: &str, stream: Stream, indices: &[u64]| {
        let elements: Vec<u64> = indices.iter().map(|&index| palette[index as usize]).collect();
        let lane_sets = if stream.clusters.iter().all(|cluster| cluster.coder == Coder::None) { 0 } else { 2 };
        let stream = Stream { map: 3, palette: palette.clone(), ..stream };
        let column = Column::Plain(Plain { raw: to_bytes(&elements, width_code), width_code, stream });
        Vector::of(format!("palette of {count} values of {} bytes, {name}", w / 8), column, lane_sets)
    };
    let of = |cluster: &Cluster| Stream::of(3, cluster.clone());
    let mut vectors = vec![vector("raw", of(&raw_bits), &low(&symbols))];

    // The last index in a few places, which may have a bit more; with and without clusters.
    let patched = |cluster: Option<&Cluster>, values: &[u64]| {
        let mut indices = values.to_vec();
        [0, 1, 130, 299].iter().for_each(|&i| indices[i] = count as u64 - 1);
        let changes =
            (0..).zip(values.iter().zip(&indices)).map(|(element, (v, index))| Patch { element, x: v ^ index });
        let patches = changes.filter(|patch| patch.x != 0).collect();
        (Stream { clusters: cluster.into_iter().cloned().collect(), patches, ..Stream::default() }, indices)
    };
    let (stream, indices) = patched(Some(&raw_bits), &low(&symbols));
    vectors.push(vector("patched", stream, &indices));
    let (stream, indices) = patched(None, &[0; 300]);
    vectors.push(vector("without clusters", stream, &indices));

    if bits > 1 {
        let sign_plane = Cluster { z: 1, k: bits - 1, sign_plane: true, ..raw_bits.clone() };
        vectors.push(vector("with a sign plane", of(&sign_plane), &low(&symbols)));
        let coded = Cluster { k: 0, coder: Coder::fine_rans(&symbols, false), ..raw_bits.clone() };
        vectors.push(vector("as symbols", of(&coded), &low(&symbols)));
        // Of the second run, only the upper half.
        let half = |constant| Cluster { k: bits - 1, h: w + 1 - bits, constant, ..Cluster::default() };
        let upper = 1 << (bits - 1);
        let indices = (0..).zip(low(&symbols)).map(|(i, v)| v % upper + if i / 128 == 1 { upper } else { 0 });
        let stream = Stream {
            cluster_of: vec![0, 1, 0],
            cluster_map: Cluster { k: 1, h: 7, ..Cluster::default() },
            clusters: vec![half(None), half(Some(upper))],
            ..Stream::default()
        };
        vectors.push(vector("in clusters", stream, &indices.collect::<Vec<_>>()));
    }
    vectors
}

/// Files of any writer.
pub fn writers() -> Vec<Vector> {
    let vector = |writer: &str| {
        let column = Column::Stored(b"some bytes".to_vec());
        let mut vector = Vector::of(format!("writer of {} bytes", writer.len()), column, 0);
        vector.file.index.writer = writer.into();
        vector
    };
    ["", "lmc 1.0.0 default", "schön, --level 19 🦀\n\0", &"long".repeat(10_000)].map(vector).into()
}

/// Files whose blocks need fewer features than the header requires, or as many.
pub fn features() -> Vec<Vector> {
    let base = || copy(&[(1, 0, FIRST)]);
    let own = || copy(&[(0, 0, b"earlier")]);
    let vector = |features: u32, blocks: &[BlockFields], raw: &[&[u8]], named: bool| {
        let bases: &[&[u8]] = if named { &[FIRST] } else { &[] };
        let mut file = File { features, ..File::delta(bases, records(blocks)) };
        file.redigest(bases, LIMIT);
        let bases_named = if named { " with a base" } else { "" };
        let name = format!("features {features} of which {} are exact{bases_named}", file.index.exact_features);
        let bases = bases.iter().map(|base| base.to_vec()).collect();
        Vector { name, file, bases, raw: filled(raw) }
    };
    let mut vectors = Vec::new();
    for features in [0, 1, 3, 4, 5, 7] {
        vectors.push(vector(features, &[stored(b"a")], &[b"a"], false));
    }
    for features in [1, 3, 5, 7] {
        vectors.push(vector(features, &[stored(b"a")], &[b"a"], true));
        vectors.push(vector(features, &[stored(b"a"), base()], &[b"a", FIRST], true));
    }
    vectors.push(vector(3, &[stored(b"earlier"), own()], &[b"earlier", b"earlier"], false));
    vectors.push(vector(3, &[stored(b"earlier"), own(), base()], &[b"earlier", b"earlier", FIRST], true));
    vectors
}
