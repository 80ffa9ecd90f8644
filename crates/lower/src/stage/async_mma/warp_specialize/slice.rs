//! Backward slice of a function: the ops that some ops need, the control flow around them, and of
//! the carried values only those that are used. `warp_specialize` makes one for each role.

use super::super::uses::{is_control, leading, yielded};
use std::collections::BTreeSet;
use tessera_ir::{BlockId, OpId, OpSpec, Rewriter, Type, Value, ValueDef};
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp};
use tessera_tile::TileOp;

pub struct Slice<'f> {
    func: &'f StagedFunc,
    ops: BTreeSet<OpId>,
    /// Used results of control ops, with the matching region arguments and yields.
    carried: BTreeSet<(OpId, usize)>,
    open: Vec<Value>,
}

impl<'f> Slice<'f> {
    /// The ops that `wanted` picks among `from` and their regions, and what they need.
    pub fn of(func: &'f StagedFunc, from: &[OpId], wanted: impl Fn(OpId) -> bool) -> Self {
        let (ops, carried, open) = Default::default();
        let mut slice = Self { func, ops, carried, open };
        let mut all = from.to_vec();
        for &id in from {
            func.ops[id].regions.iter().for_each(|&r| func.walk_block(r, &mut |o| all.push(o)));
        }
        for id in all {
            if wanted(id) {
                slice.keep(id);
            }
        }
        while let Some(v) = slice.open.pop() {
            slice.need(v);
        }
        slice
    }

    pub fn ops(&self) -> impl Iterator<Item = OpId> {
        self.ops.iter().copied()
    }

    fn keep(&mut self, id: OpId) {
        if !self.ops.insert(id) {
            return;
        }
        let op = &self.func.ops[id];
        if is_control(op.code) {
            self.open.extend(op.positional());
            self.open.extend(op.group("grid"));
            if op.code == StagedOp::Tile(TileOp::While) {
                self.open.extend(yielded(self.func, op.regions[0]));
            }
        } else {
            self.open.extend(&op.operands);
        }
        if let Some(around) = self.func.blocks[op.block].parent {
            self.keep(around);
        }
    }

    fn need(&mut self, v: Value) {
        match self.func.values[v].def {
            ValueDef::Result(id, i) => {
                self.keep(id);
                if is_control(self.func.ops[id].code) {
                    self.carry(id, i);
                }
            }
            ValueDef::Arg(block, i) => {
                let Some(id) = self.func.blocks[block].parent else { return };
                self.keep(id);
                if let Some(i) = i.checked_sub(leading(self.func, id)) {
                    self.carry(id, i);
                }
            }
        }
    }

    fn carry(&mut self, id: OpId, i: usize) {
        if !self.carried.insert((id, i)) {
            return;
        }
        let op = &self.func.ops[id];
        self.open.extend(op.group("init").get(i));
        for (at, &region) in op.regions.iter().enumerate() {
            if !asks(op.code, at) {
                self.open.extend(yielded(self.func, region).get(i));
            }
        }
    }

    /// Copies an op, or the kept part of it.
    pub fn copy(&self, rw: &mut Rewriter<'_, Staged>, id: OpId, into: BlockId) {
        let op = &self.func.ops[id];
        if !self.ops.contains(&id) {
            return;
        }
        if !is_control(op.code) {
            let new = rw.copy_op(id, into);
            // A barrier of the block becomes one of the role's threads.
            if op.code == StagedOp::BlockBarrier {
                rw.new.ops[new].code = StagedOp::RoleBarrier;
            }
            return;
        }
        let kept = |i: &usize| self.carried.contains(&(id, *i));
        let pick = |values: &[Value]| -> Vec<Value> {
            (0..values.len()).filter(kept).map(|i| values[i]).collect()
        };
        let new_of = |rw: &Rewriter<'_, Staged>, values: &[Value]| -> Vec<Value> {
            values.iter().map(|&v| rw.get(v)).collect()
        };
        let results = pick(&op.results);
        let types: Vec<Type> = results.iter().map(|&v| self.func.ty(v).clone()).collect();
        let mut spec = OpSpec::new(op.code, &new_of(rw, op.positional())).results(types);
        for group in tessera_ir::Opcode::info(op.code).groups {
            let values = match group.name {
                "init" => pick(op.group("init")),
                name => op.group(name).to_vec(),
            };
            spec = spec.group(group.name, &new_of(rw, &values));
        }
        spec.attrs = op.attrs.clone();
        let new = rw.builder(into, op.loc.clone()).op(spec).expect("result types are given");
        let regions = rw.new.ops[new].regions.clone();
        let first = leading(self.func, id);
        for (at, (&from, &to)) in op.regions.iter().zip(&regions).enumerate() {
            for (i, &arg) in self.func.blocks[from].args.iter().enumerate() {
                if i.checked_sub(first).is_none_or(|i| kept(&i)) {
                    let name = self.func.name_of(arg);
                    let value = rw.new.add_arg(to, self.func.ty(arg).clone(), name);
                    rw.set(arg, value);
                }
            }
            for &inner in &self.func.blocks[from].ops {
                self.copy(rw, inner, to);
            }
            let ends = yielded(self.func, from);
            let ends = if asks(op.code, at) { ends.to_vec() } else { pick(ends) };
            let ends = new_of(rw, &ends);
            rw.builder(to, op.loc.clone()).yield_(&ends);
        }
        let made = rw.new.ops[new].results.clone();
        for (&v, &r) in results.iter().zip(&made) {
            rw.set(v, r);
            rw.new.values[r].name = self.func.values[v].name.clone();
        }
    }
}

/// Whether a region computes a loop's condition and yields nothing else.
fn asks(code: StagedOp, region: usize) -> bool {
    code == StagedOp::Tile(TileOp::While) && region == 0
}
