//! `.metadata` of `torch.distributed.checkpoint` whose fields may have any value.

/// A tensor, or something else if it has no dtype.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Its name.
    pub name: &'a str,
    /// The type of its elements as torch names it.
    pub dtype: Option<&'a str>,
    /// Dimensions.
    pub shape: Vec<i128>,
    /// Offsets and sizes of each.
    pub chunks: Vec<(Vec<i128>, Vec<i128>)>,
}

/// Where a chunk is stored.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The name of its tensor.
    pub name: &'a str,
    /// Its first indices.
    pub offsets: Vec<i128>,
    /// The name of the data file.
    pub file: &'a str,
    /// Its first byte there.
    pub offset: i128,
    /// Its number of bytes.
    pub len: i128,
    /// An extension, and its argument.
    pub transform: Option<&'a str>,
}

/// A tensor of fp32 in one chunk.
pub fn whole<'a>(name: &'a str, shape: &[i128]) -> Entry<'a> {
    Entry { name, dtype: Some("float32"), shape: shape.to_vec(), chunks: vec![(vec![0; shape.len()], shape.to_vec())] }
}

/// The place of the only chunk of a tensor with this number of dimensions.
pub fn place<'a>(name: &'a str, rank: usize, file: &'a str, offset: i128, len: i128) -> Place<'a> {
    Place { name, offsets: vec![0; rank], file, offset, len, transform: None }
}

/// The bytes of `.metadata`.
pub fn metadata(entries: &[Entry<'_>], places: &[Place<'_>]) -> Vec<u8> {
    let mut p = Pickler(vec![0x80, 4]);
    p.object("torch.distributed.checkpoint.metadata", "Metadata", |p| {
        p.text("state_dict_metadata");
        p.dict(|p| {
            for entry in entries {
                p.text(entry.name);
                p.entry(entry);
            }
        });
        p.text("storage_data");
        p.dict(|p| {
            for place in places {
                p.place(place);
            }
        });
    });
    p.0.push(b'.');
    p.0
}

struct Pickler(Vec<u8>);

impl Pickler {
    fn text(&mut self, text: &str) {
        self.0.push(b'X');
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.as_bytes());
    }

    fn int(&mut self, n: i128) {
        let bytes = n.to_le_bytes();
        let len = if i64::try_from(n).is_ok() { 8 } else { 16 };
        self.0.extend([0x8a, len]);
        self.0.extend(&bytes[..len.into()]);
    }

    fn global(&mut self, module: &str, name: &str) {
        self.0.extend(format!("c{module}\n{name}\n").as_bytes());
    }

    fn dict(&mut self, items: impl FnOnce(&mut Self)) {
        self.0.extend(b"}(");
        items(self);
        self.0.push(b'u');
    }

    fn object(&mut self, module: &str, name: &str, attributes: impl FnOnce(&mut Self)) {
        self.global(module, name);
        self.0.extend(b")\x81");
        self.dict(attributes);
        self.0.push(b'b');
    }

    fn size(&mut self, sizes: &[i128]) {
        self.global("torch", "Size");
        self.0.push(b'(');
        sizes.iter().for_each(|&n| self.int(n));
        self.0.extend(b"t\x85R");
    }

    fn entry(&mut self, entry: &Entry<'_>) {
        let module = "torch.distributed.checkpoint.metadata";
        let Some(dtype) = entry.dtype else {
            self.global(module, "BytesStorageMetadata");
            self.0.extend(b")\x81");
            return;
        };
        self.object(module, "TensorStorageMetadata", |p| {
            p.text("properties");
            p.global(module, "TensorProperties");
            p.0.extend(b")\x81(");
            p.global("torch", dtype);
            p.0.extend(b"N\x89N\x89tb");
            p.text("size");
            p.size(&entry.shape);
            p.text("chunks");
            p.0.extend(b"](");
            for (offsets, sizes) in &entry.chunks {
                p.object(module, "ChunkStorageMetadata", |p| {
                    p.text("offsets");
                    p.size(offsets);
                    p.text("sizes");
                    p.size(sizes);
                });
            }
            p.0.push(b'e');
        });
    }

    fn place(&mut self, place: &Place<'_>) {
        self.object("torch.distributed.checkpoint.metadata", "MetadataIndex", |p| {
            p.text("fqn");
            p.text(place.name);
            p.text("offset");
            p.size(&place.offsets);
            p.text("index");
            p.0.push(b'N');
        });
        self.object("torch.distributed.checkpoint.filesystem", "_StorageInfo", |p| {
            p.text("relative_path");
            p.text(place.file);
            p.text("offset");
            p.int(place.offset);
            p.text("length");
            p.int(place.len);
            if let Some(transform) = place.transform {
                p.text("transform_descriptors");
                p.0.extend(b"](");
                p.text(transform);
                p.0.push(b'e');
            }
        });
    }
}
