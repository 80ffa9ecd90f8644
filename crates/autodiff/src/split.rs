//! Splits a joint function into a forward and a backward function. The values on the cut are the
//! residuals. A value that only the backward pass needs is computed there, from values of the
//! forward pass, even where it depends on no cotangent: factors then fuse with what they multiply,
//! and are not stored. A value that costs nothing to recompute (constants, iotas, broadcasts,
//! reshapes, widening casts) is recomputed instead of stored.

use crate::context::Context;
use crate::joint::Joint;
use std::collections::BTreeSet;
use std::sync::Arc;
use tessera_graph::walk::{captures, returned};
use tessera_graph::{Copier, GraphFunc, GraphOp};
use tessera_ir::{AttrKind, Dim, DimExpr, OpId, Opcode, Type, Value, ValueDef};
use tessera_support::SideTable;

/// Where the pullback gets a value from.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Residual {
    /// It is a parameter of the source.
    Param(usize),
    /// It is the result of the forward half at this position after the source's own.
    Made(usize),
}

/// `forward` takes the parameters of the source and gives its results, then what was made for the
/// pullback. `pullback` takes the residuals in order, then the cotangents, and gives cotangents.
pub struct Halves {
    pub forward: GraphFunc,
    pub pullback: GraphFunc,
    pub residuals: Vec<Residual>,
}

/// Whether making a value again is cheaper than keeping it.
#[deny(clippy::wildcard_enum_match_arm)]
fn cheap(func: &GraphFunc, id: OpId) -> bool {
    use GraphOp::*;
    let op = &func.ops[id];
    match op.code {
        Const | Iota | Dim | Broadcast | Reshape | Transpose | Vary | AxisIndex => true,
        Cast => {
            let bits = |v: Value| func.ty(v).dtype().bits();
            bits(op.operands[0]) < bits(op.result())
        }
        KernelCall | Return | Yield | Cond | While | Loop | Call | Composite | Select | Bitcast
        | StopGradient | OptBarrier | Shard | Slice | Pad | Concat | Reverse | DynamicSlice
        | DynamicUpdateSlice | Gather | Scatter | Reduce | ArgReduce | Scan | Sort | Dot | Conv
        | WindowReduce | WindowArgReduce | Philox | Manual | Own | AllReduce | AllGather
        | ReduceScatter | AllToAll | Permute | FromRank | Ew(_) => false,
    }
}

/// Everything an op takes, from inside its regions too.
fn takes(func: &GraphFunc, id: OpId) -> Vec<Value> {
    let mut all = func.ops[id].operands.clone();
    for &region in &func.ops[id].regions {
        all.extend(captures(func, region));
    }
    all
}

struct Cut<'f> {
    func: &'f GraphFunc,
    params: usize,
    late: SideTable<Value, bool>,
    again: BTreeSet<OpId>,
    fetched: SideTable<Value, bool>,
    /// Values on the cut, in the order they are first needed.
    residuals: Vec<Value>,
}

impl Cut<'_> {
    /// Makes an early value available to the second half.
    fn fetch(&mut self, v: Value) {
        let mut todo = vec![v];
        while let Some(v) = todo.pop() {
            if self.late[v] || self.fetched[v] {
                continue;
            }
            self.fetched.set(v, true);
            match self.func.values[v].def {
                ValueDef::Result(id, _) if cheap(self.func, id) => {
                    self.again.insert(id);
                    todo.extend(&self.func.ops[id].operands);
                }
                _ => self.residuals.push(v),
            }
        }
    }
}

impl Context<'_> {
    /// `called`: the pullback is a function of its own, and every symbol in it has to be bound by its
    /// parameters.
    pub fn split(&self, joint: &Joint, called: bool) -> Halves {
        let func = &joint.func;
        let mut cut = Cut {
            func,
            params: joint.params,
            late: SideTable::new(false),
            again: BTreeSet::new(),
            fetched: SideTable::new(false),
            residuals: Vec::new(),
        };
        for &ct in &func.params()[joint.params..] {
            cut.late.set(ct, true);
        }
        let mut late = BTreeSet::new();
        for &id in &func.blocks[func.body].ops[joint.early..] {
            let op = &func.ops[id];
            if !op.is_terminator() {
                op.results.iter().for_each(|&v| cut.late.set(v, true));
                late.insert(id);
                takes(func, id).iter().for_each(|&v| cut.fetch(v));
            }
        }
        let grads = &returned(func)[joint.results..];
        grads.iter().for_each(|&v| cut.fetch(v));
        if called {
            cut.bind_symbols(&late);
        }
        cut.halves(joint, &late)
    }
}

