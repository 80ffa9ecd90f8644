//! Python values and the compiler's compile-time values.

use crate::dtype::DType;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString, PyTuple};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::SourceFile;
use tessera_driver::frontend::{self, Capture, FuncSource};

/// A name the compiler knows by itself, or a value it cannot use.
#[pyclass(frozen, eq, hash, module = "tessera._core")]
#[derive(Clone, PartialEq, Hash)]
pub struct Name {
    /// `namespace`, `builtin`, `later` or `opaque`.
    #[pyo3(get)]
    kind: String,
    #[pyo3(get)]
    text: String,
}

#[tessera_entry::entry]
#[pymethods]
impl Name {
    #[new]
    fn new(kind: String, text: String) -> Self {
        Self { kind, text }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (String, String)) {
        (slf.get_type().into_any(), (slf.get().kind.clone(), slf.get().text.clone()))
    }

    fn __repr__(&self) -> String {
        format!("<{} {}>", self.kind, self.text)
    }
}

/// A constant array.
#[pyclass(frozen, eq, hash, module = "tessera._core")]
#[derive(Clone, PartialEq)]
pub struct Table(Arc<frontend::Table>);

impl std::hash::Hash for Table {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.dims.hash(state);
        self.0.bytes().hash(state);
    }
}

#[tessera_entry::entry]
#[pymethods]
impl Table {
    /// Most bytes that a constant array may have.
    #[classattr]
    const MOST_BYTES: usize = frontend::Table::MOST_BYTES;

    /// Of row-major elements.
    #[new]
    fn new(dtype: &Bound<'_, DType>, dims: Vec<i64>, contents: &[u8]) -> PyResult<Self> {
        let dtype = dtype.get().0.storage;
        let count = dims.iter().try_fold(1i64, |a, &b| a.checked_mul(b)).unwrap_or(-1);
        if count < 1 || contents.len() as i64 != count * dtype.bytes() as i64 {
            return Err(PyTypeError::new_err("expected the contents of the extents"));
        }
        Ok(Self(Arc::new(frontend::Table::new(dtype, dims, contents))))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, table) = (slf.py(), &slf.get().0);
        let contents = PyBytes::new(py, &table.bytes());
        let state = (DType(table.dtype.into()), table.dims.clone(), contents);
        (slf.get_type(), state).into_bound_py_any(py)
    }

    fn __repr__(&self) -> String {
        format!("<table of {}>", self.0.dtype)
    }
}

/// The source of a `@ts.func` with what its free names stand for.
#[pyclass(frozen, module = "tessera._core")]
pub struct Func {
    pub source: Arc<FuncSource>,
    captures: Py<PyDict>,
    defaults: Py<PyDict>,
}

#[tessera_entry::entry]
#[pymethods]
impl Func {
    #[new]
    fn new(
        name: String,
        file: &str,
        text: &str,
        line: u32,
        captures: Bound<'_, PyDict>,
        defaults: Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let source = Arc::new(FuncSource {
            name,
            file: SourceFile::new(file, text, line),
            captures: captures_of(&captures)?,
            defaults: captures_of(&defaults)?,
        });
        Ok(Self { source, captures: captures.unbind(), defaults: defaults.unbind() })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let file = &this.source.file;
        let (captures, defaults) = (&this.captures, &this.defaults);
        let state =
            (&this.source.name, &file.name, &file.text, file.first_line, captures, defaults);
        (slf.get_type(), state).into_bound_py_any(py)
    }
}

pub fn captures_of(values: &Bound<'_, PyDict>) -> PyResult<BTreeMap<String, Capture>> {
    values.iter().map(|(name, value)| Ok((name.extract()?, capture(&value)?))).collect()
}

/// A value in the form that Python prepared: see `kernel/capture.py`.
pub fn capture(value: &Bound<'_, PyAny>) -> PyResult<Capture> {
    Ok(if value.is_none() {
        Capture::None
    } else if let Ok(v) = value.cast::<PyBool>() {
        Capture::Bool(v.is_true())
    } else if value.is_instance_of::<PyInt>() {
        Capture::Int(value.extract()?)
    } else if let Ok(v) = value.cast::<PyFloat>() {
        Capture::Float(v.value())
    } else if value.is_instance_of::<PyString>() {
        Capture::Str(value.extract()?)
    } else if let Ok(v) = value.cast::<DType>() {
        Capture::DType(v.get().0)
    } else if let Ok(v) = value.cast::<PyTuple>() {
        Capture::Tuple(v.iter().map(|item| capture(&item)).collect::<PyResult<_>>()?)
    } else if let Ok(v) = value.cast::<Table>() {
        Capture::Table(v.get().0.clone())
    } else if let Ok(v) = value.cast::<Func>() {
        Capture::Func(v.get().source.clone())
    } else if let Ok(v) = value.cast::<Name>() {
        let Name { kind, text } = v.get().clone();
        match kind.as_str() {
            "namespace" => Capture::Namespace(text),
            "builtin" => Capture::Builtin(text),
            "later" => Capture::Later,
            _ => Capture::Opaque(text),
        }
    } else {
        return Err(PyTypeError::new_err(format!("not a compile-time value: {value}")));
    })
}

/// A compile-time value as a Python object.
pub fn show<'py>(py: Python<'py>, value: &Capture) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Capture::None => Ok(py.None().into_bound(py)),
        Capture::Bool(v) => v.into_bound_py_any(py),
        Capture::Int(v) => v.into_bound_py_any(py),
        Capture::Float(v) => v.into_bound_py_any(py),
        Capture::Str(v) => v.into_bound_py_any(py),
        Capture::DType(v) => DType(*v).into_bound_py_any(py),
        Capture::Tuple(items) => {
            let items: Vec<_> = items.iter().map(|v| show(py, v)).collect::<PyResult<_>>()?;
            Ok(PyTuple::new(py, items)?.into_any())
        }
        Capture::Func(f) => f.name.clone().into_bound_py_any(py),
        Capture::Table(v) => Table(v.clone()).into_bound_py_any(py),
        Capture::Later => Ok(py.None().into_bound(py)),
        Capture::Namespace(n) | Capture::Builtin(n) | Capture::Opaque(n) => n.into_bound_py_any(py),
    }
}
