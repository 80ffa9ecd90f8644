//! Which steps are over before a step begins: the happens-before order of queues, events and the
//! host, for one walk through a plan.
//!
//! Steps are numbers. Those of one queue run one after another; an event carries what is over at its
//! point to the queues that wait for it; and what the host has waited for is over for everything it
//! gives out later. A step that runs again (in the next iteration of a loop) is not over until one
//! of these says so again.

use crate::Place;
use std::collections::BTreeMap;

/// A set of small numbers.
#[derive(Clone, Default, Debug)]
pub(crate) struct Set(Vec<u64>);

impl Set {
    pub fn add(&mut self, n: usize) {
        if self.0.len() <= n / 64 {
            self.0.resize(n / 64 + 1, 0);
        }
        self.0[n / 64] |= 1 << (n % 64);
    }

    pub fn remove(&mut self, n: usize) {
        if let Some(word) = self.0.get_mut(n / 64) {
            *word &= !(1 << (n % 64));
        }
    }

    pub fn has(&self, n: usize) -> bool {
        self.0.get(n / 64).is_some_and(|word| word >> (n % 64) & 1 == 1)
    }

    pub fn join(&mut self, other: &Set) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    pub fn intersect(&mut self, other: &Set) {
        self.0.truncate(other.0.len());
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a &= b);
    }

    pub fn subtract(&mut self, other: &Set) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a &= !b);
    }
}

/// What is over for each queue.
#[derive(Clone, Default)]
pub(crate) struct Order {
    /// Steps of other queues that are over before the next step of a queue begins.
    known: BTreeMap<Place, Set>,
    /// The steps of a queue so far.
    given: BTreeMap<Place, Set>,
    events: BTreeMap<usize, Set>,
    /// What the host has waited for.
    host: Set,
    /// All steps so far.
    ran: Set,
}

impl Order {
    /// Work that comes before the plan, on its main queue.
    pub fn begin(step: usize) -> Order {
        let mut out = Order::default();
        out.step(step, Place::MAIN);
        out
    }

    /// A step is given to a queue.
    pub fn step(&mut self, step: usize, on: Place) {
        if self.ran.has(step) {
            for (place, set) in &mut self.known {
                if *place != on {
                    set.remove(step);
                }
            }
            self.events.values_mut().for_each(|set| set.remove(step));
            self.host.remove(step);
        }
        self.ran.add(step);
        self.known.entry(on).or_insert_with(|| self.host.clone());
        self.given.entry(on).or_default().add(step);
    }

    /// Whether a step of a queue is over before the next step of another begins.
    pub fn is_before(&self, step: usize, of: Place, next: Place) -> bool {
        of == next || self.known.get(&next).unwrap_or(&self.host).has(step)
    }

    fn over(&self, on: Place) -> Set {
        let mut out = self.known.get(&on).unwrap_or(&self.host).clone();
        if let Some(given) = self.given.get(&on) {
            out.join(given);
        }
        out
    }

    pub fn record(&mut self, event: usize, on: Place) {
        let over = self.over(on);
        self.events.insert(event, over);
    }

    pub fn wait(&mut self, event: usize, on: Place) {
        let host = &self.host;
        let known = self.known.entry(on).or_insert_with(|| host.clone());
        if let Some(over) = self.events.get(&event) {
            known.join(over);
        }
    }

    /// The host waits for a queue.
    pub fn wait_on_host(&mut self, on: Place) {
        let over = self.over(on);
        self.host.join(&over);
        self.known.values_mut().for_each(|set| set.join(&over));
    }

    /// The steps of other queues, and whether each is over before the next step of this one.
    pub fn is_joined(&self, of: Place, next: Place) -> bool {
        let Some(given) = self.given.get(&of) else { return true };
        let mut left = given.clone();
        left.subtract(&self.over(next));
        of == next || left.0.iter().all(|word| *word == 0)
    }

    pub fn queues(&self) -> impl Iterator<Item = Place> + '_ {
        self.given.keys().copied()
    }

    /// What holds after one of two paths from the same beginning: what is over on both. A step that
    /// did not run on a path is over there, unless it ran before the paths part.
    pub fn merge(&mut self, mut other: Order, before: &Order) {
        let only = |a: &Order, b: &Order| {
            let mut out = a.ran.clone();
            out.subtract(&b.ran);
            out.subtract(&before.ran);
            out
        };
        let (mine, theirs) = (only(self, &other), only(&other, self));
        for place in other.known.keys().chain(other.given.keys()) {
            let host = &self.host;
            self.known.entry(*place).or_insert_with(|| host.clone());
        }
        for (place, set) in &mut self.known {
            let host = &other.host;
            let their = other.known.entry(*place).or_insert_with(|| host.clone());
            set.join(&theirs);
            their.join(&mine);
            set.intersect(their);
        }
        for (event, set) in &mut self.events {
            set.join(&theirs);
            if let Some(their) = other.events.get_mut(event) {
                their.join(&mine);
                set.intersect(their);
            }
        }
        self.host.join(&theirs);
        other.host.join(&mine);
        self.host.intersect(&other.host);
        for (place, set) in &other.given {
            self.given.entry(*place).or_default().join(set);
        }
        self.ran.join(&other.ran);
    }
}
