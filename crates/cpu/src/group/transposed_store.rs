//! Stores a transposed tile: squares are loaded along the last axis of the source, contiguously,
//! and transposed in registers. Element by element every load would be a gather.

use super::nest::Nest;
use super::{Buffer, Group, Repr};
use crate::contract::square;
use tessera_ir::{Attr, Value};
use tessera_tile::TileOp;

impl<'a> Group<'a> {
    /// Whether a tile is a transposed expression of whole squares.
    pub fn stores_transposed(&self, v: Value, to: &Buffer) -> bool {
        let Some(op) = self.func.def(v).filter(|op| op.code == TileOp::Transpose) else {
            return false;
        };
        let lanes = i64::from(self.lanes);
        let swapped = op.attr("perm").and_then(Attr::as_ints).is_some_and(|p| p == [1, 0]);
        let squares = to.shape.iter().all(|d| d % lanes == 0);
        let expression = matches!(self.repr(op.operands[0]), Repr::Expression)
            && !self.pending.contains(&op.operands[0]);
        swapped && squares && expression && to.dtype.bytes() == 4
    }

    /// Writes it, inside a nest over its shape.
    pub fn store_transposed(&mut self, n: &mut Nest, v: Value, to: &Buffer) {
        let ir = self.ir;
        let (lanes, identity) = (self.lanes, n.identity());
        let step = i64::from(lanes);
        let [rows, cols] = [to.shape[0], to.shape[1]].map(|d| ir.c64(d));
        ir.for_range(ir.c64(0), rows, step, &[], |ir, row, _| {
            ir.for_range(ir.c64(0), cols, step, &[], |ir, col, _| {
                n.lanes = lanes;
                n.lane = Some(0);
                n.index[0] = Some(row);
                let mut vectors = Vec::new();
                for i in 0..step {
                    n.index[1] = Some(ir.add_const(col, i));
                    n.open();
                    let x = self.eval(n, &(v, identity.clone()));
                    vectors.push(self.widen(n, x));
                    n.close();
                }
                n.lane = Some(1);
                n.index[1] = Some(col);
                for (i, x) in square(ir, vectors).into_iter().enumerate() {
                    n.index[0] = Some(ir.add_const(row, i as i64));
                    self.write_buffer(n, to, &identity, x);
                }
                Vec::new()
            });
            Vec::new()
        });
        n.lanes = 1;
    }
}
