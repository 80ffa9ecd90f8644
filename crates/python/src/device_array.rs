//! Arrays on a device, as Python objects: memory of the pool with a shape, strides and a dtype.

use crate::dtype::DType;
use crate::enter::{enter, exception};
use crate::export;
use crate::streams::{self, Found};
use crate::{array_interface, devices, dlpack};
use pyo3::exceptions::{PyAttributeError, PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyEllipsis, PySlice, PyTuple};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic};
use tessera_driver::{
    Arg, ArrayArg, BufferArg, DeviceId, Place, Queue, device, is_packed, packed_bytes, row_major,
};
use tessera_numerics::NumType;

/// An array on a device. Slices are views of the same memory.
#[pyclass(frozen, name = "Array", module = "tessera")]
pub struct DeviceArray {
    pub memory: Arc<device::Memory>,
    pub buffer: BufferArg,
    elem: NumType,
}

impl DeviceArray {
    /// A row-major array whose contents are not defined.
    pub fn new(
        dims: Vec<i64>,
        elem: NumType,
        queue: Queue,
    ) -> Result<Self, tessera_diag::Diagnostics> {
        let size = elem.storage.bytes() as u64;
        let count = dims.iter().try_fold(size, |n, &d| n.checked_mul(u64::try_from(d).ok()?));
        let bytes = count.ok_or_else(|| {
            let message = format!("expected sizes that memory has room for, got {dims:?}");
            Diagnostic::new(Code::E_ARGUMENT, message)
        })?;
        let memory = device::Memory::new(queue, bytes)?;
        let buffer = BufferArg {
            data: memory.address() as *mut u8,
            strides: row_major(&dims, elem.storage),
            dims,
            dtype: elem.storage,
            writable: true,
        };
        Ok(Self { memory: Arc::new(memory), buffer, elem })
    }

    /// A view of memory with another owner, for work in the order of the queue.
    pub fn lent(buffer: &BufferArg, queue: Queue) -> Self {
        let bytes = packed_bytes(buffer) as u64;
        let memory = device::Memory::lent(buffer.data as u64, bytes, queue);
        Self {
            memory: Arc::new(memory),
            buffer: buffer.clone(),
            elem: NumType::plain(buffer.dtype),
        }
    }

    /// The array as an argument of a call.
    pub fn argument(&self, found: &mut Found) -> Arg {
        found.made(self.memory.last());
        Arg::Array(ArrayArg { buffer: self.buffer.clone(), place: Place::of(self.memory.device()) })
    }

    fn part(&self, buffer: BufferArg) -> Self {
        Self { memory: self.memory.clone(), buffer, elem: self.elem }
    }

    /// The stream for reads and writes from the host, ordered after all work on the array.
    fn settle(&self) -> Result<Queue, tessera_diag::Diagnostics> {
        let queue = Queue { device: self.memory.device(), stream: streams::own() };
        device::wait_for(queue, &[self.memory.last()])?;
        self.memory.used_on(queue.stream);
        Ok(queue)
    }
}

