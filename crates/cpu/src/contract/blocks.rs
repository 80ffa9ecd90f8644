//! The loops around the microkernel, which computes one block of accumulators (cache blocking as in
//! GotoBLAS). From the outside: blocks of columns whose packed right operand fits the L2 cache;
//! blocks of rows (one, unless k takes several passes); passes over k; panels of rows of the left
//! operand; panels of columns of the packed right one.
//!
//! Nearly always there is one pass. When there are more, the accumulators of a block of rows are
//! kept in the workspace between them, unrounded, so that the order of additions stays the same.

use super::contract_plan::{Budget, Shape};
use super::{Contraction, Left, PART, pack, registers, tiles};
use crate::isa::Isa;
use crate::llvm::{IntCmp, Ir, Val};

/// What stays the same over the whole matmul.
pub(super) struct Frame<'a> {
    pub ir: &'a Ir,
    pub c: &'a Contraction<'a>,
    pub shape: Shape,
    pub sums: Val,
    pub left: Val,
    pub right: Val,
    pub edges: Edges,
}

/// What blocks at the end of rows and columns can look like.
pub(super) struct Edges {
    /// Every block has all its rows.
    pub no_rows: bool,
    /// Every vector of a block has all its columns.
    pub no_lanes: bool,
    /// How many vectors of columns a block may have, the most first.
    pub vectors: Vec<u32>,
}

impl Edges {
    fn of(shape: Shape, whole: [Option<i64>; 2]) -> Self {
        let (rows, lanes) = (i64::from(shape.rows), i64::from(shape.lanes));
        let columns = i64::from(shape.columns());
        let divides = |size: Option<i64>, by: i64| size.is_some_and(|n| n % by == 0);
        let vectors = match whole[1] {
            None | Some(..=0) => (1..=shape.vectors).rev().collect(),
            Some(n) => {
                let last = ((n % columns) as u32).div_ceil(shape.lanes);
                let both = [(n >= columns).then_some(shape.vectors), (last > 0).then_some(last)];
                // The last block may have as many vectors as a whole one, the last of them with fewer columns.
                let mut counts: Vec<u32> = both.into_iter().flatten().collect();
                counts.dedup();
                counts
            }
        };
        Self {
            no_rows: divides(whole[0], rows) && PART[0] % rows == 0,
            no_lanes: divides(whole[1], lanes),
            vectors,
        }
    }
}

/// One pass over a part of k, for a block of rows and a block of columns.
#[derive(Copy, Clone)]
pub(super) struct Pass {
    pub m0: Val,
    pub rows: Val,
    pub n0: Val,
    pub cols: Val,
    pub k0: Val,
    pub depth: Val,
    pub first: Val,
    pub last: Val,
}

/// Left rows of the panel that is being used. Row `i` of a block begins at `base + i * row_bytes`,
/// and what follows `step` elements later at `step_bytes` further.
#[derive(Copy, Clone)]
pub(super) struct Panel {
    pub base: Val,
    pub row_bytes: Val,
    pub step_bytes: Val,
    /// Rows that there are, up to those of a block.
    pub live: Val,
    /// The first row.
    pub m: Val,
}

/// One block of sums.
#[derive(Copy, Clone)]
pub(super) struct Block {
    pub panel: Panel,
    pub n: Val,
    /// Columns that there are, up to those of a block.
    pub width: Val,
    /// Its part of the packed right operand.
    pub right: Val,
    /// Its sums in the workspace.
    pub sums: Val,
}

