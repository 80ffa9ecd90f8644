//! One block of accumulators in AMX tiles: two by two of them, 16 rows of 64 bytes each.
//!
//! Tiles are named by number here; LLVM neither allocates nor saves them. Tiles 0 to 3 hold the
//! accumulators (the lower bit is the half of the rows, the other one that of the columns), 4 and 5
//! rows of the left operand, 6 and 7 columns of the right one.

use super::blocks::{Block, Frame, Pass};
use super::{Kind, sums};
use crate::llvm::{IntCmp, Ir, Val};

/// Bytes of one tile's rows, and of a whole tile.
pub(super) const ROW: i64 = 64;
pub(super) const TILE: i64 = 16 * ROW;

/// Gives every tile 16 rows of 64 bytes.
pub(super) fn configure(ir: &Ir) {
    const ROWS: i64 = 0x1010_1010_1010_1010;
    const BYTES: i64 = 0x0040_0040_0040_0040;
    let words = [1, 0, BYTES, BYTES, 0, 0, ROWS, 0].map(|w| ir.c64(w));
    let table = ir.const_table(ir.i64(), &words);
    ir.intrinsic("llvm.x86.ldtilecfg", &[], &[table]);
}

pub(super) fn release(ir: &Ir) {
    ir.intrinsic("llvm.x86.tilerelease", &[], &[]);
}

/// Whether tiles can be loaded from the left operand in place: no row needs padding, and each row
/// of a tile is in one cache line.
pub(super) fn fits_in_place(f: &Frame, base: Val, row_bytes: Val) -> Val {
    let ir = f.ir;
    let depth = ir.mul_const(f.c.depth, f.shape.operand.into());
    let all = ir.or(ir.or(ir.ptr_to_int(base, ir.i64()), row_bytes), depth);
    f.is(ir.and(all, f.c64(ROW - 1)), IntCmp::LLVMIntEQ, f.c64(0))
}

fn tile(ir: &Ir, number: u32) -> Val {
    ir.const_int(ir.i8(), number.into())
}

fn load(ir: &Ir, number: u32, at: Val, row_bytes: Val) {
    ir.intrinsic("llvm.x86.tileloadd64", &[], &[tile(ir, number), at, row_bytes]);
}

/// Loads a tile of the right operand. That streams through the L1 cache, which is to be left to
/// the left operand's rows: they are used again for the next block.
fn load_streamed(ir: &Ir, number: u32, at: Val) {
    ir.intrinsic("llvm.x86.tileloaddt164", &[], &[tile(ir, number), at, ir.c64(ROW)]);
}

/// What multiplies two tiles and adds to a third.
pub(super) fn instruction(kind: Kind) -> &'static str {
    match kind {
        Kind::I8Amx => "tdpbssd",
        Kind::U8Amx => "tdpbuud",
        Kind::I8U8Amx => "tdpbsud",
        Kind::U8I8Amx => "tdpbusd",
        Kind::Bf16Amx | Kind::F32 | Kind::F64 | Kind::I32 => "tdpbf16ps",
    }
}

fn multiply_add(ir: &Ir, kind: Kind, sums: u32, left: u32, right: u32) {
    let name = format!("llvm.x86.{}", instruction(kind));
    ir.intrinsic(&name, &[], &[sums, left, right].map(|t| tile(ir, t)));
}

pub(super) fn block(f: &Frame, pass: &Pass, block: &Block) {
    let (ir, shape) = (f.ir, f.shape);
    let row_bytes = f.c64(shape.row_bytes());
    let place = |t: u32| {
        let (rows, columns) = (i64::from(t & 1), i64::from(t >> 1));
        ir.offset_const(block.sums, rows * 16 * shape.row_bytes() + columns * ROW)
    };
    sums::start(f, pass, block);
    let next = ir.block("next");
    let (finish, _) = sums::finish(f, block, next);
    let zeros = |ir: &Ir| {
        (0..4).for_each(|t| _ = ir.intrinsic("llvm.x86.tilezero", &[], &[tile(ir, t)]));
        vec![]
    };
    let stored = |ir: &Ir| {
        (0..4).for_each(|t| load(ir, t, place(t), row_bytes));
        vec![]
    };
    if f.c.start.is_some() {
        stored(ir);
    } else {
        ir.if_else(pass.first, zeros, stored);
    }
    products(f, pass, block);
    for t in 0..4 {
        ir.intrinsic("llvm.x86.tilestored64", &[], &[tile(ir, t), place(t), row_bytes]);
    }
    ir.branch(pass.last, finish, next);
    ir.goto(next);
}

fn products(f: &Frame, pass: &Pass, block: &Block) {
    let kind = f.shape.kind;
    let panel = &block.panel;
    let lower = f.ir.mul_const(panel.row_bytes, 16);
    let start = [panel.base, block.right];
    f.ir.for_range(f.c64(0), pass.depth, f.shape.step.into(), &start, |ir, _, at| {
        let (left, right) = (at[0], at[1]);
        load_streamed(ir, 6, right);
        load(ir, 4, left, panel.row_bytes);
        multiply_add(ir, kind, 0, 4, 6);
        load(ir, 5, ir.offset(left, lower), panel.row_bytes);
        multiply_add(ir, kind, 1, 5, 6);
        load_streamed(ir, 7, ir.offset_const(right, TILE));
        multiply_add(ir, kind, 2, 4, 7);
        multiply_add(ir, kind, 3, 5, 7);
        vec![ir.offset(left, panel.step_bytes), ir.offset_const(right, 2 * TILE)]
    });
}
