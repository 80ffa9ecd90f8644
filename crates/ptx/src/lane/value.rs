//! Elementwise ops. Values that are the same for all lanes of a thread are computed once, and
//! positions that are linear in the lane index stay one register.

use super::{Lanes, Repr};
use crate::inst::*;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId, Value};
use tessera_numerics::{DType, Rounding, ScalarFn};
use tessera_tile::attrs::{cast_mode, constant_of};
use tessera_tile::{TileFunc, TileOp};

/// `first, first + step, …` for the lanes of a thread, as i64.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Steps {
    pub first: Reg,
    pub step: i64,
    pub facts: Facts,
}

/// Facts about a number.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Facts {
    /// A power of two, at most [`MOST`], that divides it.
    pub align: u32,
    /// No greater one does.
    pub exact: bool,
    /// It is not negative.
    pub low: bool,
    /// Its magnitude is below two to this power; 64 where nothing is known.
    pub bits: u32,
}

/// The largest divisor that matters.
pub const MOST: u32 = 16;
/// The depth of the search through the ops of a number.
const FUEL: u32 = 24;
/// Lanes of a launch are fewer than two to this power.
pub const LANE_BITS: u32 = 45;

impl Facts {
    pub const NONE: Facts = Facts { align: 1, exact: false, low: false, bits: 64 };

    pub fn of_constant(c: i64) -> Self {
        let align = if c == 0 { MOST } else { 1 << c.trailing_zeros().min(MOST.trailing_zeros()) };
        let bits = 64 - c.unsigned_abs().leading_zeros();
        Self { align, exact: c != 0 && align < MOST, low: c >= 0, bits }
    }

    fn sum(self, b: Facts, minus: bool) -> Self {
        let bits = self.bits.max(b.bits) + 1;
        // Where both leave a remainder, the remainders may add up to a multiple.
        let exact = match self.align.cmp(&b.align) {
            std::cmp::Ordering::Less => self.exact,
            std::cmp::Ordering::Equal => false,
            std::cmp::Ordering::Greater => b.exact,
        };
        let low = self.low && b.low && !minus && bits < 64;
        Self { align: self.align.min(b.align), exact, low, bits: bits.min(64) }
    }

    fn product(self, b: Facts) -> Self {
        let bits = (self.bits + b.bits).min(64);
        let align = (self.align * b.align).min(MOST);
        let exact = self.exact && b.exact && align < MOST;
        Self { align, exact, low: self.low && b.low && bits < 64, bits }
    }

    /// Whether a small offset cannot overflow.
    pub fn is_near(self) -> bool {
        self.bits < 62
    }
}

/// Facts about a uniform number.
fn facts(func: &TileFunc, v: Value, fuel: u32) -> Facts {
    let (Some(fuel), Some(op)) = (fuel.checked_sub(1), func.def(v)) else { return Facts::NONE };
    if func.ty(v).dtype() != DType::I64 {
        return Facts::NONE;
    }
    let of = |i: usize| facts(func, op.operands[i], fuel);
    match op.code {
        TileOp::Const => {
            op.attr("value").and_then(Attr::as_int).map_or(Facts::NONE, Facts::of_constant)
        }
        TileOp::ProgramId | TileOp::NumPrograms | TileOp::GroupSize => {
            Facts { low: true, bits: 32, ..Facts::NONE }
        }
        TileOp::Ew(ScalarFn::Add) => of(0).sum(of(1), false),
        TileOp::Ew(ScalarFn::Sub) => of(0).sum(of(1), true),
        TileOp::Ew(ScalarFn::Mul) => of(0).product(of(1)),
        TileOp::Ew(ScalarFn::Neg) => Facts { low: false, ..of(0) },
        TileOp::Cast if matches!(func.ty(op.operands[0]).dtype(), DType::I32) => {
            Facts { bits: 32, ..Facts::NONE }
        }
        _ => Facts::NONE,
    }
}