impl Frame<'_> {
    pub fn c64(&self, v: impl Into<i64>) -> Val {
        self.ir.c64(v.into())
    }
    /// The quotient, rounded up; sizes are not negative.
    pub fn parts(&self, a: Val, of: Val) -> Val {
        let ir = self.ir;
        ir.udiv(ir.add_const(ir.add(a, of), -1), of)
    }
    pub fn round_up(&self, a: Val, to: i64) -> Val {
        if to == 1 { a } else { self.ir.mul_const(self.parts(a, self.c64(to)), to) }
    }
    pub fn is(&self, a: Val, how: IntCmp, b: Val) -> Val {
        self.ir.icmp(how, a, b)
    }
    /// Bytes from an element of a left panel in registers to that of the next depth.
    pub fn left_step(&self) -> i64 {
        let across = match (&self.c.a, self.c.a_along_m) {
            (Left::Computed(_), Some(_)) => self.shape.across(),
            _ => 1,
        };
        i64::from(across * self.shape.operand)
    }
    /// Whether a size has `of` to its end; `left` is what is left of it.
    pub fn has(&self, size: Val, left: Val, of: u32) -> Val {
        match self.ir.as_int(size) {
            Some(n) if n % i64::from(of) == 0 => self.ir.const_int(self.ir.int(1), 1),
            _ => self.is(left, IntCmp::LLVMIntSGE, self.c64(of)),
        }
    }
    /// The lanes of a vector that lie inside, of `there` from the first on.
    pub fn columns_inside(&self, there: Val) -> Option<Val> {
        (!self.edges.no_lanes).then(|| self.ir.first_lanes(there, self.shape.lanes))
    }
    /// Bytes of one panel of the packed right operand.
    pub fn panel_bytes(&self, pass: &Pass) -> Val {
        let depth = self.round_up(pass.depth, self.shape.step.into());
        self.ir.mul_const(depth, self.shape.panel_bytes())
    }
}

impl<'a> Frame<'a> {
    pub fn new(ir: &'a Ir, isa: Isa, c: &'a Contraction<'a>, budget: Budget) -> Self {
        let shape = Shape::of(isa, c.kind);
        let room = budget.room(shape);
        let part = |at| ir.offset_const(c.workspace, at);
        let (sums, left, right) = (part(room.sums), part(room.left), part(room.right));
        let edges = Edges::of(shape, c.whole);
        Self { ir, c, shape, sums, left, right, edges }
    }
}

pub(super) fn emit(ir: &Ir, isa: Isa, c: &Contraction, budget: Budget) {
    let f = Frame::new(ir, isa, c, budget);
    let shape = f.shape;
    let any = |size| f.is(size, IntCmp::LLVMIntSGT, f.c64(0));
    ir.when(ir.and(any(c.rows), any(c.cols)), |_| {
        if shape.is_tiles() {
            tiles::configure(ir);
        }
        passes(&f, budget);
        if shape.is_tiles() {
            tiles::release(ir);
        }
    });
}

/// Divides `size` evenly into parts of at most `most`, each but the last a multiple of `unit`: gives
/// a part's size and their number.
fn divide(f: &Frame, size: Val, most: Val, unit: u32) -> (Val, Val) {
    let even = f.parts(size, f.parts(size, most));
    let part = f.round_up(even, unit.into());
    (part, f.parts(size, part))
}

fn passes(f: &Frame, budget: Budget) {
    let (ir, c, shape) = (f.ir, f.c, f.shape);
    let columns = i64::from(shape.columns());
    // No depth at all is one pass over nothing.
    let depth_or_one = ir.smax(c.depth, f.c64(1));
    let (kc, passes) = divide(f, depth_or_one, f.c64(budget.depth), shape.step);
    let single = f.is(passes, IntCmp::LLVMIntEQ, f.c64(1));
    let panels = ir.udiv(f.c64(budget.right), ir.mul_const(kc, shape.panel_bytes()));
    let most = ir.mul_const(ir.smax(panels, f.c64(1)), columns);
    let (nc, col_blocks) = divide(f, c.cols, most, shape.columns());
    let waiting = ir.udiv(f.c64(budget.sums / shape.block_bytes()), f.parts(nc, f.c64(columns)));
    let waiting = ir.mul_const(ir.smax(waiting, f.c64(1)), shape.rows.into());
    let most = ir.select(single, c.rows, waiting);
    let (mc, row_blocks) = divide(f, c.rows, most, shape.rows);

    let each = |count: Val, body: &dyn Fn(Val)| {
        ir.for_range(f.c64(0), count, 1, &[], |_, i, _| {
            body(i);
            vec![]
        });
    };
    each(col_blocks, &|j| {
        let n0 = ir.mul(j, nc);
        let cols = ir.smin(nc, ir.sub(c.cols, n0));
        each(row_blocks, &|i| {
            let m0 = ir.mul(i, mc);
            let rows = ir.smin(mc, ir.sub(c.rows, m0));
            each(passes, &|p| {
                let k0 = ir.mul(p, kc);
                let depth = ir.smin(kc, ir.sub(c.depth, k0));
                let first = f.is(p, IntCmp::LLVMIntEQ, f.c64(0));
                let last = f.is(ir.add_const(p, 1), IntCmp::LLVMIntEQ, passes);
                let pass = Pass { m0, rows, n0, cols, k0, depth, first, last };
                pack::right(f, &pass);
                panels_of_rows(f, &pass, single);
            });
        });
    });
}

