//! Concats and pads without memory: kernels that use them read the parts, each with a mask, and
//! select.
//!
//! Rolls and shifted neighbours of stencils are such concats: parts of one array that is in memory
//! anyway. Joining them in memory first would write and read the whole array once more for each of
//! them.

use super::{How, Kind, Request, Sweep};
use crate::class::{Class, along, class};
use crate::index::{Map, Space, dims_of, is_view, through};
use tessera_graph::{GraphFunc, GraphOp};
use tessera_ir::{Attr, OpId, Value};

/// The most parts that are read for each element of a concat.
const PARTS: usize = 3;

/// The most kernels that each read the parts.
const KERNELS: usize = 2;

/// A computed value is stored if at least this many parts read it.
const SHARED: usize = 3;

/// How many elements a pad puts before each axis, where it leaves none out and puts none between.
pub fn plain_pad(func: &GraphFunc, id: OpId) -> Option<Vec<i64>> {
    let op = &func.ops[id];
    let ints = |name: &str| op.attr(name).and_then(Attr::as_ints).unwrap_or_default();
    let (lo, hi) = (ints("lo"), ints("hi"));
    let plain = op.code == GraphOp::Pad
        && lo.iter().chain(&hi).all(|&n| n >= 0)
        && ints("interior").iter().all(|&n| n == 0);
    plain.then_some(lo)
}

/// The axes along which an op's result is longer than its operand.
pub fn wider(func: &GraphFunc, id: OpId) -> Vec<usize> {
    let op = &func.ops[id];
    let (from, to) = (dims_of(func, op.operands[0]), dims_of(func, op.results[0]));
    (0..to.len()).filter(|&a| from[a] != to[a]).collect()
}

impl Sweep<'_> {
    /// Makes the kernels that request a concat or a pad read its parts. `false` where one of them
    /// needs it in memory, or where parts are computed for it alone and can be written to their
    /// place directly.
    pub(super) fn read_in_pieces(&mut self, id: OpId) -> bool {
        let v = self.func.ops[id].results[0];
        if self.split.contains(&v) || self.alone {
            return false;
        }
        let mut found: Vec<(usize, Space, Vec<Value>)> = Vec::new();
        for Request { group, how } in self.wanted(v) {
            let (How::Element(map), g) = (how, &self.out.groups[*group]) else { return false };
            let plain = matches!(g.kind, Kind::Nest) && g.bound.is_empty() && g.product.is_none();
            let (mut space, mut roots) = (g.space.clone(), Vec::new());
            if !plain || self.pieces(id, map, &mut space, &mut roots).is_none() {
                return false;
            }
            // Several requests of one kernel each fix axes of its space.
            match found.iter_mut().find(|(g, _, _)| g == group) {
                Some((_, one, all)) => {
                    one.fixed.extend(space.fixed);
                    all.extend(roots);
                }
                None => found.push((*group, space, roots)),
            }
        }
        if found.len() > KERNELS {
            return false;
        }
        self.requests.remove(&v);
        for (group, space, roots) in found {
            self.out.groups[group].space.fixed = space.fixed;
            for root in roots {
                self.ask(root, group, How::Stored);
            }
        }
        true
    }

    /// The values that must be in memory to read the parts of a concat or a pad at a map.
    fn pieces(&self, id: OpId, map: &Map, space: &mut Space, roots: &mut Vec<Value>) -> Option<()> {
        let func = self.func;
        if let Some(lo) = plain_pad(func, id) {
            let mut map = space.settle(map);
            for axis in wider(func, id) {
                let [along] = map[axis].axes[..] else { return None };
                if map[axis].step != 1 {
                    return None;
                }
                space.fixed.push(along);
                map[axis].offset -= lo[axis];
            }
            self.root(func.ops[id].operands[1], Map::new(), space, roots)?;
            return self.root(func.ops[id].operands[0], map, space, roots);
        }
        if func.ops[id].code != GraphOp::Concat {
            return None;
        }
        let (axis, parts) = (along(func, id)[0], &func.ops[id].operands);
        let map = space.settle(map);
        let [along] = map[axis].axes[..] else { return None };
        if parts.len() > PARTS || map[axis].step != 1 || matches!(class(func, id), Class::Own) {
            return None;
        }
        space.fixed.push(along);
        let mut start = 0;
        for &part in parts {
            let extent = dims_of(func, part)[axis];
            let mut map = map.clone();
            map[axis].offset -= start;
            self.root(part, map, space, roots)?;
            start += extent;
        }
        Some(())
    }

    /// The value in memory behind the views of a part.
    fn root(
        &self,
        mut v: Value,
        mut map: Map,
        space: &mut Space,
        roots: &mut Vec<Value>,
    ) -> Option<()> {
        let func = self.func;
        loop {
            let Some(id) = self.out.def(func, v).filter(|_| !self.split.contains(&v)) else {
                roots.push(v);
                return Some(());
            };
            let op = &func.ops[id];
            match class(func, id) {
                Class::View if is_view(op.code) => {
                    let place = op.results.iter().position(|&r| r == v).unwrap_or(0);
                    let axes = space.extents.len();
                    map = through(func, id, &map, space)?;
                    // An axis that is split for this alone would be split for the whole kernel.
                    if space.extents.len() != axes {
                        return None;
                    }
                    v = op.operands[place];
                }
                Class::Source if op.attr("data").is_none() => return Some(()),
                Class::Parts if op.code == GraphOp::Concat || plain_pad(func, id).is_some() => {
                    return self.pieces(id, &map, space, roots);
                }
                Class::Source | Class::Own | Class::Parts => {
                    roots.push(v);
                    return Some(());
                }
                Class::Pointwise
                | Class::Combine
                | Class::Gather
                | Class::DynamicSlice
                | Class::Product => {
                    roots.push(v);
                    return (self.uses[v].len() >= SHARED).then_some(());
                }
                Class::View | Class::End => return None,
            }
        }
    }
}
