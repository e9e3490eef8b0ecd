//! What the interface does: open files, their tensors, and restoring.

use std::ffi::CString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use lmc::{Base, DecompressOptions, Decompressor, Dtype, Reader, Sink};

use crate::failure::Failure;

/// An open file.
pub(crate) struct Opened {
    reader: Reader<'static, File>,
    path: PathBuf,
    /// Made when they are first asked for.
    tensors: OnceLock<Vec<Tensor>>,
}

/// A tensor, with strings of C.
pub(crate) struct Tensor {
    pub(crate) name: CString,
    pub(crate) dtype: CString,
    pub(crate) shape: Vec<u64>,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|e| Failure::of(path, e))
}

fn bases(paths: &[PathBuf]) -> Result<Vec<Base<'static>>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        files.push((path.display().to_string(), open(path)?));
    }
    lmc::resolve_bases(files, 0).map_err(|e| Failure::of(&paths[e.file], e.error))
}

impl Opened {
    pub(crate) fn new(path: PathBuf, base_paths: &[PathBuf]) -> Result<Self, Failure> {
        let failed = |e| Failure::of(&path, e);
        let mut reader = Reader::open(open(&path)?, &DecompressOptions::default()).map_err(failed)?;
        if !base_paths.is_empty() {
            reader = reader.with_bases(bases(base_paths)?).map_err(failed)?;
        }
        Ok(Self { reader, path, tensors: OnceLock::new() })
    }

    pub(crate) fn size(&self) -> u64 {
        self.reader.raw_size()
    }

    /// In the order of the file. A zero byte in a name ends it.
    pub(crate) fn tensors(&self) -> &[Tensor] {
        let text = |s: &str| CString::new(s.split('\0').next().unwrap_or_default()).unwrap_or_default();
        self.tensors.get_or_init(|| {
            let tensors = self.reader.segments().iter().filter_map(|s| Some((s, s.name.as_deref()?)));
            let described = tensors.map(|(s, name)| Tensor {
                name: text(name),
                dtype: text(s.dtype.as_ref().map_or("", Dtype::name)),
                shape: s.shape.to_vec(),
                offset: s.offset,
                size: s.len,
            });
            described.collect()
        })
    }

    pub(crate) fn tensor(&self, index: usize) -> Result<&Tensor, Failure> {
        let all = self.tensors();
        let none =
            || Failure::usage(format!("{}: has {} tensors, and no number {index}", self.path.display(), all.len()));
        all.get(index).ok_or_else(none)
    }

    pub(crate) fn find(&self, name: &str) -> Result<usize, Failure> {
        let none = || Failure::usage(format!("{}: has no tensor {name:?}", self.path.display()));
        self.tensors().iter().position(|t| t.name.as_bytes() == name.as_bytes()).ok_or_else(none)
    }

    pub(crate) fn read_tensor(&self, index: usize, out: &mut [u8]) -> Result<(), Failure> {
        let tensor = self.tensor(index)?;
        if out.len() as u64 != tensor.size {
            let (path, size, given) = (self.path.display(), tensor.size, out.len());
            let name = tensor.name.to_string_lossy();
            return Err(Failure::usage(format!("{path}: {name:?} has {size} bytes, and the buffer {given}")));
        }
        self.read(tensor.offset, out)
    }

    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Failure> {
        self.reader.read_range(offset, out).map_err(|e| Failure::of(&self.path, e))
    }
}

/// Restores a file, all of which is checked.
pub(crate) fn decompress<'d>(path: &Path, base_paths: &[PathBuf], output: impl Into<Sink<'d>>) -> Result<(), Failure> {
    let (source, bases) = (open(path)?, bases(base_paths)?);
    let mut restorer = Decompressor::new(&DecompressOptions::default())?;
    restorer.decompress(&source, &bases, output).map(drop).map_err(|e| Failure::of(path, e))
}

/// Restores a file beside its place, and renames it.
pub(crate) fn decompress_file(path: &Path, base_paths: &[PathBuf], output: &Path) -> Result<(), Failure> {
    let failed = |e| Failure::of(output, e);
    let folder = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // What the umask leaves, as of any new file.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let file = builder.tempfile_in(folder).map_err(failed)?;
    decompress(path, base_paths, file.as_file())?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(output).map_err(|e| failed(e.error))?;
    Ok(())
}
