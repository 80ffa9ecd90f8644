//! Runs programs of ranks (`ranks.rs`): each rank is a cursor over its own memory, and collectives go over the transport inside the process.

use super::arena::Block;
use super::blocks::{Blocks, Given};
use super::joint::Joint;
use super::list::{Addresses, Executor, List, WIDEST, one};
use super::rank_code::{Code, Instr};
use super::ranks::{RankProgram, RankPrograms};
use super::run::{GraphKernels, HostKernels, OnHost, bytes_of};
use super::shared::{Mask, sharers};
use crate::profile::{self, Span};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_comm::{
    Call, Cursor, GroupId, Kind, Local, LocalOptions, Memory, Order, Request, Threads, Transport,
    run,
};
use tessera_diag::{Diagnostic, Diagnostics, Loc};
use tessera_interp::NoKernels;
use tessera_ir::{Attrs, Privilege};
use tessera_numerics::DType;
use tessera_plan::{ALIGN, Array};
use tessera_target::{BufferArg, Queue, with_threads};

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
            Some(program) => {
                let (ins, outs) = args.split_at(program.manual.ins.len().min(args.len()));
                let whole = |arrays: &[BufferArg]| -> Vec<Given> {
                    arrays.iter().cloned().map(Given::Whole).collect()
                };
                // Every process has these arrays whole, and plays all ranks.
                program.run(&whole(ins), &whole(outs), false)
            }
            None => self.kernels.call(kernel, config, privileges, args, queue, loc),
        }
    }
}

/// A thread that runs ranks is worth starting where they have this many bytes of values, and `BETWEEN` between two collectives: threads that
/// hand ranks to each other take longer than a small one.
const SHARE: usize = 1 << 20;
const BETWEEN: usize = SHARE / 4;

/// What one run at a time needs: a transport with its groups, and the memory of each rank.
pub struct Rig {
    transport: Box<dyn Transport>,
    /// The ranks that this process plays.
    here: Range<usize>,
    /// Whether other processes play the others.
    is_joined: bool,
    /// By their numbers in the code.
    collectives: Vec<Joint>,
    /// Of each home of values, the memory of each rank: the same one for ranks that share it.
    memory: BTreeMap<Mask, Vec<Arc<Block>>>,
    /// For each rank the blocks that are not in the arrays of the caller.
    aside: Vec<Block>,
    /// Of what one of several ranks does, by the axes that it is done along: for each rank their group, its size and its first.
    once: BTreeMap<Mask, Vec<Sharers>>,
    /// How many ranks have come to each such place, by the first of those that share.
    arrived: Vec<Vec<AtomicUsize>>,
    /// Where ranks wait for the one that does it.
    barrier: Arc<Call>,
    constants: Vec<Option<Block>>,
    /// How many ranks are between two steps that they wait for.
    running: AtomicUsize,
    /// How many threads launches have.
    threads: usize,
}

impl Rig {
    /// How many threads a launch may use: ranks that run concurrently have a part of them each.
    fn threads(&self) -> usize {
        self.threads / self.running.load(Ordering::Relaxed).max(1)
    }

    fn barrier(&self, group: GroupId) -> Request {
        let (from, to) = (Memory::NONE, Memory::NONE);
        let none = Arc::from([]);
        let call = self.barrier.clone();
        Request { group, call, from, send: Arc::clone(&none), to, receive: none }
    }
}

/// The transport between `ranks` ranks: in this process, or between processes.
fn transport(ranks: usize, is_joined: bool) -> Result<Box<dyn Transport>, Diagnostics> {
    #[cfg(target_os = "linux")]
    if is_joined {
        let joined = crate::dist::processes::current().ok_or_else(|| {
            let text = "expected processes that are joined, got a program of ranks after `dist.shutdown()`";
            Diagnostic::new(tessera_diag::Code::E_COMM_INIT, text)
                .help("call `dist.shutdown()` at the end of the program")
        })?;
        return Ok(Box::new(joined.socket(ranks)));
    }
    let _ = is_joined;
    Ok(Box::new(Local::new(ranks, LocalOptions::default())))
}

#[derive(Copy, Clone)]
struct Sharers {
    group: GroupId,
    count: usize,
    first: usize,
}

