//! A function that a tracer builds. Values are numbers to Python; each comes with its type.

use super::attrs::{Aval, attrs_of, aval, type_of};
use super::place::{Place, loc};
use super::program::Program;
use crate::enter::exception;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::{Mutex, PoisonError};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_graph::GraphBuilder as Inner;
use tessera_ir::{Type, Value};
use tessera_support::Entity;

/// Makes one function, op by op. After `finish` it takes no more.
#[pyclass(frozen, module = "tessera._core")]
pub struct GraphBuilder(Mutex<Option<Inner>>);

/// A value with its extents and its dtype.
type Made<'py> = (usize, Bound<'py, PyTuple>, String);

fn values(ids: &[usize]) -> Vec<Value> {
    ids.iter().map(|&i| Value::from_index(i)).collect()
}

impl GraphBuilder {
    fn with<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Inner) -> Result<T, Diagnostics>,
    ) -> PyResult<T> {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(inner) = guard.as_mut() else {
            let why = "expected a function that is being traced, got one that is finished";
            return Err(exception(py, &Diagnostic::new(Code::E_GRAPH_INVALID, why).into()));
        };
        work(inner).map_err(|e| exception(py, &e))
    }

    fn made<'py>(&self, py: Python<'py>, made: Vec<Value>) -> PyResult<Vec<Made<'py>>> {
        let types: Vec<Type> =
            self.with(py, |b| Ok(made.iter().map(|&v| b.ty(v).clone()).collect()))?;
        made.iter()
            .zip(types)
            .map(|(v, ty)| {
                let (dims, dtype) = aval(py, &ty)?;
                Ok((v.index(), dims, dtype))
            })
            .collect()
    }
}

fn groups_of(groups: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, Vec<Value>)>> {
    let Some(groups) = groups else { return Ok(Vec::new()) };
    groups
        .iter()
        .map(|(name, ids)| Ok((name.extract()?, values(&ids.extract::<Vec<usize>>()?))))
        .collect()
}

#[tessera_entry::entry]
#[pymethods]
impl GraphBuilder {
    #[new]
    fn new(name: &str) -> Self {
        Self(Mutex::new(Some(Inner::new(name))))
    }

    fn param<'py>(&self, py: Python<'py>, name: &str, ty: Aval<'py>) -> PyResult<usize> {
        let ty = type_of(py, &ty)?;
        self.with(py, |b| Ok(b.param(name, ty).index()))
    }

    /// Adds an op without regions.
    #[pyo3(signature = (op, operands, groups=None, attrs=None, results=None, place=None))]
    #[allow(clippy::too_many_arguments)]
    fn append<'py>(
        &self,
        py: Python<'py>,
        op: &str,
        operands: Vec<usize>,
        groups: Option<Bound<'py, PyDict>>,
        attrs: Option<Bound<'py, PyDict>>,
        results: Option<Vec<Aval<'py>>>,
        place: Option<&Place>,
    ) -> PyResult<Vec<Made<'py>>> {
        let groups = groups_of(groups.as_ref())?;
        let groups: Vec<_> = groups.iter().map(|(n, v)| (n.as_str(), v.clone())).collect();
        let attrs = attrs_of(op, attrs.as_ref())?;
        let results = match results {
            Some(list) => Some(list.iter().map(|a| type_of(py, a)).collect::<PyResult<Vec<_>>>()?),
            None => None,
        };
        let made = self.with(py, |b| {
            Ok(b.append(op, &values(&operands), &groups, attrs, results, loc(place))?)
        })?;
        self.made(py, made)
    }

    /// Opens an op with regions; gives the arguments of the first.
    #[pyo3(signature = (op, operands, groups=None, attrs=None, place=None))]
    fn open<'py>(
        &self,
        py: Python<'py>,
        op: &str,
        operands: Vec<usize>,
        groups: Option<Bound<'py, PyDict>>,
        attrs: Option<Bound<'py, PyDict>>,
        place: Option<&Place>,
    ) -> PyResult<Vec<Made<'py>>> {
        let groups = groups_of(groups.as_ref())?;
        let groups: Vec<_> = groups.iter().map(|(n, v)| (n.as_str(), v.clone())).collect();
        let attrs = attrs_of(op, attrs.as_ref())?;
        let made =
            self.with(py, |b| Ok(b.open(op, &values(&operands), &groups, attrs, loc(place))?))?;
        self.made(py, made)
    }

    fn next_region<'py>(&self, py: Python<'py>, yields: Vec<usize>) -> PyResult<Vec<Made<'py>>> {
        let made = self.with(py, |b| Ok(b.next_region(&values(&yields))?))?;
        self.made(py, made)
    }

    fn close<'py>(&self, py: Python<'py>, yields: Vec<usize>) -> PyResult<Vec<Made<'py>>> {
        let made = self.with(py, |b| Ok(b.close(&values(&yields))?))?;
        self.made(py, made)
    }

    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |b| {
            b.abandon();
            Ok(())
        })
    }

    /// Puts the body of a function here in place of a call of it.
    #[pyo3(signature = (program, func, args, place=None))]
    fn inline<'py>(
        &self,
        py: Python<'py>,
        program: &Program,
        func: &str,
        args: Vec<usize>,
        place: Option<&Place>,
    ) -> PyResult<Vec<Made<'py>>> {
        let callee = program.func(py, func)?;
        let made = self.with(py, |b| Ok(b.inline(&callee, &values(&args), &loc(place))?))?;
        self.made(py, made)
    }

    /// Ends the function and puts it into the program.
    #[pyo3(signature = (program, results, place=None))]
    fn finish(
        &self,
        py: Python<'_>,
        program: &Program,
        results: Vec<usize>,
        place: Option<&Place>,
    ) -> PyResult<()> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(inner) = taken else {
            let why = "expected a function that is being traced, got one that is finished";
            return Err(exception(py, &Diagnostic::new(Code::E_GRAPH_INVALID, why).into()));
        };
        let func = inner.finish(&values(&results), loc(place)).map_err(|e| exception(py, &e))?;
        program.add(func);
        Ok(())
    }
}
