//! The ops of an agent other than control flow. An op that has to wait changes nothing and says so;
//! it is tried again later.

use super::Timing;
use super::agent::{Agent, Handle, Progress, Val};
use super::async_units::{Bulk, Fill, Product, Source};
use super::buffer::{MemRef, StageRef};
use super::world::World;
use crate::fault::{Outcome, broken, fault};
use crate::program::Fold;
use tessera_diag::{Code, Loc};
use tessera_ir::{Attr, Op, OpId, Type};
use tessera_numerics::{ReduceOp, Rounding};
use tessera_staged::{Staged, StagedOp};
use tessera_support::Entity;

fn blocked(why: String, loc: &Loc) -> Progress {
    Progress::Blocked { why, loc: loc.clone() }
}

fn ints(op: &Op<Staged>, name: &str) -> Vec<i64> {
    op.attr(name).and_then(Attr::as_ints).unwrap_or_default()
}

fn count(op: &Op<Staged>, name: &str) -> usize {
    op.attr(name).and_then(Attr::as_int).unwrap_or(0).max(0) as usize
}

fn flag(op: &Op<Staged>, name: &str) -> bool {
    op.attr(name).and_then(Attr::as_bool).unwrap_or(false)
}

impl<'p> Agent<'p> {
    #[deny(clippy::wildcard_enum_match_arm)]
    pub(super) fn perform(&mut self, world: &mut World<'p>, id: OpId) -> Outcome<Progress> {
        let prepared = world.prepared;
        let func = prepared.func;
        let op = &func.ops[id];
        let loc = &op.loc;
        match op.code {
            StagedOp::Tile(_) => {
                let Some(inst) = prepared.insts.get(&id) else {
                    return Err(broken("an op that is not prepared", loc));
                };
                let value = self.machine.perform(inst)?;
                self.machine.finish(inst, value)?;
            }
            // Layouts do not change values.
            StagedOp::ConvertLayout => {
                let value = self.tile(op.operands[0], loc)?;
                self.set(op.result(), Val::Tile(value));
            }
            StagedOp::FragPart => {
                let value = self.tile(op.operands[0], loc)?;
                let list = |all: Vec<i64>| all.into_iter().map(|n| n as usize).collect::<Vec<_>>();
                let shape = func.ty(op.operands[0]).static_shape().unwrap_or_default();
                let (at, extent) = (list(ints(op, "at")), list(ints(op, "extent")));
                let value = crate::shape::part(&value, &list(shape), &at, &extent);
                self.set(op.result(), Val::Tile(std::sync::Arc::new(value)));
            }
            StagedOp::SmemAlloc => {
                let ty = func.ty(op.result());
                let mem =
                    MemRef::whole(world.alloc(ty), &ty.static_shape().unwrap_or_default(), None);
                self.set_handle(op.result(), Handle::Memory(mem));
            }
            StagedOp::SmemView => {
                let at = self.indices(op.group("at"), loc)?;
                let perm = op.attr("perm").and_then(Attr::as_ints);
                let mem = self.memory(op.operands[0], loc)?;
                let Some(view) = mem.view(&at, &ints(op, "extent"), perm.as_deref()) else {
                    let why = format!("expected a block inside the shared memory, got {at:?}");
                    return Err(fault(Code::E_OOB, why, loc));
                };
                self.set_handle(op.result(), Handle::Memory(view));
            }
            StagedOp::FragLoad => {
                let mem = self.memory(op.operands[0], loc)?;
                world.by_threads(self, &mem, false, func.ty(op.result()).layout(), loc)?;
                let tile = world.buffers[mem.buffer].load(&mem, loc)?;
                self.set(op.result(), Val::Tile(tile));
            }
            StagedOp::FragStore => {
                let mem = self.memory(op.operands[0], loc)?;
                let layout = func.ty(op.operands[1]).layout();
                world.by_threads(self, &mem, true, layout, loc)?;
                let tile = self.tile(op.operands[1], loc)?;
                world.buffers[mem.buffer].store(&mem, &tile);
            }
            StagedOp::PipelineCreate => {
                let pipeline = world.create_pipeline(op.result());
                self.set_handle(op.result(), Handle::Pipeline(pipeline));
            }
            StagedOp::Acquire => return self.acquire(world, op),
            StagedOp::Fill => self.fill(world, id)?,
            StagedOp::Publish => self.publish(world, op)?,
            StagedOp::Wait => return self.wait(world, op),
            StagedOp::Field => {
                let stage = self.stage(op)?;
                let name = op.attr("name").and_then(Attr::as_word).unwrap_or_default();
                let mem = field(world, stage, name, loc)?;
                self.set_handle(op.result(), Handle::Memory(mem));
            }
            StagedOp::Release => {
                if !(flag(op, "unless_first") && self.in_first_iteration()) {
                    self.release(world, op)?;
                }
            }
            StagedOp::Drain => return self.drain(world, op),
            StagedOp::MmaOpen => {
                let cell = world.async_units.cell(Some(self.tile(op.operands[0], loc)?));
                self.set_handle(op.result(), Handle::Pending { cell, newest: None });
            }
            StagedOp::MmaIssue => self.issue(world, op)?,
            StagedOp::MmaRetire => self.retire(world, op, func.ty(op.result()))?,
            StagedOp::BulkStore | StagedOp::BulkReduce => {
                let dst = func.ty(op.operands[1]);
                self.bulk(world, op, dst)?;
            }
            StagedOp::BulkWait => {
                let queue = &mut world.async_units.queues[self.number];
                let done = queue.bulks.len().saturating_sub(count(op, "keep"));
                queue.bulks_awaited = queue.bulks_awaited.max(done);
                if flag(op, "read") {
                    world.bulk_reads(self.number, done)?;
                } else {
                    world.bulks(self.number, done)?;
                }
                self.clock.raise(world.components.bulk(self.number), done as u64);
            }
            StagedOp::OrderBarrierCreate => {
                world.order_barriers.push(Default::default());
                self.set_handle(op.result(), Handle::OrderBarrier(world.order_barriers.len() - 1));
            }
            StagedOp::OrderWait | StagedOp::OrderArrive => return self.order_barrier(world, op),
            StagedOp::RoleBarrier if flag(op, "all") => return self.synchronise(world, loc),
            // All threads of one replica, or of the block, run together here.
            StagedOp::RoleBarrier | StagedOp::BlockBarrier | StagedOp::ClusterBarrier => {
                self.clock.raise(world.components.threads(self.number), self.now);
            }
            StagedOp::FenceAsync => {
                self.now += 1;
                let component = world.components.threads(self.number);
                world.buffers.iter_mut().for_each(|b| b.fence(component, self.now));
            }
            StagedOp::Replica => self.set_index(op.result(), self.replica),
            // A worker for each group of the grid, in one phase.
            StagedOp::Worker if op.attr("axis").is_some() => self.set_index(op.result(), 0),
            StagedOp::Workers if op.attr("axis").is_some() => self.set_index(op.result(), 1),
            StagedOp::Worker => {
                let ([_, ny, nz], [x, y, z]) = (self.machine.grid, self.machine.group);
                self.set_index(op.result(), (x * ny + y) * nz + z);
            }
            StagedOp::Workers => {
                self.set_index(op.result(), self.machine.grid.iter().product());
            }
            StagedOp::Tiles | StagedOp::WarpSpecialize | StagedOp::WarpRole => {
                return Err(broken("control flow out of place", loc));
            }
        }
        Ok(Progress::Ran)
    }

