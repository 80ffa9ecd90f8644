//! Reductions along an axis in the canonical order of LANGUAGE 14: element `i` is folded into lane
//! `i mod 64`, ascending, and the lanes are joined by halves. Along the vector axis the 64 lanes
//! are a few vectors; along another axis each vector of columns has 64 places in memory.

use super::loops::chunks;
use super::nest::{Nest, Node, shape_of};
use super::sink::Sink;
use super::{Buffer, Group, Repr};
use crate::llvm::Val;
use tessera_ir::{Attr, OpId};
use tessera_numerics::{CHUNK, DType, LANES, Profile, ReduceOp};

/// At most this many rows are combined in registers; for more, code would grow.
pub const TREE: i64 = 8;
/// Rows of a block whose results are combined again, in profiles that leave the order open.
pub const ROW_BLOCK: i64 = 128;

/// One reduction inside its nest.
pub struct Fold {
    pub x: Node,
    pub op: ReduceOp,
    pub dtype: DType,
    pub axis: usize,
}

impl<'a> Group<'a> {
    pub fn reduce(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let x = op.operands[0];
        let dims = shape_of(func.ty(x));
        let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
        let name = op.attr("op").and_then(Attr::as_word).unwrap_or("sum");
        let fold = Fold {
            x: (x, Nest::new(&dims).identity()),
            op: ReduceOp::from_name(name).unwrap_or(ReduceOp::Sum),
            dtype: func.ty(x).dtype(),
            axis,
        };
        let result = op.result();
        // The result goes through memory also where it is one number: two versions may write it.
        let to = self.buffer_of(func.ty(result).dtype(), shape_of(func.ty(result)));
        self.reduce_into(&dims, &fold, &to);
        if func.ty(result).rank() == 0 {
            let mem = self.buffer_mem(&to);
            let bits = self.ir.load(self.s.stored(to.dtype, 1), mem.base, 4);
            self.give(id, self.s.decode(bits, to.dtype));
        } else {
            self.set(result, Repr::Buffer(to));
        }
    }

    fn reduce_into(&mut self, dims: &[i64], fold: &Fold, to: &Buffer) {
        let roots = [fold.x.clone()];
        let keeps = self.join_pending(dims, &roots, None);
        let last = dims.iter().rposition(|&d| d > 1);
        let along_vectors = last.is_none_or(|l| l == fold.axis);
        self.versions(dims, &roots, &[], |group, n| {
            if along_vectors {
                // One vector axis, which has the innermost loop, run here.
                n.lane = Some(fold.axis);
                n.order.retain(|&d| d != fold.axis);
                n.order.push(fold.axis);
                let outer = n.order.len() - 1;
                let last = outer.checked_sub(1).map(|depth| n.order[depth]);
                let many = last.map_or(1, |axis| group.rows_together(n, fold, axis));
                if let (Some(axis), 2..) = (last, many) {
                    group.rows(n, &roots, 0, outer - 1, &mut |group, n| {
                        group.in_rows(n, fold, &keeps, to, (axis, many));
                    });
                    return;
                }
                group.rows(n, &roots, 0, outer, &mut |group, n| {
                    group.hoist(n, &roots, outer);
                    let one = group.row(n, fold, &keeps);
                    group.put(n, fold, to, one);
                });
            } else if group.is_streamed(n, fold) {
                n.order.retain(|&d| d != fold.axis && Some(d) != n.lane);
                let outer = n.order.len();
                n.order.extend([Some(fold.axis), n.lane].into_iter().flatten());
                group.rows(n, &roots, 0, outer, &mut |group, n| {
                    group.hoist(n, &roots, outer);
                    group.stream_columns(n, fold, &keeps, &mut |group, n, columns| {
                        group.put(n, fold, to, columns);
                    });
                    group.columns_left(n, fold, &keeps, to);
                });
            } else {
                n.order.retain(|&d| d != fold.axis);
                n.order.push(fold.axis);
                let outer = n.order.len() - 1;
                group.rows(n, &roots, 0, outer, &mut |group, n| {
                    group.hoist(n, &roots, outer);
                    let columns = group.columns(n, fold, &keeps);
                    group.put(n, fold, to, columns);
                });
            }
        });
        self.settle(&keeps);
    }

