//! Traces: what each role does, op after op, at one size. Only what synchronises, and what touches
//! shared memory, is in them; tiles have no values here.

mod place;
mod sizes;
mod walk;

pub(super) use place::{Base, Place};

use crate::ops::roles::role_info;
use crate::{Staged, StagedOp};
use tessera_ir::{Func, OpId, Value};

/// Who touches memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Actor {
    Threads,
    /// The copy engine, filling a stage.
    Copy,
    /// The matrix engine, in the role's group of this number.
    Mma(usize),
    /// The copy engine, in the role's bulk store of this number.
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
    /// All but the `keep` newest groups are done; `newest` is the last group of the value that is
    /// retired, and `tile` whether it must be among those done.
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
    /// `None` for what the whole block does outside of roles.
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
    /// What all dimensions were set to, where there are any.
    pub size: Option<i64>,
    pub traces: Vec<Trace>,
}

impl Run<'_> {
    /// What messages call a pipeline or memory.
    pub fn name(&self, v: Value) -> String {
        self.func.name_of(v).map_or_else(|| v.to_string(), |n| format!("%{n}"))
    }
}

/// One run for each size that is worth looking at. A run that cannot be followed to its end is left
/// out: a counter may come from memory, or there may be too much to do.
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
    // The block outside of roles, then each replica.
    let mut agents = vec![(None, 0)];
    for &role in &roles {
        let replicas = role_info(func, role).replicas.clamp(1, MOST_REPLICAS);
        agents.extend((0..replicas).map(|n| (Some(role), n)));
    }
    let mut out = Vec::new();
    for sample in sizes::samples(func) {
        let size = sizes::has_symbols(func).then_some(sample);
        // A question that the size does not answer is answered both ways.
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

/// More replicas of a role than this do what these do.
const MOST_REPLICAS: i64 = 8;
