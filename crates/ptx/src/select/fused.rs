//! MMAs on CUDA cores: one fused multiply-add for each k, ascending, with operands in shared
//! memory. Used for strict results and for dtypes that the tensor cores do not take.
//!
//! A thread holds the accumulators of some lines of the left operand by some of the right. It walks
//! k in chunks. Of a chunk it keeps all lines of one side in registers; lines of the other side
//! come in groups, each loaded while the one before is multiplied. So nearly all registers are
//! accumulators, and no multiply-add waits for the load just before it.
//!
//! The register file has two banks, each with one read per clock. A multiply-add reads three
//! registers, so one must be reused from the instruction before, and the other two must be in
//! different banks. Where both operands are contiguous across k, a load fills neighbouring
//! registers with neighbouring lines: each k is a chunk, a loaded line stays while it is multiplied
//! by all lines that are kept, and the assembler finds matching banks for the accumulators. Where
//! an operand is contiguous along k, all its lines have one k in the same bank; then a kept line is
//! loaded again as soon as the last group has used it.

mod leave;
mod side;

pub(super) mod inner {
    pub use super::side::{Moves, moves};
}

use super::{Repr, Select};
use crate::inst::*;
use side::{At, Side};
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::Diagnostics;
use tessera_ir::{OpId, Type};
use tessera_numerics::{DType, ScalarFn};

/// The most multiply-adds that are unrolled: the instruction cache is small. MMAs of up to twice as
/// many are not worth a loop.
const UNROLLED: u32 = 2048;
/// The most k of a chunk.
const DEEP: u32 = 4;
/// Lines that are multiplied together, of the side that is kept and of the other: that many
/// accumulators are independent.
const TOGETHER: [usize; 2] = [2, 4];
/// Lines of a group where each k is a chunk.
const ACROSS: usize = 8;

/// Copies that are issued together: the assembler inserts no-ops between a load from shared memory
/// and a copy to it.
const BURST: usize = 4;

/// Elements of some lines: for each line, those of a chunk's k.
type Lines = Vec<Vec<Reg>>;

/// An MMA of one thread.
struct Fused {
    id: OpId,
    dtype: DType,
    /// The side that is kept in registers, and the one that comes in groups.
    held: Side,
    comes: Side,
    /// The accumulator registers of two lines, the first of the kept side.
    places: BTreeMap<(usize, usize), Vec<usize>>,
    /// k of a chunk.
    deep: u32,
}

impl Fused {
    /// Whether each k is a chunk.
    fn is_across(&self) -> bool {
        self.deep == 1
    }

    /// The lines of the kept side that are loaded together, and those of a group of the other.
    fn units(&self) -> [usize; 2] {
        match self.is_across() {
            true => [self.held.lines().max(1), self.comes.unit().max(ACROSS)],
            false => [self.held.unit().max(TOGETHER[0]), self.comes.unit().max(TOGETHER[1])],
        }
    }

    fn groups(&self) -> usize {
        self.comes.lines().div_ceil(self.units()[1])
    }
}

/// A chunk: at which of the known starting points of both sides, and how many k further on.
#[derive(Copy, Clone)]
struct Chunk {
    from: usize,
    k: u32,
}

/// The state of the loop: the lines that are kept, the group that comes next, and the accumulators.
struct Work {
    held: Lines,
    group: Lines,
    sums: Vec<Reg>,
    /// Starting points of chunks, of both sides.
    at: Vec<[At; 2]>,
}

