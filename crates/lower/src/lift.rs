//! `tile-lift` (LANGUAGE 8), promotion of memory to values (LLVM's mem2reg for tiles): shared
//! buffers of group kernels become the values last copied into them.
//!
//! Input: buffers, copies and barriers as the user wrote them. Output: a buffer is gone if every
//! write covers it whole and every read is dominated by a write in the same iteration of every loop
//! that contains a write. Its copies are loads, its reads are uses. A value written in both
//! branches of an `if` is a result of the `if`. Barriers are removed unless some buffer is left.
//! The stages of a buffer that a loop fills ahead of its reads are lifted too, where `lift_stages`
//! shows which copy each read finds: the read is the load, and the copies go.
//! Hints (`swizzle`, `alignment`, `stage`) are removed with the buffer. A buffer that stays is
//! reported in `N_NOT_PIPELINED`; one that is read or written in part stays.
//! Must not: touch lane kernels, or move a read or write of global memory past another.

use crate::facts::{emit_dim_expr, extents, written};
use crate::lift_plan::{LiftPlan, plan};
use std::collections::BTreeMap;
use tessera_diag::{Diagnostics, Loc};
use tessera_ir::{
    Attr, BlockId, Changed, Func, OpId, OpSpec, Pass, PassContext, Rewriter, Type, Value,
    ValueData, ValueDef,
};
use tessera_numerics::ScalarFn;
use tessera_tile::{Factor, KernelKind, Polynomial, Tile, TileBuild, TileFunc, TileOp, kind_of};

pub struct Lift;

impl Pass<Tile> for Lift {
    fn name(&self) -> &'static str {
        "tile-lift"
    }

    fn run(&self, func: &mut TileFunc, context: &mut PassContext) -> Result<Changed, Diagnostics> {
        if kind_of(func) != Some(KernelKind::Group) {
            return Ok(Changed::No);
        }
        let plan = plan(func);
        if !plan.errors.is_empty() {
            return Err(plan.errors);
        }
        context.notes.extend(plan.kept.iter().cloned());
        let barriers = func.walk().iter().any(|&id| func.ops[id].code == TileOp::Barrier);
        if plan.lifted.is_empty() && (!barriers || !plan.kept.is_empty()) {
            return Ok(Changed::No);
        }
        let mut rewriter = Rewriter::new(func);
        let mut lifter =
            Lifter { drop_barriers: plan.kept.is_empty(), plan, contents: BTreeMap::new() };
        let into = rewriter.new.body;
        for &id in &func.blocks[func.body].ops {
            lifter.op(&mut rewriter, id, into);
        }
        let new = rewriter.new;
        *func = new;
        Ok(Changed::Yes)
    }
}

struct Lifter {
    plan: LiftPlan,
    drop_barriers: bool,
    /// The new value that stands for a lifted buffer (of the old function) at this point.
    contents: BTreeMap<Value, Value>,
}

impl Lifter {
    fn op(&mut self, rw: &mut Rewriter<'_, Tile>, id: OpId, into: BlockId) {
        let old: &Func<Tile> = rw.old;
        let op = &old.ops[id];
        let lifted = |value: &Value| self.plan.lifted.contains(value);
        match op.code {
            TileOp::Barrier if self.drop_barriers => {}
            // Without a buffer there is nothing to wait for.
            TileOp::CopyCommit | TileOp::CopyWait if self.drop_barriers => {}
            TileOp::BufAlloc if lifted(&op.result()) => {}
            TileOp::CopyAsync if lifted(&op.operands[0]) && !op.group("into").is_empty() => {}
            TileOp::Load if self.plan.stages.contains_key(&id) => self.load_stage(rw, id, into),
            TileOp::CopyAsync if lifted(&op.operands[0]) => {
                let buffer = op.operands[0];
                let at: Vec<_> = op.group("at").iter().map(|&v| rw.get(v)).collect();
                let source = rw.get(op.operands[1]);
                let value = rw.builder(into, op.loc.clone()).load(source, &at, &extents(op));
                rw.new.values[value].name = old.values[buffer].name.clone();
                self.contents.insert(buffer, value);
            }
            TileOp::Store if lifted(&op.operands[0]) => {
                self.contents.insert(op.operands[0], rw.get(op.operands[1]));
            }
            TileOp::Load if lifted(&op.operands[0]) => {
                // The plan lifted the buffer because every read finds contents.
                if let Some(&value) = self.contents.get(&op.operands[0]) {
                    rw.set(op.result(), value);
                }
            }
            TileOp::For | TileOp::While => {
                let before = self.contents.clone();
                rw.copy_op_with(id, into, &mut |rw, inner, block| self.op(rw, inner, block));
                let inside: Vec<Value> = crate::facts::subtree(old, id)
                    .iter()
                    .filter_map(|&inner| written(&old.ops[inner]))
                    .collect();
                self.contents = before;
                self.contents.retain(|buffer, _| !inside.contains(buffer));
            }
            TileOp::If => self.branches(rw, id, into),
            _ => {
                rw.copy_op(id, into);
            }
        }
    }

