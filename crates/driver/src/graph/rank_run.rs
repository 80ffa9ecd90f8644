//! Runs programs of ranks (`ranks.rs`): each rank is a cursor over its own memory, and collectives go over the transport inside the process.

use super::arena::Block;
use super::ranks::{RankProgram, RankPrograms, Slot, Step, Together};
use super::run::{GraphKernels, HostKernels};
use std::collections::BTreeSet;
use std::sync::Arc;
use tessera_comm::{
    Call, Cursor, GroupId, Kind, Local, LocalOptions, Memory, Order, Piece, Request, Threads,
    Transport, run,
};
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_graph::ops::collective::Split;
use tessera_interp::NoKernels;
use tessera_ir::{Attrs, Privilege};
use tessera_target::{BufferArg, Queue};

/// What one run at a time needs: a transport with its groups, and the memory of each rank.
pub struct Rig {
    local: Local,
    /// Of each collective step, the group of each rank.
    groups: Vec<Vec<GroupId>>,
    memory: Vec<Block>,
}

/// Kernels that a function calls, and the programs of ranks that it does.
pub struct WithRanks<'a> {
    pub ranks: &'a RankPrograms,
    pub kernels: &'a mut dyn GraphKernels,
}

impl GraphKernels for WithRanks<'_> {
    fn call(
        &mut self,
        kernel: &str,
        config: Option<&Attrs>,
        privileges: &[Privilege],
        args: &[BufferArg],
        queue: Option<Queue>,
        loc: &Loc,
    ) -> Result<(), Diagnostics> {
        match self.ranks.get(kernel) {
            Some(program) => program.run(args),
            None => self.kernels.call(kernel, config, privileges, args, queue, loc),
        }
    }
}

/// Copies a box of elements between two row-major arrays.
fn copy_box(
    (from, from_dims, from_start): (*const u8, &[usize], &[usize]),
    (to, to_dims, to_start): (*mut u8, &[usize], &[usize]),
    dims: &[usize],
    item: usize,
) {
    if dims.contains(&0) {
        return;
    }
    let place = |dims: &[usize], start: &[usize], at: &[usize]| {
        let each = dims.iter().zip(start).zip(at);
        each.fold(0, |n, ((d, s), i)| n * d + s + i)
    };
    let row = dims.last().copied().unwrap_or(1) * item;
    let outer = dims.len().saturating_sub(1);
    let mut at = vec![0; dims.len()];
    loop {
        // SAFETY: the box is inside both arrays, which do not overlap.
        unsafe {
            let source = from.add(place(from_dims, from_start, &at) * item);
            let target = to.add(place(to_dims, to_start, &at) * item);
            std::ptr::copy_nonoverlapping(source, target, row);
        }
        let Some(dim) = (0..outer).rev().find(|&d| at[d] + 1 < dims[d]) else { return };
        at[dim] += 1;
        at[dim + 1..].fill(0);
    }
}

fn extents(array: &BufferArg) -> Vec<usize> {
    array.dims.iter().map(|&d| d.max(0) as usize).collect()
}

/// A thread that runs ranks is worth starting where they have this many bytes of values.
const SHARE: usize = 1 << 20;

impl RankProgram {
    /// How many threads run ranks. Kernels of a rank use the threads of the backend beside them.
    fn workers(&self) -> usize {
        let ranks = self.manual.mesh.count() as usize;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        cores.min(ranks).min(1 + self.bytes.saturating_mul(ranks) / SHARE)
    }

    fn rig(&self) -> Result<Rig, Diagnostics> {
        let mesh = &self.manual.mesh;
        let n = mesh.count() as usize;
        let local = Local::new(n, LocalOptions::default());
        let mut groups = Vec::new();
        for step in &self.steps {
            if let Step::Collective { axes, .. } = step {
                let of = |rank| local.group(&mesh.group(rank, axes));
                groups.push((0..n).map(of).collect::<Result<_, _>>()?);
            }
        }
        let block = |_| {
            Block::new(self.bytes).ok_or_else(|| {
                let why = format!("{} bytes of memory for a rank could not be had", self.bytes);
                Diagnostics::from(Diagnostic::new(Code::E_OOM, why))
            })
        };
        let memory = (0..n).map(block).collect::<Result<_, _>>()?;
        Ok(Rig { local, groups, memory })
    }

