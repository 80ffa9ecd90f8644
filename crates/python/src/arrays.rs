//! Arguments of a call as the compiler takes them, without copies. NumPy arrays are read through
//! their C struct, whose head has not changed since NumPy 1.7: asking for `__array_interface__`
//! costs microseconds for each array.

use crate::readers;
use crate::streams::Found;
use crate::values::Func;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString, PyTuple, PyType};
use pyo3::{ffi, intern};
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};
use tessera_driver::{Arg, ArrayArg, Described, Number, Place};
use tessera_numerics::DType;

/// The head of `PyArrayObject`.
#[repr(C)]
struct NdArray {
    object: ffi::PyObject,
    data: *mut u8,
    rank: c_int,
    dims: *const isize,
    strides: *const isize,
    base: *mut ffi::PyObject,
    descr: *mut ffi::PyObject,
    flags: c_int,
}

const WRITEABLE: c_int = 0x0400;
const ROW_MAJOR: c_int = 0x0001;

/// What a NumPy array says of itself.
pub struct NdHead<'a, 'py> {
    pub data: *mut u8,
    pub dims: &'a [isize],
    /// In bytes.
    pub strides: &'a [isize],
    pub writable: bool,
    pub dtype: Bound<'py, PyAny>,
    pub row_major: bool,
}

/// Whose class an array in host memory is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Class {
    NumPy,
    /// `tessera.arrays.host.HostArray`.
    Host,
    /// `tessera.arrays.host.WeakArray`: weakly typed, its dtype adapts to that of others.
    Weak,
}

/// `None` for all but arrays of exactly these classes: others may mean something else by their memory.
pub fn class(value: &Bound<'_, PyAny>) -> PyResult<Option<Class>> {
    static WEAK: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let (py, kind) = (value.py(), value.get_type());
    Ok(if kind.is(ndarray(py)?) {
        Some(Class::NumPy)
    } else if kind.is(host(py)?) {
        Some(Class::Host)
    } else if kind.is(WEAK.import(py, "tessera.arrays.host", "WeakArray")?) {
        Some(Class::Weak)
    } else {
        None
    })
}

/// Whether a value is an array of NumPy's own class or of ours.
pub fn is_ndarray(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(class(value)?.is_some())
}

/// Of a value that is such an array.
pub fn head<'a, 'py>(value: &'a Bound<'py, PyAny>) -> NdHead<'a, 'py> {
    // SAFETY: as in `numpy`, for as long as the value is borrowed.
    unsafe {
        let head = &*value.as_ptr().cast::<NdArray>();
        let rank = head.rank as usize;
        let list = |from| if rank == 0 { &[][..] } else { std::slice::from_raw_parts(from, rank) };
        let (dims, strides) = (list(head.dims), list(head.strides));
        let dtype = Bound::from_borrowed_ptr(value.py(), head.descr);
        let (row_major, writable) = (head.flags & ROW_MAJOR != 0, head.flags & WRITEABLE != 0);
        NdHead { data: head.data, dims, strides, writable, dtype, row_major }
    }
}

