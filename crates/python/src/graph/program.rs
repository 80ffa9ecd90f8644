//! The module that holds what was traced.

use super::attrs::{Aval, aval, type_of};
use super::composites;
use super::executable::{self, Compiled, Executable};
use super::kernels::{self, TracedKernel};
use super::run::{self, Answer};
use super::transform;
use crate::devices;
use crate::enter::{enter, exception};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tessera_autodiff::{BatchRules, KernelSet};
use tessera_diag::{Code, Diagnostic};
use tessera_driver::graph::{Chosen, placements};
use tessera_driver::{Artifact, deep};
use tessera_graph::{Graph, GraphFunc, GraphModule, verify_module, walk};
use tessera_ir::{Type, parse_module};
use tessera_numerics::Profile;

/// Axes, extents, and for each value the axes that split each dim.
type Placements = (Vec<String>, Vec<i64>, Vec<Vec<Vec<String>>>);

type Signature<'py> = Vec<(Bound<'py, PyTuple>, String)>;

/// Kernels that transforms made and that were called, by name, backend and profile.
pub type MadeCode = BTreeMap<(String, Option<String>, Profile), Arc<dyn Artifact>>;

/// Functions of Graph IR, with their transforms.
#[pyclass(frozen, module = "tessera._core")]
pub struct Program {
    module: Mutex<GraphModule>,
    kernels: Mutex<KernelSet>,
    made: Mutex<MadeCode>,
    compiled: Arc<Compiled>,
}

impl Program {
    fn of(module: GraphModule) -> Self {
        let (kernels, made) = (Mutex::default(), Mutex::default());
        Self { module: Mutex::new(module), kernels, made, compiled: Arc::default() }
    }

    pub fn lock(&self) -> MutexGuard<'_, GraphModule> {
        self.module.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernels that its functions call.
    pub fn kernels(&self) -> MutexGuard<'_, KernelSet> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn made(&self) -> MutexGuard<'_, MadeCode> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, func: GraphFunc) {
        self.lock().funcs.push(func);
    }

    pub fn func(&self, py: Python<'_>, name: &str) -> PyResult<GraphFunc> {
        self.lock().func(name).cloned().ok_or_else(|| {
            let why = format!("expected a function of the module, got @{name}");
            exception(py, &Diagnostic::new(Code::E_NAME, why).into())
        })
    }
}

#[tessera_entry::entry]
#[pymethods]
impl Program {
    #[new]
    fn new(name: &str) -> Self {
        Self::of(GraphModule::new(name))
    }

    #[staticmethod]
    fn parse(py: Python<'_>, text: &str) -> PyResult<Self> {
        let module = enter(py, || deep(|| parse_module::<Graph>(text, "<ir>")))?;
        Ok(Self::of(module))
    }

    /// A name that no function has yet.
    fn fresh(&self, base: &str) -> String {
        walk::fresh_name(&self.lock(), base)
    }

