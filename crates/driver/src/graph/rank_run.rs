//! Runs programs of ranks (`ranks.rs`): each rank is a cursor over its own memory, and collectives go over the transport inside the process.

use super::arena::Block;
use super::joint::Joint;
use super::list::{Addresses, Command, Executor, List, WIDEST, one};
use super::ranks::{RankProgram, RankPrograms};
use super::run::{GraphKernels, HostKernels, OnHost, bytes_of};
use crate::profile::{self, Span};
use std::collections::{BTreeMap, BTreeSet};
use tessera_comm::{Cursor, Local, LocalOptions, Memory, Order, Request, Threads, Transport, run};
use tessera_diag::{Diagnostic, Diagnostics, Loc};
use tessera_graph::ops::collective::{MeshAxes, Split};
use tessera_interp::NoKernels;
use tessera_ir::{Attrs, Privilege};
use tessera_plan::{ALIGN, Array, Collective};
use tessera_target::{BufferArg, Queue};

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

/// A thread that runs ranks is worth starting where they have this many bytes of values, and so many between two collectives: threads that
/// hand ranks to each other take longer than a small one.
const SHARE: usize = 1 << 20;
const BETWEEN: usize = SHARE / 4;

/// Whether a block of a row-major array is contiguous in it.
fn is_contiguous(dims: &[usize], block: &[usize]) -> bool {
    let first = dims.iter().zip(block).rposition(|(d, b)| d != b);
    first.is_none_or(|first| block[..first].iter().all(|&b| b == 1))
}

/// The byte at which a block begins in a row-major array.
fn begin(dims: &[usize], start: &[usize], item: usize) -> usize {
    dims.iter().zip(start).fold(0, |n, (d, s)| n * d + s) * item
}

/// Blocks of a whole array: where the ranks have them.
struct Blocks<'a> {
    array: &'a BufferArg,
    dims: Vec<usize>,
    split: &'a Split,
    /// Ranks work on the whole array: their blocks are contiguous in it.
    in_place: bool,
}

impl<'a> Blocks<'a> {
    fn all(mesh: &MeshAxes, arrays: &'a [BufferArg], splits: &'a [Split]) -> Vec<Self> {
        arrays.iter().zip(splits).map(|(a, s)| Self::of(mesh, a, s)).collect()
    }

    fn of(mesh: &MeshAxes, array: &'a BufferArg, split: &'a Split) -> Self {
        let dims = extents(array);
        let (_, block) = mesh.block(split, &dims, 0);
        let in_place = is_contiguous(&dims, &block);
        Self { array, dims, split, in_place }
    }

    fn item(&self) -> usize {
        self.array.dtype.bytes()
    }

    /// The bytes of a block.
    fn bytes(&self, mesh: &MeshAxes) -> usize {
        let (_, block) = mesh.block(self.split, &self.dims, 0);
        block.iter().product::<usize>() * self.item()
    }

    /// The block of a rank in the whole array.
    fn direct(&self, mesh: &MeshAxes, rank: usize) -> *mut u8 {
        let (start, _) = mesh.block(self.split, &self.dims, rank);
        self.array.data.wrapping_add(begin(&self.dims, &start, self.item()))
    }

    /// Copies the block of a rank from the whole array or to it.
    fn copy(&self, mesh: &MeshAxes, rank: usize, block: *mut u8, into_whole: bool) {
        let (start, dims) = mesh.block(self.split, &self.dims, rank);
        let zero = vec![0; dims.len()];
        let whole = self.array.data;
        match into_whole {
            true => {
                copy_box((block, &dims, &zero), (whole, &self.dims, &start), &dims, self.item())
            }
            false => {
                copy_box((whole, &self.dims, &start), (block, &dims, &zero), &dims, self.item())
            }
        }
    }
}

/// What one run at a time needs: a transport with its groups, and the memory of each rank.
pub struct Rig {
    local: Local,
    /// By their numbers in the code.
    collectives: Vec<Joint>,
    /// For each rank its values, and the blocks that are not in the arrays of the caller.
    memory: Vec<[Block; 2]>,
    constants: Vec<Option<Block>>,
}

