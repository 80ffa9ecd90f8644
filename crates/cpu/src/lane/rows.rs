//! Lanes of several axes. The last axis counts fastest: a row of the group is a run of lanes along
//! it, and vectors do not reach from one row into the next. Lanes that do not exist are at the ends
//! of rows, and whole rows.

use super::ops::plus;
use super::{Lanes, Repr, Span, slot_align};
use crate::llvm::{IntCmp, Ir, Val};
use tessera_ir::Op;
use tessera_numerics::DType;
use tessera_tile::{Tile, TileFunc, TileOp, lane_axis, lane_extents};

pub struct Rows {
    /// The extents of a full group; one where the launch says how many lanes form one.
    extents: Vec<i64>,
    /// The group's first lane along each axis but the last, and the lanes that exist.
    first: Vec<Val>,
    count: Vec<Val>,
    /// The lanes that exist along the last axis.
    along: Val,
    /// The place of the present row in the group, and the number of its first lane.
    place: Vec<Val>,
    pub start: Val,
}

impl Rows {
    pub fn new(ir: &Ir, func: &TileFunc) -> Self {
        let mut extents = lane_extents(func);
        extents.resize(extents.len().max(1), 0);
        let outer = vec![ir.c64(0); extents.len() - 1];
        Self {
            extents,
            first: outer.clone(),
            count: outer.clone(),
            along: ir.c64(0),
            place: outer,
            start: ir.c64(0),
        }
    }

    pub fn axes(&self) -> usize {
        self.extents.len()
    }
}

impl<'a> Lanes<'a> {
    /// The number in the group of the vector's first lane.
    pub fn lane_number(&self) -> Val {
        plus(self.ir, self.rows.start, self.at)
    }

    /// A lane's index in the launch or in its group.
    pub fn lane_id(&self, op: &Op<Tile>) -> Repr {
        let launch = op.code == TileOp::LinearId;
        let last = self.rows.axes() - 1;
        match lane_axis(op) {
            Some(axis) if axis < last => Repr::Uniform(self.row_id(axis, launch)),
            None if !launch => Repr::Steps { first: self.lane_number(), step: 1 },
            _ if launch => Repr::Steps { first: plus(self.ir, self.span.base, self.at), step: 1 },
            _ => Repr::Steps { first: self.at, step: 1 },
        }
    }

    /// What a lane's index is for lane 0 of the row, and the step from lane to lane.
    pub fn lane_form(&self, op: &Op<Tile>) -> (Val, i64) {
        let launch = op.code == TileOp::LinearId;
        let last = self.rows.axes() - 1;
        match lane_axis(op) {
            Some(axis) if axis < last => (self.row_id(axis, launch), 0),
            None if !launch => (self.rows.start, 1),
            _ if launch => (self.span.base, 1),
            _ => (self.ir.c64(0), 1),
        }
    }

    /// The index along an axis that all lanes of a row share.
    fn row_id(&self, axis: usize, launch: bool) -> Val {
        let place = self.rows.place[axis];
        if launch { plus(self.ir, self.rows.first[axis], place) } else { place }
    }

    /// Emits the groups `begin..end`. Where groups do not matter, those that are neighbours along the
    /// last axis are one, with longer rows.
    pub fn groups_of_rows(&mut self, begin: Val, end: Val) {
        let (ir, func) = (self.ir, self.func);
        self.find_slots();
        let last = self.rows.axes() - 1;
        let (before, head) = (ir.here(), ir.block("groups"));
        let (inner, done) = (ir.block("group"), ir.block("done"));
        ir.jump(head);
        ir.goto(head);
        let number = ir.phi(ir.i64(), &[(begin, before)]);
        ir.branch(ir.icmp(IntCmp::LLVMIntSLT, number, end), inner, done);
        ir.goto(inner);
        self.number = number;
        let at = self.coordinates(number);
        let mut there = Vec::new();
        for (axis, &group) in at.iter().enumerate().take(last + 1) {
            let extent = ir.c64(self.rows.extents[axis]);
            let first = ir.mul(group, extent);
            let left = ir.sub(self.word(self.frame.domain(axis)), first);
            if axis < last {
                self.rows.first[axis] = first;
                self.rows.count[axis] = ir.smin(left, extent);
                there.push(ir.icmp(IntCmp::LLVMIntSGT, left, ir.c64(0)));
                continue;
            }
            self.rows.along = ir.smin(left, extent);
            self.span = Span { lo: ir.c64(0), hi: self.rows.along, base: first };
        }
        let run = if self.plan.flat {
            let grid = self.word(crate::frame::GRID + last);
            let run = ir.smin(ir.sub(end, number), ir.sub(grid, at[last]));
            let long = ir.mul(run, ir.c64(self.rows.extents[last]));
            let left = ir.sub(self.word(self.frame.domain(last)), self.span.base);
            self.span.hi = ir.smin(left, long);
            run
        } else {
            ir.c64(1)
        };
        there.push(ir.icmp(IntCmp::LLVMIntSGT, self.span.hi, ir.c64(0)));
        let there = there.into_iter().reduce(|a, b| ir.and(a, b)).unwrap_or(ir.bool(true));
        // A group without lanes has no effects.
        let outside = self.env.clone();
        ir.when(there, |_| self.group_block(func.body, &[], None));
        self.env = outside;
        ir.incoming(number, ir.add(number, run), ir.here());
        ir.jump(head);
        ir.goto(done);
    }

