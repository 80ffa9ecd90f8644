//! Values that no data moves for: constants, elementwise functions, conversions.

use super::{Repr, Select};
use crate::inst::*;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, Op, OpId, Type, Value};
use tessera_numerics::{DType, Profile, ReduceOp, Rounding, ScalarFn};
use tessera_staged::{Staged, StagedOp};
use tessera_tile::TileOp;
use tessera_tile::attrs::{cast_mode, constant_of};

impl Select<'_> {
    /// The registers of a tile, one for each of its layout.
    pub fn regs(&mut self, v: Value) -> Vec<Reg> {
        match self.repr(v).clone() {
            Repr::Tile(regs) => regs,
            Repr::Splat(r) => vec![r; self.layout(v).regs() as usize],
            Repr::Lazy(m) => {
                let layout = self.layout(v);
                self.read_shared(&m, &layout)
            }
            Repr::Packed(words) => {
                let dtype = self.dtype(v);
                let mut scalars = self.scalars();
                words.into_iter().flat_map(|w| scalars.decode_packed(dtype, w)).collect()
            }
            other => unreachable!("expected a tile that was computed, got {other:?}"),
        }
    }

    /// Applies `f` to the operands of an op element by element: a scalar, one number for all
    /// elements, or a register each.
    fn each(
        &mut self,
        id: OpId,
        mut f: impl FnMut(&mut Self, &[Reg]) -> Result<Reg, Diagnostics>,
    ) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let result = op.result();
        let one = |me: &Self, v: Value| match me.repr(v) {
            Repr::Scalar(r) | Repr::Splat(r) => Some(*r),
            _ => None,
        };
        let singles: Vec<Option<Reg>> = op.operands.iter().map(|&v| one(self, v)).collect();
        if singles.iter().all(Option::is_some) {
            let args: Vec<Reg> = singles.into_iter().flatten().collect();
            let r = f(self, &args)?;
            let is_tile = !matches!(func.ty(result), Type::Scalar(_));
            self.set(result, if is_tile { Repr::Splat(r) } else { Repr::Scalar(r) });
            return Ok(());
        }
        let n = self.layout(result).regs() as usize;
        let operands: Vec<Vec<Reg>> = op
            .operands
            .iter()
            .zip(singles)
            .map(|(&v, single)| match single {
                Some(r) => vec![r; n],
                None => self.regs(v),
            })
            .collect();
        let mut out = Vec::with_capacity(n);
        for i in 0..n {
            let args: Vec<Reg> = operands.iter().map(|o| o[i]).collect();
            out.push(f(self, &args)?);
        }
        self.set(result, Repr::Tile(out));
        Ok(())
    }

    pub fn elementwise(&mut self, id: OpId, f: ScalarFn) -> Result<(), Diagnostics> {
        let operand = self.func.ops[id].operands[0];
        let dtype = self.dtype(operand);
        if matches!(f, ScalarFn::FloorDiv | ScalarFn::Mod) && *self.func.ty(operand) == Type::INDEX
        {
            return self.quotient(id, f);
        }
        if f == ScalarFn::Exp
            && dtype == DType::F32
            && self.profile != Profile::Strict
            && self.is_never_positive(operand)
        {
            // What a short form loses grows with the result, which is at most 1 here.
            return self.each(id, |me, args| {
                let log2e = Opnd::F32(std::f32::consts::LOG2_E.to_bits());
                let y = me.asm.float(Alu::Mul, Ty::F32, &[args[0].into(), log2e]);
                Ok(me.asm.approx(Alu::Ex2Approx, Ty::F32, &[y.into()]))
            });
        }
        self.each(id, |me, args| {
            let r = me.scalars().apply(f, dtype, args);
            r.or_else(|u| me.unsupported(id, u.to_string()))
        })
    }

    /// A quotient or remainder of indices: they are seldom wide, and narrow ones are divided by far
    /// shorter code. The same in all threads, so that all take one way.
    fn quotient(&mut self, id: OpId, f: ScalarFn) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let result = op.result();
        let [a, b] = [0, 1].map(|i| self.scalar(op.operands[i]));
        let wide = |me: &mut Self| {
            let r = me.scalars().apply(f, DType::I64, &[a, b]);
            r.or_else(|u| me.unsupported(id, u.to_string()))
        };
        if self.asm.known(b).is_some() {
            let r = wide(self)?;
            self.set(result, Repr::Scalar(r));
            return Ok(());
        }
        let d = self.asm.reg(Class::B64);
        let [long, done] = [self.asm.label(), self.asm.label()];
        let both = self.asm.int(Alu::Or, Ty::B64, &[a.into(), b.into()]);
        let narrow = self.asm.setp(Cmp::Lt, Ty::U64, both, Opnd::Int(1 << 32));
        let some = self.asm.setp(Cmp::Ne, Ty::U64, b, Opnd::Int(0));
        let short = self.and(narrow, some);
        self.asm.when(short, false, |asm| asm.emit(Inst::Bra { to: long, uniform: true }));
        let [x, y] = [a, b].map(|r| self.asm.cvt(Ty::U32, Ty::U64, None, r));
        let code = if f == ScalarFn::Mod { Alu::Rem } else { Alu::Div };
        let q = self.asm.int(code, Ty::U32, &[x.into(), y.into()]);
        let q = self.asm.cvt(Ty::U64, Ty::U32, None, q);
        self.asm.mov_to(Ty::B64, d, q);
        self.asm.emit(Inst::Bra { to: done, uniform: true });
        self.asm.place(long);
        let q = wide(self)?;
        self.asm.mov_to(Ty::B64, d, q);
        self.asm.place(done);
        self.set(result, Repr::Scalar(d));
        Ok(())
    }

    /// Whether a value is a tile less its own maximum: `t - max(t, axis)`, expanded along that axis.
    fn is_never_positive(&self, v: Value) -> bool {
        let func = self.func;
        let tile = |code: TileOp| move |op: &&Op<Staged>| op.code == StagedOp::Tile(code);
        let placed = |mut v: Value| {
            while let Some(op) = func.def(v).filter(|op| op.code == StagedOp::ConvertLayout) {
                v = op.operands[0];
            }
            v
        };
        let axis = |op: &Op<Staged>| op.attr("axis").and_then(Attr::as_int);
        let Some(sub) = func.def(v).filter(tile(TileOp::Ew(ScalarFn::Sub))) else { return false };
        let mut most = placed(sub.operands[1]);
        if let Some(op) = func.def(most).filter(tile(TileOp::Broadcast)) {
            most = placed(op.operands[0]);
        }
        let expanded = func.def(most).filter(tile(TileOp::Expand));
        if let Some(op) = expanded {
            most = placed(op.operands[0]);
        }
        let Some(max) = func.def(most).filter(tile(TileOp::Reduce)) else { return false };
        let along = match expanded {
            Some(op) => axis(op) == axis(max),
            None => func.ty(max.operands[0]).rank() == 1,
        };
        along
            && max.attr("op").and_then(Attr::as_word) == Some("max")
            && placed(max.operands[0]) == placed(sub.operands[0])
    }

    pub fn select_op(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let dtype = self.dtype(self.func.ops[id].result());
        self.each(id, |me, args| Ok(me.scalars().select(dtype, args[0], args[1], args[2])))
    }

    pub fn cast(&mut self, id: OpId) -> Result<(), Diagnostics> {
        if self.cast_to_words(id) {
            return Ok(());
        }
        let op = &self.func.ops[id];
        let (from, to) = (self.dtype(op.operands[0]), self.dtype(op.result()));
        let (round, saturate) = cast_mode(op, to);
        self.each(id, |me, args| {
            let r = me.scalars().cast(from, to, round, saturate, args[0]);
            r.or_else(|u| me.unsupported(id, u.to_string()))
        })
    }

    /// As a store would convert.
    pub fn cast_plain(
        &mut self,
        id: OpId,
        from: DType,
        to: DType,
        x: Reg,
    ) -> Result<Reg, Diagnostics> {
        if from == to {
            return Ok(x);
        }
        let saturate = to.saturates_by_default();
        let r = self.scalars().cast(from, to, Rounding::Rne, saturate, x);
        r.or_else(|u| self.unsupported(id, u.to_string()))
    }

    pub fn combine(
        &mut self,
        id: OpId,
        op: &str,
        dtype: DType,
        a: Reg,
        b: Reg,
    ) -> Result<Reg, Diagnostics> {
        let op = ReduceOp::from_name(op).unwrap_or(ReduceOp::Sum);
        let r = self.scalars().combine(op, dtype, a, b);
        r.or_else(|u| self.unsupported(id, u.to_string()))
    }

    /// What changes nothing it is combined with.
    pub fn identity(&mut self, op: &str, dtype: DType) -> Reg {
        let op = ReduceOp::from_name(op).unwrap_or(ReduceOp::Sum);
        self.scalars().identity(op, dtype)
    }

    pub fn bitcast(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (from, to) = (self.dtype(op.operands[0]), self.dtype(op.result()));
        self.each(id, |me, args| Ok(me.scalars().bitcast(from, to, args[0])))
    }

    pub fn philox(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let word = op.attr("word").and_then(Attr::as_int).unwrap_or(0) as u32;
        let counter = self.dtype(op.operands[1]);
        self.each(id, |me, args| {
            let wide = me.cast_plain(id, counter, DType::U64, args[1])?;
            Ok(me.scalars().philox(args[0], wide, word))
        })
    }

    pub fn constant(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let result = op.result();
        let dtype = self.dtype(result);
        let value = constant_of(op, dtype);
        let r = self.scalars().constant(dtype, value);
        let is_tile = !matches!(self.func.ty(result), Type::Scalar(_));
        self.set(result, if is_tile { Repr::Splat(r) } else { Repr::Scalar(r) });
        Ok(())
    }

    pub fn iota(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let result = op.result();
        let start = op.attr("start").and_then(Attr::as_int).unwrap_or(0);
        let layout = self.layout(result);
        let mut out = Vec::new();
        for reg in 0..layout.regs() {
            let c = self.coords(&layout, reg)[0];
            let n = i64::from(c.offset) + start;
            out.push(match c.thread {
                None => self.asm.mov(Ty::B32, Opnd::Int(n)),
                Some(t) if n == 0 => t,
                Some(t) => self.asm.int(Alu::Add, Ty::S32, &[t.into(), Opnd::Int(n)]),
            });
        }
        self.set(result, Repr::Tile(out));
        Ok(())
    }
}
