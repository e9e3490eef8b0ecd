//! How far the elements of a tensor moved.

use lmc::Dtype;
use lmc::internals::coding_of;
use lmc_kernels::map::Map;

use crate::element::{load, ordered, signed, with_width};

/// How the elements of a tensor differ from those of its counterpart.
///
/// Elements are the units of the codec: those of the dtype, but halves of a `C64`, and bytes of opaque data and where
/// an element has fewer than eight bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// Elements that have a counterpart.
    pub compared: u64,
    /// Those of them whose bits are not the same.
    pub changed: u64,
    /// How many changed by a distance of 2^i to 2^(i+1) − 1, for each i up to the largest; empty for dtypes
    /// whose values have no order.
    ///
    /// The distance of floats is the number of representable values from one to the other (units in the last place),
    /// where zeros of both signs are neighbours, and infinities and NaNs follow the largest values. That of integers is
    /// their difference.
    pub levels: Vec<u64>,
    /// The largest distance; 0 where there is none.
    pub largest: u64,
}

impl Changes {
    /// The level that the given share (0 to 1) of the changed elements does not exceed; `None` if there are no distances.
    pub fn quantile(&self, share: f64) -> Option<usize> {
        let total: u64 = self.levels.iter().sum();
        let wanted = (total as f64 * share).ceil().max(1.0) as u64;
        let mut sum = 0;
        self.levels.iter().position(|&n| {
            sum += n;
            sum >= wanted.min(total) && total > 0
        })
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.compared += other.compared;
        self.changed += other.changed;
        self.largest = self.largest.max(other.largest);
        if self.levels.len() < other.levels.len() {
            self.levels.resize(other.levels.len(), 0);
        }
        self.levels.iter_mut().zip(&other.levels).for_each(|(n, m)| *n += m);
    }
}

/// The measure of the distance between values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Nothing: they are the same or not.
    None,
    Unsigned,
    Signed,
    Float,
}

impl Order {
    fn of(dtype: Option<Dtype>) -> Self {
        match dtype {
            None | Some(Dtype::Bool) => Order::None,
            Some(d) if d.bits() < 8 => Order::None,
            Some(d) => match coding_of(d).1 {
                Map::Identity => Order::Unsigned,
                Map::Zigzag => Order::Signed,
                Map::Rotate => Order::Float,
            },
        }
    }
}

/// Tables of counts.
const TABLES: usize = 4;

/// Bytes that are compared before their elements are.
const STRETCH: usize = 64;

/// Counts the changes from `old` to `new`, both whole elements of `dtype` and of one length.
pub(crate) fn measure(dtype: Option<Dtype>, new: &[u8], old: &[u8]) -> Changes {
    assert_eq!(new.len(), old.len(), "element for element");
    let order = Order::of(dtype);
    with_width!(dtype.map_or(1, Dtype::coding_width), measure_as(order, new, old))
}

fn measure_as<const WIDTH: usize>(order: Order, new: &[u8], old: &[u8]) -> Changes {
    // A loop for each order.
    match order {
        Order::None => measure_by::<WIDTH>(|_, _| 0, false, new, old),
        Order::Unsigned => measure_by::<WIDTH>(u64::abs_diff, true, new, old),
        Order::Signed => measure_by::<WIDTH>(|a, b| signed::<WIDTH>(a).abs_diff(signed::<WIDTH>(b)), true, new, old),
        Order::Float => measure_by::<WIDTH>(|a, b| ordered::<WIDTH>(a).abs_diff(ordered::<WIDTH>(b)), true, new, old),
    }
}

/// The length of a distance in bits.
#[inline(always)]
fn length<const WIDTH: usize>(distance: u64) -> usize {
    match WIDTH {
        8 => 64 - distance.leading_zeros() as usize,
        // Most processors' instruction needs a branch for 0.
        _ => 63 - (distance << 1 | 1).leading_zeros() as usize,
    }
}

