//! Exchanges the operands of MMAs: `C = A B` becomes `C^T = B^T A^T`.
//!
//! WGMMA reads a right operand of 32-bit elements (tf32) only k-major from shared memory. A left
//! operand can have any layout, through registers. Input: any function. Output: applies to a loop
//! with an MMA whose right operand is not k-major and whose left operand can take its place, and
//! whose accumulator nothing else in the loop uses. The loop accumulates the transposed result.
//! After it the accumulator is transposed back, which only renames where its elements are and moves
//! no data.

use super::super::Staging;
use super::super::seeds::extents;
use super::encode::{self, COLUMNS, ROWS};
use std::collections::BTreeMap;
use tessera_diag::Loc;
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Rewriter, Type, Value};
use tessera_tile::{Tile, TileFunc, TileOp};

type Rw<'f> = Rewriter<'f, Tile>;

/// For each loop, the MMAs whose operands are exchanged, by the index of the carried accumulator.
type Loops = BTreeMap<OpId, BTreeMap<usize, OpId>>;

/// The function with exchanged operands; none where nothing changes.
pub fn sides(func: &TileFunc, staging: &Staging<'_>) -> Option<TileFunc> {
    let mut loops = Loops::new();
    for id in func.walk() {
        if func.ops[id].code == TileOp::For {
            let found = products(func, staging, id);
            if !found.is_empty() {
                loops.insert(id, found);
            }
        }
    }
    if loops.is_empty() {
        return None;
    }
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    for &id in &func.blocks[func.body].ops {
        emit(&mut rw, &loops, id, body);
    }
    Some(rw.new)
}

fn products(func: &TileFunc, staging: &Staging<'_>, id: OpId) -> BTreeMap<usize, OpId> {
    let body = func.ops[id].regions[0];
    let Some(end) = func.terminator(body) else { return BTreeMap::new() };
    let only_user = |v: Value| {
        let mut all = func.walk().into_iter().filter(|&o| func.ops[o].operands.contains(&v));
        all.next().filter(|_| all.next().is_none())
    };
    let mut out = BTreeMap::new();
    for (i, &sums) in func.blocks[body].args[1..].iter().enumerate() {
        let Some(mma) = only_user(sums).filter(|&o| func.ops[o].code == TileOp::Mma) else {
            continue;
        };
        let op = &func.ops[mma];
        let alone = op.block == body
            && op.operands[2] == sums
            && only_user(op.result()) == Some(end)
            && func.ops[end].operands.get(i) == Some(&op.result());
        let shape = extents(func.ty(op.result()));
        // Exchanged, they must be valid operands of WGMMA too.
        let fits =
            shape[1].is_multiple_of(ROWS) && shape[0].is_multiple_of(8) && shape[0] <= COLUMNS;
        if alone && fits && encode::wants_other_sides(func, staging, mma) {
            out.insert(i, mma);
        }
    }
    out
}

fn emit(rw: &mut Rw<'_>, loops: &Loops, id: OpId, into: BlockId) {
    match loops.get(&id) {
        Some(products) => swapped(rw, loops, products, id, into),
        None => {
            rw.copy_op_with(id, into, &mut |rw, inner, block| emit(rw, loops, inner, block));
        }
    }
}

fn swapped(
    rw: &mut Rw<'_>,
    loops: &Loops,
    products: &BTreeMap<usize, OpId>,
    id: OpId,
    into: BlockId,
) {
    let old = rw.old;
    let op = &old.ops[id];
    let loc = op.loc.clone();
    let bounds: Vec<Value> = op.positional().iter().map(|&v| rw.get(v)).collect();
    let mut inits: Vec<Value> = op.group("init").iter().map(|&v| rw.get(v)).collect();
    let mut types: Vec<Type> = op.results.iter().map(|&v| old.ty(v).clone()).collect();
    for &i in products.keys() {
        inits[i] = transposed(rw, inits[i], into, &loc);
        types[i] = other_way(&types[i]);
    }
    let mut spec = OpSpec::new(op.code, &bounds).group("init", &inits).results(types.clone());
    spec.attrs = op.attrs.clone();
    let new = rw.builder(into, loc.clone()).op(spec).expect("result types are given");
    let (from, to) = (op.regions[0], rw.new.ops[new].regions[0]);
    for (i, &arg) in old.blocks[from].args.iter().enumerate() {
        let ty = i.checked_sub(1).map_or_else(|| old.ty(arg).clone(), |i| types[i].clone());
        let value = rw.new.add_arg(to, ty, old.name_of(arg));
        rw.set(arg, value);
    }
    for &inner in &old.blocks[from].ops {
        if !products.values().any(|&mma| mma == inner) {
            emit(rw, loops, inner, to);
            continue;
        }
        let mma = &old.ops[inner];
        let [a, b, sums] = [0, 1, 2].map(|i| rw.get(mma.operands[i]));
        let [a, b] = [a, b].map(|v| transposed(rw, v, to, &mma.loc));
        let mut spec = OpSpec::new(mma.code, &[b, a, sums]);
        spec.attrs = mma.attrs.clone();
        let spec = spec.result(other_way(old.ty(mma.result())));
        let made = rw.builder(to, mma.loc.clone()).value(spec).expect("its type is given");
        rw.set(mma.result(), made);
    }
    let results = rw.new.ops[new].results.clone();
    for (i, (&v, &r)) in op.results.iter().zip(&results).enumerate() {
        let value = match products.contains_key(&i) {
            true => transposed(rw, r, into, &loc),
            false => r,
        };
        rw.set(v, value);
        rw.new.values[value].name = old.values[v].name.clone();
    }
}

/// A tile transposed; a constant stays one.
fn transposed(rw: &mut Rw<'_>, v: Value, into: BlockId, loc: &Loc) -> Value {
    let ty = other_way(rw.new.ty(v));
    let constant = rw.new.def(v).filter(|op| op.code == TileOp::Const);
    let spec = match constant.and_then(|op| op.attr("value").cloned()) {
        Some(value) => OpSpec::new(TileOp::Const, &[]).attr("value", value),
        None => OpSpec::new(TileOp::Transpose, &[v]).attr("perm", Attr::ints([1, 0])),
    };
    rw.builder(into, loc.clone()).value(spec.result(ty)).expect("its type is given")
}

fn other_way(ty: &Type) -> Type {
    match ty {
        Type::Tile { shape, dtype } => {
            Type::Tile { shape: shape.iter().rev().cloned().collect(), dtype: *dtype }
        }
        other => other.clone(),
    }
}
