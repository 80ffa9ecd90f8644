//! The state of one launch: the environment, memory, and where in the grid it is.

use crate::check::Checker;
use crate::copies::Copies;
use crate::fault::{Outcome, broken};
use crate::interrupt::Poll;
use crate::lanes::Mask;
use crate::memory::Memory;
use crate::program::{Arg, Inst, Program};
use crate::value::Tile;
use crate::watch::Watcher;

pub(crate) struct Machine<'p> {
    pub program: &'p Program,
    /// The value of each SSA name, until its last use.
    values: Vec<Option<Tile>>,
    /// Views for the whole launch; buffers from their allocation on.
    memory: Vec<Option<Memory>>,
    pub consts: Vec<Tile>,
    /// The values of the dimension symbols that the program uses.
    pub dims: Vec<i64>,
    /// Lanes of a group; 1 in a group kernel.
    pub width: usize,
    /// The result of `group_size`.
    pub lanes: i64,
    pub grid: [i64; 3],
    pub group: [i64; 3],
    /// The extents of a group along the axes of its lanes, 1 along those that they do not have, and
    /// the index of its first lane over the whole launch.
    pub shape: [i64; 3],
    pub first_lane: [i64; 3],
    /// The lanes that run now, and those that exist in this group.
    pub mask: Mask,
    pub present: Mask,
    pub poll: Poll,
    /// Copies in flight that the kernel waits for itself.
    pub copies: Copies,
    /// Present in checked mode.
    pub check: Option<Box<Checker>>,
    /// Present where a host watches.
    pub watch: Option<Box<Watcher<'p>>>,
}

impl<'p> Machine<'p> {
    pub fn new(program: &'p Program) -> Self {
        let slots = program.slots;
        Self {
            program,
            values: vec![None; slots],
            memory: (0..slots).map(|_| None).collect(),
            consts: Vec::new(),
            dims: Vec::new(),
            width: 1,
            lanes: 1,
            grid: [1; 3],
            group: [0; 3],
            shape: [1; 3],
            first_lane: [0; 3],
            mask: Mask::first(1, 1),
            present: Mask::first(1, 1),
            poll: Poll::start(),
            copies: Copies::default(),
            check: None,
            watch: None,
        }
    }

    /// The place of a lane of the group along each axis: the last one counts fastest.
    pub fn coordinates(&self, lane: i64) -> [i64; 3] {
        let [_, y, z] = self.shape;
        [lane / (y * z), lane / z % y, lane % z]
    }

    pub fn set(&mut self, slot: usize, value: Tile) {
        if let Some(watcher) = &mut self.watch {
            watcher.defined(self.group, &self.mask, slot, &value);
        }
        self.values[slot] = Some(value);
    }

    pub fn forget(&mut self, slot: usize) {
        self.values[slot] = None;
    }

    pub fn set_memory(&mut self, slot: usize, memory: Memory) {
        self.copies.forget(slot);
        self.memory[slot] = Some(memory);
    }

    pub fn tolerate_unwritten(&mut self, slot: usize) {
        if let Some(memory) = &mut self.memory[slot] {
            memory.tolerate_unwritten();
        }
    }

    /// Operand `i`, borrowed.
    pub fn value(&self, inst: &Inst, i: usize) -> Outcome<&Tile> {
        let value = inst.args.get(i).and_then(|a| self.values[a.slot].as_ref());
        value.ok_or_else(|| broken("an operand without a value", &inst.loc))
    }

    /// Operand `i`, owned: without a copy, where this is its last use.
    pub fn take(&mut self, inst: &Inst, i: usize) -> Outcome<Tile> {
        let value = inst.args.get(i).and_then(|&a| self.take_arg(a));
        value.ok_or_else(|| broken("an operand without a value", &inst.loc))
    }

    pub fn take_arg(&mut self, arg: Arg) -> Option<Tile> {
        if arg.last { self.values[arg.slot].take() } else { self.values[arg.slot].clone() }
    }

    /// The current value of a slot.
    pub fn slot(&self, slot: usize) -> Option<&Tile> {
        self.values[slot].as_ref()
    }

    /// A memory by its slot, whether or not copies into it are in flight.
    pub fn raw_memory(&mut self, slot: usize) -> Option<&mut Memory> {
        self.memory[slot].as_mut()
    }

    /// The memory that a slot stands for, if it is one.
    pub fn memory_of(&self, slot: usize) -> Option<&Memory> {
        self.memory[slot].as_ref()
    }

    pub fn memory(&self, inst: &Inst, i: usize) -> Outcome<&Memory> {
        self.check_copies(inst, i)?;
        let memory = inst.args.get(i).and_then(|a| self.memory[a.slot].as_ref());
        memory.ok_or_else(|| broken("an operand that is no memory", &inst.loc))
    }

    pub fn memory_mut(&mut self, inst: &Inst, i: usize) -> Outcome<&mut Memory> {
        self.check_copies(inst, i)?;
        let memory = inst.args.get(i).and_then(|a| self.memory[a.slot].as_mut());
        memory.ok_or_else(|| broken("an operand that is no memory", &inst.loc))
    }
}
