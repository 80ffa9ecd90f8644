//! `ts.tile.value_and_grad`: the elementwise derivative of a function with respect to one of its
//! values. The function is already inlined in a kernel; the ops of its derivative follow it.
//! Before: the ops from `first` on are in one block and compute `y` from `x`. After: ops are added
//! to that block, and none is changed.
//!
//! Only elementwise functions have such a derivative; other ops are refused at their lines.

use super::weave::wide;
use crate::emit::{Out, Outs1};
use crate::scalar::Scalars;
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_ir::{Attr, BlockId, Builder, OpId, Opcode, Value};
use tessera_numerics::ScalarFn;
use tessera_support::Entity;
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp};

struct Behind<'f> {
    func: &'f mut TileFunc,
    block: BlockId,
    loc: Loc,
    /// The derivatives by `x` that are not zero everywhere.
    of: BTreeMap<Value, Value>,
}

/// The derivative of `y` by `x`, of the same shape, in the dtype that `x` is computed in. `name` is that of the function.
pub fn value_and_grad(
    func: &mut TileFunc,
    block: BlockId,
    first: usize,
    (x, y): (Value, Value),
    name: &str,
    loc: &Loc,
) -> Result<Value, Diagnostic> {
    let ids: Vec<OpId> =
        func.blocks[block].ops.iter().copied().filter(|id| id.index() >= first).collect();
    let mut b = Behind { func, block, loc: loc.clone(), of: BTreeMap::new() };
    let one = b.constant(x, 1.0);
    b.of.insert(x, one);
    for id in ids {
        b.loc = b.func.ops[id].loc.clone();
        if let Some(what) = b.objection(id) {
            let message = format!(
                "expected `{name}` to give each element of the element at its place alone, got {what}"
            );
            let help = "write it of elementwise functions, or leave its derivative to the arrays it is a part of";
            return Err(Diagnostic::new(Code::E_UNSUPPORTED, message).at(b.loc).help(help));
        }
        if let Some(t) = b.rule(id)? {
            let result = b.func.ops[id].result();
            b.of.insert(result, t);
        }
    }
    b.loc = loc.clone();
    Ok(match b.of.get(&y) {
        Some(&t) => t,
        None => b.constant(y, 0.0),
    })
}