#[tessera_entry::entry]
#[pymethods]
impl DeviceArray {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.buffer.dims)
    }

    /// In bytes.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.buffer.strides)
    }

    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // By name, so that a plain dtype is the one object it always is.
        py.import("tessera.base.dtypes")?.getattr("dtype")?.call1((self.elem.to_string(),))
    }

    #[getter]
    fn ndim(&self) -> usize {
        self.buffer.dims.len()
    }

    #[getter]
    fn size(&self) -> usize {
        self.buffer.dims.iter().map(|&d| d as usize).product()
    }

    #[getter]
    fn itemsize(&self) -> usize {
        self.buffer.dtype.bytes()
    }

    #[getter]
    fn nbytes(&self) -> usize {
        packed_bytes(&self.buffer)
    }

    #[getter]
    fn device(&self) -> String {
        self.memory.device().to_string()
    }

    /// The address of the first element.
    fn data_ptr(&self) -> u64 {
        self.buffer.data as u64
    }

    /// The array with its axes in the opposite order.
    #[getter(T)]
    fn transposed(&self) -> Self {
        let mut view = self.buffer.clone();
        view.dims.reverse();
        view.strides.reverse();
        self.part(view)
    }

    /// A view with the axes in another order; the opposite one where none is given.
    #[pyo3(signature = (*axes))]
    fn transpose(&self, axes: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let rank = self.buffer.dims.len();
        let order: Vec<isize> = match axes.extract::<(Vec<isize>,)>() {
            Ok((order,)) => order,
            Err(_) if axes.is_empty() => (0..rank as isize).rev().collect(),
            Err(_) => axes.extract()?,
        };
        let places: Vec<usize> =
            order.iter().map(|&a| if a < 0 { a + rank as isize } else { a } as usize).collect();
        let mut sorted = places.clone();
        sorted.sort_unstable();
        if sorted != (0..rank).collect::<Vec<_>>() {
            let message = format!("expected each of {rank} axes once, got {order:?}");
            return Err(PyValueError::new_err(message));
        }
        let mut view = self.buffer.clone();
        view.dims = places.iter().map(|&a| self.buffer.dims[a]).collect();
        view.strides = places.iter().map(|&a| self.buffer.strides[a]).collect();
        Ok(self.part(view))
    }

    /// A view broadcast to a shape, for reading.
    fn broadcast_to(&self, shape: Vec<i64>) -> PyResult<Self> {
        let (have, rank) = (&self.buffer.dims, self.buffer.dims.len());
        let fits = |axis: usize| {
            let place = shape.len() - rank + axis;
            have[axis] == shape[place] || have[axis] == 1
        };
        if shape.len() < rank || !(0..rank).all(fits) || shape.iter().any(|&d| d < 0) {
            let message = format!("expected a shape that {have:?} stretches to, got {shape:?}");
            return Err(PyValueError::new_err(message));
        }
        let size = self.buffer.dtype.bytes() as i64;
        if shape.iter().try_fold(size, |n, &d| n.checked_mul(d)).is_none() {
            let message = format!("expected a shape of fewer than 2^63 bytes, got {shape:?}");
            return Err(PyValueError::new_err(message));
        }
        let mut strides = vec![0; shape.len() - rank];
        for (&dim, &stride) in have.iter().zip(&self.buffer.strides) {
            let stays = dim == shape[strides.len()];
            strides.push(if stays { stride } else { 0 });
        }
        Ok(self.part(BufferArg { dims: shape, strides, writable: false, ..self.buffer.clone() }))
    }

    /// The same bytes as elements of another dtype of the same size.
    fn view(&self, dtype: &Bound<'_, PyAny>) -> PyResult<Self> {
        let elem = dtype.py().import("tessera.base.dtypes")?.getattr("dtype")?.call1((dtype,))?;
        let elem = elem.cast::<DType>()?.get().0;
        if elem.storage.bytes() != self.buffer.dtype.bytes() {
            let size = self.buffer.dtype.bytes();
            return Err(PyValueError::new_err(format!(
                "expected a dtype of {size} bytes, got {elem}"
            )));
        }
        let buffer = BufferArg { dtype: elem.storage, ..self.buffer.clone() };
        Ok(Self { memory: self.memory.clone(), buffer, elem })
    }

    /// Copies the elements into a row-major NumPy array, after the work on them.
    fn read_into(&self, py: Python<'_>, out: &Bound<'_, PyAny>) -> PyResult<()> {
        let (data, bytes) = host_memory(out, true)?;
        self.expect_bytes(py, bytes)?;
        enter(py, || {
            let queue = self.settle()?;
            // SAFETY: the array is packed and has this number of bytes; Python keeps it meanwhile.
            let to = unsafe { std::slice::from_raw_parts_mut(data.get(), bytes) };
            device::read(&self.buffer, queue, to)
        })
    }

    /// Writes the elements from a row-major NumPy array.
    fn write_from(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        if !self.buffer.writable {
            return Err(PyValueError::new_err("the array is a view for reading only"));
        }
        let (data, bytes) = host_memory(values, false)?;
        self.expect_bytes(py, bytes)?;
        enter(py, || {
            let queue = self.settle()?;
            // SAFETY: as above.
            let from = unsafe { std::slice::from_raw_parts(data.get(), bytes) };
            device::write(&self.buffer, queue, from)
        })
    }

    /// Sets every byte of an array that is all of its memory.
    fn fill_bytes(&self, py: Python<'_>, value: u8) -> PyResult<()> {
        enter(py, || {
            let queue = self.settle()?;
            self.memory.fill(value, queue.stream)
        })
    }

    /// A NumPy array of the same elements, once the work on them is done.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("tessera.arrays.create")?.getattr("to_host")?.call1((slf,))
    }

    /// The same elements on another device (`"cpu"` for a NumPy array); itself where it is there.
    fn to<'py>(slf: &Bound<'py, Self>, device: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("tessera.arrays.create")?.getattr("to_device")?.call1((slf, device))
    }

    /// A row-major copy in memory of its own.
    fn copy(&self, py: Python<'_>) -> PyResult<Self> {
        if !is_packed(&self.buffer) {
            return Err(PyValueError::new_err(
                "expected an array that lies row by row, got a view with gaps: copy it through the host, with `ts.array(x.numpy(), device=x.device)`",
            ));
        }
        enter(py, || {
            let queue = self.settle()?;
            let made = Self::new(self.buffer.dims.clone(), self.elem, queue)?;
            device::copy_on_device(
                made.buffer.data as u64,
                self.buffer.data as u64,
                packed_bytes(&self.buffer) as u64,
                queue,
            )?;
            Ok(made)
        })
    }

    /// The same elements in another shape, for a row-major array.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, shape: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let mut dims: Vec<i64> = match shape.extract::<(Vec<i64>,)>() {
            Ok((dims,)) => dims,
            Err(_) => shape.extract()?,
        };
        let wanted = self.size()? as i64;
        if let [one] = dims
            .iter()
            .enumerate()
            .filter(|(_, d)| **d == -1)
            .map(|(i, _)| i)
            .collect::<Vec<_>>()[..]
        {
            let rest = product(dims.iter().filter(|d| **d != -1)).unwrap_or(0);
            dims[one] = if rest > 0 { wanted / rest } else { 0 };
        }
        if dims.iter().any(|&d| d < 0) || product(dims.iter()) != Some(wanted) {
            return Err(PyValueError::new_err(format!(
                "expected a shape of {wanted} elements, got {dims:?}"
            )));
        }
        if !is_packed(&self.buffer) {
            return Err(PyValueError::new_err(
                "expected an array that lies row by row, got a view with gaps",
            ));
        }
        let strides = row_major(&dims, self.buffer.dtype);
        Ok(self.part(BufferArg { dims, strides, ..self.buffer.clone() }))
    }

    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(self.part(sliced(&self.buffer, index)?))
    }

    fn __setitem__<'py>(
        slf: &Bound<'py, Self>,
        index: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let part = slf.get().__getitem__(index)?.into_pyobject(slf.py())?;
        slf.py().import("tessera.arrays.create")?.getattr("assign")?.call1((part, value))?;
        Ok(())
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.buffer.dims.first().map(|&d| d as usize);
        first.ok_or_else(|| PyTypeError::new_err("an array without axes has no length"))
    }

    fn __repr__(&self) -> PyResult<String> {
        let dims: Vec<_> = self.buffer.dims.iter().map(i64::to_string).collect();
        let comma = if dims.len() == 1 { "," } else { "" };
        Ok(format!(
            "<tessera array of {} with shape ({}{comma}) on {}>",
            self.elem,
            dims.join(", "),
            self.device()?
        ))
    }

    /// A copy to the host is never implicit.
    #[pyo3(signature = (*_args, **_kwargs))]
    fn __array__(
        &self,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        Err(PyTypeError::new_err(format!(
            "the array is on {}: copy it to the host with `.numpy()`",
            self.device()?
        )))
    }

    fn __dlpack_device__(&self) -> (i32, u32) {
        let DeviceId { kind, ordinal } = self.memory.device();
        (kind.dlpack(), ordinal)
    }

    /// `stream` is the one that the other side will use it on, as DLPack says: 1 for the default
    /// one, 2 for that of the thread, -1 for no order at all.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, u32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let refuse = |why: &str| Err(pyo3::exceptions::PyBufferError::new_err(why.to_string()));
        if copy == Some(true) {
            return refuse("the array is shared, not copied: copy it first, with `.copy()`");
        }
        let device = this.__dlpack_device__()?;
        if dl_device.is_some_and(|d| d != device) {
            return refuse("the array is shared where it is: move it first, with `.to(...)`");
        }
        if dlpack::code_of(this.buffer.dtype).is_none() {
            return refuse(&format!("DLPack has no type for {}", this.elem));
        }
        match stream.unwrap_or(1) {
            -1 => {}
            0 => return Err(PyValueError::new_err("expected a stream that is not 0, got 0")),
            stream => {
                let stream = streams::canonical(stream as u64);
                let queue = Queue { device: this.memory.device(), stream };
                enter(py, || device::wait_for(queue, &[this.memory.last()]))?;
                this.memory.used_on(stream);
            }
        }
        export::capsule(py, this, max_version.is_some_and(|v| v.0 >= 1))
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.memory.device().kind != array_interface::KIND {
            let device = self.memory.device();
            let why = format!("an array on {device} has no `__cuda_array_interface__`");
            return Err(PyAttributeError::new_err(why));
        }
        let Some(code) = array_interface::code_of(self.buffer.dtype) else {
            return Err(PyAttributeError::new_err(format!(
                "`__cuda_array_interface__` has no type for {}",
                self.elem
            )));
        };
        let out = PyDict::new(py);
        out.set_item("shape", self.shape(py)?)?;
        out.set_item("typestr", code)?;
        out.set_item("data", (self.buffer.data as u64, false))?;
        out.set_item("strides", self.strides(py)?)?;
        out.set_item("stream", self.memory.last().max(1))?;
        out.set_item("version", 3)?;
        Ok(out)
    }
}

