//! Math functions in f32, as their published expansions.

use super::Scalars;
use super::shorten::{Scale, Shortened, shorten};
use crate::isa::Isa;
use crate::llvm::{RealCmp, Val};
use tessera_numerics::{DType, ExpOp, Expansion, Scalar, ScalarFn, Slot};

/// Lanes of f32 in the widest register.
pub(super) const WIDEST: u32 = 16;

/// Some of the lanes of a vector.
pub(super) type Part<'a> = &'a dyn Fn(Val) -> Val;

/// Which lanes of a vector are meant.
#[derive(Copy, Clone)]
enum Lanes {
    Not(Val),
    /// A NaN is not less.
    NotLess(Val, Val),
}

impl Lanes {
    fn part(self, part: Part<'_>) -> Self {
        match self {
            Lanes::Not(cond) => Lanes::Not(part(cond)),
            Lanes::NotLess(a, b) => Lanes::NotLess(part(a), part(b)),
        }
    }
}

impl Scalars<'_> {
    /// The operations of an expansion one after another, on vectors. They are emitted as the
    /// formula's `f32` form computes them: a bitcast leaves a NaN as it is, shift counts are below
    /// the width, and numbers converted to integers fit them.
    pub(super) fn expand(&self, f: ScalarFn, e: &Expansion, inputs: &[Val]) -> Val {
        let scales = self.has_scale(self.lanes(inputs[0]));
        self.expand_ops(&shorten(f, e, scales), inputs)
    }

    /// A sequence of the default profile, in which there is nothing to leave out but scalings.
    pub(super) fn expand_quick(&self, e: &Expansion, inputs: &[Val]) -> Val {
        let scales = self.has_scale(self.lanes(inputs[0]));
        let mut short = shorten(ScalarFn::Add, e, scales);
        short.inverses = self.has_scale(self.lanes(inputs[0]));
        self.expand_ops(&short, inputs)
    }

    /// `1 / d` within 2 ulp, for a normal `d` whose inverse is one too.
    fn inverse(&self, d: Val) -> Val {
        let ir = self.ir;
        let (ty, lanes) = (ir.ty(d), self.lanes(d));
        if lanes > WIDEST {
            return self.by_halves(lanes, &|part| self.inverse(part(d)));
        }
        let every = ir.const_int(ir.int(lanes.max(8)), -1);
        let name = format!("llvm.x86.avx512.rcp14.ps.{}", lanes * 32);
        let near = ir.intrinsic(&name, &[], &[d, ir.zero(ty), every]);
        let rest = ir.fma(ir.fneg(d), near, ir.const_float(ty, 1.0));
        ir.fma(near, rest, near)
    }

    pub(super) fn expand_ops(&self, short: &Shortened, inputs: &[Val]) -> Val {
        let Shortened { e, live, scales, none, same, inverses } = short;
        let lanes = self.lanes(inputs[0]);
        // What is not needed is never read and gets some value.
        let mut slots: Vec<Val> = Vec::with_capacity(e.ops.len());
        for (i, (op, &ty)) in e.ops.iter().zip(&e.types).enumerate() {
            let at = |s: &Slot| slots[s.0 as usize];
            let type_of = |s: &Slot| e.types[s.0 as usize];
            let value = match op {
                _ if !live[i] => inputs[0],
                _ if let Some(Scale { y, n }) = scales[i] => {
                    let is_int = type_of(&n) == DType::I32;
                    let y = at(&y);
                    let n = at(&n);
                    let n = if is_int { self.ir.si_to_fp(n, self.ir.ty(y)) } else { n };
                    let none = none.filter(|_| i + 1 == e.ops.len());
                    self.scale(y, n, none.map(|s| self.unless(e, s, &slots)))
                }
                _ if let Some(s) = same[i] => at(&s),
                ExpOp::Input(i) => inputs[*i as usize],
                ExpOp::Const(c) => self.constant(*c, lanes),
                ExpOp::Apply { f: ScalarFn::Div, args }
                    if *inverses && e.ops[args[0].0 as usize] == ExpOp::Const(Scalar::F32(1.0)) =>
                {
                    self.inverse(at(&args[1]))
                }
                ExpOp::Apply { f, args } => {
                    let of = type_of(&args[0]);
                    let args: Vec<Val> = args.iter().map(at).collect();
                    self.basic(*f, of, &args)
                }
                ExpOp::Select { cond, then, other } => {
                    self.ir.select(at(cond), at(then), at(other))
                }
                ExpOp::Cast { value, .. } => self.convert_fitting(at(value), type_of(value), ty),
                ExpOp::Bitcast { value, .. } => self.ir.bitcast(at(value), self.carrier(ty, lanes)),
            };
            slots.push(value);
        }
        slots[slots.len() - 1]
    }

    /// Whether [`Scalars::scale`] and the estimate of an inverse exist for this number of lanes.
    pub(super) fn has_scale(&self, lanes: u32) -> bool {
        self.isa >= Isa::Avx512 && (lanes >= 4 && lanes.is_power_of_two())
    }

    /// Lanes in which a condition does not hold.
    fn unless(&self, e: &Expansion, cond: Slot, slots: &[Val]) -> Lanes {
        let at = |s: Slot| slots[s.0 as usize];
        match &e.ops[cond.0 as usize] {
            // One comparison instead of one and its opposite.
            ExpOp::Apply { f: ScalarFn::Lt, args } if e.types[args[0].0 as usize] == DType::F32 => {
                Lanes::NotLess(at(args[0]), at(args[1]))
            }
            _ => Lanes::Not(at(cond)),
        }
    }

    /// `y · 2^n` rounded once, for a whole `n`; zero in lanes that are not `some`.
    fn scale(&self, y: Val, n: Val, some: Option<Lanes>) -> Val {
        let ir = self.ir;
        let lanes = self.lanes(y);
        if lanes > WIDEST {
            // Masks are made in parts: to take one apart is work.
            return self.by_halves(lanes, &|part| {
                self.scale(part(y), part(n), some.map(|some| some.part(part)))
            });
        }
        let bits = ir.int(lanes.max(8));
        let mask = |some: Lanes| match some {
            Lanes::Not(cond) => ir.not(cond),
            Lanes::NotLess(a, b) => ir.fcmp(RealCmp::LLVMRealUGE, a, b),
        };
        let which = match some.map(|some| ir.bitcast(mask(some), ir.int(lanes))) {
            None => ir.const_int(bits, -1),
            Some(some) if lanes < 8 => ir.zext(some, bits),
            Some(some) => some,
        };
        let mut args = vec![y, n, ir.zero(ir.ty(y)), which];
        if lanes == WIDEST {
            // The rounding that is in force.
            args.push(ir.c32(4));
        }
        ir.intrinsic(&format!("llvm.x86.avx512.mask.scalef.ps.{}", lanes * 32), &[], &args)
    }

    /// What has an instruction for fewer lanes, in two parts.
    pub(super) fn by_halves(&self, lanes: u32, one: &dyn Fn(Part<'_>) -> Val) -> Val {
        let ir = self.ir;
        let half = |from: u32| {
            let which: Vec<u32> = (from..from + lanes / 2).collect();
            one(&|v| ir.shuffle(v, v, &which))
        };
        let (low, high) = (half(0), half(lanes / 2));
        ir.shuffle(low, high, &(0..lanes).collect::<Vec<_>>())
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