/// An object as an argument. What it borrows from the object lives as long as `keep` does.
pub fn argument<'py>(
    value: &Bound<'py, PyAny>,
    keep: &mut Vec<Bound<'py, PyAny>>,
    found: &mut Found,
) -> PyResult<Arg> {
    let py = value.py();
    if value.is_instance(ndarray(py)?)? {
        return numpy(value);
    }
    if let Some(reader) = readers::known(value) {
        return reader.read(value, keep, found);
    }
    let number = |value| Ok(Arg::Number { value, dtype: None });
    if let Ok(v) = value.cast::<PyBool>() {
        return number(Number::Bool(v.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return number(integer(value)?);
    }
    if value.is_instance(generic(py)?)? {
        return scalar(value);
    }
    if let Ok(v) = value.cast::<PyFloat>() {
        return number(Number::Float(v.value()));
    }
    if value.is_none() {
        return Ok(Arg::None);
    }
    if value.is_instance_of::<PyString>() {
        return Ok(Arg::Str(value.extract()?));
    }
    if let Ok(dtype) = value.cast::<crate::dtype::DType>() {
        return Ok(Arg::DType(dtype.get().0));
    }
    if let Ok(func) = value.cast::<Func>() {
        return Ok(Arg::Func(func.get().source.clone()));
    }
    if let Ok(handle) = value.getattr(intern!(py, "handle"))
        && let Ok(func) = handle.cast::<Func>()
    {
        return Ok(Arg::Func(func.get().source.clone()));
    }
    if let Ok(name) = value.getattr(intern!(py, "api_name"))
        && let Ok(name) = name.extract()
    {
        return Ok(Arg::Builtin(name));
    }
    match readers::of(value)? {
        Some(reader) => reader.read(value, keep, found),
        None => Ok(Arg::Other(value.get_type().name()?.to_string())),
    }
}

/// Whether an object is an array of any library.
pub fn is_array(value: &Bound<'_, PyAny>) -> bool {
    let numpy = ndarray(value.py()).and_then(|class| value.is_instance(class));
    numpy.unwrap_or(false) || readers::known(value).is_some()
}

fn integer(value: &Bound<'_, PyAny>) -> PyResult<Number> {
    match value.extract::<i128>() {
        Ok(v) => Ok(Number::Int(v)),
        Err(e) if e.is_instance_of::<PyOverflowError>(value.py()) => {
            Ok(Number::Huge("beyond 128 bits".into()))
        }
        Err(e) => Err(e),
    }
}

/// An argument of a kernel. An element of one of our arrays is an array without axes, and a number here.
pub fn passed<'py>(
    value: &Bound<'py, PyAny>,
    keep: &mut Vec<Bound<'py, PyAny>>,
    found: &mut Found,
) -> PyResult<Arg> {
    match class(value)? {
        Some(Class::Host | Class::Weak) if head(value).dims.is_empty() => scalar(value),
        _ => argument(value, keep, found),
    }
}

/// A NumPy scalar: a number that knows its dtype.
fn scalar(value: &Bound<'_, PyAny>) -> PyResult<Arg> {
    let py = value.py();
    let dtype = match descr_dtype(&value.getattr(intern!(py, "dtype"))?)? {
        Ok(dtype) => dtype,
        Err(_) => return Ok(Arg::Other(value.get_type().name()?.to_string())),
    };
    let number = match dtype {
        DType::Bool => Number::Bool(value.is_truthy()?),
        d if d.is_int() => integer(&value.call_method0(intern!(py, "__int__"))?)?,
        _ => Number::Float(value.call_method0(intern!(py, "__float__"))?.extract()?),
    };
    Ok(Arg::Number { value: number, dtype: Some(dtype) })
}

/// The dtype of a number of NumPy's; `None` for all else.
pub fn generic_dtype(value: &Bound<'_, PyAny>) -> Option<DType> {
    /// Types seen before, by the address of an object that the list keeps alive.
    static TYPES: Mutex<Vec<(usize, Py<PyType>, DType)>> = Mutex::new(Vec::new());
    let (py, kind) = (value.py(), value.get_type());
    let at = kind.as_ptr() as usize;
    let types = || TYPES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, _, dtype)) = types().iter().find(|(of, _, _)| *of == at) {
        return Some(*dtype);
    }
    // Subclasses may mean something else by their value.
    let own = kind.module().ok()?.to_str().is_ok_and(|module| module == "numpy")
        && value.is_instance(generic(py).ok()?).ok()?;
    let dtype =
        if own { descr_dtype(&value.getattr("dtype").ok()?).ok()?.ok()? } else { return None };
    let mut types = types();
    if types.len() < SEEN_LIMIT {
        types.push((at, kind.unbind(), dtype));
    }
    Some(dtype)
}

/// The value of a number of NumPy's in one word: an integer or a boolean as it is, an f32 by its bits, other
/// floats by the bits of an f64.
pub fn word(value: &Bound<'_, PyAny>, dtype: DType) -> Option<u64> {
    if dtype == DType::Bool {
        value.is_truthy().ok().map(u64::from)
    } else if dtype.is_signed_int() {
        value.extract::<i64>().ok().map(|v| v as u64)
    } else if dtype.is_int() {
        value.extract::<u64>().ok()
    } else if dtype == DType::F32 {
        value.extract::<f64>().ok().map(|v| (v as f32).to_bits().into())
    } else {
        value.extract::<f64>().ok().map(f64::to_bits)
    }
}

