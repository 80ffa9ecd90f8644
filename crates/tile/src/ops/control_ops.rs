//! Loops and branches: the types that flow into regions and out of them. Staged IR has the same
//! loops and asks the same of them.

use tessera_ir::{Attr, BlockId, Effects, Func, Level, OpErrors, OpId, Opcode, Type, Value};
use tessera_numerics::DType;

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

/// A region that is run for some rows only: it must not see others, nor do anything.
pub fn verify_slow_path<L: Level>(func: &Func<L>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let wanted = types(func, &op.results);
    expect(errors, "initial values", &wanted, &types(func, op.group("init")));
    let region = op.regions[0];
    expect(errors, "region arguments", &[], &types(func, &func.blocks[region].args));
    if let Some(got) = yielded(func, region) {
        expect(errors, "the region to yield values", &wanted, &got);
    }
    let bad = func.ty(op.operands[0]);
    if bad.dtype() != DType::Bool {
        errors.ty(format!("expected a condition of bool, got {bad}"));
    }
    let rows = bad.shape().first().cloned();
    let has_rows = |ty: &Type| ty.is_tile() && ty.shape().first().cloned() == rows;
    if let Some(ty) = wanted.iter().find(|ty| !has_rows(ty)) {
        errors.ty(format!("expected results with the rows of {bad}, got {ty}"));
    }
    for &inner in &func.blocks[region].ops {
        let inner = &func.ops[inner];
        let (name, info) = (inner.code.mnemonic(), inner.code.info());
        let computes =
            inner.regions.is_empty() && matches!(info.effects, Effects::Pure | Effects::Terminator);
        // A nested `slow_path` is verified by itself.
        if !computes && name != "slow_path" {
            errors.ty(format!("expected a region that only computes, got `{name}`"));
        }
        // Whether all of a tile's rows are one for the first axis of another: then none looks elsewhere.
        let axis = inner.attr("axis").and_then(Attr::as_int);
        let across = match name {
            "reduce" | "argreduce" | "scan" => axis == Some(0),
            "expand" => axis == Some(0) && inner.operands.iter().any(|&v| has_rows(func.ty(v))),
            "transpose" => inner.attr("perm").and_then(Attr::as_ints).is_none_or(|p| p[0] != 0),
            "reshape" => inner.results.iter().any(|&v| !has_rows(func.ty(v))),
            "mma" => !has_rows(func.ty(inner.operands[0])),
            _ => false,
        };
        if across {
            errors.ty(format!(
                "expected rows that do not look at each other, got `{name}` across them"
            ));
        }
    }
}
