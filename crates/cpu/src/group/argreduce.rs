//! Argmax and argmin along an axis: of equal elements the first, a NaN before any.
//!
//! Along the vector axis each lane keeps the best of its own elements and its index; at the end the
//! lanes are combined by halves. Along another axis each lane is a column.

use super::loops::chunks;
use super::nest::{Map, Nest, shape_of};
use super::{Buffer, Group, Repr};
use crate::llvm::{IntCmp, RealCmp, Val};
use tessera_ir::{Attr, OpId};
use tessera_numerics::DType;

/// What is looked for, and where.
struct Search {
    from: Buffer,
    axis: usize,
    max: bool,
    dtype: DType,
}

/// An element and its place along the axis, in each lane.
#[derive(Copy, Clone)]
struct Best {
    x: Val,
    at: Val,
}

impl<'a> Group<'a> {
    pub fn arg_reduce(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let search = Search {
            from: self.in_memory(op.operands[0]),
            axis: op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize,
            max: op.attr("op").and_then(Attr::as_word) == Some("max"),
            dtype: func.ty(op.operands[0]).dtype(),
        };
        let result = op.result();
        let to = self.buffer_of(DType::I32, shape_of(func.ty(result)));
        let (ir, dims, axis) = (self.ir, search.from.shape.clone(), search.axis);
        let map: Map = (0..dims.len()).map(|d| Some(d as u8)).collect();
        let along_vectors = dims.iter().rposition(|&d| d > 1) == Some(axis);
        self.beside(&dims, axis, &mut |group, n| {
            let best = match along_vectors {
                true => group.best_of_row(n, &search, &map),
                false => group.best_of_columns(n, &search, &map),
            };
            let mut out = map.clone();
            out.remove(axis);
            group.write_buffer(n, &to, &out, best);
        });
        if func.ty(result).rank() == 0 {
            let x = ir.load(ir.i32(), to.ptr, 4);
            self.give(id, x);
        } else {
            self.set(result, Repr::Buffer(to));
        }
    }

    /// The places of a vector of columns.
    fn best_of_columns(&mut self, n: &mut Nest, search: &Search, map: &Map) -> Val {
        let (ir, axis) = (self.ir, search.axis);
        n.index[axis] = Some(ir.c64(0));
        let first = self.element(n, &search.from, map);
        let place = ir.const_int(ir.vec(ir.i32(), n.lanes), 0);
        let end = ir.c64(n.dims[axis]);
        let best = ir.for_range(ir.c64(1), end, 1, &[first, place], |_, at, best| {
            n.index[axis] = Some(at);
            let x = self.element(n, &search.from, map);
            let better = self.is_better(search, x, best[0]);
            let here = ir.splat(ir.trunc(at, ir.i32()), n.lanes);
            vec![ir.select(better, x, best[0]), ir.select(better, here, best[1])]
        });
        best[1]
    }

    /// The place in the present row.
    fn best_of_row(&mut self, n: &mut Nest, search: &Search, map: &Map) -> Val {
        let (ir, axis) = (self.ir, search.axis);
        n.lane = Some(axis);
        let mut found: Option<Best> = None;
        for chunk in chunks(n.dims[axis], self.lanes) {
            n.lanes = chunk.lanes;
            let lanes = ir.vec(ir.i32(), chunk.lanes);
            let count: Vec<Val> = (0..chunk.lanes).map(|i| ir.c32(i as i32)).collect();
            let count = ir.const_vec(&count);
            let read = |group: &mut Self, n: &mut Nest, at: Val| {
                n.index[axis] = Some(at);
                n.tail = chunk.tail(ir);
                let x = group.element(n, &search.from, map);
                let here = ir.splat(ir.trunc(at, ir.i32()), chunk.lanes);
                Best { x, at: ir.add(here, count) }
            };
            let mut best = read(self, n, ir.c64(chunk.first));
            if let Some(tail) = n.tail {
                // Lanes that have nothing have what the first has, and come after it.
                let other = ir.splat(ir.extract(best.x, 0), chunk.lanes);
                let last = ir.const_int(lanes, i32::MAX.into());
                best =
                    Best { x: ir.select(tail, best.x, other), at: ir.select(tail, best.at, last) };
            } else if chunk.count > chunk.step() {
                let (from, end) = (chunk.first + chunk.step(), chunk.first + chunk.count);
                let (from, end) = (ir.c64(from), ir.c64(end));
                let all =
                    ir.for_range(from, end, chunk.step(), &[best.x, best.at], |ir, at, was| {
                        let here = read(self, n, at);
                        let better = self.is_better(search, here.x, was[0]);
                        vec![ir.select(better, here.x, was[0]), ir.select(better, here.at, was[1])]
                    });
                best = Best { x: all[0], at: all[1] };
            }
            let mut width = chunk.lanes;
            while width > 1 {
                width /= 2;
                let low: Vec<u32> = (0..width).collect();
                let high: Vec<u32> = (width..2 * width).collect();
                let half = |picks: &[u32]| Best {
                    x: ir.shuffle(best.x, best.x, picks),
                    at: ir.shuffle(best.at, best.at, picks),
                };
                best = self.better_of(search, half(&low), half(&high));
            }
            found = Some(match found {
                Some(before) => self.better_of(search, before, best),
                None => best,
            });
        }
        (n.lane, n.lanes, n.tail) = (None, 1, None);
        found.map_or_else(|| ir.c32(0), |best| best.at)
    }

    /// Of equal ones the one that comes first.
    fn better_of(&self, search: &Search, a: Best, b: Best) -> Best {
        let ir = self.ir;
        let earlier = ir.icmp(IntCmp::LLVMIntSLT, b.at, a.at);
        let equal = ir.not(self.is_better(search, a.x, b.x));
        let second = ir.or(self.is_better(search, b.x, a.x), ir.and(equal, earlier));
        Best { x: ir.select(second, b.x, a.x), at: ir.select(second, b.at, a.at) }
    }

    /// Whether `x` takes the place of `best`: of equal elements the first counts, a NaN before any.
    fn is_better(&self, search: &Search, x: Val, best: Val) -> Val {
        let (ir, max) = (self.ir, search.max);
        match search.dtype.carrier() {
            DType::F32 | DType::F64 => {
                let how = if max { RealCmp::LLVMRealOGT } else { RealCmp::LLVMRealOLT };
                let nan = |v| ir.fcmp(RealCmp::LLVMRealUNO, v, v);
                let wins = ir.or(ir.fcmp(how, x, best), nan(x));
                ir.and(wins, ir.not(nan(best)))
            }
            DType::U32 | DType::U64 | DType::Bool => {
                let how = if max { IntCmp::LLVMIntUGT } else { IntCmp::LLVMIntULT };
                ir.icmp(how, x, best)
            }
            _ => {
                let how = if max { IntCmp::LLVMIntSGT } else { IntCmp::LLVMIntSLT };
                ir.icmp(how, x, best)
            }
        }
    }
}
