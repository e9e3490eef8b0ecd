//! Tensors of the index (§2.3), and their dtypes (§4).

use super::bytes::Bytes;
use super::faults::must;

/// Name and bits of each dtype, in order of their codes; the first is that of opaque bytes (§4).
const DTYPES: [(&str, u64); 23] = [
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

/// The code of a dtype whose name and bits follow.
const NAMED: usize = 127;

fn named(bytes: &mut Bytes<'_>) -> Result<u64, String> {
    let name = bytes.string()?;
    must(matches!(name.len(), 1..=31), "the name of a dtype has no byte, or more than 31")?;
    must(name.bytes().all(|b| (0x21..0x7f).contains(&b)), "the name of a dtype has other characters than it may")?;
    must(DTYPES.iter().all(|dtype| dtype.0 != name), "a dtype that has a code is named")?;
    let bits = bytes.varint()?;
    must(matches!(bits, 1..=0x1_0000), "an element of a dtype has no bits, or more than 2^16")?;
    Ok(bits)
}

/// The name and the shape of the tensor before, which the next one may refer to.
#[derive(Default)]
pub(super) struct Tensors {
    name: String,
    shape: Option<Vec<u64>>,
    /// The bytes of all names so far, eight for each dimension, and 64 for each segment.
    pub(super) written_out: u64,
}

impl Tensors {
    /// Reads the next tensor, which begins with `kind`; its length in bytes.
    pub(super) fn next(&mut self, kind: u8, bytes: &mut Bytes<'_>) -> Result<u64, String> {
        let code = usize::from(kind & 0x7f);
        let bits =
            if code == NAMED { named(bytes)? } else { DTYPES.get(code).ok_or("a tensor has an unknown dtype")?.1 };

        let shared = usize::try_from(bytes.varint()?).ok();
        let shared = shared.and_then(|shared| self.name.get(..shared));
        let shared = shared.ok_or("the name of a tensor shares what is not there")?;
        self.name = shared.to_owned() + bytes.string()?;
        must(self.name.len() < 1 << 16, "the name of a tensor has more than 2^16 - 1 bytes")?;

        if kind < 0x80 {
            let rank = bytes.varint()?;
            must(rank <= 64, "the rank of a tensor exceeds 64")?;
            self.shape = Some((0..rank).map(|_| bytes.varint()).collect::<Result<_, String>>()?);
        }
        let shape = self.shape.as_ref().ok_or("the first tensor refers to the shape of one before")?;
        self.written_out += self.name.len() as u64 + 8 * shape.len() as u64;
        let bits = shape.iter().copied().chain([bits]).try_fold(1u64, |product, factor| product.checked_mul(factor));
        let bits = bits.ok_or("the shape of a tensor gives no length: a product exceeds 64 bits")?;
        must(bits % 8 == 0, "the shape of a tensor gives no length: it ends within a byte")?;
        Ok(bits / 8)
    }
}
