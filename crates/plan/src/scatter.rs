//! Scatter kernels: updates at computed positions. On CPUs one group for each part of a row takes
//! the updates one after another, so that repeated positions are combined in order. On GPUs each
//! update of a reduction has groups of its own (atomics); the backend keeps the order where it
//! matters.

use crate::class::{accumulator, axes_of};
use crate::emit::{ArrayUse, Kernel};
use crate::index::dims_of;
use crate::machine::Machine;
use tessera_graph::{Graph, GraphFunc, GraphOp};
use tessera_ir::{Attr, Builder, Dim, DimExpr, Op, OpId, OpSpec, Privilege, Type, Value};
use tessera_numerics::{DType, NumType, ReduceOp, ScalarFn};
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp};

/// Whether updates can be joined in the array's own memory.
pub fn in_place(func: &GraphFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    let dtype = func.ty(op.operands[0]).dtype();
    op.code == GraphOp::Scatter
        && match operator(func, id) {
            None => true,
            Some(ReduceOp::Sum | ReduceOp::Prod) => accumulator(func, id) == Some(dtype),
            Some(_) => true,
        }
}

fn operator(func: &GraphFunc, id: OpId) -> Option<ReduceOp> {
    func.ops[id].attr("op").and_then(Attr::as_word).and_then(ReduceOp::from_name)
}

/// The positions that a scatter kernel reads, and whether negative ones count from the end.
/// Python's positions are wrapped by ops (`i < 0 ? i + n : i`), which the kernel does itself where
/// they are in the same block.
pub fn positions(func: &GraphFunc, id: OpId) -> (Value, bool) {
    let given = func.ops[id].operands[1];
    let (mut bare, wraps) = wrapped(func, id).map_or((given, false), |bare| (bare, true));
    // Narrow positions are widened when they are read.
    while let Some(narrow) = widened(func, id, bare) {
        bare = narrow;
    }
    (bare, wraps)
}

/// The integers that a cast in the same block puts into a wider type.
fn widened(func: &GraphFunc, id: OpId, v: Value) -> Option<Value> {
    let op = made_by(func, id, v, GraphOp::Cast)?;
    let (from, to) = (func.ty(op.operands[0]).dtype(), func.ty(v).dtype());
    let same = from.is_unsigned_int() && to.is_int() || from.is_signed_int() && to.is_signed_int();
    (same && from.bytes() < to.bytes()).then_some(op.operands[0])
}

/// The op that defines a value, if it has this code and is in the scatter's block. A value of
/// another block is in memory: its op does not run again here.
fn made_by(func: &GraphFunc, id: OpId, v: Value, code: GraphOp) -> Option<&Op<Graph>> {
    let op = &func.ops[func.def_id(v)?];
    (op.code == code && op.block == func.ops[id].block).then_some(op)
}

fn wrapped(func: &GraphFunc, id: OpId) -> Option<Value> {
    let &[axis] = axes_of(func, id, "axes").as_slice() else {
        return None;
    };
    let extent = *dims_of(func, func.ops[id].results[0]).get(axis)?;
    let made_by = |v: Value, code: GraphOp| made_by(func, id, v, code);
    let constant = |v: Value| {
        let spread = made_by(v, GraphOp::Broadcast).map_or(v, |op| op.operands[0]);
        func.ops[func.def_id(spread)?].attr("value").and_then(Attr::as_int)
    };
    let mut chosen = func.ops[id].operands[1];
    while let Some(op) = made_by(chosen, GraphOp::Reshape) {
        chosen = op.operands[0];
    }
    let &[negative, moved, bare] = made_by(chosen, GraphOp::Select)?.operands.as_slice() else {
        return None;
    };
    let below = &made_by(negative, GraphOp::Ew(ScalarFn::Lt))?.operands;
    let sum = &made_by(moved, GraphOp::Ew(ScalarFn::Add))?.operands;
    let wraps = below[0] == bare
        && constant(below[1]) == Some(0)
        && sum[0] == bare
        && constant(sum[1]) == Some(extent);
    wraps.then_some(bare)
}

