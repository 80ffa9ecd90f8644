//! Products on the tensor cores: a persistent kernel of roles. Some are one thread, which copies boxes
//! of memory into a pipeline; the other multiplies them where they lie and does all the rest.
//!
//! Before: a group kernel of Tile IR with a loop of products. After: the same in Staged IR, by steps
//! of which each gives a valid function:
//! 0. `swap`: the sides of products change places where the tensor cores takes them only so;
//! 1. `encode` (a part of `open`): products read shared memory that the threads write; what a loop
//!    reads beside them is loaded before it (`stage/hoist`) or an iteration early (`stage/ahead`);
//! 2. `tile_scheduler`: the body becomes a loop over the groups of the launch;
//! 3. `epilogue`: large tiles leave through shared memory, by bulk stores;
//! 4. `producer_loads`: what products read is filled into pipelines instead; `dynamic_scheduler`: which groups a block takes;
//! 5. `mma_in_flight`: a product is still under way while the next iteration begins;
//! 6. `interleave`: of two products that follow from each other, the second is begun with the next first,
//!    also where that is the first of another loop;
//! 7. `clusters`: blocks of a cluster take neighbouring groups, where that is requested;
//! 8. `overlapped_epilogue`: a finished tile leaves while the next is computed;
//! 9. `warp_specialize`: the function is cut along the pipelines; `m_split`: three warpgroups share the rows, where there
//!    are three times 64; `pingpong`: where that is requested, warpgroups take whole tiles in turn;
//! 10. `clusters` again: what neighbours both read is copied once for all of them.
//!
//! Nothing is known here of what the kernel computes. Where a step cannot be done the kernel is
//! staged for products of warps instead, and a note says why.

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

use super::{Off, Staging, Step, ahead, hoist, layouts, open, threads::Team};
use crate::split::split;
use std::collections::BTreeSet;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::verify;
use tessera_layout::Layout;
use tessera_numerics::Profile;
use tessera_staged::StagedFunc;
use tessera_tile::{TileFunc, TileOp};
use warp_specialize::Share;

/// Why a kernel does not take this way.
type Refusal = String;

/// Threads of a warp, and warps that the tensor cores takes a product from.
const LANES: u32 = 32;
const GROUP: u32 = 4;

/// The layout of a product's sums on the tensor cores, where products go there.
pub fn sums(staging: &Staging<'_>, team: Team, shape: &[u32; 2]) -> Option<Layout> {
    (!staging.caps.async_mma.is_empty()).then(|| Layout::mma_acc(shape, [team.warps, 1]))
}

/// The function staged for the tensor cores; none where it is not to be, with a note where that may
/// surprise.
pub fn stage(
    func: &TileFunc,
    staging: &Staging<'_>,
    stages: u32,
    notes: &mut Diagnostics,
) -> Result<Option<StagedFunc>, Diagnostics> {
    if !has_loop_of_products(func) {
        return Ok(None);
    }
    // `strict` takes none of its products here.
    let func = &match staging.profile {
        Profile::Strict => func.clone(),
        _ => {
            let cut = if Off::of(func).has(Step::LoopSplitting) { None } else { split(func) };
            let func = cut.as_ref().unwrap_or(func);
            let (freed, reported) = crate::lazy_rescale(func);
            // Loops that follow each other are left for one and the same reason.
            let mut whys = BTreeSet::new();
            for (loc, why) in reported.into_iter().filter(|(_, why)| whys.insert(why.clone())) {
                let why = format!("an online softmax rescales in every iteration: {why}");
                notes.push(Diagnostic::new(Code::N_NO_LAZY_RESCALE, why).at(loc));
            }
            crate::relax::relax(freed.as_ref().unwrap_or(func))
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
    notes.push(
        Diagnostic::new(
            Code::N_NO_ASYNC_MMA,
            format!("MMAs are issued by warps and not asynchronously: {why}"),
        )
        .at(func.loc.clone()),
    );
    Ok(None)
}

/// A function, and why its blocks do not run in clusters where they should.
type Built = (StagedFunc, Option<Refusal>);

/// With warpgroups that take tiles in turn.
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

/// With stores put off where that can be and registers allow it.
fn attempt(
    func: &TileFunc,
    staging: &Staging<'_>,
    stages: u32,
    cluster: Option<[u32; 3]>,
) -> Result<Built, Refusal> {
    // Where each block has one group there is no next one that a store could be put off to.
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

/// The function after all steps. With `overlapped_epilogue` none where no store is put off.
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
        && let Some(early) = ahead::beside_products(&now)
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
    // Without pipelines there is nothing to cut along, and all threads load.
    if !runs(Step::ProducerLoads) {
        let alone = cluster.map(|_| "there are no pipelines without `producer_loads`".into());
        return Ok((!defer).then_some((now, alone)));
    }
    now = sound(producer_loads::feeds(&now, staging, most)?);
    if !tile_scheduler::is_alone(&func.attrs) {
        // Tiles are handed out by a role to one block; clusters and teams in turn go by numbers.
        let free = cluster.is_none() && !pingpong::is_requested(&func.attrs);
        let free = free && runs(Step::WarpSpecialization) && runs(Step::DynamicScheduler);
        dynamic_scheduler::choose(&mut now, free, staging.caps.cache_bytes);
        now = sound(now);
    }
    if runs(Step::MmaInFlight) {
        now = sound(mma_in_flight::rotate(&now, team.warps * parts));
    }
    if runs(Step::InterleavedMmas) {
        now = sound(interleave::pair(&now, off));
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
        let Some(deferred) = overlapped_epilogue::defer(&now) else { return Ok(None) };
        now = sound(deferred);
    }
    if runs(Step::WarpSpecialization) {
        now = match pingpong::is_requested(&func.attrs) {
            true => pingpong::order_barriers(&warp_specialize::roles(
                &now,
                staging,
                team,
                Share::Iterations(pingpong::REPLICAS),
            )?)?,
            false if parts > 1 => m_split::divide(
                &warp_specialize::roles(&now, staging, team, Share::Parts(parts))?,
                parts,
            )?,
            false => warp_specialize::roles(&now, staging, team, Share::All)?,
        };
        now = clusters::share(now);
        if runs(Step::RegisterPrefetch)
            && let Some(early) = ahead::beside_copies(&now)
        {
            now = sound(early);
        }
    }
    Ok(Some((now, alone)))
}

/// Steps are checked one by one, so that a report names the one at fault.
fn sound(func: StagedFunc) -> StagedFunc {
    if let Err(errors) = verify(&func) {
        panic!("a step gave a function that is not valid: {errors}\n{func}");
    }
    func
}

fn has_loop_of_products(func: &TileFunc) -> bool {
    let in_loop = |block| {
        func.ancestors(block)
            .iter()
            .any(|&o| matches!(func.ops[o].code, TileOp::For | TileOp::While))
    };
    func.walk().iter().any(|&id| func.ops[id].code == TileOp::Mma && in_loop(func.ops[id].block))
}