    /// The rows along an axis, `many` at a time, and what is left of them one by one.
    fn in_rows(
        &mut self,
        n: &mut Nest,
        fold: &Fold,
        keeps: &[Sink],
        to: &Buffer,
        (axis, many): (usize, i64),
    ) {
        let (ir, roots, outer) = (self.ir, [fold.x.clone()], n.order.len() - 1);
        self.hoist(n, &roots, outer - 1);
        let whole = n.dims[axis] / many * many;
        ir.for_range(ir.c64(0), ir.c64(whole), many, &[], |_, at, _| {
            n.index[axis] = Some(at);
            n.open();
            let results = self.several_rows(n, fold, keeps, axis, many);
            (n.lane, n.lanes) = (Some(axis), many as u32);
            self.put(n, fold, to, results);
            (n.lane, n.lanes) = (Some(fold.axis), 1);
            n.close();
            Vec::new()
        });
        if whole == n.dims[axis] {
            return;
        }
        ir.for_range(ir.c64(whole), ir.c64(n.dims[axis]), 1, &[], |_, at, _| {
            n.index[axis] = Some(at);
            n.open();
            self.hoist(n, &roots, outer);
            let one = self.row(n, fold, keeps);
            self.put(n, fold, to, one);
            n.close();
            Vec::new()
        });
    }

    /// The loops before the reduced axis.
    pub fn rows(
        &mut self,
        n: &mut Nest,
        roots: &[Node],
        depth: usize,
        outer: usize,
        leaf: &mut dyn FnMut(&mut Self, &mut Nest),
    ) {
        if depth == outer {
            return leaf(self, n);
        }
        self.hoist(n, roots, depth);
        let (ir, axis) = (self.ir, n.order[depth]);
        if n.lane == Some(axis) {
            for chunk in self.columns_together(n, roots, chunks(n.dims[axis], self.lanes)) {
                let (lo, hi) = (ir.c64(chunk.first), ir.c64(chunk.first + chunk.count));
                ir.for_range(lo, hi, chunk.step(), &[], |ir, at, _| {
                    n.index[axis] = Some(at);
                    (n.lanes, n.tail) = (chunk.lanes, chunk.tail(ir));
                    n.open();
                    self.rows(n, roots, depth + 1, outer, leaf);
                    n.close();
                    Vec::new()
                });
            }
            (n.lanes, n.tail) = (1, None);
            return;
        }
        ir.for_range(ir.c64(0), ir.c64(n.dims[axis]), 1, &[], |_, at, _| {
            n.index[axis] = Some(at);
            n.open();
            self.rows(n, roots, depth + 1, outer, leaf);
            n.close();
            Vec::new()
        });
    }

    /// Writes the result of the present row or columns.
    fn put(&mut self, n: &mut Nest, fold: &Fold, to: &Buffer, x: Val) {
        let mut map = n.identity();
        map.remove(fold.axis);
        self.write_buffer(n, to, &map, x);
    }

    pub fn join(&self, fold: &Fold, a: Val, b: Val) -> Val {
        self.s.apply(fold.op.combine(), fold.dtype, &[a, b])
    }

