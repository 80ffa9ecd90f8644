//! The state of a warp: the registers and position of 32 threads.

use super::copy::Pending;
use super::fast::{L32, L64};
use super::program::{Program, Slot, Where};
use super::wgmma::Begun;
use std::collections::BTreeSet;

/// Fills registers and shared memory that nothing has written.
pub(super) const POISON: u64 = 0xA5A5_DEAD_A5A5_DEAD;

pub(super) struct Warp {
    /// Its block among the concurrent ones, and its index in the block.
    pub block: usize,
    pub index: u32,
    pub narrow: Vec<L32>,
    pub wide: Vec<L64>,
    pub preds: Vec<u32>,
    /// The carry flag of each lane.
    pub carry: u32,
    /// Lanes that have not returned.
    pub alive: u32,
    pub pcs: [u32; 32],
    /// Lanes that wait for others of the warp, with `alive` as it was when the last one began to.
    pub parked: u32,
    pub parked_alive: u32,
    /// Lanes that wait for something outside the warp, and try again after the next event.
    pub held: u32,
    pub held_since: u64,
    /// Lanes that have had their time slice: others go first.
    pub avoid: u32,
    /// The barrier that all lanes wait at, and the predicate that takes its result.
    pub bar: Option<u32>,
    pub bar_answer: Option<u32>,
    /// Lanes that arrived at the cluster barrier, in this phase and without having waited yet.
    pub cluster_arrived: u32,
    pub cluster_pending: u32,
    pub cluster_phase: [u64; 32],
    /// `cp.async` copies in flight, and how many groups each lane has committed.
    pub copies: Vec<Pending>,
    pub commits: [u32; 32],
    /// Bulk groups that each lane has committed.
    pub bulk_commits: [u32; 32],
    /// Writes to shared memory that the async proxy may not see yet: lane, block, offset, bytes.
    pub unfenced: Vec<(u8, u8, u32, u32)>,
    /// WGMMAs of the warpgroup in flight, their committed groups, the registers that they use, and
    /// those that other instructions have used since the last fence.
    pub wgmmas: Vec<Begun>,
    pub wgmma_commits: u32,
    pub flying: BTreeSet<u32>,
    pub loose: BTreeSet<u32>,
}

/// Lanes that run together.
pub(super) struct Pick {
    pub pc: u32,
    pub active: u32,
    /// The position of another lane: to reconverge with.
    pub limit: u32,
}

impl Warp {
    pub fn new(program: &Program, block: usize, index: u32, lanes: u32) -> Self {
        let mut w = Self {
            block,
            index,
            narrow: vec![[POISON as u32; 32]; program.narrow as usize],
            wide: vec![[POISON; 32]; program.wide as usize],
            preds: vec![POISON as u32; program.preds as usize],
            carry: 0,
            alive: if lanes >= 32 { u32::MAX } else { (1 << lanes) - 1 },
            pcs: [0; 32],
            parked: 0,
            parked_alive: 0,
            held: 0,
            held_since: 0,
            avoid: 0,
            bar: None,
            bar_answer: None,
            cluster_arrived: 0,
            cluster_pending: 0,
            cluster_phase: [0; 32],
            copies: Vec::new(),
            commits: [0; 32],
            bulk_commits: [0; 32],
            unfenced: Vec::new(),
            wgmmas: Vec::new(),
            wgmma_commits: 0,
            flying: BTreeSet::new(),
            loose: program.group_regs.clone(),
        };
        for (&value, &row) in &program.narrow_consts {
            w.narrow[row as usize] = [value; 32];
        }
        for (&value, &row) in &program.wide_consts {
            w.wide[row as usize] = [value; 32];
        }
        for (&value, &row) in &program.pred_consts {
            w.preds[row as usize] = if value { u32::MAX } else { 0 };
        }
        w
    }

    pub fn done(&self) -> bool {
        self.alive == 0
    }

    pub fn thread(&self, lane: usize) -> u32 {
        self.index * 32 + lane as u32
    }

    /// The lanes to run next: those at the earliest position in the code, so that branches
    /// reconverge.
    pub fn pick(&mut self) -> Option<Pick> {
        let ready = self.alive & !self.parked & !self.held;
        if ready == 0 {
            return None;
        }
        if ready & !self.avoid == 0 {
            self.avoid = 0;
        }
        let pc = lanes(ready & !self.avoid).map(|l| self.pcs[l]).min()?;
        let (mut active, mut limit) = (0, u32::MAX);
        for lane in lanes(self.alive & !self.held) {
            let at = self.pcs[lane];
            if at == pc {
                active |= 1 << lane;
            } else if at > pc {
                limit = limit.min(at);
            }
        }
        self.parked &= !active;
        Some(Pick { pc, active, limit })
    }

    #[inline(always)]
    pub fn stand(&mut self, mask: u32, pc: u32) {
        for lane in lanes(mask) {
            self.pcs[lane] = pc;
        }
    }

    #[inline(always)]
    pub fn get(&self, slot: Slot, lane: usize) -> u64 {
        match slot {
            Slot::N(r) => self.narrow[r as usize][lane] as u64,
            Slot::W(r) => self.wide[r as usize][lane],
            Slot::P(r) => (self.preds[r as usize] >> lane & 1) as u64,
        }
    }

    /// Sets a register by its low bits.
    #[inline(always)]
    pub fn set(&mut self, slot: Slot, lane: usize, value: u64) {
        match slot {
            Slot::N(r) => self.narrow[r as usize][lane] = value as u32,
            Slot::W(r) => self.wide[r as usize][lane] = value,
            Slot::P(r) => self.set_pred(r, 1 << lane, (value as u32 & 1) << lane),
        }
    }

    #[inline(always)]
    pub fn set_pred(&mut self, row: u32, mask: u32, bits: u32) {
        let p = &mut self.preds[row as usize];
        *p = *p & !mask | bits & mask;
    }

    #[inline(always)]
    pub fn address(&self, at: Where, lane: usize) -> u64 {
        match at.base {
            // 32-bit registers hold shared addresses, which wrap at 32 bits.
            Some(Slot::N(r)) => self.narrow[r as usize][lane].wrapping_add(at.offset as u32) as u64,
            Some(slot) => self.get(slot, lane).wrapping_add(at.offset as u64),
            None => at.offset as u64,
        }
    }
}

/// The lanes of a mask, in order.
#[inline(always)]
pub(super) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let lane = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(lane)
    })
}

/// A lane mask for people: `0-3, 7`.
pub(super) fn name_lanes(mask: u32) -> String {
    let mut out = Vec::new();
    let mut lane = 0;
    while lane < 32 {
        if mask >> lane & 1 == 0 {
            lane += 1;
            continue;
        }
        let first = lane;
        while lane < 32 && mask >> lane & 1 == 1 {
            lane += 1;
        }
        out.push(if lane - first == 1 {
            format!("{first}")
        } else {
            format!("{first}-{}", lane - 1)
        });
    }
    out.join(", ")
}
