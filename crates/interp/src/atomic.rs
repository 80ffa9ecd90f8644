//! Atomics. Groups and lanes run one after another here, so every update is atomic; only their
//! order is defined here: ascending lanes, row-major elements.

use crate::access::unwritten;
use crate::fault::{Outcome, broken};
use crate::machine::Machine;
use crate::program::{Change, Inst};
use crate::value::{Data, Tile};
use std::sync::Arc;
use tessera_numerics::{DType, Scalar, cast, cast_with, eval};

impl Machine<'_> {
    /// Returns the old value; zero outside and in inactive lanes.
    pub(crate) fn atomic(
        &mut self,
        inst: &Inst,
        rank: usize,
        dtype: DType,
        change: Change,
    ) -> Outcome<Tile> {
        let odd = || broken("operands of an unexpected type", &inst.loc);
        let (value, at) = (self.take(inst, 1)?, self.indices(inst, 2, rank)?);
        let expected = match change {
            Change::CompareExchange => self.value(inst, 2 + rank)?.encode(dtype),
            Change::Exchange | Change::Fold(_) => Vec::new(),
        };
        let mask = self.by_lane().then(|| self.mask.clone());
        let memory = self.memory_mut(inst, 0)?;
        let width = dtype.bytes();
        let zero = Data::fill(Scalar::zero(dtype), 1).encode(dtype);
        let mut codes = zero.repeat(value.len());
        for (i, code) in codes.chunks_exact_mut(width).enumerate() {
            let runs = mask.as_ref().is_none_or(|m| m.lanes()[i]);
            let Some(offset) = at.offset(memory, i).filter(|_| runs) else { continue };
            code.copy_from_slice(memory.element(offset).map_err(|e| unwritten(e, &inst.loc))?);
            let given = value.at(i).ok_or_else(odd)?;
            let new = match change {
                Change::Exchange => given,
                Change::CompareExchange if *code == expected[i * width..(i + 1) * width] => given,
                Change::CompareExchange => continue,
                Change::Fold(fold) => {
                    let old = Data::decode(dtype, code).at(0).ok_or_else(odd)?;
                    let new = eval(fold.f, &[cast(old, dtype, fold.compute), given]);
                    let new = new.ok_or_else(odd)?;
                    cast_with(new, fold.compute, dtype, fold.round, fold.saturate)
                }
            };
            memory.set_element(offset, &Data::fill(new, 1).encode(dtype));
        }
        Ok(Arc::new(Data::decode(dtype, &codes)))
    }
}
