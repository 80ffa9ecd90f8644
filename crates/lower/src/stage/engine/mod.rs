//! Products on the matrix engine: a persistent kernel of roles. Some are one thread, which copies boxes
//! of memory into a ring; the other multiplies them where they lie and does all the rest.
//!
//! Before: a group kernel of Tile IR with a loop of products. After: the same in Staged IR, by steps
//! of which each gives a valid function:
//! 0. `swap`: the sides of products change places where the engine takes them only so;
//! 1. `encode` (a part of `open`): products read shared memory that the threads write; what a loop
//!    reads beside them is loaded a turn early (`stage/ahead`);
//! 2. `tiles`: the body becomes a loop over the groups of the launch;
//! 3. `epilogue`: large tiles leave through shared memory, by bulk stores;
//! 4. `feeds`: what products read is filled into rings instead;
//! 5. `rotate`: a product is still under way while the next turn begins;
//! 6. `pair`: of two products that follow from each other, the second is begun with the next first,
//!    also where that is the first of another loop;
//! 7. `defer`: a finished tile leaves while the next is computed;
//! 8. `roles`: the function is cut along the rings;
//! 9. `divide`: three warpgroups share the rows, where there are three times 64.
//!
//! Nothing is known here of what the kernel computes. Where a step cannot be done the kernel is
//! staged for products of warps instead, and a note says why.

mod budget;
mod defer;
mod divide;
mod encode;
mod epilogue;
mod feeds;
mod first;
mod flow;
mod pair;
mod roles;
mod rotate;
mod swap;
mod tiles;

use super::{Off, Staging, Step, ahead, layouts, open, threads::Team};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::verify;
use tessera_layout::Layout;
use tessera_numerics::Profile;
use tessera_staged::StagedFunc;
use tessera_tile::{TileFunc, TileOp};

/// Why a kernel does not take this way.
type Refusal = String;

/// Threads of a warp, and warps that the engine takes a product from.
const LANES: u32 = 32;
const GROUP: u32 = 4;

/// The layout of a product's sums on the engine, where products go there.
pub fn sums(staging: &Staging<'_>, team: Team, shape: &[u32; 2]) -> Option<Layout> {
    (!staging.caps.engine.is_empty()).then(|| Layout::mma_acc(shape, [team.warps, 1]))
}

/// The function staged for the engine; none where it is not to be, with a note where that may
/// surprise.
pub fn stage(
    func: &TileFunc,
    staging: &Staging<'_>,
    slots: u32,
    notes: &mut Diagnostics,
) -> Result<Option<StagedFunc>, Diagnostics> {
    if !has_loop_of_products(func) {
        return Ok(None);
    }
    // `strict` takes none of its products here.
    let func = &match staging.profile {
        Profile::Strict => func.clone(),
        _ => {
            let (freed, _) = crate::free_reference(func);
            crate::relax::relax(freed.as_ref().unwrap_or(func))
        }
    };
    let swapped = swap::sides(func, staging);
    let func = swapped.as_ref().unwrap_or(func);
    let why = match attempt(func, staging, slots) {
        Ok(staged) => match verify(&staged) {
            Ok(()) => return Ok(Some(staged)),
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
            Code::N_NOT_PIPELINED,
            format!("products are made by warps and not by the matrix engine: {why}"),
        )
        .at(func.loc.clone()),
    );
    Ok(None)
}

/// With stores put off where that can be and registers allow it.
fn attempt(func: &TileFunc, staging: &Staging<'_>, slots: u32) -> Result<StagedFunc, Refusal> {
    let off = Off::of(func);
    if !off.has(Step::Defer)
        && let Ok(Some(staged)) = built(func, staging, slots, true, off)
        && budget::has_room(&staged)
    {
        return Ok(staged);
    }
    let plain = built(func, staging, slots, false, off)?;
    Ok(plain.expect("only stores that are put off may be missing"))
}

/// The function after all steps. With `defer` none where no store is put off.
fn built(
    func: &TileFunc,
    staging: &Staging<'_>,
    slots: u32,
    defer: bool,
    off: Off,
) -> Result<Option<StagedFunc>, Refusal> {
    let (team, parts) = encode::team(func, staging)?;
    let layouts = layouts::assign(func, staging, team);
    let told = |e: Diagnostics| e.iter().next().map_or_else(String::new, |e| e.message.clone());
    let opened = open(func, staging, team, &layouts).map_err(told)?;
    let runs = |step: Step| !off.has(step);
    let mut now = sound(opened);
    if runs(Step::Ahead)
        && let Some(early) = ahead::beside_products(&now)
    {
        now = sound(early);
    }
    if runs(Step::Tiles) {
        now = sound(tiles::tiles(&now));
    }
    let most = budget::most_slots(&now, slots);
    // What leaves through shared memory leaves as a whole.
    if runs(Step::Epilogue) && parts == 1 {
        now = sound(epilogue::epilogue(&now, staging, team, most, defer)?);
    }
    // Without rings there is nothing to cut along, and all threads load.
    if !runs(Step::Feeds) {
        return Ok((!defer).then_some(now));
    }
    now = sound(feeds::feeds(&now, staging, most)?);
    if runs(Step::Rotate) {
        now = sound(rotate::rotate(&now, team.warps * parts));
    }
    if runs(Step::Pair) {
        now = sound(pair::pair(&now, off));
    }
    if defer {
        let Some(deferred) = defer::defer(&now) else { return Ok(None) };
        now = sound(deferred);
    }
    if parts > 1 {
        let cut = roles::roles(&now, staging, team, parts)?;
        return Ok(Some(divide::divide(&cut, parts)?));
    }
    Ok(Some(match runs(Step::Roles) {
        true => roles::roles(&now, staging, team, 1)?,
        false => now,
    }))
}

/// Steps are checked one by one where mistakes are looked for; the result always is.
fn sound(func: StagedFunc) -> StagedFunc {
    if cfg!(debug_assertions)
        && let Err(errors) = verify(&func)
    {
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
