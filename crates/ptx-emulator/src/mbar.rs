//! mbarriers. A phase completes when all expected threads have arrived and all expected bytes have
//! landed.

use super::exec::Flow;
use super::fault::{FaultKind, Res, Trouble};
use super::machine::Machine;
use super::program::{Slot, Where};
use super::shared::BARRIER;
use super::warp::{Warp, lanes};
use tessera_ptx::inst::Space;

#[derive(Clone, Debug)]
pub(super) struct Mbar {
    /// Arrivals that complete a phase, and those that are missing in this one.
    count: u32,
    missing: u32,
    /// Bytes that are expected and have not landed; negative if they landed first.
    bytes: i64,
    /// Completed phases.
    phase: u64,
    /// Clocks that arrivals of this phase published, and those that waiting threads learn.
    clock: Vec<u32>,
    done: Vec<u32>,
    /// Its clock, if races are detected.
    pub agent: u32,
}

/// The largest counts: arrivals, and bytes of either sign.
const MOST: i64 = (1 << 20) - 1;

impl Mbar {
    pub fn describe(&self) -> String {
        format!(
            "phase {} (parity {}) waits for {} of {} arrivals and {} bytes",
            self.phase,
            self.phase & 1,
            self.missing,
            self.count,
            self.bytes
        )
    }
}

fn wrong(text: impl Into<String>, at: usize) -> Box<Trouble> {
    Trouble::new(FaultKind::Invalid, text).address(at as u64)
}

