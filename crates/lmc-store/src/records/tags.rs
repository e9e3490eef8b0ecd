//! Tags: names of snapshots, which can be moved to others (`docs/store.md` §3).

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt, TryStreamExt};

use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{SaveId, Step, TagName};
use crate::format::keys;
use crate::format::manifest::Document;
use crate::format::manifest::tag::TagDocument;
use crate::objects::remote::{CONCURRENT, Object};
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;

/// The most tags of a store, deleted ones that are still there included.
const MAX_TAGS: usize = 1 << 12;

/// A tag.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tag {
    /// Its name.
    pub name: TagName,
    /// The step of the snapshot that it names.
    pub step: Step,
    /// The id of that snapshot.
    pub id: SaveId,
    /// When it was set: the store's time, unless it was set more often than once a second.
    pub(crate) generation: u32,
}

/// A tag whose object cannot be read: which snapshot it names is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedTag {
    /// Its name.
    pub name: TagName,
    /// What is wrong, with the key.
    pub message: String,
    kind: ErrorKind,
}

/// The tags of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tags {
    /// Those that name a snapshot, by name.
    pub tags: Vec<Tag>,
    /// Those that cannot be read, by name.
    pub damaged: Vec<DamagedTag>,
}

impl Tags {
    /// The names of the snapshot of a step that has an id.
    pub fn of(&self, step: Step, id: SaveId) -> Vec<&TagName> {
        let names = |tag: &&Tag| (tag.step, tag.id) == (step, id);
        self.tags.iter().filter(names).map(|tag| &tag.name).collect()
    }
}

impl Tag {
    pub(crate) fn document(&self) -> TagDocument {
        TagDocument::new(self.name.clone(), Some((self.step, self.id)))
    }
}

impl DamagedTag {
    /// The damaged tag of an error of [`Store::read_tag`]; errors of the request are passed on.
    fn of(name: &TagName, e: Error) -> Result<Self> {
        match e.kind() {
            ErrorKind::Store | ErrorKind::Io => Err(e),
            kind => Ok(Self { name: name.clone(), message: e.to_string(), kind }),
        }
    }

    /// The error for a caller that needs to know what it names. Of one that another version of lmc wrote, the message says which reads it.
    pub fn error(&self) -> Error {
        let advice = match self.kind {
            ErrorKind::Unsupported => String::new(),
            _ => format!("; {}", remedy(&self.name)),
        };
        Error::new(self.kind, format!("{}{advice}", self.message))
    }
}

/// What to do about a tag that names nothing that can be restored.
pub(crate) fn remedy(name: &TagName) -> String {
    format!("set it again (lmc snapshot tag STORE {name} STEP), or delete it (--delete)")
}

impl Store {
    /// All tags.
    ///
    /// # Errors
    /// `Store` when requests fail, `Limit` when there are too many.
    pub fn tags(&self) -> Result<Tags> {
        let newest = self.generations()?.into_iter().map(|(name, objects)| (name, newest(&objects)));
        let read = stream::iter(newest)
            .map(async |(name, generation)| {
                let read = self.read_tag(&name, generation).await;
                Ok::<_, Error>((name, generation, read))
            })
            .buffered(CONCURRENT);
        let mut found = Tags::default();
        for (name, generation, read) in self.remote().wait(read.try_collect::<Vec<_>>())? {
            match read {
                Ok(document) => {
                    let tag = document.snapshot().map(|(step, id)| Tag { name, step, id, generation });
                    found.tags.extend(tag);
                }
                // A collector deleted what had been deleted long ago.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => found.damaged.push(DamagedTag::of(&name, e)?),
            }
        }
        Ok(found)
    }

    /// All tags, provided that each can be read.
    ///
    /// # Errors
    /// `Damaged` when one cannot, and those of [`Self::tags`].
    pub(crate) fn readable_tags(&self) -> Result<Tags> {
        let tags = self.tags()?;
        match tags.damaged.first() {
            Some(bad) => Err(bad.error()),
            None => Ok(tags),
        }
    }

    /// Makes a tag name a snapshot, whatever it named before.
    ///
    /// # Errors
    /// `Limit` when there are too many tags, `Usage` when another one differs from it in case only, `Expired` when it takes too long, `Store`
    /// when requests fail.
    pub fn tag(&self, name: &TagName, snapshot: &Snapshot) -> Result<Tag> {
        let (step, id) = (snapshot.step, snapshot.id);
        let generation = self.set_tag(&TagDocument::new(name.clone(), Some((step, id))))?;
        Ok(Tag { name: name.clone(), step, id, generation })
    }

    /// Deletes a tag. Its snapshot stays.
    ///
    /// # Errors
    /// `NotFound` when there is none, and those of [`Self::tag`].
    pub fn untag(&self, name: &TagName) -> Result<()> {
        let there = match self.generations()?.get(name) {
            // One that cannot be read is deleted, too.
            Some(objects) => match self.remote().wait(self.read_tag(name, newest(objects))) {
                Ok(document) => document.snapshot().is_some(),
                Err(e) if e.kind() == ErrorKind::NotFound => false,
                Err(e) => DamagedTag::of(name, e).map(|_| true)?,
            },
            None => false,
        };
        if !there {
            return Err(no_tag(name));
        }
        self.set_tag(&TagDocument::new(name.clone(), None)).map(|_| ())
    }

