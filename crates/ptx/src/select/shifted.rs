//! Misaligned loads of narrow elements: rows of bf16 at an odd pitch, bytes at any address. A
//! thread that holds contiguous elements loads the two aligned pieces that contain them, and shifts
//! them into place: two wide loads instead of one for each element.
//!
//! Bytes around the elements are discarded. They are between the first and the last element of the
//! array: pieces that reach beyond them are loaded element by element, as are elements of a block
//! that is partly outside its array. So nothing outside the array is read.

use super::memory::{Block, Unit};
use super::{Select, View};
use crate::inst::*;
use std::collections::BTreeMap;

/// Words in flight before the first of them is shifted.
const TOGETHER: u32 = 64;

/// The two aligned pieces that contain the elements of a unit.
struct Pieces {
    /// The address of the first element.
    at: Reg,
    first: Reg,
    second: Reg,
    /// The last byte of the second.
    tail: Reg,
}

impl Select<'_> {
    /// The words of a block whose units have `span` contiguous elements each.
    pub(super) fn load_shifted(&mut self, block: &mut Block, other: Option<Reg>) -> Vec<Reg> {
        let (layout, view) = (block.layout.clone(), block.view.clone());
        let bytes = view.dtype.bytes() as u32;
        let (each, span) = (4 / bytes, block.span * bytes);
        let d: Vec<Reg> = (0..layout.regs() / each).map(|_| self.asm.reg(Class::B32)).collect();
        // One test for all elements of a thread: a branch for each would serialise the loads.
        let mut known = BTreeMap::new();
        let mut whole = None;
        let mut found: Vec<(Unit, Option<Pieces>)> = Vec::new();
        let (begin, end) = self.memory_ends(&view);
        for unit in self.units(block, block.span) {
            let valid = self.valid(&layout, unit.first);
            if valid == Ok(false) {
                found.push((unit, None));
                continue;
            }
            let pieces = self.pieces_around(block, &unit, span);
            let last = self.coords(&layout, unit.first + unit.n - 1);
            let inside = [
                self.element_inside(block, &unit.coords, &mut known),
                self.element_inside(block, &last, &mut known),
                Some(self.asm.setp(Cmp::Ge, Ty::U64, pieces.first, begin)),
                Some(self.asm.setp(Cmp::Lt, Ty::U64, pieces.tail, end)),
                valid.err(),
            ];
            for p in inside {
                whole = self.both(whole, p);
            }
            found.push((unit, Some(pieces)));
        }
        let [edge, done] = [self.asm.label(), self.asm.label()];
        if let Some(whole) = whole {
            self.asm.when(whole, false, |asm| asm.emit(Inst::Bra { to: edge, uniform: false }));
        }
        for batch in found.chunks((TOGETHER / (span / 2)).max(1) as usize) {
            let raw: Vec<Vec<Reg>> = batch
                .iter()
                .map(|(_, pieces)| {
                    pieces.as_ref().map_or_else(Vec::new, |p| self.begin_pieces(&view, p, span))
                })
                .collect();
            for ((unit, pieces), raw) in batch.iter().zip(raw) {
                let to = &d[(unit.first / each) as usize..][..(span / 4) as usize];
                match pieces {
                    Some(pieces) => {
                        let words = self.shift_into_place(pieces.at, raw);
                        self.move_all(to, &words);
                    }
                    None => to.iter().for_each(|&r| self.asm.mov_to(Ty::B32, r, Opnd::Int(0))),
                }
            }
        }
        if whole.is_some() {
            self.asm.emit(Inst::Bra { to: done, uniform: false });
            self.asm.place(edge);
            self.load_each(block, &d, other, known);
            self.asm.place(done);
        }
        d
    }

    fn pieces_around(&mut self, block: &mut Block, unit: &Unit, span: u32) -> Pieces {
        let Addr { base, offset } = self.address(block, unit);
        let Base::Reg(base) = base else { unreachable!("global memory is at a register") };
        let moved = |me: &mut Self, by: i64| match by {
            0 => base,
            by => me.asm.int(Alu::Add, Ty::S64, &[base.into(), Opnd::Int(by)]),
        };
        let (at, last) = (moved(self, offset), moved(self, offset + i64::from(span) - 1));
        let mask = Opnd::Int(-i64::from(span));
        let [first, second] =
            [at, last].map(|r| self.asm.int(Alu::And, Ty::B64, &[r.into(), mask]));
        let rest = Opnd::Int(i64::from(span) - 1);
        let tail = self.asm.int(Alu::Or, Ty::B64, &[last.into(), rest]);
        Pieces { at, first, second, tail }
    }

    fn begin_pieces(&mut self, view: &View, pieces: &Pieces, span: u32) -> Vec<Reg> {
        let cache = if view.read_only { Cache::ReadOnly } else { Cache::Usual };
        [pieces.first, pieces.second]
            .into_iter()
            .flat_map(|r| {
                self.asm.ld(Space::Global, Ty::B32, (span / 4) as usize, Addr::reg(r, 0), cache)
            })
            .collect()
    }

    /// The words at an address, from the words of the two pieces around it: shifted by two words,
    /// by one, by bytes.
    fn shift_into_place(&mut self, at: Reg, mut words: Vec<Reg>) -> Vec<Reg> {
        let n = words.len() / 2;
        let at = self.asm.cvt(Ty::U32, Ty::U64, None, at);
        let mut by = n / 2;
        while by > 0 {
            let bit = Opnd::Int(4 * by as i64);
            let bit = self.asm.int(Alu::And, Ty::B32, &[at.into(), bit]);
            let p = self.asm.setp(Cmp::Ne, Ty::U32, bit, Opnd::Int(0));
            // As many as later steps need.
            words =
                (0..n + by).map(|i| self.asm.selp(Ty::B32, p, words[i + by], words[i])).collect();
            by /= 2;
        }
        // In bits; the shift counts modulo a word.
        let bits = self.asm.int(Alu::Shl, Ty::B32, &[at.into(), Opnd::Int(3)]);
        let bits = self.asm.int(Alu::And, Ty::B32, &[bits.into(), Opnd::Int(31)]);
        (0..n)
            .map(|i| {
                let args = [words[i].into(), words[i + 1].into(), bits.into()];
                self.asm.int(Alu::ShfR, Ty::B32, &args)
            })
            .collect()
    }

    /// The bounds of an array in memory, for strides of either sign.
    fn memory_ends(&mut self, view: &View) -> (Reg, Reg) {
        if let Some(&found) = self.ends.get(&view.param) {
            return found;
        }
        let base = self.word(view.word);
        let axes: Vec<(Reg, Option<Reg>)> = (0..view.rank)
            .map(|axis| {
                let stride = (!view.class.is_contiguous(axis)).then(|| self.stride(view, axis));
                (self.extent(view, axis), stride)
            })
            .collect();
        let bytes = view.dtype.bytes() as i64;
        let out = self.head(|me| {
            let asm = &mut me.asm;
            let (mut begin, mut end) =
                (base, asm.int(Alu::Add, Ty::S64, &[base.into(), Opnd::Int(bytes)]));
            for (extent, stride) in axes {
                let last = asm.int(Alu::Sub, Ty::S64, &[extent.into(), Opnd::Int(1)]);
                let stride = stride.map_or(Opnd::Int(bytes), Opnd::from);
                let far = asm.int(Alu::MulLo, Ty::S64, &[last.into(), stride]);
                let forward = asm.int(Alu::Max, Ty::S64, &[far.into(), Opnd::Int(0)]);
                end = asm.int(Alu::Add, Ty::S64, &[end.into(), forward.into()]);
                if let Opnd::Reg(_) = stride {
                    let back = asm.int(Alu::Min, Ty::S64, &[far.into(), Opnd::Int(0)]);
                    begin = asm.int(Alu::Add, Ty::S64, &[begin.into(), back.into()]);
                }
            }
            (begin, end)
        });
        self.ends.insert(view.param, out);
        out
    }
}
