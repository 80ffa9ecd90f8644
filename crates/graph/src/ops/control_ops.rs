//! Branches, loops and calls: the types that flow into regions and out of them.

use crate::FactorRule;
use crate::dims::{compute, same, same_type};
use crate::ops::collective::Manual;
use crate::rule::{scalar, tensor};
use crate::{Graph, GraphOp};
use tessera_ir::{Attr, BlockId, Dim, DimOp, Func, OpErrors, OpId, Type, Value};
use tessera_numerics::DType;

/// Why a call is a call and not its body: what transforms look at.
pub const CALL_KINDS: [&str; 4] = ["jit", "checkpoint", "custom_vjp", "custom_jvp"];

pub(crate) fn types(func: &Func<Graph>, values: &[Value]) -> Vec<Type> {
    values.iter().map(|&v| func.ty(v).clone()).collect()
}

fn show(types: &[Type]) -> String {
    let list: Vec<_> = types.iter().map(Type::to_string).collect();
    format!("({})", list.join(", "))
}

pub(crate) fn agree(wanted: &[Type], got: &[Type]) -> bool {
    wanted.len() == got.len() && wanted.iter().zip(got).all(|(a, b)| same_type(a, b))
}

fn expect(errors: &mut OpErrors, what: &str, wanted: &[Type], got: &[Type]) {
    if !agree(wanted, got) {
        errors.ty(format!("expected {what} of types {}, got {}", show(wanted), show(got)));
    }
}

/// The types a region yields, where it ends in a yield.
pub(crate) fn yielded(func: &Func<Graph>, region: BlockId) -> Option<Vec<Type>> {
    let end = &func.ops[func.terminator(region)?];
    (end.code == GraphOp::Yield).then(|| types(func, end.group("values")))
}

/// One step of a stacked operand: the type without its first axis.
pub fn step_type(ty: &Type) -> Option<Type> {
    match ty {
        Type::Tensor { dims, elem } if !dims.is_empty() => Some(tensor(dims[1..].to_vec(), *elem)),
        _ => None,
    }
}

/// What steps of a type are stacked to.
pub fn stacked_type(trip: &Dim, ty: &Type) -> Type {
    let mut dims = vec![trip.clone()];
    dims.extend(ty.shape().iter().cloned());
    tensor(dims, crate::rule::elem(ty))
}

/// How often a loop runs.
pub fn trip_of(attr: Option<&Attr>) -> Dim {
    attr.and_then(Attr::as_expr).map_or(Dim::Any, |e| compute(DimOp::Add, &Dim::from(e), &0.into()))
}

/// The arguments that the region of an op with these operands takes, by its place; `None` where the
/// op has no such region or its operands do not fit.
pub fn region_args(func: &Func<Graph>, id: OpId, place: usize) -> Option<Vec<Type>> {
    let op = &func.ops[id];
    match (op.code, place) {
        (GraphOp::Cond, 0 | 1) => Some(Vec::new()),
        (GraphOp::While, 0 | 1) => Some(types(func, op.group("init"))),
        (GraphOp::Loop, 0) => {
            let mut args = vec![scalar(DType::I64)];
            args.extend(types(func, op.group("init")));
            for ty in types(func, op.group("xs")) {
                args.push(step_type(&ty)?);
            }
            Some(args)
        }
        (GraphOp::Manual, 0) => {
            Manual::of(&op.attrs).ok()?.blocks(&types(func, op.group("values"))).ok()
        }
        _ => None,
    }
}

