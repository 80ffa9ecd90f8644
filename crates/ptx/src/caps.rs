//! Capabilities of each target, as data: instruction set features, MMA shapes, sizes.
//!
//! `tests/judge` checks every form of every instruction, claimed or not, with an assembler for
//! every target here. Sizes come from NVIDIA's tables of compute capabilities; where it matters
//! they are queried from the device at run time.

use crate::inst::{MmaRow, Ty};
use crate::matrix_caps::{async_mma_rows, fold_rows, matrix_rows, mma_dtypes};
use crate::module::{Target, Version};
use crate::speed::speed;
use std::sync::LazyLock;
use tessera_numerics::DType;
use tessera_target::GpuCaps;

/// Which targets have a feature.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum On {
    /// This generation and all after it.
    From(u32),
    /// These alone, and only in code for exactly them (`sm_90a`).
    Exact(&'static [u32]),
}

impl On {
    pub fn has(self, target: Target) -> bool {
        match self {
            On::From(sm) => target.sm >= sm,
            On::Exact(list) => target.exact && list.contains(&target.sm),
        }
    }
}

macro_rules! features {
    ($($(#[doc = $doc:literal])* $name:ident $on:expr, $major:literal, $minor:literal;)*) => {
        /// A part of the instruction set that not every target has, or that older versions of PTX
        /// lack.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Feature { $($(#[doc = $doc])* $name),* }

        impl Feature {
            pub const ALL: &'static [Feature] = &[$(Feature::$name),*];

            pub fn on(self) -> On {
                match self { $(Feature::$name => $on),* }
            }

            fn first_version(self) -> Version {
                match self { $(Feature::$name => Version { major: $major, minor: $minor }),* }
            }

            pub fn name(self) -> &'static str {
                match self { $(Feature::$name => stringify!($name)),* }
            }
        }
    };
}
use On::{Exact, From};

impl Feature {
    /// The first version of PTX that has it for a target.
    pub fn version(self, target: Target) -> Version {
        match self {
            // These came with sm_90, and to sm_89 later.
            Feature::Fp8Cvt if target.sm >= 90 => Version { major: 7, minor: 8 },
            _ => self.first_version(),
        }
    }
}

// Columns: the targets, and the version of PTX it came with.
features! {
    /// `ld` and `st` that do not allocate in L1.
    NoAllocate From(70), 7, 4;
    /// The generic address of a parameter.
    ParamAddress From(70), 7, 7;
    /// Parameters beyond 4352 bytes.
    LargeParams From(70), 8, 1;
    /// `abs` of half precision.
    HalfAbs From(70), 6, 5;
    Ldmatrix From(75), 6, 5;
    /// `tanh.approx.f32`, and `ex2` and `tanh` of half precision.
    TanhApprox From(75), 7, 0;
    MmaTuring From(75), 6, 5;
    CpAsync From(80), 7, 0;
    Redux From(80), 7, 0;
    /// Two values into one register: `cvt.rn.f16x2.f32`.
    PackedCvt From(80), 7, 0;
    /// `min` and `max` of half precision, and those that propagate NaN.
    MinMaxNan From(80), 7, 0;
    /// bf16: `fma`, `neg`, `abs`, `min`, `max`, and `cvt` from f32.
    Bf16 From(80), 7, 0;
    /// `cvt` of bf16 to f32.
    Bf16ToF32 From(80), 7, 1;
    Tf32 From(80), 7, 0;
    MmaAmpere From(80), 7, 0;
    /// mbarriers: `arrive` without its result, and waiting for a parity.
    Mbarrier From(80), 7, 0;
    MbarrierArrive From(80), 7, 1;
    Fp8Cvt From(89), 8, 1;
    MmaFp8 From(89), 8, 4;
    /// fp8 MMAs with f16 accumulators, and of depth 16.
    MmaFp8Half From(89), 8, 7;
    /// bf16: `add`, `sub`, `mul`, `setp`, `ex2`, `tanh`, and `cvt` to and from the other types.
    Bf16Arith From(90), 7, 8;
    /// `cvt.rn.tf32.f32` and `rz`.
    Tf32Round From(90), 7, 8;
    /// `atom` and `red` of bf16.
    AtomBf16 From(90), 7, 8;
    /// Vector `red` in global memory.
    RedVector From(90), 8, 1;
    /// `fence.acquire` and `fence.release`.
    FenceOneWay From(90), 8, 6;
    Stmatrix From(90), 7, 8;
    Cluster From(90), 7, 8;
    ClusterBarrier From(90), 8, 0;
    /// `try_wait`, and arrivals with a count.
    MbarrierWait From(90), 7, 8;
    /// mbarriers with transaction bytes, and those of other blocks.
    MbarrierBytes From(90), 8, 0;
    /// TMA: bulk copies of tensor boxes and byte runs.
    Tma From(90), 8, 0;
    /// Stores and reductions into another block's memory, counted by an mbarrier.
    StAsync From(90), 8, 1;
    Elect From(90), 8, 0;
    GridControl From(90), 7, 8;
    MmaF64Hopper From(90), 7, 8;
    Wgmma Exact(&[90]), 8, 0;
    /// `wgmma` of signed by unsigned bytes.
    WgmmaMixed Exact(&[90]), 8, 4;
    SetMaxRegs Exact(&[90, 100, 120]), 8, 0;
    /// FP4, FP6 and power-of-two scales.
    Fp4Cvt Exact(&[100, 120]), 8, 6;
    /// Loads and stores of 32 bytes.
    Wide256 From(100), 8, 8;
    ReduxF32 Exact(&[100]), 8, 6;
    /// MMAs of mixed 8, 6 and 4 bits.
    MmaF8f6f4 Exact(&[120]), 8, 7;
}

/// The capabilities of one target. Sizes are those of the largest chip of the generation.
#[derive(Clone, Debug)]
pub struct PtxCaps {
    pub target: Target,
    /// Warp-level MMAs of the target, the deepest last for each type.
    pub mma_rows: Vec<MmaRow>,
    /// What passes, the cost model and reports know of it.
    pub gpu: GpuCaps,
}

/// Of every target.
pub const MAX_THREADS: u32 = 1024;
/// Of a thread: one register is the constant zero.
pub const MAX_REGISTERS: u32 = 255;
/// Shared memory of fixed size.
pub const MAX_STATIC_SHARED: u32 = 48 * 1024;
/// Of a kernel's parameters: without and with `Feature::LargeParams`.
pub const MAX_PARAM_BYTES: (u32, u32) = (4352, 32764);

/// Supported targets, oldest first, with the first version of PTX that knows each.
pub const TARGETS: &[(Target, Version)] = &[
    target(70, false, 6, 3),
    target(75, false, 6, 3),
    target(80, false, 7, 0),
    target(86, false, 7, 1),
    target(89, false, 7, 8),
    target(90, false, 7, 8),
    target(90, true, 8, 0),
    target(100, false, 8, 6),
    target(100, true, 8, 6),
    target(120, false, 8, 7),
    target(120, true, 8, 7),
];

const fn target(sm: u32, exact: bool, major: u32, minor: u32) -> (Target, Version) {
    (Target { sm, exact }, Version { major, minor })
}

/// The version of PTX that suffices for code without any [`Feature`].
pub fn first_version(target: Target) -> Option<Version> {
    TARGETS.iter().find(|(t, _)| *t == target).map(|(_, v)| *v)
}

struct Sizes {
    sm: u32,
    shared_per_block_kb: u32,
    shared_per_sm_kb: u32,
    threads_per_sm: u32,
    blocks_per_sm: u32,
    max_cluster: u32,
    l2_mb: u64,
}

#[rustfmt::skip]
const SIZES: &[Sizes] = &[
    Sizes { sm: 70,  shared_per_block_kb: 96,  shared_per_sm_kb: 96,  threads_per_sm: 2048, blocks_per_sm: 32, max_cluster: 1, l2_mb: 6 },
    Sizes { sm: 75,  shared_per_block_kb: 64,  shared_per_sm_kb: 64,  threads_per_sm: 1024, blocks_per_sm: 16, max_cluster: 1, l2_mb: 6 },
    Sizes { sm: 80,  shared_per_block_kb: 163, shared_per_sm_kb: 164, threads_per_sm: 2048, blocks_per_sm: 32, max_cluster: 1, l2_mb: 40 },
    Sizes { sm: 86,  shared_per_block_kb: 99,  shared_per_sm_kb: 100, threads_per_sm: 1536, blocks_per_sm: 16, max_cluster: 1, l2_mb: 6 },
    Sizes { sm: 89,  shared_per_block_kb: 99,  shared_per_sm_kb: 100, threads_per_sm: 1536, blocks_per_sm: 24, max_cluster: 1, l2_mb: 72 },
    Sizes { sm: 90,  shared_per_block_kb: 227, shared_per_sm_kb: 228, threads_per_sm: 2048, blocks_per_sm: 32, max_cluster: 8, l2_mb: 50 },
    Sizes { sm: 100, shared_per_block_kb: 227, shared_per_sm_kb: 228, threads_per_sm: 2048, blocks_per_sm: 32, max_cluster: 8, l2_mb: 126 },
    Sizes { sm: 120, shared_per_block_kb: 99,  shared_per_sm_kb: 100, threads_per_sm: 1536, blocks_per_sm: 24, max_cluster: 8, l2_mb: 96 },
];

static CAPS: LazyLock<Vec<PtxCaps>> = LazyLock::new(|| {
    let caps = TARGETS.iter().filter_map(|(target, _)| {
        let sizes = SIZES.iter().find(|s| s.sm == target.sm)?;
        let mma_rows = mma_rows(*target);
        let gpu = gpu(*target, sizes, &mma_rows);
        Some(PtxCaps { target: *target, mma_rows, gpu })
    });
    caps.collect()
});

fn gpu(target: Target, sizes: &Sizes, mma_rows: &[MmaRow]) -> GpuCaps {
    let has = |feature: Feature| feature.on().has(target);
    let (registers_per_sm, shared_per_block) = (65536, sizes.shared_per_block_kb * 1024);
    let speed = speed(target.sm, registers_per_sm, shared_per_block);
    GpuCaps {
        warp_size: 32,
        max_threads_per_block: MAX_THREADS,
        registers_per_thread: MAX_REGISTERS,
        registers_per_sm,
        threads_per_sm: sizes.threads_per_sm,
        blocks_per_sm: sizes.blocks_per_sm,
        shared_per_block,
        shared_per_sm: sizes.shared_per_sm_kb * 1024,
        shared_reserved: if target.sm >= 80 { 1024 } else { 0 },
        multiprocessors: speed.processors as u32,
        max_cluster: sizes.max_cluster,
        l2_bytes: sizes.l2_mb << 20,
        async_copy: has(Feature::CpAsync),
        matrix: matrix_rows(mma_rows),
        async_mma: async_mma_rows(target),
        folds: fold_rows(target),
        register_pools: has(Feature::SetMaxRegs),
        speed,
    }
}

impl PtxCaps {
    pub fn all() -> &'static [PtxCaps] {
        &CAPS
    }

    /// `exact`: the architecture-specific features of this chip, as in `sm_90a`.
    pub fn of(sm: u32, exact: bool) -> Option<&'static PtxCaps> {
        CAPS.iter().find(|c| c.target == Target { sm, exact })
    }

    /// The best target for a device of this compute capability: its own, with all its features, or
    /// else the newest that came before it.
    pub fn for_device(major: u32, minor: u32) -> Option<&'static PtxCaps> {
        let sm = major * 10 + minor;
        let exact = CAPS.iter().find(|c| c.target == Target { sm, exact: true });
        exact.or_else(|| CAPS.iter().rfind(|c| c.target.sm <= sm && !c.target.exact))
    }

    pub fn has(&self, feature: Feature) -> bool {
        feature.on().has(self.target)
    }

    /// Dtypes that MMA instructions of a warp or warpgroup take without conversion.
    pub fn mma_dtypes(&self) -> Vec<DType> {
        mma_dtypes(&self.mma_rows)
    }

    pub fn has_mma(&self, row: &MmaRow) -> bool {
        self.mma_rows.contains(row)
    }
}

