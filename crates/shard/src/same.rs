//! Whether two functions are one but for names and places.

use crate::inline::{Keep, inline};
use std::collections::BTreeMap;
use tessera_diag::Diagnostics;
use tessera_graph::{GraphFunc, GraphModule};
use tessera_ir::{BlockId, Type, Value};

/// Whether functions of two modules do the same ops in the same order on arguments of these types.
pub fn same(
    a: (&GraphModule, &str),
    b: (&GraphModule, &str),
    args: &[Type],
) -> Result<bool, Diagnostics> {
    let a = inline(a.0, a.1, args, &Keep::None)?.func;
    let b = inline(b.0, b.1, args, &Keep::None)?.func;
    let mut pairs = Pairs { a: &a, b: &b, known: BTreeMap::new() };
    Ok(pairs.blocks(a.body, b.body))
}

struct Pairs<'f> {
    a: &'f GraphFunc,
    b: &'f GraphFunc,
    known: BTreeMap<Value, Value>,
}

impl Pairs<'_> {
    fn bind(&mut self, a: &[Value], b: &[Value]) -> bool {
        self.known.extend(a.iter().copied().zip(b.iter().copied()));
        a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| self.a.ty(a) == self.b.ty(b))
    }

    fn blocks(&mut self, a: BlockId, b: BlockId) -> bool {
        let (from, to) = (&self.a.blocks[a], &self.b.blocks[b]);
        if from.ops.len() != to.ops.len() || !self.bind(&from.args, &to.args) {
            return false;
        }
        from.ops.iter().zip(&to.ops).all(|(&x, &y)| {
            let (x, y) = (&self.a.ops[x], &self.b.ops[y]);
            let operands = x.operands.iter().map(|v| self.known.get(v).copied());
            x.code == y.code
                && x.attrs == y.attrs
                && x.group_lens == y.group_lens
                && operands.eq(y.operands.iter().map(|&v| Some(v)))
                && x.regions.len() == y.regions.len()
                && x.regions.iter().zip(&y.regions).all(|(&a, &b)| self.blocks(a, b))
                && self.bind(&x.results, &y.results)
        })
    }
}
