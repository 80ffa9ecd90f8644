//! The last use of each value. A value dies in the block that defines it, never inside a loop or
//! branch nested there, because that may run again.

use std::collections::BTreeSet;
use tessera_ir::{BlockId, OpId, Value, ValueDef};
use tessera_tile::TileFunc;

/// What one op ends.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// Values to drop after the op, its unused results among them.
    pub dead: BTreeSet<Value>,
    /// Those of its operands that it may take: dead after it, used by it once, not in its regions.
    pub movable: BTreeSet<Value>,
}

/// For each op of the block, in order.
pub(crate) fn ends_of(func: &TileFunc, block: BlockId) -> Vec<Ends> {
    let mut later = BTreeSet::new();
    let mut out: Vec<Ends> = func.blocks[block]
        .ops
        .iter()
        .rev()
        .map(|&id| {
            let op = &func.ops[id];
            let inner = inner_uses(func, id);
            let mut ends = Ends::default();
            ends.dead.extend(op.results.iter().copied().filter(|v| !later.contains(v)));
            for &v in op.operands.iter().chain(&inner) {
                if defined_in(func, v) == block && !later.contains(&v) {
                    ends.dead.insert(v);
                    let once = op.operands.iter().filter(|&&o| o == v).count() == 1;
                    if once && !inner.contains(&v) {
                        ends.movable.insert(v);
                    }
                }
            }
            later.extend(op.operands.iter().copied().chain(inner));
            ends
        })
        .collect();
    out.reverse();
    out
}

fn inner_uses(func: &TileFunc, id: OpId) -> BTreeSet<Value> {
    let mut uses = BTreeSet::new();
    for &region in &func.ops[id].regions {
        func.walk_block(region, &mut |op| uses.extend(func.ops[op].operands.iter().copied()));
    }
    uses
}

fn defined_in(func: &TileFunc, v: Value) -> BlockId {
    match func.values[v].def {
        ValueDef::Result(op, _) => func.ops[op].block,
        ValueDef::Arg(block, _) => block,
    }
}
