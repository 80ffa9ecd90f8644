//! Streams as queues of work, and the order in which it runs.

use crate::code::Kernel;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// When work runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// When it is given.
    Early,
    /// When the host waits for it, and no more than it waits for.
    Late,
    /// A few items of random streams whenever work is given, from this seed.
    Random(u64),
}

/// What one place in the program knows to be done: for each stream, the number of items.
#[derive(Clone, Debug, Default)]
pub struct Clock(BTreeMap<u64, u64>);

impl Clock {
    pub fn join(&mut self, other: &Clock) {
        for (&stream, &number) in &other.0 {
            let own = self.0.entry(stream).or_default();
            *own = (*own).max(number);
        }
    }

    /// The number of the next item of a stream, which is known from now on.
    pub fn step(&mut self, stream: u64) -> u64 {
        let number = self.0.entry(stream).or_default();
        *number += 1;
        *number
    }

    pub fn knows(&self, stream: u64, number: u64) -> bool {
        self.0.get(&stream).is_some_and(|&known| known >= number)
    }
}

/// Work of a stream.
#[derive(Clone)]
pub enum Work {
    CopyIn {
        to: u64,
        data: Vec<u8>,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: u64,
    },
    Fill {
        to: u64,
        value: u8,
        bytes: u64,
    },
    Launch {
        kernel: Arc<Kernel>,
        words: Vec<u64>,
    },
    /// Recording of an event, by its number and how often it was recorded.
    Record {
        event: u64,
        version: u64,
    },
    Wait {
        event: u64,
        version: u64,
    },
    Free {
        address: u64,
    },
}

/// What a recording holds: work of its streams, in the order in which it was given.
#[derive(Default)]
pub struct Recorded {
    pub work: Vec<(u64, Work)>,
    /// Its events: how often each was recorded, and what was known then.
    pub events: BTreeMap<u64, (u64, Clock)>,
    clocks: BTreeMap<u64, Clock>,
    recorded: u64,
}

impl Recorded {
    pub fn record(&mut self, event: u64, stream: u64) {
        self.recorded += 1;
        let clock = self.clocks.entry(stream).or_default();
        clock.step(stream);
        self.events.insert(event, (self.recorded, clock.clone()));
        self.work.push((stream, Work::Record { event, version: self.recorded }));
    }

    pub fn wait(&mut self, event: u64, stream: u64) {
        let Some((version, known)) = self.events.get(&event) else { return };
        self.clocks.entry(stream).or_default().join(known);
        self.work.push((stream, Work::Wait { event, version: *version }));
    }

    /// Whether all work of other streams is behind an event that the first has waited for.
    pub fn is_joined(&self, origin: u64) -> bool {
        let mut at = self.clocks.clone();
        let known = at.remove(&origin).unwrap_or_default();
        // Events are counted alone: work behind the last of a stream is behind no event.
        let mut events: BTreeMap<u64, u64> = BTreeMap::new();
        let mut open: BTreeMap<u64, bool> = BTreeMap::new();
        for (stream, work) in self.work.iter().filter(|(stream, _)| *stream != origin) {
            let is_event = matches!(work, Work::Record { .. });
            *events.entry(*stream).or_default() += u64::from(is_event);
            open.insert(*stream, !is_event);
        }
        open.iter().all(|(stream, open)| !open && known.knows(*stream, events[stream]))
    }

    /// Launches and copies.
    pub fn nodes(&self) -> usize {
        let is_work = |work: &Work| !matches!(work, Work::Record { .. } | Work::Wait { .. });
        self.work.iter().filter(|(_, work)| is_work(work)).count()
    }
}

#[derive(Default)]
pub struct Queue {
    pub items: VecDeque<Work>,
    pub clock: Clock,
}

/// An event: how often it was recorded, how often that was reached, what was known then, and when.
#[derive(Default)]
pub struct EventState {
    pub version: u64,
    pub reached: u64,
    pub clock: Clock,
    /// The count of items that had run on the device.
    pub time: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_knows_what_it_joined() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        let first = a.step(1);
        assert!(a.knows(1, first) && !b.knows(1, first));
        b.join(&a);
        a.step(1);
        assert!(b.knows(1, 1) && !b.knows(1, 2));
    }
}
