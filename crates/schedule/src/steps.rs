//! The rules of each op of the plan of a function: memory, parts of it, and the steps over them.

use crate::parts::{bytes, part, shown, trip, whole};
use crate::{SchedOp, Schedule, Space};
use std::collections::BTreeSet;
use tessera_ir::{Attr, Func, OpErrors, OpId, Privilege, Type, Value};

fn privilege(ty: &Type) -> Option<Privilege> {
    match ty {
        Type::View { privilege, .. } => Some(*privilege),
        _ => None,
    }
}

/// Memory of the plan has known extents and a privilege.
fn memory(func: &Func<Schedule>, id: OpId, wanted: Privilege, errors: &mut OpErrors) {
    let ty = func.ty(func.ops[id].result());
    if ty.static_shape().is_none() || privilege(ty) != Some(wanted) {
        errors.ty(format!("expected a view of known extents that is {}, got {ty}", wanted.name()));
    }
}

pub fn verify_store(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    verify_fused(func, id, errors);
    let op = &func.ops[id];
    if let Some(word) = op.attr("space").and_then(Attr::as_word)
        && Space::parse(word).is_none()
    {
        errors.structure(format!("expected `space` to be device, host or pinned, got {word}"));
    }
    let Some(at) = op.attr("at").and_then(Attr::as_int) else { return };
    let size = bytes(func.ty(op.result())).unwrap_or(0);
    if at < 0 || at.checked_add(size).is_none() {
        errors.structure(format!("expected a place of {size} bytes in a block, got {at}"));
    }
}

pub fn verify_fused(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    memory(func, id, Privilege::ReadWrite, errors);
    if func.name_of(func.ops[id].result()).is_none() {
        errors.structure("expected the name of a value of the function, got a number");
    }
}

pub fn verify_constant(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    memory(func, id, Privilege::Read, errors);
}

pub fn verify_view(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (of, view) = (func.ty(op.operands[0]), func.ty(op.result()));
    if privilege(of) != privilege(view) || privilege(view).is_none() {
        errors.ty(format!("expected a view with the privilege of {of}, got {view}"));
        return;
    }
    let (Some(dims), Some(_)) = (view.static_shape(), bytes(of)) else {
        errors.ty(format!("expected views of known extents, got {of} and {view}"));
        return;
    };
    let ints = |name: &str| op.attr(name).and_then(Attr::as_ints);
    let strides = ints("strides").map_or(dims.len(), |s| s.len());
    let iterations = ints("iteration_bytes").unwrap_or_default();
    if strides != dims.len() {
        errors.shape(format!("expected {} strides, got {strides}", dims.len()));
        return;
    }
    if iterations.len() != op.group("at").len() {
        let n = op.group("at").len();
        errors.shape(format!("expected `iteration_bytes` for {n} loops, got {}", iterations.len()));
        return;
    }
    if op.group("at").iter().any(|&index| trip(func, index).is_none()) {
        errors.structure("expected the index of a loop around it in `at`");
        return;
    }
    let root = whole(func, op.result());
    let Some(size) = bytes(func.ty(root)) else {
        errors.ty(format!("expected a part of memory of known extents, got {}", func.ty(root)));
        return;
    };
    match part(func, op.result()).bytes {
        Some((low, high)) if low < 0 || high > size => {
            errors.shape(format!("expected a part of {size} bytes, got bytes {low} to {high}"));
        }
        Some(_) => {}
        None => errors.shape("expected a part whose first and last byte are 64-bit numbers"),
    }
}

/// `writes` lists arguments that may be written.
pub fn verify_writes(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let values = op.group("values");
    for &place in op.attr("writes").and_then(Attr::as_ints).unwrap_or_default().iter() {
        match usize::try_from(place).ok().and_then(|i| values.get(i)) {
            None => errors.structure(format!(
                "expected `writes` to name arguments below {}, got {place}",
                values.len()
            )),
            Some(&v) if !privilege(func.ty(v)).is_some_and(Privilege::writes) => {
                errors.push(
                    tessera_diag::Code::E_PRIVILEGE,
                    format!("expected memory that may be written at {place}, got {}", func.ty(v)),
                );
            }
            Some(_) => {}
        }
    }
}

pub fn verify_host(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    verify_writes(func, id, errors);
}

pub fn verify_call(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    verify_writes(func, id, errors);
}

pub fn verify_copy(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (from, to) = (func.ty(op.operands[0]), func.ty(op.operands[1]));
    if from.shape() != to.shape() || from.dtype() != to.dtype() {
        errors.shape(format!("expected memory of one shape and dtype, got {from} and {to}"));
    }
    if !privilege(to).is_some_and(Privilege::writes) {
        let why = format!("expected memory that may be written, got {to}");
        errors.push(tessera_diag::Code::E_PRIVILEGE, why);
    }
}

