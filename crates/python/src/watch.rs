//! The values of captured names when code was compiled, to compare with their current values.

use crate::arrays::{NdHead, descr_dtype, head, is_ndarray};
use crate::dtype::DType;
use pyo3::exceptions::PyException;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use tessera_driver::frontend::Table;

/// The values of captured names at one moment. Each is a place (a namespace and a name in it, or the
/// cell of an enclosing function's variable), attributes to follow from there, and what was found.
#[pyclass(frozen, module = "tessera._core")]
pub struct Watch {
    entries: Vec<Entry>,
    /// Others that must hold too.
    parts: Vec<Py<Watch>>,
    /// False where a name had no value yet: the next check has to read all of them.
    settled: bool,
}

struct Entry {
    place: Place,
    attributes: Vec<Py<PyString>>,
    /// `None` where there was nothing.
    value: Option<Py<PyAny>>,
    /// What an array held: it stays the same object when that changes.
    contents: Option<Vec<u8>>,
}

enum Place {
    /// The globals of a module.
    Dict(Py<PyDict>, Py<PyString>),
    /// The namespace of a class.
    Mapping(Py<PyAny>, Py<PyString>),
    Cell(Py<PyAny>),
}

#[tessera_entry::entry]
#[pymethods]
impl Watch {
    /// A namespace holds the kernel that watches it: the collector must see through.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for Entry { place, value, .. } in &self.entries {
            match place {
                Place::Dict(dict, _) => visit.call(dict)?,
                Place::Mapping(object, _) | Place::Cell(object) => visit.call(object)?,
            }
            visit.call(value)?;
        }
        self.parts.iter().try_for_each(|part| visit.call(part))
    }

    /// Each entry is `(namespace or None, name or cell, attributes, (value,) or ())`.
    #[new]
    fn new(entries: &Bound<'_, PyList>, settled: bool) -> PyResult<Self> {
        let entries = entries.iter().map(|e| Entry::new(&e)).collect::<PyResult<_>>()?;
        Ok(Self { entries, parts: Vec::new(), settled })
    }

    /// All of them as one.
    #[staticmethod]
    fn all(parts: Vec<Py<Watch>>) -> Self {
        Self { entries: Vec::new(), parts, settled: true }
    }

    /// Whether every name stands for what it stood for then: the same object, or an equal value of
    /// the same type.
    pub fn same(&self, py: Python<'_>) -> PyResult<bool> {
        if !self.settled {
            return Ok(false);
        }
        for entry in &self.entries {
            if !entry.is_same(py)? {
                return Ok(false);
            }
        }
        for part in &self.parts {
            if !part.get().same(py)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn __len__(&self) -> PyResult<usize> {
        let parts = self.parts.iter().map(|part| part.get().__len__());
        Ok(self.entries.len() + parts.sum::<PyResult<usize>>()?)
    }
}

impl Entry {
    fn new(row: &Bound<'_, PyAny>) -> PyResult<Self> {
        type Row<'py> =
            (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyTuple>, Bound<'py, PyTuple>);
        let (namespace, name, attributes, value): Row<'_> = row.extract()?;
        let place = if namespace.is_none() {
            Place::Cell(name.unbind())
        } else if let Ok(dict) = namespace.cast_exact::<PyDict>() {
            Place::Dict(dict.clone().unbind(), name.cast_into::<PyString>()?.unbind())
        } else {
            Place::Mapping(namespace.unbind(), name.cast_into::<PyString>()?.unbind())
        };
        let attributes = attributes
            .iter()
            .map(|a| Ok(a.cast_into::<PyString>()?.unbind()))
            .collect::<PyResult<_>>()?;
        let value = value.iter().next();
        let contents = match &value {
            Some(array) if is_ndarray(array)? => contents(array).map(<[u8]>::to_vec),
            _ => None,
        };
        Ok(Self { place, attributes, value: value.map(Bound::unbind), contents })
    }

    fn is_same(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(match (self.read(py)?, &self.value) {
            (Some(now), Some(then)) => match &self.contents {
                Some(held) => is_same_array(&now, then.bind(py), held)?,
                None => is_equal(&now, then.bind(py))?,
            },
            (None, None) => true,
            _ => false,
        })
    }

    /// What is there now. That something fails to give a value means that there is none; only an
    /// interrupt goes on.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut found = match &self.place {
            Place::Dict(dict, name) => dict.bind(py).get_item(name)?,
            Place::Mapping(mapping, name) => absent(py, mapping.bind(py).get_item(name))?,
            Place::Cell(cell) => absent(py, cell.bind(py).getattr(intern!(py, "cell_contents")))?,
        };
        for attribute in &self.attributes {
            let Some(value) = found else { return Ok(None) };
            found = absent(py, value.getattr(attribute))?;
        }
        Ok(found)
    }
}

fn absent<'py>(
    py: Python<'py>,
    result: PyResult<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.is_instance_of::<PyException>(py) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The bytes of a row-major array that is small enough to be captured.
fn contents<'a>(array: &'a Bound<'_, PyAny>) -> Option<&'a [u8]> {
    let NdHead { data, dims, dtype, row_major, writable, .. } = head(array);
    let dtype = descr_dtype(&dtype).ok()?.ok()?;
    let bytes = dims.iter().product::<isize>() as usize * dtype.bytes();
    let small = 0 < bytes && bytes <= Table::MOST_BYTES;
    // SAFETY: such an array has this number of bytes there, while it is borrowed.
    (small && row_major && !writable).then(|| unsafe { std::slice::from_raw_parts(data, bytes) })
}

fn is_same_array(now: &Bound<'_, PyAny>, then: &Bound<'_, PyAny>, held: &[u8]) -> PyResult<bool> {
    if !is_ndarray(now)? || contents(now) != Some(held) {
        return Ok(false);
    }
    let (a, b) = (head(now), head(then));
    Ok(now.is(then) || a.dims == b.dims && a.dtype.is(&b.dtype))
}

/// The same object, or a constant that elaborates to the same code.
fn is_equal(now: &Bound<'_, PyAny>, then: &Bound<'_, PyAny>) -> PyResult<bool> {
    if now.is(then) {
        return Ok(true);
    }
    if !now.get_type().is(then.get_type()) {
        return Ok(false);
    }
    if let (Ok(a), Ok(b)) = (now.cast_exact::<PyFloat>(), then.cast_exact::<PyFloat>()) {
        // Zeros of both signs are equal, and not the same; a NaN is not equal to itself.
        return Ok(a.value().to_bits() == b.value().to_bits());
    }
    if let (Ok(a), Ok(b)) = (now.cast_exact::<PyTuple>(), then.cast_exact::<PyTuple>()) {
        if a.len() != b.len() {
            return Ok(false);
        }
        for (x, y) in a.iter().zip(b.iter()) {
            if !is_equal(&x, &y)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    let plain = now.is_exact_instance_of::<PyInt>()
        || now.is_exact_instance_of::<PyString>()
        || now.is_exact_instance_of::<PyBool>()
        || now.is_exact_instance_of::<DType>();
    Ok(plain && now.eq(then)?)
}
