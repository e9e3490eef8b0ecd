//! Plain loops, for which the compiler has these instructions.

use super::super::super::Loop;

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(in crate::arch) fn run(of: impl Loop) {
    of.run();
}
