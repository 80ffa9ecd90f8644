//! `stmatrix`: stores of accumulator fragments to shared memory, eight rows of 16 bytes at a time,
//! transposed where the memory is. Swizzled memory takes them without bank conflicts.
//!
//! Casts of such tiles convert two elements into one packed word, which is what is stored.

use super::sync::Smem;
use super::{Repr, Select};
use crate::caps::Feature;
use crate::inst::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_ir::{OpId, Value};
use tessera_layout::Layout;
use tessera_numerics::{DType, Rounding};
use tessera_staged::StagedOp;
use tessera_tile::TileOp;
use tessera_tile::attrs::cast_mode;

impl Select<'_> {
    /// Stores a tile by `stmatrix`, where possible. Every element must have one holder: each lane
    /// addresses a row that the words of other lanes fill, so no thread can be left out.
    pub fn matrix_store(&mut self, m: &Smem, layout: &Arc<Layout>, value: Value) -> bool {
        if !self.caps.has(Feature::Stmatrix) || m.dtype.bytes() != 2 {
            return false;
        }
        let Some(form) = self.matrix_form(m, layout) else { return false };
        if self.owner(layout).is_some() || layout.reg_replicas().contains(&true) {
            return false;
        }
        let words = self.operand_words(value);
        let all: Vec<u32> = (0..words.len() as u32).collect();
        let mut at = 0;
        for (addr, n) in self.matrix_runs(m, layout, &form, &all, &mut BTreeMap::new()) {
            let a = words[at..][..n].to_vec();
            self.asm.emit(Inst::Stmatrix { a, trans: form.trans, addr });
            at += n;
        }
        true
    }

    /// Emits a cast to 16 bits whose users take packed words only: words are packed by the cast
    /// itself. Returns whether it was one.
    pub fn cast_to_words(&mut self, id: OpId) -> bool {
        let func = self.func;
        let op = &func.ops[id];
        let (x, result) = (op.operands[0], op.result());
        let (from, to) = (self.dtype(x), self.dtype(result));
        let (round, saturate) = cast_mode(op, to);
        let plain = round == Rounding::Rne && saturate == to.saturates_by_default();
        if from != DType::F32 || !matches!(to, DType::BF16 | DType::F16) || !plain {
            return false;
        }
        let Repr::Tile(regs) = self.repr(x).clone() else { return false };
        if !regs.len().is_multiple_of(2) || !self.has_packed_uses(result) {
            return false;
        }
        let words = regs.chunks(2).map(|pair| self.scalars().encode_packed(to, pair)).collect();
        self.set(result, Repr::Packed(words));
        true
    }

    /// Whether all users of a tile take packed words, through loops, branches and slow paths.
    pub fn has_packed_uses(&self, v: Value) -> bool {
        self.packed_uses(v, &mut BTreeSet::new())
    }

    fn packed_uses(&self, v: Value, requested: &mut BTreeSet<Value>) -> bool {
        let func = self.func;
        if !requested.insert(v) {
            return true;
        }
        func.walk()
            .iter()
            .map(|&id| (id, &func.ops[id]))
            .filter(|of| of.1.operands.contains(&v))
            .all(|(id, op)| match op.code {
                StagedOp::FragStore | StagedOp::MmaIssue => true,
                StagedOp::Tile(TileOp::Mma) => op.operands[2] != v,
                StagedOp::Tile(TileOp::Select) => {
                    self.chooses_words(id, v) && self.packed_uses(op.result(), requested)
                }
                StagedOp::Tile(TileOp::Cast) => self.rarely_reads_words(id),
                StagedOp::ConvertLayout | StagedOp::FragPart => {
                    self.packed_uses(op.result(), requested)
                }
                StagedOp::Tile(TileOp::For) => {
                    let args = &func.blocks[op.regions[0]].args[1..];
                    let at = op.group("init").iter().zip(args).zip(&op.results);
                    op.positional().iter().all(|&o| o != v)
                        && at.filter(|((init, _), _)| **init == v).all(|((_, arg), result)| {
                            self.packed_uses(*arg, requested)
                                && self.packed_uses(*result, requested)
                        })
                }
                StagedOp::Tile(TileOp::SlowPath) => {
                    let at = op.group("init").iter().zip(&op.results);
                    op.operands[0] != v
                        && at.filter(|at| *at.0 == v).all(|at| self.packed_uses(*at.1, requested))
                }
                StagedOp::Tile(TileOp::Yield) => {
                    let around = func.blocks[op.block].parent.map(|id| &func.ops[id]);
                    let Some(around) = around else { return false };
                    let args = &func.blocks[op.block].args;
                    let args = match around.code {
                        StagedOp::Tile(TileOp::For) => &args[1..],
                        StagedOp::Tile(TileOp::SlowPath) => &[],
                        // Values that these leave, or carry to the next group, are carried as
                        // words.
                        StagedOp::Tile(TileOp::If) if self.has_words(v) => &[],
                        StagedOp::Tiles if self.has_words(v) => &args[around.group("grid").len()..],
                        _ => return false,
                    };
                    let at = (0..op.operands.len()).filter(|&i| op.operands[i] == v);
                    at.into_iter().all(|i| {
                        self.packed_uses(around.results[i], requested)
                            && args.get(i).is_none_or(|&arg| self.packed_uses(arg, requested))
                    })
                }
                _ => false,
            })
    }

    /// The words of a tile whose registers are permuted within a thread, where pairs stay together.
    pub fn move_words(&mut self, words: &[Reg], map: &[u32]) -> Option<Vec<Reg>> {
        let each = map.len() / words.len().max(1);
        map.chunks(each)
            .map(|regs| {
                let first = regs[0];
                let together = first.is_multiple_of(each as u32)
                    && regs.iter().zip(first..).all(|(&r, wanted)| r == wanted);
                together.then(|| words[first as usize / each])
            })
            .collect()
    }
}
