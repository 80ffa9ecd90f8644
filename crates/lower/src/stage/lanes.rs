//! Layouts of SIMT matmuls: MMAs that threads compute with FMA instructions, from shared memory.
//!
//! A thread loads vectors of an operand: along k where that is contiguous, otherwise along m or n.
//! In the first case consecutive lanes have consecutive lines of the operand, and a swizzle from
//! line to line avoids bank conflicts. In the second case each lane has runs of lines, which needs
//! fewer registers. Copies transpose operands into that form where it is worth it.

use super::Staging;
use super::layouts::permutation;
use super::seeds::{contiguous_dim, extents};
use super::threads::Team;
use tessera_ir::{OpId, Value};
use tessera_layout::{Blocked, Layout};
use tessera_tile::{TileFunc, TileOp};

/// Adjacent lines of a lane.
const RUN: u32 = 4;
/// An operand is transposed on its copy to shared memory where each element is used this many
/// times: a transposing copy needs one instruction for each element.
const WORTH: u32 = 64;
/// The fewest bytes that a copy to shared memory moves.
const LEAST: u32 = 4;
/// Lanes along rows and columns, in order of preference.
const LANES: [[u32; 2]; 4] = [[8, 4], [4, 8], [2, 16], [16, 2]];

/// The layout of an MMA's accumulator.
pub fn sums(func: &TileFunc, staging: &Staging<'_>, team: Team, id: OpId) -> Layout {
    let op = &func.ops[id];
    let shape = extents(func.ty(op.result()));
    let run = |i: usize| {
        let bytes = func.ty(op.operands[i]).dtype().bytes() as u32;
        let (fast, loaded) = fast_dim(func, staging, op.operands[i]);
        match fast == 1 - i && !(loaded && is_worth_turning(bytes, shape[1 - i])) {
            true => 1,
            false => RUN,
        }
    };
    let vector = [run(0), run(1)];
    let mut best: Option<((u32, u32, bool), Blocked)> = None;
    for lanes in LANES {
        for i in 0..=team.warps.ilog2() {
            let warps = [1 << i, team.warps >> i];
            let lines = |d: usize| {
                let all = shape[d].div_ceil(warps[d] * lanes[d]);
                all.next_multiple_of(vector[d])
            };
            let [rows, columns] = [lines(0), lines(1)];
            // Lanes without runs along the last dim, which is contiguous in most memory, should be
            // many.
            let short = vector[1] == 1 && lanes[1] < 8;
            let cost = (rows * columns, rows + columns, short);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                let spec = Blocked {
                    vector: vector.to_vec(),
                    lanes: lanes.to_vec(),
                    warps: warps.to_vec(),
                    ctas: vec![1, 1],
                    order: vec![1, 0],
                };
                best = Some((cost, spec));
            }
        }
    }
    let (_, spec) = best.expect("there is a first way");
    Layout::blocked(&shape, &spec)
}

/// Whether an operand that is contiguous along k in its array should be transposed in shared
/// memory, where each element is used `times` times.
pub fn is_worth_turning(bytes: u32, times: u32) -> bool {
    bytes >= LEAST && times >= WORTH
}

/// The dim along which an operand is contiguous in the memory that it comes from: that of the array
/// it is loaded from, else the last one; and whether it is loaded.
fn fast_dim(func: &TileFunc, staging: &Staging<'_>, v: Value) -> (usize, bool) {
    let mut perm: Vec<usize> = (0..func.ty(v).rank()).collect();
    let last = perm.len() - 1;
    let mut v = v;
    while let Some(id) = func.def_id(v) {
        let op = &func.ops[id];
        match op.code {
            TileOp::Transpose => {
                let iteration = permutation(op.attr("perm"));
                perm = perm.iter().map(|&p| iteration[p]).collect();
                v = op.operands[0];
            }
            TileOp::Load => {
                let fast = contiguous_dim(func, staging, id).unwrap_or(last);
                return (perm.iter().position(|&d| d == fast).unwrap_or(last), true);
            }
            _ => break,
        }
    }
    (last, false)
}
