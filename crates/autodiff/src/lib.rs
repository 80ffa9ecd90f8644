//! Derivatives and batching of Graph IR: functions of a module go in, functions of the same module
//! come out. A transformed function is made of the same primitives as its source, so that transforms
//! nest in any order and to any depth.
//!
//! | transform | takes | gives |
//! |---|---|---|
//! | [`jvp`] | arguments, tangents | results, tangents |
//! | [`vjp`] | `forward`: arguments; `pullback`: residuals, cotangents | results, residuals; cotangents |
//! | [`gradient`] | arguments | results, cotangents of the arguments for the first result |
//! | [`vmap`] | arguments with one more axis | results with one more axis |
//!
//! **Reverse mode** is by reverse rules: forward ops are copied, then each is followed, last to
//! first, by ops that compute cotangents of its operands from cotangents of its results. Afterwards
//! the joint function is cut into a forward and a backward part (`split.rs`); the values on the cut
//! are the residuals. Bodies of loops, branches and called functions are transformed as functions
//! of their own, so that their residuals are found by the same cut.
//!
//! **What has a derivative:** floats. Arguments that are integers or bools have no tangents and no
//! cotangents at all (they are left out, not passed as zeros). A tangent or cotangent has the type of
//! its value. Several cotangents of one value are added in the carrier of its dtype and stored once.
//!
//! **Zeros are not computed:** a tangent or cotangent that is zero for every argument is left out
//! while rules run, and only materialised where a signature has it.
//!
//! Nothing here evaluates; the interpreter judges every rule in the tests.
//!
//! ```
//! use tessera_autodiff::gradient;
//! use tessera_graph::Graph;
//! let text = "module @m : graph {version = 1}
//!
//! func @f(%x: tensor<[4], f64>) {
//!   %y = graph.mul %x, %x : tensor<[4], f64>
//!   %s = graph.reduce %y {op = sum, axes = [0]} : tensor<[], f64>
//!   graph.return %s
//! }
//! ";
//! let mut module = tessera_ir::parse_module::<Graph>(text, "f").unwrap();
//! let grad = gradient(&mut module, "f", &[0]).unwrap();
//! assert_eq!(module.func(&grad).unwrap().params().len(), 1);
//! ```

mod activity;
mod context;
mod custom;
mod emit;
mod forward;
mod forward_control;
mod joint;
mod kernel;
mod manual;
mod ranks;
mod region;
mod reverse_control;
mod rules;
mod scalar;
mod split;
mod vmap;

pub use custom::{check_custom_jvp, check_custom_vjp};
pub use kernel::{KernelDef, KernelSet, value_and_grad};
pub use ranks::expand_ranks;
pub use region::{Outlined, outline};

use context::Context;
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_graph::{GraphFunc, GraphModule};
use tessera_ir::{Dim, Type};

/// What [`jvp`] made.
#[derive(Clone, Debug, PartialEq)]
pub struct Jvp {
    /// Takes the arguments of the source, then one tangent for each of `wrt`, in the order of `wrt`.
    /// Gives the results of the source, then one tangent for each float result.
    pub func: String,
    /// For each result of the source whether it has a tangent: whether it is a float.
    pub tangents: Vec<bool>,
}

/// What [`vjp`] made.
#[derive(Clone, Debug, PartialEq)]
pub struct Vjp {
    /// Takes the arguments of the source; gives its results, then `residuals` more values.
    pub forward: String,
    /// Takes the residuals, then one cotangent for each float result; gives one cotangent for each
    /// of `wrt`, in the order of `wrt`.
    pub pullback: String,
    pub residuals: usize,
    /// For each result of the source whether it takes a cotangent: whether it is a float.
    pub cotangents: Vec<bool>,
}

/// What [`vmap`] made.
#[derive(Clone, Debug, PartialEq)]
pub struct Vmap {
    pub func: String,
    /// For each result whether it depends on a batched argument; one that does not is repeated
    /// along its axis where `out_axes` has one.
    pub batched: Vec<bool>,
}

/// Forward mode: tangents of the results from tangents of the arguments `wrt` (positions, each
/// once).
///
/// The new function is added to the module; so are derivatives of functions it calls.
pub fn jvp(module: &mut GraphModule, func: &str, wrt: &[usize]) -> Result<Jvp, Diagnostics> {
    jvp_with(module, &mut KernelSet::default(), func, wrt)
}

/// [`jvp`] where functions call kernels: derivatives of those are added to them.
pub fn jvp_with(
    module: &mut GraphModule,
    kernels: &mut KernelSet,
    func: &str,
    wrt: &[usize],
) -> Result<Jvp, Diagnostics> {
    let source = source(module, func)?;
    check_wrt(&source, wrt)?;
    Ok(Context::new(module, kernels).public_jvp(&source, wrt)?)
}

/// Reverse mode: the results and what is needed from them on (`forward`), and a linear function
/// from cotangents of the results to cotangents of the arguments `wrt` (`pullback`).
///
/// Called one after the other, or inlined into one function, the two compute a gradient; what the
/// pullback does not use is not returned by the forward function.
pub fn vjp(module: &mut GraphModule, func: &str, wrt: &[usize]) -> Result<Vjp, Diagnostics> {
    vjp_with(module, &mut KernelSet::default(), func, wrt)
}

/// [`vjp`] where functions call kernels: derivatives of those are added to them.
pub fn vjp_with(
    module: &mut GraphModule,
    kernels: &mut KernelSet,
    func: &str,
    wrt: &[usize],
) -> Result<Vjp, Diagnostics> {
    let source = source(module, func)?;
    check_wrt(&source, wrt)?;
    Ok(Context::new(module, kernels).public_vjp(&source, wrt)?)
}

