//! Small files of every kind, for tests that damage each byte of them.

use crate::data;
use crate::format1;
use crate::input::{Input, Random};
use crate::one_grid;
use crate::reference::write::File;
use crate::reference::write::block::{Block, Cluster, Column, Plain, Predicted, Stream};
use crate::reference::write::entropy::Coder;
use lmc::{CompressOptions, Dtype, Level, compress};

/// A name, the compressed file and the raw bytes.
pub type Sample = (&'static str, Vec<u8>, Vec<u8>);

/// Files as the encoder writes them, and some that only the reference writer does.
pub fn all() -> Vec<Sample> {
    let (bf16, f32) = (one_tensor(Dtype::Bf16, 650), weights(Dtype::F32, 450));
    vec![
        encoded("empty", &[], None, Level::Default),
        encoded("bf16, default", &bf16, None, Level::Default),
        encoded("bf16, fast", &bf16, None, Level::Fast),
        encoded("bf16, max", &bf16, None, Level::Max),
        encoded("f32, dtype given", &f32, Some(Dtype::F32), Level::Default),
        encoded("text", TEXT, None, Level::Default),
        encoded("noise", &Random::new(5).bytes(300), None, Level::Default),
        encoded("pack of dtypes", &pack(), None, Level::Default),
        cluster_map(),
        fine_rans(),
        grid("grid", one_grid::column()),
        grid("grid with offsets", one_grid::column_with_offsets()),
        vector("zstd-planes-2"),
        vector("palette-patched"),
        vector("palette-coded"),
        vector("row-terms-and-grid"),
        vector("terms-and-row-terms"),
    ]
}

/// The test vector of this name, which has no bases.
fn vector(name: &'static str) -> Sample {
    let vector = format1::features().into_iter().find(|vector| vector.name == name).expect("there is such a vector");
    (name, vector.file.to_bytes(), vector.raw)
}

const TEXT: &[u8] =
    b"The quick brown fox jumps over the lazy dog, and the lazy dog sleeps on while the quick brown fox jumps \
    over the lazy dog again, and over the quick brown fox, and over the lazy dog once more.";

fn encoded(name: &'static str, raw: &[u8], dtype: Option<Dtype>, level: Level) -> Sample {
    let options = CompressOptions::default().with_dtype(dtype).with_level(level).with_threads(1);
    (name, compress(raw, &options).expect("anything can be compressed"), raw.to_vec())
}

/// This many elements that look like trained weights.
pub fn weights(dtype: Dtype, count: u16) -> Vec<u8> {
    // Weights, and up to 2047 of them.
    let mut choices = vec![1, 0];
    choices.extend(count.to_le_bytes());
    choices.resize(64, 0);
    let weights = data::elements(&mut Input::new(&choices), Some(dtype));
    assert_eq!(weights.len(), usize::from(count) * dtype.coding_width());
    weights
}

/// A safetensors file of one tensor.
fn one_tensor(dtype: Dtype, count: u16) -> Vec<u8> {
    safetensors(&[(dtype, vec![count], weights(dtype, count))])
}

/// A safetensors file of small tensors of several dtypes.
fn pack() -> Vec<u8> {
    let mut random = Random::new(9);
    let small: Vec<u8> = (0..400).map(|_| random.u64().trailing_zeros() as u8).collect();
    safetensors(&[
        (Dtype::Bf16, vec![20, 15], weights(Dtype::Bf16, 300)),
        (Dtype::F32, vec![150], weights(Dtype::F32, 150)),
        (Dtype::I8, vec![2, 100, 2], small),
        (Dtype::Bf16, vec![301], weights(Dtype::Bf16, 301)),
        (Dtype::F64, vec![], vec![1; 8]),
        (Dtype::U8, vec![0], vec![]),
    ])
}

/// A safetensors file of tensors of these dtypes, shapes and bytes.
fn safetensors(tensors: &[(Dtype, Vec<u16>, Vec<u8>)]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut entries = Vec::new();
    for (i, (dtype, shape, bytes)) in tensors.iter().enumerate() {
        let (start, end) = (data.len(), data.len() + bytes.len());
        entries.push(format!(r#""t{i}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#));
        data.extend(bytes);
    }
    let header = format!("{{{}}}", entries.join(","));
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

/// Elements of 32 bits in three clusters, one of them empty, with cluster map, literals and a partial run; two lane sets.
fn cluster_map() -> Sample {
    let block = cluster_map_block();
    let record = block.record().expect("the block can be coded");
    ("f32 with cluster map", File::new(vec![record]).to_bytes(), block.raw())
}

/// A column predicted by a grid.
fn grid(name: &'static str, column: Predicted) -> Sample {
    let block = Block::of(Column::Predicted(column), 0);
    let record = block.record().expect("the block can be coded");
    (name, File::new(vec![record]).to_bytes(), block.raw())
}

/// Bytes as symbols of fine rANS, some of them literals, with a partial run.
fn fine_rans() -> Sample {
    let mut random = Random::new(21);
    let raw: Vec<u8> = (0..300).map(|_| random.u64().trailing_zeros() as u8).collect();
    let cluster = Cluster { coder: Coder::fine_rans(&[0, 0, 0, 0, 1, 1, 2, 3, 4], true), ..Cluster::default() };
    let plain_column = Plain { raw, width_code: 0, stream: Stream::of(0, cluster) };
    let block = Block::of(Column::Plain(plain_column), 2);
    let record = block.record().expect("the block can be coded");
    ("fine rANS", File::new(vec![record]).to_bytes(), block.raw())
}

/// The block of [`all`]'s file with a cluster map.
///
/// Its last run has 75 elements, so that padding and unused bits exist; its cluster map has 6 elements of 8 raw bits.
pub fn cluster_map_block() -> Block {
    let mut random = Random::new(3);
    let elements = 5 * 128 + 75;
    let cluster_of = vec![0, 2, 0, 0, 2, 0];
    let mut raw = Vec::new();
    let mut symbols = [vec![], vec![], vec![]];
    for e in 0..elements {
        let number = cluster_of[e / 128];
        let symbol = 100 + random.u64().trailing_zeros() as u8 + if number == 2 { 20 } else { 0 };
        symbols[usize::from(number)].push(symbol);
        // Rotated: the symbol on top, then 23 bits, then the sign. In cluster 2 the low 13 bits are 0.
        let low = random.u64() as u32 & if number == 2 { 0x00ff_e000 } else { 0x00ff_ffff };
        let v = u32::from(symbol) << 24 | low;
        raw.extend(v.rotate_right(1).to_le_bytes());
    }
    let known = [100, 101, 102, 104];
    let clusters = vec![
        Cluster { k: 20, z: 4, coder: Coder::rans(&known, true), ..Cluster::default() },
        Cluster { k: 24, coder: Coder::huffman(&[1, 2, 3], false), ..Cluster::default() },
        Cluster { k: 11, z: 13, coder: Coder::huffman(&symbols[2], true), ..Cluster::default() },
    ];
    // Cluster 0 drops four low bits, too: clear them.
    for (e, element) in raw.chunks_mut(4).enumerate() {
        if cluster_of[e / 128] == 0 {
            let v = u32::from_le_bytes(element.try_into().expect("four bytes")).rotate_left(1) & !15;
            element.copy_from_slice(&v.rotate_right(1).to_le_bytes());
        }
    }
    let cluster_map = Cluster { k: 7, h: 1, ..Cluster::default() };
    let stream = Stream { map: 1, cluster_of, cluster_map, clusters, ..Stream::default() };
    Block::of(Column::Plain(Plain { raw, width_code: 2, stream }), 2)
}
