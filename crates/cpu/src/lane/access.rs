//! Loads and stores of a vector of lanes.

use super::{Lanes, Repr};
use crate::fold::Fold;
use crate::llvm::Val;
use crate::memory::{Access, Pos, to_index};
use tessera_ir::{Attr, Op, OpId, Value};
use tessera_numerics::ReduceOp;
use tessera_tile::Tile;
use tessera_tile::attrs::checked_axes;

/// How many bytes ahead a row that lanes read is fetched.
const FAR: i64 = 2048;

/// Where the lanes of an access are, and along which axes that must be tested.
pub struct Positions {
    pub at: Vec<Pos>,
    pub checked: Vec<bool>,
}

impl Positions {
    fn is_uniform(&self) -> bool {
        self.at.iter().all(|p| matches!(p, Pos::Uniform(_)))
    }

    /// Whether each lane has an element of its own.
    fn is_distinct(&self) -> bool {
        let apart = |p: &Pos| matches!(p, Pos::Steps { step, .. } if *step != 0);
        self.at.iter().any(apart)
    }
}

impl<'a> Lanes<'a> {
    pub fn positions(&self, id: OpId) -> Positions {
        let op = &self.func.ops[id];
        let at: Vec<Pos> = op.group("at").iter().map(|&v| self.position(v)).collect();
        let mut checked = checked_axes(op, at.len());
        for (axis, checked) in checked.iter_mut().enumerate() {
            *checked &= !self.inside.contains(&(id, axis));
        }
        Positions { at, checked }
    }

    fn position(&self, v: Value) -> Pos {
        match self.repr(v) {
            Repr::Uniform(p) => Pos::Uniform(to_index(self.ir, p, self.dtype(v))),
            Repr::Steps { first, step } => Pos::Steps { first, step },
            repr => Pos::Each(to_index(self.ir, self.widen(repr), self.dtype(v))),
        }
    }

    /// The condition under which an access of all lanes to one place happens.
    fn any_lane(&self) -> Option<Val> {
        self.mask.filter(|_| !self.sure).map(|m| self.ir.any(m))
    }

    pub fn load(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let mem = self.memory(op.operands[0]);
        let Positions { mut at, checked } = self.positions(id);
        let other = op.group("other").first().map(|&v| self.repr(v));
        let one = at.iter().all(|p| matches!(p, Pos::Uniform(_)));
        let repr = match other {
            None | Some(Repr::Uniform(_)) if one => {
                let other = other.map(|o| self.one(o));
                let mask = self.any_lane();
                let access = Access { mem: &mem, at: &at, checked: &checked, lanes: 1, mask };
                Repr::Uniform(access.load(&self.s, other, self.safe))
            }
            other => {
                if one && let Some(Pos::Uniform(p)) = at.first().copied() {
                    at[0] = Pos::Each(self.ir.splat(p, self.width));
                }
                let (lanes, mask) = (self.width, self.mask);
                let access = Access { mem: &mem, at: &at, checked: &checked, lanes, mask };
                // Beside much work the hardware prefetcher stops at each page.
                if self.busy
                    && mask.is_none()
                    && let Some(p) = access.row(self.ir)
                {
                    self.ir.prefetch(self.ir.offset_const(p, FAR), false, 3);
                }
                let other = other.map(|o| self.widen(o));
                let x = access.load(&self.s, other, self.safe);
                // An array without axes has one element for all lanes.
                if self.ir.lanes(self.ir.ty(x)) == 1 { Repr::Uniform(x) } else { Repr::Each(x) }
            }
        };
        self.set(op.result(), repr);
        self.keep(op.result());
    }

    fn one(&self, repr: Repr) -> Val {
        match repr {
            Repr::Uniform(x) => x,
            repr => self.ir.extract(self.widen(repr), 0),
        }
    }

    /// The lanes that run where an op's own mask holds too.
    fn masked(&self, op: &Op<Tile>) -> (Option<Val>, bool) {
        let ir = self.ir;
        match op.group("mask").first().map(|&m| self.repr(m)) {
            None => (self.mask, self.sure),
            Some(Repr::Uniform(c)) if ir.as_int(c) == Some(1) => (self.mask, self.sure),
            Some(own) => {
                let own = self.widen(own);
                (Some(self.mask.map_or(own, |m| ir.and(m, own))), false)
            }
        }
    }

    pub fn store(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let ir = self.ir;
        let mem = self.memory(op.operands[0]);
        let places = self.positions(id);
        let (mask, sure) = self.masked(op);
        let value = match self.func.def(op.operands[1]) {
            Some(cast) if self.plan.is_folded(op.operands[1]) => cast.operands[0],
            _ => op.operands[1],
        };
        let (lanes, x, mask) = match self.repr(value) {
            Repr::Uniform(x) if places.is_uniform() => {
                (1, x, mask.filter(|_| !sure).map(|m| ir.any(m)))
            }
            // Of all lanes at one place the last stays.
            repr if places.is_uniform() && mask.is_none() => {
                (1, ir.extract(self.widen(repr), self.width - 1), None)
            }
            repr => (self.width, self.widen(repr), mask),
        };
        let code = self.s.encode(x, mem.dtype);
        let Positions { at, checked } = &places;
        let access = Access { mem: &mem, at, checked, lanes, mask };
        if access.stream(&self.s, code, false) {
            self.code.streams = true;
        } else {
            access.store(&self.s, code);
        }
    }

    pub fn accumulate(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let mem = self.memory(op.operands[0]);
        let places = self.positions(id);
        let (mask, _) = self.masked(op);
        let compute = self.dtype(op.operands[1]);
        let name = op.attr("op").and_then(Attr::as_word).unwrap_or("sum");
        let f = ReduceOp::from_name(name).unwrap_or(ReduceOp::Sum).combine();
        let fold = Fold::new(self.func.ty(op.operands[0]), f, compute);
        if !places.is_distinct() {
            return self.fold_lanes(&mem, &places, mask, op.operands[1], fold);
        }
        let Positions { at, checked } = &places;
        let access = Access { mem: &mem, at, checked, lanes: self.width, mask };
        let old = access.load(&self.s, None, self.safe);
        let new = fold.code(&self.s, old, self.vector(op.operands[1]));
        access.store(&self.s, new);
    }
}
