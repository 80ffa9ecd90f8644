//! A value with operators: each emits one instruction.

use super::emit::Emit;
use crate::inst::{Alu, Class, Cmp, Inst, Opnd, Reg, Round, Ty};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// An operand and the number type it is read as. Operations on it are done in that type.
#[derive(Copy, Clone)]
pub(crate) struct Val<'e> {
    e: &'e Emit,
    v: Opnd,
    ty: Ty,
}

/// The other operand: a value, or a number that takes the type of the first.
#[derive(Copy, Clone)]
pub(crate) enum Num<'e> {
    V(Val<'e>),
    F(f64),
    I(i64),
}

impl<'e> From<Val<'e>> for Num<'e> {
    fn from(v: Val<'e>) -> Self {
        Num::V(v)
    }
}

impl From<f64> for Num<'_> {
    fn from(x: f64) -> Self {
        Num::F(x)
    }
}

impl From<f32> for Num<'_> {
    fn from(x: f32) -> Self {
        Num::F(x.into())
    }
}

impl From<i32> for Num<'_> {
    fn from(x: i32) -> Self {
        Num::I(x.into())
    }
}

impl From<i64> for Num<'_> {
    fn from(x: i64) -> Self {
        Num::I(x)
    }
}

impl<'e> Val<'e> {
    pub fn new(e: &'e Emit, v: Opnd, ty: Ty) -> Self {
        Self { e, v, ty }
    }

    pub fn ty(self) -> Ty {
        self.ty
    }

    pub fn opnd(self) -> Opnd {
        self.v
    }

