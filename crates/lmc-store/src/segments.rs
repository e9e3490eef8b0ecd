//! Segments of files that another shard lists already (`docs/store.md` §4).

use std::collections::HashMap;

use crate::catalog::{Catalog, MAX_SEGMENTS};
use crate::error::{Error, Result};
use crate::ids::ShardId;
use crate::layout;
use crate::manifest::shard::{File, Ref, Segment, Shard};

impl Catalog {
    /// The segments of a file of a shard: its own, or those that it has in common with a file of another shard.
    pub(crate) fn segments<'a>(&'a self, shard: ShardId, file: &'a File) -> Result<&'a [Segment]> {
        let Some(Ref(of, number)) = file.segments_of else { return Ok(&file.segments) };
        let other = self.shard(shard)?.shards[of - 1];
        let listed = self.shard(other)?.files.get(number);
        // One that names a third file is refused, so that there are no chains.
        match listed.filter(|f| f.segments_of.is_none() && f.len == file.len) {
            Some(listed) => Ok(&listed.segments),
            None => Err(Error::damaged(format!(
                "{}: file {:?}: has the segments of file {number} of {}, which lists none of that length",
                layout::shard(shard),
                file.name,
                layout::shard(other)
            ))),
        }
    }

    /// Checks that the files of a snapshot, given by its shards, have no more segments than the format allows: of each file, whether it
    /// lists them or names others'. Nothing is copied before.
    ///
    /// # Errors
    /// `Limit`, and those of [`Self::segments`].
    pub(crate) fn check_segments(&self, shards: &[ShardId]) -> Result<()> {
        let mut count = 0;
        for &id in shards {
            for file in &self.shard(id)?.files {
                count += self.segments(id, file)?.len() as u64;
                if count > MAX_SEGMENTS {
                    return Err(Error::limit(format!(
                        "{}: with its file {:?}, those of the snapshot have more than {MAX_SEGMENTS} segments",
                        layout::shard(id),
                        file.name
                    )));
                }
            }
        }
        Ok(())
    }
}

impl Shard {
    /// Lets files whose segments a shard lists that this one needs anyway name these instead.
    pub(crate) fn share_segments(&mut self, catalog: &Catalog) -> Result<()> {
        let mut listed: HashMap<u64, Vec<(Ref, &[Segment])>> = HashMap::new();
        for (&id, number) in self.shards.iter().zip(1..) {
            for (i, file) in catalog.shard(id)?.files.iter().enumerate().filter(|(_, f)| f.segments_of.is_none()) {
                listed.entry(file.len).or_default().push((Ref(number, i), &file.segments));
            }
        }
        for file in self.files.iter_mut().filter(|f| !f.segments.is_empty()) {
            let same = listed.get(&file.len).and_then(|of| of.iter().find(|(_, segments)| *segments == file.segments));
            if let Some(&(of, _)) = same {
                (file.segments, file.segments_of) = (vec![], Some(of));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::ids::SaveId;
    use crate::manifest::Document;

    fn file(name: &str, lens: &[u64]) -> File {
        let segment = |&len| Segment { len, name: None, dtype: None, bits: None, shape: vec![] };
        let (len, segments) = (lens.iter().sum(), lens.iter().map(segment).collect());
        File { name: name.into(), len, layout: "raw".into(), segments, segments_of: None, extents: vec![] }
    }

    fn shard(shards: &[ShardId], files: Vec<File>) -> Shard {
        let mut shard = Shard::new(SaveId::new([1; 16]), 0);
        (shard.shards, shard.files) = (shards.to_vec(), files);
        shard
    }

    #[test]
    fn equal_segments_are_named_and_found_again() {
        let ids = [ShardId::of(b"a"), ShardId::of(b"b"), ShardId::of(b"c")];
        let mut catalog = Catalog::default();
        catalog.insert(ids[0], shard(&[], vec![file("x", &[1, 2]), file("y", &[3])]));
        let mut second = shard(&[ids[0]], vec![file("x", &[1, 2]), file("y", &[1, 2, 3])]);
        second.share_segments(&catalog).unwrap();
        assert_eq!((second.files[0].segments_of, second.files[1].segments_of), (Some(Ref(1, 0)), None));
        catalog.insert(ids[1], second);
        // Never what names a third one; other orders of the same lengths are others.
        let files = vec![file("x", &[1, 2]), file("z", &[2, 1]), file("y", &[1, 2, 3]), file("empty", &[])];
        let mut third = shard(&[ids[1]], files.clone());
        third.share_segments(&catalog).unwrap();
        let named: Vec<_> = third.files.iter().map(|f| f.segments_of).collect();
        assert_eq!(named, [None, None, Some(Ref(1, 1)), None]);
        let mut third = shard(&[ids[1], ids[0]], files.clone());
        third.share_segments(&catalog).unwrap();
        let named: Vec<_> = third.files.iter().map(|f| f.segments_of).collect();
        assert_eq!(named, [Some(Ref(2, 0)), None, Some(Ref(1, 1)), None]);
        catalog.insert(ids[2], third.clone());
        for (found, file) in third.files.iter().zip(&files) {
            assert_eq!(catalog.segments(ids[2], found).unwrap(), file.segments);
        }
    }

    #[test]
    fn what_is_named_must_be_listed_there() {
        let ids = [ShardId::of(b"a"), ShardId::of(b"b")];
        let mut catalog = Catalog::default();
        let mut named = file("y", &[3]);
        (named.segments, named.segments_of) = (vec![], Some(Ref(1, 0)));
        catalog.insert(ids[0], shard(&[ids[1]], vec![file("x", &[1, 2]), named.clone()]));
        for (number, len) in [(0, 4), (1, 3), (2, 3), (usize::MAX, 3)] {
            let file = File { len, segments_of: Some(Ref(1, number)), ..named.clone() };
            catalog.insert(ids[1], shard(&[ids[0]], vec![file.clone()]));
            let e = catalog.segments(ids[1], &file).unwrap_err();
            assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("lists none"), "{e}");
        }
        let file = File { segments_of: Some(Ref(1, 0)), ..named };
        assert_eq!(catalog.segments(ids[1], &file).unwrap().len(), 2);
        // A shard that was not read: what is listed by one that is listed.
        let e = Catalog::default().segments(ids[1], &file).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Damaged);
        assert!(shard(&[], vec![file]).to_bytes().is_err());
    }
}
