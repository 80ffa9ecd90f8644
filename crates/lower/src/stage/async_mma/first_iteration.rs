//! Peels the rescale path of lazy rescaling: a `tile.slow_path` that the first iteration of a loop
//! always takes, or never.
//!
//! Input: the first iteration of an online softmax loop, as `interleave` copies it out of the loop.
//! Output: the same ops with the branch resolved. The running maximum begins at -inf, or at a
//! number as low. Scores minus that are +inf or NaN, so the condition of the slow path holds
//! wherever there is a score. It is then taken to hold everywhere, which `tile.slow_path` allows,
//! and its condition need not be computed. Nor is the accumulator rescaled: it begins at 0 and
//! stays 0. A slow path for finite weights is known to hold nowhere.

use tessera_ir::{Attr, BlockId, OpId, OpSpec, Rewriter, Value};
use tessera_numerics::ScalarFn;
use tessera_staged::{Staged, StagedFunc, StagedOp};
use tessera_tile::TileOp;

/// The most ops that one question follows.
const DEPTH: u32 = 24;
/// Larger than any number that weights are computed from, unless an equally low one is subtracted.
const HIGH: f64 = 1e38;

/// Copies an op of the first iteration. A slow path that is always taken is copied as its region.
pub fn copy(rw: &mut Rewriter<'_, Staged>, id: OpId, into: BlockId) {
    let old = rw.old;
    let op = &old.ops[id];
    let bad = op.operands.first().map(|&v| (v, rw.get(v)));
    match bad {
        Some((was, bad))
            if op.code == StagedOp::Tile(TileOp::SlowPath) && holds(&rw.new, bad, DEPTH) =>
        {
            let ty = old.ty(was).clone();
            let spec = OpSpec::new(StagedOp::Tile(TileOp::Const), &[])
                .attr("value", Attr::Bool(true))
                .result(ty);
            let all = rw.builder(into, op.loc.clone()).value(spec).expect("the type is given");
            rw.set(was, all);
            for &inner in &old.blocks[op.regions[0]].ops {
                if old.ops[inner].is_terminator() {
                    for (&result, &v) in op.results.iter().zip(&old.ops[inner].operands) {
                        let value = rw.get(v);
                        rw.set(result, value);
                    }
                } else if let Some(zero) = vanished(rw, inner) {
                    rw.set(old.ops[inner].result(), zero);
                } else {
                    copy(rw, inner, into);
                }
            }
            // Other ops may use the same condition.
            rw.set(was, bad);
        }
        // A slow path that is never taken is its initial value.
        Some((_, bad))
            if op.code == StagedOp::Tile(TileOp::SlowPath) && fails(&rw.new, bad, DEPTH) =>
        {
            for (&result, &v) in op.results.iter().zip(op.group("init")) {
                let value = rw.get(v);
                rw.set(result, value);
            }
        }
        // The value that is chosen where such a condition does not hold is not needed.
        Some((_, cond))
            if op.code == StagedOp::Tile(TileOp::Select) && is_true(&rw.new, cond, DEPTH) =>
        {
            let value = rw.get(op.operands[1]);
            rw.set(op.result(), value);
        }
        _ => {
            rw.copy_op(id, into);
        }
    }
}

/// The zero that results from zero times a factor that has vanished. The factor may be NaN too,
/// where the reference of the weights is; then the weights and all that they are added to are NaN
/// as well.
fn vanished(rw: &Rewriter<'_, Staged>, id: OpId) -> Option<Value> {
    let op = &rw.old.ops[id];
    if op.code != StagedOp::Tile(TileOp::Ew(ScalarFn::Mul)) {
        return None;
    }
    let [a, b] = [0, 1].map(|i| rw.get(op.operands[i]));
    let is_zero = |v: Value| number(&rw.new, v, DEPTH) == Some(0.0);
    let zero = match (is_zero(a), is_zero(b)) {
        (true, _) if is_nothing(&rw.new, b, DEPTH) => a,
        (_, true) if is_nothing(&rw.new, a, DEPTH) => b,
        _ => return None,
    };
    (rw.new.ty(zero) == rw.old.ty(op.result())).then_some(zero)
}

/// Whether every element is 0 or NaN.
fn is_nothing(func: &StagedFunc, v: Value, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let Some(op) = func.def(v) else { return false };
    match op.code {
        StagedOp::Tile(TileOp::Broadcast | TileOp::Expand | TileOp::Reshape)
        | StagedOp::ConvertLayout => is_nothing(func, op.operands[0], depth),
        StagedOp::Tile(TileOp::Ew(ScalarFn::Exp | ScalarFn::Exp2)) => {
            is_below_all(func, op.operands[0], depth)
        }
        StagedOp::Tile(TileOp::Select) => {
            is_true(func, op.operands[0], depth) && is_nothing(func, op.operands[1], depth)
        }
        _ => false,
    }
}

