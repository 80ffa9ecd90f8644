//! How arrays of each Python type are read, determined once for a type.

use crate::arrays::descr_dtype;
use crate::device_array::DeviceArray;
use crate::exchange::{self, Exchange};
use crate::streams::Found;
use crate::{array_interface, dlpack};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{ffi, intern};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tessera_driver::{Arg, ArrayArg, Described, DeviceId, DeviceKind, Place};
use tessera_numerics::DType;

/// The devices of PyTorch's and CuPy's arrays, as their own attributes report them.
const LIBRARIES: DeviceKind = DeviceKind::CUDA;

#[derive(Copy, Clone)]
pub enum Reader {
    /// Our own arrays on a device.
    Own,
    /// A library with DLPack's functions in C; whether its arrays may be written.
    Exchange(&'static Exchange, bool),
    /// PyTorch before it had those.
    Torch,
    Cupy,
    Dlpack,
    ArrayInterface,
}

/// What was found out, by the address of a type that the list keeps alive.
static KNOWN: Mutex<Vec<(usize, Py<PyAny>, Reader)>> = Mutex::new(Vec::new());
static ANY: AtomicBool = AtomicBool::new(false);
/// More than there are libraries: only types made one after another would fill it.
const KNOWN_LIMIT: usize = 32;

/// Whether any type is known.
#[inline]
pub fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

fn address(value: &Bound<'_, PyAny>) -> usize {
    // SAFETY: the object is alive.
    unsafe { ffi::Py_TYPE(value.as_ptr()) as usize }
}

/// The reader of a type that was seen before.
#[inline]
pub fn known(value: &Bound<'_, PyAny>) -> Option<Reader> {
    if !any() {
        return None;
    }
    let at = address(value);
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.iter().find(|(of, _, _)| *of == at).map(|(_, _, reader)| *reader)
}

/// The reader of a value's type; `None` for what is no array.
pub fn of(value: &Bound<'_, PyAny>) -> PyResult<Option<Reader>> {
    let py = value.py();
    let class = value.get_type().into_any();
    let module: String =
        class.getattr(intern!(py, "__module__")).and_then(|m| m.extract()).unwrap_or_default();
    let from = |library: &str| module.split('.').next() == Some(library);
    let reader = if value.is_instance_of::<DeviceArray>() {
        Reader::Own
    } else if let Some(exchange) = Exchange::of(&class) {
        Reader::Exchange(exchange, exchange::is_writable(&class)?)
    } else if from("torch") && value.hasattr(intern!(py, "data_ptr"))? {
        Reader::Torch
    } else if from("cupy") && value.hasattr(intern!(py, "__cuda_array_interface__"))? {
        Reader::Cupy
    } else if value.hasattr(intern!(py, "__dlpack__"))?
        && value.hasattr(intern!(py, "__dlpack_device__"))?
    {
        Reader::Dlpack
    } else if value.hasattr(intern!(py, "__cuda_array_interface__"))? {
        Reader::ArrayInterface
    } else {
        return Ok(None);
    };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() < KNOWN_LIMIT {
        known.push((address(value), class.unbind(), reader));
        ANY.store(true, Ordering::Relaxed);
    }
    Ok(Some(reader))
}

impl Reader {
    /// The array, with what it borrows in `keep` and its streams in `found`. An object that fails to
    /// describe itself, or does so in other types than the protocol has, is one that cannot be used.
    pub fn read<'py>(
        self,
        value: &Bound<'py, PyAny>,
        keep: &mut Vec<Bound<'py, PyAny>>,
        found: &mut Found,
    ) -> PyResult<Arg> {
        match self.try_read(value, keep, found) {
            Err(e) if e.is_instance_of::<PyException>(value.py()) => {
                let (kind, why) = (value.get_type().name()?, e.value(value.py()));
                let why = why.str().map_or_else(|_| String::new(), |w| format!(": {w}"));
                Ok(Arg::Unusable(format!(
                    "expected an array that can be shared, got a value of type {kind} that does not \
                     describe itself{why}"
                )))
            }
            read => read,
        }
    }

