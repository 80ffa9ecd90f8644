//! Successive halving: candidates run in rounds, each once in a round, and the slower half is
//! dropped between phases. Within a round all run under the same conditions, so candidates are
//! compared round by round and not by their medians.

use crate::choose::TIE;
use crate::stats;
use std::time::{Duration, Instant};

/// Rounds between two halvings.
const STAGE: usize = 5;
/// Samples after which the last ones need no more.
const ENOUGH: usize = 30;
/// Runs that are not counted: caches, pages and clocks settle.
const WARM_UP: usize = 2;
/// A candidate this many times slower than the best after warm-up is not measured further.
const HOPELESS: f64 = 4.0;

/// Why a candidate gave no time.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// It cannot run: its own fault, and the others go on.
    Candidate(String),
    /// Nothing can run any more: the device is lost.
    Device(String),
    /// The host asks to stop.
    Interrupted,
}

/// What runs candidates, by their number.
pub trait Runner {
    /// Runs one once and gives its time in seconds.
    fn sample(&mut self, candidate: usize) -> Result<f64, Failure>;
    /// Before a candidate runs for the first time.
    fn first(&mut self, _candidate: usize) {}
    /// The clock of the budget: a test has its own.
    fn now(&self) -> Instant {
        Instant::now()
    }
    /// After each sample.
    fn progress(&mut self, _progress: Progress) {}
}

#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Progress {
    pub candidate: usize,
    /// Candidates that are still in.
    pub left: usize,
    pub samples: usize,
    /// The part of the budget that is spent.
    pub spent: f64,
    /// The best so far, and its time in seconds.
    pub best: Option<(usize, f64)>,
}

/// What became of one candidate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub samples: Vec<f64>,
    /// Why it has no samples, or left before the end.
    pub reason: String,
    pub failed: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    pub outcomes: Vec<Outcome>,
    pub interrupted: bool,
    /// Set where the device was lost.
    pub lost: Option<String>,
}

struct Search<'a> {
    runner: &'a mut dyn Runner,
    start: Instant,
    budget: Duration,
    found: Found,
    taken: usize,
    alive: Vec<usize>,
}

/// Why a search stops before it is done.
enum Stop {
    Budget,
    Ended,
}

/// Measures `count` candidates, which come best guess first, for about as long as the budget. The
/// first is measured whatever the budget.
pub fn search(runner: &mut dyn Runner, count: usize, budget: Duration) -> Found {
    let start = runner.now();
    let outcomes = vec![Outcome::default(); count];
    let found = Found { outcomes, ..Found::default() };
    let mut search = Search { runner, start, budget, found, taken: 0, alive: (0..count).collect() };
    if let Err(Stop::Budget) = search.all() {
        search.unfinished(budget);
    }
    search.found
}

