//! Programs of ranks as lists of actions over buffers, and the calls of tests in short.

use std::sync::Arc;
use tessera_comm::{Call, Cursor, GroupId, Kind, Memory, Piece, Request, Step};
use tessera_diag::{Diagnostics, Loc, SourceFile};
use tessera_numerics::DType;

pub enum Action {
    Start(Box<Request>),
    Wait(usize),
    /// Work of the rank: fills one buffer from another.
    Compute(Box<dyn FnMut() + Send>),
}

pub struct Script {
    actions: std::vec::IntoIter<Action>,
}

impl Script {
    pub fn new(actions: Vec<Action>) -> Self {
        Self { actions: actions.into_iter() }
    }
}

impl Cursor for Script {
    fn step(&mut self) -> Result<Step, Diagnostics> {
        loop {
            match self.actions.next() {
                None => return Ok(Step::Ended),
                Some(Action::Start(request)) => return Ok(Step::Start(request)),
                Some(Action::Wait(number)) => return Ok(Step::Wait(number)),
                Some(Action::Compute(mut work)) => work(),
            }
        }
    }
}

/// Line `line` of a program of 20 lines.
pub fn line(line: u32) -> Loc {
    let text: String = (1..=20).map(|i| format!("y{i} = all_reduce(x)\n")).collect();
    let file: Arc<SourceFile> = SourceFile::new("program.py", text, 1);
    Loc::span(&file, line, 1, line, 4)
}

pub fn call(kind: Kind, dtype: DType, counts: &[u64], at: u32) -> Call {
    Call { kind, dtype, counts: counts.to_vec(), at: line(at), part_of: None }
}

/// A buffer that outlives the run that it is lent to.
pub fn memory(buffer: &mut [u8]) -> Memory {
    // SAFETY: tests keep buffers until the run is over, and look at them only then.
    unsafe { Memory::host(buffer.as_mut_ptr(), buffer.len()) }
}

/// One buffer that is sent whole and received into whole.
pub fn in_place(group: GroupId, call: Call, buffer: &mut [u8]) -> Request {
    let all: Arc<[Piece]> = [Piece::contiguous(0, buffer.len())].into();
    let (from, to) = (memory(buffer), memory(buffer));
    Request { group, call: call.into(), from, send: all.clone(), to, receive: all }
}
