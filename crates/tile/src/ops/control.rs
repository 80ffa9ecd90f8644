//! Loops and branches: the types that flow into regions and out of them. Staged IR has the same
//! loops and asks the same of them.

use tessera_ir::{BlockId, Func, Level, OpErrors, OpId, Opcode, Type, Value};

fn types<L: Level>(func: &Func<L>, values: &[Value]) -> Vec<Type> {
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

/// The types a region yields, where it ends in a yield: of the ops that end a block, the one that
/// takes values.
fn yielded<L: Level>(func: &Func<L>, region: BlockId) -> Option<Vec<Type>> {
    let end = &func.ops[func.terminator(region)?];
    let yields = end.code.info().groups.iter().any(|g| g.name == "values");
    yields.then(|| types(func, end.group("values")))
}

pub fn verify_for<L: Level>(func: &Func<L>, id: OpId, errors: &mut OpErrors) {
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

pub fn verify_if<L: Level>(func: &Func<L>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let wanted = types(func, &op.results);
    for (&region, name) in op.regions.iter().zip(["first", "second"]) {
        expect(errors, "branch arguments", &[], &types(func, &func.blocks[region].args));
        if let Some(got) = yielded(func, region) {
            expect(errors, &format!("the {name} branch to yield values"), &wanted, &got);
        }
    }
}

pub fn verify_while<L: Level>(func: &Func<L>, id: OpId, errors: &mut OpErrors) {
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
