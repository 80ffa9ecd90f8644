//! Packing. The right operand is packed into panels as wide as a block of accumulators: for each k
//! the panel's columns are contiguous and aligned to a vector. The left operand is packed in rows.
//! Padding columns may hold any value; their accumulators are never stored.

use super::blocks::{Frame, Panel, Pass};
use super::{Elements, pack_tiles, transpose};
use crate::llvm::{IntCmp, Ir, Val};

/// Rows of the right operand that are packed of one panel before the next: few enough that the
/// panels' pages stay in the TLB, and enough to fill whole cache lines.
const ROWS: i64 = 8;

/// Packs the right operand of a pass.
pub(super) fn right(f: &Frame, pass: &Pass) {
    match f.c.b_along_k {
        _ if f.shape.is_tiles() => pack_tiles::right(f, pass),
        Some(b) => transposed(f, pass, b),
        None => plain(f, pass, f.c.b),
    }
}

/// Calls `body` for every vector of columns: with the first column, the number of columns from it,
/// and the destination of its first k element, which is `apart` bytes from that of the next one.
pub(super) fn strips(f: &Frame, pass: &Pass, apart: i64, body: impl FnOnce(&Ir, Val, Val, Val)) {
    let (ir, shape) = (f.ir, f.shape);
    let columns = i64::from(shape.columns());
    let panel_bytes = f.panel_bytes(pass);
    ir.for_range(f.c64(0), pass.cols, columns, &[f.right], |ir, j, at| {
        let end = ir.smin(ir.add_const(j, columns), pass.cols);
        ir.for_range(j, end, shape.lanes.into(), &[at[0]], |ir, j, at| {
            body(ir, ir.add(pass.n0, j), ir.sub(pass.cols, j), at[0]);
            vec![ir.offset_const(at[0], apart)]
        });
        vec![ir.offset(at[0], panel_bytes)]
    });
}

fn plain(f: &Frame, pass: &Pass, b: &Elements) {
    let (ir, shape) = (f.ir, f.shape);
    ir.for_range(f.c64(0), pass.depth, ROWS, &[], |ir, k0, _| {
        let k1 = ir.smin(ir.add_const(k0, ROWS), pass.depth);
        let done = ir.mul_const(k0, shape.panel_bytes());
        strips(f, pass, i64::from(shape.lanes * shape.operand), |ir, n, there, at| {
            let rows = |mask: Option<Val>| {
                ir.for_range(k0, k1, 1, &[ir.offset(at, done)], |ir, k, at| {
                    let v = b(ir, ir.add(pass.k0, k), n, shape.lanes, mask);
                    ir.store(v, at[0], shape.lanes * shape.operand);
                    vec![ir.offset_const(at[0], shape.panel_bytes())]
                })
            };
            match f.columns_inside(there) {
                None => rows(None),
                mask => {
                    let whole = f.is(there, IntCmp::LLVMIntSGE, f.c64(shape.lanes));
                    ir.if_else(whole, |_| rows(None), |_| rows(mask))
                }
            };
        });
        vec![]
    });
}

/// Reads along k, and transposes squares of as many elements as a vector has lanes. Padding columns
/// are set to zero: stale memory could hold denormals, which processors multiply a hundred times as
/// slowly.
fn transposed(f: &Frame, pass: &Pass, b: &Elements) {
    let (lanes, size) = (f.shape.lanes, f.shape.operand);
    let ty = f.ir.vec(f.shape.operand_type(f.ir), lanes);
    let square = f.ir.alloca(f.ir.array(ty, lanes.into()), 64);
    for j in 0..lanes {
        f.ir.store(
            f.ir.zero(ty),
            f.ir.offset_const(square, i64::from(j * lanes * size)),
            lanes * size,
        );
    }
    strips(f, pass, i64::from(lanes * size), |ir, n, there, at| {
        let all = f.c64(lanes);
        let there = if f.edges.no_lanes { all } else { ir.smin(there, all) };
        ir.for_range(f.c64(0), pass.depth, lanes.into(), &[at], |ir, k, at| {
            let left = ir.sub(pass.depth, k);
            let columns = |mask: Option<Val>| {
                ir.for_range(f.c64(0), there, 1, &[square], |ir, j, to| {
                    let v = b(ir, ir.add(pass.k0, k), ir.add(n, j), lanes, mask);
                    ir.store(v, to[0], lanes * size);
                    vec![ir.offset_const(to[0], i64::from(lanes * size))]
                })
            };
            let whole = f.has(pass.depth, left, lanes);
            ir.if_else(whole, |_| columns(None), |_| columns(Some(ir.first_lanes(left, lanes))));
            let load = |j| {
                let from = ir.offset_const(square, i64::from(j * lanes * size));
                ir.load(ty, from, lanes * size)
            };
            let turned = transpose::square(ir, (0..lanes).map(load).collect());
            // Elements beyond k are written to the next panel before that is packed, or after the
            // last one.
            let mut to = at[0];
            for v in turned {
                ir.store(v, to, lanes * size);
                to = ir.offset_const(to, f.shape.panel_bytes());
            }
            vec![to]
        });
    });
}

