//! Queries of transforms: the uses of a value, the captures of a region, and dead code.

use crate::{Graph, GraphFunc, GraphModule, GraphOp};
use std::collections::BTreeSet;
use tessera_ir::{Attr, BlockId, Effects, Op, OpId, Opcode, Value, ValueDef};
use tessera_support::SideTable;

/// Every use of every value: the op and the operand's place, in the order of the text. Blocks are
/// in order of definition, so that `walk` is a topological order.
pub fn uses(func: &GraphFunc) -> SideTable<Value, Vec<(OpId, usize)>> {
    let mut out = SideTable::new(Vec::new());
    for id in func.walk() {
        for (place, &value) in func.ops[id].operands.iter().enumerate() {
            out.get_mut(value).push((id, place));
        }
    }
    out
}

/// The block that a value is made in.
pub fn home(func: &GraphFunc, value: Value) -> BlockId {
    match func.values[value].def {
        ValueDef::Result(op, _) => func.ops[op].block,
        ValueDef::Arg(block, _) => block,
    }
}

/// The values from outside that a region uses, in order of first use.
pub fn captures(func: &GraphFunc, region: BlockId) -> Vec<Value> {
    let mut out = Vec::new();
    func.walk_block(region, &mut |id| {
        for &value in &func.ops[id].operands {
            if !func.block_within(home(func, value), region) && !out.contains(&value) {
                out.push(value);
            }
        }
    });
    out
}

/// What a function returns.
pub fn returned(func: &GraphFunc) -> &[Value] {
    func.terminator(func.body).map_or(&[], |id| &func.ops[id].operands)
}

/// The attributes of `call` and `composite` that name functions.
pub const CALLED: [&str; 6] = ["callee", "decomposition", "fwd", "bwd", "jvp", "plain"];

/// The function that an op runs: the callee of a call, the decomposition of a composite.
pub fn called(op: &Op<Graph>) -> Option<&str> {
    let name = match op.code {
        GraphOp::Call => "callee",
        GraphOp::Composite => "decomposition",
        _ => return None,
    };
    op.attr(name).and_then(Attr::as_ref_name)
}

