//! Happens-before analysis with vector clocks, for kernels that order memory themselves with
//! acquire and release.
//!
//! An agent is a group, or in a lane kernel a lane. Each counts how often it published its accesses
//! (its epoch): at a release, and at a barrier. An access with epoch `e` happens before the current
//! access of another agent if that agent has seen more than `e` of them. Every atomic here reads,
//! updates and writes, so it continues the release sequence of its location: an acquire sees all
//! releases there since the last plain store.
//!
//! Groups run one after another. So a clock keeps one number for the prefix of agents of which it
//! has seen everything that was published; a chain of lock owners leaves such a prefix.

use std::collections::BTreeMap;
use std::sync::Arc;

pub type Agent = u64;

/// For each agent, the number of its publications that were seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clock {
    /// Everything was seen of agents before this one.
    prefix: Agent,
    pub rest: BTreeMap<Agent, u32>,
}

/// What was published at one location.
#[derive(Default)]
pub struct Released {
    /// At device scope.
    pub wide: Arc<Clock>,
    /// At group scope, and what lanes of that group published at device scope.
    near: Option<(Agent, Arc<Clock>)>,
}

#[derive(Default)]
pub struct Order {
    /// The first agent of the group that runs.
    first: Agent,
    clocks: Vec<Arc<Clock>>,
    epochs: Vec<u32>,
    /// The final epochs of agents that have ended; those without an entry never published.
    finals: BTreeMap<Agent, u32>,
    /// By memory and element.
    pub released: BTreeMap<(usize, usize), Released>,
}

impl Order {
    /// The group with the agents `first`, `first + 1`, … begins.
    pub fn next_group(&mut self, first: Agent, width: usize) {
        for (lane, &epoch) in self.epochs.iter().enumerate().filter(|(_, e)| **e > 0) {
            self.finals.insert(self.first + lane as Agent, epoch);
        }
        self.first = first;
        self.clocks = vec![Arc::default(); width];
        self.epochs = vec![0; width];
    }

    /// The slot has new memory.
    pub fn forget(&mut self, slot: usize) {
        self.released.retain(|key, _| key.0 != slot);
    }

    /// A plain store ends the release sequence of a location.
    pub fn overwritten(&mut self, slot: usize, element: usize) {
        self.released.remove(&(slot, element));
    }

    pub fn agent(&self, lane: usize) -> Agent {
        self.first + lane as Agent
    }

    pub fn epoch(&self, lane: usize) -> u32 {
        self.epochs[lane]
    }

    /// Whether the access of an agent in an epoch happens before the lane's current access.
    pub fn is_before(&self, agent: Agent, epoch: u32, lane: usize) -> bool {
        let clock = &self.clocks[lane];
        let seen = match agent < clock.prefix {
            true => self.finals.get(&agent),
            false => clock.rest.get(&agent),
        };
        agent == self.agent(lane) || seen.is_some_and(|&seen| epoch < seen)
    }

    /// `wide` says whether the operation has device scope.
    pub fn acquire(&mut self, lane: usize, at: (usize, usize), wide: bool) {
        let Some(released) = self.released.get(&at) else { return };
        let mut found = Vec::new();
        if wide {
            found.push(released.wide.clone());
        }
        if let Some((_, near)) = released.near.as_ref().filter(|n| n.0 == self.first) {
            found.push(near.clone());
        }
        for clock in found {
            self.clocks[lane] = self.joined(&self.clocks[lane], &clock);
        }
    }

    pub fn release(&mut self, lane: usize, at: (usize, usize), wide: bool) {
        let own = self.published(lane);
        let (first, old) = (self.first, self.released.remove(&at).unwrap_or_default());
        let near = match &old.near {
            Some((group, clock)) if *group == first => self.joined(clock, &own),
            _ => own.clone(),
        };
        let wide = if wide { self.joined(&old.wide, &own) } else { old.wide };
        self.released.insert(at, Released { wide, near: Some((first, near)) });
    }

    /// A barrier of all lanes of the group.
    pub fn barrier(&mut self) {
        let mut all = Arc::default();
        for lane in 0..self.clocks.len() {
            let own = self.published(lane);
            all = self.joined(&all, &own);
        }
        self.clocks.fill(all);
    }

    /// The lane's clock including its own accesses, whose epoch ends here.
    fn published(&mut self, lane: usize) -> Arc<Clock> {
        self.epochs[lane] += 1;
        let mut clock = (*self.clocks[lane]).clone();
        clock.rest.insert(self.agent(lane), self.epochs[lane]);
        Arc::new(clock)
    }

    fn joined(&self, a: &Arc<Clock>, b: &Arc<Clock>) -> Arc<Clock> {
        if Arc::ptr_eq(a, b) {
            return a.clone();
        }
        let (large, small) = if a.rest.len() >= b.rest.len() { (a, b) } else { (b, a) };
        let mut out = Clock { prefix: a.prefix.max(b.prefix), rest: large.rest.clone() };
        for (&agent, &seen) in &small.rest {
            let known = out.rest.entry(agent).or_default();
            *known = seen.max(*known);
        }
        out.rest = out.rest.split_off(&out.prefix);
        // Agents that have ended and of which everything was seen become part of the prefix.
        loop {
            match self.finals.range(out.prefix..self.first.max(out.prefix)).next() {
                None => out.prefix = out.prefix.max(self.first),
                Some((&agent, last)) if out.rest.get(&agent) == Some(last) => {
                    out.rest.remove(&agent);
                    out.prefix = agent + 1;
                    continue;
                }
                Some((&agent, _)) => out.prefix = agent,
            }
            return Arc::new(out);
        }
    }
}
