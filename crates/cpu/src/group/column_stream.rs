//! Reductions of wide columns, row after row.
//!
//! A vector of columns alone reads a few bytes of each row, and the next vector begins at the first
//! row again: each row is another page, which the hardware prefetcher does not follow. Here partial
//! results of many columns are in memory, in the L1 cache, and rows are read in the order of memory, a few of
//! them together. The elements of each column are combined in the order of
//! [`super::reduce`].

use super::Group;
use super::nest::{Nest, Node};
use super::reduce::{Fold, ROW_BLOCK, TREE};
use super::sink::Sink;
use crate::llvm::Val;
use std::collections::BTreeMap;
use tessera_numerics::{CHUNK, DType, LANES, Profile};
use tessera_tile::TileOp;

/// Columns whose partial results are in memory: one of each, and under `strict` [`LANES`].
const COLUMNS: i64 = 2048;
const COLUMNS_IN_PLACES: i64 = 512;
/// Rows that are read together, each by its own stream of the hardware prefetcher.
const ROWS: i64 = 8;
/// Instructions of these rows' elements: code grows with them.
const MOST: u32 = 96;
/// Vectors of columns that are combined in registers as well.
const NARROW: i64 = 4;

/// Columns from `first` on, `width` of them, and the bytes of a vector of partial results.
#[derive(Copy, Clone)]
struct Strip {
    axis: usize,
    first: Val,
    width: Val,
    stride: i64,
    /// Bytes of a row of partial results.
    row: i64,
}

