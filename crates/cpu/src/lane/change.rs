//! Changes that lanes make one after another, in ascending order: atomics, and folding into elements
//! that several lanes may share.

use super::access::Positions;
use super::ops::mask_bits;
use super::{Lanes, Repr, slot_align};
use crate::atomic::{Change, What};
use crate::fold::Fold;
use crate::llvm::{IntCmp, Ir, Val};
use crate::memory::{Mem, Pos};
use tessera_ir::{OpId, Type, Value};
use tessera_numerics::{DType, Scalar};
use tessera_tile::ops::atomic::is_used;

/// What a lane alone finds its part of a vector in: one scalar, or memory.
#[derive(Copy, Clone)]
enum Part {
    One(Val),
    Row { ptr: Val, dtype: DType },
}

impl<'a> Lanes<'a> {
    pub fn atomic(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let (ir, s) = (self.ir, self.s);
        let mem = self.memory(op.operands[0]);
        let mut places = self.positions(id);
        places.checked.fill(true);
        let change = Change::of(self.func, op);
        let shared = matches!(self.func.ty(op.operands[0]), Type::Buf { .. });
        let fold = match change.what {
            What::Fold(f) if shared => {
                let compute = self.dtype(op.operands[1]);
                Some(Fold::new(self.func.ty(op.operands[0]), f, compute))
            }
            _ => None,
        };
        let value = self.part(op.operands[1]);
        let expected = op.group("expected").first().map(|&v| self.part(v));
        let used = is_used(self.func, id);
        let zero = s.encode(s.constant(Scalar::zero(mem.dtype), self.width), mem.dtype);
        let olds = used.then(|| {
            let room = ir.alloca(ir.ty(zero), 64);
            ir.store(zero, room, 64);
            room
        });
        let width = mem.dtype.bytes() as i64;
        self.each_lane(&mem, &places, self.mask, |lanes, lane, p| {
            let x = lanes.of_lane(value, lane);
            let expected = expected.map(|e| lanes.of_lane(e, lane));
            let old = match (fold, shared) {
                // Nobody else is at the group's own memory.
                (Some(fold), _) => {
                    let old = ir.load(s.stored(mem.dtype, 1), p, 1);
                    let new = fold.code(&lanes.s, s.decode(old, mem.dtype), x);
                    ir.store(new, p, 1);
                    old
                }
                (None, true) => lanes.exchange(&mem, p, x, expected),
                (None, false) => change.emit(&s, &mem, p, x, expected),
            };
            if let Some(room) = olds {
                ir.store(old, ir.offset(room, ir.mul_const(lane, width)), 1);
            }
        });
        if let Some(room) = olds {
            let codes = ir.load(s.stored(mem.dtype, self.width), room, 64);
            self.set(op.result(), Repr::Each(s.decode(codes, mem.dtype)));
            self.keep(op.result());
        }
    }

    /// Puts a value there, or does so where the expected one stands; gives what was there.
    fn exchange(&self, mem: &Mem, p: Val, x: Val, expected: Option<Val>) -> Val {
        let (ir, s) = (self.ir, self.s);
        let old = ir.load(s.stored(mem.dtype, 1), p, 1);
        let new = s.encode(x, mem.dtype);
        let new = match expected {
            Some(e) => {
                let same = ir.icmp(IntCmp::LLVMIntEQ, old, s.encode(e, mem.dtype));
                ir.select(same, new, old)
            }
            None => new,
        };
        ir.store(new, p, 1);
        old
    }

    /// Folds each lane's value into its element: two of one element both count.
    pub fn fold_lanes(
        &mut self,
        mem: &Mem,
        places: &Positions,
        mask: Option<Val>,
        value: Value,
        fold: Fold,
    ) {
        let (ir, s) = (self.ir, self.s);
        let value = self.part(value);
        self.each_lane(mem, places, mask, |lanes, lane, p| {
            let x = lanes.of_lane(value, lane);
            let old = s.decode(ir.load(s.stored(mem.dtype, 1), p, 1), mem.dtype);
            ir.store(fold.code(&lanes.s, old, x), p, 1);
        });
    }

    fn part(&self, v: Value) -> Part {
        match self.repr(v) {
            Repr::Uniform(x) => Part::One(x),
            repr => self.row(self.widen(repr), self.dtype(v)),
        }
    }

    /// A vector in the function's frame.
    fn row(&self, x: Val, dtype: DType) -> Part {
        let ir = self.ir;
        let x = self.to_slot(x, dtype);
        let ptr = ir.alloca(ir.ty(x), 64);
        ir.store(x, ptr, 64);
        Part::Row { ptr, dtype }
    }

    fn of_lane(&self, part: Part, lane: Val) -> Val {
        let ir = self.ir;
        match part {
            Part::One(x) => x,
            Part::Row { ptr, dtype } => {
                let p = ir.offset(ptr, ir.mul_const(lane, dtype.carrier().bytes() as i64));
                self.slot_value(ir.load(self.slot_type(dtype, 1), p, slot_align(dtype)), dtype)
            }
        }
    }

    /// Calls `body` in a loop over the lanes that run and are inside, with each one's address.
    fn each_lane(
        &mut self,
        mem: &Mem,
        places: &Positions,
        mask: Option<Val>,
        body: impl FnOnce(&mut Self, Val, Val),
    ) {
        let ir = self.ir;
        let mut on = mask.unwrap_or_else(|| ir.const_first_lanes(self.width, self.width));
        let (mut base, mut spread) = (mem.base, None);
        for (axis, pos) in places.at.iter().enumerate() {
            let (stride, dim) = (mem.strides[axis], mem.dims[axis]);
            let p = match *pos {
                Pos::Uniform(p) => p,
                Pos::Steps { first, step } => self.widen(Repr::Steps { first, step }),
                Pos::Each(p) => p,
            };
            let wide = |x: Val| ir.splat(x, ir.lanes(ir.ty(p)));
            if places.checked[axis] {
                let inside = ir.icmp(IntCmp::LLVMIntULT, p, wide(dim));
                on = ir.and(on, self.spread(inside));
            }
            let offset = ir.mul(p, wide(stride));
            match pos {
                Pos::Uniform(_) => base = ir.offset(base, offset),
                Pos::Steps { .. } | Pos::Each(_) => {
                    spread = Some(spread.map_or(offset, |s| ir.add(s, offset)));
                }
            }
        }
        let offsets = spread.map(|s| self.row(s, DType::I64));
        for_each_bit(ir, mask_bits(ir, on), |lane| {
            let p = match offsets {
                Some(row) => ir.offset(base, self.of_lane(row, lane)),
                None => base,
            };
            body(self, lane, p);
        });
    }

    fn spread(&self, mask: Val) -> Val {
        let ir = self.ir;
        if ir.lanes(ir.ty(mask)) == 1 { ir.splat(mask, self.width) } else { mask }
    }
}

/// A loop over the bits of a number that are set, lowest first.
pub fn for_each_bit(ir: &Ir, bits: Val, body: impl FnOnce(Val)) {
    let (before, head, end) = (ir.here(), ir.block("lane"), ir.block("end"));
    let some = |bits: Val| ir.icmp(IntCmp::LLVMIntNE, bits, ir.c64(0));
    ir.branch(some(bits), head, end);
    ir.goto(head);
    let left = ir.phi(ir.i64(), &[(bits, before)]);
    body(ir.intrinsic("llvm.cttz", &[ir.i64()], &[left, ir.bool(true)]));
    let rest = ir.and(left, ir.add_const(left, -1));
    ir.incoming(left, rest, ir.here());
    ir.branch(some(rest), head, end);
    ir.goto(end);
}
