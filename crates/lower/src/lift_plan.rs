//! Which buffers may be lifted, and where their values join after a branch.

use crate::facts::{extents, int_const, quoted, read, subtree, written};
use crate::lift_stages::{self, Source, Unlifted};
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{BlockId, OpId, Value};
use tessera_tile::{TileFunc, TileOp};

/// Where the contents of a buffer come from at some point of the program.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum From {
    /// No write of this iteration dominates the point.
    Nowhere,
    Write(OpId),
    /// Both branches of this op leave a value, and not the same one.
    Branches(OpId),
}

type Sources = BTreeMap<Value, From>;

#[derive(Default)]
pub(crate) struct LiftPlan {
    pub lifted: BTreeSet<Value>,
    /// What reads of lifted stages load.
    pub stages: BTreeMap<OpId, Source>,
    /// The buffers whose value an `if` yields, in order.
    pub carried: BTreeMap<OpId, BTreeSet<Value>>,
    pub kept: Vec<Diagnostic>,
    pub errors: Diagnostics,
}

fn unwaited(func: &TileFunc, read: OpId, copy: OpId) -> Diagnostic {
    let message =
        "expected a wait before a stage is read, got a copy into it that is still in flight";
    Diagnostic::new(Code::E_UNWAITED, message)
        .at(func.ops[read].loc.clone())
        .label(func.ops[copy].loc.clone(), "the copy begins here")
        .help(
            "let ts.tile.cp_wait_group(n) leave fewer groups in flight; commit a group in every \
             iteration, also where nothing is copied, so that the count stays right",
        )
}

struct Planner<'f> {
    func: &'f TileFunc,
    /// Buffers that stay memory, with the first reason found and its place.
    reasons: BTreeMap<Value, (String, OpId)>,
    /// What each branch of an `if` leaves.
    ends: BTreeMap<(OpId, Value), [From; 2]>,
    needed: BTreeSet<(OpId, Value)>,
}

pub(crate) fn plan(func: &TileFunc) -> LiftPlan {
    let allocs: Vec<OpId> =
        func.walk().into_iter().filter(|&id| func.ops[id].code == TileOp::BufAlloc).collect();
    let mut planner =
        Planner { func, reasons: BTreeMap::new(), ends: BTreeMap::new(), needed: BTreeSet::new() };
    let mut sources = allocs.iter().map(|&id| (func.ops[id].result(), From::Nowhere)).collect();
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
        if lift_stages::is_staged(func, buffer) {
            match lift_stages::sources(func, buffer) {
                Ok(sources) => {
                    planner.reasons.remove(&buffer);
                    plan.stages.extend(sources);
                }
                Err(Unlifted::Memory(kept)) => drop(planner.reasons.insert(buffer, kept)),
                Err(Unlifted::Unwaited { read, copy }) => {
                    plan.errors.push(unwaited(func, read, copy));
                }
            }
        }
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
                        sources.insert(*buffer, From::Nowhere);
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
                        [From::Nowhere, _] | [_, From::Nowhere] => From::Nowhere,
                        _ => {
                            self.ends.insert((id, *buffer), both);
                            From::Branches(id)
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
                TileOp::Load if source == From::Nowhere => self.keep(
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
                TileOp::CopyAsync => op.group("into").is_empty(),
                TileOp::Store => covers_whole(self.func, id) && op.group("mask").is_empty(),
                _ => false,
            };
            if whole {
                sources.insert(buffer, From::Write(id));
            } else {
                self.keep(buffer, id, "it is written in part");
            }
        }
    }

    /// The `if` a value comes from has to hand it on, and so have those inside its branches.
    fn need(&mut self, buffer: Value, source: From) {
        if let From::Branches(op) = source
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
