//! Index launches: the calls of all tasks are checked, and then submitted together.

use crate::device_array::DeviceArray;
use crate::dist::{Positions, UseRow, privilege_of, use_of};
use crate::dist_tasks::{Failed, TaskGroup, TaskQueue, call, name};
use crate::enter::exception;
use crate::kernel::Kernel;
use crate::prepared::{Gives, PreparedCall};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};
use tessera_driver::Purpose;
use tessera_driver::dist::Row;
use tessera_mesh::IndexSet;
use tessera_region::{Privilege, Use, conflict};

/// Memory with the elements of a storage that are in it: what a task uses by an argument.
#[pyclass(frozen, module = "tessera._core")]
pub struct Held {
    storage: u64,
    index: Arc<[IndexSet]>,
    memory: Py<PyAny>,
}

#[tessera_entry::entry]
#[pymethods]
impl Held {
    #[new]
    fn new(storage: u64, positions: &Positions, memory: Py<PyAny>) -> Held {
        Held { storage, index: positions.0.clone(), memory }
    }
}

/// An argument of all tasks.
struct Column {
    name: Py<PyAny>,
    privilege: Option<Privilege>,
    /// Each task has memory of its own, which only the last task of the launch reads.
    alone: bool,
    /// One for each task: `Held`, or what the call is given.
    values: Vec<Py<PyAny>>,
    /// What the caller gave for them, and is given back.
    shown: Vec<Py<PyAny>>,
}

/// The name, its privilege, whether it is a task's own, the values, and what is given back for them.
type ColumnRow<'py> =
    (Bound<'py, PyAny>, String, bool, Vec<Bound<'py, PyAny>>, Vec<Bound<'py, PyAny>>);

/// The tasks of one launch, in the order of coordinates.
#[pyclass(frozen, module = "tessera._core")]
pub struct IndexLaunch {
    columns: Vec<Column>,
    count: usize,
    /// What names the tasks in errors.
    named: Arc<Py<PyAny>>,
    calls: Mutex<Vec<PreparedCall>>,
    gives: Mutex<Vec<Gives>>,
}

impl IndexLaunch {
    /// The uses of a task, with their columns.
    fn uses<'a>(
        &'a self,
        py: Python<'a>,
        task: usize,
    ) -> impl Iterator<Item = (usize, Privilege, &'a Held)> {
        self.columns.iter().enumerate().filter_map(move |(at, column)| {
            let held = column.values[task].bind(py).cast::<Held>().ok()?;
            Some((at, column.privilege?, held.get()))
        })
    }
}

#[tessera_entry::entry]
#[pymethods]
impl IndexLaunch {
    #[new]
    fn new(
        py: Python<'_>,
        columns: Vec<ColumnRow<'_>>,
        count: usize,
        named: Py<PyAny>,
    ) -> PyResult<IndexLaunch> {
        let mut made = Vec::with_capacity(columns.len());
        for (name, privilege, alone, values, shown) in columns {
            if values.len() != count || shown.len() != count {
                return Err(PyValueError::new_err("expected a value for each task"));
            }
            let privilege = match privilege.as_str() {
                "" => None,
                text => Some(privilege_of(text).map_err(|found| exception(py, &found))?),
            };
            let all = |v: Vec<Bound<'_, PyAny>>| v.into_iter().map(Bound::unbind).collect();
            let (values, shown) = (all(values), all(shown));
            made.push(Column { name: name.unbind(), privilege, alone, values, shown });
        }
        let (calls, gives) = (Mutex::default(), Mutex::default());
        Ok(IndexLaunch { columns: made, count, named: Arc::new(named), calls, gives })
    }

    /// The first two uses of tasks that interfere, as (task, column) each.
    #[allow(clippy::type_complexity)] // Two pairs of numbers.
    fn conflict(&self, py: Python<'_>) -> Option<((usize, usize), (usize, usize))> {
        let of = |task: usize| {
            let shared = self.uses(py, task).filter(|(at, ..)| !self.columns[*at].alone);
            shared.map(|(at, privilege, held)| (at, use_by(held, privilege))).unzip()
        };
        let (columns, uses): (Vec<Vec<usize>>, Vec<Vec<Use>>) = (0..self.count).map(of).unzip();
        let found = conflict(&uses)?;
        let place = |(task, at): (usize, usize)| (task, columns[task][at]);
        Some((place(found.first), place(found.second)))
    }

