//! Masks (§3.3.2) of every kind, in every column and with all other parts of a stream.

use super::Vector;
use crate::data::noise;
use crate::decoders::LIMIT;
use crate::handmade::{encoded, records};
use crate::input::Random;
use crate::reference::write::File;
use crate::reference::write::block::{
    Block, Cluster, Column, Mask, NumberCode, Operand, Patch, PatchCodes, Plain, Predicted, Range, Stream,
};
use crate::reference::write::entropy::Coder;
use crate::streams::{low_bits, palette, to_bytes};

const KINDS: [&str; 3] = ["bits", "bits and signs", "gaps"];
/// Number of the kind whose signs are apart.
const SIGNED: usize = 1;

/// How the selected elements are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    OneCluster { patched: bool },
    Clusters { patched: bool },
    SignPlane,
    Symbols,
    Palette,
    Listed,
}

const VALUES: [(&str, Values); 8] = [
    ("in one cluster", Values::OneCluster { patched: false }),
    ("patched", Values::OneCluster { patched: true }),
    ("in clusters", Values::Clusters { patched: false }),
    ("in clusters, patched", Values::Clusters { patched: true }),
    ("with a sign plane", Values::SignPlane),
    ("as symbols", Values::Symbols),
    ("of a palette", Values::Palette),
    ("listed", Values::Listed),
];

/// How many elements there are, and which of them are selected.
type Selection = (usize, fn(usize, &mut Random) -> bool);

const SELECTIONS: [Selection; 6] = [
    (1, |_, _| true),
    // Whole bytes, and not.
    (256, |_, _| true),
    (300, |_, _| true),
    (127, |e, _| e == 126),
    (1003, |_, random| random.below(9) == 0),
    (1025, |_, random| random.below(2) == 0),
];

/// Columns of all widths for each kind of mask and each way to code the selected elements, plain and predicted; small
/// ones.
pub fn masks() -> Vec<Vector> {
    let mut vectors = Vec::new();
    for (kind, kind_name) in KINDS.into_iter().enumerate() {
        for (number, (name, values)) in VALUES.into_iter().enumerate() {
            let described = |width_code: u8| {
                let width = usize::from(width_code);
                let selection = SELECTIONS[(width + 2 * number + kind) % SELECTIONS.len()];
                Described { kind, values, width_code, selection, case: number + width }
            };
            let name = format!("mask of {kind_name}, {name}");
            vectors.push(of(name.clone(), (0..4).map(|code| plain(&described(code))).collect(), Vec::new()));
            if values != Values::Palette {
                let base = noise(1 << 14, number as u64);
                let columns = (0..4).map(|code| predicted(&described(code), &base)).collect();
                vectors.push(of(format!("{name}, predicted"), columns, vec![base]));
            }
        }
    }
    let small = [Values::Clusters { patched: true }, Values::SignPlane, Values::Listed];
    for (kind, values) in small.into_iter().enumerate() {
        let column = plain(&Described { kind, values, width_code: 1, selection: (203, |e, _| e % 4 > 0), case: 2 });
        vectors.push(of(format!("small mask of {}", KINDS[kind]), vec![column], Vec::new()));
    }
    vectors
}

/// A block of these columns, one after the other.
fn of(name: String, columns: Vec<Column>, bases: Vec<Vec<u8>>) -> Vector {
    let extents = (0..).zip(&columns).map(|(i, column)| (i, column.raw().len() as u64)).collect();
    let block = Block { lane_sets: 2, columns, extents, states_repeats: false, final_state: 1 << 16 };
    let raw = block.raw();
    let slices: Vec<&[u8]> = bases.iter().map(|base| &base[..]).collect();
    let records = records(&[encoded(&block)]);
    let mut file = if bases.is_empty() { File::new(records) } else { File::delta(&slices, records) };
    file.redigest(&slices, LIMIT);
    Vector { name, file, bases, raw }
}

fn plain(described: &Described) -> Column {
    let width_code = described.width_code;
    let (stream, elements) = described.stream(described.selection.0);
    Column::Plain(Plain { raw: to_bytes(&elements, width_code), width_code, stream })
}

fn predicted(described: &Described, base: &[u8]) -> Column {
    let width_code = described.width_code;
    let bytes = base[7..7 + (described.selection.0 << width_code)].to_vec();
    let operands = vec![Operand::of(vec![Range { source: 1, offset: 7, bytes: bytes.clone() }])];
    let predictor = 1 + (described.case % 2) as u8;
    let boundaries = if described.case.is_multiple_of(3) { vec![] } else { vec![40, 200] };
    let mut column = Predicted { raw: bytes, width_code, predictor, operands, boundaries, streams: vec![] };
    let mut residuals = Vec::new();
    for (context, count) in column.context_counts().expect("the range fits").into_iter().enumerate() {
        let (stream, elements) = match count {
            0 => (Stream::default(), Vec::new()),
            // Contexts differ.
            _ => Described { case: described.case + context, ..*described }.stream(count),
        };
        column.streams.push(stream);
        residuals.push(elements);
    }
    column.set_residuals(residuals).expect("the range fits");
    Column::Predicted(column)
}

/// The parts of a stream to make.
struct Described {
    /// Of mask.
    kind: usize,
    values: Values,
    width_code: u8,
    selection: Selection,
    /// Chooses the parts that all of them may have.
    case: usize,
}

