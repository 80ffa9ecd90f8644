//! Applies Tile IR's rules to an op of the family: the op alone, without layouts, in a function of
//! its own. So a rule on shapes and dtypes exists once, in the tile crate.

use crate::Staged;
use std::collections::BTreeMap;
use tessera_ir::{BlockId, Func, OpErrors, OpId, OpSpec, Opcode, Type, Value};
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
        | Type::OrderBarrier
        | Type::Event => None,
    }
}

/// The op as one of Tile IR, in a function that holds nothing else: its operands are parameters, and
/// so are the values that a region of it takes from outside. Not for control flow and terminators.
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
    let new = alone.insert(body, 0, spec, op.loc.clone())?;
    alone.insert(body, 1, OpSpec::new(TileOp::Return, &[]), op.loc.clone())?;
    let regions = alone.ops[new].regions.clone();
    let mut regions_of = Regions { func, alone, map: BTreeMap::new() };
    for (&from, to) in op.regions.iter().zip(regions) {
        regions_of.block(from, to)?;
    }
    Ok((regions_of.alone, new))
}

/// Copies the regions of an op, which compute on scalars.
struct Regions<'f> {
    func: &'f Func<Staged>,
    alone: Func<Tile>,
    map: BTreeMap<Value, Value>,
}

impl Regions<'_> {
    fn block(&mut self, from: BlockId, to: BlockId) -> Result<(), String> {
        let func = self.func;
        for &arg in &func.blocks[from].args {
            let new = self.alone.add_arg(to, func.ty(arg).clone(), func.name_of(arg));
            self.map.insert(arg, new);
        }
        for (at, &id) in func.blocks[from].ops.iter().enumerate() {
            let op = &func.ops[id];
            let code = op.code.as_tile().ok_or("expected ops of Tile IR in a region")?;
            let operands: Vec<Value> = op.operands.iter().map(|&v| self.value(v)).collect();
            let positional = op.positional().len();
            let mut spec = OpSpec::<Tile>::new(code, &operands[..positional]);
            let mut start = positional;
            for (row, &len) in code.info().groups.iter().zip(&op.group_lens) {
                spec = spec.group(row.name, &operands[start..start + len]);
                start += len;
            }
            spec.attrs = op.attrs.clone();
            spec.results = Some(op.results.iter().filter_map(|&v| erased(func.ty(v))).collect());
            let new = self.alone.insert(to, at, spec, op.loc.clone())?;
            self.map.extend(op.results.iter().copied().zip(self.alone.ops[new].results.clone()));
            let inner: Vec<BlockId> = self.alone.ops[new].regions.clone();
            for (&from, to) in op.regions.iter().zip(inner) {
                self.block(from, to)?;
            }
        }
        Ok(())
    }

    /// A value of the region; one from outside is another parameter.
    fn value(&mut self, v: Value) -> Value {
        if let Some(&known) = self.map.get(&v) {
            return known;
        }
        let body = self.alone.body;
        let new = self.alone.add_arg(body, self.func.ty(v).clone(), self.func.name_of(v));
        self.map.insert(v, new);
        new
    }
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
