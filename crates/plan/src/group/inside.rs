//! Fusion decisions: which kernel an op becomes a part of. It is the only one that requests its
//! value, one that can compute it beside others, or one of its own.

use super::{How, Kind, Request, Sweep};
use crate::class::{Class, along, class, combined_map, index_maps, is_light, weight_of};
use crate::index::{Axis, Line, Map, dims_of, is_whole};
use std::collections::BTreeSet;
use tessera_graph::GraphOp;
use tessera_ir::{Attr, OpId, Value};

/// Reductions of more elements are not repeated or kept inside a larger kernel.
const LARGEST_INSIDE: i64 = 1 << 16;

/// The most places where a value is computed again.
const REPEATED: usize = 6;

/// The most results of a kernel that others are added to.
const OUTPUTS: usize = 8;

/// Elements below which a launch costs more than its work.
const SMALL: i64 = 1 << 12;

/// Columns that a kernel combines in several blocks of vectors.
const COLUMNS: i64 = 32;

/// Instructions that cost no more than reading their result.
const FEW: usize = 2;

/// The most operations of an element in a kernel that others are fused into. Code generators take
/// more than twice as long for twice as many in a row, and from here on an array in memory costs
/// less than computing it again.
const HEAVIEST: usize = 2048;

/// The most ops that a search for a reduction visits.
const SEARCHED: usize = 32;

