//! Tensor lists (§3.8) from a description.

use super::super::faults::Faults;
use super::super::tensor_list;
use super::super::tensors::DTYPES;
use super::block::Column;
use super::{Segment, string, varint};

/// Name and bits of each dtype, in order of their codes; the first is that of opaque bytes (§4).
pub const LIST_DTYPES: [(&str, u64); 23] = DTYPES;

/// A list, and the column that it describes.
#[derive(Clone, Debug)]
pub struct TensorList {
    pub front: Vec<u8>,
    pub tensors: Vec<ListedTensor>,
    pub back: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct ListedTensor {
    /// The whole name.
    pub name: Vec<u8>,
    pub dtype: u8,
    pub shape: Vec<u64>,
    /// Bytes of the shared prefix, which are not written.
    pub shared: u64,
    /// Whether the shape is that of the tensor before, and not written.
    pub same_shape: bool,
}

impl ListedTensor {
    /// Its length in bytes, unless there is none (§2.3).
    pub fn length(&self) -> Option<u64> {
        let elements = self.shape.iter().try_fold(1u64, |product, &dimension| product.checked_mul(dimension))?;
        let bits = elements.checked_mul(bits(self.dtype))?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

fn bits(dtype: u8) -> u64 {
    DTYPES.get(usize::from(dtype)).map_or(8, |&(_, bits)| bits)
}

impl TensorList {
    /// Tensors of these names, dtypes and shapes, with the longest shared prefixes and all repeated shapes shared.
    pub fn new(front: &str, tensors: &[(&str, u8, &[u64])], back: &str) -> Self {
        let mut list = Self { front: front.into(), tensors: Vec::new(), back: back.into() };
        for &(name, dtype, shape) in tensors {
            list.push(name, dtype, shape, usize::MAX, true);
        }
        list
    }

    /// Adds a tensor whose name shares the longest possible prefix, of at most `most_shared` bytes, with the one before; a
    /// repeated shape is written unless `refer`.
    pub fn push(&mut self, name: &str, dtype: u8, shape: &[u64], most_shared: usize, refer: bool) {
        let before = self.tensors.last();
        let alike =
            before.map_or(0, |before| before.name.iter().zip(name.bytes()).take_while(|(a, b)| *a == b).count());
        let mut shared = alike.min(most_shared);
        while !name.is_char_boundary(shared) {
            shared -= 1;
        }
        let same_shape = refer && before.is_some_and(|before| before.shape == shape);
        let (name, shape, shared) = (name.into(), shape.to_vec(), shared as u64);
        self.tensors.push(ListedTensor { name, dtype, shape, shared, same_shape });
    }

    /// The list, unpacked.
    pub fn list(&self) -> Vec<u8> {
        let mut out = Vec::new();
        string(&mut out, &self.front);
        varint(&mut out, self.tensors.len() as u64);
        for ListedTensor { name, dtype, shape, shared, same_shape } in &self.tensors {
            let rest = name.get(*shared as usize..).unwrap_or_default();
            Segment {
                dtype: *dtype,
                length: 0,
                shared: *shared,
                name: rest.to_vec(),
                same_shape: *same_shape,
                shape: shape.clone(),
            }
            .write(&mut out);
        }
        string(&mut out, &self.back);
        out
    }

    /// The bytes of the column. For an invalid list, those of a decoder without checks: numbers wrap around.
    pub fn raw(&self) -> Vec<u8> {
        let mut text = self.front.clone();
        let mut begin = 0u64;
        for (i, tensor) in self.tensors.iter().enumerate() {
            let dtype = DTYPES.get(usize::from(tensor.dtype)).map_or("unknown", |&(name, _)| name);
            let shape = tensor.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            let product = tensor.shape.iter().fold(bits(tensor.dtype), |product, &d| product.wrapping_mul(d));
            let end = begin.wrapping_add(product / 8);
            let before: &[u8] = if i == 0 { b"\"" } else { b",\"" };
            let after = format!(r#"":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{begin},{end}]}}"#);
            text.extend([before, &tensor.name, after.as_bytes()].concat());
            begin = end;
        }
        text.extend(&self.back);
        [&(text.len() as u64).to_le_bytes()[..], &text].concat()
    }

    pub fn column(&self) -> Column {
        Column::TensorList { raw: self.raw(), list: self.list() }
    }
}

/// The column that a changed list describes, if the list can be read in spite of its faults and the column has at most
/// `most` bytes.
pub fn told_by(list: &[u8], most: usize) -> Option<Vec<u8>> {
    let header = tensor_list::header(list, most.checked_sub(8)?, &mut Faults::default()).ok()?;
    Some([&(header.len() as u64).to_le_bytes()[..], &header].concat())
}
