//! Plain loops, compiled for each instruction set.

use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::isa::Kind;

/// A plain loop: its functions are inlined.
pub(crate) trait Loop {
    /// Runs it.
    fn run(self);
}

impl Isa {
    /// Runs a loop, with these instructions.
    pub(crate) fn run(self, of: impl Loop) {
        match self.kind() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` of a kind exists only where the features that its kernels are compiled for were detected.
            Kind::Avx512 => unsafe { avx512(of) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Kind::Avx2 => unsafe { avx2(of) },
            _ => of.run(),
        }
    }
}

#[inline]
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
fn avx2(of: impl Loop) {
    of.run();
}

#[inline]
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,gfni")]
fn avx512(of: impl Loop) {
    of.run();
}
