//! CUDA devices, their memory, streams and events.

use crate::enter::enter;
use crate::streams;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use tessera_driver::Queue;
use tessera_driver::gpu;

/// What is missing for kernels to run on a device; `None` where nothing is.
#[pyfunction]
pub fn cuda_missing(py: Python<'_>) -> PyResult<Option<String>> {
    enter(py, || Ok(gpu::missing()))
}

#[pyfunction]
pub fn cuda_devices(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let rows = enter(py, gpu::devices)?;
    let one = |row: &gpu::DeviceRow| {
        let out = PyDict::new(py);
        out.set_item("device", format!("cuda:{}", row.ordinal))?;
        out.set_item("name", &row.name)?;
        out.set_item("arch", &row.arch)?;
        out.set_item("compute_capability", row.capability)?;
        out.set_item("multiprocessors", row.multiprocessors)?;
        out.set_item("memory_bytes", row.memory_bytes)?;
        out.set_item("free_bytes", row.free_bytes)?;
        out.set_item("l2_bytes", row.l2_bytes)?;
        out.set_item("shared_bytes_per_block", row.shared_bytes_per_block)?;
        let version = row.driver_version;
        out.set_item("cuda", format!("{}.{}", version / 1000, version % 1000 / 10))?;
        out.set_item("ptx", format!("{}.{}", row.ptx.0, row.ptx.1))?;
        Ok(out)
    };
    rows.iter().map(one).collect()
}

/// Waits for the work of a stream, or for all work of the device.
#[pyfunction]
pub fn cuda_synchronize(py: Python<'_>, device: u32, stream: Option<u64>) -> PyResult<()> {
    enter(py, || gpu::synchronize(device, stream))
}

#[pyfunction]
pub fn cuda_memory_stats(py: Python<'_>, device: u32) -> PyResult<Bound<'_, PyDict>> {
    let stats = enter(py, || gpu::memory_stats(device))?;
    let out = PyDict::new(py);
    out.set_item("held", stats.held)?;
    out.set_item("in_use", stats.in_use)?;
    out.set_item("peak", stats.peak)?;
    out.set_item("free_blocks", stats.free_blocks)?;
    out.set_item("reused", stats.reused)?;
    out.set_item("allocated", stats.allocated)?;
    out.set_item("device_free", stats.device_free)?;
    out.set_item("device_total", stats.device_total)?;
    Ok(out)
}

#[pyfunction]
pub fn cuda_trim(py: Python<'_>, device: u32) -> PyResult<u64> {
    enter(py, || gpu::trim(device))
}

/// Where the assembler is that stands beside the driver's own, and its version.
#[pyfunction]
pub fn cuda_ptxas(py: Python<'_>, packages: Vec<PathBuf>) -> PyResult<String> {
    enter(py, || gpu::ptxas(&packages))
}

/// How many launches were put on streams so far, and the device and stream of the last one.
#[pyfunction]
pub fn cuda_launches() -> (u64, u32, u64) {
    let (count, queue) = gpu::launches();
    (count, queue.device, queue.stream)
}

/// Names the stream of later calls of this thread, or none; gives the one named before.
#[pyfunction]
pub fn set_stream(stream: Option<u64>) -> Option<u64> {
    streams::name(stream.map(streams::canonical))
}

/// The stream that is named on this thread.
#[pyfunction]
pub fn named_stream() -> Option<u64> {
    streams::named()
}

/// An order of work on a device, beside the default one.
#[pyclass(frozen, module = "tessera.runtime")]
pub struct Stream(gpu::Stream);

#[pymethods]
impl Stream {
    #[new]
    fn new(py: Python<'_>, device: u32) -> PyResult<Self> {
        enter(py, || gpu::Stream::new(device)).map(Self)
    }

    /// The driver's handle, as a number.
    #[getter]
    fn handle(&self) -> u64 {
        self.0.handle()
    }

    #[getter]
    fn device(&self) -> String {
        format!("cuda:{}", self.0.device())
    }

    /// Waits until its work is done.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, || gpu::synchronize(self.0.device(), Some(self.0.handle())))
    }

    /// As other libraries ask for it: a version and the handle.
    fn __cuda_stream__(&self) -> (u32, u64) {
        (0, self.0.handle())
    }

    fn __repr__(&self) -> String {
        format!("<tessera stream {:#x} on cuda:{}>", self.0.handle(), self.0.device())
    }
}

/// A point in a stream's work.
#[pyclass(frozen, module = "tessera.runtime")]
pub struct Event(gpu::Mark);

#[pymethods]
impl Event {
    /// Behind what the stream has been given so far.
    #[new]
    fn new(py: Python<'_>, device: u32, stream: u64) -> PyResult<Self> {
        enter(py, || gpu::Mark::new(Queue { device, stream }, true)).map(Self)
    }

    /// Waits until the work before it is done.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, || self.0.synchronize())
    }

    /// Seconds from an earlier one to this; both must be past.
    fn seconds_since(&self, py: Python<'_>, earlier: &Event) -> PyResult<f64> {
        enter(py, || self.0.seconds_since(&earlier.0))
    }
}
