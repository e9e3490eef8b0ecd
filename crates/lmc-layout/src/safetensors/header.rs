//! Parses the JSON header; accepts the headers that the `safetensors` crate accepts, and some whose unknown fields it refuses.
//!
//! [`compact`] reads headers that the crate wrote, several times as fast; serde reads any other JSON, and keeps only tensors, so that
//! memory stays near the header's own size.

pub(super) mod compact;
mod parsed;

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error as _, IgnoredAny, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::start::METADATA;
use crate::dtype::Dtype;
use crate::segment::{MAX_RANK, Name, Names, Segment, Shape};
pub(super) use parsed::{Entry, Parsed};
use parsed::{Pairs, cost_of_pair, dtype_of, entry};

/// Parses a header, and keeps its metadata if they are asked for.
///
/// # Errors
/// The reason, when it is invalid, or takes more than `max_cost` bytes of memory.
pub(super) fn parse(json: &[u8], max_cost: usize, with_metadata: bool) -> Result<Parsed, String> {
    let json = std::str::from_utf8(json).map_err(|e| e.to_string())?;
    match compact::parse(json, max_cost, with_metadata) {
        Some(parsed) => Ok(parsed),
        None => with_serde(json, max_cost, with_metadata).map_err(|e| e.to_string()),
    }
}

/// Parses any JSON.
fn with_serde(json: &str, max_cost: usize, with_metadata: bool) -> serde_json::Result<Parsed> {
    let mut d = serde_json::Deserializer::from_str(json);
    let parsed = Contents { max_cost, with_metadata }.deserialize(&mut d)?;
    d.end().map(|()| parsed)
}

/// The contents of a header, within a limit of memory in bytes.
struct Contents {
    max_cost: usize,
    with_metadata: bool,
}

impl<'de> DeserializeSeed<'de> for Contents {
    type Value = Parsed;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Contents {
    type Value = Parsed;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut names, mut entries) = (Names::default(), Vec::new());
        let mut left = self.max_cost;
        let mut metadata = None;
        while let Some(key) = map.next_key_seed(Key(&mut names))? {
            let Some(name) = key else {
                if metadata.is_some() {
                    return Err(A::Error::duplicate_field(METADATA));
                }
                metadata = Some(map.next_value_seed(Metadata { keep: self.with_metadata, left: &mut left })?);
                continue;
            };
            let Info { dtype, shape, offsets } = map.next_value()?;
            left = left
                .checked_sub(Segment::cost(name.size(), shape.len()))
                .ok_or_else(|| A::Error::custom("too many tensors"))?;
            entries.push(entry(name, dtype, shape, offsets));
        }
        names.finish();
        Ok(Parsed { entries, sorted: false, metadata: metadata.flatten() })
    }
}

/// A key of the header: the stored name of a tensor, or `None` for the metadata.
struct Key<'a>(&'a mut Names);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<Name>;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<Name>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a tensor")
    }
    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        if name == METADATA {
            return Ok(None);
        }
        self.0.push(name).map(Some).ok_or_else(|| E::custom("too many tensors"))
    }
}

/// A map of strings to strings, or `null`: checked, and dropped unless it is to be kept.
struct Metadata<'a> {
    keep: bool,
    left: &'a mut usize,
}

impl<'de> DeserializeSeed<'de> for Metadata<'_> {
    type Value = Option<Pairs>;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Metadata<'_> {
    type Value = Option<Pairs>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }
    fn visit_none<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_map(self)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Pairs::new();
        while let Some((key, value)) = map.next_entry::<String, String>()? {
            if self.keep {
                *self.left = self
                    .left
                    .checked_sub(cost_of_pair(&key, &value))
                    .ok_or_else(|| A::Error::custom("too much metadata"))?;
                pairs.push((key, value));
            }
        }
        Ok(Some(pairs))
    }
}

/// A tensor without its name: a map, or a sequence of the three values.
struct Info {
    dtype: Option<Dtype>,
    shape: Shape,
    offsets: (u64, u64),
}

impl<'de> Deserialize<'de> for Info {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Info;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tensor's dtype, shape and data_offsets")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Info, A::Error> {
                let (mut dtype, mut shape, mut offsets) = (None, None, None);
                while let Some(key) = map.next_key::<String>()? {
                    let again = match &key[..] {
                        "dtype" => dtype.replace(map.next_value::<DtypeName>()?).is_some(),
                        "shape" => shape.replace(map.next_value::<Dimensions>()?).is_some(),
                        "data_offsets" => offsets.replace(map.next_value::<(u64, u64)>()?).is_some(),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            false
                        }
                    };
                    if again {
                        return Err(A::Error::custom("duplicate field"));
                    }
                }
                let missing = || A::Error::custom("a field is missing");
                Ok(Info {
                    dtype: dtype.ok_or_else(missing)?.0,
                    shape: shape.ok_or_else(missing)?.0,
                    offsets: offsets.ok_or_else(missing)?,
                })
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Info, A::Error> {
                let short = |n| A::Error::invalid_length(n, &"three values");
                Ok(Info {
                    dtype: seq.next_element::<DtypeName>()?.ok_or_else(|| short(0))?.0,
                    shape: seq.next_element::<Dimensions>()?.ok_or_else(|| short(1))?.0,
                    offsets: seq.next_element()?.ok_or_else(|| short(2))?,
                })
            }
        }
        d.deserialize_any(V)
    }
}

/// A list of dimensions. Those above the limit are checked and dropped.
struct Dimensions(Shape);

impl<'de> Deserialize<'de> for Dimensions {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Dimensions;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of dimensions")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Dimensions, A::Error> {
                let mut dims = Shape::default();
                while let Some(d) = seq.next_element()? {
                    if dims.len() <= MAX_RANK {
                        dims.push(d);
                    }
                }
                Ok(Dimensions(dims))
            }
        }
        d.deserialize_seq(V)
    }
}

/// The name of a dtype: a string, or serde's other form of an enumeration, `{"name": null}`.
struct DtypeName(Option<Dtype>);

impl<'de> Deserialize<'de> for DtypeName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = DtypeName;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a dtype")
            }
            fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<DtypeName, A::Error> {
                let (name, unit) = data.variant::<String>()?;
                unit.unit_variant()?;
                Ok(DtypeName(dtype_of(&name)))
            }
        }
        d.deserialize_enum("Dtype", &[], V)
    }
}
