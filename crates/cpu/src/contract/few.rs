//! Matmuls with few rows (or, transposed, few columns). Each element of the right operand is used
//! few times, so that packing it would take longer than the products: it is read in place, once for
//! every block of rows, from the L1 cache after the first.
//!
//! - Where columns are contiguous, a vector holds columns, and sums are those of
//!   [`super::registers`], bit for bit: passes over [`PASS`] positions of k read long pieces of
//!   that many rows.
//! - Where the right operand is contiguous along k, a vector holds positions of k, and its lanes
//!   are added at the end of a pass: for sums in any order.

use super::blocks::Frame;
use super::registers::multiply_add;
use super::{Left, pack};
use crate::llvm::{IntCmp, Ir, Val};

/// Up to this many rows. Packing pays where its two accesses for each element are few beside the
/// products.
pub const FEW: i64 = 12;
/// Bytes of a cache line.
const LINE: u32 = 64;
/// Sums that are in memory at a time: columns, for all rows. Where rows of the right operand are
/// streamed, they are long: software prefetches made that slower by a tenth.
const COLUMNS: i64 = 1024;
const LONG_COLUMNS: i64 = 4096;
/// The part of k that a pass covers: rows of the right operand, as many as the L2 cache holds.
const PASS: i64 = 64;
/// The same where rows are contiguous along k: those of a block are in the L1 cache for the next
/// rows of the left operand. Where there is one block of rows, longer reads are faster.
const LONG_PASS: i64 = 512;
const ONLY_PASS: i64 = 2048;
const ONLY_PASS_IN_PLACE: i64 = 8192;
/// Up to this many rows of a block, positions of k are taken together, [`STEPS`] for one row.
const STREAMED: u32 = 2;
const STEPS: u32 = 8;
/// The most vectors of columns of a block.
const VECTORS: u32 = 8;
/// Columns whose products with a row are added together where vectors are along k.
const TOGETHER: u32 = 4;

/// Whether this form computes what the contraction asks for.
pub(super) fn is_for(f: &Frame) -> bool {
    !f.shape.is_tiles() && (f.c.b_along_k.is_none() || f.c.any_order)
}

/// Rows `m` to `m + rows` of the left operand over the part of k from `k0`.
#[derive(Copy, Clone)]
struct Panel {
    rows: u32,
    /// The first row in the sums.
    sums: Val,
    base: Val,
    row_bytes: Val,
    step_bytes: Val,
}

/// A part of k, and the columns whose sums are in memory.
#[derive(Copy, Clone)]
struct Pass {
    k0: Val,
    depth: Val,
    n0: Val,
    width: Val,
}

pub(super) fn emit(f: &Frame) {
    let (ir, c) = (f.ir, f.c);
    let up_to = |rows: u32| f.is(c.rows, IntCmp::LLVMIntSLE, f.c64(rows));
    let most_columns = ir.select(up_to(STREAMED), f.c64(LONG_COLUMNS), f.c64(COLUMNS));
    let most = match (&c.a, c.b_along_k) {
        (_, None) => f.c64(PASS),
        (Left::InPlace { .. }, Some(_)) => {
            ir.select(up_to(heights(f)[0]), f.c64(ONLY_PASS_IN_PLACE), f.c64(LONG_PASS))
        }
        (Left::Computed(_), Some(_)) => {
            ir.select(up_to(heights(f)[0]), f.c64(ONLY_PASS), f.c64(LONG_PASS))
        }
    };
    ir.for_range(f.c64(0), f.parts(c.cols, most_columns), 1, &[], |ir, i, _| {
        let n0 = ir.mul(i, most_columns);
        let width = ir.smin(most_columns, ir.sub(c.cols, n0));
        begin(f, n0, width);
        ir.for_range(f.c64(0), f.parts(c.depth, most), 1, &[], |ir, p, _| {
            let k0 = ir.mul(p, most);
            let depth = ir.smin(most, ir.sub(c.depth, k0));
            blocks_of_rows(f, Pass { k0, depth, n0, width });
            vec![]
        });
        end(f, n0, width);
        vec![]
    });
}

