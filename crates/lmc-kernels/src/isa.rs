//! Instruction sets, and their detection.

use lmc_layout::error::{Error, Result};

/// An instruction set that this machine has been seen to support: the private field is the proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Isa(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(dead_code, reason = "no build can find all of them")]
pub(crate) enum Kind {
    Portable,
    Neon,
    Avx2,
    Avx512,
}

impl Isa {
    /// Plain Rust, on every machine.
    pub const PORTABLE: Isa = Isa(Kind::Portable);

    /// NEON, which every 64-bit Arm processor has.
    pub fn neon() -> Option<Isa> {
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        if std::arch::is_aarch64_feature_detected!("neon") {
            return Some(Isa(Kind::Neon));
        }
        None
    }

    /// AVX2, BMI1 and BMI2 (x86-64 v3), where the processor has them.
    pub fn avx2() -> Option<Isa> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("lzcnt")
        {
            return Some(Isa(Kind::Avx2));
        }
        None
    }

    /// AVX-512 F, BW, DQ, VL, VBMI, VBMI2 and GFNI (Ice Lake, Zen 4 and later), where the processor has them.
    pub fn avx512() -> Option<Isa> {
        #[cfg(target_arch = "x86_64")]
        if Self::avx2().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("gfni")
        {
            return Some(Isa(Kind::Avx512));
        }
        None
    }

    /// Every instruction set of this machine, slowest first.
    pub fn available() -> Vec<Isa> {
        [Some(Isa::PORTABLE), Isa::neon(), Isa::avx2(), Isa::avx512()].into_iter().flatten().collect()
    }

    /// The fastest one of this machine, or the one that the environment variable `LMC_ISA` names, unless it is empty.
    ///
    /// # Errors
    /// `Usage` when `LMC_ISA` names something unknown or not present.
    pub fn detect() -> Result<Isa> {
        match std::env::var_os("LMC_ISA").filter(|name| !name.is_empty()) {
            None => Ok(Isa::available().pop().unwrap_or(Isa::PORTABLE)),
            Some(v) => v.to_string_lossy().parse(),
        }
    }

    /// Its name, which can be parsed.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            Kind::Neon => "neon",
            Kind::Avx2 => "avx2",
            Kind::Avx512 => "avx512",
        }
    }

    /// Which one it is.
    pub(crate) fn kind(self) -> Kind {
        self.0
    }
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// From `portable`, `neon`, `avx2` or `avx512`. The error is of kind `Usage`: the name is unknown, or this machine lacks the
/// instruction set.
impl std::str::FromStr for Isa {
    type Err = Error;

    fn from_str(name: &str) -> Result<Isa> {
        let isa = match name {
            "portable" => Some(Isa::PORTABLE),
            "neon" => Isa::neon(),
            "avx2" => Isa::avx2(),
            "avx512" => Isa::avx512(),
            _ => {
                return Err(Error::usage(format!(
                    "unknown instruction set {name:?}; use portable, neon, avx2 or avx512"
                )));
            }
        };
        isa.ok_or_else(|| Error::usage(format!("this machine has no {name}")))
    }
}