/// The plan of a rank as a worker runs it: lists with a collective inside are instructions with jumps, so that a rank can leave at any of
/// them, and another go on.
pub struct Code {
    instrs: Vec<Instr>,
    /// How the arrays were aligned that launches were settled for.
    aligned: Option<Vec<u8>>,
}

enum Instr {
    Do(Command),
    /// The number is that of the collective in the code.
    Start {
        how: Collective,
        from: Array,
        to: Array,
        number: usize,
    },
    /// An event behind the collectives so far.
    Record(usize),
    Wait(usize),
    Unless {
        pred: Array,
        to: usize,
    },
    Jump(usize),
    /// The next iteration of a loop, or its end.
    Iterate {
        id: usize,
        trip: i64,
        reverse: bool,
        position: Array,
        end: usize,
    },
}

fn is_for_ranks(command: &Command) -> bool {
    let any = |list: &[Command]| list.iter().any(is_for_ranks);
    match command {
        Command::Collective { .. } => true,
        Command::Launch { .. }
        | Command::Host { .. }
        | Command::Call { .. }
        | Command::Copy { .. }
        | Command::Record { .. }
        | Command::Wait { .. } => false,
        Command::If { branches: [then, otherwise], .. } => any(then) || any(otherwise),
        Command::While { test, body, .. } => any(test) || any(body),
        Command::Loop { body, .. } => any(body),
    }
}

#[derive(Default)]
struct Coder {
    instrs: Vec<Instr>,
    collectives: usize,
}

impl Coder {
    fn list(&mut self, commands: Vec<Command>) {
        for command in commands {
            self.command(command);
        }
    }

    fn unless(&mut self, pred: Array) -> usize {
        self.instrs.push(Instr::Unless { pred, to: 0 });
        self.instrs.len() - 1
    }

    /// Sets where a jump goes: behind what there is so far.
    fn land(&mut self, jump: usize) {
        let here = self.instrs.len();
        match &mut self.instrs[jump] {
            Instr::Unless { to, .. } | Instr::Jump(to) | Instr::Iterate { end: to, .. } => {
                *to = here;
            }
            Instr::Do(_) | Instr::Start { .. } | Instr::Record(_) | Instr::Wait(_) => {}
        }
    }