fn panels_of_rows(f: &Frame, pass: &Pass, single: Val) {
    let (ir, shape) = (f.ir, f.shape);
    let columns = i64::from(shape.columns());
    let count = f.parts(pass.cols, f.c64(columns));
    let panel_bytes = f.panel_bytes(pass);
    // In a single pass the accumulators are stored before the next block begins: all blocks share
    // memory.
    let block_bytes = ir.select(single, f.c64(0), f.c64(shape.block_bytes()));
    let rows_bytes = ir.mul(count, block_bytes);
    let start = [f.sums];
    ir.for_range(f.c64(0), pass.rows, shape.rows.into(), &start, |ir, i, at| {
        let m = ir.add(pass.m0, i);
        let live = match f.edges.no_rows {
            true => f.c64(shape.rows),
            false => ir.smin(f.c64(shape.rows), ir.sub(pass.rows, i)),
        };
        let panel = left(f, pass, m, live);
        let start = [f.right, at[0]];
        ir.for_range(f.c64(0), pass.cols, columns, &start, |ir, j, at| {
            let n = ir.add(pass.n0, j);
            let width = match f.edges.vectors.as_slice() {
                &[count] if f.edges.no_lanes => f.c64(count * shape.lanes),
                _ => ir.smin(f.c64(columns), ir.sub(pass.cols, j)),
            };
            let block = Block { panel, n, width, right: at[0], sums: at[1] };
            if shape.is_tiles() {
                tiles::block(f, pass, &block);
            } else {
                registers::block(f, pass, &block);
            }
            vec![ir.offset(at[0], panel_bytes), ir.offset(at[1], block_bytes)]
        });
        vec![ir.offset(at[0], rows_bytes)]
    });
}

/// The rows of the left operand from `m`, packed first where they cannot be used in place.
fn left(f: &Frame, pass: &Pass, m: Val, live: Val) -> Panel {
    let (ir, shape) = (f.ir, f.shape);
    let (base, row_bytes) = match f.c.a {
        Left::Computed(a) => {
            return match f.c.a_along_m {
                Some(a) if !shape.is_tiles() => {
                    pack::left_across(f, [pass.k0, pass.depth], m, live, a)
                }
                _ => pack::left(f, pass, m, live, a),
            };
        }
        Left::InPlace { base, row_bytes } => (base, row_bytes),
    };
    let size = i64::from(shape.operand);
    let place = |m, k| {
        let row = ir.offset(base, ir.mul(m, row_bytes));
        ir.offset(row, ir.mul_const(k, size))
    };
    let copy = |ir: &Ir, m, k, lanes, mask| {
        let ty = ir.vec(shape.operand_type(ir), lanes);
        match mask {
            None => ir.load(ty, place(m, k), shape.operand),
            Some(mask) => ir.masked_load(ty, place(m, k), shape.operand, mask, ir.zero(ty)),
        }
    };
    let mut fits = f.is(live, IntCmp::LLVMIntEQ, f.c64(shape.rows));
    if shape.is_tiles() {
        fits = ir.and(fits, tiles::fits_in_place(f, base, row_bytes));
    }
    let given = |_: &Ir| vec![place(m, pass.k0), row_bytes, f.c64(shape.step * shape.operand)];
    let packed = |_: &Ir| {
        let p = pack::left(f, pass, m, live, &copy);
        vec![p.base, p.row_bytes, p.step_bytes]
    };
    let is = ir.if_else(fits, given, packed);
    Panel { base: is[0], row_bytes: is[1], step_bytes: is[2], live, m }
}