/// A shape and types of a warp-level MMA, and the feature that it needs.
pub struct MmaShape {
    pub m: u32,
    pub k: u32,
    /// Types of both operands; each may be on either side.
    pub ab: &'static [Ty],
    pub c: Ty,
    pub feature: Feature,
}

const BYTES: &[Ty] = &[Ty::S8, Ty::U8];
const NIBBLES: &[Ty] = &[Ty::S4, Ty::U4];
const FP8: &[Ty] = &[Ty::E4M3, Ty::E5M2];
const FP8_OR_LESS: &[Ty] = &[Ty::E4M3, Ty::E5M2, Ty::E2M3, Ty::E3M2, Ty::E2M1];

/// All have n = 8. Volta's own `m8n8k4` of f16 is left out: its fragments belong to quads of lanes,
/// and later chips only emulate it. So are block scales (`kind::mxf8f6f4`).
#[rustfmt::skip]
pub const MMA_SHAPES: &[MmaShape] = &[
    MmaShape { m: 16, k: 8,  ab: &[Ty::F16],  c: Ty::F16, feature: Feature::MmaTuring },
    MmaShape { m: 16, k: 8,  ab: &[Ty::F16],  c: Ty::F32, feature: Feature::MmaTuring },
    MmaShape { m: 16, k: 16, ab: &[Ty::F16],  c: Ty::F16, feature: Feature::MmaAmpere },
    MmaShape { m: 16, k: 16, ab: &[Ty::F16],  c: Ty::F32, feature: Feature::MmaAmpere },
    MmaShape { m: 16, k: 8,  ab: &[Ty::BF16], c: Ty::F32, feature: Feature::MmaAmpere },
    MmaShape { m: 16, k: 16, ab: &[Ty::BF16], c: Ty::F32, feature: Feature::MmaAmpere },
    MmaShape { m: 16, k: 4,  ab: &[Ty::Tf32], c: Ty::F32, feature: Feature::MmaAmpere },
    MmaShape { m: 16, k: 8,  ab: &[Ty::Tf32], c: Ty::F32, feature: Feature::MmaAmpere },
    MmaShape { m: 8,  k: 4,  ab: &[Ty::F64],  c: Ty::F64, feature: Feature::MmaAmpere },
    MmaShape { m: 16, k: 4,  ab: &[Ty::F64],  c: Ty::F64, feature: Feature::MmaF64Hopper },
    MmaShape { m: 16, k: 8,  ab: &[Ty::F64],  c: Ty::F64, feature: Feature::MmaF64Hopper },
    MmaShape { m: 16, k: 16, ab: &[Ty::F64],  c: Ty::F64, feature: Feature::MmaF64Hopper },
    MmaShape { m: 8,  k: 16, ab: BYTES,       c: Ty::S32, feature: Feature::MmaTuring },
    MmaShape { m: 16, k: 16, ab: BYTES,       c: Ty::S32, feature: Feature::MmaAmpere },
    MmaShape { m: 16, k: 32, ab: BYTES,       c: Ty::S32, feature: Feature::MmaAmpere },
    MmaShape { m: 8,  k: 32, ab: NIBBLES,     c: Ty::S32, feature: Feature::MmaTuring },
    MmaShape { m: 16, k: 32, ab: NIBBLES,     c: Ty::S32, feature: Feature::MmaAmpere },
    MmaShape { m: 16, k: 64, ab: NIBBLES,     c: Ty::S32, feature: Feature::MmaAmpere },
    MmaShape { m: 16, k: 16, ab: FP8,         c: Ty::F16, feature: Feature::MmaFp8Half },
    MmaShape { m: 16, k: 16, ab: FP8,         c: Ty::F32, feature: Feature::MmaFp8Half },
    MmaShape { m: 16, k: 32, ab: FP8,         c: Ty::F16, feature: Feature::MmaFp8Half },
    MmaShape { m: 16, k: 32, ab: FP8,         c: Ty::F32, feature: Feature::MmaFp8 },
    MmaShape { m: 16, k: 32, ab: FP8_OR_LESS, c: Ty::F16, feature: Feature::MmaF8f6f4 },
    MmaShape { m: 16, k: 32, ab: FP8_OR_LESS, c: Ty::F32, feature: Feature::MmaF8f6f4 },
];

