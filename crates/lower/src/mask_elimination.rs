//! Mask elimination: conditions that compile-time facts make true everywhere.
//!
//! A loop in steps of `n` between multiples of `n` takes whole blocks: its position plus up to `n`
//! stays at or below the loop's end, and so below the number that the end was rounded down from.

use crate::facts::int_const;
use tessera_ir::{Attr, BlockId, Op, Type, Value, ValueDef};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{Tile, TileFunc, TileOp, interval_of, keeps};

/// The most ops of one query.
const DEPTH: u32 = 16;

/// Whether a condition holds for every element.
pub fn always(func: &TileFunc, condition: Value) -> bool {
    let Some(op) = func.def(condition) else { return false };
    match op.code {
        TileOp::Broadcast | TileOp::Expand | TileOp::Transpose | TileOp::Reshape => {
            always(func, op.operands[0])
        }
        TileOp::Ew(ScalarFn::And) => op.operands.iter().all(|&v| always(func, v)),
        TileOp::Ew(ScalarFn::Or) => op.operands.iter().any(|&v| always(func, v)),
        TileOp::Ew(ScalarFn::Lt) => below(func, op.operands[0], op.operands[1], 1),
        TileOp::Ew(ScalarFn::Le) => below(func, op.operands[0], op.operands[1], 0),
        TileOp::Ew(ScalarFn::Gt) => below(func, op.operands[1], op.operands[0], 1),
        TileOp::Ew(ScalarFn::Ge) => below(func, op.operands[1], op.operands[0], 0),
        _ => false,
    }
}

/// Whether `a + by <= b` everywhere, where `a` is a tile of positions, possibly plus a scalar.
fn below(func: &TileFunc, a: Value, b: Value, by: i64) -> bool {
    let Some((at, most)) = positions(func, a, DEPTH) else { return false };
    let Some(b) = spread(func, b) else { return false };
    let Some(reach) = most.checked_add(by) else { return false };
    match at {
        Some(at) => fits(func, at, reach, b),
        // `reach <= x - y` is `y + reach <= x`.
        None => match func.def(b) {
            Some(op) if op.code == TileOp::Ew(ScalarFn::Sub) => {
                fits(func, op.operands[1], reach, op.operands[0])
            }
            _ => interval_of(func, b).lo.is_some_and(|lo| lo >= reach),
        },
    }
}

/// The scalar that a tile is filled with.
fn spread(func: &TileFunc, v: Value) -> Option<Value> {
    let mut v = v;
    loop {
        if *func.ty(v) == Type::INDEX {
            return Some(v);
        }
        let op = func.def(v)?;
        match op.code {
            TileOp::Broadcast | TileOp::Expand | TileOp::Reshape => v = op.operands[0],
            _ => return None,
        }
    }
}

/// A tile of positions: the scalar they begin at, if any, and the largest offset from it.
fn positions(func: &TileFunc, v: Value, depth: u32) -> Option<(Option<Value>, i64)> {
    let depth = depth.checked_sub(1)?;
    if let Some(scalar) = spread(func, v) {
        return Some((Some(scalar), 0));
    }
    let op = func.def(v)?;
    match op.code {
        TileOp::Iota => {
            let start = op.attr("start").and_then(Attr::as_int)?;
            let n = func.ty(v).shape().first()?.as_static()?;
            Some((None, start.checked_add(n)?.checked_sub(1)?))
        }
        TileOp::Cast if keeps(func.ty(op.operands[0]).dtype(), func.ty(v).dtype()) => {
            positions(func, op.operands[0], depth)
        }
        TileOp::Broadcast | TileOp::Expand | TileOp::Reshape => {
            positions(func, op.operands[0], depth)
        }
        // Narrower sums may wrap.
        TileOp::Ew(ScalarFn::Add) if func.ty(v).dtype() == DType::I64 => {
            let (a, x) = positions(func, op.operands[0], depth)?;
            let (b, y) = positions(func, op.operands[1], depth)?;
            match (a, b) {
                (Some(_), Some(_)) => None,
                _ => Some((a.or(b), x.checked_add(y)?)),
            }
        }
        _ => None,
    }
}

