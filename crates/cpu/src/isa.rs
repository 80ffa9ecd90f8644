//! What the host's processor can do, in four steps that code is generated for.

use std::fmt;

/// Instructions that may be used; each step holds those before it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Isa {
    /// What every processor of this architecture has.
    Generic,
    /// 32-byte vectors, fused multiply-add, half floats converted by the processor.
    Avx2,
    /// 64-byte vectors with masks.
    Avx512,
    /// AMX for bf16 and int8, beside the vectors.
    Amx,
}

impl Isa {
    pub const ALL: [Isa; 4] = [Isa::Generic, Isa::Avx2, Isa::Avx512, Isa::Amx];

    pub fn name(self) -> &'static str {
        match self {
            Isa::Generic => "generic",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Isa::ALL.into_iter().find(|isa| isa.name() == name)
    }

    /// The most this host has.
    pub fn host() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            // All that the processors named in `llvm` have and code generators like to use.
            let avx2 = has!("avx2")
                && has!("fma")
                && has!("f16c")
                && has!("bmi1")
                && has!("bmi2")
                && has!("lzcnt")
                && has!("popcnt")
                && has!("movbe");
            let avx512 = avx2
                && has!("avx512f")
                && has!("avx512bw")
                && has!("avx512dq")
                && has!("avx512vl")
                && has!("avx512cd");
            let newer = has!("avx512vbmi")
                && has!("avx512vbmi2")
                && has!("avx512ifma")
                && has!("avx512vnni")
                && has!("avx512bitalg")
                && has!("avx512vpopcntdq")
                && has!("gfni")
                && has!("vaes")
                && has!("vpclmulqdq")
                && has!("sha");
            if avx512 && newer && crate::amx::is_available() {
                return Isa::Amx;
            }
            if avx512 {
                return Isa::Avx512;
            }
            if avx2 {
                return Isa::Avx2;
            }
        }
        Isa::Generic
    }

    /// Bytes of one vector register.
    pub fn vector_bytes(self) -> u32 {
        match self {
            Isa::Generic => 16,
            Isa::Avx2 => 32,
            Isa::Avx512 | Isa::Amx => 64,
        }
    }

    /// Vector registers that code may use.
    pub fn registers(self) -> u32 {
        match self {
            Isa::Generic | Isa::Avx2 => 16,
            Isa::Avx512 | Isa::Amx => 32,
        }
    }

    /// Lanes that every vector of the generated code has, whatever its element type.
    pub fn lanes(self) -> u32 {
        self.vector_bytes() / 4
    }

    /// Whether a multiplication and an addition can be one instruction with one rounding.
    pub fn has_fma(self) -> bool {
        self >= Isa::Avx2
    }

    /// The processor and the features, as LLVM spells them.
    pub fn llvm(self) -> (&'static str, &'static str) {
        if cfg!(not(target_arch = "x86_64")) {
            return ("generic", "");
        }
        match self {
            Isa::Generic => ("x86-64", ""),
            Isa::Avx2 => ("haswell", ""),
            Isa::Avx512 => ("skylake-avx512", "-prefer-256-bit"),
            Isa::Amx => ("sapphirerapids", "-prefer-256-bit,-avx512fp16"),
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
