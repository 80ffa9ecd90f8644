//! A function that was compiled for arguments of given types.

use super::run::Called;
use crate::arrays::argument;
use crate::enter::{enter, exception};
use crate::kernel::BACKENDS;
use crate::streams::Found;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tessera_diag::{Code, Diagnostic};
use tessera_driver::graph::{GraphOptions, GraphProgram, HostKernels, PlanOptions, compile_graph};
use tessera_driver::{Arg, BufferArg, NoKernels, Place};
use tessera_graph::GraphModule;
use tessera_numerics::Profile;

#[pyclass(frozen, module = "tessera._core")]
pub struct Executable(GraphProgram);

pub fn compile(
    py: Python<'_>,
    module: &GraphModule,
    func: &str,
    backend: Option<String>,
    separate: bool,
    profile: usize,
) -> PyResult<Executable> {
    enter(py, || {
        let types = match module.func(func) {
            Some(f) => f.params().iter().map(|&p| f.ty(p).clone()).collect::<Vec<_>>(),
            None => Vec::new(),
        };
        let plan = PlanOptions { separate, ..PlanOptions::default() };
        let profile = Profile::ALL.get(profile).copied().unwrap_or_default();
        let options = GraphOptions { backend, profile, plan };
        compile_graph(module, func, &types, &BACKENDS, &options)
    })
    .map(Executable)
}

pub fn buffers(
    py: Python<'_>,
    arrays: &[Bound<'_, PyAny>],
    what: &str,
) -> PyResult<Vec<BufferArg>> {
    let mut keep = Vec::new();
    let mut found = Found::default();
    arrays
        .iter()
        .map(|array| match argument(array, &mut keep, &mut found)? {
            Arg::Array(a) if matches!(a.place, Place::Host) => Ok(a.buffer),
            _ => {
                let got = array.get_type().name()?;
                let why = format!("expected {what} to be arrays in host memory, got {got}");
                Err(exception(py, &Diagnostic::new(Code::E_ARGUMENT, why).into()))
            }
        })
        .collect()
}

#[pymethods]
impl Executable {
    /// Runs on NumPy arrays that lie row by row; results are written into `outputs`.
    #[pyo3(signature = (inputs, outputs, kernels=None))]
    fn run(
        &self,
        py: Python<'_>,
        inputs: Vec<Bound<'_, PyAny>>,
        outputs: Vec<Bound<'_, PyAny>>,
        kernels: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let ins = buffers(py, &inputs, "arguments")?;
        let outs = buffers(py, &outputs, "results")?;
        let called = kernels.map(Called::new);
        let answer = enter(py, || match &called {
            Some(called) => self.0.run_into(&ins, &outs, &mut HostKernels(&mut &*called)),
            None => self.0.run_into(&ins, &outs, &mut HostKernels(&mut NoKernels)),
        });
        if let Some(error) = called.and_then(Called::raised) {
            return Err(error);
        }
        answer
    }

    #[getter]
    fn backend(&self) -> &'static str {
        self.0.backend()
    }

    /// Ops that the host evaluates by their definition.
    #[getter]
    fn host_ops(&self) -> Vec<String> {
        self.0.host_ops()
    }

    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (out, found) = (PyDict::new(py), self.0.stats());
        out.set_item("plan_s", found.plan.as_secs_f64())?;
        out.set_item("compile_s", found.compile.as_secs_f64())?;
        out.set_item("launches", found.launches)?;
        out.set_item("kernels", found.kernels)?;
        out.set_item("compiled", found.compiled)?;
        out.set_item("host_ops", found.host_ops)?;
        out.set_item("scratch_bytes", found.scratch_bytes)?;
        out.set_item("unshared_bytes", found.unshared_bytes)?;
        Ok(out)
    }
}
