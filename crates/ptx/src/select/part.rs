//! Blocks of tiles, which are a subset of their registers, and tiles of 16 bits that a persistent
//! loop or a branch carries as packed words.

use super::{Repr, Select};
use crate::inst::Reg;
use tessera_diag::Diagnostics;
use tessera_ir::{OpId, Value};
use tessera_numerics::DType;
use tessera_staged::ops::smem::part_of;

impl Select<'_> {
    pub fn frag_part(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (x, result) = (op.operands[0], op.result());
        let [at, extent] = ["at", "extent"].map(|name| part_of(op.attr(name)).unwrap_or_default());
        let Some((_, map)) = self.layout(x).part(&at, &extent) else {
            return self.unsupported(id, "expected a block of whole atoms of the tile's layout");
        };
        let repr = match self.repr(x).clone() {
            Repr::Splat(r) => Repr::Splat(r),
            Repr::Packed(words) => match self.some_words(x, &words, &map) {
                Some(words) => Repr::Packed(words),
                None => self.some_of(x, &map),
            },
            _ => self.some_of(x, &map),
        };
        self.set(result, repr);
        Ok(())
    }

    /// The same for packed words, where the elements of each word stay together.
    fn some_words(&self, x: Value, words: &[Reg], map: &[u32]) -> Option<Vec<Reg>> {
        let each = self.layout(x).regs() as usize / words.len().max(1);
        let word = |regs: &[u32]| {
            let first = regs[0] as usize;
            let together = regs.len() == each
                && first.is_multiple_of(each)
                && regs.iter().zip(first..).all(|(&r, wanted)| r as usize == wanted);
            together.then(|| words[first / each])
        };
        map.chunks(each.max(1)).map(word).collect()
    }

    fn some_of(&mut self, x: Value, map: &[u32]) -> Repr {
        let regs = self.regs(x);
        Repr::Tile(map.iter().map(|&r| regs[r as usize]).collect())
    }

    /// Whether a persistent loop carries its value number `i` as words.
    pub fn goes_around_as_words(&self, tiles: OpId, i: usize) -> bool {
        let op = &self.func.ops[tiles];
        let arg = self.func.blocks[op.regions[0]].args[op.group("grid").len() + i];
        self.has_words(arg) && [arg, op.results[i]].iter().all(|&v| self.has_packed_uses(v))
    }

    /// Whether branches leave a value as words.
    pub fn is_left_as_words(&self, v: Value) -> bool {
        self.has_words(v) && self.has_packed_uses(v)
    }

    /// Whether a value is a tile of 16 bits, two elements a word.
    pub fn has_words(&self, v: Value) -> bool {
        self.func.ty(v).layout().is_some()
            && matches!(self.dtype(v), DType::BF16 | DType::F16)
            && self.layout(v).regs().is_multiple_of(2)
    }
}
