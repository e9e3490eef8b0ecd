//! Tensors as in the index (§2.3) and in tensor lists (§3.8), and their dtypes (§4).

use super::bytes::Bytes;
use super::faults::{Faults, must};

/// Name and bits of each dtype, in order of their codes; the first is that of opaque bytes (§4).
pub(super) const DTYPES: [(&str, u64); 23] = [
    ("opaque", 8),
    ("BOOL", 8),
    ("U8", 8),
    ("I8", 8),
    ("U16", 16),
    ("I16", 16),
    ("U32", 32),
    ("I32", 32),
    ("F16", 16),
    ("BF16", 16),
    ("F32", 32),
    ("U64", 64),
    ("I64", 64),
    ("F8_E4M3", 8),
    ("F8_E5M2", 8),
    ("F8_E4M3FNUZ", 8),
    ("F8_E5M2FNUZ", 8),
    ("F8_E8M0", 8),
    ("F4", 4),
    ("F6_E2M3", 6),
    ("F6_E3M2", 6),
    ("F64", 64),
    ("C64", 64),
];

/// The name and the shape of the tensor before, which the next one may refer to.
#[derive(Default)]
pub(super) struct Tensors {
    name: Vec<u8>,
    shape: Option<Vec<u64>>,
}

pub(super) struct Tensor<'a> {
    pub(super) name: &'a [u8],
    pub(super) dtype: &'static str,
    pub(super) shape: &'a [u64],
    /// In bytes.
    pub(super) length: u64,
}

impl Tensors {
    /// Reads the next tensor, which begins with `kind`.
    pub(super) fn next(&mut self, kind: u8, bytes: &mut Bytes<'_>, faults: &mut Faults) -> Result<Tensor<'_>, String> {
        let code = kind & 0x7f;
        must(code != 0, "a tensor is opaque")?;
        let &(dtype, bits) = DTYPES.get(usize::from(code)).ok_or("a tensor has an unknown dtype")?;

        let otherwise = "the name of a tensor shares what is not there";
        let shared = bytes.varint()?;
        must(shared <= self.name.len() as u64, otherwise)?;
        let continues = self.name.get(shared as usize).is_some_and(|byte| byte & 0xc0 == 0x80);
        faults.must(!continues, otherwise);
        self.name.truncate(shared as usize);
        self.name.extend(text(bytes, faults)?);

        if kind < 0x80 {
            let rank = bytes.varint()?;
            must(rank <= 64, "the rank of a tensor exceeds 64")?;
            self.shape = Some((0..rank).map(|_| bytes.varint()).collect::<Result<Vec<u64>, String>>()?);
        }
        faults.must(self.shape.is_some(), "the first tensor refers to the shape of one before");
        let shape = self.shape.get_or_insert_default();
        let bits = shape.iter().chain([&bits]).try_fold(1u64, |product, &factor| product.checked_mul(factor));
        let bits = bits.ok_or("the shape of a tensor gives no length: a product exceeds 64 bits")?;
        faults.must(bits % 8 == 0, "the shape of a tensor gives no length: it ends within a byte");
        Ok(Tensor { name: &self.name, dtype, shape, length: bits / 8 })
    }
}

/// The bytes of a string, which are to be UTF-8.
pub(super) fn text<'a>(bytes: &mut Bytes<'a>, faults: &mut Faults) -> Result<&'a [u8], String> {
    let length = bytes.varint()?;
    let text = bytes.take(length)?;
    faults.must(std::str::from_utf8(text).is_ok(), "a string is not UTF-8");
    Ok(text)
}
