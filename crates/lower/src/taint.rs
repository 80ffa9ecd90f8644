//! Taint analysis: what depends on some ops through operands, through control flow, and on request
//! through memory that the kernel itself writes.

use crate::facts::{read, written, yielded};
use std::collections::BTreeSet;
use tessera_ir::{BlockId, Op, OpId, Type, Value};
use tessera_support::SideTable;
use tessera_tile::{Atom, Tile, TileFunc, TileOp, linear_of};

pub(crate) struct Taint {
    values: SideTable<Value, bool>,
    /// Control ops whose branch or iteration count depends on the seeds.
    control: BTreeSet<OpId>,
}

impl Taint {
    pub fn value(&self, value: Value) -> bool {
        self.values[value]
    }

    /// Whether an op with regions depends on the seeds: its branch, or how often it runs.
    pub fn decides(&self, id: OpId) -> bool {
        self.control.contains(&id)
    }

    /// The innermost control op around `id` that depends on the seeds.
    pub fn control_around(&self, func: &TileFunc, id: OpId) -> Option<OpId> {
        func.ancestors(func.ops[id].block).into_iter().find(|op| self.control.contains(op))
    }
}

struct Walk<'f> {
    func: &'f TileFunc,
    taint: Taint,
    memory: BTreeSet<Value>,
    rules: Rules,
    seed: &'f dyn Fn(&Op<Tile>) -> bool,
    changed: bool,
}

/// Everything that can differ where the results of the `seed` ops differ. `through_memory` says
/// whether what is stored under a different value or position is different when read back: yes
/// between groups, no between the lanes that share the memory.
pub(crate) fn taint(
    func: &TileFunc,
    through_memory: bool,
    seed: &dyn Fn(&Op<Tile>) -> bool,
) -> Taint {
    run(func, Rules { through_memory, ..Rules::default() }, seed)
}

/// The same between the lanes of a group, where lanes that shuffle from one lane get one value.
pub(crate) fn of_lanes(func: &TileFunc, seed: &dyn Fn(&Op<Tile>) -> bool) -> Taint {
    run(func, Rules { shuffles: true, ..Rules::default() }, seed)
}

/// Everything that is computed from the results of the `seed` ops by arithmetic and control flow
/// alone: what is read from memory is a number from outside.
pub(crate) fn computed_from(func: &TileFunc, seed: &dyn Fn(&Op<Tile>) -> bool) -> Taint {
    run(func, Rules { apart: true, ..Rules::default() }, seed)
}

#[derive(Copy, Clone, Default)]
struct Rules {
    through_memory: bool,
    /// A value read from memory is independent, whatever the position.
    apart: bool,
    /// Lanes that shuffle from one lane get one value.
    shuffles: bool,
}

fn run(func: &TileFunc, rules: Rules, seed: &dyn Fn(&Op<Tile>) -> bool) -> Taint {
    let taint = Taint { values: SideTable::new(false), control: BTreeSet::new() };
    let memory = BTreeSet::new();
    let mut walk = Walk { func, taint, memory, rules, seed, changed: true };
    // Marks are only ever added, so this ends.
    while walk.changed {
        walk.changed = false;
        walk.block(func.body, false);
    }
    walk.taint
}

impl Walk<'_> {
    /// Whether what an index depends on has cancelled, as in `i - i + 3`: nothing of it is in its sum.
    fn cancels(&self, op: &Op<Tile>, value: Value) -> bool {
        matches!(op.code, TileOp::Ew(_))
            && self.func.ty(value) == &Type::INDEX
            && linear_of(self.func, value).terms.keys().all(|atom| match atom {
                Atom::Dim(_) => true,
                Atom::Program(_) => false,
                Atom::Value(v) => *v != value && !self.taint.value(*v),
            })
    }

    fn mark(&mut self, value: Value, tainted: bool) {
        if tainted && !self.taint.values[value] {
            self.taint.values.set(value, true);
            self.changed = true;
        }
    }

    fn block(&mut self, block: BlockId, under: bool) {
        for &id in &self.func.blocks[block].ops {
            self.op(id, under);
        }
    }

    fn op(&mut self, id: OpId, under: bool) {
        let func = self.func;
        let op = &func.ops[id];
        match op.code {
            TileOp::For => {
                let rounds = op.positional().iter().any(|&v| self.taint.value(v));
                let args = &func.blocks[op.regions[0]].args;
                self.mark(args[0], rounds);
                self.carried(id, op.regions[0], &args[1..], rounds, under);
            }
            TileOp::While => {
                let rounds = yielded(func, op.regions[0]).iter().any(|&v| self.taint.value(v));
                let args: Vec<Value> = func.blocks[op.regions[0]].args.clone();
                for (&a, &b) in args.iter().zip(&func.blocks[op.regions[1]].args) {
                    let either = self.taint.value(a) || self.taint.value(b);
                    self.mark(a, either);
                    self.mark(b, either);
                }
                self.block(op.regions[0], under || rounds);
                self.carried(id, op.regions[1], &args, rounds, under);
            }
            TileOp::If => {
                let choice = self.taint.value(op.operands[0]);
                self.note_control(id, choice);
                for &region in &op.regions {
                    self.block(region, under || choice);
                    for (&from, &to) in yielded(func, region).iter().zip(&op.results) {
                        self.mark(to, choice || self.taint.value(from));
                    }
                }
            }
            _ => {
                let mut tainted =
                    (self.seed)(op) || op.operands.iter().any(|&v| self.taint.value(v));
                // The lanes of a group all get one result, whatever each of them gave.
                let uniform = match op.code {
                    TileOp::GroupReduce | TileOp::GroupBroadcast => true,
                    TileOp::GroupShuffle => {
                        self.rules.shuffles && !self.taint.values[op.operands[1]]
                    }
                    _ => false,
                };
                tainted &= self.rules.through_memory || !uniform;
                if let Some(memory) = read(op) {
                    tainted &= !self.rules.apart;
                    tainted |= self.memory.contains(&memory);
                }
                for &result in &op.results {
                    let here = tainted && !self.cancels(op, result);
                    self.mark(result, here);
                }
                if let Some(memory) = written(op).filter(|_| self.rules.through_memory)
                    && (tainted || under)
                    && self.memory.insert(memory)
                {
                    self.changed = true;
                }
            }
        }
    }

    /// A loop's carried values: tainted by initial values, by yields, and by a tainted iteration
    /// count.
    fn carried(&mut self, id: OpId, body: BlockId, args: &[Value], rounds: bool, under: bool) {
        let func = self.func;
        self.note_control(id, rounds);
        for (&init, &arg) in func.ops[id].group("init").iter().zip(args) {
            self.mark(arg, rounds || self.taint.value(init));
        }
        self.block(body, under || rounds);
        for ((&next, &arg), &result) in
            yielded(func, body).iter().zip(args).zip(&func.ops[id].results)
        {
            self.mark(arg, self.taint.value(next));
            self.mark(result, rounds || self.taint.value(arg));
        }
    }

    fn note_control(&mut self, id: OpId, tainted: bool) {
        if tainted && self.taint.control.insert(id) {
            self.changed = true;
        }
    }
}
