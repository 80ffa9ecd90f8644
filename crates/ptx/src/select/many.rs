//! tanh of large tiles, as GELU epilogues and attention with soft-capped scores have them.
//!
//! Exponentials and reciprocals use the special function unit (SFU, 16 elements per clock). All
//! other work for an element takes issue slots and register ports that the MMAs need too. So there
//! are two paths: a short polynomial where all elements of a warp are small, and a path for any
//! element. Both have the same absolute error bound. A constant that all results are multiplied by
//! is folded into the polynomials. A power of two of the result is computed in both paths, so that
//! the SFU runs concurrently with the polynomial, and not after it.

use super::{Repr, Select};
use crate::inst::*;
use tessera_ir::{OpId, Value};
use tessera_numerics::{DType, Profile, Scalar, ScalarFn};
use tessera_staged::StagedOp;
use tessera_tile::TileOp;
use tessera_tile::attrs::constant_of;

/// From this many elements per thread a tile is large.
const MANY: usize = 16;
/// Independent chains of the range test.
const CHAINS: usize = 4;

/// A tanh and the ops that are computed with it.
#[derive(Copy, Clone)]
struct Chain {
    tanh: OpId,
    /// The constant that results are multiplied by, and by which op.
    times: f64,
    times_at: Option<OpId>,
    /// Whether 2 is raised to that power.
    power: bool,
    /// The op that gives the final result.
    end: OpId,
}