/// Bytes from a row of sums to the next: blocks may be wider than the columns that are left, and
/// rows do not begin in the same set of the cache.
pub(super) fn row_bytes(f: &Frame) -> i64 {
    let widest = i64::from(VECTORS * f.shape.lanes);
    (LONG_COLUMNS + widest) * i64::from(f.shape.sum) + 64
}

/// Calls `body` for the sums of each row, a vector at a time: with the row, the column, where they
/// are, and which of them there are, if not all.
fn each(f: &Frame, width: Val, body: &dyn Fn(Val, Val, Val, Option<Val>)) {
    let (ir, lanes) = (f.ir, i64::from(f.shape.lanes));
    let size = i64::from(f.shape.sum);
    let whole = ir.and(width, f.c64(-lanes));
    ir.for_range(f.c64(0), f.c.rows, 1, &[f.sums], |ir, m, row| {
        let at = |n| ir.offset(row[0], ir.mul_const(n, size));
        ir.for_range(f.c64(0), whole, lanes, &[], |_, n, _| {
            body(m, n, at(n), None);
            vec![]
        });
        let rest = ir.sub(width, whole);
        ir.when(f.is(rest, IntCmp::LLVMIntSGT, f.c64(0)), |ir| {
            body(m, whole, at(whole), Some(ir.first_lanes(rest, f.shape.lanes)));
        });
        vec![ir.offset_const(row[0], row_bytes(f))]
    });
}

fn begin(f: &Frame, n0: Val, width: Val) {
    let (ir, shape) = (f.ir, f.shape);
    let ty = shape.sums_type(ir);
    each(f, width, &|m, n, at, mask| {
        let v = match f.c.start {
            Some(start) => start(ir, m, ir.add(n0, n), shape.lanes, mask),
            None => ir.zero(ty),
        };
        ir.store(v, at, shape.sum);
    });
}

fn end(f: &Frame, n0: Val, width: Val) {
    let (ir, shape) = (f.ir, f.shape);
    each(f, width, &|m, n, at, mask| {
        let sums = ir.load(shape.sums_type(ir), at, shape.sum);
        (f.c.finish)(ir, m, ir.add(n0, n), sums, mask);
    });
}

/// Numbers of rows that are computed together, the most first.
fn heights(f: &Frame) -> Vec<u32> {
    let most = match f.c.b_along_k {
        // A vector of each row, one of a column, and the sums.
        Some(_) if f.shape.vectors > 2 => 4,
        Some(_) => 3,
        None => f.shape.rows,
    };
    // What is left is read again from the L1 cache: more heights would only be more code.
    vec![most, 2, 1]
}

fn blocks_of_rows(f: &Frame, pass: Pass) {
    let ir = f.ir;
    let mut from = f.c64(0);
    for rows in heights(f) {
        let each = i64::from(rows);
        let count = ir.sdiv(ir.sub(f.c.rows, from), f.c64(each));
        let to = ir.add(from, ir.mul_const(count, each));
        ir.for_range(from, to, each, &[], |_, m, _| {
            let panel = left(f, pass, m, rows);
            match f.c.b_along_k {
                Some(b) => along_k(f, pass, panel, b),
                None => along_columns(f, pass, panel),
            }
            vec![]
        });
        from = to;
    }
}

/// The rows of the left operand, packed where they cannot be read in place.
fn left(f: &Frame, pass: Pass, m: Val, rows: u32) -> Panel {
    let (ir, size) = (f.ir, i64::from(f.shape.operand));
    let sums = ir.offset(f.sums, ir.mul_const(m, row_bytes(f)));
    let of = |base, row_bytes, step_bytes| Panel { rows, sums, base, row_bytes, step_bytes };
    match (&f.c.a, f.c.a_along_m) {
        (&Left::InPlace { base, row_bytes }, _) => {
            let row = ir.offset(base, ir.mul(m, row_bytes));
            of(ir.offset(row, ir.mul_const(pass.k0, size)), row_bytes, f.c64(size))
        }
        (Left::Computed(_), Some(a)) if f.c.b_along_k.is_none() => {
            let live = f.c64(rows);
            let p = pack::left_across(f, [pass.k0, pass.depth], m, live, a);
            of(p.base, p.row_bytes, p.step_bytes)
        }
        (Left::Computed(a), _) => {
            let live = f.c64(rows);
            let p = pack::left_rows(f, [pass.k0, pass.depth], m, rows, live, a);
            of(p.base, p.row_bytes, p.step_bytes)
        }
    }
}

