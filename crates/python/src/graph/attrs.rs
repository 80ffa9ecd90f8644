//! Python values as attributes and types. The op's row says what a value is meant to be.

use crate::enter::exception;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_graph::{Graph, GraphOp, tensor};
use tessera_ir::{Attr, AttrKind, Attrs, Dim, DimExpr, Opcode, Type, parse_module};
use tessera_numerics::NumType;

/// The attributes of an op.
pub fn attrs_of(op: &str, given: Option<&Bound<'_, PyDict>>) -> PyResult<Attrs> {
    let mut out = Attrs::new();
    let Some(given) = given else { return Ok(out) };
    let code = GraphOp::from_mnemonic(op);
    for (name, value) in given.iter() {
        let name: String = name.extract()?;
        if value.is_none() {
            continue;
        }
        let row = code.and_then(|c| c.info().attrs.iter().find(|a| a.name == name));
        let attr = match row.map(|r| r.kind) {
            Some(kind) => by_kind(kind, &value)?,
            // Not an attribute of the op: the builder says so.
            None => plain(&value)?,
        };
        out.set(&name, attr);
    }
    Ok(out)
}

fn by_kind(kind: AttrKind, value: &Bound<'_, PyAny>) -> PyResult<Attr> {
    match kind {
        AttrKind::Ref => Ok(Attr::Ref(value.extract()?)),
        AttrKind::Str => match value.cast::<PyBytes>() {
            Ok(bytes) => Ok(Attr::Str(tessera_graph::ops::value::hex_text(bytes.as_bytes()))),
            Err(_) => Ok(Attr::Str(value.extract()?)),
        },
        AttrKind::Expr => Ok(expr(value)?.into()),
        AttrKind::Exprs => {
            let items = value.try_iter()?.map(|v| expr(&v?)).collect::<PyResult<Vec<_>>>()?;
            Ok(Attr::exprs(items))
        }
        AttrKind::Extents => match value.try_iter() {
            Ok(items) => Ok(Attr::exprs(items.map(|v| expr(&v?)).collect::<PyResult<Vec<_>>>()?)),
            Err(_) => Ok(expr(value)?.into()),
        },
        AttrKind::Bool
        | AttrKind::Int
        | AttrKind::Number
        | AttrKind::Word
        | AttrKind::Ints
        | AttrKind::Words
        | AttrKind::Dict
        | AttrKind::List => plain(value),
    }
}

fn plain(value: &Bound<'_, PyAny>) -> PyResult<Attr> {
    if let Ok(v) = value.cast::<PyBool>() {
        return Ok(Attr::Bool(v.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(Attr::Int(value.extract()?));
    }
    if let Ok(v) = value.cast::<PyFloat>() {
        return Ok(Attr::Float(v.value()));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(Attr::Word(value.extract()?));
    }
    if value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyList>() {
        let items = value.try_iter()?.map(|v| plain(&v?)).collect::<PyResult<_>>()?;
        return Ok(Attr::List(items));
    }
    if value.hasattr("text")? {
        // A symbolic extent where the op takes numbers alone: Python says which it is, and notes it.
        return Ok(Attr::Int(value.call_method0("__index__")?.extract()?));
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        let mut out = Attrs::new();
        for (name, value) in dict.iter() {
            out.set(&name.extract::<String>()?, plain(&value)?);
        }
        return Ok(Attr::Dict(out));
    }
    Err(PyTypeError::new_err(format!("not an attribute: {value}")))
}

/// An extent: an integer, or the text of an expression over symbols.
pub fn expr(value: &Bound<'_, PyAny>) -> PyResult<DimExpr> {
    if value.is_instance_of::<PyInt>() {
        return Ok(DimExpr::Const(value.extract()?));
    }
    // Symbolic extents of Python's hold their text.
    let text: String = match value.getattr_opt("text")? {
        Some(text) => text.extract()?,
        None => value.extract()?,
    };
    let ty = parse_type(value.py(), &format!("tensor<[{text}], f32>"))?;
    match ty.shape() {
        [Dim::Expr(e)] => Ok(e.clone()),
        [Dim::Static(v)] => Ok(DimExpr::Const(*v)),
        _ => Err(PyTypeError::new_err(format!("not an extent: {text}"))),
    }
}

/// There is no parser of a type alone: it stands in a function.
fn parse_type(py: Python<'_>, text: &str) -> PyResult<Type> {
    let module = format!(
        "module @t : graph {{version = 1}}\n\nfunc @t(%x: {text}) {{\n  graph.return %x\n}}\n"
    );
    let module = parse_module::<Graph>(&module, "<type>").map_err(|e| exception(py, &e))?;
    let func = module.funcs.first().ok_or_else(|| fail(py, "expected a type"))?;
    Ok(func.ty(func.params()[0]).clone())
}

fn fail(py: Python<'_>, why: &str) -> PyErr {
    exception(py, &Diagnostics::from(Diagnostic::new(Code::E_TYPE, why)))
}

/// A tensor type: its extents and the text of its dtype with policy.
pub type Aval<'py> = (Vec<Bound<'py, PyAny>>, String);

pub fn type_of(py: Python<'_>, (dims, dtype): &Aval<'_>) -> PyResult<Type> {
    let dims: Vec<Dim> =
        dims.iter().map(|d| expr(d).map(Dim::from)).collect::<PyResult<Vec<_>>>()?;
    let elem = NumType::parse(dtype).map_err(|e| fail(py, &e.to_string()))?;
    Ok(tensor(dims, elem))
}

/// What Python keeps of a type: extents as integers, or text where they are expressions.
pub fn aval<'py>(py: Python<'py>, ty: &Type) -> PyResult<(Bound<'py, PyTuple>, String)> {
    let dims = ty.shape().iter().map(|d| match d {
        Dim::Static(v) => Ok(v.into_pyobject(py)?.into_any()),
        d => Ok(d.to_string().into_pyobject(py)?.into_any()),
    });
    let dims = PyTuple::new(py, dims.collect::<PyResult<Vec<_>>>()?)?;
    let dtype = match ty {
        Type::Tensor { elem, .. } => elem.to_string(),
        _ => ty.dtype().name().to_string(),
    };
    Ok((dims, dtype))
}
