//! Fast-math rewrites for matmul and attention kernels: identities of real numbers that floats
//! satisfy up to rounding.
//!
//! Input: a group kernel after the tile passes, compiled for a profile that does not request every
//! operation as it is written. Output: the same function with
//!
//! - no mask that hides nothing, and no multiplication by one;
//! - a masked tile times a positive number as the number times the masked tile;
//! - gathers of consecutive elements as block loads (`runs.rs`);
//! - an MMA plus a tile as the MMA with that accumulator;
//! - the maximum of a tile times a number that is not negative as the number times the maximum;
//! - division by a value for each row or column as multiplication by its inverse;
//! - multiplication by two numbers as one multiplication;
//! - a number that replaces whole rows, where something equals a number, as a slow path of these
//!   rows;
//! - `exp(x·c - r)` as `exp2` of one fused multiply-add, with `c·log2 e` and `r·log2 e` computed
//!   once for all elements or for a row. The rounding of `r·log2 e` is one factor for all elements
//!   that share `r`.
//!
//! Must not: depend on what the kernel computes.

use crate::canonicalise::Canonicalise;
use crate::mask_elimination::always;
use crate::runs::gathered;
use crate::stage::{Off, Step};
use std::collections::BTreeMap;
use tessera_ir::{Attr, BlockId, Op, OpId, OpSpec, Pass, PassContext, Rewriter, Type, Value};
use tessera_numerics::{DType, ReduceOp, ScalarFn};
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp};