/// A new array of zeros, of a dtype that an array of some call had: of our class, or of NumPy's.
pub fn zeros<'py>(
    py: Python<'py>,
    dims: &[i64],
    dtype: DType,
    ours: bool,
) -> Option<Bound<'py, PyAny>> {
    static ZEROS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = ZEROS.import(py, "numpy", "zeros").ok()?;
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let descr = seen.iter().find(|(_, _, d)| *d == dtype)?.1.clone_ref(py);
    drop(seen);
    let made = make.call1((PyTuple::new(py, dims).ok()?, descr)).ok()?;
    match ours {
        true => made.call_method1(intern!(py, "view"), (host(py).ok()?,)).ok(),
        false => Some(made),
    }
}

/// Whether an array says by a mask which of its elements count. A kernel sees memory alone, and would compute with
/// the others too.
fn is_masked(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    Ok(class(value)?.is_none()
        && value.is_instance(TYPE.import(value.py(), "numpy.ma", "MaskedArray")?)?)
}

fn numpy(value: &Bound<'_, PyAny>) -> PyResult<Arg> {
    if is_masked(value)? {
        return Ok(Arg::Masked);
    }
    // SAFETY: the object is an instance of `numpy.ndarray`, whose struct begins with these fields;
    // `dims` and `strides` hold `rank` entries. The caller keeps the array alive during the launch.
    let (head, dims, strides) = unsafe {
        let head = &*value.as_ptr().cast::<NdArray>();
        let list = |from: *const isize| -> Vec<i64> {
            (0..head.rank as usize).map(|i| *from.add(i) as i64).collect()
        };
        (head, list(head.dims), list(head.strides))
    };
    // SAFETY: an array always has a dtype, and holds a reference to it.
    let descr = unsafe { Bound::from_borrowed_ptr(value.py(), head.descr) };
    let dtype = match descr_dtype(&descr)? {
        Ok(dtype) => dtype,
        Err(why) => return Ok(Arg::Unusable(why)),
    };
    let writable = head.flags & WRITEABLE != 0;
    // NumPy's own arrays are consistent, and views that `as_strided` makes may have any strides.
    let (address, strides) = (head.data as u64, Some(strides));
    let described = Described { address, offset: 0, dims, strides, unit: 1, dtype, writable };
    Ok(match described.checked() {
        Ok(buffer) => Arg::Array(ArrayArg { buffer, place: Place::Host }),
        Err(why) => Arg::Unusable(why),
    })
}

/// Dtypes seen before, by the address of an object that the list keeps alive.
static SEEN: Mutex<Vec<(usize, Py<PyAny>, DType)>> = Mutex::new(Vec::new());
/// More than there are dtypes: only objects made for one array would fill it.
const SEEN_LIMIT: usize = 64;

/// The dtype of a NumPy dtype object, or a sentence on why there is none.
pub fn descr_dtype(descr: &Bound<'_, PyAny>) -> PyResult<Result<DType, String>> {
    let address = descr.as_ptr() as usize;
    let seen = || SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, _, dtype)) = seen().iter().find(|(at, _, _)| *at == address) {
        return Ok(Ok(*dtype));
    }
    let name: String = descr.getattr("name")?.extract()?;
    // The IEEE-like float8_e4m3 of ml_dtypes has infinities; ours is float8_e4m3fn.
    let Some(dtype) = DType::parse(&name).filter(|_| name != "float8_e4m3") else {
        let what = if name == "object" { "Python objects".into() } else { format!("dtype {name}") };
        return Ok(Err(format!(
            "expected an array of numbers that kernels know, got one of {what}"
        )));
    };
    if !descr.getattr("isnative")?.extract::<bool>()? {
        return Ok(Err(format!(
            "expected the machine's byte order, got an array of {name} with swapped bytes; convert it with `array.astype(\"{name}\")`"
        )));
    }
    let mut seen = seen();
    if seen.len() < SEEN_LIMIT {
        seen.push((address, descr.clone().unbind(), dtype));
    }
    Ok(Ok(dtype))
}

fn ndarray<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyAny>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    TYPE.import(py, "numpy", "ndarray").map(|t| t.as_any())
}

fn host<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyAny>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    TYPE.import(py, "tessera.arrays.host", "HostArray").map(|t| t.as_any())
}

fn generic<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyAny>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    TYPE.import(py, "numpy", "generic").map(|t| t.as_any())
}
