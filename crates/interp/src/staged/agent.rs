//! An agent: a replica of a role, or the block outside roles. It runs op by op, so that it can stop
//! at any of them and continue later; its program counter is a stack of blocks.

use super::buffer::{MemRef, StageRef};
use super::clock::Clock;
use super::pipeline::Seat;
use crate::fault::{Outcome, broken};
use crate::machine::Machine;
use crate::value::{Data, Tile};
use std::collections::BTreeSet;
use std::sync::Arc;
use tessera_diag::Loc;
use tessera_ir::{BlockId, OpId, Value};
use tessera_staged::ops::roles::RoleInfo;
use tessera_support::Entity;

/// A value that is not a tile or scalar.
#[derive(Clone, Debug)]
pub(super) enum Handle {
    Pipeline(usize),
    Stage(StageRef),
    Memory(MemRef),
    /// The cell of an accumulator, and the newest MMA group that adds to it.
    Pending {
        cell: usize,
        newest: Option<usize>,
    },
    OrderBarrier(usize),
}

#[derive(Clone, Debug)]
pub(super) enum Val {
    Tile(Tile),
    Handle(Handle),
}

/// What a block on the stack is the body of.
#[derive(Debug)]
pub(super) enum Kind {
    Body,
    Branch { op: OpId },
    For { op: OpId, at: i64, hi: i64, step: i64, first: bool },
    WhileCond { op: OpId, carried: Vec<Val>, first: bool },
    WhileBody { op: OpId, first: bool },
    Tiles { op: OpId, list: Vec<Vec<i64>>, next: usize, first: bool },
}

#[derive(Debug)]
pub(super) struct Frame {
    pub block: BlockId,
    pub pc: usize,
    pub kind: Kind,
}

/// The outcome of a step.
pub(super) enum Progress {
    Ran,
    /// It waits, for the stated reason.
    Blocked {
        why: String,
        loc: Loc,
    },
    /// The roles of this op run now.
    Fork(OpId),
    Done,
}

pub(super) struct Agent<'p> {
    pub number: usize,
    pub seat: Seat,
    /// The op of the role, and its attributes; none for the block.
    pub role: Option<(OpId, RoleInfo)>,
    pub replica: i64,
    pub machine: Machine<'p>,
    handles: Vec<Option<Handle>>,
    pub frames: Vec<Frame>,
    /// What all its threads have seen; of each other, what they had seen at the last barrier.
    pub clock: Clock,
    /// The time of its threads.
    pub now: u64,
    /// The stages it has acquired, to fill or to read.
    pub holds: BTreeSet<StageRef>,
    /// The round of a barrier that it waits for.
    pub meeting: Option<u64>,
}

impl<'p> Agent<'p> {
    pub fn new(number: usize, seat: Seat, machine: Machine<'p>, body: BlockId) -> Self {
        let handles = vec![None; machine.program.slots];
        let frames = vec![Frame { block: body, pc: 0, kind: Kind::Body }];
        Self {
            number,
            seat,
            role: None,
            replica: 0,
            machine,
            handles,
            frames,
            clock: Clock::default(),
            now: 0,
            holds: BTreeSet::new(),
            meeting: None,
        }
    }

    /// Merges the clock and the stages of another agent.
    pub fn inherit(&mut self, from: &Agent<'_>) {
        self.handles = from.handles.clone();
        for slot in 0..self.handles.len() {
            if let Some(value) = from.machine.slot(slot) {
                self.machine.set(slot, value.clone());
            }
        }
    }

    pub fn name(&self) -> String {
        match &self.role {
            None => "the block".into(),
            Some((_, r)) if r.replicas == 1 => format!("role `{}`", r.name),
            Some((_, r)) => format!("role `{}` replica {}", r.name, self.replica),
        }
    }

    pub fn get(&self, v: Value, loc: &Loc) -> Outcome<Val> {
        if let Some(handle) = &self.handles[v.index()] {
            return Ok(Val::Handle(handle.clone()));
        }
        self.tile(v, loc).map(Val::Tile)
    }

    pub fn set(&mut self, v: Value, value: Val) {
        match value {
            Val::Tile(tile) => {
                self.handles[v.index()] = None;
                self.machine.set(v.index(), tile);
            }
            Val::Handle(handle) => self.handles[v.index()] = Some(handle),
        }
    }

    pub fn set_handle(&mut self, v: Value, handle: Handle) {
        self.set(v, Val::Handle(handle));
    }

    pub fn set_index(&mut self, v: Value, x: i64) {
        self.set(v, Val::Tile(Arc::new(Data::I64(vec![x]))));
    }

    pub fn tile(&self, v: Value, loc: &Loc) -> Outcome<Tile> {
        let value = self.machine.slot(v.index()).cloned();
        value.ok_or_else(|| broken("an operand without a value", loc))
    }

    pub fn index(&self, v: Value, loc: &Loc) -> Outcome<i64> {
        match &*self.tile(v, loc)? {
            Data::I64(xs) if xs.len() == 1 => Ok(xs[0]),
            _ => Err(broken("a position that is no index", loc)),
        }
    }

    pub fn indices(&self, vs: &[Value], loc: &Loc) -> Outcome<Vec<i64>> {
        vs.iter().map(|&v| self.index(v, loc)).collect()
    }

    pub fn memory(&self, v: Value, loc: &Loc) -> Outcome<MemRef> {
        match &self.handles[v.index()] {
            Some(Handle::Memory(mem)) => Ok(mem.clone()),
            _ => Err(broken("an operand that is no memory", loc)),
        }
    }

    pub fn pipeline(&self, v: Value, loc: &Loc) -> Outcome<usize> {
        match self.handles[v.index()] {
            Some(Handle::Pipeline(pipeline)) => Ok(pipeline),
            _ => Err(broken("an operand that is no pipeline", loc)),
        }
    }

    /// Whether the innermost loop is in its first iteration.
    pub fn in_first_iteration(&self) -> bool {
        let first = self.frames.iter().rev().find_map(|f| match f.kind {
            Kind::Body | Kind::Branch { .. } => None,
            Kind::For { first, .. }
            | Kind::WhileCond { first, .. }
            | Kind::WhileBody { first, .. }
            | Kind::Tiles { first, .. } => Some(first),
        });
        first.unwrap_or(false)
    }
}
