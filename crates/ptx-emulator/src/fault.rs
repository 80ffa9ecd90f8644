//! Faults of a run: the kind, the instruction, the thread, the source location.

use super::program::Program;
use std::fmt;
use tessera_diag::{Code, Diagnostic, Loc, SourceFile};
use tessera_ptx::module::{Kernel, Module, Stmt};
use tessera_ptx::print::Guarded;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The kernel or the launch is invalid: a missing label, a wrong register class.
    Invalid,
    /// The instruction is known and not interpreted.
    Unsupported,
    OutOfBounds,
    ReadOnly,
    Misaligned,
    Uninitialised,
    /// A byte is used while an asynchronous copy into it or from it is in flight.
    InFlight,
    /// An asynchronous copy would read what threads have not made visible to the async proxy.
    Unfenced,
    /// Threads that an instruction needs converged have diverged.
    Divergent,
    Deadlock,
    Race,
    Trap,
    StepLimit,
}

/// A source location that the kernel's line table names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub file: String,
    pub line: u32,
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Why a run ended early.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault(Box<Report>);

#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    pub kind: FaultKind,
    pub message: String,
    /// The instruction as text, and its statement in the kernel's body.
    pub inst: Option<String>,
    pub stmt: Option<usize>,
    pub place: Option<Place>,
    pub block: Option<[u32; 3]>,
    /// The thread index in its block.
    pub thread: Option<u32>,
    pub address: Option<u64>,
    pub notes: Vec<String>,
}

impl std::ops::Deref for Fault {
    type Target = Report;
    fn deref(&self) -> &Report {
        &self.0
    }
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(inst) = &self.inst {
            write!(f, "\n  at `{inst}`")?;
        }
        if let Some(stmt) = self.stmt {
            write!(f, " (statement {stmt})")?;
        }
        if let Some(place) = &self.place {
            write!(f, "\n  from {place}")?;
        }
        if let Some([x, y, z]) = self.block {
            write!(f, "\n  in block ({x}, {y}, {z})")?;
        }
        if let Some(thread) = self.thread {
            write!(f, ", thread {thread} (warp {}, lane {})", thread / 32, thread % 32)?;
        }
        for note in &self.notes {
            write!(f, "\n  {note}")?;
        }
        Ok(())
    }
}

impl Fault {
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Fault(Box::new(Report {
            kind: FaultKind::Invalid,
            message: message.into(),
            inst: None,
            stmt: None,
            place: None,
            block: None,
            thread: None,
            address: None,
            notes: Vec::new(),
        }))
    }

    pub(super) fn of(kind: FaultKind, message: impl Into<String>) -> Self {
        let mut fault = Self::invalid(message);
        fault.0.kind = kind;
        fault
    }

    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.0.notes.push(note.into());
        self
    }

    /// Adds where in the kernel it happened.
    pub(super) fn at_stmt(mut self, module: &Module, kernel: &Kernel, stmt: usize) -> Self {
        self.0.inst = inst_text(kernel, stmt);
        self.0.stmt = Some(stmt);
        self.0.place = place_of(module, kernel, stmt);
        self
    }

    pub(super) fn in_block(mut self, block: [u32; 3]) -> Self {
        self.0.block = Some(block);
        self
    }

    pub(super) fn by(mut self, thread: Option<u32>, address: Option<u64>) -> Self {
        self.0.thread = thread;
        self.0.address = address;
        self
    }

    pub fn code(&self) -> Code {
        match self.kind {
            FaultKind::OutOfBounds => Code::E_OOB,
            FaultKind::ReadOnly => Code::E_READ_ONLY,
            FaultKind::Uninitialised => Code::E_UNINIT,
            FaultKind::InFlight => Code::E_UNWAITED,
            FaultKind::Divergent => Code::E_DIVERGENT_BARRIER,
            FaultKind::Race => Code::E_RACE,
            FaultKind::Unsupported => Code::E_UNSUPPORTED,
            FaultKind::Trap => Code::E_ASSERT,
            FaultKind::Invalid
            | FaultKind::Misaligned
            | FaultKind::Unfenced
            | FaultKind::Deadlock
            | FaultKind::StepLimit => Code::E_UNKNOWN,
        }
    }
}

impl From<&Fault> for Diagnostic {
    fn from(fault: &Fault) -> Diagnostic {
        let mut d = Diagnostic::new(fault.code(), fault.message.clone());
        if let Some(place) = &fault.place {
            let file = SourceFile::new(place.file.clone(), "", 1);
            let (line, column) = (place.line, place.column);
            d = d.at(Loc::span(&file, line, column, line, column + 1));
        }
        if let Some(inst) = &fault.inst {
            d = d.note(format!("at the instruction `{inst}`"));
        }
        if let Some([x, y, z]) = fault.block {
            let thread = fault.thread.map_or(String::new(), |t| format!(", thread {t}"));
            d = d.note(format!("in block ({x}, {y}, {z}){thread}"));
        }
        fault.notes.iter().fold(d, |d, note| d.note(note.clone()))
    }
}

impl From<Fault> for Diagnostic {
    fn from(fault: Fault) -> Diagnostic {
        Diagnostic::from(&fault)
    }
}

fn inst_text(kernel: &Kernel, stmt: usize) -> Option<String> {
    match kernel.body.get(stmt) {
        Some(Stmt::Inst { guard, inst }) => Some(Guarded { guard: *guard, inst }.to_string()),
        Some(Stmt::Label(_) | Stmt::Place { .. } | Stmt::Note(_)) | None => None,
    }
}

/// The last source location before a statement.
fn place_of(module: &Module, kernel: &Kernel, stmt: usize) -> Option<Place> {
    kernel.body[..=stmt.min(kernel.body.len().checked_sub(1)?)].iter().rev().find_map(|s| match s {
        Stmt::Place { file, line, column } => {
            let name = module.files.get((*file as usize).wrapping_sub(1));
            let file = name.cloned().unwrap_or_else(|| format!("file {file}"));
            Some(Place { file, line: *line, column: *column })
        }
        Stmt::Inst { .. } | Stmt::Label(_) | Stmt::Note(_) => None,
    })
}

/// A fault as an instruction reports it, before its location is known.
#[derive(Debug)]
pub(super) struct Trouble {
    pub kind: FaultKind,
    pub message: String,
    pub lane: Option<u32>,
    pub address: Option<u64>,
    pub notes: Vec<String>,
}

pub(super) type Res<T> = Result<T, Box<Trouble>>;

impl Trouble {
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Box<Self> {
        let message = message.into();
        Box::new(Trouble { kind, message, lane: None, address: None, notes: Vec::new() })
    }

    pub fn lane(mut self: Box<Self>, lane: usize) -> Box<Self> {
        self.lane.get_or_insert(lane as u32);
        self
    }

    pub fn address(mut self: Box<Self>, address: u64) -> Box<Self> {
        self.address = Some(address);
        self
    }

    pub fn note(mut self: Box<Self>, note: impl Into<String>) -> Box<Self> {
        self.notes.push(note.into());
        self
    }
}

/// How a note about another instruction names one.
pub(super) fn name_step(module: &Module, kernel: &Kernel, program: &Program, pc: u32) -> String {
    let Some(&stmt) = program.origin.get(pc as usize) else { return "the end".to_string() };
    let stmt = stmt as usize;
    let text = inst_text(kernel, stmt).unwrap_or_else(|| "the end".to_string());
    match place_of(module, kernel, stmt) {
        Some(place) => format!("`{text}` (statement {stmt}, {place})"),
        None => format!("`{text}` (statement {stmt})"),
    }
}