/// Whether a condition is the constant that holds everywhere.
fn is_true(func: &StagedFunc, v: Value, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let Some(op) = func.def(v) else { return false };
    match op.code {
        StagedOp::Tile(TileOp::Const) => op.attr("value").and_then(Attr::as_bool) == Some(true),
        StagedOp::Tile(TileOp::Broadcast | TileOp::Expand | TileOp::Reshape | TileOp::Reduce)
        | StagedOp::ConvertLayout => is_true(func, op.operands[0], depth),
        _ => false,
    }
}

/// Whether a condition is true for every element.
fn holds(func: &StagedFunc, v: Value, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let Some(op) = func.def(v) else { return false };
    match op.code {
        StagedOp::Tile(TileOp::Ew(ScalarFn::Not)) => fails(func, op.operands[0], depth),
        StagedOp::ConvertLayout => holds(func, op.operands[0], depth),
        _ => false,
    }
}

/// Whether a condition is false for every element.
fn fails(func: &StagedFunc, v: Value, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let Some(op) = func.def(v) else { return false };
    match op.code {
        StagedOp::Tile(TileOp::Ew(ScalarFn::Le | ScalarFn::Lt)) => {
            let most = number(func, op.operands[1], depth);
            most.is_some_and(|n| n < f64::INFINITY) && is_above_all(func, op.operands[0], depth)
        }
        StagedOp::Tile(TileOp::Ew(ScalarFn::And)) => {
            op.operands.iter().any(|&v| fails(func, v, depth))
        }
        _ => false,
    }
}

fn number(func: &StagedFunc, v: Value, depth: u32) -> Option<f64> {
    let depth = depth.checked_sub(1)?;
    let op = func.def(v)?;
    match op.code {
        StagedOp::Tile(TileOp::Const) => op.attr("value").and_then(Attr::as_float),
        StagedOp::Tile(TileOp::Broadcast | TileOp::Expand | TileOp::Reshape)
        | StagedOp::ConvertLayout => number(func, op.operands[0], depth),
        _ => None,
    }
}

/// Whether every element is +inf, almost so, or NaN, unless it comes from an equally low number.
fn is_above_all(func: &StagedFunc, v: Value, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    if number(func, v, depth).is_some_and(|n| n >= HIGH || n.is_nan()) {
        return true;
    }
    let Some(op) = func.def(v) else { return false };
    let above = |i: usize| is_above_all(func, op.operands[i], depth);
    let below = |i: usize| is_below_all(func, op.operands[i], depth);
    match op.code {
        StagedOp::Tile(code) => match code {
            TileOp::Broadcast | TileOp::Expand | TileOp::Reshape => above(0),
            TileOp::Ew(ScalarFn::Exp | ScalarFn::Exp2) => above(0),
            TileOp::Ew(ScalarFn::Neg) => below(0),
            // With +inf a sum is +inf or NaN, whatever else is added.
            TileOp::Ew(ScalarFn::Fma) => above(2),
            TileOp::Ew(ScalarFn::Sub) => below(1) || above(0),
            TileOp::Ew(ScalarFn::Add) => above(0) || above(1),
            TileOp::Reduce => {
                let kind = op.attr("op").and_then(Attr::as_word);
                matches!(kind, Some("sum" | "max")) && above(0)
            }
            _ => false,
        },
        StagedOp::ConvertLayout => above(0),
        _ => false,
    }
}

/// Whether every element is -inf, almost so, or NaN, unless it comes from an equally high number.
fn is_below_all(func: &StagedFunc, v: Value, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    if number(func, v, depth).is_some_and(|n| n <= -HIGH || n.is_nan()) {
        return true;
    }
    let Some(op) = func.def(v) else { return false };
    let below = |i: usize| is_below_all(func, op.operands[i], depth);
    let positive = |i: usize| number(func, op.operands[i], depth).is_some_and(|n| n >= 1.0);
    match op.code {
        StagedOp::Tile(TileOp::Broadcast | TileOp::Expand | TileOp::Reshape)
        | StagedOp::ConvertLayout => below(0),
        StagedOp::Tile(TileOp::Ew(ScalarFn::Neg)) => is_above_all(func, op.operands[0], depth),
        StagedOp::Tile(TileOp::Ew(ScalarFn::Sub)) => below(0),
        // Both sides of the choice are almost -inf.
        StagedOp::Tile(TileOp::Select) => below(1) && below(2),
        StagedOp::Tile(TileOp::Ew(ScalarFn::Mul)) => {
            below(0) && positive(1) || below(1) && positive(0)
        }
        _ => false,
    }
}
