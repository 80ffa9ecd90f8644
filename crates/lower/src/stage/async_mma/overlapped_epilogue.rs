//! Overlapped epilogue: a finished tile is stored while the next one is computed.
//!
//! Input: a valid function with a persistent loop, whose body has one loop with an MMA and then
//! stores a tile in pieces (`epilogue`). Output: the persistent loop carries the finished tile and
//! its position to its next iteration. There, each iteration of the inner loop stores one piece
//! while its MMA is in flight. The pieces that a short loop leaves are stored after it, and the
//! last tile after the persistent loop. The inner loop carries the number of stored pieces, which
//! says which is next; before the first tile it begins as if all were stored.
//!
//! It does not apply to inner loops with several MMAs: they need their registers between the MMAs,
//! and are long compared to a store.

use super::uses::contains;
use std::collections::BTreeSet;
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Rewriter, Type, Value, ValueDef};
use tessera_numerics::{DType, ScalarFn};
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp};
use tessera_tile::TileOp;

struct OverlapPlan {
    tiles: OpId,
    inner: OpId,
    /// The op of the inner loop's body after which pieces are stored.
    behind: OpId,
    /// The ops of each piece in order.
    pieces: Vec<Vec<OpId>>,
    /// What pieces take of the iteration: the tile first, then its position.
    taken: Vec<Value>,
}

/// The function with overlapped stores; none where there is nothing to overlap.
pub fn overlap(func: &StagedFunc) -> Option<StagedFunc> {
    let plan = plan(func)?;
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    for &id in &func.blocks[func.body].ops {
        match id == plan.tiles {
            true => tiles(&mut rw, &plan, body),
            false => _ = rw.copy_op(id, body),
        }
    }
    Some(rw.new)
}

fn plan(func: &StagedFunc) -> Option<OverlapPlan> {
    let body = &func.blocks[func.body].ops;
    let tiles = body.iter().copied().find(|&id| func.ops[id].code == StagedOp::Tiles)?;
    let block = func.ops[tiles].regions[0];
    let ops = &func.blocks[block].ops;
    let issues: Vec<OpId> =
        func.walk().into_iter().filter(|&id| func.ops[id].code == StagedOp::MmaIssue).collect();
    let [issue] = issues[..] else { return None };
    let inner = ops.iter().copied().find(|&id| contains(func, id, func.ops[issue].block))?;
    let at = ops.iter().position(|&id| id == inner)?;
    if func.ops[inner].code != StagedOp::Tile(TileOp::For)
        || func.ops[issue].block != func.ops[inner].regions[0]
    {
        return None;
    }
    // A piece ends with its TMA store; the ops before it, up to the previous store, belong to it.
    let is = |id: &OpId, code: StagedOp| func.ops[*id].code == code;
    let first = ops.iter().position(|id| is(id, StagedOp::FragPart))?;
    let leaves = |id: &OpId| is(id, StagedOp::BulkStore) || is(id, StagedOp::BulkReduce);
    let last = ops.iter().rposition(leaves)?;
    let mut pieces = vec![Vec::new()];
    for &id in ops.get(first..=last)? {
        pieces.last_mut()?.push(id);
        if leaves(&id) {
            pieces.push(Vec::new());
        }
    }
    pieces.pop();
    let moved: BTreeSet<OpId> = ops[first..=last].iter().copied().collect();
    let parts: Vec<OpId> = moved.iter().copied().filter(|id| is(id, StagedOp::FragPart)).collect();
    let tile = func.ops[parts[0]].operands[0];
    let one = parts.len() == pieces.len() && parts.iter().all(|&p| func.ops[p].operands[0] == tile);
    let narrow = matches!(func.ty(tile).dtype(), DType::BF16 | DType::F16)
        || func.ty(tile).dtype().bytes() == 4;
    if !one || !narrow || first < at {
        return None;
    }
    // All other ops of the iteration may run before the pieces, and none uses their results.
    let mut taken = vec![tile];
    for &id in &moved {
        let op = &func.ops[id];
        if !op.regions.is_empty() {
            return None;
        }
        for &v in &op.operands {
            let of_the_iteration = match func.values[v].def {
                ValueDef::Result(by, _) => func.ops[by].block == block && !moved.contains(&by),
                ValueDef::Arg(of, _) => of == block,
            };
            if of_the_iteration && !taken.contains(&v) {
                taken.push(v);
            }
        }
    }
    let scalars = taken[1..].iter().all(|&v| matches!(func.ty(v), Type::Scalar(_)));
    let rest = ops[last + 1..].iter().all(|&id| !touches_memory(func, id));
    (scalars && rest).then_some(OverlapPlan { tiles, inner, behind: issue, pieces, taken })
}

