//! Value numbering: which values are one number, because equal ops without effects computed them
//! from equal operands, or because equal loads read memory that nothing writes between them.

use crate::{Tile, TileOp};
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Effects, Func, OpId, Opcode, Type, Value};

/// How many ops one numbering may visit.
const FUEL: usize = 4000;

/// What makes two ops equal; the operands are the first of their classes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    code: TileOp,
    attrs: String,
    groups: Vec<usize>,
    operands: Vec<Value>,
    ty: Type,
}

/// Classes of equal values, each named by the first of its values that was met.
pub(crate) struct Numbering<'f> {
    func: &'f Func<Tile>,
    /// Values of which nothing is known: each is a class of its own.
    unknown: &'f BTreeSet<Value>,
    class: BTreeMap<Value, Value>,
    computed: BTreeMap<Key, Value>,
    /// A load that is not equal to an earlier one of its key, because of a write, begins a class.
    loads: BTreeMap<Key, Vec<OpId>>,
    fuel: usize,
}

impl<'f> Numbering<'f> {
    pub(crate) fn new(func: &'f Func<Tile>, unknown: &'f BTreeSet<Value>) -> Self {
        let (class, computed, loads) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { func, unknown, class, computed, loads, fuel: FUEL }
    }

    /// The first value of the class.
    pub(crate) fn first(&mut self, value: Value) -> Value {
        if let Some(&first) = self.class.get(&value) {
            return first;
        }
        let first = self.find(value).unwrap_or(value);
        self.class.insert(value, first);
        first
    }

    fn find(&mut self, value: Value) -> Option<Value> {
        self.fuel = self.fuel.checked_sub(1)?;
        if self.unknown.contains(&value) {
            return None;
        }
        let func = self.func;
        let id = func.def_id(value)?;
        let op = &func.ops[id];
        let effects = op.code.info().effects;
        if !op.regions.is_empty() || op.results.len() != 1 {
            return None;
        }
        if !matches!(effects, Effects::Pure | Effects::Read) {
            return None;
        }
        let mut operands: Vec<Value> = op.operands.iter().map(|&v| self.first(v)).collect();
        if let TileOp::Ew(f) = op.code
            && f.commutative()
        {
            operands[..2].sort();
        }
        let key = Key {
            code: op.code,
            attrs: format!("{:?}", op.attrs),
            groups: op.group_lens.clone(),
            operands,
            ty: func.ty(value).clone(),
        };
        if effects == Effects::Pure {
            return Some(*self.computed.entry(key).or_insert(value));
        }
        let earlier = self.loads.get(&key).cloned().unwrap_or_default();
        if let Some(&other) = earlier.iter().find(|&&other| self.undisturbed(other, id)) {
            return Some(func.ops[other].result());
        }
        self.loads.entry(key).or_default().push(id);
        None
    }

    /// Whether two ops of one block have nothing between them that may write or order memory.
    fn undisturbed(&mut self, a: OpId, b: OpId) -> bool {
        let func = self.func;
        if func.ops[a].block != func.ops[b].block {
            return false;
        }
        let ops = &func.blocks[func.ops[a].block].ops;
        let place = |id| ops.iter().position(|&op| op == id);
        let (Some(a), Some(b)) = (place(a), place(b)) else { return false };
        let between = &ops[a.min(b)..a.max(b)];
        let Some(fuel) = self.fuel.checked_sub(between.len()) else { return false };
        self.fuel = fuel;
        between.iter().all(|&id| only_reads(func, id))
    }
}

/// Whether an op, with all that its regions hold, leaves memory as it is.
fn only_reads(func: &Func<Tile>, id: OpId) -> bool {
    let op = &func.ops[id];
    match op.code.info().effects {
        Effects::Pure | Effects::Read | Effects::Terminator => true,
        Effects::Control => op
            .regions
            .iter()
            .all(|&region| func.blocks[region].ops.iter().all(|&inner| only_reads(func, inner))),
        Effects::Write
        | Effects::ReadWrite
        | Effects::Sync
        | Effects::Host
        | Effects::Collective => false,
    }
}