    /// Emits code for each row of the group that exists.
    pub fn each_row(&mut self, body: &mut dyn FnMut(&mut Self)) {
        self.rows_from(0, self.ir.c64(0), body);
        self.rows.start = self.ir.c64(0);
    }

    fn rows_from(&mut self, axis: usize, before: Val, body: &mut dyn FnMut(&mut Self)) {
        let ir = self.ir;
        if axis + 1 == self.rows.axes() {
            let long = self.rows.extents[axis];
            self.rows.start = if axis == 0 { ir.c64(0) } else { ir.mul_const(before, long) };
            return body(self);
        }
        ir.for_range(ir.c64(0), self.rows.count[axis], 1, &[], |ir, place, _| {
            self.rows.place[axis] = place;
            let before = plus(ir, ir.mul_const(before, self.rows.extents[axis]), place);
            self.rows_from(axis + 1, before, body);
            Vec::new()
        });
    }

    /// How many numbers the lanes of the group have, those that do not exist in between included.
    pub fn numbers(&self) -> Val {
        if self.rows.axes() == 1 { self.span.hi } else { self.size }
    }

    /// Whether lanes of these numbers exist, one or a vector of them.
    pub fn exists(&self, number: Val) -> Val {
        let ir = self.ir;
        let like = |x: Val| match ir.lanes(ir.ty(number)) {
            1 => x,
            n => ir.splat(x, n),
        };
        let mut there = ir.icmp(IntCmp::LLVMIntULT, number, like(self.numbers()));
        let last = self.rows.axes() - 1;
        if last == 0 {
            return there;
        }
        let mut rest = number;
        for axis in (0..=last).rev() {
            let extent = like(ir.c64(self.rows.extents[axis]));
            let place = if axis == 0 { rest } else { ir.urem(rest, extent) };
            rest = ir.udiv(rest, extent);
            let count = if axis == last { self.rows.along } else { self.rows.count[axis] };
            there = ir.and(there, ir.icmp(IntCmp::LLVMIntULT, place, like(count)));
        }
        there
    }

    /// Puts a value into a slot for the lanes that do not exist. They are the last where there is one
    /// axis, and nothing reads those.
    pub fn fill_absent(&mut self, slot: u64, dtype: DType, x: Val) {
        let ir = self.ir;
        if self.rows.axes() == 1 {
            return;
        }
        let counts = self.rows.count.iter().chain([&self.rows.along]);
        let short = counts
            .zip(&self.rows.extents)
            .map(|(&count, &extent)| ir.icmp(IntCmp::LLVMIntSLT, count, ir.c64(extent)));
        let partial = short.reduce(|a, b| ir.or(a, b)).unwrap_or(ir.bool(false));
        ir.when(partial, |ir| {
            ir.for_range(ir.c64(0), self.size, 1, &[], |ir, number, _| {
                ir.when(ir.not(self.exists(number)), |ir| {
                    let p = self.slot_element(slot, dtype, number);
                    ir.store(self.to_slot(x, dtype), p, slot_align(dtype));
                });
                Vec::new()
            });
        });
    }

    /// Where lane `at` of the present row is: its group, and its number in it.
    pub fn group_and_number(&self, at: Val) -> ([Val; 3], Val) {
        let ir = self.ir;
        let last = self.rows.axes() - 1;
        if !self.plan.flat {
            return (self.coordinates(self.number), plus(ir, self.rows.start, at));
        }
        if last == 0 {
            return (self.coordinates(ir.udiv(at, self.size)), ir.urem(at, self.size));
        }
        let mut group = self.coordinates(self.number);
        let long = ir.c64(self.rows.extents[last]);
        group[last] = ir.add(group[last], ir.udiv(at, long));
        (group, plus(ir, self.rows.start, ir.urem(at, long)))
    }
}
