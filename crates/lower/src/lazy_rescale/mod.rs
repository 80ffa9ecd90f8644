//! Lazy rescaling of online softmax (as in FlashAttention-4): the accumulator is rescaled only when
//! the running maximum grows a lot.
//!
//! Input: a group kernel after the tile passes. Output: loops of the form
//!
//! ```text
//!     m' = max(m, rowmax s)  alpha = e(m - m')  p = e(s - m')  l' = l·alpha + sum p  acc' = acc·alpha + …p…
//! ```
//!
//! compute the maximum only in a slow path, the *rescale path*. The result of a softmax does not
//! depend on the number that is subtracted from the scores. So an iteration keeps the reference `m`
//! of the previous one and computes weights with it directly:
//!
//! ```text
//!     p = e(s - m)  l' = l + parts of p  bad = not (parts of p <= 2^64)
//!     m', l', p, alpha = slow_path bad {
//!         slow_path near { rows with finite parts: all times 2^-k, m' = m + log 2^k }
//!         slow_path far { the others: m' = max(m, rowmax s + headroom) … as before }
//!     }
//!     acc' = slow_path bad { acc·alpha } + …p…
//! ```
//!
//! The first block of scores starts from -inf, or a number as low, and takes the rescale path; so
//! does a block with scores far above all earlier ones. The headroom lets scores grow before that
//! happens again. Where scores are masked, a row may have had no score yet. Its reference is then
//! the lowest number and not -inf, so that masked scores have weight 0 and the row does not take
//! the rescale path before it has a score. Row sums are kept in parts and added up after the loop,
//! or after the last of several consecutive loops.
//!
//! Every value that depends on the reference is followed to the kernel's results (`degree`), which
//! must not depend on it. Weights are used in dtypes with f32's range only: they may be from 2^-126
//! to 2^64 times as large. A weight below 2^-94 of the largest may become 0, and sums of weighted
//! values overflow 2^64 times earlier.
//!
//! Where scores are known to be small the reference is a constant instead (`bounded`).
//!
//! Must not: change what is NaN, or the result of rows without any score.

mod bounded;
mod degree;
mod find;

pub(crate) mod inner {
    pub use super::bounded::{Range, chosen, exponent};
    pub use super::find::Base;
}

use crate::canonicalise::Canonicalise;
use crate::mask_elimination::always;
use find::{Online, Uses, find, follows, number, parts_type};
use std::collections::BTreeMap;
use tessera_diag::Loc;
use tessera_ir::{
    Attr, BlockId, Builder, Dim, OpId, OpSpec, Pass, PassContext, Rewriter, Type, Value,
};
use tessera_numerics::{DType, ReduceOp, ScalarFn};
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp};

/// Partial sums of a row: as many as the adjacent columns that the threads of an MMA row share.
pub const PARTS: i64 = 8;
/// Weights begin this many powers of two below 1. The rescale path is taken where a part of their
/// sum is above 2^`MOST`.
const HEADROOM: f64 = 32.0;
/// The most ops of one query.
const DEPTH: u32 = 8;
const MOST: f64 = 64.0;
/// Weights with a sum up to 2 to this power are finite in every dtype that they are used in.
const LARGEST: f64 = 126.0;

/// The reference of rows without any score so far, where some scores are masked: low enough that
/// every score takes the rescale path, and finite in both bases.
const LOWEST: f64 = -170141183460469231731687303715884105728.0; // -2^127

