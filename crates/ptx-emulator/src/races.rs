//! Race detection by vector clocks: finds two unordered accesses to a word of shared memory, one of
//! them a write.
//!
//! Warps have clocks. A warp's clock advances whenever the warp, or a lane of it, publishes what it
//! did: at barriers, at arrivals, when it issues a copy. Threads that wait there learn it. An
//! access is ordered before one by another warp if that warp knows the clock of the access. Within
//! a warp it is ordered if all lanes have synchronised since, which a second count records, or the
//! lane is the same: lanes are not ordered by lockstep execution.
//!
//! A lane that arrives alone publishes its own accesses, and those of its warp before the lanes
//! last synchronised. If both have accessed shared memory since, only the second is recorded: an
//! access by such a lane just before it arrives can be reported though it is ordered.

use super::fault::{FaultKind, Res, Trouble};
use super::machine::Machine;
use super::warp::Warp;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Use {
    Read,
    /// A read by all lanes of a warp in one instruction.
    Together,
    Write,
    /// A write of the value that is already there: lanes may do so concurrently.
    Rewrite,
    /// Atomic operations, and accesses that are relaxed or stronger.
    Atomic,
}

#[derive(Copy, Clone)]
struct Seen {
    /// The warp, and whose clock it is: the warp's, or that of an mbarrier which counts a copy.
    warp: u32,
    agent: u32,
    clock: u32,
    sync: u32,
    /// Lanes that did it at these clocks; none if all did in one instruction.
    lanes: u32,
    pc: u32,
    atomic: bool,
}

#[derive(Clone, Default)]
struct Word {
    write: Option<Seen>,
    /// At most one for each warp, and one for its WGMMAs.
    reads: Vec<Seen>,
}

pub(super) struct Races {
    /// What each warp knows of all clocks.
    clocks: Vec<Vec<u32>>,
    /// How often the lanes of each warp have synchronised, and the clock before the last time.
    syncs: Vec<u32>,
    safe: Vec<u32>,
    /// What each warp has learned of its own clock where it waited.
    heard: Vec<u32>,
    /// Clocks of mbarriers, each the number of copies it has counted, after those of the warps.
    agents: Vec<u32>,
    /// Lanes that accessed shared memory since.
    touched: Vec<u32>,
    /// For each block.
    words: Vec<Vec<Word>>,
}

impl Races {
    pub fn new(warps: usize, blocks: usize, words: usize) -> Self {
        let mut clocks = vec![vec![0; warps]; warps];
        (0..warps).for_each(|w| clocks[w][w] = 1);
        Self {
            clocks,
            syncs: vec![0; warps],
            safe: vec![0; warps],
            heard: vec![0; warps],
            agents: Vec::new(),
            touched: vec![0; warps],
            words: vec![vec![Word::default(); words]; blocks],
        }
    }

    /// The warp's lanes have synchronised with each other.
    pub fn tick(&mut self, warp: usize) {
        self.safe[warp] = self.clocks[warp][warp];
        self.clocks[warp][warp] += 1;
        self.syncs[warp] += 1;
        self.touched[warp] = 0;
    }

    /// Publishes what some lanes did and know.
    pub fn publish_lanes(&mut self, warp: usize, lanes: u32, to: &mut Vec<u32>) {
        let whole = self.touched[warp] & !lanes == 0;
        let own = self.clocks[warp][warp];
        if !whole {
            self.clocks[warp][warp] = self.safe[warp];
        }
        join(to, &self.clocks[warp]);
        self.clocks[warp][warp] = own + 1;
    }

    /// The same for all lanes of a warp together, which synchronises them.
    pub fn publish(&mut self, warp: usize, to: &mut Vec<u32>) {
        join(to, &self.clocks[warp]);
        self.tick(warp);
    }

    pub fn learn(&mut self, warp: usize, from: &[u32]) {
        let own = self.clocks[warp][warp];
        join(&mut self.clocks[warp], from);
        self.clocks[warp][warp] = own;
        let heard = from.get(warp).copied().unwrap_or(0);
        self.heard[warp] = self.heard[warp].max(heard);
    }

    /// A clock for an mbarrier.
    pub fn new_agent(&mut self) -> u32 {
        self.agents.push(0);
        (self.clocks.len() + self.agents.len() - 1) as u32
    }

    /// Counts one more copy of an mbarrier, which waiting threads will know of.
    pub fn begin_copy(&mut self, agent: u32, to: &mut Vec<u32>) -> u32 {
        let at = agent as usize;
        let clock = &mut self.agents[at - self.clocks.len()];
        *clock += 1;
        to.resize(to.len().max(at + 1), 0);
        to[at] = *clock;
        *clock
    }

