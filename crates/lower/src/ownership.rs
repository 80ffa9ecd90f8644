//! `tile-ownership` (LANGUAGE 21): what `ts.tile.owned` says of a block is said of the writes into it.
//!
//! Input: as the front end emits it. Output: no `tile.owned`; a write that is behind one on every
//! path, and inside its block, is `unique` (a scatter `owned`, because its positions may repeat), and a
//! read there of what the kernel writes is `owned`. Writes that could not be shown to be inside are
//! listed in the context, for errors.
//! Must not: mark a write that may be outside the block, or run in checked mode, which compares the
//! statements with what groups do.

use crate::facts::{extents, is_view, reach, read, step, written};
use crate::taint::{Taint, taint};
use crate::tickets::{Differs, Flow, differs};
use std::collections::BTreeSet;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, Changed, OpId, Pass, PassContext, Type, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{Atom, Linear, Tile, TileFunc, TileOp, interval_of, linear_of, linear_within};

pub struct Ownership;

impl Pass<Tile> for Ownership {
    fn name(&self) -> &'static str {
        "tile-ownership"
    }

    fn run(&self, func: &mut TileFunc, context: &mut PassContext) -> Result<Changed, Diagnostics> {
        let claims = claims(func);
        if claims.is_empty() {
            return Ok(Changed::No);
        }
        let all = func.walk();
        let changes: BTreeSet<Value> =
            all.iter().filter_map(|&id| written(&func.ops[id])).collect();
        for id in all {
            let op = &func.ops[id];
            let memory = match op.code {
                TileOp::Load => read(op).filter(|m| changes.contains(m)),
                _ => written(op),
            };
            let Some(memory) = memory else { continue };
            let about: Vec<OpId> = claims
                .iter()
                .copied()
                .filter(|&c| func.ops[c].operands[0] == memory && dominates(func, c, id))
                .collect();
            let Some(&last) = about.last() else { continue };
            if about.iter().any(|&claim| keeps_to(func, claim, id)) {
                let said = match op.code {
                    // The order of its positions still counts.
                    TileOp::Load | TileOp::Scatter => "owned",
                    _ => "unique",
                };
                func.ops[id].attrs.set(said, Attr::Bool(true));
            } else if op.code != TileOp::Load {
                context.beyond.push((func.ops[last].loc.clone(), op.loc.clone()));
            }
        }
        claims.into_iter().for_each(|id| func.erase(id));
        Ok(Changed::Yes)
    }
}

fn claims(func: &TileFunc) -> Vec<OpId> {
    func.walk().into_iter().filter(|&id| func.ops[id].code == TileOp::Owned).collect()
}

/// Whether a claim has all that an access touches.
fn keeps_to(func: &TileFunc, claim: OpId, id: OpId) -> bool {
    (0..func.ops[claim].group("at").len()).all(|axis| within(func, claim, id, axis))
}

/// Structured control flow: the op, or what it is in, stands behind the other in the other's block.
fn dominates(func: &TileFunc, first: OpId, then: OpId) -> bool {
    let block = func.ops[first].block;
    let place = |id: OpId| func.blocks[block].ops.iter().position(|&o| o == id);
    let around = func.ancestors(func.ops[then].block);
    let here = [then].into_iter().chain(around).find(|&id| func.ops[id].block == block);
    here.is_some_and(|id| place(first) < place(id))
}

