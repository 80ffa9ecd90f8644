//! Sorting by rank: an element's place is the number of elements that go before it. Every step is
//! an elementwise op, a sum or a gather, which become kernels of many groups.

use crate::expand::Site;
use crate::index::dims_of;
use crate::large;
use crate::machine::Machine;
use tessera_graph::{GraphOp, elem, tensor};
use tessera_ir::{Attr, Attrs, Dim, OpSpec, Value};
use tessera_numerics::{DType, NumType, Scalar, ScalarFn};

type Made = Result<Value, String>;

pub fn sort(
    site: &mut Site<'_>,
    machine: Machine,
    operands: &[Value],
    attrs: &Attrs,
) -> Result<Vec<Value>, String> {
    let axis = attrs.get("axis").and_then(Attr::as_int).unwrap_or(0).max(0) as usize;
    let keys = attrs.get("keys").and_then(Attr::as_int).unwrap_or(1).max(1) as usize;
    let descending = attrs.get("descending").and_then(Attr::as_bool).unwrap_or(false);
    let dims = dims_of(site.func, operands[0]);
    let n = dims[axis];
    let count = dims.iter().product::<i64>() / n;
    // Rows of what is sorted.
    let mut perm: Vec<i64> = (0..dims.len() as i64).filter(|&a| a != axis as i64).collect();
    perm.push(axis as i64);
    let turned: Vec<i64> = perm.iter().map(|&a| dims[a as usize]).collect();
    let mut rows = Vec::new();
    for &x in operands {
        let spec =
            OpSpec::new(GraphOp::Transpose, &[x]).attr("perm", Attr::ints(perm.iter().copied()));
        let x = site.op(spec)?;
        rows.push(site.reshape(x, &[count, n])?);
    }
    // From the last key to the first: an element goes before another where its key does, or where
    // the keys are equal and it goes before by the rest.
    let cube = [count, n, n];
    let place = |site: &mut Site<'_>, axis: i64| {
        let ty = tensor(cube.iter().map(|&d| Dim::Static(d)).collect(), NumType::plain(DType::I32));
        site.op(OpSpec::new(GraphOp::Iota, &[]).attr("axis", Attr::Int(axis)).result(ty))
    };
    let (mine, theirs) = (place(site, 1)?, place(site, 2)?);
    let mut before = site.ew(ScalarFn::Lt, &[theirs, mine])?;
    for &row in rows[..keys.min(rows.len())].iter().rev() {
        let key = match site.func.ty(row).dtype() {
            DType::Bool => site.cast(row, NumType::plain(DType::I32), None)?,
            dtype => site.cast(row, NumType::plain(dtype.carrier()), None)?,
        };
        let [own, other] = [1, 2].map(|to| spread(site, key, &cube, to));
        let (own, other) = (own?, other?);
        let first = if descending { ScalarFn::Gt } else { ScalarFn::Lt };
        let mut less = site.ew(first, &[other, own])?;
        let mut equal = site.ew(ScalarFn::Eq, &[other, own])?;
        if site.func.ty(key).dtype().is_float() {
            // A NaN is greater than any number, and equal to a NaN.
            let (a, b) = (site.ew(ScalarFn::IsNan, &[other])?, site.ew(ScalarFn::IsNan, &[own])?);
            let (last, front) = if descending { (b, a) } else { (a, b) };
            let number = site.ew(ScalarFn::Not, &[last])?;
            let ahead = site.ew(ScalarFn::And, &[number, front])?;
            let both = site.ew(ScalarFn::And, &[a, b])?;
            less = site.ew(ScalarFn::Or, &[less, ahead])?;
            equal = site.ew(ScalarFn::Or, &[equal, both])?;
        }
        let tied = site.ew(ScalarFn::And, &[equal, before])?;
        before = site.ew(ScalarFn::Or, &[less, tied])?;
    }
    let rank = total(site, machine, before)?;
    // Which element has each place.
    let zero = site.splat(Scalar::I32(0), &cube, DType::I32)?;
    let rank = spread(site, rank, &cube, 2)?;
    let found = site.ew(ScalarFn::Eq, &[rank, mine])?;
    let from = site.op(OpSpec::new(GraphOp::Select, &[found, theirs, zero]))?;
    let from = summed(site, machine, from)?;
    let from = site.reshape(from, &[count, n, 1])?;
    let mut back = vec![0; perm.len()];
    for (i, &p) in perm.iter().enumerate() {
        back[p as usize] = i as i64;
    }
    let mut out = Vec::new();
    for row in rows {
        let spec = OpSpec::new(GraphOp::Gather, &[row, from])
            .attr("axes", Attr::ints([1]))
            .attr("batch", Attr::Int(1));
        let taken = site.op(spec)?;
        let taken = site.reshape(taken, &turned)?;
        let spec = OpSpec::new(GraphOp::Transpose, &[taken])
            .attr("perm", Attr::ints(back.iter().copied()));
        out.push(site.op(spec)?);
    }
    Ok(out)
}

/// Rows along the second or the third axis of a cube.
fn spread(site: &mut Site<'_>, x: Value, cube: &[i64; 3], to: i64) -> Made {
    let ty = tensor(cube.iter().map(|&d| Dim::Static(d)).collect(), elem(site.func.ty(x)));
    let spec = OpSpec::new(GraphOp::Broadcast, &[x]).attr("dims", Attr::ints([0, to])).result(ty);
    site.op(spec)
}

fn total(site: &mut Site<'_>, machine: Machine, flags: Value) -> Made {
    let ones = site.cast(flags, NumType::plain(DType::I32), None)?;
    summed(site, machine, ones)
}

/// Sums along the last axis of a cube.
fn summed(site: &mut Site<'_>, machine: Machine, x: Value) -> Made {
    let dims = dims_of(site.func, x);
    let attrs = Attrs::new().with("op", Attr::word("sum")).with("axes", Attr::ints([2]));
    let ty = large::shaped(site.func.ty(x), &dims[..2]);
    match large::reduce(site, machine, false, x, &attrs, &ty) {
        Some(made) => made,
        None => {
            let spec = OpSpec::new(GraphOp::Reduce, &[x])
                .attr("op", Attr::word("sum"))
                .attr("axes", Attr::ints([2]));
            site.op(spec)
        }
    }
}
