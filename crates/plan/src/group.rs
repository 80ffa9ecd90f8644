//! Operator fusion: which values get memory, and which ops share a kernel.
//!
//! A block is walked from its end. Each use requests a value at a map into the iteration space of
//! the kernel that uses it. A value that only one kernel requests is fused into it. Other values
//! get memory and a kernel; where possible they become another result of a kernel that requests
//! them. Views (transpose, slice, reshape) pass requests on with another map.

use crate::class::{Class, along, class, is_matrix, operand_maps, sides};
use crate::index::{Axis, Line, Map, Space, dims_of, is_view, is_whole, strides, through};
use crate::scatter::positions;
use crate::strided;
use std::collections::{BTreeMap, BTreeSet};
use tessera_graph::ops::kernel::fresh;
use tessera_graph::{GraphFunc, GraphOp};
use tessera_ir::{Attr, BlockId, OpId, Value};
use tessera_support::SideTable;

mod inside;
pub mod pieces;

/// One use of a value.
#[derive(Clone, Debug)]
pub struct Request {
    pub group: usize,
    pub how: How,
}

#[derive(Clone, Debug)]
pub enum How {
    /// Its elements at a map, computed there or read.
    Element(Map),
    /// Some of its elements, from memory of its own.
    Stored,
    /// All of it in memory, row by row.
    Whole,
}

/// What a kernel is made for.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Loops over the space.
    Nest,
    /// An op that is not a loop nest: a host call, control flow, sorting.
    Op(OpId),
    /// The block's end and all that is outside.
    End,
}

/// A value that a kernel writes.
#[derive(Clone, Debug)]
pub struct Output {
    /// What is computed.
    pub value: Value,
    pub map: Map,
    /// Whose memory it goes to, and where: a map into its extents.
    pub target: Value,
    pub place: Map,
    /// Positions that are added to `place` when the kernel runs, with the largest allowed.
    pub moved: Vec<(Value, i64)>,
}

#[derive(Clone, Debug)]
pub struct Group {
    pub kind: Kind,
    pub space: Space,
    pub outputs: Vec<Output>,
    /// Axes that are reduced, and for each reduction inside its axes.
    pub reduced: Vec<Axis>,
    pub bound: BTreeMap<Value, Vec<Axis>>,
    /// A matmul whose accumulator the rest is computed from.
    pub product: Option<Value>,
    /// The value that the matmul reads from memory for each operand: the operand, or a value behind
    /// views of it. Only these are known to be written before.
    pub operands: Vec<Value>,
    /// The position of its latest op in the block.
    pub place: usize,
    /// Operations of an element: ops that are parts of it, and those of their expansions.
    pub weight: usize,
    pub succ: BTreeSet<usize>,
}

pub struct Grouping {
    pub block: BlockId,
    pub groups: Vec<Group>,
    /// The values that have memory, and the group that writes it.
    pub stored: BTreeMap<Value, usize>,
    /// Values that are reshapes of others, in this block and in those around it.
    pub alias: BTreeMap<Value, Value>,
}

impl Grouping {
    /// The op that defines a value, if it is in this block. A captured value is in memory when the
    /// block runs: its op belongs to another kernel, with another iteration space.
    pub fn def(&self, func: &GraphFunc, v: Value) -> Option<OpId> {
        func.def_id(v).filter(|&id| func.ops[id].block == self.block)
    }
}

pub const END: usize = 0;

/// `split` are values that get memory, `alone` says that each has a kernel too, `apart` are matmuls
/// that get one, `outer` is the grouping of the block around this one.
pub fn group(
    func: &GraphFunc,
    block: BlockId,
    split: &BTreeSet<Value>,
    alone: bool,
    apart: &BTreeSet<Value>,
    outer: Option<&Grouping>,
) -> Grouping {
    let end = Group {
        kind: Kind::End,
        space: Space::default(),
        outputs: Vec::new(),
        reduced: Vec::new(),
        bound: BTreeMap::new(),
        product: None,
        operands: Vec::new(),
        place: usize::MAX,
        weight: 0,
        succ: BTreeSet::new(),
    };
    let mut sweep = Sweep {
        func,
        out: Grouping {
            block,
            groups: vec![end],
            stored: BTreeMap::new(),
            alias: outer.map(|o| o.alias.clone()).unwrap_or_default(),
        },
        requests: BTreeMap::new(),
        place: 0,
        effect: None,
        split,
        alone,
        apart,
        uses: tessera_graph::walk::uses(func),
    };
    let ops = &func.blocks[block].ops;
    for (place, &id) in ops.iter().enumerate().rev() {
        sweep.place = place;
        sweep.visit(id);
    }
    sweep.out
}

