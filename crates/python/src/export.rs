//! Our arrays for other libraries, as DLPack capsules.

use crate::device_array::DeviceArray;
use crate::dlpack::{self, Tensor};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};
use std::sync::Arc;
use tessera_driver::device::Memory;

/// `DLManagedTensor` and `DLManagedTensorVersioned`, each with what it needs behind it.
#[repr(C)]
struct Plain {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Plain)>,
    kept: Kept,
}

#[repr(C)]
struct Versioned {
    version: (u32, u32),
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
    kept: Kept,
}

/// What the tensor points to.
struct Kept {
    _memory: Arc<Memory>,
    dims: Box<[i64]>,
    strides: Box<[i64]>,
}

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

pub fn capsule<'py>(
    py: Python<'py>,
    array: &DeviceArray,
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let size = array.buffer.dtype.bytes() as i64;
    let kept = Kept {
        _memory: array.memory.clone(),
        dims: array.buffer.dims.as_slice().into(),
        strides: array.buffer.strides.iter().map(|s| s / size).collect(),
    };
    let (code, bits) = dlpack::code_of(array.buffer.dtype).unwrap_or_default();
    let device = array.memory.device();
    let tensor = Tensor {
        data: array.buffer.data,
        device: (device.kind.dlpack(), device.ordinal as i32),
        rank: kept.dims.len() as i32,
        code,
        bits,
        lanes: 1,
        dims: kept.dims.as_ptr(),
        strides: kept.strides.as_ptr(),
        byte_offset: 0,
    };
    let context = std::ptr::null_mut();
    let (pointer, name, destructor): (*mut c_void, &CStr, ffi::PyCapsule_Destructor) = if versioned
    {
        let deleter = Some(delete::<Versioned> as unsafe extern "C" fn(*mut Versioned));
        let made = Versioned { version: (1, 1), context, deleter, flags: 0, tensor, kept };
        (Box::into_raw(Box::new(made)).cast(), VERSIONED, drop_versioned)
    } else {
        let deleter = Some(delete::<Plain> as unsafe extern "C" fn(*mut Plain));
        let made = Plain { tensor, context, deleter, kept };
        (Box::into_raw(Box::new(made)).cast(), PLAIN, drop_plain)
    };
    // SAFETY: the pointer is not null, the name is static, and the destructor is for this kind.
    unsafe {
        let made = ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destructor));
        Bound::from_owned_ptr_or_err(py, made)
    }
}

/// What the other side calls when it is done.
unsafe extern "C" fn delete<T>(managed: *mut T) {
    // SAFETY: it was made by `capsule` as this type, and is deleted once.
    drop(unsafe { Box::from_raw(managed) });
}

/// A capsule that was not consumed: a consumed one has another name.
unsafe extern "C" fn drop_plain(capsule: *mut ffi::PyObject) {
    // SAFETY: the name is that of what `capsule` put there.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) != 0 {
            delete(ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast::<Plain>());
        }
    }
}

unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) != 0 {
            delete(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast::<Versioned>());
        }
    }
}
