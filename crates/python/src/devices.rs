//! Devices, their memory, streams and events.

use crate::dtype::DType;
use crate::enter::enter;
use crate::kernel::BACKENDS;
use crate::{array_interface, streams};
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use tessera_driver::device::{self, DeviceRow};
use tessera_driver::{
    DeviceId, DeviceKind, MatmulProblem, MatmulShape, Queue, matmul_schedule as schedule_of,
};

/// The kinds of devices beside the host, each with what is missing for it; `None` where nothing is.
#[tessera_entry::entry]
#[pyfunction]
pub fn platforms(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    for (kind, missing) in enter(py, || Ok(device::missing()))? {
        out.set_item(kind.name(), missing)?;
    }
    Ok(out)
}

/// The names of all devices that can be used, without the host. Opens none.
#[tessera_entry::entry]
#[pyfunction]
pub fn device_names(py: Python<'_>) -> PyResult<Vec<String>> {
    let present = enter(py, || Ok(device::present()))?;
    Ok(present.iter().map(DeviceId::to_string).collect())
}

/// What there is to know of each.
#[tessera_entry::entry]
#[pyfunction]
pub fn devices(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let rows = enter(py, device::devices)?;
    let one = |row: &DeviceRow| {
        let (out, info) = (PyDict::new(py), &row.info);
        out.set_item("device", row.id.to_string())?;
        out.set_item("name", &info.name)?;
        out.set_item("arch", &row.arch)?;
        out.set_item("compute_capability", info.capability)?;
        out.set_item("multiprocessors", info.processors)?;
        out.set_item("memory_bytes", row.total_bytes)?;
        out.set_item("free_bytes", row.free_bytes)?;
        out.set_item("l2_bytes", info.l2_bytes)?;
        out.set_item("shared_bytes_per_block", info.shared_bytes_per_block)?;
        for (name, version) in &info.versions {
            out.set_item(name, version)?;
        }
        Ok(out)
    };
    rows.iter().map(one).collect()
}

/// The device that a user's text names, by its one name; `None` for the host.
#[tessera_entry::entry]
#[pyfunction]
pub fn device_name(py: Python<'_>, text: &str) -> PyResult<Option<String>> {
    let id = named(py, text)?;
    Ok((!id.is_host()).then(|| id.to_string()))
}

/// The device of DLPack's two numbers; `None` for the host, and for what no platform here reaches.
#[tessera_entry::entry]
#[pyfunction]
pub fn device_of_dlpack(code: i32, number: i64) -> Option<String> {
    let kind = DeviceKind::of_dlpack(code).filter(|&kind| device::is_known(kind))?;
    let number = u32::try_from(number).ok().filter(|_| kind != DeviceKind::CPU)?;
    Some(DeviceId::new(kind, number).to_string())
}

/// The device that a text names.
pub fn named(py: Python<'_>, text: &str) -> PyResult<DeviceId> {
    enter(py, || device::named(text))
}

/// Waits for the work of a stream, or for all work of the device.
#[tessera_entry::entry]
#[pyfunction]
pub fn device_synchronize(py: Python<'_>, device: &str, stream: Option<u64>) -> PyResult<()> {
    enter(py, || device::synchronize(device::named(device)?, stream))
}

#[tessera_entry::entry]
#[pyfunction]
pub fn device_memory_stats<'py>(py: Python<'py>, device: &str) -> PyResult<Bound<'py, PyDict>> {
    let stats = enter(py, || device::memory_stats(device::named(device)?))?;
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
pub fn device_trim(py: Python<'_>, device: &str) -> PyResult<u64> {
    enter(py, || device::trim(device::named(device)?))
}

/// The path and version of the assembler beside the driver's own.
#[tessera_entry::entry]
#[pyfunction]
pub fn device_assembler(py: Python<'_>, packages: Vec<PathBuf>) -> PyResult<String> {
    enter(py, || tessera_driver::assembler(&packages))
}

/// How many launches were put on streams so far, and the device and stream of the last one.
#[tessera_entry::entry]
#[pyfunction]
pub fn device_launches() -> (u64, String, u64) {
    let (count, queue) = device::launches();
    (count, queue.device.to_string(), queue.stream)
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
pub struct Stream(device::Stream);

#[tessera_entry::entry]
#[pymethods]
impl Stream {
    #[new]
    fn new(py: Python<'_>, device: &str) -> PyResult<Self> {
        enter(py, || device::Stream::new(device::named(device)?)).map(Self)
    }

    /// The driver's handle, as a number.
    #[getter]
    fn handle(&self) -> u64 {
        self.0.handle()
    }

    #[getter]
    fn device(&self) -> String {
        self.0.device().to_string()
    }

    /// Waits until its work is done.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, || device::synchronize(self.0.device(), Some(self.0.handle())))
    }

    /// The protocol of other libraries: a version and the handle.
    fn __cuda_stream__(&self) -> PyResult<(u32, u64)> {
        match self.0.device() {
            id if id.kind == array_interface::KIND => Ok((0, self.0.handle())),
            id => {
                Err(PyAttributeError::new_err(format!("a stream of {id} has no `__cuda_stream__`")))
            }
        }
    }

    fn __repr__(&self) -> String {
        format!("<tessera stream {:#x} on {}>", self.0.handle(), self.0.device())
    }
}

/// A point in a stream's work.
#[pyclass(frozen, module = "tessera.runtime")]
pub struct Event(device::Mark);

#[tessera_entry::entry]
#[pymethods]
impl Event {
    /// Recorded after the stream's work so far.
    #[new]
    fn new(py: Python<'_>, device: &str, stream: u64) -> PyResult<Self> {
        let queue = |device| Queue { device, stream };
        enter(py, || device::Mark::new(queue(device::named(device)?), true)).map(Self)
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

/// How the matmul `[P, M, K]` by `[P, K, N]` is computed on a GPU: the tile, the split-K factor, whether the transposed
/// matmul is, which operands are copied to aligned rows first, the cluster and the pipeline depth (0: the compiler's
/// choice), whether groups are persistent; and what the cost model compared, the chosen one first: rows and columns of
/// a tile, split-K factor, predicted seconds, what limits them. Rows begin at multiples of `row_bytes`, those of operands
/// that TMA does not take at multiples of `odd_rows`.
#[tessera_entry::entry]
#[pyfunction]
#[allow(clippy::too_many_arguments)] // A matmul, number by number.
pub fn matmul_schedule(
    py: Python<'_>,
    batch: u64,
    m: u64,
    n: u64,
    k: u64,
    dtype: &Bound<'_, DType>,
    out_bytes: u64,
    row_bytes: u64,
    odd_rows: (Option<u64>, Option<u64>),
    may_split: bool,
) -> PyResult<ScheduleRow> {
    let shape = shape(batch, m, n, k, dtype, out_bytes, row_bytes);
    let problem = MatmulProblem { shape, odd_rows: odd_rows.into(), may_split };
    let found = enter(py, || schedule_of(&BACKENDS, &problem))?;
    let ranked = found.ranked.iter();
    let ranked = ranked.map(|p| (p.rows, p.columns, p.split, p.seconds, p.limit.to_string()));
    Ok((
        (found.rows, found.columns, found.depth),
        found.split,
        found.swapped,
        found.padded,
        found.cluster.unwrap_or_default(),
        found.stages.unwrap_or(0),
        found.persistent,
        ranked.collect(),
    ))
}

type ScheduleRow =
    ((u64, u64, u64), u64, bool, [bool; 2], [u64; 2], u64, bool, Vec<(u64, u64, u64, f64, String)>);

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
