//! Kernels that a function calls on arrays of a device: Python launches them on its stream.

use crate::device_array::DeviceArray;
use crate::streams;
use pyo3::prelude::*;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_driver::graph::GraphKernels;
use tessera_driver::{BufferArg, Queue};
use tessera_ir::{Attrs, Privilege};

/// What Python raises is kept and raised again after the run.
pub struct OnDevice {
    run: Option<Py<PyAny>>,
    raised: Option<PyErr>,
}

impl OnDevice {
    pub fn new(run: Option<Py<PyAny>>) -> Self {
        Self { run, raised: None }
    }

    pub fn raised(self) -> Option<PyErr> {
        self.raised
    }

    fn python(&self, kernel: &str, args: &[BufferArg], queue: Queue) -> PyResult<()> {
        let Some(run) = &self.run else { return Ok(()) };
        Python::attach(|py| {
            let arrays: Vec<DeviceArray> =
                args.iter().map(|a| DeviceArray::lent(a, queue)).collect();
            let before = streams::name(Some(queue.stream));
            let done = run.call_method1(py, "on_device", (kernel, arrays));
            streams::name(before);
            done.map(|_| ())
        })
    }
}

impl GraphKernels for OnDevice {
    fn call(
        &mut self,
        kernel: &str,
        _config: Option<&Attrs>,
        _privileges: &[Privilege],
        args: &[BufferArg],
        queue: Option<Queue>,
        loc: &Loc,
    ) -> Result<(), Diagnostics> {
        let queue = queue.unwrap_or_default();
        self.python(kernel, args, queue).map_err(|error| {
            self.raised = Some(error);
            let why = format!("the kernel @{kernel} failed");
            Diagnostic::new(Code::E_LAUNCH_GEOMETRY, why).at(loc.clone()).into()
        })
    }
}
