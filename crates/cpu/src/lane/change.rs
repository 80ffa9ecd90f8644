//! Updates by lanes one after another, in ascending order: atomics, and folds into elements that
//! several lanes may share.

use super::access::Positions;
use super::{Lanes, Repr, slot_align};
use crate::asm_text::Text;
use crate::atomic::{Change, each_lane};
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

/// Where each lane's element is.
struct Addresses {
    base: Val,
    /// Bytes from there, where lanes differ.
    offsets: Option<Part>,
    /// The lanes that take part, where not all do.
    on: Option<Val>,
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
        let all = self.each_address(&mem, &places, self.mask);
        let one = |ir: &Ir, lanes: &Self, lane: Val, alone: bool| {
            let x = lanes.of_lane(value, lane);
            let expected = expected.map(|e| lanes.of_lane(e, lane));
            let emit = if alone { Change::emit_alone } else { Change::emit };
            let old = emit(&change, &s, &mem, lanes.address(&all, lane), x, expected);
            if let Some(room) = olds {
                ir.store(old, ir.offset(room, ir.mul_const(lane, width)), 1);
            }
        };
        let (unroll, on) = (change.is_short() && !used, all.on);
        // Nobody else is at the group's own memory.
        let alone = if shared { ir.bool(true) } else { self.alone };
        let lanes = &*self;
        ir.when(alone, |ir| {
            each_lane(ir, lanes.width, on, unroll, &mut |ir, lane| one(ir, lanes, lane, true));
        });
        if !shared {
            ir.when(ir.not(alone), |ir| {
                each_lane(ir, lanes.width, on, false, &mut |ir, lane| one(ir, lanes, lane, false));
            });
        }
        if let Some(room) = olds {
            let codes = ir.load(s.stored(mem.dtype, self.width), room, 64);
            self.set(op.result(), Repr::Each(s.decode(codes, mem.dtype)));
            self.keep(op.result());
        }
    }

    /// One run of a text for each lane that takes part.
    pub fn text_with_effects(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let (ir, s) = (self.ir, self.s);
        let text = Text::of(func, op);
        let parts: Vec<Part> = op.operands.iter().map(|&v| self.part(v)).collect();
        let rooms: Vec<Val> = op
            .results
            .iter()
            .map(|&v| {
                let zero = ir.zero(self.slot_type(self.dtype(v), self.width));
                let room = ir.alloca(ir.ty(zero), 64);
                ir.store(zero, room, 64);
                room
            })
            .collect();
        let lanes = &*self;
        each_lane(ir, self.width, self.mask, false, &mut |ir, lane| {
            let args: Vec<Val> = parts.iter().map(|&p| lanes.of_lane(p, lane)).collect();
            let out = text.run(&s, &args, true);
            for ((&v, &room), x) in op.results.iter().zip(&rooms).zip(out) {
                let dtype = lanes.dtype(v);
                let far = ir.mul_const(lane, dtype.carrier().bytes() as i64);
                ir.store(lanes.to_slot(x, dtype), ir.offset(room, far), slot_align(dtype));
            }
        });
        for (&v, room) in op.results.iter().zip(rooms) {
            let dtype = self.dtype(v);
            let x = ir.load(self.slot_type(dtype, self.width), room, 64);
            self.set(v, Repr::Each(self.slot_value(x, dtype)));
            self.keep(v);
        }
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
        let all = self.each_address(mem, places, mask);
        let lanes = &*self;
        each_lane(ir, self.width, all.on, fold.is_short(), &mut |ir, lane| {
            let (p, x) = (lanes.address(&all, lane), lanes.of_lane(value, lane));
            let old = s.decode(ir.load(s.stored(mem.dtype, 1), p, 1), mem.dtype);
            ir.store(fold.code(&s, old, x), p, 1);
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

    /// The addresses of the lanes that run and are inside.
    fn each_address(&self, mem: &Mem, places: &Positions, mask: Option<Val>) -> Addresses {
        let ir = self.ir;
        let mut on = mask;
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
                let inside = self.spread(inside);
                on = Some(on.map_or(inside, |on| ir.and(on, inside)));
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
        Addresses { base, offsets, on }
    }

    fn address(&self, all: &Addresses, lane: Val) -> Val {
        all.offsets.map_or(all.base, |row| self.ir.offset(all.base, self.of_lane(row, lane)))
    }

    fn spread(&self, mask: Val) -> Val {
        let ir = self.ir;
        if ir.lanes(ir.ty(mask)) == 1 { ir.splat(mask, self.width) } else { mask }
    }
}
