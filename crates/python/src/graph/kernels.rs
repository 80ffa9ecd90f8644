//! Kernels that traced functions call.

use super::executable::buffers;
use super::program::Program;
use crate::enter::{enter, exception};
use crate::kernel::BACKENDS;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_autodiff::KernelDef;
use tessera_diag::{Code, Diagnostic};
use tessera_driver::frontend::Table;
use tessera_driver::graph::{MadeKernel, MadeKernels};
use tessera_driver::{compile_made, launch_made};
use tessera_numerics::Profile;

type TableRow<'py> = (String, &'static str, Vec<i64>, Bound<'py, PyBytes>);

/// A kernel for the sizes of a call, before it is compiled.
#[pyclass(frozen, module = "tessera._core")]
pub struct TracedKernel(pub tessera_driver::TracedKernel);

#[tessera_entry::entry]
#[pymethods]
impl TracedKernel {
    /// Its parameters with what it may do with them.
    #[getter]
    fn params(&self) -> Vec<(String, &'static str)> {
        let privileges = self.0.privileges();
        self.0.params.iter().cloned().zip(privileges.iter().map(|p| p.name())).collect()
    }

    /// Its constant arrays: the name, and dtype, extents and contents.
    #[getter]
    fn tables<'py>(&self, py: Python<'py>) -> Vec<TableRow<'py>> {
        let first = self.0.params.len() - self.0.tables.len();
        let row = |(name, table): (&String, &Arc<Table>)| {
            let bytes = PyBytes::new(py, &table.bytes());
            (name.clone(), table.dtype.name(), table.dims.clone(), bytes)
        };
        self.0.params[first..].iter().zip(&self.0.tables).map(row).collect()
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
        let (func, settled) = (kernel.0.func.clone(), kernel.0.settled);
        let def = KernelDef { func, args, derived: false, placed, settled };
        program.kernels().insert(label, def);
    }
}

/// The kernels that are compiled with the functions that call them. Checked mode runs the others by
/// themselves, each in the interpreter.
pub fn placed(program: &Program) -> MadeKernels {
    let set = program.kernels();
    let all = set.names().filter_map(|name| Some((name, set.get(name)?)));
    let checked = tessera_driver::knobs::CHECK.is_on();
    all.filter(|(_, def)| def.derived || def.placed || (def.settled && !checked))
        .map(|(name, def)| {
            let required = def.derived || def.placed;
            let (func, args) = (def.func.clone(), def.args.clone());
            (name.to_string(), MadeKernel { func, args, required })
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
    let key = (label.to_string(), backend.map(str::to_string), profile);
    enter(py, || {
        let known = program.made().get(&key).cloned();
        let code = match known {
            Some(code) => code,
            None => {
                let code = compile_made(&def.func, &BACKENDS, backend, profile)?;
                program.made().insert(key, code.clone());
                code
            }
        };
        launch_made(&def.func, &*code, &args)
    })
}
