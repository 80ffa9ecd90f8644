//! What one op costs, each time it runs.

#![deny(clippy::wildcard_enum_match_arm)]

use crate::tally::Tally;
use tessera_ir::{Attr, Op, Type, Value};
use tessera_numerics::{DType, ExpOp, ScalarFn, expansion};
use tessera_tile::ops::asm::text_of;
use tessera_tile::{Tile, TileFunc, TileOp};

/// Adds what `op` does by itself to `tally`; regions are counted by the walk.
pub fn count(func: &TileFunc, op: &Op<Tile>, tally: &mut Tally) {
    let operand = |i: usize| func.ty(op.operands[i]);
    match op.code {
        TileOp::Ew(f) => {
            tally.flops += floats(operand(0), elements(func.ty(op.result())) * basic_ops(f));
        }
        TileOp::Mma => {
            let k = operand(0).static_shape().and_then(|s| s.last().copied()).unwrap_or(1);
            tally.flops += 2 * elements(func.ty(op.result())) * k as u64;
        }
        TileOp::Reduce | TileOp::ArgReduce | TileOp::Scan => {
            let shape = operand(0).static_shape().unwrap_or_default();
            let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
            let along = shape.get(axis).copied().unwrap_or(1).max(1) as u64;
            tally.flops += floats(operand(0), elements(operand(0)) / along * (along - 1));
        }
        TileOp::GroupReduce | TileOp::GroupScan => tally.flops += floats(operand(0), 1),
        TileOp::Load | TileOp::Gather => read(func, op, 0, func.ty(op.result()), tally),
        TileOp::CopyAsync => read(func, op, 1, operand(0), tally),
        TileOp::Store | TileOp::Scatter => write(func, op, operand(1), tally),
        TileOp::Accumulate | TileOp::Atomic => {
            let elements = elements(operand(1));
            read(func, op, 0, operand(1), tally);
            write(func, op, operand(1), tally);
            let word = op.attr("op").and_then(Attr::as_word);
            if !matches!(word, Some("exchange" | "cas")) {
                tally.flops += floats(operand(1), elements);
            }
        }
        TileOp::For
        | TileOp::If
        | TileOp::While
        // Few rows take it.
        | TileOp::SlowPath
        | TileOp::Yield
        | TileOp::Return
        | TileOp::ProgramId
        | TileOp::NumPrograms
        | TileOp::LinearId
        | TileOp::LocalId
        | TileOp::GroupSize
        | TileOp::WarpSize
        | TileOp::Dim
        | TileOp::Origin
        | TileOp::Const
        | TileOp::Iota
        | TileOp::Select
        | TileOp::Cast
        | TileOp::Bitcast
        | TileOp::Reshape
        | TileOp::Transpose
        | TileOp::Broadcast
        | TileOp::Expand
        | TileOp::BufAlloc
        | TileOp::Barrier
        | TileOp::CopyCommit
        | TileOp::CopyWait
        | TileOp::GroupBroadcast
        | TileOp::GroupShuffle
        | TileOp::Philox
        | TileOp::Print
        | TileOp::Assert | TileOp::Slice | TileOp::Concat | TileOp::Take | TileOp::ReduceBy | TileOp::ScanBy | TileOp::Sort | TileOp::Histogram | TileOp::Owned => {}
        // One operation for each statement of the text: what it does is not known.
        TileOp::Asm | TileOp::AsmEffect => {
            let Some(&of) = op.results.first().or(op.operands.first()) else { return };
            let statements = text_of(op).split([';', '\n']).filter(|s| !s.trim().is_empty());
            tally.flops += elements(func.ty(of)) * statements.count() as u64;
        }
    }
}

/// The basic operations of a function: the float operations of its expansion, or one.
fn basic_ops(f: ScalarFn) -> u64 {
    let Some(e) = expansion(f) else { return simple(f) };
    let of_floats = |op: &ExpOp| match op {
        ExpOp::Apply { f, args } if e.types[args[0].0 as usize] == DType::F32 => simple(*f),
        ExpOp::Apply { .. }
        | ExpOp::Input(_)
        | ExpOp::Const(_)
        | ExpOp::Select { .. }
        | ExpOp::Cast { .. }
        | ExpOp::Bitcast { .. } => 0,
    };
    e.ops.iter().map(of_floats).sum()
}

fn simple(f: ScalarFn) -> u64 {
    if matches!(f, ScalarFn::Fma | ScalarFn::Clamp) { 2 } else { 1 }
}

fn elements(ty: &Type) -> u64 {
    ty.static_shape().unwrap_or_default().iter().map(|&d| d.max(0) as u64).product()
}

fn floats(ty: &Type, count: u64) -> u64 {
    if ty.dtype().is_float() { count } else { 0 }
}

/// The parameter an op accesses, with the bytes of one element; none for shared memory.
fn param(func: &TileFunc, memory: Value) -> Option<(usize, u64)> {
    let place = func.params().iter().position(|&p| p == memory)?;
    Some((place, func.ty(memory).dtype().bytes() as u64))
}

fn read(func: &TileFunc, op: &Op<Tile>, operand: usize, tile: &Type, tally: &mut Tally) {
    if let Some((place, bytes)) = param(func, op.operands[operand]) {
        tally.read[place] += elements(tile) * bytes;
        moved(tile, place, bytes, tally);
    }
}

fn write(func: &TileFunc, op: &Op<Tile>, tile: &Type, tally: &mut Tally) {
    if let Some((place, bytes)) = param(func, op.operands[0]) {
        tally.written[place] += elements(tile) * bytes;
        moved(tile, place, bytes, tally);
    }
}

/// Bytes of the smallest memory request.
const SECTOR: u64 = 32;

/// The bytes of a tile where each row is read in whole sectors. A scalar is a part of one that its
/// neighbours share.
fn moved(tile: &Type, place: usize, bytes: u64, tally: &mut Tally) {
    let shape = tile.static_shape().unwrap_or_default();
    let Some(&inner) = shape.last() else {
        tally.requested += bytes;
        return;
    };
    let inner = inner.max(1) as u64;
    let rows = elements(tile) / inner;
    tally.requested += rows * (inner * bytes).next_multiple_of(SECTOR);
    *tally.rows.entry((place, inner * bytes)).or_default() += rows;
}
