//! Scalar replacement of arrays with a short axis (structure of arrays): `s[:, 0]` of a `stack`
//! becomes the part itself.
//!
//! Points, states of differential equations and complex numbers are written as arrays with a short
//! axis, which an iteration takes apart, computes with, and stacks again. In elementwise code that
//! axis costs: each component is a column, read and written with gaps.
//!
//! Input: a flat function. Output: the same results bit by bit, where
//! * a component of a concat of components is the part itself,
//! * a component of an elementwise op, if nothing but components of it is used, is computed from
//!   the components of its operands,
//! * an elementwise op on such concats is a concat of elementwise ops on their parts.

use crate::class::{Class, along, class};
use crate::index::dims_of;
use std::collections::BTreeMap;
use tessera_graph::{Graph, GraphFunc, GraphOp, elem, tensor, walk};
use tessera_ir::{Attr, BlockId, Dim, OpId, OpSpec, Value};
use tessera_support::SideTable;

/// An axis of more positions is no axis of components.
const MOST: i64 = 8;

/// Passes over the function: a new concat may be taken apart again by its users.
const ROUNDS: usize = 8;

pub fn take_apart(func: &mut GraphFunc) {
    for _ in 0..ROUNDS {
        let mut changed = false;
        for block in func.blocks.ids().collect::<Vec<_>>() {
            changed |= components(func, block);
            changed |= together(func, block);
        }
        if !changed {
            return;
        }
        walk::dce(func, &|_| true);
    }
}

/// A component: an axis and a position along it.
type Place = (usize, i64);

/// The component that a slice takes, where it takes one and all of everything else.
fn component(func: &GraphFunc, id: OpId) -> Option<Place> {
    let op = &func.ops[id];
    if op.code != GraphOp::Slice || !matches!(class(func, id), Class::View) {
        return None;
    }
    let (from, to) = (dims_of(func, op.operands[0]), dims_of(func, op.results[0]));
    let mut parts = (0..from.len()).filter(|&a| from[a] != to[a]);
    let axis = parts.next()?;
    let start = op.attr("start").and_then(Attr::as_ints)?;
    let one = parts.next().is_none() && to[axis] == 1 && from[axis] <= MOST;
    one.then(|| (axis, start[axis]))
}

fn is_pointwise(func: &GraphFunc, id: OpId) -> bool {
    matches!(class(func, id), Class::Pointwise) && func.ops[id].code != GraphOp::Philox
}

/// The axis and the parts of a concat of components.
fn parts(func: &GraphFunc, v: Value) -> Option<(usize, Vec<Value>)> {
    let id = func.def_id(v).filter(|&id| func.ops[id].code == GraphOp::Concat)?;
    let (axis, parts) = (along(func, id)[0], &func.ops[id].operands);
    let one = |&p: &Value| dims_of(func, p)[axis] == 1;
    let few = parts.len() as i64 <= MOST && matches!(class(func, id), Class::Parts);
    (few && parts.iter().all(one)).then(|| (axis, parts.clone()))
}

type Uses = SideTable<Value, Vec<(OpId, usize)>>;

struct Rewrite<'f> {
    func: &'f mut GraphFunc,
    uses: Uses,
    block: BlockId,
    /// Where new ops go: before this one.
    before: OpId,
    made: BTreeMap<(Value, Place), Value>,
}

impl<'f> Rewrite<'f> {
    fn new(func: &'f mut GraphFunc, block: BlockId, before: OpId) -> Self {
        let uses = walk::uses(func);
        Self { func, uses, block, before, made: BTreeMap::new() }
    }

    fn add(&mut self, spec: OpSpec<Graph>) -> Option<Value> {
        let ops = &self.func.blocks[self.block].ops;
        let place = ops.iter().position(|&op| op == self.before)?;
        let loc = self.func.ops[self.before].loc.clone();
        let id = self.func.insert(self.block, place, spec, loc).ok()?;
        for (place, &v) in self.func.ops[id].operands.iter().enumerate() {
            self.uses.get_mut(v).push((id, place));
        }
        Some(self.func.ops[id].results[0])
    }

    /// Puts the new value in the place of the old one in all its uses.
    fn replace(&mut self, old: Value, new: Value) {
        for (id, place) in std::mem::take(self.uses.get_mut(old)) {
            self.func.ops[id].operands[place] = new;
            self.uses.get_mut(new).push((id, place));
        }
    }

    /// A component of a value; its ops are inserted right after the value's op where `before`
    /// allows.
    fn of(&mut self, v: Value, (axis, at): Place) -> Option<Value> {
        if let Some(&made) = self.made.get(&(v, (axis, at))) {
            return Some(made);
        }
        let mut shape = dims_of(self.func, v);
        if shape.is_empty() {
            return Some(v);
        }
        shape[axis] = 1;
        let ty = tensor(shape.iter().map(|&d| Dim::Static(d)).collect(), elem(self.func.ty(v)));
        let made = match self.func.def_id(v).map(|id| self.func.ops[id].clone()) {
            Some(op) if op.code == GraphOp::Const && op.attr("value").is_some() => {
                let mut spec = OpSpec::new(GraphOp::Const, &[]);
                spec.attrs = op.attrs.clone();
                self.add(spec.result(ty))?
            }
            Some(op) if op.code == GraphOp::Broadcast => {
                let places = op.attr("dims").and_then(Attr::as_ints)?;
                let inner = places.iter().position(|&p| p == axis as i64);
                let from = dims_of(self.func, op.operands[0]);
                let x = match inner.filter(|&i| from[i] != 1) {
                    Some(i) => self.of(op.operands[0], (i, at))?,
                    None => op.operands[0],
                };
                let spec = OpSpec::new(GraphOp::Broadcast, &[x]).attr("dims", Attr::ints(places));
                self.add(spec.result(ty))?
            }
            _ => match parts(self.func, v).filter(|(along, _)| *along == axis) {
                Some((_, parts)) => *parts.get(at as usize)?,
                None => {
                    let start = (0..shape.len()).map(|a| if a == axis { at } else { 0 });
                    let limit = (0..shape.len()).map(|a| if a == axis { at + 1 } else { shape[a] });
                    let spec = OpSpec::new(GraphOp::Slice, &[v])
                        .attr("start", Attr::ints(start))
                        .attr("limit", Attr::ints(limit));
                    self.add(spec.result(ty))?
                }
            },
        };
        self.made.insert((v, (axis, at)), made);
        Some(made)
    }

