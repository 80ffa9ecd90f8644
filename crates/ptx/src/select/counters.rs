//! The pipeline state of an instance: the stage index and phase parity of its next stage, as
//! CUTLASS's `PipelineState`.
//!
//! An instance uses the counters of a pipeline in order from 0. Stage and parity are kept in
//! registers and advanced, so nothing is divided. Instances that take tiles in turn skip counters,
//! and compute stage and phase from the counter.
//!
//! The wait for a stage is on the critical path. The addresses of a stage and its barriers are
//! therefore computed when the stage before it was taken, and overlap with the work on that stage.
//! They are computed as late as possible, after the MMAs that read it were issued.

use super::mbar::BYTES;
use super::pipeline::{Pipeline, Stage};
use super::sync::Region;
use super::{Repr, Select};
use crate::inst::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_ir::{OpId, Value};
use tessera_staged::StagedOp;
use tessera_tile::TileOp;

/// The state of the pipelines that one instance uses.
#[derive(Clone, Default)]
pub struct Counters {
    filled: BTreeMap<Value, Next>,
    read: BTreeMap<Value, (Next, Ready)>,
    /// Pipelines with a stage taken whose next stage is not yet computed.
    late: Vec<(Value, Arc<Pipeline>)>,
}

#[derive(Copy, Clone)]
enum Next {
    /// The counter, where the number of stages is a power of two.
    Counter(Reg),
    Stage {
        stage: Reg,
        parity: Reg,
    },
}

/// A stage that can be waited for.
#[derive(Copy, Clone)]
pub struct Ready {
    pub parity: Reg,
    /// The base to which the offset of the pipeline's barriers is added.
    pub bar: Reg,
    /// The stage's byte offset from the first stage, and its address.
    pub moving: Reg,
    pub address: Reg,
}

/// The stage of a counter.
pub struct Found {
    pub stage: Reg,
    pub parity: Reg,
}

