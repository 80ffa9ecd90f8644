//! The microkernel: one block of accumulators in vector registers, `rows` x `vectors` of them, k
//! innermost.

use super::blocks::{Block, Frame, Pass};
use super::contract_plan::Shape;
use super::{Kind, sums};
use crate::llvm::{IntCmp, Ir, Val};

/// Unroll factor of the loop over k.
const UNROLL: u32 = 2;

/// Prefetch distance of the right operand in steps of k.
const AHEAD: i64 = 8;

pub(super) fn block(f: &Frame, pass: &Pass, block: &Block) {
    let (ir, shape) = (f.ir, f.shape);
    let vectors = f.parts(block.width, f.c64(shape.lanes));
    sums::start(f, pass, block);
    let next = ir.block("next");
    let (finish, short) = sums::finish(f, block, next);
    let counts = &f.edges.vectors;
    for &count in counts {
        let other = (Some(&count) != counts.last()).then(|| ir.block("narrower"));
        if let Some(other) = other {
            let this = ir.block("block");
            ir.branch(f.is(vectors, IntCmp::LLVMIntEQ, f.c64(count)), this, other);
            ir.goto(this);
        }
        let sums = start_of(f, pass, block, count);
        let sums = products(f, pass, block, count, sums);
        let whole = match f.edges.no_rows && f.edges.no_lanes {
            true => Some(ir.const_int(ir.int(1), 1)),
            false => (count == shape.vectors).then(|| sums::is_whole(f, block)),
        };
        if let Some(whole) = whole.filter(|_| short) {
            let direct = ir.and(whole, pass.last);
            let parked = match ir.as_int(direct) {
                Some(1 | -1) => None,
                _ => {
                    let (now, parked) = (ir.block("direct"), ir.block("parked"));
                    ir.branch(direct, now, parked);
                    ir.goto(now);
                    Some(parked)
                }
            };
            for (i, &v) in sums.iter().enumerate() {
                let (r, c) = (i as u32 / count, i as u32 % count);
                let m = ir.add_const(block.panel.m, r.into());
                let n = ir.add_const(block.n, (c * shape.lanes).into());
                (f.c.finish)(ir, m, n, v, None);
            }
            ir.jump(next);
            let Some(parked) = parked else {
                other.into_iter().for_each(|b| ir.goto(b));
                continue;
            };
            ir.goto(parked);
        }
        for (i, &v) in sums.iter().enumerate() {
            let at = place(ir, shape, block.sums, i as u32, count);
            ir.store(v, at, shape.lanes * shape.sum);
        }
        ir.branch(pass.last, finish, next);
        other.into_iter().for_each(|b| ir.goto(b));
    }
    ir.goto(next);
}

/// Where the `i`-th vector of sums is, `count` of them in a row.
fn place(ir: &Ir, shape: Shape, sums: Val, i: u32, count: u32) -> Val {
    let (r, c) = (i / count, i % count);
    ir.offset_const(sums, i64::from(r) * shape.row_bytes() + i64::from(c * shape.lanes * shape.sum))
}

fn start_of(f: &Frame, pass: &Pass, block: &Block, count: u32) -> Vec<Val> {
    let (ir, shape) = (f.ir, f.shape);
    let ty = shape.sums_type(ir);
    let total = shape.rows * count;
    let load = |i| ir.load(ty, place(ir, shape, block.sums, i, count), shape.lanes * shape.sum);
    let stored = |_: &Ir| (0..total).map(load).collect();
    let zeros = |_: &Ir| vec![ir.zero(ty); total as usize];
    if f.c.start.is_some() { stored(ir) } else { ir.if_else(pass.first, zeros, stored) }
}

/// The loop over k of the pass.
fn products(f: &Frame, pass: &Pass, block: &Block, count: u32, sums: Vec<Val>) -> Vec<Val> {
    let (ir, shape) = (f.ir, f.shape);
    let run = |from: Val, to: Val, unroll: u32, carried: Vec<Val>| {
        ir.for_range(from, to, unroll.into(), &carried, |ir, _, carried| {
            let (mut left, mut right) = (carried[0], carried[1]);
            let mut sums = carried[2..].to_vec();
            for _ in 0..unroll {
                one_step(ir, shape, left, block.panel.row_bytes, right, &mut sums);
                left = ir.offset_const(left, f.left_step());
                right = ir.offset_const(right, shape.panel_bytes());
            }
            [vec![left, right], sums].concat()
        })
    };
    let unroll = if count == shape.vectors { UNROLL } else { 1 };
    let whole = ir.and(pass.depth, f.c64(-i64::from(unroll)));
    let start = [vec![block.panel.base, block.right], sums].concat();
    let mut carried = run(f.c64(0), whole, unroll, start);
    if unroll > 1 {
        carried = run(whole, pass.depth, 1, carried);
    }
    carried.split_off(2)
}

/// One step of k.
fn one_step(ir: &Ir, shape: Shape, left: Val, row_bytes: Val, right: Val, sums: &mut [Val]) {
    let bytes = shape.lanes * shape.operand;
    let elem = shape.operand_type(ir);
    let count = sums.len() / shape.rows as usize;
    let load = |c| ir.load(ir.vec(elem, shape.lanes), ir.offset_const(right, c), bytes);
    let b: Vec<_> = (0..count).map(|c| load(i64::from(bytes) * c as i64)).collect();
    if count == shape.vectors as usize {
        for line in (0..shape.panel_bytes()).step_by(64) {
            let ahead = AHEAD * shape.panel_bytes() + line;
            ir.prefetch(ir.offset_const(right, ahead), false, 3);
        }
    }
    let mut row = left;
    for (r, sums) in sums.chunks_mut(count).enumerate() {
        if r > 0 {
            row = ir.offset(row, row_bytes);
        }
        let a = ir.splat(ir.load(elem, row, shape.operand), shape.lanes);
        for (sum, &b) in sums.iter_mut().zip(&b) {
            *sum = multiply_add(ir, shape.kind, a, b, *sum);
        }
    }
}

pub(super) fn multiply_add(ir: &Ir, kind: Kind, a: Val, b: Val, sum: Val) -> Val {
    match kind {
        Kind::I32 => ir.add(ir.mul(a, b), sum),
        _ => ir.fma(a, b, sum),
    }
}