    /// Runs all ranks on whole arrays: the operands, then memory for the results.
    fn run(&self, args: &[BufferArg]) -> Result<(), Diagnostics> {
        let known = self.idle.lock().pop();
        let rig = match known {
            Some(rig) => rig,
            None => self.rig()?,
        };
        let (ins, outs) = args.split_at(self.params.len().min(args.len()));
        let n = rig.memory.len();
        for rank in 0..n {
            for ((array, split), &slot) in ins.iter().zip(&self.manual.ins).zip(&self.params) {
                let (dims, slot) = (extents(array), &self.slots[slot]);
                let (start, block) = self.manual.mesh.block(split, &dims, rank);
                let zero = vec![0; block.len()];
                let to = slot.address(&rig, rank);
                let item = array.dtype.bytes();
                copy_box((array.data, &dims, &start), (to, &block, &zero), &block, item);
            }
        }
        let mut cursors: Vec<RankCursor<'_>> =
            (0..n).map(|rank| RankCursor::new(self, &rig, rank)).collect();
        let mut all: Vec<&mut dyn Cursor> = cursors.iter_mut().map(|c| c as _).collect();
        run(&rig.local, &mut all, &Threads(self.workers()), Order::First)?;
        for ((array, split), &slot) in outs.iter().zip(&self.manual.outs).zip(&self.yields) {
            self.put(array, split, &self.slots[slot], &rig);
        }
        self.idle.lock().push(rig);
        Ok(())
    }

    /// Joins the blocks of a result; of copies the lowest rank's counts.
    fn put(&self, array: &BufferArg, split: &Split, slot: &Slot, rig: &Rig) {
        let (dims, item) = (extents(array), array.dtype.bytes());
        let mut seen = BTreeSet::new();
        for rank in 0..rig.memory.len() {
            let (start, block) = self.manual.mesh.block(split, &dims, rank);
            let zero = vec![0; block.len()];
            let from = slot.address(rig, rank);
            if seen.insert(start.clone()) {
                copy_box((from, &block, &zero), (array.data, &dims, &start), &block, item);
            }
        }
    }
}

impl Slot {
    fn address(&self, rig: &Rig, rank: usize) -> *mut u8 {
        // SAFETY: the memory of a rank holds all slots.
        unsafe { rig.memory[rank].address().add(self.offset) }
    }
}

/// A rank, and where it is in the program.
struct RankCursor<'a> {
    program: &'a RankProgram,
    rig: &'a Rig,
    rank: usize,
    at: usize,
    /// Collectives in flight: the slot that each writes, by number. Waited for before the slot is read.
    flying: Vec<(usize, usize)>,
    started: usize,
}

impl<'a> RankCursor<'a> {
    fn new(program: &'a RankProgram, rig: &'a Rig, rank: usize) -> Self {
        Self { program, rig, rank, at: 0, flying: Vec::new(), started: 0 }
    }

    fn array(&self, slot: usize, writable: bool) -> BufferArg {
        let slot = &self.program.slots[slot];
        let dims: Vec<i64> = slot.dims.iter().map(|&d| d as i64).collect();
        let mut strides = vec![0; dims.len()];
        let mut step = slot.dtype.bytes() as i64;
        for (stride, &d) in strides.iter_mut().zip(&dims).rev() {
            *stride = step;
            step *= d.max(1);
        }
        let data = slot.address(self.rig, self.rank);
        BufferArg { data, dims, strides, dtype: slot.dtype, writable }
    }

    /// A collective in flight that writes one of these slots.
    fn awaited(&mut self, slots: &[usize]) -> Option<usize> {
        let at = self.flying.iter().position(|(slot, _)| slots.contains(slot))?;
        Some(self.flying.swap_remove(at).1)
    }

