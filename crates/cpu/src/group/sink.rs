//! Nests that write: to arrays, to buffers, or a tile into scratch memory.

use super::group_plan::same_elements;
use super::nest::{Map, Nest, Node};
use super::{Buffer, Group, Repr};
use crate::atomic::{Change, each_lane};
use crate::fold::Fold;
use crate::isa::Isa;
use crate::llvm::{Ir, Ty, Val};
use crate::memory::{Access, Pos};
use std::collections::BTreeSet;
use tessera_ir::{Attr, OpId, Value};
use tessera_numerics::{DType, ReduceOp, Rounding};
use tessera_tile::attrs::cast_mode;
use tessera_tile::{TileOp, linear_of};

#[derive(Clone)]
pub enum Sink {
    /// The op `store`.
    Store(OpId),
    /// The op `accumulate`.
    Fold(OpId),
    /// The op `scatter`.
    Scatter(OpId),
    /// The op `atomic`, where it folds and its result is unused.
    Change(OpId),
    /// A tile into scratch memory.
    Keep(Value, Buffer),
}

/// Nests heavier than this are not emitted a second time for blocks at an edge, where masks cost
/// little.
const LIGHT: u32 = 100;

impl<'a> Group<'a> {
    /// A nest that writes to memory that the kernel can read: what must not see it comes before.
    pub fn write(&mut self, dims: &[i64], sinks: Vec<Sink>) {
        let identity = Nest::new(dims).identity();
        let roots: Vec<Node> = sinks.iter().flat_map(|s| self.roots(s, &identity)).collect();
        let mut own = self.in_step(dims, &roots);
        for sink in &sinks {
            if let Sink::Store(id) | Sink::Fold(id) | Sink::Scatter(id) | Sink::Change(id) = sink {
                own.retain(|&v| !self.reads_what_is_written(dims, v, *id));
            }
        }
        for v in self.pending.clone() {
            if self.pending.contains(&v) && !own.contains(&v) {
                self.in_memory(v);
            }
        }
        self.sink(dims, sinks);
    }

    /// Whether a tile is computed from elements that the op writes at other positions.
    pub fn reads_what_is_written(&self, dims: &[i64], v: Value, write: OpId) -> bool {
        let func = self.func;
        let (mem, identity) = (func.ops[write].operands[0], Nest::new(dims).identity());
        self.reached(&[(v, identity.clone())]).iter().any(|(r, map)| {
            let Some(id) = func.def_id(*r).filter(|_| matches!(self.repr(*r), Repr::Expression))
            else {
                return false;
            };
            let op = &func.ops[id];
            let reads = matches!(op.code, TileOp::Load | TileOp::Gather)
                && self.plan.alias.memory(op.operands[0]) == mem;
            let in_place =
                op.code == TileOp::Load && *map == identity && same_elements(func, id, write);
            reads && !in_place
        })
    }

    /// Emits a nest for the sinks, and with them for every pending tile that they compute anyway.
    pub fn sink(&mut self, dims: &[i64], mut sinks: Vec<Sink>) {
        let identity = Nest::new(dims).identity();
        let roots: Vec<Node> = sinks.iter().flat_map(|s| self.roots(s, &identity)).collect();
        let skip = match sinks.as_slice() {
            [Sink::Keep(v, _)] => Some(*v),
            _ => None,
        };
        sinks.extend(self.join_pending(dims, &roots, skip));
        let all: Vec<Node> = sinks.iter().flat_map(|s| self.roots(s, &identity)).collect();
        let turned = match sinks.as_slice() {
            [Sink::Keep(v, b)] if self.stores_transposed(*v, b) => Some((*v, b.clone())),
            _ => None,
        };
        let waiting = sinks.first().and_then(|first| self.waiting(dims, first));
        self.ahead.stores = waiting.is_some();
        self.versions(dims, &all, &written_ops(&sinks), |group, n| {
            if let Some((v, b)) = &turned {
                return group.store_transposed(n, *v, b);
            }
            if let Some(waiting) = &waiting {
                return group.in_blocks(n, &all, 0, &sinks[1..], waiting);
            }
            group.nested(n, &all, &mut |group, n| group.leaf(n, &sinks));
        });
        self.ahead.stores = false;
        self.settle(&sinks);
    }

    /// Tiles that a nest kept are in memory from here on.
    pub fn settle(&mut self, sinks: &[Sink]) {
        for sink in sinks {
            if let Sink::Keep(v, b) = sink
                && self.pending.remove(v)
            {
                self.set(*v, Repr::Buffer(b.clone()));
            }
        }
    }

