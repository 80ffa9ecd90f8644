//! One op at a time.

use crate::convert::{bitcast, cast};
use crate::elementwise::{apply, select};
use crate::fault::{Outcome, broken, fault};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::mma::mma;
use crate::parts::{concat, slice, take};
use crate::philox::philox;
use crate::program::{Action, Inst, Wait};
use crate::reduce::reduce;
use crate::room::{bytes_of, room};
use crate::scan::{arg_reduce, scan};
use crate::shape::rearrange;
use crate::sort::{histogram, sort};
use crate::value::{Data, Tile};
use std::sync::Arc;
use tessera_diag::Code;

impl Machine<'_> {
    pub(crate) fn execute(&mut self, inst: &Inst) -> Outcome<()> {
        if self.watch.is_some() {
            self.look(inst)?;
        }
        room(bytes_of(inst.elements.saturating_mul(self.width)), &inst.loc)?;
        if self.check.is_some() {
            return self.execute_checked(inst);
        }
        let value = self.perform(inst)?;
        self.finish(inst, value)
    }

    /// Binds the result and drops values at their last use.
    pub(crate) fn finish(&mut self, inst: &Inst, value: Option<Tile>) -> Outcome<()> {
        if let Some(value) = value {
            match inst.results.first() {
                Some(&slot) => self.set(slot, value),
                None => return Err(broken("a result that nothing takes", &inst.loc)),
            }
        }
        inst.drops.iter().for_each(|&slot| self.forget(slot));
        Ok(())
    }

    /// The result of the op, where it has one of its own; loops and branches set theirs.
    pub(crate) fn perform(&mut self, inst: &Inst) -> Outcome<Option<Tile>> {
        let odd = || broken("operands of an unexpected type", &inst.loc);
        let value = match &inst.action {
            Action::For { body } => return self.counted(inst, *body).map(|()| None),
            Action::If { then, otherwise } => {
                return self.branch(inst, *then, *otherwise).map(|()| None);
            }
            Action::SlowPath { body } => return self.slow_path(inst, *body).map(|()| None),
            Action::While { cond, body } => {
                return self.conditional(inst, *cond, *body).map(|()| None);
            }
            Action::ProgramId(axis) => self.uniform(self.group[*axis]),
            Action::NumPrograms(axis) => self.uniform(self.grid[*axis]),
            Action::LinearId(axis) => self.lane_ids(Some(*axis), self.first_lane[*axis]),
            Action::LocalId(axis) => self.lane_ids(*axis, 0),
            Action::GroupSize => self.uniform(self.lanes),
            Action::WarpSize => self.uniform(crate::backend::warp_size().into()),
            Action::Dim(number) => self.uniform(self.dims[*number]),
            Action::Const(number) => self.consts[*number].clone(),
            Action::Iota { start, len } => {
                Arc::new(Data::I32((0..*len as i32).map(|i| start.wrapping_add(i)).collect()))
            }
            Action::Select => {
                let cond = self.take(inst, 0)?;
                let (a, b) = (self.take(inst, 1)?, self.take(inst, 2)?);
                select(&cond, a, b).ok_or_else(odd)?
            }
            Action::Cast { from, to, round, saturate } => {
                cast(self.take(inst, 0)?, *from, *to, *round, *saturate).ok_or_else(odd)?
            }
            Action::Bitcast { from, to } => Arc::new(bitcast(self.value(inst, 0)?, *from, *to)),
            Action::Same => self.take(inst, 0)?,
            Action::Rearrange { shape, strides } => {
                Arc::new(rearrange(self.value(inst, 0)?, shape, strides))
            }
            Action::Load { extent, step, dtype } => self.load(inst, extent, step, *dtype)?,
            Action::Owned { .. } => return Ok(None),
            Action::Store { extent, step, .. } => {
                return self.store(inst, extent, step).map(|()| None);
            }
            Action::Gather { rank, dtype } => self.gather(inst, *rank, *dtype)?,
            Action::Scatter { rank, .. } => return self.scatter(inst, *rank).map(|()| None),
            Action::Accumulate { extent, step, fold } => {
                return self.accumulate(inst, extent, step, *fold).map(|()| None);
            }
            Action::BufAlloc { dims, dtype } => {
                // Each run of the op gives a new buffer that was never written.
                self.set_memory(inst.results[0], Memory::buffer(dims, *dtype));
                return Ok(None);
            }
            Action::CopyAsync { extent, part, dtype, explicit, stage } => {
                self.begin_copy(inst, extent, part, *dtype, *stage)?;
                if !explicit {
                    // It completes immediately, so waiting for it changes nothing.
                    self.copies.commit();
                    self.wait(Wait::Groups(0));
                }
                return Ok(None);
            }
            Action::CopyCommit => {
                self.copies.commit();
                return Ok(None);
            }
            Action::CopyWait(wait) => {
                self.wait(*wait);
                return Ok(None);
            }
            Action::Atomic { rank, dtype, change, .. } => {
                self.atomic(inst, *rank, *dtype, *change)?
            }
            Action::GroupReduce(op) => self.group_reduce(inst, *op)?,
            Action::GroupScan { op, exclusive } => self.group_scan(inst, *op, *exclusive)?,
            Action::GroupTake => self.group_take(inst)?,
            Action::Philox { word } => {
                let (seed, counter) = (self.value(inst, 0)?, self.value(inst, 1)?);
                Arc::new(philox(seed, counter, *word).ok_or_else(odd)?)
            }
            Action::Print { pieces, shapes } => {
                return self.print(inst, pieces, shapes).map(|()| None);
            }
            Action::Assert { text } => return self.assert(inst, text).map(|()| None),
            Action::Barrier => return self.barrier(inst).map(|()| None),
            Action::Mma { k, n } => {
                let acc = self.take(inst, 2)?;
                mma(self.value(inst, 0)?, self.value(inst, 1)?, acc, *k, *n).ok_or_else(odd)?
            }
            Action::Reduce { op, len, inner } => {
                Arc::new(reduce(self.value(inst, 0)?, *op, *len, *inner).ok_or_else(odd)?)
            }
            Action::Scan { op, len, inner, exclusive } => {
                let done = scan(self.value(inst, 0)?, *op, *len, *inner, *exclusive);
                Arc::new(done.ok_or_else(odd)?)
            }
            Action::ArgReduce { max, len, inner } => {
                Arc::new(arg_reduce(self.value(inst, 0)?, *max, *len, *inner))
            }
            Action::Slice { shape, first, strides } => {
                Arc::new(slice(self.value(inst, 0)?, shape, *first, strides))
            }
            Action::Concat { lens, inner } => {
                let parts: Outcome<Vec<_>> =
                    (0..inst.args.len()).map(|i| self.value(inst, i).cloned()).collect();
                Arc::new(concat(&parts?, lens, *inner).ok_or_else(odd)?)
            }
            Action::Take { len, count, inner } => {
                let index = self.value(inst, 1)?.positions().ok_or_else(odd)?;
                Arc::new(take(self.value(inst, 0)?, &index, *len, *count, *inner).ok_or_else(odd)?)
            }
            Action::ReduceBy { combine, len, inner } => {
                return self.reduce_by(inst, *combine, *len, *inner).map(|()| None);
            }
            Action::ScanBy { combine, len, inner, reverse } => {
                return self.scan_by(inst, *combine, *len, *inner, *reverse).map(|()| None);
            }
            Action::Sort { len, inner, descending } => {
                let (sorted, places) = sort(self.value(inst, 0)?, *len, *inner, *descending);
                return self.give(inst, vec![Arc::new(sorted), Arc::new(places)]).map(|()| None);
            }
            Action::Histogram { bins } => {
                let values = self.value(inst, 0)?.positions().ok_or_else(odd)?;
                Arc::new(histogram(&values, *bins))
            }
            Action::Asm { otherwise, elements } => {
                return self.asm(inst, *otherwise, *elements).map(|()| None);
            }
            Action::Ew { f, kernel } => {
                let args: Outcome<Vec<_>> =
                    (0..inst.args.len()).map(|i| self.take(inst, i)).collect();
                apply(*f, *kernel, args?).ok_or_else(odd)?
            }
        };
        Ok(Some(value))
    }

    fn uniform(&self, x: i64) -> Tile {
        Arc::new(Data::I64(vec![x; self.width]))
    }

    /// The index of each lane along an axis, or its number in the group.
    fn lane_ids(&self, axis: Option<usize>, first: i64) -> Tile {
        let place = |i: i64| match axis {
            Some(axis) => self.coordinates(i)[axis],
            None => i,
        };
        let ids = (0..self.width as i64).map(|i| first.saturating_add(place(i)));
        Arc::new(Data::I64(ids.collect()))
    }

    /// Lanes run in lock step, so a barrier does nothing; but all lanes that exist must reach it.
    fn barrier(&self, inst: &Inst) -> Outcome<()> {
        if self.mask == self.present || self.check.is_some() {
            return Ok(());
        }
        let why = "a barrier was reached by some lanes of the group and not by others";
        Err(fault(Code::E_DIVERGENT_BARRIER, why, &inst.loc))
    }
}
