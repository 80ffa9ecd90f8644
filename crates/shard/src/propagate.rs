//! Propagation: from the pins (`graph.shard`) placements go along the factors of ops, forwards and backwards, until nothing changes.
//!
//! Dims that a rule splits together are a link. A link takes the longest list of axes that its dims have, where the others are
//! beginnings of it; where they contradict each other, what they share. Elementwise ops and changes of shape come before the
//! others, and pins of a lower priority before those of a higher one. A dim that is pinned is never changed, and an axis splits one
//! dim of a value. What stays open is in copies.

use crate::composites::Rules;
use crate::placement::{Axes, Dims, bytes, copies, may_split, numbered};
use crate::rules::Kind;
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_graph::ops::collective::{Manual, MeshAxes, Pin};
use tessera_graph::{GraphFunc, GraphOp};
use tessera_ir::{BlockId, OpId, Value};
use tessera_support::SideTable;

/// Dims that are split together.
struct Link {
    op: OpId,
    dims: Vec<(Value, usize)>,
    is_light: bool,
    is_even: bool,
    /// When it was looked at last.
    seen: u64,
}

/// Why a dim is split.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// It is pinned.
    Pinned,
    /// An op splits it together with a dim of this value.
    With(OpId, Value),
}

/// A placement that is given.
struct Given {
    dims: Dims,
    /// Dims that may be split over more axes.
    open: Vec<usize>,
    priority: i64,
}

pub struct Placements {
    pub mesh: MeshAxes,
    of: SideTable<Value, Option<Dims>>,
    why: BTreeMap<(Value, usize), Why>,
}

impl Placements {
    /// Why a dim is split.
    pub fn why(&self, value: Value, dim: usize) -> Option<Why> {
        self.why.get(&(value, dim)).copied()
    }

    /// The axes that split each dim.
    pub fn of(&self, func: &GraphFunc, value: Value) -> Dims {
        self.of[value].clone().unwrap_or_else(|| copies(func.ty(value).rank()))
    }
}

/// The mesh that all placements of a function are on.
pub fn mesh(func: &GraphFunc) -> Result<MeshAxes, Diagnostics> {
    let mut found: Option<MeshAxes> = None;
    for id in func.walk() {
        let op = &func.ops[id];
        if !matches!(op.code, GraphOp::Shard | GraphOp::Manual) {
            continue;
        }
        let mesh = MeshAxes::of(&op.attrs).map_err(|r| r.at(op.loc.clone()))?;
        match &found {
            Some(known) if *known != mesh => {
                let message = format!(
                    "expected all arrays of a function on one mesh, got ({}) and ({})",
                    known.text(),
                    mesh.text()
                );
                let help = "bring the array to the mesh of the others before: `dist.shard(x.numpy(), spec, mesh)`";
                let error = Diagnostic::new(Code::E_PLACEMENT, message).help(help);
                return Err(error.at(op.loc.clone()).into());
            }
            _ => found = Some(mesh),
        }
    }
    Ok(found.unwrap_or_default())
}

struct Flow<'a> {
    func: &'a GraphFunc,
    mesh: MeshAxes,
    rules: &'a Rules,
    links: Vec<Link>,
    given: BTreeMap<Value, Given>,
    of: SideTable<Value, Option<Dims>>,
    why: BTreeMap<(Value, usize), Why>,
    /// The priority up to which pins count.
    round: i64,
    /// Counts changes; of each value, when it changed last. A link whose values did not change since gives nothing new.
    time: u64,
    changed: SideTable<Value, u64>,
}

/// `pinned`: values that are placed from outside.
pub fn propagate(
    func: &GraphFunc,
    mesh: &MeshAxes,
    rules: &Rules,
    pinned: Vec<(Value, Dims)>,
) -> Result<Placements, Diagnostics> {
    let (links, given) = (Vec::new(), BTreeMap::new());
    let (of, why) = (SideTable::new(None), BTreeMap::new());
    let (changed, mesh) = (SideTable::new(0), mesh.clone());
    let mut flow = Flow { func, mesh, rules, links, given, of, why, round: 0, time: 1, changed };
    for (value, dims) in pinned {
        flow.pin(value, dims, Vec::new(), 0);
    }
    flow.block(func.body)?;
    let mut rounds: Vec<i64> = flow.given.values().map(|g| g.priority).collect();
    rounds.sort_unstable();
    rounds.dedup();
    for value in flow.given.keys().copied().collect::<Vec<_>>() {
        let dims = flow.given[&value].dims.clone();
        for dim in (0..dims.len()).filter(|&d| !dims[d].is_empty()) {
            flow.why.insert((value, dim), Why::Pinned);
        }
        flow.of.set(value, Some(dims));
    }
    for round in rounds {
        flow.round = round;
        flow.settle();
    }
    Ok(Placements { mesh: flow.mesh, of: flow.of, why: flow.why })
}

