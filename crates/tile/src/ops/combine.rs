//! Reductions and scans by a combiner of the user's: a region over scalars.

use crate::{Tile, TileOp, is_collective};
use tessera_ir::{Attr, BlockId, Effects, Func, OpErrors, OpId, Opcode, Type};

pub fn verify_reduce_by(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    verify(func, id, errors, true);
}

pub fn verify_scan_by(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    verify(func, id, errors, false);
}

fn verify(func: &Func<Tile>, id: OpId, errors: &mut OpErrors, drops: bool) {
    let op = &func.ops[id];
    let tiles: Vec<&Type> = op.group("x").iter().map(|&v| func.ty(v)).collect();
    let (shape, rank) = (tiles[0].shape(), tiles[0].rank());
    if let Some(other) = tiles.iter().find(|t| t.shape() != shape) {
        errors.shape(format!("expected tiles of one shape, got {} and {other}", tiles[0]));
        return;
    }
    let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(-1);
    let Some(axis) = usize::try_from(axis).ok().filter(|&a| a < rank) else {
        errors.shape(format!("expected an axis below {rank}, got {axis}"));
        return;
    };
    let mut kept = shape.to_vec();
    if drops {
        kept.remove(axis);
    }
    let wanted: Vec<Type> = tiles.iter().map(|t| Type::value(kept.clone(), t.dtype())).collect();
    let got: Vec<Type> = op.results.iter().map(|&v| func.ty(v).clone()).collect();
    expect(errors, "results", &wanted, &got);
    let elements: Vec<Type> = tiles.iter().map(|t| Type::Scalar(t.dtype())).collect();
    let region = op.regions[0];
    let args: Vec<Type> = func.blocks[region].args.iter().map(|&v| func.ty(v).clone()).collect();
    expect(errors, "arguments of the combiner", &[&elements[..], &elements[..]].concat(), &args);
    if let Some(end) = func.terminator(region) {
        let got: Vec<Type> =
            func.ops[end].group("values").iter().map(|&v| func.ty(v).clone()).collect();
        expect(errors, "the combiner to yield values", &elements, &got);
    }
    computes(func, region, "a combiner", errors);
}

pub(super) fn expect(errors: &mut OpErrors, what: &str, wanted: &[Type], got: &[Type]) {
    let show = |types: &[Type]| {
        let list: Vec<String> = types.iter().map(Type::to_string).collect();
        format!("({})", list.join(", "))
    };
    if wanted != got {
        errors.ty(format!("expected {what} of types {}, got {}", show(wanted), show(got)));
    }
}

/// A combiner, or another region over elements, only computes, on scalars, and may branch.
pub(super) fn computes(func: &Func<Tile>, region: BlockId, what: &str, errors: &mut OpErrors) {
    for &id in &func.blocks[region].ops {
        let op = &func.ops[id];
        let info = op.code.info();
        let pure = matches!(info.effects, Effects::Pure | Effects::Terminator)
            && !is_collective(op.code)
            || op.code == TileOp::If;
        if !pure || op.results.iter().any(|&v| func.ty(v).is_tile()) {
            errors.ty(format!(
                "expected {what} that only computes on scalars, got `tile.{}`",
                op.code.mnemonic()
            ));
        }
        op.regions.iter().for_each(|&inner| computes(func, inner, what, errors));
    }
}
