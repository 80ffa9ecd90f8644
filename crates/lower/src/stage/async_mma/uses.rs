//! Uses of values and the values that control ops carry, for `producer_loads` and
//! `warp_specialize`.

use std::collections::BTreeMap;
use tessera_ir::{BlockId, OpId, Value};
use tessera_staged::{StagedFunc, StagedOp};
use tessera_tile::TileOp;

/// The ops that take each value, and as which operand.
pub type Users = BTreeMap<Value, Vec<(OpId, usize)>>;

pub fn users(func: &StagedFunc) -> Users {
    let mut users = Users::new();
    for id in func.walk() {
        for (i, &v) in func.ops[id].operands.iter().enumerate() {
            users.entry(v).or_default().push((id, i));
        }
    }
    users
}

/// Whether an op runs regions that hand values on.
pub fn is_control(code: StagedOp) -> bool {
    matches!(
        code,
        StagedOp::Tile(TileOp::For | TileOp::If | TileOp::While | TileOp::SlowPath)
            | StagedOp::Tiles
    )
}

/// Arguments of a control op's regions that come before the carried ones.
pub fn leading(func: &StagedFunc, id: OpId) -> usize {
    let op = &func.ops[id];
    match op.code {
        StagedOp::Tile(TileOp::For) => 1,
        StagedOp::Tiles => op.group("grid").len(),
        _ => 0,
    }
}

/// The values that a region yields.
pub fn yielded(func: &StagedFunc, region: BlockId) -> &[Value] {
    func.terminator(region).map_or(&[], |end| func.ops[end].group("values"))
}

/// The index in a block of an op that is in it, or in a region of an op that is.
pub fn place_in(func: &StagedFunc, block: BlockId, id: OpId) -> Option<usize> {
    let mut id = id;
    while func.ops[id].block != block {
        id = func.blocks[func.ops[id].block].parent?;
    }
    func.blocks[block].ops.iter().position(|&o| o == id)
}

/// Whether an op is in a block, or in a region of an op that is.
pub fn contains(func: &StagedFunc, id: OpId, block: BlockId) -> bool {
    func.ancestors(block).contains(&id)
}
