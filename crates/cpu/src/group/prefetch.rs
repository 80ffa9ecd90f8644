//! Prefetches what the next group reads.
//!
//! A group that reads a block several times, such as a row normalisation, waits for memory in its
//! first pass and computes in the others. While it reads a block for the second time, or in the
//! pass with most work, it prefetches the block at the same place of the next group.

use super::Group;
use super::nest::Node;
use crate::llvm::Val;
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, OpId};
use tessera_tile::{Atom, TileOp, linear_of};

/// Work for each element that hides no wait for memory of its own accord.
const BUSY: u32 = 12;
/// How many bytes ahead a block that is read once is fetched.
const FAR: i64 = 2048;
/// A block of this many bytes stays in the L1 cache.
const NEAR: i64 = 16 << 10;

#[derive(Default)]
pub struct Prefetch {
    /// Loads that a nest has read from before.
    read: BTreeSet<OpId>,
    /// Loads that are fetched ahead, once in a group.
    done: BTreeSet<OpId>,
    /// Those of the present nest, with the distance to the next group's block in bytes, and the
    /// cache level to prefetch to.
    pub now: BTreeMap<OpId, (Val, i32)>,
    /// The present nest is busy with elements of its own that it loads and stores.
    pub stores: bool,
}

impl<'a> Group<'a> {
    /// To be called before a nest that computes the roots.
    pub fn look_ahead(&mut self, roots: &[Node]) {
        let func = self.func;
        let is_load =
            |id: &OpId| func.ops[*id].code == TileOp::Load && func.ops[*id].block == func.body;
        let loads: BTreeSet<OpId> = self
            .reached(roots)
            .into_iter()
            .filter_map(|(v, _)| func.def_id(v).filter(is_load))
            .collect();
        let weight: u32 = roots.iter().map(|(v, _)| self.plan.weight(*v)).sum();
        for &id in &loads {
            // Read once, beside much work: the hardware prefetcher stops at each page.
            // What every group reads is in the caches from the first one on.
            let anew = self.next_group(id).is_some() || self.bytes(id) > NEAR;
            let busy = weight > BUSY || self.ahead.stores;
            if self.plan.nests(func.ops[id].result()) == 1 && busy && anew {
                self.ahead.now.insert(id, (self.ir.c64(FAR), 3));
                continue;
            }
            // A nest with much work will read it too: the prefetch is hidden there.
            let store = self.plan.heaviest_store(func, func.ops[id].result());
            let later = store > BUSY && store > 2 * weight;
            if self.ahead.read.contains(&id)
                && !later
                && self.ahead.done.insert(id)
                && let Some(bytes) = self.next_group(id)
            {
                self.ahead.now.insert(id, (bytes, self.nearness(id)));
            }
        }
        self.ahead.read.extend(loads);
    }

    /// Prefetches to the L1 cache, or only to L2 where a block would fill L1.
    fn nearness(&self, id: OpId) -> i32 {
        if self.bytes(id) <= NEAR { 3 } else { 2 }
    }

    /// The size of a load's block.
    fn bytes(&self, id: OpId) -> i64 {
        let ty = self.func.ty(self.func.ops[id].result());
        super::shape_of(ty).iter().product::<i64>() * ty.dtype().bytes() as i64
    }

    /// The distance in bytes from a load's block to the next group's.
    fn next_group(&self, id: OpId) -> Option<Val> {
        let func = self.func;
        let ids = func.walk().into_iter().filter(|&o| func.ops[o].code == TileOp::ProgramId);
        // Groups run along the last axis first, and axes without a `program_id` are short.
        let axis = ids.filter_map(|o| func.ops[o].attr("axis").and_then(Attr::as_int)).max()?;
        let op = &func.ops[id];
        let mem = self.memory(op.operands[0]);
        let mut way = None;
        for (&at, &stride) in op.group("at").iter().zip(&mem.strides) {
            let form = linear_of(func, at);
            if let Some(&by) = form.terms.get(&Atom::Program(axis)) {
                let step = self.ir.mul_const(stride, by);
                way = Some(way.map_or(step, |w| self.ir.add(w, step)));
            }
        }
        way
    }
}
