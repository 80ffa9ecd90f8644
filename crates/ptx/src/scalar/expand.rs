//! The functions of real numbers in f32, as their published expansions.

use super::carrier_type;
use super::emit::Emit;
use super::val::Val;
use crate::inst::{Alu, Opnd, Round, Ty};
use tessera_numerics::{DType, ExpOp, Expansion, ScalarFn, Slot};

impl Emit {
    /// The operations of an expansion, as the formula's `f32` form computes them: a bitcast keeps a
    /// NaN, shift counts are below the width, and numbers converted to integers fit them. With
    /// `quick` a quotient may be off by 2 ulp and must be of numbers near 1; every expansion
    /// corrects its quotients itself.
    pub(super) fn expand<'e>(&'e self, e: &Expansion, inputs: &[Val<'e>], quick: bool) -> Val<'e> {
        let mut slots: Vec<Val<'e>> = Vec::with_capacity(e.ops.len());
        for (op, &ty) in e.ops.iter().zip(&e.types) {
            let at = |s: &Slot| slots[s.0 as usize];
            let value = match op {
                ExpOp::Input(i) => inputs[*i as usize],
                ExpOp::Const(c) => self.constant(c.dtype(), *c),
                ExpOp::Apply { f, args } => {
                    let of = e.types[args[0].0 as usize];
                    let args: Vec<Val<'e>> = args.iter().map(at).collect();
                    self.basic(*f, of, &args, quick)
                }
                ExpOp::Select { cond, then, other } => at(cond).pick(at(then), at(other)),
                ExpOp::Cast { value, .. } => convert(at(value), ty),
                ExpOp::Bitcast { value, .. } => at(value).of(carrier_type(ty)),
            };
            slots.push(value);
        }
        slots[slots.len() - 1]
    }

    fn basic<'e>(&'e self, f: ScalarFn, of: DType, args: &[Val<'e>], quick: bool) -> Val<'e> {
        // Shift counts are 32-bit words, also of 64-bit shifts.
        let count = |n: Val<'e>| match (n.ty().bits(), n.opnd()) {
            (64, Opnd::Int(n)) => self.int(Ty::U32, n),
            (64, _) => n.cvt(Ty::U32, None),
            _ => n,
        };
        match f {
            ScalarFn::Shl => args[0].shl(count(args[1])),
            ScalarFn::Shr => args[0].shr(count(args[1])),
            ScalarFn::Div if quick => args[0] * args[1].approx(Alu::RcpApprox),
            _ => self.apply(f, of, args).unwrap_or(args[0]),
        }
    }
}

/// A conversion inside an expansion: nothing there is out of range.
fn convert(x: Val<'_>, to: DType) -> Val<'_> {
    let ty = carrier_type(to);
    let round = match (x.ty().is_float(), ty.is_float()) {
        (true, false) => Some(Round::Rzi),
        (false, true) => Some(Round::Rn),
        _ => None,
    };
    x.cvt(ty, round)
}
