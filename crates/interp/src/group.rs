//! Collective operations of the lanes of a group. Lanes that exist are the first ones, so that the
//! identity of the others is only ever added at the end.

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
    /// The operand, checked to be reached by every lane that exists, and the number of these.
    fn together(&self, inst: &Inst) -> Outcome<(Tile, usize)> {
        if self.mask != self.present {
            let why = "a group operation was reached by some lanes of the group and not by others";
            return Err(fault(Code::E_DIVERGENT_BARRIER, why, &inst.loc));
        }
        let lanes = self.present.lanes().iter().filter(|&&m| m).count();
        Ok((self.value(inst, 0)?.clone(), lanes))
    }

    pub(crate) fn group_reduce(&self, inst: &Inst, op: ReduceOp) -> Outcome<Tile> {
        let (x, lanes) = self.together(inst)?;
        let there = each_data!(&*x, xs => Elem::wrap(xs[..lanes].to_vec()));
        let one = reduce(&there, op, lanes, 1).and_then(|r| r.at(0));
        let one = one.ok_or_else(|| broken("operands of an unexpected type", &inst.loc))?;
        Ok(Arc::new(Data::fill(one, self.width)))
    }

    pub(crate) fn group_scan(&self, inst: &Inst, op: ReduceOp, exclusive: bool) -> Outcome<Tile> {
        let (x, _) = self.together(inst)?;
        let all = scan(&x, op, self.width, 1, exclusive);
        all.map(Arc::new).ok_or_else(|| broken("operands of an unexpected type", &inst.loc))
    }

    pub(crate) fn group_take(&self, inst: &Inst) -> Outcome<Tile> {
        fn taken<T: Elem>(xs: &[T], from: &[i64], lanes: usize) -> Option<Data> {
            let zero = T::from_scalar(Scalar::zero(T::DTYPE))?;
            let one = |&src: &i64| usize::try_from(src).ok().filter(|&s| s < lanes);
            Some(T::wrap(from.iter().map(|src| one(src).map_or(zero, |s| xs[s])).collect()))
        }
        let (x, lanes) = self.together(inst)?;
        let odd = || broken("operands of an unexpected type", &inst.loc);
        let from = self.value(inst, 1)?.positions().ok_or_else(odd)?;
        let out = each_data!(&*x, xs => taken(xs, &from, lanes));
        out.map(Arc::new).ok_or_else(odd)
    }
}