impl Flow<'_> {
    fn link(&mut self, op: OpId, values: &[Value], dim: usize, is_light: bool) {
        let dims: Vec<(Value, usize)> = values.iter().map(|&v| (v, dim)).collect();
        self.links.push(Link { op, dims, is_light, is_even: false, seen: 0 });
    }

    /// Values that are placed alike.
    fn alike(&mut self, op: OpId, values: &[Value]) {
        let rank = self.func.ty(values[0]).rank();
        (0..rank).for_each(|dim| self.link(op, values, dim, true));
    }

    /// A value, and what it is a step of.
    fn stacked(&mut self, op: OpId, stack: Value, step: Value) {
        for dim in 0..self.func.ty(step).rank() {
            let dims = vec![(stack, dim + 1), (step, dim)];
            self.links.push(Link { op, dims, is_light: true, is_even: false, seen: 0 });
        }
    }

    fn yields(&self, block: BlockId) -> Vec<Value> {
        self.func.terminator(block).map_or(Vec::new(), |id| self.func.ops[id].operands.clone())
    }

    fn pin(&mut self, value: Value, dims: Dims, open: Vec<usize>, priority: i64) {
        self.given.insert(value, Given { dims, open, priority });
    }

    fn block(&mut self, block: BlockId) -> Result<(), Diagnostics> {
        for &id in &self.func.blocks[block].ops {
            self.op(id)?;
        }
        Ok(())
    }

    fn op(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        match op.code {
            GraphOp::Manual => {
                let manual = Manual::of(&op.attrs).map_err(|r| r.at(op.loc.clone()))?;
                let ins = op.operands.iter().zip(&manual.ins);
                // Operands are brought to their placements where they are used: the values themselves may be placed otherwise.
                let hints: Vec<_> = ins.map(|(&v, s)| (v, s.clone())).collect();
                for (v, split) in hints {
                    let dims = numbered(&self.mesh, self.func.ty(v), &split);
                    if self.of[v].is_none() {
                        self.of.set(v, Some(dims));
                        self.changed.set(v, 1);
                    }
                }
                for (&v, split) in op.results.iter().zip(&manual.outs) {
                    let dims = numbered(&self.mesh, self.func.ty(v), split);
                    self.pin(v, dims, Vec::new(), 0);
                }
            }
            GraphOp::Cond => {
                let branches: Vec<Vec<Value>> =
                    op.regions.iter().map(|&r| self.yields(r)).collect();
                for &region in &op.regions {
                    self.block(region)?;
                }
                for (at, &result) in op.results.iter().enumerate() {
                    let mut all = vec![result];
                    all.extend(branches.iter().filter_map(|b| b.get(at)));
                    self.alike(id, &all);
                }
            }
            GraphOp::While | GraphOp::Loop => {
                let init = op.group("init").to_vec();
                let args: Vec<Vec<Value>> =
                    op.regions.iter().map(|&r| self.func.blocks[r].args.clone()).collect();
                let body = op.regions.last().copied();
                let yields = body.map_or(Vec::new(), |b| self.yields(b));
                // The first argument of a loop is the position.
                let skip = usize::from(op.code == GraphOp::Loop);
                for (at, &start) in init.iter().enumerate() {
                    let mut all = vec![start, op.results[at], yields[at]];
                    all.extend(args.iter().filter_map(|a| a.get(at + skip)));
                    self.alike(id, &all);
                }
                if op.code == GraphOp::Loop {
                    let steps = args[0][1 + init.len()..].to_vec();
                    for (&xs, step) in op.group("xs").iter().zip(steps) {
                        self.stacked(id, xs, step);
                    }
                    for (&stack, &step) in
                        op.results[init.len()..].iter().zip(&yields[init.len()..])
                    {
                        self.stacked(id, stack, step);
                    }
                }
                for &region in &op.regions {
                    self.block(region)?;
                }
            }
            _ => self.plain(id)?,
        }
        Ok(())
    }

    fn plain(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let rule = self.rules.of(self.func, id);
        let mut links: Vec<Link> = Vec::new();
        for factor in 0..rule.kinds.len() {
            let ins = op.operands.iter().zip(&rule.operands);
            let outs = op.results.iter().zip(&rule.results);
            let mut dims = Vec::new();
            for (&value, row) in ins.chain(outs) {
                let found = row.iter().position(|f| *f == Some(factor));
                dims.extend(found.map(|dim| (value, dim)));
            }
            let is_light = rule.is_light && rule.kinds[factor] == Kind::Pass;
            if dims.len() > 1 {
                let is_even = rule.even[factor];
                links.push(Link { op: id, dims, is_light, is_even, seen: 0 });
            }
        }
        let all: Vec<Value> = op.operands.iter().chain(&op.results).copied().collect();
        for places in self.rules.light(id) {
            let dims = places.iter().map(|&(at, dim)| (all[at], dim)).collect();
            links.push(Link { op: id, dims, is_light: true, is_even: false, seen: 0 });
        }
        // An axis that two factors could take goes to that of the larger operand.
        let bytes = |link: &Link| {
            let each = link.dims.iter().filter(|(v, _)| op.operands.contains(v));
            each.map(|(v, _)| bytes(self.func.ty(*v))).max().unwrap_or(0)
        };
        links.sort_by_cached_key(|link| std::cmp::Reverse(bytes(link)));
        self.links.extend(links);
        if op.code == GraphOp::Shard {
            let ty = self.func.ty(op.result());
            let pin = Pin::of(&op.attrs, ty).map_err(|r| r.at(op.loc.clone()))?;
            let dims = numbered(&self.mesh, ty, &pin.split);
            self.pin(op.result(), dims, pin.open, pin.priority);
        }
        Ok(())
    }

    /// Light links to a fixed point, then one sweep over all, until nothing changes.
    fn settle(&mut self) {
        for link in &mut self.links {
            link.seen = 0;
        }
        self.time += 1;
        for value in self.given.keys() {
            self.changed.set(*value, self.time);
        }
        loop {
            while self.sweep(true) {}
            if !self.sweep(false) {
                return;
            }
        }
    }

    fn sweep(&mut self, light: bool) -> bool {
        let mut changed = false;
        // Backwards too the links of one op are in their order.
        let mut order: Vec<usize> = (0..self.links.len()).collect();
        let back: Vec<&[usize]> =
            order.chunk_by(|&a, &b| self.links[a].op == self.links[b].op).rev().collect();
        let back = back.concat();
        order.extend(back);
        for at in order {
            let link = &self.links[at];
            let is_new = |&(value, _): &(Value, usize)| self.changed[value] > link.seen;
            if (!light || link.is_light) && link.dims.iter().any(is_new) {
                self.links[at].seen = self.time;
                changed |= self.spread(at);
            }
        }
        changed
    }

    /// Whether the placement of a value counts in this round.
    fn counts(&self, value: Value) -> bool {
        self.given.get(&value).is_none_or(|g| g.priority <= self.round)
    }

    fn axes(&self, (value, dim): (Value, usize)) -> &[usize] {
        self.of[value].as_ref().map_or(&[], |dims| &dims[dim])
    }

    /// What the dims of a link agree on.
    fn agreed(&self, link: &Link) -> Axes {
        let mut found: Axes = Vec::new();
        for &place in link.dims.iter().filter(|(v, _)| self.counts(*v)) {
            let axes = self.axes(place);
            if axes.starts_with(&found) {
                found = axes.to_vec();
            } else if !found.starts_with(axes) {
                let shared = found.iter().zip(axes).take_while(|(a, b)| a == b).count();
                found.truncate(shared);
            }
        }
        found
    }

    fn spread(&mut self, at: usize) -> bool {
        let agreed = self.agreed(&self.links[at]);
        let mut changed = false;
        for i in 0..self.links[at].dims.len() {
            let (value, dim) = self.links[at].dims[i];
            if self.given.get(&value).is_some_and(|g| !g.open.contains(&dim)) {
                continue;
            }
            let ty = self.func.ty(value);
            let mut dims = self.of[value].clone().unwrap_or_else(|| copies(ty.rank()));
            if !agreed.starts_with(&dims[dim]) {
                continue;
            }
            let mut more = false;
            for &axis in &agreed[dims[dim].len()..] {
                dims[dim].push(axis);
                let used = dims.iter().flatten().filter(|a| **a == axis).count() > 1;
                if used || !may_split(&self.mesh, ty, dim, &dims[dim], self.links[at].is_even) {
                    dims[dim].pop();
                    break;
                }
                more = true;
            }
            if more {
                let link = &self.links[at];
                let longest = link.dims.iter().filter(|(v, _)| *v != value && self.counts(*v));
                let from = longest.max_by_key(|place| self.axes(**place).len());
                if let Some(&(from, _)) = from {
                    self.why.insert((value, dim), Why::With(link.op, from));
                }
                self.of.set(value, Some(dims));
                self.time += 1;
                self.changed.set(value, self.time);
                changed = true;
            }
        }
        changed
    }
}