    pub fn emitter(self) -> &'e Emit {
        self.e
    }

    /// The number, where it is a constant of an integer type.
    pub fn known(self) -> Option<i64> {
        match self.v {
            Opnd::Int(x) => Some(x),
            Opnd::Reg(_) | Opnd::F32(_) | Opnd::F64(_) | Opnd::Special(_) => None,
        }
    }

    /// The number, where it is a constant of a float type.
    pub fn known_float(self) -> Option<f64> {
        match self.v {
            Opnd::F32(x) => Some(f32::from_bits(x).into()),
            Opnd::F64(x) => Some(f64::from_bits(x)),
            Opnd::Reg(_) | Opnd::Int(_) | Opnd::Special(_) => None,
        }
    }

    /// The register it is in; a constant is moved to one.
    pub fn reg(self) -> Reg {
        match self.v {
            Opnd::Reg(r) => r,
            a => {
                let d = self.e.reg(self.ty.class());
                self.e.push(Inst::Mov { ty: self.ty, d, a });
                d
            }
        }
    }

    /// The same bits read as another type of the same width.
    pub fn of(self, ty: Ty) -> Self {
        assert_eq!(ty.class(), self.ty.class());
        let v = match (self.v, ty) {
            (Opnd::Reg(r), _) => Opnd::Reg(r),
            (v, Ty::F32) => Opnd::F32(bits_of(v) as u32),
            (v, Ty::F64) => Opnd::F64(bits_of(v)),
            (v, _) if ty.bits() == 32 => Opnd::Int(i64::from(bits_of(v) as i32)),
            (v, _) => Opnd::Int(bits_of(v) as i64),
        };
        Self { v, ty, ..self }
    }

    /// A number of this value's type.
    pub fn c(self, x: impl Into<Num<'e>>) -> Self {
        let is_float = self.ty.is_float();
        match x.into() {
            Num::V(v) => {
                assert_eq!(v.ty.class(), self.ty.class());
                v
            }
            Num::F(x) if self.ty == Ty::F64 => self.e.f64(x),
            Num::F(x) => self.e.f32(x as f32),
            Num::I(x) if is_float => self.c(x as f64),
            Num::I(x) => self.e.int(self.ty, x),
        }
    }

    fn result(self, class: Class, ty: Ty) -> Self {
        Self { v: Opnd::Reg(self.e.reg(class)), ty, ..self }
    }

    /// One operation with all modifiers.
    pub fn alu(self, op: Alu, round: Option<Round>, ftz: bool, rest: &[Self]) -> Self {
        let class = match (op, self.ty.class()) {
            (Alu::MulWide, Class::B32) => Class::B64,
            (Alu::Popc | Alu::Clz, _) => Class::B32,
            (_, class) => class,
        };
        let ty = match class {
            _ if class == self.ty.class() => self.ty,
            Class::B64 if self.ty.is_signed() => Ty::S64,
            Class::B64 => Ty::U64,
            _ => Ty::U32,
        };
        let out = self.result(class, ty);
        let a = std::iter::once(self.v).chain(rest.iter().map(|x| x.v)).collect();
        self.e.push(Inst::Alu { op, ty: self.ty, round, ftz, sat: false, d: out.reg(), a });
        out
    }

    fn plain(self, op: Alu, rest: &[Self]) -> Self {
        self.alu(op, None, false, rest)
    }

    /// Floats round to nearest even.
    fn rounded(self, op: Alu, rest: &[Self]) -> Self {
        self.alu(op, self.ty.is_float().then_some(Round::Rn), false, rest)
    }

    pub fn fma(self, b: impl Into<Num<'e>>, c: impl Into<Num<'e>>) -> Self {
        let rest = [self.c(b), self.c(c)];
        if self.ty.is_float() {
            self.rounded(Alu::Fma, &rest)
        } else {
            self.plain(Alu::MadLo, &rest)
        }
    }

    /// `self * b + c` rounded another way.
    pub fn fma_by(self, round: Round, b: impl Into<Num<'e>>, c: impl Into<Num<'e>>) -> Self {
        self.alu(Alu::Fma, Some(round), false, &[self.c(b), self.c(c)])
    }

    pub fn add_by(self, round: Round, b: impl Into<Num<'e>>) -> Self {
        self.alu(Alu::Add, Some(round), false, &[self.c(b)])
    }

    /// The value of `c[0] + c[1] x + …` by fma from the highest degree down.
    pub fn horner(self, c: &[f64]) -> Self {
        let (last, rest) = c.split_last().expect("a polynomial has a coefficient");
        rest.iter().rev().fold(self.c(*last), |sum, &c| self.times_plus(sum, c))
    }

    fn times_plus(self, sum: Self, c: f64) -> Self {
        sum.fma(self, c)
    }

    pub fn abs(self) -> Self {
        self.plain(Alu::Abs, &[])
    }

    pub fn sqrt(self) -> Self {
        self.rounded(Alu::Sqrt, &[])
    }

    /// A hardware approximation that flushes subnormal numbers.
    pub fn approx(self, op: Alu) -> Self {
        self.alu(op, None, true, &[])
    }

    /// An approximation that takes and gives subnormal numbers.
    pub fn approx_full(self, op: Alu) -> Self {
        self.plain(op, &[])
    }

    /// Of floats: a number wins over NaN, and -0 is below +0.
    pub fn min(self, b: impl Into<Num<'e>>) -> Self {
        self.plain(Alu::Min, &[self.c(b)])
    }

    pub fn max(self, b: impl Into<Num<'e>>) -> Self {
        self.plain(Alu::Max, &[self.c(b)])
    }

    pub fn op2(self, op: Alu, b: impl Into<Num<'e>>) -> Self {
        self.plain(op, &[self.c(b)])
    }

    pub fn and(self, b: impl Into<Num<'e>>) -> Self {
        self.op2(Alu::And, b)
    }

    pub fn or(self, b: impl Into<Num<'e>>) -> Self {
        self.op2(Alu::Or, b)
    }

    pub fn xor(self, b: impl Into<Num<'e>>) -> Self {
        self.op2(Alu::Xor, b)
    }

    pub fn not(self) -> Self {
        self.plain(Alu::Not, &[])
    }

    /// Counts are 32-bit words, whatever is shifted; from the width on everything is shifted out.
    pub fn shl(self, count: impl Into<Num<'e>>) -> Self {
        self.plain(Alu::Shl, &[self.count(count)])
    }

    pub fn shr(self, count: impl Into<Num<'e>>) -> Self {
        self.plain(Alu::Shr, &[self.count(count)])
    }

    fn count(self, count: impl Into<Num<'e>>) -> Self {
        self.e.int(Ty::U32, 0).c(count)
    }

    /// `len` bits from `at` on, extended as the type says.
    pub fn field(self, at: i64, len: i64) -> Self {
        let c = |x| self.e.int(Ty::U32, x);
        self.plain(Alu::Bfe, &[c(at), c(len)])
    }

    /// Bytes of `self` (0 to 3) and `b` (4 to 7), one for each digit of `which` from the lowest.
    pub fn bytes(self, b: impl Into<Num<'e>>, which: i64) -> Self {
        let word = self.of(Ty::B32);
        let rest = [word.c(b), word.c(which)];
        word.plain(Alu::Prmt, &rest).of(self.ty)
    }

    /// The magnitude of `self` with the sign of another number.
    pub fn with_sign(self, sign: Self) -> Self {
        sign.plain(Alu::CopySign, &[self])
    }

    pub fn cmp(self, cmp: Cmp, b: impl Into<Num<'e>>) -> Self {
        let b = self.c(b);
        let out = self.result(Class::Pred, Ty::Pred);
        let (d, a) = (out.reg(), self.v);
        self.e.push(Inst::Setp { cmp, ty: self.ty, ftz: false, d, a, b: b.v });
        out
    }

    pub fn lt(self, b: impl Into<Num<'e>>) -> Self {
        self.cmp(Cmp::Lt, b)
    }

    pub fn gt(self, b: impl Into<Num<'e>>) -> Self {
        self.cmp(Cmp::Gt, b)
    }

    pub fn eq(self, b: impl Into<Num<'e>>) -> Self {
        self.cmp(Cmp::Eq, b)
    }

    pub fn ne(self, b: impl Into<Num<'e>>) -> Self {
        self.cmp(Cmp::Ne, b)
    }

    pub fn is_nan(self) -> Self {
        self.cmp(Cmp::Nan, self)
    }

    /// `yes` where this condition holds, else `no`.
    pub fn pick(self, yes: Self, no: impl Into<Num<'e>>) -> Self {
        let no = yes.c(no);
        if yes.ty == Ty::Pred {
            return self.and(yes).or(self.not().and(no));
        }
        let out = yes.result(yes.ty.class(), yes.ty);
        let (d, p) = (out.reg(), self.reg());
        self.e.push(Inst::Selp { ty: yes.ty, d, a: yes.v, b: no.v, p });
        out
    }

    /// One of two numbers by this condition.
    pub fn pick_of(self, like: Val<'e>, yes: impl Into<Num<'e>>, no: impl Into<Num<'e>>) -> Self {
        self.pick(like.c(yes), no)
    }

    pub fn cvt(self, to: Ty, round: Option<Round>) -> Self {
        let out = self.result(to.class(), to);
        self.convert(out, None, round, false);
        out
    }

    /// Two f32 to a packed type, `self` in the low half.
    pub fn cvt_pair(self, high: impl Into<Num<'e>>, to: Ty, round: Round, sat: bool) -> Self {
        let out = self.result(to.class(), to);
        let high = self.c(high);
        // PTX puts its second operand low.
        high.convert(out, Some(self.v), Some(round), sat);
        out
    }

    fn convert(self, out: Self, b: Option<Opnd>, round: Option<Round>, sat: bool) {
        let (d, a) = (out.reg(), self.v);
        self.e.push(Inst::Cvt { d, to: out.ty, a, b, from: self.ty, round, ftz: false, sat });
    }

    /// The halves of a register, the low one first.
    pub fn halves(self, ty: Ty) -> [Self; 2] {
        let parts = [(); 2].map(|()| self.result(ty.class(), ty));
        self.e.push(Inst::Unpack { parts: parts.map(Self::reg).to_vec(), a: self.reg() });
        parts
    }

    /// A register twice as wide, `self` in its low half.
    pub fn join(self, high: Self, ty: Ty) -> Self {
        let out = self.result(ty.class(), ty);
        let parts = vec![self.reg(), high.reg()];
        self.e.push(Inst::Pack { d: out.reg(), parts });
        out
    }
}