impl Machine<'_> {
    /// The offset of the mbarrier that an address names.
    fn bar_place(&self, w: &Warp, lane: usize, space: Space, at: Where) -> Res<(usize, usize)> {
        let address = w.address(at, lane);
        let (block, offset) = self.find(w, address, space, at.base.is_some())?;
        Ok((block, self.blocks[block].shared.place(offset, 8)?))
    }

    pub(super) fn bar_at(&mut self, block: usize, at: usize) -> Res<&mut Mbar> {
        let found = self.blocks[block].mbars.get_mut(&at);
        found.ok_or_else(|| {
            wrong(format!("no barrier was initialised at shared address {at:#x}"), at)
        })
    }

    pub(super) fn mbar_init(&mut self, w: &Warp, mask: u32, at: Where, count: Slot) -> Res<()> {
        for lane in lanes(mask) {
            let made = self.mbar_init_lane(w, lane, at, w.get(count, lane));
            made.map_err(|t| t.lane(lane))?;
        }
        Ok(())
    }

    fn mbar_init_lane(&mut self, w: &Warp, lane: usize, at: Where, count: u64) -> Res<()> {
        let (block, at) = self.bar_place(w, lane, Space::Shared, at)?;
        if count == 0 || count > MOST as u64 {
            return Err(wrong(format!("a barrier cannot wait for {count} arrivals"), at));
        }
        if self.blocks[block].mbars.contains_key(&at) {
            return Err(wrong(format!("the barrier at {at:#x} is initialised again"), at));
        }
        let shared = &mut self.blocks[block].shared;
        shared.writable(at, 8)?;
        shared.state[at..at + 8].fill(BARRIER);
        let count = count as u32;
        let (clock, done) = (Vec::new(), Vec::new());
        let agent = self.races.as_mut().map_or(0, |r| r.new_agent());
        let bar = Mbar { count, missing: count, bytes: 0, phase: 0, clock, done, agent };
        self.blocks[block].mbars.insert(at, bar);
        Ok(())
    }

    pub(super) fn mbar_inval(&mut self, w: &Warp, mask: u32, at: Where) -> Res<()> {
        for lane in lanes(mask) {
            let (block, at) =
                self.bar_place(w, lane, Space::Shared, at).map_err(|t| t.lane(lane))?;
            self.bar_at(block, at).map_err(|t| t.lane(lane))?;
            self.blocks[block].mbars.remove(&at);
            self.blocks[block].shared.state[at..at + 8].fill(0);
        }
        Ok(())
    }

    /// Lanes expect `bytes` more, then arrive `count` times; by default once.
    pub(super) fn mbar_arrive(
        &mut self,
        w: &Warp,
        mask: u32,
        (space, at): (Space, Where),
        count: Option<Slot>,
        bytes: Option<Slot>,
        arrives: bool,
    ) -> Res<()> {
        let me = self.number(w);
        for lane in lanes(mask) {
            let one = |this: &mut Self| {
                let (block, place) = this.bar_place(w, lane, space, at)?;
                if let Some(bytes) = bytes {
                    this.bar_bytes(block, place, w.get(bytes, lane) as i64)?;
                }
                if arrives {
                    let mut clock = Vec::new();
                    if let Some(races) = &mut this.races {
                        races.publish_lanes(me, mask, &mut clock);
                    }
                    let n = count.map_or(1, |c| w.get(c, lane) as u32);
                    this.bar_arrive(block, place, n, &clock)?;
                }
                Ok(())
            };
            one(self).map_err(|t: Box<Trouble>| t.lane(lane))?;
        }
        Ok(())
    }

    pub(super) fn bar_arrive(&mut self, block: usize, at: usize, n: u32, clock: &[u32]) -> Res<()> {
        let bar = self.bar_at(block, at)?;
        if n > bar.missing {
            let text = format!("{n} arrive at the barrier at {at:#x}, whose {}", bar.describe());
            return Err(wrong(text, at));
        }
        bar.missing -= n;
        super::races::join(&mut bar.clock, clock);
        self.bar_check(block, at)
    }

    /// Bytes are expected, or have landed (negative).
    fn bar_bytes(&mut self, block: usize, at: usize, bytes: i64) -> Res<()> {
        let bar = self.bar_at(block, at)?;
        bar.bytes += bytes;
        if bar.bytes.abs() > MOST {
            let text =
                format!("the barrier at {at:#x} counts {} bytes, more than it can", bar.bytes);
            return Err(wrong(text, at));
        }
        Ok(())
    }

    /// Bytes of an asynchronous copy have landed.
    pub(super) fn bar_complete(
        &mut self,
        block: usize,
        at: usize,
        bytes: i64,
        clock: &[u32],
    ) -> Res<()> {
        self.bar_bytes(block, at, -bytes)?;
        super::races::join(&mut self.bar_at(block, at)?.clock, clock);
        self.bar_check(block, at)
    }

    /// Completes the phase if nothing is missing.
    fn bar_check(&mut self, block: usize, at: usize) -> Res<()> {
        let bar = self.bar_at(block, at)?;
        if bar.missing == 0 && bar.bytes == 0 {
            bar.phase += 1;
            bar.missing = bar.count;
            let clock = std::mem::take(&mut bar.clock);
            super::races::join(&mut bar.done, &clock);
            self.events += 1;
        }
        Ok(())
    }

    /// Whether the phase of a parity is complete: that of the current phase is not, the other is.
    pub(super) fn mbar_wait(
        &mut self,
        w: &mut Warp,
        mask: u32,
        d: u32,
        at: Where,
        parity: Slot,
        block: bool,
    ) -> Res<Flow> {
        let mut over = 0;
        for lane in lanes(mask) {
            let (b, place) =
                self.bar_place(w, lane, Space::Shared, at).map_err(|t| t.lane(lane))?;
            let parity = w.get(parity, lane) & 1;
            let bar = self.bar_at(b, place).map_err(|t| t.lane(lane))?;
            if bar.phase & 1 != parity {
                over |= 1 << lane;
            }
        }
        if block && over != mask {
            return Ok(Flow::Hold);
        }
        w.set_pred(d, mask, over);
        let me = self.number(w);
        for lane in lanes(over) {
            let (b, place) = self.bar_place(w, lane, Space::Shared, at)?;
            if let (Some(races), Some(bar)) = (&mut self.races, self.blocks[b].mbars.get(&place)) {
                races.learn(me, &bar.done);
            }
        }
        Ok(Flow::Next)
    }
}
