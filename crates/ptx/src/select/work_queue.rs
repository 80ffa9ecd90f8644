//! The work queue of a dynamic tile scheduler: the next tile goes to the next free block.
//!
//! One role of one thread, the scheduler, hands out tiles to all roles of its block. Its first tile
//! is the block's index; each further one comes from an atomic counter in the launch's context,
//! which wraps at the number of tiles. The counter is incremented once per tile, so it is 0 again
//! when the launch ends, and the next launch on the same workspace need not reset it.
//!
//! A queue entry in shared memory is the tile's coordinates and a flag whether there is a tile:
//! readers divide nothing. The queue is a pipeline with two mbarriers per stage: `full` when the
//! scheduler has written, `empty` when all others have read. The scheduler takes a tile when all
//! loads of the one before are in flight, and so as late as the pipeline depth allows.

use super::sync::Region;
use super::{Select, mbar::BYTES, mbar::Speaker};
use crate::code::context;
use crate::inst::*;
use tessera_ir::OpId;
use tessera_staged::ops::roles::RoleInfo;
use tessera_staged::ops::tiles::{Order, order_of};
use tessera_staged::{StagedFunc, StagedOp};
use tessera_target::frame;
use tessera_tile::TileOp;

/// Entries of the queue; a power of two.
const STAGES: u32 = 4;
/// Bytes of an entry: three coordinates and a word that is 0 after the last tile.
const ENTRY: u32 = 16;

/// What an instance does with the work queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum QueueEnd {
    Gives,
    Takes,
}

/// Where the queue is, and which role writes it.
#[derive(Copy, Clone, Debug)]
pub struct WorkQueue {
    scheduler: OpId,
    at: u32,
    bars: u32,
}

/// The next entry of an instance.
pub struct Next {
    counter: Reg,
}

/// The loop over tiles of a role.
fn tiles_of(func: &StagedFunc, role: OpId) -> Option<OpId> {
    let mut found = None;
    func.walk_block(func.ops[role].regions[0], &mut |id| {
        if func.ops[id].code == StagedOp::Tiles {
            found = found.or(Some(id));
        }
    });
    found
}

fn has_loop(func: &StagedFunc, tiles: OpId) -> bool {
    let mut found = false;
    func.walk_block(func.ops[tiles].regions[0], &mut |id| {
        found |= matches!(func.ops[id].code, StagedOp::Tile(TileOp::For | TileOp::While));
    });
    found
}

/// The scheduler: a role of one thread with an inner loop in each tile, so that it runs ahead of
/// the consumers by a few iterations and not by whole tiles. Of several the last; without any, the
/// last role of one thread.
fn scheduler(func: &StagedFunc, roles: &[(OpId, RoleInfo)]) -> Option<OpId> {
    let able = roles.iter().filter(|(_, info)| info.one_thread);
    let able: Vec<(OpId, OpId)> =
        able.filter_map(|(role, _)| Some((*role, tiles_of(func, *role)?))).collect();
    let own = able.iter().rev().find(|(_, tiles)| has_loop(func, *tiles));
    own.or(able.last()).map(|(role, _)| *role)
}