    /// The op on a component of each operand.
    fn computed(&mut self, id: OpId, place: Place) -> Option<Value> {
        let op = self.func.ops[id].clone();
        let mut operands = Vec::new();
        for &x in &op.operands {
            operands.push(self.of(x, place)?);
        }
        let mut shape = dims_of(self.func, op.results[0]);
        shape[place.0] = 1;
        let ty = elem(self.func.ty(op.results[0]));
        let ty = tensor(shape.iter().map(|&d| Dim::Static(d)).collect(), ty);
        let mut spec = OpSpec::new(op.code, &operands);
        spec.attrs = op.attrs.clone();
        self.add(spec.result(ty))
    }
}

/// Components of concats, and of what is computed element by element.
fn components(func: &mut GraphFunc, block: BlockId) -> bool {
    let ops = func.blocks[block].ops.clone();
    let taken = |func: &GraphFunc, id: OpId| {
        let place = component(func, id)?;
        let made = func.def_id(func.ops[id].operands[0])?;
        (func.ops[made].block == block).then_some((place, made))
    };
    let Some(&first) = ops.iter().find(|&&id| taken(func, id).is_some()) else { return false };
    let mut changed = false;
    let mut rewrite = Rewrite::new(func, block, first);
    for &id in ops.iter().rev() {
        let v = match rewrite.func.ops[id].results[..] {
            [v] => v,
            _ => continue,
        };
        if let Some(((axis, at), made)) = taken(rewrite.func, id)
            && let Some((along, parts)) = parts(rewrite.func, rewrite.func.ops[made].results[0])
            && along == axis
        {
            rewrite.replace(v, parts[at as usize]);
            changed = true;
            continue;
        }
        if !is_pointwise(rewrite.func, id) || rewrite.uses[v].is_empty() {
            continue;
        }
        let users = rewrite.uses[v].clone();
        let places: Option<Vec<Place>> = users
            .iter()
            .map(|&(user, _)| {
                component(rewrite.func, user).filter(|_| rewrite.func.ops[user].block == block)
            })
            .collect();
        let Some(places) = places else { continue };
        if places.iter().any(|p| p.0 != places[0].0) {
            continue;
        }
        rewrite.before = id;
        rewrite.made.clear();
        for ((user, _), place) in users.into_iter().zip(places) {
            let Some(one) = rewrite.computed(id, place) else { continue };
            let old = rewrite.func.ops[user].results[0];
            rewrite.replace(old, one);
            changed = true;
        }
    }
    changed
}

/// Elementwise ops on concats of components become such a concat.
fn together(func: &mut GraphFunc, block: BlockId) -> bool {
    let ops = func.blocks[block].ops.clone();
    let Some(&first) = ops.iter().find(|&&id| func.ops[id].code == GraphOp::Concat) else {
        return false;
    };
    let mut changed = false;
    let mut rewrite = Rewrite::new(func, block, first);
    for &id in &ops {
        let func = &rewrite.func;
        if !is_pointwise(func, id) || rewrite.uses[func.ops[id].results[0]].is_empty() {
            continue;
        }
        // Parts that are computed, of a concat that nothing else needs whole.
        let only_here = |v: Value| {
            rewrite.uses[v].iter().all(|&(user, _)| {
                func.ops[user].block == block
                    && (is_pointwise(func, user) || component(func, user).is_some())
            })
        };
        let found = func.ops[id].operands.iter().find_map(|&x| {
            let (axis, list) = parts(func, x).filter(|_| walk::home(func, x) == block)?;
            (only_here(x) && list.iter().all(|&p| is_computed(func, p)))
                .then_some((axis, list.len()))
        });
        let Some((axis, count)) = found else { continue };
        rewrite.before = id;
        rewrite.made.clear();
        let made: Option<Vec<Value>> =
            (0..count).map(|at| rewrite.computed(id, (axis, at as i64))).collect();
        let v = rewrite.func.ops[id].results[0];
        let ty = rewrite.func.ty(v).clone();
        let Some(made) = made else { continue };
        let spec = OpSpec::new(GraphOp::Concat, &[])
            .group("values", &made)
            .attr("axis", Attr::Int(axis as i64));
        let Some(whole) = rewrite.add(spec.result(ty)) else { continue };
        rewrite.replace(v, whole);
        changed = true;
    }
    changed
}

/// Whether a value is no part of an array in memory.
fn is_computed(func: &GraphFunc, mut v: Value) -> bool {
    while let Some(id) = func.def_id(v) {
        match class(func, id) {
            Class::View if func.ops[id].code == GraphOp::Reshape => v = func.ops[id].operands[0],
            Class::Pointwise => return true,
            _ => return false,
        }
    }
    false
}
