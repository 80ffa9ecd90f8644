//! Runs of a traced function by the interpreter of Graph IR.

use super::attrs::Aval;
use super::program::Program;
use crate::enter::{enter, exception};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyTuple};
use std::sync::Mutex;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_driver::{HostArray, KernelCall, Kernels, NoKernels, run_graph};
use tessera_numerics::DType;

/// Extents, dtype and elements of a result.
pub type Answer<'py> = (Bound<'py, PyTuple>, &'static str, Bound<'py, PyByteArray>);

/// Kernels that Python runs. What it raises is kept and raised again after the run.
pub struct Called {
    run: Py<PyAny>,
    raised: Mutex<Option<PyErr>>,
}

impl Called {
    pub fn new(run: Py<PyAny>) -> Self {
        Self { run, raised: Mutex::new(None) }
    }

    /// What Python raised.
    pub fn raised(self) -> Option<PyErr> {
        self.raised.into_inner().unwrap_or_else(|e| e.into_inner())
    }

    fn python(&self, call: &KernelCall<'_>, args: &mut [HostArray]) -> PyResult<()> {
        Python::attach(|py| {
            let config = call.config.map(|c| c.to_string());
            let privileges: Vec<_> = call.privileges.iter().map(|p| p.name()).collect();
            let arrays = args
                .iter()
                .map(|a| {
                    let dims = PyTuple::new(py, &a.dims)?;
                    Ok((dims, a.dtype.name(), PyByteArray::new(py, &a.bytes)))
                })
                .collect::<PyResult<Vec<_>>>()?;
            let made = self.run.call1(py, (call.kernel, config, privileges, arrays))?;
            let made: Vec<Bound<'_, PyBytes>> = made.extract(py)?;
            for (array, bytes) in args.iter_mut().zip(made) {
                array.bytes = bytes.as_bytes().to_vec();
            }
            Ok(())
        })
    }
}

impl Kernels for &Called {
    fn call(&mut self, call: &KernelCall<'_>, args: &mut [HostArray]) -> Result<(), Diagnostics> {
        self.python(call, args).map_err(|error| {
            *self.raised.lock().unwrap_or_else(|e| e.into_inner()) = Some(error);
            let why = format!("the kernel @{} failed", call.kernel);
            Diagnostic::new(Code::E_LAUNCH_GEOMETRY, why).at(call.loc.clone()).into()
        })
    }
}

/// The bytes of an array, where there is memory for them.
fn copied(bytes: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let bytes = bytes.cast::<PyBytes>()?.as_bytes();
    let mut out = Vec::new();
    out.try_reserve_exact(bytes.len()).map_err(|e| PyMemoryError::new_err(e.to_string()))?;
    out.extend_from_slice(bytes);
    Ok(out)
}

pub fn evaluate<'py>(
    py: Python<'py>,
    program: &Program,
    func: &str,
    inputs: Vec<(Aval<'py>, Bound<'py, PyAny>)>,
    kernels: Option<Py<PyAny>>,
) -> PyResult<Vec<Answer<'py>>> {
    let args = inputs
        .into_iter()
        .map(|((dims, dtype), bytes)| {
            let dims = dims.iter().map(|d| d.extract()).collect::<PyResult<Vec<i64>>>()?;
            let dtype = DType::parse(&dtype).ok_or_else(|| {
                let why = format!("expected a dtype, got {dtype}");
                exception(py, &Diagnostic::new(Code::E_UNSUPPORTED_DTYPE, why).into())
            })?;
            Ok(HostArray { dims, dtype, bytes: copied(&bytes)? })
        })
        .collect::<PyResult<Vec<_>>>()?;
    let module = program.lock().clone();
    let called = kernels.map(Called::new);
    let answer = enter(py, || match &called {
        Some(called) => run_graph(&module, func, &args, &mut &*called),
        None => run_graph(&module, func, &args, &mut NoKernels),
    });
    if let Some(error) = called.and_then(Called::raised) {
        return Err(error);
    }
    answer?
        .into_iter()
        .map(|a| {
            let dims = PyTuple::new(py, &a.dims)?;
            Ok((dims, a.dtype.name(), PyByteArray::new(py, &a.bytes)))
        })
        .collect()
}
