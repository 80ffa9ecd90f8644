//! Arrays of other libraries, through DLPack. The capsule is read and not consumed: while it
//! lives, so does the memory, and its own destructor releases it.

use crate::streams::{self, Found};
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::{CStr, c_void};
use tessera_driver::{
    Arg, ArrayArg, BufferArg, Described, DeviceId, DeviceKind, MOST_AXES, Place, device as devices,
};
use tessera_numerics::DType;

/// `DLTensor`.
#[repr(C)]
pub struct Tensor {
    pub data: *mut u8,
    pub device: (i32, i32),
    pub rank: i32,
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
    pub dims: *const i64,
    /// In elements; null for a row-major array.
    pub strides: *const i64,
    pub byte_offset: u64,
}

/// The head of a versioned capsule; the older kind begins with the tensor itself.
#[repr(C)]
struct Versioned {
    version: (u32, u32),
    context: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: Tensor,
}

/// The version of the layout below.
const MAJOR: u32 = 1;
const READ_ONLY: u64 = 1;

/// Where a DLPack device is, or what is wrong with it.
pub fn place(device: (i32, i32)) -> Result<Place, String> {
    let (code, index) = device;
    let kind = DeviceKind::of_dlpack(code);
    if kind == Some(DeviceKind::CPU) {
        return Ok(Place::Host);
    }
    let Ok(ordinal) = u32::try_from(index) else {
        return Err(format!("expected a number of a device through DLPack, got {index}"));
    };
    Ok(match kind.map(|kind| DeviceId::new(kind, ordinal)) {
        Some(id) if devices::is_known(id.kind) => Place::Device(id),
        Some(id) => Place::Other(id.to_string()),
        None => Place::Other(format!("device:{index}")),
    })
}

/// `keep` gets the capsule; `found` the stream that the producer has made the data ready for.
pub fn argument<'py>(
    value: &Bound<'py, PyAny>,
    keep: &mut Vec<Bound<'py, PyAny>>,
    found: &mut Found,
) -> PyResult<Arg> {
    let py = value.py();
    let device: (i32, i32) = value.call_method0(intern!(py, "__dlpack_device__"))?.extract()?;
    let place = match place(device) {
        Ok(place) => place,
        Err(why) => return Ok(Arg::Unusable(why)),
    };
    let stream = match &place {
        Place::Host => None,
        // The producer makes this stream wait for what it still does.
        Place::Device(_) => Some(streams::own()),
        Place::Other(_) => return Ok(elsewhere(place)),
    };
    let capsule = match capsule(value, stream) {
        Ok(capsule) => capsule,
        // Interrupts and exits are passed on.
        Err(e) if !e.is_instance_of::<PyException>(py) => return Err(e),
        Err(e) => {
            return Ok(Arg::Unusable(format!(
                "expected an array that can be shared, got {}",
                e.value(py)
            )));
        }
    };
    if let Some(stream) = stream {
        found.made(stream);
    }
    keep.push(capsule.clone());
    let pointer = |name: &CStr| {
        // SAFETY: the name is compared with the capsule's own before anything is returned.
        unsafe {
            let object = capsule.as_ptr();
            (ffi::PyCapsule_IsValid(object, name.as_ptr()) != 0)
                .then(|| ffi::PyCapsule_GetPointer(object, name.as_ptr()))
        }
    };
    // SAFETY: a capsule of this name holds a struct that begins so, alive while the capsule is.
    unsafe {
        if let Some(p) = pointer(c"dltensor_versioned") {
            // Of another major version only what stands before the flags is known.
            let (major, minor) = (*p.cast::<(u32, u32)>()).to_owned();
            if major != MAJOR {
                return Ok(Arg::Unusable(format!(
                    "expected DLPack of version {MAJOR}, got {major}.{minor}"
                )));
            }
            let head = &*p.cast::<Versioned>();
            return Ok(view(&head.tensor, head.flags & READ_ONLY == 0));
        }
        if let Some(p) = pointer(c"dltensor") {
            return Ok(view(&*p.cast::<Tensor>(), !is_immutable(&value.get_type())?));
        }
    }
    Ok(Arg::Unusable("expected a DLPack capsule of a known kind, got another".into()))
}