/// The function with lazy rescaling, and why loops that look like an online softmax were left
/// alone.
pub fn lazy_rescale(func: &TileFunc) -> (Option<TileFunc>, Vec<(Loc, String)>) {
    let config = func.attrs.get("config").and_then(Attr::as_dict);
    let wanted = config.and_then(|c| c.get("lazy_rescale"));
    let off = matches!(wanted, Some(Attr::Bool(false) | Attr::Int(0)));
    if off {
        return (None, Vec::new());
    }
    let mut reported = Vec::new();
    let uses = Uses::of(func);
    let mut loops: BTreeMap<OpId, Online> = BTreeMap::new();
    for id in func.walk() {
        match find(func, &uses, id) {
            Some(Ok(online)) => {
                loops.insert(id, online);
            }
            Some(Err(why)) => reported.push((func.ops[id].loc.clone(), why)),
            None => {}
        }
    }
    // Loops that continue with the reference of others are one family.
    let mut family: BTreeMap<OpId, OpId> = BTreeMap::new();
    for (&id, online) in &loops {
        let before = follows(func, online);
        let first = before.filter(|(id, i)| loops.get(id).is_some_and(|o| o.m == *i));
        let first = first.and_then(|(before, _)| family.get(&before).copied()).unwrap_or(id);
        family.insert(id, first);
    }
    let mut kept: BTreeMap<OpId, Free> = BTreeMap::new();
    let firsts: std::collections::BTreeSet<OpId> = family.values().copied().collect();
    for first in firsts {
        let own: Vec<OpId> = family.iter().filter(|f| *f.1 == first).map(|f| *f.0).collect();
        let all: Vec<&Online> = own.iter().map(|id| &loops[id]).collect();
        match degree::holds(func, &all) {
            Ok(()) => {
                let known = bounded::reference(func, &all);
                kept.extend(own.iter().filter_map(|id| {
                    let online = loops.remove(id)?;
                    Some((*id, Free { online, known }))
                }));
            }
            Err(why) => reported.push((func.ops[first].loc.clone(), why)),
        }
    }
    if kept.is_empty() {
        return (None, reported);
    }
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    for &id in &func.blocks[func.body].ops {
        emit(&mut rw, &kept, id, body);
    }
    let mut new = rw.new;
    // Removes unused ops; it has nothing to refuse.
    let _ = Canonicalise.run(&mut new, &mut PassContext::default());
    (Some(new), reported)
}

type Rw<'f> = Rewriter<'f, Tile>;

/// A loop, and its reference where that is a constant.
struct Free {
    online: Online,
    known: Option<f64>,
}

fn emit(rw: &mut Rw<'_>, loops: &BTreeMap<OpId, Free>, id: OpId, into: BlockId) {
    match loops.get(&id) {
        Some(free) => rewritten(rw, loops, free, into),
        None => {
            rw.copy_op_with(id, into, &mut |rw, inner, block| emit(rw, loops, inner, block));
        }
    }
}

fn rewritten(rw: &mut Rw<'_>, loops: &BTreeMap<OpId, Free>, free: &Free, into: BlockId) {
    let (old, online) = (rw.old, &free.online);
    let op = &old.ops[online.id];
    let mut inits: Vec<Value> = op.group("init").iter().map(|&v| rw.get(v)).collect();
    for &i in &online.l {
        let (l, known) = (inits[i], number(old, op.group("init")[i]));
        let ty = parts_type(rw.new.ty(l));
        // A loop that continues with the sum of another takes its parts.
        if let Some(parts) = parts_of(&rw.new, l, &ty) {
            inits[i] = parts;
            continue;
        }
        let mut build = rw.builder(into, op.loc.clone());
        // Division into a power of two of equal parts: no bit is lost.
        inits[i] = if known == Some(0.0) {
            build.constant(ty, Attr::Float(0.0))
        } else {
            let all = columns(&mut build, l, PARTS);
            let part = build.constant(ty, Attr::Float(1.0 / PARTS as f64));
            build.ew(ScalarFn::Mul, &[all, part])
        };
    }
    let types: Vec<Type> = inits.iter().map(|&v| rw.new.ty(v).clone()).collect();
    let bounds: Vec<Value> = op.positional().iter().map(|&v| rw.get(v)).collect();
    let mut spec = OpSpec::new(TileOp::For, &bounds).group("init", &inits).results(types.clone());
    spec.attrs = op.attrs.clone();
    let new = rw.builder(into, op.loc.clone()).op(spec).expect("result types are given");
    let to = rw.new.ops[new].regions[0];
    for (i, &arg) in old.blocks[online.body].args.iter().enumerate() {
        let ty = i.checked_sub(1).map_or(Type::INDEX, |i| types[i].clone());
        let value = rw.new.add_arg(to, ty, old.name_of(arg));
        rw.set(arg, value);
    }
    for &id in &old.blocks[online.body].ops {
        if old.ops[id].results.first() == Some(&online.p) {
            match free.known {
                Some(reference) => bounded_iteration(rw, online, reference, to),
                None => iteration(rw, online, to),
            }
        } else if !online.gone.contains(&id) && !online.only_top.contains(&id) {
            emit(rw, loops, id, to);
        }
    }
    let results = rw.new.ops[new].results.clone();
    for (i, (&v, &r)) in op.results.iter().zip(&results).enumerate() {
        let value = match online.l.contains(&i) {
            true => rw.builder(into, op.loc.clone()).reduce(r, ReduceOp::Sum, 1),
            false => r,
        };
        rw.new.values[value].name = old.values[v].name.clone();
        rw.set(v, value);
    }
}