/// The results of an op whose regions are done.
pub fn region_results(func: &Func<Graph>, id: OpId) -> Vec<Type> {
    let op = &func.ops[id];
    match op.code {
        GraphOp::Cond => yielded(func, op.regions[0]).unwrap_or_default(),
        GraphOp::While => types(func, op.group("init")),
        GraphOp::Loop => {
            let mut out = types(func, op.group("init"));
            let trip = trip_of(op.attr("trip"));
            let steps = yielded(func, op.regions[0]).unwrap_or_default();
            out.extend(steps.iter().skip(out.len()).map(|ty| stacked_type(&trip, ty)));
            out
        }
        GraphOp::Manual => {
            let blocks = yielded(func, op.regions[0]).unwrap_or_default();
            Manual::of(&op.attrs).and_then(|m| m.wholes(&blocks)).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// The part of the verifier that looks into regions; nothing for ops without.
pub fn verify(func: &Func<Graph>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    for (place, &region) in op.regions.iter().enumerate() {
        if let Some(wanted) = region_args(func, id, place) {
            expect(errors, "region arguments", &wanted, &types(func, &func.blocks[region].args));
        }
    }
    let results = types(func, &op.results);
    let test = [scalar(DType::Bool)];
    match op.code {
        GraphOp::Cond => {
            expect(errors, "a condition", &test, &types(func, op.positional()));
            for (&region, name) in op.regions.iter().zip(["first", "second"]) {
                if let Some(got) = yielded(func, region) {
                    expect(errors, &format!("the {name} branch to yield values"), &results, &got);
                }
            }
        }
        GraphOp::While => {
            expect(errors, "initial values", &results, &types(func, op.group("init")));
            if let Some(got) = yielded(func, op.regions[0]) {
                expect(errors, "the condition to yield a value", &test, &got);
            }
            if let Some(got) = yielded(func, op.regions[1]) {
                expect(errors, "the loop to yield values", &results, &got);
            }
        }
        GraphOp::Loop => {
            let trip = trip_of(op.attr("trip"));
            if trip.as_static().is_some_and(|t| t < 0) {
                errors.structure(format!("expected `trip` to be 0 or more, got {trip}"));
            }
            for ty in types(func, op.group("xs")) {
                if ty.shape().first().is_none_or(|d| !same(d, &trip)) {
                    errors.shape(format!(
                        "expected stacked values with a first axis of {trip}, got {}",
                        crate::dims::show(ty.shape())
                    ));
                }
            }
            let carried = types(func, op.group("init"));
            if let Some(got) = yielded(func, op.regions[0]) {
                let n = carried.len().min(got.len());
                expect(errors, "the loop to yield carried values", &carried, &got[..n]);
            }
            expect(errors, "results", &region_results(func, id), &results);
        }
        GraphOp::Manual => verify_manual(func, id, errors),
        GraphOp::Call => verify_call(func, id, errors),
        GraphOp::Composite => verify_composite(func, id, errors),
        _ => {}
    }
}

/// The results of a `manual` follow from the blocks it yields; its region is a program of its own.
fn verify_manual(func: &Func<Graph>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    if let (Ok(manual), Some(blocks)) = (Manual::of(&op.attrs), yielded(func, op.regions[0])) {
        match manual.wholes(&blocks) {
            Ok(wanted) => expect(errors, "results", &wanted, &types(func, &op.results)),
            Err(refusal) => errors.push(refusal.code, refusal.message),
        }
    }
    for value in crate::walk::captures(func, op.regions[0]) {
        errors.structure(format!(
            "expected the program of a rank to use its own values, got %{} from outside: make it an operand",
            func.name_of(value).map_or_else(|| value.to_string(), str::to_string)
        ));
    }
}

/// What a call says of itself; that it fits its callee is for the module.
fn verify_call(func: &Func<Graph>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let kind = op.attr("kind").and_then(Attr::as_word).unwrap_or("jit");
    if !CALL_KINDS.contains(&kind) {
        let all = CALL_KINDS.join(" ");
        errors.structure(format!("expected `kind` to be one of {all}, got `{kind}`"));
    }
    for (name, of) in [("fwd", "custom_vjp"), ("bwd", "custom_vjp"), ("jvp", "custom_jvp")] {
        if op.attr(name).is_some() != (kind == of) {
            errors.structure(format!("expected `{name}` with `kind = {of}` and only there"));
        }
    }
    if op.attr("plain").is_some() && !matches!(kind, "jit" | "custom_vjp") {
        errors.structure("expected `plain` with `kind = jit` or `kind = custom_vjp`".to_string());
    }
    verify_nondiff(func, id, errors);
}

/// What a composite says of itself; that it fits its functions is for the module.
fn verify_composite(func: &Func<Graph>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let has = |name: &str| op.attr(name).is_some();
    if has("fwd") != has("bwd") {
        errors.structure("expected `fwd` and `bwd` together, got one of them".to_string());
    }
    if has("nondiff") && !has("fwd") && !has("jvp") {
        errors.structure("expected `nondiff` with a derivative rule and only there".to_string());
    }
    verify_sharding(func, id, errors);
    verify_nondiff(func, id, errors);
}

/// A factor rule is for the dims of the op.
pub fn verify_sharding(func: &Func<Graph>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let Some(text) = op.attr("sharding").and_then(Attr::as_str) else { return };
    let ranks = |values: &[Value]| values.iter().map(|&v| func.ty(v).rank()).collect::<Vec<_>>();
    let rule = FactorRule::parse(text);
    if let Err(refusal) = rule.and_then(|r| r.check(&ranks(&op.operands), &ranks(&op.results))) {
        errors.push(refusal.code, refusal.message);
    }
}

fn verify_nondiff(func: &Func<Graph>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    for &arg in op.attr("nondiff").and_then(Attr::as_ints).unwrap_or_default().iter() {
        if arg < 0 || arg as usize >= op.operands.len() {
            let n = op.operands.len();
            errors.structure(format!("expected `nondiff` to name arguments below {n}, got {arg}"));
        }
    }
}