impl Cut<'_> {
    /// Adds parameters of the source that name the extents which nothing else names.
    fn bind_symbols(&mut self, late: &BTreeSet<OpId>) {
        let mut used = BTreeSet::new();
        for &id in late.iter().chain(&self.again) {
            symbols_of_op(self.func, id, &mut used);
        }
        let cotangents = &self.func.params()[self.params..];
        for &v in self.residuals.iter().chain(cotangents) {
            symbols_of(self.func.ty(v), &mut used);
        }
        let bound = |list: &[Value]| -> BTreeSet<Arc<str>> {
            list.iter().flat_map(|&v| bare(self.func.ty(v))).collect()
        };
        let mut have = bound(&self.residuals);
        have.extend(bound(cotangents));
        for name in used {
            if have.contains(&name) {
                continue;
            }
            let source = &self.func.params()[..self.params];
            if let Some(&param) = source.iter().find(|&&p| bare(self.func.ty(p)).contains(&name)) {
                have.extend(bare(self.func.ty(param)));
                self.residuals.push(param);
            }
        }
    }

    fn halves(self, joint: &Joint, late: &BTreeSet<OpId>) -> Halves {
        let func = self.func;
        let results = returned(func);
        // The first half: everything early, then the residuals that are no parameters.
        let mut forward = GraphFunc::new(&func.name);
        forward.loc = func.loc.clone();
        let mut copier = Copier::new(func);
        let body = forward.body;
        for &p in &func.params()[..self.params] {
            let new = forward.add_arg(body, func.ty(p).clone(), func.name_of(p));
            copier.set(p, new);
        }
        for &id in &func.blocks[func.body].ops {
            let op = &func.ops[id];
            if !op.is_terminator() && !late.contains(&id) {
                copier.copy_op(id, &mut forward, body);
            }
        }
        let mut residuals = Vec::new();
        let mut out: Vec<Value> =
            results[..joint.results].iter().filter_map(|&v| copier.get(v)).collect();
        let mut made = 0;
        for &v in &self.residuals {
            let param = func.params()[..self.params].iter().position(|&p| p == v);
            residuals.push(match param {
                Some(place) => Residual::Param(place),
                None => {
                    out.extend(copier.get(v));
                    made += 1;
                    Residual::Made(made - 1)
                }
            });
        }
        crate::region::finish(&mut forward, &out);
        // The second half.
        let mut pullback = GraphFunc::new(&func.name);
        pullback.loc = func.loc.clone();
        let mut copier = Copier::new(func);
        let body = pullback.body;
        for &v in self.residuals.iter().chain(&func.params()[self.params..]) {
            let new = pullback.add_arg(body, func.ty(v).clone(), func.name_of(v));
            copier.set(v, new);
        }
        for &id in &func.blocks[func.body].ops {
            if self.again.contains(&id) || late.contains(&id) {
                copier.copy_op(id, &mut pullback, body);
            }
        }
        let grads: Vec<Value> =
            results[joint.results..].iter().filter_map(|&v| copier.get(v)).collect();
        crate::region::finish(&mut pullback, &grads);
        Halves { forward, pullback, residuals }
    }
}

/// A forward half that gives every residual, parameters too.
pub fn with_params(mut forward: GraphFunc, residuals: &[Residual]) -> GraphFunc {
    let Some(end) = forward.terminator(forward.body) else { return forward };
    let all = forward.ops[end].operands.clone();
    let made = residuals.iter().filter(|r| matches!(r, Residual::Made(_))).count();
    let own = all.len() - made;
    let mut out = all[..own].to_vec();
    for residual in residuals {
        out.push(match *residual {
            Residual::Param(place) => forward.params()[place],
            Residual::Made(k) => all[own + k],
        });
    }
    forward.ops[end].group_lens = vec![out.len()];
    forward.ops[end].operands = out;
    forward
}

/// The symbols that stand alone as an extent: those that an argument gives a value.
fn bare(ty: &Type) -> Vec<Arc<str>> {
    let alone = |d: &Dim| match d {
        Dim::Expr(DimExpr::Sym(name)) => Some(name.clone()),
        _ => None,
    };
    match ty {
        Type::Tensor { dims, .. } => dims.iter().filter_map(alone).collect(),
        _ => Vec::new(),
    }
}

fn symbols_of(ty: &Type, out: &mut BTreeSet<Arc<str>>) {
    if let Type::Tensor { dims, .. } = ty {
        for dim in dims {
            if let Dim::Expr(e) = dim {
                out.extend(e.symbols());
            }
        }
    }
}

fn symbols_of_op(func: &GraphFunc, id: OpId, out: &mut BTreeSet<Arc<str>>) {
    let op = &func.ops[id];
    for &v in &op.results {
        symbols_of(func.ty(v), out);
    }
    for row in op.code.info().attrs {
        let Some(attr) = op.attr(row.name) else { continue };
        if matches!(row.kind, AttrKind::Expr | AttrKind::Exprs) {
            let all = attr.as_exprs().or(attr.as_expr().map(|e| vec![e]));
            out.extend(all.unwrap_or_default().iter().flat_map(DimExpr::symbols));
        }
    }
    for &region in &op.regions {
        for &inner in &func.blocks[region].ops {
            symbols_of_op(func, inner, out);
        }
    }
}
