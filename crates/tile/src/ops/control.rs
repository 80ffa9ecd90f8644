//! Loops and branches: the types that flow into regions and out of them.

use crate::{Tile, TileOp};
use tessera_ir::{BlockId, Func, OpErrors, OpId, Type, Value};

fn types(func: &Func<Tile>, values: &[Value]) -> Vec<Type> {
    values.iter().map(|&v| func.ty(v).clone()).collect()
}

fn show(types: &[Type]) -> String {
    let list: Vec<_> = types.iter().map(Type::to_string).collect();
    format!("({})", list.join(", "))
}

fn expect(errors: &mut OpErrors, what: &str, wanted: &[Type], got: &[Type]) {
    if wanted != got {
        errors.ty(format!("expected {what} of types {}, got {}", show(wanted), show(got)));
    }
}

/// The types a region yields, where it ends in a yield.
fn yielded(func: &Func<Tile>, region: BlockId) -> Option<Vec<Type>> {
    let end = func.terminator(region)?;
    (func.ops[end].code == TileOp::Yield).then(|| types(func, func.ops[end].group("values")))
}

pub fn verify_for(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let carried = types(func, &op.results);
    expect(errors, "initial values", &carried, &types(func, op.group("init")));
    let args = types(func, &func.blocks[op.regions[0]].args);
    let wanted: Vec<_> = std::iter::once(Type::INDEX).chain(carried.iter().cloned()).collect();
    expect(errors, "loop arguments", &wanted, &args);
    if let Some(got) = yielded(func, op.regions[0]) {
        expect(errors, "the loop to yield values", &carried, &got);
    }
}

pub fn verify_if(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let wanted = types(func, &op.results);
    for (&region, name) in op.regions.iter().zip(["first", "second"]) {
        expect(errors, "branch arguments", &[], &types(func, &func.blocks[region].args));
        if let Some(got) = yielded(func, region) {
            expect(errors, &format!("the {name} branch to yield values"), &wanted, &got);
        }
    }
}

pub fn verify_while(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let carried = types(func, &op.results);
    expect(errors, "initial values", &carried, &types(func, op.group("init")));
    for &region in &op.regions {
        expect(errors, "loop arguments", &carried, &types(func, &func.blocks[region].args));
    }
    if let Some(got) = yielded(func, op.regions[0]) {
        expect(errors, "the condition to yield a value", &[Type::BOOL], &got);
    }
    if let Some(got) = yielded(func, op.regions[1]) {
        expect(errors, "the loop to yield values", &carried, &got);
    }
}