/// `distance`: of elements that differ; `ordered`: whether there is any.
#[inline(always)]
fn measure_by<const WIDTH: usize>(
    distance: impl Fn(u64, u64) -> u64,
    ordered: bool,
    new: &[u8],
    old: &[u8],
) -> Changes {
    // One for each bit length. Neighbours, which often have the same, count in tables of their own.
    let mut tables = [[0u64; 65]; TABLES];
    let (mut changed, mut largest) = (0, 0);
    let mut count = |table: &mut [u64; 65], a: &[u8; WIDTH], b: &[u8; WIDTH]| {
        let (a, b) = (load::<WIDTH>(a), load::<WIDTH>(b));
        // Whether an element changed cannot be foreseen: no branch.
        changed += u64::from(a != b);
        let distance = distance(a, b);
        table[length::<WIDTH>(distance)] += 1;
        largest = distance.max(largest);
    };
    let ((stretches, rest), (old_stretches, old_rest)) = (new.as_chunks::<STRETCH>(), old.as_chunks::<STRETCH>());
    for (new, old) in stretches.iter().zip(old_stretches).filter(|(new, old)| new != old) {
        let ((new, _), (old, _)) = (new.as_chunks::<WIDTH>(), old.as_chunks::<WIDTH>());
        // A stretch has as many elements as there are tables, or some times as many.
        let ((new, _), (old, _)) = (new.as_chunks::<TABLES>(), old.as_chunks::<TABLES>());
        for (new, old) in new.iter().zip(old) {
            tables.iter_mut().zip(new.iter().zip(old)).for_each(|(table, (a, b))| count(table, a, b));
        }
    }
    let ((rest, _), (old_rest, _)) = (rest.as_chunks::<WIDTH>(), old_rest.as_chunks::<WIDTH>());
    rest.iter().zip(old_rest).for_each(|(a, b)| count(&mut tables[0], a, b));
    let mut changes = Changes { compared: (new.len() / WIDTH) as u64, changed, levels: vec![], largest };
    if ordered {
        let levels: [u64; 65] = std::array::from_fn(|i| tables.iter().map(|t| t[i]).sum());
        // Length 0 is that of elements that did not change.
        let used = 65 - levels.iter().rev().take_while(|&&n| n == 0).count();
        changes.levels = levels.get(1..used).unwrap_or_default().to_vec();
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn distances_of_floats() {
        let old = f32s(&[1.0, 1.0, -1.0, 0.0, f32::MAX, 2.0, f32::NAN]);
        let new = f32s(&[1.0, 1.0_f32.next_up(), -1.0_f32, -0.0, f32::INFINITY, -2.0, f32::NAN]);
        let c = measure(Some(Dtype::F32), &new, &old);
        assert_eq!((c.compared, c.changed), (7, 4));
        assert_eq!((c.levels[0], c.levels.iter().sum::<u64>()), (3, 4));
        assert_eq!(c.largest, 2 * u64::from(2.0_f32.to_bits()) + 1, "the zeros are two");
        assert_eq!(c.levels.len(), 32);
        assert_eq!(
            (c.quantile(0.5), c.quantile(0.75), c.quantile(0.76), c.quantile(1.0)),
            (Some(0), Some(0), Some(31), Some(31))
        );
    }

    #[test]
    fn distances_of_what_is_not_a_number() {
        let c = measure(Some(Dtype::Bf16), &0x7fc0u16.to_le_bytes(), &0x7f80u16.to_le_bytes());
        assert_eq!((c.changed, c.largest), (1, 0x40));
        let c = measure(Some(Dtype::F64), &u64::MAX.to_le_bytes(), &(u64::MAX >> 1).to_le_bytes());
        assert_eq!((c.largest, c.levels.len()), (u64::MAX, 64));
    }

    #[test]
    fn distances_of_integers() {
        let c = measure(Some(Dtype::U8), &[255, 0, 7], &[0, 255, 7]);
        assert_eq!((c.changed, c.largest), (2, 255));
        let c = measure(Some(Dtype::I8), &[255, 0, 7], &[0, 255, 7]);
        assert_eq!((c.changed, c.largest, &c.levels[..]), (2, 1, &[2][..]));
        let c = measure(Some(Dtype::I64), &i64::MIN.to_le_bytes(), &i64::MAX.to_le_bytes());
        assert_eq!((c.largest, c.levels.len()), (u64::MAX, 64));
    }

    #[test]
    fn bytes_have_no_distance() {
        for dtype in [None, Some(Dtype::Bool), Some(Dtype::F4)] {
            let c = measure(dtype, &[1; 200], &[[1; 199].as_slice(), &[9]].concat());
            assert_eq!((c.compared, c.changed, c.largest, c.levels.len()), (200, 1, 0, 0));
            assert_eq!(c.quantile(0.5), None);
        }
        assert_eq!(measure(Some(Dtype::F32), &[], &[]), Changes::default());
    }

    #[test]
    fn counts_add_up() {
        let (a, b) = (measure(Some(Dtype::U8), &[9, 5], &[1, 5]), measure(Some(Dtype::U8), &[2], &[1]));
        let mut sum = b.clone();
        sum.add(&a);
        assert_eq!(sum, measure(Some(Dtype::U8), &[9, 5, 2], &[1, 5, 1]));
        sum = a;
        sum.add(&b);
        assert_eq!((sum.levels, sum.largest), (vec![1, 0, 0, 1], 8));
    }
}
