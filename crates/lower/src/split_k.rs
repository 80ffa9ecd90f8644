//! Split-K: a group kernel whose loop of MMAs only adds up becomes two. In the first, `k_splits`
//! groups share the iterations of each group of the kernel and store their sums; the second adds
//! these in their order and does what follows the loop. For kernels with long sums and few groups.
//!
//! Input: a group kernel after the tile passes, with a grid of at most two axes, one loop of MMAs at
//! the top, and nothing before its end that has an effect. Every value that the loop carries must be
//! a sum: an accumulator of MMAs that may be added in any order, or of additions of what does not depend on carried values.
//! Sums are in another order than in the kernel, and in the same one in every launch.
//!
//! Must not: change an access, or when the kernel writes.

use crate::canonicalise::Canonicalise;
use crate::facts::{subtree, yielded};
use std::collections::BTreeSet;
use tessera_diag::Loc;
use tessera_ir::{
    Attr, Attrs, BlockId, Dim, DimExpr, Effects, OpId, OpSpec, Opcode, Pass, PassContext,
    Privilege, Rewriter, Type, Value, ValueDef,
};
use tessera_numerics::{DType, NumType, ScalarFn};
use tessera_tile::{KernelKind, Tile, TileBuild, TileFunc, TileOp, kind_of};

/// The two kernels. Both have the parameters of the original, and then the arrays of the sums, of
/// `[k_splits, groups]` and the axes of a sum.
#[derive(Clone, Debug)]
pub struct SplitK {
    /// Of the grid of the original, with `k_splits` groups along its third axis.
    pub parts: TileFunc,
    /// Of the grid of the original.
    pub rest: TileFunc,
    /// The shape and dtype of each sum.
    pub sums: Vec<(Vec<i64>, DType)>,
    /// The loop's bounds and step, where they follow from sizes.
    pub bounds: [Option<DimExpr>; 3],
}

/// The axis of the grid along which groups share a loop.
const AXIS: i64 = 2;
/// Parts whose loads are in flight together in the second kernel; those beyond the last read zeros.
const TOGETHER: i64 = 4;
/// The class of MMAs whose products are added in the order of k.
const IN_ORDER: &str = "seq";
/// The names of the first axes of the arrays of sums.
pub const SPLITS: &str = "k_splits";
pub const GROUPS: &str = "k_split_groups";

pub fn split_k(func: &TileFunc) -> Option<SplitK> {
    if kind_of(func) == Some(KernelKind::Lane) || is_named(func) {
        return None;
    }
    let mut grid = func.attrs.get("grid").and_then(Attr::as_exprs)?;
    if grid.len() > AXIS as usize && grid.drain(AXIS as usize..).any(|e| e != DimExpr::Const(1)) {
        return None;
    }
    grid.resize(AXIS as usize, DimExpr::Const(1));
    let at = the_loop(func)?;
    let op = &func.ops[at];
    let sums = op.results.iter().map(|&r| Some((func.ty(r).static_shape()?, func.ty(r).dtype())));
    let sums: Vec<_> = sums.collect::<Option<_>>()?;
    if !sums.iter().all(|(shape, dtype)| (1..=3).contains(&shape.len()) && adds(*dtype)) {
        return None;
    }
    let bounds = [0, 1, 2].map(|i| tessera_tile::dim_expr_of(func, op.operands[i]));
    let parts = parts(func, at, &sums, grid);
    let rest = rest(func, at, &sums);
    Some(SplitK { parts, rest, sums, bounds })
}

/// Whether a parameter already has a dim of one of the names.
fn is_named(func: &TileFunc) -> bool {
    let named = |dim: &Dim| matches!(dim, Dim::Expr(e) if e.symbols().iter().any(|s| **s == *SPLITS || **s == *GROUPS));
    func.params().iter().any(|&p| func.ty(p).shape().iter().any(named))
}

/// Accumulators in which rounding does not depend on how many parts there are.
fn adds(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::I32 | DType::I64)
}

