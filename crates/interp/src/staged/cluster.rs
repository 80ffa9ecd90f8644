//! Clusters: CTAs that multicast to each other's pipelines.
//!
//! A multicast load is complete when each CTA has issued its part; all must have requested the same
//! block. A part that arrives while the receiving CTA still reads the stage is an error, and so is
//! any access to a CTA that has exited.

use super::agent::Agent;
use super::buffer::StageRef;
use super::world::World;
use crate::fault::{Outcome, fault};
use std::collections::BTreeMap;
use tessera_diag::{Code, Loc};
use tessera_ir::OpId;
use tessera_staged::ops::team::Team;

/// One part of a multicast load.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pipeline: usize,
    i: i64,
    field: String,
    at: Vec<i64>,
    loc: Loc,
}

#[derive(Clone, Debug)]
pub(super) enum Message {
    Part(Part),
    Released { pipeline: usize, i: i64, loc: Loc },
}

/// The state of one CTA about its cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    pub team: Team,
    pub rank: u32,
    /// All its agents are done.
    pub ended: bool,
    outbox: Vec<(u32, Message)>,
    parts: Vec<Part>,
    /// Loads of which this CTA has issued its part: the pipeline, the counter, the field, the
    /// position, and the number of parts.
    begun: Vec<(Part, usize)>,
    /// How often each peer has released each counter of a pipeline.
    released: BTreeMap<(usize, i64, u32), usize>,
}

impl Cluster {
    pub fn new(team: Team, rank: u32) -> Self {
        Self { team, rank, ..Self::default() }
    }
}

impl World<'_> {
    /// The other CTAs that a pipeline's stages are filled with.
    fn peers(&self, pipeline: usize) -> Vec<u32> {
        let Cluster { team, rank, .. } = self.cluster;
        if team.blocks() == 1 {
            return Vec::new();
        }
        let all = team.peers(self.prepared.func, self.pipelines[pipeline].value, rank);
        all.into_iter().filter(|&r| r != rank).collect()
    }

    /// A fill with `multicast`: this CTA's part goes to all receivers.
    pub fn multicast(&mut self, fill: OpId, stage: StageRef, field: &str, at: &[i64]) {
        let func = self.prepared.func;
        let Cluster { team, rank, .. } = self.cluster;
        let (bits, parts) = team.of_fill(func, fill);
        if parts == 1 {
            return;
        }
        let loc = func.ops[fill].loc.clone();
        let part = Part {
            pipeline: stage.pipeline,
            i: stage.i,
            field: field.to_string(),
            at: at.to_vec(),
            loc,
        };
        self.cluster.begun.push((part.clone(), parts as usize));
        for to in (0..team.blocks()).filter(|to| (to ^ rank) & !bits == 0) {
            self.cluster.outbox.push((to, Message::Part(part.clone())));
        }
    }

    pub fn tell_released(&mut self, pipeline: usize, i: i64, loc: &Loc) {
        for to in self.peers(pipeline) {
            self.cluster.outbox.push((to, Message::Released { pipeline, i, loc: loc.clone() }));
        }
    }

    /// Whether the other CTAs have released a counter of their own stages.
    pub fn is_released_by_peers(&self, pipeline: usize, i: i64) -> bool {
        let readers = self.pipelines[pipeline].consumers.len();
        i < 0
            || self
                .peers(pipeline)
                .into_iter()
                .all(|r| self.cluster.released.get(&(pipeline, i, r)) == Some(&readers))
    }

    /// Whether all parts of a counter's loads have arrived. They must be of the same block.
    pub fn has_all_parts(&mut self, pipeline: usize, i: i64) -> Outcome<bool> {
        let Cluster { begun, parts, .. } = &self.cluster;
        for (own, count) in begun.iter().filter(|(p, _)| (p.pipeline, p.i) == (pipeline, i)) {
            let here: Vec<_> = parts
                .iter()
                .filter(|p| (p.pipeline, p.i, &p.field) == (pipeline, i, &own.field))
                .collect();
            if let Some(other) = here.iter().find(|p| p.at != own.at) {
                let why = format!(
                    "expected all blocks of a cluster to copy the same block, got {:?} and {:?}",
                    own.at, other.at
                );
                return Err(fault(Code::E_GRAPH_INVALID, why, &own.loc));
            }
            if here.len() < *count {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Drops the state of a counter that was read.
    pub fn forget_parts(&mut self, pipeline: usize, i: i64) {
        let stages = self.pipelines[pipeline].stages;
        let old = |r: usize, n: i64| r == pipeline && n < i - stages;
        self.cluster.parts.retain(|p| !old(p.pipeline, p.i));
        self.cluster.begun.retain(|(p, _)| !old(p.pipeline, p.i));
        self.cluster.released.retain(|&(r, n, _), _| !old(r, n + stages));
    }

    fn receive(&mut self, from: u32, message: Message) -> Outcome<()> {
        let loc = match &message {
            Message::Part(part) => part.loc.clone(),
            Message::Released { loc, .. } => loc.clone(),
        };
        if self.cluster.ended {
            let why = "expected the other block of the cluster to be running, got one that has ended: \
                       `drain` the pipeline";
            return Err(fault(Code::E_UNWAITED, why, &loc));
        }
        match message {
            Message::Part(part) => {
                let pipeline = &self.pipelines[part.pipeline];
                if !pipeline.is_free(part.i) {
                    let why = format!(
                        "expected the stage of counter {} of pipeline {} to be free in all blocks of the \
                         cluster, got one that is still read",
                        part.i, pipeline.name
                    );
                    return Err(fault(Code::E_RACE, why, &loc));
                }
                self.cluster.parts.push(part);
            }
            Message::Released { pipeline, i, .. } => {
                *self.cluster.released.entry((pipeline, i, from)).or_default() += 1;
            }
        }
        Ok(())
    }
}

/// Delivers the messages of a CTA to the others.
pub(super) fn deliver(worlds: &mut [World<'_>], from: usize) -> Outcome<()> {
    for (to, message) in std::mem::take(&mut worlds[from].cluster.outbox) {
        worlds[to as usize].receive(from as u32, message)?;
    }
    Ok(())
}

impl Agent<'_> {
    /// The counters whose stages a producer of a pipeline may still wait for.
    pub(super) fn last_filled(&self, world: &World<'_>, pipeline: usize) -> std::ops::Range<i64> {
        let next = world.pipelines[pipeline].next_fill.get(&self.seat).copied().unwrap_or(0);
        (next - world.pipelines[pipeline].stages).max(0)..next
    }
}
