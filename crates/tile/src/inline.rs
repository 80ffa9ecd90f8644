//! Inlines `tile.slow_path`, for targets that cannot run code for some rows only.

use crate::{Tile, TileFunc, TileOp};
use tessera_ir::{BlockId, OpId, Rewriter};

/// The function with every `slow_path` replaced by its region, which is correct for all rows.
/// `None` where it has no `slow_path`.
pub fn without_slow_paths(func: &TileFunc) -> Option<TileFunc> {
    if !func.walk().iter().any(|&id| func.ops[id].code == TileOp::SlowPath) {
        return None;
    }
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    for &id in &func.blocks[func.body].ops {
        emit(&mut rw, id, body);
    }
    Some(rw.new)
}

fn emit(rw: &mut Rewriter<'_, Tile>, id: OpId, into: BlockId) {
    let old = rw.old;
    let op = &old.ops[id];
    if op.code != TileOp::SlowPath {
        rw.copy_op_with(id, into, &mut |rw, inner, block| emit(rw, inner, block));
        return;
    }
    for &inner in &old.blocks[op.regions[0]].ops {
        match old.ops[inner].code {
            TileOp::Yield => {
                for (&result, &v) in op.results.iter().zip(old.ops[inner].group("values")) {
                    let value = rw.get(v);
                    rw.set(result, value);
                }
            }
            _ => emit(rw, inner, into),
        }
    }
}
