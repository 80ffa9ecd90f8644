//! Matmul loops with WGMMA and TMA on Hopper: a warp-specialized, persistent kernel. Producer warps
//! load operands with TMA into pipelines in shared memory; consumer warpgroups issue WGMMAs on them
//! and do everything else. It is the structure of CUTLASS's Hopper mainloops and of
//! FlashAttention-3.
//!
//! Input: a group kernel of Tile IR with a loop of MMAs. Output: the same kernel in Staged IR. The
//! passes, each of which gives a valid function:
//!
//! 0. `swap`: exchanges the operands of MMAs where WGMMA takes them only that way;
//! 1. `encode` (a part of `open`): MMAs become WGMMAs on shared memory that the threads write;
//!    other loads of a loop are hoisted before it (`stage/hoist`) or issued an iteration early
//!    (`stage/ahead`);
//! 2. `tile_scheduler`: the body becomes a persistent loop over the groups of the launch;
//! 3. `epilogue`: large result tiles are stored through shared memory with TMA;
//! 4. `producer_loads`: operands become pipeline stages filled by TMA; `dynamic_scheduler`: the
//!    order in which CTAs take groups;
//! 5. `mma_in_flight`: an MMA is still in flight while the next iteration begins;
//! 6. `interleave`: of two dependent MMAs, the second is issued together with the first of the next
//!    iteration, also across loops (`cross_loop_pipelining`);
//! 7. `clusters`: CTAs of a cluster take neighbouring groups, where that is requested;
//! 8. `overlapped_epilogue`: a finished tile is stored while the next is computed;
//! 9. `warp_specialize`: the function is cut along the pipelines into producer and consumer roles;
//!    `m_split`: three warpgroups share 192 rows; `pingpong`: where requested, warpgroups alternate
//!    on whole tiles;
//! 10. `clusters` again: loads that neighbours have in common become multicasts.
//!
//! The passes know nothing about what the kernel computes. Where one cannot be done, the kernel
//! falls back to synchronous MMAs of single warps, and a note says why.

mod budget;
mod clusters;
mod dynamic_scheduler;
mod encode;
mod epilogue;
mod first_iteration;
mod interleave;
mod m_split;
mod mma_in_flight;
mod overlapped_epilogue;
mod pingpong;
mod producer_loads;
mod swap;
mod tile_scheduler;
mod uses;
mod warp_specialize;

pub(crate) mod inner {
    pub use super::dynamic_scheduler::{Length, Trend};
}

use super::{
    Off, Staging, Step, copies::has_buffers, hoist, layouts, open, register_prefetch, threads::Team,
};
use crate::split::split;
use std::collections::BTreeSet;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::verify;
use tessera_layout::Layout;
use tessera_numerics::Profile;
use tessera_staged::StagedFunc;
use tessera_tile::{TileFunc, TileOp};
use warp_specialize::Share;

/// Why a kernel does not use asynchronous MMAs.
type Refusal = String;

/// Threads of a warp, and warps of a warpgroup.
const LANES: u32 = 32;
const GROUP: u32 = 4;

/// The layout of an MMA's accumulator where it is a WGMMA.
pub fn sums(staging: &Staging<'_>, team: Team, shape: &[u32; 2]) -> Option<Layout> {
    (!staging.caps.async_mma.is_empty()).then(|| Layout::mma_acc(shape, [team.warps, 1]))
}