impl MmaShape {
    /// The MMAs of this row: every pair of types, integers also saturating.
    pub fn rows(&self) -> impl Iterator<Item = MmaRow> + '_ {
        let sats: &[bool] = if self.c == Ty::S32 { &[false, true] } else { &[false] };
        let pairs = self.ab.iter().flat_map(|a| self.ab.iter().map(|b| (*a, *b)));
        let rows = pairs.flat_map(|(a, b)| {
            let MmaShape { m, k, c, .. } = *self;
            sats.iter().map(move |sat| MmaRow { m, n: 8, k, a, b, c, sat: *sat })
        });
        // fp8 alone has a form of its own, which more targets have.
        rows.filter(|r| self.feature != Feature::MmaF8f6f4 || r.is_f8f6f4())
    }
}

/// The feature that an MMA needs, if there is such an MMA.
pub fn mma_feature(row: &MmaRow) -> Option<Feature> {
    MMA_SHAPES.iter().find(|s| s.rows().any(|r| r == *row)).map(|s| s.feature)
}

fn mma_rows(target: Target) -> Vec<MmaRow> {
    let shapes = MMA_SHAPES.iter().filter(|s| s.feature.on().has(target));
    shapes.flat_map(|s| s.rows().collect::<Vec<_>>()).collect()
}