/// Whether `at + n <= end`.
fn fits(func: &TileFunc, at: Value, n: i64, end: Value) -> bool {
    let ends = (interval_of(func, at).hi, interval_of(func, end).lo);
    if let (Some(hi), Some(lo)) = ends
        && hi.checked_add(n).is_some_and(|most| most <= lo)
    {
        return true;
    }
    if let Some(op) = func.def(at) {
        let of = |i: usize| op.operands[i];
        return match op.code {
            TileOp::Ew(ScalarFn::Minimum) => fits(func, of(0), n, end) || fits(func, of(1), n, end),
            TileOp::Ew(ScalarFn::Maximum) => {
                let low = |v: Value| {
                    let most = int_const(func, v).and_then(|c| c.checked_add(n));
                    most.is_some_and(|most| is_reached(func, op.block, end, most))
                };
                let below = |v: Value| low(v) || fits(func, v, n, end);
                below(of(0)) && below(of(1))
            }
            // A difference of numbers that are not negative does not wrap.
            TileOp::Ew(ScalarFn::Sub) => {
                let by = int_const(func, of(1)).filter(|&c| c >= n);
                by.is_some() && counts(func, of(0)) && at_most(func, of(0), end, DEPTH)
            }
            _ => false,
        };
    }
    let ValueDef::Arg(block, 0) = func.values[at].def else { return false };
    let Some(parent) = func.blocks[block].parent else { return false };
    let op = &func.ops[parent];
    if op.code != TileOp::For {
        return false;
    }
    let Some(step) = int_const(func, op.operands[2]).filter(|&s| s > 0) else { return false };
    n <= step
        && is_multiple(func, op.operands[0], step, DEPTH)
        && is_multiple(func, op.operands[1], step, DEPTH)
        && at_most(func, op.operands[1], end, DEPTH)
}

/// Whether `n <= end` wherever a block runs: a loop up to `end // c` that has any iteration implies
/// `c <= end`.
fn is_reached(func: &TileFunc, block: BlockId, end: Value, n: i64) -> bool {
    let says = |hi: Value| {
        let op = func.def(hi).filter(|op| op.code == TileOp::Ew(ScalarFn::FloorDiv));
        let by = |op: &Op<Tile>| int_const(func, op.operands[1]).is_some_and(|c| c >= n.max(1));
        op.is_some_and(|op| op.operands[0] == end && by(op))
    };
    func.ancestors(block).iter().map(|&id| &func.ops[id]).any(|op| {
        if op.code != TileOp::For {
            return false;
        }
        let counts = interval_of(func, op.operands[0]).lo.is_some_and(|lo| lo >= 0);
        let least = func.def(op.operands[1]).filter(|o| o.code == TileOp::Ew(ScalarFn::Minimum));
        counts
            && (says(op.operands[1])
                || least.is_some_and(|o| o.operands.iter().any(|&hi| says(hi))))
    })
}

/// The number that a scalar is rounded down from, and the multiple: `x // c * c`.
fn rounded(func: &TileFunc, v: Value) -> Option<(Value, i64)> {
    let op = func.def(v).filter(|op| op.code == TileOp::Ew(ScalarFn::Mul))?;
    let down = |quotient: Value, by: Value| {
        let c = int_const(func, by).filter(|&c| c > 0)?;
        let q = func.def(quotient).filter(|q| q.code == TileOp::Ew(ScalarFn::FloorDiv))?;
        (int_const(func, q.operands[1]) == Some(c)).then_some((q.operands[0], c))
    };
    let [a, b] = [op.operands[0], op.operands[1]];
    down(a, b).or_else(|| down(b, a))
}

/// Whether a scalar is never negative.
fn counts(func: &TileFunc, v: Value) -> bool {
    let known = |v: Value| interval_of(func, v).lo.is_some_and(|lo| lo >= 0);
    known(v) || rounded(func, v).is_some_and(|(from, _)| known(from))
}

/// Whether a scalar is a multiple of `n`.
fn is_multiple(func: &TileFunc, v: Value, n: i64, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    if let Some(c) = int_const(func, v) {
        return c % n == 0;
    }
    let Some(op) = func.def(v) else { return false };
    let of = |i: usize| is_multiple(func, op.operands[i], n, depth);
    match op.code {
        // Multiplication wraps at a power of two: then only factors that are powers of two remain.
        // A non-negative number rounded down is between 0 and that number.
        TileOp::Ew(ScalarFn::Mul) => {
            let down =
                || rounded(func, v).is_some_and(|(from, c)| c % n == 0 && counts(func, from));
            (of(0) || of(1)) && (n as u64).is_power_of_two() || down()
        }
        TileOp::Ew(ScalarFn::Minimum | ScalarFn::Maximum) => of(0) && of(1),
        TileOp::Ew(ScalarFn::Add | ScalarFn::Sub) => of(0) && of(1) && (n as u64).is_power_of_two(),
        TileOp::Select => of(1) && of(2),
        _ => false,
    }
}

/// Whether `a <= b`.
fn at_most(func: &TileFunc, a: Value, b: Value, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    if a == b {
        return true;
    }
    let Some(op) = func.def(a) else { return false };
    let of = |i: usize| at_most(func, op.operands[i], b, depth);
    let known = || {
        let (hi, lo) = (interval_of(func, a).hi, interval_of(func, b).lo);
        hi.zip(lo).is_some_and(|(hi, lo)| hi <= lo)
    };
    match op.code {
        TileOp::Ew(ScalarFn::Minimum) => of(0) || of(1) || known(),
        TileOp::Ew(ScalarFn::Maximum) => of(0) && of(1) || known(),
        TileOp::Select => of(1) && of(2) || known(),
        // Rounded down to a multiple.
        TileOp::Ew(ScalarFn::Mul) => {
            rounded(func, a).is_some_and(|(from, _)| at_most(func, from, b, depth)) || known()
        }
        _ => known(),
    }
}