impl Select<'_> {
    pub fn issue(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let b = self.smem(op.operands[1]);
        let a = match self.repr(op.operands[0]) {
            Repr::Smem(m) => m.clone(),
            // Other threads read its elements too.
            _ => {
                let v = op.operands[0];
                let (layout, dtype) = (self.layout(v), self.dtype(v));
                let xs = self.regs(v);
                self.spread(&layout, dtype, &xs)
            }
        };
        let spread = a.region;
        let acc = op.operands[2];
        let layout = self.layout(acc);
        let dtype = match func.ty(acc) {
            Type::Pending(of) => of.dtype(),
            ty => ty.dtype(),
        };
        let k = a.layout.shape[1];
        let sums = self.regs(acc);
        let at: Vec<Vec<u32>> = (0..layout.regs()).map(|r| layout.reg_part(r)).collect();
        let distinct = |d: usize| at.iter().map(|c| c[d]).collect::<BTreeSet<u32>>();
        let lines = [distinct(0), distinct(1)].map(|l| l.into_iter().collect::<Vec<u32>>());
        let left = self.side(a, 0, &lines[0], &layout);
        let right = self.side(b, 1, &lines[1], &layout);
        let left_held = left.lines() <= right.lines();
        let mut places: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for (reg, c) in at.iter().enumerate() {
            let [i, j] = [0, 1].map(|d| lines[d].binary_search(&c[d]).unwrap_or_default());
            places.entry(if left_held { (i, j) } else { (j, i) }).or_default().push(reg);
        }
        let (held, comes) = if left_held { (left, right) } else { (right, left) };
        // All k of a load belong to one chunk.
        let deep = held.deep().max(comes.deep());
        let fused = Fused { id, dtype, held, comes, places, deep };
        let step = loop_step(&fused, k, layout.regs());
        let sums = match step < k {
            true => self.looped(&fused, k, step, sums)?,
            false => self.unrolled(&fused, k, sums)?,
        };
        self.reading(spread);
        self.set(op.result(), Repr::Tile(sums));
        Ok(())
    }

    /// All k unrolled.
    fn unrolled(&mut self, f: &Fused, k: u32, sums: Vec<Reg>) -> Result<Vec<Reg>, Diagnostics> {
        let chunks = (k / f.deep) as usize;
        // As evenly as bursts allow.
        let share = self.held_copies().div_ceil(chunks).max(BURST);
        let every = (chunks / self.held_copies().div_ceil(share).max(1)).max(1);
        let at = vec![[At::start(&f.held), At::start(&f.comes)]];
        let mut work = self.begin(f, at, sums)?;
        for (n, k_at) in (0..k).step_by(f.deep as usize).enumerate() {
            if n.is_multiple_of(every) {
                self.issue_copies(share);
            }
            let next = Some(k_at + f.deep).filter(|&n| n < k).map(|k| Chunk { from: 0, k });
            self.chunk(f, &mut work, Chunk { from: 0, k: k_at }, next)?;
        }
        Ok(work.sums)
    }

    /// A loop, `step` k per iteration. Each iteration loads the first lines of the next; the last
    /// iteration loads those of the first, which are not used.
    fn looped(
        &mut self,
        f: &Fused,
        k: u32,
        step: u32,
        sums: Vec<Reg>,
    ) -> Result<Vec<Reg>, Diagnostics> {
        self.issue_copies(usize::MAX);
        let start = vec![[At::start(&f.held), At::start(&f.comes)]];
        let mut work = self.begin(f, start, sums)?;
        let carried = |me: &mut Self, regs: &[Reg]| {
            let own: Vec<Reg> = regs.iter().map(|r| me.asm.reg(r.class)).collect();
            me.move_all(&own, regs);
            own
        };
        let sums = carried(self, &work.sums);
        let held: Lines = work.held.iter().map(|line| carried(self, line)).collect();
        let group: Lines = work.group.iter().map(|line| carried(self, line)).collect();
        let iteration = self.asm.reg(Class::B32);
        self.asm.mov_to(Ty::B32, iteration, Opnd::Int(0));
        let again = self.asm.label();
        self.asm.place(again);
        let after = self.asm.int(Alu::Add, Ty::U32, &[iteration.into(), Opnd::Int(step.into())]);
        let more = self.asm.setp(Cmp::Lt, Ty::U32, after, Opnd::Int(k.into()));
        let after = self.asm.selp(Ty::B32, more, after, Opnd::Int(0));
        work =
            Work { held: held.clone(), group: group.clone(), sums: sums.clone(), at: Vec::new() };
        for first in [iteration, after] {
            let at = [&f.held, &f.comes].map(|side| self.at_iteration(side, first));
            work.at.push(at);
        }
        for k_at in (0..step).step_by(f.deep as usize) {
            let next = k_at + f.deep;
            let next = match next < step {
                true => Chunk { from: 0, k: next },
                false => Chunk { from: 1, k: 0 },
            };
            self.chunk(f, &mut work, Chunk { from: 0, k: k_at }, Some(next))?;
        }
        self.move_all(&sums, &work.sums);
        self.move_all(&held.concat(), &work.held.concat());
        self.move_all(&group.concat(), &work.group.concat());
        self.asm.mov_to(Ty::B32, iteration, after);
        self.asm.when(more, true, |asm| asm.emit(Inst::Bra { to: again, uniform: true }));
        Ok(sums)
    }

    /// Loads what the first chunk starts with.
    fn begin(&mut self, f: &Fused, at: Vec<[At; 2]>, sums: Vec<Reg>) -> Result<Work, Diagnostics> {
        let mut work = Work { held: Vec::new(), group: Vec::new(), sums, at };
        let first = Chunk { from: 0, k: 0 };
        let unit = f.units()[0];
        for from in (0..f.held.lines()).step_by(unit) {
            work.held.extend(self.lines(f, &mut work.at, 0, first, from..from + unit)?);
        }
        work.group = self.lines(f, &mut work.at, 1, first, 0..f.units()[1])?;
        Ok(work)
    }

    /// The lines of one side, as many as exist, for the k of a chunk.
    fn lines(
        &mut self,
        f: &Fused,
        at: &mut [[At; 2]],
        side: usize,
        chunk: Chunk,
        lines: std::ops::Range<usize>,
    ) -> Result<Lines, Diagnostics> {
        let at = &mut at[chunk.from][side];
        let side = [&f.held, &f.comes][side];
        let mut out = Vec::new();
        for raw in self.side_lines(side, at, chunk.k, f.deep, lines) {
            let cast = raw.into_iter().map(|x| self.cast_plain(f.id, side.dtype(), f.dtype, x));
            out.push(cast.collect::<Result<Vec<Reg>, _>>()?);
        }
        Ok(out)
    }

    /// Multiplies a chunk, and loads what the next starts with.
    fn chunk(
        &mut self,
        f: &Fused,
        work: &mut Work,
        chunk: Chunk,
        next: Option<Chunk>,
    ) -> Result<(), Diagnostics> {
        let [unit, wide] = f.units();
        let groups = f.groups();
        for g in 0..groups {
            let group = std::mem::take(&mut work.group);
            let coming = match g + 1 < groups {
                true => Some((chunk, g + 1)),
                false => next.map(|next| (next, 0)),
            };
            if let Some((chunk, g)) = coming {
                work.group = self.lines(f, &mut work.at, 1, chunk, g * wide..(g + 1) * wide)?;
            }
            let last = g + 1 == groups;
            if f.is_across() {
                // Before they are needed: the last kept lines are in use until the end.
                let fresh = match next.filter(|_| last) {
                    Some(next) => Some(self.lines(f, &mut work.at, 0, next, 0..unit)?),
                    None => None,
                };
                self.multiply_across(f, work, &group, g * wide)?;
                work.held = fresh.unwrap_or(std::mem::take(&mut work.held));
                continue;
            }
            for first in (0..f.held.lines()).step_by(unit) {
                let mut rows = first..f.held.lines().min(first + unit);
                while !rows.is_empty() {
                    let together = rows.start..rows.end.min(rows.start + TOGETHER[0]);
                    self.multiply_lines(f, work, &group, together.clone(), g * wide)?;
                    rows.start = together.end;
                }
                if let Some(next) = next.filter(|_| last) {
                    let fresh = self.lines(f, &mut work.at, 0, next, first..first + unit)?;
                    work.held.splice(first..first + fresh.len(), fresh);
                }
            }
        }
        Ok(())
    }

    /// Multiplies some kept lines by those of a group, for all k of a chunk.
    fn multiply_lines(
        &mut self,
        f: &Fused,
        work: &mut Work,
        group: &Lines,
        rows: std::ops::Range<usize>,
        column: usize,
    ) -> Result<(), Diagnostics> {
        for k in 0..f.deep as usize {
            for i in rows.clone() {
                // Serpentine order: neighbours share an operand.
                let back = (i - rows.start) % 2 == 1;
                for n in 0..group.len() {
                    let j = if back { group.len() - 1 - n } else { n };
                    let pair = [work.held[i][k], group[j][k]];
                    self.multiply_add(f, work, pair, (i, column + j))?;
                }
            }
        }
        Ok(())
    }

    /// Multiplies all kept lines by each of a group, for one k.
    fn multiply_across(
        &mut self,
        f: &Fused,
        work: &mut Work,
        group: &Lines,
        column: usize,
    ) -> Result<(), Diagnostics> {
        let rows = work.held.len();
        for (j, line) in group.iter().enumerate() {
            for n in 0..rows {
                let i = if j % 2 == 1 { rows - 1 - n } else { n };
                let pair = [work.held[i][0], line[0]];
                self.multiply_add(f, work, pair, (i, column + j))?;
            }
        }
        Ok(())
    }

    /// Multiplies two elements into the accumulator of their lines.
    fn multiply_add(
        &mut self,
        f: &Fused,
        work: &mut Work,
        [a, b]: [Reg; 2],
        at: (usize, usize),
    ) -> Result<(), Diagnostics> {
        for &reg in f.places.get(&at).map_or(&[][..], |regs| regs) {
            let r = self.scalars().apply(ScalarFn::Fma, f.dtype, &[a, b, work.sums[reg]]);
            work.sums[reg] = r.or_else(|u| self.unsupported(f.id, u.to_string()))?;
        }
        Ok(())
    }
}

/// How many k are unrolled per loop iteration: all, where that is not too much or the operands do
/// not allow a loop; else as many as fit, and at least a chunk.
fn loop_step(f: &Fused, k: u32, sums: u32) -> u32 {
    if k * sums <= 2 * UNROLLED {
        return k;
    }
    let fits = |step: &u32| {
        k.is_multiple_of(*step) && f.held.can_move_by(*step) && f.comes.can_move_by(*step)
    };
    let steps: Vec<u32> =
        (0..).map(|i| f.deep << i).take_while(|&step| step < k).filter(fits).collect();
    let small = steps.iter().copied().filter(|step| step * sums <= UNROLLED).max();
    small.or(steps.first().copied()).unwrap_or(k)
}
