//! Shadow memory of a group: which lane accessed an element since the last barrier.
//!
//! Two different lanes are kept of the readers and of the writers of an element: any later lane
//! differs from at least one of them. Pages are returned when the group ends. They need no
//! clearing: entries older than the last barrier do not count.

use super::access::Touch;
use std::collections::BTreeMap;

pub const PAGE: usize = 256;

/// Accesses of one kind to one element since `since`, which is 0 when there were none.
#[derive(Copy, Clone, Default)]
pub struct Lanes {
    since: u32,
    lane: [u16; 2],
    site: [u32; 2],
}

#[derive(Copy, Clone, Default)]
pub struct Entry {
    writes: Lanes,
    reads: Lanes,
}

#[derive(Default)]
pub struct LaneShadow {
    /// By slot: the index of each page, from 1.
    tables: BTreeMap<usize, Vec<u32>>,
    pub pages: Vec<Box<[Entry; PAGE]>>,
    pub free: Vec<u32>,
    /// The pages in use: slot and index in its table.
    pub used: Vec<(usize, usize)>,
    /// The index of the current op among those that accessed memory, and that of the last before
    /// the barrier.
    now: u32,
    barrier: u32,
}

/// An earlier access of another lane.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Earlier {
    pub lane: usize,
    pub site: usize,
    pub wrote: bool,
    /// It was made by the same run of the same op.
    pub together: bool,
}

impl LaneShadow {
    pub fn barrier(&mut self) {
        self.barrier = self.now;
    }

    /// The index of the current op.
    pub fn now(&self) -> u32 {
        self.now
    }

    /// The next op that accesses memory.
    pub fn next_op(&mut self) {
        self.now = self.now.saturating_add(1);
    }

    pub fn next_group(&mut self) {
        self.barrier();
        for (slot, page) in self.used.drain(..) {
            if let Some(number) = self.tables.get_mut(&slot).map(|t| &mut t[page]) {
                self.free.push(*number);
                *number = 0;
            }
        }
    }

    /// The memory of a slot is new.
    pub fn forget(&mut self, slot: usize) {
        let Some(table) = self.tables.remove(&slot) else { return };
        self.free.extend(table.into_iter().filter(|&n| n != 0));
        self.used.retain(|u| u.0 != slot);
    }

    fn entry(&mut self, slot: usize, elements: usize, element: usize) -> &mut Entry {
        let table = self.tables.entry(slot).or_insert_with(|| vec![0; elements.div_ceil(PAGE)]);
        let number = &mut table[element / PAGE];
        if *number == 0 {
            *number = self.free.pop().unwrap_or_else(|| {
                self.pages.push(Box::new([Entry::default(); PAGE]));
                self.pages.len() as u32
            });
            self.used.push((slot, element / PAGE));
        }
        &mut self.pages[*number as usize - 1][element % PAGE]
    }

    pub fn read(
        &mut self,
        (slot, elements, element): (usize, usize, usize),
        lane: usize,
        site: usize,
    ) -> Option<Earlier> {
        let (now, barrier) = (self.now, self.barrier);
        let entry = self.entry(slot, elements, element);
        entry.reads.add(now, barrier, lane, site, |_| false);
        entry.writes.other(now, barrier, lane, |_| true).map(|e| Earlier { wrote: true, ..e })
    }

    /// `as_what` says how an op writes; `harmless` whether a plain write of this lane stores the
    /// same value as the other plain write.
    pub fn write(
        &mut self,
        (slot, elements, element): (usize, usize, usize),
        lane: usize,
        site: usize,
        as_what: impl Fn(usize) -> Touch,
        harmless: impl Fn(Earlier) -> bool,
    ) -> Option<Earlier> {
        let (now, barrier) = (self.now, self.barrier);
        let entry = self.entry(slot, elements, element);
        let touch = as_what(site);
        let conflicts = |earlier: Earlier| {
            let other = as_what(earlier.site);
            let same = touch == Touch::Write && other == Touch::Write && harmless(earlier);
            !touch.agrees(other) && !same
        };
        let write = entry.writes.other(now, barrier, lane, conflicts);
        let read = entry.reads.other(now, barrier, lane, |_| true);
        entry.writes.add(now, barrier, lane, site, |s| as_what(s).agrees(as_what(s)));
        write.map(|e| Earlier { wrote: true, ..e }).or(read.map(|e| Earlier { wrote: false, ..e }))
    }
}

impl Lanes {
    fn other(
        &self,
        now: u32,
        barrier: u32,
        lane: usize,
        conflicts: impl Fn(Earlier) -> bool,
    ) -> Option<Earlier> {
        if self.since <= barrier {
            return None;
        }
        let earlier = |i: usize| Earlier {
            lane: self.lane[i] as usize,
            site: self.site[i] as usize,
            wrote: true,
            together: self.since == now,
        };
        [0, 1].map(earlier).into_iter().find(|&e| e.lane != lane && conflicts(e))
    }

    /// `weak` says whether an op's access agrees with others: then a later one that does not
    /// replaces it.
    fn add(
        &mut self,
        now: u32,
        barrier: u32,
        lane: usize,
        site: usize,
        weak: impl Fn(usize) -> bool,
    ) {
        let (lane, site) = (lane as u16, site as u32);
        if self.since <= barrier {
            *self = Self { since: now, lane: [lane; 2], site: [site; 2] };
        } else if let Some(i) = self.lane.iter().position(|&l| l == lane) {
            if weak(self.site[i] as usize) {
                let alone = self.lane[0] == self.lane[1];
                self.site[i] = site;
                if alone {
                    self.site[1] = site;
                }
            }
        } else if self.lane[0] == self.lane[1] {
            (self.lane[1], self.site[1]) = (lane, site);
        }
    }
}