impl Select<'_> {
    /// Before roles begin: allocates the work queue and its mbarriers, where tiles are handed out.
    pub fn plan_work_queue(&mut self, roles: &[(OpId, RoleInfo)]) {
        let func = self.func;
        let taking: Vec<(OpId, &RoleInfo)> =
            roles.iter().filter_map(|(r, info)| Some((tiles_of(func, *r)?, info))).collect();
        let dynamic = |id: OpId| order_of(func, id).is_ok_and(|order| order.dynamic);
        // Blocks of a cluster, replicas that take tiles in turn, and ordered groups use a static
        // schedule.
        let alone = !self.ordered.is_kept()
            && self.asm.kernel.cluster == 1
            && taking.iter().all(|(_, r)| !r.by_tiles);
        if !alone || taking.is_empty() || !taking.iter().all(|(id, _)| dynamic(*id)) {
            return;
        }
        let Some(scheduler) = scheduler(func, roles) else { return };
        let at = self.allocate_between(STAGES * ENTRY, ENTRY);
        let bars = self.allocate_between(2 * STAGES * BYTES, BYTES);
        let readers: u32 = roles
            .iter()
            .filter(|(role, _)| *role != scheduler && tiles_of(func, *role).is_some())
            .map(|(_, r)| if r.one_thread { 1 } else { (r.warps * r.replicas) as u32 })
            .sum();
        for stage in 0..STAGES {
            self.pending_barrier(bars + stage * BYTES, 1);
            self.pending_barrier(bars + (STAGES + stage) * BYTES, readers.max(1));
        }
        self.work_queue = Some(WorkQueue { scheduler, at, bars });
    }

    /// What the current instance does with the work queue; none where its schedule is static.
    pub fn handed_out(&self, order: Order) -> Option<QueueEnd> {
        let work_queue = self.work_queue.filter(|_| order.dynamic)?;
        let gives = self.instance.role == Some(work_queue.scheduler);
        Some(if gives { QueueEnd::Gives } else { QueueEnd::Takes })
    }

    pub fn first_entry(&mut self) -> Next {
        Next { counter: self.asm.mov(Ty::B32, Opnd::Int(0)) }
    }

    /// The addresses of the next stage's entry and barriers, without their offsets; and the parity
    /// of the phase `later` after the stage's own.
    fn entry(&mut self, next: &Next, later: i64) -> (Reg, Reg, Reg) {
        let base = self.region(Region::Fixed);
        let asm = &mut self.asm;
        let n = next.counter;
        let stage = asm.int(Alu::And, Ty::B32, &[n.into(), Opnd::Int(i64::from(STAGES) - 1)]);
        let [entry, bar] = [ENTRY, BYTES].map(|bytes| {
            asm.int(Alu::MadLo, Ty::U32, &[stage.into(), Opnd::Int(bytes.into()), base.into()])
        });
        let round = Opnd::Int(STAGES.trailing_zeros().into());
        let mut round = asm.int(Alu::Shr, Ty::U32, &[n.into(), round]);
        if later > 0 {
            round = asm.int(Alu::Add, Ty::U32, &[round.into(), Opnd::Int(later)]);
        }
        let parity = asm.int(Alu::And, Ty::B32, &[round.into(), Opnd::Int(1)]);
        let more = asm.int(Alu::Add, Ty::U32, &[n.into(), Opnd::Int(1)]);
        asm.mov_to(Ty::B32, next.counter, more);
        (entry, bar, parity)
    }

    /// Writes the next entry; `more` says whether there is a tile.
    pub fn push_tile(&mut self, next: &Next, at: &[Reg], more: Reg) {
        let Some(work_queue) = self.work_queue else { return };
        let (entry, bar, parity) = self.entry(next, 1);
        let [full, empty] =
            [0, STAGES].map(|n| Addr::reg(bar, (work_queue.bars + n * BYTES).into()));
        self.phase(empty, parity);
        let asm = &mut self.asm;
        let more = asm.selp(Ty::B32, more, Opnd::Int(1), Opnd::Int(0));
        let mut words = [Opnd::Int(0); 4];
        for (word, &at) in words.iter_mut().zip(at) {
            *word = at.into();
        }
        words[3] = more.into();
        let addr = Addr::reg(entry, work_queue.at.into());
        asm.st(Space::Shared, Ty::B32, &words, addr, Cache::Usual);
        asm.emit(Inst::MbarArrive { space: Space::Shared, addr: full, count: None });
    }

    /// The counter's next tile: the blocks' own indices come first.
    pub fn draw_tile(&mut self, number: Reg, total: Reg, blocks: Reg) {
        let context = self.word(frame::CONTEXT);
        let asm = &mut self.asm;
        let last = asm.int(Alu::Sub, Ty::U32, &[total.into(), Opnd::Int(1)]);
        let d = asm.reg(Class::B32);
        asm.emit(Inst::Atom {
            space: Space::Global,
            sem: Sem::Relaxed,
            scope: Scope::Gpu,
            op: AtomOp::Inc,
            ty: Ty::U32,
            d,
            addr: Addr::reg(context, context::TICKET),
            a: last.into(),
            b: None,
        });
        let next = asm.int(Alu::Add, Ty::U32, &[d.into(), blocks.into()]);
        asm.mov_to(Ty::B32, number, next);
    }

    /// Reads the next entry: the tile's coordinates, and a predicate that is false where there is
    /// none.
    pub fn pop_tile(&mut self, next: &Next, axes: usize) -> (Vec<Reg>, Reg) {
        let Some(work_queue) = self.work_queue else { unreachable!("there is a work queue") };
        let (entry, bar, parity) = self.entry(next, 0);
        let [full, empty] =
            [0, STAGES].map(|n| Addr::reg(bar, (work_queue.bars + n * BYTES).into()));
        self.phase(full, parity);
        let addr = Addr::reg(entry, work_queue.at.into());
        let mut words = self.asm.ld(Space::Shared, Ty::B32, 4, addr, Cache::Usual);
        self.arrive(empty, Speaker::Warp, None);
        if !self.instance.one_thread {
            // All lanes have read the same value; a shuffle shows the assembler that it is uniform.
            for word in &mut words {
                *word = self.shuffled(*word);
            }
        }
        let more = self.asm.setp(Cmp::Ne, Ty::U32, words[3], Opnd::Int(0));
        words.truncate(axes.min(3));
        (words, more)
    }

    fn shuffled(&mut self, own: Reg) -> Reg {
        let d = self.asm.reg(Class::B32);
        self.asm.emit(Inst::Shfl {
            kind: Shfl::Idx,
            d,
            ok: None,
            a: own.into(),
            b: Opnd::Int(0),
            c: Opnd::Int(31),
            mask: Opnd::Int(0xffff_ffff),
        });
        d
    }
}
