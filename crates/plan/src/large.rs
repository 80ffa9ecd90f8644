//! Two-pass reductions and split-K matmuls: many groups compute partial results, and a second
//! kernel combines them. It applies where one group would take too long or too many registers. The
//! partition does not depend on the machine's load, so the result is deterministic.

use crate::expand::Site;
use crate::index::dims_of;
use crate::machine::{Machine, Matrix, TMA_ROWS};
use tessera_graph::{GraphOp, elem, tensor};
use tessera_ir::{Attr, Attrs, Dim, OpSpec, Type, Value};
use tessera_numerics::{DType, NumType, ReduceOp};
use tessera_target::speed::LINE;

type Made = Result<Value, String>;

fn dims(list: &[i64]) -> Vec<Dim> {
    list.iter().map(|&d| Dim::Static(d)).collect()
}

/// A reduction in several kernels; `None` where one is enough. `ordered`: additions keep the canonical order, which parts
/// of other lengths would change.
pub fn reduce(
    site: &mut Site<'_>,
    machine: Machine,
    ordered: bool,
    x: Value,
    attrs: &Attrs,
    ty: &Type,
) -> Option<Made> {
    let op = attrs.get("op").and_then(Attr::as_word).and_then(ReduceOp::from_name)?;
    let axes: Vec<usize> = attrs.get("axes")?.as_ints()?.iter().map(|&a| a as usize).collect();
    let from = elem(site.func.ty(x));
    let accum = match op {
        ReduceOp::Sum | ReduceOp::Prod => from.accumulator().dtype(),
        ReduceOp::Max | ReduceOp::Min | ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => {
            from.storage.carrier()
        }
    };
    let inexact = matches!(op, ReduceOp::Sum | ReduceOp::Prod) && accum.is_float();
    if accum != accum.carrier() || ordered && inexact || most(site, machine, x, &axes).is_none() {
        return None;
    }
    Some((|| {
        let wide = site.cast(x, NumType::plain(accum), None)?;
        let sum = combined(site, machine, wide, op, &axes)?;
        let clamp = matches!(op, ReduceOp::Max | ReduceOp::Min) && ty.dtype().is_int();
        site.cast(sum, elem(ty), clamp.then_some(true))
    })())
}

/// How many elements a group may combine, where that is less than there are.
fn most(site: &Site<'_>, machine: Machine, x: Value, axes: &[usize]) -> Option<i64> {
    let all = dims_of(site.func, x);
    let count: i64 = axes.iter().map(|&a| all[a]).product();
    let rows: i64 = all.iter().product::<i64>() / count.max(1);
    let innermost = all.iter().rposition(|&d| d != 1);
    let contiguous = innermost.is_some_and(|a| axes.contains(&a));
    Some(machine.combined(count, contiguous, rows)).filter(|&most| most < count)
}

/// The largest number of at most `most` that divides `n`.
fn divisor(n: i64, most: i64) -> i64 {
    (1..=most.min(n)).rev().find(|d| n % d == 0).unwrap_or(1)
}

/// `x` has the accumulator dtype.
fn combined(site: &mut Site<'_>, machine: Machine, x: Value, op: ReduceOp, axes: &[usize]) -> Made {
    let all = dims_of(site.func, x);
    let Some(most) = most(site, machine, x, axes) else {
        return plain(site, x, op, axes);
    };
    // The longest axis is split; the others are combined with its parts where that is not too much.
    let longest = axes.iter().copied().max_by_key(|&a| all[a]).unwrap_or(0);
    let rest: i64 = axes.iter().filter(|&&a| a != longest).map(|&a| all[a]).product();
    let wanted = (most / rest.max(1)).max(1);
    let n = all[longest];
    let part = divisor(n, wanted);
    if part * 4 < wanted {
        // No equal parts: the equal ones, and a remainder.
        let even = n / wanted * wanted;
        let slice = |site: &mut Site<'_>, from: i64, to: i64| {
            let mut start = vec![0; all.len()];
            let mut limit = all.clone();
            (start[longest], limit[longest]) = (from, to);
            let spec = OpSpec::new(GraphOp::Slice, &[x])
                .attr("start", Attr::ints(start))
                .attr("limit", Attr::ints(limit));
            site.op(spec)
        };
        let (head, tail) = (slice(site, 0, even)?, slice(site, even, n)?);
        let (head, tail) =
            (combined(site, machine, head, op, axes)?, combined(site, machine, tail, op, axes)?);
        return site.ew(op.combine(), &[head, tail]);
    }
    let mut cut = all.clone();
    cut.splice(longest..=longest, [n / part, part]);
    let parts = site.reshape(x, &cut)?;
    let moved = |&a: &usize| if a >= longest { a + 1 } else { a };
    let inner: Vec<usize> = axes.iter().map(moved).collect();
    let sums = combined(site, machine, parts, op, &inner)?;
    let before = axes.iter().filter(|&&a| a < longest).count();
    combined(site, machine, sums, op, &[longest - before])
}

