//! Operands of asynchronous operations are not overwritten: a stage is released, and memory written
//! again, only when a `mma_retire` or a `bulk_wait` covers every operation that reads it; a pending
//! tile is a tile only when its groups are complete; and a role ends only when its bulk stores have
//! read their memory.

use super::Finding;
use super::trace::{Actor, Base, Place, Run, Trace, What};
use crate::Staged;
use std::collections::BTreeMap;
use tessera_ir::{Func, OpId};

pub(super) fn check(func: &Func<Staged>, run: &Run<'_>) -> Vec<Finding> {
    let mut out = Vec::new();
    for trace in &run.traces {
        one(func, run, trace, &mut out);
    }
    out
}

#[derive(Default)]
struct AsyncUnits {
    /// The memory that MMA groups and bulk stores in flight read, by their indices.
    mma: BTreeMap<usize, Vec<(Place, OpId)>>,
    bulk: BTreeMap<usize, Vec<(Place, OpId)>>,
    groups: usize,
    bulks: usize,
}

impl AsyncUnits {
    fn reading(&self) -> impl Iterator<Item = &(Place, OpId)> {
        self.mma.values().chain(self.bulk.values()).flatten()
    }
}

fn one(func: &Func<Staged>, run: &Run<'_>, trace: &Trace, out: &mut Vec<Finding>) {
    let line = |op: OpId| match func.ops[op].loc.line() {
        0 => String::new(),
        line => format!(" begun in line {line}"),
    };
    let mut async_units = AsyncUnits::default();
    for event in &trace.events {
        match &event.what {
            What::Read { place, by: Actor::Mma(group) } => {
                async_units.groups = async_units.groups.max(group + 1);
                async_units.mma.entry(*group).or_default().push((place.clone(), event.op));
            }
            What::Read { place, by: Actor::Bulk(bulk) } => {
                async_units.bulks = async_units.bulks.max(bulk + 1);
                async_units.bulk.entry(*bulk).or_default().push((place.clone(), event.op));
            }
            What::Retire { keep, newest, tile } => {
                let done = async_units.groups.saturating_sub(*keep);
                async_units.mma.retain(|&group, _| group >= done);
                if *tile && newest.is_some_and(|n| n >= done) {
                    out.push((
                        event.op,
                        format!(
                            "expected a tile only of groups that are done, got one of the {keep} newest: \
                             keep fewer, or leave it pending"
                        ),
                    ));
                }
            }
            What::BulkWait { keep } => {
                let done = async_units.bulks.saturating_sub(*keep);
                async_units.bulk.retain(|&bulk, _| bulk >= done);
            }
            What::Release { pipeline, i } => {
                let borrowed = async_units.reading().find(|(place, _)| {
                    matches!(&place.base, Base::Field { pipeline: r, i: n, .. } if (r, n) == (pipeline, i))
                });
                if let Some((_, by)) = borrowed {
                    out.push((
                        event.op,
                        format!(
                            "expected counter {i} of pipeline {} to be released when nothing reads it, got \
                             asynchronous work{} that no wait covers",
                            run.name(*pipeline),
                            line(*by)
                        ),
                    ));
                }
            }
            What::Write { place, .. } => {
                if let Some((_, by)) = async_units.reading().find(|(p, _)| p.overlaps(place)) {
                    out.push((
                        event.op,
                        format!(
                            "expected memory that nothing reads, got asynchronous work{} that no wait covers",
                            line(*by)
                        ),
                    ));
                }
            }
            _ => {}
        }
    }
    if let Some((_, by)) = async_units.bulk.values().flatten().next() {
        let why = "expected a `bulk_wait` before the memory it reads goes, got the end of the role";
        out.push((*by, why.into()));
    }
}