    fn command(&mut self, command: Command) {
        if !is_for_ranks(&command) {
            self.instrs.push(match command {
                // Other queues than the main one are that of collectives, and the host is over with a step when it goes on.
                Command::Record { event, on } if on != 0 => Instr::Record(event),
                Command::Wait { event, on: 0 } => Instr::Wait(event),
                Command::Record { .. } | Command::Wait { .. } => return,
                command => Instr::Do(command),
            });
            return;
        }
        match command {
            Command::Collective { how, from, to } => {
                let number = self.collectives;
                self.collectives += 1;
                self.instrs.push(Instr::Start { how, from, to, number });
            }
            Command::If { pred, branches: [then, otherwise], .. } => {
                let skip = self.unless(pred);
                self.list(then);
                let over = self.instrs.len();
                self.instrs.push(Instr::Jump(0));
                self.land(skip);
                self.list(otherwise);
                self.land(over);
            }
            Command::While { test, pred, body, .. } => {
                let again = self.instrs.len();
                self.list(test);
                let over = self.unless(pred);
                self.list(body);
                self.instrs.push(Instr::Jump(again));
                self.land(over);
            }
            Command::Loop { id, trip, reverse, position, body } => {
                let again = self.instrs.len();
                self.instrs.push(Instr::Iterate { id, trip, reverse, position, end: 0 });
                self.list(body);
                self.instrs.push(Instr::Jump(again));
                self.land(again);
            }
            command => self.instrs.push(Instr::Do(command)),
        }
    }
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
            None => {
                let mut coder = Coder::default();
                coder.list(List::new(&self.program.written)?.commands);
                Ok(Code { instrs: coder.instrs, aligned: None })
            }
        }
    }

    /// `aside` is how many bytes of blocks a rank has that are not in the arrays of the caller.
    fn rig(&self, aside: usize) -> Result<Rig, Diagnostics> {
        let mesh = &self.manual.mesh;
        let n = mesh.count() as usize;
        let local = Local::new(n, LocalOptions::default());
        let mut collectives = Vec::new();
        let code = self.code()?;
        for instr in &code.instrs {
            if let Instr::Start { how, from, to, .. } = instr {
                let of = |rank| local.group(&mesh.group(rank, &how.axes.names));
                let groups = (0..n).map(of).collect::<Result<_, _>>()?;
                let (_, members) = mesh.position(0, &how.axes.names);
                collectives.push(Joint::new(how, from, to, members, groups));
            }
        }
        self.codes.lock().push(code);
        let block = |bytes| Block::new(bytes).ok_or_else(|| out_of_memory(bytes));
        let bytes = self.program.written.places.bytes;
        let memory = (0..n)
            .map(|_| Ok([block(bytes)?, block(aside)?]))
            .collect::<Result<_, Diagnostics>>()?;
        Ok(Rig { local, collectives, memory, constants: self.program.constants()? })
    }

    /// Runs all ranks on whole arrays: the operands, then memory for the results.
    fn run(&self, args: &[BufferArg]) -> Result<(), Diagnostics> {
        let mesh = &self.manual.mesh;
        let (ins, outs) = args.split_at(self.manual.ins.len().min(args.len()));
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
        let known = self.idle.lock().pop();
        let rig = match known {
            Some(rig) => rig,
            None => self.rig(aside)?,
        };
        let n = rig.memory.len();
        // Of copies the lowest rank's counts: it alone writes the whole array.
        let mut written = vec![BTreeSet::new(); outs.len()];
        let mut joined: Vec<(usize, usize, *mut u8)> = Vec::new();
        let mut cursors: Vec<RankCursor<'_>> = Vec::with_capacity(n);
        for rank in 0..n {
            let own = |at: usize| rig.memory[rank][1].address().wrapping_add(at);
            let mut bases = self.program.bases(&rig.constants, rig.memory[rank][0].address());
            let mut addresses = Vec::with_capacity(places.len());
            for (blocks, &at) in ins.iter().zip(&places) {
                addresses.push(match blocks.in_place {
                    true => blocks.direct(mesh, rank),
                    false => {
                        blocks.copy(mesh, rank, own(at), false);
                        own(at)
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
            for (i, (blocks, &at)) in outs.iter().zip(&places[ins.len()..]).enumerate() {
                let (start, _) = mesh.block(blocks.split, &blocks.dims, rank);
                let is_first = written[i].insert(start);
                addresses.push(match is_first && blocks.in_place {
                    true => blocks.direct(mesh, rank),
                    false => own(at),
                });
                if is_first && !blocks.in_place {
                    joined.push((i, rank, own(at)));
                }
            }
            self.program.bind(&mut bases, &addresses[..params], &addresses[params..]);
            let aligned = addresses.iter().map(|&a| (a as u64 % WIDEST) as u8).collect();
            cursors.push(RankCursor::new(self, &rig, rank, bases, aligned)?);
        }
        let mut all: Vec<&mut dyn Cursor> = cursors.iter_mut().map(|c| c as _).collect();
        run(&rig.local, &mut all, &Threads(self.workers(rig.collectives.len())?), Order::First)?;
        drop(cursors);
        for (i, rank, block) in joined {
            outs[i].copy(mesh, rank, block, true);
        }
        self.idle.lock().push(rig);
        Ok(())
    }
}

/// Bytes from an address on.
type Range = (u64, u64);

/// A collective that nobody has waited for.
struct Flying {
    number: usize,
    reads: Range,
    writes: Range,
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
            iterations: BTreeMap::new(),
        })
    }

    fn range(&self, array: &Array) -> Range {
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
    fn behind(&self, reads: Range, writes: Range) -> usize {
        let share = |a: Range, b: Range| a.0 < b.1 && b.0 < a.1;
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
        let (mut none, watched) = (NoKernels, profile::is_on());
        let mut kernels = HostKernels(&mut none);
        let mut host = OnHost { program, kernels: &mut kernels, alike, watched };
        while let Some(instr) = code.instrs.get_mut(self.at) {
            match instr {
                Instr::Do(command) => one(command, &mut host, &mut self.addresses)?,
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
        let done = self.go(&mut code);
        self.program.codes.lock().push(code);
        done
    }
}
