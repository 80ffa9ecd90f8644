//! Applies Tile IR's rules to an op of the family: the op alone, without layouts, in a function of
//! its own. So a rule on shapes and dtypes exists once, in the tile crate.

use crate::Staged;
use tessera_ir::{Func, OpErrors, OpId, OpSpec, Opcode, Type};
use tessera_tile::{Tile, TileOp};

/// The type as Tile IR knows it. `None` for what it has nothing like.
fn erased(ty: &Type) -> Option<Type> {
    match ty {
        Type::Scalar(_) | Type::View { .. } | Type::Buf { .. } => Some(ty.clone()),
        Type::Frag { .. } => Some(ty.without_layout()),
        Type::Smem { shape, dtype, .. } => Some(Type::Buf { shape: shape.clone(), dtype: *dtype }),
        Type::Tile { .. }
        | Type::Tensor { .. }
        | Type::Pipeline { .. }
        | Type::Stage { .. }
        | Type::Pending(_)
        | Type::OrderBarrier => None,
    }
}

/// The op as one of Tile IR, in a function that holds nothing else: its operands are parameters.
/// Not for ops with regions, and not for terminators.
pub fn tile_alone(func: &Func<Staged>, id: OpId) -> Result<(Func<Tile>, OpId), String> {
    let op = &func.ops[id];
    let Some(code) = op.code.as_tile() else { return Err("expected an op of Tile IR".into()) };
    let mut alone = Func::<Tile>::new(func.name.clone());
    if let Some(kind) = func.attrs.get("kind") {
        alone.attrs.set("kind", kind.clone());
    }
    let body = alone.body;
    // `dim` names a dimension of a parameter.
    if code == TileOp::Dim {
        for &param in func.params() {
            alone.add_arg(body, func.ty(param).clone(), None);
        }
    }
    let mut arg = |v| {
        let ty = erased(func.ty(v));
        let ty = ty.ok_or_else(|| {
            format!("expected scalars, tiles and memory in an op of Tile IR, got {}", func.ty(v))
        })?;
        Ok::<_, String>(alone.add_arg(body, ty, func.name_of(v)))
    };
    let operands = op.positional().iter().map(|&v| arg(v)).collect::<Result<Vec<_>, _>>()?;
    let mut spec = OpSpec::<Tile>::new(code, &operands);
    for group in code.info().groups {
        let values = op.group(group.name).iter().map(|&v| arg(v)).collect::<Result<Vec<_>, _>>()?;
        spec = spec.group(group.name, &values);
    }
    spec.attrs = op.attrs.clone();
    spec.results = Some(op.results.iter().filter_map(|&v| erased(func.ty(v))).collect());
    let id = alone.insert(body, 0, spec, op.loc.clone())?;
    alone.insert(body, 1, OpSpec::new(TileOp::Return, &[]), op.loc.clone())?;
    Ok((alone, id))
}

/// Reports what Tile IR objects to.
pub(crate) fn check(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    match tile_alone(func, id) {
        Err(why) => errors.ty(why),
        Ok((alone, _)) => {
            if let Err(found) = tessera_ir::verify(&alone) {
                found.iter().for_each(|d| errors.push(d.code, d.message.clone()));
            }
        }
    }
}
