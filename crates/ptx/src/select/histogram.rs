//! Histograms of tiles: threads count in shared memory with atomics, every few warps in a copy of
//! their own, so that fewer of them update one bin.

use super::{Repr, Select};
use crate::inst::*;
use tessera_diag::Diagnostics;
use tessera_ir::OpId;
use tessera_numerics::DType;

/// The most copies, and the least elements for each of their bins: copies are cleared and added up.
const MOST_COPIES: u32 = 8;
const LEAST_ELEMENTS: u32 = 8;

impl Select<'_> {
    pub fn histogram(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (x, result) = (op.operands[0], op.result());
        let (from, to) = (self.layout(x), self.layout(result));
        let bins = to.shape()[0];
        let xs = self.regs(x);
        let elements: u32 = from.shape().iter().product();
        let fits = |n: &u32| n * bins * LEAST_ELEMENTS <= elements;
        let most = self.warps.min(MOST_COPIES);
        let counts = std::iter::successors(Some(most), |n| (*n > 1).then_some(n / 2));
        let copies = counts.into_iter().find(fits).unwrap_or(1);
        let threads = self.warps * 32;
        // Numbers that count nowhere have a bin too: without a condition an atomic is shorter code.
        let each = bins + 1;
        let words = (copies * each).next_multiple_of(4 * threads);
        let region = self.scratch(4 * words);
        let base = self.region(region);
        let tid = self.tid();
        let own = self.asm.int(Alu::MadLo, Ty::U32, &[tid.into(), Opnd::Int(16), base.into()]);
        let zeros = [Opnd::Reg(self.asm.mov(Ty::B32, Opnd::Int(0))); 4];
        for at in (0..4 * words).step_by(16 * threads as usize) {
            self.asm.st(Space::Shared, Ty::B32, &zeros, Addr::reg(own, at.into()), Cache::Usual);
        }
        let mut copy = base;
        if copies > 1 {
            let warp = self.warp();
            let mask = Opnd::Int(i64::from(copies) - 1);
            let number = self.asm.int(Alu::And, Ty::B32, &[warp.into(), mask]);
            let bytes = Opnd::Int(i64::from(each) * 4);
            copy = self.asm.int(Alu::MadLo, Ty::U32, &[number.into(), bytes, base.into()]);
        }
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
            let at = self.asm.int(Alu::MadLo, Ty::U32, &[bin.into(), Opnd::Int(4), copy.into()]);
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
        // Copies begin at any word.
        let n = if copies == 1 { to.run_along(0).min(4) } else { 1 };
        let mut out = Vec::new();
        for first in (0..to.regs()).step_by(n as usize) {
            let when = match self.valid(&to, first) {
                Ok(false) => {
                    let zero = self.zero(DType::I32);
                    out.extend(vec![zero; n as usize]);
                    continue;
                }
                valid => valid.err(),
            };
            let c = self.coords(&to, first)[0];
            let c = self.coord_value(c);
            let at = self.asm.int(Alu::MadLo, Ty::U32, &[c.into(), Opnd::Int(4), base.into()]);
            let mut sums: Vec<Reg> = Vec::new();
            for copy in 0..copies {
                let addr = Addr::reg(at, i64::from(copy * each) * 4);
                let part = self.load_run(Space::Shared, DType::I32, addr, n, when, Cache::Usual);
                sums = match sums.is_empty() {
                    true => part,
                    false => sums
                        .iter()
                        .zip(part)
                        .map(|(&a, b)| self.asm.int(Alu::Add, Ty::U32, &[a.into(), b.into()]))
                        .collect(),
                };
            }
            out.extend(sums);
        }
        self.reading(region);
        self.set(result, Repr::Tile(out));
        Ok(())
    }
}