/// One function from the arguments to the results and then the derivatives of the first result, a
/// float without axes, by each argument of `wrt`: `value_and_grad` in one piece. Gives its name.
pub fn gradient(
    module: &mut GraphModule,
    func: &str,
    wrt: &[usize],
) -> Result<String, Diagnostics> {
    gradient_with(module, &mut KernelSet::default(), func, wrt)
}

/// [`gradient`] where functions call kernels: derivatives of those are added to them.
pub fn gradient_with(
    module: &mut GraphModule,
    kernels: &mut KernelSet,
    func: &str,
    wrt: &[usize],
) -> Result<String, Diagnostics> {
    let source = source(module, func)?;
    check_wrt(&source, wrt)?;
    let returned = tessera_graph::walk::returned(&source);
    let loss = returned.first().map(|&v| source.ty(v).clone());
    if !loss.as_ref().is_some_and(|ty| ty.rank() == 0 && is_float(ty)) {
        let got = loss.map_or("no result".to_string(), |ty| ty.to_string());
        let why =
            format!("expected @{func} to give a float without axes to differentiate, got {got}");
        let place = source.terminator(source.body).map(|id| source.ops[id].loc.clone());
        return Err(Diagnostic::new(Code::E_TYPE, why)
            .at(place.unwrap_or_else(|| source.loc.clone()))
            .help("reduce the result to one number (a sum or a mean), or use vjp with a cotangent")
            .into());
    }
    Ok(Context::new(module, kernels).public_gradient(&source, wrt)?)
}

/// One more axis of extent `size` through the whole function: argument `i` has it at `in_axes[i]`
/// (`None`: it is the same for all), result `i` at `out_axes[i]`. An empty `out_axes` puts it first in
/// every result. A result that `out_axes` says is the same for all, and is not, is refused.
pub fn vmap(
    module: &mut GraphModule,
    func: &str,
    in_axes: &[Option<usize>],
    out_axes: &[Option<usize>],
    size: &Dim,
) -> Result<Vmap, Diagnostics> {
    let source = source(module, func)?;
    Ok(Context::new(module, &mut KernelSet::default())
        .public_vmap(&source, in_axes, out_axes, size)?)
}

/// The batching rules of composites: of each decomposition that has one, the function for the operands that have the axis. With
/// the axis first in these it gives all results with the axis first. `None`: the decomposition is batched.
#[derive(Clone, Debug, Default)]
pub struct BatchRules {
    pub decompositions: BTreeSet<String>,
    pub funcs: BTreeMap<(String, Vec<bool>), Option<String>>,
}

/// A function with one more axis, or the rules that are missing for it: decompositions, with the operands that have the axis.
pub enum Ruled {
    Done(Vmap),
    Missing(Vec<(String, Vec<bool>)>),
}

/// [`vmap`], where composites have rules of their own. They are requested as they are met, and the module is as before
/// where one is missing. Where the axis has a symbol for its extent, decompositions are batched.
pub fn vmap_by_rules(
    module: &mut GraphModule,
    func: &str,
    in_axes: &[Option<usize>],
    out_axes: &[Option<usize>],
    size: &Dim,
    rules: &BatchRules,
) -> Result<Ruled, Diagnostics> {
    let mut made = module.clone();
    let source = source(&mut made, func)?;
    let mut kernels = KernelSet::default();
    let mut context = Context::new(&mut made, &mut kernels);
    context.batch_rules = rules.clone();
    let done = context.public_vmap(&source, in_axes, out_axes, size)?;
    let missing = std::mem::take(&mut context.missing);
    if !missing.is_empty() {
        return Ok(Ruled::Missing(missing));
    }
    *module = made;
    Ok(Ruled::Done(done))
}

/// Whether values of the type have derivatives.
pub fn is_float(ty: &Type) -> bool {
    matches!(ty, Type::Tensor { .. }) && ty.dtype().is_float()
}

fn source(module: &mut GraphModule, func: &str) -> Result<GraphFunc, Diagnostics> {
    tessera_graph::verify_module(module)?;
    custom::check_module(module)?;
    // Rules take the operands of an op for values of one state.
    tessera_graph::states::explicit(module);
    module.func(func).cloned().ok_or_else(|| {
        let why = format!("expected a function of the module, got @{func}");
        Diagnostic::new(Code::E_NAME, why).into()
    })
}

fn check_wrt(func: &GraphFunc, wrt: &[usize]) -> Result<(), Diagnostics> {
    for (place, &arg) in wrt.iter().enumerate() {
        let Some(&param) = func.params().get(arg) else {
            let n = func.params().len();
            let why = format!("expected an argument of @{} below {n}, got {arg}", func.name);
            return Err(Diagnostic::new(Code::E_ARGUMENT, why).at(func.loc.clone()).into());
        };
        let ty = func.ty(param);
        let name = func.name_of(param).unwrap_or("argument");
        if !is_float(ty) {
            let why = format!("expected a float to differentiate by, got %{name} of type {ty}");
            return Err(Diagnostic::new(Code::E_TYPE, why)
                .at(func.loc.clone())
                .help("convert it to a float before the function, or leave it out of the arguments to differentiate")
                .into());
        }
        if wrt[..place].contains(&arg) {
            let why = format!("expected each argument once, got %{name} twice");
            return Err(Diagnostic::new(Code::E_ARGUMENT, why).at(func.loc.clone()).into());
        }
    }
    Ok(())
}
