//! The form of results: how they are put together from the arrays of a call.

use super::walk::view;
use crate::arrays::{class, head};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use tessera_driver::replay::View;

/// A tree of results.
pub enum Form {
    Nothing,
    /// An array of the call as it is.
    Whole(usize),
    /// A view of NumPy's: what its class is called with, but for the array whose memory it is.
    Part {
        of: usize,
        class: Py<PyType>,
        shape: Py<PyTuple>,
        dtype: Py<PyAny>,
        at: i64,
        strides: Py<PyTuple>,
    },
    /// The same elements as an array of another of NumPy's classes.
    Cast {
        of: usize,
        class: Py<PyType>,
    },
    /// A view of another library's.
    Strided {
        of: usize,
        shape: Py<PyTuple>,
        strides: Py<PyTuple>,
        at: i64,
    },
    Tuple(Vec<Form>),
    List(Vec<Form>),
    Dict(Vec<(Py<PyAny>, Form)>),
}

impl Form {
    /// `known` are the arrays of the call, those of the caller and those that it made.
    pub fn of<'py>(value: &Bound<'py, PyAny>, known: &[(Bound<'py, PyAny>, View)]) -> Option<Self> {
        if value.is_none() {
            return Some(Form::Nothing);
        }
        if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            let all = tuple.iter().map(|item| Self::of(&item, known));
            return all.collect::<Option<_>>().map(Form::Tuple);
        }
        if let Ok(list) = value.cast_exact::<PyList>() {
            let all = list.iter().map(|item| Self::of(&item, known));
            return all.collect::<Option<_>>().map(Form::List);
        }
        if let Ok(dict) = value.cast_exact::<PyDict>() {
            let all = dict.iter().map(|(key, item)| Some((key.unbind(), Self::of(&item, known)?)));
            return all.collect::<Option<_>>().map(Form::Dict);
        }
        if let Some(place) = known.iter().position(|(array, _)| array.is(value)) {
            return Some(Form::Whole(place));
        }
        let found = view(value)?;
        let (low, high) = found.span();
        let mut around = known.iter().enumerate().filter(|(_, (_, view))| {
            let (begin, end) = view.span();
            begin <= low && high <= end
        });
        let (Some((of, (base, whole))), None) = (around.next(), around.next()) else {
            return None;
        };
        let at = found.address.wrapping_sub(whole.address) as i64;
        let py = value.py();
        let shape = PyTuple::new(py, &found.dims[..found.rank]).ok()?.unbind();
        let strides = &found.strides[..found.rank];
        if class(value).ok()?.is_some() {
            if class(base).ok()?.is_some() && (View { class: whole.class, ..found }) == *whole {
                return Some(Form::Cast { of, class: value.get_type().unbind() });
            }
            // NumPy takes memory without gaps alone, and a view of what may not be written is none itself.
            let dense = class(base).ok()?.is_some() && head(base).row_major;
            let dense = dense && whole.writable && found.writable;
            let strides = PyTuple::new(py, strides).ok()?.unbind();
            let (class, dtype) = (value.get_type().unbind(), head(value).dtype.unbind());
            return dense.then_some(Form::Part { of, class, shape, dtype, at, strides });
        }
        let size = found.dtype.bytes() as i64;
        let fits = found.dtype == whole.dtype
            && at % size == 0
            && value.get_type().is(base.get_type())
            && value.hasattr(intern!(py, "as_strided")).ok()?;
        let strides = PyTuple::new(py, strides.iter().map(|s| s / size)).ok()?.unbind();
        fits.then_some(Form::Strided { of, shape, strides, at: at / size })
    }

    /// Whether its leaves are arrays of the call as they are.
    pub fn is_of_whole(&self) -> bool {
        match self {
            Form::Whole(_) => true,
            Form::Nothing | Form::Part { .. } | Form::Cast { .. } | Form::Strided { .. } => false,
            Form::Tuple(all) | Form::List(all) => all.iter().all(Self::is_of_whole),
            Form::Dict(all) => all.iter().all(|(_, one)| one.is_of_whole()),
        }
    }

    pub fn build<'py>(
        &self,
        py: Python<'py>,
        known: &[Bound<'py, PyAny>],
    ) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Form::Nothing => Ok(py.None().into_bound(py)),
            Form::Whole(place) => Ok(known[*place].clone()),
            Form::Part { of, class, shape, dtype, at, strides } => {
                class.bind(py).call1((shape, dtype, &known[*of], at, strides))
            }
            Form::Cast { of, class } => {
                known[*of].call_method1(intern!(py, "view"), (class.bind(py),))
            }
            Form::Strided { of, shape, strides, at } => {
                let base = &known[*of];
                let first: i64 = base.call_method0(intern!(py, "storage_offset"))?.extract()?;
                base.call_method1(intern!(py, "as_strided"), (shape, strides, first + at))
            }
            Form::Tuple(all) => {
                let all = all.iter().map(|one| one.build(py, known));
                Ok(PyTuple::new(py, all.collect::<PyResult<Vec<_>>>()?)?.into_any())
            }
            Form::List(all) => {
                let all = all.iter().map(|one| one.build(py, known));
                Ok(PyList::new(py, all.collect::<PyResult<Vec<_>>>()?)?.into_any())
            }
            Form::Dict(all) => {
                let dict = PyDict::new(py);
                for (key, one) in all {
                    dict.set_item(key, one.build(py, known)?)?;
                }
                Ok(dict.into_any())
            }
        }
    }
}