/// The parts that a row sum was added up from.
fn parts_of(func: &TileFunc, rows: Value, ty: &Type) -> Option<Value> {
    let op = func.def(rows).filter(|op| op.code == TileOp::Reduce)?;
    let along = op.attr("axis").and_then(Attr::as_int) == Some(1);
    let sums = op.attr("op").and_then(Attr::as_word) == Some(ReduceOp::Sum.name());
    (along && sums && func.ty(op.operands[0]) == ty).then_some(op.operands[0])
}

/// Row values broadcast to `n` columns.
fn columns(build: &mut Builder<'_, Tile>, rows: Value, n: i64) -> Value {
    let shape = vec![build.func.ty(rows).shape()[0].clone(), n.into()];
    let column = build.expand(rows, 1);
    build.broadcast(column, shape)
}

/// The same number for all elements of a type.
fn all(build: &mut Builder<'_, Tile>, like: Value, n: f64) -> Value {
    let ty = build.func.ty(like).clone();
    build.constant(ty, Attr::Float(n))
}

/// `e(a - b)`.
fn power(build: &mut Builder<'_, Tile>, online: &Online, a: Value, b: Value) -> Value {
    let mut x = build.ew(ScalarFn::Sub, &[a, b]);
    if online.base.by != 1.0 {
        let by = all(build, x, online.base.by);
        x = build.ew(ScalarFn::Mul, &[x, by]);
    }
    build.ew(online.base.f, &[x])
}

/// Weights with a row's reference, and parts of their sums.
fn weigh(build: &mut Builder<'_, Tile>, online: &Online, s: Value, rows: Value) -> [Value; 2] {
    let n = build.func.ty(s).shape()[1].as_static().unwrap_or(PARTS);
    let reference = columns(build, rows, n);
    let p = power(build, online, s, reference);
    [p, in_parts(build, p)]
}

/// Sums along rows, in parts.
fn in_parts(build: &mut Builder<'_, Tile>, p: Value) -> Value {
    let shape = build.func.ty(p).shape().to_vec();
    let n = shape[1].as_static().unwrap_or(PARTS);
    let apart: Vec<Dim> = vec![shape[0].clone(), (n / PARTS).into(), PARTS.into()];
    let ty = Type::Tile { shape: apart, dtype: DType::F32 };
    let apart = OpSpec::new(TileOp::Reshape, &[p]).result(ty);
    let apart = build.value(apart).expect("the type is given");
    build.reduce(apart, ReduceOp::Sum, 1)
}

/// One iteration with a constant reference: its weights and sums; accumulators are not rescaled.
fn bounded_iteration(rw: &mut Rw<'_>, online: &Online, reference: f64, to: BlockId) {
    let old = rw.old;
    let args = &old.blocks[online.body].args[1..];
    let next = &old.ops[old.terminator(online.body).expect("loops end in a yield")].operands;
    let loc = old.ops[old.def_id(online.p).expect("it is computed")].loc.clone();
    let (m, s) = (rw.get(args[online.m]), rw.get(online.s));
    let l: Vec<Value> = online.l.iter().map(|&i| rw.get(args[i])).collect();
    let mut build = rw.builder(to, loc.clone());
    let (factor, shift) = bounded::exponent(online.base, reference);
    let shape = build.func.ty(s).shape().to_vec();
    let mut spread = |n: f64| {
        let number = build.constant(Type::Scalar(DType::F32), bounded::attr(n));
        build.broadcast(number, shape.clone())
    };
    let factor = spread(factor);
    let x = match shift == 0.0 {
        true => build.ew(ScalarFn::Mul, &[s, factor]),
        false => {
            let shift = spread(shift);
            build.ew(ScalarFn::Fma, &[s, factor, shift])
        }
    };
    let p = build.ew(ScalarFn::Exp2, &[x]);
    build.name(p, "p");
    let parts = in_parts(&mut build, p);
    let sums: Vec<Value> = l.iter().map(|&l| build.ew(ScalarFn::Add, &[l, parts])).collect();
    // The final reference is the constant.
    let new = all(&mut build, m, f64::from(reference as f32));
    rw.set(online.new, new);
    for (&i, &sum) in online.l.iter().zip(&sums) {
        rw.new.values[sum].name = old.values[next[i]].name.clone();
        rw.set(next[i], sum);
    }
    for &v in &online.uses {
        let cast = old.def_id(v).filter(|_| v != online.p);
        let used = rounded(rw, cast, p, to);
        rw.set(v, used);
    }
    for (&i, &kept) in online.scaled.iter().zip(&online.kept) {
        let acc = rw.get(args[i]);
        rw.set(kept, acc);
    }
}

