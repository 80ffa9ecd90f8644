//! Collective operations of a group's lanes, and their prints. Operands that vary between lanes are
//! in slots. In a partial group the first lanes exist; where lanes have several axes, others are
//! filled with the identity.

use super::{Lanes, Repr, slot_align};
use crate::code::{note_group, note_lane};
use crate::llvm::Val;
use tessera_ir::{Attr, Op, OpId, Value};
use tessera_numerics::{DType, LANES, ReduceOp, Scalar};
use tessera_tile::Tile;

fn operator(op: &Op<Tile>) -> ReduceOp {
    let name = op.attr("op").and_then(Attr::as_word).unwrap_or("sum");
    ReduceOp::from_name(name).unwrap_or(ReduceOp::Sum)
}

impl<'a> Lanes<'a> {
    /// The slot of a value that varies, or the value.
    fn source(&self, v: Value) -> Result<u64, Val> {
        match self.plan.slot(v) {
            Some(slot) if self.plan.varies(v) => Ok(slot),
            _ => Err(self.scalar(v)),
        }
    }

    /// The canonical order of LANGUAGE 14: lane `i` into partial result `i mod 64`, then by halves.
    pub fn group_reduce(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let (ir, s, x) = (self.ir, self.s, op.operands[0]);
        let (fold, dtype) = (operator(op), self.dtype(x));
        let from = self.source(x);
        let (width, all) = (i64::from(self.width), LANES as i64);
        let parts = (all / width) as usize;
        let empty = vec![s.identity(fold, dtype, self.width); parts];
        let join = |a: Val, b: Val| s.apply(fold.combine(), dtype, &[a, b]);
        let count = self.numbers();
        if let Ok(slot) = from {
            self.fill_absent(slot, dtype, s.identity(fold, dtype, 1));
        }
        let element = |lanes: &mut Self, at: Val, part: usize| {
            lanes.at = ir.add_const(at, part as i64 * width);
            match from {
                Ok(slot) => lanes.read_slot(slot, dtype),
                Err(x) if lanes.rows.axes() == 1 => ir.splat(x, lanes.width),
                Err(x) => {
                    let steps = ir.const_steps(ir.vec(ir.i64(), lanes.width), 0, 1);
                    let there = lanes.exists(ir.add(ir.splat(lanes.at, lanes.width), steps));
                    let nothing = s.identity(fold, dtype, lanes.width);
                    ir.select(there, ir.splat(x, lanes.width), nothing)
                }
            }
        };
        let mut sums = ir.for_range(ir.c64(0), count, all, &empty, |ir, at, sums| {
            let one = |(part, &sum): (usize, &Val)| {
                let x = element(self, at, part);
                let there = ir.first_lanes(ir.sub(count, self.at), self.width);
                ir.select(there, join(sum, x), sum)
            };
            sums.iter().enumerate().map(one).collect()
        });
        while sums.len() > 1 {
            let high = sums.split_off(sums.len() / 2);
            sums = sums.iter().zip(high).map(|(&a, b)| join(a, b)).collect();
        }
        let (mut sum, mut half) = (sums[0], self.width / 2);
        while half > 0 {
            let low: Vec<u32> = (0..half).collect();
            let high: Vec<u32> = (half..2 * half).collect();
            sum = join(ir.shuffle(sum, sum, &low), ir.shuffle(sum, sum, &high));
            half /= 2;
        }
        self.set(op.result(), Repr::Uniform(sum));
    }

