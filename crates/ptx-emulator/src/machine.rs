//! Concurrent blocks of a cluster: the warp scheduler, named barriers, and deadlock detection.

use super::async_copy::Job;
use super::fault::{Fault, FaultKind, Res, Trouble, name_step};
use super::mbar::Mbar;
use super::memory::Memory;
use super::program::{Program, Slot};
use super::races::Races;
use super::shared::Shared;
use super::warp::{Warp, name_lanes};
use super::{Grid, Options, Stats};
use std::collections::{BTreeMap, BTreeSet};
use tessera_ptx::inst::Special;
use tessera_ptx::module::{Kernel, Module};

/// When an asynchronous copy fetches its bytes. The results of a correct kernel do not depend on
/// it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Copies {
    /// When they are waited for.
    #[default]
    Late,
    /// Immediately.
    Early,
    /// One or the other, by the seed.
    Random,
}

/// One of the 16 named barriers of a block.
#[derive(Default)]
pub(super) struct Bar {
    /// Threads that arrived, and the expected count, if the instruction names it.
    arrived: u32,
    count: Option<u32>,
    waiting: Vec<usize>,
    any: bool,
    pub clock: Vec<u32>,
}

pub(super) struct Block {
    pub at: [u32; 3],
    /// Its rank in the cluster.
    pub rank: u32,
    pub shared: Shared,
    pub bars: [Bar; 16],
    /// mbarriers, by their shared memory offsets.
    pub mbars: BTreeMap<usize, Mbar>,
    /// Warps that have not ended.
    pub live: u32,
}

pub(super) struct Machine<'a> {
    pub module: &'a Module,
    pub kernel: &'a Kernel,
    pub program: &'a Program,
    pub memory: &'a Memory<'a>,
    pub options: &'a Options,
    /// The bytes of all parameters; tensor maps may be among them.
    pub params: &'a [u8],
    pub grid: &'a Grid,
    pub blocks: Vec<Block>,
    /// All warps of the blocks; the running one is taken out.
    pub warps: Vec<Option<Box<Warp>>>,
    /// Counts events that a held lane may wait for.
    pub events: u64,
    /// By warpgroup: the clock that counts its WGMMAs.
    pub wgmma_agents: BTreeMap<usize, u32>,
    pub cluster_phase: u64,
    pub cluster_clock: Vec<u32>,
    pub races: Option<Races>,
    /// Asynchronous copies in flight.
    pub jobs: Vec<Job>,
    pub stats: Stats,
    /// The current step.
    pub pc: u32,
    random: u64,
}

/// Warp instructions that a warp may execute before others get a time slice.
const SLICE: u32 = 4096;

impl<'a> Machine<'a> {
    pub fn new(
        module: &'a Module,
        kernel: &'a Kernel,
        program: &'a Program,
        memory: &'a Memory<'a>,
        options: &'a Options,
        grid: &'a Grid,
    ) -> Self {
        Self {
            module,
            kernel,
            program,
            memory,
            options,
            params: &[],
            grid,
            blocks: Vec::new(),
            warps: Vec::new(),
            events: 0,
            wgmma_agents: BTreeMap::new(),
            cluster_phase: 0,
            cluster_clock: Vec::new(),
            races: None,
            jobs: Vec::new(),
            stats: Stats::default(),
            pc: 0,
            random: options.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        }
    }

    pub fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// Runs the blocks of one cluster to their end.
    pub fn run_cluster(&mut self, blocks: &[[u32; 3]]) -> Result<(), Fault> {
        self.begin(blocks);
        let mut next = 0;
        loop {
            let Some(i) = self.choose(&mut next) else {
                if self.warps.iter().flatten().all(|w| w.done()) {
                    return self.check_jobs().map_err(|(warp, t)| self.job_fault(warp, *t));
                }
                match self.land_something() {
                    Ok(true) => continue,
                    Ok(false) => return Err(self.deadlock()),
                    Err(t) => return Err(self.job_fault(0, *t)),
                }
            };
            let Some(mut w) = self.warps[i].take() else { continue };
            let ended = self.run_slice(&mut w, SLICE);
            let left = match ended {
                Ok(()) if w.done() => self.leave(&w),
                Ok(()) => Ok(()),
                Err(t) => Err(t),
            };
            let at = (w.block, w.index);
            let spins = self.runnable(&w);
            self.warps[i] = Some(w);
            left.map_err(|t| self.fault(*t, at))?;
            // A warp that polls for a copy must find it eventually.
            let lucky = self.options.copies == Copies::Random && self.random() & 1 == 0;
            if (spins || lucky) && !self.jobs.is_empty() {
                self.land_something().map_err(|t| self.job_fault(0, *t))?;
            }
        }
    }