impl Behind<'_> {
    fn b(&mut self) -> Builder<'_, Tile> {
        Builder::at_end(self.func, self.block, self.loc.clone())
    }

    fn constant(&mut self, like: Value, value: f64) -> Value {
        let ty = wide(self.func.ty(like));
        self.b().constant(ty, Attr::Float(value))
    }

    /// Whether an op, or an op in its regions, takes an active value.
    fn touched(&self, id: OpId) -> bool {
        let op = &self.func.ops[id];
        let blocks = op.regions.iter().flat_map(|&r| &self.func.blocks[r].ops);
        op.operands.iter().any(|v| self.of.contains_key(v))
            || blocks.copied().any(|id| self.touched(id))
    }

    /// What an op of a value that moves does with other elements than one, in words.
    #[deny(clippy::wildcard_enum_match_arm)]
    fn objection(&self, id: OpId) -> Option<String> {
        if !self.touched(id) {
            return None;
        }
        let op = &self.func.ops[id];
        let mnemonic = || Opcode::<Tile>::mnemonic(op.code);
        match op.code {
            TileOp::Ew(_) | TileOp::Select | TileOp::Cast => None,
            // Their results are not active.
            TileOp::ArgReduce
            | TileOp::Histogram
            | TileOp::Owned
            | TileOp::Philox
            | TileOp::Print
            | TileOp::Assert => None,
            TileOp::Broadcast => {
                let same =
                    self.func.ty(op.operands[0]).shape() == self.func.ty(op.result()).shape();
                (!same).then(|| "one that is stretched".into())
            }
            TileOp::If => Some("a branch over it".into()),
            TileOp::For | TileOp::While => Some("a loop over it".into()),
            TileOp::Reduce | TileOp::GroupReduce => Some("a reduction of it".into()),
            TileOp::Scan | TileOp::GroupScan => Some("a running result of it".into()),
            TileOp::Mma => Some("an MMA of it".into()),
            TileOp::Reshape
            | TileOp::Transpose
            | TileOp::Expand
            | TileOp::Slice
            | TileOp::Concat
            | TileOp::Take
            | TileOp::Sort => Some("its elements at other places".into()),
            TileOp::Asm | TileOp::AsmEffect => {
                Some("assembly text over it, which has no derivative here".into())
            }
            TileOp::ReduceBy => Some("a reduction of it".into()),
            TileOp::ScanBy => Some("a running result of it".into()),
            TileOp::Load | TileOp::Gather => Some("an element that it chooses".into()),
            TileOp::SlowPath
            | TileOp::Yield
            | TileOp::Return
            | TileOp::ProgramId
            | TileOp::NumPrograms
            | TileOp::LinearId
            | TileOp::LocalId
            | TileOp::GroupSize
            | TileOp::WarpSize
            | TileOp::Dim
            | TileOp::Origin
            | TileOp::Const
            | TileOp::Iota
            | TileOp::Bitcast
            | TileOp::Store
            | TileOp::Scatter
            | TileOp::Accumulate
            | TileOp::Atomic
            | TileOp::BufAlloc
            | TileOp::CopyAsync
            | TileOp::CopyCommit
            | TileOp::CopyWait
            | TileOp::Barrier
            | TileOp::GroupBroadcast
            | TileOp::GroupShuffle => Some(format!("`tile.{}` of it", mnemonic())),
        }
    }

    /// The derivative of what an op gives, where it is not zero.
    #[deny(clippy::wildcard_enum_match_arm)]
    fn rule(&mut self, id: OpId) -> Outs1 {
        use TileOp::*;
        let op = self.func.ops[id].clone();
        let t = |i: usize| self.of.get(&op.operands[i]).copied();
        let [result] = op.results[..] else { return Ok(None) };
        let ty = wide(self.func.ty(result));
        if !ty.dtype().is_float() || !self.touched(id) {
            return Ok(None);
        }
        match op.code {
            Ew(f) if !crate::scalar::moves(f) => Ok(None),
            Ew(f) => {
                let tangents: Vec<_> = (0..op.operands.len()).map(t).collect();
                self.moved(f, &op.operands, result, &tangents)
            }
            Select => {
                let (a, b) = (t(1), t(2));
                if a.is_none() && b.is_none() {
                    return Ok(None);
                }
                let a = a.unwrap_or_else(|| self.constant(result, 0.0));
                let b = b.unwrap_or_else(|| self.constant(result, 0.0));
                Ok(Some(self.b().select(op.operands[0], a, b)))
            }
            Cast => Ok(t(0).map(|t| self.b().cast(t, ty.dtype()))),
            Broadcast => Ok(t(0)),
            For | If | While | Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId
            | LocalId | GroupSize | WarpSize | Dim | Origin | Const | Iota | Bitcast | Reshape
            | Transpose | Expand | Load | Store | Gather | Scatter | Accumulate | BufAlloc
            | CopyAsync | Barrier | Atomic | CopyCommit | CopyWait | Mma | GroupReduce
            | GroupScan | GroupBroadcast | GroupShuffle | Philox | Print | Assert | Reduce
            | Scan | ArgReduce | Slice | Concat | Take | ReduceBy | ScanBy | Sort | Histogram
            | Owned | Asm | AsmEffect => Ok(None),
        }
    }
}

impl Scalars for Behind<'_> {
    fn ew(&mut self, f: ScalarFn, args: &[Value]) -> Out {
        Ok(self.b().ew(f, args))
    }

    fn like(&mut self, value: f64, v: Value) -> Out {
        let ty = self.func.ty(v).clone();
        Ok(self.b().constant(ty, Attr::Float(value)))
    }

    fn select(&mut self, c: Value, a: Value, b: Value) -> Out {
        Ok(self.b().select(c, a, b))
    }

    fn splat_of(&self, v: Value) -> Option<f64> {
        super::weave::splat(self.func, v)
    }
}
