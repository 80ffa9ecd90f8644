//! Arithmetic on symbolic extents: Python holds their text.

use super::attrs::expr;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use tessera_graph::dims::simplify;
use tessera_ir::{DimExpr, DimOp};

fn given<'py>(py: Python<'py>, e: &DimExpr) -> PyResult<Bound<'py, PyAny>> {
    match e {
        DimExpr::Const(v) => Ok(v.into_pyobject(py)?.into_any()),
        e => Ok(e.to_string().into_pyobject(py)?.into_any()),
    }
}

/// `a op b` in its one spelling: an integer, or text. `op` is a word such as `add` or `cdiv`.
#[tessera_entry::entry]
#[pyfunction]
pub fn dim_compute<'py>(
    py: Python<'py>,
    op: &str,
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let op = match op {
        "add" => DimOp::Add,
        "sub" => DimOp::Sub,
        "mul" => DimOp::Mul,
        "floordiv" => DimOp::FloorDiv,
        "cdiv" => DimOp::CeilDiv,
        "mod" => DimOp::Mod,
        "min" => DimOp::Min,
        "max" => DimOp::Max,
        op => return Err(PyValueError::new_err(format!("no arithmetic on extents: {op}"))),
    };
    given(py, &simplify(&DimExpr::bin(op, expr(a)?, expr(b)?)))
}

/// The value of an expression with these numbers for its symbols.
#[tessera_entry::entry]
#[pyfunction]
pub fn dim_value(e: &Bound<'_, PyAny>, extents: BTreeMap<String, i64>) -> PyResult<i64> {
    expr(e)?.eval(&|name| extents.get(name).copied()).map_err(PyKeyError::new_err)
}
