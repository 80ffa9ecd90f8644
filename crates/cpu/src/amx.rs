//! AMX: whether the processor and the operating system let this process use its tiles.

/// Requests permission once: Linux grants a process the use of tiles (`arch_prctl`).
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub fn is_available() -> bool {
    use std::arch::x86_64::__cpuid_count;
    use std::sync::OnceLock;
    static GRANTED: OnceLock<bool> = OnceLock::new();
    *GRANTED.get_or_init(|| {
        const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_ulong = 18;
        if __cpuid_count(0, 0).eax < 7 {
            return false;
        }
        // AMX-BF16 is bit 22, AMX-TILE 24, AMX-INT8 25; AVX512_BF16 is bit 5 of the first subleaf.
        let wanted = 1 << 22 | 1 << 24 | 1 << 25;
        let has =
            __cpuid_count(7, 0).edx & wanted == wanted && __cpuid_count(7, 1).eax & 1 << 5 != 0;
        // SAFETY: the call changes nothing but this process's leave to use the tiles.
        has && unsafe {
            libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0
        }
    })
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub fn is_available() -> bool {
    false
}
