//! Loops and branches. Conditions are the same in all threads of a group, so that every branch is
//! taken by all of them.

use super::{Repr, Select};
use crate::inst::*;
use crate::scalar::carrier;
use tessera_diag::Diagnostics;
use tessera_ir::{BlockId, OpId, Type, Value};
use tessera_staged::StagedOp;
use tessera_tile::TileOp;

impl Select<'_> {
    /// Fresh registers for a value of this type, to be written on several paths.
    fn fresh(&mut self, v: Value) -> Vec<Reg> {
        let (n, dtype) = match self.func.ty(v) {
            Type::Scalar(dtype) => (1, *dtype),
            ty => (self.layout(v).regs() as usize, ty.dtype()),
        };
        (0..n).map(|_| self.asm.reg(carrier(dtype))).collect()
    }

    fn values_of(&mut self, v: Value) -> Vec<Reg> {
        match self.func.ty(v) {
            Type::Scalar(_) => vec![self.scalar(v)],
            _ => self.regs(v),
        }
    }

    fn bind(&mut self, v: Value, regs: &[Reg]) {
        let repr = match self.func.ty(v) {
            Type::Scalar(_) => Repr::Scalar(regs[0]),
            _ => Repr::Tile(regs.to_vec()),
        };
        self.set(v, repr);
    }

    /// Whether a loop carries a tile as the words that it was loaded in: to decode them where they are
    /// loaded would wait for them a turn too early.
    fn carries_words(&self, init: Value, next: Value) -> bool {
        let loaded = self.func.def(next).is_some_and(|op| op.code == StagedOp::Tile(TileOp::Load));
        loaded && matches!(self.repr(init), Repr::Packed(_))
    }

    /// The words of a tile of narrow elements.
    fn words_of(&mut self, v: Value) -> Vec<Reg> {
        if let Repr::Packed(words) = self.repr(v) {
            return words.clone();
        }
        let (dtype, regs) = (self.dtype(v), self.regs(v));
        let each = 4 / dtype.bytes();
        let mut scalars = self.scalars();
        regs.chunks(each).map(|codes| scalars.encode_packed(dtype, codes)).collect()
    }

    /// What a block yields.
    fn yielded(&self, block: BlockId) -> Vec<Value> {
        let end = self.func.terminator(block);
        end.map_or(Vec::new(), |op| self.func.ops[op].operands.clone())
    }

    /// Moves all at once: what is still to be read is not written over.
    fn move_together(&mut self, to: &[Vec<Reg>], from: &[Vec<Reg>]) {
        let to: Vec<Reg> = to.concat();
        let mut from: Vec<Reg> = from.concat();
        for i in 0..from.len() {
            // A source that an earlier move writes is saved first.
            if to[..i].contains(&from[i]) && to[i] != from[i] {
                let saved = self.asm.reg(from[i].class);
                self.move_all(&[saved], &[from[i]]);
                from[i] = saved;
            }
        }
        self.move_all(&to, &from);
    }

    pub fn counted(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let [lo, hi, step] = [0, 1, 2].map(|i| self.scalar(op.operands[i]));
        let body = op.regions[0];
        let args = func.blocks[body].args.clone();
        let i = self.asm.mov(Ty::B64, lo);
        self.set(args[0], Repr::Scalar(i));
        let (inits, next) = (op.group("init").to_vec(), self.yielded(body));
        let as_words: Vec<bool> =
            inits.iter().zip(&next).map(|(&v, &n)| self.carries_words(v, n)).collect();
        let values = |me: &mut Self, of: &[Value]| -> Vec<Vec<Reg>> {
            let both = of.iter().zip(&as_words);
            both.map(|(&v, &words)| if words { me.words_of(v) } else { me.values_of(v) }).collect()
        };
        let bind = |me: &mut Self, of: &[Value], carried: &[Vec<Reg>]| {
            for ((&v, regs), &words) in of.iter().zip(carried).zip(&as_words) {
                if words { me.set(v, Repr::Packed(regs.clone())) } else { me.bind(v, regs) }
            }
        };
        let inits = values(self, &inits);
        let mut carried: Vec<Vec<Reg>> = Vec::new();
        for ((&v, init), &words) in args[1..].iter().zip(&inits).zip(&as_words) {
            let fresh = match words {
                true => init.iter().map(|_| self.asm.reg(Class::B32)).collect(),
                false => self.fresh(v),
            };
            carried.push(fresh);
        }
        self.move_together(&carried, &inits);
        bind(self, &args[1..], &carried);
        let [again, done] = [self.asm.label(), self.asm.label()];
        let none = self.asm.setp(Cmp::Ge, Ty::S64, i, hi);
        self.asm.when(none, true, |asm| asm.emit(Inst::Bra { to: done, uniform: true }));
        let before = self.sync_state();
        self.enter_loop(&[body]);
        if func.def(op.operands[2]).is_some_and(|d| d.code == StagedOp::Workers) {
            self.begin_group();
        }
        self.open_loop(body);
        self.begin_rotation(id);
        self.asm.place(again);
        self.block(body)?;
        let next = values(self, &next);
        self.move_together(&carried, &next);
        let stepped = self.asm.int(Alu::Add, Ty::S64, &[i.into(), step.into()]);
        self.asm.mov_to(Ty::B64, i, stepped);
        let more = self.asm.setp(Cmp::Lt, Ty::S64, i, hi);
        self.asm.when(more, true, |asm| asm.emit(Inst::Bra { to: again, uniform: true }));
        self.end_rotation();
        self.close_loop();
        self.asm.place(done);
        self.leave_loop();
        // There may have been no turn at all.
        self.join_sync_state(before);
        bind(self, &op.results, &carried);
        Ok(())
    }

    pub fn conditional(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let (cond, body) = (op.regions[0], op.regions[1]);
        let inits: Vec<Vec<Reg>> =
            op.group("init").to_vec().iter().map(|&v| self.values_of(v)).collect();
        let args = func.blocks[cond].args.clone();
        let carried: Vec<Vec<Reg>> = args.iter().map(|&v| self.fresh(v)).collect();
        self.move_together(&carried, &inits);
        for (&v, regs) in args.iter().chain(&func.blocks[body].args).zip(carried.iter().cycle()) {
            self.bind(v, regs);
        }
        let [again, done] = [self.asm.label(), self.asm.label()];
        self.enter_loop(&[cond, body]);
        self.asm.place(again);
        self.block(cond)?;
        let go_on = self.scalar(self.yielded(cond)[0]);
        // Here it is left, after any number of turns.
        let left = self.sync_state();
        self.asm.when(go_on, false, |asm| asm.emit(Inst::Bra { to: done, uniform: true }));
        self.block(body)?;
        let next: Vec<Vec<Reg>> = self.yielded(body).iter().map(|&v| self.values_of(v)).collect();
        self.move_together(&carried, &next);
        self.asm.emit(Inst::Bra { to: again, uniform: true });
        self.asm.place(done);
        self.leave_loop();
        self.swap_sync_state(left);
        for (&v, regs) in op.results.iter().zip(&carried) {
            self.bind(v, regs);
        }
        Ok(())
    }

    pub fn branch(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let cond = self.scalar(op.operands[0]);
        let results: Vec<Vec<Reg>> = op.results.iter().map(|&v| self.fresh(v)).collect();
        let [otherwise, done] = [self.asm.label(), self.asm.label()];
        self.asm.when(cond, false, |asm| asm.emit(Inst::Bra { to: otherwise, uniform: true }));
        let before = self.sync_state();
        self.block(op.regions[0])?;
        let values: Vec<Vec<Reg>> =
            self.yielded(op.regions[0]).iter().map(|&v| self.values_of(v)).collect();
        self.move_together(&results, &values);
        self.asm.emit(Inst::Bra { to: done, uniform: true });
        self.asm.place(otherwise);
        let then = self.swap_sync_state(before);
        self.block(op.regions[1])?;
        let values: Vec<Vec<Reg>> =
            self.yielded(op.regions[1]).iter().map(|&v| self.values_of(v)).collect();
        self.move_together(&results, &values);
        self.asm.place(done);
        self.join_sync_state(then);
        for (&v, regs) in op.results.iter().zip(&results) {
            self.bind(v, regs);
        }
        Ok(())
    }
}
