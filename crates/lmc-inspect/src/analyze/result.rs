//! The result of a study, for programs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::input::{Metric, StepsFrom};
use crate::kind::Kind;

/// The findings in one checkpoint, or in several in order.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Analysis {
    /// Version of this form: 1. Fields may be added without a new one.
    pub version: u32,
    /// The program that wrote it, such as `lmc 0.9.0`.
    pub program: String,
    /// Name of the level of compression of all sizes.
    pub level: String,
    /// Where steps come from. If from places, a step is a checkpoint, everywhere.
    pub steps_from: StepsFrom,
    /// The checkpoints, in order.
    pub checkpoints: Vec<Checkpoint>,
    /// Each checkpoint but the first, compared with the one before it.
    pub pairs: Vec<Pair>,
    /// All deltas that were measured: those of `pairs`, and those between checkpoints that are further apart.
    pub deltas: Vec<Delta>,
    /// The deltas over each distance in steps, added up; by distance.
    pub distances: Vec<Distance>,
    /// The changes in all pairs together, by kind and dtype: a tensor counts once in each pair.
    pub changes: Vec<GroupChange>,
    /// Numbers that were recorded beside the checkpoints, such as the loss, by name.
    pub metrics: Vec<Metric>,
    /// How the floats of each kind moved, by the name of the kind.
    pub kinds: Vec<GroupCourse>,
    /// How the weights of each layer moved: those of the model, or if there are none, their copies.
    pub layers: Vec<GroupCourse>,
    /// How large the floats of the last checkpoint are, by kind and dtype.
    pub magnitudes: Vec<GroupMagnitudes>,
    /// The tensors of the last checkpoint, in order.
    pub tensors: Vec<Tensor>,
    /// Tensors of the last checkpoint that are not listed, because there are too many; they are counted in all groups.
    pub tensors_left_out: u64,
    /// Other compressors beside `lmc`, if that was asked for.
    pub engines: Option<Engines>,
    /// The findings, in sentences.
    pub advice: Vec<String>,
}

/// The part of a tensor's bytes that must have had a format, to say that of the tensor.
pub(crate) const NEARLY_ALL: f64 = 0.95;

impl Analysis {
    /// The distance that most deltas have; of several, the shortest.
    pub(crate) fn usual_distance(&self) -> Option<&Distance> {
        self.distances.iter().rev().max_by_key(|d| d.deltas)
    }

    /// How many elements of tensors changed in all pairs, and how many were compared.
    pub(crate) fn changed_elements(&self) -> (u64, u64) {
        let of_tensors = self.changes.iter().filter(|g| g.kind != Kind::Other);
        of_tensors.fold((0, 0), |(c, n), g| (c + g.change.changed, n + g.change.compared))
    }
}

/// A checkpoint.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Its name, as it was given.
    pub name: String,
    /// Its step, as [`Analysis::steps_from`] says.
    pub step: u64,
    /// What was recorded with it: the metadata of a snapshot.
    pub metadata: BTreeMap<String, String>,
    /// Names of its files.
    pub files: Vec<String>,
    /// Formats of its files, such as `safetensors`.
    pub formats: Vec<String>,
    /// All of it. The sizes are those of its files; those of groups exclude the container.
    pub all: Figures,
    /// By the purpose of tensors.
    pub kinds: Vec<Group>,
    /// By the type of elements.
    pub dtypes: Vec<Group>,
}

/// Figures of tensors of one kind or of one dtype.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Group {
    /// The kind's or dtype's name; `opaque` for bytes of no tensor.
    pub name: String,
    /// The figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Figures of the elements of one or more tensors.
