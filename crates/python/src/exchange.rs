//! DLPack's C functions, which some libraries attach to their array type: they read an array and
//! the library's current stream in tens of nanoseconds. The rules are in DLPack's header
//! (`DLPackExchangeAPI`, from version 1.3 on).

use crate::dlpack::{self, Tensor};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use tessera_driver::DeviceId;

#[repr(C)]
struct Header {
    version: (u32, u32),
    previous: *const Header,
}

/// The table of functions. It lives as long as the process.
#[repr(C)]
pub struct Exchange {
    header: Header,
    allocator: *const c_void,
    managed_from_object: *const c_void,
    managed_to_object: *const c_void,
    tensor_from_object: Option<unsafe extern "C" fn(*mut c_void, *mut Tensor) -> c_int>,
    current_stream: Option<unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int>,
}

// SAFETY: the functions may be called from any thread that holds Python's lock.
unsafe impl Send for Exchange {}
unsafe impl Sync for Exchange {}

const NAME: &std::ffi::CStr = c"dlpack_exchange_api";
const MAJOR: u32 = 1;

impl Exchange {
    /// The table of a type, where it has one that can be used here.
    pub fn of(class: &Bound<'_, PyAny>) -> Option<&'static Exchange> {
        let capsule = class.getattr("__dlpack_c_exchange_api__").ok()?;
        // SAFETY: the name is compared with the capsule's own; what it holds lives to the end of
        // the process, and begins with a header in every version.
        unsafe {
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), NAME.as_ptr()) == 0 {
                return None;
            }
            let mut at =
                ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()).cast::<Header>();
            while !at.is_null() && (*at).version.0 != MAJOR {
                at = (*at).previous.cast_mut();
            }
            let table = at.cast::<Exchange>().as_ref()?;
            (table.tensor_from_object.is_some() && table.current_stream.is_some()).then_some(table)
        }
    }

    /// The array as its library describes it, valid while the object stays as it is. `None` with
    /// Python's exception where it cannot be described.
    #[inline]
    pub fn tensor(&self, value: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        let mut out = MaybeUninit::<Tensor>::uninit();
        let read = self.tensor_from_object.map(|f| {
            // SAFETY: the object is of the type that the table hangs on; `out` has room for one.
            unsafe { f(value.as_ptr().cast(), out.as_mut_ptr()) }
        });
        if read != Some(0) {
            return Err(PyErr::fetch(value.py()));
        }
        // SAFETY: it was filled in.
        Ok(unsafe { out.assume_init() })
    }

    /// The library's current stream of a device.
    #[inline]
    pub fn stream(&self, py: Python<'_>, device: DeviceId) -> PyResult<u64> {
        let mut stream = std::ptr::null_mut();
        let read = self.current_stream.map(|f| {
            // SAFETY: `stream` is a place for one.
            unsafe { f(device.kind.dlpack(), device.ordinal as i32, &mut stream) }
        });
        if read == Some(0) { Ok(stream as u64) } else { Err(PyErr::fetch(py)) }
    }
}

/// Whether arrays of the type may be written.
pub fn is_writable(class: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!dlpack::is_immutable(class)?)
}
