//! Kernels as Python objects.

use crate::call::{Given, warn};
use crate::declare::{Spec, declare};
use crate::enter::{enter, enter_call, exception};
use crate::graph::TracedKernel;
use crate::observe::{self, Report};
use crate::tuning;
use crate::values::{captures_of, show};
use crate::watch::Watch;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use tessera_driver::{
    Backends, Cost, Explanation, Field, KernelHandle, LevelError, Purpose, beside,
};
use tessera_numerics::Profile;

/// The backends of this process.
pub static BACKENDS: LazyLock<Backends> = LazyLock::new(Backends::default);

#[pyclass(frozen, module = "tessera._core")]
pub struct Kernel {
    handle: Arc<KernelHandle>,
    allocate: Py<PyAny>,
}

#[tessera_entry::entry]
#[pymethods]
impl Kernel {
    #[new]
    #[allow(clippy::too_many_arguments)] // The fields of `KernelSpec`, one by one.
    fn new(
        py: Python<'_>,
        name: String,
        file: &str,
        text: &str,
        line: u32,
        captures: &Bound<'_, PyDict>,
        params: &Bound<'_, PyList>,
        optional: Vec<String>,
        bundles: &Bound<'_, PyDict>,
        candidates: &Bound<'_, PyList>,
        lanes: Vec<i64>,
        target: Option<String>,
        require: &Bound<'_, PyList>,
        tuning: tuning::Row,
        allocate: Py<PyAny>,
    ) -> PyResult<Self> {
        let spec = Spec {
            name,
            file,
            text,
            line,
            captures,
            params,
            optional: &optional,
            bundles,
            candidates,
            lanes,
            target,
            require,
        };
        let (decl, mut options) = declare(&spec)?;
        options.tuning = tuning::options(py, tuning)?;
        let handle = enter(py, || beside(move || KernelHandle::new(decl, options)))?;
        // The frames above: the object, the function that makes it, the decorator, the user.
        warn(py, &handle, 4)?;
        Ok(Self { handle: Arc::new(handle), allocate })
    }