    fn stage(&self, op: &Op<Staged>) -> Outcome<StageRef> {
        match self.get(op.operands[0], &op.loc)? {
            Val::Handle(Handle::Stage(stage)) => Ok(stage),
            _ => Err(broken("an operand that is no stage", &op.loc)),
        }
    }

    fn by_tiles(&self) -> bool {
        self.role.as_ref().is_some_and(|(_, r)| r.by_tiles)
    }

    fn acquire(&mut self, world: &mut World<'p>, op: &Op<Staged>) -> Outcome<Progress> {
        let (pipeline_number, i) =
            (self.pipeline(op.operands[0], &op.loc)?, self.index(op.operands[1], &op.loc)?);
        let (seat, by_tiles) = (self.seat, self.by_tiles());
        let pipeline = world.pipeline_mut(pipeline_number, &op.loc)?;
        let next = pipeline.next_fill.get(&seat).copied().unwrap_or(0);
        if (!by_tiles && i != next) || pipeline.life(i).acquired.contains_key(&seat) {
            let why = format!("expected counter {next} of pipeline {}, got {i}", pipeline.name);
            return Err(fault(Code::E_GRAPH_INVALID, why, &op.loc));
        }
        if !pipeline.is_free(i) {
            let before = i - pipeline.stages;
            let why = format!("counter {before} of pipeline {} to be released", pipeline.name);
            return Ok(blocked(why, &op.loc));
        }
        let before = i - pipeline.stages;
        if !world.is_released_by_peers(pipeline_number, before) {
            let name = &world.pipelines[pipeline_number].name;
            let why = format!("counter {before} of pipeline {name} to be released in the cluster");
            return Ok(blocked(why, &op.loc));
        }
        let pipeline = world.pipeline_mut(pipeline_number, &op.loc)?;
        let first = pipeline.life(i).acquired.is_empty();
        pipeline.life(i).acquired.insert(seat, op.loc.clone());
        pipeline.next_fill.insert(seat, i + 1);
        pipeline.forget_before(i - 2 * pipeline.stages);
        if let Some(before) = pipeline.lives.get(&(i - pipeline.stages)) {
            self.clock.join(&before.freedom);
        }
        if first {
            for buffer in pipeline.buffers[i.rem_euclid(pipeline.stages) as usize].clone() {
                world.buffers[buffer].clear();
            }
        }
        let stage = StageRef { pipeline: pipeline_number, i, filling: true };
        self.holds.insert(stage);
        self.set_handle(op.result(), Handle::Stage(stage));
        Ok(Progress::Ran)
    }

