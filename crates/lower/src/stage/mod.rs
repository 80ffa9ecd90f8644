//! Lowering from Tile IR to Staged IR: chooses the number of threads of a group, the layout of
//! every tile, the software pipelines and the warp roles.
//!
//! Input: a group kernel after the tile passes. Output: the same program with a layout on every
//! tile, data moved between threads only by explicit ops, and valid by the rules of `staged`.

mod async_mma;
mod copies;
mod footprint;
mod hoist;
mod lanes;
mod layouts;
mod open;
mod passes;
mod persistent_blocks;
mod pipelines;
mod register_prefetch;
mod scalars;
mod seeds;
mod threads;
mod tile_ops;

pub(crate) mod inner {
    pub use super::async_mma::inner::*;
    pub use super::pipelines::inner::*;
}

pub use footprint::{footprint, pinned_warps, with_warps};
pub use hoist::hoist;
pub use open::open;
pub use passes::{Off, Step};
pub use pipelines::{chunk_bytes, neighbour_axis, pipelines};
pub use register_prefetch::register_prefetch;
pub use scalars::{divisor, is_from_zero};
pub use threads::Team;
pub use tile_ops::is_selected;

use tessera_diag::Diagnostics;
use tessera_numerics::{DType, Profile};
use tessera_staged::StagedFunc;
use tessera_target::arrays::ArrayClass;
pub use tessera_target::{GpuCaps, MatrixRow};
use tessera_tile::TileFunc;

/// The target and the options of a compilation.
#[derive(Clone, Debug)]
pub struct Staging<'a> {
    pub caps: &'a GpuCaps,
    pub classes: &'a [ArrayClass],
    pub profile: Profile,
}

impl Staging<'_> {
    /// The MMA instruction for these operands, if one may be used: `strict` requires every product
    /// to be added in order, where that makes a difference. It may be one for wider operands that
    /// represent the same numbers.
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

/// The largest pipeline depth.
pub const MOST_STAGES: u32 = 8;

/// Runs all passes. Each pipeline has at most `stages` stages; `notes` gets what the user may want
/// to know. Where the user leaves the number of warps open, and tiles do not fit in the registers
/// of the usual number, more are used.
pub fn stage(
    func: &TileFunc,
    staging: &Staging<'_>,
    stages: u32,
    notes: &mut Diagnostics,
) -> Result<StagedFunc, Diagnostics> {
    let stored = copies::without_copies(func);
    let func = stored.as_ref().unwrap_or(func);
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
        let caps = GpuCaps { async_mma: Vec::new(), ..staging.caps.clone() };
        return stage_once(func, &Staging { caps: &caps, ..staging.clone() }, stages, notes);
    }
    let always = tessera_tile::without_slow_paths(func);
    let func = always.as_ref().unwrap_or(func);
    let team = threads::choose(func, staging)?;
    let layouts = layouts::assign(func, staging, team);
    let staged = open(func, staging, team, &layouts)?;
    tessera_ir::verify(&staged)?;
    let staged = match persistent_blocks::persistent_blocks(&staged, staging) {
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
    let early = if off.has(Step::RegisterPrefetch) { None } else { register_prefetch(&staged) };
    let staged = early.unwrap_or(staged);
    tessera_ir::verify(&staged)?;
    Ok(staged)
}
