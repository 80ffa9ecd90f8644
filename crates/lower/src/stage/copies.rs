//! `stage-copies`: copies into shared buffers become loads and stores.
//!
//! Input: a group kernel of Tile IR whose buffers stay memory. Output: the same without
//! `copy_async`, `copy_commit` and `copy_wait`. Each copy is complete where it was begun, which is
//! before any wait for it.

use crate::facts::extents;
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Rewriter, Type, Value};
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp};

/// Whether a kernel has shared buffers that are not values.
pub fn has_buffers(func: &TileFunc) -> bool {
    func.walk().iter().any(|&id| func.ops[id].code == TileOp::BufAlloc)
}

fn is_copy(code: TileOp) -> bool {
    matches!(code, TileOp::CopyAsync | TileOp::CopyCommit | TileOp::CopyWait)
}

/// None where there are no copies.
pub fn without_copies(func: &TileFunc) -> Option<TileFunc> {
    if !func.walk().iter().any(|&id| is_copy(func.ops[id].code)) {
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
    if !is_copy(op.code) {
        rw.copy_op_with(id, into, &mut emit);
        return;
    }
    if op.code != TileOp::CopyAsync {
        return;
    }
    let [to, from] = [0, 1].map(|i| rw.get(op.operands[i]));
    let at: Vec<Value> = op.group("at").iter().map(|&v| rw.get(v)).collect();
    let into_part: Vec<Value> = op.group("into").iter().map(|&v| rw.get(v)).collect();
    let mut build = rw.builder(into, op.loc.clone());
    let tile = build.load(from, &at, &extents(op));
    let whole = old.ty(op.operands[0]).static_shape().unwrap_or_default();
    let mut start = into_part;
    let part = start.len();
    start.extend(whole[part..].iter().map(|_| build.constant(Type::INDEX, Attr::Int(0))));
    let bounds = (0..whole.len()).map(|axis| if axis < part { "checked" } else { "inside" });
    let extent = (0..whole.len()).map(|axis| if axis < part { 0 } else { whole[axis] });
    let store = OpSpec::new(TileOp::Store, &[to, tile])
        .group("at", &start)
        .attr("bounds", Attr::words(bounds))
        .attr("extent", Attr::ints(extent));
    build.op(store).expect("a store has no results");
}
