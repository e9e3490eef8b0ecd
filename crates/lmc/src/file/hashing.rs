//! Computes and compares cryptographic digests of raw bytes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use crate::format::digests::{DIGEST_LEN, DigestAlgorithm, RawDigest};
use crate::refs::base::Base;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::ReadAt;

/// Bytes that are read at a time.
const STEP: usize = 1 << 20;

type Bytes = [u8; DIGEST_LEN];

/// The SHA-256 of a file that is compressed, which is known at its end.
pub(crate) enum OwnDigest {
    /// A thread computes it.
    Coming(Receiver<Result<Bytes>>),
    /// Of a stream, of the bytes read so far.
    Read(Arc<Mutex<Sha256>>),
}

impl OwnDigest {
    /// The digest, when all bytes were read.
    pub(crate) fn take(self) -> Result<Bytes> {
        match self {
            Self::Coming(digest) => digest.recv().expect("the thread sends it"),
            Self::Read(hasher) => Ok(hasher.lock().unwrap_or_else(PoisonError::into_inner).clone().finalize().into()),
        }
    }
}

/// A hasher of the bytes of a stream, and the digest that it will give.
#[derive(Clone, Default)]
pub(crate) struct StreamHasher(Arc<Mutex<Sha256>>);

impl StreamHasher {
    pub(crate) fn update(&self, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).update(bytes);
    }

    pub(crate) fn digest(&self) -> OwnDigest {
        OwnDigest::Read(self.0.clone())
    }
}

/// Calls `f` while a thread hashes a source of `size` bytes, if that is `wanted`.
pub(crate) fn beside<T>(wanted: bool, src: &dyn ReadAt, size: u64, f: impl FnOnce(Option<OwnDigest>) -> T) -> T {
    if !wanted {
        return f(None);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (sender, digest) = channel();
        let stop = &stop;
        scope.spawn(move || {
            let mut hasher = Sha256::new();
            let read =
                |at, buf: &mut [u8]| src.read_exact_at(buf, at).map_err(|e| Error::io("cannot read the input", e));
            let done = each_step(size, read, |bytes| {
                hasher.update(bytes);
                !stop.load(Ordering::Relaxed)
            });
            // After an error no thread waits for it.
            _ = sender.send(done.map(|()| hasher.finalize().into()));
        });
        let done = f(Some(OwnDigest::Coming(digest)));
        stop.store(true, Ordering::Relaxed);
        done
    })
}

/// The SHA-256 of the raw bytes of a base.
pub(crate) fn sha256_of_base(base: &Base<'_>) -> Result<Bytes> {
    let mut hasher = Sha256::new();
    each_step(
        base.raw_size(),
        |at, buf| base.read(at, buf),
        |bytes| {
            hasher.update(bytes);
            true
        },
    )?;
    Ok(hasher.finalize().into())
}

/// Reads `size` bytes in steps, until `take` wants no more.
fn each_step(
    size: u64,
    read: impl Fn(u64, &mut [u8]) -> Result<()>,
    mut take: impl FnMut(&[u8]) -> bool,
) -> Result<()> {
    let mut buf = vec![0; size.min(STEP as u64) as usize];
    let mut at = 0;
    while at < size {
        let n = (size - at).min(STEP as u64) as usize;
        read(at, &mut buf[..n])?;
        at += n as u64;
        if !take(&buf[..n]) {
            break;
        }
    }
    Ok(())
}

/// Compares raw bytes with the SHA-256 that a file has of them.
pub(crate) struct Comparison {
    source: u32,
    hasher: Sha256,
    want: Bytes,
}

impl Comparison {
    /// Of the file's own bytes (`source` 0), or those of a base; `None` if there is no digest that this version can compute.
    pub(crate) fn of(digests: &[RawDigest], source: u32) -> Option<Self> {
        let digest = digests.iter().find(|d| (d.source, d.algorithm) == (source, DigestAlgorithm::Sha256))?;
        Some(Self { source, hasher: Sha256::new(), want: digest.digest })
    }

    /// Adds the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Fails if the digest is another one. `name`: that of the base.
    pub(crate) fn finish(self, name: &str) -> Result<()> {
        let is = Bytes::from(self.hasher.finalize());
        if is == self.want {
            return Ok(());
        }
        let (is, want) = (hex(&is), hex(&self.want));
        Err(match self.source {
            0 => Error::damaged(format!(
                "the SHA-256 of the raw bytes is {is}, and the file gives {want}: somebody changed one of them; fetch the file again"
            )),
            _ => Error::base(format!(
                "the base {name:?} is not the file that the delta was made from: its SHA-256 is {is}, not {want}, although the content hash \
                 is the same"
            )),
        })
    }
}

/// Compares the bases of a file, in its order, with the digests that it has of them.
pub(crate) fn compare_bases(digests: &[RawDigest], bases: &[Base<'_>]) -> Result<()> {
    for (i, base) in (1..).zip(bases) {
        if let Some(mut comparison) = Comparison::of(digests, i) {
            each_step(
                base.raw_size(),
                |at, buf| base.read(at, buf),
                |bytes| {
                    comparison.update(bytes);
                    true
                },
            )?;
            comparison.finish(base.name())?;
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
