//! Segments of files that another file lists already (`docs/store.md` §4).

use std::collections::HashMap;

use crate::chunks::catalog::{Catalog, MAX_SEGMENTS};
use crate::error::{Error, Result};
use crate::format::ids::ShardId;
use crate::format::keys;
use crate::format::manifest::shard::{File, Ref, Segment, Shard};

impl Catalog {
    /// The segments of a file of a shard: its own, or those that it has in common with another file.
    pub(crate) fn segments<'a>(&'a self, shard: ShardId, file: &'a File) -> Result<&'a [Segment]> {
        let Some(Ref(of, number)) = file.segments_of else { return Ok(&file.segments) };
        let other = self.numbered(shard, of)?;
        let listed = self.shard(other)?.files.get(number);
        // One that names a third file is refused, so that there are no chains.
        match listed.filter(|f| f.segments_of.is_none() && f.len == file.len) {
            Some(listed) => Ok(&listed.segments),
            None => Err(Error::damaged(format!(
                "{}: file {:?}: has the segments of file {number} of {}, which lists none of that length",
                keys::shard(shard),
                file.name,
                keys::shard(other)
            ))),
        }
    }

    /// The files of a shard for a new one, with the extents that they have. Each list of segments is stored once: other
    /// files name it.
    pub(crate) fn files(&self, shard: ShardId) -> Result<Vec<File>> {
        let mut files: Vec<File> = vec![];
        let mut listed: HashMap<(ShardId, usize), usize> = HashMap::new();
        for (i, file) in self.shard(shard)?.files.iter().enumerate() {
            let segments = self.segments(shard, file)?;
            let Ref(of, number) = file.segments_of.unwrap_or(Ref(0, i));
            let first = *listed.entry((self.numbered(shard, of)?, number)).or_insert(i);
            let (segments, segments_of) = match first == i || segments.is_empty() {
                true => (segments.to_vec(), None),
                false => (vec![], Some(Ref(0, first))),
            };
            let (name, layout, extents) = (file.name.clone(), file.layout.clone(), file.extents.clone());
            files.push(File { name, len: file.len, layout, segments, segments_of, extents });
        }
        Ok(files)
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
                        keys::shard(id),
                        file.name
                    )));
                }
            }
        }
        Ok(())
    }
}