/// Whether an access stays inside the claimed block along an axis.
fn within(func: &TileFunc, claim: OpId, id: OpId, axis: usize) -> bool {
    let (claimed, op) = (&func.ops[claim], &func.ops[id]);
    let at = |list: &[Value]| list.get(axis).copied();
    let (Some(begin), Some(place)) = (at(claimed.group("at")), at(op.group("at"))) else {
        return false;
    };
    // Each element of an index tile, and of an atomic, has a position of its own.
    let blocks = !matches!(op.code, TileOp::Scatter | TileOp::Atomic);
    let extent = |list: Vec<i64>| list.get(axis).copied().unwrap_or(0);
    let (long, own) = (extent(extents(claimed)), if blocks { extent(extents(op)) } else { 0 });
    let alike = step(claimed, axis) == step(op, axis);
    let same = linear_of(func, place).minus(&linear_of(func, begin));
    if same.and_then(|far| far.as_constant()) == Some(0) && own == long && (alike || long <= 1) {
        return true;
    }
    // Extents that are not known yet, and blocks with gaps, are compared as a whole only.
    if long < 0 || own < 0 || (long > 1 && step(claimed, axis) != 1) {
        return false;
    }
    let Some(room) = reach(claimed, axis) else { return false };
    let Some(span) = (if blocks { reach(op, axis) } else { Some(1) }) else { return false };
    far(func, begin, place)
        .is_some_and(|(lo, hi)| lo >= 0 && hi.checked_add(span).is_some_and(|end| end <= room))
}

/// How far positions are from a begin, at least and at most.
///
/// The positions of a narrow integer are compared in its arithmetic, if both are. It wraps: what is
/// said to be at `begin + far` may be at `begin + far - 2^32`, which is outside every array, because
/// `begin` is below 2^31.
fn far(func: &TileFunc, begin: Value, place: Value) -> Option<(i64, i64)> {
    let inner = |v: Value| {
        let op = func.def(v).filter(|op| op.code == TileOp::Cast)?;
        let narrow = func.ty(op.operands[0]).dtype();
        (narrow.is_signed_int() && narrow.bits() < 64).then_some((op.operands[0], narrow))
    };
    let differences = |begin: Value, place: Value| {
        let spread = spread(func, place)?;
        let from = linear_within(func, begin);
        let (lo, hi) = range(func, &spread.base.minus(&from)?)?;
        Some((lo.checked_add(spread.lo)?, hi.checked_add(spread.hi)?))
    };
    let narrow = match (inner(begin), inner(place)) {
        (Some((a, x)), Some((b, y))) if x == y => differences(a, b),
        // A tile of positions may be of the narrow type itself.
        (Some((a, x)), None) if func.ty(place).dtype() == x => differences(a, place),
        _ => None,
    };
    let most = 1i64 << 31;
    let wide = func.ty(place).dtype() == DType::I64;
    narrow
        .filter(|&(lo, hi)| -most < lo && hi < most)
        .or_else(|| differences(begin, place).filter(|_| wide))
}

/// The positions of a tile: those of a scalar, and how far from it they are.
struct Spread {
    base: Linear,
    lo: i64,
    hi: i64,
}

/// The positions that a scalar or an index tile has, in the arithmetic of its dtype.
fn spread(func: &TileFunc, place: Value) -> Option<Spread> {
    let ty = func.ty(place);
    if matches!(ty, Type::Scalar(_)) {
        return Some(Spread { base: linear_within(func, place), lo: 0, hi: 0 });
    }
    let op = func.def(place)?;
    let of = |i: usize| spread(func, op.operands[i]);
    match op.code {
        TileOp::Iota => {
            let start = op.attr("start").and_then(Attr::as_int).unwrap_or(0);
            let count = ty.shape().first()?.as_static()?;
            Some(Spread { base: Linear::default(), lo: start, hi: start.checked_add(count - 1)? })
        }
        TileOp::Const => {
            let v = op.attr("value").and_then(Attr::as_int)?;
            Some(Spread { base: Linear::constant(v), lo: 0, hi: 0 })
        }
        TileOp::Broadcast
        | TileOp::Expand
        | TileOp::Reshape
        | TileOp::Transpose
        | TileOp::Slice => of(0),
        TileOp::Cast => {
            // A wider number is the same if the narrow ones do not wrap.
            let found = of(0).filter(|s| s.base.as_constant().is_some())?;
            let (lo, hi) = (
                found.base.constant.checked_add(found.lo)?,
                found.base.constant.checked_add(found.hi)?,
            );
            let kept = (i64::from(i16::MIN)..=i64::from(i16::MAX)).contains(&lo)
                && hi <= i64::from(i16::MAX)
                && func.ty(op.operands[0]).dtype().bits() >= 16;
            kept.then_some(found)
        }
        TileOp::Ew(f @ (ScalarFn::Add | ScalarFn::Sub)) => {
            let (a, b) = (of(0)?, of(1)?);
            let (lo, hi, base) = match f {
                ScalarFn::Add => (b.lo, b.hi, a.base.plus(&b.base)?),
                _ => (-b.hi, -b.lo, a.base.minus(&b.base)?),
            };
            Some(Spread { base, lo: a.lo.checked_add(lo)?, hi: a.hi.checked_add(hi)? })
        }
        TileOp::Ew(ScalarFn::Mul) => {
            let (a, b) = (of(0)?, of(1)?);
            let (by, x) = match (a.base.as_constant(), b.base.as_constant()) {
                (Some(by), _) if a.lo == 0 && a.hi == 0 => (by, b),
                (_, Some(by)) if b.lo == 0 && b.hi == 0 => (by, a),
                _ => return None,
            };
            let (p, q) = (x.lo.checked_mul(by)?, x.hi.checked_mul(by)?);
            Some(Spread { base: x.base.scaled(by)?, lo: p.min(q), hi: p.max(q) })
        }
        _ => None,
    }
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

/// Why a write that follows from an atomic shows the order of groups.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Shows {
    /// The kernel does not say that its group owns what it writes.
    Unowned,
    /// What it writes, or where, differs from run to run.
    Differs(Differs),
}

