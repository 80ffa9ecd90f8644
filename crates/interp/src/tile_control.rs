//! Loops and branches, under the mask of the lanes that run. A block is run only where some lane is
//! active. In a group kernel the one lane is always active, so nothing is ever merged and values,
//! tiles among them, are only passed on.

use crate::fault::{Outcome, broken, fault};
use crate::lanes::Mask;
use crate::machine::Machine;
use crate::program::Inst;
use crate::value::{Data, Tile};
use std::sync::Arc;
use tessera_diag::{Code, Loc};

impl Machine<'_> {
    /// Runs a block and gives what it yields.
    pub(crate) fn block(
        &mut self,
        number: usize,
        args: Vec<Tile>,
        loc: &Loc,
    ) -> Outcome<Vec<Tile>> {
        self.poll.poll()?;
        let block = &self.program.blocks[number];
        for (&slot, value) in block.args.iter().zip(args) {
            self.set(slot, value);
        }
        for inst in &block.insts {
            self.execute(inst)?;
        }
        let mut out = Vec::with_capacity(block.yields.len());
        for &arg in &block.yields {
            out.push(self.take_arg(arg).ok_or_else(|| broken("a yield without a value", loc))?);
        }
        // Arguments that the block did not use itself, such as a branch's condition, are dropped.
        block.args.iter().for_each(|&slot| self.forget(slot));
        Ok(out)
    }

    /// Runs the body of the function for the lanes of one group that exist.
    pub fn body(&mut self) -> Outcome<()> {
        let program = self.program;
        for inst in &program.blocks[0].insts {
            self.execute(inst)?;
        }
        Ok(())
    }

    fn masked(
        &mut self,
        mask: &Mask,
        number: usize,
        args: Vec<Tile>,
        loc: &Loc,
    ) -> Outcome<Vec<Tile>> {
        let outer = std::mem::replace(&mut self.mask, mask.clone());
        let out = self.block(number, args, loc);
        self.mask = outer;
        out
    }

    pub(crate) fn branch(&mut self, inst: &Inst, then: usize, otherwise: usize) -> Outcome<()> {
        let cond = self.value(inst, 0)?.clone();
        let yes = self.where_true(&cond, &self.mask.clone(), &inst.loc)?;
        let no = self.mask.and(|i| !yes.lanes()[i]);
        let mut results =
            if yes.any() { self.masked(&yes, then, vec![], &inst.loc)? } else { vec![] };
        if no.any() {
            let other = self.masked(&no, otherwise, vec![], &inst.loc)?;
            results = if yes.any() { self.merge(&yes, results, &other, &inst.loc)? } else { other };
        }
        self.give(inst, results)
    }

    /// All rows together: those where the condition is false keep their initial value.
    pub(crate) fn slow_path(&mut self, inst: &Inst, body: usize) -> Outcome<()> {
        let bad = match self.value(inst, 0)?.bools() {
            Some(bad) => bad.contains(&true),
            None => return Err(broken("a condition that is no bool", &inst.loc)),
        };
        let results = match bad {
            true => self.block(body, vec![], &inst.loc)?,
            false => self.carried(inst, 1)?,
        };
        self.give(inst, results)
    }

    pub(crate) fn counted(&mut self, inst: &Inst, body: usize) -> Outcome<()> {
        let positions = |m: &Self, i: usize| match &**m.value(inst, i)? {
            Data::I64(xs) if xs.len() == m.width => Ok(xs.clone()),
            _ => Err(broken("a loop bound that is no index", &inst.loc)),
        };
        let (mut at, hi, step) = (positions(self, 0)?, positions(self, 1)?, positions(self, 2)?);
        let active = self.mask.clone();
        if let Some(i) = (0..self.width).find(|&i| active.lanes()[i] && step[i] <= 0) {
            let why = format!("expected a loop step above 0, got {}", step[i]);
            return Err(fault(Code::E_ARGUMENT, why, &inst.loc));
        }
        let mut carried = self.carried(inst, 3)?;
        loop {
            let running = active.and(|i| at[i] < hi[i]);
            if !running.any() {
                return self.give(inst, carried);
            }
            let old = if running.all() { vec![] } else { carried.clone() };
            carried.insert(0, Arc::new(Data::I64(at.clone())));
            let next = self.masked(&running, body, carried, &inst.loc)?;
            carried = self.merge(&running, next, &old, &inst.loc)?;
            // At the end of the number range the sum saturates, and no bound is above it.
            at.iter_mut().zip(&step).for_each(|(at, &step)| *at = at.saturating_add(step));
        }
    }

    pub(crate) fn conditional(&mut self, inst: &Inst, cond: usize, body: usize) -> Outcome<()> {
        let mut running = self.mask.clone();
        let mut carried = self.carried(inst, 0)?;
        loop {
            let answer = self.masked(&running, cond, carried.clone(), &inst.loc)?;
            let Some(answer) = answer.first() else {
                return Err(broken("a loop condition without a value", &inst.loc));
            };
            running = self.where_true(answer, &running, &inst.loc)?;
            if !running.any() {
                return self.give(inst, carried);
            }
            let old = if running.all() { vec![] } else { carried.clone() };
            let next = self.masked(&running, body, carried, &inst.loc)?;
            carried = self.merge(&running, next, &old, &inst.loc)?;
        }
    }

    fn merge(&mut self, m: &Mask, new: Vec<Tile>, old: &[Tile], loc: &Loc) -> Outcome<Vec<Tile>> {
        if self.check.is_some() && !m.all() {
            return self.merge_checked(m, new, old, loc);
        }
        merge(m, new, old, loc)
    }

    pub(crate) fn carried(&mut self, inst: &Inst, first: usize) -> Outcome<Vec<Tile>> {
        (first..inst.args.len()).map(|i| self.take(inst, i)).collect()
    }

    fn where_true(&self, cond: &Data, within: &Mask, loc: &Loc) -> Outcome<Mask> {
        match cond.bools() {
            Some(c) if c.len() == self.width => Ok(within.and(|i| c[i])),
            _ => Err(broken("a condition that is no bool", loc)),
        }
    }

    pub(crate) fn give(&mut self, inst: &Inst, results: Vec<Tile>) -> Outcome<()> {
        if results.len() != inst.results.len() {
            return Err(broken("a region that yields another number of values", &inst.loc));
        }
        for (&slot, value) in inst.results.iter().zip(results) {
            self.set(slot, value);
        }
        Ok(())
    }
}

/// `new` in the lanes of the mask, `old` in the others.
pub(crate) fn merge(mask: &Mask, new: Vec<Tile>, old: &[Tile], loc: &Loc) -> Outcome<Vec<Tile>> {
    if mask.all() {
        return Ok(new);
    }
    let merged = new.into_iter().zip(old).map(|(new, old)| mask.merge(new, old));
    merged.collect::<Option<_>>().ok_or_else(|| broken("branches that yield different types", loc))
}
