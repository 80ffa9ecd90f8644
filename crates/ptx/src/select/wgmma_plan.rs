//! Which MMAs WGMMA can do, and by which instructions.

use super::Select;
use super::descriptors::{Matrix, STEP};
use super::mma::matrix_type;
use crate::caps::Feature;
use crate::inst::*;
use std::collections::BTreeMap;
use tessera_ir::{Attr, OpId, Type};
use tessera_layout::{In, Layout};
use tessera_numerics::Profile;
use tessera_staged::StagedOp;
use tessera_tile::ops::mma::{PROMOTED, is_promoted};

/// The accumulator of one instruction: its offset from the warpgroup's own, and the first of the
/// thread's four registers of each eight columns.
#[derive(Clone, Debug)]
pub struct Piece {
    pub row: u32,
    pub col: u32,
    pub firsts: Vec<u32>,
}

/// How an MMA is split into instructions, as far as the types decide.
pub struct WgmmaPlan {
    /// Of the first piece; the others differ in `n`.
    pub row: WgmmaRow,
    pub pieces: Vec<Piece>,
    /// None where the left operand is in registers.
    pub a: Option<Matrix>,
    pub b: Matrix,
    pub steps: u32,
    /// Steps along k after which partial accumulators are added in f32.
    pub promote: Option<u32>,
}

/// The most columns of an instruction, and the rows of a warpgroup.
const COLUMNS: u32 = 256;
const ROWS: u32 = 64;
/// With more accumulator registers than this, partial accumulators use as few registers as
/// possible.
const MANY: usize = 96;
const FEW_COLUMNS: u32 = 128;

/// Bits of a warp's index in its warpgroup.
pub const IN_GROUP: usize = 2;

impl Select<'_> {
    /// Whether an MMA uses WGMMA.
    pub fn is_async_mma(&self, id: OpId) -> bool {
        self.plan(id).is_some()
    }

    /// Whether the warps that run an op, of a role or of the block, are whole warpgroups.
    fn are_warpgroups(&self, id: OpId) -> bool {
        let func = self.func;
        let number = |role: OpId, name: &str, usual: i64| {
            func.ops[role].attr(name).and_then(Attr::as_int).unwrap_or(usual)
        };
        let mut around = func.blocks[func.ops[id].block].parent;
        while let Some(role) = around {
            let block = func.ops[role].block;
            if func.ops[role].code == StagedOp::WarpRole {
                let others = func.blocks[block].ops.iter().take_while(|&&other| other != role);
                let warps =
                    |&other: &OpId| number(other, "warps", 0) * number(other, "replicas", 1);
                let whole = |n: i64| n % (1 << IN_GROUP) == 0;
                return whole(others.map(warps).sum()) && whole(number(role, "warps", 0));
            }
            around = func.blocks[block].parent;
        }
        self.asm.kernel.threads.is_multiple_of(32 << IN_GROUP)
    }

    /// The instructions of an MMA, if WGMMA can do it.
    pub fn plan(&self, id: OpId) -> Option<WgmmaPlan> {
        let func = self.func;
        let op = &func.ops[id];
        let [a, b, acc] = [0, 1, 2].map(|i| func.ty(op.operands[i]));
        let class = op.attr("class").and_then(Attr::as_word);
        let ordered = class == Some("seq") || self.profile == Profile::Strict;
        if !self.caps.has(Feature::Wgmma) || ordered && acc.dtype().is_float() {
            return None;
        }
        let layout = self.layout(op.operands[2]);
        if !self.are_warpgroups(id) || !is_of_warpgroups(&layout) {
            return None;
        }
        let [ta, tb, tc] = [a, b, acc].map(|t| matrix_type(t.dtype()));
        let k_each = STEP * 8 / ta?.bits();
        let mut row = WgmmaRow { n: 8, k: k_each, a: ta?, b: tb?, c: tc?, sat: false };
        let right = Matrix::of(shared_of(b)?, 1)?;
        let left = match a {
            Type::Smem { layout, .. } => Some(Matrix::of(layout, 0)?),
            _ => None,
        };
        let k = u32::try_from(a.shape().get(1)?.as_static()?).ok()?;
        if let Type::Frag { layout: own, .. } = a {
            let bits = a.dtype().bits();
            if !k.is_multiple_of(k_each) || **own != Layout::mma_a(&layout, k, bits) {
                return None;
            }
        }
        let promote = is_promoted(a.dtype(), class).then_some(PROMOTED / k_each);
        let most = match promote {
            Some(_) if layout.regs() as usize > MANY => FEW_COLUMNS,
            _ => COLUMNS,
        };
        let parts = warpgroup_parts(&layout);
        let pieces = pieces(&layout, &parts, &right, most, row.c == Ty::S32)?;
        // The offsets of a warpgroup and of a piece in it add without carry through the swizzle.
        let adds_up = |m: &Matrix, at: u32, part: u32| {
            m.bytes(at + part, 0) == m.bytes(at, 0) + m.bytes(part, 0)
        };
        for (piece, part) in pieces.iter().flat_map(|p| parts.iter().map(move |part| (p, part))) {
            let fits = left.as_ref().is_none_or(|m| adds_up(m, piece.row, part[0]))
                && adds_up(&right, piece.col, part[1]);
            if !fits {
                return None;
            }
        }
        for piece in &pieces {
            row.n = piece.columns();
            let needs = crate::legal::wgmma(&row);
            if !needs.is_ok_and(|needs| needs.iter().all(|&f| self.caps.has(f))) {
                return None;
            }
        }
        Some(WgmmaPlan { row, pieces, a: left, b: right, steps: k / k_each, promote })
    }
}