/// The function staged for WGMMA and TMA. None where that does not apply, with a note where it may
/// surprise the user.
pub fn stage(
    func: &TileFunc,
    staging: &Staging<'_>,
    stages: u32,
    notes: &mut Diagnostics,
) -> Result<Option<StagedFunc>, Diagnostics> {
    if !has_matmul_loop(func) {
        return Ok(None);
    }
    if has_buffers(func) {
        let why = "the kernel has shared buffers that are not values".into();
        notes.push(synchronous(func, why));
        return Ok(None);
    }
    if func.walk().iter().any(|&id| func.ops[id].code == TileOp::AsmEffect) {
        let why = "assembly text with effects runs once, in the order of the program".into();
        notes.push(synchronous(func, why));
        return Ok(None);
    }
    // In `strict` no MMA is asynchronous.
    let func = &match staging.profile {
        Profile::Strict => func.clone(),
        _ => {
            let cut = if Off::of(func).has(Step::LoopSplitting) { None } else { split(func) };
            let func = cut.as_ref().unwrap_or(func);
            let (freed, reported) = crate::lazy_rescale(func);
            // Consecutive loops are often left alone for the same reason.
            let mut whys = BTreeSet::new();
            for (loc, why) in reported.into_iter().filter(|(_, why)| whys.insert(why.clone())) {
                let why = format!("an online softmax rescales in every iteration: {why}");
                notes.push(Diagnostic::new(Code::N_NO_LAZY_RESCALE, why).at(loc));
            }
            crate::fast_math::fast_math(freed.as_ref().unwrap_or(func))
        }
    };
    let swapped = swap::sides(func, staging);
    let func = swapped.as_ref().unwrap_or(func);
    let cluster = clusters::pinned(func, staging)?;
    pingpong::check(func)?;
    let loc = func.loc.clone();
    let no_cluster = |why: Option<Refusal>, notes: &mut Diagnostics| {
        if let Some(why) = why {
            let message = format!("blocks do not run in clusters: {why}");
            notes.push(Diagnostic::new(Code::N_NO_CLUSTER, message).at(loc.clone()));
        }
    };
    let together;
    let mut func = func;
    if pingpong::is_requested(&func.attrs) {
        match in_turns(func, staging, stages, cluster) {
            Ok((staged, why)) => {
                no_cluster(why, notes);
                return Ok(Some(staged));
            }
            Err(why) => {
                let message = format!("warpgroups do not take tiles in turn: {why}");
                notes.push(Diagnostic::new(Code::N_NO_PINGPONG, message).at(func.loc.clone()));
            }
        }
        together = pingpong::without(func);
        func = &together;
    }
    let why = match attempt(func, staging, stages, cluster) {
        Ok((staged, why)) => match verify(&staged) {
            Ok(()) => {
                no_cluster(why, notes);
                return Ok(Some(staged));
            }
            // Tiles that do not fit in the registers of a role may fit in those of a block.
            Err(errors) if errors.iter().all(|e| e.code == Code::E_TILE_LOWERING) => {
                errors.iter().next().map_or_else(String::new, |e| e.message.clone())
            }
            Err(errors) => return Err(errors),
        },
        Err(why) => why,
    };
    notes.push(synchronous(func, why));
    Ok(None)
}

/// The note on a kernel whose MMAs are not asynchronous.
fn synchronous(func: &TileFunc, why: Refusal) -> Diagnostic {
    let message = format!("MMAs are issued by warps and not asynchronously: {why}");
    Diagnostic::new(Code::N_NO_ASYNC_MMA, message).at(func.loc.clone())
}

/// A function, and why its CTAs do not run in clusters although that is requested.
type Built = (StagedFunc, Option<Refusal>);

/// With warpgroup ping-pong.
fn in_turns(
    func: &TileFunc,
    staging: &Staging<'_>,
    stages: u32,
    cluster: Option<[u32; 3]>,
) -> Result<Built, Refusal> {
    let off = Off::of(func);
    if [Step::TileScheduler, Step::ProducerLoads, Step::WarpSpecialization]
        .into_iter()
        .any(|step| off.has(step))
    {
        return Err("there are no roles, or no loop over groups".into());
    }
    if tile_scheduler::is_alone(&func.attrs) {
        return Err("each block has one group".into());
    }
    let built = built(func, staging, stages, cluster, false)?;
    let built = built.expect("only stores that are put off may be missing");
    let reported = |e: Diagnostics| e.iter().next().map_or_else(String::new, |e| e.message.clone());
    verify(&built.0).map_err(reported)?;
    Ok(built)
}

/// With an overlapped epilogue where that is possible and registers allow it.
fn attempt(
    func: &TileFunc,
    staging: &Staging<'_>,
    stages: u32,
    cluster: Option<[u32; 3]>,
) -> Result<Built, Refusal> {
    // A CTA with one group has no next tile to overlap a store with.
    let next = !tile_scheduler::is_alone(&func.attrs);
    if next
        && !Off::of(func).has(Step::OverlappedEpilogue)
        && let Ok(Some(built)) = built(func, staging, stages, cluster, true)
        && budget::has_room(&built.0)
    {
        return Ok(built);
    }
    let plain = built(func, staging, stages, cluster, false)?;
    Ok(plain.expect("only stores that are put off may be missing"))
}