/// The bits of a constant.
fn bits_of(v: Opnd) -> u64 {
    match v {
        Opnd::Int(x) => x as u64,
        Opnd::F32(x) => x.into(),
        Opnd::F64(x) => x,
        Opnd::Reg(_) | Opnd::Special(_) => unreachable!("only constants have bits"),
    }
}

impl<'e, B: Into<Num<'e>>> Add<B> for Val<'e> {
    type Output = Self;
    fn add(self, b: B) -> Self {
        self.rounded(Alu::Add, &[self.c(b)])
    }
}

impl<'e, B: Into<Num<'e>>> Sub<B> for Val<'e> {
    type Output = Self;
    fn sub(self, b: B) -> Self {
        self.rounded(Alu::Sub, &[self.c(b)])
    }
}

impl<'e, B: Into<Num<'e>>> Mul<B> for Val<'e> {
    type Output = Self;
    fn mul(self, b: B) -> Self {
        let op = if self.ty.is_float() { Alu::Mul } else { Alu::MulLo };
        self.rounded(op, &[self.c(b)])
    }
}

impl<'e, B: Into<Num<'e>>> Div<B> for Val<'e> {
    type Output = Self;
    fn div(self, b: B) -> Self {
        self.rounded(Alu::Div, &[self.c(b)])
    }
}

impl Neg for Val<'_> {
    type Output = Self;
    fn neg(self) -> Self {
        self.plain(Alu::Neg, &[])
    }
}
