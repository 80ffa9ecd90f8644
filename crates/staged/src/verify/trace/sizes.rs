//! The sizes at which a function is traced. All its dimensions are set to one number: less than one
//! block, one block, a few and a remainder, and more than the stages of a pipeline.

use crate::{Staged, StagedOp};
use tessera_ir::{Attr, Dim, Func, Type};
use tessera_tile::TileOp;

pub(super) fn has_symbols(func: &Func<Staged>) -> bool {
    let open = |d: &Dim| d.as_static().is_none();
    func.params().iter().any(|&p| {
        func.ty(p).shape().iter().any(open) || matches!(func.ty(p), Type::Scalar(d) if d.is_int())
    })
}

pub(super) fn samples(func: &Func<Staged>) -> Vec<i64> {
    if !has_symbols(func) {
        return vec![1];
    }
    let mut block = 1;
    for id in func.walk() {
        let op = &func.ops[id];
        let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
        block = extent.into_iter().fold(block, i64::max);
        if op.code == StagedOp::Tile(TileOp::For)
            && let Some(step) = func.def(op.operands[2]).and_then(|d| d.attr("value")?.as_int())
        {
            block = block.max(step);
        }
    }
    let block = block.min(1 << 20);
    vec![1, block, 2 * block + 1, 5 * block]
}
