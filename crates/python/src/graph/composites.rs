//! Composites: Python says which function stands for one where it is compiled, and which rule it has
//! where it is differentiated.

use super::attrs::aval;
use super::kernels;
use super::program::Program;
use crate::enter::{enter, exception};
use pyo3::prelude::*;
use std::sync::Arc;
use tessera_driver::deep;
use tessera_driver::graph::{Chosen, OnMesh, on_mesh, same, undecided};
use tessera_graph::{FactorRule, GraphModule, GraphOp, walk};
use tessera_ir::{Attr, Type};
use tessera_numerics::Profile;

/// A function that is compiled, and for what.
pub struct Compiled<'a> {
    pub func: &'a str,
    /// The types of the arguments where the function's own have symbols.
    pub args: Option<&'a [Type]>,
    pub profile: Profile,
    pub is_on_device: bool,
}

/// Requests a kernel for each composite that the function runs. Kernels are functions that `provide` adds to the program; composites in
/// them come in the next round. On a mesh those of the ranks' program are requested, which is made for that; `on_blocks` names the
/// kernels of users for blocks.
pub fn choose(
    py: Python<'_>,
    program: &Program,
    compiled: &Compiled<'_>,
    provide: Option<&Bound<'_, PyAny>>,
    on_blocks: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Chosen, Option<Arc<OnMesh>>)> {
    let mut chosen = Chosen::default();
    let Compiled { func, profile, is_on_device, .. } = *compiled;
    let types = match compiled.args {
        Some(types) => types.to_vec(),
        None => {
            let func = program.func(py, func)?;
            func.params().iter().map(|&p| func.ty(p).clone()).collect()
        }
    };
    let module = program.lock().clone();
    let mut ranks = enter(py, || deep(|| on_mesh(&module, func, &types, profile)))?;
    if let (Some(ranks), Some(on_blocks)) = (&mut ranks, on_blocks) {
        ranks.specialise(&mut |kernel, types| {
            let types = types.iter().map(|ty| aval(py, ty)).collect::<PyResult<Vec<_>>>()?;
            on_blocks.call1((kernel, types))?.extract::<String>()
        })?;
    }
    let ranks = ranks.map(Arc::new);
    let Some(provide) = provide else { return Ok((chosen, ranks)) };
    let kernels = kernels::placed(program);
    loop {
        let module = program.lock().clone();
        let sites = enter(py, || {
            deep(|| match &ranks {
                Some(ranks) => {
                    ranks.undecided(&module, (func, &types), &chosen, &kernels, is_on_device)
                }
                None => undecided(&module, func, &types, &chosen, &|_, _| false),
            })
        })?;
        if sites.is_empty() {
            return Ok((chosen, ranks));
        }
        for site in sites {
            let args = site.args.iter().map(|ty| aval(py, ty)).collect::<PyResult<Vec<_>>>()?;
            let requested = site.whole.as_ref().unwrap_or(&site.decomposition).as_str();
            let (mut found, again): (Option<String>, Option<String>) =
                provide.call1((requested, args, site.whole.is_some()))?.extract()?;
            // What the kernel computes is what the function says for these extents. A block of the whole is that where the function says
            // the same ops for them: one that counts its rows, say, does not.
            if let (Some(ranks), Some(again)) = (&ranks, again.filter(|_| found.is_some())) {
                let module = program.lock().clone();
                let (a, b) = ((&module, again.as_str()), (&ranks.module, &*site.decomposition));
                found = found.filter(|_| same(a, b, &site.args).unwrap_or(false));
            }
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