/// The kernel that puts the updates of a scatter into its result, which holds the old array.
/// `memory` gives the value whose memory a value has.
pub fn scatter(
    func: &GraphFunc,
    id: OpId,
    machine: Machine,
    ordered: bool,
    memory: &dyn Fn(Value) -> Value,
) -> Kernel {
    let op = &func.ops[id];
    let (x, updates) = (op.results[0], op.operands[2]);
    let (indices, wraps) = positions(func, id);
    let (dims, lead) = (dims_of(func, x), dims_of(func, op.operands[1]));
    let count = *lead.last().unwrap_or(&0);
    let lead = &lead[..lead.len() - 1];
    let axes = axes_of(func, id, "axes");
    let batch = op.attr("batch").and_then(Attr::as_int).unwrap_or(0).max(0) as usize;
    let rest: Vec<usize> = (batch..dims.len()).filter(|a| !axes.contains(a)).collect();
    let stride = |a: usize| dims[a + 1..].iter().product::<i64>();
    // Contiguous axes of a row are merged.
    let mut row: Vec<(i64, i64)> = Vec::new();
    for &a in &rest {
        match row.last_mut() {
            Some((n, s)) if *s == dims[a] * stride(a) => (*n, *s) = (*n * dims[a], stride(a)),
            _ => row.push((dims[a], stride(a))),
        }
    }
    let rows: i64 = lead.iter().product();
    let dtype = func.ty(x).dtype();
    let mut order: Vec<usize> = (0..batch).collect();
    order.extend(&axes);
    let mut target = ArrayUse {
        value: memory(x),
        offset: 0,
        dims: order.iter().map(|&a| dims[a]).collect(),
        strides: order.iter().map(|&a| stride(a)).collect(),
        dtype,
        writes: true,
    };
    let (mut own_dims, mut own_strides) = (vec![rows], vec![row.iter().map(|r| r.0).product()]);
    for (i, &(n, s)) in row.iter().enumerate() {
        target.dims.push(n);
        target.strides.push(s);
        own_dims.push(n);
        own_strides.push(row[i + 1..].iter().map(|r| r.0).product());
    }
    let source = ArrayUse {
        value: memory(updates),
        offset: 0,
        dims: own_dims,
        strides: own_strides,
        dtype,
        writes: false,
    };
    let places = ArrayUse {
        value: memory(indices),
        offset: 0,
        dims: vec![rows, count],
        strides: vec![count, 1],
        dtype: func.ty(indices).dtype(),
        writes: false,
    };
    let folded = operator(func, id).and_then(privilege).filter(|_| machine.is_gpu());
    // Under `strict` no kernel adds floats by atomics, though one group would keep their order.
    let numbers = machine == Machine::Cpu
        && !(ordered && dtype.is_float())
        && row.is_empty()
        && batch == 0
        && count > 0;
    let atomic = operator(func, id).filter(|_| numbers).and_then(|op| change(op, dtype));
    let mut tile = TileFunc::new("scatter");
    tile.loc = op.loc.clone();
    tile.attrs.set("kind", Attr::word("group"));
    let body = tile.body;
    let args = vec![places, source, target];
    let mut params = Vec::new();
    for (one, name) in args.iter().zip(["at", "updates", "y"]) {
        let extents = one.dims.iter().map(|&d| Dim::Static(d)).collect();
        let privilege = match (one.writes, folded) {
            (true, Some(privilege)) => privilege,
            (true, None) => Privilege::ReadWrite,
            (false, _) => Privilege::Read,
        };
        let ty = Type::View { dims: extents, elem: NumType::plain(one.dtype), privilege };
        params.push(tile.add_arg(body, ty, Some(name)));
    }
    let width = machine.row_part();
    let form = Form {
        params,
        args: &args,
        lead,
        axes: axes.len(),
        wraps,
        batch,
        row: &row,
        width,
        spread: folded.is_some(),
    };
    let grid = match atomic {
        Some(change) => write_numbers(func, id, &mut tile, &form, change),
        None => write(func, id, &mut tile, &form),
    };
    tile.attrs.set("grid", Attr::exprs([DimExpr::Const(grid)]));
    Kernel { func: tile, args, grid: [grid, 1, 1] }
}

/// The inputs of the kernel: its parameters (positions, updates, result) and the arrays behind
/// them, the extents that updates are counted along, and the layout of rows.
struct Form<'a> {
    params: Vec<Value>,
    args: &'a [ArrayUse],
    lead: &'a [i64],
    axes: usize,
    /// Negative positions count from the end.
    wraps: bool,
    batch: usize,
    row: &'a [(i64, i64)],
    /// Elements of one row that a group takes.
    width: i64,
    /// Each update has groups of its own.
    spread: bool,
}

/// How groups fold into one array.
fn privilege(op: ReduceOp) -> Option<Privilege> {
    match op {
        ReduceOp::Sum => Some(Privilege::ReduceSum),
        ReduceOp::Prod => Some(Privilege::ReduceProd),
        ReduceOp::Max => Some(Privilege::ReduceMax),
        ReduceOp::Min => Some(Privilege::ReduceMin),
        ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => None,
    }
}