/// The one loop at the top that has MMAs and only adds up.
fn the_loop(func: &TileFunc) -> Option<OpId> {
    let has_mma = |id: &OpId| subtree(func, *id).iter().any(|&o| func.ops[o].code == TileOp::Mma);
    let top = &func.blocks[func.body].ops;
    let mut found = top.iter().filter(|id| has_mma(id));
    let (&id, None) = (found.next()?, found.next()) else { return None };
    let op = &func.ops[id];
    if op.code != TileOp::For || op.results.is_empty() {
        return None;
    }
    // What is there before the loop's end runs in both kernels.
    let until = top.iter().position(|&o| o == id)?;
    let quiet = |o: &OpId| {
        subtree(func, *o).iter().all(|&o| {
            let op = &func.ops[o];
            let quiet = match op.code.info().effects {
                Effects::Pure | Effects::Read | Effects::Control => true,
                Effects::Terminator => op.code == TileOp::Yield,
                Effects::Write
                | Effects::ReadWrite
                | Effects::Sync
                | Effects::Host
                | Effects::Collective => false,
            };
            quiet && !is_on_axis(func, o)
        })
    };
    let mut after = top[until + 1..].iter().flat_map(|&o| subtree(func, o));
    if !top[..=until].iter().all(quiet) || after.any(|o| is_on_axis(func, o)) {
        return None;
    }
    let body = op.regions[0];
    let carried: BTreeSet<Value> = func.blocks[body].args[1..].iter().copied().collect();
    let mut sums = func.blocks[body].args[1..].iter().zip(yielded(func, body));
    sums.all(|(&arg, &end)| is_sum(func, body, arg, end, &carried)).then_some(id)
}

fn is_on_axis(func: &TileFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    matches!(op.code, TileOp::ProgramId | TileOp::NumPrograms)
        && op.attr("axis").and_then(Attr::as_int).is_none_or(|axis| axis >= AXIS)
}

/// Whether `end` is `arg` and what does not depend on carried values, added to it, and nothing else
/// in the loop uses the sum before its end.
fn is_sum(
    func: &TileFunc,
    body: BlockId,
    arg: Value,
    end: Value,
    carried: &BTreeSet<Value>,
) -> bool {
    let uses = |v: Value| {
        let mut count = 0;
        func.walk_block(body, &mut |o| {
            count += func.ops[o].operands.iter().filter(|&&w| w == v).count();
        });
        count
    };
    let mut at = end;
    while at != arg {
        let Some(op) = func.def(at).filter(|op| op.block == body) else { return false };
        let (next, others): (Value, Vec<Value>) = match op.code {
            TileOp::Mma if op.attr("class").and_then(Attr::as_word) != Some(IN_ORDER) => {
                let others = op.operands.iter().enumerate().filter(|(i, _)| *i != 2);
                (op.operands[2], others.map(|(_, &v)| v).collect())
            }
            TileOp::Ew(ScalarFn::Add) => match op.operands[..] {
                [a, b] if depends(func, a, body, carried) => (a, vec![b]),
                [a, b] => (b, vec![a]),
                _ => return false,
            },
            _ => return false,
        };
        // A sum that something else reads is more than a sum.
        if uses(at) != 1 || others.iter().any(|&v| depends(func, v, body, carried)) {
            return false;
        }
        at = next;
    }
    uses(arg) == 1 && end != arg
}

/// Whether a value depends on what the loop carries.
fn depends(func: &TileFunc, v: Value, body: BlockId, carried: &BTreeSet<Value>) -> bool {
    let (mut open, mut seen) = (vec![v], BTreeSet::new());
    while let Some(v) = open.pop() {
        if carried.contains(&v) {
            return true;
        }
        match func.values[v].def {
            ValueDef::Result(id, _) if func.block_within(func.ops[id].block, body) => {
                if seen.insert(id) {
                    subtree(func, id).iter().for_each(|&o| open.extend(&func.ops[o].operands));
                }
            }
            ValueDef::Result(..) | ValueDef::Arg(..) => {}
        }
    }
    false
}

type Rw<'f> = Rewriter<'f, Tile>;