impl Piece {
    pub fn columns(&self) -> u32 {
        8 * self.firsts.len() as u32
    }

    pub fn registers(&self, all: &[Reg]) -> Vec<Reg> {
        self.firsts.iter().flat_map(|&r| all[r as usize..][..4].to_vec()).collect()
    }
}

fn shared_of(ty: &Type) -> Option<&tessera_layout::Shared> {
    match ty {
        Type::Smem { layout, .. } => Some(layout),
        _ => None,
    }
}

/// Whether an accumulator layout is that of WGMMA: four warps with 16 rows each, shared by the
/// lanes as in `mma.sync`.
pub fn is_of_warpgroups(layout: &Layout) -> bool {
    let of = |i: In| layout.bases(i);
    let (regs, lanes, warps) = (of(In::Reg), of(In::Lane), of(In::Warp));
    let starts = |bases: &[Vec<u32>], with: &[[u32; 2]]| {
        bases.len() >= with.len() && bases.iter().zip(with).all(|(b, w)| b[..] == w[..])
    };
    let whole = |b: &Vec<u32>| b[0].is_multiple_of(ROWS) && b[1].is_multiple_of(8);
    layout.rank() == 2
        && layout.ctas() == 1
        && !layout.has_padding()
        && starts(regs, &[[0, 1], [8, 0]])
        && starts(lanes, &[[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]])
        && starts(warps, &[[16, 0], [32, 0]])
        && regs.iter().skip(2).chain(warps.iter().skip(IN_GROUP)).all(whole)
        && layout.disjoint()
}

/// Rows and columns at which the parts of warpgroups begin.
fn warpgroup_parts(layout: &Layout) -> Vec<[u32; 2]> {
    (0..layout.warps())
        .step_by(1 << IN_GROUP)
        .map(|warp| {
            let at = layout.thread_part(0, warp, 0);
            [at[0], at[1]]
        })
        .collect()
}

/// A thread's accumulator by instruction: runs of columns, cut where the right operand's memory is
/// cut for any warpgroup, at `most` columns, and to widths that exist for integers.
fn pieces(
    layout: &Layout,
    parts: &[[u32; 2]],
    right: &Matrix,
    most: u32,
    integers: bool,
) -> Option<Vec<Piece>> {
    let mut rows: BTreeMap<u32, BTreeMap<u32, u32>> = BTreeMap::new();
    for first in (0..layout.regs()).step_by(4) {
        let at = layout.reg_part(first);
        rows.entry(at[0]).or_default().insert(at[1], first);
    }
    let mut out = Vec::new();
    for (row, cols) in rows {
        let mut left: Vec<(u32, u32)> = cols.into_iter().collect();
        while let Some(&(col, _)) = left.first() {
            let side = left.iter().zip(0..).take_while(|((c, _), i)| *c == col + 8 * i).count();
            let cut = parts.iter().map(|part| right.run(col + part[1])).min()?;
            let whole = (8 * side as u32).min(cut);
            // As even as possible: 320 columns are twice 160.
            let even = (whole / 8).div_ceil(whole.div_ceil(most)) * 8;
            let n = match integers && even > 24 && !even.is_multiple_of(16) {
                true => even - 8,
                false => even,
            };
            let rest = left.split_off(n as usize / 8);
            let firsts = left.iter().map(|&(_, first)| first).collect();
            out.push(Piece { row, col, firsts });
            left = rest;
        }
    }
    Some(out)
}
