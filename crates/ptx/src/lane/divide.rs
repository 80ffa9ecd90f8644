//! Quotients and remainders of positions. 64-bit division is a long instruction sequence: powers of
//! two become shifts, small numbers are divided in 32 bits, and lanes of one row divide once.

use super::value::{Facts, Steps};
use super::{Lanes, Repr};
use crate::inst::*;
use tessera_diag::Diagnostics;
use tessera_ir::OpId;
use tessera_numerics::{DType, ScalarFn};

impl Lanes<'_> {
    /// Floor division of i64, and its remainder.
    pub fn divided(&mut self, id: OpId, f: ScalarFn) -> Result<Option<Repr>, Diagnostics> {
        let op = &self.func.ops[id];
        let rest = match f {
            ScalarFn::FloorDiv => false,
            ScalarFn::Mod => true,
            _ => return Ok(None),
        };
        if self.dtype(op.operands[0]) != DType::I64 {
            return Ok(None);
        }
        if self.is_row(id) {
            return self.row(id, rest).map(Some);
        }
        let by = self.int_of(op.operands[1]);
        let repr = self.level(id, |me, args| {
            let q = me.quotient(id, args[0], args[1], by)?;
            Ok(if rest { me.rest(args[0], args[1], q, by) } else { q })
        })?;
        Ok(Some(repr))
    }

    /// Whether the lanes of a thread can share one quotient.
    pub fn is_row(&self, id: OpId) -> bool {
        let operands = &self.func.ops[id].operands;
        let (Repr::Steps(s), Repr::One(_)) = (self.repr(operands[0]), self.repr(operands[1]))
        else {
            return false;
        };
        let short = (1..1 << 20).contains(&s.step) && s.facts.low && s.facts.is_near();
        // Rows that end within the lanes of a thread are not rare.
        let whole = |k: i64| k > 0 && k % (s.step * self.width as i64) == 0;
        self.survey.collecting && short && self.int_of(operands[1]).is_none_or(whole)
    }

    /// Checks that all lanes have the quotient of the first.
    fn row(&mut self, id: OpId, rest: bool) -> Result<Repr, Diagnostics> {
        let op = &self.func.ops[id];
        let (Repr::Steps(s), Repr::One(by)) =
            (self.repr(op.operands[0]).clone(), self.repr(op.operands[1]).clone())
        else {
            unreachable!("`is_row` has looked")
        };
        let known = self.int_of(op.operands[1]);
        let divisor = known.map_or(Opnd::Reg(by), Opnd::Int);
        let (q, r) = match self.survey.rows.get(&(s.first, divisor)) {
            Some(&row) => row,
            None => {
                let q = self.quotient(id, s.first, by, known)?;
                let r = self.rest(s.first, by, q, known);
                // A divisor that is not positive fails this check.
                let last = self.add64(r, Opnd::Int(s.step * (self.width as i64 - 1)));
                let same = self.asm.setp(Cmp::Lt, Ty::S64, last, divisor);
                self.require(same);
                self.survey.rows.insert((s.first, divisor), (q, r));
                (q, r)
            }
        };
        if !rest {
            return Ok(Repr::One(q));
        }
        let by = known.map_or(Facts::NONE, Facts::of_constant);
        let align = s.facts.align.min(by.align);
        let facts = Facts { align, exact: false, low: true, bits: s.facts.bits.min(by.bits) };
        Ok(Repr::Steps(Steps { first: r, step: s.step, facts }))
    }

    /// `a // b`; by zero gives 0.
    fn quotient(
        &mut self,
        id: OpId,
        a: Reg,
        b: Reg,
        known: Option<i64>,
    ) -> Result<Reg, Diagnostics> {
        if let Some(&(_, _, q)) = self.quotients.iter().find(|(x, y, _)| (*x, *y) == (a, b)) {
            return Ok(q);
        }
        if let Some(k) = known.filter(|&k| k > 0 && k.count_ones() == 1) {
            let by = Opnd::Int(k.trailing_zeros().into());
            let q = self.asm.int(Alu::Shr, Ty::S64, &[a.into(), by]);
            self.quotients.push((a, b, q));
            return Ok(q);
        }
        let small = known.is_some_and(|k| (1..1 << 31).contains(&k));
        let whole = |me: &mut Self| {
            let made = me.scalars().apply(ScalarFn::FloorDiv, DType::I64, &[a, b]);
            me.sure(id, made)
        };
        let q = if known.is_some() && !small {
            whole(self)?
        } else {
            let q = self.asm.reg(Class::B64);
            let [wide, done] = [self.asm.label(), self.asm.label()];
            let all = match small {
                true => a,
                false => self.asm.int(Alu::Or, Ty::B64, &[a.into(), b.into()]),
            };
            let narrow = self.asm.setp(Cmp::Lt, Ty::U64, all, Opnd::Int(1 << 32));
            self.asm.bra_if(narrow, false, wide);
            let [x, y] = [a, b].map(|r| self.asm.cvt(Ty::U32, Ty::U64, None, r));
            let y = known.map_or(Opnd::Reg(y), Opnd::Int);
            let mut short = self.asm.int(Alu::Div, Ty::U32, &[x.into(), y]);
            if known.is_none() {
                let zero = self.asm.setp(Cmp::Eq, Ty::U32, y, Opnd::Int(0));
                short = self.asm.selp(Ty::B32, zero, Opnd::Int(0), short);
            }
            let short = self.asm.cvt(Ty::U64, Ty::U32, None, short);
            self.asm.mov_to(Ty::B64, q, short);
            self.asm.bra(done);
            self.asm.place(wide);
            let long = whole(self)?;
            self.asm.mov_to(Ty::B64, q, long);
            self.asm.place(done);
            q
        };
        self.quotients.push((a, b, q));
        Ok(q)
    }

    /// The remainder of a quotient; zero where the divisor is zero.
    fn rest(&mut self, a: Reg, b: Reg, q: Reg, known: Option<i64>) -> Reg {
        if let Some(k) = known.filter(|&k| k > 0 && k.count_ones() == 1) {
            return self.asm.int(Alu::And, Ty::B64, &[a.into(), Opnd::Int(k - 1)]);
        }
        let by = known.map_or(Opnd::Reg(b), Opnd::Int);
        let whole = self.asm.int(Alu::MulLo, Ty::S64, &[q.into(), by]);
        let rest = self.asm.int(Alu::Sub, Ty::S64, &[a.into(), whole.into()]);
        if known.is_some_and(|k| k != 0) {
            return rest;
        }
        let zero = self.asm.setp(Cmp::Eq, Ty::S64, b, Opnd::Int(0));
        self.asm.selp(Ty::B64, zero, Opnd::Int(0), rest)
    }
}