    /// The types of parameters and of results.
    fn signature<'py>(
        &self,
        py: Python<'py>,
        func: &str,
    ) -> PyResult<(Signature<'py>, Signature<'py>)> {
        let func = self.func(py, func)?;
        let list = |types: Vec<Type>| {
            types.iter().map(|ty| aval(py, ty)).collect::<PyResult<Signature<'py>>>()
        };
        let params = func.params().iter().map(|&v| func.ty(v).clone()).collect();
        let results = walk::returned(&func).iter().map(|&v| func.ty(v).clone()).collect();
        Ok((list(params)?, list(results)?))
    }

    /// Takes out what the named functions do not need.
    fn prune(&self, roots: Vec<String>) {
        let roots: Vec<&str> = roots.iter().map(String::as_str).collect();
        walk::dce_module(&mut self.lock(), &roots);
    }

    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        let module = self.lock().clone();
        enter(py, || deep(|| verify_module(&module)))
    }

    fn hash(&self) -> String {
        self.lock().hash().to_string()
    }

    fn __str__(&self) -> String {
        self.lock().to_string()
    }

    /// The collectives that a function runs: kind, axes, how many ranks take part, bytes on one rank, how often.
    fn collectives(&self, func: &str) -> Vec<(&'static str, Vec<String>, i64, i64, i64)> {
        let found = tessera_graph::collectives(&self.lock(), func);
        found.into_iter().map(|c| (c.kind, c.axes, c.ranks, c.nbytes, c.times)).collect()
    }

    /// The mesh of a function that places values on one, and for each result the axes that split each dim: axes, extents, splits.
    /// `args` are the types of arguments where the function's own have symbols.
    #[pyo3(signature = (func, profile, args=None))]
    fn placements<'py>(
        &self,
        py: Python<'py>,
        func: &str,
        profile: usize,
        args: Option<Vec<Aval<'py>>>,
    ) -> PyResult<Option<Placements>> {
        let types = match args {
            Some(list) => list.iter().map(|a| type_of(py, a)).collect::<PyResult<Vec<Type>>>()?,
            None => {
                let own = self.func(py, func)?;
                own.params().iter().map(|&v| own.ty(v).clone()).collect()
            }
        };
        let module = self.lock().clone();
        let ordered = Profile::ALL.get(profile) == Some(&Profile::Strict);
        let name = func.to_string();
        let found = enter(py, || deep(|| placements(&module, &name, &types, ordered)))?;
        Ok(found.map(|(mesh, splits)| (mesh.names, mesh.sizes, splits)))
    }

    /// How many ops all functions have together.
    fn op_count(&self) -> usize {
        self.lock().funcs.iter().map(|f| f.walk().len()).sum()
    }

    /// Forward mode: the function's name, and which results have tangents.
    fn jvp(&self, py: Python<'_>, func: &str, wrt: Vec<usize>) -> PyResult<(String, Vec<bool>)> {
        transform::jvp(py, self, func, &wrt)
    }

    /// Reverse mode: forward function, pullback, how many residuals, which results take cotangents.
    fn vjp(
        &self,
        py: Python<'_>,
        func: &str,
        wrt: Vec<usize>,
    ) -> PyResult<(String, String, usize, Vec<bool>)> {
        transform::vjp(py, self, func, &wrt)
    }

    /// Value and derivatives of the first result in one function.
    fn gradient(&self, py: Python<'_>, func: &str, wrt: Vec<usize>) -> PyResult<String> {
        transform::gradient(py, self, func, &wrt)
    }

    /// The decompositions of the composites that a function runs and that have no derivative rule.
    fn unruled(&self, func: &str) -> Vec<String> {
        composites::unruled(&self.lock(), func)
    }

    /// The derivative rule of all composites with this decomposition: `fwd` and `bwd`, or `jvp`, or all.
    #[pyo3(signature = (decomposition, fwd, bwd, jvp, nondiff))]
    fn set_rule(
        &self,
        decomposition: &str,
        fwd: Option<String>,
        bwd: Option<String>,
        jvp: Option<String>,
        nondiff: Vec<i64>,
    ) {
        let rule = [("fwd", fwd), ("bwd", bwd), ("jvp", jvp)];
        composites::set_rule(&mut self.lock(), decomposition, &rule, &nondiff);
    }

    /// One more axis: the function's name, and which results have it. `ruled` are the decompositions of composites with batching
    /// rules, `rules` the functions of these: the decomposition, which operands have the axis, and the function or None for the
    /// decomposition itself. Where some are missing there is no function, and they are given at the end.
    #[pyo3(signature = (func, in_axes, out_axes, size, ruled=Vec::new(), rules=Vec::new()))]
    #[allow(clippy::too_many_arguments)] // Names of Python's.
    fn vmap(
        &self,
        py: Python<'_>,
        func: &str,
        in_axes: Vec<Option<usize>>,
        out_axes: Vec<Option<usize>>,
        size: Bound<'_, PyAny>,
        ruled: Vec<String>,
        rules: Vec<(String, Vec<bool>, Option<String>)>,
    ) -> PyResult<transform::Batched> {
        let rules = BatchRules {
            decompositions: ruled.into_iter().collect(),
            funcs: rules.into_iter().map(|(name, on, func)| ((name, on), func)).collect(),
        };
        transform::vmap(py, self, func, &in_axes, &out_axes, &super::attrs::expr(&size)?, &rules)
    }

    /// Compiles a function for parameters of known extents: its own, or those of `args` where its own
    /// are symbols. `separate`: without fusion. `device` holds the arrays; none is the host. `plan` is
    /// the text of a plan to follow. `provide(decomposition, types, is_block)` gives the name of the function
    /// that stands for a composite on operands of these types, or None for its decomposition; and, for a block
    /// of the composite on a rank, the name of the decomposition for these types. `on_blocks(kernel, types)`
    /// names the kernel of a user for blocks of these types.
    #[pyo3(signature = (func, backend=None, separate=false, profile=0, device=None, plan=None, args=None, provide=None, on_blocks=None))]
    #[expect(clippy::too_many_arguments, reason = "names of Python's")]
    fn compile<'py>(
        &self,
        py: Python<'py>,
        func: &str,
        backend: Option<String>,
        separate: bool,
        profile: usize,
        device: Option<&str>,
        plan: Option<String>,
        args: Option<Vec<Aval<'py>>>,
        provide: Option<Bound<'py, PyAny>>,
        on_blocks: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Executable> {
        let args = args
            .map(|list| list.iter().map(|a| type_of(py, a)).collect::<PyResult<Vec<Type>>>())
            .transpose()?;
        let (chosen, on_mesh) = match provide.is_some() || on_blocks.is_some() {
            true => {
                let profile = Profile::ALL.get(profile).copied().unwrap_or_default();
                let (args, is_on_device) = (args.as_deref(), device.is_some());
                let compiled = composites::Compiled { func, args, profile, is_on_device };
                composites::choose(py, self, &compiled, provide.as_ref(), on_blocks.as_ref())?
            }
            false => (Chosen::default(), None),
        };
        let module = self.lock().clone();
        let kernels = kernels::placed(self);
        let device = device.map(|name| devices::named(py, name)).transpose()?;
        let requested = executable::Requested {
            backend,
            separate,
            profile,
            device,
            plan,
            args,
            kernels,
            chosen,
            on_mesh,
        };
        executable::compile(py, module, func, requested, &self.compiled)
    }

    /// Says what the kernel is that functions call by this name; `order` are the parameters that
    /// calls have arguments for. A kernel that has others is known by its name only. `placed`: it belongs
    /// to the code of the functions that call it.
    #[pyo3(signature = (label, kernel, order, placed=false))]
    fn add_kernel(&self, label: &str, kernel: &TracedKernel, order: Vec<String>, placed: bool) {
        kernels::add(self, label, kernel, &order, placed);
    }

    /// The Tile IR of a kernel that functions call, made or given.
    fn kernel_ir(&self, label: &str) -> Option<String> {
        self.kernels().get(label).map(|def| def.func.to_string())
    }

    /// Runs a kernel that was made by a transform on NumPy arrays.
    fn run_kernel(
        &self,
        py: Python<'_>,
        label: &str,
        arrays: Vec<Bound<'_, PyAny>>,
        backend: Option<&str>,
        profile: usize,
    ) -> PyResult<()> {
        kernels::run(py, self, label, &arrays, backend, profile)
    }

    /// Evaluates a function on host arrays, op by op. `inputs` are (extents, dtype, bytes);
    /// `kernels(name, config, privileges, arrays)` runs a kernel and gives the bytes of every array.
    #[pyo3(signature = (func, inputs, kernels=None))]
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        func: &str,
        inputs: Vec<(Aval<'py>, Bound<'py, PyAny>)>,
        kernels: Option<Py<PyAny>>,
    ) -> PyResult<Vec<Answer<'py>>> {
        run::evaluate(py, self, func, inputs, kernels)
    }
}