struct Sweep<'f> {
    func: &'f GraphFunc,
    out: Grouping,
    requests: BTreeMap<Value, Vec<Request>>,
    place: usize,
    /// The group of the next effect in the text: effects keep their order.
    effect: Option<usize>,
    /// Values that get memory whatever the rules say.
    split: &'f BTreeSet<Value>,
    /// No kernel has results of several ops.
    alone: bool,
    /// Matmuls that nothing else is fused with.
    apart: &'f BTreeSet<Value>,
    uses: SideTable<Value, Vec<(OpId, usize)>>,
}

impl Sweep<'_> {
    fn ask(&mut self, value: Value, group: usize, how: How) {
        self.requests.entry(value).or_default().push(Request { group, how });
    }

    fn add(&mut self, kind: Kind) -> usize {
        self.out.groups.push(Group {
            kind,
            space: Space::default(),
            outputs: Vec::new(),
            reduced: Vec::new(),
            bound: BTreeMap::new(),
            product: None,
            operands: Vec::new(),
            place: self.place,
            weight: 0,
            succ: BTreeSet::new(),
        });
        self.out.groups.len() - 1
    }

    /// Whether something of `from` has to run before something of `to`.
    fn reaches(&self, from: usize, to: usize) -> bool {
        let (mut list, mut seen) = (vec![from], BTreeSet::new());
        while let Some(at) = list.pop() {
            if at == to {
                return true;
            }
            if seen.insert(at) {
                list.extend(&self.out.groups[at].succ);
            }
        }
        false
    }

    fn visit(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        match class(func, id) {
            Class::End => {
                for &v in &op.operands {
                    self.ask(v, END, How::Whole);
                }
            }
            Class::Source => self.source(id),
            Class::View => {
                for (i, &v) in op.results.iter().enumerate() {
                    self.view(id, v, op.operands[i]);
                }
            }
            Class::Pointwise | Class::Combine | Class::Gather | Class::DynamicSlice => {
                self.compute(id);
            }
            Class::Product => self.product(id),
            Class::Parts => self.parts(id),
            Class::Own => self.own(id),
        }
    }

    /// Takes the requests of a value; it gets memory that `group` writes.
    fn store(&mut self, v: Value, group: usize) {
        let requests = self.requests.remove(&v).unwrap_or_default();
        for request in requests {
            if request.group != group {
                self.out.groups[group].succ.insert(request.group);
            }
        }
        self.out.stored.insert(v, group);
    }

    fn wanted(&self, v: Value) -> &[Request] {
        self.requests.get(&v).map_or(&[], Vec::as_slice)
    }

    fn source(&mut self, id: OpId) {
        let v = self.func.ops[id].results[0];
        let stored = |r: &Request| !matches!(r.how, How::Element(_));
        let dense = self.func.ops[id].attr("data").is_some();
        if self.wanted(v).is_empty() {
            return;
        }
        if dense {
            // Memory that exists before anything runs.
            let group = self.add(Kind::Op(id));
            self.store(v, group);
        } else if self.wanted(v).iter().any(stored) || self.split.contains(&v) {
            self.own_nest(v);
        }
    }

    /// A kernel of its own that writes a value.
    fn own_nest(&mut self, v: Value) -> (usize, Map) {
        let group = self.add(Kind::Nest);
        let map = self.fresh(group, &dims_of(self.func, v));
        self.output(group, v, map.clone());
        self.store(v, group);
        (group, map)
    }

    fn fresh(&mut self, group: usize, dims: &[i64]) -> Map {
        let space = &mut self.out.groups[group].space;
        dims.iter()
            .map(|&d| match d {
                1 => Line::at(0),
                d => Line::along(vec![space.add(d)]),
            })
            .collect()
    }

    fn output(&mut self, group: usize, v: Value, map: Map) {
        let output = Output { value: v, place: map.clone(), map, target: v, moved: Vec::new() };
        self.out.groups[group].outputs.push(output);
    }

    fn view(&mut self, id: OpId, v: Value, operand: Value) {
        if self.wanted(v).is_empty() {
            return;
        }
        let whole = self.wanted(v).iter().any(|r| matches!(r.how, How::Whole));
        let code = self.func.ops[id].code;
        let same = matches!(
            code,
            GraphOp::Reshape | GraphOp::StopGradient | GraphOp::Shard | GraphOp::OptBarrier
        );
        let mut passed = Vec::new();
        let mut failed = self.split.contains(&v);
        for request in self.wanted(v).to_vec() {
            let map = match &request.how {
                How::Whole => continue,
                How::Stored => {
                    failed = true;
                    continue;
                }
                How::Element(map) => map.clone(),
            };
            let space = &mut self.out.groups[request.group].space;
            match through(self.func, id, &map, space) {
                Some(map) => passed.push((request, map)),
                None => failed = true,
            }
        }
        if (failed || whole) && !same {
            let (group, map) = self.own_nest(v);
            let space = &mut self.out.groups[group].space;
            let map = through(self.func, id, &map, space).unwrap_or_default();
            self.ask(operand, group, How::Element(map));
            return;
        }
        if failed || whole {
            // The same memory under another shape.
            let requests = self.requests.remove(&v).unwrap_or_default();
            self.out.alias.insert(v, operand);
            for request in requests {
                self.ask(operand, request.group, How::Whole);
            }
            return;
        }
        for (request, map) in passed {
            self.ask(operand, request.group, How::Element(map));
        }
    }

    fn product(&mut self, id: OpId) {
        let func = self.func;
        let v = func.ops[id].results[0];
        if self.wanted(v).is_empty() {
            return;
        }
        let dims = dims_of(func, v);
        let matrix = is_matrix(func, id);
        let fits = |sweep: &Self, group: usize, map: &Map| {
            let g = &sweep.out.groups[group];
            matrix
                && matches!(g.kind, Kind::Nest)
                && g.reduced.is_empty()
                && g.product.is_none()
                && is_whole(&dims, map, &g.space)
                && g.outputs.iter().all(|o| o.moved.is_empty())
                && {
                    let used: BTreeSet<Axis> =
                        map.iter().flat_map(|l| g.space.expand(&l.axes)).collect();
                    sweep.axes(group).iter().all(|a| used.contains(a) || g.space.extents[*a] == 1)
                }
                && !sweep.sees_positions(group)
        };
        let (group, map) = match (self.sole(v), self.host(v)) {
            _ if self.apart.contains(&v) => self.own_nest(v),
            (Some((group, map)), _) if !self.split.contains(&v) && fits(self, group, &map) => {
                self.requests.remove(&v);
                (group, map)
            }
            (_, Some((group, map))) if fits(self, group, &map) => {
                self.output(group, v, map.clone());
                self.store(v, group);
                (group, map)
            }
            _ => self.own_nest(v),
        };
        let parts = sides(func, id);
        let space = &mut self.out.groups[group].space;
        let depth: Vec<Line> =
            parts.depth.iter().map(|&d| Line::along(vec![space.add(d)])).collect();
        let list: Vec<Axis> = depth.iter().flat_map(|l| l.axes.clone()).collect();
        space.fixed.extend(list.clone());
        self.out.groups[group].bound.insert(v, list.clone());
        if matrix {
            self.out.groups[group].product = Some(v);
        } else {
            self.out.groups[group].reduced = list;
        }
        let maps = operand_maps(func, id, &map, &depth);
        for (side, map) in maps.into_iter().enumerate() {
            let operand = func.ops[id].operands[side];
            if matrix {
                self.stored_operand(operand, group, map);
            } else {
                self.ask(operand, group, How::Element(map));
            }
        }
    }

    /// Requests an operand of a matmul where its k is one axis of memory: behind as many views as
    /// leave it so.
    fn stored_operand(&mut self, operand: Value, group: usize, map: Map) {
        let func = self.func;
        let depth = |sweep: &Self, v: Value, map: &Map| -> bool {
            let g = &sweep.out.groups[group];
            let (_, list) = strides(&dims_of(func, v), map, &g.space);
            let bound = g.product.and_then(|p| g.bound.get(&p)).cloned().unwrap_or_default();
            let axes: Vec<Axis> = bound.into_iter().filter(|&a| g.space.extents[a] != 1).collect();
            let of = |a: Axis| list.iter().find(|(b, _)| *b == a).map_or(0, |(_, s)| *s);
            axes.windows(2).all(|w| of(w[0]) == of(w[1]) * g.space.extents[w[1]])
        };
        let (mut at, mut at_map) = (operand, map);
        let mut best = operand;
        while let Some(id) = self.out.def(func, at) {
            if !is_view(func.ops[id].code)
                || self.split.contains(&at)
                || !matches!(class(func, id), Class::View)
            {
                break;
            }
            let place = func.ops[id].results.iter().position(|&r| r == at).unwrap_or(0);
            let Some(next) = through(func, id, &at_map, &mut self.out.groups[group].space) else {
                break;
            };
            at = func.ops[id].operands[place];
            at_map = next;
            if depth(self, at, &at_map) {
                best = at;
            }
        }
        // Views above are kept; this value must be in memory.
        self.out.groups[group].operands.push(best);
        self.ask(best, group, How::Stored);
    }

    /// Whether what a kernel computes depends on positions themselves.
    fn sees_positions(&self, group: usize) -> bool {
        let func = self.func;
        let mut list: Vec<Value> = self.out.groups[group].outputs.iter().map(|o| o.value).collect();
        let mut seen = BTreeSet::new();
        while let Some(v) = list.pop() {
            if !seen.insert(v) {
                continue;
            }
            let Some(id) = self.out.def(func, v) else { continue };
            match class(func, id) {
                Class::Source => {
                    if func.ops[id].code == GraphOp::Iota {
                        return true;
                    }
                }
                Class::View | Class::Pointwise => {
                    for &operand in &func.ops[id].operands {
                        let elsewhere = self.out.stored.get(&operand).is_some_and(|&g| g != group);
                        if !elsewhere {
                            list.push(operand);
                        }
                    }
                }
                Class::Gather | Class::DynamicSlice => return true,
                // Read part by part.
                Class::Parts if !self.out.stored.contains_key(&v) => return true,
                Class::Combine | Class::Product | Class::Parts | Class::Own | Class::End => {}
            }
        }
        false
    }

    fn parts(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let v = op.results[0];
        if self.wanted(v).is_empty() {
            return;
        }
        if matches!(op.code, GraphOp::Concat | GraphOp::Pad) && self.read_in_pieces(id) {
            return;
        }
        let dims = dims_of(func, v);
        let ints = |name: &str| op.attr(name).and_then(Attr::as_ints).unwrap_or_default();
        let mut groups = Vec::new();
        match op.code {
            GraphOp::Concat => {
                let start = vec![0; dims.len()];
                self.joined(id, v, &start, &mut groups);
            }
            GraphOp::Pad => {
                let x = op.operands[0];
                let from = dims_of(func, x);
                let lo = ints("lo");
                let gap = match op.attr("interior") {
                    Some(_) => ints("interior"),
                    None => vec![0; lo.len()],
                };
                let fill = self.add(Kind::Nest);
                let map = self.fresh(fill, &dims);
                let output = Output {
                    value: op.operands[1],
                    map: Vec::new(),
                    target: v,
                    place: map,
                    moved: Vec::new(),
                };
                self.out.groups[fill].outputs.push(output);
                self.ask(op.operands[1], fill, How::Element(Vec::new()));
                groups.push(fill);
                // Of each axis, the elements that stay and where the first of them goes.
                let mut kept = Vec::new();
                for i in 0..from.len() {
                    let step = gap[i] + 1;
                    let first = if lo[i] < 0 { (-lo[i] + step - 1) / step } else { 0 };
                    let room = dims[i] - lo[i];
                    let last = if room <= 0 { -1 } else { (room - 1) / step };
                    kept.push((first, (last.min(from[i] - 1) - first + 1).max(0), step));
                }
                if kept.iter().all(|k| k.1 > 0) {
                    let g = self.add(Kind::Nest);
                    let extents: Vec<i64> = kept.iter().map(|k| k.1).collect();
                    let space = self.fresh(g, &extents);
                    let line = |l: &Line, offset: i64, step: i64| Line {
                        offset,
                        step,
                        axes: l.axes.clone(),
                    };
                    let map =
                        space.iter().zip(&kept).map(|(l, k)| line(l, k.0, 1)).collect::<Map>();
                    let place = (0..from.len())
                        .map(|i| line(&space[i], lo[i] + kept[i].0 * kept[i].2, kept[i].2))
                        .collect();
                    self.part(g, x, map, v, place, Vec::new());
                    groups.push(g);
                }
            }
            GraphOp::Scatter => {
                let g = self.add(Kind::Nest);
                let map = self.fresh(g, &dims);
                self.part(g, op.operands[0], map.clone(), v, map, Vec::new());
                groups.push(g);
                let g = self.add(Kind::Op(id));
                self.ask(positions(func, id).0, g, How::Whole);
                self.ask(op.operands[2], g, How::Whole);
                groups.push(g);
            }
            _ => {
                let (x, update) = (op.operands[0], op.operands[1]);
                let g = self.add(Kind::Nest);
                let map = self.fresh(g, &dims);
                self.part(g, x, map.clone(), v, map, Vec::new());
                groups.push(g);
                let g = self.add(Kind::Nest);
                let extents = dims_of(func, update);
                let map = self.fresh(g, &extents);
                let moved: Vec<(Value, i64)> = op
                    .group("at")
                    .iter()
                    .zip(dims.iter().zip(&extents))
                    .map(|(&at, (d, e))| (at, d - e))
                    .collect();
                for &(at, _) in &moved {
                    self.ask(at, g, How::Stored);
                }
                self.part(g, update, map.clone(), v, map, moved);
                groups.push(g);
            }
        }
        for pair in groups.windows(2) {
            self.out.groups[pair[0]].succ.insert(pair[1]);
        }
        if let Some(&last) = groups.last() {
            self.store(v, last);
        }
    }

    /// The parts of a concat, written to `target` from `start` on. A part that is a concat itself, and nothing else's,
    /// is written there part by part.
    fn joined(&mut self, id: OpId, target: Value, start: &[i64], groups: &mut Vec<usize>) {
        let func = self.func;
        let axis = along(func, id)[0];
        let mut start = start.to_vec();
        for &part in &func.ops[id].operands {
            let dims = dims_of(func, part);
            let inner = self.out.def(func, part).filter(|&inner| {
                func.ops[inner].code == GraphOp::Concat
                    && self.uses[part].len() == 1
                    && !self.split.contains(&part)
            });
            if let Some(inner) = inner {
                self.joined(inner, target, &start, groups);
            } else if !dims.contains(&0) || dims_of(func, target).contains(&0) {
                let g = self.add(Kind::Nest);
                let map = self.fresh(g, &dims);
                let mut place = map.clone();
                place.iter_mut().zip(&start).for_each(|(line, from)| line.offset += from);
                self.part(g, part, map, target, place, Vec::new());
                groups.push(g);
            }
            start[axis] += dims[axis];
        }
    }

    fn part(
        &mut self,
        group: usize,
        value: Value,
        map: Map,
        target: Value,
        place: Map,
        moved: Vec<(Value, i64)>,
    ) {
        self.ask(value, group, How::Element(map.clone()));
        let output = Output { value, map, target, place, moved };
        self.out.groups[group].outputs.push(output);
    }

    fn own(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let pure = !matches!(op.code, GraphOp::KernelCall);
        if pure && op.regions.is_empty() && op.results.iter().all(|&v| self.wanted(v).is_empty()) {
            return;
        }
        let group = self.add(Kind::Op(id));
        if has_effect(func, id)
            && let Some(next) = self.effect.replace(group)
        {
            self.out.groups[group].succ.insert(next);
        }
        for &v in &op.results {
            self.store(v, group);
        }
        let unread = fresh(op.attr("fresh"));
        for (i, &v) in op.operands.iter().enumerate() {
            match strided::argument(func, op, i) {
                Some(part) => self.ask(part.root, group, How::Stored),
                None if unread.contains(&i) => {}
                None => self.ask(v, group, How::Whole),
            }
        }
        for &region in &op.regions {
            for v in tessera_graph::walk::captures(func, region) {
                self.ask(v, group, How::Whole);
            }
        }
    }
}

/// Whether an op, or one of its regions, has an effect beside its results: a call that only reads
/// is made for its effect on the host.
fn has_effect(func: &GraphFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    let inside = |&block: &BlockId| func.blocks[block].ops.iter().any(|&i| has_effect(func, i));
    op.code == GraphOp::KernelCall && op.results.is_empty() || op.regions.iter().any(inside)
}
