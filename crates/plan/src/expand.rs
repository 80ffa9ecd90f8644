//! Expands ops on moving windows (convolution, pooling) into ops that have kernels: one strided
//! slice of the array for each position in the window. A convolution joins these slices and becomes
//! a matmul (im2col); a reduction over windows becomes a chain of elementwise ops on them, fused
//! into one kernel.

use crate::class::is_empty;
use crate::index::dims_of;
use crate::large;
use crate::machine::Machine;
use crate::nothing::nothing;
use crate::sort::sort;
use crate::vector;
use crate::words::words;
use tessera_diag::Loc;
use tessera_graph::{Graph, GraphFunc, GraphOp, elem, tensor};
use tessera_ir::{Attr, Attrs, BlockId, Dim, OpSpec, Type, Value};
use tessera_numerics::{DType, NumType, ReduceOp, Scalar, ScalarFn};

/// Windows of more positions are left to the host.
const MOST: i64 = 256;

/// Where an expansion happens: the function and the extents.
pub struct Site<'a> {
    pub func: &'a mut GraphFunc,
    pub block: BlockId,
    pub loc: &'a Loc,
}

type Made = Result<Value, String>;

fn ints(attrs: &Attrs, name: &str, len: usize, default: i64) -> Vec<i64> {
    match attrs.get(name) {
        Some(list) => list.as_ints().unwrap_or_default(),
        None => vec![default; len],
    }
}

fn dims(list: &[i64]) -> Vec<Dim> {
    list.iter().map(|&d| Dim::Static(d)).collect()
}

/// All positions of a window, row-major.
fn positions(window: &[i64]) -> Vec<Vec<i64>> {
    let mut out = vec![Vec::new()];
    for &n in window {
        out = out
            .into_iter()
            .flat_map(|p: Vec<i64>| (0..n).map(move |i| p.iter().copied().chain([i]).collect()))
            .collect();
    }
    out
}

impl Site<'_> {
    pub(super) fn op(&mut self, spec: OpSpec<Graph>) -> Made {
        let place = self.func.blocks[self.block].ops.len();
        let id = self.func.insert(self.block, place, spec, self.loc.clone())?;
        Ok(self.func.ops[id].results[0])
    }

    pub(super) fn ew(&mut self, f: ScalarFn, args: &[Value]) -> Made {
        self.op(OpSpec::new(GraphOp::Ew(f), args))
    }

    pub(super) fn splat(&mut self, value: Scalar, shape: &[i64], dtype: DType) -> Made {
        let value = match value {
            Scalar::Bool(v) => Attr::Bool(v),
            Scalar::I32(v) => Attr::Int(v.into()),
            Scalar::I64(v) => Attr::Int(v),
            Scalar::U32(v) => Attr::Int(v.into()),
            Scalar::U64(v) => Attr::Int(v as i64),
            Scalar::F32(v) => Attr::Float(v.into()),
            Scalar::F64(v) => Attr::Float(v),
        };
        let ty = tensor(dims(shape), NumType::plain(dtype));
        self.op(OpSpec::new(GraphOp::Const, &[]).attr("value", value).result(ty))
    }

    pub(super) fn reshape(&mut self, x: Value, shape: &[i64]) -> Made {
        let ty = tensor(dims(shape), elem(self.func.ty(x)));
        self.op(OpSpec::new(GraphOp::Reshape, &[x]).result(ty))
    }

    pub(super) fn cast(&mut self, x: Value, to: NumType, saturate: Option<bool>) -> Made {
        if self.func.ty(x).dtype() == to.storage {
            return Ok(x);
        }
        let ty = tensor(self.func.ty(x).shape().to_vec(), to);
        let mut spec = OpSpec::new(GraphOp::Cast, &[x]).result(ty);
        if let Some(saturate) = saturate {
            spec = spec.attr("saturate", Attr::Bool(saturate));
        }
        self.op(spec)
    }

    fn pad(&mut self, x: Value, fill: Scalar, lo: &[i64], hi: &[i64], gap: &[i64]) -> Made {
        if [lo, hi, gap].iter().all(|l| l.iter().all(|&v| v == 0)) {
            return Ok(x);
        }
        let dtype = self.func.ty(x).dtype();
        let fill = self.splat(fill, &[], dtype)?;
        let list = |v: &[i64]| Attr::ints(v.iter().copied());
        let spec = OpSpec::new(GraphOp::Pad, &[x, fill])
            .attr("lo", list(lo))
            .attr("hi", list(hi))
            .attr("interior", list(gap));
        self.op(spec)
    }

    /// The elements at one position of all windows.
    fn part(&mut self, x: Value, start: &[i64], out: &[i64], strides: &[i64]) -> Made {
        let limit = (0..out.len()).map(|i| start[i] + (out[i] - 1) * strides[i] + 1);
        let spec = OpSpec::new(GraphOp::Slice, &[x])
            .attr("start", Attr::ints(start.iter().copied()))
            .attr("limit", Attr::ints(limit))
            .attr("stride", Attr::ints(strides.iter().copied()));
        self.op(spec)
    }
}

