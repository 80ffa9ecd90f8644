//! WGMMA: asynchronous MMAs of a warpgroup on the tensor cores.
//!
//! An accumulator owns its registers from `mma_open` to the last `mma_retire`, and nothing else
//! touches them in between: loops carry them in place. An accumulator that starts from zero has no
//! values yet: its first MMA overwrites the registers (`scale-d = 0`) instead of adding to them.
//!
//! The tensor cores accumulate 8-bit floats with fewer bits than f32. Accumulation modes better
//! than `fast` use a separate accumulator per block of k, which is then added in f32 (promotion).

use super::descriptors::Matrix;
use super::sync::Smem;
use super::wgmma_plan::{IN_GROUP, Piece, WgmmaPlan, is_of_warpgroups};
use super::{Repr, Select};
use crate::inst::*;
use crate::module::Stmt;
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId, Type, Value, ValueDef};
use tessera_layout::{In, Layout};
use tessera_staged::StagedOp;
use tessera_tile::TileOp;

/// An accumulator that WGMMA may be writing.
#[derive(Clone, Debug)]
pub struct Pending {
    pub regs: Vec<Reg>,
    pub add: Add,
}

/// Whether an accumulator holds values yet; else it stands for zero.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Add {
    No,
    Yes,
    /// From the second iteration of a loop on, which starts with an MMA.
    When(Reg),
}

/// Registers of a thread that accumulators may take, where promotion needs extra ones.
const ROOM: usize = 200;
/// From this many instructions, computing while WGMMAs are in flight is enforced.
const MUCH: usize = 32;

/// The state of WGMMA while code is emitted.
#[derive(Default)]
pub struct WgmmaState {
    /// Whether any MMA of the function uses WGMMA.
    used: Option<bool>,
    /// Warp-uniform copies of registers.
    uniform: BTreeMap<Reg, Reg>,
}