fn out_of_memory(bytes: usize) -> Diagnostics {
    let why = format!("{bytes} bytes of memory for a rank could not be had");
    Diagnostic::new(tessera_diag::Code::E_OOM, why).into()
}

impl RankProgram {
    /// How many threads run ranks. Kernels of a rank use the threads of the backend beside them.
    fn workers(&self, collectives: usize) -> Result<usize, Diagnostics> {
        let ranks = self.manual.mesh.count() as usize;
        let bytes = self.program.stats.unshared_bytes.saturating_mul(ranks);
        let shares = (bytes / SHARE).min(bytes / (collectives + 1) / BETWEEN);
        Ok(crate::threads()?.min(ranks).min(1 + shares))
    }

    fn code(&self) -> Result<Code, Diagnostics> {
        let known = self.codes.lock().pop();
        match known {
            Some(code) => Ok(code),
            None => Ok(Code::new(List::new(&self.program.written)?.commands, &self.shared)),
        }
    }

    /// `aside` is how many bytes of blocks a rank has that are not in the arrays of the caller.
    fn rig(&self, aside: usize, is_joined: bool) -> Result<Rig, Diagnostics> {
        let mesh = &self.manual.mesh;
        let n = mesh.count() as usize;
        let transport = transport(n, is_joined)?;
        let here = transport.here();
        let (mut collectives, mut once, mut arrived) = (Vec::new(), BTreeMap::new(), Vec::new());
        let code = self.code()?;
        for instr in &code.instrs {
            match instr {
                Instr::Start { how, from, to, .. } => {
                    let of = |rank| transport.group(&mesh.group(rank, &how.axes.names));
                    let groups = (0..n).map(of).collect::<Result<_, _>>()?;
                    let (_, members) = mesh.position(0, &how.axes.names);
                    collectives.push(Joint::new(how, from, to, members, groups));
                }
                Instr::Once { along, .. } => {
                    arrived.push((0..n).map(|_| AtomicUsize::new(0)).collect());
                    let of = |rank| {
                        let all = sharers(mesh, rank, *along);
                        let group = transport.group(&all)?;
                        Ok(Sharers { group, count: all.len(), first: all[0] })
                    };
                    if !once.contains_key(along) {
                        once.insert(*along, (0..n).map(of).collect::<Result<_, Diagnostic>>()?);
                    }
                }
                Instr::Do(_)
                | Instr::Record(_)
                | Instr::Wait(_)
                | Instr::Unless { .. }
                | Instr::Jump(_)
                | Instr::Iterate { .. } => {}
            }
        }
        self.codes.lock().push(code);
        let block = |bytes| Block::new(bytes).ok_or_else(|| out_of_memory(bytes));
        let mut ends: BTreeMap<Mask, usize> = BTreeMap::new();
        let buffers = self.program.plan().buffers.iter().zip(&self.program.written.places.offsets);
        for ((buffer, offset), home) in buffers.zip(&self.shared.homes) {
            let end = ends.entry(*home).or_default();
            *end = offset.map_or(*end, |offset| (offset + buffer.bytes).max(*end));
        }
        let mut memory = BTreeMap::new();
        for (home, end) in ends {
            let mut of: Vec<Arc<Block>> = Vec::with_capacity(n);
            for rank in 0..n {
                let first = sharers(mesh, rank, home)[0];
                of.push(match of.get(first) {
                    Some(known) => known.clone(),
                    None => Arc::new(block(if here.contains(&rank) { end } else { 0 })?),
                });
            }
            memory.insert(home, of);
        }
        let own = |rank| if here.contains(&rank) { aside } else { 0 };
        let aside = (0..n).map(|rank| block(own(rank))).collect::<Result<_, Diagnostics>>()?;
        let constants = self.program.constants()?;
        let (running, threads) = (AtomicUsize::new(0), crate::threads()?);
        let barrier = Call {
            kind: Kind::Barrier,
            dtype: DType::U8,
            counts: Vec::new(),
            at: Loc::unknown(),
            part_of: None,
        };
        let barrier = Arc::new(barrier);
        Ok(Rig {
            transport,
            here,
            is_joined,
            collectives,
            memory,
            aside,
            once,
            arrived,
            barrier,
            constants,
            running,
            threads,
        })
    }

