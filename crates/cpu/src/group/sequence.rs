//! Ops that take elements one after another: atomics, texts with effects, printing.

use super::nest::{Map, Nest, shape_of};
use super::{Buffer, Group, Repr};
use crate::asm_text::Text;
use crate::atomic::Change;
use crate::llvm::{IntCmp, Val};
use crate::memory::Pos;
use tessera_ir::{OpId, Value};

impl<'a> Group<'a> {
    /// Calls `leaf` with all loops open but that of `axis`; another axis may be the vector axis.
    pub fn beside(
        &mut self,
        dims: &[i64],
        axis: usize,
        leaf: &mut dyn FnMut(&mut Self, &mut Nest),
    ) {
        let mut n = Nest::new(dims);
        if n.lane == Some(axis) {
            n.lane = None;
        }
        n.order.retain(|&d| d != axis);
        let outer = n.order.len();
        n.order.push(axis);
        self.rows(&mut n, &[], 0, outer, leaf);
    }

    pub fn element(&mut self, n: &Nest, b: &Buffer, map: &Map) -> Val {
        let x = self.read_buffer(n, b, map);
        self.widen(n, x)
    }

    /// One element after another, in row-major order.
    pub fn atomic(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let (mem, change) = (self.memory(op.operands[0]), Change::of(func, op));
        let (value, expected) = (op.operands[1], op.group("expected").first().copied());
        let result = op.result();
        let dims = shape_of(func.ty(result));
        let to = self.buffer_of(func.ty(result).dtype(), dims.clone());
        let alone = self.alone_at(op.operands[0]);
        let mut n = Nest::new(&dims);
        n.lane = None;
        let ir = self.ir;
        self.loops(&mut n, &[], 0, &mut |group, n| {
            let identity = n.identity();
            let node =
                |v: Value| (v, if func.ty(v).rank() == 0 { Map::new() } else { identity.clone() });
            let x = group.eval(n, &node(value));
            let expected = expected.map(|v| group.eval(n, &node(v)));
            let at = group.each_position(n, op, &identity);
            let inside = inside(group, &mem, &at);
            let s = group.s;
            let zero = s.constant(tessera_numerics::Scalar::zero(mem.dtype), 1);
            let old = ir.if_then(inside, zero, |ir| {
                let p = at.iter().zip(&mem.strides).fold(mem.base, |p, (pos, &stride)| match pos {
                    Pos::Uniform(i) => ir.offset(p, ir.mul(*i, stride)),
                    Pos::Steps { .. } | Pos::Each(_) => p,
                });
                s.decode(change.emit_either(&s, &mem, p, x, expected, alone), mem.dtype)
            });
            group.write_buffer(n, &to, &identity, old);
        });
        if func.ty(result).rank() == 0 {
            let bits = ir.load(self.s.stored(to.dtype, 1), to.ptr, 1);
            self.give(id, self.s.decode(bits, to.dtype));
        } else {
            self.set(result, Repr::Buffer(to));
        }
    }

    /// One run for each element, in row-major order.
    pub fn text_with_effects(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let text = Text::of(func, op);
        let tile = op.operands.iter().chain(&op.results).find(|&&v| func.ty(v).rank() > 0);
        let dims = tile.map_or(Vec::new(), |&v| shape_of(func.ty(v)));
        let to: Vec<Buffer> =
            op.results.iter().map(|&v| self.buffer_of(func.ty(v).dtype(), dims.clone())).collect();
        let mut n = Nest::new(&dims);
        n.lane = None;
        self.loops(&mut n, &[], 0, &mut |group, n| {
            let identity = n.identity();
            let node =
                |v: Value| (v, if func.ty(v).rank() == 0 { Map::new() } else { identity.clone() });
            let args: Vec<Val> = op.operands.iter().map(|&v| group.eval(n, &node(v))).collect();
            let out = text.run(&group.s, &args, true);
            for (to, x) in to.iter().zip(out) {
                group.write_buffer(n, to, &identity, x);
            }
        });
        for (&result, to) in op.results.iter().zip(to) {
            let repr = match func.ty(result).rank() {
                0 => {
                    let bits = self.ir.load(self.s.stored(to.dtype, 1), to.ptr, 1);
                    Repr::Scalar(self.s.decode(bits, to.dtype))
                }
                _ => Repr::Buffer(to),
            };
            self.set(result, repr);
        }
    }

    /// Puts the values where the host finds them, and calls it.
    pub fn print(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let ir = self.ir;
        let count = op.operands.len().max(1) as u64;
        let list = ir.alloca(ir.array(ir.ptr(), count), 8);
        for (i, &v) in op.operands.iter().enumerate() {
            let place = match self.repr(v) {
                Repr::Scalar(x) => {
                    let to = self.buffer_of(self.func.ty(v).dtype(), Vec::new());
                    ir.store(self.carrier_bits(x, to.dtype), to.ptr, 1);
                    to
                }
                _ => self.in_memory(v),
            };
            ir.store(place.ptr, ir.offset_const(list, 8 * i as i64), 8);
        }
        let site = self.code.printing(self.func, id);
        crate::code::note_group(ir, self.words, self.ids);
        crate::code::print(ir, self.words, site, list);
    }
}

/// Whether an element's position is inside on every axis.
fn inside(group: &Group<'_>, mem: &crate::memory::Mem, at: &[Pos]) -> Val {
    let ir = group.ir;
    at.iter().zip(&mem.dims).fold(ir.bool(true), |all, (pos, &dim)| match pos {
        Pos::Uniform(p) => {
            let here = ir.icmp(IntCmp::LLVMIntULT, *p, dim);
            if ir.as_int(all) == Some(1) || ir.is_const(all) { here } else { ir.and(all, here) }
        }
        Pos::Steps { .. } | Pos::Each(_) => all,
    })
}