impl Select<'_> {
    // Use of WGMMA.

    /// Whether any MMA of the function uses WGMMA.
    pub fn uses_async_mma(&mut self) -> bool {
        if let Some(used) = self.wgmma_state.used {
            return used;
        }
        let issues = |&id: &OpId| self.func.ops[id].code == StagedOp::MmaIssue;
        let used = self.func.walk().iter().any(|id| issues(id) && self.is_async_mma(*id));
        self.wgmma_state.used = Some(used);
        used
    }

    /// Makes writes of threads to shared memory visible to the async proxy, where WGMMA or TMA
    /// reads them.
    pub fn fence_async(&mut self) {
        let stores = |&id: &OpId| {
            matches!(self.func.ops[id].code, StagedOp::BulkStore | StagedOp::BulkReduce)
        };
        if self.uses_async_mma() || self.func.walk().iter().any(stores) {
            self.asm.emit(Inst::FenceProxyAsync);
        }
    }

    // Accumulators.

    pub fn mma_open(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (tile, result) = (op.operands[0], op.result());
        let repr = match self.uses_async_mma() && is_of_warpgroups(&self.layout(tile)) {
            true => Repr::Pending(self.open(id, tile)),
            false => self.repr(tile).clone(),
        };
        self.set(result, repr);
        Ok(())
    }

    /// Registers for an accumulator that is initialised with a tile.
    fn open(&mut self, at: OpId, tile: Value) -> Pending {
        let zero = match self.repr(tile) {
            Repr::Splat(r) => {
                matches!(self.asm.known(*r), Some(Opnd::Int(0) | Opnd::F32(0) | Opnd::F64(0)))
            }
            _ => false,
        };
        let n = self.layout(tile).regs();
        let fresh = |me: &mut Self| (0..n).map(|_| me.asm.reg(Class::B32)).collect::<Vec<_>>();
        if zero && !self.promotes() {
            return Pending { regs: fresh(self), add: Add::No };
        }
        let from = self.regs(tile);
        let regs = match self.is_last_holder(at, tile, &from) {
            true => from,
            false => {
                let regs = fresh(self);
                self.move_all(&regs, &from);
                regs
            }
        };
        Pending { regs, add: Add::Yes }
    }

    /// Whether any accumulator of the function is promoted: accumulators then hold values from the
    /// start.
    fn promotes(&self) -> bool {
        let issues = |&id: &OpId| self.func.ops[id].code == StagedOp::MmaIssue;
        let mut all = self.func.walk().into_iter().filter(issues);
        all.any(|id| self.plan(id).is_some_and(|p| p.promote.is_some()))
    }

    /// Whether nothing else reads the registers of a tile from here on: it was computed in this
    /// block into its own registers, or is carried by the enclosing loop, and this is its only use.
    fn is_last_holder(&self, at: OpId, tile: Value, regs: &[Reg]) -> bool {
        let func = self.func;
        let used = |&id: &OpId| func.ops[id].operands.iter().filter(|&&v| v == tile).count();
        let uses = func.walk().iter().map(used).sum::<usize>();
        let here = func.ops[at].block;
        let own = match func.values[tile].def {
            ValueDef::Result(id, _) => {
                let op = &func.ops[id];
                let code = op.code;
                let computed = matches!(
                    code,
                    StagedOp::Tile(TileOp::Ew(_) | TileOp::Select | TileOp::SlowPath)
                );
                op.block == here && (computed || code == StagedOp::MmaRetire)
            }
            ValueDef::Arg(block, _) => {
                let around = func.blocks[block].parent.map(|id| func.ops[id].code);
                block == here && matches!(around, Some(StagedOp::Tile(TileOp::For)))
            }
        };
        let distinct = regs.iter().collect::<BTreeSet<_>>().len() == regs.len();
        let written_once = regs.iter().all(|&r| self.asm.known(r).is_none());
        own && distinct && written_once && uses == 1
    }

    /// An accumulator that was opened before.
    pub fn pending(&self, v: Value) -> Pending {
        match self.repr(v) {
            Repr::Pending(p) => p.clone(),
            other => unreachable!("expected an accumulator, got {other:?}"),
        }
    }

    /// Waits for all WGMMAs in flight, and makes sure that this accumulator holds values.
    pub fn settle(&mut self, p: &Pending) {
        self.asm.emit(Inst::WgmmaWait { groups: 0 });
        self.fill_empty(p);
    }

    /// Zeros an accumulator that holds no values yet.
    pub fn fill_empty(&mut self, p: &Pending) {
        match p.add {
            Add::Yes => {}
            Add::No => p.regs.iter().for_each(|&r| self.asm.mov_to(Ty::B32, r, Opnd::Int(0))),
            Add::When(added) => {
                unreachable!("{added:?} is for the MMA that a loop begins with");
            }
        }
    }

    /// Whether the first use of a loop-carried accumulator in the loop is an MMA by WGMMA: then the
    /// loop may start without values in it.
    pub fn begins_with_mma(&self, arg: Value) -> bool {
        let func = self.func;
        let ValueDef::Arg(block, _) = func.values[arg].def else { return false };
        let counted = func.blocks[block].parent.map(|id| func.ops[id].code);
        counted == Some(StagedOp::Tile(TileOp::For))
            && func.blocks[block].ops.iter().any(|&id| {
                let op = &func.ops[id];
                op.code == StagedOp::MmaIssue && op.operands[2] == arg && self.is_async_mma(id)
            })
    }

    /// How many WGMMA groups may stay in flight where `keep` MMAs may. MMAs by threads are not
    /// WGMMA groups: where there are any, none may.
    fn groups_left(&self, keep: i64) -> u32 {
        let func = self.func;
        let apart = |&id: &OpId| func.ops[id].code == StagedOp::MmaIssue && !self.is_async_mma(id);
        match func.walk().iter().any(apart) {
            true => 0,
            // The largest count that the instruction encodes.
            false => u32::try_from(keep).unwrap_or(0).min(7),
        }
    }

    /// Keeps computation before a wait overlapped with the WGMMAs in flight. The assembler would
    /// hoist the wait as far as it can and compute afterwards: it schedules the wait as the head of
    /// a long dependency chain.
    fn keep_beside(&mut self) {
        let computed = |stmt: &&Stmt| {
            matches!(
                stmt,
                Stmt::Inst { inst: Inst::Alu { .. } | Inst::Cvt { .. } | Inst::Selp { .. }, .. }
            )
        };
        let straight = |stmt: &&Stmt| match stmt {
            Stmt::Label(_) => false,
            Stmt::Inst { inst, .. } => !matches!(
                inst,
                Inst::Bra { .. } | Inst::Wgmma { .. } | Inst::WgmmaWait { .. } | Inst::Event { .. }
            ),
            _ => true,
        };
        let since = self.asm.kernel.body.iter().rev().take_while(straight);
        if since.filter(computed).count() >= MUCH {
            self.asm.emit(Inst::Event { number: 0 });
        }
    }

    pub fn mma_retire(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let result = op.result();
        let repr = match self.repr(op.operands[0]).clone() {
            Repr::Pending(p) => {
                let keep = op.attr("keep").and_then(Attr::as_int).unwrap_or(0);
                self.keep_beside();
                self.asm.emit(Inst::WgmmaWait { groups: self.groups_left(keep) });
                match func.ty(result) {
                    Type::Pending(_) => Repr::Pending(p),
                    _ => {
                        self.fill_empty(&p);
                        Repr::Tile(p.regs)
                    }
                }
            }
            other => other,
        };
        self.set(result, repr);
        Ok(())
    }

    // MMAs.

    pub fn mma_issue(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (acc, result) = (op.operands[2], op.result());
        let opened = matches!(self.repr(acc), Repr::Pending(_));
        let Some(plan) = self.plan(id) else {
            if !opened {
                return self.issue(id);
            }
            let p = self.pending(acc);
            self.settle(&p);
            self.set(acc, Repr::Tile(p.regs.clone()));
            self.issue(id)?;
            let sums = self.regs(result);
            self.move_all(&p.regs, &sums);
            self.set(result, Repr::Pending(Pending { regs: p.regs, add: Add::Yes }));
            return Ok(());
        };
        let p = if opened { self.pending(acc) } else { self.open(id, acc) };
        self.maybe_wait_for_predecessor(id);
        let p = self.multiply(id, &plan, p);
        self.maybe_hand_on(id);
        self.set(result, Repr::Pending(p));
        // Copies of later iterations are issued while WGMMAs are in flight.
        self.issue_copies(usize::MAX);
        Ok(())
    }

    fn multiply(&mut self, id: OpId, plan: &WgmmaPlan, p: Pending) -> Pending {
        let op = &self.func.ops[id];
        let (a, b) = (op.operands[0], op.operands[1]);
        let parts = self.layout(op.operands[2]);
        let left = match &plan.a {
            Some(matrix) => {
                let m = self.smem(a);
                Left::Shared(self.descriptors(&m, matrix, &parts, 0))
            }
            None => Left::Words(self.left_words(a, plan.row.k)),
        };
        let m = self.smem(b);
        let right = self.descriptors(&m, &plan.b, &parts, 1);
        match plan.promote {
            None => {
                let steps = 0..plan.steps;
                let all: Vec<Call> = steps
                    .flat_map(|step| plan.pieces.iter().map(move |piece| (step, piece)))
                    .map(|(step, piece)| {
                        let add = match (step, p.add) {
                            (1.., _) | (0, Add::Yes) => Opnd::Int(1),
                            (0, Add::No) => Opnd::Int(0),
                            (0, Add::When(added)) => added.into(),
                        };
                        Call { step, piece, add, sums: piece.registers(&p.regs) }
                    })
                    .collect();
                self.call(plan, &left, &right, &all);
            }
            Some(block) => {
                let most = plan.pieces.iter().map(|p| 4 * p.firsts.len()).max().unwrap_or(0);
                // While one partial accumulator is added, the next is computed, where both have
                // registers.
                let sets = if p.regs.len() + 2 * most <= ROOM { 2 } else { 1 };
                let apart: Vec<Vec<Reg>> = (0..sets)
                    .map(|_| (0..most).map(|_| self.asm.reg(Class::B32)).collect())
                    .collect();
                let all: Vec<(u32, &Piece)> = (0..plan.steps)
                    .step_by(block as usize)
                    .flat_map(|first| plan.pieces.iter().map(move |piece| (first, piece)))
                    .collect();
                for i in 0..all.len() + sets {
                    if let Some(done) = i.checked_sub(sets)
                        && let Some((_, piece)) = all.get(done)
                    {
                        let after = all.len().min(i) - done - 1;
                        self.asm.emit(Inst::WgmmaWait { groups: after as u32 });
                        for (&d, &a) in piece.registers(&p.regs).iter().zip(&apart[done % sets]) {
                            let sum = self.asm.float(Alu::Add, Ty::F32, &[d.into(), a.into()]);
                            self.asm.mov_to(Ty::B32, d, sum);
                        }
                    }
                    if let Some(&(first, piece)) = all.get(i) {
                        let steps = first..(first + block).min(plan.steps);
                        let calls: Vec<Call> = steps
                            .map(|step| Call {
                                step,
                                piece,
                                add: Opnd::Int((step > first).into()),
                                sums: apart[i % sets][..4 * piece.firsts.len()].to_vec(),
                            })
                            .collect();
                        self.call(plan, &left, &right, &calls);
                    }
                }
            }
        }
        Pending { regs: p.regs, add: Add::Yes }
    }

    /// One WGMMA group: its instructions and their fence in one basic block.
    fn call(&mut self, plan: &WgmmaPlan, left: &Left, right: &Descriptors, calls: &[Call<'_>]) {
        let mut lefts = BTreeMap::new();
        let mut rights = BTreeMap::new();
        let operands: Vec<(WgmmaA, Reg)> = calls
            .iter()
            .map(|call| {
                let k = call.step * plan.row.k;
                let a = match (left, &plan.a) {
                    (Left::Shared(from), Some(m)) => {
                        let at = m.bytes(call.piece.row, k);
                        WgmmaA::Shared(self.descriptor(from, at, &mut lefts))
                    }
                    (Left::Words(words), _) => WgmmaA::Regs(words[&(call.piece.row, k)]),
                    (Left::Shared(_), None) => unreachable!("an operand in memory has a form"),
                };
                let at = plan.b.bytes(call.piece.col, k);
                (a, self.descriptor(right, at, &mut rights))
            })
            .collect();
        self.asm.emit(Inst::WgmmaFence);
        for (call, (a, b)) in calls.iter().zip(operands) {
            self.asm.emit(Inst::Wgmma {
                row: WgmmaRow { n: call.piece.columns(), ..plan.row },
                d: call.sums.clone(),
                a,
                b,
                add: call.add,
                neg_a: false,
                neg_b: false,
                trans_a: plan.a.as_ref().is_some_and(|m| m.transposed),
                trans_b: plan.b.transposed,
            });
        }
        self.asm.emit(Inst::WgmmaCommit);
    }

    /// The words of a left operand in registers, by row and k of each instruction.
    fn left_words(&mut self, v: Value, k: u32) -> BTreeMap<(u32, u32), [Reg; 4]> {
        let layout = self.layout(v);
        let words = self.operand_words(v);
        let per = layout.regs() / words.len() as u32;
        let mut out = BTreeMap::new();
        for (i, four) in words.chunks_exact(4).enumerate() {
            let at = layout.reg_part(4 * per * i as u32);
            assert!(at[1].is_multiple_of(k), "an instruction begins at {at:?}");
            out.insert((at[0], at[1]), [four[0], four[1], four[2], four[3]]);
        }
        out
    }

    /// The base of an operand's descriptors; `dim` is the accumulator's dim that the operand is
    /// along.
    fn descriptors(&mut self, m: &Smem, matrix: &Matrix, acc: &Layout, dim: usize) -> Descriptors {
        let mut start = self.smem_address(m);
        if let Some(own) = self.warpgroup_bytes(acc, dim, matrix) {
            start = self.asm.int(Alu::Add, Ty::U32, &[start.into(), own.into()]);
        }
        // Cluster addresses contain the block's rank; descriptors do not.
        if self.asm.kernel.cluster > 1 {
            start = self.asm.int(Alu::And, Ty::B32, &[start.into(), Opnd::Int(0x3_FFFF)]);
        }
        let low = self.asm.int(Alu::Shr, Ty::U32, &[start.into(), Opnd::Int(4)]);
        let [leading, high] = matrix.words();
        let high = self.asm.mov(Ty::B32, Opnd::Int(high.into()));
        Descriptors { low, high, more: leading + (m.offset >> 4) }
    }

    fn descriptor(&mut self, from: &Descriptors, at: u32, known: &mut BTreeMap<u32, Reg>) -> Reg {
        if let Some(&r) = known.get(&at) {
            return r;
        }
        let more = Opnd::Int((from.more + (at >> 4)).into());
        let low = self.asm.int(Alu::Add, Ty::U32, &[from.low.into(), more]);
        let r = self.asm.pack(Class::B64, &[low, from.high]);
        known.insert(at, r);
        r
    }

    /// The byte offset of this warpgroup's part of an operand: warp-uniform, broadcast from the
    /// first lane so that the assembler knows.
    fn warpgroup_bytes(&mut self, acc: &Layout, dim: usize, matrix: &Matrix) -> Option<Reg> {
        let mut bases = vec![0; 5 + IN_GROUP];
        let warps = acc.bases(In::Warp).iter().skip(IN_GROUP);
        bases.extend(warps.map(|basis| matrix.bytes(basis[dim], 0)));
        let own = self.thread_sum(&bases)?;
        Some(self.uniform(own))
    }

    /// A value that is equal in all lanes of a warp, in a form that the assembler knows to be
    /// uniform.
    pub fn uniform(&mut self, own: Reg) -> Reg {
        if let Some(&r) = self.wgmma_state.uniform.get(&own) {
            return r;
        }
        let r = self.head(|me| {
            let d = me.asm.reg(Class::B32);
            me.asm.emit(Inst::Shfl {
                kind: Shfl::Idx,
                d,
                ok: None,
                a: own.into(),
                b: Opnd::Int(0),
                c: Opnd::Int(31),
                mask: Opnd::Int(0xFFFF_FFFF),
            });
            d
        });
        self.wgmma_state.uniform.insert(own, r);
        r
    }
}

/// A left operand.
enum Left {
    Shared(Descriptors),
    Words(BTreeMap<(u32, u32), [Reg; 4]>),
}

/// The two halves of descriptors, and an offset that is added to the lower half of all of them.
struct Descriptors {
    low: Reg,
    high: Reg,
    more: u32,
}

/// One instruction.
struct Call<'p> {
    step: u32,
    piece: &'p Piece,
    add: Opnd,
    sums: Vec<Reg>,
}
