//! Which buffers may be lifted, and where their values join after a branch.

use crate::facts::{extents, int_const, quoted, read, subtree, written};
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::{Code, Diagnostic};
use tessera_ir::{BlockId, OpId, Value};
use tessera_tile::{TileFunc, TileOp};

/// Where the contents of a buffer come from at some point of the program.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Source {
    /// No write of this iteration dominates the point.
    Nowhere,
    Write(OpId),
    /// Both branches of this op leave a value, and not the same one.
    Branches(OpId),
}

type Sources = BTreeMap<Value, Source>;

#[derive(Default)]
pub(crate) struct LiftPlan {
    pub lifted: BTreeSet<Value>,
    /// The buffers whose value an `if` yields, in order.
    pub carried: BTreeMap<OpId, BTreeSet<Value>>,
    pub kept: Vec<Diagnostic>,
}

struct Planner<'f> {
    func: &'f TileFunc,
    /// Buffers that stay memory, with the first reason found and its place.
    reasons: BTreeMap<Value, (String, OpId)>,
    /// What each branch of an `if` leaves.
    ends: BTreeMap<(OpId, Value), [Source; 2]>,
    needed: BTreeSet<(OpId, Value)>,
}

pub(crate) fn plan(func: &TileFunc) -> LiftPlan {
    let allocs: Vec<OpId> =
        func.walk().into_iter().filter(|&id| func.ops[id].code == TileOp::BufAlloc).collect();
    let mut planner =
        Planner { func, reasons: BTreeMap::new(), ends: BTreeMap::new(), needed: BTreeSet::new() };
    let mut sources = allocs.iter().map(|&id| (func.ops[id].result(), Source::Nowhere)).collect();
    planner.block(func.body, &mut sources);
    let explicit = |op: &TileOp| matches!(op, TileOp::CopyCommit | TileOp::CopyWait);
    if let Some(place) = func.walk().into_iter().find(|&id| explicit(&func.ops[id].code)) {
        for &id in &allocs {
            planner.keep(func.ops[id].result(), place, "the kernel waits for its copies itself");
        }
    }
    let mut plan = LiftPlan::default();
    for id in allocs {
        let buffer = func.ops[id].result();
        match planner.reasons.get(&buffer) {
            None => {
                plan.lifted.insert(buffer);
            }
            Some((why, place)) => {
                let name = quoted(func, buffer, "a shared buffer");
                plan.kept.push(
                    Diagnostic::new(
                        Code::N_BUFFER_IN_MEMORY,
                        format!("{name} stays in shared memory: {why}"),
                    )
                    .at(func.ops[id].loc.clone())
                    .label(func.ops[*place].loc.clone(), "here"),
                );
            }
        }
    }
    for (op, buffer) in planner.needed {
        if plan.lifted.contains(&buffer) {
            plan.carried.entry(op).or_default().insert(buffer);
        }
    }
    plan
}

/// Whether the op's block is the whole of its buffer: every extent full, every position 0.
pub(crate) fn covers_whole(func: &TileFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    let whole = func.ty(op.operands[0]).static_shape();
    let plain = op.attr("step").is_none();
    plain
        && whole == Some(extents(op))
        && op.group("at").iter().all(|&at| int_const(func, at) == Some(0))
}

impl Planner<'_> {
    fn keep(&mut self, buffer: Value, place: OpId, why: impl Into<String>) {
        self.reasons.entry(buffer).or_insert_with(|| (why.into(), place));
    }

    fn block(&mut self, block: BlockId, sources: &mut Sources) {
        for &id in &self.func.blocks[block].ops {
            self.op(id, sources);
        }
    }

    fn op(&mut self, id: OpId, sources: &mut Sources) {
        let op = &self.func.ops[id];
        match op.code {
            TileOp::For | TileOp::While => {
                // A value written in an iteration is not there when the next one begins, and a
                // write before the loop is not the last one: both count as no write at all.
                let inside = self.written_in(id);
                let forget = |sources: &mut Sources| {
                    for buffer in &inside {
                        sources.insert(*buffer, Source::Nowhere);
                    }
                };
                for &region in &op.regions {
                    forget(sources);
                    self.block(region, sources);
                }
                forget(sources);
            }
            TileOp::If => {
                let mut ends = [sources.clone(), sources.clone()];
                for (region, end) in op.regions.iter().zip(&mut ends) {
                    self.block(*region, end);
                }
                for (buffer, source) in sources.iter_mut() {
                    let both = [ends[0][buffer], ends[1][buffer]];
                    *source = match both {
                        [a, b] if a == b => a,
                        [Source::Nowhere, _] | [_, Source::Nowhere] => Source::Nowhere,
                        _ => {
                            self.ends.insert((id, *buffer), both);
                            Source::Branches(id)
                        }
                    };
                }
            }
            _ => self.access(id, sources),
        }
    }

    fn access(&mut self, id: OpId, sources: &mut Sources) {
        let op = &self.func.ops[id];
        if let Some(buffer) = read(op)
            && let Some(&source) = sources.get(&buffer)
        {
            match op.code {
                TileOp::Load if !covers_whole(self.func, id) => {
                    self.keep(buffer, id, "it is read in part")
                }
                TileOp::Load if source == Source::Nowhere => self.keep(
                    buffer,
                    id,
                    "it is read where no write in the same iteration is sure to come before",
                ),
                TileOp::Load => self.need(buffer, source),
                TileOp::Accumulate => self.keep(buffer, id, "it is updated with `+=`"),
                _ => self.keep(buffer, id, "it is read element by element"),
            }
        }
        if let Some(buffer) = written(op)
            && sources.contains_key(&buffer)
        {
            let whole = match op.code {
                TileOp::CopyAsync => true,
                TileOp::Store => covers_whole(self.func, id) && op.group("mask").is_empty(),
                _ => false,
            };
            if whole {
                sources.insert(buffer, Source::Write(id));
            } else {
                self.keep(buffer, id, "it is written in part");
            }
        }
    }

    /// The `if` a value comes from has to hand it on, and so have those inside its branches.
    fn need(&mut self, buffer: Value, source: Source) {
        if let Source::Branches(op) = source
            && self.needed.insert((op, buffer))
        {
            for end in self.ends[&(op, buffer)] {
                self.need(buffer, end);
            }
        }
    }

    fn written_in(&self, id: OpId) -> BTreeSet<Value> {
        let ops = subtree(self.func, id);
        ops.iter().filter_map(|&op| written(&self.func.ops[op])).collect()
    }
}
