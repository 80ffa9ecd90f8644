//! Histograms of tiles: threads count in shared memory with atomics. Bins have several counters side
//! by side, one for every few lanes, so that fewer lanes of a warp meet in one bank.

use super::{Repr, Select};
use crate::inst::*;
use tessera_diag::Diagnostics;
use tessera_ir::OpId;
use tessera_numerics::DType;

/// The most counters of a bin, and the least elements for each: counters are cleared and added up.
const MOST_COUNTERS: u32 = 8;
const LEAST_ELEMENTS: u32 = 4;

impl Select<'_> {
    pub fn histogram(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (x, result) = (op.operands[0], op.result());
        let (from, to) = (self.layout(x), self.layout(result));
        let bins = to.shape()[0];
        let xs = self.regs(x);
        let elements: u32 = from.shape().iter().product();
        let fits = |n: &u32| n * bins * LEAST_ELEMENTS <= elements;
        let counts = std::iter::successors(Some(MOST_COUNTERS), |n| (*n > 1).then_some(n / 2));
        let counters = counts.into_iter().find(fits).unwrap_or(1);
        let threads = self.warps * 32;
        // Numbers that count nowhere have a bin too: without a condition an atomic is shorter code.
        let words = (counters * (bins + 1)).next_multiple_of(4 * threads);
        let region = self.scratch(4 * words);
        let base = self.region(region);
        let tid = self.tid();
        let own = self.asm.int(Alu::MadLo, Ty::U32, &[tid.into(), Opnd::Int(16), base.into()]);
        let zeros = [Opnd::Reg(self.asm.mov(Ty::B32, Opnd::Int(0))); 4];
        for at in (0..4 * words).step_by(16 * threads as usize) {
            self.asm.st(Space::Shared, Ty::B32, &zeros, Addr::reg(own, at.into()), Cache::Usual);
        }
        let mut own = base;
        if counters > 1 {
            let lane = self.lane();
            let mask = Opnd::Int(i64::from(counters) - 1);
            let number = self.asm.int(Alu::And, Ty::B32, &[lane.into(), mask]);
            own = self.asm.int(Alu::MadLo, Ty::U32, &[number.into(), Opnd::Int(4), base.into()]);
        }
        let bytes = Opnd::Int(i64::from(4 * counters));
        self.block_barrier();
        let owner = self.owner(&from);
        let limit = Opnd::Int(bins.into());
        for (reg, &x) in xs.iter().enumerate() {
            let valid = match self.valid(&from, reg as u32) {
                Ok(false) => continue,
                valid => valid.err(),
            };
            // A negative number is a large one without its sign.
            let bin = match x.class {
                Class::B64 => {
                    let bin = self.asm.int(Alu::Min, Ty::U64, &[x.into(), limit]);
                    self.asm.cvt(Ty::U32, Ty::U64, None, bin)
                }
                _ => self.asm.int(Alu::Min, Ty::U32, &[x.into(), limit]),
            };
            let at = self.asm.int(Alu::MadLo, Ty::U32, &[bin.into(), bytes, own.into()]);
            let when = self.both(valid, owner);
            self.asm.maybe(when, |asm| {
                asm.emit(Inst::Red {
                    space: Space::Shared,
                    sem: Sem::Relaxed,
                    scope: Scope::Cta,
                    op: AtomOp::Add,
                    ty: Ty::U32,
                    addr: Addr::reg(at, 0),
                    a: vec![Opnd::Int(1)],
                });
            });
        }
        self.block_barrier();
        let mut out = Vec::new();
        for reg in 0..to.regs() {
            let when = match self.valid(&to, reg) {
                Ok(false) => {
                    out.push(self.zero(DType::I32));
                    continue;
                }
                valid => valid.err(),
            };
            let c = self.coords(&to, reg)[0];
            let c = self.coord_value(c);
            let at = self.asm.int(Alu::MadLo, Ty::U32, &[c.into(), bytes, base.into()]);
            let mut parts: Vec<Reg> = Vec::new();
            let wide = counters.min(4);
            for first in (0..counters).step_by(wide as usize) {
                let addr = Addr::reg(at, i64::from(4 * first));
                let cache = Cache::Usual;
                parts.extend(self.load_run(Space::Shared, DType::I32, addr, wide, when, cache));
            }
            let sum = parts
                .into_iter()
                .reduce(|a, b| self.asm.int(Alu::Add, Ty::U32, &[a.into(), b.into()]));
            out.push(sum.unwrap_or(at));
        }
        self.reading(region);
        self.set(result, Repr::Tile(out));
        Ok(())
    }
}