///
/// An element is the unit of the codec: one of the dtype, but a half of a `C64`, and a byte where elements have fewer
/// than eight bits, are blocks of quantised ones, or have no type. Entropies are means over all elements, in bits an
/// element, of each tensor by itself: the length of an ideal code that knows how often each value occurs in the tensor,
/// and nothing else.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// Number of tensors.
    pub tensors: u64,
    /// Number of elements.
    pub elements: u64,
    /// Bytes as they are.
    pub raw_size: u64,
    /// Bytes that `lmc` needs without a base; of a tensor, its share of the blocks that it lies in.
    pub lmc_size: u64,
    /// Mean bits of an element.
    pub element_bits: f64,
    /// Mean bits that `lmc` needs for an element without a base.
    pub lmc_bits: f64,
    /// Entropy of the signs of floats, 0 to 1 bit.
    pub sign_entropy: f64,
    /// Entropy of the exponents of floats, in bits.
    pub exponent_entropy: f64,
    /// Entropy of the mantissas of floats, or of all bits of other elements. Of more than ten bits, it is the sum of those of their bytes from the
    /// lowest, which the entropy of the whole does not exceed.
    pub mantissa_entropy: f64,
    /// Elements that are zero, of either sign.
    pub zeros: u64,
    /// Floats of 16 or more bits that are infinite or no numbers.
    pub not_finite: u64,
    /// Different values of the exponents of floats, as the bits of the field; those of several dtypes count together.
    pub distinct_exponents: u64,
}

/// How large the floats of a kind and dtype are.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct GroupMagnitudes {
    /// What the tensors are for.
    pub kind: Kind,
    /// The type of their elements.
    pub dtype: String,
    /// The power of two that the first count begins at.
    pub lowest: i32,
    /// How many elements have a magnitude from 2^e to below 2^(e + 1), for e = `lowest`, `lowest` + 1, …: the exponents of
    /// floats. Subnormal numbers count as the exponent below the first of the others. Zeros, and what is infinite or no
    /// number, are left out; but the NaN of `F8_E4M3` counts as 2^8, and that of types with `FNUZ` as subnormal.
    pub counts: Vec<u64>,
}

/// How floats of 16 or more bits moved. Those that are not finite, or were not, are left out. What does not exist, such as
/// the update of a tensor that is new, is `None`.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Course {
    /// For each checkpoint, the Euclidean norm ‖w‖.
    pub norm: Vec<Option<f32>>,
    /// For each checkpoint, the root of the mean square.
    pub rms: Vec<Option<f32>>,
    /// For each pair, the norm of the update, ‖Δw‖.
    pub update_norm: Vec<Option<f32>>,
    /// For each pair, the root of its mean square.
    pub update_rms: Vec<Option<f32>>,
    /// For each pair, ‖Δw‖ / ‖w‖, of the weights before.
    pub ratio: Vec<Option<f32>>,
    /// For each pair, the cosine of the angle between the update and the one before: −1 to 1.
    pub cosine: Vec<Option<f32>>,
    /// For each pair, the part of the elements whose bits are not the same, 0 to 1.
    pub changed: Vec<Option<f32>>,
    /// Pairs whose ratio stands out from those around it, by number.
    pub spikes: Vec<usize>,
}

/// How the floats of a group of tensors moved.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct GroupCourse {
    /// The name of the kind or of the layer.
    pub name: String,
    /// How they moved.
    #[serde(flatten)]
    pub course: Course,
}

/// A checkpoint compared with the one before it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Pair {
    /// Number of the earlier checkpoint.
    pub from: usize,
    /// Number of the later one.
    pub to: usize,
    /// Steps between them.
    pub steps: u64,
    /// All of it.
    pub all: Change,
    /// By kind and dtype.
    pub groups: Vec<GroupChange>,
    /// Tensors of the earlier one that are the counterpart of none of the later one.
    pub missing_tensors: u64,
    /// The names of the first eight.
    pub missing_names: Vec<String>,
    /// Tensors of the later one without a counterpart.
    pub new_tensors: u64,
    /// The names of the first eight.
    pub new_names: Vec<String>,
}