/// Ops that give the results of this one; `None` where it stays.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn expand(
    site: &mut Site<'_>,
    machine: Machine,
    ordered: bool,
    code: GraphOp,
    operands: &[Value],
    attrs: &Attrs,
    types: &[Type],
) -> Option<Result<Vec<Value>, String>> {
    use GraphOp::*;
    let one = |made: Made| made.map(|v| vec![v]);
    // A GPU has no host that could take larger ones.
    let most = if machine.is_gpu() { i64::MAX } else { MOST };
    let empty = operands.iter().any(|&v| is_empty(site.func, v))
        || types.iter().any(|t| t.static_shape().is_none_or(|s| s.contains(&0)));
    if empty {
        return match machine {
            Machine::Cpu => None,
            Machine::Gpu { .. } => nothing(site, code, operands, attrs, types).map(one),
        };
    }
    if machine.is_gpu()
        && let Some(made) = for_threads(site, machine, ordered, code, operands, attrs, types)
    {
        return Some(made);
    }
    match code {
        Dot if machine == Machine::Cpu && !ordered => {
            vector::dot(site, operands, attrs, &types[0]).map(one)
        }
        Conv => {
            let window: i64 = dims_of(site.func, operands[1])[2..].iter().product();
            let places: i64 = types[0].static_shape()?[2..].iter().product();
            (window.min(places) <= most).then(|| conv(site, operands, attrs, &types[0])).map(one)
        }
        WindowReduce | WindowArgReduce => {
            let rank = site.func.ty(operands[0]).rank();
            let window: i64 = ints(attrs, "window", rank, 1).iter().product();
            let x = elem(site.func.ty(operands[0]));
            let op = attrs.get("op").and_then(Attr::as_word).and_then(ReduceOp::from_name)?;
            if window > most {
                return None;
            }
            if code == WindowArgReduce {
                return Some(one(pick(site, operands[0], op, attrs, &types[0])));
            }
            let accum = match op {
                ReduceOp::Sum | ReduceOp::Prod => x.accumulator().dtype(),
                ReduceOp::Max | ReduceOp::Min | ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => {
                    x.storage.carrier()
                }
            };
            let folds = accum == accum.carrier();
            folds.then(|| fold(site, operands[0], op, accum, attrs, &types[0])).map(one)
        }
        Manual | Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute
        | FromRank | AxisIndex | KernelCall | Return | Yield | Cond | While | Loop | Call
        | Composite | Const | Iota | Select | Cast | Bitcast | Dim | StopGradient | OptBarrier
        | Shard | Broadcast | Reshape | Transpose | Slice | Pad | Concat | Reverse
        | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce | ArgReduce | Scan
        | Sort | Dot | Philox | Ew(_) => None,
    }
}

