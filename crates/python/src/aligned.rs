//! Memory of NumPy arrays that are results, aligned to a cache line. NumPy's own memory is aligned
//! to 16 bytes: then every second vector of a kernel, and every row of 64 bytes, crosses a line.
//!
//! NumPy takes the functions for its memory from a handler that the array keeps and that holds for the context it is set in
//! (NEP 49). Ours is set for the one call that makes the array.

use crate::blocks;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use std::ffi::{c_char, c_void};

/// Setting the handler takes longer than an array of fewer bytes can win.
const SMALL: usize = 4096;

/// An array of this class, made from `(shape, dtype)`; its elements are not defined.
pub fn empty<'py>(
    class: &Bound<'py, PyType>,
    form: &Bound<'py, PyTuple>,
    bytes: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let handler = if bytes < SMALL { None } else { Handler::of(py)?.as_ref() };
    let Some(handler) = handler else {
        return class.call1(form);
    };
    let before = handler.set(py, &handler.ours)?;
    let made = class.call1(form);
    handler.set(py, &before)?;
    made
}

/// `aligned_empty(class, shape, dtype)`: as `class(shape, dtype)`, of a class of NumPy arrays.
#[tessera_entry::entry]
#[pyfunction]
pub fn aligned_empty<'py>(
    class: &Bound<'py, PyType>,
    shape: Bound<'py, PyTuple>,
    dtype: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let extents: Vec<usize> = shape.extract()?;
    let item: usize = dtype.getattr(pyo3::intern!(py, "itemsize"))?.extract()?;
    let bytes = extents.iter().fold(item, |bytes, n| bytes.saturating_mul(*n));
    empty(class, &PyTuple::new(py, [shape.into_any(), dtype])?, bytes)
}

type SetHandler = unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject;

struct Handler {
    set: SetHandler,
    ours: Py<PyAny>,
}

impl Handler {
    /// `None` where NumPy has no table of functions, as other implementations of Python may not.
    fn of(py: Python<'_>) -> PyResult<&Option<Handler>> {
        static HANDLER: PyOnceLock<Option<Handler>> = PyOnceLock::new();
        HANDLER.get_or_try_init(py, || {
            let core = py.import("numpy._core.multiarray");
            let core = core.or_else(|_| py.import("numpy.core.multiarray"))?;
            let Ok(table) = core.getattr("_ARRAY_API") else {
                return Ok(None);
            };
            // SAFETY: the capsule has no name and holds NumPy's table, which has had `PyDataMem_SetHandler` in this place since
            // 1.22; older releases are not installed beside us. The handler lives as long as the process.
            unsafe {
                let table = ffi::PyCapsule_GetPointer(table.as_ptr(), std::ptr::null());
                if table.is_null() {
                    return Err(PyErr::fetch(py));
                }
                let set = *table.cast::<*const c_void>().add(SET_HANDLER);
                let set = std::mem::transmute::<*const c_void, SetHandler>(set);
                let memory = (&raw const MEMORY).cast_mut().cast();
                let ours = ffi::PyCapsule_New(memory, c"mem_handler".as_ptr(), None);
                let ours = Bound::from_owned_ptr_or_err(py, ours)?.unbind();
                Ok(Some(Handler { set, ours }))
            }
        })
    }

    /// Sets the handler of this context and gives the one before.
    fn set(&self, py: Python<'_>, to: &Py<PyAny>) -> PyResult<Py<PyAny>> {
        // SAFETY: `set` takes a capsule of a handler, keeps a reference of its own, and gives one to the handler before.
        unsafe {
            let before = (self.set)(to.as_ptr());
            if before.is_null() {
                return Err(PyErr::take(py).unwrap_or_else(|| {
                    PyRuntimeError::new_err("NumPy does not say how it takes memory")
                }));
            }
            Ok(Bound::from_owned_ptr(py, before).unbind())
        }
    }
}

const SET_HANDLER: usize = 304;

/// `PyDataMem_Handler` of NumPy's headers, version 1.
#[repr(C)]
struct Memory {
    name: [c_char; 127],
    version: u8,
    context: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

// SAFETY: nothing in it changes, and the context is null.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory {
    name: named(b"tessera_aligned"),
    version: 1,
    context: std::ptr::null_mut(),
    malloc,
    calloc,
    realloc,
    free,
};

const fn named(text: &[u8]) -> [c_char; 127] {
    let mut out = [0; 127];
    let mut i = 0;
    while i < text.len() {
        out[i] = text[i] as c_char;
        i += 1;
    }
    out
}

unsafe extern "C" fn malloc(_: *mut c_void, size: usize) -> *mut c_void {
    blocks::take(size).cast()
}

unsafe extern "C" fn calloc(_: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        return std::ptr::null_mut();
    };
    let found = blocks::take(bytes);
    if !found.is_null() {
        // SAFETY: the block has this size.
        unsafe { found.write_bytes(0, bytes) }
    }
    found.cast()
}

unsafe extern "C" fn realloc(_: *mut c_void, at: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: NumPy gives blocks of this handler.
    unsafe { blocks::resize(at.cast(), size).cast() }
}

unsafe extern "C" fn free(_: *mut c_void, at: *mut c_void, _: usize) {
    // SAFETY: as above.
    unsafe { blocks::give(at.cast()) }
}
