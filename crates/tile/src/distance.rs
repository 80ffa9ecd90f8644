//! The constant difference of two integers, where it is known for all their values: `s + 32` and
//! `s`.

use crate::Tile;
use crate::polynomial::{Factor, Polynomial};
use std::collections::BTreeSet;
use tessera_ir::{DimExpr, DimOp, Func, Value};

/// `to - from` as an expression over dimension symbols and integer parameters, where it is one. The
/// integers are taken as numbers without end: the extent of `s : s + 32` is 32 also where the end
/// wraps, because the block begins at `s` and the end is not computed. Equal ops on equal operands
/// give one number (`numbering.rs`): `k // 2 + 4` and `k // 2`. Of the values in `unknown` nothing
/// is known.
pub fn distance(
    func: &Func<Tile>,
    from: Value,
    to: Value,
    unknown: &BTreeSet<Value>,
) -> Option<DimExpr> {
    let [from, to] = Polynomial::of_all(func, [from, to], unknown)?;
    let difference = to.minus(&from)?;
    let mut out = DimExpr::Const(0);
    for (term, by) in difference.terms() {
        let mut product = DimExpr::Const(by);
        for factor in term {
            let Factor::Dim(e) = factor else { return None };
            product = DimExpr::bin(DimOp::Mul, e.clone(), product);
        }
        out = DimExpr::bin(DimOp::Add, out, product);
    }
    Some(out)
}