    fn fill(&mut self, world: &mut World<'p>, id: OpId) -> Outcome<()> {
        let op = &world.prepared.func.ops[id];
        let stage = self.stage(op)?;
        let name = op.attr("field").and_then(Attr::as_word).unwrap_or_default();
        let to = field(world, stage, name, &op.loc)?;
        let done = (world.components.fills(stage.pipeline), stage.i as u64 + 1);
        world.by_async_unit(self, &to, true, done, &op.loc)?;
        world.pipelines[stage.pipeline].life(stage.i).copy = Some(op.loc.clone());
        let at = self.indices(op.group("at"), &op.loc)?;
        world.multicast(id, stage, name, &at);
        world.async_units.fills.push(Fill {
            pipeline: stage.pipeline,
            i: stage.i,
            to,
            view: op.operands[1].index(),
            at,
            extent: ints(op, "extent"),
            loc: op.loc.clone(),
        });
        if world.timing == Timing::Early {
            world.fills(|_| true)?;
        }
        Ok(())
    }

    fn publish(&mut self, world: &mut World<'p>, op: &Op<Staged>) -> Outcome<()> {
        let (pipeline, i) =
            (self.pipeline(op.operands[0], &op.loc)?, self.index(op.operands[1], &op.loc)?);
        if !self.holds.remove(&StageRef { pipeline, i, filling: true }) {
            let name = &world.pipelines[pipeline].name;
            let why = format!("expected counter {i} of pipeline {name} to be acquired before");
            return Err(fault(Code::E_GRAPH_INVALID, why, &op.loc));
        }
        let clock = world.outgoing(self);
        let life = world.pipeline_mut(pipeline, &op.loc)?.life(i);
        life.published.insert(self.seat);
        life.publication.join(&clock);
        Ok(())
    }

    fn wait(&mut self, world: &mut World<'p>, op: &Op<Staged>) -> Outcome<Progress> {
        let (pipeline_number, i) =
            (self.pipeline(op.operands[0], &op.loc)?, self.index(op.operands[1], &op.loc)?);
        let (seat, by_tiles) = (self.seat, self.by_tiles());
        let pipeline = world.pipeline_mut(pipeline_number, &op.loc)?;
        let next = pipeline.next_read.get(&seat).copied().unwrap_or(0);
        if (!by_tiles && i != next) || pipeline.life(i).waited.contains_key(&seat) {
            let why = format!("expected counter {next} of pipeline {}, got {i}", pipeline.name);
            return Err(fault(Code::E_GRAPH_INVALID, why, &op.loc));
        }
        if !pipeline.is_published(i) {
            let why = format!("counter {i} of pipeline {} to be published", pipeline.name);
            return Ok(blocked(why, &op.loc));
        }
        if !world.has_all_parts(pipeline_number, i)? {
            let name = &world.pipelines[pipeline_number].name;
            let why = format!("counter {i} of pipeline {name} to be filled by the cluster");
            return Ok(blocked(why, &op.loc));
        }
        world.forget_parts(pipeline_number, i);
        let pipeline = world.pipeline_mut(pipeline_number, &op.loc)?;
        pipeline.life(i).waited.insert(seat, op.loc.clone());
        pipeline.next_read.insert(seat, i + 1);
        self.clock.join(&pipeline.life(i).publication.clone());
        self.clock.raise(world.components.fills(pipeline_number), i as u64 + 1);
        world.fills(|f| f.pipeline == pipeline_number && f.i <= i)?;
        let stage = StageRef { pipeline: pipeline_number, i, filling: false };
        self.holds.insert(stage);
        self.set_handle(op.result(), Handle::Stage(stage));
        Ok(Progress::Ran)
    }

