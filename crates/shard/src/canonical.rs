//! Rewrites of the program of a rank that leave the values and take collectives away: sums of combined contributions are combined
//! once, and of what is combined only to be cut a rank gets its own block.

use tessera_diag::{Diagnostic, Loc};
use tessera_graph::{GraphFunc, GraphOp, Refusal, elem, tensor, walk::uses};
use tessera_ir::{Attr, OpId, OpSpec, Value};
use tessera_numerics::ScalarFn;
use tessera_support::SideTable;

/// A combination that is used once, and the cast behind it where there is one.
struct Combination {
    collective: OpId,
    cast: Option<OpId>,
}

pub fn canonical(func: &mut GraphFunc) -> Result<(), Diagnostic> {
    let mut all = uses(func);
    for id in func.walk() {
        let changed = match func.ops[id].code {
            GraphOp::Ew(f @ (ScalarFn::Add | ScalarFn::Sub)) => join(func, &all, id, f)?,
            GraphOp::Own => cut(func, &all, id)?,
            GraphOp::Transpose | GraphOp::Reshape => sink(func, &all, id)?,
            GraphOp::AllGather => rise(func, &all, id)?,
            _ => false,
        };
        if changed {
            all = uses(func);
        }
    }
    once(func);
    Ok(())
}

type Uses = SideTable<Value, Vec<(OpId, usize)>>;

fn refused(why: String, loc: &Loc) -> Diagnostic {
    Refusal::structure(why).at(loc.clone())
}

/// `op` put before another one, in its block.
fn before(
    func: &mut GraphFunc,
    id: OpId,
    spec: OpSpec<tessera_graph::Graph>,
) -> Result<Value, Diagnostic> {
    let (block, loc) = (func.ops[id].block, func.ops[id].loc.clone());
    let place = func.blocks[block].ops.iter().position(|&o| o == id).unwrap_or(0);
    let new = func.insert(block, place, spec, loc.clone()).map_err(|why| refused(why, &loc))?;
    Ok(func.ops[new].result())
}

/// The combination that makes a value for one op alone.
fn combination(func: &GraphFunc, all: &Uses, value: Value, user: OpId) -> Option<Combination> {
    let mut id = func.def_id(value)?;
    let mut cast = None;
    if func.ops[id].code == GraphOp::Cast {
        if all[value].len() != 1 {
            return None;
        }
        cast = Some(id);
        id = func.def_id(func.ops[id].operands[0])?;
    }
    let op = &func.ops[id];
    let is_sum = matches!(op.code, GraphOp::AllReduce | GraphOp::ReduceScatter)
        && op.attr("op").and_then(Attr::as_word) == Some("sum");
    let is_beside = op.block == func.ops[user].block;
    let is_single = all[op.result()].len() == 1;
    (is_sum && is_beside && is_single).then_some(Combination { collective: id, cast })
}

/// `a + b` of two combinations is the combination of `a + b`.
fn join(func: &mut GraphFunc, all: &Uses, id: OpId, f: ScalarFn) -> Result<bool, Diagnostic> {
    let operands = func.ops[id].operands.clone();
    let [a, b] = operands[..] else { return Ok(false) };
    if a == b || !func.ty(a).dtype().is_float() {
        return Ok(false);
    }
    let (Some(one), Some(other)) = (combination(func, all, a, id), combination(func, all, b, id))
    else {
        return Ok(false);
    };
    let (x, y) = (&func.ops[one.collective], &func.ops[other.collective]);
    let alike =
        x.code == y.code && x.attrs == y.attrs && one.cast.is_some() == other.cast.is_some();
    if !alike {
        return Ok(false);
    }
    let (code, attrs) = (x.code, x.attrs.clone());
    let (left, right, ty) = (x.operands[0], y.operands[0], func.ty(x.result()).clone());
    let whole = func.ty(left).clone();
    let spec = OpSpec::new(GraphOp::Ew(f), &[left, right]).result(whole);
    let sum = before(func, id, spec)?;
    let spec = OpSpec { attrs, ..OpSpec::new(code, &[sum]).result(ty) };
    let mut made = before(func, id, spec)?;
    if one.cast.is_some() {
        let to = func.ty(func.ops[id].result()).clone();
        made = before(func, id, OpSpec::new(GraphOp::Cast, &[made]).result(to))?;
    }
    func.replace_uses(func.ops[id].result(), made);
    func.erase(id);
    for gone in [one, other] {
        gone.cast.into_iter().for_each(|cast| func.erase(cast));
        func.erase(gone.collective);
    }
    Ok(true)
}

