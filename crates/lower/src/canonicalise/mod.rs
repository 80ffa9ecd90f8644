//! `tile-canonicalise`: constant folding, common subexpression elimination and dead code
//! elimination, to one canonical form.
//!
//! Input: any verified function. Output: no pure op or load without a use; no op over constants
//! that folds; no loop-carried value that only its own next value uses; no division of floats by a power of two, which becomes a multiplication; no
//! conversion or broadcast to the type that a value has; no pure op that repeats one in its block
//! or a block around it; no `if` on a constant; scalars known before the kernel begins (constants,
//! dims, program ids) are at the top, once each. Running it again changes nothing. Names of values
//! are kept.
//! Must not: change a bit of a result, move or drop a write, or drop a `while`, which may not end.

mod carried;
mod fold;

use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::{Diagnostics, Loc};
use tessera_ir::{
    BlockId, Changed, Effects, Func, OpId, OpSpec, Opcode, Pass, PassContext, Rewriter, Type,
    Value, ValueDef,
};
use tessera_numerics::{Scalar, ScalarFn};
use tessera_tile::{Tile, TileFunc, TileOp};

pub struct Canonicalise;

impl Pass<Tile> for Canonicalise {
    fn name(&self) -> &'static str {
        "tile-canonicalise"
    }

    fn run(&self, func: &mut TileFunc, _context: &mut PassContext) -> Result<Changed, Diagnostics> {
        let before = func.to_string();
        let mut canon = Canon { rw: Rewriter::new(func), seen: vec![BTreeMap::new()], top: 0 };
        let into = canon.rw.new.body;
        canon.block(func.body, into);
        let mut new = canon.rw.new;
        carried::remove_unused_carried(&mut new);
        remove_dead(&mut new);
        let changed = new.to_string() != before;
        *func = new;
        Ok(if changed { Changed::Yes } else { Changed::No })
    }
}

/// What makes two pure ops one. Attributes and types are compared as text, which is exact.
type Key = (TileOp, Vec<Value>, String, String);

struct Canon<'f> {
    rw: Rewriter<'f, Tile>,
    /// Pure ops already there, by block from the outermost in.
    seen: Vec<BTreeMap<Key, Value>>,
    /// Where the next op that belongs at the top of the body goes.
    top: usize,
}

fn at_top(code: TileOp) -> bool {
    matches!(code, TileOp::Const | TileOp::Dim | TileOp::ProgramId | TileOp::NumPrograms)
}