    fn release(&mut self, world: &mut World<'p>, op: &Op<Staged>) -> Outcome<()> {
        let (pipeline, i) =
            (self.pipeline(op.operands[0], &op.loc)?, self.index(op.operands[1], &op.loc)?);
        if !self.holds.remove(&StageRef { pipeline, i, filling: false }) {
            let name = &world.pipelines[pipeline].name;
            let why = format!(
                "expected counter {i} of pipeline {name} to be waited for before, and released once"
            );
            return Err(fault(Code::E_GRAPH_INVALID, why, &op.loc));
        }
        let clock = world.outgoing(self);
        let life = world.pipeline_mut(pipeline, &op.loc)?.life(i);
        life.released.insert(self.seat);
        life.freedom.join(&clock);
        world.tell_released(pipeline, i, &op.loc);
        Ok(())
    }

    /// An agent may leave its own counters unread; others must have read and released theirs.
    fn drain(&mut self, world: &mut World<'p>, op: &Op<Staged>) -> Outcome<Progress> {
        let number = self.pipeline(op.operands[0], &op.loc)?;
        let pipeline = world.pipeline_mut(number, &op.loc)?;
        let others: Vec<_> =
            pipeline.consumers.iter().filter(|s| s.role != self.seat.role).collect();
        let left = pipeline.lives.iter().find(|(_, life)| {
            !life.published.is_empty() && others.iter().any(|s| !life.released.contains(s))
        });
        if let Some((i, _)) = left {
            let why = format!("counter {i} of pipeline {} to be released", pipeline.name);
            return Ok(blocked(why, &op.loc));
        }
        let mut last = self.last_filled(world, number);
        if let Some(i) = last.find(|&i| !world.is_released_by_peers(number, i)) {
            let name = &world.pipelines[number].name;
            let why = format!("counter {i} of pipeline {name} to be released in the cluster");
            return Ok(blocked(why, &op.loc));
        }
        let pipeline = world.pipeline_mut(number, &op.loc)?;
        for life in pipeline.lives.values() {
            self.clock.join(&life.freedom);
        }
        pipeline.drained = pipeline.lives.keys().last().map_or(0, |&i| i + 1);
        let last = pipeline.drained as u64;
        self.clock.raise(world.components.fills(number), last);
        world.fills(|f| f.pipeline == number)?;
        Ok(Progress::Ran)
    }

    fn issue(&mut self, world: &mut World<'p>, op: &Op<Staged>) -> Outcome<()> {
        let loc = &op.loc;
        let group = world.async_units.queues[self.number].products.len();
        let done = (world.components.mma(self.number), group as u64 + 1);
        let a = match self.get(op.operands[0], loc)? {
            Val::Tile(tile) => Source::Tile(tile),
            Val::Handle(_) => {
                let mem = self.memory(op.operands[0], loc)?;
                world.by_async_unit(self, &mem, false, done, loc)?;
                Source::Memory(mem)
            }
        };
        let b = self.memory(op.operands[1], loc)?;
        world.by_async_unit(self, &b, false, done, loc)?;
        let from = match self.get(op.operands[2], loc)? {
            Val::Handle(Handle::Pending { cell, .. }) => cell,
            Val::Tile(tile) => world.async_units.cell(Some(tile)),
            Val::Handle(_) => return Err(broken("an accumulator that is none", loc)),
        };
        let to = world.async_units.cell(None);
        let product = Product { a, b, from, to, loc: loc.clone() };
        world.async_units.queues[self.number].products.push(product);
        self.set_handle(op.result(), Handle::Pending { cell: to, newest: Some(group) });
        if world.timing == Timing::Early {
            world.products(self.number, group + 1)?;
        }
        Ok(())
    }

    fn retire(&mut self, world: &mut World<'p>, op: &Op<Staged>, ty: &Type) -> Outcome<()> {
        let Val::Handle(Handle::Pending { cell, newest }) = self.get(op.operands[0], &op.loc)?
        else {
            return Err(broken("an operand that is not pending", &op.loc));
        };
        let queue = &mut world.async_units.queues[self.number];
        let done = queue.products.len().saturating_sub(count(op, "keep"));
        queue.products_awaited = queue.products_awaited.max(done);
        world.products(self.number, done)?;
        self.clock.raise(world.components.mma(self.number), done as u64);
        if !ty.is_tile() {
            self.set_handle(op.result(), Handle::Pending { cell, newest });
            return Ok(());
        }
        if newest.is_some_and(|n| n >= done) {
            let why =
                "expected a tile only of groups that are done, got one of those that are kept";
            return Err(fault(Code::E_UNWAITED, why, &op.loc));
        }
        let Some(tile) = world.async_units.cells[cell].take() else {
            let why = "expected a pending tile to be used once, got a second use";
            return Err(fault(Code::E_GRAPH_INVALID, why, &op.loc));
        };
        self.set(op.result(), Val::Tile(tile));
        Ok(())
    }