    /// One lane after another; the first is taken as it is.
    pub fn group_scan(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let (ir, s, x) = (self.ir, self.s, op.operands[0]);
        let (fold, dtype) = (operator(op), self.dtype(x));
        let Some(to) = self.plan.slot(op.result()) else { return };
        let exclusive = op.attr("exclusive").and_then(Attr::as_bool) == Some(true);
        let from = self.source(x);
        if let Ok(slot) = from {
            self.fill_absent(slot, dtype, s.identity(fold, dtype, 1));
        }
        let element = |at: Val| match from {
            Ok(slot) => self.slot_scalar(slot, dtype, at),
            Err(x) if self.rows.axes() == 1 => x,
            Err(x) => ir.select(self.exists(at), x, s.identity(fold, dtype, 1)),
        };
        let put = |at: Val, x: Val| {
            let p = self.slot_element(to, dtype, at);
            ir.store(self.to_slot(x, dtype), p, slot_align(dtype));
        };
        let first = element(ir.c64(0));
        put(ir.c64(0), if exclusive { s.identity(fold, dtype, 1) } else { first });
        ir.for_range(ir.c64(1), self.numbers(), 1, &[first], |_, at, before| {
            let with = s.apply(fold.combine(), dtype, &[before[0], element(at)]);
            put(at, if exclusive { before[0] } else { with });
            vec![with]
        });
    }

    fn slot_scalar(&self, slot: u64, dtype: DType, number: Val) -> Val {
        let p = self.slot_element(slot, dtype, number);
        self.slot_value(self.ir.load(self.slot_type(dtype, 1), p, slot_align(dtype)), dtype)
    }

    /// The value of one lane for all; zero of a lane that does not exist.
    pub fn take_one(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let (ir, x) = (self.ir, op.operands[0]);
        let (dtype, from) = (self.dtype(x), self.scalar(op.operands[1]));
        let there = self.exists(from);
        let value = match self.source(x) {
            Ok(slot) => {
                let number = ir.select(there, from, ir.c64(0));
                self.slot_scalar(slot, dtype, number)
            }
            Err(x) => x,
        };
        let zero = self.s.constant(Scalar::zero(dtype), 1);
        self.set(op.result(), Repr::Uniform(ir.select(there, value, zero)));
    }

    /// The value of the lane that each lane chooses.
    pub fn shuffle(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let (ir, x) = (self.ir, op.operands[0]);
        let (dtype, from) = (self.dtype(x), self.vector(op.operands[1]));
        let there = self.exists(from);
        let zero = self.s.constant(Scalar::zero(dtype), self.width);
        let value = match self.source(x) {
            Ok(slot) => {
                let bytes = dtype.carrier().bytes() as i64;
                let ps = ir.offset(self.slot_address(slot), ir.mul_const(from, bytes));
                let ty = self.slot_type(dtype, self.width);
                let mask = self.mask.map_or(there, |m| ir.and(m, there));
                let bits = ir.gather(ty, ps, slot_align(dtype), mask, ir.zero(ty));
                self.slot_value(bits, dtype)
            }
            Err(x) => ir.splat(x, self.width),
        };
        self.set(op.result(), Repr::Each(ir.select(there, value, zero)));
        self.keep(op.result());
    }

    /// One line for each lane that is here.
    pub fn print(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let (ir, words) = (self.ir, self.words);
        let which = self.code.printing(self.func, id);
        let list = self.room(8 * op.operands.len().max(1) as u64);
        let mut slots = Vec::new();
        for (i, &v) in op.operands.iter().enumerate() {
            let place = ir.offset_const(list, 8 * i as i64);
            match self.source(v) {
                Ok(slot) => slots.push((place, slot, self.dtype(v))),
                Err(x) => {
                    let to = self.room(8);
                    ir.store(self.to_slot(x, self.dtype(v)), to, 8);
                    ir.store(to, place, 8);
                }
            }
        }
        note_group(ir, words, self.coordinates(self.number));
        ir.for_range(ir.c64(0), self.numbers(), 1, &[], |ir, lane, _| {
            let here = match self.state.mask {
                Some(slot) => self.slot_scalar(slot, DType::Bool, lane),
                None => ir.bool(true),
            };
            let here = match self.rows.axes() {
                1 => here,
                _ => ir.and(here, self.exists(lane)),
            };
            ir.when(here, |ir| {
                for &(place, slot, dtype) in &slots {
                    ir.store(self.slot_element(slot, dtype, lane), place, 8);
                }
                note_lane(ir, words, lane);
                crate::code::print(ir, words, which, list);
            });
            Vec::new()
        });
    }
}
