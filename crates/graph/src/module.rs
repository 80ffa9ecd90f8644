//! Rules on a module as a whole: calls fit the functions they name.

use crate::dims::{bind, substitute_type};
use crate::ops::control_ops::{agree, types};
use crate::rule::Refusal;
use crate::states::is_of_a_rank;
use crate::walk::{CALLED, call_order, called, returned};
use crate::{Graph, GraphFunc, GraphModule, GraphOp};
use std::collections::BTreeSet;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Attr, OpId, Opcode, Type, verify};

/// Checks every function, and every call against its callee.
pub fn verify_module(module: &GraphModule) -> Result<(), Diagnostics> {
    let mut errors = Diagnostics::new();
    for func in &module.funcs {
        if let Err(found) = verify(func) {
            errors.extend(found);
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    for func in &module.funcs {
        for id in func.walk().into_iter().filter(|&id| called(&func.ops[id]).is_some()) {
            if let Err(refusal) = call(module, func, id) {
                errors.push(refusal);
            }
        }
    }
    if let Err(name) = call_order(module) {
        let why = format!("expected functions that do not call themselves, got @{name}");
        errors.push(Diagnostic::new(Code::E_GRAPH_INVALID, why));
    }
    if errors.is_empty() {
        crate::states::check_module(module).into_iter().for_each(|found| errors.push(found));
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn call(module: &GraphModule, func: &GraphFunc, id: OpId) -> Result<(), Diagnostic> {
    let op = &func.ops[id];
    let fail = |r: Refusal| r.at(op.loc.clone());
    for name in CALLED {
        if let Some(callee) = op.attr(name).and_then(Attr::as_ref_name)
            && module.func(callee).is_none()
        {
            let why = format!("expected a function of the module in `{name}`, got @{callee}");
            return Err(Diagnostic::new(Code::E_NAME, why).at(op.loc.clone()));
        }
    }
    for name in ["callee", "plain", "decomposition"] {
        let callee = op.attr(name).and_then(Attr::as_ref_name).and_then(|n| module.func(n));
        let Some(callee) = callee else { continue };
        let wanted = call_results(callee, &types(func, &op.operands)).map_err(fail)?;
        let got = types(func, &op.results);
        if !agree(&wanted, &got) {
            let show = |t: &[Type]| t.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
            return Err(fail(Refusal::ty(format!(
                "expected @{} to give ({}), got ({})",
                callee.name,
                show(&wanted),
                show(&got)
            ))));
        }
    }
    if op.code == GraphOp::Composite
        && let Some(inner) = called(op).and_then(|n| of_a_rank(module, n, &mut BTreeSet::new()))
    {
        let name = Opcode::<Graph>::mnemonic(inner);
        return Err(fail(Refusal::structure(format!(
            "expected a decomposition that every rank can run alone, got one with `{name}`"
        ))));
    }
    Ok(())
}

/// An op in a function, or in those it calls, that only programs of ranks may hold.
fn of_a_rank(module: &GraphModule, name: &str, seen: &mut BTreeSet<String>) -> Option<GraphOp> {
    if !seen.insert(name.to_string()) {
        return None;
    }
    let func = module.func(name)?;
    func.walk().into_iter().find_map(|id| {
        let op = &func.ops[id];
        match op.code {
            GraphOp::Manual => Some(op.code),
            code if is_of_a_rank(code) => Some(code),
            _ => called(op).and_then(|n| of_a_rank(module, n, seen)),
        }
    })
}

/// What a function gives for arguments of these types.
pub fn call_results(callee: &GraphFunc, args: &[Type]) -> Result<Vec<Type>, Refusal> {
    let params = types(callee, callee.params());
    if params.len() != args.len() {
        return Err(Refusal::structure(format!(
            "expected {} arguments for @{}, got {}",
            params.len(),
            callee.name,
            args.len()
        )));
    }
    let symbols = bind(&params, args).map_err(|(param, arg)| {
        Refusal::shape(format!(
            "expected an argument of type {param} for @{}, got {arg}",
            callee.name
        ))
    })?;
    Ok(types(callee, returned(callee)).iter().map(|ty| substitute_type(ty, &symbols)).collect())
}
