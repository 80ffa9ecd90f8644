//! `tile-if-convert`, if-conversion: conditional expressions without effects become selects.
//!
//! Input: any verified function; `if` with `select` is what `and`, `or` and `a if c else b` became.
//! Output: such an `if` is gone where its regions hold nothing but arithmetic and loads of single
//! elements. Both sides then run, and a select (or `and`, `or`) takes one. A load outside its array
//! reads zero, so running it changes nothing. The pass must run before `tile-bounds`, which may
//! derive from the condition that an access is inside.
//! Must not: run a write, a load that the user declared to be inside, a loop, or anything that
//! lanes do together; nor change a bit of a result. Checked mode leaves it out: there a side that
//! Python would not evaluate must not be reported.

use tessera_diag::Diagnostics;
use tessera_ir::{
    Attr, BlockId, Changed, Effects, OpId, OpSpec, Opcode, Pass, PassContext, Type, Value, ValueDef,
};
use tessera_numerics::ScalarFn;
use tessera_tile::{Tile, TileFunc, TileOp};

/// The most ops of one side that are worth speculating.
const MOST: usize = 32;

pub struct IfConvert;

impl Pass<Tile> for IfConvert {
    fn name(&self) -> &'static str {
        "tile-if-convert"
    }

    fn run(&self, func: &mut TileFunc, _: &mut PassContext) -> Result<Changed, Diagnostics> {
        let mut changed = Changed::No;
        // Inner ones first: their selects may be part of an outer one.
        for id in func.walk().into_iter().rev() {
            let op = &func.ops[id];
            let expression = op.code == TileOp::If && op.attr("select").is_some();
            if expression && op.regions.iter().all(|&r| only_computes(func, r)) {
                flatten(func, id);
                changed = Changed::Yes;
            }
        }
        Ok(changed)
    }
}

fn only_computes(func: &TileFunc, region: BlockId) -> bool {
    let ops = &func.blocks[region].ops;
    ops.len() <= MOST && ops.iter().all(|&id| may_run(func, id))
}

/// Whether an op may run where the program does not reach it.
#[deny(clippy::wildcard_enum_match_arm)]
fn may_run(func: &TileFunc, id: OpId) -> bool {
    use TileOp::*;
    let op = &func.ops[id];
    match op.code {
        Yield => true,
        Load => {
            func.ty(op.result()).rank() == 0
                && op.attr("inbounds").is_none()
                && matches!(func.ty(op.operands[0]), Type::View { .. })
        }
        // A text without effects may run anywhere, and so may its other meaning.
        Asm => true,
        // Lanes do these together; the others are slow.
        GroupReduce | GroupScan | GroupBroadcast | GroupShuffle | Mma | Reduce | Scan
        | ArgReduce => false,
        code @ (For | If | While | Return | SlowPath | ProgramId | NumPrograms | LinearId
        | LocalId | GroupSize | WarpSize | Dim | Origin | Const | Iota | Select | Cast
        | Bitcast | Reshape | Transpose | Broadcast | Expand | Store | Gather | Scatter
        | Accumulate | BufAlloc | CopyAsync | Barrier | Atomic | CopyCommit | CopyWait
        | Philox | Print | Assert | Ew(_) | Slice | Concat | Take | ReduceBy | ScanBy
        | Sort | Histogram | Owned | AsmEffect) => {
            code.info().effects == Effects::Pure && op.regions.is_empty()
        }
    }
}

/// Moves both sides before the `if`, and selects for each of its results, whose values stay.
fn flatten(func: &mut TileFunc, id: OpId) {
    let op = func.ops[id].clone();
    let (condition, outer) = (op.operands[0], op.block);
    let place =
        func.blocks[outer].ops.iter().position(|&o| o == id).expect("an op is in its block");
    func.blocks[outer].ops.remove(place);
    let mut at = place;
    let mut sides: Vec<Vec<Value>> = Vec::new();
    for &region in &op.regions {
        sides.push(crate::facts::yielded(func, region).to_vec());
        for moved in std::mem::take(&mut func.blocks[region].ops) {
            if func.ops[moved].is_terminator() {
                continue;
            }
            func.ops[moved].block = outer;
            func.ops[moved].attrs.remove("unset");
            func.blocks[outer].ops.insert(at, moved);
            at += 1;
        }
    }
    for (place, &result) in op.results.iter().enumerate() {
        let (a, b) = (sides[0][place], sides[1][place]);
        let ty = func.ty(result).clone();
        let spec = match (known(func, a), known(func, b)) {
            (_, Some(false)) => OpSpec::new(TileOp::Ew(ScalarFn::And), &[condition, a]),
            (Some(true), _) => OpSpec::new(TileOp::Ew(ScalarFn::Or), &[condition, b]),
            _ => OpSpec::new(TileOp::Select, &[condition, a, b]),
        };
        let new = func
            .insert(outer, at, spec.result(ty), op.loc.clone())
            .expect("the result type is given");
        at += 1;
        func.ops[new].results = vec![result];
        func.values[result].def = ValueDef::Result(new, 0);
    }
}

/// The value of a constant bool.
fn known(func: &TileFunc, value: Value) -> Option<bool> {
    let op = func.def(value).filter(|op| op.code == TileOp::Const)?;
    op.attr("value").and_then(Attr::as_bool)
}
