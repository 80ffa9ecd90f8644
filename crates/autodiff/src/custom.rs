//! Custom derivatives of the user: checks that their signatures fit the function they belong to.

use crate::activity::callee_name;
use crate::is_float;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_graph::dims::same_type;
use tessera_graph::walk::{called, returned};
use tessera_graph::{GraphFunc, GraphModule, Refusal, call_results};
use tessera_ir::{Attr, Type};

/// Checks a `custom_vjp` rule for `callee`: `fwd` takes its arguments and gives its results and then
/// residuals; `bwd` takes the residuals and then one cotangent for each float result, and gives one
/// cotangent for each float argument that is not listed in `nondiff`, of that argument's type. Gives
/// the number of residuals.
pub fn check_custom_vjp(
    module: &GraphModule,
    callee: &str,
    fwd: &str,
    bwd: &str,
    nondiff: &[usize],
) -> Result<usize, Diagnostics> {
    vjp(module, [callee, fwd, bwd], nondiff, &Loc::unknown()).map_err(Diagnostics::from)
}

/// Checks a `custom_jvp` rule for `callee`: `jvp` takes its arguments and then one tangent for each
/// float argument that is not listed in `nondiff`, and gives its results and then one tangent for
/// each float result.
pub fn check_custom_jvp(
    module: &GraphModule,
    callee: &str,
    jvp: &str,
    nondiff: &[usize],
) -> Result<(), Diagnostics> {
    jvp_rule(module, [callee, jvp], nondiff, &Loc::unknown()).map_err(Diagnostics::from)
}

/// Every call of the module that brings a rule.
pub fn check_module(module: &GraphModule) -> Result<(), Diagnostics> {
    let mut errors = Diagnostics::new();
    for func in &module.funcs {
        for id in func.walk() {
            let op = &func.ops[id];
            let Some(callee) = called(op) else { continue };
            let nondiff: Vec<usize> = op
                .attr("nondiff")
                .and_then(Attr::as_ints)
                .unwrap_or_default()
                .iter()
                .map(|&i| i.max(0) as usize)
                .collect();
            let name = |part| callee_name(op, part);
            let has = |part| op.attr(part).is_some();
            // A composite may have both rules.
            let mut checked = Ok(());
            if has("fwd") {
                let names = [callee, name("fwd"), name("bwd")];
                checked = vjp(module, names, &nondiff, &op.loc).map(|_| ());
            }
            if has("jvp") && checked.is_ok() {
                checked = jvp_rule(module, [callee, name("jvp")], &nondiff, &op.loc);
            }
            if let Err(error) = checked {
                errors.push(error);
            }
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn find<'m>(module: &'m GraphModule, name: &str, loc: &Loc) -> Result<&'m GraphFunc, Diagnostic> {
    module.func(name).ok_or_else(|| {
        let why = format!("expected a function of the module, got @{name}");
        Diagnostic::new(Code::E_NAME, why).at(loc.clone())
    })
}

fn types(func: &GraphFunc, values: &[tessera_ir::Value]) -> Vec<Type> {
    values.iter().map(|&v| func.ty(v).clone()).collect()
}

fn show(types: &[Type]) -> String {
    types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ")
}

/// What a function of a rule gives for these arguments, said in terms of the rule where it does not
/// take them.
fn gives(func: &GraphFunc, what: &str, args: &[Type], loc: &Loc) -> Result<Vec<Type>, Diagnostic> {
    call_results(func, args).map_err(|Refusal { code, .. }| {
        let why = format!(
            "expected {what} @{} to take ({}), got ({})",
            func.name,
            show(args),
            show(&types(func, func.params()))
        );
        Diagnostic::new(code, why).at(loc.clone())
    })
}

fn agree(
    func: &GraphFunc,
    what: &str,
    wanted: &[Type],
    got: &[Type],
    loc: &Loc,
) -> Result<(), Diagnostic> {
    let same = wanted.len() == got.len() && wanted.iter().zip(got).all(|(a, b)| same_type(a, b));
    if same {
        return Ok(());
    }
    let why =
        format!("expected {what} @{} to give ({}), got ({})", func.name, show(wanted), show(got));
    Err(Diagnostic::new(Code::E_TYPE, why).at(loc.clone()))
}

/// The types of the arguments that have tangents and cotangents.
fn moving(args: &[Type], nondiff: &[usize]) -> Vec<Type> {
    let kept = args.iter().enumerate().filter(|(i, ty)| is_float(ty) && !nondiff.contains(i));
    kept.map(|(_, ty)| ty.clone()).collect()
}

fn floats(types: &[Type]) -> Vec<Type> {
    types.iter().filter(|ty| is_float(ty)).cloned().collect()
}

fn vjp(
    module: &GraphModule,
    [callee, fwd, bwd]: [&str; 3],
    nondiff: &[usize],
    loc: &Loc,
) -> Result<usize, Diagnostic> {
    let callee = find(module, callee, loc)?;
    let (fwd, bwd) = (find(module, fwd, loc)?, find(module, bwd, loc)?);
    let args = types(callee, callee.params());
    let results = types(callee, returned(callee));
    let given = gives(fwd, "the forward function", &args, loc)?;
    let own = &given[..results.len().min(given.len())];
    agree(fwd, "the forward function", &results, own, loc).map_err(|d| {
        d.help("it gives the results of the function, then what the backward function needs")
    })?;
    let residuals = &given[results.len()..];
    let inner = [residuals, &floats(&results)].concat();
    let got = gives(bwd, "the backward function", &inner, loc)
        .map_err(|d| d.help("it takes what the forward function gave after the results, then one cotangent for each float result"))?;
    agree(bwd, "the backward function", &moving(&args, nondiff), &got, loc).map_err(|d| {
        d.help("it gives one cotangent for each float argument that is not in `nondiff`")
    })?;
    Ok(residuals.len())
}

fn jvp_rule(
    module: &GraphModule,
    [callee, jvp]: [&str; 2],
    nondiff: &[usize],
    loc: &Loc,
) -> Result<(), Diagnostic> {
    let (callee, rule) = (find(module, callee, loc)?, find(module, jvp, loc)?);
    let args = types(callee, callee.params());
    let results = types(callee, returned(callee));
    let inner = [&args[..], &moving(&args, nondiff)].concat();
    let got = gives(rule, "the forward rule", &inner, loc)
        .map_err(|d| d.help("it takes the arguments, then one tangent for each float argument that is not in `nondiff`"))?;
    agree(rule, "the forward rule", &[&results[..], &floats(&results)].concat(), &got, loc)
        .map_err(|d| d.help("it gives the results, then one tangent for each float result"))
}
