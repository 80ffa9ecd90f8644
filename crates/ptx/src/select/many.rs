//! tanh of tiles that threads hold much of, as they do beside products.
//!
//! Exponentials and inverses come from a unit that takes 16 elements in a clock, and what else there is to
//! do for an element takes issue slots that products need too. So there is one way for all numbers, as near
//! as absolute terms ask for: a second one near 0, for small results to be as good in relative terms,
//! takes three times as many instructions. A number that all results are multiplied by goes into the last.

use super::{Repr, Select};
use crate::inst::Reg;
use tessera_ir::{OpId, Value};
use tessera_numerics::{DType, Profile, Scalar, ScalarFn};
use tessera_staged::StagedOp;
use tessera_tile::TileOp;
use tessera_tile::attrs::constant_of;

/// Elements of a thread from which on a tile is a large one.
const MANY: usize = 16;

impl Select<'_> {
    /// Emits the tanh of a large tile, or the product of one by a number; whether an op is either. One
    /// that only such a product takes is left to that.
    pub fn tanh_of_many(&mut self, id: OpId, f: ScalarFn) -> bool {
        let func = self.func;
        match f {
            ScalarFn::Tanh if self.is_tanh_of_many(id) => {
                if self.only_times_a_number(id) {
                    return true;
                }
                self.emit_tanh(id, func.ops[id].operands[0], 1.0)
            }
            ScalarFn::Mul => match self.tanh_times(id).filter(|t| self.only_times_a_number(t.0)) {
                Some((tanh, times)) => self.emit_tanh(id, func.ops[tanh].operands[0], times),
                None => false,
            },
            _ => false,
        }
    }

    fn is_tanh_of_many(&self, id: OpId) -> bool {
        let func = self.func;
        let op = &func.ops[id];
        if op.code != StagedOp::Tile(TileOp::Ew(ScalarFn::Tanh)) {
            return false;
        }
        let x = op.operands[0];
        let tile = !matches!(self.repr(x), Repr::Scalar(_) | Repr::Splat(_));
        self.profile != Profile::Strict
            && func.ty(x).dtype() == DType::F32
            && func.ty(x).is_tile()
            && tile
            && self.layout(x).regs() as usize >= MANY
    }

    /// The tanh that a product multiplies by a number that is known, and the number.
    fn tanh_times(&self, id: OpId) -> Option<(OpId, f64)> {
        let func = self.func;
        let op = &func.ops[id];
        let number = |v: Value| {
            let mut v = v;
            while let Some(op) = func.def(v).filter(|op| {
                [StagedOp::Tile(TileOp::Broadcast), StagedOp::ConvertLayout].contains(&op.code)
            }) {
                v = op.operands[0];
            }
            let op = func.def(v).filter(|op| op.code == StagedOp::Tile(TileOp::Const))?;
            match constant_of(op, DType::F32) {
                Scalar::F32(x) if x.is_finite() => Some(f64::from(x)),
                _ => None,
            }
        };
        let tanh = |v: Value| {
            let made = func.def_id(v).filter(|&o| self.is_straight(o, id))?;
            self.is_tanh_of_many(made).then_some(made)
        };
        if op.code != StagedOp::Tile(TileOp::Ew(ScalarFn::Mul)) || !func.ty(op.result()).is_tile() {
            return None;
        }
        let [a, b] = [op.operands[0], op.operands[1]];
        let second = || tanh(b).zip(number(a));
        tanh(a).zip(number(b)).or_else(second)
    }

    /// Whether one product takes a tanh, and nothing else.
    fn only_times_a_number(&self, tanh: OpId) -> bool {
        let func = self.func;
        let v = func.ops[tanh].result();
        let mut users = func.walk().into_iter().filter(|&o| func.ops[o].operands.contains(&v));
        let only = users.next();
        users.next().is_none() && only.is_some_and(|o| self.tanh_times(o).is_some())
    }

    fn emit_tanh(&mut self, id: OpId, operand: Value, times: f64) -> bool {
        let result = self.func.ops[id].result();
        let (x, factor) = self.times_one(id, operand);
        let by = self.scalars().tanh_exponent(factor);
        let xs = self.regs(x);
        let out = xs.iter().map(|&x| self.scalars().tanh_times(x, by, times)).collect();
        self.set(result, Repr::Tile(out));
        true
    }

    /// A tile and the number that all of it is multiplied by, where that is what a value is.
    fn times_one(&self, user: OpId, v: Value) -> (Value, Option<Reg>) {
        let func = self.func;
        let made = func.def_id(v).filter(|&o| {
            func.ops[o].code == StagedOp::Tile(TileOp::Ew(ScalarFn::Mul))
                && self.is_straight(o, user)
        });
        let Some(made) = made else { return (v, None) };
        let [a, b] = [func.ops[made].operands[0], func.ops[made].operands[1]];
        match (self.repr(a), self.repr(b)) {
            (Repr::Splat(_), Repr::Splat(_)) => (v, None),
            (_, Repr::Splat(r)) => (a, Some(*r)),
            (Repr::Splat(r), _) => (b, Some(*r)),
            _ => (v, None),
        }
    }

    /// Whether two ops are of one block, and nothing between them may write over what the first is of,
    /// as regions do.
    fn is_straight(&self, first: OpId, last: OpId) -> bool {
        let func = self.func;
        let block = func.ops[last].block;
        let ops = &func.blocks[block].ops;
        let mut between = ops.iter().skip_while(|&&o| o != first).take_while(|&&o| o != last);
        func.ops[first].block == block && between.all(|&o| func.ops[o].regions.is_empty())
    }
}