/// Whether an op would observe that stores happen later.
fn touches_memory(func: &StagedFunc, id: OpId) -> bool {
    use tessera_ir::Effects;
    match tessera_ir::Opcode::info(func.ops[id].code).effects {
        Effects::Pure | Effects::Terminator => false,
        Effects::Read
        | Effects::Write
        | Effects::ReadWrite
        | Effects::Sync
        | Effects::Host
        | Effects::Collective
        | Effects::Control => true,
    }
}

type Rw<'f> = Rewriter<'f, Staged>;

/// What an iteration of the persistent loop has of the previous tile: its elements and position.
struct Before {
    values: Vec<Value>,
    /// How many of its pieces are stored already.
    done: Value,
}

fn tiles(rw: &mut Rw<'_>, plan: &OverlapPlan, into: BlockId) {
    let old = rw.old;
    let op = &old.ops[plan.tiles];
    let loc = op.loc.clone();
    let mut build = rw.builder(into, loc.clone());
    let firsts: Vec<Value> = plan
        .taken
        .iter()
        .map(|&v| {
            let ty = old.ty(v).clone();
            let zero = match ty.dtype() {
                DType::Bool => Attr::Bool(false),
                of if of.is_float() => Attr::Float(0.0),
                _ => Attr::Int(0),
            };
            build.constant(ty, zero)
        })
        .collect();
    let count = plan.pieces.len() as i64;
    let [none, all] = [0, count].map(|n| build.index(n));
    let grid: Vec<Value> = op.group("grid").iter().map(|&v| rw.get(v)).collect();
    let mut inits: Vec<Value> = op.group("init").iter().map(|&v| rw.get(v)).collect();
    let own = inits.len();
    inits.extend(&firsts);
    inits.push(all);
    let types: Vec<Type> = inits.iter().map(|&v| rw.new.ty(v).clone()).collect();
    let mut spec = OpSpec::new(StagedOp::Tiles, &[]).group("grid", &grid).group("init", &inits);
    spec = spec.results(types.clone());
    spec.attrs = op.attrs.clone();
    let new = rw.builder(into, loc.clone()).op(spec).expect("result types are given");
    let (from, to) = (op.regions[0], rw.new.ops[new].regions[0]);
    rw.copy_args(from, to);
    let mut more: Vec<Value> =
        types[own..].iter().map(|ty| rw.new.add_arg(to, ty.clone(), Some("before"))).collect();
    let before = Before { done: more.pop().unwrap_or(none), values: more };

    let moved: BTreeSet<OpId> = plan.pieces.iter().flatten().copied().collect();
    for &id in &old.blocks[from].ops {
        if id == plan.inner {
            inner(rw, plan, &before, to);
        } else if old.ops[id].is_terminator() {
            let mut values: Vec<Value> =
                old.ops[id].group("values").iter().map(|&v| rw.get(v)).collect();
            values.extend(plan.taken.iter().map(|&v| rw.get(v)));
            values.push(none);
            rw.builder(to, loc.clone()).yield_(&values);
        } else if !moved.contains(&id) {
            rw.copy_op(id, to);
        }
    }
    let results = rw.new.ops[new].results.clone();
    for (&v, &r) in op.results.iter().zip(&results) {
        rw.set(v, r);
        rw.new.values[r].name = old.values[v].name.clone();
    }
    let last = Before { done: results[results.len() - 1], values: results[own..].to_vec() };
    rest(rw, plan, &last, into);
}

