//! Loops and branches. Conditions are uniform over the threads of a group, so every branch is
//! uniform.

use super::unroll_by_two::Iterations;
use super::wgmma::{Add, Pending};
use super::{Repr, Select};
use crate::inst::*;
use crate::scalar::carrier;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, BlockId, OpId, Type, Value};
use tessera_staged::{StagedFunc, StagedOp};
use tessera_tile::{TileOp, magnitude, upper_bits};

/// Where a loop-carried value is.
pub enum Carried {
    Regs(Vec<Reg>),
    /// A tile of narrow elements as packed words.
    Words(Vec<Reg>),
    /// An accumulator stays in the registers it was opened in: WGMMAs may be in flight to them.
    /// `first` is false until the first iteration has written values, where there are none before.
    Pending {
        regs: Vec<Reg>,
        first: Option<Reg>,
    },
}

impl Carried {
    /// Registers without values before the first iteration.
    fn without_numbers(&self) -> &[Reg] {
        match self {
            Carried::Pending { regs, first: Some(_) } => regs,
            Carried::Pending { first: None, .. } | Carried::Regs(_) | Carried::Words(_) => &[],
        }
    }
}

/// Whether the end of a loop plus its step may be no i64. Positions in steps of 1 stop at the end.
fn may_overflow(func: &StagedFunc, end: Value, step: Value) -> bool {
    let known = |code: StagedOp| match code {
        StagedOp::Tile(code) => Ok(code),
        StagedOp::Worker | StagedOp::Workers => Err(31),
        _ => Err(64),
    };
    let one = func.def(step).filter(|op| op.code == StagedOp::Tile(TileOp::Const));
    let single = one.and_then(|op| op.attr("value").and_then(Attr::as_int)) == Some(1);
    // A position is below the end, which alone says how far the next can be.
    !single && (upper_bits(func, end, &known) > 62 || magnitude(func, step, &known) > 62)
}