impl Sweep<'_> {
    /// The kernel and map at which a value is requested, where there is only one.
    pub(super) fn sole(&self, v: Value) -> Option<(usize, Map)> {
        let mut found: Option<(usize, Map)> = None;
        for request in self.wanted(v) {
            let How::Element(map) = &request.how else { return None };
            let map = self.out.groups[request.group].space.settle(map);
            match &found {
                Some((group, before)) => {
                    let before = self.out.groups[*group].space.settle(before);
                    if *group != request.group || before != map {
                        return None;
                    }
                }
                None => found = Some((request.group, map)),
            }
        }
        found
    }

    /// A kernel that requests all of a value in order and may write it too.
    pub(super) fn host(&self, v: Value) -> Option<(usize, Map)> {
        let dims = dims_of(self.func, v);
        self.wanted(v).iter().find_map(|request| {
            let How::Element(map) = &request.how else { return None };
            let group = &self.out.groups[request.group];
            if !matches!(group.kind, Kind::Nest) || !is_whole(&dims, map, &group.space) {
                return None;
            }
            let used: BTreeSet<Axis> =
                map.iter().flat_map(|l| group.space.expand(&l.axes)).collect();
            let all = self.axes(request.group);
            // Axes that are not its own must be wholly in one tile.
            let rest = all.iter().filter(|a| !used.contains(a) && group.space.extents[**a] != 1);
            let reduced = group.space.expand(&group.reduced);
            let inside = rest.clone().all(|a| reduced.contains(a))
                || (reduced.is_empty()
                    && group.product.is_none()
                    && self.leads_to_reduction(
                        v,
                        &rest.map(|&a| group.space.extents[a]).collect::<Vec<_>>(),
                    ));
            // Where columns are reduced, tiles are as high as the array: what else is computed from
            // them would not stay in the caches.
            let innermost = map.iter().rev().find(|l| !l.axes.is_empty());
            let along_rows = innermost.is_none_or(|l| {
                let last = group.space.expand(&l.axes);
                reduced.is_empty()
                    || last.last().is_some_and(|a| reduced.contains(a))
                    || !reduced.iter().any(|a| used.contains(a))
            });
            let inside = inside && along_rows;
            let mut others = self.wanted(v).iter().filter(|r| r.group != request.group);
            let free = others.all(|r| !self.reaches(r.group, request.group));
            let mut mine = self.wanted(v).iter().filter(|r| r.group == request.group);
            let settled = group.space.settle(map);
            let agreed = mine.all(|r| match &r.how {
                How::Element(m) => group.space.settle(m) == settled,
                How::Stored | How::Whole => false,
            });
            (inside && free && agreed).then(|| (request.group, map.clone()))
        })
    }

    /// Whether a value is computed from a reduction along axes of these extents.
    fn leads_to_reduction(&self, v: Value, extents: &[i64]) -> bool {
        let func = self.func;
        if extents.iter().product::<i64>() > LARGEST_INSIDE {
            return false;
        }
        let (mut list, mut seen) = (vec![v], 0);
        while let Some(v) = list.pop() {
            seen += 1;
            let Some(id) = self.out.def(func, v).filter(|_| seen <= SEARCHED) else { continue };
            match class(func, id) {
                Class::Combine if func.ops[id].code == GraphOp::Reduce => {
                    let dims = dims_of(func, func.ops[id].operands[0]);
                    let axes = along(func, id);
                    let mine = axes.iter().map(|&a| dims[a]).filter(|&d| d != 1);
                    if mine.eq(extents.iter().copied()) && !self.out.stored.contains_key(&v) {
                        return true;
                    }
                }
                Class::Pointwise | Class::View => list.extend(&func.ops[id].operands),
                _ => {}
            }
        }
        false
    }

    /// The axes of a kernel's outputs, and those that are reduced.
    pub(super) fn axes(&self, group: usize) -> BTreeSet<Axis> {
        let group = &self.out.groups[group];
        let mut out: BTreeSet<Axis> = group.space.expand(&group.reduced).into_iter().collect();
        for output in &group.outputs {
            out.extend(output.map.iter().flat_map(|l| group.space.expand(&l.axes)));
        }
        out
    }

    pub(super) fn compute(&mut self, id: OpId) {
        let v = self.func.ops[id].results[0];
        if self.wanted(v).is_empty() {
            return;
        }
        if !self.split.contains(&v)
            && let Some((group, map)) = self.sole(v)
            && !self.is_repeated(id, group, &map)
            && self.has_room(group, id)
            && self.enter(id, group, &map)
        {
            self.requests.remove(&v);
            return;
        }
        if self.is_cheap(id) {
            let all: Vec<Request> = self.wanted(v).to_vec();
            let element = |r: &Request| matches!(r.how, How::Element(_));
            let room = all.iter().all(|r| self.has_room(r.group, id));
            let few = all.len() <= REPEATED && !self.split.contains(&v);
            if all.iter().all(element) && few && room {
                self.requests.remove(&v);
                for request in all {
                    if let How::Element(map) = request.how {
                        self.enter(id, request.group, &map);
                    }
                }
                return;
            }
        }
        if let Some((group, map)) = self.host(v)
            && self.has_room(group, id)
            && self.enter(id, group, &map)
        {
            self.keep_together(group, &map);
            self.output(group, v, map);
            self.store(v, group);
            return;
        }
        if let Some((group, map)) = self.beside(id)
            && self.enter(id, group, &map)
        {
            self.output(group, v, map);
            self.store(v, group);
            return;
        }
        let group = self.add(Kind::Nest);
        let map = self.own_space(id, group);
        self.output(group, v, map.clone());
        self.store(v, group);
        self.enter(id, group, &map);
    }

    /// Whether a kernel that reduces columns would compute this for each row, once for every few
    /// columns and one number at a time, instead of in vectors beforehand.
    fn is_repeated(&self, id: OpId, group: usize, map: &Map) -> bool {
        let func = self.func;
        let g = &self.out.groups[group];
        let long = |a: &Axis| g.space.extents[*a] != 1;
        let used: BTreeSet<Axis> =
            map.iter().flat_map(|l| g.space.expand(&l.axes)).filter(long).collect();
        let reduced = g.space.expand(&g.reduced);
        let rest = self.axes(group).into_iter().filter(|a| !used.contains(a));
        let columns: i64 = rest.map(|a| g.space.extents[a]).product();
        matches!(class(func, id), Class::Pointwise)
            && g.product.is_none()
            && !used.is_empty()
            && used.iter().all(|a| reduced.contains(a))
            && columns >= COLUMNS
            && self.is_long(id)
    }

    /// Whether a value is computed by more than a few instructions.
    fn is_long(&self, id: OpId) -> bool {
        let (mut list, mut seen) = (vec![id], BTreeSet::new());
        while let Some(id) = list.pop() {
            if !seen.insert(id) {
                continue;
            }
            if seen.len() > FEW || !is_light(self.func, id) {
                return true;
            }
            let made =
                self.func.ops[id].operands.iter().filter_map(|&v| self.out.def(self.func, v));
            list.extend(made.filter(|&id| matches!(class(self.func, id), Class::Pointwise)));
        }
        false
    }

    /// Whether a kernel has room for one more op.
    fn has_room(&self, group: usize, id: OpId) -> bool {
        let weight = self.out.groups[group].weight;
        weight == 0 || weight + weight_of(self.func, id) <= HEAVIEST
    }

    /// A kernel over the same elements that also reads an array of this op, or that is small:
    /// fusing both reads the array once, or saves a launch.
    fn beside(&self, id: OpId) -> Option<(usize, Map)> {
        let func = self.func;
        let v = func.ops[id].results[0];
        if !matches!(class(func, id), Class::Pointwise) || self.alone {
            return None;
        }
        let dims = dims_of(func, v);
        let size: i64 = dims.iter().product();
        let mine = self.leaves(v);
        let fits = |(at, group): &(usize, &super::Group)| {
            let Some(first) = group.outputs.first() else { return false };
            let plain = |o: &super::Output| {
                o.value == o.target && o.place == o.map && o.moved.is_empty() && o.map == first.map
            };
            let used: BTreeSet<Axis> =
                first.map.iter().flat_map(|l| group.space.expand(&l.axes)).collect();
            matches!(group.kind, Kind::Nest)
                && self.has_room(*at, id)
                && group.reduced.is_empty()
                && group.product.is_none()
                && group.outputs.len() < OUTPUTS
                && group.outputs.iter().all(plain)
                && dims_of(func, first.value) == dims
                && is_whole(&dims, &first.map, &group.space)
                && self.axes(*at).iter().all(|a| used.contains(a) || group.space.extents[*a] == 1)
                && (size <= SMALL
                    || group.outputs.iter().any(|o| !mine.is_disjoint(&self.leaves(o.value))))
                && self.wanted(v).iter().all(|r| !self.reaches(r.group, *at))
        };
        let found = self.out.groups.iter().enumerate().rev().find(fits)?;
        Some((found.0, found.1.outputs[0].map.clone()))
    }

    /// The arrays, nearly as large, that a value is computed from element by element, whichever of
    /// the values between have memory.
    fn leaves(&self, v: Value) -> BTreeSet<Value> {
        let func = self.func;
        let size = |v: Value| dims_of(func, v).iter().product::<i64>();
        let least = size(v) / 8;
        let (mut list, mut seen, mut out) = (vec![v], BTreeSet::new(), BTreeSet::new());
        while let Some(v) = list.pop() {
            if size(v) <= least || !seen.insert(v) {
                continue;
            }
            let made = self.out.def(func, v).filter(|_| seen.len() <= SEARCHED);
            match made.map(|id| (id, class(func, id))) {
                Some((id, Class::Pointwise | Class::View)) => list.extend(&func.ops[id].operands),
                Some((_, Class::Source)) => {}
                _ => {
                    out.insert(v);
                }
            }
        }
        out
    }

    /// Axes that an output does not have are wholly in one tile.
    fn keep_together(&mut self, group: usize, map: &Map) {
        let g = &self.out.groups[group];
        let used: BTreeSet<Axis> = map.iter().flat_map(|l| g.space.expand(&l.axes)).collect();
        let rest: Vec<Axis> = self
            .axes(group)
            .into_iter()
            .filter(|a| !used.contains(a) && g.space.extents[*a] != 1)
            .collect();
        if g.reduced.is_empty() && !rest.is_empty() {
            self.out.groups[group].reduced = rest;
        }
    }

    /// The space of a kernel that begins with this op: for a reduction its axes are in the order of
    /// the operand's.
    fn own_space(&mut self, id: OpId, group: usize) -> Map {
        let (func, op) = (self.func, &self.func.ops[id]);
        if op.code != GraphOp::Reduce && op.code != GraphOp::ArgReduce {
            let mut map = self.fresh(group, &dims_of(func, op.results[0]));
            let turned = op.attr("reverse").and_then(Attr::as_bool).unwrap_or(false);
            if op.code == GraphOp::Scan && turned {
                // A reverse scan is a forward scan over reversed positions.
                let line = &mut map[along(func, id)[0]];
                let extent: i64 =
                    line.axes.iter().map(|&a| self.out.groups[group].space.extents[a]).product();
                *line = Line { offset: extent - 1, step: -1, axes: line.axes.clone() };
            }
            return map;
        }
        let axes = along(func, id);
        let map = self.fresh(group, &dims_of(func, op.operands[0]));
        let gone = map.iter().enumerate().filter(|(i, _)| axes.contains(i));
        let list: Vec<Axis> = gone.flat_map(|(_, l)| l.axes.clone()).collect();
        if op.code == GraphOp::ArgReduce {
            self.out.groups[group].space.fixed.extend(list.clone());
        }
        self.out.groups[group].reduced = list.clone();
        self.out.groups[group].bound.insert(op.results[0], list);
        let kept = map.into_iter().enumerate().filter(|(i, _)| !axes.contains(i));
        kept.map(|(_, l)| l).collect()
    }

    /// Few instructions from at most one array of its size: cheaper to compute again than to store.
    fn is_cheap(&self, id: OpId) -> bool {
        let v = self.func.ops[id].results[0];
        let size: i64 = dims_of(self.func, v).iter().product();
        let mut roots = BTreeSet::new();
        let mut budget = SEARCHED;
        is_light(self.func, id) && {
            self.roots(v, size, &mut roots, &mut budget);
            roots.len() <= 1
        }
    }

    /// The arrays, large as the value, that it would be computed again from.
    fn roots(&self, v: Value, size: i64, out: &mut BTreeSet<Value>, budget: &mut usize) {
        let func = self.func;
        if dims_of(func, v).iter().product::<i64>() * 8 <= size {
            return;
        }
        let Some(id) = self.out.def(func, v).filter(|_| *budget > 0) else {
            out.insert(v);
            return;
        };
        *budget -= 1;
        match class(func, id) {
            Class::Source if func.ops[id].attr("data").is_none() => {}
            Class::View => {
                let place = func.ops[id].results.iter().position(|&r| r == v).unwrap_or(0);
                self.roots(func.ops[id].operands[place], size, out, budget);
            }
            Class::Pointwise if is_light(func, id) && !self.split.contains(&v) => {
                for &operand in &func.ops[id].operands {
                    self.roots(operand, size, out, budget);
                }
            }
            _ => {
                out.insert(v);
            }
        }
    }

    /// Fuses an op into a kernel at this map: its operands are requested. `false` where that is
    /// impossible.
    fn enter(&mut self, id: OpId, group: usize, map: &Map) -> bool {
        let (func, op) = (self.func, &self.func.ops[id]);
        let v = op.results[0];
        self.out.groups[group].weight += weight_of(func, id);
        match op.code {
            GraphOp::Reduce | GraphOp::ArgReduce => {
                let Some(axes) = self.bind(id, group, map) else { return false };
                let all = combined_map(func, id, map, &axes);
                self.ask(op.operands[0], group, How::Element(all));
            }
            GraphOp::Scan => {
                // The whole axis has to be in one tile, which only a scan's own kernel ensures.
                let axis = along(func, id)[0];
                let g = &self.out.groups[group];
                let line = &map[axis];
                let alone =
                    g.outputs.len() == 1 && g.outputs[0].value == v && g.outputs[0].map == *map;
                // The whole axis, in the direction of the scan: a part of another array is written
                // at its place there.
                let turned = op.attr("reverse").and_then(Attr::as_bool).unwrap_or(false);
                let extent = dims_of(func, v)[axis];
                let all: i64 = line.axes.iter().map(|&a| g.space.extents[a]).product();
                let (offset, step) = if turned && extent > 1 { (extent - 1, -1) } else { (0, 1) };
                let straight =
                    extent == 1 || (line.offset, line.step) == (offset, step) && all == extent;
                if !alone || !straight {
                    return false;
                }
                let list = line.axes.clone();
                self.out.groups[group].reduced = list.clone();
                self.out.groups[group].space.fixed.extend(list.clone());
                self.out.groups[group].bound.insert(v, list);
                self.ask(op.operands[0], group, How::Element(map.clone()));
            }
            GraphOp::Gather => {
                let g = &self.out.groups[group];
                if g.product.is_some() {
                    return false;
                }
                self.ask(op.operands[0], group, How::Whole);
                let places = index_maps(func, id, map);
                for place in places {
                    self.ask(op.operands[1], group, How::Element(place));
                }
                for &other in op.group("other") {
                    self.ask(other, group, How::Element(Vec::new()));
                }
            }
            GraphOp::DynamicSlice => {
                if self.out.groups[group].product.is_some() {
                    return false;
                }
                self.ask(op.operands[0], group, How::Stored);
                for &at in op.group("at") {
                    self.ask(at, group, How::Stored);
                }
            }
            _ => {
                for &operand in &op.operands {
                    let map = match func.ty(operand).rank() {
                        0 => Vec::new(),
                        _ => map.clone(),
                    };
                    self.ask(operand, group, How::Element(map));
                }
            }
        }
        true
    }

    /// The axes of a kernel's space that a fused reduction goes along.
    fn bind(&mut self, id: OpId, group: usize, map: &Map) -> Option<Vec<Axis>> {
        let (func, op) = (self.func, &self.func.ops[id]);
        let v = op.results[0];
        let g = &self.out.groups[group];
        if let Some(axes) = g.bound.get(&v) {
            return Some(axes.clone());
        }
        if g.product.is_some() || !matches!(g.kind, Kind::Nest) {
            return None;
        }
        let dims = dims_of(func, op.operands[0]);
        let extents: Vec<i64> =
            along(func, id).iter().map(|&a| dims[a]).filter(|&d| d != 1).collect();
        if extents.iter().product::<i64>() > LARGEST_INSIDE {
            return None;
        }
        let used: BTreeSet<Axis> = map.iter().flat_map(|l| g.space.expand(&l.axes)).collect();
        let matches = |axes: &[Axis]| {
            axes.iter().map(|&a| g.space.extents[a]).eq(extents.iter().copied())
                && axes.iter().all(|a| !used.contains(a))
        };
        let reduced = g.space.expand(&g.reduced);
        let axes = if !reduced.is_empty() {
            if !matches(&reduced) {
                return None;
            }
            reduced
        } else {
            let all = self.axes(group);
            let rest: Vec<Axis> =
                all.into_iter().filter(|a| !used.contains(a) && g.space.extents[*a] != 1).collect();
            // Values along other axes would be computed once for each of them.
            if rest.is_empty() {
                let space = &mut self.out.groups[group].space;
                extents.iter().map(|&e| space.add(e)).collect()
            } else if matches(&rest) {
                rest
            } else {
                return None;
            }
        };
        let g = &mut self.out.groups[group];
        if op.code == GraphOp::ArgReduce {
            g.space.fixed.extend(axes.clone());
        }
        g.reduced = axes.clone();
        g.bound.insert(v, axes.clone());
        Some(axes)
    }
}
