//! The queues of a run: the steps that were given to each, and the draw of which is next.

use super::QueueOrder;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tessera_ir::OpId;
use tessera_schedule::Place;
use tessera_target::{BufferArg, LaunchArgs};

/// A step that was given to a queue, with the addresses that it had then.
pub(super) enum Job {
    Run(OpId, Box<LaunchArgs>),
    Copy(BufferArg, BufferArg),
    /// Writes an iteration's index.
    Index(BufferArg, i64),
    Free(BufferArg),
    Record(usize),
    Wait(usize),
}

/// The most steps that wait at a time: a loop gives out more than memory holds.
const MOST: usize = 256;

pub(super) struct Queues {
    queues: BTreeMap<Place, VecDeque<Job>>,
    waiting: usize,
    past: BTreeSet<usize>,
    draw: Option<Draw>,
}

struct Draw {
    state: u64,
    favour: Favour,
}

/// Which queue is first, for a whole run: some faults show only when one queue is always late.
enum Favour {
    Any,
    First,
    Last,
}

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.state >> 33) % n.max(1) as u64) as usize
    }
}

impl Queues {
    pub fn new(order: QueueOrder) -> Self {
        let draw = match order {
            QueueOrder::Program => None,
            QueueOrder::Random(seed) => {
                let mut draw = Draw { state: seed ^ 0x9e37_79b9_7f4a_7c15, favour: Favour::Any };
                draw.below(1);
                draw.favour = match draw.below(4) {
                    0 => Favour::First,
                    1 => Favour::Last,
                    _ => Favour::Any,
                };
                Some(draw)
            }
        };
        Self { queues: BTreeMap::new(), waiting: 0, past: BTreeSet::new(), draw }
    }

    pub fn give(&mut self, on: Place, job: Job) {
        self.queues.entry(on).or_default().push_back(job);
        self.waiting += 1;
    }

    pub fn is_empty(&self, on: Place) -> bool {
        self.queues.get(&on).is_none_or(VecDeque::is_empty)
    }

    /// Whether a step is to run before the host goes on.
    pub fn is_due(&mut self) -> bool {
        match &mut self.draw {
            None => self.waiting > 0,
            Some(draw) => self.waiting > MOST || (self.waiting > 0 && draw.below(3) == 0),
        }
    }

    pub fn is_over(&self) -> bool {
        self.waiting == 0
    }

    /// The next step. There is one while there are any: the step that was given out first waits for
    /// none that comes after it.
    pub fn next(&mut self) -> Option<Job> {
        let past = &self.past;
        let ready: Vec<Place> = self
            .queues
            .iter()
            .filter(|(_, jobs)| match jobs.front() {
                Some(Job::Wait(event)) => past.contains(event),
                Some(_) => true,
                None => false,
            })
            .map(|(place, _)| *place)
            .collect();
        let chosen = match &mut self.draw {
            None => 0,
            Some(draw) => match draw.favour {
                Favour::First => 0,
                Favour::Last => ready.len().saturating_sub(1),
                Favour::Any => draw.below(ready.len()),
            },
        };
        let job = self.queues.get_mut(ready.get(chosen)?)?.pop_front()?;
        self.waiting -= 1;
        if let Job::Record(event) = job {
            self.past.insert(event);
        }
        Some(job)
    }
}