/// A copy of the function up to its loop, with parameters for the sums.
fn begun<'f>(
    func: &'f TileFunc,
    sums: &[(Vec<i64>, DType)],
    privilege: Privilege,
) -> (Rw<'f>, Vec<Value>) {
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    let mut arrays = Vec::new();
    for (i, (shape, dtype)) in sums.iter().enumerate() {
        let mut dims = vec![Dim::Expr(DimExpr::sym(SPLITS)), Dim::Expr(DimExpr::sym(GROUPS))];
        dims.extend(shape.iter().map(|&n| Dim::Static(n)));
        let ty = Type::View { dims, elem: NumType::plain(*dtype), privilege };
        arrays.push(rw.new.add_arg(body, ty, Some(&format!("k_split_sums{i}"))));
    }
    (rw, arrays)
}

/// The number of a group of the original's grid.
fn group(rw: &mut Rw<'_>, loc: &Loc) -> Value {
    let body = rw.new.body;
    let mut build = rw.builder(body, loc.clone());
    let mut axis = |code, axis: i64| {
        let spec = OpSpec::new(code, &[]).attr("axis", Attr::Int(axis)).result(Type::INDEX);
        build.value(spec).expect("the result type is given")
    };
    let first = axis(TileOp::ProgramId, 0);
    let many = axis(TileOp::NumPrograms, 1);
    let second = axis(TileOp::ProgramId, 1);
    let rows = build.ew(ScalarFn::Mul, &[first, many]);
    build.ew(ScalarFn::Add, &[rows, second])
}

/// The places of a sum in its array: all of the last axes.
fn extent(shape: &[i64]) -> Vec<i64> {
    [0, 0].into_iter().chain(shape.iter().copied()).collect()
}

/// Marks an access of a sum as inside its array along all axes but that of parts.
fn bounded(rw: &mut Rw<'_>, id: OpId, parts: &str, rank: usize) {
    let bounds = Attr::words([parts].into_iter().chain((0..=rank).map(|_| "inside")));
    rw.new.ops[id].attrs.set("bounds", bounds);
}

fn last(rw: &Rw<'_>, block: BlockId) -> Option<OpId> {
    rw.new.blocks[block].ops.last().copied()
}

fn finished(mut new: TileFunc) -> TileFunc {
    // Removes what only the other kernel needs; it has nothing to refuse.
    let _ = Canonicalise.run(&mut new, &mut PassContext::default());
    new
}

fn parts(
    func: &TileFunc,
    at: OpId,
    sums: &[(Vec<i64>, DType)],
    mut grid: Vec<DimExpr>,
) -> TileFunc {
    let (mut rw, arrays) = begun(func, sums, Privilege::Write);
    let body = rw.new.body;
    for &id in func.blocks[func.body].ops.iter().take_while(|&&id| id != at) {
        rw.copy_op(id, body);
    }
    let op = &func.ops[at];
    let loc = &op.loc;
    let [first, last_, step] = [0, 1, 2].map(|i| rw.get(op.operands[i]));
    let mut build = rw.builder(body, loc.clone());
    let spec =
        OpSpec::new(TileOp::ProgramId, &[]).attr("axis", Attr::Int(AXIS)).result(Type::INDEX);
    let part = build.value(spec).expect("the result type is given");
    let splits = build.dim(SPLITS);
    // Steps in all, rounded up, and of one part.
    let span = build.ew(ScalarFn::Sub, &[first, last_]);
    let less = build.ew(ScalarFn::FloorDiv, &[span, step]);
    let fewer = build.ew(ScalarFn::FloorDiv, &[less, splits]);
    let each = build.ew(ScalarFn::Neg, &[fewer]);
    let length = build.ew(ScalarFn::Mul, &[each, step]);
    let before = build.ew(ScalarFn::Mul, &[part, length]);
    let begin = build.ew(ScalarFn::Add, &[first, before]);
    let end = build.ew(ScalarFn::Add, &[begin, length]);
    let end = build.ew(ScalarFn::Minimum, &[end, last_]);
    let zeros: Vec<Value> = sums
        .iter()
        .map(|(shape, dtype)| {
            let zero = if dtype.is_float() { Attr::Float(0.0) } else { Attr::Int(0) };
            build.constant(Type::tile(shape, *dtype), zero)
        })
        .collect();
    let looped = rw.copy_op(at, body);
    let operands = &mut rw.new.ops[looped].operands;
    operands[..2].copy_from_slice(&[begin, end]);
    let inits = operands.len() - zeros.len();
    operands[inits..].copy_from_slice(&zeros);
    let results = rw.new.ops[looped].results.clone();
    let group = group(&mut rw, loc);
    for ((&array, &sum), (shape, _)) in arrays.iter().zip(&results).zip(sums) {
        let mut build = rw.builder(body, loc.clone());
        let zero = build.index(0);
        let places: Vec<Value> =
            [part, group].into_iter().chain(shape.iter().map(|_| zero)).collect();
        build.store(array, sum, &places, &extent(shape));
        if let Some(id) = last(&rw, body) {
            bounded(&mut rw, id, "inside", shape.len());
        }
    }
    rw.builder(body, loc.clone()).return_();
    grid.push(DimExpr::sym(SPLITS));
    let mut new = rw.new;
    new.name = format!("{}_parts", func.name);
    new.attrs.set("grid", Attr::exprs(grid));
    finished(new)
}