/// Elements of a combination are moved before they are combined: several of them then become one.
fn sink(func: &mut GraphFunc, all: &Uses, id: OpId) -> Result<bool, Diagnostic> {
    let op = &func.ops[id];
    let (code, attrs, result) = (op.code, op.attrs.clone(), op.result());
    let Some(found) = combination(func, all, op.operands[0], id) else { return Ok(false) };
    let collective = &func.ops[found.collective];
    // Only where a sum waits for it.
    let is_summed = all[result].len() == 1
        && matches!(func.ops[all[result][0].0].code, GraphOp::Ew(ScalarFn::Add | ScalarFn::Sub));
    if !is_summed {
        return Ok(false);
    }
    let (kind, mut how, x) = (collective.code, collective.attrs.clone(), collective.operands[0]);
    let to = func.ty(result).clone();
    let (combined, whole) = match (kind, code) {
        (GraphOp::AllReduce, _) => (to.shape().to_vec(), to.shape().to_vec()),
        (_, GraphOp::Transpose) => {
            let perm = attrs.get("perm").and_then(Attr::as_ints).unwrap_or_default();
            let dim = how.get("dim").and_then(Attr::as_int);
            let Some(place) = perm.iter().position(|&p| Some(p) == dim) else { return Ok(false) };
            how.set("dim", Attr::Int(place as i64));
            let shape = func.ty(x).shape();
            let whole = perm.iter().map(|&p| shape[p as usize].clone()).collect();
            (to.shape().to_vec(), whole)
        }
        // The dim that is scattered may be gone.
        _ => return Ok(false),
    };
    let wide = elem(func.ty(x));
    let spec = OpSpec { attrs, ..OpSpec::new(code, &[x]).result(tensor(whole, wide)) };
    let moved = before(func, id, spec)?;
    let spec = OpSpec { attrs: how, ..OpSpec::new(kind, &[moved]).result(tensor(combined, wide)) };
    let mut made = before(func, id, spec)?;
    if found.cast.is_some() {
        made = before(func, id, OpSpec::new(GraphOp::Cast, &[made]).result(to))?;
    }
    func.replace_uses(result, made);
    func.erase(id);
    found.cast.into_iter().for_each(|cast| func.erase(cast));
    func.erase(found.collective);
    Ok(true)
}

/// A transposed value is gathered before it is transposed: where both are used, it is gathered once.
fn rise(func: &mut GraphFunc, all: &Uses, id: OpId) -> Result<bool, Diagnostic> {
    let gather = &func.ops[id];
    let Some(transpose) = func.def_id(gather.operands[0]) else { return Ok(false) };
    let op = &func.ops[transpose];
    if op.code != GraphOp::Transpose || all[op.result()].len() != 1 || op.block != gather.block {
        return Ok(false);
    }
    let (x, turned, mut attrs) = (op.operands[0], op.attrs.clone(), gather.attrs.clone());
    let perm = turned.get("perm").and_then(Attr::as_ints).unwrap_or_default();
    let dim = attrs.get("dim").and_then(Attr::as_int).unwrap_or(0) as usize;
    let (Some(&from), to) = (perm.get(dim), func.ty(gather.result()).clone()) else {
        return Ok(false);
    };
    attrs.set("dim", Attr::Int(from));
    let mut shape = func.ty(x).shape().to_vec();
    shape[from as usize] = to.shape()[dim].clone();
    let spec = OpSpec::new(GraphOp::AllGather, &[x]).result(tensor(shape, elem(&to)));
    let whole = before(func, id, OpSpec { attrs, ..spec })?;
    let spec = OpSpec::new(GraphOp::Transpose, &[whole]).result(to);
    let made = before(func, id, OpSpec { attrs: turned, ..spec })?;
    func.replace_uses(func.ops[id].result(), made);
    func.erase(id);
    func.erase(transpose);
    Ok(true)
}

/// What is gathered twice in a block is gathered once.
fn once(func: &mut GraphFunc) {
    let mut known: Vec<OpId> = Vec::new();
    for id in func.walk() {
        let op = &func.ops[id];
        if op.code != GraphOp::AllGather {
            continue;
        }
        let same = known.iter().copied().find(|&k| {
            let k = &func.ops[k];
            k.block == op.block && k.operands == op.operands && k.attrs == op.attrs
        });
        match same {
            Some(same) => {
                let (again, first) = (op.result(), func.ops[same].result());
                func.replace_uses(again, first);
                func.erase(id);
            }
            None => known.push(id),
        }
    }
}

/// The own block of a combination is what a `reduce_scatter` gives.
fn cut(func: &mut GraphFunc, all: &Uses, id: OpId) -> Result<bool, Diagnostic> {
    let (x, attrs) = (func.ops[id].operands[0], func.ops[id].attrs.clone());
    let Some(found) = combination(func, all, x, id) else { return Ok(false) };
    let op = &func.ops[found.collective];
    let same = |name: &str| op.attr(name) == attrs.get(name);
    if op.code != GraphOp::AllReduce || !same("axes") || !same("sizes") {
        return Ok(false);
    }
    let block = func.ty(func.ops[id].result()).clone();
    let of = elem(func.ty(op.result()));
    let how = op.attr("op").cloned().unwrap_or(Attr::word("sum"));
    let spec = OpSpec::new(GraphOp::ReduceScatter, &[op.operands[0]])
        .result(tensor(block.shape().to_vec(), of));
    let mut made = before(func, id, OpSpec { attrs: attrs.with("op", how), ..spec })?;
    if found.cast.is_some() {
        made = before(func, id, OpSpec::new(GraphOp::Cast, &[made]).result(block))?;
    }
    func.replace_uses(func.ops[id].result(), made);
    func.erase(id);
    found.cast.into_iter().for_each(|cast| func.erase(cast));
    func.erase(found.collective);
    Ok(true)
}
