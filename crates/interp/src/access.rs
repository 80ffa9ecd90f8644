//! The ops on memory. In a group kernel they move blocks; in a lane kernel every active lane moves
//! its own element, in ascending order of the lanes.

use crate::convert::cast;
use crate::elementwise::apply;
use crate::fault::{Fault, Outcome, broken, fault};
use crate::indexed::{Indices, fold_each, read_each, write_each};
use crate::machine::Machine;
use crate::memory::Unwritten;
use crate::program::{Fold, Inst};
use crate::value::{Data, Tile};
use std::sync::Arc;
use tessera_diag::{Code, Loc};
use tessera_numerics::{DType, Scalar};
use tessera_tile::KernelKind;

impl Machine<'_> {
    pub(crate) fn by_lane(&self) -> bool {
        self.program.kind == KernelKind::Lane
    }

    pub(crate) fn load(
        &mut self,
        inst: &Inst,
        extent: &[i64],
        step: &[i64],
        dtype: DType,
    ) -> Outcome<Tile> {
        let rank = extent.len();
        if self.by_lane() {
            let at = self.indices(inst, 1, rank)?;
            let other = self.optional(inst, 1 + rank);
            let mask = Some(self.mask.lanes());
            let data = read_each(self.memory(inst, 0)?, &at, mask, other.map(|o| &**o), dtype);
            return data.map(Arc::new).map_err(|e| unwritten(e, &inst.loc));
        }
        let at = self.positions(inst, 1, rank)?;
        let other = match self.optional(inst, 1 + rank) {
            Some(other) => other.at(0).ok_or_else(|| broken("an empty value", &inst.loc))?,
            None => Scalar::zero(dtype),
        };
        let data = self.memory(inst, 0)?.load_by(&at, extent, step, None, other);
        data.map(Arc::new).map_err(|e| unwritten(e, &inst.loc))
    }

    pub(crate) fn store(&mut self, inst: &Inst, extent: &[i64], step: &[i64]) -> Outcome<()> {
        let rank = extent.len();
        if self.by_lane() {
            return self.write_indexed(inst, rank);
        }
        let (value, at) = (self.take(inst, 1)?, self.positions(inst, 2, rank)?);
        let mask = self.optional(inst, 2 + rank).cloned();
        if let Some(mask) = block_mask(mask.as_ref(), value.len(), &inst.loc)? {
            self.memory_mut(inst, 0)?.store_by(&at, extent, step, mask, &value);
        }
        Ok(())
    }

    pub(crate) fn gather(&mut self, inst: &Inst, rank: usize, dtype: DType) -> Outcome<Tile> {
        let at = self.indices(inst, 1, rank)?;
        let other = self.optional(inst, 1 + rank);
        let data = read_each(self.memory(inst, 0)?, &at, None, other.map(|o| &**o), dtype);
        data.map(Arc::new).map_err(|e| unwritten(e, &inst.loc))
    }

    pub(crate) fn scatter(&mut self, inst: &Inst, rank: usize) -> Outcome<()> {
        self.write_indexed(inst, rank)
    }

    fn write_indexed(&mut self, inst: &Inst, rank: usize) -> Outcome<()> {
        let (value, at) = (self.take(inst, 1)?, self.indices(inst, 2, rank)?);
        let mask = self.element_mask(inst, 2 + rank, value.len())?;
        write_each(self.memory_mut(inst, 0)?, &at, &mask, &value);
        Ok(())
    }

    /// Reads the element, converts it to the value's dtype, combines, converts back, writes.
    pub(crate) fn accumulate(
        &mut self,
        inst: &Inst,
        extent: &[i64],
        step: &[i64],
        fold: Fold,
    ) -> Outcome<()> {
        let rank = extent.len();
        let odd = || broken("operands of an unexpected type", &inst.loc);
        let value = self.take(inst, 1)?;
        if self.by_lane() {
            let at = self.indices(inst, 2, rank)?;
            let mask = self.element_mask(inst, 2 + rank, value.len())?;
            let done = fold_each(self.memory_mut(inst, 0)?, &at, &mask, &value, fold);
            return done.ok_or_else(odd)?.map_err(|e| unwritten(e, &inst.loc));
        }
        let at = self.positions(inst, 2, rank)?;
        let mask = self.optional(inst, 2 + rank).cloned();
        let Some(mask) = block_mask(mask.as_ref(), value.len(), &inst.loc)? else { return Ok(()) };
        let memory = self.memory_mut(inst, 0)?;
        let dtype = memory.dtype;
        let old = memory.load_by(&at, extent, step, mask, Scalar::zero(dtype));
        let old = Arc::new(old.map_err(|e| unwritten(e, &inst.loc))?);
        let default = fold.compute.saturates_by_default();
        let old = cast(old, dtype, fold.compute, tessera_numerics::Rounding::Rne, default);
        let new = apply(fold.f, fold.kernel, vec![old.ok_or_else(odd)?, value]).ok_or_else(odd)?;
        let new = cast(new, fold.compute, dtype, fold.round, fold.saturate).ok_or_else(odd)?;
        memory.store_by(&at, extent, step, mask, &new);
        Ok(())
    }

    fn optional(&self, inst: &Inst, i: usize) -> Option<&Tile> {
        if i < inst.args.len() { self.value(inst, i).ok() } else { None }
    }

    /// The start of a block: one index for each axis.
    pub(crate) fn positions(&self, inst: &Inst, first: usize, rank: usize) -> Outcome<Vec<i64>> {
        let one = |i| match &**self.value(inst, first + i)? {
            Data::I64(xs) if xs.len() == 1 => Ok(xs[0]),
            _ => Err(broken("a position that is no index", &inst.loc)),
        };
        (0..rank).map(one).collect()
    }

    pub(crate) fn indices(&self, inst: &Inst, first: usize, rank: usize) -> Outcome<Indices> {
        let axes: Outcome<Vec<_>> =
            (0..rank).map(|i| self.value(inst, first + i).cloned()).collect();
        Indices::new(axes?, self.width)
            .ok_or_else(|| broken("an index that is no integer", &inst.loc))
    }

    /// Which elements of an indexed access happen: those of active lanes where the mask holds.
    fn element_mask(&self, inst: &Inst, i: usize, len: usize) -> Outcome<Vec<bool>> {
        let mut mask = if self.by_lane() { self.mask.lanes().to_vec() } else { vec![true; len] };
        if let Some(given) = self.optional(inst, i) {
            match given.bools() {
                Some(&[one]) => mask.iter_mut().for_each(|m| *m &= one),
                Some(each) if each.len() == mask.len() => {
                    mask.iter_mut().zip(each).for_each(|(m, &e)| *m &= e);
                }
                _ => return Err(broken("a mask of another shape", &inst.loc)),
            }
        }
        if mask.len() == len { Ok(mask) } else { Err(broken("a mask of another shape", &inst.loc)) }
    }
}

/// The mask of a block: `None` when it is a scalar that is false; else the elements' own, if any.
fn block_mask<'m>(
    mask: Option<&'m Tile>,
    len: usize,
    loc: &Loc,
) -> Outcome<Option<Option<&'m [bool]>>> {
    match mask.map(|m| m.bools()) {
        None => Ok(Some(None)),
        Some(Some(&[one])) => Ok(one.then_some(None)),
        Some(Some(each)) if each.len() == len => Ok(Some(Some(each))),
        Some(_) => Err(broken("a mask of another shape", loc)),
    }
}

pub(crate) fn unwritten(at: Unwritten, loc: &Loc) -> Fault {
    let at: Vec<_> = at.0.iter().map(i64::to_string).collect();
    let why = format!("element [{}] of the buffer is read but was never written", at.join(", "));
    fault(Code::E_UNINIT, why, loc)
}
