//! The rules of the plan of a function: memory, parts of it, and the steps over them.

use crate::{SchedOp, Schedule};
use std::collections::BTreeSet;
use tessera_ir::{Attr, Func, Op, OpErrors, OpId, Privilege, Type, Value};

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
    memory(func, id, Privilege::ReadWrite, errors);
    if func.name_of(func.ops[id].result()).is_none() {
        errors.structure("expected the name of a value of the function, got a number");
    }
}

pub fn verify_constant(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    memory(func, id, Privilege::Read, errors);
}

/// The bytes of memory of this type.
fn bytes(ty: &Type) -> Option<i64> {
    let count: i64 = ty.static_shape()?.iter().product();
    Some(count * ty.dtype().bytes() as i64)
}

pub fn verify_view(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (of, part) = (func.ty(op.operands[0]), func.ty(op.result()));
    if privilege(of) != privilege(part) || privilege(part).is_none() {
        errors.ty(format!("expected a view with the privilege of {of}, got {part}"));
        return;
    }
    let (Some(dims), Some(size)) = (part.static_shape(), bytes(of)) else {
        errors.ty(format!("expected views of known extents, got {of} and {part}"));
        return;
    };
    let ints = |name: &str| op.attr(name).and_then(Attr::as_ints);
    let strides = ints("strides")
        .map_or_else(|| row_major(&dims, part.dtype().bytes() as i64), |s| s.to_vec());
    let iterations = ints("iteration_bytes").unwrap_or_default();
    if strides.len() != dims.len() {
        errors.shape(format!("expected {} strides, got {}", dims.len(), strides.len()));
        return;
    }
    if iterations.len() != op.group("at").len() {
        let n = op.group("at").len();
        errors.shape(format!("expected `iteration_bytes` for {n} loops, got {}", iterations.len()));
        return;
    }
    if dims.contains(&0) {
        return;
    }
    // The first and the last byte of all elements, in all iterations.
    let first = op.attr("offset").and_then(Attr::as_int).unwrap_or(0);
    let (mut low, mut high) = (first, first + part.dtype().bytes() as i64);
    let mut reach = |count: i64, step: i64| {
        let far = (count - 1).max(0) * step;
        low += far.min(0);
        high += far.max(0);
    };
    dims.iter().zip(&strides).for_each(|(&d, &s)| reach(d, s));
    for (&index, &step) in op.group("at").iter().zip(iterations.iter()) {
        match trip(func, index) {
            Some(trip) => reach(trip, step),
            None => errors.structure("expected the index of a loop around it in `at`"),
        }
    }
    if low < 0 || high > size {
        errors.shape(format!("expected a part of {size} bytes, got bytes {low} to {high}"));
    }
}

fn row_major(dims: &[i64], bytes: i64) -> Vec<i64> {
    (0..dims.len()).map(|i| bytes * dims[i + 1..].iter().product::<i64>()).collect()
}

/// The trip count of the loop with this index.
fn trip(func: &Func<Schedule>, index: Value) -> Option<i64> {
    func.walk().into_iter().map(|id| &func.ops[id]).find_map(|op| {
        let own = op.code == SchedOp::Loop && func.blocks[op.regions[0]].args.contains(&index);
        own.then(|| op.attr("trip").and_then(Attr::as_int))?
    })
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

pub fn verify_return(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    let mut seen = BTreeSet::new();
    for &v in func.ops[id].group("values") {
        if func.def(v).is_none_or(|op| op.code != SchedOp::Store) {
            errors.structure(format!(
                "expected results in memory of their own, got {}",
                shown(func, v)
            ));
        } else if !seen.insert(v) {
            errors.structure(format!(
                "expected results in memory of their own, got {} twice",
                shown(func, v)
            ));
        }
    }
}

pub(crate) fn shown(func: &Func<Schedule>, v: Value) -> String {
    func.name_of(v).map_or_else(|| v.to_string(), |name| format!("%{name}"))
}

/// The memory that a value is, or is a part of.
pub(crate) fn whole(func: &Func<Schedule>, mut v: Value) -> Value {
    // The verifier refuses a part of nothing.
    while let Some(op) = func.def(v)
        && op.code == SchedOp::View
        && let Some(&of) = op.operands.first()
    {
        v = of;
    }
    v
}

/// The operands that an op writes.
fn written(op: &Op<Schedule>) -> Vec<Value> {
    let listed = op.attr("writes").and_then(Attr::as_ints).unwrap_or_default();
    match op.code {
        SchedOp::Launch | SchedOp::Host | SchedOp::Call => {
            let values = op.group("values");
            listed.iter().filter_map(|&i| values.get(usize::try_from(i).ok()?).copied()).collect()
        }
        SchedOp::Copy => vec![op.operands[1]],
        SchedOp::Loop => op.operands.clone(),
        SchedOp::Return
        | SchedOp::Store
        | SchedOp::Fused
        | SchedOp::Constant
        | SchedOp::View
        | SchedOp::If
        | SchedOp::While
        | SchedOp::Yield => Vec::new(),
    }
}

/// Steps access memory, and read what an earlier one wrote.
pub(crate) fn verify_order(func: &Func<Schedule>, errors: &mut OpErrors) {
    let mut filled: BTreeSet<Value> = BTreeSet::new();
    for id in func.walk() {
        let op = &func.ops[id];
        errors.at_op(func, id);
        let writes = written(op);
        filled.extend(writes.iter().map(|&v| whole(func, v)));
        for &v in &op.operands {
            let memory = whole(func, v);
            let Some(of) = func.def(memory) else { continue };
            if of.code == SchedOp::Fused {
                let name = shown(func, memory);
                errors.structure(format!(
                    "expected memory, got {name}, which is a part of kernels alone: it has none"
                ));
            }
            // There is nothing to write where there are no elements.
            let some = bytes(func.ty(memory)) != Some(0);
            let reads = some && op.code != SchedOp::View && !writes.contains(&v);
            if of.code == SchedOp::Store && reads && !filled.contains(&memory) {
                let name = shown(func, memory);
                errors.structure(format!("expected {name} to be written before it is read"));
            }
        }
    }
    errors.at_func(func);
}
