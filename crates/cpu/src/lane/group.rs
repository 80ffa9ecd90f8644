//! Control flow of the group as a whole: it runs from cut to cut, and loops and branches that
//! contain cuts belong to it. Where lanes diverge in one of these, their masks are kept in slots.

use super::span::Finish;
use super::uniform::yields;
use super::{LaneState, Lanes, Repr};
use crate::code::Site;
use crate::llvm::{IntCmp, Val};
use crate::memory::Mem;
use tessera_ir::{BlockId, OpId, Value};
use tessera_numerics::DType;
use tessera_support::Entity;
use tessera_tile::TileOp;

/// Values that a region or loop yields through slots, and those that all lanes share.
#[derive(Default)]
struct Handed {
    slots: Vec<(Value, u64)>,
    scalars: Vec<Value>,
}

/// Lanes that are on and those that are off now and were on before, counted in memory.
#[derive(Copy, Clone)]
struct Count {
    on: Val,
    off: Val,
}

impl<'a> Lanes<'a> {
    /// The ops of a block of the group's; `finish` is done for each vector at its end.
    pub fn group_block(&mut self, block: BlockId, wants: &[Value], finish: Option<Finish<'_, 'a>>) {
        let func = self.func;
        let mut items = Vec::new();
        for &id in &func.blocks[block].ops {
            let op = &func.ops[id];
            if op.is_terminator() {
                continue;
            }
            if self.plan.is_cut(id) {
                self.vectors(&items, &[], None);
                items.clear();
                self.cut(id);
            } else if self.plan.is_group(id) {
                let repr = self.compute(op);
                self.set(op.result(), repr);
            } else {
                items.push(id);
            }
        }
        self.vectors(&items, wants, finish);
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn cut(&mut self, id: OpId) {
        use TileOp::*;
        let op = &self.func.ops[id];
        match op.code {
            If => self.group_branch(id),
            For => self.group_counted(id),
            While => self.group_conditional(id),
            Barrier => self.synchronise(id, "a barrier"),
            BufAlloc => self.allocate(id),
            Print => self.print(id),
            Atomic | Accumulate => self.vectors(&[id], &[], None),
            GroupReduce => {
                self.synchronise(id, "a group operation");
                self.group_reduce(id);
            }
            GroupScan => {
                self.synchronise(id, "a group operation");
                self.group_scan(id);
            }
            Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId | LocalId
            | GroupSize | WarpSize | Dim | Origin | Const | Iota | Select | Cast | Bitcast
            | Reshape | Transpose | Broadcast | Expand | Load | Store | Gather | Scatter
            | CopyAsync | CopyCommit | CopyWait | Mma | GroupBroadcast | GroupShuffle | Philox
            | Assert | Reduce | Scan | ArgReduce | Ew(_) | Slice | Concat | Take | ReduceBy
            | ScanBy | Sort | Histogram | Owned | Asm | AsmEffect => {
                self.synchronise(id, "a group operation");
                if self.plan.is_group(id) {
                    self.take_one(id);
                } else {
                    self.vectors(&[id], &[], None);
                }
            }
        }
    }

    /// All lanes that exist must be here.
    fn synchronise(&mut self, id: OpId, what: &'static str) {
        if let Some(full) = self.state.full {
            let site = self.code.site(Site::divergent(self.func, id, what));
            self.fail(self.ir.not(full), site);
        }
    }

    fn allocate(&mut self, id: OpId) {
        let ir = self.ir;
        let result = self.func.ops[id].result();
        let ty = self.func.ty(result);
        let (dtype, shape) = (ty.dtype(), ty.static_shape().unwrap_or_default());
        let width = dtype.bytes() as i64;
        let bytes = shape.iter().product::<i64>().max(0) * width;
        let base = self.room(bytes as u64);
        // What was never written reads as zero, in every run alike.
        ir.fill_bytes(base, 0, ir.c64(bytes), 64);
        let mut strides = vec![width; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis];
        }
        self.mems[result.index()] = Some(Mem {
            base,
            dims: shape.iter().map(|&d| ir.c64(d)).collect(),
            unit: strides.iter().map(|&s| s == width).collect(),
            strides: strides.iter().map(|&s| ir.c64(s)).collect(),
            dtype,
            stream: false,
        });
    }

    pub fn room(&mut self, bytes: u64) -> Val {
        let at = self.code.reserve(bytes);
        self.ir.offset_const(self.scratch, at as i64)
    }

