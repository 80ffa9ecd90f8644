//! `tile-ownership` (LANGUAGE 21): what `ts.tile.owned` says of a block is said of the writes into it.
//!
//! Input: as the front end emits it. Output: no `tile.owned`; a write that is behind one on every
//! path, and inside its block, is `unique`.
//! Must not: mark a write that may be outside the block, or run in checked mode, which compares the
//! statements with what groups do.

use crate::facts::{extents, is_view, reach, step, written};
use crate::taint::{Taint, taint};
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, Changed, OpId, Pass, PassContext, Value};
use tessera_tile::{Atom, Linear, Tile, TileFunc, TileOp, interval_of, linear_of};

pub struct Ownership;

impl Pass<Tile> for Ownership {
    fn name(&self) -> &'static str {
        "tile-ownership"
    }

    fn run(&self, func: &mut TileFunc, _: &mut PassContext) -> Result<Changed, Diagnostics> {
        let claims = claims(func);
        if claims.is_empty() {
            return Ok(Changed::No);
        }
        for id in func.walk() {
            if claims.iter().any(|&claim| covers(func, claim, id)) {
                func.ops[id].attrs.set("unique", Attr::Bool(true));
            }
        }
        claims.into_iter().for_each(|id| func.erase(id));
        Ok(Changed::Yes)
    }
}

fn claims(func: &TileFunc) -> Vec<OpId> {
    func.walk().into_iter().filter(|&id| func.ops[id].code == TileOp::Owned).collect()
}

/// Whether a claim is before a write on every path, and has all that it writes.
fn covers(func: &TileFunc, claim: OpId, id: OpId) -> bool {
    let (claimed, op) = (&func.ops[claim], &func.ops[id]);
    let same = written(op).is_some_and(|memory| memory == claimed.operands[0]);
    same && op.code != TileOp::Scatter
        && dominates(func, claim, id)
        && (0..claimed.group("at").len()).all(|axis| within(func, claim, id, axis))
}

/// Structured control flow: the op, or what it is in, stands behind the other in the other's block.
fn dominates(func: &TileFunc, first: OpId, then: OpId) -> bool {
    let block = func.ops[first].block;
    let place = |id: OpId| func.blocks[block].ops.iter().position(|&o| o == id);
    let around = func.ancestors(func.ops[then].block);
    let here = [then].into_iter().chain(around).find(|&id| func.ops[id].block == block);
    here.is_some_and(|id| place(first) < place(id))
}

/// Whether a write stays inside the claimed block along an axis.
fn within(func: &TileFunc, claim: OpId, id: OpId, axis: usize) -> bool {
    let (claimed, op) = (&func.ops[claim], &func.ops[id]);
    let at = |list: &[Value]| list.get(axis).copied().filter(|&v| func.ty(v).rank() == 0);
    let (Some(begin), Some(place)) = (at(claimed.group("at")), at(op.group("at"))) else {
        return false;
    };
    let Some(far) = linear_of(func, place).minus(&linear_of(func, begin)) else { return false };
    let extent = |list: Vec<i64>| list.get(axis).copied().unwrap_or(0);
    let (long, own) = (extent(extents(claimed)), extent(extents(op)));
    let alike = step(claimed, axis) == step(op, axis);
    if far.as_constant() == Some(0) && own == long && (alike || long <= 1) {
        return true;
    }
    // Extents that are not known yet, and blocks with gaps, are compared as a whole only.
    if long < 0 || own < 0 || (long > 1 && step(claimed, axis) != 1) {
        return false;
    }
    let (Some(room), Some(span)) = (reach(claimed, axis), reach(op, axis)) else { return false };
    range(func, &far)
        .is_some_and(|(lo, hi)| lo >= 0 && hi.checked_add(span).is_some_and(|end| end <= room))
}

/// The least and the greatest value of a form whose terms have known ranges.
fn range(func: &TileFunc, form: &Linear) -> Option<(i64, i64)> {
    let (mut lo, mut hi) = (form.constant, form.constant);
    for (atom, &factor) in &form.terms {
        let Atom::Value(value) = atom else { return None };
        let found = interval_of(func, *value);
        let (a, b) = (found.lo?.checked_mul(factor)?, found.hi?.checked_mul(factor)?);
        lo = lo.checked_add(a.min(b))?;
        hi = hi.checked_add(a.max(b))?;
    }
    Some((lo, hi))
}

/// A write that follows from what an atomic found, and that the kernel does not say its group owns:
/// its position, value or mask depends on the old value, or whether it runs does; or it comes after
/// a loop that waits for the atomic. Exchanges and compare-and-exchanges decide who comes next: every write that
/// may come after one follows from it.
pub fn unowned_after(func: &TileFunc, atomic: OpId) -> Option<OpId> {
    let op = &func.ops[atomic];
    let exchanges = matches!(op.attr("op").and_then(Attr::as_word), Some("exchange" | "cas"));
    let owned = |id: OpId| func.ops[id].attr("unique").and_then(Attr::as_bool) == Some(true);
    // What the last of several groups left is there in the end.
    let differs = taint(func, true, &|o| {
        matches!(
            o.code,
            TileOp::ProgramId
                | TileOp::LinearId
                | TileOp::LocalId
                | TileOp::Load
                | TileOp::Gather
                | TileOp::Atomic
        )
    });
    if exchanges && differs.value(op.operands[1]) && !owned(atomic) {
        return Some(atomic);
    }
    let result = op.results.first().copied();
    let taint = taint(func, true, &|o| o.results.first().copied() == result && result.is_some());
    let waits: Vec<OpId> = func
        .walk()
        .into_iter()
        .filter(|&id| matches!(func.ops[id].code, TileOp::While | TileOp::For))
        .filter(|&id| taint.decides(id))
        .collect();
    func.walk().into_iter().find(|&id| {
        let own = &func.ops[id];
        let Some(memory) = written(own).filter(|&m| is_view(func, m)) else { return false };
        if id == atomic || owned(id) {
            return false;
        }
        // A lock is given back by another atomic of the same array.
        if exchanges && own.code == TileOp::Atomic && memory == op.operands[0] {
            return false;
        }
        let after = |first: OpId| crate::check::may_precede(func, first, id);
        exchanges && after(atomic) || waits.iter().any(|&w| after(w)) || follows(func, &taint, id)
    })
}

fn follows(func: &TileFunc, taint: &Taint, id: OpId) -> bool {
    let op = &func.ops[id];
    taint.control_around(func, id).is_some() || op.operands.iter().any(|&v| taint.value(v))
}