    /// One row along the vector axis; gives one number.
    fn row(&mut self, n: &mut Nest, fold: &Fold, keeps: &[Sink]) -> Val {
        let (len, chunk) = (n.dims[fold.axis], CHUNK as i64);
        if len <= chunk {
            let parts = self.partials(n, fold, keeps, self.ir.c64(0), len);
            let one = self.halve(fold, parts);
            (n.lanes, n.tail) = (1, None);
            return one;
        }
        // Chunks of the canonical order, each to one number, and these again.
        let (ir, whole) = (self.ir, len / chunk);
        let count = whole + i64::from(len % chunk > 0);
        let results = self.buffer_of(fold.dtype, vec![count]);
        let mem = self.buffer_mem(&results);
        let bytes = results.dtype.bytes() as i64;
        ir.for_range(ir.c64(0), ir.c64(whole), 1, &[], |ir, c, _| {
            n.open();
            let parts = self.partials(n, fold, keeps, ir.mul_const(c, chunk), chunk);
            let one = self.halve(fold, parts);
            n.close();
            let at = ir.offset(mem.base, ir.mul_const(c, bytes));
            ir.store(self.carrier_bits(one, results.dtype), at, 4);
            Vec::new()
        });
        if len % chunk > 0 {
            n.open();
            let parts = self.partials(n, fold, keeps, ir.c64(whole * chunk), len % chunk);
            let one = self.halve(fold, parts);
            n.close();
            let at = ir.offset_const(mem.base, whole * bytes);
            ir.store(self.carrier_bits(one, results.dtype), at, 4);
        }
        let mut again = Nest::new(&[count]);
        (again.lane, again.order) = (Some(0), vec![0]);
        let parts =
            self.fold_vectors(&mut again, fold, ir.c64(0), count, 0, &mut |group, n, sum| {
                let x = group.read_buffer(n, &results, &vec![Some(0)]);
                group.join(fold, sum, x)
            });
        (n.lanes, n.tail) = (1, None);
        self.halve(fold, parts)
    }

    fn partials(
        &mut self,
        n: &mut Nest,
        fold: &Fold,
        keeps: &[Sink],
        first: Val,
        len: i64,
    ) -> Vec<Option<Val>> {
        let axis = fold.axis;
        self.fold_vectors(n, fold, first, len, axis, &mut |group, n, sum| {
            group.folded(n, fold, keeps, sum)
        })
    }

    /// Folds the elements at the present place into a vector of sums.
    pub fn folded(&mut self, n: &mut Nest, fold: &Fold, keeps: &[Sink], sum: Val) -> Val {
        let product = match self.profile {
            Profile::Strict => None,
            _ => {
                self.only_product(fold.x.0).filter(|_| fold.op == ReduceOp::Sum && keeps.is_empty())
            }
        };
        if let Some(id) = product {
            // Rounded once instead of twice.
            let inputs = self.inputs(id, &fold.x.1);
            let args: Vec<Val> = inputs.iter().map(|node| self.eval(n, node)).collect();
            let [a, b] = [args[0], args[1]].map(|x| self.widen(n, x));
            return self.ir.fma(a, b, sum);
        }
        let x = self.eval(n, &fold.x);
        for keep in keeps {
            if let Sink::Keep(v, b) = keep {
                self.keep(n, *v, b);
            }
        }
        let x = self.widen(n, x);
        self.join(fold, sum, x)
    }

    /// Folds `len` elements from `first` into 64 lanes, which are vectors; those that stay empty are
    /// not there.
    fn fold_vectors(
        &mut self,
        n: &mut Nest,
        fold: &Fold,
        first: Val,
        len: i64,
        axis: usize,
        folded: &mut dyn FnMut(&mut Self, &mut Nest, Val) -> Val,
    ) -> Vec<Option<Val>> {
        let (ir, width) = (self.ir, i64::from(self.lanes).min(LANES as i64));
        let parts = LANES as i64 / width;
        let empty = self.s.identity(fold.op, fold.dtype, width as u32);
        let whole = len / LANES as i64 * LANES as i64;
        let mut sums = vec![empty; parts as usize];
        let mut used = if whole > 0 { parts } else { 0 };
        (n.lanes, n.tail) = (width as u32, None);
        if whole > 0 {
            let end = ir.add_const(first, whole);
            sums = ir.for_range(first, end, LANES as i64, &sums, |ir, at, sums| {
                let mut next = Vec::new();
                for (part, &sum) in sums.iter().enumerate() {
                    n.index[axis] = Some(ir.add_const(at, part as i64 * width));
                    n.open();
                    next.push(folded(self, n, sum));
                    n.close();
                }
                next
            });
        }
        let rest = len - whole;
        for part in 0..parts {
            let start = part * width;
            if start >= rest {
                break;
            }
            let inside = (rest - start).min(width);
            n.index[axis] = Some(ir.add_const(first, whole + start));
            n.tail = (inside < width).then(|| ir.const_first_lanes(inside as u32, width as u32));
            let sum = sums[part as usize];
            n.open();
            let joined = folded(self, n, sum);
            n.close();
            sums[part as usize] = n.tail.map_or(joined, |tail| ir.select(tail, joined, sum));
            used = used.max(part + 1);
        }
        sums.into_iter().enumerate().map(|(i, v)| ((i as i64) < used).then_some(v)).collect()
    }

