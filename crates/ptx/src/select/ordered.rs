//! Deterministic folds: where the order of folds shows in the result, groups fold into shared
//! parameters in the order of their numbers, as in CUTLASS's serial split-K with a semaphore.
//!
//! A group's number is a ticket that it draws when it starts, not its block index. So it waits only
//! for groups that already run, in whatever order the hardware starts blocks. The ordered section
//! is from a group's first fold to its last: a group enters it when the semaphore in memory equals
//! its number. Code before and after runs concurrently with other groups.

use super::Select;
use crate::atomic::Fold;
use crate::code::context;
use crate::inst::*;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId, Type};
use tessera_numerics::{Profile, ReduceOp};
use tessera_staged::{StagedFunc, StagedOp};
use tessera_target::frame;
use tessera_tile::TileOp;

/// The ops of a group's ordered section.
#[derive(Default, Debug)]
pub struct OrderedSection {
    /// Ops of the function's own block; none where the order does not show.
    span: Option<(OpId, OpId)>,
    number: Option<Reg>,
    held: Held,
}

#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
enum Held {
    #[default]
    NotYet,
    Now,
    NoMore,
}

/// Whether the order of a fold shows in its result.
fn shows_order(func: &StagedFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    if op.code != StagedOp::Tile(TileOp::Accumulate) {
        return false;
    }
    let memory = func.ty(op.operands[0]);
    let Type::View { privilege, .. } = memory else { return false };
    let name = op.attr("op").and_then(Attr::as_word).unwrap_or("sum");
    let reduce = ReduceOp::from_name(name).unwrap_or(ReduceOp::Sum);
    let compute = func.ty(op.operands[1]).dtype();
    privilege.reduces() && Fold::new(memory, reduce.combine(), compute).shows_order(reduce)
}

impl OrderedSection {
    pub fn of(func: &StagedFunc, profile: Profile) -> Self {
        if profile == Profile::Default {
            return Self::default();
        }
        let folds = |&id: &OpId| {
            let mut found = shows_order(func, id);
            for &region in &func.ops[id].regions {
                func.walk_block(region, &mut |inner| found |= shows_order(func, inner));
            }
            found
        };
        let ops = &func.blocks[func.body].ops;
        let span = ops.iter().copied().find(folds).zip(ops.iter().rev().copied().find(folds));
        Self { span, ..Self::default() }
    }

    pub fn is_kept(&self) -> bool {
        self.span.is_some()
    }
}

