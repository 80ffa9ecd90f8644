//! Pipelines and order barriers: which agent has which stage, and the clocks at each handover.

use super::clock::Clock;
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::Loc;
use tessera_ir::Value;

/// A participant of a pipeline: a seat is a role's replica, or a role whose replicas alternate on
/// tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seat {
    pub role: usize,
    pub replica: i64,
}

/// The state of one counter.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub acquired: BTreeMap<Seat, Loc>,
    /// A copy that was issued for it.
    pub copy: Option<Loc>,
    pub published: BTreeSet<Seat>,
    pub waited: BTreeMap<Seat, Loc>,
    pub released: BTreeSet<Seat>,
    /// The clocks of the agents that published it, and that released it.
    pub publication: Clock,
    pub freedom: Clock,
}

#[derive(Debug)]
pub(super) struct Pipeline {
    /// The pipeline's value in the function.
    pub value: Value,
    pub name: String,
    pub stages: i64,
    /// The buffers of each stage's fields.
    pub buffers: Vec<Vec<usize>>,
    pub fields: Vec<String>,
    pub producers: BTreeSet<Seat>,
    pub consumers: BTreeSet<Seat>,
    pub lives: BTreeMap<i64, Life>,
    /// Counters below it were drained.
    pub drained: i64,
    /// The next counter of each seat.
    pub next_fill: BTreeMap<Seat, i64>,
    pub next_read: BTreeMap<Seat, i64>,
}

impl Pipeline {
    pub fn life(&mut self, i: i64) -> &mut Life {
        self.lives.entry(i).or_default()
    }

    /// Whether the stage of a counter may be filled: its previous counter was released.
    pub fn is_free(&self, i: i64) -> bool {
        let before = i - self.stages;
        before < 0
            || self.lives.get(&before).is_some_and(|l| l.released.len() == self.consumers.len())
    }

    pub fn is_published(&self, i: i64) -> bool {
        self.lives.get(&i).is_some_and(|l| l.published.len() == self.producers.len())
    }

    /// Drops the counters that are complete.
    pub fn forget_before(&mut self, i: i64) {
        let (fillers, readers) = (self.producers.len(), self.consumers.len());
        let over = |l: &Life| l.published.len() == fillers && l.released.len() == readers;
        self.lives.retain(|&n, life| n >= i || !over(life));
    }

    pub fn field(&self, i: i64, name: &str) -> Option<usize> {
        let at = self.fields.iter().position(|f| f == name)?;
        self.buffers.get(i.rem_euclid(self.stages) as usize)?.get(at).copied()
    }
}

/// Which replica may pass the order barrier.
#[derive(Debug, Default)]
pub(super) struct OrderBarrier {
    pub at: i64,
    pub clock: Clock,
}

/// A barrier of all replicas of a role.
#[derive(Debug, Default)]
pub(super) struct Meeting {
    pub here: BTreeSet<i64>,
    pub round: u64,
    pub clock: Clock,
    /// The merged clock of the last round.
    pub done: Clock,
}
