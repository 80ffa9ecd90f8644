//! From Tile IR to Staged IR: how many threads run a group, and which of them holds what.
//!
//! Before: a group kernel after the tile pipeline. After: the same program with a layout on every
//! tile, data moved between threads only by ops that say so, and valid by the rules of `staged`.

mod ahead;
mod async_mma;
mod footprint;
mod hoist;
mod lanes;
mod layouts;
mod open;
mod passes;
mod persist;
mod pipelines;
mod scalars;
mod seeds;
mod threads;

pub use ahead::ahead;
pub use footprint::{footprint, pinned_warps, with_warps};
pub use hoist::hoist;
pub use open::open;
pub use passes::{Off, Step};
pub use pipelines::{chunk_bytes, neighbour_axis, pipelines};
pub use scalars::{divisor, is_from_zero};
pub use threads::Team;

use tessera_diag::Diagnostics;
use tessera_numerics::{DType, Profile, ReduceOp};
use tessera_staged::StagedFunc;
use tessera_target::arrays::ArrayClass;
use tessera_tile::TileFunc;

/// One kind of product that matrix units do for a warp.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MatrixRow {
    pub a: DType,
    pub b: DType,
    pub acc: DType,
    /// Elements along k of one instruction.
    pub k: u32,
}

/// What the passes ask of a target.
#[derive(Clone, PartialEq, Debug)]
pub struct StageCaps {
    pub max_threads: u32,
    pub shared_bytes: u32,
    /// Registers of 32 bits that a thread may have, and a block.
    pub regs_per_thread: u32,
    pub regs_per_block: u32,
    /// Blocks that may share memory; 1 where there are no clusters.
    pub max_cluster: u32,
    /// Asynchronous copies to shared memory.
    pub async_copy: bool,
    /// Products of a warp.
    pub matrix: Vec<MatrixRow>,
    /// Products of four warps on the tensor cores that reads shared memory and runs beside the threads.
    /// Targets that have it also copy boxes.
    pub async_mma: Vec<MatrixRow>,
    /// What such copies of boxes fold into memory, with the bits that threads would give.
    pub folds: Vec<(ReduceOp, DType)>,
    /// Warps of one block may take registers from others.
    pub register_pools: bool,
    /// Multiprocessors of a usual chip: how many blocks of a large kernel run at once.
    pub multiprocessors: u32,
    /// Of the cache that all multiprocessors share, what stays in it while others read: somewhat less than all.
    pub cache_bytes: u32,
}

/// What is compiled for.
#[derive(Clone, Debug)]
pub struct Staging<'a> {
    pub caps: &'a StageCaps,
    pub classes: &'a [ArrayClass],
    pub profile: Profile,
}

impl Staging<'_> {
    /// The matrix instruction for these operands, if one may be used: `strict` wants every product
    /// added in order, where that makes a difference. It may be one for wider operands that hold
    /// the same numbers.
    pub fn matrix(&self, a: DType, b: DType, acc: DType) -> Option<MatrixRow> {
        if self.profile == Profile::Strict && acc.is_float() {
            return None;
        }
        let find = |a: DType, b: DType| {
            self.caps.matrix.iter().copied().find(|r| (r.a, r.b, r.acc) == (a, b, acc))
        };
        let narrow = |d: DType| matches!(d, DType::Fp8E4M3 | DType::Fp8E5M2);
        let wide = || find(DType::F16, DType::F16).filter(|_| narrow(a) && narrow(b));
        find(a, b).or_else(wide)
    }
}

/// The most stages that a pipeline may have.
pub const MOST_STAGES: u32 = 8;

/// All of it. Each pipeline has at most `stages` stages; `notes` gets what the user may want to know. Where the user leaves open
/// how many warps run a group, and tiles do not fit in the registers of as many as usual, there are more.
pub fn stage(
    func: &TileFunc,
    staging: &Staging<'_>,
    stages: u32,
    notes: &mut Diagnostics,
) -> Result<StagedFunc, Diagnostics> {
    let staged = stage_once(func, staging, stages, notes)?;
    if pinned_warps(func).is_some() {
        return Ok(staged);
    }
    let first = footprint(&staged, staging.caps);
    for warps in footprint::wider(&first, staging.caps) {
        let mut reported = Diagnostics::new();
        let again = stage_once(&with_warps(func, warps), staging, stages, &mut reported);
        let Ok(mut again) = again else { continue };
        let other = footprint(&again, staging.caps);
        if other.spilled() == 0 && other.async_mma == first.async_mma {
            footprint::take_config(&mut again, func);
            *notes = reported;
            return Ok(again);
        }
    }
    Ok(staged)
}

fn stage_once(
    func: &TileFunc,
    staging: &Staging<'_>,
    stages: u32,
    notes: &mut Diagnostics,
) -> Result<StagedFunc, Diagnostics> {
    let off = Off::of(func);
    if !staging.caps.async_mma.is_empty() {
        if !off.has(Step::AsyncMma)
            && let Some(staged) = async_mma::stage(func, staging, stages, notes)?
        {
            return Ok(staged);
        }
        let caps = StageCaps { async_mma: Vec::new(), ..staging.caps.clone() };
        return stage_once(func, &Staging { caps: &caps, ..staging.clone() }, stages, notes);
    }
    let always = tessera_tile::without_slow_paths(func);
    let func = always.as_ref().unwrap_or(func);
    let team = threads::choose(func, staging)?;
    let layouts = layouts::assign(func, staging, team);
    let staged = open(func, staging, team, &layouts)?;
    tessera_ir::verify(&staged)?;
    let staged = match persist::persist(&staged, staging) {
        Some(again) if stages > 1 && !off.has(Step::PersistentBlocks) => again,
        _ => staged,
    };
    let hoisted = if off.has(Step::Hoist) { None } else { hoist(&staged, staging) };
    let staged = hoisted.unwrap_or(staged);
    let staged = if off.has(Step::SoftwarePipelining) {
        staged
    } else {
        pipelines(&staged, staging, stages, notes)
    };
    let early = if off.has(Step::RegisterPrefetch) { None } else { ahead::ahead(&staged) };
    let staged = early.unwrap_or(staged);
    tessera_ir::verify(&staged)?;
    Ok(staged)
}