impl Lanes<'_> {
    /// A constant of the function.
    pub fn int_of(&self, v: Value) -> Option<i64> {
        let op = self.func.def(v).filter(|op| op.code == TileOp::Const)?;
        op.attr("value").and_then(Attr::as_int)
    }

    /// The value in every lane of the thread.
    pub fn each(&mut self, v: Value) -> Vec<Reg> {
        match self.repr(v).clone() {
            Repr::One(r) => vec![r; self.width],
            Repr::Each(regs) => regs,
            Repr::Steps(s) => self.spread(s),
            other => unreachable!("{v:?} is used where it was not computed: {other:?}"),
        }
    }

    pub fn spread(&mut self, s: Steps) -> Vec<Reg> {
        let far = |me: &mut Self, k: usize| match k {
            0 => s.first,
            k => me.add64(s.first, Opnd::Int(s.step.wrapping_mul(k as i64))),
        };
        (0..self.width).map(|k| far(self, k)).collect()
    }

    /// The value that all lanes of the thread share.
    pub fn one(&self, v: Value) -> Reg {
        match self.repr(v) {
            Repr::One(r) => *r,
            other => unreachable!("{v:?} is {other:?}, not one for all lanes"),
        }
    }

    /// An elementwise op.
    pub fn compute(&mut self, id: OpId) -> Result<Repr, Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let from = op.operands.first().map(|&v| self.dtype(v));
        let to = self.dtype(op.result());
        match (op.code, from) {
            (TileOp::Const, _) => {
                let value = constant_of(op, to);
                Ok(Repr::One(self.scalars().constant(to, value)))
            }
            (TileOp::Ew(f), Some(dtype)) => {
                if let Some(repr) = self.in_steps(id, f) {
                    return Ok(repr);
                }
                if let Some(repr) = self.divided(id, f)? {
                    return Ok(repr);
                }
                self.level(id, |me, args| {
                    let made = me.scalars().apply(f, dtype, args);
                    me.sure(id, made)
                })
            }
            (TileOp::Select, _) => {
                self.level(id, |me, args| Ok(me.scalars().select(to, args[0], args[1], args[2])))
            }
            (TileOp::Cast, Some(from)) => {
                let (round, saturate) = cast_mode(op, to);
                self.level(id, |me, args| {
                    let made = me.scalars().cast(from, to, round, saturate, args[0]);
                    me.sure(id, made)
                })
            }
            (TileOp::Bitcast, Some(from)) => {
                self.level(id, |me, args| Ok(me.scalars().bitcast(from, to, args[0])))
            }
            (TileOp::Philox, _) => {
                let word = op.attr("word").and_then(Attr::as_int).unwrap_or(0) as u32;
                let counter = self.dtype(op.operands[1]);
                self.level(id, |me, args| {
                    let mut s = me.scalars();
                    let wide = s.cast(counter, DType::U64, Rounding::Rne, false, args[1]);
                    let wide = me.sure(id, wide)?;
                    Ok(me.scalars().philox(args[0], wide, word))
                })
            }
            _ => Ok(self.id_op(id)),
        }
    }

    /// Calls `f` with the operands: once where all lanes share them, else for each lane.
    pub fn level(
        &mut self,
        id: OpId,
        mut f: impl FnMut(&mut Self, &[Reg]) -> Result<Reg, Diagnostics>,
    ) -> Result<Repr, Diagnostics> {
        let operands = &self.func.ops[id].operands;
        let shared = |me: &Self, v: &Value| match me.repr(*v) {
            Repr::One(r) => Some(*r),
            _ => None,
        };
        let all: Option<Vec<Reg>> = operands.iter().map(|v| shared(self, v)).collect();
        if let Some(args) = all {
            return f(self, &args).map(Repr::One);
        }
        let lanes: Vec<Vec<Reg>> = operands.iter().map(|&v| self.each(v)).collect();
        let mut out = Vec::with_capacity(self.width);
        for k in 0..self.width {
            let args: Vec<Reg> = lanes.iter().map(|l| l[k]).collect();
            out.push(f(self, &args)?);
        }
        Ok(Repr::Each(out))
    }

    fn part(&self, v: Value) -> Option<Steps> {
        match self.repr(v) {
            Repr::Steps(s) => Some(*s),
            Repr::One(first) => {
                let facts = match self.width {
                    // Not used.
                    1 => Facts::NONE,
                    _ => facts(self.func, v, FUEL),
                };
                Some(Steps { first: *first, step: 0, facts })
            }
            _ => None,
        }
    }

    /// Arithmetic on positions that keeps the step from lane to lane. It wraps in every lane as in
    /// the first.
    fn in_steps(&mut self, id: OpId, f: ScalarFn) -> Option<Repr> {
        let op = &self.func.ops[id];
        let steps = |v: &Value| matches!(self.repr(*v), Repr::Steps(_));
        if self.dtype(op.operands[0]) != DType::I64 || !op.operands.iter().any(steps) {
            return None;
        }
        let a = self.part(op.operands[0])?;
        let b = match op.operands.get(1) {
            Some(&v) => self.part(v)?,
            None => a,
        };
        let ints: Vec<Option<i64>> = op.operands.iter().map(|&v| self.int_of(v)).collect();
        let (code, step, facts) = match f {
            ScalarFn::Neg => (Alu::Neg, a.step.checked_neg()?, Facts { low: false, ..a.facts }),
            ScalarFn::Add => (Alu::Add, a.step.checked_add(b.step)?, a.facts.sum(b.facts, false)),
            ScalarFn::Sub => (Alu::Sub, a.step.checked_sub(b.step)?, a.facts.sum(b.facts, true)),
            ScalarFn::Mul => {
                let step = match (ints[0], ints[1]) {
                    (Some(k), _) => b.step.checked_mul(k)?,
                    (_, Some(k)) => a.step.checked_mul(k)?,
                    (None, None) => return None,
                };
                (Alu::MulLo, step, a.facts.product(b.facts))
            }
            _ => return None,
        };
        let opnd = |i: usize, s: Steps| ints[i].map_or(Opnd::Reg(s.first), Opnd::Int);
        let args = match f {
            ScalarFn::Neg => vec![a.first.into()],
            // The constant operand comes last.
            ScalarFn::Add | ScalarFn::Mul if ints[0].is_some() => vec![b.first.into(), opnd(0, a)],
            _ => vec![a.first.into(), opnd(1, b)],
        };
        let first = self.asm.int(code, Ty::S64, &args);
        Some(match step {
            0 => Repr::One(first),
            step => Repr::Steps(Steps { first, step, facts }),
        })
    }
}