/// The function after all passes. With `overlapped_epilogue` none where no store can be overlapped.
fn built(
    func: &TileFunc,
    staging: &Staging<'_>,
    stages: u32,
    cluster: Option<[u32; 3]>,
    defer: bool,
) -> Result<Option<Built>, Refusal> {
    let off = Off::of(func);
    let (team, parts) = encode::team(func, staging)?;
    let layouts = layouts::assign(func, staging, team);
    let reported = |e: Diagnostics| e.iter().next().map_or_else(String::new, |e| e.message.clone());
    let opened = open(func, staging, team, &layouts).map_err(reported)?;
    let runs = |step: Step| !off.has(step);
    let mut now = sound(opened);
    if runs(Step::Hoist)
        && let Some(before) = hoist::beside_products(&now)
    {
        now = sound(before);
    }
    if runs(Step::RegisterPrefetch)
        && let Some(early) = register_prefetch::beside_products(&now)
    {
        now = sound(early);
    }
    if runs(Step::TileScheduler) {
        now = sound(tile_scheduler::tiles(&now));
    }
    let most = budget::most_stages(&now, stages);
    if runs(Step::Epilogue) {
        now = sound(epilogue::epilogue(&now, staging, team, most, parts, defer)?);
    }
    let cluster = cluster.filter(|shape| shape.iter().any(|&n| n > 1));
    // Without pipelines there are no roles, and all threads load.
    if !runs(Step::ProducerLoads) {
        let alone = cluster.map(|_| "there are no pipelines without `producer_loads`".into());
        return Ok((!defer).then_some((now, alone)));
    }
    now = sound(producer_loads::producer_loads(&now, staging, most)?);
    if !tile_scheduler::is_alone(&func.attrs) {
        // A scheduler warp hands out tiles to one CTA. Clusters and ping-pong need a static
        // schedule.
        let free = cluster.is_none() && !pingpong::is_requested(&func.attrs);
        let free = free && runs(Step::WarpSpecialization) && runs(Step::DynamicScheduler);
        dynamic_scheduler::choose(&mut now, free, staging.caps.retained_l2_bytes());
        now = sound(now);
    }
    if runs(Step::MmaInFlight) {
        now = sound(mma_in_flight::keep_in_flight(&now, team.warps * parts));
    }
    if runs(Step::InterleavedMmas) {
        now = sound(interleave::interleave(&now, off));
    }
    let mut alone = None;
    if let Some(shape) = cluster {
        let can = if runs(Step::WarpSpecialization) {
            Ok(())
        } else {
            Err("there are no roles".to_string())
        };
        match can.and_then(|()| clusters::spread(&now, shape)) {
            Ok(spread) => now = sound(spread),
            Err(why) => alone = Some(why),
        }
    }
    if defer {
        let Some(overlapped) = overlapped_epilogue::overlap(&now) else { return Ok(None) };
        now = sound(overlapped);
    }
    if runs(Step::WarpSpecialization) {
        now = match pingpong::is_requested(&func.attrs) {
            true => pingpong::order_barriers(&warp_specialize::roles(
                &now,
                staging,
                team,
                Share::PingPong(pingpong::REPLICAS),
            )?)?,
            false if parts > 1 => m_split::split(
                &warp_specialize::roles(&now, staging, team, Share::Parts(parts))?,
                parts,
            )?,
            false => warp_specialize::roles(&now, staging, team, Share::All)?,
        };
        now = clusters::share(now);
        if runs(Step::RegisterPrefetch)
            && let Some(early) = register_prefetch::beside_copies(&now)
        {
            now = sound(early);
        }
    }
    Ok(Some((now, alone)))
}

/// Each pass is verified, so that an internal error names the one at fault.
fn sound(func: StagedFunc) -> StagedFunc {
    if let Err(errors) = verify(&func) {
        panic!("a step gave a function that is not valid: {errors}\n{func}");
    }
    func
}

fn has_matmul_loop(func: &TileFunc) -> bool {
    let in_loop = |block| {
        func.ancestors(block)
            .iter()
            .any(|&o| matches!(func.ops[o].code, TileOp::For | TileOp::While))
    };
    func.walk().iter().any(|&id| func.ops[id].code == TileOp::Mma && in_loop(func.ops[id].block))
}
