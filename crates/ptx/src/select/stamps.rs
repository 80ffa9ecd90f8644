//! Loop timing: on request, each execution of an innermost loop records the clocks at its start and
//! end and its number of iterations. One thread of a role records for it. Iterations are counted in
//! a register, and memory is written after the last one.

use super::Select;
use crate::code::context;
use crate::inst::*;
use crate::stamps::{BYTES, FIRST, Stamp};
use tessera_ir::{BlockId, OpId};
use tessera_lower::stage::{Off, Step};
use tessera_staged::ops::roles::role_info;
use tessera_staged::{StagedFunc, StagedOp};
use tessera_target::frame;
use tessera_tile::TileOp;

/// Multiply-adds of 16-bit elements per clock of a multiprocessor's tensor cores.
const RATE: u64 = 2048;

/// A loop that is being emitted.
pub struct Stamping {
    which: u32,
    begin: Reg,
    iterations: Reg,
}

/// Whether there are loops inside a block.
pub fn has_loops(func: &StagedFunc, body: BlockId) -> bool {
    let mut found = false;
    func.walk_block(body, &mut |id| {
        let code = func.ops[id].code;
        found |= matches!(code, StagedOp::Tile(TileOp::For | TileOp::While) | StagedOp::Tiles);
    });
    found
}

impl Select<'_> {
    /// Reads the clock before the first iteration of a loop.
    pub fn begin_stamp(&mut self, id: OpId) -> Option<Stamping> {
        let func = self.func;
        let body = func.ops[id].regions[0];
        if has_loops(func, body) || !Off::of(func).has(Step::NoClocks) {
            return None;
        }
        let role = self.instance.role.map_or("all".to_string(), |role| role_info(func, role).name);
        let line = func.ops[id].loc.line();
        let least = self.least_clocks(body);
        let which = FIRST + self.stamps.len() as u32;
        // One code may serve all replicas.
        let own = match self.instance.number_of {
            Some(_) => 0..self.instance.replicas,
            None => self.instance.replica..self.instance.replica + 1,
        };
        let stamp = |replica| Stamp { role: role.clone(), replica, line, least };
        self.stamps.extend(own.map(stamp));
        let begin = self.asm.special(Special::Clock64);
        let iterations = self.asm.mov(Ty::B32, Opnd::Int(0));
        Some(Stamping { which, begin, iterations })
    }

    pub fn stamp_iteration(&mut self, stamping: Option<&Stamping>) {
        if let Some(s) = stamping {
            let more = self.asm.int(Alu::Add, Ty::U32, &[s.iterations.into(), Opnd::Int(1)]);
            self.asm.mov_to(Ty::B32, s.iterations, more);
        }
    }

    /// Writes the record after the last iteration.
    pub fn end_stamp(&mut self, stamping: Option<Stamping>) {
        let Some(s) = stamping else { return };
        let end = self.asm.special(Special::Clock64);
        let context = self.word(frame::CONTEXT);
        let block = self.special(Special::CtaidX);
        let leader = self.leader();
        let number = self.instance.number_of;
        self.by_leader(leader, |asm| {
            let at = asm.reg(Class::B32);
            asm.emit(Inst::Atom {
                space: Space::Global,
                sem: Sem::Relaxed,
                scope: Scope::Gpu,
                op: AtomOp::Add,
                ty: Ty::U32,
                d: at,
                addr: Addr::reg(context, context::PRINTED),
                a: Opnd::Int(BYTES.into()),
                b: None,
            });
            // A record that does not fit is dropped, and counted.
            let most = Opnd::Int((context::ROOM - BYTES).into());
            let fits = asm.setp(Cmp::Le, Ty::U32, at, most);
            let wide = asm.cvt(Ty::U64, Ty::U32, None, at);
            let record = asm.int(Alu::Add, Ty::S64, &[context.into(), wide.into()]);
            let start = i64::from(context::BYTES);
            let size = asm.mov(Ty::B32, Opnd::Int(BYTES.into()));
            let mut which = asm.mov(Ty::B32, Opnd::Int(i64::from(s.which as i32)));
            if let Some(number) = number {
                which = asm.int(Alu::Add, Ty::U32, &[which.into(), number.into()]);
            }
            asm.when(fits, true, |asm| {
                for (place, word) in [(0, size), (4, which), (8, block), (12, s.iterations)] {
                    let addr = Addr::reg(record, start + place);
                    asm.st(Space::Global, Ty::B32, &[word.into()], addr, Cache::Usual);
                }
                for (place, clock) in [(16, s.begin), (24, end)] {
                    let addr = Addr::reg(record, start + place);
                    asm.st(Space::Global, Ty::B64, &[clock.into()], addr, Cache::Usual);
                }
            });
        });
    }

    /// Tensor core clocks that the MMAs of one iteration take.
    fn least_clocks(&self, body: BlockId) -> u64 {
        let func = self.func;
        let mut clocks = 0;
        func.walk_block(body, &mut |id| {
            let op = &func.ops[id];
            if op.code == StagedOp::MmaIssue && self.is_async_mma(id) {
                let sums = func.ty(op.result()).static_shape().unwrap_or_default();
                let left = func.ty(op.operands[0]);
                let deep = left.static_shape().unwrap_or_default().last().copied().unwrap_or(1);
                let all: i64 = sums.iter().product::<i64>() * deep;
                clocks += all.unsigned_abs() * u64::from(left.dtype().bits()) / 16 / RATE;
            }
        });
        clocks
    }
}
