//! Asynchronous copies (`cp.async`) that a kernel waits for itself. Their elements arrive at the
//! wait; until then the buffer must not be accessed.

use crate::access::unwritten;
use crate::fault::Outcome;
use crate::machine::Machine;
use crate::program::{Action, Inst, Wait};
use crate::value::Data;
use std::collections::VecDeque;
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_numerics::{DType, Scalar};

/// A copy in flight into the buffer of a slot, or into a part of it.
struct Copy {
    slot: usize,
    /// The start and the extents of the part.
    start: Vec<i64>,
    part: Vec<i64>,
    stage: Option<i64>,
    data: Data,
    loc: Loc,
}

#[derive(Default)]
pub(crate) struct Copies {
    /// Issued since the last commit.
    open: Vec<Copy>,
    /// Committed groups, the oldest first.
    groups: VecDeque<Vec<Copy>>,
}

/// Start, extents, steps.
type Block<'i> = (Vec<i64>, &'i [i64], &'i [i64]);

impl Copies {
    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.groups.iter().all(Vec::is_empty)
    }

    pub fn commit(&mut self) {
        let group = std::mem::take(&mut self.open);
        self.groups.push_back(group);
    }

    /// From here on the slot has another buffer.
    pub fn forget(&mut self, slot: usize) {
        self.open.retain(|c| c.slot != slot);
        self.groups.iter_mut().for_each(|g| g.retain(|c| c.slot != slot));
    }

    /// Refuses what a copy in flight is found to go into.
    fn refuse(&self, inst: &Inst, into: impl Fn(&Copy) -> bool) -> Outcome<()> {
        let (copy, help) = match self.groups.iter().flatten().find(|c| into(c)) {
            Some(copy) => (copy, "wait for it first: ts.tile.cp_wait_group(0)"),
            None => match self.open.iter().find(|c| into(c)) {
                Some(copy) => (
                    copy,
                    "end its group and wait: ts.tile.cp_commit_group(), then ts.tile.cp_wait_group(0)",
                ),
                None => return Ok(()),
            },
        };
        let message =
            "expected a wait before the buffer is used, got a copy into it that is still in flight";
        let d = Diagnostic::new(Code::E_UNWAITED, message).at(inst.loc.clone());
        Err(Box::new(d.label(copy.loc.clone(), "the copy begins here").help(help)))
    }

    fn take(&mut self, wait: Wait) -> Vec<Copy> {
        match wait {
            Wait::Groups(newest) => {
                let due = self.groups.len().saturating_sub(newest);
                self.groups.drain(..due).flatten().collect()
            }
            Wait::Stage(stage) => {
                let mut due = Vec::new();
                for list in self.groups.iter_mut().chain([&mut self.open]) {
                    due.extend(list.extract_if(.., |c| c.stage == Some(stage)));
                }
                due
            }
        }
    }
}

impl Machine<'_> {
    /// Refuses operand `i` while a copy into what the instruction accesses of it is in flight.
    pub(crate) fn check_copies(&self, inst: &Inst, i: usize) -> Outcome<()> {
        let Some(arg) = inst.args.get(i).filter(|_| !self.copies.is_empty()) else { return Ok(()) };
        let block = self.accessed(inst, i)?;
        self.copies.refuse(inst, |copy| {
            let overlaps = |(axis, &e): (usize, &i64)| {
                let Some((at, extent, step)) = &block else { return true };
                let span = extent[axis].max(1).saturating_mul(step.get(axis).copied().unwrap_or(1));
                let apart = at[axis] >= copy.start[axis].saturating_add(e.max(1))
                    || at[axis].saturating_add(span) <= copy.start[axis];
                !apart
            };
            copy.slot == arg.slot && copy.part.iter().enumerate().all(overlaps)
        })
    }

    /// Start, extents and steps of the block of operand `i` that an instruction accesses; `None`
    /// where it may be any element.
    fn accessed<'i>(&self, inst: &'i Inst, i: usize) -> Outcome<Option<Block<'i>>> {
        let (extent, step, first): (&[i64], &[i64], usize) = match &inst.action {
            Action::Load { extent, step, .. } => (extent, step, 1),
            Action::Store { extent, step, .. } | Action::Accumulate { extent, step, .. } => {
                (extent, step, 2)
            }
            Action::CopyAsync { extent, part, .. } if i == 0 => {
                let start = self.start_of(inst, extent, part)?;
                return Ok(Some((start, part, &[])));
            }
            _ => return Ok(None),
        };
        if i != 0 || self.by_lane() {
            return Ok(None);
        }
        Ok(Some((self.positions(inst, first, extent.len())?, extent, step)))
    }

    /// Where the part of the buffer begins that a copy goes into.
    fn start_of(&self, inst: &Inst, extent: &[i64], part: &[i64]) -> Outcome<Vec<i64>> {
        let given = inst.args.len() - 2 - extent.len();
        let mut start = self.positions(inst, 2 + extent.len(), given)?;
        start.resize(part.len(), 0);
        Ok(start)
    }

    /// The source is read now; its elements arrive in the buffer at the wait.
    pub(crate) fn begin_copy(
        &mut self,
        inst: &Inst,
        extent: &[i64],
        part: &[i64],
        dtype: DType,
        stage: Option<i64>,
    ) -> Outcome<()> {
        self.check_copies(inst, 0)?;
        let start = self.start_of(inst, extent, part)?;
        let at = self.positions(inst, 2, extent.len())?;
        let data = self.memory(inst, 1)?.load(&at, extent, None, Scalar::zero(dtype));
        let data = data.map_err(|e| unwritten(e, &inst.loc))?;
        let slot = inst.args[0].slot;
        let part = part.to_vec();
        self.copies.open.push(Copy { slot, start, part, stage, data, loc: inst.loc.clone() });
        Ok(())
    }

    pub(crate) fn wait(&mut self, wait: Wait) {
        for copy in self.copies.take(wait) {
            if let Some(to) = self.raw_memory(copy.slot) {
                to.store(&copy.start, &copy.part, None, &copy.data);
            }
        }
    }
}