/// An array that no backend here reaches.
fn elsewhere(place: Place) -> Arg {
    let buffer = BufferArg {
        data: std::ptr::null_mut(),
        dims: vec![],
        strides: vec![],
        dtype: DType::F32,
        writable: false,
    };
    Arg::Array(ArrayArg { buffer, place })
}

fn capsule<'py>(value: &Bound<'py, PyAny>, stream: Option<u64>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    let options = PyDict::new(py);
    if let Some(stream) = stream {
        // In DLPack's words the default stream is 1.
        options.set_item("stream", stream.max(1))?;
    }
    let plain = options.copy()?;
    options.set_item("max_version", (1, 1))?;
    match value.call_method("__dlpack__", (), Some(&options)) {
        // Libraries older than the versioned form do not take the argument.
        Err(e) if e.is_instance_of::<PyTypeError>(py) => {
            value.call_method("__dlpack__", (), Some(&plain))
        }
        result => result,
    }
}

/// Older forms cannot say that an array must not be written; JAX's never may.
pub fn is_immutable(class: &Bound<'_, PyAny>) -> PyResult<bool> {
    let module: String = class.getattr("__module__")?.extract()?;
    Ok(module.starts_with("jax"))
}

/// The array that a tensor describes. Nothing in it is believed but that its pointers are null or point to
/// as many numbers as it has axes.
///
/// # Safety
/// `dims` and `strides` of the tensor are null or hold `rank` entries.
pub unsafe fn view(t: &Tensor, writable: bool) -> Arg {
    // SAFETY: as the caller promises.
    match unsafe { described(t, writable) } {
        Ok((described, place)) => match described.checked() {
            Ok(buffer) => Arg::Array(ArrayArg { buffer, place }),
            Err(why) => Arg::Unusable(format!("{why}, through DLPack")),
        },
        Err(why) => Arg::Unusable(why),
    }
}

/// # Safety
/// As for `view`.
unsafe fn described(t: &Tensor, writable: bool) -> Result<(Described, Place), String> {
    let dtype = dtype(t.code, t.bits).filter(|_| t.lanes == 1).ok_or_else(|| {
        format!(
            "expected an array of numbers that kernels know, got another dtype through DLPack: \
             code {}, {} bits, {} lanes",
            t.code, t.bits, t.lanes
        )
    })?;
    let rank = usize::try_from(t.rank)
        .ok()
        .filter(|&rank| rank <= MOST_AXES)
        .ok_or_else(|| format!("expected 0 to {MOST_AXES} axes, got {} through DLPack", t.rank))?;
    if rank > 0 && t.dims.is_null() {
        return Err(format!("expected a shape of {rank} axes, got a null pointer through DLPack"));
    }
    // SAFETY: as the caller promises, and the pointer is not null where it is read.
    let list = |from: *const i64| -> Vec<i64> {
        (0..rank).map(|i| unsafe { from.add(i).read_unaligned() }).collect()
    };
    let described = Described {
        address: t.data as u64,
        offset: t.byte_offset,
        dims: list(t.dims),
        strides: (!t.strides.is_null()).then(|| list(t.strides)),
        unit: dtype.bytes() as i64,
        dtype,
        writable,
    };
    Ok((described, place(t.device)?))
}

/// DLPack's code and bits. Types of less than a byte are packed in ways it leaves open, and are not
/// taken or given.
const DTYPES: &[(u8, u8, DType)] = &[
    (0, 8, DType::I8),
    (0, 16, DType::I16),
    (0, 32, DType::I32),
    (0, 64, DType::I64),
    (1, 8, DType::U8),
    (1, 16, DType::U16),
    (1, 32, DType::U32),
    (1, 64, DType::U64),
    (2, 16, DType::F16),
    (2, 32, DType::F32),
    (2, 64, DType::F64),
    (4, 16, DType::BF16),
    (6, 8, DType::Bool),
    (10, 8, DType::Fp8E4M3),
    (12, 8, DType::Fp8E5M2),
    (14, 8, DType::E8M0),
];

#[inline]
pub fn dtype(code: u8, bits: u8) -> Option<DType> {
    DTYPES.iter().find(|row| (row.0, row.1) == (code, bits)).map(|row| row.2)
}

/// The code and bits of a dtype.
pub fn code_of(dtype: DType) -> Option<(u8, u8)> {
    DTYPES.iter().find(|row| row.2 == dtype).map(|row| (row.0, row.1))
}