impl Shard {
    /// Lets files name another one's segments that has the same: a file of a shard that this one needs anyway, or else an earlier one here.
    pub(crate) fn share_segments(&mut self, catalog: &Catalog) -> Result<()> {
        let mut listed: HashMap<&[Segment], Ref> = HashMap::new();
        for (&id, number) in self.shards.iter().zip(1..) {
            for (i, file) in catalog.shard(id)?.files.iter().enumerate().filter(|(_, f)| !f.segments.is_empty()) {
                listed.entry(&file.segments).or_insert(Ref(number, i));
            }
        }
        let mut names: Vec<Option<Ref>> = vec![];
        for (i, file) in self.files.iter().enumerate() {
            let named = match file.segments_of {
                // The file that it names itself by now.
                Some(Ref(0, first)) => names[first].or(file.segments_of),
                Some(_) => file.segments_of,
                None if file.segments.is_empty() => None,
                None => Some(*listed.entry(&file.segments).or_insert(Ref(0, i))).filter(|&by| by != Ref(0, i)),
            };
            names.push(named);
        }
        for (file, named) in self.files.iter_mut().zip(names).filter(|(_, named)| named.is_some()) {
            (file.segments, file.segments_of) = (vec![], named);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::ids::{Hash, SaveId};
    use crate::format::manifest::Document;
    use crate::format::manifest::shard::{At, BlockSet, Extent};

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
        // A file never names one that names a third; the same lengths in another order are other segments. A list that
        // no other shard has is named within this one.
        let mut files = vec![file("x", &[1, 2]), file("z", &[2, 1]), file("y", &[1, 2, 3]), file("empty", &[])];
        files.extend([file("x2", &[1, 2]), file("y2", &[1, 2, 3]), file("empty2", &[])]);
        let mut third = shard(&[ids[1]], files.clone());
        third.share_segments(&catalog).unwrap();
        let named: Vec<_> = third.files.iter().map(|f| f.segments_of).collect();
        assert_eq!(named, [None, None, Some(Ref(1, 1)), None, Some(Ref(0, 0)), Some(Ref(1, 1)), None]);
        let mut third = shard(&[ids[1], ids[0]], files.clone());
        third.share_segments(&catalog).unwrap();
        let named: Vec<_> = third.files.iter().map(|f| f.segments_of).collect();
        assert_eq!(named, [Some(Ref(2, 0)), None, Some(Ref(1, 1)), None, Some(Ref(2, 0)), Some(Ref(1, 1)), None]);
        catalog.insert(ids[2], third.clone());
        for (found, file) in third.files.iter().zip(&files) {
            assert_eq!(catalog.segments(ids[2], found).unwrap(), file.segments);
        }
        // Taken over by another shard: each list once, then those that it needs anyway.
        let mut fourth = shard(&[], catalog.files(ids[2]).unwrap());
        let of = |shard: &Shard| shard.files.iter().map(|f| f.segments_of).collect::<Vec<_>>();
        let alone = [None, None, None, None, Some(Ref(0, 0)), Some(Ref(0, 2)), None];
        assert_eq!(of(&fourth), alone);
        fourth.share_segments(&catalog).unwrap();
        assert_eq!(of(&fourth), alone);
        fourth.shards = vec![ids[0]];
        fourth.share_segments(&catalog).unwrap();
        assert_eq!(of(&fourth), [Some(Ref(1, 0)), None, None, None, Some(Ref(1, 0)), Some(Ref(0, 2)), None]);
    }

    #[test]
    fn thirty_files_of_a_hundred_thousand_tensors_are_one_document() {
        let segment = |i: u64| Segment {
            len: 2,
            name: Some(format!("model.layers.{}.mlp.experts.{}.down_proj.weight", i / 512, i % 512)),
            dtype: Some("BF16".into()),
            bits: None,
            shape: vec![1],
        };
        let one = File { segments: (0..100_000).map(segment).collect(), len: 200_000, ..file("", &[]) };
        let (ids, mut catalog) = ([ShardId::of(b"a"), ShardId::of(b"b")], Catalog::default());
        let named = |i| File {
            name: format!("rank{i}"),
            segments: vec![],
            segments_of: Some(Ref(1, 0)),
            extents: vec![Extent(0, 0, 0, 200_000)],
            ..one.clone()
        };
        let mut second = shard(&[ids[0]], (0..30).map(named).collect());
        let hash = Hash::of(b"");
        second.objects = vec![10];
        second.sets = vec![BlockSet {
            at: At(0, 0, 10),
            hash,
            raw_len: 200_000,
            raw_hash: hash,
            base: None,
            others: vec![],
            age: 0,
        }];
        catalog.insert(ids[0], shard(&[], vec![one.clone()]));
        catalog.insert(ids[1], second.clone());
        // Copied alone: the first of them lists what the other shard does.
        let mut copy = second;
        (copy.shards, copy.files) = (vec![], catalog.files(ids[1]).unwrap());
        copy.share_segments(&Catalog::default()).unwrap();
        assert_eq!(copy.listed_segments(), 100_000);
        let text = copy.to_bytes().unwrap();
        assert!(text.len() * 29 > Shard::MAX, "written 30 times it would not be refused: {}", text.len());
        assert_eq!(Shard::parse(&text).unwrap(), copy);
        catalog.insert(ids[1], copy.clone());
        assert!(copy.files.iter().all(|f| catalog.segments(ids[1], f).unwrap() == one.segments));
    }

    #[test]
    fn an_earlier_file_of_the_shard_may_be_named_that_lists_its_segments() {
        let named = |name: &str, len, by| {
            let extents = vec![Extent(0, 0, 0, len)];
            File { name: name.into(), len, segments: vec![], segments_of: Some(Ref(0, by)), extents, ..file("", &[]) }
        };
        let hash = Hash::of(b"");
        let of = |files: Vec<File>| {
            let mut shard = shard(&[], files);
            shard.objects = vec![10];
            shard.sets = vec![BlockSet {
                at: At(0, 0, 10),
                hash,
                raw_len: 9,
                raw_hash: hash,
                base: None,
                others: vec![],
                age: 0,
            }];
            shard
        };
        let lists = File { extents: vec![Extent(0, 0, 0, 3)], ..file("x", &[1, 2]) };
        let good = of(vec![lists.clone(), named("y", 3, 0), named("z", 3, 0)]);
        assert_eq!(Shard::parse(&good.to_bytes().unwrap()).unwrap(), good);
        for bad in [
            vec![named("y", 3, 1), lists.clone()],
            vec![lists.clone(), named("y", 3, 1)],
            vec![lists.clone(), named("y", 3, 7)],
            vec![lists.clone(), named("y", 4, 0)],
            vec![lists, named("y", 3, 0), named("z", 3, 1)],
        ] {
            let bad = of(bad);
            let e = Shard::parse(&serde_json::to_vec(&bad).unwrap()).unwrap_err();
            assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("does not come before it"), "{e}");
            bad.to_bytes().unwrap_err();
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
        // A shard that was not read: one that a listed shard lists.
        let e = Catalog::default().segments(ids[1], &file).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Damaged);
        assert!(shard(&[], vec![file]).to_bytes().is_err());
    }
}
