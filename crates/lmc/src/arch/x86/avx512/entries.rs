//! Where the AVX-512 kernels of groups are entered.

use super::super::super::job::{DecodeJob, EncodeJob};
use super::{decode, encode};
use crate::error::Result;
use crate::isa::{Isa, Kind};

pub(in crate::arch) fn decode_group(isa: Isa, job: &mut DecodeJob<'_, '_>) -> Result<()> {
    assert_eq!(isa.kind(), Kind::Avx512);
    job.check();
    // SAFETY: an `Isa` of this kind exists only where the features were detected; the job was checked.
    unsafe { decode::group(job) }
}

pub(in crate::arch) fn encode_group(isa: Isa, job: &mut EncodeJob<'_>) {
    assert_eq!(isa.kind(), Kind::Avx512);
    job.check();
    // SAFETY: as above.
    unsafe { encode::group(job) }
}