    fn call<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
        grid: Option<&Bound<'py, PyAny>>,
        profile: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let given = self.given(args, kwargs, grid, profile, Purpose::Run);
        given.launch(|call, ask| self.handle.prepare(&BACKENDS, call, ask))
    }

    /// Warnings that were not handed out yet.
    fn take_warnings(&self) -> Vec<String> {
        self.handle.take_warnings()
    }

    fn check<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
        grid: Option<&Bound<'py, PyAny>>,
        profile: usize,
    ) -> PyResult<Report<'py>> {
        observe::check(self.given(args, kwargs, grid, profile, Purpose::Check), &BACKENDS)
    }

    fn watch<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
        grid: Option<&Bound<'py, PyAny>>,
        profile: usize,
        plan: &Bound<'py, PyAny>,
        tell: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let given = self.given(args, kwargs, grid, profile, Purpose::Watch);
        observe::watch(given, &BACKENDS, plan, tell)
    }

    fn jit(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyDict>,
        layouts: &Bound<'_, PyDict>,
        target: Option<&str>,
        profile: usize,
        off: Vec<String>,
    ) -> PyResult<Compiled> {
        let entries = |(name, all): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            Ok((name.extract()?, captures_of(all.cast()?)?))
        };
        let layouts = layouts.iter().map(entries).collect::<PyResult<_>>()?;
        let values = captures_of(values)?;
        let profile = Profile::ALL.get(profile).copied().unwrap_or_default();
        let inner = enter_call(py, || {
            let off = tessera_driver::Off::named(off.iter().map(String::as_str), "`off`")?;
            let given = tessera_driver::Given { values, layouts, off, ..Default::default() };
            tessera_driver::Compiled::new(&self.handle, &BACKENDS, &given, target, profile)
        })?;
        // The frames above: two of the object that holds it, its caller, the user.
        warn(py, &self.handle, 4)?;
        Ok(Compiled { inner, allocate: self.allocate.clone_ref(py) })
    }

    /// The kernel for dims and constants, as traced functions call it; `arrays` are the dtypes and extents
    /// of arguments, `grid` is the caller's.
    fn traced(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyDict>,
        arrays: BTreeMap<String, (String, Vec<i64>)>,
        grid: Option<Vec<i64>>,
        profile: usize,
    ) -> PyResult<TracedKernel> {
        let known = |(name, (dtype, extents)): (String, (String, Vec<i64>))| {
            tessera_numerics::DType::parse(&dtype).map(|dtype| (name, (dtype, extents)))
        };
        let given = tessera_driver::Given {
            values: captures_of(values)?,
            args: arrays.into_iter().filter_map(known).collect(),
            ..Default::default()
        };
        let profile = Profile::ALL.get(profile).copied().unwrap_or_default();
        let handle = self.handle.clone();
        let work = move || handle.traced(&BACKENDS, &given, grid.as_deref(), profile);
        enter(py, || beside(work)).map(TracedKernel)
    }

    fn inspect_ir(&self, py: Python<'_>, level: &str, locs: bool) -> PyResult<String> {
        text(py, enter(py, || Ok(self.handle.inspect_ir(&BACKENDS, level, locs)))?)
    }

    fn explain<'py>(&self, py: Python<'py>) -> PyResult<(String, Bound<'py, PyDict>)> {
        explained(py, enter(py, || Ok(self.handle.explain()))?)
    }

    fn cost<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counted(py, &enter(py, || self.handle.cost())?)
    }

    fn tune(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
        profile: usize,
        budget_ms: Option<f64>,
        force: bool,
    ) -> PyResult<()> {
        tuning::tune(&self.given(args, kwargs, None, profile, Purpose::Run), budget_ms, force)
    }

    /// The dims that reach tile shapes: `jit` must be given them.
    fn static_dims(&self) -> Vec<String> {
        self.handle.static_dims().to_vec()
    }

    /// By parameter, what the kernel does with its elements; `None` for numbers.
    fn privileges(&self) -> Vec<Option<String>> {
        self.handle.privileges().iter().map(|p| p.map(|p| p.name().to_owned())).collect()
    }

    /// Which parameters the kernel returns.
    fn returns(&self) -> Vec<usize> {
        self.handle.returns().to_vec()
    }

    fn tuning_reports<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        tuning::reports(py, &self.handle)
    }

    fn cache_clear(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, || {
            self.handle.clear();
            Ok(())
        })
    }
}

impl Kernel {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.handle.param_names()
    }

    pub fn given<'a, 'py>(
        &'a self,
        args: &'a Bound<'py, PyTuple>,
        kwargs: &'a Bound<'py, PyDict>,
        grid: Option<&'a Bound<'py, PyAny>>,
        profile: usize,
        purpose: Purpose,
    ) -> Given<'a, 'py> {
        let (kernel, allocate) = (&self.handle, self.allocate.bind(args.py()));
        let (replays, watch) = (kernel.replays(), None);
        Given { kernel, replays, watch, args, kwargs, grid, profile, purpose, allocate }
    }
}

/// A kernel with the values of its captured names that it was made with.
#[pyclass(frozen, module = "tessera._core")]
pub struct Elaborated {
    kernel: Py<Kernel>,
    watch: Py<Watch>,
}

#[tessera_entry::entry]
#[pymethods]
impl Elaborated {
    #[new]
    fn new(kernel: Py<Kernel>, watch: Py<Watch>) -> Self {
        Self { kernel, watch }
    }

    /// A namespace that is watched holds the kernel: the collector must see through.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.kernel)?;
        visit.call(&self.watch)
    }

    /// `NotImplemented` where a captured name stands for something else now.
    fn call<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
        grid: Option<&Bound<'py, PyAny>>,
        profile: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        if !self.watch.get().same(py)? {
            return Ok(py.NotImplemented().into_bound(py));
        }
        let kernel = self.kernel.get();
        let given = kernel.given(args, kwargs, grid, profile, Purpose::Run);
        let given = Given { watch: Some(&self.watch), ..given };
        given.launch(|call, ask| kernel.handle.prepare(&BACKENDS, call, ask))
    }
}