    fn try_read<'py>(
        self,
        value: &Bound<'py, PyAny>,
        keep: &mut Vec<Bound<'py, PyAny>>,
        found: &mut Found,
    ) -> PyResult<Arg> {
        match self {
            Reader::Own => Ok(value.cast::<DeviceArray>()?.get().argument(found)),
            Reader::Exchange(exchange, writable) => match exchange.tensor(value) {
                Ok(tensor) => {
                    if let Ok(Place::Device(device)) = dlpack::place(tensor.device) {
                        found.current(exchange.stream(value.py(), device)?);
                    }
                    // SAFETY: the library has just filled it in.
                    Ok(unsafe { dlpack::view(&tensor, writable) })
                }
                Err(e) if !e.is_instance_of::<PyException>(value.py()) => Err(e),
                // What has no words in DLPack may have some in the library's own.
                Err(_) if value.hasattr(intern!(value.py(), "data_ptr"))? => torch(value, found),
                Err(e) => Ok(Arg::Unusable(format!(
                    "expected an array that can be shared, got {}",
                    e.value(value.py())
                ))),
            },
            Reader::Torch => torch(value, found),
            Reader::Cupy => cupy(value, found),
            Reader::Dlpack => dlpack::argument(value, keep, found),
            Reader::ArrayInterface => array_interface::argument(value, keep, found),
        }
    }
}

/// Strides are in units of `unit` bytes, or in elements.
fn array(
    address: u64,
    dims: Vec<i64>,
    (strides, unit): (Vec<i64>, Option<i64>),
    dtype: Result<DType, String>,
    place: Place,
) -> Arg {
    let checked = dtype.and_then(|dtype| {
        let unit = unit.unwrap_or(dtype.bytes() as i64);
        let strides = Some(strides);
        Described { address, offset: 0, dims, strides, unit, dtype, writable: true }.checked()
    });
    match checked {
        Ok(buffer) => Arg::Array(ArrayArg { buffer, place }),
        Err(why) => Arg::Unusable(why),
    }
}

/// A tensor by its attributes.
fn torch(value: &Bound<'_, PyAny>, found: &mut Found) -> PyResult<Arg> {
    let py = value.py();
    let dtype = torch_dtype(&value.getattr(intern!(py, "dtype"))?)?;
    let strides: Vec<i64> = value.call_method0(intern!(py, "stride"))?.extract()?;
    let place = match value.getattr(intern!(py, "is_cuda"))?.extract::<bool>()? {
        true => {
            let ordinal = value.call_method0(intern!(py, "get_device"))?.extract()?;
            Place::Device(DeviceId::new(LIBRARIES, ordinal))
        }
        false => {
            let device = value.getattr(intern!(py, "device"))?;
            match device.getattr(intern!(py, "type"))?.extract::<String>()?.as_str() {
                "cpu" => Place::Host,
                _ => Place::Other(device.str()?.to_string()),
            }
        }
    };
    if let Place::Device(DeviceId { ordinal, .. }) = place {
        // The module is there: the tensor is of it.
        let torch = py.import("torch._C")?;
        let stream = torch.call_method1(intern!(py, "_cuda_getCurrentRawStream"), (ordinal,))?;
        found.current(stream.extract()?);
    }
    Ok(array(
        value.call_method0(intern!(py, "data_ptr"))?.extract()?,
        value.getattr(intern!(py, "shape"))?.extract()?,
        (strides, None),
        dtype,
        place,
    ))
}

/// `torch.bfloat16`: all but a few of its names are ours too.
fn torch_dtype(dtype: &Bound<'_, PyAny>) -> PyResult<Result<DType, String>> {
    let text = dtype.str()?.to_string();
    let name = text.rsplit('.').next().unwrap_or_default();
    Ok(DType::parse(name).ok_or_else(|| {
        format!("expected an array of numbers that kernels know, got one of {text}")
    }))
}

/// An array of CuPy by its attributes: its `__cuda_array_interface__` is built again at each
/// access.
fn cupy(value: &Bound<'_, PyAny>, found: &mut Found) -> PyResult<Arg> {
    let py = value.py();
    let memory = value.getattr(intern!(py, "data"))?;
    let ordinal: u32 = memory.getattr(intern!(py, "device_id"))?.extract()?;
    // The module is there: the array is of it.
    let stream = py
        .import("cupy.cuda")?
        .call_method0(intern!(py, "get_current_stream"))?
        .getattr(intern!(py, "ptr"))?;
    found.current(stream.extract()?);
    Ok(array(
        memory.getattr(intern!(py, "ptr"))?.extract()?,
        value.getattr(intern!(py, "shape"))?.cast::<PyTuple>()?.extract()?,
        (value.getattr(intern!(py, "strides"))?.cast::<PyTuple>()?.extract()?, Some(1)),
        descr_dtype(&value.getattr(intern!(py, "dtype"))?)?,
        Place::Device(DeviceId::new(LIBRARIES, ordinal)),
    ))
}