impl Select<'_> {
    /// Stage and parity of a counter, computed from its value; the parity is that of `later` phases
    /// on.
    pub fn counter_stage(&mut self, stages: u32, i: Reg, later: u32) -> Found {
        let i = if i.class == Class::B64 { self.asm.cvt(Ty::U32, Ty::U64, None, i) } else { i };
        let n = Opnd::Int(stages.into());
        let (stage, round) = if stages.is_power_of_two() {
            let stage =
                self.asm.int(Alu::And, Ty::B32, &[i.into(), Opnd::Int((stages - 1).into())]);
            let by = Opnd::Int(stages.trailing_zeros().into());
            (stage, self.asm.int(Alu::Shr, Ty::U32, &[i.into(), by]))
        } else {
            // Exact below 2^31: the relative error of the factor is below 2^-31.
            let bits = 32 - (stages - 1).leading_zeros();
            let factor = (1u64 << (31 + bits)).div_ceil(stages.into());
            let q = self.asm.int(Alu::MulHi, Ty::U32, &[i.into(), Opnd::Int(factor as i64)]);
            let q = match bits {
                1 => q,
                _ => self.asm.int(Alu::Shr, Ty::U32, &[q.into(), Opnd::Int((bits - 1).into())]),
            };
            let whole = self.asm.int(Alu::MulLo, Ty::U32, &[q.into(), n]);
            (self.asm.int(Alu::Sub, Ty::U32, &[i.into(), whole.into()]), q)
        };
        let round = match later {
            0 => round,
            n => self.asm.int(Alu::Add, Ty::U32, &[round.into(), Opnd::Int(n.into())]),
        };
        let parity = self.asm.int(Alu::And, Ty::B32, &[round.into(), Opnd::Int(1)]);
        Found { stage, parity }
    }

    /// The next counter that a producer fills; the op's own operand has the same value.
    pub fn next_filled(&mut self, value: Value, pipeline: &Pipeline, i: Option<Reg>) -> Found {
        let n = pipeline.stages;
        if let Some(i) = i.filter(|_| self.instance.by_tiles) {
            return self.counter_stage(n, i, 1);
        }
        let next = match self.mbars.own.next.filled.get(&value) {
            Some(&next) => next,
            None => {
                let next = self.head(|me| me.first_counter(n, 1));
                self.mbars.own.next.filled.insert(value, next);
                next
            }
        };
        let found = match next {
            Next::Counter(c) => self.counter_stage(n, c, 0),
            Next::Stage { stage, parity } => {
                let [stage, parity] = [stage, parity].map(|r| self.asm.mov(Ty::B32, r));
                Found { stage, parity }
            }
        };
        self.count_on(next, n);
        found
    }

    /// Counter 0, `later` phases on.
    fn first_counter(&mut self, stages: u32, later: u32) -> Next {
        let mut number = |x: u32| self.asm.mov(Ty::B32, Opnd::Int(x.into()));
        match stages.is_power_of_two() {
            true => Next::Counter(number(later * stages)),
            false => Next::Stage { stage: number(0), parity: number(later) },
        }
    }

    fn count_on(&mut self, next: Next, stages: u32) {
        match next {
            Next::Counter(c) => {
                let more = self.asm.int(Alu::Add, Ty::U32, &[c.into(), Opnd::Int(1)]);
                self.asm.mov_to(Ty::B32, c, more);
            }
            Next::Stage { stage, parity } => {
                let more = self.asm.int(Alu::Add, Ty::U32, &[stage.into(), Opnd::Int(1)]);
                let around = self.asm.setp(Cmp::Eq, Ty::U32, more, Opnd::Int(stages.into()));
                let more = self.asm.selp(Ty::B32, around, Opnd::Int(0), more);
                self.asm.mov_to(Ty::B32, stage, more);
                let other = self.asm.int(Alu::Xor, Ty::B32, &[parity.into(), Opnd::Int(1)]);
                let other = self.asm.selp(Ty::B32, around, other, parity);
                self.asm.mov_to(Ty::B32, parity, other);
            }
        }
    }

    /// The stage that is read next, in registers that hold it across iterations.
    pub fn ready_stage(&mut self, value: Value, pipeline: &Arc<Pipeline>) -> Ready {
        if self.mbars.own.next.late.iter().any(|(other, _)| *other == value) {
            self.find_next_stages();
        }
        let (_, ready) = match self.mbars.own.next.read.get(&value) {
            Some(&known) => known,
            None => {
                let base = self.region(Region::Fixed);
                let known = self.head(|me| {
                    let next = me.first_counter(pipeline.stages, 0);
                    let [parity, moving] = [0, 0].map(|x| me.asm.mov(Ty::B32, Opnd::Int(x)));
                    let [bar, address] = [base, base].map(|r| me.asm.mov(Ty::B32, r));
                    (next, Ready { parity, bar, moving, address })
                });
                self.mbars.own.next.read.insert(value, known);
                known
            }
        };
        self.mbars.own.next.late.push((value, pipeline.clone()));
        let Ready { parity, bar, moving, address } = ready;
        let [parity, bar, moving, address] =
            [parity, bar, moving, address].map(|r| self.asm.mov(Ty::B32, r));
        Ready { parity, bar, moving, address }
    }

    /// Computes the state after the stages that were taken, before an op that it must precede, or
    /// that waits for MMAs anyway.
    pub fn find_next_stages_before(&mut self, id: OpId) {
        let code = self.func.ops[id].code;
        let passes = matches!(
            code,
            StagedOp::Wait
                | StagedOp::Field
                | StagedOp::SmemView
                | StagedOp::MmaOpen
                | StagedOp::MmaIssue
                | StagedOp::ConvertLayout
                | StagedOp::Tile(TileOp::Const)
        );
        if !passes {
            self.find_next_stages();
        }
    }

    pub fn find_next_stages(&mut self) {
        for (value, pipeline) in std::mem::take(&mut self.mbars.own.next.late) {
            let Some(&(next, ready)) = self.mbars.own.next.read.get(&value) else { continue };
            self.count_on(next, pipeline.stages);
            let found = match next {
                Next::Counter(c) => self.counter_stage(pipeline.stages, c, 0),
                Next::Stage { stage, parity } => Found { stage, parity },
            };
            let bar = self.barriers_of(found.stage);
            let [moving, address] = self.stage_place(&pipeline, found.stage);
            let to = [ready.parity, ready.bar, ready.moving, ready.address];
            self.move_all(&to, &[found.parity, bar, moving, address]);
        }
    }

    /// The base to which the offset of a pipeline's barriers is added, for a stage.
    pub fn barriers_of(&mut self, stage: Reg) -> Reg {
        let base = self.region(Region::Fixed);
        let bytes = Opnd::Int(BYTES.into());
        self.asm.int(Alu::MadLo, Ty::U32, &[stage.into(), bytes, base.into()])
    }

    fn stage_place(&mut self, pipeline: &Pipeline, stage: Reg) -> [Reg; 2] {
        let stride = Opnd::Int(pipeline.stride.into());
        let moving = self.asm.int(Alu::MulLo, Ty::U32, &[stage.into(), stride]);
        let base = self.region(Region::Fixed);
        [moving, self.asm.int(Alu::Add, Ty::U32, &[base.into(), moving.into()])]
    }

    pub fn know(&mut self, id: OpId, pipeline: &Arc<Pipeline>, stage: Reg) {
        let place = self.stage_place(pipeline, stage);
        self.know_stage(place);
        let result = self.func.ops[id].result();
        self.set(result, Repr::Stage(Stage { pipeline: pipeline.clone(), moving: place[0] }));
    }
}
