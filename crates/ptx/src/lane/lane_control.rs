//! Loops and branches. A thread with one lane branches directly. A thread with several lanes
//! branches where the condition is the same for all its lanes, and otherwise executes both sides,
//! each predicated on the lanes that take it.
//!
//! Where lanes synchronise, threads without a lane skip code that only lanes run.

use super::uniform::yields;
use super::{Lanes, Repr};
use crate::inst::*;
use crate::scalar::carrier;
use tessera_diag::Diagnostics;
use tessera_ir::{OpId, Value};
use tessera_target::frame;
use tessera_tile::TileOp;

impl Lanes<'_> {
    /// Registers for a value that is written on several paths.
    fn fresh(&mut self, v: Value) -> Vec<Reg> {
        let n = if self.uniform.varies(v) { self.width } else { 1 };
        let class = carrier(self.dtype(v));
        (0..n).map(|_| self.asm.reg(class)).collect()
    }

    fn bind(&mut self, v: Value, regs: &[Reg]) {
        let repr = match regs {
            [one] => Repr::One(*one),
            each => Repr::Each(each.to_vec()),
        };
        self.set(v, repr);
    }

    /// The registers of values, as many as their destinations have.
    fn sources(&mut self, from: &[Value], to: &[Vec<Reg>]) -> Vec<Vec<Reg>> {
        let one = |(&v, to): (&Value, &Vec<Reg>)| match to.len() {
            1 if self.width > 1 => vec![self.one(v)],
            _ => self.each(v),
        };
        from.iter().zip(to).map(one).collect()
    }

    /// A parallel move: no source is overwritten before it is read.
    fn move_together(&mut self, to: &[Vec<Reg>], from: &[Vec<Reg>]) {
        let (to, mut from) = (to.concat(), from.concat());
        for i in 0..from.len() {
            if to[..i].contains(&from[i]) && to[i] != from[i] {
                from[i] = self.asm.mov(bits_of(from[i].class), from[i]);
            }
        }
        for (d, a) in to.into_iter().zip(from).filter(|(d, a)| d != a) {
            self.asm.mov_to(bits_of(d.class), d, a);
        }
    }

    fn move_values(&mut self, to: &[Vec<Reg>], from: &[Value]) {
        let from = self.sources(from, to);
        self.move_together(to, &from);
    }

    /// Lets threads without a lane skip a region, if they need not run it; returns the lane guard
    /// outside, for [`Self::leave`].
    fn enter(&mut self, id: OpId, past: Label) -> Option<Vec<Reg>> {
        let outer = self.guard.clone();
        if self.width == 1
            && !self.uniform.for_all(self.func, id)
            && let Some(guard) = self.guard.take()
        {
            self.asm.bra_if(guard[0], false, past);
        }
        outer
    }

    /// A value that decides which way control goes at an op. Where lanes synchronise inside, they
    /// agree on it, also where it varies in form; a thread without a lane takes the value of the
    /// group's first lane and goes the same way.
    fn agreed(&mut self, id: OpId, v: Value, r: Reg) -> Reg {
        if self.width > 1 || !self.uniform.synchronises(id) || !self.uniform.varies(v) {
            return r;
        }
        let Some(guard) = self.guard.clone() else { return r };
        let dtype = self.dtype(v);
        let first = self.of_first_lane(dtype, r);
        self.scalars().select(dtype, guard[0], r, first)
    }

    pub fn branch(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let cond = op.operands[0];
        if let Some(&known) = self.survey.known.get(&cond) {
            let side = op.regions[usize::from(!known)];
            self.block(side)?;
            for (&v, y) in op.results.iter().zip(yields(func, side)) {
                let repr = self.repr(y).clone();
                self.set(v, repr);
            }
            return Ok(());
        }
        let Repr::One(p) = *self.repr(cond) else { return self.both_paths(id) };
        let p = self.agreed(id, cond, p);
        let results: Vec<Vec<Reg>> = op.results.iter().map(|&v| self.fresh(v)).collect();
        let [otherwise, done] = [self.asm.label(), self.asm.label()];
        if self.guard.is_some() && self.width == 1 {
            // Threads that skip it have no values of their own.
            for &r in results.iter().flatten() {
                self.clear(r);
            }
        }
        let outer = self.enter(id, done);
        let together = self.converged;
        self.converged &= !self.uniform.varies(cond);
        self.asm.bra_if(p, false, otherwise);
        let (before, guard) = (self.shared.is_dirty(), self.guard.clone());
        self.block(op.regions[0])?;
        self.move_values(&results, &yields(func, op.regions[0]));
        self.asm.bra(done);
        self.asm.place(otherwise);
        let then = self.shared.swap_dirty(before);
        self.guard = guard;
        self.block(op.regions[1])?;
        self.move_values(&results, &yields(func, op.regions[1]));
        self.asm.place(done);
        self.converged = together;
        self.shared.join_dirty(then);
        self.guard = outer;
        for (&v, regs) in op.results.iter().zip(&results) {
            self.bind(v, regs);
        }
        Ok(())
    }

    fn clear(&mut self, r: Reg) {
        self.asm.mov_to(bits_of(r.class), r, Opnd::Int(0));
    }

    /// Lanes of the thread diverge: each side is executed for the lanes that take it.
    fn both_paths(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let cond = self.each(op.operands[0]);
        let outer = self.guard.clone();
        let mut sides = Vec::new();
        for (&region, yes) in op.regions.iter().zip([true, false]) {
            let mut side = cond.clone();
            if func.blocks[region].ops.len() > 1 {
                if !yes {
                    side = side.into_iter().map(|p| self.not(p)).collect();
                }
                self.guard = self.both_each(outer.clone(), Some(side));
                self.block(region)?;
            }
            let out: Vec<Vec<Reg>> = yields(func, region).iter().map(|&v| self.each(v)).collect();
            sides.push(out);
        }
        self.guard = outer;
        for (i, &v) in op.results.iter().enumerate() {
            let dtype = self.dtype(v);
            let pick = |k: usize| match (sides[0][i][k], sides[1][i][k]) {
                (a, b) if a == b => a,
                (a, b) => self.scalars().select(dtype, cond[k], a, b),
            };
            let regs = (0..cond.len()).map(pick).collect();
            self.set(v, Repr::Each(regs));
        }
        Ok(())
    }

    pub fn counted(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let [lo, hi, step] = [0, 1, 2].map(|i| {
            let v = op.operands[i];
            let r = self.one(v);
            self.agreed(id, v, r)
        });
        let body = op.regions[0];
        let args = func.blocks[body].args.clone();
        let at = self.asm.mov(Ty::B64, lo);
        let carried: Vec<Vec<Reg>> = args[1..].iter().map(|&v| self.fresh(v)).collect();
        self.move_values(&carried, op.group("init"));
        let [again, done] = [self.asm.label(), self.asm.label()];
        let outer = self.enter(id, done);
        let known = self.int_of(op.operands[2]);
        let size = func.def(op.operands[2]).is_some_and(|def| def.code == TileOp::GroupSize);
        if known.is_none_or(|s| s <= 0) && !size {
            self.check_step(id, step);
        }
        let none = self.asm.setp(Cmp::Ge, Ty::S64, at, hi);
        self.asm.bra_if(none, true, done);
        self.asm.place(again);
        self.bind(args[0], &[at]);
        self.carry(&args[1..], &carried);
        // A repeated body finds the group's shared memory as it left it.
        let before = self.shared.swap_dirty(true);
        self.block(body)?;
        self.move_values(&carried, &yields(func, body));
        if known == Some(1) {
            let next = self.add64(at, Opnd::Int(1));
            self.asm.mov_to(Ty::B64, at, next);
            let more = self.asm.setp(Cmp::Lt, Ty::S64, at, hi);
            self.asm.bra_if(more, true, again);
        } else {
            // The remaining count is positive, so no addition overflows.
            let left = self.asm.int(Alu::Sub, Ty::S64, &[hi.into(), at.into()]);
            let more = self.asm.setp(Cmp::Lt, Ty::U64, step, left);
            let next = self.add64(at, step);
            self.asm.mov_to(Ty::B64, at, next);
            self.asm.bra_if(more, true, again);
        }
        self.asm.place(done);
        self.shared.join_dirty(before);
        self.guard = outer;
        self.carry(&op.results, &carried);
        Ok(())
    }

    fn carry(&mut self, values: &[Value], regs: &[Vec<Reg>]) {
        for (&v, regs) in values.iter().zip(regs) {
            self.bind(v, regs);
        }
    }

    /// Ends the thread where its loop would not terminate.
    fn check_step(&mut self, id: OpId, step: Reg) {
        let site = self.site(id, || "expected a loop step above 0".into());
        let bad = self.asm.setp(Cmp::Le, Ty::S64, step, Opnd::Int(0));
        self.stop_where(bad, site);
    }

    /// Ends the thread if another was stopped: it may wait for something that will never happen.
    pub fn poll(&mut self) {
        if !self.uniform.together || !self.uniform.stops {
            return;
        }
        let (status, d, past) =
            (self.word(frame::CONTEXT), self.asm.reg(Class::B32), self.asm.label());
        self.asm.emit(Inst::Ld {
            space: Space::Global,
            ty: Ty::B32,
            d: vec![d],
            addr: Addr::reg(status, 0),
            cache: Cache::Usual,
            sem: Sem::Relaxed,
            scope: Scope::Gpu,
        });
        let fine = self.asm.setp(Cmp::Eq, Ty::U32, d, Opnd::Int(0));
        self.asm.bra_if(fine, true, past);
        self.asm.emit(Inst::Ret);
        self.asm.place(past);
    }

    pub fn conditional(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let (cond, body) = (op.regions[0], op.regions[1]);
        let args = func.blocks[cond].args.clone();
        let carried: Vec<Vec<Reg>> = args.iter().map(|&v| self.fresh(v)).collect();
        self.move_values(&carried, op.group("init"));
        let [again, done] = [self.asm.label(), self.asm.label()];
        let outer = self.enter(id, done);
        self.asm.place(again);
        self.carry(&args, &carried);
        self.carry(&func.blocks[body].args, &carried);
        let before = self.shared.swap_dirty(true);
        self.block(cond)?;
        let decides = yields(func, cond)[0];
        let go_on = self.one(decides);
        let go_on = self.agreed(id, decides, go_on);
        self.asm.bra_if(go_on, false, done);
        self.poll();
        let tested = self.shared.is_dirty();
        self.block(body)?;
        self.move_values(&carried, &yields(func, body));
        self.asm.bra(again);
        self.asm.place(done);
        self.shared.swap_dirty(before || tested);
        self.guard = outer;
        self.carry(&op.results, &carried);
        Ok(())
    }
}

/// The type by which registers of a class are moved.
pub fn bits_of(class: Class) -> Ty {
    match class {
        Class::Pred => Ty::Pred,
        Class::B16 => Ty::B16,
        Class::B32 => Ty::B32,
        Class::B64 => Ty::B64,
    }
}
