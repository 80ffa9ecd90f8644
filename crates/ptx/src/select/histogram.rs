//! Histograms of tiles: threads count in shared memory with atomics.
//!
//! One counter for each bin would be updated by many threads at a time. So every few warps have
//! counters of their own, which are added up. Where elements are narrow, so that more of them come
//! than atomics can take whose addresses are in one bank by chance, lanes have counters of their own
//! in different banks.
//!
//! A loop that adds up the histograms of its iterations counts all of them in the same counters,
//! which are cleared before the loop and read after it ([`Select::open_counters`]).

use super::sync::{ALIGN, Region};
use super::{Repr, Select};
use crate::inst::*;
use std::collections::BTreeMap;
use tessera_diag::Diagnostics;
use tessera_ir::{OpId, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_staged::StagedOp;
use tessera_tile::TileOp;

/// The most copies, and the least elements for each of their bins: copies are cleared and added up.
const MOST_COPIES: u32 = 8;
const LEAST_ELEMENTS: u32 = 8;
/// The most counters of a bin in different banks, and the most bytes of all counters. Half of the
/// banks measured as fast as all, and leaves room for more bins.
const MOST_COLUMNS: u32 = 16;
const MOST_BYTES: u32 = 32 << 10;
/// Elements of fewer bytes come faster than atomics on copies take them: a multiprocessor reads 16
/// bytes a clock, and 32 lanes with random addresses are in one bank three or four at a time.
const NARROW: usize = 4;

/// Counters in shared memory: copies of all bins, in each of which a bin has counters in neighbouring
/// columns.
#[derive(Copy, Clone, Debug)]
pub struct Counters {
    base: Reg,
    /// The first counter of this thread's copy and column.
    own: Reg,
    copies: u32,
    columns: u32,
}

/// A histogram that its loop adds up, and the result of the loop that is the sum.
pub struct Summed {
    op: OpId,
    sum: Value,
    counters: Counters,
}

impl Select<'_> {
    pub fn histogram(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let result = self.func.ops[id].result();
        if let Some(&counters) = self.counting.get(&id) {
            // The loop gets the sum of all its iterations in the end.
            self.count(id, &counters);
            let zero = self.zero(DType::I32);
            self.set(result, Repr::Splat(zero));
            return Ok(());
        }
        let copies = self.copies(id, true);
        let region = self.scratch(self.counter_bytes(id, copies, 1));
        let base = self.region(region);
        let counters = self.cleared(id, base, copies, 1);
        self.block_barrier();
        self.count(id, &counters);
        self.block_barrier();
        let out = self.counts(id, &counters);
        self.reading(region);
        self.set(result, Repr::Tile(out));
        Ok(())
    }

    /// Clears counters for the histograms that a loop adds up, before the loop.
    pub fn open_counters(&mut self, loop_op: OpId) -> Vec<Summed> {
        let mut out = Vec::new();
        if self.instance.role.is_some() || self.cluster > 1 {
            return out;
        }
        let again = !self.func.ancestors(self.func.ops[loop_op].block).is_empty();
        for (op, sum) in summed(self.func, loop_op) {
            let narrow = loaded_bytes(self.func, op).is_some_and(|n| n < NARROW);
            let bins = self.bins(op);
            let halves = std::iter::successors(Some(MOST_COLUMNS), |n| (*n > 1).then_some(n / 2));
            let fits = |n: &u32| narrow && (bins + 1) * n * 4 <= MOST_BYTES;
            let columns = halves.into_iter().find(fits).unwrap_or(1);
            let copies = if columns > 1 { 1 } else { self.copies(op, false) };
            let at = self.allocate(self.counter_bytes(op, copies, columns), ALIGN.max(16));
            let start = self.region(Region::Fixed);
            let base = self.asm.int(Alu::Add, Ty::U32, &[start.into(), Opnd::Int(at.into())]);
            if again && out.is_empty() {
                // Threads may still read what the loop counted last time.
                self.block_barrier();
            }
            let counters = self.cleared(op, base, copies, columns);
            self.counting.insert(op, counters);
            out.push(Summed { op, sum, counters });
        }
        if !out.is_empty() {
            self.block_barrier();
        }
        out
    }

    /// Adds what was counted to the results of the loop, after it.
    pub fn close_counters(&mut self, all: &[Summed]) {
        if !all.is_empty() {
            self.block_barrier();
        }
        for Summed { op, sum, counters } in all {
            self.counting.remove(op);
            let before = self.regs(*sum);
            let counts = self.counts(*op, counters);
            let added = before
                .into_iter()
                .zip(counts)
                .map(|(a, b)| self.asm.int(Alu::Add, Ty::U32, &[a.into(), b.into()]))
                .collect();
            self.set(*sum, Repr::Tile(added));
        }
    }

    fn bins(&self, id: OpId) -> u32 {
        self.layout(self.func.ops[id].result()).shape()[0]
    }

    /// How many copies warps count in. Those of a single tile must be worth clearing them.
    fn copies(&self, id: OpId, single: bool) -> u32 {
        let elements: u32 = self.layout(self.func.ops[id].operands[0]).shape().iter().product();
        let bins = self.bins(id);
        let fits = |&n: &u32| match single {
            true => n * bins * LEAST_ELEMENTS <= elements,
            false => n * bins * 4 <= MOST_BYTES,
        };
        let most = self.warps.min(MOST_COPIES);
        let counts = std::iter::successors(Some(most), |n| (*n > 1).then_some(n / 2));
        counts.into_iter().find(fits).unwrap_or(1)
    }

    /// Whole vectors for every thread, to clear them. Numbers that count nowhere have a bin too:
    /// without a condition an atomic is shorter code.
    fn counter_bytes(&self, id: OpId, copies: u32, columns: u32) -> u32 {
        let each = (self.bins(id) + 1) * columns;
        4 * (copies * each).next_multiple_of(4 * self.warps * 32)
    }

    fn cleared(&mut self, id: OpId, base: Reg, copies: u32, columns: u32) -> Counters {
        let bytes = self.counter_bytes(id, copies, columns);
        let (tid, threads) = (self.tid(), self.warps * 32);
        let place = self.asm.int(Alu::MadLo, Ty::U32, &[tid.into(), Opnd::Int(16), base.into()]);
        let zeros = [Opnd::Reg(self.asm.mov(Ty::B32, Opnd::Int(0))); 4];
        for at in (0..bytes).step_by(16 * threads as usize) {
            self.asm.st(Space::Shared, Ty::B32, &zeros, Addr::reg(place, at.into()), Cache::Usual);
        }
        let mut own = base;
        let mut part = |me: &mut Self, of: Reg, count: u32, bytes: u32| {
            let mask = Opnd::Int(i64::from(count) - 1);
            let number = me.asm.int(Alu::And, Ty::B32, &[of.into(), mask]);
            let by = Opnd::Int(bytes.into());
            own = me.asm.int(Alu::MadLo, Ty::U32, &[number.into(), by, own.into()]);
        };
        if copies > 1 {
            let warp = self.warp();
            part(self, warp, copies, 4 * (self.bins(id) + 1) * columns);
        }
        if columns > 1 {
            let lane = self.lane();
            part(self, lane, columns, 4);
        }
        Counters { base, own, copies, columns }
    }

    fn count(&mut self, id: OpId, counters: &Counters) {
        let x = self.func.ops[id].operands[0];
        let from = self.layout(x);
        let xs = self.regs(x);
        let owner = self.owner(&from);
        let limit = Opnd::Int(self.bins(id).into());
        let each = Opnd::Int(i64::from(4 * counters.columns));
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
            let own = counters.own;
            let at = self.asm.int(Alu::MadLo, Ty::U32, &[bin.into(), each, own.into()]);
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
    }

    /// The sums of all counters of each bin, in the layout of the result.
    fn counts(&mut self, id: OpId, counters: &Counters) -> Vec<Reg> {
        let &Counters { base, copies, columns, .. } = counters;
        let to = self.layout(self.func.ops[id].result());
        let copy_bytes = i64::from(4 * (self.bins(id) + 1) * columns);
        // Copies begin at any word.
        let n = if copies * columns == 1 { to.run_along(0).min(4) } else { 1 };
        // Lanes begin at different columns, since bins are beside each other.
        let mut first_columns = Vec::new();
        for column in 0..columns {
            first_columns.push(match columns {
                1 => None,
                _ => {
                    let lane = self.lane();
                    let by = Opnd::Int(column.into());
                    let turned = self.asm.int(Alu::Add, Ty::U32, &[lane.into(), by]);
                    let mask = Opnd::Int(i64::from(columns) - 1);
                    Some(self.asm.int(Alu::And, Ty::B32, &[turned.into(), mask]))
                }
            });
        }
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
            let each = Opnd::Int(i64::from(4 * columns));
            let at = self.asm.int(Alu::MadLo, Ty::U32, &[c.into(), each, base.into()]);
            let mut sums: Vec<Reg> = Vec::new();
            for copy in 0..copies {
                for column in &first_columns {
                    let at = match column {
                        None => at,
                        Some(c) => {
                            let four = Opnd::Int(4);
                            self.asm.int(Alu::MadLo, Ty::U32, &[(*c).into(), four, at.into()])
                        }
                    };
                    let addr = Addr::reg(at, i64::from(copy) * copy_bytes);
                    let cache = Cache::Usual;
                    let part = self.load_run(Space::Shared, DType::I32, addr, n, when, cache);
                    sums = match sums.is_empty() {
                        true => part,
                        false => sums
                            .iter()
                            .zip(part)
                            .map(|(&a, b)| self.asm.int(Alu::Add, Ty::U32, &[a.into(), b.into()]))
                            .collect(),
                    };
                }
            }
            out.extend(sums);
        }
        out
    }
}

