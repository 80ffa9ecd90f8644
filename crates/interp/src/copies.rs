//! Asynchronous copies (`cp.async`) that a kernel waits for itself. Their elements arrive at the
//! wait; until then the buffer must not be accessed.

use crate::access::unwritten;
use crate::fault::Outcome;
use crate::machine::Machine;
use crate::program::{Inst, Wait};
use crate::value::Data;
use std::collections::VecDeque;
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_numerics::{DType, Scalar};

/// A copy in flight into the buffer of a slot.
struct Copy {
    slot: usize,
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

impl Copies {
    pub fn commit(&mut self) {
        let group = std::mem::take(&mut self.open);
        self.groups.push_back(group);
    }

    /// From here on the slot has another buffer.
    pub fn forget(&mut self, slot: usize) {
        self.open.retain(|c| c.slot != slot);
        self.groups.iter_mut().for_each(|g| g.retain(|c| c.slot != slot));
    }

    /// Refuses operand `i` while a copy into it is in flight.
    pub fn check(&self, inst: &Inst, i: usize) -> Outcome<()> {
        let Some(arg) = inst.args.get(i) else { return Ok(()) };
        let into = |c: &&Copy| c.slot == arg.slot;
        let (copy, help) = match self.groups.iter().flatten().find(into) {
            Some(copy) => (copy, "wait for it first: ts.tile.cp_wait_group(0)"),
            None => match self.open.iter().find(into) {
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
    /// The source is read now; its elements arrive in the buffer at the wait.
    pub(crate) fn begin_copy(
        &mut self,
        inst: &Inst,
        extent: &[i64],
        dtype: DType,
        stage: Option<i64>,
    ) -> Outcome<()> {
        self.copies.check(inst, 0)?;
        let at = self.positions(inst, 2, extent.len())?;
        let data = self.memory(inst, 1)?.load(&at, extent, None, Scalar::zero(dtype));
        let data = data.map_err(|e| unwritten(e, &inst.loc))?;
        let slot = inst.args[0].slot;
        self.copies.open.push(Copy { slot, stage, data, loc: inst.loc.clone() });
        Ok(())
    }

    pub(crate) fn wait(&mut self, wait: Wait) {
        for copy in self.copies.take(wait) {
            if let Some(to) = self.raw_memory(copy.slot) {
                let (start, whole) = (vec![0; to.dims.len()], to.dims.clone());
                to.store(&start, &whole, None, &copy.data);
            }
        }
    }
}
