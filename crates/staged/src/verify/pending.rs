//! A pending tile is used exactly once on every path through the function: then there is always one
//! name for an accumulator in flight, and every MMA that is issued is waited for.

use crate::{Staged, StagedOp};
use tessera_ir::{BlockId, Func, OpErrors, OpId, Type, Value, ValueDef};
use tessera_tile::TileOp;

pub(super) fn check(func: &Func<Staged>, errors: &mut OpErrors) {
    for id in func.walk() {
        let op = &func.ops[id];
        for &v in &op.results {
            one(func, v, op.block, id, errors);
        }
        for &region in &op.regions {
            for &v in &func.blocks[region].args {
                one(func, v, region, id, errors);
            }
        }
    }
}

fn one(func: &Func<Staged>, v: Value, block: BlockId, at: OpId, errors: &mut OpErrors) {
    if !matches!(func.ty(v), Type::Pending(_)) {
        return;
    }
    let name = func.name_of(v).map_or_else(|| v.to_string(), str::to_string);
    errors.at_op(func, at);
    match uses(func, v, block) {
        Ok(1) => {}
        Ok(0) => errors.structure(format!(
            "expected the pending tile %{name} to be used once, got no use: retire it"
        )),
        Ok(n) => errors
            .structure(format!("expected the pending tile %{name} to be used once, got {n} uses")),
        Err((op, why)) => {
            errors.at_op(func, op);
            errors.structure(format!("expected the pending tile %{name} to be used once, {why}"));
        }
    }
    assert!(matches!(func.values[v].def, ValueDef::Result(..) | ValueDef::Arg(..)));
}

/// How often a block uses the value, the same on every path through it.
fn uses(func: &Func<Staged>, v: Value, block: BlockId) -> Result<usize, (OpId, String)> {
    let mut total = 0;
    for &id in &func.blocks[block].ops {
        let op = &func.ops[id];
        total += op.operands.iter().filter(|&&o| o == v).count();
        let inner: Result<Vec<_>, _> = op.regions.iter().map(|&r| uses(func, v, r)).collect();
        let inner = inner?;
        match op.code {
            StagedOp::Tile(TileOp::If) => {
                if inner[0] != inner[1] {
                    return Err((id, "got a use in one branch only".into()));
                }
                total += inner[0];
            }
            _ if inner.iter().any(|&n| n > 0) => {
                return Err((
                    id,
                    "got a use in every iteration of a loop: carry it with `init`".into(),
                ));
            }
            _ => {}
        }
    }
    Ok(total)
}