impl Search<'_> {
    fn all(&mut self) -> Result<(), Stop> {
        self.warm_up()?;
        let mut rounds = 0;
        while !self.alive.is_empty() {
            for round in rounds..rounds + STAGE {
                // Who comes first changes from round to round, so that no one is always first
                // after the same other.
                let order: Vec<usize> = (0..self.alive.len())
                    .map(|i| self.alive[(i + round) % self.alive.len()])
                    .collect();
                for candidate in order {
                    if let Some(time) = self.run(candidate)? {
                        self.found.outcomes[candidate].samples.push(time);
                    }
                }
            }
            rounds += STAGE;
            self.halve();
            if self.alive.len() <= 1 && rounds >= 2 * STAGE || rounds >= ENOUGH {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The first runs, and who is hopeless by them. The budget does not end it before one
    /// candidate has a time, which is then its sample.
    fn warm_up(&mut self) -> Result<(), Stop> {
        let mut times = vec![f64::INFINITY; self.found.outcomes.len()];
        for candidate in self.alive.clone() {
            self.runner.first(candidate);
            for iteration in 0..WARM_UP {
                match self.run(candidate) {
                    Ok(Some(time)) => times[candidate] = times[candidate].min(time),
                    Ok(None) => break,
                    Err(Stop::Budget) => {
                        // What ran has a time, if only its first.
                        self.keep_first(&times);
                        return Err(Stop::Budget);
                    }
                    Err(Stop::Ended) => {
                        self.keep_first(&times);
                        return Err(Stop::Ended);
                    }
                }
                // A run that takes long is its own warm-up.
                if iteration == 0 && times[candidate] > 0.1 * self.budget.as_secs_f64() {
                    break;
                }
            }
        }
        let best = times.iter().copied().fold(f64::INFINITY, f64::min);
        for candidate in self.alive.clone() {
            let ratio = times[candidate] / best;
            if ratio > HOPELESS {
                self.found.outcomes[candidate].samples.push(times[candidate]);
                self.drop(candidate, format!("{ratio:.1} times the best after warming up"));
            }
        }
        Ok(())
    }

    fn keep_first(&mut self, times: &[f64]) {
        for (outcome, &time) in self.found.outcomes.iter_mut().zip(times) {
            if time.is_finite() && outcome.samples.is_empty() && !outcome.failed {
                outcome.samples.push(time);
            }
        }
    }

    fn drop(&mut self, candidate: usize, reason: String) {
        self.alive.retain(|&a| a != candidate);
        self.found.outcomes[candidate].reason = reason;
    }

    /// One run. `None` where the candidate is out for it.
    fn run(&mut self, candidate: usize) -> Result<Option<f64>, Stop> {
        if self.taken > 0 && self.spent() >= 1.0 {
            return Err(Stop::Budget);
        }
        match self.runner.sample(candidate) {
            Ok(time) => {
                self.taken += 1;
                let (left, samples, spent) = (self.alive.len(), self.taken, self.spent());
                let best = self.leader();
                self.runner.progress(Progress { candidate, left, samples, spent, best });
                Ok(Some(time))
            }
            Err(Failure::Candidate(reason)) => {
                self.found.outcomes[candidate].failed = true;
                self.found.outcomes[candidate].samples.clear();
                self.drop(candidate, reason);
                Ok(None)
            }
            Err(Failure::Device(reason)) => {
                self.found.outcomes[candidate].failed = true;
                self.found.outcomes[candidate].samples.clear();
                self.drop(candidate, reason.clone());
                self.found.lost = Some(reason);
                self.unmeasured("the device was lost before");
                Err(Stop::Ended)
            }
            Err(Failure::Interrupted) => {
                self.found.interrupted = true;
                self.unmeasured("the search was interrupted");
                Err(Stop::Ended)
            }
        }
    }

    fn spent(&self) -> f64 {
        let budget = self.budget.as_secs_f64();
        let spent = self.runner.now().duration_since(self.start).as_secs_f64();
        if budget > 0.0 { spent / budget } else { f64::INFINITY }
    }

    /// The one that is best in the rounds that all that are left took part in.
    fn leader(&self) -> Option<(usize, f64)> {
        let time = |&c: &usize| Some((c, stats::median(&self.found.outcomes[c].samples)?));
        self.alive.iter().filter_map(time).min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The slower half leaves, but for those that are as good as the best.
    fn halve(&mut self) {
        let Some((leader, _)) = self.leader() else { return };
        let to = self.found.outcomes[leader].samples.clone();
        let ratio = |&c: &usize| {
            (c, stats::paired_ratio(&self.found.outcomes[c].samples, &to).unwrap_or(1.0))
        };
        let mut ratios: Vec<(usize, f64)> = self.alive.iter().map(ratio).collect();
        ratios.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        let rounds = to.len();
        for &(candidate, ratio) in &ratios[ratios.len().div_ceil(2)..] {
            if ratio > 1.0 + TIE {
                self.drop(candidate, format!("{ratio:.2} times the best after {rounds} rounds"));
            }
        }
    }

    fn unmeasured(&mut self, reason: &str) {
        for outcome in &mut self.found.outcomes {
            if outcome.samples.is_empty() && !outcome.failed {
                outcome.reason = reason.into();
            }
        }
    }

    fn unfinished(&mut self, budget: Duration) {
        let ms = budget.as_secs_f64() * 1e3;
        self.unmeasured(&format!("the budget of {ms:.0} ms was spent"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Candidates with known times on a machine that drifts and hiccups.
    struct Machine {
        times: Vec<Result<f64, Failure>>,
        start: Instant,
        clock: f64,
        runs: Vec<usize>,
        drift: f64,
        stop_at: Option<usize>,
        seed: u64,
    }

    impl Machine {
        fn new(times: &[f64]) -> Self {
            Self {
                times: times.iter().map(|&t| Ok(t)).collect(),
                start: Instant::now(),
                clock: 0.0,
                runs: Vec::new(),
                drift: 0.0,
                stop_at: None,
                seed: 1,
            }
        }

        fn count(&self, candidate: usize) -> usize {
            self.runs.iter().filter(|&&r| r == candidate).count()
        }
    }

    impl Runner for Machine {
        fn sample(&mut self, candidate: usize) -> Result<f64, Failure> {
            if self.stop_at == Some(self.runs.len()) {
                return Err(Failure::Interrupted);
            }
            self.runs.push(candidate);
            let base = self.times[candidate].clone()?;
            self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            let noise = 1.0 + 0.01 * ((self.seed >> 40) as f64 / (1u64 << 24) as f64);
            let hiccup = if self.seed.is_multiple_of(17) { 6.0 } else { 1.0 };
            let time = base * noise * hiccup * (1.0 + self.drift * self.clock);
            self.clock += time;
            Ok(time)
        }

        fn now(&self) -> Instant {
            self.start + Duration::from_secs_f64(self.clock)
        }
    }

    fn best(found: &Found) -> usize {
        let finished = |o: &&(usize, &Outcome)| o.1.reason.is_empty() && !o.1.samples.is_empty();
        let all: Vec<_> = found.outcomes.iter().enumerate().collect();
        let time = |o: &(usize, &Outcome)| stats::median(&stats::kept(&o.1.samples)).unwrap();
        all.iter().filter(finished).min_by(|a, b| time(a).total_cmp(&time(b))).unwrap().0
    }

    #[test]
    fn the_best_is_found_though_the_machine_slows_down() {
        let mut machine = Machine::new(&[1.2e-3, 1.0e-3, 1.1e-3, 3.0e-3, 9.0e-3]);
        machine.drift = 2.0;
        let found = search(&mut machine, 5, Duration::from_secs(1));
        assert_eq!(best(&found), 1);
        assert!(found.outcomes[4].reason.contains("after warming up"));
        assert_eq!(machine.count(4), WARM_UP);
        assert!(found.outcomes[3].reason.contains("after 5 rounds"), "{:?}", found.outcomes[3]);
        // Those that are left take more of the time.
        assert!(machine.count(1) > machine.count(3));
    }

    #[test]
    fn failures_are_outcomes_and_the_others_go_on() {
        let mut machine = Machine::new(&[1e-3, 2e-3, 1.5e-3]);
        machine.times[0] = Err(Failure::Candidate("too many threads".into()));
        let found = search(&mut machine, 3, Duration::from_secs(1));
        assert!(found.outcomes[0].failed && found.outcomes[0].samples.is_empty());
        assert_eq!(found.outcomes[0].reason, "too many threads");
        assert_eq!(best(&found), 2);
    }

    #[test]
    fn a_lost_device_ends_the_search_and_keeps_what_was_measured() {
        let mut machine = Machine::new(&[1e-3, 2e-3, 1e-3]);
        machine.times[1] = Err(Failure::Device("illegal address".into()));
        let found = search(&mut machine, 3, Duration::from_secs(1));
        assert_eq!(found.lost.as_deref(), Some("illegal address"));
        assert!(found.outcomes[1].failed);
        assert_eq!(found.outcomes[0].samples.len(), 1);
        assert_eq!(found.outcomes[2].reason, "the device was lost before");
    }

    #[test]
    fn an_interrupt_keeps_what_was_measured() {
        let mut machine = Machine::new(&[1e-3, 2e-3]);
        machine.stop_at = Some(7);
        let found = search(&mut machine, 2, Duration::from_secs(1));
        assert!(found.interrupted);
        assert!(found.outcomes.iter().all(|o| !o.samples.is_empty()));
        machine.stop_at = Some(machine.runs.len() + 2);
        let found = search(&mut machine, 2, Duration::from_secs(1));
        assert_eq!(found.outcomes[0].samples.len(), 1);
        assert_eq!(found.outcomes[1].reason, "the search was interrupted");
    }

    #[test]
    fn the_budget_ends_it_but_never_before_one_has_a_time() {
        let mut machine = Machine::new(&[1.0, 1.0, 1.0]);
        let found = search(&mut machine, 3, Duration::from_millis(10));
        assert_eq!(found.outcomes[0].samples.len(), 1);
        assert_eq!(found.outcomes[1].reason, "the budget of 10 ms was spent");
        assert_eq!(machine.runs, [0]);
    }

    proptest! {
        #[test]
        fn it_ends_and_every_candidate_has_a_sample_or_a_reason(
            times in prop::collection::vec(1e-6f64..1e-1, 1..20),
            failing in prop::collection::vec(any::<bool>(), 20),
            budget in 0u64..500,
        ) {
            let mut machine = Machine::new(&times);
            for (time, fails) in machine.times.iter_mut().zip(failing) {
                if fails { *time = Err(Failure::Candidate("no".into())) }
            }
            let found = search(&mut machine, times.len(), Duration::from_millis(budget));
            for outcome in &found.outcomes {
                prop_assert!(!outcome.samples.is_empty() || !outcome.reason.is_empty());
            }
            // No more than the budget and the longest run.
            prop_assert!(machine.clock <= budget as f64 * 1e-3 + 0.7);
        }
    }
}