/// Vectors of columns.
fn along_columns(f: &Frame, pass: Pass, panel: Panel) {
    let (ir, shape) = (f.ir, f.shape);
    if panel.rows <= STREAMED {
        let steps = i64::from(STEPS / panel.rows);
        let whole = ir.and(pass.depth, f.c64(-steps));
        for (from, to, steps) in [(f.c64(0), whole, steps), (whole, pass.depth, 1)] {
            ir.for_range(from, to, steps, &[], |_, k, _| {
                stream(f, pass, panel, k, steps);
                vec![]
            });
        }
        return;
    }
    let vectors = (shape.rows * shape.vectors / panel.rows).min(VECTORS);
    let columns = i64::from(vectors * shape.lanes);
    let whole = ir.mul_const(ir.sdiv(pass.width, f.c64(columns)), columns);
    ir.for_range(f.c64(0), whole, columns, &[], |_, j, _| {
        block(f, pass, panel, j, vectors, None);
        vec![]
    });
    let rest = ir.sub(pass.width, whole);
    // The rest is one block too: a narrow one where that is enough.
    let narrow = vectors.div_ceil(4);
    let is_narrow = f.is(rest, IntCmp::LLVMIntSLE, f.c64(narrow * shape.lanes));
    ir.when(f.is(rest, IntCmp::LLVMIntSGT, f.c64(0)), |ir| {
        let one = |vectors| {
            block(f, pass, panel, whole, vectors, Some(rest));
            vec![]
        };
        ir.if_else(is_narrow, |_| one(narrow), |_| one(vectors));
    });
}

/// Adds the products of a few positions of k from `k` on to the sums of one or two rows: long reads of
/// as many rows of the right operand, which the hardware prefetcher follows.
fn stream(f: &Frame, pass: Pass, panel: Panel, k: Val, steps: i64) {
    let (ir, shape) = (f.ir, f.shape);
    let lanes = i64::from(shape.lanes);
    let mut left = Vec::new();
    let start = ir.offset(panel.base, ir.mul(k, panel.step_bytes));
    for step in 0..steps {
        let mut at = ir.offset(start, ir.mul_const(panel.step_bytes, step));
        for row in 0..panel.rows {
            if row > 0 {
                at = ir.offset(at, panel.row_bytes);
            }
            left.push(ir.splat(ir.load(shape.operand_type(ir), at, shape.operand), shape.lanes));
        }
    }
    let k = ir.add(pass.k0, k);
    let vector = |j: Val, mask: Option<Val>| {
        let first = ir.offset(panel.sums, ir.mul_const(j, shape.sum.into()));
        let places =
            (0..panel.rows).map(|row| ir.offset_const(first, i64::from(row) * row_bytes(f)));
        let places: Vec<Val> = places.collect();
        let ty = shape.sums_type(ir);
        let mut sums: Vec<Val> = places.iter().map(|&at| ir.load(ty, at, shape.sum)).collect();
        for (step, left) in left.chunks(panel.rows as usize).enumerate() {
            let n = ir.add(pass.n0, j);
            let right = (f.c.b)(ir, ir.add_const(k, step as i64), n, shape.lanes, mask);
            for (sum, &left) in sums.iter_mut().zip(left) {
                *sum = multiply_add(ir, shape.kind, left, right, *sum);
            }
        }
        for (&at, &sum) in places.iter().zip(&sums) {
            ir.store(sum, at, shape.sum);
        }
    };
    // Whole lines, then vectors.
    let line = lanes.max(i64::from(LINE / shape.operand));
    let lines = ir.and(pass.width, f.c64(-line));
    ir.for_range(f.c64(0), lines, line, &[], |ir, j, _| {
        (0..line / lanes).for_each(|v| vector(ir.add_const(j, v * lanes), None));
        vec![]
    });
    let whole = ir.and(pass.width, f.c64(-lanes));
    if line > lanes {
        ir.for_range(lines, whole, lanes, &[], |_, j, _| {
            vector(j, None);
            vec![]
        });
    }
    let rest = ir.sub(pass.width, whole);
    ir.when(f.is(rest, IntCmp::LLVMIntSGT, f.c64(0)), |ir| {
        vector(whole, Some(ir.first_lanes(rest, shape.lanes)));
    });
}