impl Select<'_> {
    /// Emits the tanh of a large tile together with the ops that alone use it: a product with a
    /// constant, and the power of two of that. Returns whether `id` is one of these ops; the last
    /// of them emits all.
    pub fn tanh_of_many(&mut self, id: OpId, f: ScalarFn) -> bool {
        let func = self.func;
        let operand = func.ops[id].operands[0];
        let tanh = match f {
            ScalarFn::Tanh => Some(id),
            ScalarFn::Mul => self.tanh_times(id).map(|t| t.0),
            ScalarFn::Exp2 => func.def_id(operand).map(|o| self.tanh_times(o).map_or(o, |t| t.0)),
            _ => None,
        };
        let Some(chain) = tanh.filter(|&t| self.is_tanh_of_many(t)).map(|t| self.chain(t)) else {
            return false;
        };
        let ends = chain.end == id;
        // A product or a power of a value with other uses is not part of it.
        let inside =
            ends || f == ScalarFn::Tanh || f == ScalarFn::Mul && chain.times_at == Some(id);
        if ends {
            self.emit_tanh(chain);
        }
        inside
    }

    /// A tanh and the ops that alone use it.
    fn chain(&self, tanh: OpId) -> Chain {
        let mut chain = Chain { tanh, times: 1.0, times_at: None, power: false, end: tanh };
        if let Some(user) = self.only_user(tanh)
            && let Some((_, times)) = self.tanh_times(user)
        {
            chain = Chain { times, times_at: Some(user), end: user, ..chain };
        }
        let power = self.only_user(chain.end).filter(|&user| {
            self.func.ops[user].code == StagedOp::Tile(TileOp::Ew(ScalarFn::Exp2))
                && self.is_straight(chain.end, user)
        });
        match power {
            Some(end) => Chain { power: true, end, ..chain },
            None => chain,
        }
    }

    fn is_tanh_of_many(&self, id: OpId) -> bool {
        let func = self.func;
        let op = &func.ops[id];
        if op.code != StagedOp::Tile(TileOp::Ew(ScalarFn::Tanh)) {
            return false;
        }
        let x = op.operands[0];
        let tile = !matches!(self.repr(x), Repr::Scalar(_) | Repr::Splat(_));
        self.profile != Profile::Strict
            && func.ty(x).dtype() == DType::F32
            && func.ty(x).is_tile()
            && tile
            && self.layout(x).regs() as usize >= MANY
    }

    /// The tanh that a product multiplies by a known constant, and the constant.
    fn tanh_times(&self, id: OpId) -> Option<(OpId, f64)> {
        let func = self.func;
        let op = &func.ops[id];
        let number = |v: Value| {
            let mut v = v;
            while let Some(op) = func.def(v).filter(|op| {
                [StagedOp::Tile(TileOp::Broadcast), StagedOp::ConvertLayout].contains(&op.code)
            }) {
                v = op.operands[0];
            }
            let op = func.def(v).filter(|op| op.code == StagedOp::Tile(TileOp::Const))?;
            match constant_of(op, DType::F32) {
                Scalar::F32(x) if x.is_finite() => Some(f64::from(x)),
                _ => None,
            }
        };
        let tanh = |v: Value| {
            let made = func.def_id(v).filter(|&o| self.is_straight(o, id))?;
            self.is_tanh_of_many(made).then_some(made)
        };
        if op.code != StagedOp::Tile(TileOp::Ew(ScalarFn::Mul)) || !func.ty(op.result()).is_tile() {
            return None;
        }
        let [a, b] = [op.operands[0], op.operands[1]];
        let second = || tanh(b).zip(number(a));
        tanh(a).zip(number(b)).or_else(second)
    }

    /// The only user of an op's result, if there is exactly one.
    fn only_user(&self, id: OpId) -> Option<OpId> {
        let func = self.func;
        let v = func.ops[id].result();
        let mut users = func.walk().into_iter().filter(|&o| func.ops[o].operands.contains(&v));
        users.next().filter(|_| users.next().is_none())
    }

    /// The polynomial where all elements of a warp are small, and else the general path.
    fn emit_tanh(&mut self, chain: Chain) {
        let func = self.func;
        let (x, factor) = self.times_one(chain.tanh, func.ops[chain.tanh].operands[0]);
        let unit = self.scalars().tanh_unit(factor);
        let xs = self.regs(x);
        let ys: Vec<Reg> =
            xs.iter().map(|&x| self.asm.float(Alu::Mul, Ty::F32, &[x.into(), unit])).collect();
        let large = self.any_two_or_more(&ys);
        // The general path is placed after the kernel.
        let [slow, done] = [self.asm.label(), self.asm.label()];
        self.asm.when(large, true, |asm| asm.emit(Inst::Bra { to: slow, uniform: true }));
        let out: Vec<Reg> = ys
            .iter()
            .map(|&y| {
                let r = self.scalars().tanh_below(y, chain.times);
                self.raised(r, chain)
            })
            .collect();
        self.asm.place(done);
        let here = self.asm.kernel.body.len();
        self.asm.place(slow);
        for (&y, &to) in ys.iter().zip(&out) {
            let r = self.scalars().tanh_any(y, chain.times);
            let r = self.raised(r, chain);
            self.asm.mov_to(Ty::B32, to, r);
        }
        self.asm.emit(Inst::Bra { to: done, uniform: true });
        self.behind.extend(self.asm.kernel.body.split_off(here));
        self.set(func.ops[chain.end].result(), Repr::Tile(out));
    }

    fn raised(&mut self, r: Reg, chain: Chain) -> Reg {
        match chain.power {
            true => self.asm.approx(Alu::Ex2Approx, Ty::F32, &[r.into()]),
            false => r,
        }
    }

    /// Whether a thread of the warp has an element of magnitude 2 or more, or a NaN: all these have
    /// the highest exponent bit set, so one test covers all elements.
    fn any_two_or_more(&mut self, xs: &[Reg]) -> Reg {
        // Independent chains, with two elements per instruction.
        let chains: Vec<Reg> = (0..CHAINS.min(xs.len()))
            .map(|first| {
                let mut own = xs.iter().skip(first).step_by(CHAINS);
                let begin = *own.next().expect("there are as many numbers as chains");
                own.fold(begin, |all, &x| self.asm.int(Alu::Or, Ty::B32, &[all.into(), x.into()]))
            })
            .collect();
        let all = chains
            .iter()
            .skip(1)
            .fold(chains[0], |all, &x| self.asm.int(Alu::Or, Ty::B32, &[all.into(), x.into()]));
        let bit = self.asm.int(Alu::And, Ty::B32, &[all.into(), Opnd::Int(1 << 30)]);
        let own = self.asm.setp(Cmp::Ne, Ty::B32, bit, Opnd::Int(0));
        let d = self.asm.reg(Class::Pred);
        let p = Guardless { reg: own, negated: false };
        self.asm.emit(Inst::Vote { kind: Vote::Any, d, p, mask: Opnd::Int(-1) });
        d
    }

    /// A tile and the scalar that all of it is multiplied by, if a value has this form.
    fn times_one(&self, user: OpId, v: Value) -> (Value, Option<Reg>) {
        let func = self.func;
        let made = func.def_id(v).filter(|&o| {
            func.ops[o].code == StagedOp::Tile(TileOp::Ew(ScalarFn::Mul))
                && self.is_straight(o, user)
        });
        let Some(made) = made else { return (v, None) };
        let [a, b] = [func.ops[made].operands[0], func.ops[made].operands[1]];
        match (self.repr(a), self.repr(b)) {
            (Repr::Splat(_), Repr::Splat(_)) => (v, None),
            (_, Repr::Splat(r)) => (a, Some(*r)),
            (Repr::Splat(r), _) => (b, Some(*r)),
            _ => (v, None),
        }
    }

    /// Whether two ops are in one block, with nothing between them, such as regions and MMAs, that
    /// may overwrite the operand of the first.
    fn is_straight(&self, first: OpId, last: OpId) -> bool {
        let func = self.func;
        let block = func.ops[last].block;
        let ops = &func.blocks[block].ops;
        let mut between = ops.iter().skip_while(|&&o| o != first).take_while(|&&o| o != last);
        let keeps = |&o: &OpId| {
            let op = &func.ops[o];
            op.regions.is_empty() && !matches!(op.code, StagedOp::MmaOpen | StagedOp::MmaIssue)
        };
        func.ops[first].block == block && between.all(keeps)
    }
}
