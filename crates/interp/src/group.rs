//! Collective operations of the lanes of a group, by their number in it. Lanes that do not exist
//! give the identity.

use crate::fault::{Outcome, broken, fault};
use crate::machine::Machine;
use crate::program::Inst;
use crate::reduce::reduce;
use crate::scan::scan;
use crate::value::{Data, Elem, Tile, each_data};
use std::sync::Arc;
use tessera_diag::Code;
use tessera_numerics::{ReduceOp, Scalar};

impl Machine<'_> {
    /// The operand, checked to be reached by every lane that exists.
    fn together(&self, inst: &Inst) -> Outcome<Tile> {
        if self.mask != self.present {
            let why = "a group operation was reached by some lanes of the group and not by others";
            return Err(fault(Code::E_DIVERGENT_BARRIER, why, &inst.loc));
        }
        Ok(self.value(inst, 0)?.clone())
    }

    /// The operand in the lanes that exist, and the identity in the others.
    fn given(&self, inst: &Inst, op: ReduceOp) -> Outcome<Tile> {
        let x = self.together(inst)?;
        if self.present.all() {
            return Ok(x);
        }
        let nothing = x.at(0).and_then(|first| op.identity(first.dtype()));
        let nothing = nothing.map(|one| Arc::new(Data::fill(one, self.width)));
        let given = nothing.and_then(|nothing| self.present.merge(x, &nothing));
        given.ok_or_else(|| broken("operands of an unexpected type", &inst.loc))
    }

    pub(crate) fn group_reduce(&self, inst: &Inst, op: ReduceOp) -> Outcome<Tile> {
        let x = self.given(inst, op)?;
        let one = reduce(&x, op, self.width, 1).and_then(|r| r.at(0));
        let one = one.ok_or_else(|| broken("operands of an unexpected type", &inst.loc))?;
        Ok(Arc::new(Data::fill(one, self.width)))
    }

    pub(crate) fn group_scan(&self, inst: &Inst, op: ReduceOp, exclusive: bool) -> Outcome<Tile> {
        let x = self.given(inst, op)?;
        let all = scan(&x, op, self.width, 1, exclusive);
        all.map(Arc::new).ok_or_else(|| broken("operands of an unexpected type", &inst.loc))
    }

    pub(crate) fn group_take(&self, inst: &Inst) -> Outcome<Tile> {
        fn taken<T: Elem>(xs: &[T], from: &[i64], there: &[bool]) -> Option<Data> {
            let zero = T::from_scalar(Scalar::zero(T::DTYPE))?;
            let one = |&src: &i64| {
                let src = usize::try_from(src).ok()?;
                there.get(src).copied().unwrap_or(false).then_some(src)
            };
            Some(T::wrap(from.iter().map(|src| one(src).map_or(zero, |s| xs[s])).collect()))
        }
        let x = self.together(inst)?;
        let odd = || broken("operands of an unexpected type", &inst.loc);
        let from = self.value(inst, 1)?.positions().ok_or_else(odd)?;
        let out = each_data!(&*x, xs => taken(xs, &from, self.present.lanes()));
        out.map(Arc::new).ok_or_else(odd)
    }
}