#[pyclass(frozen, module = "tessera._core")]
pub struct Compiled {
    inner: tessera_driver::Compiled,
    allocate: Py<PyAny>,
}

#[tessera_entry::entry]
#[pymethods]
impl Compiled {
    fn call<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
        grid: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let allocate = self.allocate.bind(args.py());
        let (kernel, purpose) = (&self.inner.kernel, Purpose::Run);
        let (replays, watch, profile) = (self.inner.replays(), None, 0);
        let given =
            Given { kernel, replays, watch, args, kwargs, grid, profile, purpose, allocate };
        given.launch(|call, ask| self.inner.prepare(&BACKENDS, call, ask))
    }

    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        for (name, value) in self.inner.config() {
            out.set_item(name, show(py, &value)?)?;
        }
        Ok(out)
    }

    fn resources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        for (name, value) in self.inner.resources() {
            out.set_item(name, value)?;
        }
        Ok(out)
    }

    fn inspect_ir(&self, py: Python<'_>, level: &str, locs: bool) -> PyResult<String> {
        text(py, enter(py, || Ok(self.inner.inspect_ir(level, locs)))?)
    }

    fn explain<'py>(&self, py: Python<'py>) -> PyResult<(String, Bound<'py, PyDict>)> {
        explained(py, enter(py, || Ok(self.inner.explain()))?)
    }

    fn cost<'py>(
        &self,
        py: Python<'py>,
        sizes: &Bound<'_, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let sizes = captures_of(sizes)?;
        counted(py, &enter(py, || self.inner.cost(&sizes))?)
    }
}

fn text(py: Python<'_>, result: Result<String, LevelError>) -> PyResult<String> {
    result.map_err(|e| match e {
        LevelError::Unknown(message) => PyValueError::new_err(message),
        LevelError::Failed(found) => exception(py, &found),
    })
}

/// The fields of the class `Cost` in Python.
fn counted<'py>(py: Python<'py>, cost: &Cost) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("flops", cost.work.flops)?;
    out.set_item("bytes", cost.work.bytes())?;
    out.set_item("traffic", cost.work.traffic())?;
    out.set_item("tiles", PyTuple::new(py, cost.grid)?)?;
    out.set_item("exact", cost.work.exact)?;
    out.set_item("seconds", cost.seconds)?;
    Ok(out)
}

fn explained(py: Python<'_>, e: Explanation) -> PyResult<(String, Bound<'_, PyDict>)> {
    let out = PyDict::new(py);
    for (name, field) in e.fields {
        let value = match field {
            Field::Text(v) => v.into_bound_py_any(py)?,
            Field::Flag(v) => v.into_bound_py_any(py)?,
            Field::Count(v) => v.into_bound_py_any(py)?,
            Field::Ints(v) => PyTuple::new(py, v)?.into_any(),
            Field::Lists(v) => {
                let rows = v.into_iter().map(|row| PyTuple::new(py, row));
                PyTuple::new(py, rows.collect::<PyResult<Vec<_>>>()?)?.into_any()
            }
            Field::Lines(v) => PyTuple::new(py, v)?.into_any(),
            Field::None => py.None().into_bound(py),
            Field::Values(rows) => {
                let dict = PyDict::new(py);
                for (key, value) in rows {
                    dict.set_item(key, show(py, &value)?)?;
                }
                dict.into_any()
            }
            Field::Texts(rows) => {
                let dict = PyDict::new(py);
                for (key, value) in rows {
                    dict.set_item(key, value)?;
                }
                dict.into_any()
            }
            Field::Times(rows) => rows
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>()
                .into_bound_py_any(py)?,
        };
        out.set_item(name, value)?;
    }
    Ok((e.text, out))
}
