//! Arrays in files of the safetensors format.

use crate::enter::{enter, exception};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize_to_file};
use std::collections::HashMap;
use std::path::PathBuf;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_numerics::DType;

fn wrong(why: String) -> Diagnostics {
    Diagnostic::new(Code::E_ARGUMENT, why).into()
}

/// The format's name for a dtype. Elements narrower than a byte take one byte each here, and the
/// format packs them: they are written as bytes, and the header says what they are.
#[deny(clippy::wildcard_enum_match_arm)]
fn stored(dtype: DType) -> Dtype {
    match dtype {
        DType::Bool => Dtype::BOOL,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::U8 => Dtype::U8,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::U64 => Dtype::U64,
        DType::F64 => Dtype::F64,
        DType::F32 | DType::Tf32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::Fp8E4M3 => Dtype::F8_E4M3,
        DType::Fp8E5M2 => Dtype::F8_E5M2,
        DType::E8M0 => Dtype::F8_E8M0,
        DType::I4 | DType::Fp4E2M1 | DType::Fp6E2M3 | DType::Fp6E3M2 => Dtype::U8,
    }
}

fn read(dtype: Dtype) -> Option<DType> {
    // Those of fewer bits are stored as bytes, and F32 comes before TF32.
    let plain = |d: &DType| *d == DType::Bool || d.bits() >= 8;
    DType::ALL.iter().copied().filter(plain).find(|&d| stored(d) == dtype)
}

/// Name, dtype, extents and elements of an array.
type Named<'py> = (String, String, Vec<usize>, Bound<'py, PyBytes>);

/// Writes arrays into a file; `note` is kept beside them. The file is there whole or not at all.
#[tessera_entry::entry]
#[pyfunction]
pub fn safetensors_save(
    py: Python<'_>,
    path: PathBuf,
    arrays: Vec<Named<'_>>,
    note: String,
) -> PyResult<()> {
    let views = arrays
        .iter()
        .map(|(name, dtype, shape, bytes)| {
            let found = DType::parse(dtype)
                .ok_or_else(|| wrong(format!("expected a dtype, got {dtype}")))?;
            let view = TensorView::new(stored(found), shape.clone(), bytes.as_bytes())
                .map_err(|e| wrong(format!("{name}: {e}")))?;
            Ok((name.clone(), view))
        })
        .collect::<Result<Vec<_>, Diagnostics>>()
        .map_err(|e| exception(py, &e))?;
    // One entry: the order of a map of several would differ from run to run.
    let info = HashMap::from([("tessera".to_string(), note)]);
    enter(py, || {
        let fresh = path.with_extension("tmp");
        let show = |e: &dyn std::fmt::Display| wrong(format!("{}: {e}", path.display()));
        serialize_to_file(views, Some(info), &fresh).map_err(|e| show(&e))?;
        std::fs::rename(&fresh, &path).map_err(|e| show(&e))
    })
}

/// The arrays of a file in the order of their names, and the note beside them.
#[tessera_entry::entry]
#[pyfunction]
pub fn safetensors_load<'py>(
    py: Python<'py>,
    path: PathBuf,
) -> PyResult<(Vec<Named<'py>>, Option<String>)> {
    let (data, note) = enter(py, || {
        let show = |e: &dyn std::fmt::Display| wrong(format!("{}: {e}", path.display()));
        let data = std::fs::read(&path).map_err(|e| show(&e))?;
        let (_, head) = SafeTensors::read_metadata(&data).map_err(|e| show(&e))?;
        let note = head.metadata().as_ref().and_then(|m| m.get("tessera").cloned());
        Ok((data, note))
    })?;
    let file = SafeTensors::deserialize(&data)
        .map_err(|e| exception(py, &wrong(format!("{}: {e}", path.display()))))?;
    let mut names = file.names();
    names.sort_unstable();
    let mut out = Vec::with_capacity(names.len());
    for name in names {
        let view = file
            .tensor(name)
            .map_err(|e| exception(py, &wrong(format!("{}: {e}", path.display()))))?;
        let Some(dtype) = read(view.dtype()) else {
            let why = format!("{}: {name} has dtype {:?}", path.display(), view.dtype());
            return Err(exception(
                py,
                &wrong(format!("expected a dtype that kernels know; {why}")),
            ));
        };
        let bytes = PyBytes::new(py, view.data());
        out.push((name.to_string(), dtype.name().to_string(), view.shape().to_vec(), bytes));
    }
    Ok((out, note))
}
