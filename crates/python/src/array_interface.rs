//! Arrays on a CUDA device through `__cuda_array_interface__`, versions 2 and 3.

use crate::streams::Found;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tessera_driver::{Arg, ArrayArg, Described, DeviceKind, Place, device};
use tessera_numerics::DType;

/// The devices whose arrays describe themselves so.
pub const KIND: DeviceKind = DeviceKind::CUDA;

pub fn argument<'py>(
    value: &Bound<'py, PyAny>,
    keep: &mut Vec<Bound<'py, PyAny>>,
    found: &mut Found,
) -> PyResult<Arg> {
    let py = value.py();
    let table = value.getattr(intern!(py, "__cuda_array_interface__"))?.cast_into::<PyDict>()?;
    let entry = |name: &str| Ok::<_, PyErr>(table.get_item(name)?.filter(|v| !v.is_none()));
    let unusable = |why: String| Ok(Arg::Unusable(why));
    let (Some(shape), Some(data), Some(code)) =
        (entry("shape")?, entry("data")?, entry("typestr")?)
    else {
        return unusable(
            "expected `shape`, `data` and `typestr` in `__cuda_array_interface__`, got less".into(),
        );
    };
    if entry("mask")?.is_some() {
        return unusable("expected an array without a mask, got a masked one".into());
    }
    let code: String = code.extract()?;
    let Some(dtype) = dtype(&code) else {
        return unusable(format!(
            "expected an array of numbers that kernels know, got one of type {code}"
        ));
    };
    let (address, read_only): (u64, bool) = data.extract()?;
    let dims: Vec<i64> = shape.extract()?;
    let strides: Option<Vec<i64>> = entry("strides")?.map(|s| s.extract()).transpose()?;
    let writable = !read_only;
    let described = Described { address, offset: 0, dims, strides, unit: 1, dtype, writable };
    let buffer = match described.checked() {
        Ok(buffer) => buffer,
        Err(why) => return unusable(format!("{why}, in `__cuda_array_interface__`")),
    };
    if let Some(stream) = entry("stream")? {
        match stream.extract::<u64>()? {
            0 => {
                return unusable(
                    "expected a stream that is not 0 in `__cuda_array_interface__`, got 0".into(),
                );
            }
            stream => found.made(stream),
        }
    }
    keep.push(value.clone());
    let place = Place::Device(device::of_address(KIND, address));
    Ok(Arg::Array(ArrayArg { buffer, place }))
}

/// As NumPy spells types: byte order, kind, bytes.
const DTYPES: &[(&str, DType)] = &[
    ("b1", DType::Bool),
    ("i1", DType::I8),
    ("i2", DType::I16),
    ("i4", DType::I32),
    ("i8", DType::I64),
    ("u1", DType::U8),
    ("u2", DType::U16),
    ("u4", DType::U32),
    ("u8", DType::U64),
    ("f2", DType::F16),
    ("f4", DType::F32),
    ("f8", DType::F64),
];

fn dtype(code: &str) -> Option<DType> {
    let rest = code.strip_prefix(['<', '|', '='])?;
    DTYPES.iter().find(|(name, _)| *name == rest).map(|(_, dtype)| *dtype)
}

/// The spelling of a dtype; what NumPy itself does not have has none.
pub fn code_of(dtype: DType) -> Option<String> {
    let (name, _) = DTYPES.iter().find(|(_, d)| *d == dtype)?;
    Some(format!("{}{name}", if dtype.bytes() == 1 { '|' } else { '<' }))
}