    /// Step and id of the snapshot that a tag names.
    pub(crate) fn tagged(&self, name: &TagName) -> Result<(Step, SaveId)> {
        let generation = self.generations()?.get(name).map(|objects| newest(objects)).ok_or_else(|| no_tag(name))?;
        let document = self.remote().wait(self.read_tag(name, generation)).map_err(|e| match e.kind() {
            ErrorKind::NotFound => no_tag(name),
            _ => DamagedTag::of(name, e).map_or_else(|e| e, |bad| bad.error()),
        })?;
        document.snapshot().ok_or_else(|| no_tag(name))
    }

    /// Writes the next generation of a tag; returns it.
    fn set_tag(&self, document: &TagDocument) -> Result<u32> {
        let (name, bytes) = (&document.name, document.to_bytes()?);
        let after = |generation: u32| {
            generation.checked_add(1).ok_or_else(|| Error::limit(format!("the tag {name} was set too often")))
        };
        // The listing may lag behind what others have created.
        let mut least = 0;
        loop {
            let began = self.begin()?;
            let all = self.generations()?;
            let same = |other: &TagName| other != name && other.to_string().eq_ignore_ascii_case(&name.to_string());
            if let Some(other) = all.iter().find_map(|(other, _)| same(other).then_some(other)) {
                return Err(Error::usage(format!(
                    "the tag {name} differs from the tag {other} in case only, and some file systems do not tell them apart: choose another"
                )));
            }
            if !all.contains_key(name) && all.len() >= MAX_TAGS {
                return Err(Error::limit(format!("the store has {} tags, and the limit is {MAX_TAGS}", all.len())));
            }
            // No key is used again after a collector deleted it: the time is beyond those.
            let now = u32::try_from(began).unwrap_or(u32::MAX);
            let next = all.get(name).map_or(Ok(now), |objects| after(newest(objects)))?.max(now).max(least);
            self.time_to_commit(began)?;
            if self.remote().wait(self.remote().create(&keys::tag(name, next), bytes.clone().into()))? {
                return Ok(next);
            }
            least = after(next)?;
        }
    }

    /// The objects of each tag, with their generations, newest first; at least one.
    fn generations(&self) -> Result<BTreeMap<TagName, Vec<(u32, Object)>>> {
        let mut found: BTreeMap<TagName, Vec<(u32, Object)>> = BTreeMap::new();
        for object in self.remote().wait(self.remote().list(&keys::tags()))? {
            if let Some((name, generation)) = keys::parse_tag(&object.key) {
                found.entry(name).or_default().push((generation, object));
            }
        }
        if found.len() > MAX_TAGS {
            return Err(Error::limit(format!("the store has {} tags, and the limit is {MAX_TAGS}", found.len())));
        }
        found
            .values_mut()
            .for_each(|objects| objects.sort_unstable_by_key(|(generation, _)| std::cmp::Reverse(*generation)));
        Ok(found)
    }

    async fn read_tag(&self, name: &TagName, generation: u32) -> Result<TagDocument> {
        let key = keys::tag(name, generation);
        let document = TagDocument::parse(&self.remote().get(&key, TagDocument::MAX).await?).map_err(|e| e.at(&key))?;
        if document.name != *name {
            return Err(Error::damaged(format!("{key}: is of the tag {}", document.name)));
        }
        Ok(document)
    }

    /// The objects of tags that a collector may delete at a time, and those that it may delete later.
    pub(crate) fn old_tags(&self, time: u64) -> Result<(Vec<Object>, Vec<Object>)> {
        let (mut old, mut young) = (vec![], vec![]);
        let is_old = |written: u64| written.saturating_add(self.grace_seconds()) < time;
        for (name, objects) in self.generations()? {
            let alone = objects.len() == 1;
            let mut superseded_at = None;
            for (generation, object) in objects {
                let written = object.time;
                match superseded_at {
                    Some(at) if is_old(at) => old.push(object),
                    Some(_) => young.push(object),
                    // A deletion goes last: without it, what it superseded would count again. A later generation of the tag has a
                    // higher number, which is the time.
                    None if alone && is_old(written) && is_old(generation.into()) => {
                        match self.remote().wait(self.read_tag(&name, generation)) {
                            Ok(document) if document.snapshot().is_none() => old.push(object),
                            Ok(_) => {}
                            Err(e) => _ = DamagedTag::of(&name, e)?,
                        }
                    }
                    None => {}
                }
                superseded_at = Some(written);
            }
        }
        Ok((old, young))
    }

    /// Copies those tags of another store that name one of these snapshots, which are here, and that were set later than here.
    pub(crate) fn copy_tags(&self, from: &Store, snapshots: &[Snapshot]) -> Result<()> {
        let theirs = from.tags().map_err(|e| from.blame(e))?.tags;
        let wanted = |tag: &&Tag| snapshots.iter().any(|s| (s.step, s.id) == (tag.step, tag.id));
        let wanted: Vec<&Tag> = theirs.iter().filter(wanted).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let ours = self.generations()?;
        for tag in wanted {
            if ours.get(&tag.name).is_none_or(|objects| newest(objects) < tag.generation) {
                self.set_tag(&tag.document())?;
            }
        }
        Ok(())
    }
}

/// The generation that counts.
fn newest(objects: &[(u32, Object)]) -> u32 {
    objects.first().expect("a listed tag has a generation").0
}

fn no_tag(name: &TagName) -> Error {
    Error::not_found(format!("the store has no tag {name}"))
}
