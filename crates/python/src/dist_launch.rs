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
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tessera_driver::Purpose;
use tessera_driver::dist::{Row, Runners};
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

/// A launch whose tasks take less in sum is run by the thread that submits it: about what two threads take to wake.
const SHORT: Duration = Duration::from_micros(60);

/// An argument of all tasks.
struct Column {
    name: Py<PyAny>,
    /// As declared; `None` where the call decides, or it is no array.
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
    /// Of each task, the privileges by column as its code has them.
    found: OnceLock<Vec<Vec<Option<Privilege>>>>,
}

impl IndexLaunch {
    /// That of a column, once the code of its task is known.
    fn privilege(&self, task: usize, column: usize) -> Option<Privilege> {
        let found = || self.found.get().and_then(|found| found[task][column]);
        self.columns[column].privilege.or_else(found)
    }

    /// The uses of a task, with their columns.
    fn uses<'a>(
        &'a self,
        py: Python<'a>,
        task: usize,
    ) -> impl Iterator<Item = (usize, Privilege, &'a Held)> {
        self.columns.iter().enumerate().filter_map(move |(at, column)| {
            let held = column.values[task].bind(py).cast::<Held>().ok()?;
            Some((at, self.privilege(task, at)?, held.get()))
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
        let (named, found) = (Arc::new(named), OnceLock::new());
        Ok(IndexLaunch { columns: made, count, named, calls, gives, found })
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

    /// What a task does by an argument: the name of a privilege.
    fn does(&self, task: usize, column: usize) -> Option<String> {
        self.privilege(task, column).map(|privilege| privilege.to_string())
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
        let names: Vec<String> = kernel.names().map(str::to_owned).collect();
        let mut places = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let name: String = column.name.bind(py).extract()?;
            places.push(names.iter().position(|other| *other == name));
        }
        let mut found = Vec::with_capacity(self.count);
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
            let of = |place: &Option<usize>| {
                let privilege = place.and_then(|p| call.privileges.get(p).copied().flatten())?;
                // Operators that arrays on meshes do not have fold in program order.
                Some(Privilege::parse(privilege.name()).unwrap_or(Privilege::ReadWrite))
            };
            found.push(places.iter().map(of).collect());
            calls.push(call);
            gives.push(given);
        }
        let _ = self.found.set(found);
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
        let total: Option<Duration> = calls.iter().map(PreparedCall::takes).sum();
        let caller = last.is_empty() && total.is_some_and(|time| time < SHORT);
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
        queue.take_up(py, rows, Runners { workers: most, caller }).map(TaskGroup)
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

    /// What the tasks give back, with what the caller gave in the place of its memory, and whether all of it stands so for memory that
    /// waits when it is read; `None` where that is not known before they ran.
    fn results<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyList>, bool)>> {
        let gives = self.gives.lock().unwrap_or_else(PoisonError::into_inner);
        let (made, mut known) = (PyList::empty(py), true);
        for (task, gives) in gives.iter().enumerate() {
            let Some(given) = gives.known(py) else { return Ok(None) };
            let mut stands = |one: Bound<'py, PyAny>| {
                let column = self.columns.iter().find(|column| {
                    let value = column.values[task].bind(py);
                    value.cast::<Held>().is_ok_and(|held| held.get().memory.bind(py).is(&one))
                });
                known &= column.is_some() || one.is_none();
                column.map_or(one, |column| column.shown[task].bind(py).clone())
            };
            match given.cast::<PyTuple>() {
                Ok(several) => {
                    made.append(PyTuple::new(py, several.iter().map(stands).collect::<Vec<_>>())?)?
                }
                Err(_) => made.append(stands(given))?,
            }
        }
        Ok(Some((made, known)))
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
