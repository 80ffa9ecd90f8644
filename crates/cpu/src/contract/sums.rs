//! Accumulators of a block in the workspace: initialised before the first pass, stored after the
//! last. In the workspace a block always has the rows and columns of a whole one.

use super::blocks::{Block, Frame, Pass};
use crate::llvm::{Blk, IntCmp, Ir, Val};

/// Instructions that giving away one vector of sums may take for it to be repeated for every register
/// of a block. Longer ones are emitted in loops over the sums in the workspace only.
const SHORT: usize = 10;

/// Puts what the sums begin with into the workspace, where that is given and this is the first pass.
pub(super) fn start(f: &Frame, pass: &Pass, block: &Block) {
    let shape = f.shape;
    let Some(start) = f.c.start else { return };
    f.ir.when(pass.first, |_| {
        each_vector(f, block, |ir, m, n, at, mask| {
            let v = start(ir, m, n, shape.lanes, mask);
            ir.store(v, at, shape.lanes * shape.sum);
        });
    });
}

/// Whether the matrix has all rows and columns of the block.
pub(super) fn is_whole(f: &Frame, block: &Block) -> Val {
    f.ir.and(
        f.is(block.width, IntCmp::LLVMIntEQ, f.c64(f.shape.columns())),
        f.is(block.panel.live, IntCmp::LLVMIntEQ, f.c64(f.shape.rows)),
    )
}

/// Emits, in a basic block of its own, the epilogue of all accumulators inside the matrix, then a
/// jump to `next`. Returns the basic block, and whether the epilogue of one vector is short: then
/// the caller does that of whole blocks, whose accumulators it has in registers.
pub(super) fn finish(f: &Frame, block: &Block, next: Blk) -> (Blk, bool) {
    let (ir, shape) = (f.ir, f.shape);
    let load = |at| ir.load(shape.sums_type(ir), at, shape.lanes * shape.sum);
    let (here, parts) = (ir.here(), ir.block("finish_parts"));
    let mut length = 0;
    ir.goto(parts);
    each_vector(f, block, |ir, m, n, at, mask| {
        let sums = load(at);
        let before = ir.instructions();
        (f.c.finish)(ir, m, n, sums, mask);
        length = ir.instructions() - before;
    });
    ir.jump(next);
    let short = length <= SHORT && !shape.is_tiles();
    let mut first = parts;
    if !short {
        let rows = ir.block("finish_rows");
        first = ir.block("finish");
        ir.goto(first);
        ir.branch(is_whole(f, block), rows, parts);
        ir.goto(rows);
        ir.for_range(f.c64(0), f.c64(shape.rows), 1, &[block.sums], |ir, i, at| {
            let m = ir.add(block.panel.m, i);
            for v in 0..shape.vectors {
                let sums = load(ir.offset_const(at[0], (v * shape.lanes * shape.sum).into()));
                let n = ir.add_const(block.n, (v * shape.lanes).into());
                (f.c.finish)(ir, m, n, sums, None);
            }
            vec![ir.offset_const(at[0], shape.row_bytes())]
        });
        ir.jump(next);
    }
    ir.goto(here);
    (first, short)
}

/// Calls `body` for every vector of sums that the matrix has: with its row and first column, its
/// place in the workspace, and which of its lanes there are, if not all.
fn each_vector(f: &Frame, block: &Block, body: impl FnOnce(&Ir, Val, Val, Val, Option<Val>)) {
    let shape = f.shape;
    let size = i64::from(shape.lanes * shape.sum);
    f.ir.for_range(f.c64(0), block.width, shape.lanes.into(), &[block.sums], |ir, j, at| {
        let mask = f.columns_inside(ir.sub(block.width, j));
        let n = ir.add(block.n, j);
        ir.for_range(f.c64(0), block.panel.live, 1, &[at[0]], |ir, i, at| {
            body(ir, ir.add(block.panel.m, i), n, at[0], mask);
            vec![ir.offset_const(at[0], shape.row_bytes())]
        });
        vec![ir.offset_const(at[0], size)]
    });
}