    /// Where the buffers of a rank are that are the plan's own.
    fn bases(&self, rig: &Rig, rank: usize) -> Vec<u64> {
        let offsets = &self.program.written.places.offsets;
        let each = rig.constants.iter().zip(offsets).zip(&self.shared.homes);
        let address = |((constant, offset), home): ((&Option<Block>, &Option<usize>), &Mask)| {
            let memory = |at: usize| rig.memory[home][rank].address().wrapping_add(at);
            match (constant, offset) {
                (Some(block), _) => block.address() as u64,
                (None, Some(offset)) => memory(*offset) as u64,
                (None, None) => 0,
            }
        };
        each.map(address).collect()
    }

    /// Runs the ranks of this process on the operands, and on memory for the results: all ranks, unless other processes play some
    /// (`is_joined`). Then operands and results are in blocks, of which only those of ranks of this process are looked at.
    pub(super) fn run(
        &self,
        ins: &[Given],
        outs: &[Given],
        is_joined: bool,
    ) -> Result<(), Diagnostics> {
        let mesh = &self.manual.mesh;
        let (ins, outs) =
            (Blocks::all(mesh, ins, &self.manual.ins), Blocks::all(mesh, outs, &self.manual.outs));
        // Where blocks that are not in the arrays of the caller are in the memory of a rank; the positions come last.
        let mut aside = 0;
        let mut place = |bytes: usize| {
            let at = aside;
            aside += bytes.next_multiple_of(ALIGN);
            at
        };
        let places: Vec<usize> = ins.iter().chain(&outs).map(|b| place(b.bytes(mesh))).collect();
        let positions: Vec<usize> = self.positions.iter().map(|_| place(8)).collect();
        let known = {
            let mut idle = self.idle.lock();
            let at = idle.iter().position(|rig| rig.is_joined == is_joined);
            at.map(|at| idle.swap_remove(at))
        };
        let rig = match known {
            Some(rig) => rig,
            None => self.rig(aside, is_joined)?,
        };
        let here = rig.here.clone();
        let homes: Vec<Mask> = self.result_homes();
        let mut joined: Vec<(usize, usize, *mut u8)> = Vec::new();
        let mut cursors: Vec<RankCursor<'_>> = Vec::with_capacity(here.len());
        for rank in here.clone() {
            let of = |rank: usize, at: usize| rig.aside[rank].address().wrapping_add(at);
            let own = |at| of(rank, at);
            let mut bases = self.bases(&rig, rank);
            let mut addresses = Vec::with_capacity(places.len());
            for (blocks, &at) in ins.iter().zip(&places) {
                // Ranks that have the same block share it.
                let first = blocks.first(mesh, rank, &here);
                addresses.push(match blocks.in_place {
                    true => blocks.direct(mesh, rank),
                    false => {
                        if first == rank {
                            blocks.copy(mesh, rank, own(at), false);
                        }
                        of(first, at)
                    }
                });
            }
            for (axes, &at) in self.positions.iter().zip(&positions) {
                let (position, _) = mesh.position(rank, axes);
                // SAFETY: the place has eight bytes.
                unsafe { own(at).cast::<i64>().write_unaligned(position as i64) }
                addresses.push(own(at));
            }
            let params = addresses.len();
            let results = outs.iter().zip(&places[ins.len()..]).zip(&homes);
            for (i, ((blocks, &at), &home)) in results.enumerate() {
                // Of copies the lowest rank's counts: it alone writes the whole array, or those that share its memory.
                let (first, lowest) =
                    (blocks.first(mesh, rank, &here), sharers(mesh, rank, home)[0]);
                addresses.push(match first == lowest && blocks.in_place {
                    true => blocks.direct(mesh, rank),
                    false => of(lowest, at),
                });
                if first == rank && !blocks.in_place {
                    joined.push((i, rank, own(at)));
                }
            }
            self.program.bind(&mut bases, &addresses[..params], &addresses[params..]);
            let aligned = addresses.iter().map(|&a| (a as u64 % WIDEST) as u8).collect();
            cursors.push(RankCursor::new(self, &rig, rank, bases, aligned)?);
        }
        let mut all: Vec<&mut dyn Cursor> = cursors.iter_mut().map(|c| c as _).collect();
        run(
            &*rig.transport,
            &mut all,
            &Threads(self.workers(rig.collectives.len())?),
            Order::First,
        )?;
        drop(cursors);
        for (i, rank, block) in joined {
            outs[i].copy(mesh, rank, block, true);
        }
        self.idle.lock().push(rig);
        Ok(())
    }

