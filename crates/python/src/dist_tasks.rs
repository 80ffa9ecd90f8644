//! The queue of tasks, for the package `dist`: failures as exceptions, waits that hear signals, and tasks that are functions of Python.

use crate::dist::{UseRow, use_of};
use crate::enter::{exception, held};
use crate::report;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::prelude::*;
use std::any::Any;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_driver::dist::{Failure, Queue, Row, Submitted, Until, Waited, in_task};
use tessera_driver::is_interrupt;

/// How long a wait goes on before signals are looked at.
const LISTEN: Duration = Duration::from_millis(50);

/// What went wrong in a task.
pub enum Fault {
    /// In a call, with what names its task, and the number there.
    Found(Diagnostics, Arc<Py<PyAny>>, usize),
    Raised {
        error: PyErr,
        interrupts: bool,
    },
    Panic(String),
    GivenUp,
}

#[derive(Clone)]
pub struct Failed(pub Arc<Fault>);

impl Failure for Failed {
    fn interrupts(&self) -> bool {
        matches!(*self.0, Fault::Raised { interrupts: true, .. })
    }

    fn of_panic(panic: Box<dyn Any + Send>) -> Self {
        let text = panic
            .downcast::<String>()
            .map(|text| *text)
            .or_else(|other| other.downcast::<&'static str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|_| "a panic without a text".to_owned());
        Failed(Arc::new(Fault::Panic(text)))
    }

    fn given_up() -> Self {
        Failed(Arc::new(Fault::GivenUp))
    }
}

impl Failed {
    /// What a call of a kernel ended with.
    pub fn of_call(found: Diagnostics, named: &Arc<Py<PyAny>>, task: usize) -> Failed {
        let fault = match held().filter(|_| is_interrupt(&found)) {
            Some(error) => Fault::Raised { error, interrupts: true },
            None => Fault::Found(found, named.clone(), task),
        };
        Failed(Arc::new(fault))
    }

    /// What a call ended with that ran with the interpreter.
    pub fn raised_by(py: Python<'_>, error: PyErr, named: &Py<PyAny>, task: usize) -> Failed {
        Failed::raised(py, name(py, &error, named, task).unwrap_or(error))
    }

    pub fn raised(py: Python<'_>, error: PyErr) -> Failed {
        let stops = error.is_instance_of::<PyKeyboardInterrupt>(py);
        let interrupts = stops || !error.is_instance_of::<PyException>(py);
        Failed(Arc::new(Fault::Raised { error, interrupts }))
    }

    /// The exception, which names the task.
    pub fn exception(&self, py: Python<'_>) -> PyErr {
        match &*self.0 {
            Fault::Found(found, named, task) => {
                name(py, &exception(py, found), named, *task).unwrap_or_else(|error| error)
            }
            Fault::Raised { error, .. } => error.clone_ref(py),
            Fault::Panic(text) => report::internal(py, text),
            Fault::GivenUp => exception(
                py,
                &Diagnostic::new(Code::E_UNSUPPORTED, "the task was given up before it ran")
                    .help("the process forked or ended while it waited: call `dist.wait()` before")
                    .into(),
            ),
        }
    }
}

/// The exception of a task, with its kernel, part and rank.
pub fn name(py: Python<'_>, error: &PyErr, named: &Py<PyAny>, task: usize) -> PyResult<PyErr> {
    let made = named.bind(py).call_method1("named", (error.value(py), task))?;
    let made = PyErr::from_value(made);
    made.set_cause(py, error.cause(py));
    Ok(made)
}

pub type Group = Arc<Submitted<Failed>>;

/// The tasks that were submitted together.
#[pyclass(frozen, module = "tessera._core")]
pub struct TaskGroup(pub Group);

#[tessera_entry::entry]
#[pymethods]
impl TaskGroup {
    #[getter]
    fn state(&self) -> &'static str {
        match (self.0.is_done(), self.0.failure()) {
            (false, _) => "running",
            (true, None) => "done",
            (true, Some(_)) => "failed",
        }
    }
}

static PROCESS: LazyLock<Arc<Queue<Failed>>> = LazyLock::new(Arc::default);

/// Tasks in the order of the program.
#[pyclass(frozen, module = "tessera._core")]
pub struct TaskQueue(pub Arc<Queue<Failed>>);

impl TaskQueue {
    fn wait_until(&self, py: Python<'_>, until: &Until<'_, Failed>) -> PyResult<()> {
        loop {
            match py.detach(|| self.0.wait(until, LISTEN)) {
                Waited::Done => return Ok(()),
                Waited::Interrupted(failure) => return Err(failure.exception(py)),
                Waited::Later => py.check_signals()?,
            }
        }
    }