    /// Whether an earlier access is ordered before the lane's current one.
    fn ordered(&self, seen: &Seen, warp: usize, lane: usize) -> bool {
        let agent = seen.agent as usize;
        if agent != warp {
            return seen.clock <= self.clocks[warp].get(agent).copied().unwrap_or(0);
        }
        seen.sync < self.syncs[warp]
            || seen.lanes & !(1 << lane) == 0
            || seen.clock <= self.heard[warp]
    }

    /// Records an access; returns the earlier one that it races with.
    fn note(
        &mut self,
        (block, word): (usize, usize),
        warp: usize,
        lane: usize,
        pc: u32,
        how: Use,
        copy: Option<(u32, u32)>,
    ) -> Option<(Seen, bool)> {
        let (agent, now) = copy.unwrap_or((warp as u32, self.clocks[warp][warp]));
        let sync = self.syncs[warp];
        let atomic = how == Use::Atomic;
        let cell = &self.words[block][word];
        let clash = |seen: &Seen| !(atomic && seen.atomic || self.ordered(seen, warp, lane));
        if let Some(seen) = &cell.write {
            let together =
                how == Use::Rewrite && (seen.warp as usize, seen.sync, seen.pc) == (warp, sync, pc);
            if clash(seen) && !together {
                return Some((*seen, true));
            }
        }
        let reads = matches!(how, Use::Read | Use::Together);
        if !reads && let Some(seen) = cell.reads.iter().find(|s| clash(s)) {
            return Some((*seen, false));
        }
        let lanes = if how == Use::Together { 0 } else { 1 << lane };
        if copy.is_none() {
            self.touched[warp] |= lanes;
        }
        let me = Seen { warp: warp as u32, agent, clock: now, sync, lanes, pc, atomic };
        let cell = &mut self.words[block][word];
        if reads {
            match cell.reads.iter_mut().find(|s| (s.warp, s.agent) == (me.warp, me.agent)) {
                Some(seen) if seen.sync == sync => {
                    seen.lanes |= me.lanes;
                    (seen.clock, seen.pc) = (now, pc);
                }
                Some(seen) => *seen = me,
                None => cell.reads.push(me),
            }
        } else {
            cell.reads.clear();
            match &mut cell.write {
                Some(seen) if (seen.agent, seen.sync, seen.pc) == (me.agent, sync, pc) => {
                    seen.lanes |= me.lanes;
                    seen.clock = now;
                }
                write => *write = Some(me),
            }
        }
        None
    }
}

pub(super) fn join(to: &mut Vec<u32>, from: &[u32]) {
    to.resize(to.len().max(from.len()), 0);
    to.iter_mut().zip(from).for_each(|(t, f)| *t = (*t).max(*f));
}

impl Machine<'_> {
    /// Records that a lane accesses bytes of shared memory.
    #[inline(always)]
    pub(super) fn used(
        &mut self,
        w: &Warp,
        lane: usize,
        block: usize,
        at: usize,
        bytes: usize,
        how: Use,
    ) -> Res<()> {
        if self.races.is_none() {
            return Ok(());
        }
        self.used_slowly(w, lane, block, (at, bytes), how, None)
    }

    /// Records an access; `copy` is the clock of the mbarrier that counts it, if it is a copy's.
    pub(super) fn used_slowly(
        &mut self,
        w: &Warp,
        lane: usize,
        block: usize,
        (at, bytes): (usize, usize),
        how: Use,
        copy: Option<(u32, u32)>,
    ) -> Res<()> {
        let me = self.number(w);
        let grain = self.program.grain as usize;
        let per_block = self.kernel.threads.div_ceil(32);
        let pc = self.pc;
        let Some(races) = &mut self.races else { return Ok(()) };
        for word in at / grain..(at + bytes).div_ceil(grain) {
            let Some((seen, wrote)) = races.note((block, word), me, lane, pc, how, copy) else {
                continue;
            };
            let others =
                seen.lanes & if seen.warp as usize == me { !(1 << lane) } else { u32::MAX };
            let other = (seen.warp % per_block) * 32 + others.trailing_zeros().min(31);
            let does = |writes: bool| if writes { "writes" } else { "reads" };
            let text = format!(
                "a race: thread {} {} shared byte {:#x} and thread {other} {} it, and nothing orders the two",
                w.thread(lane),
                does(!matches!(how, Use::Read | Use::Together)),
                word * grain,
                does(wrote),
            );
            let address = (word * grain) as u64;
            let note = format!("thread {other} did so at {}", self.name_step(seen.pc));
            return Err(Trouble::new(FaultKind::Race, text).address(address).note(note).lane(lane));
        }
        Ok(())
    }
}