impl Select<'_> {
    /// Gives registers to loop-carried values, or to those that branches leave, and initialises
    /// them.
    pub fn carry(&mut self, args: &[Value], inits: &[Value]) -> Vec<Carried> {
        self.carry_as(args, inits, &vec![false; args.len()])
    }

    /// The same, some of them as words.
    pub fn carry_as(&mut self, args: &[Value], inits: &[Value], as_words: &[bool]) -> Vec<Carried> {
        let (mut to, mut from) = (Vec::new(), Vec::new());
        let mut out = Vec::new();
        for ((&arg, &init), &words) in args.iter().zip(inits).zip(as_words) {
            let pending = match self.repr(init) {
                Repr::Pending(p) => Some(p.clone()),
                _ => None,
            };
            out.push(match pending {
                Some(p) if p.add == Add::No && self.begins_with_mma(arg) => {
                    let first = Some(self.asm.mov(Ty::Pred, Opnd::Int(0)));
                    Carried::Pending { regs: p.regs, first }
                }
                Some(p) => {
                    self.fill_empty(&p);
                    Carried::Pending { regs: p.regs, first: None }
                }
                None if words => {
                    let words = self.words_of(init);
                    let regs: Vec<Reg> = words.iter().map(|r| self.asm.reg(r.class)).collect();
                    from.push(words);
                    to.push(regs.clone());
                    Carried::Words(regs)
                }
                None => {
                    let regs = self.fresh(arg);
                    from.push(self.values_of(init));
                    to.push(regs.clone());
                    Carried::Regs(regs)
                }
            });
        }
        self.move_together(&to, &from);
        out
    }

    pub fn bind_carried(&mut self, v: Value, carried: &Carried) {
        match carried {
            Carried::Regs(regs) => self.bind(v, regs),
            Carried::Words(words) => self.set(v, Repr::Packed(words.clone())),
            Carried::Pending { regs, first } => {
                let add = first.map_or(Add::Yes, Add::When);
                self.set(v, Repr::Pending(Pending { regs: regs.clone(), add }));
            }
        }
    }

    /// Binds a result of a loop, after at least one iteration.
    fn bind_left(&mut self, v: Value, carried: &Carried) {
        match carried {
            Carried::Regs(regs) => self.bind(v, regs),
            Carried::Words(words) => self.set(v, Repr::Packed(words.clone())),
            Carried::Pending { regs, .. } => {
                self.set(v, Repr::Pending(Pending { regs: regs.clone(), add: Add::Yes }));
            }
        }
    }

    /// Moves the values of the next iteration into place.
    pub fn carry_on(&mut self, carried: &[Carried], next: &[Value]) {
        let (mut to, mut from) = (Vec::new(), Vec::new());
        for (carried, &v) in carried.iter().zip(next) {
            match carried {
                Carried::Regs(regs) => {
                    to.push(regs.clone());
                    from.push(self.values_of(v));
                }
                Carried::Words(words) => {
                    to.push(words.clone());
                    from.push(self.words_of(v));
                }
                Carried::Pending { regs, first } => {
                    let next = self.pending(v);
                    if next.regs == *regs {
                        self.fill_empty(&next);
                    } else {
                        // Another accumulator takes its place: no WGMMA may be in flight to it.
                        self.settle(&next);
                        to.push(regs.clone());
                        from.push(next.regs);
                    }
                    if let Some(p) = *first {
                        self.asm.mov_to(Ty::Pred, p, Opnd::Int(1));
                    }
                }
            }
        }
        self.move_together(&to, &from);
    }

    /// Fresh registers for a value of this type, to be written on several paths.
    pub fn fresh(&mut self, v: Value) -> Vec<Reg> {
        let (n, dtype) = match self.func.ty(v) {
            Type::Scalar(dtype) => (1, *dtype),
            ty => (self.layout(v).regs() as usize, ty.dtype()),
        };
        (0..n).map(|_| self.asm.reg(carrier(dtype))).collect()
    }

    pub fn values_of(&mut self, v: Value) -> Vec<Reg> {
        match self.func.ty(v) {
            Type::Scalar(_) => vec![self.scalar(v)],
            _ => self.regs(v),
        }
    }

    pub fn bind(&mut self, v: Value, regs: &[Reg]) {
        let repr = match self.func.ty(v) {
            Type::Scalar(_) => Repr::Scalar(regs[0]),
            _ => Repr::Tile(regs.to_vec()),
        };
        self.set(v, repr);
    }

    /// Whether a loop carries a tile as packed words: decoding them where they are loaded would
    /// wait for the load an iteration too early.
    fn carries_words(&self, init: Value, next: Value) -> bool {
        let loaded = self.func.def(next).is_some_and(|op| op.code == StagedOp::Tile(TileOp::Load));
        matches!(self.repr(init), Repr::Packed(_)) && (loaded || self.has_packed_uses(init))
    }

    /// The words of a tile of narrow elements.
    pub fn words_of(&mut self, v: Value) -> Vec<Reg> {
        if let Repr::Packed(words) = self.repr(v) {
            return words.clone();
        }
        let dtype = self.dtype(v);
        let each = 4 / dtype.bytes();
        if let Repr::Splat(r) = *self.repr(v) {
            let word = self.scalars().encode_packed(dtype, &vec![r; each]);
            return vec![word; self.layout(v).regs() as usize / each];
        }
        let regs = self.regs(v);
        let mut scalars = self.scalars();
        regs.chunks(each).map(|codes| scalars.encode_packed(dtype, codes)).collect()
    }

    /// What a block yields.
    pub fn yielded(&self, block: BlockId) -> Vec<Value> {
        let end = self.func.terminator(block);
        end.map_or(Vec::new(), |op| self.func.ops[op].operands.clone())
    }

    /// A parallel move: no source is overwritten before it is read.
    pub fn move_together(&mut self, to: &[Vec<Reg>], from: &[Vec<Reg>]) {
        let to: Vec<Reg> = to.concat();
        let mut from: Vec<Reg> = from.concat();
        for i in 0..from.len() {
            // A source that an earlier move overwrites is saved first.
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
        let summed = self.open_counters(id);
        let i = self.asm.mov(Ty::B64, lo);
        self.set(args[0], Repr::Scalar(i));
        let next = self.yielded(body);
        let inits = op.group("init");
        let as_words: Vec<bool> =
            inits.iter().zip(&next).map(|(&v, &n)| self.carries_words(v, n)).collect();
        let carried = self.carry_as(&args[1..], inits, &as_words);
        for (&v, carried) in args[1..].iter().zip(&carried) {
            self.bind_carried(v, carried);
        }
        let [again, done] = [self.asm.label(), self.asm.label()];
        let none = self.asm.setp(Cmp::Ge, Ty::S64, i, hi);
        let empty: Vec<Reg> = carried.iter().flat_map(Carried::without_numbers).copied().collect();
        // Where code runs once, the code after the loop follows it directly, and what is jumped
        // over comes before.
        let ahead = self.once.is_some() && !empty.is_empty();
        let skip = if empty.is_empty() || ahead { done } else { self.asm.label() };
        if ahead {
            let some = self.asm.label();
            self.asm.when(none, false, |asm| asm.emit(Inst::Bra { to: some, uniform: true }));
            empty.iter().for_each(|&r| self.asm.mov_to(Ty::B32, r, Opnd::Int(0)));
            self.asm.emit(Inst::Bra { to: done, uniform: true });
            self.asm.place(some);
        } else {
            self.asm.when(none, true, |asm| asm.emit(Inst::Bra { to: skip, uniform: true }));
        }
        let before = self.sync_state();
        self.enter_loop(&[body]);
        self.begin_iterations(&[body]);
        if func.def(op.operands[2]).is_some_and(|d| d.code == StagedOp::Workers) {
            self.begin_group();
        }
        self.open_loop(body);
        self.begin_rotation(id);
        let stamping = self.begin_stamp(id);
        self.asm.place(again);
        self.stamp_iteration(stamping.as_ref());
        let start = self.asm.kernel.body.len();
        self.block(body)?;
        let may_overflow = may_overflow(func, op.operands[1], op.operands[2]);
        let iterations = Iterations { at: i, end: hi, step, may_overflow };
        let odd = match self.unrolls_by_two(id, &carried, start, i) {
            true => Some(self.second_iteration(body, &carried, &iterations, stamping.as_ref())?),
            false => None,
        };
        self.carry_on(&carried, &next);
        self.end_iteration();
        let more = self.step_on(&iterations);
        self.asm.when(more, true, |asm| asm.emit(Inst::Bra { to: again, uniform: true }));
        odd.into_iter().for_each(|odd| self.leave_odd(odd));
        self.end_rotation();
        self.close_loop();
        self.end_iterations();
        self.end_stamp(stamping);
        if !empty.is_empty() {
            // Paths join with no WGMMA in flight: one of them writes accumulators itself.
            self.asm.emit(Inst::WgmmaWait { groups: 0 });
        }
        if !empty.is_empty() && !ahead {
            self.asm.emit(Inst::Bra { to: done, uniform: true });
            self.asm.place(skip);
            empty.into_iter().for_each(|r| self.asm.mov_to(Ty::B32, r, Opnd::Int(0)));
        }
        self.asm.place(done);
        self.leave_loop();
        // There may have been no iteration at all.
        self.join_sync_state(before);
        for ((&v, carried), &next) in op.results.iter().zip(&carried).zip(&next) {
            match carried {
                Carried::Regs(regs) if self.is_fused_accumulator(next) => {
                    let regs = self.untied(regs);
                    self.bind(v, &regs);
                }
                carried => self.bind_left(v, carried),
            }
        }
        self.close_counters(&summed);
        Ok(())
    }

    pub fn conditional(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let (cond, body) = (op.regions[0], op.regions[1]);
        let args = func.blocks[cond].args.clone();
        let carried = self.carry(&args, op.group("init"));
        for (&v, carried) in args.iter().chain(&func.blocks[body].args).zip(carried.iter().cycle())
        {
            self.bind_carried(v, carried);
        }
        let [again, done] = [self.asm.label(), self.asm.label()];
        self.enter_loop(&[cond, body]);
        self.begin_iterations(&[cond, body]);
        self.asm.place(again);
        self.block(cond)?;
        let go_on = self.scalar(self.yielded(cond)[0]);
        // The loop is left here, after any number of iterations.
        let left = self.sync_state();
        self.asm.when(go_on, false, |asm| asm.emit(Inst::Bra { to: done, uniform: true }));
        self.block(body)?;
        let next = self.yielded(body);
        self.carry_on(&carried, &next);
        self.end_iteration();
        self.asm.emit(Inst::Bra { to: again, uniform: true });
        self.end_iterations();
        self.asm.place(done);
        self.leave_loop();
        // The last iteration may be the only one that accessed memory.
        let last_iteration = self.swap_sync_state(left);
        self.join_sync_state(last_iteration);
        for (&v, carried) in op.results.iter().zip(&carried) {
            self.bind_carried(v, carried);
        }
        Ok(())
    }

    pub fn branch(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let cond = self.scalar(op.operands[0]);
        let [otherwise, done] = [self.asm.label(), self.asm.label()];
        self.asm.when(cond, false, |asm| asm.emit(Inst::Bra { to: otherwise, uniform: true }));
        let before = self.sync_state();
        self.block(op.regions[0])?;
        let values = self.yielded(op.regions[0]);
        let as_words: Vec<bool> = op.results.iter().map(|&v| self.is_left_as_words(v)).collect();
        let results = self.carry_as(&op.results, &values, &as_words);
        self.asm.emit(Inst::Bra { to: done, uniform: true });
        self.asm.place(otherwise);
        let then = self.swap_sync_state(before);
        self.block(op.regions[1])?;
        let values = self.yielded(op.regions[1]);
        self.carry_on(&results, &values);
        self.asm.place(done);
        self.join_sync_state(then);
        for (&v, carried) in op.results.iter().zip(&results) {
            self.bind_carried(v, carried);
        }
        Ok(())
    }
}
