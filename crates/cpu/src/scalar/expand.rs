//! The functions of real numbers in f32, as their published expansions.

use super::Scalars;
use crate::llvm::Val;
use tessera_numerics::{DType, ExpOp, Expansion, ScalarFn, Slot};

impl Scalars<'_> {
    /// The operations of an expansion one after another, on vectors. They are emitted as the
    /// formula's `f32` form computes them: a bitcast leaves a NaN as it is, shift counts are below
    /// the width, and numbers converted to integers fit them.
    pub(super) fn expand(&self, _f: ScalarFn, e: &Expansion, inputs: &[Val]) -> Val {
        let lanes = self.lanes(inputs[0]);
        let mut slots: Vec<Val> = Vec::with_capacity(e.ops.len());
        for (op, &ty) in e.ops.iter().zip(&e.types) {
            let at = |s: &Slot| slots[s.0 as usize];
            let value = match op {
                ExpOp::Input(i) => inputs[*i as usize],
                ExpOp::Const(c) => self.constant(*c, lanes),
                ExpOp::Apply { f, args } => {
                    let of = e.types[args[0].0 as usize];
                    let args: Vec<Val> = args.iter().map(at).collect();
                    self.basic(*f, of, &args)
                }
                ExpOp::Select { cond, then, other } => {
                    self.ir.select(at(cond), at(then), at(other))
                }
                ExpOp::Cast { value, .. } => {
                    self.convert_fitting(at(value), e.types[value.0 as usize], ty)
                }
                ExpOp::Bitcast { value, .. } => {
                    self.ir.bitcast(at(value), self.carrier(ty, lanes))
                }
            };
            slots.push(value);
        }
        slots[slots.len() - 1]
    }

    fn basic(&self, f: ScalarFn, of: DType, args: &[Val]) -> Val {
        match f {
            ScalarFn::Shl => self.ir.shl(args[0], args[1]),
            ScalarFn::Shr if of.is_signed_int() => self.ir.ashr(args[0], args[1]),
            ScalarFn::Shr => self.ir.lshr(args[0], args[1]),
            _ => self.apply(f, of, args),
        }
    }
}