    /// The pending tiles that the roots are computed from. Those whose elements are needed at the
    /// nest's own positions are stored by the nest itself; the others are computed before.
    pub fn join_pending(&mut self, dims: &[i64], roots: &[Node], skip: Option<Value>) -> Vec<Sink> {
        loop {
            let own = self.in_step(dims, roots);
            let reached = self.reached(roots);
            let other = reached
                .iter()
                .map(|(v, _)| *v)
                .find(|v| self.pending.contains(v) && !own.contains(v) && Some(*v) != skip);
            let Some(v) = other else {
                let own: Vec<_> = own.into_iter().filter(|v| Some(*v) != skip).collect();
                return own.into_iter().map(|v| Sink::Keep(v, self.buffer_for(v))).collect();
            };
            self.in_memory(v);
        }
    }

    /// The pending tiles that a nest over `dims` reads only at its own positions.
    fn in_step(&self, dims: &[i64], roots: &[Node]) -> BTreeSet<Value> {
        let identity = Nest::new(dims).identity();
        let (mut own, mut other) = (BTreeSet::new(), BTreeSet::new());
        for (v, map) in self.reached(roots) {
            if self.pending.contains(&v) {
                let same = map == identity && super::shape_of(self.func.ty(v)) == dims;
                if same {
                    own.insert(v)
                } else {
                    other.insert(v)
                };
            }
        }
        &own - &other
    }

    /// Emits the nest once, or where blocks may leave their memory twice: without and with a test
    /// at each access.
    pub fn versions(
        &mut self,
        dims: &[i64],
        roots: &[Node],
        writes: &[OpId],
        mut emit: impl FnMut(&mut Self, &mut Nest),
    ) {
        let weight: u32 =
            roots.iter().map(|(v, _)| self.plan.weight(*v)).fold(0, u32::saturating_add);
        let inside = self.all_inside(roots, writes);
        self.look_ahead(roots);
        let masked_only = self.isa >= Isa::Avx512 && weight > LIGHT;
        let ir = self.ir;
        match inside {
            None => {
                let mut n = Nest::new(dims);
                n.inside = true;
                emit(self, &mut n);
            }
            Some(_) if masked_only => emit(self, &mut Nest::new(dims)),
            Some(cond) => {
                let (yes, no, end) = (ir.block("inside"), ir.block("edge"), ir.block("end"));
                ir.branch(cond, yes, no);
                ir.goto(yes);
                let mut n = Nest::new(dims);
                n.inside = true;
                emit(self, &mut n);
                ir.jump(end);
                ir.goto(no);
                emit(self, &mut Nest::new(dims));
                ir.jump(end);
                ir.goto(end);
            }
        }
        self.ahead.now.clear();
    }

    /// What a sink computes.
    fn roots(&self, sink: &Sink, identity: &Map) -> Vec<Node> {
        let func = self.func;
        let node =
            |v: Value| (v, if func.ty(v).rank() == 0 { Map::new() } else { identity.clone() });
        match sink {
            Sink::Keep(v, _) => vec![node(*v)],
            Sink::Store(id) => {
                let op = &func.ops[*id];
                let mut out = vec![node(self.uncast(op.operands[1]).0)];
                out.extend(op.group("mask").iter().map(|&m| node(m)));
                out
            }
            Sink::Fold(id) => {
                let op = &func.ops[*id];
                [&[op.operands[1]], op.group("mask")].concat().into_iter().map(node).collect()
            }
            Sink::Scatter(id) | Sink::Change(id) => {
                func.ops[*id].operands[1..].iter().map(|&v| node(v)).collect()
            }
        }
    }

    /// The operand of a stored cast with the dtype's default rounding: the store rounds anyway.
    /// Else the value itself, and false.
    fn uncast(&self, v: Value) -> (Value, bool) {
        let func = self.func;
        let Some(op) = func.def(v).filter(|op| op.code == TileOp::Cast) else { return (v, false) };
        let (x, to) = (op.operands[0], func.ty(v).dtype());
        let plain = cast_mode(op, to) == (Rounding::Rne, to.saturates_by_default());
        let computed = matches!(self.repr(v), Repr::Expression) && !self.plan.kept.contains(&v);
        let direct = plain && computed && func.ty(x).dtype() == to.carrier();
        if direct { (x, true) } else { (v, false) }
    }

    /// Writes the elements at the nest's present place.
    fn leaf(&mut self, n: &mut Nest, sinks: &[Sink]) {
        let identity = n.identity();
        // Everything is read before anything is written.
        for sink in sinks {
            for root in self.roots(sink, &identity) {
                self.eval(n, &root);
            }
        }
        for sink in sinks {
            match sink {
                Sink::Keep(v, b) => self.keep(n, *v, b),
                Sink::Store(id) => self.store(n, *id),
                Sink::Fold(id) => self.fold(n, *id),
                Sink::Scatter(id) => self.scatter(n, *id),
                Sink::Change(id) => self.change(n, *id),
            }
        }
    }

