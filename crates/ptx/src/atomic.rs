//! Atomic read-modify-write of one element: by one instruction where the target has it and it
//! rounds as requested, else by a compare-and-swap loop.

use crate::inst::*;
use crate::scalar::{Scalars, Unsupported};
use tessera_ir::Type;
use tessera_numerics::{Basic, DType, Profile, ReduceOp, Rounding, ScalarFn};

/// The operation on an element.
#[derive(Copy, Clone, Debug)]
pub enum What {
    Fold(Fold),
    Exchange,
    /// Stores the value if the element has the expected code.
    CompareExchange,
}

/// Combines the element in memory with a value: decode, convert to the value's dtype, combine,
/// convert back by the memory's own rounding.
#[derive(Copy, Clone, Debug)]
pub struct Fold {
    pub f: ScalarFn,
    /// The dtype of the value.
    pub compute: DType,
    pub stored: DType,
    pub round: Rounding,
    pub saturate: bool,
}

impl Fold {
    pub fn new(memory: &Type, f: ScalarFn, compute: DType) -> Self {
        let (round, saturate) = match memory {
            Type::View { elem, .. } => (elem.rounding(), elem.saturates()),
            ty => (Rounding::Rne, ty.dtype().saturates_by_default()),
        };
        Self { f, compute, stored: memory.dtype(), round, saturate }
    }

    /// `old`, in its carrier, combined with `x`; in the carrier of the stored dtype.
    pub fn value(&self, s: &mut Scalars<'_>, old: Reg, x: Reg) -> Result<Reg, Unsupported> {
        let default = self.compute.saturates_by_default();
        let old = s.cast(self.stored, self.compute, Rounding::Rne, default, old)?;
        let new = s.apply(self.f, self.compute, &[old, x])?;
        s.cast(self.compute, self.stored, self.round, self.saturate, new)
    }

    /// Whether the order of folds shows in the result.
    pub fn shows_order(&self, reduce: ReduceOp) -> bool {
        let sums = matches!(reduce, ReduceOp::Sum | ReduceOp::Prod);
        sums && (self.compute.is_float() || self.stored.is_float() || self.saturate)
    }

    /// The native instruction, if there is one. Under `strict` none is used for float sums: they
    /// give a NaN of their own, and in global memory f32 sums flush subnormal numbers.
    #[deny(clippy::wildcard_enum_match_arm)]
    fn native(&self, profile: Profile) -> Option<(AtomOp, Ty)> {
        use Basic::*;
        use DType::*;
        let exact = profile == Profile::Strict && self.stored.is_float();
        if self.compute != self.stored || exact {
            return None;
        }
        let bits = match self.stored {
            I32 => Ty::S32,
            U32 => Ty::U32,
            I64 => Ty::S64,
            U64 => Ty::U64,
            F32 => return (self.f == ScalarFn::Add).then_some((AtomOp::Add, Ty::F32)),
            F64 => return (self.f == ScalarFn::Add).then_some((AtomOp::Add, Ty::F64)),
            Bool | I4 | I8 | I16 | U8 | U16 | Tf32 | F16 | BF16 | Fp8E4M3 | Fp8E5M2 | Fp6E3M2
            | Fp6E2M3 | Fp4E2M1 | E8M0 => return None,
        };
        let plain = if bits.bits() == 64 { Ty::B64 } else { Ty::B32 };
        Some(match self.f.basic()? {
            // Signed and unsigned sums wrap alike.
            Add if bits == Ty::S64 => (AtomOp::Add, Ty::U64),
            Add => (AtomOp::Add, bits),
            Maximum => (AtomOp::Max, bits),
            Minimum => (AtomOp::Min, bits),
            And => (AtomOp::And, plain),
            Or => (AtomOp::Or, plain),
            Xor => (AtomOp::Xor, plain),
            Sub | Mul | Div | FloorDiv | Mod | Neg | Abs | Fma | Sqrt | Recip | Floor | Ceil
            | Round | Trunc | Sign | Clamp | Not | Shl | Shr | Popcount | Clz | Ctz | Brev
            | MulHi | FunnelShift | Eq | Ne | Lt | Le | Gt | Ge | IsNan | IsInf | IsFinite => {
                return None;
            }
        })
    }
}

/// One atomic operation.
pub struct Change {
    pub space: Space,
    pub dtype: DType,
    pub what: What,
    pub sem: Sem,
    pub scope: Scope,
    /// Where it does not hold, nothing is changed and the result is undefined.
    pub when: Option<Reg>,
    pub wants_old: bool,
}

impl Change {
    /// Emits the operation at `addr`; returns the old value, in its carrier, if that is wanted.
    pub fn emit(
        &self,
        s: &mut Scalars<'_>,
        addr: Reg,
        value: Reg,
        expected: Option<Reg>,
    ) -> Result<Option<Reg>, Unsupported> {
        let dtype = self.dtype;
        if let What::Fold(fold) = self.what
            && let Some((op, ty)) = fold.native(s.profile)
        {
            let a = Opnd::Reg(s.encode(dtype, value));
            return Ok(self.one(s, op, ty, addr, a, None));
        }
        let bytes = dtype.bytes();
        if bytes >= 4 && !matches!(self.what, What::Fold(_)) {
            let ty = if bytes == 8 { Ty::B64 } else { Ty::B32 };
            let a = Opnd::Reg(s.encode(dtype, value));
            return Ok(match (self.what, expected) {
                (What::CompareExchange, Some(e)) => {
                    let e = Opnd::Reg(s.encode(dtype, e));
                    self.one(s, AtomOp::Cas, ty, addr, e, Some(a))
                }
                _ => self.one(s, AtomOp::Exch, ty, addr, a, None),
            });
        }
        self.by_trying(s, addr, value, expected).map(Some)
    }