impl DeviceArray {
    fn expect_bytes(&self, py: Python<'_>, bytes: usize) -> PyResult<()> {
        if bytes == packed_bytes(&self.buffer) {
            return Ok(());
        }
        let message =
            format!("expected {} bytes on the host, got {bytes}", packed_bytes(&self.buffer));
        let help = "copy between arrays of one shape and dtype";
        Err(exception(py, &Diagnostic::new(Code::E_ARGUMENT, message).help(help).into()))
    }
}

/// An address that may go to where Python's lock is not held.
struct Address(*mut u8);
// SAFETY: Python keeps the memory for the call, and the binding alone uses it.
unsafe impl Send for Address {}
unsafe impl Sync for Address {}

impl Address {
    fn get(&self) -> *mut u8 {
        self.0
    }
}

/// The memory of a row-major NumPy array.
fn host_memory(array: &Bound<'_, PyAny>, write: bool) -> PyResult<(Address, usize)> {
    let Arg::Array(ArrayArg { buffer, place: Place::Host }) =
        crate::arrays::argument(array, &mut Vec::new(), &mut Found::default())?
    else {
        return Err(PyTypeError::new_err("expected a NumPy array"));
    };
    if !is_packed(&buffer) || (write && !buffer.writable) {
        let message = "expected a NumPy array that lies row by row and may be written";
        return Err(PyTypeError::new_err(message));
    }
    let bytes = packed_bytes(&buffer);
    Ok((Address(buffer.data), bytes))
}

