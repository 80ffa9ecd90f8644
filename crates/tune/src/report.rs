//! A record as a table.

use crate::choose::{Chosen, Metric};
use crate::record::{Record, RecordState, Row};
use crate::stats;
use std::fmt::Write;

/// The candidates in the kernel's order, then rows of others that the record holds.
pub fn rows<'a>(record: &'a Record, order: &[String]) -> Vec<&'a Row> {
    let own = order.iter().filter_map(|c| record.rows.get(c));
    let others = record.rows.values().filter(|row| !order.contains(&row.config));
    own.chain(others).collect()
}

/// Fastest first; those without a time after them, in the kernel's order.
fn sorted<'a>(record: &'a Record, order: &[String], metric: Metric) -> Vec<(&'a Row, Option<f64>)> {
    let time = |row: &'a Row| (row, metric.of(row).filter(|_| row.state == RecordState::Measured));
    let mut rows: Vec<_> = rows(record, order).into_iter().map(time).collect();
    rows.sort_by(|a, b| {
        let key = |r: &(&Row, Option<f64>)| r.1.unwrap_or(f64::INFINITY);
        key(a).total_cmp(&key(b))
    });
    rows
}

/// Seconds with three digits and a unit.
pub fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "us"),
    };
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

pub fn text(record: &Record, order: &[String], metric: Metric, chosen: Option<&Chosen>) -> String {
    let s = &record.subject;
    let mut out = format!("tuning of {}", s.kernel);
    if !s.about().is_empty() {
        let _ = write!(out, " for {}", s.about());
    }
    let _ =
        write!(out, "\n  on {} ({} {}), profile {}\n", s.device, s.backend, s.target, s.profile);
    let rows = sorted(record, order, metric);
    let width = rows.iter().map(|r| r.0.config.chars().count()).max().unwrap_or(0).max(9);
    let best = rows.first().and_then(|r| r.1);
    let _ = writeln!(
        out,
        "  {:<width$}  {:>9}  {:>7}  {:>7}  {:>7}  {:>9}",
        "candidate",
        metric.name().trim_end_matches("_ms"),
        "to best",
        "spread",
        "samples",
        "predicted"
    );
    for (row, measured) in rows {
        let mark = if chosen.is_some_and(|c| c.config == row.config) { '>' } else { ' ' };
        let predicted = row.predicted.map_or("-".into(), time);
        let _ = write!(out, "{mark} {:<width$}  ", row.config);
        match (measured, best) {
            (Some(seconds), Some(best)) => {
                let kept = row.kept();
                let samples = format!("{}/{}", kept.len(), row.samples.len());
                let _ = write!(
                    out,
                    "{:>9}  {:>7.3}  {:>6.1}%  {samples:>7}  {predicted:>9}",
                    time(seconds),
                    seconds / best,
                    100.0 * stats::spread(&kept),
                );
            }
            _ => _ = write!(out, "{:>9}  {:>7}  {:>7}  {:>7}  {predicted:>9}", "-", "-", "-", "-"),
        }
        match (row.state, row.reason.is_empty()) {
            (RecordState::Measured, true) => out.push('\n'),
            (RecordState::Measured, false) => _ = writeln!(out, "  {}", row.reason),
            (state, _) => _ = writeln!(out, "  {}: {}", state.name(), row.reason),
        }
    }
    match chosen {
        None => out.push_str("  nothing was measured: the first candidate that is legal runs"),
        Some(Chosen { config, fastest: None, .. }) => _ = write!(out, "  runs: {config}"),
        Some(Chosen { config, fastest: Some(fastest), .. }) => {
            let _ =
                write!(out, "  runs: {config} (as good as {fastest}, and before it in the list)");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choose::choose;
    use crate::record::tests::{measured, subject};

    #[test]
    fn the_table_has_every_candidate_with_its_time_or_its_reason() {
        let mut record = Record::new(subject());
        record.subject.target = "avx2".into();
        record.subject.profile = "default".into();
        let mut fast = measured("BM=64", &[1e-3, 1.01e-3, 1e-3, 9e-3]);
        fast.predicted = Some(2e-3);
        record.set(fast);
        let mut slow = measured("BM=128", &[2e-3]);
        slow.reason = "2.00 times the best after 5 rounds".into();
        record.set(slow);
        record.set(Row::new(
            "BM=256",
            RecordState::Pruned,
            "2048 threads in a block, of at most 1024",
        ));
        let order: Vec<String> = ["BM=256", "BM=128", "BM=64"].map(String::from).into();
        let chosen = choose(&record, order.iter().map(String::as_str), Metric::Latency);
        let text = text(&record, &order, Metric::Latency, chosen.as_ref());
        let expected = "\
tuning of gemm for M=64, N=128; A=f32
  on a processor, 2 threads (cpu avx2), profile default
  candidate    latency  to best   spread  samples  predicted
> BM=64        1.00 ms    1.000     0.5%      3/4    2.00 ms
  BM=128       2.00 ms    2.000     0.0%      1/1          -  2.00 times the best after 5 rounds
  BM=256             -        -        -        -          -  pruned: 2048 threads in a block, of at most 1024
  runs: BM=64";
        assert_eq!(text, expected, "{text}");
    }
}