    /// How `from` is handed on as `to`.
    fn handed(&self, to: &[Value], from: &[Value]) -> Handed {
        let mut out = Handed::default();
        for (&to, &from) in to.iter().zip(from) {
            match self.plan.slot(to) {
                Some(slot) if self.plan.varies(to) => out.slots.push((from, slot)),
                _ => out.scalars.push(from),
            }
        }
        out
    }

    /// Runs a block and stores what it yields into slots; gives the scalars.
    fn hand_over(&mut self, block: BlockId, to: &[Value]) -> Vec<Val> {
        let handed = self.handed(to, &yields(self.func, block));
        let wants: Vec<Value> = handed.slots.iter().map(|s| s.0).collect();
        let mut write = |lanes: &mut Self| lanes.write_all(&handed.slots);
        self.group_block(block, &wants, if wants.is_empty() { None } else { Some(&mut write) });
        handed.scalars.iter().map(|&v| self.scalar(v)).collect()
    }

    /// All are read before any is written, for one may be another's old value.
    fn write_all(&self, slots: &[(Value, u64)]) {
        let all: Vec<Val> = slots.iter().map(|s| self.vector(s.0)).collect();
        for (&(v, slot), x) in slots.iter().zip(all) {
            self.write_slot(slot, self.dtype(v), x);
        }
    }

    /// Puts what a loop begins with into its slots; gives the scalars.
    fn begin(&mut self, to: &[Value], init: &[Value]) -> Vec<Val> {
        let handed = self.handed(to, init);
        let wants: Vec<Value> = handed.slots.iter().map(|s| s.0).collect();
        let mut write = |lanes: &mut Self| lanes.write_all(&handed.slots);
        self.vectors(&[], &wants, if wants.is_empty() { None } else { Some(&mut write) });
        handed.scalars.iter().map(|&v| self.scalar(v)).collect()
    }

    /// Binds the scalars among values, in their order.
    fn bind_scalars(&mut self, values: &[Value], scalars: &[Val]) {
        let shared = values.iter().filter(|&&v| !self.plan.varies(v)).copied();
        for (v, &x) in shared.collect::<Vec<_>>().into_iter().zip(scalars) {
            self.set(v, Repr::Uniform(x));
        }
    }

    fn counters(&mut self) -> Count {
        let room = self.room(16);
        Count { on: room, off: self.ir.offset_const(room, 8) }
    }

    fn clear(&self, count: Count) {
        self.ir.store(self.ir.c64(0), count.on, 8);
        self.ir.store(self.ir.c64(0), count.off, 8);
    }

    /// Writes the mask of those lanes of the vector that run where the condition holds, and counts.
    fn write_mask(&self, slot: u64, cond: Val, count: Count) {
        let ir = self.ir;
        let all = || ir.const_first_lanes(self.width, self.width);
        let running = self.mask.unwrap_or_else(all);
        let (on, off) = (ir.and(running, cond), ir.and(running, ir.not(cond)));
        for (mask, cell) in [(on, count.on), (off, count.off)] {
            let sum = ir.add(ir.load(ir.i64(), cell, 8), super::ops::count_lanes(ir, mask));
            ir.store(sum, cell, 8);
        }
        // Also where it is off: the slot may hold the mask of an earlier iteration.
        self.put_mask(slot, on);
    }

    /// Writes a mask for the lanes of the vector, but not for those of the next row.
    fn put_mask(&self, slot: u64, mask: Val) {
        let ir = self.ir;
        let p = self.slot_element(slot, DType::Bool, self.lane_number());
        let mut bytes = self.to_slot(mask, DType::Bool);
        if self.rows.axes() > 1 && self.mask.is_some() {
            let own = ir.first_lanes(ir.sub(self.span.hi, self.at), self.width);
            bytes = ir.select(own, bytes, ir.load(ir.ty(bytes), p, 1));
        }
        ir.store(bytes, p, 1);
    }

    fn some(&self, cell: Val) -> Val {
        let ir = self.ir;
        ir.icmp(IntCmp::LLVMIntNE, ir.load(ir.i64(), cell, 8), ir.c64(0))
    }

    /// The state of those that a mask was just counted for.
    fn within(&self, outer: LaneState, slot: u64, off: Val) -> LaneState {
        let ir = self.ir;
        let none = ir.not(self.some(off));
        LaneState { mask: Some(slot), full: Some(outer.full.map_or(none, |f| ir.and(f, none))) }
    }