fn plain(site: &mut Site<'_>, x: Value, op: ReduceOp, axes: &[usize]) -> Made {
    let spec = OpSpec::new(GraphOp::Reduce, &[x])
        .attr("op", Attr::word(op.name()))
        .attr("axes", Attr::ints(axes.iter().map(|&a| a as i64)));
    site.op(spec)
}

/// A split-K matmul; `None` where one group does all of k.
pub fn dot(
    site: &mut Site<'_>,
    machine: Machine,
    operands: &[Value],
    attrs: &Attrs,
    ty: &Type,
) -> Option<Made> {
    let ints = |name: &str| attrs.get(name).and_then(Attr::as_ints).unwrap_or_default();
    let (batch, contract) =
        ([ints("batch_a"), ints("batch_b")], [ints("contract_a"), ints("contract_b")]);
    // A fixed order of additions is requested.
    if attrs.get("class").and_then(Attr::as_word) == Some("seq") {
        return None;
    }
    let types = [0, 1].map(|i| site.func.ty(operands[i]).clone());
    let said = attrs.get("accum").and_then(Attr::as_word).and_then(DType::parse);
    let (accum, _) = tessera_graph::ops::dot::dtypes(&types[0], &types[1], said, None).ok()?;
    let legal = tessera_tile::ops::mma::accumulator(types[0].dtype(), types[1].dtype());
    if legal != Some(accum) || !accum.is_float() {
        return None;
    }
    let sides = [0, 1].map(|i| dims_of(site.func, operands[i]));
    // Axes of k that are adjacent in both operands are one.
    let follow = |list: &[i64]| list.windows(2).all(|w| w[1] == w[0] + 1);
    let (Some(&a), Some(&b)) = (contract[0].first(), contract[1].first()) else { return None };
    if !contract.iter().all(|list| follow(list)) {
        return None;
    }
    let axes = contract[0].len();
    let depth: i64 = contract[0].iter().map(|&i| sides[0][i as usize]).product();
    let pairs: i64 = batch[0].iter().map(|&i| sides[0][i as usize]).product();
    let free = |i: usize| sides[i].iter().product::<i64>() / (pairs * depth).max(1);
    let bytes = types[0].dtype().bytes() as i64;
    let split = machine.chunks(&Matrix {
        rows: free(0),
        columns: free(1),
        depth,
        batch: pairs,
        of: types[0].dtype(),
        out_bytes: ty.dtype().bytes() as i64,
        rows_on: [LINE; 2],
        may_split: true,
    });
    // Other depths are divided at the launch: chunks of a reshape are equal, and begin where TMA may.
    if split <= 1 || depth % split != 0 || depth / split * bytes % TMA_ROWS as i64 != 0 {
        return None;
    }
    Some((|| {
        let mut cut = Vec::new();
        let mut lists = Vec::new();
        for (i, axis) in [a, b].into_iter().enumerate() {
            let mut shape = sides[i].clone();
            shape.splice(axis as usize..axis as usize + axes, [split, depth / split]);
            cut.push(site.reshape(operands[i], &shape)?);
            let moved = |&x: &i64| if x >= axis { x + 2 - axes as i64 } else { x };
            let pairs: Vec<i64> = [axis].into_iter().chain(batch[i].iter().map(moved)).collect();
            lists.push((pairs, axis + 1));
        }
        let mut spec = OpSpec::new(GraphOp::Dot, &cut)
            .attr("batch_a", Attr::ints(lists[0].0.iter().copied()))
            .attr("batch_b", Attr::ints(lists[1].0.iter().copied()))
            .attr("contract_a", Attr::ints([lists[0].1]))
            .attr("contract_b", Attr::ints([lists[1].1]))
            .attr("accum", Attr::word(accum.name()))
            .attr("out", Attr::word(accum.name()));
        if let Some(class) = attrs.get("class") {
            spec = spec.attr("class", class.clone());
        }
        let parts = site.op(spec)?;
        let sum = plain(site, parts, ReduceOp::Sum, &[0])?;
        site.cast(sum, elem(ty), None)
    })())
}

/// A type with other extents.
pub fn shaped(ty: &Type, shape: &[i64]) -> Type {
    tensor(dims(shape), elem(ty))
}
