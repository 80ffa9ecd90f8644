//! The state that the agents of one block share: memory, pipelines, asynchronous units, and random
//! numbers.

use super::async_units::AsyncUnits;
use super::buffer::{Access, Buffer, MemRef, StageRef};
use super::clock::{Clock, Components};
use super::cluster::Cluster;
use super::pipeline::{Meeting, OrderBarrier, Pipeline, Seat};
use super::prepare::Prepared;
use super::{Timing, agent::Agent};
use crate::fault::{Outcome, broken, fault};
use crate::machine::Machine;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_diag::{Code, Loc};
use tessera_ir::{OpId, Type, Value};
use tessera_layout::Layout;
use tessera_staged::ops::tiles::Order;

pub(super) struct World<'p> {
    pub prepared: &'p Prepared<'p>,
    /// Holds the views.
    pub global: Machine<'p>,
    pub buffers: Vec<Buffer>,
    pub pipelines: Vec<Pipeline>,
    pub order_barriers: Vec<OrderBarrier>,
    pub meetings: BTreeMap<OpId, Meeting>,
    pub async_units: AsyncUnits,
    pub components: Components,
    pub timing: Timing,
    pub chance: Chance,
    /// The index of this block, or of its cluster, and their number.
    pub block: i64,
    pub blocks: i64,
    pub cluster: Cluster,
}

/// Random numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

