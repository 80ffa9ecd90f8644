//! Pipeline stages: a field is written once, between `acquire` and `publish`, by the role that
//! acquired it, and read between `wait` and `release`, if it was filled at all.

use super::Finding;
use super::trace::{Base, Event, Place, Run, Trace, What};
use crate::Staged;
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Func, Value};

/// A pipeline, a counter and a field.
type Key = (Value, i64, String);

pub(super) fn check(_func: &Func<Staged>, run: &Run<'_>) -> Vec<Finding> {
    let mut out = Vec::new();
    let mut written: BTreeSet<Key> = BTreeSet::new();
    let mut filled: BTreeSet<Value> = BTreeSet::new();
    for trace in &run.traces {
        in_order(run, trace, &mut out);
        for event in &trace.events {
            match &event.what {
                What::Write {
                    place: Place { base: Base::Field { pipeline, i, name, .. }, .. },
                    ..
                } => {
                    written.insert((*pipeline, *i, name.clone()));
                }
                What::Acquire { pipeline, .. } => {
                    filled.insert(*pipeline);
                }
                _ => {}
            }
        }
    }
    for event in run.traces.iter().flat_map(|t| &t.events) {
        if let What::Read {
            place: Place { base: Base::Field { pipeline, i, name, .. }, .. }, ..
        } = &event.what
            && filled.contains(pipeline)
            && !written.contains(&(*pipeline, *i, name.clone()))
        {
            let pipeline = run.name(*pipeline);
            out.push((
                event.op,
                format!("expected field `{name}` of counter {i} of pipeline {pipeline} to be filled, got nothing"),
            ));
        }
    }
    out
}

#[derive(Default)]
struct StageState {
    acquired: BTreeSet<(Value, i64)>,
    waited: BTreeSet<(Value, i64)>,
    /// The places written to each stage.
    writes: BTreeMap<(Value, i64), Vec<Place>>,
}

fn in_order(run: &Run<'_>, trace: &Trace, out: &mut Vec<Finding>) {
    let mut state = StageState::default();
    for event in &trace.events {
        match &event.what {
            What::Acquire { pipeline, i } => {
                state.acquired.insert((*pipeline, *i));
            }
            What::Publish { pipeline, i } => {
                state.acquired.remove(&(*pipeline, *i));
            }
            What::Wait { pipeline, i } => {
                state.waited.insert((*pipeline, *i));
            }
            What::Release { pipeline, i } => {
                state.waited.remove(&(*pipeline, *i));
            }
            What::Write { place, .. } => write(run, &mut state, event, place, out),
            What::Read { place, .. } => {
                let Base::Field { pipeline, i, name, filling } = &place.base else { continue };
                if *filling || !state.waited.contains(&(*pipeline, *i)) {
                    let pipeline = run.name(*pipeline);
                    out.push((
                        event.op,
                        format!(
                            "expected field `{name}` of counter {i} of pipeline {pipeline} to be read between \
                             `wait` and `release`"
                        ),
                    ));
                }
            }
            _ => {}
        }
    }
}

fn write(
    run: &Run<'_>,
    state: &mut StageState,
    event: &Event,
    place: &Place,
    out: &mut Vec<Finding>,
) {
    let Base::Field { pipeline, i, name, filling } = &place.base else { return };
    let stage = (*pipeline, *i);
    let pipeline = run.name(*pipeline);
    if !filling || !state.acquired.contains(&stage) {
        out.push((
            event.op,
            format!(
                "expected field `{name}` of counter {i} of pipeline {pipeline} to be written between `acquire` \
                 and `publish`"
            ),
        ));
    } else if state.writes.get(&stage).is_some_and(|all| all.iter().any(|w| w.overlaps(place))) {
        out.push((
            event.op,
            format!("expected field `{name}` of counter {i} of pipeline {pipeline} to be written once, got twice"),
        ));
    }
    state.writes.entry(stage).or_default().push(place.clone());
}