/// The functions that each function calls, callees of derivatives included.
fn callees(func: &GraphFunc) -> BTreeSet<String> {
    let calls = func.walk().into_iter().filter(|&id| called(&func.ops[id]).is_some());
    calls
        .flat_map(|id| {
            let attrs = &func.ops[id].attrs;
            CALLED
                .into_iter()
                .filter_map(|n| attrs.get(n).and_then(Attr::as_ref_name))
                .map(str::to_string)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Whether nothing of the op is seen but its results. `pure_callee` answers for called functions.
pub fn is_pure(func: &GraphFunc, id: OpId, pure_callee: &dyn Fn(&str) -> bool) -> bool {
    let op = &func.ops[id];
    let inside = || {
        let mut pure = true;
        for &region in &op.regions {
            func.walk_block(region, &mut |inner| pure &= is_pure_alone(func, inner, pure_callee));
        }
        pure
    };
    is_pure_alone(func, id, pure_callee) && inside()
}

fn is_pure_alone(func: &GraphFunc, id: OpId, pure_callee: &dyn Fn(&str) -> bool) -> bool {
    let op = &func.ops[id];
    match (op.code, op.code.info().effects) {
        (GraphOp::Call | GraphOp::Composite, _) => called(op).is_some_and(pure_callee),
        (_, Effects::Pure | Effects::Collective | Effects::Control | Effects::Terminator) => true,
        (
            _,
            Effects::Read | Effects::Write | Effects::ReadWrite | Effects::Sync | Effects::Host,
        ) => false,
    }
}

/// The functions of a module that do nothing but give results.
pub fn pure_functions(module: &GraphModule) -> BTreeSet<String> {
    let mut pure: BTreeSet<String> = module.funcs.iter().map(|f| f.name.clone()).collect();
    loop {
        let impure: Vec<_> = module
            .funcs
            .iter()
            .filter(|f| pure.contains(&f.name))
            .filter(|f| !f.walk().iter().all(|&id| is_pure_alone(f, id, &|n| pure.contains(n))))
            .map(|f| f.name.clone())
            .collect();
        if impure.is_empty() {
            return pure;
        }
        impure.iter().for_each(|name| {
            pure.remove(name);
        });
    }
}

/// Dead code elimination: removes ops whose results are unused. Loops keep their carried values.
/// `true` if any was removed.
pub fn dce(func: &mut GraphFunc, pure_callee: &dyn Fn(&str) -> bool) -> bool {
    let mut counts: SideTable<Value, usize> = SideTable::new(0);
    let order = func.walk();
    for &id in &order {
        for &value in &func.ops[id].operands {
            *counts.get_mut(value) += 1;
        }
    }
    let mut gone: SideTable<OpId, bool> = SideTable::new(false);
    let mut any = false;
    // Uses come after definitions, and ops after the op that contains them: one backward walk is
    // enough.
    for &id in order.iter().rev() {
        let op = &func.ops[id];
        if op.is_terminator()
            || op.results.iter().any(|&v| counts[v] > 0)
            || !is_pure(func, id, pure_callee)
        {
            continue;
        }
        any = true;
        gone.set(id, true);
        let mut dropped = vec![id];
        for &region in &op.regions {
            func.walk_block(region, &mut |inner| dropped.push(inner));
        }
        for inner in dropped {
            // What an inner op used was already given back if it went before.
            if inner == id || !gone[inner] {
                for &value in &func.ops[inner].operands {
                    *counts.get_mut(value) -= 1;
                }
            }
            gone.set(inner, true);
        }
    }
    for block in func.blocks.ids().collect::<Vec<_>>() {
        func.blocks[block].ops.retain(|&op| !gone[op]);
    }
    any
}

/// The functions that `roots` reach by calls, derivative rules included; the roots too.
pub fn reached(module: &GraphModule, roots: &[&str]) -> BTreeSet<String> {
    let mut reached: BTreeSet<String> = roots.iter().map(|r| r.to_string()).collect();
    let mut open: Vec<String> = reached.iter().cloned().collect();
    while let Some(name) = open.pop() {
        for callee in module.func(&name).map(callees).unwrap_or_default() {
            if reached.insert(callee.clone()) {
                open.push(callee);
            }
        }
    }
    reached
}

/// [`dce`] in every function, and functions that `roots` do not reach go.
pub fn dce_module(module: &mut GraphModule, roots: &[&str]) -> bool {
    let pure = pure_functions(module);
    let mut changed = false;
    for func in &mut module.funcs {
        changed |= dce(func, &|name| pure.contains(name));
    }
    let reached = reached(module, roots);
    let before = module.funcs.len();
    module.funcs.retain(|f| reached.contains(&f.name));
    changed || module.funcs.len() != before
}

/// A function name that the module does not have: `base`, or `base.1`, `base.2` ….
pub fn fresh_name(module: &GraphModule, base: &str) -> String {
    let free = |name: &str| module.func(name).is_none();
    if free(base) {
        return base.to_string();
    }
    (1..).map(|i| format!("{base}.{i}")).find(|n| free(n)).unwrap_or_else(|| base.to_string())
}

/// The functions in an order in which callees stand before callers; `Err` is a function that calls
/// itself.
pub fn call_order(module: &GraphModule) -> Result<Vec<usize>, String> {
    let mut state = vec![0u8; module.funcs.len()];
    let mut out = Vec::new();
    fn visit(
        module: &GraphModule,
        at: usize,
        state: &mut [u8],
        out: &mut Vec<usize>,
    ) -> Result<(), String> {
        match state[at] {
            0 => state[at] = 1,
            1 => return Err(module.funcs[at].name.clone()),
            _ => return Ok(()),
        }
        for name in callees(&module.funcs[at]) {
            if let Some(next) = module.funcs.iter().position(|f| f.name == name) {
                visit(module, next, state, out)?;
            }
        }
        state[at] = 2;
        out.push(at);
        Ok(())
    }
    for at in 0..module.funcs.len() {
        visit(module, at, &mut state, &mut out)?;
    }
    Ok(out)
}
