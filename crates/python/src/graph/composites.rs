//! Composites: Python says which function stands for one where it is compiled, and which rule it has
//! where it is differentiated.

use super::attrs::aval;
use super::program::Program;
use crate::enter::{enter, exception};
use pyo3::prelude::*;
use tessera_driver::deep;
use tessera_driver::graph::{Chosen, undecided};
use tessera_graph::{FactorRule, GraphModule, GraphOp, walk};
use tessera_ir::{Attr, Type};

/// Asks for each composite that the function runs on arguments of these types, its own where not
/// given. Kernels are functions that `provide` adds to the program; composites in them come in
/// the next round.
pub fn choose(
    py: Python<'_>,
    program: &Program,
    func: &str,
    args: Option<&[Type]>,
    provide: &Bound<'_, PyAny>,
) -> PyResult<Chosen> {
    let mut chosen = Chosen::default();
    let types = match args {
        Some(types) => types.to_vec(),
        None => {
            let func = program.func(py, func)?;
            func.params().iter().map(|&p| func.ty(p).clone()).collect()
        }
    };
    loop {
        let module = program.lock().clone();
        let sites = enter(py, || deep(|| undecided(&module, func, &types, &chosen)))?;
        if sites.is_empty() {
            return Ok(chosen);
        }
        for site in sites {
            let args = site.args.iter().map(|ty| aval(py, ty)).collect::<PyResult<Vec<_>>>()?;
            let found: Option<String> =
                provide.call1((site.decomposition.as_str(), args))?.extract()?;
            let decided = chosen.decide(&program.lock(), &site, found);
            decided.map_err(|error| exception(py, &error.into()))?;
        }
    }
}

/// The decompositions of composites without a rule in a function and in those that it calls.
pub fn unruled(module: &GraphModule, func: &str) -> Vec<String> {
    let mut found = Vec::new();
    for func in walk::reached(module, &[func]).iter().filter_map(|name| module.func(name)) {
        for (_, op) in func.ops.iter().filter(|(_, op)| op.code == GraphOp::Composite) {
            let name = walk::called(op).unwrap_or_default().to_string();
            let has_rule = op.attr("fwd").is_some() || op.attr("jvp").is_some();
            if !has_rule && !found.contains(&name) {
                found.push(name);
            }
        }
    }
    found
}

/// Functions that the rule runs keep their composites as they are: no function may call itself, and a
/// composite in its own rule is its decomposition.
pub fn set_rule(
    module: &mut GraphModule,
    decomposition: &str,
    rule: &[(&'static str, Option<String>)],
    nondiff: &[i64],
) {
    let roots: Vec<&str> = rule.iter().filter_map(|(_, func)| func.as_deref()).collect();
    let inside = walk::reached(module, &roots);
    for func in module.funcs.iter_mut().filter(|f| !inside.contains(&f.name)) {
        let ids: Vec<_> = func.ops.ids().collect();
        for id in ids {
            let op = &mut func.ops[id];
            if op.code != GraphOp::Composite || walk::called(op) != Some(decomposition) {
                continue;
            }
            for (name, func) in rule {
                if let Some(func) = func {
                    op.attrs.set(name, Attr::Ref(func.clone()));
                }
            }
            if !nondiff.is_empty() {
                op.attrs.set("nondiff", Attr::ints(nondiff.iter().copied()));
            }
        }
    }
}

/// Refuses a factor rule that cannot be read, or that is for other ranks of operands and results.
#[tessera_entry::entry]
#[pyfunction]
#[pyo3(signature = (rule, ranks=None))]
pub fn check_factors(
    py: Python<'_>,
    rule: &str,
    ranks: Option<(Vec<usize>, Vec<usize>)>,
) -> PyResult<()> {
    let error = |refusal: tessera_graph::Refusal| {
        let help = "write a factor for each dim of each array: `b s d, d -> b s d`";
        let made = tessera_diag::Diagnostic::new(tessera_diag::Code::E_ARGUMENT, refusal.message);
        exception(py, &made.help(help).into())
    };
    let read = FactorRule::parse(rule).map_err(error)?;
    match ranks {
        Some((operands, results)) => read.check(&operands, &results).map_err(error),
        None => Ok(()),
    }
}