    /// Along which axes each result has memory of its own.
    fn result_homes(&self) -> Vec<Mask> {
        self.program.plan().results.iter().map(|(b, _)| self.shared.homes[*b]).collect()
    }
}

/// Bytes from an address on.
type Bytes = (u64, u64);

/// A collective that nobody has waited for.
struct Flying {
    number: usize,
    reads: Bytes,
    writes: Bytes,
    /// Where a profile is taken: when it started, what it is called, and its place in the source.
    span: Option<(Span, String, Loc)>,
}

/// A rank, and where it is in the program.
struct RankCursor<'a> {
    program: &'a RankProgram,
    rig: &'a Rig,
    rank: usize,
    at: usize,
    addresses: Addresses,
    aligned: Vec<u8>,
    /// How many collectives were started, and how many of these, from the first on, were waited for.
    started: usize,
    waited: usize,
    flying: Vec<Flying>,
    /// For each event how many collectives were started before it.
    events: BTreeMap<usize, usize>,
    /// The collective at which it waits for the rank that does what several share.
    behind: Option<usize>,
    /// The iterations that loops with collectives have begun.
    iterations: BTreeMap<usize, i64>,
}

impl<'a> RankCursor<'a> {
    fn new(
        program: &'a RankProgram,
        rig: &'a Rig,
        rank: usize,
        bases: Vec<u64>,
        aligned: Vec<u8>,
    ) -> Result<Self, Diagnostics> {
        let addresses = Addresses::for_loops(bases, program.program.loops());
        Ok(Self {
            program,
            rig,
            rank,
            at: 0,
            addresses,
            aligned,
            started: 0,
            waited: 0,
            flying: Vec::new(),
            events: BTreeMap::new(),
            behind: None,
            iterations: BTreeMap::new(),
        })
    }

    fn range(&self, array: &Array) -> Bytes {
        let at = self.addresses.of(array);
        (at, at + bytes_of(&array.dims, array.dtype) as u64)
    }

    /// The next collective to wait for, so that this many are over.
    fn wait(&mut self, count: usize) -> Option<usize> {
        if self.waited >= count {
            self.land(self.waited);
            return None;
        }
        self.waited += 1;
        Some(self.waited - 1)
    }

    /// Collectives below a number are over.
    fn land(&mut self, count: usize) {
        for over in self.flying.extract_if(.., |f| f.number < count) {
            if let Some((span, name, loc)) = over.span {
                let bytes = over.reads.1 - over.reads.0;
                span.collective(&name, self.rank, &loc, bytes as usize);
            }
        }
    }

    /// How many collectives have to be over before one with these arrays: its queue is in order.
    fn behind(&self, reads: Bytes, writes: Bytes) -> usize {
        let share = |a: Bytes, b: Bytes| a.0 < b.1 && b.0 < a.1;
        let clash = |f: &&Flying| {
            share(f.writes, reads) || share(f.writes, writes) || share(f.reads, writes)
        };
        self.flying.iter().filter(clash).map(|f| f.number + 1).max().unwrap_or(0)
    }

    fn request(&self, from: &Array, to: &Array, number: usize) -> Request {
        let memory = |a: &Array| {
            let (begin, end) = self.range(a);
            // SAFETY: the plan gives each value memory that lives as long as the run; its verifier says that what a collective in flight writes
            // is waited for before it is accessed, and what it reads before it is written.
            unsafe { Memory::host(begin as *mut u8, (end - begin) as usize) }
        };
        let Joint { groups, call, send, receive } = &self.rig.collectives[number];
        let (call, send, receive) = (call.clone(), send.clone(), receive.clone());
        Request {
            group: groups[self.rank],
            call,
            from: memory(from),
            send,
            to: memory(to),
            receive,
        }
    }