/// The extents of the result of a collective of `n` ranks; none of one that there is not.
fn combined(op: &tessera_ir::Op<Schedule>, dims: &[i64], n: i64) -> Option<Vec<i64>> {
    let mut out = dims.to_vec();
    let place = |name: &str| -> Option<usize> {
        let at = usize::try_from(op.attr(name).and_then(Attr::as_int)?).ok()?;
        (at < dims.len()).then_some(at)
    };
    let has_op = op.attr("op").and_then(Attr::as_word).is_some();
    match op.attr("kind").and_then(Attr::as_word)? {
        "all_reduce" if has_op => {}
        "permute" if op.attr("pairs").is_some() => {}
        "from_rank" if op.attr("root").is_some() => {}
        "all_gather" => out[place("dim")?] *= n,
        "reduce_scatter" if has_op && dims[place("dim")?] % n == 0 => out[place("dim")?] /= n,
        "all_to_all" if dims[place("split")?] % n == 0 => {
            out[place("split")?] /= n;
            out[place("concat")?] *= n;
        }
        _ => return None,
    }
    Some(out)
}

pub fn verify_collective(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (from, to) = (func.ty(op.operands[0]), func.ty(op.operands[1]));
    if !privilege(to).is_some_and(Privilege::writes) {
        let why = format!("expected memory that may be written, got {to}");
        errors.push(tessera_diag::Code::E_PRIVILEGE, why);
    }
    let sizes = op.attr("sizes").and_then(Attr::as_ints).unwrap_or_default();
    let axes = op.attr("axes").and_then(Attr::as_list).map_or(0, <[Attr]>::len);
    if axes != sizes.len() || sizes.iter().any(|&n| n < 1) {
        errors.structure("expected for each axis how many ranks there are along it");
        return;
    }
    let combines = op.attr("op").and_then(Attr::as_word).is_some();
    if op.attr("joined").is_some_and(|n| !combines || n.as_int().is_none_or(|n| n < 2)) {
        errors.structure("expected `joined` to be how many combinations it is, at least two");
    }
    let Some(dims) = from.static_shape() else { return };
    match combined(op, &dims, sizes.iter().product()) {
        wanted @ Some(_) if to.static_shape() == wanted && from.dtype() == to.dtype() => {}
        _ => errors
            .shape(format!("expected the memory of the collective's result, got {from} and {to}")),
    }
}

/// The condition is one bool in memory.
fn decides(func: &Func<Schedule>, v: Value, errors: &mut OpErrors) {
    let ty = func.ty(v);
    if ty.dtype() != tessera_numerics::DType::Bool || bytes(ty) != Some(1) {
        errors.ty(format!("expected one bool in memory, got {ty}"));
    }
}

/// Regions take this many indices, and yield this many values.
fn regions(
    func: &Func<Schedule>,
    id: OpId,
    yields: &[usize],
    takes: usize,
    errors: &mut OpErrors,
) -> bool {
    let before = errors.len();
    for (&region, &wanted) in func.ops[id].regions.iter().zip(yields) {
        let args = func.blocks[region].args.len();
        if args != takes || func.blocks[region].args.iter().any(|&v| *func.ty(v) != Type::INDEX) {
            errors.structure(format!("expected a region of {takes} indices, got {args} values"));
        }
        let end = func.terminator(region).map(|end| &func.ops[end]);
        let got = end.filter(|op| op.code == SchedOp::Yield).map(|op| op.operands.len());
        if got != Some(wanted) {
            errors.structure(format!(
                "expected a region that ends with `sched.yield` of {wanted} values"
            ));
        }
    }
    errors.len() == before
}

pub fn verify_if(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    regions(func, id, &[0, 0], 0, errors);
    decides(func, func.ops[id].operands[0], errors);
}

pub fn verify_while(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    if regions(func, id, &[1, 0], 0, errors)
        && let Some(end) = func.terminator(func.ops[id].regions[0])
    {
        decides(func, func.ops[end].operands[0], errors);
    }
}

pub fn verify_loop(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    regions(func, id, &[0], 1, errors);
    let op = &func.ops[id];
    if op.attr("trip").and_then(Attr::as_int).is_some_and(|trip| trip < 0) {
        errors.structure("expected a number of iterations that is not negative");
    }
    let ty = func.ty(op.operands[0]);
    if ty.dtype() != tessera_numerics::DType::I64 || bytes(ty) != Some(8) {
        errors.ty(format!("expected one i64 in memory, got {ty}"));
    }
}

pub fn verify_free(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let memory = op.operands[0];
    let made = func.def(memory).filter(|made| made.code == SchedOp::Store);
    match made {
        None => errors
            .structure(format!("expected memory of a `sched.store`, got {}", shown(func, memory))),
        Some(made) if made.block != op.block => errors.structure(format!(
            "expected {} to be freed in the block of its `sched.store`",
            shown(func, memory)
        )),
        Some(_) => {}
    }
}

pub fn verify_return(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    let mut seen = BTreeSet::new();
    for &v in func.ops[id].group("values") {
        let name = || shown(func, v);
        let made = func.def(v).filter(|op| op.code == SchedOp::Store);
        let Some(made) = made else {
            errors.structure(format!("expected results in memory of their own, got {}", name()));
            continue;
        };
        if made.attr("at").is_some() {
            errors.structure(format!(
                "expected results in memory of their own, got {} with a place in the plan's block",
                name()
            ));
        }
        if !seen.insert(v) {
            errors.structure(format!(
                "expected results in memory of their own, got {} twice",
                name()
            ));
        }
    }
}
