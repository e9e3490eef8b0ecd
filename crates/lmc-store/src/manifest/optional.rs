//! Fields that a document declares optional: a reader that does not know them ignores them (`docs/store.md` §1). All other fields that this
//! version does not define are refused.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_ignored::Path;

use crate::error::{Error, Result};

/// The field with the list.
const OPTIONAL: &str = "optional";
/// The most names in the list: a mask of 64 bits records which of them an object had.
const MAX_NAMES: usize = 64;
/// The most bytes of a field's name.
const MAX_NAME: usize = 64;
/// The most characters of an unknown field's path in an error.
const SHOWN: usize = 200;

/// A kind of object in a document.
pub(crate) struct Place {
    /// The array that holds the objects; empty for the document itself.
    pub(crate) array: &'static str,
    /// The fields that this version defines.
    pub(crate) fields: &'static [&'static str],
}

/// The first names of a list: one more than is allowed, so that hostile lists take no memory.
struct Names(Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Names;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of names of fields")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while names.len() <= MAX_NAMES {
                    let Some(name) = list.next_element()? else { return Ok(Names(names)) };
                    names.push(name);
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Names(names))
            }
        }
        d.deserialize_seq(List)
    }
}

/// The unknown fields of a document, compared with those that it declares.
pub(crate) struct Unknown {
    places: &'static [Place],
    /// Whether the document has a list.
    listed: bool,
    /// Declared fields: index of the place, name.
    declared: Vec<(usize, String)>,
    /// For each place the object whose fields were met last, by its indices, and which declared fields it had. Fields of one object
    /// follow each other, apart from those of objects inside it, which are of another place.
    met: Vec<([usize; 2], u64)>,
    /// The first problem found.
    problem: Option<String>,
}

impl Unknown {
    /// Prepares for a document's fields. `listed`: whether it has a list.
    ///
    /// # Errors
    /// `Damaged` when the list is malformed, `Limit` when it is too long.
    pub(crate) fn new(document: &[u8], listed: bool, places: &'static [Place]) -> Result<Self> {
        #[derive(Deserialize)]
        struct List {
            optional: Names,
        }
        let mut names = vec![];
        if listed {
            let list = serde_json::from_slice::<List>(document);
            names = list.map_err(|e| Error::damaged(format!("has an invalid `optional`: {e}")))?.optional.0;
        }
        if names.len() > MAX_NAMES {
            return Err(Error::limit(format!("declares more than {MAX_NAMES} fields optional")));
        }
        let mut declared = Vec::with_capacity(names.len());
        for name in names {
            let field = parse_name(&name, places)?;
            if declared.contains(&field) {
                return Err(Error::damaged(format!("declares the field {name:?} optional twice")));
            }
            declared.push(field);
        }
        Ok(Self { places, listed, declared, met: vec![([0; 2], 0); places.len()], problem: None })
    }

    /// Notes a field that this version does not define.
    pub(crate) fn note(&mut self, path: &Path<'_>) {
        if self.problem.is_none() {
            self.problem = self.judge(path).err();
        }
    }

    fn judge(&mut self, path: &Path<'_>) -> Result<(), String> {
        // Two fields `optional` were refused before.
        if matches!(path, Path::Map { parent: Path::Root, key } if self.listed && key == OPTIONAL) {
            return Ok(());
        }
        let shown = || format!("{:?}", path.to_string().chars().take(SHOWN).collect::<String>());
        let found = locate(path).and_then(|(array, object, name)| {
            let place = self.places.iter().position(|p| p.array == array)?;
            let number = self.declared.iter().position(|(p, field)| *p == place && field == name)?;
            Some((place, object, 1 << number))
        });
        let Some((place, object, bit)) = found else {
            return Err(format!("has the unknown field {}, and does not declare it optional", shown()));
        };
        let met = &mut self.met[place];
        if met.0 != object {
            *met = (object, 0);
        }
        if met.1 & bit != 0 {
            return Err(format!("has the field {} twice", shown()));
        }
        met.1 |= bit;
        Ok(())
    }

    /// # Errors
    /// `Damaged` when a field was not declared, or occurred twice in an object.
    pub(crate) fn finish(self) -> Result<()> {
        match self.problem {
            Some(problem) => Err(Error::damaged(problem)),
            None => Ok(()),
        }
    }
}

/// The array of a field's object (empty for the document), the object's indices, and the field's name. `None` for objects of no place.
fn locate<'p>(path: &'p Path<'p>) -> Option<(&'p str, [usize; 2], &'p str)> {
    let Path::Map { parent, key } = path else { return None };
    match parent {
        Path::Root => Some(("", [0; 2], key)),
        Path::Seq { parent: Path::Map { parent: Path::Root, key: array }, index } => Some((array, [*index, 0], key)),
        Path::Seq {
            parent:
                Path::Map {
                    parent: Path::Seq { parent: Path::Map { parent: Path::Root, key: outer }, index: file },
                    key: array,
                },
            index,
        } if outer == "files" && array == "segments" => Some((array, [*file, *index], key)),
        _ => None,
    }
}

/// The place and the field that a name in the list means: `field`, or `array.field`.
fn parse_name(name: &str, places: &[Place]) -> Result<(usize, String)> {
    let (array, field) = name.rsplit_once('.').unwrap_or(("", name));
    if field.len() > MAX_NAME {
        return Err(Error::limit(format!("declares a field optional whose name has more than {MAX_NAME} bytes")));
    }
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let place = places.iter().position(|p| p.array == array && !name.starts_with('.'));
    let Some(place) = place.filter(|_| !field.is_empty() && field.bytes().all(plain)) else {
        let shown: String = name.chars().take(SHOWN).collect();
        return Err(Error::damaged(format!("declares {shown:?} optional, which is not the name of a field")));
    };
    if field == OPTIONAL || places[place].fields.contains(&field) {
        return Err(Error::damaged(format!("declares the field {name:?} optional, which this version defines")));
    }
    Ok((place, field.to_owned()))
}

/// The names of the fields of a JSON object.
#[cfg(test)]
pub(crate) fn fields_of(object: &serde_json::Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(|k| &k[..]).collect()
}

#[cfg(test)]
pub(crate) fn sorted<'f>(fields: &[&'f str]) -> Vec<&'f str> {
    let mut fields = fields.to_vec();
    fields.sort_unstable();
    fields
}