/// The changes of the elements of one or more tensors.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// Number of tensors, those without a counterpart among them.
    pub tensors: u64,
    /// Those of them that have a counterpart of the same name, dtype and shape with the same elements, if they have any.
    pub unchanged_tensors: u64,
    /// Bytes as they are.
    pub raw_size: u64,
    /// Bytes that `lmc` needs given the earlier checkpoint. Tensors that share a predicted column of a block divide it by
    /// what changed: each element that moved counts as many bits as its distance has, and one for its direction.
    pub delta_size: u64,
    /// Bytes that `lmc` needs without it.
    pub lmc_size: u64,
    /// Elements that have a counterpart, if necessary after conversion to their dtype.
    pub compared: u64,
    /// Those of them whose bits are not the same.
    pub changed: u64,
    /// How many of them changed by a distance of 2^i to 2^(i+1) − 1 for i = 0, 1, …; the distance of floats counts representable values (units
    /// in the last place), that of integers is their difference. Bytes without an order have none.
    pub distances: Vec<u64>,
    /// The largest distance.
    pub largest_distance: u64,
}

/// The changes of the elements of a kind and dtype.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct GroupChange {
    /// What the tensors are for.
    pub kind: Kind,
    /// The type of their elements; `opaque` for bytes of no tensor.
    pub dtype: String,
    /// Their changes.
    #[serde(flatten)]
    pub change: Change,
    /// For each bit of an element from the lowest: in how many of the compared elements it is not the same.
    pub flips: Vec<u64>,
}

/// Sizes of a delta.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Delta {
    /// Number of the earlier checkpoint, which is the base.
    pub from: usize,
    /// Number of the later one.
    pub to: usize,
    /// Steps between them.
    pub steps: u64,
    /// Bytes of the later one as they are.
    pub raw_size: u64,
    /// Bytes of the delta.
    pub delta_size: u64,
    /// By kind and dtype.
    pub groups: Vec<GroupDelta>,
    /// Of its floats, beside the entropy of their differences.
    pub floats: FloatDelta,
}

/// The floats in one or more deltas that have counterparts in the bases, if necessary after conversion to their dtype.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FloatDelta {
    /// Bytes as they are.
    pub raw_size: u64,
    /// Bytes in the delta: their shares of the blocks that they lie in.
    pub delta_size: u64,
    /// Bytes that the entropy of the differences is, as [`DifferenceEntropy`](crate::DifferenceEntropy) has it: of each
    /// dtype of a delta by itself, without what it takes to know how often each difference occurs. Of 16-bit floats,
    /// no code that treats elements with one exponent alike needs less, but one that knows more may.
    pub entropy_size: u64,
}

/// The size of a kind and dtype in one or more deltas.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct GroupDelta {
    /// What the tensors are for.
    pub kind: Kind,
    /// The type of their elements; `opaque` for bytes of no tensor.
    pub dtype: String,
    /// Bytes as they are.
    pub raw_size: u64,
    /// Bytes in the delta.
    pub delta_size: u64,
}

/// All deltas over one distance.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Distance {
    /// The distance.
    pub steps: u64,
    /// How many deltas there are.
    pub deltas: u64,
    /// Bytes of the later checkpoints as they are, added up.
    pub raw_size: u64,
    /// Bytes of the deltas, added up.
    pub delta_size: u64,
    /// By kind and dtype, added up.
    pub groups: Vec<GroupDelta>,
    /// The floats, added up.
    pub floats: FloatDelta,
}