    fn group_branch(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        if self.plan.varies(op.operands[0]) {
            return self.group_apart(id);
        }
        let ir = self.ir;
        let cond = self.scalar(op.operands[0]);
        let (yes, no, end) = (ir.block("then"), ir.block("else"), ir.block("end"));
        ir.branch(cond, yes, no);
        let mut arms = Vec::new();
        for (&region, block) in op.regions.iter().zip([yes, no]) {
            ir.goto(block);
            let scalars = self.hand_over(region, &op.results);
            arms.push((scalars, ir.here()));
            ir.jump(end);
        }
        ir.goto(end);
        let join = |(&x, &y): (&Val, &Val)| ir.phi(ir.ty(x), &[(x, arms[0].1), (y, arms[1].1)]);
        let xs: Vec<_> = arms[0].0.iter().zip(&arms[1].0).map(join).collect();
        self.bind_scalars(&op.results, &xs);
    }

    /// A divergent branch: both paths run, one after the other.
    fn group_apart(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let ir = self.ir;
        let (cond, first) = (op.operands[0], self.plan.masks(id));
        let count = self.counters();
        self.clear(count);
        let outer = self.state;
        self.vectors(
            &[],
            &[cond],
            Some(&mut |lanes| {
                let c = lanes.vector(cond);
                lanes.write_mask(first, c, count);
                let all = || ir.const_first_lanes(lanes.width, lanes.width);
                let off = ir.and(lanes.mask.unwrap_or_else(all), ir.not(c));
                lanes.put_mask(first + 1, off);
            }),
        );
        let sides = [(count.on, count.off, first), (count.off, count.on, first + 1)];
        let states = sides.map(|(_, off, slot)| self.within(outer, slot, off));
        let somes = sides.map(|(on, ..)| self.some(on));
        for (i, &region) in op.regions.iter().enumerate() {
            self.state = states[i];
            ir.when(somes[i], |_| {
                self.hand_over(region, &op.results);
            });
        }
        self.state = outer;
    }

    fn group_counted(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let ir = self.ir;
        let (body, args) = (op.regions[0], &func.blocks[op.regions[0]].args);
        if op.operands[..3].iter().any(|&v| self.plan.varies(v)) {
            return self.group_counted_apart(id);
        }
        let [lo, hi, step] = [0, 1, 2].map(|i| self.scalar(op.operands[i]));
        self.check_step(id, Repr::Uniform(step));
        let first = self.begin(&op.results, op.group("init"));
        let (before, head, end) = (ir.here(), ir.block("for"), ir.block("end"));
        ir.branch(ir.icmp(IntCmp::LLVMIntSLT, lo, hi), head, end);
        ir.goto(head);
        let at = ir.phi(ir.i64(), &[(lo, before)]);
        let phis: Vec<_> = first.iter().map(|&v| ir.phi(ir.ty(v), &[(v, before)])).collect();
        self.set(args[0], Repr::Uniform(at));
        self.bind_scalars(&args[1..], &phis);
        let next = self.hand_over(body, &op.results);
        self.poll();
        let after = ir.intrinsic("llvm.sadd.sat", &[ir.i64()], &[at, step]);
        let last = ir.here();
        ir.incoming(at, after, last);
        phis.iter().zip(&next).for_each(|(&p, &v)| ir.incoming(p, v, last));
        ir.branch(ir.icmp(IntCmp::LLVMIntSLT, after, hi), head, end);
        ir.goto(end);
        let join = |(&a, &b): (&Val, &Val)| ir.phi(ir.ty(a), &[(a, before), (b, last)]);
        let xs: Vec<_> = first.iter().zip(&next).map(join).collect();
        self.bind_scalars(&op.results, &xs);
    }