/// One iteration: its weights and sums, and the accumulators.
fn iteration(rw: &mut Rw<'_>, online: &Online, to: BlockId) {
    let old = rw.old;
    let args = &old.blocks[online.body].args[1..];
    let next = &old.ops[old.terminator(online.body).expect("loops end in a yield")].operands;
    let loc = old.ops[old.def_id(online.p).expect("it is computed")].loc.clone();
    let (m, s) = (rw.get(args[online.m]), rw.get(online.s));
    let l: Vec<Value> = online.l.iter().map(|&i| rw.get(args[i])).collect();
    // Weights as they are used: the type, and whether they are rounded.
    let rounding: Vec<Option<OpId>> =
        online.uses.iter().map(|&v| old.def_id(v).filter(|_| v != online.p)).collect();

    let hides = online.instead.is_some() && hides(old, online.s, DEPTH);
    let mut build = rw.builder(to, loc.clone());
    let reference = match hides {
        true => {
            let [none, lowest] = [f64::NEG_INFINITY, LOWEST].map(|n| all(&mut build, m, n));
            let fresh = build.ew(ScalarFn::Eq, &[m, none]);
            build.select(fresh, lowest, m)
        }
        false => m,
    };
    let [p, parts] = weigh(&mut build, online, s, reference);
    build.name(p, "p");
    let sums: Vec<Value> = l.iter().map(|&l| build.ew(ScalarFn::Add, &[l, parts])).collect();
    let used: Vec<Value> = rounding.iter().map(|&id| rounded(rw, id, p, to)).collect();
    let mut build = rw.builder(to, loc.clone());
    let most = all(&mut build, parts, MOST.exp2());
    let fits = build.ew(ScalarFn::Le, &[parts, most]);
    let bad = build.ew(ScalarFn::Not, &[fits]);
    build.name(bad, "bad");
    let alpha = all(&mut build, m, 1.0);
    let inits: Vec<Value> =
        [m].into_iter().chain(sums.clone()).chain(used.clone()).chain([alpha]).collect();
    let (slow_path, region) = open(&mut build, bad, &inits);

    // Rows whose weights are still finite are scaled down.
    let mut build = rw.builder(region, loc.clone());
    let growth = growth(&mut build, parts);
    let (scale, inner) = open(&mut build, growth.near, &inits);
    let mut build = rw.builder(inner, loc.clone());
    let (new, factor) = scaled(&mut build, online, &growth, m);
    let many = columns(&mut build, factor, PARTS);
    let less: Vec<Value> = sums.iter().map(|&l| build.ew(ScalarFn::Mul, &[l, many])).collect();
    let small: Vec<Value> = used.iter().map(|&p| times_rows(&mut build, p, factor)).collect();
    let ends: Vec<Value> = [new].into_iter().chain(less).chain(small).chain([factor]).collect();
    build.yield_(&ends);
    let near = rw.new.ops[scale].results.clone();
    let mut build = rw.builder(region, loc.clone());
    let (again, inner) = open(&mut build, growth.far, &near);
    let ends = rw.new.ops[again].results.clone();
    rw.builder(region, loc.clone()).yield_(&ends);

    // The original form, for the rows that need it.
    for &id in &online.only_top {
        rw.copy_op(id, inner);
    }
    let top = rw.get(online.top);
    let mut build = rw.builder(inner, loc.clone());
    let room = all(&mut build, top, online.base.rise(HEADROOM));
    let top = build.ew(ScalarFn::Add, &[top, room]);
    let new = build.ew(ScalarFn::Maximum, &[m, top]);
    let mut reference = new;
    if let Some(n) = online.instead {
        let low = all(&mut build, new, f64::NEG_INFINITY);
        let none = build.ew(ScalarFn::Eq, &[new, low]);
        let instead = all(&mut build, new, n);
        reference = build.select(none, instead, new);
    }
    let factor = power(&mut build, online, m, reference);
    let [p, parts] = weigh(&mut build, online, s, reference);
    let many = columns(&mut build, factor, PARTS);
    let full: Vec<Value> = l
        .iter()
        .map(|&l| {
            let before = build.ew(ScalarFn::Mul, &[l, many]);
            build.ew(ScalarFn::Add, &[before, parts])
        })
        .collect();
    let used: Vec<Value> = rounding.iter().map(|&id| rounded(rw, id, p, inner)).collect();
    let mut build = rw.builder(inner, loc.clone());
    let ends: Vec<Value> = [new]
        .into_iter()
        .chain(full)
        .chain(used)
        .chain([factor])
        .zip(near)
        .map(|(full, near)| chosen(&mut build, growth.far, full, near))
        .collect();
    build.yield_(&ends);

    let results = rw.new.ops[slow_path].results.clone();
    let [named, alpha] = [&results[..results.len() - 1], &results[results.len() - 1..]];
    let stands = [online.new]
        .into_iter()
        .chain(online.l.iter().map(|&i| next[i]))
        .chain(online.uses.iter().copied());
    for (v, &r) in stands.zip(named) {
        rw.new.values[r].name = old.values[v].name.clone();
        rw.set(v, r);
    }
    for (&i, &kept) in online.scaled.iter().zip(&online.kept) {
        let acc = rw.get(args[i]);
        let mut build = rw.builder(to, loc.clone());
        let (slow_path, region) = open(&mut build, bad, &[acc]);
        let mut build = rw.builder(region, loc.clone());
        let shape = build.func.ty(acc).shape().to_vec();
        let factor = match shape.len() {
            1 => alpha[0],
            _ => {
                let mut factor = alpha[0];
                for axis in 1..shape.len() {
                    factor = build.expand(factor, axis);
                }
                build.broadcast(factor, shape)
            }
        };
        let scaled = build.ew(ScalarFn::Mul, &[acc, factor]);
        build.yield_(&[scaled]);
        let result = rw.new.ops[slow_path].results[0];
        rw.new.values[result].name = old.values[kept].name.clone();
        rw.set(kept, result);
    }
}

