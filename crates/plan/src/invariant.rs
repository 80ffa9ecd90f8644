//! Loop-invariant code motion on graphs.
//!
//! Input: a flat function. Output: the same results; pure ops of a loop's body whose operands all
//! come from outside are before the loop, if computing them in each iteration would cost more than
//! reading their result: reductions, matmuls, gathers, sorts, functions of many instructions, and
//! what must be in memory for an op that reads it there. Ops in a branch stay: they may never run.
//! Loops that become one kernel keep theirs, which cost no launch.

use crate::class::{Class, class, is_light};
use crate::index::dims_of;
use crate::loop_kernel::is_small;
use crate::machine::Machine;
use std::collections::BTreeSet;
use tessera_graph::{GraphFunc, GraphOp, walk};
use tessera_ir::{BlockId, OpId, Value};

pub fn hoist(func: &mut GraphFunc, machine: Machine) {
    let body = func.body;
    block(func, machine, body);
}

/// Inner loops first: an op that leaves one may leave the next.
fn block(func: &mut GraphFunc, machine: Machine, at: BlockId) {
    for id in func.blocks[at].ops.clone() {
        for region in func.ops[id].regions.clone() {
            block(func, machine, region);
        }
        let repeats = matches!(func.ops[id].code, GraphOp::Loop | GraphOp::While);
        let one_kernel = machine == Machine::Cpu && is_small(func, id);
        if !repeats || one_kernel {
            continue;
        }
        for region in func.ops[id].regions.clone() {
            let moved = invariant(func, region);
            func.blocks[region].ops.retain(|op| !moved.contains(op));
            let place = func.blocks[at].ops.iter().position(|&op| op == id).unwrap_or(0);
            for &op in &moved {
                func.ops[op].block = at;
            }
            func.blocks[at].ops.splice(place..place, moved);
        }
    }
}

/// The ops of a body that are hoisted, in order.
fn invariant(func: &GraphFunc, region: BlockId) -> Vec<OpId> {
    let mut inside: BTreeSet<Value> = func.blocks[region].args.iter().copied().collect();
    let mut same = BTreeSet::new();
    for &id in &func.blocks[region].ops {
        let op = &func.ops[id];
        let pure = op.regions.is_empty()
            && !matches!(op.code, GraphOp::Yield | GraphOp::Return)
            && walk::is_pure(func, id, &|_| false);
        if pure && op.operands.iter().all(|v| !inside.contains(v)) {
            same.insert(id);
        } else {
            inside.extend(&op.results);
        }
    }
    let uses = walk::uses(func);
    let mut list: Vec<OpId> = same.iter().copied().filter(|&id| pays(func, id, &uses)).collect();
    let mut out = BTreeSet::new();
    while let Some(id) = list.pop() {
        if out.insert(id) {
            let made = func.ops[id].operands.iter().filter_map(|&v| func.def_id(v));
            list.extend(made.filter(|id| same.contains(id)));
        }
    }
    let order = func.blocks[region].ops.iter().copied();
    order.filter(|id| out.contains(id)).collect()
}

type Uses = tessera_support::SideTable<Value, Vec<(OpId, usize)>>;

fn pays(func: &GraphFunc, id: OpId, uses: &Uses) -> bool {
    let op = &func.ops[id];
    match class(func, id) {
        Class::Combine | Class::Product | Class::Gather | Class::Own => true,
        Class::Pointwise if !is_light(func, id) => true,
        Class::Pointwise => {
            let size = |v: &Value| dims_of(func, *v).iter().product::<i64>();
            let read = op.operands.iter().map(size).max().unwrap_or(0);
            op.results.iter().all(|v| size(v) <= read && in_memory(func, *v, uses))
        }
        Class::Source | Class::View | Class::DynamicSlice | Class::Parts | Class::End => false,
    }
}

/// Whether an op reads all of a value from memory.
fn in_memory(func: &GraphFunc, v: Value, uses: &Uses) -> bool {
    uses[v].iter().any(|&(user, place)| match class(func, user) {
        Class::Own | Class::Product => true,
        Class::Gather => place == 0,
        Class::Parts => func.ops[user].code == GraphOp::Scatter && place > 0,
        Class::View => func.ops[user].results.get(place).is_some_and(|&r| in_memory(func, r, uses)),
        Class::Source | Class::Pointwise | Class::Combine | Class::DynamicSlice | Class::End => {
            false
        }
    })
}