fn rest(func: &TileFunc, at: OpId, sums: &[(Vec<i64>, DType)]) -> TileFunc {
    let (mut rw, arrays) = begun(func, sums, Privilege::Read);
    let body = rw.new.body;
    for &id in &func.blocks[func.body].ops {
        if id != at {
            rw.copy_op(id, body);
            continue;
        }
        let op = &func.ops[at];
        let inits: Vec<Value> = op.group("init").iter().map(|&v| rw.get(v)).collect();
        let added = added(&mut rw, sums, &arrays, &inits, &op.loc);
        for (&old, new) in op.results.iter().zip(added) {
            rw.set(old, new);
        }
    }
    let mut new = rw.new;
    new.name = format!("{}_rest", func.name);
    // The schedule is that of the MMAs; only passes that are off stay off.
    let config = new.attrs.get("config").and_then(Attr::as_dict);
    if let Some(off) = config.map(|c| c.get("off").cloned()) {
        new.attrs.remove("config");
        if let Some(off) = off {
            let mut kept = Attrs::new();
            kept.set("off", off);
            new.attrs.set("config", Attr::Dict(kept));
        }
    }
    finished(new)
}

/// The initial values and all parts, added in their order.
fn added(
    rw: &mut Rw<'_>,
    sums: &[(Vec<i64>, DType)],
    arrays: &[Value],
    inits: &[Value],
    loc: &Loc,
) -> Vec<Value> {
    let group = group(rw, loc);
    let body = rw.new.body;
    let mut build = rw.builder(body, loc.clone());
    let [zero, step] = [0, TOGETHER].map(|n| build.index(n));
    let splits = build.dim(SPLITS);
    let types = sums.iter().map(|(shape, dtype)| Type::tile(shape, *dtype)).collect::<Vec<_>>();
    let spec = OpSpec::new(TileOp::For, &[zero, splits, step]).group("init", inits);
    let looped = build.op(spec.results(types.clone())).expect("the result types are given");
    let inner = rw.new.ops[looped].regions[0];
    let part = rw.new.add_arg(inner, Type::INDEX, Some("part"));
    let mut carried = Vec::new();
    for ty in types {
        carried.push(rw.new.add_arg(inner, ty, None));
    }
    let mut yields = Vec::new();
    for ((&array, &sum), (shape, _)) in arrays.iter().zip(&carried).zip(sums) {
        let mut parts = Vec::new();
        for further in 0..TOGETHER {
            let mut build = rw.builder(inner, loc.clone());
            let zero = build.index(0);
            let further = build.index(further);
            let at = build.ew(ScalarFn::Add, &[part, further]);
            let places: Vec<Value> =
                [at, group].into_iter().chain(shape.iter().map(|_| zero)).collect();
            parts.push(build.load(array, &places, &extent(shape)));
            if let Some(id) = last(rw, inner) {
                bounded(rw, id, "checked", shape.len());
            }
        }
        let mut build = rw.builder(inner, loc.clone());
        yields.push(parts.iter().fold(sum, |sum, &one| build.ew(ScalarFn::Add, &[sum, one])));
    }
    rw.builder(inner, loc.clone()).yield_(&yields);
    rw.new.ops[looped].results.clone()
}
