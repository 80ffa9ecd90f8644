//! Dead code elimination in derived functions: ops without a use, and parameters that nothing
//! reads.

use tessera_ir::{Attr, Effects, OpId, Opcode, Value, ValueDef};
use tessera_numerics::ScalarFn;
use tessera_support::SideTable;
use tessera_tile::{Tile, TileFunc, TileOp};

fn counts(func: &TileFunc) -> SideTable<Value, usize> {
    let mut counts = SideTable::new(0);
    for id in func.walk() {
        for &v in &func.ops[id].operands {
            *counts.get_mut(v) += 1;
        }
    }
    counts
}

/// Whether an op does nothing but give its results.
fn is_quiet(func: &TileFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    match Opcode::<Tile>::info(op.code).effects {
        Effects::Pure | Effects::Read | Effects::Terminator => true,
        // A `while` may not end.
        Effects::Control if op.code == TileOp::While => false,
        Effects::Control => {
            op.regions.iter().all(|&r| func.blocks[r].ops.iter().all(|&i| is_quiet(func, i)))
        }
        Effects::Write
        | Effects::ReadWrite
        | Effects::Sync
        | Effects::Host
        | Effects::Collective => false,
    }
}

/// Removes ops whose results are unused, and unused results of loops and branches.
pub fn sweep(func: &mut TileFunc) {
    loop {
        let counts = counts(func);
        let dead = |id: &OpId| {
            let op = &func.ops[*id];
            !op.is_terminator() && op.results.iter().all(|&v| counts[v] == 0) && is_quiet(func, *id)
        };
        let gone: Vec<OpId> = func.walk().into_iter().filter(dead).collect();
        for &id in &gone {
            func.erase(id);
        }
        let narrowed = narrow(func);
        if gone.is_empty() && !narrowed {
            return;
        }
    }
}

/// Drops unused results of loops and branches; whether there were any. A carried value is dropped
/// where only its own next value depends on it.
fn narrow(func: &mut TileFunc) -> bool {
    let counts = counts(func);
    for id in func.walk() {
        let op = &func.ops[id];
        if !matches!(op.code, TileOp::For | TileOp::If) {
            continue;
        }
        for place in 0..op.results.len() {
            if counts[op.results[place]] > 0 || (op.code == TileOp::For && !alone(func, id, place))
            {
                continue;
            }
            drop_result(func, id, place);
            return true;
        }
    }
    false
}

/// Whether everything made of a carried value ends in its own next value.
fn alone(func: &TileFunc, id: OpId, place: usize) -> bool {
    let body = func.ops[id].regions[0];
    let mut tainted = vec![func.blocks[body].args[place + 1]];
    let mut ok = true;
    func.walk_block(body, &mut |inner| {
        let op = &func.ops[inner];
        let takes = op.operands.iter().any(|v| tainted.contains(v));
        if !takes {
            return;
        }
        if op.code == TileOp::Yield && op.block == body {
            let others = op.operands.iter().enumerate().filter(|(i, _)| *i != place);
            ok &= !others.into_iter().any(|(_, v)| tainted.contains(v));
        } else if op.regions.is_empty() && is_quiet(func, inner) && !op.is_terminator() {
            tainted.extend(op.results.iter().copied());
        } else {
            ok = false;
        }
    });
    ok
}

fn drop_result(func: &mut TileFunc, id: OpId, place: usize) {
    let looped = func.ops[id].code == TileOp::For;
    func.ops[id].results.remove(place);
    for (i, &v) in func.ops[id].results.clone().iter().enumerate() {
        func.values[v].def = ValueDef::Result(id, i);
    }
    for region in func.ops[id].regions.clone() {
        let end = func.terminator(region);
        if looped {
            // The argument stays an orphan, used by ops that go with it: they are dead now.
            let arg = func.blocks[region].args.remove(place + 1);
            for (i, &v) in func.blocks[region].args.clone().iter().enumerate() {
                func.values[v].def = ValueDef::Arg(region, i);
            }
            let init = func.ops[id].operands.remove(place + 3);
            func.ops[id].group_lens[0] -= 1;
            func.replace_uses(arg, init);
        }
        if let Some(end) = end {
            func.ops[end].operands.remove(place);
            func.ops[end].group_lens[0] -= 1;
        }
    }
}

/// `a + mma(x, y, 0)` is `mma(x, y, a)`: the sum is taken along.
pub fn join_products(func: &mut TileFunc) {
    for id in func.walk() {
        let op = &func.ops[id];
        if op.code != TileOp::Ew(ScalarFn::Add) {
            continue;
        }
        let counts = counts(func);
        let product = |v: Value| {
            let inner = func.def(v).filter(|p| p.code == TileOp::Mma && p.block == op.block)?;
            let zero = func.def(inner.operands[2]).filter(|z| z.code == TileOp::Const)?;
            let none = matches!(zero.attr("value"), Some(Attr::Float(x)) if *x == 0.0);
            (none && counts[v] == 1).then(|| (inner.operands.clone(), inner.attrs.clone()))
        };
        let (a, b) = (op.operands[0], op.operands[1]);
        let Some(((factors, attrs), rest)) =
            product(b).map(|p| (p, a)).or_else(|| product(a).map(|p| (p, b)))
        else {
            continue;
        };
        let op = &mut func.ops[id];
        op.code = TileOp::Mma;
        op.operands = vec![factors[0], factors[1], rest];
        op.attrs = attrs;
    }
}

/// Drops unused parameters, except those in `kept`; returns which are left.
pub fn drop_params(func: &mut TileFunc, kept: &dyn Fn(usize) -> bool) -> Vec<bool> {
    let counts = counts(func);
    let left: Vec<bool> =
        func.params().iter().enumerate().map(|(i, &p)| kept(i) || counts[p] > 0).collect();
    let body = func.body;
    let mut place = 0;
    func.blocks[body].args.retain(|_| {
        place += 1;
        left[place - 1]
    });
    for (i, v) in func.params().to_vec().into_iter().enumerate() {
        func.values[v].def = ValueDef::Arg(body, i);
    }
    left
}