impl Canon<'_> {
    fn block(&mut self, from: BlockId, into: BlockId) {
        let old: &Func<Tile> = self.rw.old;
        for &id in &old.blocks[from].ops {
            self.op(id, into);
        }
    }

    fn op(&mut self, id: OpId, into: BlockId) {
        let old: &Func<Tile> = self.rw.old;
        let op = &old.ops[id];
        if op.code == TileOp::If
            && let Some(Scalar::Bool(taken)) =
                fold::constant(&self.rw.new, self.rw.get(op.operands[0]))
        {
            return self.inline(op.regions[usize::from(!taken)], &op.results, into);
        }
        let info = op.code.info();
        let plain = info.groups.is_empty() && op.results.len() == 1;
        if info.effects != Effects::Pure || !plain {
            return self.copy(id, into);
        }
        let operands: Vec<Value> = op.operands.iter().map(|&v| self.rw.get(v)).collect();
        let ty = old.ty(op.result()).clone();
        if let Some(same) = fold::same_as(&self.rw.new, op, &operands, &ty) {
            return self.stand_in(op.result(), same);
        }
        let value = if let Some(value) = fold::fold(&self.rw.new, op, &operands, &ty) {
            let spec = OpSpec::new(TileOp::Const, &[]).attr("value", value).result(ty);
            self.pure(spec, &op.loc, into)
        } else if let Some(value) = fold::inverse(&self.rw.new, op, &operands) {
            let scalar = Type::Scalar(ty.dtype());
            let spec = OpSpec::new(TileOp::Const, &[]).attr("value", value).result(scalar.clone());
            let mut by = self.pure(spec, &op.loc, into);
            if ty != scalar {
                let spec = OpSpec::new(TileOp::Broadcast, &[by]).result(ty.clone());
                by = self.pure(spec, &op.loc, into);
            }
            let code = TileOp::Ew(ScalarFn::Mul);
            self.pure(OpSpec::new(code, &[operands[0], by]).result(ty), &op.loc, into)
        } else {
            let mut spec = OpSpec::new(op.code, &operands).result(ty);
            spec.attrs = op.attrs.clone();
            self.pure(spec, &op.loc, into)
        };
        self.stand_in(op.result(), value);
    }

    /// The value of a pure op, made where there is none yet.
    fn pure(&mut self, spec: OpSpec<Tile>, loc: &Loc, into: BlockId) -> Value {
        let ty = spec
            .results
            .as_ref()
            .map_or(String::new(), |t| t.iter().map(Type::to_string).collect());
        let key = (spec.code, spec.operands.clone(), spec.attrs.to_string(), ty);
        if let Some(&value) = self.seen.iter().find_map(|scope| scope.get(&key)) {
            return value;
        }
        let hoisted = at_top(spec.code) && spec.attrs.get("unset").is_none();
        let body = self.rw.new.body;
        let (block, place) = if hoisted {
            self.top += 1;
            (body, self.top - 1)
        } else {
            (into, self.rw.new.blocks[into].ops.len())
        };
        let id =
            self.rw.new.insert(block, place, spec, loc.clone()).expect("the result type is given");
        let value = self.rw.new.ops[id].result();
        let scope = if hoisted { 0 } else { self.seen.len() - 1 };
        self.seen[scope].insert(key, value);
        value
    }

    /// `new` stands for `old` from here on, and takes its name if it has none.
    fn stand_in(&mut self, old: Value, new: Value) {
        self.rw.set(old, new);
        if crate::facts::user_name(&self.rw.new, new).is_none()
            && crate::facts::user_name(self.rw.old, old).is_some()
        {
            self.rw.new.values[new].name = self.rw.old.values[old].name.clone();
        }
    }

    /// Copies an op that is not pure, and makes what is in its regions canonical.
    fn copy(&mut self, id: OpId, into: BlockId) {
        let old: &Func<Tile> = self.rw.old;
        let op = &old.ops[id];
        let operands: Vec<Value> = op.positional().iter().map(|&v| self.rw.get(v)).collect();
        let mut spec = OpSpec::new(op.code, &operands).optional_region(!op.regions.is_empty());
        for group in op.code.info().groups {
            let values: Vec<Value> = op.group(group.name).iter().map(|&v| self.rw.get(v)).collect();
            spec = spec.group(group.name, &values);
        }
        spec.attrs = op.attrs.clone();
        spec = spec.results(op.results.iter().map(|&v| old.ty(v).clone()).collect());
        let place = self.rw.new.blocks[into].ops.len();
        let new = self
            .rw
            .new
            .insert(into, place, spec, op.loc.clone())
            .expect("the result types are given");
        for (&from, to) in op.results.iter().zip(self.rw.new.ops[new].results.clone()) {
            self.rw.new.values[to].name = old.values[from].name.clone();
            self.rw.set(from, to);
        }
        for (&from, to) in op.regions.iter().zip(self.rw.new.ops[new].regions.clone()) {
            self.rw.copy_args(from, to);
            self.seen.push(BTreeMap::new());
            self.block(from, to);
            self.seen.pop();
        }
    }

    /// Puts the ops of a region where its `if` stood.
    fn inline(&mut self, region: BlockId, results: &[Value], into: BlockId) {
        let old: &Func<Tile> = self.rw.old;
        for &id in &old.blocks[region].ops {
            if !old.ops[id].is_terminator() {
                self.op(id, into);
            }
        }
        for (&value, &result) in crate::facts::yielded(old, region).iter().zip(results) {
            let value = self.rw.get(value);
            self.stand_in(result, value);
        }
    }
}

/// Removes every op that neither has an effect nor a used result.
pub(crate) fn remove_dead(func: &mut TileFunc) {
    let mut live: BTreeSet<OpId> = BTreeSet::new();
    let mut work: Vec<OpId> = func.walk().into_iter().filter(|&id| is_root(func, id)).collect();
    while let Some(id) = work.pop() {
        if !live.insert(id) {
            continue;
        }
        let op = &func.ops[id];
        work.extend(func.blocks[op.block].parent);
        work.extend(op.regions.iter().filter_map(|&r| func.terminator(r)));
        for &operand in &op.operands {
            match func.values[operand].def {
                ValueDef::Result(def, _) => work.push(def),
                ValueDef::Arg(block, _) => work.extend(func.blocks[block].parent),
            }
        }
    }
    for block in func.blocks.ids() {
        func.blocks[block].ops.retain(|op| live.contains(op));
    }
}

fn is_root(func: &TileFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    match op.code.info().effects {
        Effects::Pure | Effects::Read => false,
        Effects::Write => op.code != TileOp::BufAlloc,
        Effects::ReadWrite | Effects::Sync | Effects::Host | Effects::Collective => true,
        Effects::Control => op.code == TileOp::While,
        Effects::Terminator => op.code == TileOp::Return,
    }
}