impl Group<'_> {
    /// Whether columns are reduced row after row: where they are read from arrays.
    pub fn is_streamed(&self, n: &Nest, fold: &Fold) -> bool {
        let Some(lane) = n.lane else { return false };
        let wide = n.dims[lane] > NARROW * i64::from(self.lanes);
        let from_array = |(v, _): &Node| {
            self.func.def(*v).is_some_and(|op| op.code == TileOp::Load)
                && matches!(self.repr(*v), super::Repr::Expression)
        };
        let roots = [fold.x.clone()];
        wide && n.dims[fold.axis] > TREE && self.reached(&roots).iter().any(from_array)
    }

    /// The columns of the nest, whose order ends with the reduced axis and the vector axis.
    pub fn stream_columns(
        &mut self,
        n: &mut Nest,
        fold: &Fold,
        keeps: &[Sink],
        put: &mut dyn FnMut(&mut Self, &mut Nest, Val),
    ) {
        let Some(axis) = n.lane else { return };
        let (ir, lanes) = (self.ir, i64::from(self.lanes));
        let whole = n.dims[axis] / lanes * lanes;
        let most = match self.profile {
            Profile::Strict => COLUMNS_IN_PLACES,
            _ => COLUMNS,
        };
        let bytes = if fold.dtype == DType::Bool { 1 } else { fold.dtype.bytes() as i64 };
        let (stride, most) = ((lanes * bytes).max(8), most.max(lanes) / lanes * lanes);
        let row = most.min(whole) / lanes * stride;
        ir.for_range(ir.c64(0), ir.c64(whole), most, &[], |ir, first, _| {
            let width = match most >= whole {
                true => ir.c64(whole),
                false => ir.smin(ir.c64(most), ir.sub(ir.c64(whole), first)),
            };
            let strip = Strip { axis, first, width, stride, row };
            (n.lanes, n.tail) = (lanes as u32, None);
            n.open();
            self.strip(n, fold, keeps, strip, put);
            n.close();
            Vec::new()
        });
        (n.lanes, n.tail) = (1, None);
    }

    fn strip(
        &mut self,
        n: &mut Nest,
        fold: &Fold,
        keeps: &[Sink],
        strip: Strip,
        put: &mut dyn FnMut(&mut Self, &mut Nest, Val),
    ) {
        let (ir, len, chunk) = (self.ir, n.dims[fold.axis], CHUNK as i64);
        let (whole, rest) = (len / chunk, len % chunk);
        let count = whole + i64::from(rest > 0);
        let results = self.room((count * strip.row) as u64);
        ir.for_range(ir.c64(0), ir.c64(whole), 1, &[], |ir, c, _| {
            n.open();
            let to = ir.offset(results, ir.mul_const(c, strip.row));
            self.strip_chunk(n, fold, keeps, strip, (ir.mul_const(c, chunk), chunk), to);
            n.close();
            Vec::new()
        });
        if rest > 0 {
            n.open();
            let to = ir.offset_const(results, whole * strip.row);
            self.strip_chunk(n, fold, keeps, strip, (ir.c64(whole * chunk), rest), to);
            n.close();
        }
        let (lanes, ty) = (n.lanes, self.s.carrier(fold.dtype, n.lanes));
        self.along(n, strip, &mut |group, n, at| {
            let load = |c: Val| {
                let from = ir.offset(results, ir.mul_const(c, strip.row));
                ir.load(ty, ir.offset(from, at), 8)
            };
            let x = match count {
                1 => load(ir.c64(0)),
                _ => group.fold_places(fold, lanes, count, &mut |group, c, sum| {
                    group.join(fold, sum, load(c))
                }),
            };
            put(group, n, x);
        });
    }

    /// Each vector of columns of a strip; the closure takes its place in a row of partial results.
    fn along(
        &mut self,
        n: &mut Nest,
        strip: Strip,
        body: &mut dyn FnMut(&mut Self, &mut Nest, Val),
    ) {
        let (ir, lanes) = (self.ir, i64::from(n.lanes));
        ir.for_range(ir.c64(0), strip.width, lanes, &[], |ir, j, _| {
            n.index[strip.axis] = Some(ir.add(strip.first, j));
            n.open();
            body(self, n, ir.mul_const(ir.sdiv(j, ir.c64(lanes)), strip.stride));
            n.close();
            Vec::new()
        });
    }

    fn fill(&mut self, n: &mut Nest, fold: &Fold, strip: Strip, to: Val) {
        let (ir, empty) = (self.ir, self.s.identity(fold.op, fold.dtype, n.lanes));
        self.along(n, strip, &mut |_, _, at| {
            ir.store(empty, ir.offset(to, at), 8);
        });
    }

    /// Combines a row of partial results with another, which comes later.
    fn join_rows(&mut self, n: &mut Nest, fold: &Fold, strip: Strip, [to, from]: [Val; 2]) {
        let (ir, ty) = (self.ir, self.s.carrier(fold.dtype, n.lanes));
        self.along(n, strip, &mut |group, _, at| {
            let (to, from) = (ir.offset(to, at), ir.offset(from, at));
            ir.store(group.join(fold, ir.load(ty, to, 8), ir.load(ty, from, 8)), to, 8);
        });
    }

    /// Rows of a chunk of the canonical order: the first, and how many.
    fn strip_chunk(
        &mut self,
        n: &mut Nest,
        fold: &Fold,
        keeps: &[Sink],
        strip: Strip,
        (first, len): (Val, i64),
        to: Val,
    ) {
        let ir = self.ir;
        if len <= TREE {
            let lanes = n.lanes;
            self.along(n, strip, &mut |group, n, at| {
                let x = group.column_chunk(n, fold, keeps, first, len);
                let x = group.widen_to(x, lanes);
                ir.store(x, ir.offset(to, at), 8);
            });
            return;
        }
        if self.profile == Profile::Strict {
            return self.in_places(n, fold, keeps, strip, (first, len), to);
        }
        let whole = len / ROW_BLOCK * ROW_BLOCK;
        let part = self.room(strip.row as u64);
        if whole > 0 {
            self.fill(n, fold, strip, to);
            let end = ir.add_const(first, whole);
            ir.for_range(first, end, ROW_BLOCK, &[], |_, at, _| {
                n.open();
                self.fill(n, fold, strip, part);
                self.add_rows(n, fold, keeps, strip, (at, ROW_BLOCK), part);
                self.join_rows(n, fold, strip, [to, part]);
                n.close();
                Vec::new()
            });
        }
        if whole < len {
            let part = if whole > 0 { part } else { to };
            self.fill(n, fold, strip, part);
            let rest = (ir.add_const(first, whole), len - whole);
            self.add_rows(n, fold, keeps, strip, rest, part);
            if whole > 0 {
                self.join_rows(n, fold, strip, [to, part]);
            }
        }
    }

    /// Row `i` of a chunk into lane `i mod 64` of each column, then the lanes by halves.
    fn in_places(
        &mut self,
        n: &mut Nest,
        fold: &Fold,
        keeps: &[Sink],
        strip: Strip,
        (first, len): (Val, i64),
        to: Val,
    ) {
        let (ir, places) = (self.ir, LANES as i64);
        let room = self.room((places * strip.row) as u64);
        let place = |i: Val| ir.offset(room, ir.mul_const(i, strip.row));
        ir.for_range(ir.c64(0), ir.c64(places), 1, &[], |_, i, _| {
            n.open();
            self.fill(n, fold, strip, place(i));
            n.close();
            Vec::new()
        });
        ir.for_range(ir.c64(0), ir.c64(len), 1, &[], |ir, i, _| {
            n.open();
            let to = place(ir.and(i, ir.c64(places - 1)));
            self.rows_into(n, fold, keeps, strip, (ir.add(first, i), 1), to);
            n.close();
            Vec::new()
        });
        let mut half = places / 2;
        while half > 0 {
            ir.for_range(ir.c64(0), ir.c64(half), 1, &[], |ir, i, _| {
                n.open();
                self.join_rows(n, fold, strip, [place(i), place(ir.add_const(i, half))]);
                n.close();
                Vec::new()
            });
            half /= 2;
        }
        let ty = self.s.carrier(fold.dtype, n.lanes);
        self.along(n, strip, &mut |_, _, at| {
            ir.store(ir.load(ty, ir.offset(room, at), 8), ir.offset(to, at), 8);
        });
    }

    fn add_rows(
        &mut self,
        n: &mut Nest,
        fold: &Fold,
        keeps: &[Sink],
        strip: Strip,
        (first, len): (Val, i64),
        to: Val,
    ) {
        let ir = self.ir;
        let weight = self.plan.weight(fold.x.0).max(1);
        let mut together = ROWS;
        while together > 1 && weight.saturating_mul(together as u32) > MOST {
            together /= 2;
        }
        let (whole, end) =
            (ir.add_const(first, len / together * together), ir.add_const(first, len));
        for (from, to_row, rows) in [(first, whole, together), (whole, end, 1)] {
            if rows == 1 && (together == 1 || len % together == 0) && from == whole {
                continue;
            }
            ir.for_range(from, to_row, rows, &[], |_, at, _| {
                n.open();
                self.rows_into(n, fold, keeps, strip, (at, rows), to);
                n.close();
                Vec::new()
            });
        }
    }

    /// Combines partial results with a few rows, one after another.
    fn rows_into(
        &mut self,
        n: &mut Nest,
        fold: &Fold,
        keeps: &[Sink],
        strip: Strip,
        (first, rows): (Val, i64),
        to: Val,
    ) {
        let (ir, roots, ty) = (self.ir, [fold.x.clone()], self.s.carrier(fold.dtype, n.lanes));
        let depth = n.order.len() - 1;
        // What belongs to a row alone.
        let mut own: Vec<BTreeMap<Node, Val>> = Vec::new();
        n.index[strip.axis] = None;
        let lanes = std::mem::replace(&mut n.lanes, 1);
        for row in 0..rows {
            n.index[fold.axis] = Some(ir.add_const(first, row));
            n.open();
            self.hoist(n, &roots, depth);
            own.push(n.memo.pop().unwrap_or_default());
        }
        n.lanes = lanes;
        self.along(n, strip, &mut |group, n, at| {
            let at = ir.offset(to, at);
            let mut sum = ir.load(ty, at, 8);
            for (row, own) in own.iter().enumerate() {
                n.index[fold.axis] = Some(ir.add_const(first, row as i64));
                n.memo.push(own.clone());
                n.open();
                sum = group.folded(n, fold, keeps, sum);
                n.close();
                n.close();
            }
            ir.store(sum, at, 8);
        });
    }
}