/// A write that shows the order of groups through what an atomic found: its position, value or mask
/// depends on the old value, or whether it runs does; or it comes after a loop that waits for the
/// atomic. It must be to what its group owns, and what it writes must follow from one ticket
/// (`tickets.rs`). Exchanges and compare-and-exchanges decide who comes next: every write that may
/// come after one follows from it.
pub fn order_shows(func: &TileFunc, atomic: OpId) -> Option<(OpId, Shows)> {
    let op = &func.ops[atomic];
    let exchanges = matches!(op.attr("op").and_then(Attr::as_word), Some("exchange" | "cas"));
    let said = |id: OpId, name: &str| func.ops[id].attr(name).and_then(Attr::as_bool) == Some(true);
    let owned = |id: OpId| said(id, "unique") || said(id, "owned");
    // What the last of several groups left is there in the end.
    let unlike = taint(func, true, &|o| {
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
    if exchanges && unlike.value(op.operands[1]) && !owned(atomic) {
        return Some((atomic, Shows::Unowned));
    }
    let result = op.results.first().copied();
    let taint = taint(func, true, &|o| o.results.first().copied() == result && result.is_some());
    let flow = Flow::of(func);
    let waits: Vec<OpId> = func
        .walk()
        .into_iter()
        .filter(|&id| matches!(func.ops[id].code, TileOp::While | TileOp::For))
        // A loop over tickets waits for no one.
        .filter(|&id| taint.decides(id) && differs(&flow.decides(id)).is_some())
        .collect();
    func.walk().into_iter().find_map(|id| {
        let own = &func.ops[id];
        let memory = written(own).filter(|&m| is_view(func, m))?;
        // A lock is given back by another atomic of the same array.
        if id == atomic || (exchanges && own.code == TileOp::Atomic && memory == op.operands[0]) {
            return None;
        }
        let after = |first: OpId| crate::check::may_precede(func, first, id);
        if follows(func, &taint, id) {
            if let Some(why) = differs(&flow.write(id)) {
                return Some((id, if owned(id) { Shows::Differs(why) } else { Shows::Unowned }));
            }
            let any_order = flow.is_ticket(id) || flow.commutes(id);
            return (!owned(id) && !any_order).then_some((id, Shows::Unowned));
        }
        let waited = exchanges && after(atomic) || waits.iter().any(|&w| after(w));
        (waited && !owned(id)).then_some((id, Shows::Unowned))
    })
}

fn follows(func: &TileFunc, taint: &Taint, id: OpId) -> bool {
    let op = &func.ops[id];
    taint.control_around(func, id).is_some() || op.operands.iter().any(|&v| taint.value(v))
}
