//! Visibility of shared memory: threads see each other's writes only after a barrier, and
//! asynchronous operations only where a fence precedes that barrier. `publish` is a barrier for the
//! fields of its stage.

use super::Finding;
use super::trace::{Actor, Base, Place, Run, Trace, What};
use crate::{Staged, StagedOp};
use std::collections::BTreeSet;
use tessera_ir::{Func, OpId, Value};
use tessera_layout::Layout;

pub(super) fn check(func: &Func<Staged>, run: &Run<'_>) -> Vec<Finding> {
    let mut out = Vec::new();
    // Fields that an asynchronous operation reads, whichever role filled them.
    let mut async_units: BTreeSet<(Value, String)> = BTreeSet::new();
    for event in run.traces.iter().flat_map(|t| &t.events) {
        if let What::Read { place, by: Actor::Mma(_) | Actor::Bulk(_) } = &event.what
            && let Base::Field { pipeline, name, .. } = &place.base
        {
            async_units.insert((*pipeline, name.clone()));
        }
    }
    for trace in &run.traces {
        one(func, run, trace, &async_units, &mut out);
    }
    out
}

/// An access by threads, and the barriers and fences since.
struct Touch<'t> {
    place: &'t Place,
    op: OpId,
    writes: bool,
    fenced: bool,
    /// A barrier since, and a barrier after a fence.
    met: bool,
    met_fenced: bool,
}

fn one(
    func: &Func<Staged>,
    run: &Run<'_>,
    trace: &Trace,
    async_units: &BTreeSet<(Value, String)>,
    out: &mut Vec<Finding>,
) {
    let mut touches: Vec<Touch<'_>> = Vec::new();
    for event in &trace.events {
        match &event.what {
            What::Fence => touches.iter_mut().for_each(|t| t.fenced = true),
            What::Barrier => {
                for t in &mut touches {
                    t.met = true;
                    t.met_fenced |= t.fenced;
                }
                // Writes that are visible to all need no more checks.
                touches.retain(|t| t.writes && !t.met_fenced);
            }
            What::Publish { pipeline, i } => {
                let of = |t: &&Touch<'_>| {
                    t.writes
                        && !t.fenced
                        && matches!(&t.place.base, Base::Field { pipeline: r, i: n, name, .. }
                            if (r, n) == (pipeline, i) && async_units.contains(&(*r, name.clone())))
                };
                if touches.iter().any(|t| of(&t)) {
                    let name = run.name(*pipeline);
                    out.push((
                        event.op,
                        format!(
                            "expected `fence_async` between what threads wrote to counter {i} of pipeline \
                             {name} and its publication, because an asynchronous operation reads it"
                        ),
                    ));
                }
                touches.retain(|t| {
                    !matches!(&t.place.base, Base::Field { pipeline: r, i: n, .. } if (r, n) == (pipeline, i))
                });
            }
            What::Read { place, by: Actor::Threads } => {
                let hidden = touches.iter().find(|t| {
                    t.writes
                        && !t.met
                        && t.place.overlaps(place)
                        && !same_threads(func, t.op, event.op)
                });
                if hidden.is_some() {
                    let why = "expected a barrier between what threads wrote here and this read";
                    out.push((event.op, why.into()));
                }
                // Stages change hands by `release` and `acquire`.
                if matches!(place.base, Base::Alloc(_)) {
                    touches.push(touch(place, event.op, false));
                }
            }
            What::Read { place, by: Actor::Mma(_) | Actor::Bulk(_) } => {
                let hidden =
                    touches.iter().find(|t| t.writes && !t.met_fenced && t.place.overlaps(place));
                if let Some(t) = hidden {
                    let what = if t.fenced { "a barrier" } else { "`fence_async` and a barrier" };
                    out.push((
                        event.op,
                        format!(
                            "expected {what} between what threads wrote here and this asynchronous read"
                        ),
                    ));
                }
            }
            What::Write { place, by: Actor::Threads } => {
                let early = touches.iter().find(|t| {
                    !t.met && t.place.overlaps(place) && !same_threads(func, t.op, event.op)
                });
                if let Some(t) = early {
                    let what = if t.writes { "wrote" } else { "read" };
                    out.push((
                        event.op,
                        format!(
                            "expected a barrier between what threads {what} here and this write"
                        ),
                    ));
                }
                touches.retain(|t| t.place != place);
                touches.push(touch(place, event.op, true));
            }
            _ => {}
        }
    }
}

fn touch(place: &Place, op: OpId, writes: bool) -> Touch<'_> {
    Touch { place, op, writes, fenced: false, met: false, met_fenced: false }
}

/// Whether two ops access the same memory by the same threads: then no barrier is needed.
fn same_threads(func: &Func<Staged>, a: OpId, b: OpId) -> bool {
    let side = |op: OpId| -> Option<(Value, &Layout)> {
        let op = &func.ops[op];
        let tile = match op.code {
            StagedOp::FragLoad => op.result(),
            StagedOp::FragStore => op.operands[1],
            _ => return None,
        };
        Some((op.operands[0], func.ty(tile).layout()?))
    };
    side(a).is_some() && side(a) == side(b)
}
