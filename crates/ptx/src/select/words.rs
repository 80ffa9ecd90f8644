//! Elementwise ops on packed tiles of 16 bits, two elements per instruction.
//!
//! Both elements of a word are in one row. Where the other factor, or the condition, is one per
//! row, the tile need not be unpacked to 32 bits.

use super::{Repr, Select};
use crate::caps::Feature;
use crate::inst::*;
use std::collections::BTreeMap;
use tessera_ir::{OpId, Value};
use tessera_numerics::{DType, Rounding, ScalarFn};
use tessera_staged::StagedOp;
use tessera_tile::TileOp;
use tessera_tile::attrs::cast_mode;

impl Select<'_> {
    /// Whether a select takes a tile as words, and gives words.
    pub fn chooses_words(&self, id: OpId, v: Value) -> bool {
        let op = &self.func.ops[id];
        op.code == StagedOp::Tile(TileOp::Select)
            && self.dtype(v).bytes() == 2
            && op.operands[0] != v
            && self.is_of_rows(op.operands[0])
    }

    /// Whether an op unpacks a tile's words only on a path that rarely runs.
    pub fn rarely_reads_words(&self, id: OpId) -> bool {
        let func = self.func;
        let op = &func.ops[id];
        let around = func.blocks[op.block].parent.map(|id| func.ops[id].code);
        op.code == StagedOp::Tile(TileOp::Cast)
            && around == Some(StagedOp::Tile(TileOp::SlowPath))
            && func.ty(op.result()).dtype().bytes() == 4
    }

    /// Emits a select on words, where its tiles are words; returns whether they were.
    pub fn choose_words(&mut self, id: OpId) -> bool {
        let op = &self.func.ops[id];
        let [cond, a, b] = [op.operands[0], op.operands[1], op.operands[2]];
        let words = |me: &Self, v: Value| matches!(me.repr(v), Repr::Packed(_));
        let given = [a, b].into_iter().find(|&v| words(self, v));
        let takes = given.is_some_and(|v| self.chooses_words(id, v));
        if !takes || !self.has_packed_uses(op.result()) {
            return false;
        }
        let Some(each) = self.one_of_each_pair(cond) else { return false };
        let [a, b] = [a, b].map(|v| self.words_of(v));
        let of = each.into_iter().zip(a.into_iter().zip(b));
        let out = of.map(|(p, (a, b))| self.asm.selp(Ty::B32, p, a, b)).collect();
        self.set(op.result(), Repr::Packed(out));
        true
    }

    /// Emits a cast of the product of a tile's words with a number of their dtype per row: it is
    /// rounded once, as the product of words is. Returns whether the op was one.
    pub fn multiply_words(&mut self, id: OpId) -> bool {
        let func = self.func;
        let result = func.ops[id].result();
        let dtype = self.dtype(result);
        let ty = match dtype {
            DType::BF16 if self.caps.has(Feature::Bf16Arith) => Ty::BF16x2,
            DType::F16 => Ty::F16x2,
            _ => return false,
        };
        // Word instructions round to nearest, and overflow to infinity.
        let (round, saturate) = cast_mode(&func.ops[id], dtype);
        let wide = func.ty(func.ops[id].operands[0]).dtype() == DType::F32;
        if !wide || round != Rounding::Rne || saturate {
            return false;
        }
        let product = func.def(func.ops[id].operands[0]);
        let Some(product) =
            product.filter(|op| op.code == StagedOp::Tile(TileOp::Ew(ScalarFn::Mul)))
        else {
            return false;
        };
        // The operand of a cast from the same dtype.
        let narrow = |v: Value| {
            let op = func.def(v).filter(|op| op.code == StagedOp::Tile(TileOp::Cast))?;
            (func.ty(op.operands[0]).dtype() == dtype).then_some(op.operands[0])
        };
        let rows = |v: Value| {
            let mut at = v;
            loop {
                let op = func.def(at)?;
                match op.code {
                    StagedOp::Tile(TileOp::Broadcast | TileOp::Expand)
                    | StagedOp::ConvertLayout => at = op.operands[0],
                    _ => break narrow(at),
                }
            }
        };
        let [a, b] = [product.operands[0], product.operands[1]];
        let (Some(x), Some(_), true) = (narrow(a), rows(b), self.is_of_rows(b)) else {
            return false;
        };
        if !matches!(self.repr(x), Repr::Packed(_)) || !self.has_packed_uses(result) {
            return false;
        }
        let Some(factors) = self.one_of_each_pair(b) else { return false };
        let mut twice: BTreeMap<Reg, Reg> = BTreeMap::new();
        let mut out = Vec::new();
        for (word, factor) in self.words_of(x).into_iter().zip(factors) {
            let pair = match twice.get(&factor) {
                Some(&pair) => pair,
                None => {
                    let pair = self.scalars().encode_packed(dtype, &[factor, factor]);
                    twice.insert(factor, pair);
                    pair
                }
            };
            out.push(self.asm.float(Alu::Mul, ty, &[word.into(), pair.into()]));
        }
        self.set(result, Repr::Packed(out));
        true
    }

    /// The registers of a tile, one for both elements of a word, where they are equal.
    fn one_of_each_pair(&mut self, v: Value) -> Option<Vec<Reg>> {
        let regs = self.regs(v);
        regs.chunks(2).map(|pair| pair.iter().all(|r| *r == pair[0]).then_some(pair[0])).collect()
    }

    /// Whether a tile repeats one number, or truth value, along its rows.
    fn is_of_rows(&self, v: Value) -> bool {
        let Some(op) = self.func.def(v) else { return false };
        match op.code {
            StagedOp::ConvertLayout => self.is_of_rows(op.operands[0]),
            StagedOp::Tile(TileOp::Broadcast) => {
                let from = self.func.ty(op.operands[0]);
                let last = from.static_shape().and_then(|shape| shape.last().copied());
                !from.is_tile() || last == Some(1)
            }
            StagedOp::Tile(TileOp::Const) => true,
            _ => false,
        }
    }
}
