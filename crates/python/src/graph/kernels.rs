//! Kernels that traced functions call.

use super::executable::buffers;
use super::program::Program;
use crate::enter::{enter, exception};
use crate::kernel::BACKENDS;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use tessera_autodiff::KernelDef;
use tessera_diag::{Code, Diagnostic};
use tessera_driver::graph::{MadeKernel, MadeKernels};
use tessera_driver::launch_made;
use tessera_numerics::Profile;

/// A kernel for the sizes of a call, before it is compiled.
#[pyclass(frozen, module = "tessera._core")]
pub struct TracedKernel(pub tessera_driver::TracedKernel);

#[pymethods]
impl TracedKernel {
    /// Its parameters with what it may do with them.
    #[getter]
    fn params(&self) -> Vec<(String, &'static str)> {
        let privileges = self.0.privileges();
        self.0.params.iter().cloned().zip(privileges.iter().map(|p| p.name())).collect()
    }

    /// Its Tile IR.
    #[getter]
    fn ir(&self) -> String {
        self.0.func.to_string()
    }

    /// The parameters that a call is known to write whole, for arrays of these extents.
    fn covered(&self, extents: BTreeMap<String, Vec<i64>>) -> Vec<String> {
        self.0.covered(&extents)
    }

    /// The parameters that it returns.
    #[getter]
    fn returns(&self) -> Vec<String> {
        self.0.returns.clone()
    }
}

pub fn add(program: &Program, label: &str, kernel: &TracedKernel, order: &[String], placed: bool) {
    let place = |name: &String| order.iter().position(|o| o == name);
    if let Some(args) = kernel.0.params.iter().map(place).collect::<Option<Vec<_>>>() {
        let def = KernelDef { func: kernel.0.func.clone(), args, derived: false, placed };
        program.kernels().insert(label, def);
    }
}

/// The kernels that belong to the code of the functions that call them.
pub fn placed(program: &Program) -> MadeKernels {
    let set = program.kernels();
    let all = set.names().filter_map(|name| Some((name, set.get(name)?)));
    all.filter(|(_, def)| def.derived || def.placed)
        .map(|(name, def)| {
            (name.to_string(), MadeKernel { func: def.func.clone(), args: def.args.clone() })
        })
        .collect()
}

pub fn run(
    py: Python<'_>,
    program: &Program,
    label: &str,
    arrays: &[Bound<'_, PyAny>],
    backend: Option<&str>,
    profile: usize,
) -> PyResult<()> {
    let Some(def) = program.kernels().get(label).cloned() else {
        let why = format!("expected a kernel that a transform made, got @{label}");
        return Err(exception(py, &Diagnostic::new(Code::E_NAME, why).into()));
    };
    let args = buffers(py, arrays, "arguments")?;
    let args: Vec<_> = def.args.iter().filter_map(|&i| args.get(i).cloned()).collect();
    let profile = Profile::ALL.get(profile).copied().unwrap_or_default();
    enter(py, || launch_made(&def.func, &args, &BACKENDS, backend, profile))
}
