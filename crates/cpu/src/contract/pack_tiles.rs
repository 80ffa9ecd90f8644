//! Packing for AMX. A tile of the right operand holds, in each row of 64 bytes, 16 columns of as
//! many k elements as fill four bytes; two adjacent tiles and then the next 16 rows make a panel. A
//! packed left panel holds 32 rows of 64 bytes for each step of k. Elements beyond k are zero in
//! both operands, since they are multiplied.

use super::Elements;
use super::blocks::{Frame, Panel, Pass};
use super::pack::strips;
use super::tiles::{ROW, TILE};
use super::transpose;
use crate::llvm::{IntCmp, Ir, Val};

/// Columns that are packed of one row before the next: whole lines of several panels.
const COLUMNS: i64 = 128;

pub(super) fn right(f: &Frame, pass: &Pass) {
    match f.c.b_along_k {
        Some(b) => transposed(f, pass, b),
        None => plain(f, pass, f.c.b),
    }
}

/// Zero in the lanes that are off.
fn or_zero(ir: &Ir, v: Val, mask: Val) -> Val {
    ir.select(mask, v, ir.zero(ir.ty(v)))
}

fn plain(f: &Frame, pass: &Pass, b: &Elements) {
    let (ir, shape) = (f.ir, f.shape);
    let (columns, step) = (i64::from(shape.columns()), i64::from(shape.step));
    let group = 4 / shape.operand;
    let panel_bytes = f.panel_bytes(pass);
    let last = ir.add_const(pass.depth, -1);
    let all = |to: Val, from: Val, by: i64, carried: &[Val], body: &dyn Fn(Val, Val) -> Val| {
        ir.for_range(from, to, by, carried, |_, i, at| vec![body(i, at[0])])
    };
    all(pass.depth, f.c64(0), step, &[f.right], &|k0, at| {
        let enough = f.is(ir.add_const(k0, step), IntCmp::LLVMIntSLE, pass.depth);
        all(pass.cols, f.c64(0), COLUMNS, &[at], &|j0, at| {
            let j1 = ir.smin(ir.add_const(j0, COLUMNS), pass.cols);
            let k1 = ir.add_const(k0, step);
            all(k1, k0, group.into(), &[at], &|k, at| {
                all(j1, j0, columns, &[at], &|j, at| {
                    let n = ir.add(pass.n0, j);
                    let there = ir.sub(pass.cols, j);
                    let wide = f.is(there, IntCmp::LLVMIntSGE, f.c64(columns));
                    let row = |i: u32| ir.add_const(k, i.into());
                    let given = |_: &Ir| {
                        let one = |i| b(ir, ir.add(pass.k0, row(i)), n, shape.columns(), None);
                        (0..group).map(one).collect()
                    };
                    let filled = |_: &Ir| {
                        let one = |i| {
                            let has = f.is(row(i), IntCmp::LLVMIntSLE, last);
                            let mask =
                                ir.first_lanes(ir.select(has, there, f.c64(0)), shape.columns());
                            let k = ir.add(pass.k0, ir.smin(row(i), last));
                            or_zero(ir, b(ir, k, n, shape.columns(), Some(mask)), mask)
                        };
                        (0..group).map(one).collect()
                    };
                    let rows = ir.if_else(ir.and(enough, wide), given, filled);
                    for (half, v) in interleave(ir, &rows).into_iter().enumerate() {
                        ir.store(v, ir.offset_const(at, half as i64 * TILE), 64);
                    }
                    ir.offset(at, panel_bytes)
                });
                ir.offset_const(at, ROW)
            });
            ir.offset(at, ir.mul_const(panel_bytes, COLUMNS / columns))
        });
        ir.offset_const(at, 2 * TILE)
    });
}

/// The two halves of some rows of 32 columns, with the rows' elements of a column adjacent.
fn interleave(ir: &Ir, rows: &[Val]) -> [Val; 2] {
    // Two vectors of 64 bytes hold the rows one after the other.
    let [low, high] = match *rows {
        [a, b] => [a, b],
        _ => {
            let both: Vec<_> = (0..64).collect();
            [ir.shuffle(rows[0], rows[1], &both), ir.shuffle(rows[2], rows[3], &both)]
        }
    };
    let group = rows.len() as u32;
    [0, 1].map(|half| {
        let pick = |lane: u32| lane % group * 32 + half * 16 + lane / group;
        ir.shuffle(low, high, &(0..16 * group).map(pick).collect::<Vec<_>>())
    })
}

/// Elements that share four bytes are contiguous in memory: squares of 16 x 16 times four bytes are
/// transposed.
fn transposed(f: &Frame, pass: &Pass, b: &Elements) {
    let (ir, shape) = (f.ir, f.shape);
    let lanes = shape.step;
    let words = ir.vec(ir.i32(), 16);
    let square = ir.alloca(ir.array(words, 16), 64);
    strips(f, pass, TILE, |ir, n, there, at| {
        let there = if f.edges.no_lanes { f.c64(16) } else { ir.smin(there, f.c64(16)) };
        ir.for_range(f.c64(0), pass.depth, lanes.into(), &[at], |ir, k, at| {
            let left = ir.sub(pass.depth, k);
            let columns = |mask: Option<Val>| {
                ir.for_range(f.c64(0), there, 1, &[square], |ir, j, to| {
                    let v = b(ir, ir.add(pass.k0, k), ir.add(n, j), lanes, mask);
                    ir.store(mask.map_or(v, |mask| or_zero(ir, v, mask)), to[0], 64);
                    vec![ir.offset_const(to[0], ROW)]
                })
            };
            let whole = f.has(pass.depth, left, lanes);
            ir.if_else(whole, |_| columns(None), |_| columns(Some(ir.first_lanes(left, lanes))));
            let load = |j| ir.load(words, ir.offset_const(square, j * ROW), 64);
            let turned = transpose::square(ir, (0..16).map(load).collect());
            for (i, v) in turned.into_iter().enumerate() {
                ir.store(v, ir.offset_const(at[0], i as i64 * ROW), 64);
            }
            vec![ir.offset_const(at[0], 2 * TILE)]
        });
    });
}

/// See [`super::pack::left`].
pub(super) fn left(f: &Frame, pass: &Pass, m: Val, live: Val, a: &Elements) -> Panel {
    let (ir, shape) = (f.ir, f.shape);
    let lanes = shape.step;
    let (rows, last) = (f.c64(shape.rows), ir.add_const(live, -1));
    let whole = ir.and(pass.depth, f.c64(-i64::from(lanes)));
    let rest = ir.sub(pass.depth, whole);
    let step = |k: Val, at: Val, mask: Option<Val>| {
        ir.for_range(f.c64(0), rows, 1, &[at], |ir, i, at| {
            let m = ir.add(m, ir.smin(i, last));
            let v = a(ir, m, ir.add(pass.k0, k), lanes, mask);
            ir.store(mask.map_or(v, |mask| or_zero(ir, v, mask)), at[0], 64);
            vec![ir.offset_const(at[0], ROW)]
        })
    };
    let end =
        ir.for_range(f.c64(0), whole, lanes.into(), &[f.left], |_, k, at| step(k, at[0], None));
    ir.when(f.is(rest, IntCmp::LLVMIntSGT, f.c64(0)), |ir| {
        step(whole, end[0], Some(ir.first_lanes(rest, lanes)));
    });
    let row_bytes = f.c64(ROW);
    Panel { base: f.left, row_bytes, step_bytes: f.c64(i64::from(shape.rows) * ROW), live, m }
}
