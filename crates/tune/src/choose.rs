//! Which candidate of a record runs. A function of the record and of the order of candidates
//! alone: noise that does not matter does not change it.

use crate::record::{Record, RecordState, Row};
use crate::stats;

/// Candidates within this part of the best are as good: the first of them in the kernel's own
/// order is taken.
pub const TIE: f64 = 0.02;

/// Where the rounds are too noisy to decide, a ratio up to this counts as equal.
const NOISE: f64 = 0.03;
/// Standard errors that distinguish two candidates.
const SURE: f64 = 2.0;

/// What is to be small.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// The median time of a launch.
    #[default]
    Latency,
    /// The time that nine launches of ten keep.
    Tail,
}

impl Metric {
    pub const ALL: [Metric; 2] = [Metric::Latency, Metric::Tail];

    pub fn name(self) -> &'static str {
        match self {
            Metric::Latency => "latency_ms",
            Metric::Tail => "p90_ms",
        }
    }

    pub fn parse(text: &str) -> Option<Metric> {
        Self::ALL.into_iter().find(|m| m.name() == text)
    }

    /// In seconds.
    pub fn of(self, row: &Row) -> Option<f64> {
        match self {
            Metric::Latency => row.median(),
            // Outliers count: they are the tail.
            Metric::Tail => stats::quantile(&row.samples, 0.9),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    pub config: String,
    /// What it was measured at, in seconds.
    pub seconds: f64,
    /// The fastest, where the order decided between it and the chosen one.
    pub fastest: Option<String>,
}

/// The candidate to run, of these in their order; none where nothing was measured.
pub fn choose<'a>(
    record: &Record,
    candidates: impl Iterator<Item = &'a str>,
    metric: Metric,
) -> Option<Chosen> {
    let measured: Vec<(&Row, f64)> = candidates
        .filter_map(|c| record.rows.get(c))
        .filter(|row| row.state == RecordState::Measured)
        .filter_map(|row| Some((row, metric.of(row)?)))
        .collect();
    // One that was dropped on the way was slower in the same rounds, whatever its few samples say.
    let finished: Vec<_> = measured.iter().copied().filter(|m| m.0.reason.is_empty()).collect();
    let measured = if finished.is_empty() { measured } else { finished };
    let best = measured.iter().map(|m| m.1).min_by(f64::total_cmp)?;
    let (fastest, _) = measured.iter().find(|m| m.1 == best)?;
    let (row, seconds) = measured.iter().find(|m| is_as_good(m, (fastest, best), metric))?;
    let fastest = (fastest.config != row.config).then(|| fastest.config.clone());
    Some(Chosen { config: row.config.clone(), seconds: *seconds, fastest })
}

/// Whether a candidate is as good as the fastest. Those that took part in the same rounds are
/// compared round by round.
fn is_as_good(one: &(&Row, f64), fastest: (&Row, f64), metric: Metric) -> bool {
    let (of, to) = (&one.0.samples, &fastest.0.samples);
    if metric == Metric::Latency
        && of.len() == to.len()
        && let Some((ratio, error)) = stats::paired_estimate(of, to)
    {
        return ratio <= 1.0 + TIE + (SURE * error).min(NOISE);
    }
    one.1 <= fastest.1 * (1.0 + TIE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{measured, subject};

    #[test]
    fn near_ties_go_to_the_first_and_the_rest_to_the_fastest() {
        let mut record = Record::new(subject());
        record.set(measured("a", &[1.015, 1.015, 1.015]));
        record.set(measured("b", &[1.0, 1.0, 9.0]));
        record.set(measured("c", &[2.0]));
        record.set(Row::new("d", RecordState::Failed, "no"));
        let pick = |order: [&'static str; 4], metric| {
            choose(&record, order.into_iter(), metric).map(|c| (c.config, c.fastest))
        };
        let latency = Metric::Latency;
        assert_eq!(pick(["a", "b", "c", "d"], latency), Some(("a".into(), Some("b".into()))));
        assert_eq!(pick(["d", "b", "a", "c"], latency), Some(("b".into(), None)));
        assert_eq!(pick(["d", "x", "c", "y"], latency), Some(("c".into(), None)));
        assert_eq!(pick(["d", "x", "y", "z"], latency), None);
        let mut dropped = measured("c", &[0.5]);
        dropped.reason = "slower".into();
        record.set(dropped);
        let pick = |order: [&'static str; 4], metric| {
            choose(&record, order.into_iter(), metric).map(|c| (c.config, c.fastest))
        };
        assert_eq!(pick(["c", "a", "b", "d"], latency), Some(("a".into(), Some("b".into()))));
        assert_eq!(pick(["c", "x", "y", "d"], latency), Some(("c".into(), None)));
        // Four in a hundred, in rounds of which each has its own speed.
        let rounds = [1.0, 2.0, 1.5, 1.1, 3.0, 1.0, 1.2, 1.7, 2.5];
        let noise = [1.0, 0.8, 1.2, 0.95, 1.1, 0.9, 1.04, 1.3, 0.97];
        let mut noisy = Record::new(subject());
        let times = |f: &dyn Fn(usize) -> f64| (0..9).map(f).collect::<Vec<_>>();
        noisy.set(measured("b", &rounds));
        noisy.set(measured("a", &times(&|i| 1.04 * rounds[i])));
        let pick_noisy =
            |record: &Record| choose(record, ["a", "b"].into_iter(), latency).map(|c| c.config);
        assert_eq!(pick_noisy(&noisy).as_deref(), Some("b"));
        // The same where each round has noise: the difference is not significant.
        noisy.set(measured("a", &times(&|i| 1.04 * rounds[i] * noise[i])));
        assert_eq!(pick_noisy(&noisy).as_deref(), Some("a"));
        // The outlier of b is in its tail.
        assert_eq!(pick(["b", "a", "c", "d"], Metric::Tail), Some(("a".into(), None)));
    }
}
