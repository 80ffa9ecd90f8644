//! Transforms of the functions of a program: new functions are added to it.

use super::program::Program;
use crate::enter::enter;
use pyo3::prelude::*;
use tessera_autodiff::{BatchRules, KernelSet, Ruled};
use tessera_diag::Diagnostics;
use tessera_driver::deep;
use tessera_graph::GraphModule;
use tessera_ir::{Dim, DimExpr};

/// Works on the program with the GIL released.
fn change<T: Send>(
    py: Python<'_>,
    program: &Program,
    work: impl FnOnce(&mut GraphModule, &mut KernelSet) -> Result<T, Diagnostics> + Send,
) -> PyResult<T> {
    enter(py, || deep(|| work(&mut program.lock(), &mut program.kernels())))
}

pub fn jvp(
    py: Python<'_>,
    program: &Program,
    func: &str,
    wrt: &[usize],
) -> PyResult<(String, Vec<bool>)> {
    let made = change(py, program, |m, k| tessera_autodiff::jvp_with(m, k, func, wrt))?;
    Ok((made.func, made.tangents))
}

pub fn vjp(
    py: Python<'_>,
    program: &Program,
    func: &str,
    wrt: &[usize],
) -> PyResult<(String, String, usize, Vec<bool>)> {
    let made = change(py, program, |m, k| tessera_autodiff::vjp_with(m, k, func, wrt))?;
    Ok((made.forward, made.pullback, made.residuals, made.cotangents))
}

pub fn gradient(py: Python<'_>, program: &Program, func: &str, wrt: &[usize]) -> PyResult<String> {
    change(py, program, |m, k| tessera_autodiff::gradient_with(m, k, func, wrt))
}

/// A function with one more axis and which of its results have it, and the batching rules that are missing for it.
pub type Batched = (Option<String>, Vec<bool>, Vec<(String, Vec<bool>)>);

pub fn vmap(
    py: Python<'_>,
    program: &Program,
    func: &str,
    in_axes: &[Option<usize>],
    out_axes: &[Option<usize>],
    size: &DimExpr,
    rules: &BatchRules,
) -> PyResult<Batched> {
    let size = Dim::from(size.clone());
    if rules.decompositions.is_empty() {
        let made =
            change(py, program, |m, _| tessera_autodiff::vmap(m, func, in_axes, out_axes, &size))?;
        return Ok((Some(made.func), made.batched, Vec::new()));
    }
    let work = |m: &mut GraphModule, _: &mut KernelSet| {
        tessera_autodiff::vmap_by_rules(m, func, in_axes, out_axes, &size, rules)
    };
    Ok(match change(py, program, work)? {
        Ruled::Done(made) => (Some(made.func), made.batched, Vec::new()),
        Ruled::Missing(rules) => (None, Vec::new(), rules),
    })
}
