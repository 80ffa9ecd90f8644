//! Pipeline counters: a producer takes 0, 1, 2, … and publishes each; a consumer waits for the
//! same, and releases each once; and no counter is waited for that is never published.

use super::Finding;
use super::trace::{Run, Trace, What};
use crate::Staged;
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Func, OpId, Value};

/// The uses of a pipeline by one role, or the block.
#[derive(Default)]
struct Side {
    acquired: Vec<(i64, OpId)>,
    waited: Vec<(i64, OpId)>,
    drains: bool,
}

pub(super) fn check(_func: &Func<Staged>, run: &Run<'_>) -> Vec<Finding> {
    let mut out = Vec::new();
    let mut sides: BTreeMap<(Value, Option<OpId>), Side> = BTreeMap::new();
    for trace in &run.traces {
        alone(run, trace, &mut out);
        let mut seen: BTreeMap<Value, Side> = BTreeMap::new();
        for event in &trace.events {
            match event.what {
                What::Acquire { pipeline, i } => {
                    seen.entry(pipeline).or_default().acquired.push((i, event.op));
                }
                What::Wait { pipeline, i } => {
                    seen.entry(pipeline).or_default().waited.push((i, event.op));
                }
                What::Drain { pipeline } => seen.entry(pipeline).or_default().drains = true,
                _ => {}
            }
        }
        for (pipeline, side) in seen {
            let all = sides.entry((pipeline, trace.role)).or_default();
            all.drains |= side.drains;
            // Replicas that take tiles in turn are one sequence; other replicas do the same each,
            // and the first represents them.
            if trace.by_tiles || all.acquired.is_empty() {
                all.acquired.extend(side.acquired);
            }
            if trace.by_tiles || all.waited.is_empty() {
                all.waited.extend(side.waited);
            }
        }
        if !trace.by_tiles {
            ascending(run, trace, &mut out);
        }
    }
    for ((pipeline, _), side) in &mut sides {
        side.acquired.sort_unstable();
        side.waited.sort_unstable();
        for list in [&side.acquired, &side.waited] {
            if let Some((wanted, (got, op))) = (0..).zip(list).find(|(n, (i, _))| n != i) {
                out.push((*op, sequence(run, *pipeline, wanted, *got)));
            }
        }
    }
    both_sides(run, &sides, &mut out);
    out
}

fn sequence(run: &Run<'_>, pipeline: Value, wanted: i64, got: i64) -> String {
    format!("expected counter {wanted} of pipeline {}, got {got}", run.name(pipeline))
}

/// In one trace the counters ascend by one.
fn ascending(run: &Run<'_>, trace: &Trace, out: &mut Vec<Finding>) {
    let mut next: BTreeMap<(Value, bool), i64> = BTreeMap::new();
    for event in &trace.events {
        let (pipeline, i, fills) = match event.what {
            What::Acquire { pipeline, i } => (pipeline, i, true),
            What::Wait { pipeline, i } => (pipeline, i, false),
            _ => continue,
        };
        let wanted = next.entry((pipeline, fills)).or_insert(0);
        if *wanted != i {
            out.push((event.op, sequence(run, pipeline, *wanted, i)));
            return;
        }
        *wanted += 1;
    }
}

/// Each counter that is acquired is published once, each that is waited for is released once.
fn alone(run: &Run<'_>, trace: &Trace, out: &mut Vec<Finding>) {
    let mut acquired = BTreeSet::new();
    let mut published = BTreeSet::new();
    let mut waited = BTreeSet::new();
    let mut released = BTreeSet::new();
    for event in &trace.events {
        let fault = match event.what {
            What::Acquire { pipeline, i } => {
                acquired.insert((pipeline, i));
                None
            }
            What::Wait { pipeline, i } => {
                waited.insert((pipeline, i));
                None
            }
            What::Publish { pipeline, i } => {
                let fresh = published.insert((pipeline, i));
                match (acquired.contains(&(pipeline, i)), fresh) {
                    (false, _) => Some(("publish", "acquired", "before", pipeline, i)),
                    (true, false) => Some(("publish", "published", "only once", pipeline, i)),
                    (true, true) => None,
                }
            }
            What::Release { pipeline, i } => {
                let fresh = released.insert((pipeline, i));
                match (waited.contains(&(pipeline, i)), fresh) {
                    (false, _) => Some(("release", "waited for", "before", pipeline, i)),
                    (true, false) => Some(("release", "released", "only once", pipeline, i)),
                    (true, true) => None,
                }
            }
            _ => None,
        };
        if let Some((what, done, when, pipeline, i)) = fault {
            let name = run.name(pipeline);
            let why = format!("expected counter {i} of pipeline {name} to be {done} {when}");
            out.push((event.op, format!("{why}, got this {what}")));
        }
    }
    for (begun, ended, what, must) in [
        (&acquired, &published, "acquired", "published"),
        (&waited, &released, "waited for", "released"),
    ] {
        if let Some((pipeline, i)) = begun.difference(ended).next() {
            let why = format!(
                "expected every counter of pipeline {} that is {what} to be {must}, got {i} that is not",
                run.name(*pipeline)
            );
            let last = trace.events.iter().rev().find(|e| match e.what {
                What::Acquire { pipeline: r, i: n } | What::Wait { pipeline: r, i: n } => {
                    (r, n) == (*pipeline, *i)
                }
                _ => false,
            });
            out.push((last.map_or(trace.end, |e| e.op), why));
        }
    }
}

/// One side of a pipeline, with its role.
type Member<'s> = (Option<OpId>, &'s Side);

fn both_sides(
    run: &Run<'_>,
    sides: &BTreeMap<(Value, Option<OpId>), Side>,
    out: &mut Vec<Finding>,
) {
    let pipelines: BTreeSet<Value> = sides.keys().map(|(pipeline, _)| *pipeline).collect();
    for pipeline in pipelines {
        let of = |filter: &dyn Fn(&Side) -> bool| -> Vec<Member<'_>> {
            let here = sides.iter().filter(|((r, _), s)| *r == pipeline && filter(s));
            here.map(|((_, role), s)| (*role, s)).collect()
        };
        let producers = of(&|s| !s.acquired.is_empty());
        let consumers = of(&|s| !s.waited.is_empty());
        let name = run.name(pipeline);
        if let [_, (_, second), ..] = producers[..] {
            let op = second.acquired[0].1;
            out.push((op, format!("expected one role to fill pipeline {name}, got a second")));
            continue;
        }
        let filled = producers.first().map_or(0, |(_, p)| p.acquired.len());
        for (_, consumer) in &consumers {
            if let Some((i, op)) = consumer.waited.get(filled) {
                out.push((
                    *op,
                    format!(
                        "expected counter {i} of pipeline {name} to be published, got only {filled}"
                    ),
                ));
            }
        }
        let Some((by, producer)) = producers.first() else { continue };
        // A role that fills a pipeline and reads it itself may leave some stages, and drain it.
        let behind =
            |(role, c): &Member<'_>| c.waited.len() < filled && !(role == by && producer.drains);
        let read = match consumers.iter().find(|c| behind(c)) {
            Some((_, c)) => c.waited.len(),
            None if consumers.is_empty() && !producer.drains => 0,
            None => continue,
        };
        let (i, op) = producer.acquired[read];
        out.push((
            op,
            format!(
                "expected counter {i} of pipeline {name} to be waited for by every reader: `drain` the \
                 pipeline where a role leaves what it filled for itself"
            ),
        ));
    }
}
