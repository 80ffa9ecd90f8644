//! A record as a picture: every sample of every candidate, fastest first.

use crate::choose::{Chosen, Metric};
use crate::record::{Record, RecordState, Row};
use crate::report::{rows, time};
use crate::stats;
use std::fmt::Write;

const LEFT: f64 = 260.0;
const WIDTH: f64 = 900.0;
const LINE: f64 = 22.0;
const TOP: f64 = 56.0;

/// An SVG. Dots are samples, hollow ones outliers; the bar is the median, the tick what the cost
/// model said; candidates without a time say why.
pub fn svg(record: &Record, order: &[String], metric: Metric, chosen: Option<&Chosen>) -> String {
    let mut rows = rows(record, order);
    let key = |row: &Row| {
        metric.of(row).filter(|_| row.state == RecordState::Measured).unwrap_or(f64::INFINITY)
    };
    rows.sort_by(|a, b| key(a).total_cmp(&key(b)));
    let kept = rows.iter().flat_map(|r| r.kept());
    let most = kept.fold(0.0, f64::max) * 1.05;
    let height = TOP + LINE * rows.len() as f64 + 34.0;
    let x = |seconds: f64| {
        let part = if most > 0.0 { (seconds / most).min(1.0) } else { 0.0 };
        LEFT + part * (WIDTH - LEFT - 20.0)
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let s = &record.subject;
    label(&mut out, 10.0, 20.0, "", &format!("{}  {}", s.kernel, s.about()));
    label(
        &mut out,
        10.0,
        38.0,
        "fill=\"#666\"",
        &format!("{} ({} {})", s.device, s.backend, s.target),
    );
    for step in 0..=4 {
        let at = most * f64::from(step) / 4.0;
        let (x, bottom) = (x(at), height - 28.0);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\" stroke=\"#ddd\"/>",
            TOP - 8.0
        );
        label(&mut out, x, height - 12.0, "text-anchor=\"middle\" fill=\"#666\"", &time(at));
    }
    for (place, row) in rows.iter().enumerate() {
        let y = TOP + LINE * (place as f64 + 0.5);
        let is_chosen = chosen.is_some_and(|c| c.config == row.config);
        let style = if is_chosen {
            "text-anchor=\"end\" font-weight=\"bold\""
        } else {
            "text-anchor=\"end\""
        };
        label(&mut out, LEFT - 10.0, y + 4.0, style, &row.config);
        if row.state != RecordState::Measured {
            let why = format!("{}: {}", row.state.name(), row.reason);
            label(&mut out, LEFT + 4.0, y + 4.0, "fill=\"#a33\"", &why);
            continue;
        }
        let color = if is_chosen { "#1a7f37" } else { "#4a78b5" };
        let limit = row.kept().into_iter().fold(0.0, f64::max);
        for &sample in &row.samples {
            let fill = if sample > limit { "none" } else { color };
            let _ = writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{fill}\" stroke=\"{color}\" opacity=\"0.5\"/>",
                x(sample)
            );
        }
        let bar = |out: &mut String, at: f64, half: f64, color: &str| {
            let (x, low, high) = (x(at), y - half, y + half);
            let _ = writeln!(
                out,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\" stroke=\"{color}\" stroke-width=\"2\"/>"
            );
        };
        if let Some(middle) = stats::median(&row.kept()) {
            bar(&mut out, middle, 9.0, "black");
        }
        if let Some(predicted) = row.predicted {
            bar(&mut out, predicted, 4.0, "#d4a017");
        }
    }
    out.push_str("</svg>\n");
    out
}

fn label(out: &mut String, x: f64, y: f64, style: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{measured, subject};

    #[test]
    fn samples_are_dots_and_reasons_are_texts() {
        let mut record = Record::new(subject());
        record.set(measured("BM=64", &[1e-3, 1e-3, 1e-3, 9e-3]));
        record.set(Row::new("BM=256", RecordState::Failed, "a < b & c"));
        let svg = svg(&record, &["BM=64".into(), "BM=256".into()], Metric::Latency, None);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert_eq!(svg.matches("fill=\"none\"").count(), 1);
        assert!(svg.contains("failed: a &lt; b &amp; c") && svg.ends_with("</svg>\n"));
        // Nothing measured is no division by zero.
        let empty = super::svg(&Record::new(subject()), &[], Metric::Latency, None);
        assert!(!empty.contains("NaN"));
    }
}