/// A tensor of the last checkpoint.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Tensor {
    /// Number of the checkpoint's file that it is in, from 0.
    pub file: usize,
    /// Its name.
    pub name: String,
    /// Its purpose.
    pub kind: Kind,
    /// The type of its elements.
    pub dtype: String,
    /// Its dimensions, outermost first.
    pub shape: Vec<u64>,
    /// Its figures in the last checkpoint.
    #[serde(flatten)]
    pub figures: Figures,
    /// How many different values its elements have, if they have 8 or 16 bits.
    pub distinct_values: Option<u64>,
    /// A narrower type that has all its values, such as `BF16` for numbers of `F32` whose low 16 bits are 0.
    pub fits: Option<String>,
    /// The format that weights had before they were dequantised, and the rows and columns that a scale has: `fp8 e4m3 128 × 128`.
    pub quantised: Option<String>,
    /// The part of its bytes that had it, 0 to 1.
    pub quantised_part: f64,
    /// Number of an earlier tensor of this list with the same dtype and bytes; `None` if it has no elements.
    pub duplicate_of: Option<usize>,
    /// Its changes in all pairs together, since it has its name, dtype and shape; `None` if no pair compares it.
    pub change: Option<TensorChange>,
    /// How it moved since it has its name, dtype and shape. Empty if all tensors have more than a
    /// million such points.
    pub course: Course,
}

/// The changes of a tensor in all pairs together.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TensorChange {
    /// In how many pairs it was compared.
    pub pairs: u64,
    /// In how many of them it had the elements that it had before, all of them.
    pub unchanged_pairs: u64,
    /// Elements that were compared, in all pairs together.
    pub compared: u64,
    /// Those of them that changed.
    pub changed: u64,
    /// As of [`GroupChange`].
    pub flips: Vec<u64>,
    /// As of [`Change`].
    pub distances: Vec<u64>,
    /// Bytes in the deltas of all pairs.
    pub delta_size: u64,
    /// Bytes that they are without bases.
    pub raw_size: u64,
}

impl TensorChange {
    /// Whether all its elements were compared in each of `pairs` pairs, and none changed.
    pub(crate) fn never_changes(&self, pairs: usize) -> bool {
        pairs > 0 && self.pairs == pairs as u64 && self.unchanged_pairs == self.pairs
    }
}

/// Compressors beside each other, on a sample.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Engines {
    /// The origin of the sample: the type of its elements, and the checkpoint's name.
    pub of: String,
    /// Bytes of the sample.
    pub sample_size: u64,
    /// How many pieces of the file it has, evenly spread.
    pub pieces: u64,
    /// The measurements.
    pub engines: Vec<Engine>,
    /// The one of them that was given XORs over each distance, too: name and level.
    pub xor_by: String,
    /// Deltas of such samples over each distance in steps, of at most as many pairs as were chosen for it; by distance.
    pub distances: Vec<EngineDistance>,
}

/// Samples of all pairs of checkpoints over one distance, added up.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EngineDistance {
    /// The distance.
    pub steps: u64,
    /// How many deltas there are.
    pub deltas: u64,
    /// Bytes of the samples.
    pub raw_size: u64,
    /// Bytes of `lmc`'s deltas.
    pub lmc_size: u64,
    /// Bytes that the entropy of the differences is, as in [`FloatDelta`]; `None` if the samples are no floats.
    pub entropy_size: Option<u64>,
    /// Bytes that [`Engines::xor_by`] makes of the exclusive or, and of its bytes grouped.
    pub xor_size: u64,
    /// `None` where elements of one byte leave nothing to group.
    pub xor_grouped_size: Option<u64>,
}

/// One compressor on one arrangement of the bytes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Engine {
    /// Its name and level.
    pub name: String,
    /// `as is`, or `grouped`: all first bytes of elements, then all second bytes, and so on.
    pub order: String,
    /// `nothing`, or `xor`: the exclusive or with the checkpoint before in place of the bytes, or `base`: the checkpoint before beside them.
    pub given: String,
    /// Bytes before.
    pub raw_size: u64,
    /// Bytes after.
    pub size: u64,
    /// Speed of compression, relative to copying as many bytes.
    pub compress_of_memcpy: f64,
    /// Speed of decompression, relative to copying as many bytes.
    pub decompress_of_memcpy: f64,
    /// How far a half of the rounds was from the median of compression, as a part of it; `None` of less than four.
    pub compress_spread: Option<f64>,
    /// The same of decompression.
    pub decompress_spread: Option<f64>,
}
