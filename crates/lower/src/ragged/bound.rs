//! Bounds of masks against the slices they mask: a mask whose bound is known to end beyond the tensor
//! lets padding through.
//!
//! A slice at `o` of a dimension `n` has `n - o` elements that are there. A bound counts from the
//! start of the tile, so it is wrong where `bound > n - o`. All three are polynomials of sizes, ids
//! and values; what cannot be decided is taken as the user wrote it.

use super::condition::Masked;
use crate::facts::{dim_expr, extents, int_const, positioned, step};
use crate::sign::may_be_negative;
use std::collections::BTreeSet;
use tessera_ir::{Attr, DimExpr, OpId, Value};
use tessera_numerics::ScalarFn;
use tessera_tile::{Factor, Polynomial, TileFunc, TileOp};

/// Whether the comparison of positions with a bound is known to hold in padding of this axis.
pub(super) fn ends_beyond(func: &TileFunc, f: ScalarFn, [a, b]: [Value; 2], of: Masked) -> bool {
    let Some(bound) = bound(func, f, [a, b]) else { return false };
    let access = of.root.access;
    // Only a tile with the slice's own positions: not one that was reshaped, or read with steps.
    let whole = extents(&func.ops[access]).get(of.root.axis).copied();
    if whole != of.extent || step(&func.ops[access], of.root.axis) != 1 {
        return false;
    }
    if func.ops[access].code != TileOp::CopyAsync {
        return beyond(func, access, of.root.axis, &bound) == Some(true);
    }
    // Which of its copies a buffer holds is not known. A bound that is the size of the tensor is
    // wrong for each that does not begin at zero.
    let memory = func.ops[access].operands[0];
    let copies = func.walk().into_iter().filter(|&id| {
        let op = &func.ops[id];
        op.code == TileOp::CopyAsync && op.operands[0] == memory
    });
    let mut copies = copies.filter_map(|id| Some((id, size(func, id, of.root.axis)?)));
    copies.any(|(id, size)| size == bound && !begins_at_zero(func, id, of.root.axis))
}

fn begins_at_zero(func: &TileFunc, access: OpId, axis: usize) -> bool {
    let at = func.ops[access].group("at").get(axis).copied();
    at.is_none_or(|at| int_const(func, at) == Some(0))
}

/// The extent of the tensor that an access reads.
fn size(func: &TileFunc, access: OpId, axis: usize) -> Option<Polynomial> {
    let memory = positioned(&func.ops[access])?;
    Polynomial::of_dim(&dim_expr(&func.ty(memory).shape()[axis])?)
}

/// Whether the bound is above the number of elements that are there.
fn beyond(func: &TileFunc, access: OpId, axis: usize, bound: &Polynomial) -> Option<bool> {
    let size = size(func, access, axis)?;
    if size == *bound {
        return Some(!begins_at_zero(func, access, axis));
    }
    let at = func.ops[access].group("at").get(axis).copied()?;
    let start = Polynomial::of(func, at, &BTreeSet::new())?;
    let surplus = bound.plus(&start)?.minus(&size)?;
    // A parameter may be negative, a size is not.
    let size = |name: &str| !func.params().iter().any(|&p| func.name_of(p) == Some(name));
    let known = |factor: &Factor| match factor {
        Factor::Program(_) => true,
        Factor::Dim(DimExpr::Sym(name)) => size(name),
        Factor::Dim(_) => false,
        Factor::Value(v) => !may_be_negative(func, *v, access),
    };
    let mut terms = surplus.terms().peekable();
    Some(terms.peek().is_some() && terms.all(|(term, by)| by > 0 && term.iter().all(known)))
}

/// `bound` of `i < bound`, with `i` the index along the one axis that the comparison varies along.
fn bound(func: &TileFunc, f: ScalarFn, [a, b]: [Value; 2]) -> Option<Polynomial> {
    let (a, b) = match f {
        ScalarFn::Lt | ScalarFn::Le => (a, b),
        ScalarFn::Gt | ScalarFn::Ge => (b, a),
        _ => return None,
    };
    let (a, b) = (linear(func, a)?, linear(func, b)?);
    if a.0.checked_sub(b.0)? != 1 {
        return None;
    }
    let bound = b.1.minus(&a.1)?;
    match f {
        ScalarFn::Le | ScalarFn::Ge => bound.plus(&Polynomial::constant(1)),
        _ => Some(bound),
    }
}

/// `by·i + rest` of positions along one axis.
fn linear(func: &TileFunc, value: Value) -> Option<(i64, Polynomial)> {
    if func.ty(value).rank() == 0 {
        return Some((0, Polynomial::of(func, value, &BTreeSet::new())?));
    }
    let op = func.def(value)?;
    if !func.ty(value).dtype().is_int() {
        return None;
    }
    let of = |i: usize| linear(func, op.operands[i]);
    match op.code {
        TileOp::Iota => {
            let start = op.attr("start").and_then(Attr::as_int).unwrap_or(0);
            Some((1, Polynomial::constant(start)))
        }
        TileOp::Const => Some((0, Polynomial::constant(int_const(func, value)?))),
        TileOp::Cast | TileOp::Broadcast | TileOp::Expand | TileOp::Transpose => of(0),
        TileOp::Ew(ScalarFn::Add) => {
            let (a, b) = (of(0)?, of(1)?);
            Some((a.0.checked_add(b.0)?, a.1.plus(&b.1)?))
        }
        TileOp::Ew(ScalarFn::Sub) => {
            let (a, b) = (of(0)?, of(1)?);
            Some((a.0.checked_sub(b.0)?, a.1.minus(&b.1)?))
        }
        _ => None,
    }
}
