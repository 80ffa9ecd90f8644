//! Loop-carried values that nothing uses but their own next value.

use super::is_root;
use std::collections::BTreeSet;
use tessera_ir::{OpId, Value, ValueDef};
use tessera_tile::{TileFunc, TileOp};

/// Removes what a `for` carries for itself alone.
pub(super) fn remove_unused_carried(func: &mut TileFunc) {
    let loops = func.walk().into_iter().filter(|&id| func.ops[id].code == TileOp::For);
    let loops: Vec<OpId> = loops.filter(|&id| !func.ops[id].results.is_empty()).collect();
    if loops.is_empty() {
        return;
    }
    let live = live_values(func);
    for id in loops {
        let (body, count) = (func.ops[id].regions[0], func.ops[id].results.len());
        let Some(end) = func.terminator(body) else { continue };
        for i in (0..count).rev() {
            let (result, arg) = (func.ops[id].results[i], func.blocks[body].args[1 + i]);
            if live.contains(&result) || live.contains(&arg) {
                continue;
            }
            let init = func.ops[id].positional().len() + i;
            func.ops[id].operands.remove(init);
            func.ops[id].group_lens[0] -= 1;
            func.ops[id].results.remove(i);
            func.blocks[body].args.remove(1 + i);
            func.ops[end].operands.remove(i);
            func.ops[end].group_lens[0] -= 1;
        }
        renumber(func, id);
    }
}

/// Values know which result or argument they are.
fn renumber(func: &mut TileFunc, id: OpId) {
    for (i, value) in func.ops[id].results.clone().into_iter().enumerate() {
        func.values[value].def = ValueDef::Result(id, i);
    }
    let body = func.ops[id].regions[0];
    for (i, value) in func.blocks[body].args.clone().into_iter().enumerate() {
        func.values[value].def = ValueDef::Arg(body, i);
    }
}

/// The values that an effect depends on. What a loop carries is live where its result or its
/// argument is.
fn live_values(func: &TileFunc) -> BTreeSet<Value> {
    let mut live = BTreeSet::new();
    let mut work = Vec::new();
    for id in func.walk() {
        let op = &func.ops[id];
        match op.code {
            // A branch keeps all that it yields, what a loop yields is followed from its results.
            TileOp::Yield => {
                let of = func.blocks[op.block].parent.map(|up| func.ops[up].code);
                if of != Some(TileOp::For) {
                    work.extend(&op.operands);
                }
            }
            TileOp::For => work.extend(op.positional()),
            _ if is_root(func, id) || !op.regions.is_empty() => work.extend(&op.operands),
            _ => {}
        }
    }
    while let Some(value) = work.pop() {
        if !live.insert(value) {
            continue;
        }
        match func.values[value].def {
            ValueDef::Result(id, i) => {
                let op = &func.ops[id];
                match op.code {
                    TileOp::For => carried(func, id, i, &mut work),
                    _ => work.extend(&op.operands),
                }
            }
            ValueDef::Arg(block, i) => {
                if let Some(id) = func.blocks[block].parent
                    && func.ops[id].code == TileOp::For
                    && i > 0
                {
                    carried(func, id, i - 1, &mut work);
                }
            }
        }
    }
    live
}

fn carried(func: &TileFunc, id: OpId, i: usize, work: &mut Vec<Value>) {
    let op = &func.ops[id];
    work.push(op.group("init")[i]);
    work.push(crate::facts::yielded(func, op.regions[0])[i]);
    work.push(func.blocks[op.regions[0]].args[1 + i]);
    work.push(op.results[i]);
}
