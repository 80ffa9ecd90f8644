//! Ops without data movement between threads: constants, elementwise functions, conversions.

use super::{Repr, Select};
use crate::inst::*;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, Op, OpId, Type, Value};
use tessera_numerics::{DType, Profile, ReduceOp, Rounding, Scalar, ScalarFn};
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

    /// Applies `f` to the operands of an op element by element: to scalars, to one value for all
    /// elements, or to each register.
    fn each(
        &mut self,
        id: OpId,
        f: impl FnMut(&mut Self, &[Reg]) -> Result<Reg, Diagnostics>,
    ) -> Result<(), Diagnostics> {
        let func = self.func;
        self.each_of(id, &func.ops[id].operands, f)
    }

    /// The same for other values than the op's operands.
    fn each_of(
        &mut self,
        id: OpId,
        operands: &[Value],
        mut f: impl FnMut(&mut Self, &[Reg]) -> Result<Reg, Diagnostics>,
    ) -> Result<(), Diagnostics> {
        let func = self.func;
        let result = func.ops[id].result();
        let one = |me: &Self, v: Value| match me.repr(v) {
            Repr::Scalar(r) | Repr::Splat(r) => Some(*r),
            _ => None,
        };
        let singles: Vec<Option<Reg>> = operands.iter().map(|&v| one(self, v)).collect();
        if singles.iter().all(Option::is_some) {
            let args: Vec<Reg> = singles.into_iter().flatten().collect();
            let r = f(self, &args)?;
            let is_tile = !matches!(func.ty(result), Type::Scalar(_));
            self.set(result, if is_tile { Repr::Splat(r) } else { Repr::Scalar(r) });
            return Ok(());
        }
        let n = self.layout(result).regs() as usize;
        let operands: Vec<Vec<Reg>> = operands
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
        if matches!(f, ScalarFn::FloorDiv | ScalarFn::Mod)
            && *self.func.ty(operand) == Type::INDEX
            && self.combining.is_none()
        {
            return self.quotient(id, f);
        }
        if f == ScalarFn::Exp
            && dtype == DType::F32
            && self.profile != Profile::Strict
            && self.is_never_positive(operand)
        {
            // The error of a short form grows with the result, which is at most 1 here.
            return self.each(id, |me, args| {
                let log2e = Opnd::F32(std::f32::consts::LOG2_E.to_bits());
                let y = me.asm.float(Alu::Mul, Ty::F32, &[args[0].into(), log2e]);
                Ok(me.asm.approx(Alu::Ex2Approx, Ty::F32, &[y.into()]))
            });
        }
        if let Some(x) = self.tanh_next_to_one(id, f) {
            return self.twice_sigmoid(id, x, f == ScalarFn::Sub);
        }
        if f == ScalarFn::Tanh && self.is_next_to_one(id) {
            // The user computes the whole expression.
            return Ok(());
        }
        if self.tanh_of_many(id, f) {
            return Ok(());
        }
        self.each(id, |me, args| {
            let r = me.scalars().apply(f, dtype, args);
            r.or_else(|u| me.unsupported(id, u.to_string()))
        })
    }

    /// The `x` of `1 + tanh x` and `1 - tanh x`. They are `2 / (1 + e^∓2x)`, which is shorter than
    /// tanh itself and loses nothing where the two nearly cancel.
    fn tanh_next_to_one(&self, id: OpId, f: ScalarFn) -> Option<Value> {
        let func = self.func;
        let op = &func.ops[id];
        let f32s = self.profile != Profile::Strict && func.ty(op.result()).dtype() == DType::F32;
        let one = |v: Value| {
            let mut v = v;
            while let Some(op) = func.def(v).filter(|op| {
                let same = [StagedOp::Tile(TileOp::Broadcast), StagedOp::ConvertLayout];
                same.contains(&op.code)
            }) {
                v = op.operands[0];
            }
            let constant = func.def(v).filter(|op| op.code == StagedOp::Tile(TileOp::Const));
            constant.is_some_and(|op| constant_of(op, DType::F32) == Scalar::F32(1.0))
        };
        let tanh = |v: Value| {
            let op = func.def(v).filter(|o| o.code == StagedOp::Tile(TileOp::Ew(ScalarFn::Tanh)));
            op.map(|op| op.operands[0])
        };
        match f {
            ScalarFn::Add | ScalarFn::Sub if f32s => {
                let [a, b] = [op.operands[0], op.operands[1]];
                let second = tanh(b).filter(|_| one(a));
                second.or_else(|| tanh(a).filter(|_| one(b) && f == ScalarFn::Add))
            }
            _ => None,
        }
    }

    /// Whether all users of a tanh are such sums.
    fn is_next_to_one(&self, id: OpId) -> bool {
        let func = self.func;
        let v = func.ops[id].result();
        let mut users = func.walk().into_iter().filter(|&o| func.ops[o].operands.contains(&v));
        users.all(|user| match func.ops[user].code {
            StagedOp::Tile(TileOp::Ew(f)) => self.tanh_next_to_one(user, f).is_some(),
            _ => false,
        })
    }

    /// `2 / (1 + e^-2x)`, or of `-x`.
    fn twice_sigmoid(&mut self, id: OpId, x: Value, negated: bool) -> Result<(), Diagnostics> {
        let by = std::f32::consts::LOG2_E * if negated { 2.0 } else { -2.0 };
        self.each_of(id, &[x], |me, args| {
            let y = me.asm.float(Alu::Mul, Ty::F32, &[args[0].into(), Opnd::F32(by.to_bits())]);
            let e = me.asm.approx(Alu::Ex2Approx, Ty::F32, &[y.into()]);
            let one = Opnd::F32(1f32.to_bits());
            let sum = me.asm.float(Alu::Add, Ty::F32, &[e.into(), one]);
            let half = me.asm.approx(Alu::RcpApprox, Ty::F32, &[sum.into()]);
            Ok(me.asm.float(Alu::Add, Ty::F32, &[half.into(), half.into()]))
        })
    }

    /// A quotient or remainder of indices: they are rarely wide, and narrow ones have much shorter
    /// code. The operands are uniform, so that the branch is too.
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

    /// Whether a value is a tile less its own maximum: `t - max(t, axis)`, expanded along that
    /// axis.
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
        if self.choose_words(id) {
            return Ok(());
        }
        let dtype = self.dtype(self.func.ops[id].result());
        self.each(id, |me, args| Ok(me.scalars().select(dtype, args[0], args[1], args[2])))
    }

    pub fn cast(&mut self, id: OpId) -> Result<(), Diagnostics> {
        if self.multiply_words(id) || self.cast_to_words(id) {
            return Ok(());
        }
        let op = &self.func.ops[id];
        let (from, to) = (self.dtype(op.operands[0]), self.dtype(op.result()));
        let (round, saturate) = cast_mode(op, to);
        let narrows = from == DType::F32 && matches!(to, DType::BF16 | DType::F16);
        if narrows && round == Rounding::Rne && !saturate && self.is_only_stored(id) {
            // The store rounds in the same way, two elements per instruction.
            let repr = self.repr(op.operands[0]).clone();
            self.set(op.result(), repr);
            return Ok(());
        }
        self.each(id, |me, args| {
            let r = me.scalars().cast(from, to, round, saturate, args[0]);
            r.or_else(|u| me.unsupported(id, u.to_string()))
        })
    }

    /// Whether a tile in registers is only stored to memory of its dtype.
    fn is_only_stored(&self, id: OpId) -> bool {
        let func = self.func;
        let op = &func.ops[id];
        let v = op.result();
        let stores = |&user: &OpId| {
            let user = &func.ops[user];
            let uses = user.operands.iter().filter(|&&o| o == v).count();
            let stored = user.code == StagedOp::Tile(TileOp::Store)
                && user.operands[1] == v
                && func.ty(user.operands[0]).dtype() == func.ty(v).dtype();
            uses == 0 || uses == 1 && stored
        };
        matches!(self.repr(op.operands[0]), Repr::Tile(_)) && func.walk().iter().all(stores)
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

    /// The identity of a combining operator.
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