    fn request(&self, step: usize) -> Option<Request> {
        let steps = &self.program.steps;
        let Step::Collective { kind, axes, x, out, loc } = &steps[step] else { return None };
        let number = steps[..step].iter().filter(|s| matches!(s, Step::Collective { .. })).count();
        let (from, to) = (&self.program.slots[*x], &self.program.slots[*out]);
        let (_, n) = self.program.manual.mesh.position(self.rank, axes);
        let item = from.dtype.bytes();
        let whole = |slot: &Slot| vec![Piece::contiguous(0, slot.bytes())];
        let cut = |slot: &Slot, dim: usize| -> Vec<Piece> {
            let each = slot.dims[dim] / n;
            (0..n).map(|m| Piece::along(&slot.dims, dim, m * each, each, item)).collect()
        };
        let count = |elements: usize| elements as u64;
        let (kind, counts, send, receive) = match kind {
            Together::AllReduce(op) => {
                (Kind::AllReduce(*op), vec![count(from.count())], whole(from), whole(to))
            }
            Together::ReduceScatter { op, dim } => {
                let counts = vec![count(to.count()); n];
                (Kind::ReduceScatter(*op), counts, cut(from, *dim), whole(to))
            }
            Together::AllGather { dim } => {
                (Kind::AllGather, vec![count(from.count()); n], whole(from), cut(to, *dim))
            }
            Together::AllToAll { split, concat } => {
                let counts = vec![count(from.count() / n); n];
                (Kind::AllToAll, counts, cut(from, *split), cut(to, *concat))
            }
            Together::Permute(pairs) => {
                let kind = Kind::Permute(Arc::from(&pairs[..]));
                (kind, vec![count(from.count())], whole(from), whole(to))
            }
            Together::FromRank { root } => {
                let kind = Kind::Broadcast { root: *root };
                (kind, vec![count(from.count())], whole(from), whole(to))
            }
        };
        let call = Call { kind, dtype: from.dtype, counts, at: loc.clone(), part_of: None };
        // SAFETY: each value has memory of its own, which is written once and lives as long as the run; what a collective in flight
        // writes is waited for before it is read.
        let memory =
            |slot: &Slot| unsafe { Memory::host(slot.address(self.rig, self.rank), slot.bytes()) };
        let group = self.rig.groups[number][self.rank];
        Some(Request { group, call, from: memory(from), send, to: memory(to), receive })
    }
}

impl Cursor for RankCursor<'_> {
    fn step(&mut self) -> Result<tessera_comm::Step, Diagnostics> {
        let program = self.program;
        loop {
            let Some(step) = program.steps.get(self.at) else {
                return Ok(tessera_comm::Step::Ended);
            };
            let read: &[usize] = match step {
                Step::Run { ins, .. } => ins,
                Step::Index { .. } => &[],
                Step::Own { x, .. } | Step::Collective { x, .. } => std::slice::from_ref(x),
            };
            if let Some(number) = self.awaited(read) {
                return Ok(tessera_comm::Step::Wait(number));
            }
            match step {
                Step::Run { program, ins, outs } => {
                    let ins: Vec<BufferArg> = ins.iter().map(|&s| self.array(s, false)).collect();
                    let outs: Vec<BufferArg> = outs.iter().map(|&s| self.array(s, true)).collect();
                    program.run_into(&ins, &outs, &mut HostKernels(&mut NoKernels))?;
                }
                Step::Index { axes, out } => {
                    let (index, _) = program.manual.mesh.position(self.rank, axes);
                    let to = program.slots[*out].address(self.rig, self.rank);
                    // SAFETY: the slot is an i64 without axes.
                    unsafe { to.cast::<i64>().write_unaligned(index as i64) }
                }
                Step::Own { axes, dim, x, out } => {
                    let (index, _) = program.manual.mesh.position(self.rank, axes);
                    let (x, out) = (&program.slots[*x], &program.slots[*out]);
                    let zero = vec![0; out.dims.len()];
                    let mut start = zero.clone();
                    start[*dim] = index * out.dims[*dim];
                    let from = x.address(self.rig, self.rank).cast_const();
                    let to = out.address(self.rig, self.rank);
                    let item = x.dtype.bytes();
                    copy_box((from, &x.dims, &start), (to, &out.dims, &zero), &out.dims, item);
                }
                Step::Collective { out, .. } => {
                    let request = self.request(self.at);
                    self.at += 1;
                    self.flying.push((*out, self.started));
                    self.started += 1;
                    if let Some(request) = request {
                        return Ok(tessera_comm::Step::Start(Box::new(request)));
                    }
                    continue;
                }
            }
            self.at += 1;
        }
    }
}