    /// Checks the calls of all tasks. The first `leading` columns are given by position, the others by name.
    fn prepare(
        &self,
        py: Python<'_>,
        kernel: &Kernel,
        leading: usize,
        grid: Option<&Bound<'_, PyAny>>,
        profile: usize,
    ) -> PyResult<()> {
        let (mut calls, mut gives) = (Vec::with_capacity(self.count), Vec::new());
        for task in 0..self.count {
            let memory = |column: &Column| {
                let value = column.values[task].bind(py);
                let held = value.cast::<Held>().ok().map(|held| held.get().memory.bind(py).clone());
                held.unwrap_or_else(|| value.clone())
            };
            let (first, rest) = self.columns.split_at(leading.min(self.columns.len()));
            let args = PyTuple::new(py, first.iter().map(memory))?;
            let kwargs = PyDict::new(py);
            for column in rest {
                kwargs.set_item(&column.name, memory(column))?;
            }
            let given = kernel.given(&args, &kwargs, grid, profile, Purpose::Run);
            let rank = || self.named.bind(py).call_method1("rank", (task,))?.extract();
            let (call, given) = PreparedCall::new(given, rank).map_err(|error| {
                name(py, &error, &self.named, task).unwrap_or_else(|other| other)
            })?;
            calls.push(call);
            gives.push(given);
        }
        *self.calls.lock().unwrap_or_else(PoisonError::into_inner) = calls;
        *self.gives.lock().unwrap_or_else(PoisonError::into_inner) = gives;
        Ok(())
    }

    /// Submits them, and behind them functions that use elements of an array and read what tasks held.
    fn submit(
        &self,
        py: Python<'_>,
        queue: &TaskQueue,
        last: Vec<(Py<PyAny>, UseRow<'_>, Vec<Bound<'_, Held>>)>,
        most: usize,
    ) -> PyResult<TaskGroup> {
        let calls = std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner));
        let mut rows: Vec<Row<Failed>> = Vec::with_capacity(calls.len() + last.len());
        for (task, call) in calls.into_iter().enumerate() {
            let uses = self.uses(py, task);
            let uses = uses.map(|(_, privilege, held)| use_by(held, in_order(privilege))).collect();
            rows.push((call.work(self.named.clone(), task), uses));
        }
        for (work, written, read) in last {
            let mut uses = vec![use_of(written).map_err(|found| exception(py, &found))?];
            uses.extend(read.iter().map(|held| use_by(held.get(), Privilege::Read)));
            rows.push((call(work), uses));
        }
        queue.take_up(py, rows, most).map(TaskGroup)
    }

    /// Where tasks have streams of their own: what the caller does next comes after them. They have been put there, or have failed.
    fn join(&self, py: Python<'_>) -> PyResult<()> {
        let gives = self.gives.lock().unwrap_or_else(PoisonError::into_inner);
        for (task, gives) in gives.iter().enumerate() {
            let Gives::Later(made, Some(branch)) = gives else { continue };
            branch.join(py)?;
            let made = made.lock().unwrap_or_else(PoisonError::into_inner);
            let results = made.iter().map(|made| made.bind(py).clone());
            let given = self.columns.iter().map(|column| {
                let value = column.values[task].bind(py);
                let held = value.cast::<Held>().ok();
                held.map_or_else(|| value.clone(), |held| held.get().memory.bind(py).clone())
            });
            for value in results.chain(given) {
                if let Ok(array) = value.cast::<DeviceArray>() {
                    array.get().memory.used_on(branch.after());
                }
            }
        }
        Ok(())
    }

    /// What the tasks give back, with what the caller gave in the place of its memory; `None` where that is not known before they ran.
    fn results<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let gives = self.gives.lock().unwrap_or_else(PoisonError::into_inner);
        let made = PyList::empty(py);
        for (task, gives) in gives.iter().enumerate() {
            let Some(given) = gives.known(py) else { return Ok(None) };
            let stands = |one: Bound<'py, PyAny>| {
                let column = self.columns.iter().find(|column| {
                    let value = column.values[task].bind(py);
                    value.cast::<Held>().is_ok_and(|held| held.get().memory.bind(py).is(&one))
                });
                column.map_or(one, |column| column.shown[task].bind(py).clone())
            };
            match given.cast::<PyTuple>() {
                Ok(several) => {
                    made.append(PyTuple::new(py, several.iter().map(stands).collect::<Vec<_>>())?)?
                }
                Err(_) => made.append(stands(given))?,
            }
        }
        Ok(Some(made))
    }
}

fn use_by(held: &Held, privilege: Privilege) -> Use {
    Use { storage: held.storage, index: held.index.clone(), privilege }
}

/// Tasks that fold into one element run one after the other, in program order: sums have the same bits in every run.
fn in_order(privilege: Privilege) -> Privilege {
    match privilege {
        Privilege::Reduce(_) => Privilege::ReadWrite,
        Privilege::Read | Privilege::Write | Privilege::ReadWrite => privilege,
    }
}
