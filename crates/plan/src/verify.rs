//! Verifies the order of a plan's steps: everything that a step reads is an argument, a constant,
//! or written by an earlier step. Which part of a buffer was written is not checked.
//!
//! A plan that fails is a bug of the planner and reported as an internal error. Without this check,
//! programs would compute with uninitialised memory.

use crate::planner::{Array, BufferId, Origin, Plan, Step};
use std::collections::BTreeSet;
use tessera_ir::Privilege;

/// The first buffer that is read before anything is written there.
pub fn unwritten(plan: &Plan) -> Option<BufferId> {
    let ready = |b: &BufferId| {
        let buffer = &plan.buffers[*b];
        buffer.origin != Origin::Scratch || buffer.bytes == 0
    };
    let mut written: BTreeSet<BufferId> = (0..plan.buffers.len()).filter(ready).collect();
    walk(&plan.steps, &mut written)
        .or_else(|| plan.results.iter().map(|r| r.0).find(|b| !written.contains(b)))
}

fn walk(steps: &[Step], written: &mut BTreeSet<BufferId>) -> Option<BufferId> {
    fn first<'a>(
        mut arrays: impl Iterator<Item = &'a Array>,
        written: &BTreeSet<BufferId>,
    ) -> Option<BufferId> {
        arrays.find(|a| !written.contains(&a.buffer)).map(|a| a.buffer)
    }
    for step in steps {
        let bad = match step {
            Step::Launch { args, .. } => {
                let bad = first(args.iter().filter(|a| !a.writes), written);
                written.extend(args.iter().filter(|a| a.writes).map(|a| a.buffer));
                bad
            }
            Step::Host { inputs, outputs, .. } => {
                let bad = first(inputs.iter(), written);
                written.extend(outputs.iter().map(|a| a.buffer));
                bad
            }
            Step::Call { args, .. } => {
                let reads = args.iter().filter(|(_, p)| *p == Privilege::Read).map(|(a, _)| a);
                let bad = first(reads, written);
                let writes = args.iter().filter(|(_, p)| *p != Privilege::Read);
                written.extend(writes.map(|(a, _)| a.buffer));
                bad
            }
            Step::Copy { from, to } => {
                let bad = first(std::iter::once(from), written);
                written.insert(to.buffer);
                bad
            }
            Step::Cond { pred, then, otherwise, .. } => {
                let mut other = written.clone();
                let bad = first(std::iter::once(pred), written)
                    .or_else(|| walk(then, written))
                    .or_else(|| walk(otherwise, &mut other));
                written.extend(other);
                bad
            }
            Step::While { test, pred, body, .. } => walk(test, written)
                .or_else(|| first(std::iter::once(pred), written))
                .or_else(|| walk(body, written)),
            Step::Loop { position, body, .. } => {
                written.insert(position.buffer);
                walk(body, written)
            }
        };
        if bad.is_some() {
            return bad;
        }
    }
    None
}