impl Select<'_> {
    /// Whether a fold is in the ordered section, so that no other group folds concurrently.
    pub fn in_ordered_section(&self, id: OpId) -> bool {
        self.ordered.is_kept() && shows_order(self.func, id)
    }

    /// Draws the group's ticket at the head of the kernel, and uses it in place of the block index.
    pub fn draw_number(&mut self) -> Result<(), Diagnostics> {
        if !self.ordered.is_kept() {
            return Ok(());
        }
        let func = self.func;
        let fixed = |&id: &OpId| func.ops[id].code == StagedOp::Worker;
        if let Some(&id) = func.walk().iter().find(|id| fixed(id)) {
            return self.unsupported(id, "groups that take turns have blocks of their own");
        }
        let context = self.word(frame::CONTEXT);
        let at = self.allocate(16, 16);
        let base = self.region(super::sync::Region::Fixed);
        let cluster = self.cluster;
        let rank = (cluster > 1).then(|| self.cta_rank());
        let tid = self.tid();
        let (number, block) = self.head(|me| {
            let first = me.asm.setp(Cmp::Eq, Ty::U32, tid, Opnd::Int(0));
            let first = match rank {
                None => first,
                Some(rank) => {
                    let zero = me.asm.setp(Cmp::Eq, Ty::U32, rank, Opnd::Int(0));
                    me.asm.int(Alu::And, Ty::Pred, &[first.into(), zero.into()])
                }
            };
            let d = me.asm.mov(Ty::B32, Opnd::Int(0));
            me.asm.when(first, true, |asm| {
                asm.emit(Inst::Atom {
                    space: Space::Global,
                    sem: Sem::Relaxed,
                    scope: Scope::Gpu,
                    op: AtomOp::Add,
                    ty: Ty::U32,
                    d,
                    addr: Addr::reg(context, context::TICKET),
                    a: Opnd::Int(1),
                    b: None,
                });
                let addr = Addr::reg(base, at.into());
                asm.st(Space::Shared, Ty::B32, &[d.into()], addr, Cache::Usual);
            });
            me.barrier();
            let (space, from) = match rank {
                None => (Space::Shared, base),
                Some(_) => {
                    let d = me.asm.reg(Class::B32);
                    me.asm.emit(Inst::Mapa { d, a: base, rank: Opnd::Int(0) });
                    (Space::SharedCluster, d)
                }
            };
            let addr = Addr::reg(from, at.into());
            let number = me.asm.ld(space, Ty::B32, 1, addr, Cache::Usual)[0];
            let block = match rank {
                None => number,
                Some(rank) => {
                    let n = Opnd::Int(cluster.into());
                    me.asm.int(Alu::MadLo, Ty::U32, &[number.into(), n, rank.into()])
                }
            };
            (number, block)
        });
        // The others read the number from the first block.
        self.remote_reads |= cluster > 1;
        self.ordered.number = Some(number);
        self.specials.insert(Special::CtaidX, block);
        Ok(())
    }

    /// Before an op of the function's own block.
    pub fn maybe_enter_ordered(&mut self, id: OpId) {
        if self.ordered.span.is_some_and(|(first, _)| first == id) {
            self.enter_ordered();
        }
    }

    /// After an op of the function's own block.
    pub fn maybe_leave_ordered(&mut self, id: OpId) {
        if self.ordered.span.is_some_and(|(_, last)| last == id) {
            self.leave_ordered();
            self.ordered.held = Held::NoMore;
        }
    }

    /// Waits until all groups before this one have folded. Their writes are visible afterwards.
    fn enter_ordered(&mut self) {
        let Some(number) = self.ordered.number else { return };
        let context = self.word(frame::CONTEXT);
        let first = self.first_thread();
        let [again, mine] = [self.asm.label(), self.asm.label()];
        self.asm.bra_if(first, false, mine);
        self.asm.place(again);
        let now = self.asm.reg(Class::B32);
        self.asm.emit(Inst::Ld {
            space: Space::Global,
            ty: Ty::B32,
            d: vec![now],
            addr: Addr::reg(context, context::SEMAPHORE),
            cache: Cache::Usual,
            sem: Sem::Acquire,
            scope: Scope::Gpu,
        });
        let other = self.asm.setp(Cmp::Ne, Ty::U32, now, number);
        self.asm.bra_if(other, true, again);
        self.asm.place(mine);
        self.barrier();
        self.ordered.held = Held::Now;
    }

    fn leave_ordered(&mut self) {
        let Some(number) = self.ordered.number else { return };
        let context = self.word(frame::CONTEXT);
        self.barrier();
        let first = self.first_thread();
        let next = self.asm.int(Alu::Add, Ty::U32, &[number.into(), Opnd::Int(1)]);
        self.asm.when(first, true, |asm| {
            asm.emit(Inst::St {
                space: Space::Global,
                ty: Ty::B32,
                a: vec![next.into()],
                addr: Addr::reg(context, context::SEMAPHORE),
                cache: Cache::Usual,
                sem: Sem::Release,
                scope: Scope::Gpu,
            });
        });
    }

    /// A group that ends early passes the ordered section on to the next.
    pub fn skip_ordered(&mut self) {
        let held = self.ordered.held;
        if !self.ordered.is_kept() || held == Held::NoMore {
            return;
        }
        // The path that ends here says nothing about the state of other paths.
        let before = self.sync_state();
        if held == Held::NotYet {
            self.enter_ordered();
        }
        self.leave_ordered();
        self.ordered.held = held;
        self.swap_sync_state(before);
    }
}
