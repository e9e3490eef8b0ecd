//! Names of tensors, all in one allocation: a file may have a million of them.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// The name of a tensor: a string that shares its memory with the other names of its file. Cheap to clone.
#[derive(Clone)]
pub struct Name {
    all: Arc<OnceLock<Box<str>>>,
    /// Offset of the name in `all`, in bytes.
    start: u32,
    len: u32,
}

/// Collects the names of a file. They can be read after [`Self::finish`].
#[derive(Default)]
pub struct Names {
    text: String,
    all: Arc<OnceLock<Box<str>>>,
}

impl Names {
    /// With room for names of so many bytes together.
    #[doc(hidden)]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes), ..Self::default() }
    }

    /// Adds a name; `None` above 4 GiB of names.
    pub fn push(&mut self, name: &str) -> Option<Name> {
        let (start, len) = (self.text.len().try_into().ok()?, name.len().try_into().ok()?);
        self.text.push_str(name);
        Some(Name { all: Arc::clone(&self.all), start, len })
    }

    /// Names can be read from now on.
    pub fn finish(self) {
        self.all.set(self.text.into()).expect("set only here");
    }
}

impl Name {
    /// Bytes that the name takes.
    #[doc(hidden)]
    pub fn size(&self) -> usize {
        self.len as usize
    }
}

impl Default for Name {
    fn default() -> Self {
        Self { all: Arc::new(OnceLock::from(Box::default())), start: 0, len: 0 }
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        let all = self.all.get().expect("names are read after `finish`");
        &all[self.start as usize..][..self.size()]
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self
    }
}

/// A name of its own, which shares its memory with its clones alone.
impl From<&str> for Name {
    fn from(name: &str) -> Self {
        let mut names = Names::default();
        let name = names.push(name).expect("a name of less than four gigabytes");
        names.finish();
        name
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        str::cmp(self, other)
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        str::hash(self, state);
    }
}