/// Whether the kernel masks some scores with -inf.
fn hides(func: &TileFunc, s: Value, depth: u32) -> bool {
    let (Some(depth), Some(op)) = (depth.checked_sub(1), func.def(s)) else { return false };
    match op.code {
        TileOp::Select if always(func, op.operands[0]) => hides(func, op.operands[1], depth),
        TileOp::Select => op.operands[1..]
            .iter()
            .any(|&v| number(func, v) == Some(f64::NEG_INFINITY) || hides(func, v, depth)),
        TileOp::Ew(_) | TileOp::Cast => op.operands.iter().any(|&v| hides(func, v, depth)),
        _ => false,
    }
}

/// How far rows outgrew their reference, as far as their sums show.
struct Growth {
    /// The largest part of each row's sums.
    top: Value,
    /// Where it is too large and finite.
    near: Value,
    /// Where it is not finite: how much too large weights are is not known.
    far: Value,
}

fn growth(build: &mut Builder<'_, Tile>, parts: Value) -> Growth {
    let top = build.reduce(parts, ReduceOp::Max, 1);
    let [limit, largest] = [MOST, LARGEST].map(|n| all(build, top, n.exp2()));
    let is_number = build.ew(ScalarFn::Le, &[top, largest]);
    let far = build.ew(ScalarFn::Not, &[is_number]);
    build.name(far, "far");
    let too_large = build.ew(ScalarFn::Gt, &[top, limit]);
    let near = build.ew(ScalarFn::And, &[too_large, is_number]);
    build.name(near, "near");
    Growth { top, near, far }
}