    /// Joins lane `j` with lane `j + 32`, then `j + 16`, and so on. An empty lane changes nothing.
    fn halve(&mut self, fold: &Fold, parts: Vec<Option<Val>>) -> Val {
        let ir = self.ir;
        let mut v = self.one_vector(fold, parts, self.lanes.min(LANES as u32));
        let mut width = ir.lanes(ir.ty(v));
        while width > 1 {
            width /= 2;
            let low: Vec<u32> = (0..width).collect();
            let high: Vec<u32> = (width..2 * width).collect();
            v = self.join(fold, ir.shuffle(v, v, &low), ir.shuffle(v, v, &high));
        }
        v
    }

    /// The first steps of that, as long as whole vectors are combined.
    pub fn one_vector(&self, fold: &Fold, mut parts: Vec<Option<Val>>, lanes: u32) -> Val {
        while parts.len() > 1 {
            let high = parts.split_off(parts.len() / 2);
            for (low, high) in parts.iter_mut().zip(high) {
                *low = match (*low, high) {
                    (Some(a), Some(b)) => Some(self.join(fold, a, b)),
                    (a, b) => a.or(b),
                };
            }
        }
        parts.pop().flatten().unwrap_or_else(|| self.s.identity(fold.op, fold.dtype, lanes))
    }

    /// The columns after the last whole vector.
    fn columns_left(&mut self, n: &mut Nest, fold: &Fold, keeps: &[Sink], to: &Buffer) {
        let Some(axis) = n.lane else { return };
        for chunk in chunks(n.dims[axis], self.lanes) {
            if chunk.lanes == self.lanes && chunk.count >= chunk.step() {
                continue;
            }
            n.index[axis] = Some(self.ir.c64(chunk.first));
            (n.lanes, n.tail) = (chunk.lanes, chunk.tail(self.ir));
            n.open();
            let columns = self.columns(n, fold, keeps);
            self.put(n, fold, to, columns);
            n.close();
        }
        (n.lanes, n.tail) = (1, None);
    }

    /// All rows of a vector of columns; gives a vector.
    fn columns(&mut self, n: &mut Nest, fold: &Fold, keeps: &[Sink]) -> Val {
        let (len, chunk) = (n.dims[fold.axis], CHUNK as i64);
        if len <= chunk {
            return self.column_chunk(n, fold, keeps, self.ir.c64(0), len);
        }
        let (ir, lanes) = (self.ir, n.lanes);
        let whole = len / chunk;
        let count = whole + i64::from(len % chunk > 0);
        // One vector for each chunk, folded again. There are far fewer than a chunk of them.
        let stride = i64::from(lanes) * 8;
        let room = self.room((count * stride) as u64);
        let put = |group: &Self, at: Val, x: Val| {
            let p = ir.offset(room, ir.mul_const(at, stride));
            ir.store(group.widen_to(x, lanes), p, 8);
        };
        ir.for_range(ir.c64(0), ir.c64(whole), 1, &[], |ir, c, _| {
            n.open();
            let x = self.column_chunk(n, fold, keeps, ir.mul_const(c, chunk), chunk);
            n.close();
            put(self, c, x);
            Vec::new()
        });
        if len % chunk > 0 {
            let x = self.column_chunk(n, fold, keeps, ir.c64(whole * chunk), len % chunk);
            put(self, ir.c64(whole), x);
        }
        let ty = self.s.carrier(fold.dtype, lanes);
        self.fold_places(fold, lanes, count, &mut |group, at, sum| {
            let x = ir.load(ty, ir.offset(room, ir.mul_const(at, stride)), 8);
            group.join(fold, sum, x)
        })
    }

