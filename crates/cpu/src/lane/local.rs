//! Conditions that are tested for each vector: quotients and remainders of positions. In most
//! vectors all lanes have the same quotient: row and column of a lane's number are then one row and
//! contiguous columns.

use super::Lanes;
use super::ops::plus;
use super::range::{Form, Range};
use crate::llvm::{IntCmp, Val};
use tessera_ir::{BlockId, Op, OpId, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::attrs::checked_axes;
use tessera_tile::{Tile, TileOp};

/// A position in the lanes of one vector.
#[derive(Copy, Clone)]
pub struct Local {
    pub first: Val,
    pub step: i64,
    /// No lane's position is near the end of the number range.
    near: bool,
}

impl<'a> Lanes<'a> {
    /// Emits the tests of one vector, whose first lane is known; gives the condition, if there is
    /// one.
    pub fn vector_condition(&self, r: &mut Range, items: &[OpId]) -> Option<Val> {
        if items.iter().any(|&id| self.divides(id)) {
            self.survey_vector(r, items);
        }
        let ir = self.ir;
        r.tests.iter().copied().reduce(|a, b| ir.and(a, b))
    }

    fn divides(&self, id: OpId) -> bool {
        let op = &self.func.ops[id];
        let own = matches!(op.code, TileOp::Ew(ScalarFn::FloorDiv | ScalarFn::Mod))
            && self.dtype(op.operands[0]) == DType::I64;
        let inner = |b: &BlockId| self.func.blocks[*b].ops.iter().any(|&i| self.divides(i));
        // A quotient of another segment may be computed again in this one.
        let again = |v: &Value| {
            self.plan.again(*v) && self.func.def_id(*v).is_some_and(|d| d != id && self.divides(d))
        };
        own || op.regions.iter().any(inner) || op.operands.iter().any(again)
    }

    fn survey_vector(&self, r: &mut Range, items: &[OpId]) {
        let ir = self.ir;
        for &id in items {
            let op = &self.func.ops[id];
            for &region in &op.regions {
                let skip = self.skipped(r, op, region);
                if !skip {
                    self.survey_vector(r, &self.func.blocks[region].ops);
                }
            }
            if !matches!(op.code, TileOp::Load | TileOp::Store | TileOp::Accumulate) {
                continue;
            }
            let mem = self.memory(op.operands[0]);
            let checked = checked_axes(op, mem.dims.len());
            for (axis, &v) in op.group("at").iter().enumerate() {
                let open = checked[axis] && !r.inside.contains(&(id, axis));
                if !self.plan.varies(v) || r.forms.get(&v).is_some_and(|f| f.is_some()) {
                    continue;
                }
                let Some(local) = self.local(r, v).filter(|_| open) else { continue };
                let dim = mem.dims[axis];
                match local.step {
                    0 => r.tests.push(ir.icmp(IntCmp::LLVMIntULT, local.first, dim)),
                    1 => {
                        let low = ir.icmp(IntCmp::LLVMIntSGE, local.first, ir.c64(0));
                        let left = ir.sub(dim, local.first);
                        let high = ir.icmp(IntCmp::LLVMIntSGE, left, self.lanes());
                        r.tests.push(ir.and(low, high));
                    }
                    _ => continue,
                }
                r.inside.insert((id, axis));
            }
        }
    }

    /// Whether a region is the side of a branch that no lane of the range takes.
    fn skipped(&self, r: &Range, op: &Op<Tile>, region: BlockId) -> bool {
        op.code == TileOp::If
            && r.known
                .iter()
                .any(|&(v, holds)| v == op.operands[0] && region == op.regions[usize::from(holds)])
    }

    fn lanes(&self) -> Val {
        self.ir.c64(self.width.into())
    }

    fn local(&self, r: &mut Range, v: Value) -> Option<Local> {
        if let Some(known) = r.locals.get(&v) {
            return *known;
        }
        let local = self.find_local(r, v);
        r.locals.insert(v, local);
        local
    }

    fn find_local(&self, r: &mut Range, v: Value) -> Option<Local> {
        let ir = self.ir;
        if let Some(f) = self.form(r, v).filter(Form::is_exact) {
            let moved = ir.mul_const(self.at, f.step);
            let first = if f.step == 0 { f.first } else { plus(ir, f.first, moved) };
            return Some(Local { first, step: f.step, near: f.near });
        }
        let op = self.func.def(v).filter(|op| matches!(op.code, TileOp::Ew(_)))?;
        let TileOp::Ew(f) = op.code else { return None };
        if self.dtype(v) != DType::I64 || self.dtype(op.operands[0]) != DType::I64 {
            return None;
        }
        let parts: Option<Vec<Local>> = op.operands.iter().map(|&x| self.local(r, x)).collect();
        let parts = parts?;
        if parts.iter().all(|p| p.step == 0) {
            let args: Vec<Val> = parts.iter().map(|p| p.first).collect();
            let first = self.s.apply(f, DType::I64, &args);
            return Some(Local { first, step: 0, near: false });
        }
        let (a, b) = (parts[0], *parts.last()?);
        match f {
            ScalarFn::Add => Some(Local {
                first: plus(ir, a.first, b.first),
                step: a.step.checked_add(b.step)?,
                near: a.near && b.near,
            }),
            ScalarFn::Sub => Some(Local {
                first: ir.sub(a.first, b.first),
                step: a.step.checked_sub(b.step)?,
                near: a.near && b.near,
            }),
            ScalarFn::FloorDiv | ScalarFn::Mod if (a.step, b.step) == (1, 0) && a.near => {
                let (quotient, rest) = self.quotient(r, a.first, b.first);
                Some(match f {
                    ScalarFn::FloorDiv => Local { first: quotient, step: 0, near: false },
                    _ => Local { first: rest, step: 1, near: true },
                })
            }
            _ => None,
        }
    }

    /// The one quotient of all lanes, and the first one's rest.
    fn quotient(&self, r: &mut Range, first: Val, by: Val) -> (Val, Val) {
        let ir = self.ir;
        if let Some(&(.., q, rest)) = r.quotients.iter().find(|k| (k.0, k.1) == (first, by)) {
            return (q, rest);
        }
        let q = self.s.apply(ScalarFn::FloorDiv, DType::I64, &[first, by]);
        let rest = ir.sub(first, ir.mul(q, by));
        if ir.as_int(by).is_none_or(|by| by <= 0) {
            r.tests.push(ir.icmp(IntCmp::LLVMIntSGT, by, ir.c64(0)));
        }
        r.tests.push(ir.icmp(IntCmp::LLVMIntSGE, ir.sub(by, rest), self.lanes()));
        r.quotients.push((first, by, q, rest));
        (q, rest)
    }
}
