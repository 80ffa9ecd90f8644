//! The expressions that a kernel computes over its iteration space: the ops of a fusion group, with
//! every view turned into strides.

use crate::class::{
    Class, accumulator, class, combined_map, index_maps, is_matrix, operand_maps, operator, sums_in,
};
use crate::group::pieces::{plain_pad, wider};
use crate::group::{Group, Grouping, Output};
use crate::index::{Axis, Line, Map, Space, dims_of, strides, through};
use std::collections::BTreeMap;
use tessera_graph::{GraphFunc, GraphOp, elem};
use tessera_ir::{Attr, OpId, Value};
use tessera_numerics::{DType, NumType, ReduceOp, Rounding, Scalar, ScalarFn, cast};

pub type NodeId = usize;

/// An access: offset and stride along each axis of the space, in elements.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Access {
    pub value: Value,
    pub offset: i64,
    pub strides: Vec<(Axis, i64)>,
}

#[derive(Clone, Debug)]
pub enum Node {
    /// An element of an array, in the carrier of its dtype as all values are. Outside `window`,
    /// positions along axes from the first to before the second, it is not used.
    Load {
        access: Access,
        dtype: DType,
        moved: Vec<(NodeId, i64, i64)>,
        window: Vec<(Axis, i64, i64)>,
    },
    Splat {
        value: Scalar,
    },
    /// `offset + Σ stride · position`, converted to a dtype.
    Position {
        offset: i64,
        strides: Vec<(Axis, i64)>,
        dtype: DType,
    },
    Apply {
        f: ScalarFn,
        args: Vec<NodeId>,
        to: NumType,
    },
    Select {
        cond: NodeId,
        a: NodeId,
        b: NodeId,
    },
    Cast {
        x: NodeId,
        to: NumType,
        round: Rounding,
        saturate: bool,
    },
    Bitcast {
        x: NodeId,
        from: DType,
        to: DType,
    },
    Philox {
        key: NodeId,
        counter: NodeId,
        word: i64,
    },
    Reduce {
        x: NodeId,
        op: ReduceOp,
        accum: DType,
        axes: Vec<Axis>,
        to: NumType,
    },
    ArgReduce {
        x: NodeId,
        op: ReduceOp,
        axis: Axis,
    },
    Scan {
        x: NodeId,
        op: ReduceOp,
        accum: DType,
        axis: Axis,
        exclusive: bool,
        to: NumType,
    },
    /// An element at computed positions, one for each axis of the array.
    Gather {
        value: Value,
        dims: Vec<i64>,
        dtype: DType,
        at: Vec<NodeId>,
        other: Option<NodeId>,
        clamp: bool,
    },
    /// The accumulator of the kernel's matmul.
    Sums {
        to: NumType,
    },
}

/// A matmul over the space.
#[derive(Clone, Debug)]
pub struct Product {
    pub a: Access,
    pub b: Access,
    pub types: [DType; 2],
    pub accum: DType,
    pub rows: Vec<Axis>,
    pub columns: Vec<Axis>,
    pub depth: Vec<Axis>,
    pub class: Option<String>,
}

/// What is written where.
#[derive(Clone, Debug)]
pub struct Write {
    pub node: NodeId,
    pub access: Access,
    pub dtype: DType,
    pub moved: Vec<(NodeId, i64, i64)>,
}

#[derive(Clone, Debug, Default)]
pub struct Body {
    pub space: Space,
    pub nodes: Vec<Node>,
    pub writes: Vec<Write>,
    pub product: Option<Product>,
    /// Axes that are reduced or scanned: all of each is in one tile.
    pub full: Vec<Axis>,
    /// Axes that must not be merged with others.
    pub apart: Vec<Axis>,
    /// Whether sums over several axes take them in the order of the op.
    pub ordered: bool,
}

pub struct Tracer<'a> {
    func: &'a GraphFunc,
    grouping: &'a Grouping,
    group: &'a Group,
    me: usize,
    body: Body,
    /// The positions along axes at which the value is used, where those are not all.
    window: Window,
    seen: BTreeMap<(Value, Map, Window), NodeId>,
}