    fn begin(&mut self, blocks: &[[u32; 3]]) {
        let per_block = self.kernel.threads.div_ceil(32);
        let total = per_block as usize * blocks.len();
        self.blocks.clear();
        self.warps.clear();
        self.jobs.clear();
        self.cluster_phase = 0;
        self.cluster_clock = vec![0; if self.options.races { total } else { 0 }];
        for (rank, &at) in blocks.iter().enumerate() {
            let shared = Shared::new(self.program.shared_bytes);
            let bars = Default::default();
            let (rank_in, mbars, live) = (rank as u32, BTreeMap::new(), per_block);
            self.blocks.push(Block { at, rank: rank_in, shared, bars, mbars, live });
            for index in 0..per_block {
                let lanes = (self.kernel.threads - index * 32).min(32);
                let mut w = Warp::new(self.program, rank, index, lanes);
                self.fill_specials(&mut w);
                self.warps.push(Some(Box::new(w)));
            }
        }
        let words = self.program.shared_bytes.div_ceil(self.program.grain) as usize;
        self.races = self.options.races.then(|| Races::new(total, blocks.len(), words));
        self.stats.blocks += blocks.len() as u64;
    }

    fn fill_specials(&self, w: &mut Warp) {
        let Block { at, rank, .. } = self.blocks[w.block];
        let cluster = self.blocks.len().max(self.kernel.cluster as usize) as u32;
        for (&special, &row) in &self.program.specials {
            let mut lanes = [0; 32];
            for (lane, out) in (0u32..).zip(&mut lanes) {
                *out = match special {
                    Special::TidX => w.index * 32 + lane,
                    Special::NtidX => self.kernel.threads,
                    Special::CtaidX => at[0],
                    Special::CtaidY => at[1],
                    Special::CtaidZ => at[2],
                    Special::NctaidX => self.grid.grid[0],
                    Special::NctaidY => self.grid.grid[1],
                    Special::NctaidZ => self.grid.grid[2],
                    Special::LaneId => lane,
                    Special::ClusterCtaRank => rank,
                    Special::ClusterNctaRank => cluster,
                    Special::ClusterIdX => at[0] / cluster,
                    Special::NclusterIdX => self.grid.grid[0] / cluster,
                    Special::SmId => at[0] % 8,
                    // Read when the instruction executes.
                    Special::Clock64 | Special::GlobalTimer => 0,
                };
            }
            w.narrow[row as usize] = lanes;
        }
    }

    fn runnable(&self, w: &Warp) -> bool {
        let stuck = w.alive & !w.held & !w.parked == 0 && w.held != 0;
        !w.done() && w.bar.is_none() && !(stuck && w.held_since == self.events)
    }

    /// The warp that runs next: round robin, or random by the seed.
    fn choose(&mut self, next: &mut usize) -> Option<usize> {
        let n = self.warps.len();
        let from = if self.options.seed == 0 { *next } else { self.random() as usize % n };
        let i = (0..n)
            .map(|i| (from + i) % n)
            .find(|&i| self.warps[i].as_ref().is_some_and(|w| self.runnable(w)))?;
        *next = i + 1;
        Some(i)
    }

    /// The barrier that these lanes name; it must be uniform.
    pub fn barrier_number(&self, w: &Warp, mask: u32, id: Slot) -> Res<u32> {
        let named: BTreeSet<u64> =
            (0..32).filter(|l| mask >> l & 1 == 1).map(|l| w.get(id, l)).collect();
        match named.into_iter().collect::<Vec<_>>()[..] {
            [one] if one < 16 => Ok(one as u32),
            ref got => {
                let text = format!("expected one barrier of 0 to 15 for all lanes, got {got:?}");
                Err(Trouble::new(FaultKind::Invalid, text))
            }
        }
    }

