//! The floating point environment of kernels: the one IEEE 754 starts with. A host may have set
//! another rounding, or small numbers to be flushed to zero, and a new thread inherits that.

/// Round to nearest, keep subnormals, trap nothing: MXCSR on x86-64, FPCR on AArch64.
pub(super) const STANDARD: u64 = if cfg!(target_arch = "x86_64") { 0x1F80 } else { 0 };

/// As `STANDARD`, but subnormal results become zero. On AArch64 that bit would change operands too, which comparisons
/// see.
const FLUSHING: u64 = if cfg!(target_arch = "x86_64") { 0x9F80 } else { STANDARD };

/// Puts an environment in place, and what was there back when dropped.
pub struct FloatEnv {
    outer: u64,
}

impl FloatEnv {
    pub fn standard() -> Self {
        Self { outer: replace(STANDARD) }
    }

    /// For code whose arithmetic may flush.
    pub fn flushing() -> Self {
        Self { outer: replace(FLUSHING) }
    }
}

impl Drop for FloatEnv {
    fn drop(&mut self) {
        replace(self.outer);
    }
}

/// Gives what was there before. `control` is `STANDARD` or came from here, so no reserved bit is
/// set in it. Where we know no such register this does nothing.
pub(super) fn replace(control: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: four bytes are written at the first address and read at the second.
    unsafe {
        let (mut outer, inner) = (0_u32, control as u32);
        std::arch::asm!("stmxcsr [{}]", "ldmxcsr [{}]", in(reg) &raw mut outer, in(reg) &raw const inner,
            options(nostack, preserves_flags));
        outer.into()
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: only a control register of this thread is touched.
    unsafe {
        let outer;
        std::arch::asm!("mrs {}, fpcr", "msr fpcr, {}", out(reg) outer, in(reg) control,
            options(nostack, preserves_flags));
        outer
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    control
}