/// The sums of some rows and of vectors of columns from `j`, of which `there` are there.
fn block(f: &Frame, pass: Pass, panel: Panel, j: Val, vectors: u32, there: Option<Val>) {
    let (ir, shape) = (f.ir, f.shape);
    let masks: Vec<Option<Val>> = (0..vectors)
        .map(|v| {
            Some(ir.first_lanes(ir.add_const(there?, -i64::from(v * shape.lanes)), shape.lanes))
        })
        .collect();
    let first = ir.offset(panel.sums, ir.mul_const(j, shape.sum.into()));
    let place = |row: u32, v: u32| {
        let at = i64::from(row) * row_bytes(f) + i64::from(v * shape.lanes * shape.sum);
        ir.offset_const(first, at)
    };
    let places: Vec<Val> = (0..panel.rows)
        .flat_map(|row| (0..vectors).map(move |v| (row, v)))
        .map(|(r, v)| place(r, v))
        .collect();
    let ty = shape.sums_type(ir);
    let start = [panel.base].into_iter().chain(places.iter().map(|&at| ir.load(ty, at, shape.sum)));
    let n = ir.add(pass.n0, j);
    let last =
        ir.for_range(f.c64(0), pass.depth, 1, &start.collect::<Vec<_>>(), |ir, k, carried| {
            let (left, mut sums) = (carried[0], carried[1..].to_vec());
            let k = ir.add(pass.k0, k);
            let right: Vec<Val> = masks
                .iter()
                .enumerate()
                .map(|(v, &mask)| {
                    (f.c.b)(
                        ir,
                        k,
                        ir.add_const(n, v as i64 * i64::from(shape.lanes)),
                        shape.lanes,
                        mask,
                    )
                })
                .collect();
            let mut row = left;
            for (r, sums) in sums.chunks_mut(vectors as usize).enumerate() {
                if r > 0 {
                    row = ir.offset(row, panel.row_bytes);
                }
                let a = ir.splat(ir.load(shape.operand_type(ir), row, shape.operand), shape.lanes);
                for (sum, &b) in sums.iter_mut().zip(&right) {
                    *sum = multiply_add(ir, shape.kind, a, b, *sum);
                }
            }
            [vec![ir.offset(left, panel.step_bytes)], sums].concat()
        });
    for (&at, &sum) in places.iter().zip(&last[1..]) {
        ir.store(sum, at, shape.sum);
    }
}