/// The histograms in a loop's body that do nothing but add to a sum which the loop carries, each
/// with the result of the loop that is the sum.
fn summed(func: &tessera_staged::StagedFunc, loop_op: OpId) -> Vec<(OpId, Value)> {
    let op = &func.ops[loop_op];
    let body = op.regions[0];
    let mut users: BTreeMap<Value, Vec<OpId>> = BTreeMap::new();
    for id in func.walk() {
        for &v in &func.ops[id].operands {
            users.entry(v).or_default().push(id);
        }
    }
    let only = |v: Value| match users.get(&v).map_or(&[][..], |u| u) {
        [user] => Some(*user),
        _ => None,
    };
    let end = func.terminator(body);
    let sum_of = |id: OpId| {
        let counts = func.ops[id].result();
        let add = only(counts)?;
        let sum = &func.ops[add];
        if sum.code != StagedOp::Tile(TileOp::Ew(ScalarFn::Add)) || sum.block != body {
            return None;
        }
        let before = *sum.operands.iter().find(|&&v| v != counts)?;
        let place = func.blocks[body].args.iter().skip(1).position(|&a| a == before)?;
        let last = only(sum.result())?;
        let yields = Some(last) == end && func.ops[last].operands[place] == sum.result();
        let result = op.results[place];
        let alike = func.ty(result).layout() == func.ty(counts).layout();
        (yields && alike && only(before) == Some(add)).then_some(result)
    };
    let histograms = func.blocks[body].ops.iter().copied();
    let histograms =
        histograms.filter(|&id| func.ops[id].code == StagedOp::Tile(TileOp::Histogram));
    histograms.filter_map(|id| Some((id, sum_of(id)?))).collect()
}

/// The bytes that an element of what is counted has in memory, if it is loaded.
fn loaded_bytes(func: &tessera_staged::StagedFunc, id: OpId) -> Option<usize> {
    let mut all = vec![func.ops[id].operands[0]];
    let mut next = 0;
    while let Some(&v) = all.get(next) {
        next += 1;
        let Some(op) = func.def(v) else { continue };
        match op.code {
            StagedOp::Tile(TileOp::Load) | StagedOp::FragLoad => {
                return Some(func.ty(v).dtype().bytes());
            }
            StagedOp::Tile(TileOp::Cast | TileOp::Select | TileOp::Ew(_))
            | StagedOp::ConvertLayout => {
                let tiles = op.operands.iter().filter(|&&o| func.ty(o).is_tile());
                all.extend(tiles.filter(|o| !all.contains(o)).copied().collect::<Vec<_>>());
            }
            _ => {}
        }
    }
    None
}
