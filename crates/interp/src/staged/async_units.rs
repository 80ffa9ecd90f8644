//! Asynchronous units (TMA, tensor cores): operations that are issued and complete later. The
//! timing decides when; the waits decide by when at the latest. Operations of one agent on one unit
//! complete in order.

use super::buffer::MemRef;
use super::world::World;
use crate::access::unwritten;
use crate::convert::cast;
use crate::elementwise::apply;
use crate::fault::{Outcome, broken, fault};
use crate::memory::Memory;
use crate::mma::mma;
use crate::program::Fold;
use crate::value::Tile;
use std::sync::Arc;
use tessera_diag::{Code, Loc};
use tessera_numerics::{Rounding, Scalar};

/// An asynchronous copy of global memory to a field of a pipeline's stage.
#[derive(Debug)]
pub(super) struct Fill {
    pub pipeline: usize,
    pub i: i64,
    pub to: MemRef,
    /// The slot of the environment that holds the view.
    pub view: usize,
    pub at: Vec<i64>,
    pub extent: Vec<i64>,
    pub loc: Loc,
}

#[derive(Debug)]
pub(super) enum Source {
    Memory(MemRef),
    Tile(Tile),
}

/// One group of MMAs.
#[derive(Debug)]
pub(super) struct Product {
    pub a: Source,
    pub b: MemRef,
    /// The accumulators before and after, as indices into [`AsyncUnits::cells`].
    pub from: usize,
    pub to: usize,
    pub loc: Loc,
}

/// A copy, or reduction, of shared memory to a block of global memory.
#[derive(Debug)]
pub(super) struct Bulk {
    pub from: MemRef,
    pub view: usize,
    pub at: Vec<i64>,
    pub extent: Vec<i64>,
    pub fold: Option<Fold>,
    /// The data, once it was read.
    pub data: Option<Tile>,
    pub loc: Loc,
}

/// The operations of one agent.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub products: Vec<Product>,
    pub products_done: usize,
    pub bulks: Vec<Bulk>,
    pub bulks_read: usize,
    pub bulks_done: usize,
    /// How many of each the agent has waited for; of bulk stores also their reads only.
    pub products_awaited: usize,
    pub bulks_awaited: usize,
}

#[derive(Debug, Default)]
pub(super) struct AsyncUnits {
    /// Copies in flight.
    pub fills: Vec<Fill>,
    pub queues: Vec<Queue>,
    /// Accumulators: present when the group that computes them is complete.
    pub cells: Vec<Option<Tile>>,
}

impl AsyncUnits {
    pub fn cell(&mut self, value: Option<Tile>) -> usize {
        self.cells.push(value);
        self.cells.len() - 1
    }
}

impl World<'_> {
    /// Completes the copies that `pick` names.
    pub fn fills(&mut self, pick: impl Fn(&Fill) -> bool) -> Outcome<()> {
        let all = std::mem::take(&mut self.async_units.fills);
        for fill in all {
            if !pick(&fill) {
                self.async_units.fills.push(fill);
                continue;
            }
            let lost = || broken("a view that is no memory", &fill.loc);
            let memory = self.global.memory_of(fill.view).ok_or_else(lost)?;
            let zero = Scalar::zero(memory.dtype);
            let data = memory.load(&fill.at, &fill.extent, None, zero);
            let data = data.map_err(|e| unwritten(e, &fill.loc))?;
            self.buffers[fill.to.buffer].store(&fill.to, &data);
        }
        Ok(())
    }

    /// Completes the MMAs of an agent, up to an index.
    pub fn products(&mut self, agent: usize, to: usize) -> Outcome<()> {
        let AsyncUnits { queues, cells, .. } = &mut self.async_units;
        let queue = &mut queues[agent];
        while queue.products_done < to.min(queue.products.len()) {
            let p = &mut queue.products[queue.products_done];
            let loc = p.loc.clone();
            let odd = || broken("operands of an unexpected type", &loc);
            let a = match &p.a {
                Source::Tile(tile) => tile.clone(),
                Source::Memory(mem) => self.buffers[mem.buffer].load(mem, &p.loc)?,
            };
            let b = self.buffers[p.b.buffer].load(&p.b, &p.loc)?;
            let (k, n) = (p.b.shape()[0], p.b.shape()[1]);
            // A pending tile is used once, so nothing else needs the old accumulator.
            let Some(acc) = cells[p.from].take() else {
                let why = "expected a pending tile to be used once, got a second use";
                return Err(fault(Code::E_GRAPH_INVALID, why, &loc));
            };
            cells[p.to] = Some(mma(&a, &b, acc, k, n).ok_or_else(odd)?);
            p.a = Source::Memory(p.b.clone());
            queue.products_done += 1;
        }
        Ok(())
    }

    /// Lets the bulk stores of an agent read their memory, up to an index.
    pub fn bulk_reads(&mut self, agent: usize, to: usize) -> Outcome<()> {
        let queue = &mut self.async_units.queues[agent];
        while queue.bulks_read < to.min(queue.bulks.len()) {
            let bulk = &mut queue.bulks[queue.bulks_read];
            bulk.data = Some(self.buffers[bulk.from.buffer].load(&bulk.from, &bulk.loc)?);
            queue.bulks_read += 1;
        }
        Ok(())
    }

    /// Lets them write what they read.
    pub fn bulks(&mut self, agent: usize, to: usize) -> Outcome<()> {
        self.bulk_reads(agent, to)?;
        let queue = &mut self.async_units.queues[agent];
        while queue.bulks_done < to.min(queue.bulks.len()) {
            let bulk = &mut queue.bulks[queue.bulks_done];
            let lost = || broken("a view that is no memory", &bulk.loc);
            write(bulk, self.global.raw_memory(bulk.view).ok_or_else(lost)?)?;
            bulk.data = None;
            queue.bulks_done += 1;
        }
        Ok(())
    }
}

fn write(bulk: &Bulk, memory: &mut Memory) -> Outcome<()> {
    let odd = || broken("operands of an unexpected type", &bulk.loc);
    let data = bulk.data.clone().ok_or_else(odd)?;
    let Some(fold) = bulk.fold else {
        memory.store(&bulk.at, &bulk.extent, None, &data);
        return Ok(());
    };
    let dtype = memory.dtype;
    let old = memory.load(&bulk.at, &bulk.extent, None, Scalar::zero(dtype)).map_err(|_| odd())?;
    let default = fold.compute.saturates_by_default();
    let up = |x: Tile| cast(x, dtype, fold.compute, Rounding::Rne, default).ok_or_else(odd);
    let new = apply(fold.f, fold.kernel, vec![up(Arc::new(old))?, up(data)?]).ok_or_else(odd)?;
    let new = cast(new, fold.compute, dtype, fold.round, fold.saturate).ok_or_else(odd)?;
    memory.store(&bulk.at, &bulk.extent, None, &new);
    Ok(())
}