/// The atomic that updates a number at a position of an index tile, in the order of the tile.
#[deny(clippy::wildcard_enum_match_arm)]
fn change(op: ReduceOp, dtype: DType) -> Option<&'static str> {
    let plain = matches!(
        dtype,
        DType::F32 | DType::F64 | DType::I32 | DType::I64 | DType::U32 | DType::U64
    );
    match op {
        ReduceOp::Sum if plain => Some("add"),
        // Of floats, the two ops treat NaN as `numerics` says for each.
        ReduceOp::Max if plain && dtype.is_int() => Some("max"),
        ReduceOp::Min if plain && dtype.is_int() => Some("min"),
        ReduceOp::Sum
        | ReduceOp::Max
        | ReduceOp::Min
        | ReduceOp::Prod
        | ReduceOp::And
        | ReduceOp::Or
        | ReduceOp::Xor => None,
    }
}

/// Marks a load as in bounds.
fn stays_inside(b: &mut Builder<'_, Tile>, loaded: Value) {
    if let Some(id) = b.func.def_id(loaded) {
        b.func.ops[id].attrs.set("inbounds", Attr::Bool(true));
    }
}

/// Positions of which negative ones count from the end.
fn from_end(b: &mut Builder<'_, Tile>, place: Value, zero: Value, extent: Value) -> Value {
    let negative = b.ew(ScalarFn::Lt, &[place, zero]);
    let moved = b.ew(ScalarFn::Add, &[place, extent]);
    b.select(negative, moved, place)
}

/// Updates that are numbers, a tile of them at a time: positions are computed in vectors, and one group changes one
/// number after another. Positions outside are left alone.
fn write_numbers(
    func: &GraphFunc,
    id: OpId,
    tile: &mut TileFunc,
    form: &Form<'_>,
    change: &str,
) -> i64 {
    const TILE: i64 = 1024;
    let Form { params, args, axes, wraps, .. } = form;
    let op = &func.ops[id];
    let clamp = op.attr("oob").and_then(Attr::as_word) == Some("clamp");
    let rows = args[0].dims[0];
    let entry = tile.body;
    let mut b = Builder::at_end(tile, entry, op.loc.clone());
    let part = |b: &mut Builder<'_, Tile>, start: Value, extent: i64| {
        let mut at = Vec::new();
        for k in 0..*axes {
            let column = b.index(k as i64);
            let place = b.load(params[0], &[start, column], &[extent, 0]);
            stays_inside(b, place);
            let mut place = b.cast(place, DType::I64);
            if *wraps {
                let ty = b.func.ty(place).clone();
                let zero = b.constant(ty.clone(), Attr::Int(0));
                let extent = b.constant(ty, Attr::Int(args[2].dims[k]));
                place = from_end(b, place, zero, extent);
            }
            if clamp {
                let ty = b.func.ty(place).clone();
                let zero = b.constant(ty.clone(), Attr::Int(0));
                let most = b.constant(ty, Attr::Int(args[2].dims[k] - 1));
                place = b.ew(ScalarFn::Maximum, &[place, zero]);
                place = b.ew(ScalarFn::Minimum, &[place, most]);
            }
            at.push(place);
        }
        let value = b.load(params[1], &[start], &[extent]);
        stays_inside(b, value);
        let ty = b.func.ty(value).clone();
        let spec = OpSpec::new(TileOp::Atomic, &[params[2], value])
            .group("at", &at)
            .attr("op", Attr::word(change))
            .result(ty);
        b.op(spec).expect("the result type is given");
    };
    let (whole, rest) = (rows / TILE * TILE, rows % TILE);
    if whole > 0 {
        let (lo, hi, step) = (b.index(0), b.index(whole), b.index(TILE));
        let loop_op = b
            .op(OpSpec::new(TileOp::For, &[lo, hi, step]).results(Vec::new()))
            .expect("a loop without results");
        let region = b.func.ops[loop_op].regions[0];
        let start = b.func.add_arg(region, Type::INDEX, Some("i"));
        b.block = region;
        part(&mut b, start, TILE);
        b.yield_(&[]);
        b.block = entry;
    }
    if rest > 0 {
        let start = b.index(whole);
        part(&mut b, start, rest);
    }
    b.return_();
    1
}