type Rw<'f> = Rewriter<'f, Tile>;
/// Tries to rewrite an op; returns whether it did.
type Rule = fn(&mut Rw<'_>, &Uses, OpId, BlockId) -> bool;

/// The rules, each applied to the whole function before the next.
const RULES: [(Step, Rule); 10] = [
    (Step::MaskElimination, unmasked),
    (Step::MaskElimination, neighbours),
    // Twice, because a block of a window has two edges and so two masks.
    (Step::FastMath, masked),
    (Step::FastMath, masked),
    (Step::FastMath, added),
    (Step::FastMath, maximum),
    (Step::FastMath, power),
    (Step::FastMath, quotient),
    (Step::FastMath, factors),
    (Step::WarpUniformBranch, rarely),
];

/// Steps that one question may take.
const DEPTH: u32 = 8;
/// Numbers whose product with log2 e is off by less than 2^-10.
const LARGE: f64 = 16384.0;

/// How often each value is used.
struct Uses(BTreeMap<Value, usize>);

impl Uses {
    fn of(func: &TileFunc) -> Self {
        let mut uses = BTreeMap::new();
        for id in func.walk() {
            for &v in &func.ops[id].operands {
                *uses.entry(v).or_insert(0) += 1;
            }
        }
        Self(uses)
    }

    fn once(&self, v: Value) -> bool {
        self.0.get(&v) == Some(&1)
    }
}

pub(crate) fn fast_math(func: &TileFunc) -> TileFunc {
    let mut func = func.clone();
    let off = Off::of(&func);
    for (_, rule) in RULES.into_iter().filter(|(step, _)| !off.has(*step)) {
        let old = func;
        let uses = Uses::of(&old);
        let mut rw = Rewriter::new(&old);
        let body = rw.new.body;
        for &id in &old.blocks[old.body].ops {
            apply(&mut rw, &uses, rule, id, body);
        }
        func = rw.new;
        // Removes unused ops; it has nothing to refuse.
        let _ = Canonicalise.run(&mut func, &mut PassContext::default());
    }
    func
}

fn apply(rw: &mut Rw<'_>, uses: &Uses, rule: Rule, id: OpId, into: BlockId) {
    if !rule(rw, uses, id, into) {
        rw.copy_op_with(id, into, &mut |rw, inner, block| apply(rw, uses, rule, inner, block));
    }
}

fn ew(func: &TileFunc, v: Value, f: ScalarFn) -> Option<&Op<Tile>> {
    func.def(v).filter(|op| op.code == TileOp::Ew(f))
}

/// The smaller tile or scalar that a tile is broadcast from.
fn spread(func: &TileFunc, v: Value) -> Option<Value> {
    func.def(v).filter(|op| op.code == TileOp::Broadcast).map(|op| op.operands[0])
}

fn float(func: &TileFunc, v: Value) -> Option<f64> {
    let op = func.def(v).filter(|op| op.code == TileOp::Const)?;
    op.attr("value").and_then(Attr::as_float)
}

/// A scalar that a tile is multiplied by everywhere, and the tile.
fn scaled(func: &TileFunc, v: Value) -> Option<(Value, Value)> {
    let op = ew(func, v, ScalarFn::Mul).filter(|_| func.ty(v).is_tile())?;
    let scalar =
        |v: Value| spread(func, v).filter(|&s| matches!(func.ty(s), Type::Scalar(DType::F32)));
    match (scalar(op.operands[0]), scalar(op.operands[1])) {
        (_, Some(c)) => Some((op.operands[0], c)),
        (Some(c), None) => Some((op.operands[1], c)),
        (None, None) => None,
    }
}

fn neighbours(rw: &mut Rw<'_>, _: &Uses, id: OpId, into: BlockId) -> bool {
    gathered(rw, id, into)
}

fn unmasked(rw: &mut Rw<'_>, _: &Uses, id: OpId, _: BlockId) -> bool {
    let func = rw.old;
    let op = &func.ops[id];
    let same = match op.code {
        TileOp::Select if func.ty(op.result()).is_tile() && always(func, op.operands[0]) => {
            Some(op.operands[1])
        }
        TileOp::Ew(ScalarFn::Mul) if func.ty(op.result()).dtype().is_float() => {
            let one = |v: Value| {
                float(func, v).or_else(|| float(func, spread(func, v)?)).is_some_and(|c| c == 1.0)
            };
            match (one(op.operands[0]), one(op.operands[1])) {
                (_, true) => Some(op.operands[0]),
                (true, false) => Some(op.operands[1]),
                (false, false) => None,
            }
        }
        _ => None,
    };
    let Some(same) = same.filter(|&v| func.ty(v) == func.ty(op.result())) else { return false };
    let value = rw.get(same);
    rw.set(op.result(), value);
    true
}

fn added(rw: &mut Rw<'_>, uses: &Uses, id: OpId, into: BlockId) -> bool {
    let func = rw.old;
    let op = &func.ops[id];
    if op.code != TileOp::Ew(ScalarFn::Add) {
        return false;
    }
    let product = |v: Value| {
        let product = func.def(v).filter(|p| p.code == TileOp::Mma && p.block == op.block)?;
        let zero = float(func, product.operands[2]) == Some(0.0);
        (zero && uses.once(v)).then_some(product)
    };
    let (found, other) = match (product(op.operands[1]), product(op.operands[0])) {
        (Some(p), _) => (p, op.operands[0]),
        (None, Some(p)) => (p, op.operands[1]),
        (None, None) => return false,
    };
    let [a, b] = [0, 1].map(|i| rw.get(found.operands[i]));
    let mut spec = OpSpec::new(TileOp::Mma, &[a, b, rw.get(other)]);
    spec.attrs = found.attrs.clone();
    let spec = spec.result(func.ty(op.result()).clone());
    let value = rw.builder(into, found.loc.clone()).value(spec).expect("the type is given");
    rw.new.values[value].name = func.values[op.result()].name.clone();
    rw.set(op.result(), value);
    true
}

/// Whether a scalar is never negative. NaN is neither.
fn not_negative(func: &TileFunc, v: Value) -> bool {
    let at_least = |v: Value| float(func, v).is_some_and(|c| c >= 0.0);
    at_least(v)
        || ew(func, v, ScalarFn::Maximum).is_some_and(|op| op.operands.iter().any(|&v| at_least(v)))
}

/// Whether a scalar is above zero.
fn positive(func: &TileFunc, v: Value) -> bool {
    let above = |v: Value| float(func, v).is_some_and(|c| c > 0.0);
    above(v)
        || ew(func, v, ScalarFn::Maximum).is_some_and(|op| op.operands.iter().any(|&v| above(v)))
}

/// `c ? x·a : -inf` is `(c ? x : -inf)·a`: then `a` combines with the next multiplication.
fn masked(rw: &mut Rw<'_>, uses: &Uses, id: OpId, into: BlockId) -> bool {
    let func = rw.old;
    let op = &func.ops[id];
    if op.code != TileOp::Select || !func.ty(op.result()).is_tile() {
        return false;
    }
    let [condition, product, other] = [0, 1, 2].map(|i| op.operands[i]);
    let number = float(func, other).or_else(|| float(func, spread(func, other)?));
    let hidden = number.is_some_and(f64::is_infinite);
    let Some((x, a)) =
        scaled(func, product).filter(|&(_, a)| hidden && uses.once(product) && positive(func, a))
    else {
        return false;
    };
    let shape = func.ty(product).shape().to_vec();
    let [condition, x, other, a] = [condition, x, other, a].map(|v| rw.get(v));
    let mut build = rw.builder(into, op.loc.clone());
    let left = build.select(condition, x, other);
    let factor = build.broadcast(a, shape);
    let value = build.ew(ScalarFn::Mul, &[left, factor]);
    rw.new.values[value].name = func.values[op.result()].name.clone();
    rw.set(op.result(), value);
    true
}

fn maximum(rw: &mut Rw<'_>, _: &Uses, id: OpId, into: BlockId) -> bool {
    let func = rw.old;
    let op = &func.ops[id];
    if op.code != TileOp::Reduce || op.attr("op").and_then(Attr::as_word) != Some("max") {
        return false;
    }
    let Some((x, c)) = scaled(func, op.operands[0]).filter(|&(_, c)| not_negative(func, c)) else {
        return false;
    };
    let (x, c) = (rw.get(x), rw.get(c));
    let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
    let mut build = rw.builder(into, op.loc.clone());
    let most = build.reduce(x, ReduceOp::Max, axis);
    let shape = build.func.ty(most).shape().to_vec();
    let factor = build.broadcast(c, shape);
    let value = build.ew(ScalarFn::Mul, &[most, factor]);
    rw.set(op.result(), value);
    true
}

fn power(rw: &mut Rw<'_>, _: &Uses, id: OpId, into: BlockId) -> bool {
    let func = rw.old;
    let op = &func.ops[id];
    if op.code != TileOp::Ew(ScalarFn::Exp) {
        return false;
    }
    let ty = func.ty(op.result());
    if ty.dtype() != DType::F32 || ty.rank() != 2 {
        return false;
    }
    // The operand minus a value for each row or column.
    let Some(sub) = ew(func, op.operands[0], ScalarFn::Sub) else { return false };
    let Some(shared) = spread(func, sub.operands[1]) else { return false };
    if hidden_by_number(func, sub.operands[0], DEPTH) {
        return false;
    }
    let (x, factor) = match scaled(func, sub.operands[0]) {
        Some((x, c)) => (rw.get(x), Some(rw.get(c))),
        None => (rw.get(sub.operands[0]), None),
    };
    let shape = ty.shape().to_vec();
    let shared = rw.get(shared);
    let of = rw.new.ty(shared).clone();
    let mut build = rw.builder(into, op.loc.clone());
    let scalar = Type::Scalar(DType::F32);
    let log2e = build.constant(scalar, Attr::Float(f64::from(std::f32::consts::LOG2_E)));
    let factor = match factor {
        Some(c) => build.ew(ScalarFn::Mul, &[c, log2e]),
        None => log2e,
    };
    let factor = build.broadcast(factor, shape.clone());
    let many = build.broadcast(log2e, of.shape().to_vec());
    let back = build.ew(ScalarFn::Mul, &[shared, many]);
    let back = build.ew(ScalarFn::Neg, &[back]);
    let back = build.broadcast(back, shape);
    let exponent = build.ew(ScalarFn::Fma, &[x, factor, back]);
    let value = build.ew(ScalarFn::Exp2, &[exponent]);
    rw.new.values[value].name = func.values[op.result()].name.clone();
    rw.set(op.result(), value);
    true
}

/// Whether elements may be a large finite number by the choice of the kernel, as scores are where masks write -1e30 and not
/// -inf. Such a number may be the `r` of its row, and then the rounding of `r·log2 e` is no small factor: `exp(r - r)`
/// would be infinite.
fn hidden_by_number(func: &TileFunc, v: Value, depth: u32) -> bool {
    let (Some(depth), Some(op)) = (depth.checked_sub(1), func.def(v)) else { return false };
    let large = |v: Value| {
        let number = float(func, v).or_else(|| float(func, spread(func, v)?));
        number.is_some_and(|c| c.is_finite() && c.abs() > LARGE)
    };
    match op.code {
        TileOp::Select => {
            op.operands[1..].iter().any(|&v| large(v) || hidden_by_number(func, v, depth))
        }
        TileOp::Ew(_) | TileOp::Cast => {
            op.operands.iter().any(|&v| hidden_by_number(func, v, depth))
        }
        _ => false,
    }
}

/// `(x·a)·b` and `(x·a)·b + c`, where both numbers are the same for all of a tile.
fn factors(rw: &mut Rw<'_>, uses: &Uses, id: OpId, into: BlockId) -> bool {
    let func = rw.old;
    let op = &func.ops[id];
    let result = op.results.first().copied();
    let (product, second, rest) = match op.code {
        TileOp::Ew(ScalarFn::Mul) => {
            let Some((product, second)) = result.and_then(|v| scaled(func, v)) else {
                return false;
            };
            (product, second, None)
        }
        TileOp::Ew(ScalarFn::Fma) if result.is_some_and(|v| func.ty(v).is_tile()) => {
            let scalar = |v: Value| {
                spread(func, v).filter(|&s| matches!(func.ty(s), Type::Scalar(DType::F32)))
            };
            let Some(second) = scalar(op.operands[1]) else { return false };
            (op.operands[0], second, Some(op.operands[2]))
        }
        _ => return false,
    };
    let Some((x, first)) = scaled(func, product).filter(|_| uses.once(product)) else {
        return false;
    };
    let shape = func.ty(product).shape().to_vec();
    let (x, first, second) = (rw.get(x), rw.get(first), rw.get(second));
    let rest = rest.map(|v| rw.get(v));
    let mut build = rw.builder(into, op.loc.clone());
    let both = build.ew(ScalarFn::Mul, &[first, second]);
    let both = build.broadcast(both, shape);
    let value = match rest {
        Some(c) => build.ew(ScalarFn::Fma, &[x, both, c]),
        None => build.ew(ScalarFn::Mul, &[x, both]),
    };
    rw.new.values[value].name = func.values[op.result()].name.clone();
    rw.set(op.result(), value);
    true
}

fn quotient(rw: &mut Rw<'_>, _: &Uses, id: OpId, into: BlockId) -> bool {
    let func = rw.old;
    let op = &func.ops[id];
    if op.code != TileOp::Ew(ScalarFn::Div) {
        return false;
    }
    let ty = func.ty(op.result());
    let Some(by) = spread(func, op.operands[1]).filter(|_| ty.dtype() == DType::F32) else {
        return false;
    };
    // Multiplication by an inverse that is no normal number is not near the quotient.
    if float(func, by).is_some_and(|by| !(by as f32).is_normal() || !(1.0 / by as f32).is_normal())
    {
        return false;
    }
    let (x, by) = (rw.get(op.operands[0]), rw.get(by));
    let shape = ty.shape().to_vec();
    let mut build = rw.builder(into, op.loc.clone());
    let inverse = build.ew(ScalarFn::Recip, &[by]);
    let inverse = build.broadcast(inverse, shape);
    let value = build.ew(ScalarFn::Mul, &[x, inverse]);
    rw.new.values[value].name = func.values[op.result()].name.clone();
    rw.set(op.result(), value);
    true
}

/// Rows in which something equals a number exactly are rare, such as rows of which everything is
/// masked: they go behind a warp-uniform branch.
fn rarely(rw: &mut Rw<'_>, uses: &Uses, id: OpId, into: BlockId) -> bool {
    let func = rw.old;
    let op = &func.ops[id];
    if op.code != TileOp::Select || func.ty(op.result()).rank() != 2 {
        return false;
    }
    let [mask, instead, usual] = [0, 1, 2].map(|i| op.operands[i]);
    let number = |v: Value| float(func, v).or_else(|| float(func, spread(func, v)?));
    let column = spread(func, mask).and_then(|v| func.def(v));
    let Some(column) = column.filter(|column| {
        column.code == TileOp::Expand && column.attr("axis").and_then(Attr::as_int) == Some(1)
    }) else {
        return false;
    };
    let rows = column.operands[0];
    let equal = ew(func, rows, ScalarFn::Eq).is_some_and(|op| {
        func.ty(op.operands[0]).dtype().is_float()
            && op.operands.iter().any(|&v| number(v).is_some())
    });
    if !equal || func.ty(rows).rank() != 1 || number(instead).is_none() || !uses.once(usual) {
        return false;
    }
    let (bad, init) = (rw.get(rows), rw.get(usual));
    let ty = func.ty(op.result()).clone();
    let spec = OpSpec::new(TileOp::SlowPath, &[bad]).group("init", &[init]).result(ty);
    let slow_path = rw.builder(into, op.loc.clone()).op(spec).expect("the type is given");
    let region = rw.new.ops[slow_path].regions[0];
    rw.copy_op(id, region);
    let chosen = rw.get(op.result());
    rw.builder(region, op.loc.clone()).yield_(&[chosen]);
    let result = rw.new.ops[slow_path].results[0];
    rw.new.values[result].name = func.values[op.result()].name.clone();
    rw.set(op.result(), result);
    true
}
