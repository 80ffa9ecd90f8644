//! Shadow memory for kernels that order memory themselves: of reads and of writes, all that no
//! later access of the same kind happens after.

use super::access::Touch;
use super::order::{Agent, Order};
use std::collections::BTreeMap;

#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Entry {
    pub agent: Agent,
    epoch: u32,
    pub site: usize,
    /// The index of the op among those that accessed memory.
    pub op: u32,
    pub wrote: bool,
}

#[derive(Default)]
pub struct Cell {
    pub writes: Vec<Entry>,
    reads: Vec<Entry>,
}

/// By the element's index.
#[derive(Default)]
pub struct OrderShadow(pub BTreeMap<usize, Cell>);

/// The current access.
#[derive(Copy, Clone)]
pub struct Now<'o> {
    pub order: &'o Order,
    pub lane: usize,
    pub site: usize,
    pub op: u32,
}

impl Now<'_> {
    fn entry(&self, wrote: bool) -> Entry {
        let (agent, epoch) = (self.order.agent(self.lane), self.order.epoch(self.lane));
        Entry { agent, epoch, site: self.site, op: self.op, wrote }
    }

    fn comes_after(&self, earlier: &Entry) -> bool {
        self.order.is_before(earlier.agent, earlier.epoch, self.lane)
    }
}

impl OrderShadow {
    pub fn read(&mut self, element: usize, now: Now<'_>) -> Option<Entry> {
        let cell = self.0.entry(element).or_default();
        cell.reads.retain(|e| !now.comes_after(e));
        cell.reads.push(now.entry(false));
        cell.writes.iter().find(|e| !now.comes_after(e)).copied()
    }

    /// `as_what` says how an op writes; `harmless` whether a plain write stores the same value as
    /// another plain write.
    pub fn write(
        &mut self,
        element: usize,
        now: Now<'_>,
        as_what: impl Fn(usize) -> Touch,
        harmless: impl Fn(&Entry) -> bool,
    ) -> Option<Entry> {
        let cell = self.0.entry(element).or_default();
        let touch = as_what(now.site);
        let conflicts = |e: &&Entry| {
            let other = as_what(e.site);
            let same = touch == Touch::Write && other == Touch::Write;
            !(now.comes_after(e) || touch.agrees(other) || same && harmless(e))
        };
        let write = cell.writes.iter().find(conflicts).copied();
        let read = cell.reads.iter().find(|e| !now.comes_after(e)).copied();
        // An access that conflicts with an earlier one also conflicts with a plain write after
        // that.
        let plain = !touch.agrees(touch);
        cell.writes.retain(|e| !now.comes_after(e) || !plain && as_what(e.site) != touch);
        cell.writes.push(now.entry(true));
        if plain {
            cell.reads.retain(|e| !now.comes_after(e));
        }
        write.or(read)
    }
}