/// Ops that GPUs have no kernels for.
#[deny(clippy::wildcard_enum_match_arm)]
fn for_threads(
    site: &mut Site<'_>,
    machine: Machine,
    ordered: bool,
    code: GraphOp,
    operands: &[Value],
    attrs: &Attrs,
    types: &[Type],
) -> Option<Result<Vec<Value>, String>> {
    use GraphOp::*;
    let one = |made: Made| made.map(|v| vec![v]);
    match code {
        Reduce => large::reduce(site, machine, ordered, operands[0], attrs, &types[0]).map(one),
        Dot if ordered => None,
        Dot => large::dot(site, machine, operands, attrs, &types[0]).map(one),
        Sort => Some(sort(site, machine, operands, attrs)),
        Philox if site.func.ty(operands[0]).rank() > 0 => Some(one(words(site, operands, attrs))),
        Scatter => {
            // Sums of narrow numbers are accumulated in wider ones, and stored once.
            let x = elem(site.func.ty(operands[0]));
            let op = attrs.get("op").and_then(Attr::as_word).and_then(ReduceOp::from_name)?;
            let accum = x.accumulator().dtype();
            let sums = matches!(op, ReduceOp::Sum | ReduceOp::Prod);
            if !sums || accum == x.storage || accum != accum.carrier() {
                return None;
            }
            let wide = |site: &mut Site<'_>| -> Made {
                let to = NumType::plain(accum);
                let (x, u) = (site.cast(operands[0], to, None)?, site.cast(operands[2], to, None)?);
                let mut spec = OpSpec::new(Scatter, &[x, operands[1], u]);
                for (name, value) in attrs.iter() {
                    spec = spec.attr(name, value.clone());
                }
                let sum = site.op(spec)?;
                site.cast(sum, elem(&types[0]), None)
            };
            Some(one(wide(site)))
        }
        Manual | Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute
        | FromRank | AxisIndex | KernelCall | Return | Yield | Cond | While | Loop | Call
        | Composite | Const | Iota | Select | Cast | Bitcast | Dim | StopGradient | OptBarrier
        | Shard | Broadcast | Reshape | Transpose | Slice | Pad | Concat | Reverse
        | DynamicSlice | DynamicUpdateSlice | Gather | ArgReduce | Scan | Conv | WindowReduce
        | WindowArgReduce | Philox | Ew(_) => None,
    }
}

fn conv(site: &mut Site<'_>, operands: &[Value], attrs: &Attrs, ty: &Type) -> Made {
    let (x, w) = (operands[0], operands[1]);
    let (of_x, of_w) = (dims_of(site.func, x), dims_of(site.func, w));
    let out = ty.static_shape().unwrap_or_default();
    let n = of_x.len() - 2;
    let list = |name: &str, default: i64| ints(attrs, name, n, default);
    let (strides, lo, hi) = (list("strides", 1), list("lo", 0), list("hi", 0));
    let (dilate_x, dilate_w) = (list("dilate_x", 1), list("dilate_w", 1));
    let groups = attrs.get("groups").and_then(Attr::as_int).unwrap_or(1);
    let around = |list: Vec<i64>| [vec![0, 0], list].concat();
    let gap = dilate_x.iter().map(|d| d - 1).collect();
    let zero = Scalar::zero(site.func.ty(x).dtype());
    let padded = site.pad(x, zero, &around(lo), &around(hi), &around(gap))?;
    let (batch, channels) = (of_x[0], of_x[1]);
    let count: i64 = of_w[2..].iter().product();
    let places: i64 = out[2..].iter().product();
    // The matmul's operand is copied contiguously, for each position in the windows or for each
    // window, whichever are fewer: in the derivative by weights the windows are as large as images.
    let by_window = places < count;
    let around = |list: &[i64]| [&[batch, channels], list].concat();
    let (cuts, each, extents, steps) = match by_window {
        false => (&of_w[2..], &dilate_w, around(&out[2..]), &strides),
        true => (&out[2..], &strides, around(&of_w[2..]), &dilate_w),
    };
    let cut = if by_window { [batch, 1, channels, count] } else { [batch, channels, 1, places] };
    let mut parts = Vec::new();
    for q in positions(cuts) {
        let start: Vec<i64> =
            [0, 0].into_iter().chain(q.iter().zip(each).map(|(q, d)| q * d)).collect();
        let part = site.part(padded, &start, &extents, &[&[1, 1], &steps[..]].concat())?;
        parts.push(site.reshape(part, &cut)?);
    }
    let windows = match parts[..] {
        [one] => one,
        _ => {
            let axis = if by_window { 1 } else { 2 };
            let spec = OpSpec::new(GraphOp::Concat, &[]).group("values", &parts);
            site.op(spec.attr("axis", Attr::Int(axis)))?
        }
    };
    let depth = channels / groups * count;
    let (shape, group_axis, depth_axis) = match by_window {
        false => ([batch, groups, depth, places], 1, 2),
        true => ([batch, places, groups, depth], 2, 3),
    };
    let windows = site.reshape(windows, &shape)?;
    let weights = site.reshape(w, &[groups, of_w[0] / groups, depth])?;
    let one = |v: i64| Attr::ints([v]);
    let mut dot = OpSpec::new(GraphOp::Dot, &[weights, windows])
        .attr("batch_a", one(0))
        .attr("batch_b", one(group_axis))
        .attr("contract_a", one(2))
        .attr("contract_b", one(depth_axis));
    for name in ["accum", "class"] {
        if let Some(value) = attrs.get(name) {
            dot = dot.attr(name, value.clone());
        }
    }
    let dot = dot.attr("out", Attr::word(ty.dtype().name()));
    let sums = site.op(dot)?;
    let turned = OpSpec::new(GraphOp::Transpose, &[sums]).attr("perm", Attr::ints([2, 0, 1, 3]));
    let turned = site.op(turned)?;
    let shaped = OpSpec::new(GraphOp::Reshape, &[turned]).result(ty.clone());
    site.op(shaped)
}