/// The new reference of near rows, and the power of two that converts weights of the old reference
/// to it; multiplication by it loses only what is too small to count. Other rows keep their
/// reference, with factor 1.
fn scaled(
    build: &mut Builder<'_, Tile>,
    online: &Online,
    growth: &Growth,
    m: Value,
) -> (Value, Value) {
    let float = build.func.ty(growth.top).clone();
    let ints = Type::Tile { shape: float.shape().to_vec(), dtype: DType::I32 };
    let int = |build: &mut Builder<'_, Tile>, n: i64| build.constant(ints.clone(), Attr::Int(n));
    let as_type = |build: &mut Builder<'_, Tile>, code: TileOp, v: Value, ty: &Type| {
        build.value(OpSpec::new(code, &[v]).result(ty.clone())).expect("the type is given")
    };
    let bits = as_type(build, TileOp::Bitcast, growth.top, &ints);
    let [place, bias, least] = [MANTISSA, BIAS - HEADROOM as i64, BIAS - 1].map(|n| int(build, n));
    let exponent = build.ew(ScalarFn::Shr, &[bits, place]);
    let too_large = build.ew(ScalarFn::Sub, &[exponent, bias]);
    let by = build.ew(ScalarFn::Minimum, &[too_large, least]);
    let [none, one] = [0, BIAS].map(|n| int(build, n));
    let by = build.select(growth.near, by, none);
    let down = build.ew(ScalarFn::Sub, &[one, by]);
    let code = build.ew(ScalarFn::Shl, &[down, place]);
    let factor = as_type(build, TileOp::Bitcast, code, &float);
    let up = as_type(build, TileOp::Cast, by, &float);
    let unit = all(build, up, online.base.rise(1.0));
    let up = build.ew(ScalarFn::Mul, &[up, unit]);
    let new = build.ew(ScalarFn::Add, &[m, up]);
    (new, factor)
}

/// The position of an f32's exponent in its bits, and its bias.
const MANTISSA: i64 = 23;
const BIAS: i64 = 127;

/// A tile times a power of two for each row, in its own dtype, which represents all of them
/// exactly.
fn times_rows(build: &mut Builder<'_, Tile>, x: Value, rows: Value) -> Value {
    let (dtype, shape) = (build.func.ty(x).dtype(), build.func.ty(x).shape().to_vec());
    let cast = |build: &mut Builder<'_, Tile>, v: Value, dtype: DType| {
        let ty = Type::Tile { shape: build.func.ty(v).shape().to_vec(), dtype };
        build.value(OpSpec::new(TileOp::Cast, &[v]).result(ty)).expect("the type is given")
    };
    // Its operands guarantee that it is a number of the dtype.
    let narrow = |build: &mut Builder<'_, Tile>, v: Value| {
        let v = cast(build, v, dtype);
        cast(build, v, DType::F32)
    };
    let is_wide = dtype == DType::F32;
    let rows = if is_wide { rows } else { narrow(build, rows) };
    let wide = if is_wide { x } else { cast(build, x, DType::F32) };
    let by = build.expand(rows, 1);
    let by = build.broadcast(by, shape);
    let less = build.ew(ScalarFn::Mul, &[wide, by]);
    if is_wide { less } else { cast(build, less, dtype) }
}

/// `a` in rows where a condition holds, and `b` in others.
fn chosen(build: &mut Builder<'_, Tile>, rows: Value, a: Value, b: Value) -> Value {
    let shape = build.func.ty(a).shape().to_vec();
    let mut cond = rows;
    if shape.len() > 1 {
        cond = build.expand(cond, 1);
        cond = build.broadcast(cond, shape);
    }
    build.select(cond, a, b)
}

/// A slow path and its empty region.
fn open(build: &mut Builder<'_, Tile>, bad: Value, inits: &[Value]) -> (OpId, BlockId) {
    let types: Vec<Type> = inits.iter().map(|&v| build.func.ty(v).clone()).collect();
    let spec = OpSpec::new(TileOp::SlowPath, &[bad]).group("init", inits).results(types);
    let id = build.op(spec).expect("result types are given");
    (id, build.func.ops[id].regions[0])
}

/// Weights rounded as an op rounds them, or unchanged.
fn rounded(rw: &mut Rw<'_>, cast: Option<OpId>, p: Value, into: BlockId) -> Value {
    let Some(cast) = cast else { return p };
    let old = rw.old;
    let op = &old.ops[cast];
    let mut spec = OpSpec::new(TileOp::Cast, &[p]);
    spec.attrs = op.attrs.clone();
    let spec = spec.result(old.ty(op.result()).clone());
    rw.builder(into, op.loc.clone()).value(spec).expect("the type is given")
}
