//! Software pipelining of `mma.sync` loops across iterations: the wait for the next iteration's
//! stage and the loads of its first fragments are issued before the last k step of this iteration's
//! MMA, which hides their latency.
//!
//! Input: a loop that only multiplies what one pipeline brings. All fragments of this iteration are
//! then in registers, so the barrier of that wait also shows that the stage may be refilled. The
//! last iteration waits for a stage that was filled ahead and is not used.

use super::pipeline::Stage;
use super::sync::Smem;
use super::{Repr, Select};
use crate::inst::*;
use tessera_ir::{OpId, Type, Value, ValueDef};
use tessera_numerics::ScalarFn;
use tessera_staged::StagedOp;
use tessera_tile::TileOp;

/// A loop that is pipelined this way.
#[derive(Clone, Debug)]
pub struct Rotation {
    pub wait: OpId,
    pub mma: OpId,
    /// The fragments of the MMA's first step, in loop-carried registers.
    pub first: [Vec<Vec<Reg>>; 2],
}

impl Select<'_> {
    /// Starts such a loop: waits for its first stage and loads its first fragments.
    pub fn begin_rotation(&mut self, id: OpId) {
        let Some((wait, mma)) = self.rotates(id) else { return };
        let groups = self.published_ahead(wait);
        self.asm.emit(Inst::CpWait { groups });
        // Later iterations know no more than what held before the loop.
        let state = self.sync_state();
        self.barrier();
        self.swap_sync_state(state);
        let iteration = self.scalar(self.func.ops[wait].operands[1]);
        let iteration = self.asm.cvt(Ty::U32, Ty::U64, None, iteration);
        let pipeline = self.pipeline(self.func.ops[wait].operands[0]);
        let found = self.stage_registers(&pipeline, iteration);
        // Fresh registers, as every iteration writes them.
        let stage = found.map(|r| self.asm.mov(Ty::B32, r));
        self.know_stage(stage);
        let stage = Stage { pipeline, moving: stage[0] };
        self.set(self.func.ops[wait].result(), Repr::Stage(stage));
        let Some(operands) = self.pipeline_operands(mma) else { return };
        let loaded = self.first_step(mma, &operands);
        let first = loaded.map(|words| {
            let mut own = |r: &Reg| self.asm.mov(Ty::B32, *r);
            words.iter().map(|w| w.iter().map(&mut own).collect()).collect()
        });
        self.pipelines.rotation = Some(Rotation { wait, mma, first });
    }

    pub fn end_rotation(&mut self) {
        self.pipelines.rotation = None;
    }

    /// The rotation that an MMA belongs to.
    pub fn rotation_of(&self, mma: OpId) -> Option<Rotation> {
        self.pipelines.rotation.clone().filter(|r| r.mma == mma)
    }

    /// Whether a wait was done in the iteration before.
    pub fn is_rotated(&self, wait: OpId) -> bool {
        self.pipelines.rotation.as_ref().is_some_and(|r| r.wait == wait)
    }

    /// Waits for the next iteration's stage, and loads its first fragments.
    pub fn rotate(&mut self, rotation: &Rotation) -> [Vec<Vec<Reg>>; 2] {
        let wait = rotation.wait;
        self.issue_copies(usize::MAX);
        let groups = self.published_ahead(wait);
        self.asm.emit(Inst::CpWait { groups });
        self.barrier();
        let iteration = self.scalar(self.func.ops[wait].operands[1]);
        let iteration = self.asm.cvt(Ty::U32, Ty::U64, None, iteration);
        let iteration = self.asm.int(Alu::Add, Ty::U32, &[iteration.into(), Opnd::Int(1)]);
        let Repr::Stage(stage) = self.repr(self.func.ops[wait].result()).clone() else {
            unreachable!("a rotated loop has its stage");
        };
        let next = self.stage_registers(&stage.pipeline, iteration);
        let own = [stage.moving, self.stage_address(stage.moving)];
        self.move_all(&own, &next);
        let operands = self.pipeline_operands(rotation.mma);
        let operands = operands.unwrap_or_else(|| unreachable!("they were there before the loop"));
        self.first_step(rotation.mma, &operands)
    }

    fn first_step(&mut self, mma: OpId, operands: &[Smem; 2]) -> [Vec<Vec<Reg>>; 2] {
        let op = &self.func.ops[mma];
        let [a, b] = [0, 1].map(|i| op.operands[i]);
        let acc = op.operands[2];
        let mut of_a = self.operand_in(a, true, Some(operands[0].clone()));
        let mut of_b = self.operand_in(b, false, Some(operands[1].clone()));
        self.step_fragments(acc, &mut of_a, &mut of_b, 0)
            .unwrap_or_else(|| unreachable!("the operands fit their sums"))
    }

    /// The shared memory of the two operands of an MMA, if both are in the stage that the loop
    /// waits for.
    fn pipeline_operands(&self, mma: OpId) -> Option<[Smem; 2]> {
        let op = &self.func.ops[mma];
        let [a, b] = [0, 1].map(|i| self.pipeline_memory(op.operands[i]));
        Some([a?, b?])
    }

    /// The memory that a tile is read from, relative to the stage.
    fn pipeline_memory(&self, v: Value) -> Option<Smem> {
        let op = self.func.def(v)?;
        match op.code {
            StagedOp::FragLoad => self.pipeline_memory(op.operands[0]),
            StagedOp::SmemView => {
                let Type::Smem { layout, .. } = self.func.ty(v) else { return None };
                let m = self.pipeline_memory(op.operands[0])?;
                Some(Smem { layout: layout.clone(), ..m })
            }
            StagedOp::Field => self.field_of(op.operands[0], op.attr("name")?.as_word()?),
            _ => None,
        }
    }

    /// The wait and the MMA of a loop that can be pipelined this way: one wait, one MMA that reads
    /// all of the stage by `ldmatrix`, and straight-line code otherwise.
    fn rotates(&self, id: OpId) -> Option<(OpId, OpId)> {
        let func = self.func;
        // Waits for mbarriers are not moved ahead.
        if self.has_roles() {
            return None;
        }
        let body = func.ops[id].regions[0];
        let ops = &func.blocks[body].ops;
        let one = |code: StagedOp| {
            let mut all = ops.iter().copied().filter(|&o| func.ops[o].code == code);
            all.next().filter(|_| all.next().is_none())
        };
        let wait = one(StagedOp::Wait)?;
        let mma = one(StagedOp::Tile(TileOp::Mma))?;
        let publish = one(StagedOp::Publish)?;
        let place = |id: OpId| ops.iter().position(|&o| o == id);
        if place(publish) > place(mma) || ops.iter().any(|&o| !func.ops[o].regions.is_empty()) {
            return None;
        }
        // The counter increases by one in every iteration.
        let ValueDef::Arg(block, n) = func.values[func.ops[wait].operands[1]].def else {
            return None;
        };
        let next = func.def(*func.ops[func.terminator(body)?].operands.get(n.checked_sub(1)?)?)?;
        let one_more = next.code == StagedOp::Tile(TileOp::Ew(ScalarFn::Add))
            && next.operands[0] == func.ops[wait].operands[1]
            && func.def(next.operands[1]).and_then(|d| d.attr("value")?.as_int()) == Some(1);
        if block != body || !one_more {
            return None;
        }
        // Everything that is read from the stage ends in the MMA.
        let mut open = vec![func.ops[wait].result()];
        let mut tiles = 0;
        while let Some(v) = open.pop() {
            for user in func.walk() {
                let op = &func.ops[user];
                if !op.operands.contains(&v) {
                    continue;
                }
                match op.code {
                    StagedOp::Field | StagedOp::SmemView => open.push(op.result()),
                    StagedOp::FragLoad => {
                        let Type::Smem { layout, dtype, .. } = func.ty(v) else { return None };
                        if !self.takes_matrix(layout, *dtype, &self.layout(op.result())) {
                            return None;
                        }
                        tiles += 1;
                        open.push(op.result());
                    }
                    StagedOp::Tile(TileOp::Mma) if user == mma && op.operands[2] != v => {}
                    _ => return None,
                }
            }
        }
        let both = func.ops[mma].operands[0] != func.ops[mma].operands[1];
        (tiles == 2 && both).then_some((wait, mma))
    }
}