/// Packs rows of the left operand from `m` into the workspace, `live` of them. The padding rows of
/// a block repeat the last one: their accumulators are computed and not stored.
pub(super) fn left(f: &Frame, pass: &Pass, m: Val, live: Val, a: &Elements) -> Panel {
    if f.shape.is_tiles() {
        return pack_tiles::left(f, pass, m, live, a);
    }
    left_rows(f, [pass.k0, pass.depth], m, f.shape.rows, live, a)
}

/// Packs `rows` rows of the left operand, for the positions of k that `part` gives: the first, and
/// how many.
pub(super) fn left_rows(
    f: &Frame,
    part: [Val; 2],
    m: Val,
    rows: u32,
    live: Val,
    a: &Elements,
) -> Panel {
    let (ir, shape, [k0, depth]) = (f.ir, f.shape, part);
    let (lanes, size) = (shape.lanes, i64::from(shape.operand));
    let vector = i64::from(lanes) * size;
    // One vector more than needed, so that the rows of a panel do not share one set of the cache.
    let row_bytes = ir.mul_const(f.round_up(depth, lanes.into()), size);
    let row_bytes = ir.add_const(row_bytes, vector);
    let whole = ir.and(depth, f.c64(-i64::from(lanes)));
    let rest = ir.sub(depth, whole);
    let last = ir.add_const(live, -1);
    ir.for_range(f.c64(0), f.c64(rows), 1, &[f.left], |ir, i, row| {
        let m = ir.add(m, ir.smin(i, last));
        let end = ir.for_range(f.c64(0), whole, lanes.into(), row, |ir, k, at| {
            ir.store(a(ir, m, ir.add(k0, k), lanes, None), at[0], vector as u32);
            vec![ir.offset_const(at[0], vector)]
        });
        ir.when(f.is(rest, IntCmp::LLVMIntSGT, f.c64(0)), |ir| {
            let mask = ir.first_lanes(rest, lanes);
            let v = a(ir, m, ir.add(k0, whole), lanes, Some(mask));
            ir.store(v, end[0], vector as u32);
        });
        vec![ir.offset(row[0], row_bytes)]
    });
    Panel { base: f.left, row_bytes, step_bytes: f.c64(size), live, m }
}

/// The same for an operand that is transposed in memory: for each k the rows of a block are
/// contiguous in the panel, as they are in memory.
pub(super) fn left_across(f: &Frame, part: [Val; 2], m: Val, live: Val, a: &Elements) -> Panel {
    let (ir, shape, [k0, depth]) = (f.ir, f.shape, part);
    let across = shape.across();
    let bytes = i64::from(across * shape.operand);
    let each = |mask: Option<Val>| {
        ir.for_range(f.c64(0), depth, 1, &[f.left], |ir, k, at| {
            let v = a(ir, m, ir.add(k0, k), across, mask);
            ir.store(v, at[0], shape.operand);
            vec![ir.offset_const(at[0], bytes)]
        });
        Vec::new()
    };
    if across == shape.rows {
        let whole = f.is(live, IntCmp::LLVMIntEQ, f.c64(shape.rows));
        ir.if_else(whole, |_| each(None), |_| each(Some(ir.first_lanes(live, across))));
    } else {
        each(Some(ir.first_lanes(live, across)));
    }
    let row_bytes = f.c64(shape.operand);
    Panel { base: f.left, row_bytes, step_bytes: f.c64(bytes), live, m }
}