/// Writes the body and gives the number of groups.
fn write(func: &GraphFunc, id: OpId, tile: &mut TileFunc, form: &Form<'_>) -> i64 {
    let Form { params, args, lead, axes, batch, row, .. } = form;
    let (axes, batch) = (*axes, *batch);
    let op = &func.ops[id];
    let clamp = op.attr("oob").and_then(Attr::as_word) == Some("clamp");
    let rows = args[0].dims[0];
    let entry = tile.body;
    let mut b = Builder::at_end(tile, entry, op.loc.clone());
    // One group for each part of a row: the last axis in tiles, the others one position each.
    let last = row.last().map(|r| r.0);
    let wide = last.map(|n| n.min(form.width));
    let mut starts = Vec::new();
    let mut grid = 1;
    let pid = OpSpec::new(TileOp::ProgramId, &[]).attr("axis", Attr::Int(0));
    let pid = b.value(pid.result(Type::INDEX)).expect("the result type is given");
    if let (Some(n), Some(wide)) = (last, wide) {
        let mut blocks: Vec<i64> = row[..row.len() - 1].iter().map(|r| r.0).collect();
        blocks.push((n + wide - 1) / wide);
        let mut divide: i64 = blocks.iter().product();
        grid = divide;
        for (i, &count) in blocks.iter().enumerate() {
            divide /= count;
            let by = b.index(divide);
            let at = b.ew(ScalarFn::FloorDiv, &[pid, by]);
            let by = b.index(count);
            let at = b.ew(ScalarFn::Mod, &[at, by]);
            starts.push(if i + 1 == blocks.len() {
                let by = b.index(wide);
                b.ew(ScalarFn::Mul, &[at, by])
            } else {
                at
            });
        }
    }
    let (iteration, region) = if form.spread {
        let by = b.index(grid);
        grid *= rows;
        (b.ew(ScalarFn::FloorDiv, &[pid, by]), entry)
    } else {
        let (lo, hi, step) = (b.index(0), b.index(rows), b.index(1));
        let loop_op = b
            .op(OpSpec::new(TileOp::For, &[lo, hi, step]).results(Vec::new()))
            .expect("a loop without results");
        let region = b.func.ops[loop_op].regions[0];
        (b.func.add_arg(region, Type::INDEX, Some("i")), region)
    };
    b.block = region;
    let mut at = Vec::new();
    for axis in 0..batch {
        let by = b.index(lead[axis + 1..].iter().product());
        let place = b.ew(ScalarFn::FloorDiv, &[iteration, by]);
        let by = b.index(lead[axis]);
        at.push(b.ew(ScalarFn::Mod, &[place, by]));
    }
    let mut inside: Option<Value> = None;
    for k in 0..axes {
        let column = b.index(k as i64);
        let place = b.load(params[0], &[iteration, column], &[0, 0]);
        let mut place = b.cast(place, DType::I64);
        let extent = args[2].dims[batch + k];
        let (zero, end) = (b.index(0), b.index(extent));
        if form.wraps {
            place = from_end(&mut b, place, zero, end);
        }
        if clamp {
            let most = b.index(extent - 1);
            place = b.ew(ScalarFn::Maximum, &[place, zero]);
            place = b.ew(ScalarFn::Minimum, &[place, most]);
        } else {
            let low = b.ew(ScalarFn::Ge, &[place, zero]);
            let high = b.ew(ScalarFn::Lt, &[place, end]);
            let both = b.ew(ScalarFn::And, &[low, high]);
            inside = Some(match inside {
                None => both,
                Some(before) => b.ew(ScalarFn::And, &[before, both]),
            });
        }
        at.push(place);
    }
    let mut own = vec![iteration];
    own.extend(&starts);
    at.extend(&starts);
    let extents = |n: usize| -> Vec<i64> {
        let mut out = vec![0; n];
        if let (Some(wide), Some(last)) = (wide, out.last_mut()) {
            *last = wide;
        }
        out
    };
    let value = b.load(params[1], &own, &extents(own.len()));
    let spec = match operator(func, id) {
        None => OpSpec::new(TileOp::Store, &[params[2], value]),
        Some(op) => {
            let dtype = b.func.ty(value).dtype();
            let value = b.cast(value, dtype.carrier());
            let spec = OpSpec::new(TileOp::Accumulate, &[params[2], value]);
            spec.attr("op", Attr::word(op.name()))
        }
    };
    let mut spec = spec.group("at", &at).attr("extent", Attr::ints(extents(at.len())));
    match inside {
        // A loop that skips updates by a branch updates whole rows, without masks.
        Some(inside) if !form.spread => {
            let chosen = b
                .op(OpSpec::new(TileOp::If, &[inside]).results(Vec::new()))
                .expect("a branch without results");
            let sides = b.func.ops[chosen].regions.clone();
            b.block = sides[0];
            b.op(spec).expect("the op has no results");
            for side in sides {
                b.block = side;
                b.yield_(&[]);
            }
            b.block = region;
        }
        inside => {
            if let Some(mask) = inside {
                spec = spec.group("mask", &[mask]);
            }
            b.op(spec).expect("the op has no results");
        }
    }
    if !form.spread {
        b.yield_(&[]);
    }
    b.block = entry;
    b.return_();
    grid
}
