//! Plain loops, for which the compiler has these instructions.

use super::super::super::Loop;

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,gfni")]
pub(in crate::arch) fn run(of: impl Loop) {
    of.run();
}