type Window = BTreeMap<Axis, (i64, i64)>;

/// The root of a chain of aliases.
pub fn memory_of(grouping: &Grouping, mut v: Value) -> Value {
    while let Some(&next) = grouping.alias.get(&v) {
        v = next;
    }
    v
}

pub fn trace(func: &GraphFunc, grouping: &Grouping, me: usize) -> Body {
    let group = &grouping.groups[me];
    let body = Body {
        space: group.space.clone(),
        full: group.space.expand(&group.reduced),
        ..Body::default()
    };
    let (window, seen) = (BTreeMap::new(), BTreeMap::new());
    let mut tracer = Tracer { func, grouping, group, me, body, window, seen };
    for output in &group.outputs {
        tracer.output(output);
    }
    tracer.body
}

impl Tracer<'_> {
    fn push(&mut self, node: Node) -> NodeId {
        self.body.nodes.push(node);
        self.body.nodes.len() - 1
    }

    fn output(&mut self, output: &Output) {
        let node = self.value(output.value, &output.map);
        let dims = dims_of(self.func, output.target);
        let place = self.body.space.settle(&output.place);
        let (offset, list) = strides(&dims, &place, &self.body.space);
        let moved = self.moves(&output.moved, &dims);
        self.body.writes.push(Write {
            node,
            access: Access { value: output.target, offset, strides: list },
            dtype: self.func.ty(output.target).dtype(),
            moved,
        });
    }

    /// Positions along the axes of an array as nodes, with the axes' strides.
    fn moves(&mut self, moved: &[(Value, i64)], dims: &[i64]) -> Vec<(NodeId, i64, i64)> {
        let stride = |i: usize| dims[i + 1..].iter().product::<i64>();
        let list: Vec<_> = moved.iter().enumerate().map(|(i, m)| (i, *m)).collect();
        list.into_iter()
            .filter(|(_, (_, most))| *most > 0)
            .map(|(i, (v, most))| (self.value(v, &Vec::new()), stride(i), most))
            .collect()
    }

    fn value(&mut self, v: Value, map: &Map) -> NodeId {
        let map = self.body.space.settle(map);
        let key = (v, map.clone(), self.window.clone());
        if let Some(&node) = self.seen.get(&key) {
            return node;
        }
        let node = self.make(v, &map);
        self.seen.insert(key, node);
        node
    }

    fn make(&mut self, v: Value, map: &Map) -> NodeId {
        let root = memory_of(self.grouping, v);
        let known = self.grouping.stored.get(&root);
        let aliased = root != v;
        let elsewhere = known.is_some_and(|&g| g != self.me) || (aliased && known.is_some());
        let Some(id) = self.grouping.def(self.func, v).filter(|_| !elsewhere) else {
            return self.load(v, map);
        };
        // In this kernel it is computed at the map it is written at; elsewhere it is read.
        if aliased && self.grouping.def(self.func, root).is_none() {
            return self.load(v, map);
        }
        self.op(id, v, map)
    }

    fn load(&mut self, v: Value, map: &Map) -> NodeId {
        let (offset, list) = strides(&dims_of(self.func, v), map, &self.body.space);
        let access = Access { value: memory_of(self.grouping, v), offset, strides: list };
        let dtype = self.func.ty(v).dtype();
        let walked = |axis: &Axis| access.strides.iter().any(|(a, _)| a == axis);
        let window = self.window.iter().filter(|(axis, _)| walked(axis));
        let window = window.map(|(&axis, &(lo, hi))| (axis, lo, hi)).collect();
        self.push(Node::Load { access, dtype, moved: Vec::new(), window })
    }

    /// The part of a concat that a position is in.
    fn concat(&mut self, id: OpId, map: &Map) -> NodeId {
        let func = self.func;
        let along = crate::class::along(func, id)[0];
        let (parts, line) = (&func.ops[id].operands, &map[along]);
        let Some(&axis) = line.axes.first() else { return self.load(func.ops[id].results[0], map) };
        self.body.apart.push(axis);
        let extent = self.body.space.extents[axis];
        let around = self.window.get(&axis).copied();
        let (first, last) = around.unwrap_or((0, extent));
        let mut start = -line.offset;
        let mut pieces = Vec::new();
        for &part in parts {
            let end = start + dims_of(func, part)[along];
            let (lo, hi) = (start.max(first), end.min(last));
            if lo < hi {
                let mut map = map.clone();
                map[along].offset = -start;
                if (lo, hi) == (0, extent) {
                    self.window.remove(&axis);
                } else {
                    self.window.insert(axis, (lo, hi));
                }
                pieces.push((self.value(part, &map), end));
            }
            start = end;
        }
        match around {
            Some(around) => self.window.insert(axis, around),
            None => self.window.remove(&axis),
        };
        let Some((mut chosen, _)) = pieces.pop() else {
            return self.load(func.ops[id].results[0], map);
        };
        while let Some((piece, end)) = pieces.pop() {
            let cond = self.position_is(ScalarFn::Lt, axis, end);
            chosen = self.push(Node::Select { cond, a: piece, b: chosen });
        }
        chosen
    }

    /// An element of what is padded, or what it is padded with.
    fn pad(&mut self, id: OpId, map: &Map) -> NodeId {
        let func = self.func;
        let op = &func.ops[id];
        let Some(lo) = plain_pad(func, id) else { return self.load(op.results[0], map) };
        let (around, mut map) = (self.window.clone(), map.clone());
        let mut conds = Vec::new();
        for place in wider(func, id) {
            let Some(&axis) = map[place].axes.first() else { continue };
            self.body.apart.push(axis);
            map[place].offset -= lo[place];
            let extent = self.body.space.extents[axis];
            let (first, last) = around.get(&axis).copied().unwrap_or((0, extent));
            let start = -map[place].offset;
            let end = start + dims_of(func, op.operands[0])[place];
            let (from, to) = (start.max(first), end.min(last));
            if from >= to {
                // The whole element is padding.
                self.window = around;
                return self.value(op.operands[1], &Vec::new());
            }
            if (from, to) != (0, extent) {
                self.window.insert(axis, (from, to));
            }
            if start > first {
                conds.push(self.position_is(ScalarFn::Ge, axis, start));
            }
            if end < last {
                conds.push(self.position_is(ScalarFn::Lt, axis, end));
            }
        }
        let inside = self.value(op.operands[0], &map);
        self.window = around;
        let all = conds.into_iter().reduce(|a, b| {
            let to = NumType::plain(DType::Bool);
            self.push(Node::Apply { f: ScalarFn::And, args: vec![a, b], to })
        });
        match all {
            Some(cond) => {
                let fill = self.value(op.operands[1], &Vec::new());
                self.push(Node::Select { cond, a: inside, b: fill })
            }
            None => inside,
        }
    }

    /// Compares the position along an axis with a number.
    fn position_is(&mut self, f: ScalarFn, axis: Axis, number: i64) -> NodeId {
        let narrow = i32::try_from(self.body.space.extents[axis]).is_ok();
        let (dtype, value) = match i32::try_from(number) {
            Ok(number) if narrow => (DType::I32, Scalar::I32(number)),
            _ => (DType::I64, Scalar::I64(number)),
        };
        let at = Node::Position { offset: 0, strides: vec![(axis, 1)], dtype };
        let args = vec![self.push(at), self.push(Node::Splat { value })];
        self.push(Node::Apply { f, args, to: NumType::plain(DType::Bool) })
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn op(&mut self, id: OpId, v: Value, map: &Map) -> NodeId {
        let func = self.func;
        let op = &func.ops[id];
        let to = elem(func.ty(v));
        let ints = |name: &str| op.attr(name).and_then(Attr::as_ints).unwrap_or_default();
        match op.code {
            // Constants that are not a splat are in memory, also where an outer block has them.
            GraphOp::Const if op.attr("data").is_some() => self.load(v, map),
            GraphOp::Const => self.push(Node::Splat { value: splat(op.attr("value"), to.storage) }),
            GraphOp::Iota => {
                let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0).max(0) as usize;
                let dims = dims_of(func, v);
                let one: Map = vec![map[axis].clone()];
                let (offset, list) = strides(&dims[axis..=axis], &one, &self.body.space);
                self.push(Node::Position { offset, strides: list, dtype: to.storage })
            }
            GraphOp::Ew(f) => {
                let args = op.operands.iter().map(|&x| self.value(x, map)).collect();
                self.push(Node::Apply { f, args, to })
            }
            GraphOp::Select => {
                let cond = match func.ty(op.operands[0]).rank() {
                    0 => self.value(op.operands[0], &Vec::new()),
                    _ => self.value(op.operands[0], map),
                };
                let (a, b) = (self.value(op.operands[1], map), self.value(op.operands[2], map));
                self.push(Node::Select { cond, a, b })
            }
            GraphOp::Cast => {
                let x = self.value(op.operands[0], map);
                let said = op.attr("round").and_then(Attr::as_word).and_then(Rounding::from_name);
                let round = plain(said.unwrap_or(to.rounding()));
                let saturate = op.attr("saturate").and_then(Attr::as_bool);
                let saturate = saturate.unwrap_or(to.saturates());
                self.push(Node::Cast { x, to, round, saturate })
            }
            GraphOp::Bitcast => {
                let x = self.value(op.operands[0], map);
                let from = func.ty(op.operands[0]).dtype();
                self.push(Node::Bitcast { x, from, to: to.storage })
            }
            GraphOp::Philox => {
                let key = self.value(op.operands[0], &Vec::new());
                let counter = self.value(op.operands[1], map);
                let word = op.attr("word").and_then(Attr::as_int).unwrap_or(0);
                self.push(Node::Philox { key, counter, word })
            }
            GraphOp::Broadcast
            | GraphOp::Reshape
            | GraphOp::Transpose
            | GraphOp::Slice
            | GraphOp::Reverse
            | GraphOp::StopGradient
            | GraphOp::Shard
            | GraphOp::OptBarrier => {
                let place = op.results.iter().position(|&r| r == v).unwrap_or(0);
                match through(func, id, map, &mut self.body.space) {
                    Some(inner) => self.value(op.operands[place], &inner),
                    None => self.load(v, map),
                }
            }
            GraphOp::Reduce => {
                let inner = combined_map(func, id, map, &self.axes(v));
                let x = self.value(op.operands[0], &inner);
                let axes = self.bound(v);
                let op = operator(func, id).unwrap_or(ReduceOp::Sum);
                let accum = accumulator(func, id).unwrap_or(DType::F32);
                self.push(Node::Reduce { x, op, accum, axes, to })
            }
            GraphOp::ArgReduce => {
                let inner = combined_map(func, id, map, &self.axes(v));
                let x = self.value(op.operands[0], &inner);
                let axes = self.bound(v);
                let op = operator(func, id).unwrap_or(ReduceOp::Max);
                match axes.first() {
                    Some(&axis) => {
                        self.body.apart.push(axis);
                        self.push(Node::ArgReduce { x, op, axis })
                    }
                    None => self.push(Node::Splat { value: Scalar::I64(0) }),
                }
            }
            GraphOp::Scan => self.scan(id, v, map),
            GraphOp::Dot => self.dot(id, v, map),
            GraphOp::Gather => self.gather(id, map),
            GraphOp::DynamicSlice => {
                let x = op.operands[0];
                let (dims, extent) = (dims_of(func, x), ints("extent"));
                let most: Vec<i64> = dims.iter().zip(&extent).map(|(d, e)| d - e).collect();
                let at: Vec<_> = op.group("at").iter().copied().zip(most).collect();
                let moved = self.moves(&at, &dims);
                let (offset, list) = strides(&dims, map, &self.body.space);
                let access = Access { value: memory_of(self.grouping, x), offset, strides: list };
                self.push(Node::Load { access, dtype: to.storage, moved, window: Vec::new() })
            }
            GraphOp::Concat if !self.grouping.stored.contains_key(&v) => self.concat(id, map),
            GraphOp::Pad if !self.grouping.stored.contains_key(&v) => self.pad(id, map),
            // These always have memory.
            GraphOp::Concat
            | GraphOp::Pad
            | GraphOp::DynamicUpdateSlice
            | GraphOp::Dim
            | GraphOp::Scatter
            | GraphOp::Sort
            | GraphOp::Conv
            | GraphOp::WindowReduce
            | GraphOp::WindowArgReduce
            | GraphOp::KernelCall
            | GraphOp::Return
            | GraphOp::Yield
            | GraphOp::Cond
            | GraphOp::While
            | GraphOp::Loop
            | GraphOp::Call
            | GraphOp::Composite
            | GraphOp::Manual
            | GraphOp::Vary
            | GraphOp::Own
            | GraphOp::AllReduce
            | GraphOp::AllGather
            | GraphOp::ReduceScatter
            | GraphOp::AllToAll
            | GraphOp::Permute
            | GraphOp::FromRank
            | GraphOp::AxisIndex => self.load(v, map),
        }
    }

    /// The axes that a value is reduced along, one for each of its own.
    fn axes(&self, v: Value) -> Vec<Axis> {
        self.group.bound.get(&v).cloned().unwrap_or_default()
    }

    /// The axes that they are split into.
    fn bound(&self, v: Value) -> Vec<Axis> {
        self.body.space.expand(&self.axes(v))
    }

    /// A reverse scan is a forward scan over reversed positions.
    fn scan(&mut self, id: OpId, v: Value, map: &Map) -> NodeId {
        let func = self.func;
        let op = &func.ops[id];
        let to = elem(func.ty(v));
        let axes = self.bound(v);
        let x = self.value(op.operands[0], map);
        let flag = |name: &str| op.attr(name).and_then(Attr::as_bool).unwrap_or(false);
        let (operator, accum) =
            (operator(func, id).unwrap_or(ReduceOp::Sum), accumulator(func, id));
        let accum = accum.unwrap_or(DType::F32);
        let exclusive = flag("exclusive");
        match axes.first() {
            Some(&axis) => {
                self.body.apart.push(axis);
                self.push(Node::Scan { x, op: operator, accum, axis, exclusive, to })
            }
            None if exclusive => {
                let identity = operator.identity(accum).unwrap_or(Scalar::zero(accum));
                let value = cast(identity, accum, to.storage);
                self.push(Node::Splat { value })
            }
            None => x,
        }
    }

    fn dot(&mut self, id: OpId, v: Value, map: &Map) -> NodeId {
        let func = self.func;
        let op = &func.ops[id];
        let to = elem(func.ty(v));
        let axes = self.group.bound.get(&v).cloned().unwrap_or_default();
        let depth: Vec<Line> = axes.iter().map(|&a| Line::along(vec![a])).collect();
        let maps = operand_maps(func, id, map, &depth);
        let accum = sums_in(func, id).unwrap_or(DType::F32);
        if !is_matrix(func, id) {
            let sides = [0, 1].map(|i| {
                let x = self.value(op.operands[i], &maps[i]);
                self.push(Node::Cast {
                    x,
                    to: NumType::plain(accum),
                    round: Rounding::Rne,
                    saturate: accum.saturates_by_default(),
                })
            });
            let args = sides.to_vec();
            let x = self.push(Node::Apply { f: ScalarFn::Mul, args, to: NumType::plain(accum) });
            let axes = self.body.space.expand(&axes);
            return self.push(Node::Reduce { x, op: ReduceOp::Sum, accum, axes, to });
        }
        let s = crate::class::sides(func, id);
        let of = |tracer: &Self, lines: &[Line]| -> Vec<Axis> {
            lines.iter().flat_map(|l| tracer.body.space.expand(&l.axes)).collect()
        };
        let (batch, free) = (s.batch[0].len(), s.free[0].len());
        let rows = of(self, &map[batch..batch + free]);
        let columns = of(self, &map[batch + free..]);
        let [a, b] = [0, 1].map(|i| self.operand(op.operands[i], self.group.operands[i], &maps[i]));
        self.body.product = Some(Product {
            a,
            b,
            types: [0, 1].map(|i| func.ty(op.operands[i]).dtype()),
            accum,
            rows,
            columns,
            depth: self.body.space.expand(&axes),
            class: op.attr("class").and_then(Attr::as_word).map(str::to_string),
        });
        self.push(Node::Sums { to })
    }

    /// The access to `read`, which is in memory behind views of a matmul's operand. Another kernel
    /// may write one of the views too, but not before this one runs.
    fn operand(&mut self, mut v: Value, read: Value, map: &Map) -> Access {
        let mut map = self.body.space.settle(map);
        loop {
            let next = match self.grouping.def(self.func, v) {
                Some(id) if v != read && matches!(class(self.func, id), Class::View) => {
                    let op = &self.func.ops[id];
                    let place = op.results.iter().position(|&r| r == v).unwrap_or(0);
                    let inner = through(self.func, id, &map, &mut self.body.space);
                    inner.map(|m| (op.operands[place], m))
                }
                _ => None,
            };
            match next {
                Some((inner, inner_map)) => (v, map) = (inner, inner_map),
                None => {
                    let dims = dims_of(self.func, v);
                    let (offset, list) = strides(&dims, &map, &self.body.space);
                    return Access { value: memory_of(self.grouping, v), offset, strides: list };
                }
            }
        }
    }

    fn gather(&mut self, id: OpId, map: &Map) -> NodeId {
        let func = self.func;
        let op = &func.ops[id];
        let x = op.operands[0];
        let axes = crate::class::axes_of(func, id, "axes");
        let batch = op.attr("batch").and_then(Attr::as_int).unwrap_or(0).max(0) as usize;
        let lead = func.ty(op.operands[1]).rank() - 1;
        let dims = dims_of(func, x);
        let places = index_maps(func, id, map);
        let mut rest = map[lead..].iter();
        let mut at = Vec::new();
        for (axis, &extent) in dims.iter().enumerate() {
            if let Some(k) = axes.iter().position(|&a| a == axis) {
                let node = self.value(op.operands[1], &places[k].clone());
                let wide = Node::Cast {
                    x: node,
                    to: NumType::plain(DType::I64),
                    round: Rounding::Rne,
                    saturate: true,
                };
                at.push(self.push(wide));
            } else {
                let line = if axis < batch {
                    map[axis].clone()
                } else {
                    rest.next().cloned().unwrap_or(Line::at(0))
                };
                let (offset, list) = strides(&[extent], &vec![line], &self.body.space);
                at.push(self.push(Node::Position { offset, strides: list, dtype: DType::I64 }));
            }
        }
        let other = op.group("other").first().map(|&o| self.value(o, &Vec::new()));
        let clamp = op.attr("oob").and_then(Attr::as_word) != Some("fill");
        let dtype = func.ty(x).dtype();
        let value = memory_of(self.grouping, x);
        self.push(Node::Gather { value, dims, dtype, at, other, clamp })
    }
}

/// Stochastic rounding has no random draw here; round to nearest is its expectation.
pub fn plain(round: Rounding) -> Rounding {
    match round {
        Rounding::Stochastic => Rounding::Rne,
        round => round,
    }
}

/// The value of a constant in the carrier of its dtype.
pub fn splat(value: Option<&Attr>, dtype: DType) -> Scalar {
    let value = match value {
        Some(Attr::Bool(v)) => Scalar::Bool(*v),
        Some(Attr::Int(v)) if dtype == DType::U64 => Scalar::U64(*v as u64),
        Some(Attr::Int(v)) => Scalar::I64(*v),
        Some(Attr::Float(v)) => Scalar::F64(*v),
        _ => Scalar::zero(dtype),
    };
    cast(value, value.dtype(), dtype)
}