    pub fn keep(&mut self, n: &mut Nest, v: Value, b: &Buffer) {
        let identity = n.identity();
        let x = self.eval(n, &(v, identity.clone()));
        self.write_buffer(n, b, &identity, x);
    }

    /// Writes carriers into scratch memory.
    pub fn write_buffer(&mut self, n: &Nest, b: &Buffer, map: &Map, x: Val) {
        let x = self.carrier_bits(self.widen(n, x), b.dtype);
        let mem = self.buffer_mem(b);
        let at: Vec<_> = map.iter().map(|&axis| n.pos(self, axis, 1)).collect();
        let checked = vec![false; at.len()];
        let mask = n.tail.filter(|_| n.lanes > 1);
        let access = Access { mem: &mem, at: &at, checked: &checked, lanes: n.lanes, mask };
        access.store(&self.s, x);
    }

    /// The bits of a carrier as they are, NaN and all.
    pub fn carrier_bits(&self, x: Val, dtype: DType) -> Val {
        let ir = self.ir;
        let ty = self.s.stored(dtype, ir.lanes(ir.ty(x)));
        match dtype {
            DType::Bool => ir.zext(x, ty),
            DType::F32 | DType::F64 => ir.bitcast(x, ty),
            _ => x,
        }
    }

    pub fn store(&mut self, n: &mut Nest, id: OpId) {
        let op = &self.func.ops[id];
        let (value, _) = self.uncast(op.operands[1]);
        let identity = n.identity();
        let x = self.eval(n, &(value, self.map_for(value, &identity)));
        let mem = self.memory(op.operands[0]);
        let code = self.s.encode(self.widen(n, x), mem.dtype);
        let (at, checked) = self.block_positions(n, op, &identity);
        let mask = self.mask(n, op.group("mask").first().copied(), &identity);
        let access = Access { mem: &mem, at: &at, checked: &checked, lanes: n.lanes, mask };
        // A matmul writes its rows in short pieces.
        let along_last = matches!(at.last(), Some(Pos::Steps { .. }));
        let on_lines = along_last && self.on_lines(id);
        if self.trusted.is_none() && access.stream(&self.s, code, on_lines) {
            self.code.streams = true;
            return;
        }
        access.store(&self.s, code);
    }

    /// Whether vectors of a store begin at multiples of their length along the last axis.
    fn on_lines(&self, id: OpId) -> bool {
        let at = self.func.ops[id].group("at");
        let lanes = i64::from(self.lanes);
        at.last().is_some_and(|&v| {
            let form = linear_of(self.func, v);
            form.constant % lanes == 0 && form.terms.values().all(|c| c % lanes == 0)
        })
    }

    fn map_for(&self, v: Value, identity: &Map) -> Map {
        if self.func.ty(v).rank() == 0 { Map::new() } else { identity.clone() }
    }

    /// The nest's tail and an op's own mask.
    fn mask(&mut self, n: &mut Nest, given: Option<Value>, identity: &Map) -> Option<Val> {
        let ir = self.ir;
        let tail = n.tail;
        let Some(given) = given else { return tail };
        let own = self.eval(n, &(given, self.map_for(given, identity)));
        Some(match tail {
            None => own,
            Some(tail) => ir.and(tail, self.widen(n, own)),
        })
    }

    fn scatter(&mut self, n: &mut Nest, id: OpId) {
        let op = &self.func.ops[id];
        let identity = n.identity();
        let x = self.eval(n, &(op.operands[1], identity.clone()));
        let mem = self.memory(op.operands[0]);
        let code = self.s.encode(self.widen(n, x), mem.dtype);
        let at = self.each_position(n, op, &identity);
        let mask = self.mask(n, op.group("mask").first().copied(), &identity);
        let checked = vec![true; at.len()];
        Access { mem: &mem, at: &at, checked: &checked, lanes: n.lanes, mask }.store(&self.s, code);
    }