    pub fn widen_to(&self, v: Val, lanes: u32) -> Val {
        let ir = self.ir;
        if ir.lanes(ir.ty(v)) == lanes { v } else { ir.splat(v, lanes) }
    }

    pub fn column_chunk(
        &mut self,
        n: &mut Nest,
        fold: &Fold,
        keeps: &[Sink],
        first: Val,
        len: i64,
    ) -> Val {
        let lanes = n.lanes;
        self.fold_places(fold, lanes, len, &mut |group, at, sum| {
            n.index[fold.axis] = Some(group.ir.add(first, at));
            n.open();
            let folded = group.folded(n, fold, keeps, sum);
            n.close();
            folded
        })
    }

    /// Folds vectors 0 to `len` into 64 partial results and combines these by halves; in profiles
    /// that leave the order open, into one register, and the results of blocks of rows into
    /// another.
    pub fn fold_places(
        &mut self,
        fold: &Fold,
        lanes: u32,
        len: i64,
        folded: &mut dyn FnMut(&mut Self, Val, Val) -> Val,
    ) -> Val {
        let (ir, places) = (self.ir, LANES as i64);
        if len <= TREE {
            let mut parts: Vec<Option<Val>> = vec![None; LANES];
            let empty = self.s.identity(fold.op, fold.dtype, lanes);
            for i in 0..len {
                parts[i as usize] = Some(folded(self, ir.c64(i), empty));
            }
            return self.one_vector(fold, parts, lanes);
        }
        if self.profile != Profile::Strict {
            return self.fold_blocks(fold, lanes, len, folded);
        }
        let ty = self.s.carrier(fold.dtype, lanes);
        let bool_ty = fold.dtype == DType::Bool;
        let stride = i64::from(lanes) * if bool_ty { 1 } else { fold.dtype.bytes() as i64 };
        let room = self.room((places * stride.max(64)) as u64);
        let stride = stride.max(64);
        let empty = self.s.identity(fold.op, fold.dtype, lanes);
        let at = |i: Val| ir.offset(room, ir.mul_const(i, stride));
        ir.for_range(ir.c64(0), ir.c64(places), 1, &[], |_, i, _| {
            ir.store(empty, at(i), 8);
            Vec::new()
        });
        ir.for_range(ir.c64(0), ir.c64(len), 1, &[], |_, i, _| {
            let p = at(ir.and(i, ir.c64(places - 1)));
            ir.store(folded(self, i, ir.load(ty, p, 8)), p, 8);
            Vec::new()
        });
        let mut half = places / 2;
        while half > 0 {
            ir.for_range(ir.c64(0), ir.c64(half), 1, &[], |_, j, _| {
                let other = ir.load(ty, at(ir.add_const(j, half)), 8);
                ir.store(self.join(fold, ir.load(ty, at(j), 8), other), at(j), 8);
                Vec::new()
            });
            half /= 2;
        }
        ir.load(ty, room, 8)
    }

    /// Sums of blocks, and the sum of these: an error grows with the rows of a block and the number of blocks.
    fn fold_blocks(
        &mut self,
        fold: &Fold,
        lanes: u32,
        len: i64,
        folded: &mut dyn FnMut(&mut Self, Val, Val) -> Val,
    ) -> Val {
        let (ir, empty) = (self.ir, self.s.identity(fold.op, fold.dtype, lanes));
        let mut block = |group: &mut Self, from: Val, rows: i64| {
            let end = ir.add_const(from, rows);
            ir.for_range(from, end, 1, &[empty], |_, i, sum| vec![folded(group, i, sum[0])])[0]
        };
        let whole = len / ROW_BLOCK * ROW_BLOCK;
        let mut total = empty;
        if whole > 0 {
            total = ir.for_range(ir.c64(0), ir.c64(whole), ROW_BLOCK, &[empty], |_, from, sum| {
                let x = block(self, from, ROW_BLOCK);
                vec![self.join(fold, sum[0], x)]
            })[0];
        }
        if whole < len {
            let x = block(self, ir.c64(whole), len - whole);
            total = if whole > 0 { self.join(fold, total, x) } else { x };
        }
        total
    }
}