/// Vectors of positions of k.
fn along_k(f: &Frame, pass: Pass, panel: Panel, b: &super::Elements) {
    let (ir, shape) = (f.ir, f.shape);
    let (lanes, count) = (i64::from(shape.lanes), i64::from(TOGETHER));
    let last = ir.add_const(pass.width, -1);
    let whole = ir.and(pass.depth, f.c64(-lanes));
    let rest = ir.sub(pass.depth, whole);
    let ty = ir.vec(shape.operand_type(ir), shape.lanes);
    let sums_ty = shape.sums_type(ir);
    // One row has few sums, which would wait for one another: it has two of each.
    let twice = if panel.rows == 1 { 2 } else { 1 };
    ir.for_range(f.c64(0), pass.width, count, &[], |ir, j, _| {
        let column = |s: i64| ir.add(pass.n0, ir.smin(ir.add_const(j, s), last));
        let columns: Vec<Val> = (0..count).map(column).collect();
        let step = |k: Val, mask: Option<Val>, sums: &mut [Val]| {
            let at = ir.offset(panel.base, ir.mul_const(k, shape.operand.into()));
            let mut row = at;
            let mut left = Vec::new();
            for r in 0..panel.rows {
                if r > 0 {
                    row = ir.offset(row, panel.row_bytes);
                }
                left.push(match mask {
                    None => ir.load(ty, row, shape.operand),
                    Some(mask) => ir.masked_load(ty, row, shape.operand, mask, ir.zero(ty)),
                });
            }
            for (s, &n) in columns.iter().enumerate() {
                let right = b(ir, ir.add(pass.k0, k), n, shape.lanes, mask);
                let right = mask.map_or(right, |mask| ir.select(mask, right, ir.zero(ty)));
                for (r, &left) in left.iter().enumerate() {
                    let sum = &mut sums[r * columns.len() + s];
                    *sum = multiply_add(ir, shape.kind, left, right, *sum);
                }
            }
        };
        let each = panel.rows as usize * columns.len();
        let mut sums = vec![ir.zero(sums_ty); each * twice];
        let pairs = ir.and(whole, f.c64(-lanes * twice as i64));
        sums = ir.for_range(f.c64(0), pairs, lanes * twice as i64, &sums, |ir, k, sums| {
            let mut sums = sums.to_vec();
            for (i, sums) in sums.chunks_mut(each).enumerate() {
                step(ir.add_const(k, i as i64 * lanes), None, sums);
            }
            sums
        });
        if twice > 1 {
            let other = sums.split_off(each);
            let joined = sums.iter().zip(&other).map(|(&a, &b)| add(f, a, b));
            sums = joined.collect();
            sums = ir.for_range(pairs, whole, lanes, &sums, |_, k, sums| {
                let mut sums = sums.to_vec();
                step(k, None, &mut sums);
                sums
            });
        }
        let some = f.is(rest, IntCmp::LLVMIntSGT, f.c64(0));
        let masked = |ir: &Ir| {
            let mut sums = sums.clone();
            step(whole, Some(ir.first_lanes(rest, shape.lanes)), &mut sums);
            sums
        };
        let sums = ir.if_else(some, masked, |_| sums.clone());
        for (r, sums) in sums.chunks(columns.len()).enumerate() {
            let at = ir.offset_const(panel.sums, r as i64 * row_bytes(f));
            let at = ir.offset(at, ir.mul_const(j, shape.sum.into()));
            let total = across(f, sums.to_vec());
            let before = ir.load(ir.ty(total), at, shape.sum);
            ir.store(add(f, before, total), at, shape.sum);
        }
        vec![]
    });
}

fn add(f: &Frame, a: Val, b: Val) -> Val {
    match f.shape.kind {
        super::Kind::I32 => f.ir.add(a, b),
        _ => f.ir.fadd(a, b),
    }
}

/// The sum of the lanes of each vector, as the lanes of one: a power of two of vectors, whose
/// halves are added again and again.
fn across(f: &Frame, mut vectors: Vec<Val>) -> Val {
    let ir = f.ir;
    let count = vectors.len() as u32;
    // Lanes that each of the vectors has left.
    let mut own = f.shape.lanes;
    while own > 1 {
        let half = own / 2;
        let halved = |a: Val, b: Val, rows: u32| {
            let pick = |from: u32| -> Vec<u32> {
                (0..rows).flat_map(|row| (0..half).map(move |i| row * own + from + i)).collect()
            };
            add(f, ir.shuffle(a, b, &pick(0)), ir.shuffle(a, b, &pick(half)))
        };
        let held = ir.lanes(ir.ty(vectors[0])) / own;
        vectors = match vectors.len() {
            1 => vec![halved(vectors[0], vectors[0], held)],
            _ => vectors.chunks(2).map(|v| halved(v[0], v[1], 2 * held)).collect(),
        };
        own = half;
    }
    // More vectors than lanes.
    while vectors.len() > 1 {
        let join = |v: &[Val]| {
            let lanes = ir.lanes(ir.ty(v[0]));
            ir.shuffle(v[0], v[1], &(0..2 * lanes).collect::<Vec<_>>())
        };
        vectors = vectors.chunks(2).map(join).collect();
    }
    assert_eq!(ir.lanes(ir.ty(vectors[0])), count);
    vectors[0]
}

/// Whether a contraction has few rows: known when code is emitted, or compared when it runs.
/// `turned`: its rows are the columns of the matmul. Where each of those is contiguous along k, the
/// packed form has nothing but them to pack, and takes a vector of them together.
pub(super) fn applies(f: &Frame, turned: bool) -> Val {
    let (ir, [rows, cols]) = (f.ir, f.c.all);
    let most = match f.c.b_along_k {
        Some(_) if turned => i64::from(f.shape.lanes / 2),
        _ => FEW,
    };
    ir.and(f.is(rows, IntCmp::LLVMIntSLE, f.c64(most)), f.is(rows, IntCmp::LLVMIntSLE, cols))
}