    /// Folds each element's value into memory, one after another: two at one index both count.
    /// Where a fold is a few instructions it is done in blocks instead (`scatter_blocks.rs`).
    fn change(&mut self, n: &mut Nest, id: OpId) {
        let op = &self.func.ops[id];
        let (ir, s, identity) = (self.ir, self.s, n.identity());
        let value = self.eval(n, &(op.operands[1], identity.clone()));
        let (mem, change) = (self.memory(op.operands[0]), Change::of(self.func, op));
        let at = self.each_position(n, op, &identity);
        let (checked, lanes) = (vec![true; at.len()], n.lanes);
        let access = Access { mem: &mem, at: &at, checked: &checked, lanes, mask: n.tail };
        let (places, on) = access.places(ir);
        let dtype = self.func.ty(op.operands[1]).dtype();
        let values = match ir.lanes(ir.ty(value)) {
            1 => None,
            _ => Some(self.in_frame(self.carrier_bits(value, dtype))),
        };
        let place = if lanes == 1 { None } else { Some(self.in_frame(places)) };
        let element = |ir: &Ir, row: Val, ty: Ty, lane: Val, bytes: i64| {
            ir.load(ty, ir.offset(row, ir.mul_const(lane, bytes)), bytes as u32)
        };
        let one = |ir: &Ir, lane: Val, alone: bool| {
            let p = place.map_or(places, |row| element(ir, row, ir.ptr(), lane, 8));
            let bytes = dtype.carrier().bytes() as i64;
            let x = values.map_or(value, |row| {
                let bits = element(ir, row, s.stored(dtype.carrier(), 1), lane, bytes);
                s.decode(bits, dtype.carrier())
            });
            let emit = if alone { Change::emit_alone } else { Change::emit };
            emit(&change, &s, &mem, p, x, None);
        };
        let short = change.is_short();
        let alone = self.alone_at(op.operands[0]);
        ir.when(alone, |ir| {
            each_lane(ir, lanes, on, short, &mut |ir, lane| one(ir, lane, true));
        });
        ir.when(ir.not(alone), |ir| {
            each_lane(ir, lanes, on, false, &mut |ir, lane| one(ir, lane, false));
        });
    }

    /// A vector in the function's frame, to be read one by one.
    fn in_frame(&self, x: Val) -> Val {
        let ptr = self.ir.alloca(self.ir.ty(x), 64);
        self.ir.store(x, ptr, 64);
        ptr
    }

    /// Reads, combines in the value's dtype, converts and writes.
    pub fn fold(&mut self, n: &mut Nest, id: OpId) {
        let op = &self.func.ops[id];
        let identity = n.identity();
        let x = self.eval(n, &(op.operands[1], self.map_for(op.operands[1], &identity)));
        let (mem, compute) = (self.memory(op.operands[0]), self.func.ty(op.operands[1]).dtype());
        let (at, checked) = self.block_positions(n, op, &identity);
        let mask = self.mask(n, op.group("mask").first().copied(), &identity);
        let access = Access { mem: &mem, at: &at, checked: &checked, lanes: n.lanes, mask };
        let old = access.load(&self.s, None, self.safe);
        let name = op.attr("op").and_then(Attr::as_word).unwrap_or("sum");
        let f = ReduceOp::from_name(name).unwrap_or(ReduceOp::Sum).combine();
        let fold = Fold::new(self.func.ty(op.operands[0]), f, compute);
        let args = self.level(&[old, x]);
        let code = fold.code(&self.s, args[0], args[1]);
        access.store(&self.s, self.widen(n, code));
    }

    /// A copy of a block into a buffer, or into a part of it.
    pub fn copy(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let (to, from) = (self.memory(op.operands[0]), self.memory(op.operands[1]));
        let part: Vec<_> = op.group("into").iter().map(|&v| self.scalar(v)).collect();
        let dims = super::shape_of(self.func.ty(op.operands[0])).split_off(part.len());
        self.versions(&dims, &[], &[], |group, n| {
            n.inside = false;
            group.loops(n, &[], 0, &mut |group, n| {
                let identity = n.identity();
                let (at, checked) = group.block_positions(n, op, &identity);
                let mask = n.tail.filter(|_| n.lanes > 1);
                let (lanes, s) = (n.lanes, group.s);
                let access = Access { mem: &from, at: &at, checked: &checked, lanes, mask };
                let x = access.load(&s, None, group.safe);
                let code = s.encode(group.widen(n, x), to.dtype);
                let mut at: Vec<Pos> = part.iter().map(|&p| Pos::Uniform(p)).collect();
                at.extend(identity.iter().map(|&a| n.pos(group, a, 1)));
                let checked: Vec<bool> = (0..at.len()).map(|axis| axis < part.len()).collect();
                Access { mem: &to, at: &at, checked: &checked, lanes, mask }.store(&s, code);
            });
        });
    }
}

pub fn written_ops(sinks: &[Sink]) -> Vec<OpId> {
    let one = |s: &Sink| match s {
        Sink::Store(id) | Sink::Fold(id) => Some(*id),
        Sink::Scatter(_) | Sink::Change(_) | Sink::Keep(..) => None,
    };
    sinks.iter().filter_map(one).collect()
}