    /// Runs to the next collective, event that is not over, or to the end.
    fn go(&mut self, code: &mut Code) -> Result<tessera_comm::Step, Diagnostics> {
        let program = &*self.program.program;
        let alike = *code.aligned.get_or_insert_with(|| self.aligned.clone()) == self.aligned;
        if let Some(number) = self.behind.take() {
            return Ok(tessera_comm::Step::Wait(number));
        }
        let (mut none, watched) = (NoKernels, profile::is_on());
        let mut kernels = HostKernels(&mut none);
        let mut host = OnHost { program, kernels: &mut kernels, alike, watched };
        while let Some(instr) = code.instrs.get_mut(self.at) {
            match instr {
                Instr::Do(command) => {
                    with_threads(self.rig.threads(), || {
                        one(command, &mut host, &mut self.addresses)
                    })?;
                }
                Instr::Once { steps, along, number } => {
                    let sharers = self.rig.once[along][self.rank];
                    let arrived = &self.rig.arrived[*number][sharers.first];
                    // The last to come does it: what the others did before is over, and they do not go on.
                    if arrived.fetch_add(1, Ordering::AcqRel) + 1 == sharers.count {
                        arrived.store(0, Ordering::Relaxed);
                        for step in steps {
                            let work = || one(step, &mut host, &mut self.addresses);
                            with_threads(self.rig.threads(), work)?;
                        }
                    } else {
                        self.behind = Some(self.started);
                    }
                    self.started += 1;
                    self.at += 1;
                    return Ok(tessera_comm::Step::Start(Box::new(
                        self.rig.barrier(sharers.group),
                    )));
                }
                Instr::Start { how, from, to, number } => {
                    let (reads, writes) = (self.range(from), self.range(to));
                    if let Some(number) = self.wait(self.behind(reads, writes)) {
                        return Ok(tessera_comm::Step::Wait(number));
                    }
                    let span = watched.then(|| Span::open(None)).flatten();
                    let span = span.map(|span| {
                        let name = format!("{} over {}", how.name(), how.axes.names.join(", "));
                        (span, name, how.loc.clone())
                    });
                    self.flying.push(Flying { number: self.started, reads, writes, span });
                    self.started += 1;
                    self.at += 1;
                    let request = self.request(from, to, *number);
                    return Ok(tessera_comm::Step::Start(Box::new(request)));
                }
                Instr::Record(event) => {
                    self.events.insert(*event, self.started);
                }
                Instr::Wait(event) => {
                    let count = self.events.get(event).copied().unwrap_or(0);
                    if let Some(number) = self.wait(count) {
                        return Ok(tessera_comm::Step::Wait(number));
                    }
                }
                Instr::Unless { pred, to } => {
                    // SAFETY: a bool without axes is one byte.
                    let is_true = unsafe { (self.addresses.of(pred) as *const u8).read() } != 0;
                    if !is_true {
                        self.at = *to;
                        continue;
                    }
                }
                Instr::Jump(to) => {
                    self.at = *to;
                    continue;
                }
                Instr::Iterate { id, trip, reverse, position, end } => {
                    let iteration = self.iterations.get(id).copied().unwrap_or(0);
                    if iteration == *trip {
                        // It may begin again.
                        self.iterations.remove(id);
                        self.at = *end;
                        continue;
                    }
                    let i = if *reverse { *trip - 1 - iteration } else { iteration };
                    self.iterations.insert(*id, iteration + 1);
                    self.addresses.set_iteration(*id, i);
                    host.index(&mut self.addresses, *id, position, i);
                }
            }
            self.at += 1;
        }
        self.land(usize::MAX);
        Ok(tessera_comm::Step::Ended)
    }
}

impl Cursor for RankCursor<'_> {
    fn step(&mut self) -> Result<tessera_comm::Step, Diagnostics> {
        let mut code = self.program.code()?;
        self.rig.running.fetch_add(1, Ordering::Relaxed);
        let done = self.go(&mut code);
        self.rig.running.fetch_sub(1, Ordering::Relaxed);
        self.program.codes.lock().push(code);
        done
    }
}
