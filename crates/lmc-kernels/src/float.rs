//! The floating-point environment of IEEE 754: rounding to nearest, ties to even, with subnormal numbers.

/// Runs `f` in that environment. A process may have told the processor to take subnormal numbers for 0, as
/// `torch.set_flush_denormal` does; its setting is back afterwards.
pub(crate) fn with_ieee<R>(f: impl FnOnce() -> R) -> R {
    let _restored = Environment::enter();
    f()
}

/// The control register of a thread before it was changed; `None` if it was not.
struct Environment(Option<control::Register>);

impl Environment {
    fn enter() -> Self {
        let before = control::read();
        let is_other = before & control::BITS != control::DEFAULT & control::BITS;
        if is_other {
            control::write(before & !control::BITS | control::DEFAULT & control::BITS);
        }
        Self(is_other.then_some(before))
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            control::write(before);
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unsafe_code)]
mod control {
    use std::arch::asm;

    pub(super) type Register = u32;

    /// The value of MXCSR in a new process.
    pub(super) const DEFAULT: Register = 0x1f80;
    /// Its bits for flushing results to 0, for the rounding mode, and for taking operands for 0.
    pub(super) const BITS: Register = 0x8000 | 0x6000 | 0x40;

    pub(super) fn read() -> Register {
        let mut register = 0u32;
        // SAFETY: it stores four bytes, to a variable of four bytes.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut register, options(nostack, preserves_flags)) };
        register
    }

    pub(super) fn write(register: Register) {
        // SAFETY: the value was read before, but for bits of the default value that Rust code expects.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const register, options(nostack, preserves_flags)) };
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[allow(unsafe_code)]
mod control {
    use std::arch::asm;

    pub(super) type Register = u64;

    /// The value of FPCR in a new process.
    pub(super) const DEFAULT: Register = 0;
    /// Its bits for the default NaN, for flushing to 0 (also of half floats, and of operands alone), and for the rounding mode.
    pub(super) const BITS: Register = 1 << 25 | 1 << 24 | 3 << 22 | 1 << 19 | 1;

    pub(super) fn read() -> Register {
        let register;
        // SAFETY: it changes nothing but a general register.
        unsafe { asm!("mrs {}, fpcr", out(reg) register, options(nostack, preserves_flags)) };
        register
    }

    pub(super) fn write(register: Register) {
        // SAFETY: the value was read before, but for bits of the default value that Rust code expects.
        unsafe { asm!("msr fpcr, {}", in(reg) register, options(nostack, preserves_flags)) };
    }
}

/// Other processors, whose environment is taken to be that of a new process.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod control {
    pub(super) type Register = u32;
    pub(super) const DEFAULT: Register = 0;
    pub(super) const BITS: Register = 0;

    pub(super) fn read() -> Register {
        0
    }

    pub(super) fn write(_: Register) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    /// Half of the smallest normal number.
    fn is_subnormal_kept() -> bool {
        black_box(black_box(f32::MIN_POSITIVE) * black_box(0.5)).to_bits() == 0x0040_0000
    }

    #[test]
    fn subnormal_numbers_are_kept_whatever_the_process_says() {
        let before = control::read();
        // All but the rounding mode. A processor may lack some of the bits.
        control::write(before | control::BITS & !(3 << 22) & !0x6000);
        let set = control::read();
        let (without, within) = (is_subnormal_kept(), with_ieee(is_subnormal_kept));
        let after = control::read();
        control::write(before);
        assert!(within);
        assert_eq!(without, control::BITS == 0, "the setting has an effect");
        // Others of its bits are flags of what happened.
        assert_eq!(after & control::BITS, set & control::BITS);
    }
}
