//! Traces: the ops of each role in execution order, at one size. They contain only synchronisation
//! and accesses of shared memory; tiles have no values here.

mod place;
mod sizes;
mod walk;

pub(super) use place::{Base, Place};

use crate::ops::roles::role_info;
use crate::{Staged, StagedOp};
use tessera_ir::{Func, OpId, Value};

/// What accesses memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Actor {
    Threads,
    /// An asynchronous copy that fills a stage.
    Copy,
    /// The tensor cores, in the role's MMA group of this index.
    Mma(usize),
    /// TMA, in the role's bulk store of this index.
    Bulk(usize),
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum What {
    Acquire {
        pipeline: Value,
        i: i64,
    },
    Publish {
        pipeline: Value,
        i: i64,
    },
    Wait {
        pipeline: Value,
        i: i64,
    },
    Release {
        pipeline: Value,
        i: i64,
    },
    Drain {
        pipeline: Value,
    },
    Read {
        place: Place,
        by: Actor,
    },
    Write {
        place: Place,
        by: Actor,
    },
    /// All but the `keep` newest groups are complete; `newest` is the last group of the retired
    /// value, and `tile` whether it must be complete.
    Retire {
        keep: usize,
        newest: Option<usize>,
        tile: bool,
    },
    BulkWait {
        keep: usize,
    },
    Fence,
    Barrier,
}

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub op: OpId,
    pub what: What,
}

pub(super) struct Trace {
    /// `None` for the block outside roles.
    pub role: Option<OpId>,
    /// Whether the replicas of the role take whole tiles in turn.
    pub by_tiles: bool,
    pub events: Vec<Event>,
    /// The op that ends it.
    pub end: OpId,
}

/// The traces of all roles at one size.
pub(super) struct Run<'f> {
    pub func: &'f Func<Staged>,
    /// The value of all dimensions, where there are any.
    pub size: Option<i64>,
    pub traces: Vec<Trace>,
}

impl Run<'_> {
    /// The name of a pipeline or memory in messages.
    pub fn name(&self, v: Value) -> String {
        self.func.name_of(v).map_or_else(|| v.to_string(), |n| format!("%{n}"))
    }
}

/// One run for each relevant size. A run that cannot be followed to its end is left out: a counter
/// may come from memory, or there may be too many ops.
pub(super) fn runs(func: &Func<Staged>) -> Vec<Run<'_>> {
    let roles: Vec<OpId> =
        func.walk().into_iter().filter(|&o| func.ops[o].code == StagedOp::WarpRole).collect();
    let shares = func.walk().iter().any(|&o| {
        matches!(
            func.ops[o].code,
            StagedOp::PipelineCreate | StagedOp::SmemAlloc | StagedOp::MmaOpen
        )
    });
    if !shares {
        return Vec::new();
    }
    // The block outside roles, then each replica.
    let mut agents = vec![(None, 0)];
    for &role in &roles {
        let replicas = role_info(func, role).replicas.clamp(1, MOST_REPLICAS);
        agents.extend((0..replicas).map(|n| (Some(role), n)));
    }
    let mut out = Vec::new();
    for sample in sizes::samples(func) {
        let size = sizes::has_symbols(func).then_some(sample);
        // A condition that the size does not decide is taken both ways.
        for maybe in [true, false] {
            let mut requested = false;
            let mut follow = |&(role, replica): &(Option<OpId>, i64)| {
                let (trace, unknown) = walk::follow(func, role, replica, sample, maybe)?;
                requested |= unknown;
                Some(trace)
            };
            let traces: Option<Vec<_>> = agents.iter().map(&mut follow).collect();
            out.extend(traces.map(|traces| Run { func, size, traces }));
            if !requested {
                break;
            }
        }
    }
    out
}

/// Further replicas of a role repeat what these do.
const MOST_REPLICAS: i64 = 8;