impl World<'_> {
    pub fn alloc(&mut self, ty: &Type) -> usize {
        let dims = ty.static_shape().unwrap_or_default();
        self.buffers.push(Buffer::new(&dims, ty.dtype()));
        self.buffers.len() - 1
    }

    /// A pipeline with all stages free.
    pub fn create_pipeline(&mut self, v: Value) -> usize {
        let func = self.prepared.func;
        let Type::Pipeline { stages, fields } = func.ty(v) else { return 0 };
        let mut buffers = Vec::new();
        for _ in 0..*stages {
            buffers.push(fields.iter().map(|f| self.alloc(&f.as_smem())).collect());
        }
        let sides = self.prepared.pipelines.get(&v).cloned().unwrap_or_default();
        self.pipelines.push(Pipeline {
            value: v,
            name: func.name_of(v).map_or_else(|| v.to_string(), |n| format!("%{n}")),
            stages: i64::from(*stages),
            buffers,
            fields: fields.iter().map(|f| f.name.clone()).collect(),
            producers: sides.producers,
            consumers: sides.consumers,
            lives: BTreeMap::new(),
            drained: 0,
            next_fill: BTreeMap::new(),
            next_read: BTreeMap::new(),
        });
        self.pipelines.len() - 1
    }

    /// The threads of an agent access memory, all together.
    pub fn by_threads(
        &mut self,
        agent: &mut Agent<'_>,
        mem: &MemRef,
        writes: bool,
        layout: Option<&Arc<Layout>>,
        loc: &Loc,
    ) -> Outcome<()> {
        self.in_hand(agent, mem, writes, loc)?;
        agent.now += 1;
        let access = Access {
            writes,
            is_async: false,
            component: self.components.threads(agent.number),
            value: agent.now,
            clock: &agent.clock,
            layout,
            loc,
        };
        self.buffers[mem.buffer].touch(mem, &access)
    }

    /// An asynchronous operation that an agent issued reads or writes memory.
    pub fn by_async_unit(
        &mut self,
        agent: &Agent<'_>,
        mem: &MemRef,
        writes: bool,
        (component, value): (usize, u64),
        loc: &Loc,
    ) -> Outcome<()> {
        self.in_hand(agent, mem, writes, loc)?;
        let clock = &agent.clock;
        let access = Access { writes, is_async: true, component, value, clock, layout: None, loc };
        self.buffers[mem.buffer].touch(mem, &access)
    }

    /// A stage is written by the agent that acquired it and read by agents that waited for it,
    /// while they have it.
    fn in_hand(&self, agent: &Agent<'_>, mem: &MemRef, writes: bool, loc: &Loc) -> Outcome<()> {
        let Some(stage) = mem.stage else { return Ok(()) };
        if stage.filling == writes && agent.holds.contains(&stage) {
            return Ok(());
        }
        let StageRef { pipeline, i, .. } = stage;
        let (what, when) = if writes {
            ("written", "between `acquire` and `publish`")
        } else {
            ("read", "between `wait` and `release`")
        };
        let name = &self.pipelines[pipeline].name;
        let why = format!("expected counter {i} of pipeline {name} to be {what} {when} only");
        Err(fault(Code::E_RACE, why, loc))
    }

    /// The tiles of a persistent loop that are assigned to this block, in order.
    pub fn tiles(&self, total: i64, order: Order) -> Vec<i64> {
        if order.dynamic {
            return self.dynamic_tiles(total, order);
        }
        (0..total).filter(|&t| order.block_of(t, total, self.blocks) == self.block).collect()
    }

    /// The same for a dynamic scheduler: any assignment is possible.
    fn dynamic_tiles(&self, total: i64, order: Order) -> Vec<i64> {
        let Timing::Random(seed) = self.timing else {
            return self.tiles(total, Order { dynamic: false, ..order });
        };
        let blocks = self.blocks.max(1) as usize;
        let mine = |t: &i64| {
            let mut chance = Chance(seed ^ (*t as u64).wrapping_mul(0x2545_f491_4f6c_dd1d));
            chance.below(blocks) as i64 == self.block
        };
        (0..total).filter(mine).collect()
    }

    /// Checks that nothing is left over when the block ends.
    pub fn finish(&mut self) -> Outcome<()> {
        for pipeline in &self.pipelines {
            for (i, life) in &pipeline.lives {
                let name = &pipeline.name;
                for (begun, ended, what, must) in [
                    (&life.acquired, &life.published, "acquired", "published"),
                    (&life.waited, &life.released, "waited for", "released"),
                ] {
                    if let Some((_, loc)) = begun.iter().find(|(s, _)| !ended.contains(s)) {
                        let why = format!(
                            "expected counter {i} of pipeline {name}, which is {what}, to be {must}"
                        );
                        return Err(fault(Code::E_UNWAITED, why, loc));
                    }
                }
                let read = pipeline.consumers.iter().any(|s| life.waited.contains_key(s));
                if let Some(loc) = life.copy.as_ref().filter(|_| !read && *i >= pipeline.drained) {
                    let why = "expected this copy to be waited for, got the end of the block";
                    return Err(fault(Code::E_UNWAITED, why, loc));
                }
            }
        }
        Ok(())
    }

    /// Checks what one agent leaves when its role ends.
    pub fn finish_agent(&mut self, agent: usize) -> Outcome<()> {
        let queue = &self.async_units.queues[agent];
        if let Some(p) = queue.products.get(queue.products_awaited) {
            let why = "expected a `mma_retire` that covers this MMA, got the end of the role";
            return Err(fault(Code::E_UNWAITED, why, &p.loc));
        }
        if let Some(bulk) = queue.bulks.get(queue.bulks_awaited) {
            let why = "expected a `bulk_wait` that covers this store, got the end of the role";
            return Err(fault(Code::E_UNWAITED, why, &bulk.loc));
        }
        let all = queue.bulks.len();
        self.bulks(agent, all)
    }

    /// With random timing, some operations may complete now.
    pub fn maybe_work(&mut self) -> Outcome<()> {
        if !matches!(self.timing, Timing::Random(_)) || self.chance.below(4) != 0 {
            return Ok(());
        }
        let agents = self.async_units.queues.len();
        let agent = self.chance.below(agents);
        let queue = &self.async_units.queues[agent];
        let (products, bulks) = (queue.products_done, queue.bulks_done);
        match self.chance.below(3) {
            0 => self.products(agent, products + 1),
            1 => self.bulks(agent, bulks + 1),
            _ => {
                let some = self.chance.below(self.async_units.fills.len());
                let Some(fill) = self.async_units.fills.get(some) else { return Ok(()) };
                let (buffer, i) = (fill.to.buffer, fill.i);
                self.fills(|f| (f.to.buffer, f.i) == (buffer, i))
            }
        }
    }

    /// The clock that an agent publishes: all its threads have come this far.
    pub fn outgoing(&self, agent: &mut Agent<'_>) -> Clock {
        agent.now += 1;
        let mut clock = agent.clock.clone();
        clock.raise(self.components.threads(agent.number), agent.now);
        clock
    }

    pub fn pipeline_mut(&mut self, pipeline: usize, loc: &Loc) -> Outcome<&mut Pipeline> {
        self.pipelines.get_mut(pipeline).ok_or_else(|| broken("a pipeline that was not made", loc))
    }
}

/// The seats of both sides of a pipeline.
#[derive(Clone, Debug, Default)]
pub(super) struct Sides {
    pub producers: BTreeSet<Seat>,
    pub consumers: BTreeSet<Seat>,
}
