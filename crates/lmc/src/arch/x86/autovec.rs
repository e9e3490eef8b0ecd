//! The portable kernels, compiled once more for each instruction set: the compiler vectorises what it can.

use super::super::job::{DecodeJob, EncodeJob};
use super::super::{Isa, Kind, portable};
use crate::error::Result;
use crate::group::classes::{RunStats, run_stats};
use crate::group::element::with_element;
use crate::map::Map;

macro_rules! compiled_for {
    ($kind:ident, $features:literal, $decode:ident, $encode:ident, $stats:ident) => {
        pub(in crate::arch) fn $decode(isa: Isa, job: &mut DecodeJob<'_, '_>) -> Result<()> {
            #[target_feature(enable = $features)]
            fn inner(job: &mut DecodeJob<'_, '_>) -> Result<()> {
                with_element!(job.width, E => portable::decode_group_of::<E>(job))
            }
            assert_eq!(isa.0, Kind::$kind);
            // SAFETY: an `Isa` of this kind exists only where the features were detected.
            unsafe { inner(job) }
        }

        pub(in crate::arch) fn $encode(isa: Isa, job: &mut EncodeJob<'_>) {
            #[target_feature(enable = $features)]
            fn inner(job: &mut EncodeJob<'_>) {
                with_element!(job.width, E => portable::encode_group_of::<E>(job))
            }
            assert_eq!(isa.0, Kind::$kind);
            // SAFETY: as above.
            unsafe { inner(job) }
        }

        pub(in crate::arch) fn $stats(isa: Isa, width: usize, map: Map, elements: &[u8], stats: &mut RunStats) {
            #[target_feature(enable = $features)]
            fn inner(width: usize, map: Map, elements: &[u8], stats: &mut RunStats) {
                with_element!(width, E => run_stats::<E>(map, elements, stats))
            }
            assert_eq!(isa.0, Kind::$kind);
            // SAFETY: as above.
            unsafe { inner(width, map, elements, stats) }
        }
    };
}

compiled_for!(Avx2, "avx2,bmi1,bmi2,popcnt,lzcnt", avx2_decode_group, avx2_encode_group, avx2_run_stats);