    /// Lanes leave the loop one by one. Everything that it carries varies.
    fn group_counted_apart(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let ir = self.ir;
        let (body, place) = (op.regions[0], func.blocks[op.regions[0]].args[0]);
        let [lo, hi, step] = [op.operands[0], op.operands[1], op.operands[2]];
        let (slot, count, outer) = (self.plan.masks(id), self.counters(), self.state);
        let places = self.plan.slot(place).filter(|_| self.plan.varies(place));
        let site = self.code.site(Site::loop_step(func, id));
        self.vectors(&[], &[step], Some(&mut |lanes| lanes.stop_at_bad_step(step, site)));
        self.begin(&op.results, op.group("init"));
        self.clear(count);
        self.vectors(
            &[],
            &[lo, hi],
            Some(&mut |lanes| {
                let (from, to) = (lanes.vector(lo), lanes.vector(hi));
                if let Some(places) = places {
                    lanes.write_slot(places, DType::I64, from);
                }
                lanes.write_mask(slot, ir.icmp(IntCmp::LLVMIntSLT, from, to), count);
            }),
        );
        let start = if places.is_none() { self.scalar(lo) } else { ir.c64(0) };
        let (before, head) = (ir.here(), ir.block("for"));
        let (inner, end) = (ir.block("body"), ir.block("end"));
        ir.jump(head);
        ir.goto(head);
        let at = ir.phi(ir.i64(), &[(start, before)]);
        ir.branch(self.some(count.on), inner, end);
        ir.goto(inner);
        if places.is_none() {
            self.set(place, Repr::Uniform(at));
        }
        self.state = self.within(outer, slot, count.off);
        // Lanes that left before do not come back: further iterations run within the mask.
        let running = self.state;
        self.hand_over(body, &op.results);
        self.poll();
        self.state = running;
        self.clear_on(count);
        self.vectors(
            &[],
            &[place, hi, step],
            Some(&mut |lanes| {
                let (from, to, by) = (lanes.vector(place), lanes.vector(hi), lanes.vector(step));
                let still = ir.icmp(IntCmp::LLVMIntULT, by, ir.sub(to, from));
                if let Some(places) = places {
                    lanes.write_slot(places, DType::I64, ir.add(from, by));
                }
                lanes.write_mask(slot, still, count);
            }),
        );
        let after = if places.is_none() { ir.add(at, self.scalar(step)) } else { at };
        ir.incoming(at, after, ir.here());
        ir.jump(head);
        ir.goto(end);
        self.state = outer;
    }

    /// Lanes that are off stay counted as such from iteration to iteration.
    fn clear_on(&self, count: Count) {
        self.ir.store(self.ir.c64(0), count.on, 8);
    }

    fn stop_at_bad_step(&mut self, step: Value, site: i64) {
        let ir = self.ir;
        let step = self.vector(step);
        let bad = ir.icmp(IntCmp::LLVMIntSLE, step, ir.zero(ir.ty(step)));
        let bad = self.mask.map_or(bad, |m| ir.and(m, bad));
        self.fail(ir.any(bad), site);
    }

    fn group_conditional(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let ir = self.ir;
        let (cond, body) = (op.regions[0], op.regions[1]);
        let test = yields(func, cond)[0];
        let apart = self.plan.varies(test);
        let (slot, outer) = (self.plan.masks(id), self.state);
        let first = self.begin(&op.results, op.group("init"));
        let count = apart.then(|| self.counters());
        if let Some(count) = count {
            // All that are here begin.
            self.clear(count);
            let all = ir.const_first_lanes(self.width, self.width);
            self.vectors(&[], &[], Some(&mut |lanes| lanes.write_mask(slot, all, count)));
        }
        let (before, head) = (ir.here(), ir.block("while"));
        let (inner, end) = (ir.block("body"), ir.block("end"));
        ir.jump(head);
        ir.goto(head);
        let phis: Vec<_> = first.iter().map(|&v| ir.phi(ir.ty(v), &[(v, before)])).collect();
        self.bind_scalars(&func.blocks[cond].args, &phis);
        match count {
            None => {
                self.group_block(cond, &[], None);
                let c = self.scalar(test);
                ir.branch(c, inner, end);
            }
            Some(count) => {
                self.state = self.within(outer, slot, count.off);
                self.clear_on(count);
                let mut write = |lanes: &mut Self| {
                    let c = lanes.vector(test);
                    lanes.write_mask(slot, c, count);
                };
                self.group_block(cond, &[test], Some(&mut write));
                ir.branch(self.some(count.on), inner, end);
            }
        }
        ir.goto(inner);
        if let Some(count) = count {
            self.state = self.within(outer, slot, count.off);
        }
        self.bind_scalars(&func.blocks[body].args, &phis);
        let next = self.hand_over(body, &op.results);
        self.poll();
        self.state = outer;
        let last = ir.here();
        phis.iter().zip(&next).for_each(|(&p, &v)| ir.incoming(p, v, last));
        ir.jump(head);
        ir.goto(end);
        self.bind_scalars(&op.results, &phis);
    }
}
