//! Folds a value into memory: load, convert to the value's dtype, combine, round to the memory's
//! dtype, store. Group kernels, lane kernels and atomics share this code.

use crate::llvm::Val;
use crate::scalar::Scalars;
use tessera_ir::Type;
use tessera_numerics::{DType, Rounding, ScalarFn};

#[derive(Copy, Clone)]
pub struct Fold {
    f: ScalarFn,
    /// The dtype of the value.
    compute: DType,
    stored: DType,
    round: Rounding,
    saturate: bool,
}

impl Fold {
    pub fn new(memory: &Type, f: ScalarFn, compute: DType) -> Self {
        let (round, saturate) = match memory {
            Type::View { elem, .. } => (elem.rounding(), elem.saturates()),
            ty => (Rounding::Rne, ty.dtype().saturates_by_default()),
        };
        Self { f, compute, stored: memory.dtype(), round, saturate }
    }

    /// Whether the value's dtype is the memory's, so that nothing is converted.
    pub fn is_plain(&self) -> bool {
        self.compute == self.stored
    }

    /// Whether it is a few instructions.
    pub fn is_short(&self) -> bool {
        let machine = matches!(
            self.stored,
            DType::I32 | DType::I64 | DType::U32 | DType::U64 | DType::F32 | DType::F64
        );
        machine && self.is_plain()
    }

    /// The code of `old`, what was there in its carrier, combined with `x` of as many lanes.
    pub fn code(&self, s: &Scalars<'_>, old: Val, x: Val) -> Val {
        let default = self.compute.saturates_by_default();
        let old = s.cast(old, self.stored, self.compute, Rounding::Rne, default);
        let new = s.apply(self.f, self.compute, &[old, x]);
        let new = s.cast(new, self.compute, self.stored, self.round, self.saturate);
        s.encode(new, self.stored)
    }
}