    /// A warp arrives at a barrier. Returns whether it goes on; otherwise it waits.
    pub fn arrive(
        &mut self,
        w: &mut Warp,
        id: u32,
        count: Option<u32>,
        waits: bool,
        answer: Option<(u32, bool)>,
    ) -> Res<bool> {
        if let Some(n) = count
            && (n == 0 || !n.is_multiple_of(32))
        {
            let text = format!(
                "barrier {id} is requested to wait for {n} threads, which are no whole warps"
            );
            return Err(Trouble::new(FaultKind::Invalid, text));
        }
        let me = self.number(w);
        if let Some(races) = &mut self.races {
            let clock = &mut self.blocks[w.block].bars[id as usize].clock;
            races.publish(me, clock);
        }
        let bar = &mut self.blocks[w.block].bars[id as usize];
        if bar.arrived > 0 && bar.count != count {
            let text = format!(
                "barrier {id} is waited at for {:?} threads and also for {count:?} (none: all)",
                bar.count
            );
            return Err(Trouble::new(FaultKind::Divergent, text));
        }
        bar.count = count;
        bar.arrived += 32;
        bar.any |= answer.is_some_and(|(_, any)| any);
        if waits {
            w.bar = Some(id);
            w.bar_answer = answer.map(|(d, _)| d);
            bar.waiting.push(me);
        }
        let full = self.bar_full(w.block, id)?;
        if full {
            self.release(w.block, id, w);
        }
        Ok(!waits || full)
    }

    fn bar_full(&self, block: usize, id: u32) -> Res<bool> {
        let bar = &self.blocks[block].bars[id as usize];
        let expected = bar.count.unwrap_or(self.blocks[block].live * 32);
        if bar.arrived > expected {
            let text = format!(
                "{} threads arrived at barrier {id}, which waits for {expected}",
                bar.arrived
            );
            return Err(Trouble::new(FaultKind::Divergent, text));
        }
        Ok(bar.arrived > 0 && bar.arrived == expected)
    }

    /// Releases all warps that wait at a barrier. `w` is the running warp.
    fn release(&mut self, block: usize, id: u32, w: &mut Warp) {
        let bar = std::mem::take(&mut self.blocks[block].bars[id as usize]);
        let me = self.number(w);
        for i in bar.waiting {
            let go = |w: &mut Warp| {
                w.bar = None;
                if let Some(d) = w.bar_answer.take() {
                    w.set_pred(d, w.alive, if bar.any { u32::MAX } else { 0 });
                }
            };
            if i == me {
                go(w);
            } else if let Some(other) = self.warps[i].as_mut() {
                go(other);
            }
            if let Some(races) = &mut self.races {
                races.learn(i, &bar.clock);
            }
        }
        self.stats.barriers += 1;
    }

    /// A warp's index among all concurrent warps.
    pub fn number(&self, w: &Warp) -> usize {
        w.block * self.kernel.threads.div_ceil(32) as usize + w.index as usize
    }

    /// A warp has ended: barriers no longer wait for it.
    fn leave(&mut self, w: &Warp) -> Res<()> {
        self.blocks[w.block].live -= 1;
        // The ended warp waits nowhere; a placeholder takes its place.
        let mut none = Warp::new(&Program::default(), w.block, w.index, 0);
        for id in 0..16 {
            let bar = &self.blocks[w.block].bars[id as usize];
            if bar.count.is_none() && bar.arrived > 0 && self.bar_full(w.block, id)? {
                self.release(w.block, id, &mut none);
            }
        }
        self.cluster_check(&mut none);
        Ok(())
    }

    pub fn cluster_arrive(&mut self, w: &mut Warp, mask: u32) -> Res<()> {
        if w.cluster_pending & mask != 0 {
            let lanes = name_lanes(w.cluster_pending & mask);
            let text =
                format!("lanes {lanes} arrive at the cluster's barrier again before having waited");
            return Err(Trouble::new(FaultKind::Divergent, text));
        }
        w.cluster_pending |= mask;
        w.cluster_arrived |= mask;
        super::warp::lanes(mask).for_each(|l| w.cluster_phase[l] = self.cluster_phase);
        let me = self.number(w);
        if let Some(races) = &mut self.races {
            races.publish(me, &mut self.cluster_clock);
        }
        self.cluster_check(w);
        Ok(())
    }