    /// Waits for a group, and raises its failure.
    pub fn wait_group(&self, py: Python<'_>, group: &Group) -> PyResult<()> {
        if in_task() && !group.is_done() {
            return Err(inside(py, "a wait for tasks"));
        }
        if !group.is_done() {
            self.wait_until(py, &Until::Done(group))?;
        }
        match group.failure() {
            Some((began, failure)) => {
                self.0.saw(began);
                Err(failure.exception(py))
            }
            None => Ok(()),
        }
    }

    pub fn take_up(&self, py: Python<'_>, rows: Vec<Row<Failed>>, most: usize) -> PyResult<Group> {
        if in_task() {
            return Err(inside(py, "an index launch"));
        }
        self.0.submit(rows, most).map_err(|failure| failure.exception(py))
    }
}

fn inside(py: Python<'_>, what: &str) -> PyErr {
    let text =
        format!("{what} inside a task: a task that waits for later ones would wait for itself");
    let found = Diagnostic::new(Code::E_UNSUPPORTED, text)
        .help("methods of mappers are called by tasks too: launch when they have returned");
    exception(py, &found.into())
}

/// A task that is a function of Python.
pub fn call(work: Py<PyAny>) -> tessera_driver::dist::Work<Failed> {
    Box::new(move || {
        Python::attach(|py| {
            let work = work.into_bound(py);
            work.call0().map(drop).map_err(|error| Failed::raised(py, error))
        })
    })
}

#[tessera_entry::entry]
#[pymethods]
impl TaskQueue {
    /// A queue of its own, for tests.
    #[new]
    fn new() -> TaskQueue {
        TaskQueue(Arc::default())
    }

    /// That of the process.
    #[staticmethod]
    fn of_process() -> TaskQueue {
        TaskQueue(PROCESS.clone())
    }

    /// Takes up tasks that are functions of Python.
    fn submit(
        &self,
        py: Python<'_>,
        rows: Vec<(Py<PyAny>, Vec<UseRow<'_>>)>,
        most: usize,
    ) -> PyResult<TaskGroup> {
        let mut made: Vec<Row<Failed>> = Vec::with_capacity(rows.len());
        for (work, uses) in rows {
            let uses = uses.into_iter().map(use_of).collect::<Result<Vec<_>, _>>();
            made.push((call(work), uses.map_err(|found| exception(py, &found))?));
        }
        self.take_up(py, made, most).map(TaskGroup)
    }

    fn wait(&self, py: Python<'_>, group: &TaskGroup) -> PyResult<()> {
        self.wait_group(py, &group.0)
    }

    /// Waits until elements can be used; raises what went wrong before that.
    fn wait_for(&self, py: Python<'_>, wanted: UseRow<'_>) -> PyResult<()> {
        if self.0.is_quiet() {
            return Ok(());
        }
        let wanted = use_of(wanted).map_err(|found| exception(py, &found))?;
        let before = self.0.before(&wanted);
        if !before.is_empty() {
            self.wait_until(py, &Until::Tasks(before))?;
        }
        // What went wrong before may have left the elements as they were.
        self.raise_unseen(py)
    }

    /// Waits for all tasks; raises the first failure that was not raised.
    fn wait_all(&self, py: Python<'_>) -> PyResult<()> {
        if !self.0.is_empty() {
            self.wait_until(py, &Until::Below(self.0.end_of_all()))?;
        }
        self.raise_unseen(py)
    }

    fn raise_unseen(&self, py: Python<'_>) -> PyResult<()> {
        self.0.report().map_or(Ok(()), |failure| Err(failure.exception(py)))
    }

    /// Waits for all tasks, for the end of the program; gives what was not raised. A second interrupt gives up what has not begun.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let end = self.0.end_of_all();
        let waited =
            if self.0.is_empty() { Ok(()) } else { self.wait_until(py, &Until::Below(end)) };
        if waited.is_err() {
            py.detach(|| self.0.give_up());
            self.0.report_all();
        }
        self.0.close();
        waited?;
        let all = self.0.report_all();
        Ok(all
            .iter()
            .map(|failure| failure.exception(py).into_value(py).into_bound(py).into_any())
            .collect())
    }

    /// How many tasks have not ended.
    fn __len__(&self) -> usize {
        self.0.len()
    }
}

impl Drop for TaskQueue {
    fn drop(&mut self) {
        if !Arc::ptr_eq(&self.0, &PROCESS) {
            self.0.close();
        }
    }
}

/// How long a fork waits for tasks.
const PATIENCE: Duration = Duration::from_secs(20);

/// Before a fork: tasks end, so that a child finds no array half written and waits for nobody.
pub fn before_fork() {
    if !in_task() {
        let _ = PROCESS.wait(&Until::Below(PROCESS.end_of_all()), PATIENCE);
    }
}

/// In a child.
pub fn forked() {
    PROCESS.forked();
}
