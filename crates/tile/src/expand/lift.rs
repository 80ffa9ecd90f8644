//! A region that is written for scalars, applied to whole tiles: a combiner, or what a text of
//! assembly computes.

use super::{Expander, Place};
use crate::{Tile, TileBuild, TileOp};
use std::collections::BTreeMap;
use tessera_diag::Loc;
use tessera_ir::{BlockId, Builder, Dim, OpId, OpSpec, Rewriter, Type, Value};

impl Expander<'_> {
    /// What a region of the old function yields for tiles (or scalars) of one shape as arguments.
    pub(super) fn apply(&mut self, at: &Place, region: BlockId, args: &[Value]) -> Vec<Value> {
        let dims = self.ty(args[0]).shape().to_vec();
        Lift::new(&mut self.rw, at.block, Some(at.loc.clone()), dims).apply(region, args)
    }
}

/// Puts the ops of regions of the old function into a block of the new one, over tiles.
pub(crate) struct Lift<'r, 'f> {
    rw: &'r mut Rewriter<'f, Tile>,
    into: BlockId,
    /// The place of all ops; `None` keeps their own.
    loc: Option<Loc>,
    /// The new value of each value of the region.
    map: BTreeMap<Value, Value>,
    dims: Vec<Dim>,
}

impl<'r, 'f> Lift<'r, 'f> {
    pub(crate) fn new(
        rw: &'r mut Rewriter<'f, Tile>,
        into: BlockId,
        loc: Option<Loc>,
        dims: Vec<Dim>,
    ) -> Self {
        Self { rw, into, loc, map: BTreeMap::new(), dims }
    }

    /// What the region yields for these arguments.
    pub(crate) fn apply(&mut self, region: BlockId, args: &[Value]) -> Vec<Value> {
        let old = self.rw.old;
        for (&arg, &value) in old.blocks[region].args.iter().zip(args) {
            self.map.insert(arg, value);
        }
        self.block(region)
    }

    fn b(&mut self, loc: &Loc) -> Builder<'_, Tile> {
        let loc = self.loc.as_ref().unwrap_or(loc).clone();
        self.rw.builder(self.into, loc)
    }

    fn block(&mut self, region: BlockId) -> Vec<Value> {
        let old = self.rw.old;
        for &id in &old.blocks[region].ops {
            let op = &old.ops[id];
            if op.code == TileOp::Yield {
                return op.operands.iter().map(|&v| self.get(v, &op.loc)).collect();
            }
            self.op(id);
        }
        Vec::new()
    }

    /// The value in the shape of the tiles; a scalar from outside is the same everywhere.
    fn get(&mut self, v: Value, loc: &Loc) -> Value {
        let value = self.map.get(&v).copied().unwrap_or_else(|| self.rw.get(v));
        if self.rw.new.ty(value).shape() == self.dims {
            return value;
        }
        let dims = self.dims.clone();
        self.b(loc).broadcast(value, dims)
    }

    fn op(&mut self, id: OpId) {
        let old = self.rw.old;
        let op = &old.ops[id];
        if op.code == TileOp::If {
            // Both branches only compute: each element takes its own.
            let cond = self.get(op.operands[0], &op.loc);
            let [then, otherwise] = [0, 1].map(|i| self.block(op.regions[i]));
            for (&result, (a, b)) in op.results.iter().zip(then.into_iter().zip(otherwise)) {
                let value = self.b(&op.loc).select(cond, a, b);
                self.map.insert(result, value);
            }
            return;
        }
        // What depends on nothing, such as a constant or a program id, stays a scalar.
        let operands: Vec<Value> = op.operands.iter().map(|&v| self.get(v, &op.loc)).collect();
        let types = op.results.iter().map(|&v| {
            let dtype = old.ty(v).dtype();
            match operands.is_empty() {
                true => Type::Scalar(dtype),
                false => Type::value(self.dims.clone(), dtype),
            }
        });
        let mut spec = OpSpec::new(op.code, &[])
            .results(types.collect())
            .optional_region(!op.regions.is_empty());
        match op.code {
            TileOp::Asm => spec = spec.group("values", &operands),
            _ => spec.operands = operands,
        }
        spec.attrs = op.attrs.clone();
        let new = self.b(&op.loc).op(spec).expect("the result types are given");
        for (&from, to) in op.results.iter().zip(self.rw.new.ops[new].results.clone()) {
            self.map.insert(from, to);
        }
        // The other meaning of a text is over scalars, whatever the text is over.
        for (&from, to) in op.regions.iter().zip(self.rw.new.ops[new].regions.clone()) {
            self.rw.copy_args(from, to);
            for &inner in &old.blocks[from].ops {
                self.rw.copy_op(inner, to);
            }
        }
    }
}
