//! A kernel's declaration, from the plain data that Python made of it (see `kernel/signature.py`).

use crate::dtype::DType;
use crate::enter::enter;
use crate::values::{capture, captures_of};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::SourceFile;
use tessera_driver::frontend::{Bundle, FuncSource, KernelDecl, ParamKind, ParamSpec, Tunables};
use tessera_driver::{Constraint, Options, knobs};
use tessera_ir::Privilege;

pub struct Spec<'a, 'py> {
    pub name: String,
    pub file: &'a str,
    pub text: &'a str,
    pub line: u32,
    pub captures: &'a Bound<'py, PyDict>,
    pub params: &'a Bound<'py, PyList>,
    /// The names of the parameters that may be None.
    pub optional: &'a [String],
    pub bundles: &'a Bound<'py, PyDict>,
    pub candidates: &'a Bound<'py, PyList>,
    pub lanes: Vec<i64>,
    pub target: Option<String>,
    pub require: &'a Bound<'py, PyList>,
}

pub fn declare(spec: &Spec<'_, '_>) -> PyResult<(KernelDecl, Options)> {
    let source = FuncSource {
        name: spec.name.clone(),
        file: SourceFile::new(spec.file, spec.text, spec.line),
        captures: captures_of(spec.captures)?,
        defaults: BTreeMap::new(),
    };
    let named =
        |(name, part): (Bound<'_, PyAny>, Bound<'_, PyAny>)| Ok((name.extract()?, bundle(&part)?));
    let candidates = spec
        .candidates
        .iter()
        .map(|c| captures_of(c.cast::<PyDict>()?))
        .collect::<PyResult<_>>()?;
    let decl = KernelDecl {
        source: Arc::new(source),
        params: spec.params.iter().map(|p| param(&p, spec.optional)).collect::<PyResult<_>>()?,
        bundles: spec.bundles.iter().map(named).collect::<PyResult<_>>()?,
        tunables: Tunables { candidates },
        lanes: spec.lanes.clone(),
        most_ops: enter(spec.params.py(), knobs::max_ops)?,
    };
    let require = spec.require.iter().map(|c| constraint(&c)).collect::<PyResult<_>>()?;
    Ok((decl, Options { target: spec.target.clone(), require, ..Options::default() }))
}

type TensorRow<'py> = (Option<Vec<String>>, Option<Bound<'py, DType>>, Option<String>, bool);

/// The parts of a record or a list: the place of a parameter, None, `("record", class, [(field, part)])`
/// or `("list", [part])`.
fn bundle(row: &Bound<'_, PyAny>) -> PyResult<Bundle> {
    if row.is_none() {
        return Ok(Bundle::None);
    }
    if let Ok(place) = row.extract() {
        return Ok(Bundle::Param(place));
    }
    let row = row.cast::<PyTuple>()?;
    let kind: String = row.get_item(0)?.extract()?;
    if kind == "list" {
        let parts = row.get_item(1)?;
        let parts = parts.try_iter()?.map(|part| bundle(&part?));
        return Ok(Bundle::List(parts.collect::<PyResult<_>>()?));
    }
    let field = |pair: PyResult<Bound<'_, PyAny>>| {
        let (name, part): (String, Bound<'_, PyAny>) = pair?.extract()?;
        Ok((name, bundle(&part)?))
    };
    let fields = row.get_item(2)?.try_iter()?.map(field).collect::<PyResult<_>>()?;
    Ok(Bundle::Record { class: row.get_item(1)?.extract()?, fields })
}

/// `(name, kind, detail, (default,) or ())`.
fn param(row: &Bound<'_, PyAny>, optional: &[String]) -> PyResult<ParamSpec> {
    let (name, kind, detail, default): (String, String, Bound<'_, PyAny>, Bound<'_, PyTuple>) =
        row.extract()?;
    let optional = optional.contains(&name);
    let kind = match kind.as_str() {
        "tensor" => {
            let (dims, elem, privilege, out): TensorRow<'_> = detail.extract()?;
            ParamKind::Tensor {
                dims,
                elem: elem.map(|e| e.get().0),
                privilege: privilege.as_deref().and_then(Privilege::parse),
                out,
            }
        }
        "scalar" => ParamKind::Scalar(detail.cast::<DType>()?.get().0.storage),
        "const" => ParamKind::Const(detail.extract()?),
        "function" => ParamKind::Function,
        _ => ParamKind::Any,
    };
    let default = default.iter().next().map(|d| capture(&d)).transpose()?;
    Ok(ParamSpec { name, kind, optional, default })
}

/// `(kind, dim, ...)`: see `constraint.py`.
fn constraint(row: &Bound<'_, PyAny>) -> PyResult<Constraint> {
    let row = row.cast::<PyTuple>()?;
    let (kind, dim): (String, String) = (row.get_item(0)?.extract()?, row.get_item(1)?.extract()?);
    let int = |i: usize| row.get_item(i).and_then(|v| v.extract::<i64>());
    match kind.as_str() {
        "divisible" => Ok(Constraint::Divisible { dim, by: int(2)? }),
        "range" => Ok(Constraint::Range { dim, low: int(2)?, high: int(3)? }),
        "derived" => Ok(Constraint::Derived { dim, expr: row.get_item(2)?.extract()? }),
        other => Err(PyValueError::new_err(format!("no such constraint: {other}"))),
    }
}