/// A view of a view: integers, slices, `...` and `None`, as NumPy takes them.
fn sliced(view: &BufferArg, index: &Bound<'_, PyAny>) -> PyResult<BufferArg> {
    let items: Vec<Bound<'_, PyAny>> = match index.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().collect(),
        Err(_) => vec![index.clone()],
    };
    let rank = view.dims.len();
    let axes = items.iter().filter(|i| !i.is_none() && !i.is_instance_of::<PyEllipsis>()).count();
    if axes > rank {
        return Err(PyIndexError::new_err(format!("expected at most {rank} indices, got {axes}")));
    }
    if items.iter().filter(|i| i.is_instance_of::<PyEllipsis>()).count() > 1 {
        return Err(PyIndexError::new_err("expected `...` once, got it twice"));
    }
    let mut out = BufferArg { dims: Vec::new(), strides: Vec::new(), ..view.clone() };
    let mut axis = 0;
    let rest = |out: &mut BufferArg, axis: &mut usize, until: usize| {
        while *axis < until {
            out.dims.push(view.dims[*axis]);
            out.strides.push(view.strides[*axis]);
            *axis += 1;
        }
    };
    for (place, item) in items.iter().enumerate() {
        if item.is_none() {
            out.dims.push(1);
            out.strides.push(0);
        } else if item.is_instance_of::<PyEllipsis>() {
            let after = items[place + 1..].iter().filter(|i| !i.is_none()).count();
            rest(&mut out, &mut axis, rank - after);
        } else if let Ok(slice) = item.cast::<PySlice>() {
            let found = slice.indices(view.dims[axis] as isize)?;
            let stride = view.strides[axis];
            out.data = out.data.wrapping_offset(found.start * stride as isize);
            out.dims.push(found.slicelength as i64);
            // Only a step over the whole axis can be too large, and then the stride is unused.
            out.strides.push(stride.checked_mul(found.step as i64).unwrap_or(0));
            axis += 1;
        } else {
            let at: i64 =
                item.call_method0("__index__").and_then(|i| i.extract()).map_err(|_| {
                    PyIndexError::new_err(
                        "expected integers, slices, `...` or None between the brackets",
                    )
                })?;
            let size = view.dims[axis];
            let from_start = if at < 0 { at + size } else { at };
            if !(0..size).contains(&from_start) {
                return Err(PyIndexError::new_err(format!(
                    "expected an index below {size} along axis {axis}, got {at}"
                )));
            }
            out.data = out.data.wrapping_offset((from_start * view.strides[axis]) as isize);
            axis += 1;
        }
    }
    rest(&mut out, &mut axis, rank);
    Ok(out)
}

/// How many elements there are; `None` beyond 64 bits.
fn product<'a>(mut dims: impl Iterator<Item = &'a i64>) -> Option<i64> {
    dims.try_fold(1i64, |n, &d| n.checked_mul(d))
}

/// A new array on a device.
#[tessera_entry::entry]
#[pyfunction]
pub fn device_empty(
    py: Python<'_>,
    shape: Vec<i64>,
    dtype: &DType,
    device: &str,
) -> PyResult<DeviceArray> {
    let elem = dtype.0;
    let device = devices::named(py, device)?;
    enter(py, || DeviceArray::new(shape, elem, Queue { device, stream: streams::own() }))
}