    fn bulk(&mut self, world: &mut World<'p>, op: &Op<Staged>, dst: &Type) -> Outcome<()> {
        let loc = &op.loc;
        let from = self.memory(op.operands[0], loc)?;
        let number = world.async_units.queues[self.number].bulks.len();
        let done = (world.components.bulk(self.number), number as u64 + 1);
        world.by_async_unit(self, &from, false, done, loc)?;
        let fold = match op.attr("op").and_then(Attr::as_word).and_then(ReduceOp::from_name) {
            None => None,
            Some(r) => Some(fold_of(r, dst, loc)?),
        };
        world.async_units.queues[self.number].bulks.push(Bulk {
            from,
            view: op.operands[1].index(),
            at: self.indices(op.group("at"), loc)?,
            extent: ints(op, "extent"),
            fold,
            data: None,
            loc: loc.clone(),
        });
        if world.timing == Timing::Early {
            world.bulks(self.number, number + 1)?;
        }
        Ok(())
    }

    fn order_barrier(&mut self, world: &mut World<'p>, op: &Op<Staged>) -> Outcome<Progress> {
        let Val::Handle(Handle::OrderBarrier(order_barrier)) = self.get(op.operands[0], &op.loc)?
        else {
            return Err(broken("an operand that is no order_barrier", &op.loc));
        };
        let replicas = self.role.as_ref().map_or(1, |(_, r)| r.replicas.max(1));
        if world.order_barriers[order_barrier].at != self.replica {
            if op.code == StagedOp::OrderArrive {
                let why = "expected this replica to have the order_barrier that it gives";
                return Err(fault(Code::E_GRAPH_INVALID, why, &op.loc));
            }
            let why = format!(
                "replica {} to give the order_barrier",
                world.order_barriers[order_barrier].at
            );
            return Ok(blocked(why, &op.loc));
        }
        if op.code == StagedOp::OrderArrive {
            let clock = world.outgoing(self);
            let order_barrier = &mut world.order_barriers[order_barrier];
            order_barrier.at = (order_barrier.at + 1) % replicas;
            order_barrier.clock.join(&clock);
        } else {
            self.clock.join(&world.order_barriers[order_barrier].clock);
        }
        Ok(Progress::Ran)
    }

    /// All replicas of the role.
    fn synchronise(&mut self, world: &mut World<'p>, loc: &Loc) -> Outcome<Progress> {
        let Some((role, info)) = self.role.clone() else {
            return Err(broken("a role's barrier outside roles", loc));
        };
        let clock = world.outgoing(self);
        let meeting = world.meetings.entry(role).or_default();
        let round = match self.meeting {
            Some(round) => round,
            None => {
                meeting.here.insert(self.replica);
                meeting.clock.join(&clock);
                self.meeting = Some(meeting.round);
                meeting.round
            }
        };
        if meeting.here.len() as i64 == info.replicas {
            meeting.here.clear();
            meeting.round += 1;
            meeting.done = std::mem::take(&mut meeting.clock);
        }
        if meeting.round == round {
            return Ok(blocked("the other replicas at a barrier".into(), loc));
        }
        self.meeting = None;
        self.clock.join(&meeting.done.clone());
        Ok(Progress::Ran)
    }
}

fn field(world: &World<'_>, stage: StageRef, name: &str, loc: &Loc) -> Outcome<MemRef> {
    let buffer = world.pipelines[stage.pipeline].field(stage.i, name);
    let buffer = buffer.ok_or_else(|| broken("a field that is not there", loc))?;
    Ok(MemRef::whole(buffer, world.buffers[buffer].dims(), Some(stage)))
}

/// The reduction of shared memory into a parameter: in the dtype of the arithmetic.
fn fold_of(r: ReduceOp, dst: &Type, loc: &Loc) -> Outcome<Fold> {
    let compute = dst.dtype().compute();
    let (round, saturate) = match dst {
        Type::View { elem, .. } => (elem.rounding(), elem.saturates()),
        _ => (Rounding::Rne, false),
    };
    let f = r.combine();
    let kernel = f.kernel(compute).ok_or_else(|| broken("an operator without a type", loc))?;
    Ok(Fold { f, kernel, compute, round, saturate })
}