    /// Ends the phase of the cluster barrier if every warp that has not returned is there.
    fn cluster_check(&mut self, w: &mut Warp) {
        let missing = |w: &Warp| w.alive & !w.cluster_arrived != 0;
        let some = self.warps.iter().flatten().any(|w| w.cluster_arrived != 0);
        if (!some && w.cluster_arrived == 0)
            || missing(w)
            || self.warps.iter().flatten().any(|w| missing(w))
        {
            return;
        }
        w.cluster_arrived = 0;
        self.warps.iter_mut().flatten().for_each(|w| w.cluster_arrived = 0);
        self.cluster_phase += 1;
        self.events += 1;
        self.stats.barriers += 1;
    }

    /// Whether lanes may pass the cluster barrier.
    pub fn cluster_wait(&mut self, w: &mut Warp, mask: u32) -> Res<bool> {
        if mask & !w.cluster_pending != 0 {
            let lanes = name_lanes(mask & !w.cluster_pending);
            let text =
                format!("lanes {lanes} wait at the cluster's barrier without having arrived");
            return Err(Trouble::new(FaultKind::Divergent, text));
        }
        if super::warp::lanes(mask).any(|l| w.cluster_phase[l] == self.cluster_phase) {
            return Ok(false);
        }
        w.cluster_pending &= !mask;
        let me = self.number(w);
        if let Some(races) = &mut self.races {
            races.learn(me, &self.cluster_clock);
        }
        Ok(true)
    }

    /// Adds where in the kernel and in the grid an instruction failed.
    pub fn fault(&self, t: Trouble, (block, warp): (usize, u32)) -> Fault {
        let stmt = self.program.origin[self.pc as usize] as usize;
        let thread = t.lane.map(|l| warp * 32 + l);
        let fault = Fault::of(t.kind, t.message)
            .at_stmt(self.module, self.kernel, stmt)
            .in_block(self.blocks[block].at)
            .by(thread, t.address);
        t.notes.into_iter().fold(fault, |f, n| f.note(n))
    }

    /// A fault of a copy, which no warp executes any more.
    fn job_fault(&mut self, warp: usize, t: Trouble) -> Fault {
        let per_block = self.kernel.threads.div_ceil(32) as usize;
        if t.kind == FaultKind::InFlight {
            self.pc = self.job_pc();
        }
        self.fault(t, (warp / per_block, (warp % per_block) as u32))
    }

    pub fn name_step(&self, pc: u32) -> String {
        name_step(self.module, self.kernel, self.program, pc)
    }

    fn deadlock(&self) -> Fault {
        let text = "the block waits for ever: every warp waits for something that nobody will do";
        let mut fault = Fault::of(FaultKind::Deadlock, text);
        if let [block] = &self.blocks[..] {
            fault = fault.in_block(block.at);
        }
        for w in self.warps.iter().flatten() {
            let (at, index) = (self.blocks[w.block].at, w.index);
            let who = format!("block {at:?} warp {index}");
            if w.done() {
                fault = fault.note(format!("{who} has returned"));
            } else {
                for (lanes, pc) in self.standing(w) {
                    let bar = w.bar.map_or(String::new(), |id| format!(" at barrier {id}"));
                    let before = if w.bar.is_some() { pc - 1 } else { pc };
                    let step = self.name_step(before);
                    fault = fault.note(format!("{who} lanes {lanes} wait{bar}: {step}"));
                }
            }
        }
        for block in &self.blocks {
            for (at, bar) in &block.mbars {
                let text = bar.describe();
                fault = fault.note(format!("block {:?}, barrier at {at:#x}: {text}", block.at));
            }
        }
        fault
    }

    /// Groups of lanes of a warp by their position.
    pub fn standing(&self, w: &Warp) -> Vec<(String, u32)> {
        let mut rest = w.alive;
        let mut out = Vec::new();
        while rest != 0 {
            let pc = w.pcs[rest.trailing_zeros() as usize];
            let group =
                super::warp::lanes(rest).filter(|l| w.pcs[*l] == pc).fold(0, |m, l| m | 1 << l);
            out.push((name_lanes(group), pc));
            rest &= !group;
        }
        out
    }
}