    fn one(
        &self,
        s: &mut Scalars<'_>,
        op: AtomOp,
        ty: Ty,
        addr: Reg,
        a: Opnd,
        b: Option<Opnd>,
    ) -> Option<Reg> {
        let (space, sem, scope) = (self.space, self.sem, self.scope);
        let addr = Addr::reg(addr, 0);
        let alone = !self.wants_old && b.is_none() && op != AtomOp::Exch;
        if alone {
            let a = vec![a];
            s.asm
                .maybe(self.when, |asm| asm.emit(Inst::Red { space, sem, scope, op, ty, addr, a }));
            return None;
        }
        let d = s.asm.mov(ty, Opnd::Int(0));
        s.asm.maybe(self.when, |asm| {
            asm.emit(Inst::Atom { space, sem, scope, op, ty, d, addr, a, b })
        });
        Some(s.decode(self.dtype, d))
    }

    /// A compare-and-swap loop on the word that contains the element.
    fn by_trying(
        &self,
        s: &mut Scalars<'_>,
        addr: Reg,
        value: Reg,
        expected: Option<Reg>,
    ) -> Result<Reg, Unsupported> {
        let dtype = self.dtype;
        let bytes = dtype.bytes() as u32;
        let (ty, class) = match bytes {
            8 => (Ty::B64, Class::B64),
            2 => (Ty::B16, Class::B16),
            _ => (Ty::B32, Class::B32),
        };
        // A byte can be anywhere in its word.
        let (word, shift) = if bytes >= 2 {
            (addr, None)
        } else {
            let of_addr = if addr.class == Class::B64 { Ty::B64 } else { Ty::B32 };
            let word = s.asm.int(Alu::And, of_addr, &[addr.into(), Opnd::Int(-4)]);
            let low = match addr.class {
                Class::B64 => s.asm.cvt(Ty::U32, Ty::U64, None, addr),
                _ => addr,
            };
            let low = s.asm.int(Alu::And, Ty::B32, &[low.into(), Opnd::Int(3)]);
            (word, Some(s.asm.int(Alu::Shl, Ty::B32, &[low.into(), Opnd::Int(3)])))
        };
        let code_class = crate::scalar::stored(dtype);
        let [again, done] = [s.asm.label(), s.asm.label()];
        let seen = s.asm.mov(ty, Opnd::Int(0));
        let old_code = s.asm.mov(if code_class == Class::B16 { Ty::B16 } else { ty }, Opnd::Int(0));
        if let Some(p) = self.when {
            s.asm.bra_if(p, false, done);
        }
        // Other threads may change it concurrently, so this is no plain load either.
        s.asm.emit(Inst::Ld {
            space: self.space,
            ty,
            d: vec![seen],
            addr: Addr::reg(word, 0),
            cache: Cache::Usual,
            sem: Sem::Relaxed,
            scope: self.scope,
        });
        s.asm.place(again);
        let code = match shift {
            None => seen,
            Some(shift) => {
                let part = s.asm.int(Alu::Shr, Ty::U32, &[seen.into(), shift.into()]);
                let keep = Opnd::Int((1 << (8 * bytes)) - 1);
                let part = s.asm.int(Alu::And, Ty::B32, &[part.into(), keep]);
                s.asm.cvt(Ty::U16, Ty::U32, None, part)
            }
        };
        let code_ty = if code_class == Class::B16 { Ty::B16 } else { ty };
        s.asm.mov_to(code_ty, old_code, code);
        let new = match self.what {
            What::Fold(fold) => {
                let old = s.decode(dtype, code);
                let new = fold.value(s, old, value)?;
                s.encode(dtype, new)
            }
            What::Exchange => s.encode(dtype, value),
            What::CompareExchange => {
                let new = s.encode(dtype, value);
                let wanted = expected.unwrap_or(value);
                let wanted = s.encode(dtype, wanted);
                let cmp = if code_class == Class::B16 { Ty::B16 } else { ty };
                let same = s.asm.setp(Cmp::Eq, cmp, code, wanted);
                s.asm.selp(cmp, same, new, code)
            }
        };
        let new_word = match shift {
            None => new,
            Some(shift) => {
                let part = s.asm.cvt(Ty::U32, Ty::U16, None, new);
                let keep = Opnd::Int((1 << (8 * bytes)) - 1);
                let part = s.asm.int(Alu::And, Ty::B32, &[part.into(), keep]);
                let part = s.asm.int(Alu::Shl, Ty::B32, &[part.into(), shift.into()]);
                let hole = s.asm.mov(Ty::B32, keep);
                let hole = s.asm.int(Alu::Shl, Ty::B32, &[hole.into(), shift.into()]);
                let hole = s.asm.int(Alu::Not, Ty::B32, &[hole.into()]);
                let rest = s.asm.int(Alu::And, Ty::B32, &[seen.into(), hole.into()]);
                s.asm.int(Alu::Or, Ty::B32, &[rest.into(), part.into()])
            }
        };
        let d = s.asm.reg(class);
        let (space, sem, scope) = (self.space, self.sem, self.scope);
        let (a, b) = (seen.into(), Some(new_word.into()));
        let at = Addr::reg(word, 0);
        s.asm.emit(Inst::Atom { space, sem, scope, op: AtomOp::Cas, ty, d, addr: at, a, b });
        let same = s.asm.setp(Cmp::Eq, ty, d, seen);
        s.asm.mov_to(ty, seen, d);
        s.asm.bra_if(same, false, again);
        s.asm.place(done);
        Ok(s.decode(dtype, old_code))
    }
}
