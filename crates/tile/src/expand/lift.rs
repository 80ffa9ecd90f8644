//! A combiner, which is written for scalars, applied to whole tiles.

use super::{Expander, Place};
use crate::{TileBuild, TileOp};
use std::collections::BTreeMap;
use tessera_ir::{BlockId, Dim, OpId, OpSpec, Type, Value};

impl Expander<'_> {
    /// What a region of the old function yields for tiles (or scalars) of one shape as arguments.
    pub(super) fn apply(&mut self, at: &Place, region: BlockId, args: &[Value]) -> Vec<Value> {
        let old = self.rw.old;
        let dims = self.ty(args[0]).shape().to_vec();
        let mut lift = Lift { map: BTreeMap::new(), dims };
        for (&arg, &value) in old.blocks[region].args.iter().zip(args) {
            lift.map.insert(arg, value);
        }
        lift.block(self, at, region)
    }
}

struct Lift {
    /// The new value of each value of the region.
    map: BTreeMap<Value, Value>,
    dims: Vec<Dim>,
}

impl Lift {
    fn block(&mut self, e: &mut Expander<'_>, at: &Place, region: BlockId) -> Vec<Value> {
        let old = e.rw.old;
        for &id in &old.blocks[region].ops {
            let op = &old.ops[id];
            if op.code == TileOp::Yield {
                return op.operands.iter().map(|&v| self.get(e, at, v)).collect();
            }
            self.op(e, at, id);
        }
        Vec::new()
    }

    /// The value in the shape of the tiles; a scalar from outside is the same everywhere.
    fn get(&self, e: &mut Expander<'_>, at: &Place, v: Value) -> Value {
        let value = self.map.get(&v).copied().unwrap_or_else(|| e.rw.get(v));
        if e.ty(value).shape() == self.dims {
            return value;
        }
        e.b(at).broadcast(value, self.dims.clone())
    }

    fn op(&mut self, e: &mut Expander<'_>, at: &Place, id: OpId) {
        let old = e.rw.old;
        let op = &old.ops[id];
        if op.code == TileOp::If {
            // Both branches only compute: each element takes its own.
            let cond = self.get(e, at, op.operands[0]);
            let [then, otherwise] = [0, 1].map(|i| self.block(e, at, op.regions[i]));
            for (&result, (a, b)) in op.results.iter().zip(then.into_iter().zip(otherwise)) {
                let value = e.b(at).select(cond, a, b);
                self.map.insert(result, value);
            }
            return;
        }
        // What depends on nothing, such as a constant or a program id, stays a scalar.
        let operands: Vec<Value> = op.operands.iter().map(|&v| self.get(e, at, v)).collect();
        let dtype = old.ty(op.result()).dtype();
        let ty = if operands.is_empty() {
            Type::Scalar(dtype)
        } else {
            Type::value(self.dims.clone(), dtype)
        };
        let mut spec = OpSpec::new(op.code, &operands).result(ty);
        spec.attrs = op.attrs.clone();
        let value = e.b(at).value(spec).expect("the result type is given");
        self.map.insert(op.result(), value);
    }
}