/// The inner loop, which stores a piece in each iteration while there are any; then the remaining
/// pieces.
fn inner(rw: &mut Rw<'_>, plan: &OverlapPlan, before: &Before, into: BlockId) {
    let old = rw.old;
    let op = &old.ops[plan.inner];
    let loc = op.loc.clone();
    let bounds: Vec<Value> = op.positional().iter().map(|&v| rw.get(v)).collect();
    let mut inits: Vec<Value> = op.group("init").iter().map(|&v| rw.get(v)).collect();
    inits.push(before.done);
    let types: Vec<Type> = inits.iter().map(|&v| rw.new.ty(v).clone()).collect();
    let mut spec = OpSpec::new(op.code, &bounds).group("init", &inits).results(types);
    spec.attrs = op.attrs.clone();
    let new = rw.builder(into, loc.clone()).op(spec).expect("result types are given");
    let (from, to) = (op.regions[0], rw.new.ops[new].regions[0]);
    rw.copy_args(from, to);
    let done = rw.new.add_arg(to, Type::INDEX, Some("done"));
    for &id in &old.blocks[from].ops {
        if old.ops[id].is_terminator() {
            let mut values: Vec<Value> =
                old.ops[id].group("values").iter().map(|&v| rw.get(v)).collect();
            let mut build = rw.builder(to, loc.clone());
            let one = build.index(1);
            values.push(build.ew(ScalarFn::Add, &[done, one]));
            build.yield_(&values);
            continue;
        }
        rw.copy_op(id, to);
        if id == plan.behind {
            let now = Before { done, values: before.values.clone() };
            guarded(rw, plan, &now, to, ScalarFn::Eq);
        }
    }
    let results = rw.new.ops[new].results.clone();
    for (&v, &r) in op.results.iter().zip(&results) {
        rw.set(v, r);
        rw.new.values[r].name = old.values[v].name.clone();
    }
    let left = Before { done: results[results.len() - 1], values: before.values.clone() };
    rest(rw, plan, &left, into);
}

/// All pieces that are not stored yet.
fn rest(rw: &mut Rw<'_>, plan: &OverlapPlan, of: &Before, into: BlockId) {
    guarded(rw, plan, of, into, ScalarFn::Le);
}

/// Each piece whose index compares this way with the number of stored ones, where any is left.
fn guarded(rw: &mut Rw<'_>, plan: &OverlapPlan, of: &Before, into: BlockId, compare: ScalarFn) {
    let loc = rw.old.ops[plan.tiles].loc.clone();
    // In pieces, the values stand for the previous tile; the iteration has its own.
    let own: Vec<(Value, Value)> =
        plan.taken.iter().filter(|&&v| rw.is_mapped(v)).map(|&v| (v, rw.get(v))).collect();
    let mut build = rw.builder(into, loc.clone());
    let all = build.index(plan.pieces.len() as i64);
    let any = build.ew(ScalarFn::Lt, &[of.done, all]);
    when(rw, any, into, |rw, some| {
        for (number, piece) in plan.pieces.iter().enumerate() {
            let mut build = rw.builder(some, loc.clone());
            let number = build.index(number as i64);
            let own = build.ew(compare, &[of.done, number]);
            when(rw, own, some, |rw, block| {
                for (&v, &value) in plan.taken.iter().zip(&of.values) {
                    rw.set(v, value);
                }
                for &id in piece {
                    rw.copy_op(id, block);
                }
            });
        }
    });
    own.into_iter().for_each(|(v, value)| rw.set(v, value));
}

/// A branch without an else region.
fn when(
    rw: &mut Rw<'_>,
    condition: Value,
    into: BlockId,
    write: impl FnOnce(&mut Rw<'_>, BlockId),
) {
    let loc = rw.old.loc.clone();
    let spec = OpSpec::new(StagedOp::Tile(TileOp::If), &[condition]).results(Vec::new());
    let branch = rw.builder(into, loc.clone()).op(spec).expect("it has no results");
    let [then, otherwise] = [0, 1].map(|n| rw.new.ops[branch].regions[n]);
    write(rw, then);
    rw.builder(then, loc.clone()).yield_(&[]);
    rw.builder(otherwise, loc).yield_(&[]);
}
