//! CUDA devices, their memory, streams and events.

use crate::dtype::DType;
use crate::enter::enter;
use crate::kernel::BACKENDS;
use crate::streams;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use tessera_driver::gpu;
use tessera_driver::{MatmulPlan, MatmulShape, Queue, matmul_plans as matmul_plans_of};

/// What is missing for kernels to run on a device; `None` where nothing is.
#[tessera_entry::entry]
#[pyfunction]
pub fn cuda_missing(py: Python<'_>) -> PyResult<Option<String>> {
    enter(py, || Ok(gpu::missing()))
}

#[tessera_entry::entry]
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
#[tessera_entry::entry]
#[pyfunction]
pub fn cuda_synchronize(py: Python<'_>, device: u32, stream: Option<u64>) -> PyResult<()> {
    enter(py, || gpu::synchronize(device, stream))
}

#[tessera_entry::entry]
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

#[tessera_entry::entry]
#[pyfunction]
pub fn cuda_trim(py: Python<'_>, device: u32) -> PyResult<u64> {
    enter(py, || gpu::trim(device))
}

/// The path and version of `ptxas`, the assembler beside the driver's own.
#[tessera_entry::entry]
#[pyfunction]
pub fn cuda_ptxas(py: Python<'_>, packages: Vec<PathBuf>) -> PyResult<String> {
    enter(py, || gpu::ptxas(&packages))
}

/// How many launches were put on streams so far, and the device and stream of the last one.
#[tessera_entry::entry]
#[pyfunction]
pub fn cuda_launches() -> (u64, u32, u64) {
    let (count, queue) = gpu::launches();
    (count, queue.device, queue.stream)
}

/// Names the stream of later calls of this thread, or none; gives the one named before.
#[tessera_entry::entry]
#[pyfunction]
pub fn set_stream(stream: Option<u64>) -> Option<u64> {
    streams::name(stream.map(streams::canonical))
}

/// The stream that is named on this thread.
#[tessera_entry::entry]
#[pyfunction]
pub fn named_stream() -> Option<u64> {
    streams::named()
}

/// A stream of a device, beside the default one.
#[pyclass(frozen, module = "tessera.runtime")]
pub struct Stream(gpu::Stream);

#[tessera_entry::entry]
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

    /// The protocol of other libraries: a version and the handle.
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

#[tessera_entry::entry]
#[pymethods]
impl Event {
    /// Recorded after the stream's work so far.
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

/// Schedules of the matmul `[P, M, K]` by `[P, K, N]` on a GPU, the fastest first: rows and columns
/// of a tile, parts of split-K, whether all tiles run in one wave, the pipeline depth, the
/// predicted seconds, and what limits them. Rows begin at multiples of `row_bytes`.
#[tessera_entry::entry]
#[pyfunction]
#[allow(clippy::too_many_arguments)] // A matmul, number by number.
pub fn matmul_plans(
    py: Python<'_>,
    batch: u64,
    m: u64,
    n: u64,
    k: u64,
    dtype: &Bound<'_, DType>,
    out_bytes: u64,
    row_bytes: u64,
    may_split: bool,
) -> PyResult<Vec<PlanRow>> {
    let shape = shape(batch, m, n, k, dtype, out_bytes, row_bytes);
    let found = enter(py, || matmul_plans_of(&BACKENDS, &shape, may_split))?;
    let row = |p: &MatmulPlan| {
        let limit = p.limit.to_string();
        (p.rows, p.columns, p.split, p.once, p.stages, p.seconds, limit)
    };
    Ok(found.iter().map(row).collect())
}

type PlanRow = (u64, u64, u64, bool, Option<u64>, f64, String);

/// The alignment of rows in bytes where nothing else is known.
const WHOLE: u64 = 128;

/// The tile width of a grouped matmul with `count` tiles of `rows` rows.
#[tessera_entry::entry]
#[pyfunction]
pub fn grouped_columns(
    py: Python<'_>,
    rows: u64,
    count: u64,
    n: u64,
    k: u64,
    dtype: &Bound<'_, DType>,
) -> PyResult<u64> {
    let shape = shape(1, rows, n, k, dtype, dtype.get().0.storage.bytes() as u64, WHOLE);
    enter(py, || tessera_driver::grouped_columns(&BACKENDS, rows, count, &shape))
}

fn shape(
    batch: u64,
    m: u64,
    n: u64,
    k: u64,
    dtype: &Bound<'_, DType>,
    out_bytes: u64,
    row_bytes: u64,
) -> MatmulShape {
    let of = dtype.get().0.storage;
    let (bytes, weight) = (of.bytes() as u64, tessera_driver::matmul_weight(of));
    MatmulShape { batch, m, n, k, bytes, out_bytes, weight, row_bytes }
}