impl Described {
    /// A stream of `n` elements; one at least is selected.
    fn stream(&self, n: usize) -> (Stream, Vec<u64>) {
        let Self { kind, values, width_code, selection: (_, is_selected), case } = *self;
        let w = 8 << width_code;
        let mut random = Random::new((case * n) as u64);
        let mut selected: Vec<bool> = (0..n).map(|e| is_selected(e, &mut random)).collect();
        selected[n - 1] |= !selected.contains(&true);
        let count = selected.iter().filter(|&&is| is).count();

        let mut stream = Stream { mask: self.mask(&selected), selected: Some(selected.clone()), ..Stream::default() };
        stream.map = if values == Values::Palette { 3 } else { (case % 3) as u8 };
        stream.palette = if values == Values::Palette { palette(&mut random, 16, width_code) } else { Vec::new() };
        let mut coded = self.coded(count, &mut stream, &mut random).into_iter();
        let mut value = |is_selected: &bool| {
            let v = if *is_selected { coded.next().expect("there is one for each") } else { 0 };
            v | if kind == SIGNED { random.below(2) } else { 0 }
        };
        let elements = selected.iter().map(|is| stream.unmapped(value(is), w)).collect();
        (stream, elements)
    }

    /// The mask, whose bytes are coded in every way.
    fn mask(&self, selected: &[bool]) -> Mask {
        let bytes: Vec<u8> =
            selected.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit))).collect();
        let coded = |coder| Cluster { coder, ..Cluster::default() };
        let cluster = match self.case % 4 {
            _ if bytes.iter().all(|&byte| byte == 255) => Cluster { constant: Some(255), z: 8, ..Cluster::default() },
            0 => Cluster { k: 8, ..Cluster::default() },
            1 => coded(Coder::huffman(&bytes, true)),
            2 => coded(Coder::rans(&bytes[..bytes.len().div_ceil(2)], true)),
            _ => coded(Coder::fine_rans(&bytes, false)),
        };
        [Mask::Bits(cluster.clone()), Mask::BitsAndSigns(cluster), Mask::Gaps][self.kind].clone()
    }

    /// Mapped values of selected elements, without signs that are apart, and in `stream` how they are coded.
    fn coded(&self, count: usize, stream: &mut Stream, random: &mut Random) -> Vec<u64> {
        let w = 8 << self.width_code;
        // Where signs are apart, bit 0 is 0.
        let z = u8::from(self.kind == SIGNED);
        let mut values = |k: u8| -> Vec<u64> { (0..count).map(|_| (random.u64() & low_bits(k)) << z).collect() };
        let patched = matches!(self.values, Values::OneCluster { patched } | Values::Clusters { patched } if patched);
        // Without patches the elements are as wide as they may be.
        let k = if patched { w / 2 } else { w } - z;
        let cluster = Cluster { z, k, h: w - z - k, ..Cluster::default() };
        let mut coded = match self.values {
            Values::OneCluster { .. } => {
                stream.clusters = vec![cluster];
                values(k)
            }
            Values::Clusters { .. } => {
                let runs = count.div_ceil(128);
                stream.cluster_of = (0..runs).map(|run| [2, 0][run % 2]).collect();
                // Cluster 1 is empty; cluster 2 has a bit less and a constant.
                let constant = 1 << (k - 1 + z);
                let less = Cluster { constant: Some(constant), k: k - 1, h: cluster.h + 1, ..cluster.clone() };
                stream.clusters = vec![cluster.clone(), cluster, less];
                stream.cluster_map = match self.case % 2 {
                    0 => Cluster { k: 2, h: 6, ..Cluster::default() },
                    _ => Cluster { coder: Coder::fine_rans(&stream.cluster_of, false), ..Cluster::default() },
                };
                let cluster_of = |i: usize| stream.cluster_of[i / 128];
                let mut values = values(k);
                values.iter_mut().enumerate().filter(|&(i, _)| cluster_of(i) == 2).for_each(|(_, v)| *v |= constant);
                values
            }
            Values::SignPlane => {
                // With signs apart, too, if they are.
                stream.clusters = vec![Cluster { z: 1, k: w - 1, sign_plane: true, ..Cluster::default() }];
                values(w - z)
            }
            Values::Symbols => {
                let s = 8 - z;
                let values = values(w - z);
                let symbols: Vec<u8> = values.iter().map(|v| (v >> (w - s)) as u8).collect();
                // Half of them are literals, if they are not known by chance.
                let coder = Coder::rans(&symbols[..count.div_ceil(2)], true);
                stream.clusters = vec![Cluster { z, k: w - 8, coder, ..Cluster::default() }];
                values
            }
            Values::Palette => {
                stream.clusters = vec![Cluster { z, k: 4 - z, h: w - 4, ..Cluster::default() }];
                values(4 - z)
            }
            Values::Listed => {
                // None of them is 0; gaps have open bits, or not.
                let gaps = self.case.is_multiple_of(2).then(|| NumberCode { raw: 11, first: 0, lengths: vec![0] });
                stream.patch_codes = PatchCodes { gaps, ..PatchCodes::default() };
                values(w - z).into_iter().map(|v| v.max(1 << z)).collect()
            }
        };
        if patched {
            // The first element, the last one, and some between.
            let low = w / 2;
            stream.patch_codes.low = if self.case.is_multiple_of(2) { low } else { 0 };
            for (i, v) in coded.iter_mut().enumerate() {
                if i == 0 || i == count - 1 || random.below(10) == 0 {
                    let x = (1 + random.below(low_bits(low))) << low;
                    *v ^= x;
                    stream.patches.push(Patch { element: i as u64, x });
                }
            }
        }
        coded
    }
}