    /// A read of a stage: the load that its copy would have been.
    fn load_stage(&self, rw: &mut Rewriter<'_, Tile>, id: OpId, into: BlockId) {
        let old: &Func<Tile> = rw.old;
        let source = &self.plan.stages[&id];
        let (op, copy) = (&old.ops[id], &old.ops[source.copy]);
        let at: Vec<Value> = source.at.iter().map(|p| emit(rw, p, into, &op.loc)).collect();
        let view = rw.get(copy.operands[1]);
        let value = rw.builder(into, op.loc.clone()).load(view, &at, &extents(copy));
        // Not the name of the buffer, which has all stages.
        rw.new.values[value].name = old.values[op.result()].name.clone();
        rw.set(op.result(), value);
    }

    fn branches(&mut self, rw: &mut Rewriter<'_, Tile>, id: OpId, into: BlockId) {
        let old: &Func<Tile> = rw.old;
        let carried: Vec<Value> =
            self.plan.carried.get(&id).map(|set| set.iter().copied().collect()).unwrap_or_default();
        let before = self.contents.clone();
        let mut ends: Vec<BTreeMap<Value, Value>> = Vec::new();
        let new_id = rw.copy_op_with(id, into, &mut |rw, inner, block| {
            self.op(rw, inner, block);
            if !old.ops[inner].is_terminator() {
                return;
            }
            if let Some(end) = rw.new.terminator(block) {
                for buffer in &carried {
                    rw.new.ops[end].operands.push(self.contents[buffer]);
                    rw.new.ops[end].group_lens[0] += 1;
                }
            }
            ends.push(std::mem::replace(&mut self.contents, before.clone()));
        });
        self.contents = match ends.as_slice() {
            [a, b] => {
                a.iter().filter(|(k, v)| b.get(k) == Some(v)).map(|(k, v)| (*k, *v)).collect()
            }
            _ => before,
        };
        for buffer in carried {
            let ty = old.ty(buffer);
            let index = rw.new.ops[new_id].results.len();
            let value = rw.new.values.push(ValueData {
                ty: tessera_ir::Type::value(ty.shape().to_vec(), ty.dtype()),
                name: old.values[buffer].name.clone(),
                def: ValueDef::Result(new_id, index),
            });
            rw.new.ops[new_id].results.push(value);
            self.contents.insert(buffer, value);
        }
    }
}

/// An integer of the old function as a position.
fn wide(rw: &mut Rewriter<'_, Tile>, v: Value, into: BlockId, loc: &Loc) -> Value {
    let value = rw.get(v);
    if *rw.new.ty(value) == Type::INDEX {
        return value;
    }
    rw.builder(into, loc.clone()).cast(value, Type::INDEX.dtype())
}

/// The ops that compute a polynomial: constants are multiplied in and added last.
fn emit(rw: &mut Rewriter<'_, Tile>, p: &Polynomial, into: BlockId, loc: &Loc) -> Value {
    let mut sum: Option<Value> = None;
    let mut constant = 0;
    for (term, by) in p.terms() {
        if term.is_empty() {
            constant = by;
            continue;
        }
        let mut product: Option<Value> = None;
        for factor in term {
            let value = match factor {
                Factor::Value(v) => wide(rw, *v, into, loc),
                Factor::Dim(e) => emit_dim_expr(&mut rw.new, into, loc, e),
                Factor::Program(axis) => {
                    let spec = OpSpec::new(TileOp::ProgramId, &[]).attr("axis", Attr::Int(*axis));
                    let id = rw.builder(into, loc.clone()).value(spec.result(Type::INDEX));
                    id.expect("the result type is given")
                }
            };
            product = Some(match product {
                Some(p) => rw.builder(into, loc.clone()).ew(ScalarFn::Mul, &[p, value]),
                None => value,
            });
        }
        let Some(mut product) = product else { continue };
        if by != 1 {
            let by = rw.builder(into, loc.clone()).index(by);
            product = rw.builder(into, loc.clone()).ew(ScalarFn::Mul, &[product, by]);
        }
        sum = Some(match sum {
            Some(s) => rw.builder(into, loc.clone()).ew(ScalarFn::Add, &[s, product]),
            None => product,
        });
    }
    let mut build = rw.builder(into, loc.clone());
    match sum {
        None => build.index(constant),
        Some(sum) if constant == 0 => sum,
        Some(sum) => {
            let constant = build.index(constant);
            build.ew(ScalarFn::Add, &[sum, constant])
        }
    }
}