/// How windows move along each axis.
struct Moves {
    window: Vec<i64>,
    strides: Vec<i64>,
    dilate: Vec<i64>,
    lo: Vec<i64>,
    hi: Vec<i64>,
}

fn moves(attrs: &Attrs, n: usize) -> Moves {
    let list = |name: &str, default: i64| ints(attrs, name, n, default);
    Moves {
        window: list("window", 1),
        strides: list("strides", 1),
        dilate: list("dilate", 1),
        lo: list("lo", 0),
        hi: list("hi", 0),
    }
}

fn start(q: &[i64], moves: &Moves) -> Vec<i64> {
    q.iter().zip(&moves.dilate).map(|(q, d)| q * d).collect()
}

fn fold(
    site: &mut Site<'_>,
    x: Value,
    op: ReduceOp,
    accum: DType,
    attrs: &Attrs,
    ty: &Type,
) -> Made {
    let out = ty.static_shape().unwrap_or_default();
    let m = moves(attrs, out.len());
    let identity = op.identity(accum).ok_or("an operator without an identity")?;
    let wide = site.cast(x, NumType::plain(accum), None)?;
    let padded = site.pad(wide, identity, &m.lo, &m.hi, &vec![0; out.len()])?;
    let mut sum: Option<Value> = None;
    for q in positions(&m.window) {
        let part = site.part(padded, &start(&q, &m), &out, &m.strides)?;
        sum = Some(match sum {
            None => part,
            Some(before) => site.ew(op.combine(), &[before, part])?,
        });
    }
    let clamp = matches!(op, ReduceOp::Max | ReduceOp::Min) && ty.dtype().is_int();
    site.cast(sum.ok_or("a window of no positions")?, elem(ty), clamp.then_some(true))
}

fn pick(site: &mut Site<'_>, x: Value, op: ReduceOp, attrs: &Attrs, ty: &Type) -> Made {
    let out = ty.static_shape().unwrap_or_default();
    let m = moves(attrs, out.len());
    let from = dims_of(site.func, x);
    let dtype = site.func.ty(x).dtype();
    let gaps = vec![0; out.len()];
    let padded = site.pad(x, Scalar::zero(dtype), &m.lo, &m.hi, &gaps)?;
    let there = site.splat(Scalar::Bool(true), &from, DType::Bool)?;
    let there = site.pad(there, Scalar::Bool(false), &m.lo, &m.hi, &gaps)?;
    let wins = if op == ReduceOp::Max { ScalarFn::Gt } else { ScalarFn::Lt };
    let mut best: Option<(Value, Value, Value)> = None;
    for (place, q) in positions(&m.window).into_iter().enumerate() {
        let begin = start(&q, &m);
        let value = site.part(padded, &begin, &out, &m.strides)?;
        let valid = site.part(there, &begin, &out, &m.strides)?;
        let number = site.splat(Scalar::I64(place as i64), &out, DType::I64)?;
        let Some((before, at, found)) = best else {
            let zero = site.splat(Scalar::I64(0), &out, DType::I64)?;
            best = Some((value, zero, valid));
            continue;
        };
        let mut better = site.ew(wins, &[value, before])?;
        if dtype.is_float() {
            let (new, old) =
                (site.ew(ScalarFn::IsNan, &[value])?, site.ew(ScalarFn::IsNan, &[before])?);
            let kept = site.ew(ScalarFn::Not, &[old])?;
            better = site.ew(ScalarFn::Or, &[better, new])?;
            better = site.ew(ScalarFn::And, &[better, kept])?;
        }
        let first = site.ew(ScalarFn::Not, &[found])?;
        let better = site.ew(ScalarFn::Or, &[better, first])?;
        let take = site.ew(ScalarFn::And, &[better, valid])?;
        let value = site.op(OpSpec::new(GraphOp::Select, &[take, value, before]))?;
        let at = site.op(OpSpec::new(GraphOp::Select, &[take, number, at]))?;
        let found = site.ew(ScalarFn::Or, &[found, valid])?;
        best = Some((value, at, found));
    }
    Ok(best.ok_or("a window of no positions")?.1)
}
