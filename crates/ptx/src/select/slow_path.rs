//! Slow paths: regions that a warp runs only if a condition holds in one of its rows, by a
//! warp-uniform branch. The rescale path of lazy online softmax is one.
//!
//! Results start as the fast path's values in place, and the region overwrites them: a warp that
//! does not run it only votes. Where warps share rows the region always runs, which gives the same
//! results.

mod slots;

pub(super) mod inner {
    pub use super::slots::part_for;
}

use super::{Repr, Select};
use crate::inst::*;
use crate::module::Stmt;
use slots::part_for;
use std::collections::BTreeSet;
use tessera_diag::Diagnostics;
use tessera_ir::{BlockId, OpId, Value, ValueDef};
use tessera_layout::{In, Layout};
use tessera_staged::StagedOp;
use tessera_tile::TileOp;

/// Shorter code is run for all rows: per-row branches would take as long.
const LONG: usize = 256;

/// The registers of a result that a region may overwrite.
struct Place {
    result: Value,
    words: bool,
    own: Vec<Reg>,
}

impl Select<'_> {
    pub fn slow_path(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let region = op.regions[0];
        if !self.is_of_warps(id) {
            self.block(region)?;
            for (&result, v) in op.results.iter().zip(self.yielded(region)) {
                let repr = self.repr(v).clone();
                self.set(result, repr);
            }
            return Ok(());
        }
        let bad = self.any_in_warp(op.operands[0], op.block);
        let mut places = Vec::new();
        for (&result, &init) in op.results.iter().zip(op.group("init")) {
            let (words, regs) = match self.repr(init).clone() {
                Repr::Packed(words) => (true, words),
                _ => (false, self.regs(init)),
            };
            let own = match self.is_last_use(id, init, &regs) || self.is_handed_on(id, init, &regs)
            {
                true => regs,
                false => {
                    let own: Vec<Reg> = regs.iter().map(|r| self.asm.reg(r.class)).collect();
                    self.move_all(&own, &regs);
                    own
                }
            };
            places.push(Place { result, words, own });
        }
        // The region is placed after the kernel, off the fast path.
        let [slow, done] = [self.asm.label(), self.asm.label()];
        self.asm.when(bad, true, |asm| asm.emit(Inst::Bra { to: slow, uniform: true }));
        self.asm.place(done);
        let here = self.asm.kernel.body.len();
        let before = self.sync_state();
        self.asm.place(slow);
        self.slow_pathed(region, &places, op.operands[0])?;
        self.asm.emit(Inst::Bra { to: done, uniform: true });
        self.behind.extend(self.asm.kernel.body.split_off(here));
        self.join_sync_state(before);
        for Place { result, words, own } in places {
            self.set(result, if words { Repr::Packed(own) } else { Repr::Tile(own) });
        }
        Ok(())
    }

    /// Emits the region, or for each row slot only what it needs, under a branch on the warp's
    /// vote.
    fn slow_pathed(
        &mut self,
        region: BlockId,
        places: &[Place],
        bad: Value,
    ) -> Result<(), Diagnostics> {
        let whole = self.region_for(region, places, None)?.unwrap_or_default();
        let rows = self.rows_by_slot(bad);
        let mut parts = Vec::new();
        let straight = !whole.iter().any(|stmt| matches!(stmt, Stmt::Label(_)));
        if straight && whole.len() >= LONG && rows.len() > 1 && self.rows_alike(bad, places) {
            for &row in rows.keys() {
                let Some(part) = self.region_for(region, places, Some(row))? else {
                    parts.clear();
                    break;
                };
                parts.push(part);
            }
        }
        if parts.is_empty() {
            self.asm.kernel.body.extend(whole);
            return Ok(());
        }
        // All votes are taken before any part overwrites the operands of the conditions.
        let votes: Vec<Reg> = rows.into_values().map(|of| self.vote(of)).collect();
        let [apart, done] = [self.asm.label(), self.asm.label()];
        // Where all row slots need it, interleaving their parts hides more latency than running
        // them one after another.
        let mut all = votes[0];
        for &vote in &votes[1..] {
            all = self.asm.int(Alu::And, Ty::Pred, &[all.into(), vote.into()]);
        }
        self.asm.when(all, false, |asm| asm.emit(Inst::Bra { to: apart, uniform: true }));
        self.asm.kernel.body.extend(whole);
        self.asm.emit(Inst::Bra { to: done, uniform: true });
        self.asm.place(apart);
        for (vote, part) in votes.into_iter().zip(parts) {
            let next = self.asm.label();
            self.asm.when(vote, false, |asm| asm.emit(Inst::Bra { to: next, uniform: true }));
            self.asm.kernel.body.extend(part);
            self.asm.place(next);
        }
        self.asm.place(done);
        Ok(())
    }

    /// Whether all results distribute rows over a warp's threads as the condition does: row slots
    /// among a thread's registers then are the same rows.
    fn rows_alike(&self, bad: Value, places: &[Place]) -> bool {
        let rows = |v: Value| {
            let layout = self.layout(v);
            [In::Lane, In::Warp, In::Cta]
                .map(|i| layout.bases(i).iter().map(|b| b[0]).collect::<Vec<_>>())
        };
        places.iter().all(|place| rows(place.result) == rows(bad))
    }

    /// The code of a region that writes its results: those of one row slot, if they are independent
    /// of the others, or all.
    fn region_for(
        &mut self,
        region: BlockId,
        places: &[Place],
        row: Option<u32>,
    ) -> Result<Option<Vec<Stmt>>, Diagnostics> {
        let start = self.asm.kernel.body.len();
        self.block(region)?;
        let (mut to, mut from) = (Vec::new(), Vec::new());
        let mut others = BTreeSet::new();
        let mut apart = true;
        for (Place { result, words, own }, v) in places.iter().zip(self.yielded(region)) {
            let given = if *words { self.words_of(v) } else { self.values_of(v) };
            let all = (0..own.len()).collect();
            let wanted: Vec<usize> = match row {
                None => all,
                Some(row) => match self.row_places(*result, own, *words) {
                    Some(mut of) => of.remove(&row).unwrap_or_default(),
                    None => {
                        apart = false;
                        Vec::new()
                    }
                },
            };
            others.extend((0..own.len()).filter(|i| !wanted.contains(i)).map(|i| own[i]));
            to.push(wanted.iter().map(|&i| own[i]).collect::<Vec<Reg>>());
            from.push(wanted.iter().map(|&i| given[i]).collect::<Vec<Reg>>());
        }
        self.move_together(&to, &from);
        let code = self.asm.kernel.body.split_off(start);
        Ok(match row {
            // Without what others computed and these do not need.
            None => Some(part_for(&code, &to.concat(), &others).unwrap_or(code)),
            Some(_) if !apart => None,
            Some(_) => part_for(&code, &to.concat(), &others),
        })
    }

    /// Whether a condition holds for any element of this warp.
    fn any_in_warp(&mut self, bad: Value, block: BlockId) -> Reg {
        if let Some(&(vote, at)) = self.votes.get(&bad)
            && at == block
        {
            return vote;
        }
        let regs: BTreeSet<Reg> = self.regs(bad).into_iter().collect();
        let vote = self.vote(regs);
        self.votes.insert(bad, (vote, block));
        vote
    }

    /// Whether any of these conditions holds in any thread of the warp.
    fn vote(&mut self, regs: BTreeSet<Reg>) -> Reg {
        let mut regs = regs.into_iter();
        let mut any = regs.next().expect("a tile has elements");
        for r in regs {
            any = self.asm.int(Alu::Or, Ty::Pred, &[any.into(), r.into()]);
        }
        let d = self.asm.reg(Class::Pred);
        let p = Guardless { reg: any, negated: false };
        self.asm.emit(Inst::Vote { kind: Vote::Any, d, p, mask: Opnd::Int(-1) });
        d
    }

    /// Whether each warp has whole rows, and the region does not communicate between warps.
    fn is_of_warps(&self, id: OpId) -> bool {
        let func = self.func;
        let op = &func.ops[id];
        let whole = |layout: &Layout, axis: usize| {
            [In::Warp, In::Cta].iter().all(|&i| layout.bases(i).iter().all(|b| b[axis] == 0))
        };
        let tiles = op.operands.iter().all(|&v| {
            let layout = self.layout(v);
            (1..layout.rank()).all(|axis| whole(&layout, axis))
        });
        tiles
            && func.blocks[op.regions[0]].ops.iter().all(|&inner| {
                let inner_op = &func.ops[inner];
                match inner_op.code {
                    StagedOp::Tile(
                        TileOp::Ew(_)
                        | TileOp::Select
                        | TileOp::Cast
                        | TileOp::Bitcast
                        | TileOp::Broadcast
                        | TileOp::Expand
                        | TileOp::Const
                        | TileOp::Iota
                        | TileOp::Yield,
                    ) => true,
                    StagedOp::Tile(TileOp::SlowPath) => self.is_of_warps(inner),
                    StagedOp::Tile(TileOp::Reduce) => {
                        whole(&self.layout(inner_op.operands[0]), self.axis(inner))
                    }
                    StagedOp::Tile(TileOp::Reshape) | StagedOp::ConvertLayout => {
                        let [from, to] =
                            [inner_op.operands[0], inner_op.result()].map(|v| self.layout(v));
                        let from = match inner_op.code {
                            StagedOp::ConvertLayout => Some((*from).clone()),
                            _ => from.reshape(to.shape()),
                        };
                        from.is_some_and(|from| Layout::reg_map(&from, &to).is_some())
                    }
                    _ => false,
                }
            })
    }

    /// Whether nothing reads the registers of a tile after an op that may overwrite them: it is
    /// defined in the op's own block, and all its uses, under any name, are before or in the op.
    fn is_last_use(&self, id: OpId, v: Value, regs: &[Reg]) -> bool {
        let func = self.func;
        let block = func.ops[id].block;
        let own = match func.values[v].def {
            ValueDef::Result(def, _) => {
                let made = matches!(
                    func.ops[def].code,
                    StagedOp::MmaRetire
                        | StagedOp::Tile(
                            TileOp::Ew(_) | TileOp::Select | TileOp::Cast | TileOp::SlowPath
                        )
                );
                func.ops[def].block == block && made
            }
            ValueDef::Arg(of, _) => {
                let around = func.blocks[of].parent.map(|id| func.ops[id].code);
                of == block && around == Some(StagedOp::Tile(TileOp::For))
            }
        };
        let distinct = regs.iter().collect::<BTreeSet<_>>().len() == regs.len();
        let unknown = regs.iter().all(|&r| self.asm.known(r).is_none());
        let inits = func.ops[id].operands.iter().filter(|&&o| o == v).count();
        own && distinct && unknown && inits == 1 && self.is_read_until(id, v)
    }

    /// Whether a slow path nested in a slow path may overwrite what the outer one may, before its
    /// region ends: nothing in the region reads it later.
    fn is_handed_on(&self, id: OpId, v: Value, regs: &[Reg]) -> bool {
        let func = self.func;
        let block = func.ops[id].block;
        let around = func.blocks[block].parent;
        let Some(around) = around.filter(|&o| func.ops[o].code == StagedOp::Tile(TileOp::SlowPath))
        else {
            return false;
        };
        let ops = &func.blocks[block].ops;
        let after = ops.iter().skip_while(|&&o| o != id).skip(1);
        let is_read_after = after.into_iter().any(|&o| {
            let mut reads = func.ops[o].operands.contains(&v);
            for &region in &func.ops[o].regions {
                func.walk_block(region, &mut |inner| {
                    reads |= func.ops[inner].operands.contains(&v)
                });
            }
            reads
        });
        let once = func.ops[id].operands.iter().filter(|&&o| o == v).count() == 1;
        once && !is_read_after
            && func.ops[around].group("init").contains(&v)
            && self.is_last_use(around, v, regs)
    }

    fn is_read_until(&self, id: OpId, v: Value) -> bool {
        let func = self.func;
        let ops = &func.blocks[func.ops[id].block].ops;
        let place = |op: OpId| ops.iter().position(|&o| o == op);
        func.walk().into_iter().filter(|&user| func.ops[user].operands.contains(&v)).all(|user| {
            let mut at = user;
            while func.ops[at].block != func.ops[id].block {
                match func.blocks[func.ops[at].block].parent {
                    Some(parent) => at = parent,
                    None => return false,
                }
            }
            // The same registers by another name.
            let alias = matches!(
                func.ops[user].code,
                StagedOp::ConvertLayout
                    | StagedOp::Tile(
                        TileOp::Expand | TileOp::Broadcast | TileOp::Reshape | TileOp::Transpose
                    )
            );
            let ends = func.ops[user].is_terminator() && at == user;
            place(at) <= place(id)
                && !ends
                && (!alias || at != user || self.is_read_until(id, func.ops[user].result()))
        })
    }
}
