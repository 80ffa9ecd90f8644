//! Rewrites a function on whole arrays as the program of one rank, op by op: operands are brought to what the factor rule needs by
//! the cheapest of a few ways, the op runs on blocks, and contributions are combined where they arise, into the blocks that are
//! wanted. The result is one `graph.manual` on the whole arguments.

mod block;
mod control;
mod emit;
mod lookup;
mod moves;

use crate::Found;
use crate::canonical::canonical;
use crate::composites::{Known, Rules};
use crate::explain;
use crate::placement::{Axes, Dims, Placement, block, cost, count, divides, may_split, named};
use crate::propagate::Placements;
use crate::rules::{Kind, OpRule, neutral};
pub use moves::wide;
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::{Diagnostic, Diagnostics, Loc};
use tessera_graph::ops::collective::{Manual, MeshAxes, Split};
use tessera_graph::states::is_collective;
use tessera_graph::walk::{dce, dce_module, returned};
use tessera_graph::{Collective, GraphBuilder, GraphFunc, GraphModule, GraphOp, collectives};
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Type, Value};
use tessera_numerics::ReduceOp;
use tessera_support::SideTable;

/// A function as the program of a rank.
pub struct Partitioned {
    /// The module with the function; what it does not reach is gone.
    pub module: GraphModule,
    pub mesh: MeshAxes,
    /// The placements of the results.
    pub results: Vec<Split>,
    pub collectives: Vec<Collective>,
    /// Why values are where they are, and what requested the collectives.
    pub explained: String,
}

/// A value in the program of a rank.
#[derive(Clone)]
struct Local {
    value: Value,
    dims: Dims,
}

struct Partition<'a> {
    func: &'a GraphFunc,
    placements: Placements,
    rules: Rules,
    /// With the functions of composites on blocks.
    module: GraphModule,
    blocks: block::Blocks,
    b: GraphBuilder,
    of: SideTable<Value, Option<Local>>,
    /// What values became in other placements, for each open block.
    moved: Vec<BTreeMap<(Value, Placement), Value>>,
    /// Kernels that run on whole arrays though they name dims to split.
    gathered: BTreeSet<OpId>,
    /// Sums of which each rank keeps its contribution.
    kept: BTreeSet<Value>,
}

/// Axes for the factors of an op.
type Chosen = Vec<Axes>;

pub fn partition(
    module: &GraphModule,
    found: Found,
    known: Known,
) -> Result<Partitioned, Diagnostics> {
    let Found { flat, rules, placements } = found;
    let func = &flat.func;
    let mesh = placements.mesh.clone();
    let mut p = Partition {
        func,
        placements,
        rules,
        module: module.clone(),
        blocks: block::Blocks { known, ..Default::default() },
        b: GraphBuilder::new(&func.name),
        of: SideTable::new(None),
        moved: vec![BTreeMap::new()],
        gathered: BTreeSet::new(),
        kept: BTreeSet::new(),
    };
    let params: Vec<Value> = func.params().to_vec();
    let mut given = Vec::new();
    for &param in &params {
        let name = func.name_of(param).unwrap_or("x").to_string();
        given.push(p.b.param(&name, func.ty(param).clone()));
    }
    let outs = returned(func).to_vec();
    let loc = func.loc.clone();
    let edge = |values: &[Value]| -> Vec<Dims> {
        values.iter().map(|&v| at_edge(&mesh, func.ty(v), &p.placements.of(func, v))).collect()
    };
    let (ins, edges) = (edge(&params), edge(&outs));
    for ((value, &param), dims) in given.iter_mut().zip(&params).zip(&ins) {
        *value = p.filled(*value, func.ty(param), dims, &loc)?;
    }
    let all = |edges: &[Dims]| edges.iter().map(|d| named(&mesh, d)).collect();
    let manual = Manual { mesh: mesh.clone(), ins: all(&ins), outs: all(&edges) };
    let args = p.b.open("manual", &[], &[("values", given)], manual.attrs(), loc.clone())?;
    for ((&param, value), dims) in params.iter().zip(args).zip(ins) {
        if let Some(name) = func.name_of(param) {
            p.b.name(value, name);
        }
        p.of.set(param, Some(Local { value, dims }));
        let wanted = p.placements.of(func, param);
        let value = p.placed(param, &wanted, &loc)?;
        p.of.set(param, Some(Local { value, dims: wanted }));
    }
    p.block(func.body)?;
    let mut yields = Vec::new();
    for (&out, dims) in outs.iter().zip(&edges) {
        yields.push(p.placed(out, dims, &loc)?);
    }
    let mut results = p.b.close(&yields)?;
    for (value, &out) in results.iter_mut().zip(&outs) {
        *value = p.clipped(*value, func.ty(out), &loc)?;
    }
    let placed = outs.iter().map(|&v| named(&mesh, &p.placements.of(func, v))).collect();
    let Partition { b, placements, rules, gathered, module: mut all, .. } = p;
    let mut made = b.finish(&results, loc)?;
    canonical(&mut made)?;
    dce(&mut made, &|_| true);
    let explained = explain::values(func, &placements)
        + &explain::whole_kernels(func, &rules, &placements, &gathered)
        + &explain::moves(&made);
    if let Some(old) = all.funcs.iter_mut().find(|f| f.name == func.name) {
        *old = GraphFunc { attrs: old.attrs.clone(), ..made };
    }
    dce_module(&mut all, &[&func.name]);
    let mut collectives = collectives(&all, &func.name);
    let requested = requests(func);
    for found in &mut collectives {
        found.is_written = requested.contains(&place(&found.loc));
    }
    Ok(Partitioned { module: all, mesh, results: placed, collectives, explained })
}

/// The axes along which ranks have contributions to a result of an op whose factors pass.
fn added(rule: &OpRule, chosen: &Chosen, result: usize) -> Axes {
    let factors = rule.adds.iter().filter(|(_, at)| *at == result);
    let mut axes: Axes = factors.flat_map(|(factor, _)| chosen[*factor].clone()).collect();
    axes.sort_unstable();
    axes
}

/// A place in the source, to compare.
fn place(loc: &Loc) -> (Option<&str>, u32, u32) {
    (loc.file().map(|f| &f.name[..]), loc.line(), loc.column())
}

/// Where the function says what is communicated: pins, and the collectives of its programs of one rank. A pin of a parameter says where it
/// comes from, and moves nothing.
fn requests(func: &GraphFunc) -> BTreeSet<(Option<&str>, u32, u32)> {
    let ops = func.ops.iter().map(|(_, op)| op);
    let given = func.params();
    ops.filter(|op| match op.code {
        GraphOp::Shard => !op.operands.iter().any(|x| given.contains(x)),
        code => is_collective(code),
    })
    .map(|op| place(&op.loc))
    .collect()
}

/// Where a value of the whole function goes in and out of the program of a rank: blocks that are filled up are so at the end of the
/// whole, which they are where one axis alone splits the dim.
fn at_edge(mesh: &MeshAxes, ty: &Type, dims: &Dims) -> Dims {
    let each = dims.iter().enumerate().map(|(dim, axes)| match axes.split_last() {
        Some((_, coarse)) if !coarse.is_empty() && !divides(mesh, ty, dim, axes) => coarse.to_vec(),
        _ => axes.clone(),
    });
    each.collect()
}

impl Partition<'_> {
    fn mesh(&self) -> &MeshAxes {
        &self.placements.mesh
    }

    /// The ops of a block but its terminator, whose operands it returns.
    fn block(&mut self, block: BlockId) -> Result<Vec<Value>, Diagnostic> {
        let func = self.func;
        for &id in &func.blocks[block].ops {
            let op = &func.ops[id];
            if op.is_terminator() {
                return Ok(op.operands.clone());
            }
            match op.code {
                GraphOp::Cond | GraphOp::While | GraphOp::Loop => self.control(id)?,
                GraphOp::Manual => self.manual(id)?,
                _ => self.plain(id)?,
            }
        }
        Ok(Vec::new())
    }

    fn local(&self, value: Value, loc: &Loc) -> Result<Local, Diagnostic> {
        self.of[value].clone().ok_or_else(|| {
            let why = format!("%{value} of @{} is partitioned before it is made", self.func.name);
            tessera_graph::Refusal::structure(why).at(loc.clone())
        })
    }

    /// The value in a placement.
    fn placed(&mut self, value: Value, dims: &Dims, loc: &Loc) -> Result<Value, Diagnostic> {
        let local = self.local(value, loc)?;
        let from = Placement { dims: local.dims, contributes: Vec::new() };
        let ty = self.func.ty(value).clone();
        if let Some(number) = self.number_of(value).filter(|_| from.dims != *dims) {
            let to = self.block_of(value, dims);
            let spec = OpSpec::new(GraphOp::Const, &[]).attr("value", number.clone()).result(to);
            return self.b.value(spec, loc.clone());
        }
        self.move_to(local.value, &ty, &from, (None, dims), loc)
    }

    /// The number that all elements of a value are, where that is known: every rank has any block of it.
    fn number_of(&self, value: Value) -> Option<&Attr> {
        let op = self.func.def(value)?;
        match op.code {
            GraphOp::Const => op.attr("value"),
            GraphOp::Broadcast => self.number_of(op.operands[0]),
            _ => None,
        }
    }

    /// An op on blocks.
    fn plain(&mut self, id: OpId) -> Result<(), Diagnostic> {
        let func = self.func;
        let op = &func.ops[id];
        let loc = op.loc.clone();
        let rule = self.rules.of(func, id);
        let mut chosen = self.choose(id, &rule);
        let mut on_blocks = None;
        if op.code == GraphOp::Composite && chosen.iter().any(|axes| !axes.is_empty()) {
            on_blocks = self.on_blocks(id, &rule, &chosen)?;
            if on_blocks.is_none() {
                chosen = vec![Vec::new(); rule.kinds.len()];
            }
        }
        let axes = |row: &[Option<usize>], pass_only: bool| -> Dims {
            let each = row.iter().map(|f| match f {
                Some(f) if !pass_only || rule.kinds[*f] == Kind::Pass => chosen[*f].clone(),
                _ => Vec::new(),
            });
            each.collect()
        };
        let mut operands = Vec::with_capacity(op.operands.len());
        for (&value, row) in op.operands.iter().zip(&rule.operands) {
            let dims = axes(row, false);
            let mut x = self.placed(value, &dims, &loc)?;
            for (dim, factor) in row.iter().enumerate() {
                // A lookup reads no element that fills up a block.
                if let (Some(Kind::Reduce(how)), true) =
                    (factor.map(|f| rule.kinds[f]), op.code != GraphOp::Gather)
                {
                    x = self.masked(x, value, dim, &dims[dim], how, &loc)?;
                }
            }
            operands.push(x);
        }
        let mut combined: Option<(ReduceOp, Axes)> = None;
        for (kind, axes) in rule.kinds.iter().zip(&chosen) {
            if let (Kind::Reduce(how), false) = (kind, axes.is_empty()) {
                let all = combined.get_or_insert((*how, Vec::new()));
                all.1.extend(axes);
            }
        }
        if let Some((_, axes)) = &mut combined {
            axes.sort_unstable();
            for &place in &rule.once {
                operands[place] = self.once(operands[place], axes, &loc)?;
            }
        }
        let dims: Vec<Dims> = rule.results.iter().map(|row| axes(row, true)).collect();
        let results = match (op.code, &combined) {
            (GraphOp::Gather, Some((how, _))) => {
                let split = axes(&rule.operands[0], false);
                vec![self.lookup(id, &operands, (&split, &dims[0]), *how)?]
            }
            (GraphOp::Scatter, _) if emit::puts_along_split(op, &dims[0]) => {
                vec![self.put(id, &operands, &dims[0], combined.is_some())?]
            }
            (GraphOp::Composite, _) if on_blocks.is_some() => {
                self.composite(id, &operands, &dims, on_blocks)?
            }
            _ => self.emit(id, &operands, &dims, combined.is_some())?,
        };
        for (at, ((&old, new), dims)) in op.results.iter().zip(results).zip(dims).enumerate() {
            let ty = func.ty(old).clone();
            let added = added(&rule, &chosen, at);
            let (how, contributes) = match &combined {
                Some((how, axes)) => (Some(*how), axes.clone()),
                None => (Some(ReduceOp::Sum).filter(|_| !added.is_empty()), added),
            };
            if self.kept.contains(&old) {
                self.of.set(old, Some(Local { value: new, dims }));
                continue;
            }
            let from = Placement { dims, contributes };
            let wanted = self.placements.of(func, old);
            let value = self.move_to(new, &ty, &from, (how, &wanted), &loc)?;
            if let Some(name) = func.name_of(old) {
                self.b.name(value, name);
            }
            self.of.set(old, Some(Local { value, dims: wanted }));
        }
        Ok(())
    }

    /// Axes for each factor: those of the results, or those of an operand. The work is divided by as many ranks as possible, and then
    /// the fewest bytes are moved.
    fn choose(&self, id: OpId, rule: &OpRule) -> Chosen {
        let op = &self.func.ops[id];
        let ins = op.operands.iter().zip(&rule.operands);
        let outs = op.results.iter().zip(&rule.results);
        let dims_of = |value: Value| match &self.of[value] {
            Some(local) => local.dims.clone(),
            None => self.placements.of(self.func, value),
        };
        let rows: Vec<(Value, Dims, &Vec<Option<usize>>)> =
            outs.chain(ins).map(|(&v, row)| (v, dims_of(v), row)).collect();
        let split: Axes =
            rows.iter().flat_map(|(_, dims, _)| dims.iter().flatten()).copied().collect();
        if split.is_empty() {
            return vec![Vec::new(); rule.kinds.len()];
        }
        let n = op.results.len();
        // Updates of a table stay where they are: what ranks add to it is combined with what they add to it elsewhere.
        let adds = op.code == GraphOp::Scatter && rule.kinds.iter().any(|k| *k != Kind::Pass);
        // Else results alone, results and then operands, then each operand and after it the others.
        let mut orders: Vec<Vec<usize>> = match adds {
            true => vec![vec![n + 2, n + 1, 0, n]],
            false => vec![(0..rows.len()).collect(), (0..n).collect()],
        };
        let firsts = if adds { 0..0 } else { n..rows.len().min(n + 4) };
        for first in firsts {
            let others = (0..rows.len()).filter(|&i| i != first);
            orders.push(std::iter::once(first).chain(others).collect());
        }
        let mut best: Option<((i64, i64), Chosen)> = None;
        for order in orders {
            let chosen = self.fill(rule, &rows, &order);
            let ranks: i64 = chosen.iter().map(|axes| self.size(axes)).product();
            let price = (-ranks, self.price(rule, &rows, n, &chosen));
            // All axes divide the work, and nothing is moved.
            let is_best =
                price.1 == 0 && split.iter().all(|a| chosen.iter().any(|c| c.contains(a)));
            if best.as_ref().is_none_or(|(least, _)| price < *least) {
                best = Some((price, chosen));
            }
            if is_best {
                break;
            }
        }
        best.map_or_else(|| vec![Vec::new(); rule.kinds.len()], |(_, chosen)| chosen)
    }

    /// Factors take their axes from the values in this order; an axis is used once.
    fn fill(
        &self,
        rule: &OpRule,
        rows: &[(Value, Dims, &Vec<Option<usize>>)],
        order: &[usize],
    ) -> Chosen {
        let mut chosen: Chosen = vec![Vec::new(); rule.kinds.len()];
        for &at in order {
            let (_, dims, row) = &rows[at];
            for (dim, factor) in row.iter().enumerate() {
                let Some(factor) = *factor else { continue };
                if !chosen[factor].is_empty() {
                    continue;
                }
                let mut axes: Axes = Vec::new();
                for &axis in &dims[dim] {
                    axes.push(axis);
                    let used = chosen.iter().any(|c| c.contains(&axis));
                    if used || !self.fits(rule, rows, factor, &axes) {
                        axes.pop();
                        break;
                    }
                }
                chosen[factor] = axes;
            }
        }
        chosen
    }

    /// Whether these axes may split all dims of a factor.
    fn fits(
        &self,
        rule: &OpRule,
        rows: &[(Value, Dims, &Vec<Option<usize>>)],
        factor: usize,
        axes: &Axes,
    ) -> bool {
        rows.iter().all(|(value, _, row)| {
            let dims = row.iter().enumerate().filter(|(_, f)| **f == Some(factor));
            let ty = self.func.ty(*value);
            dims.into_iter()
                .all(|(dim, _)| may_split(self.mesh(), ty, dim, axes, rule.even[factor]))
        })
    }

    /// The bytes that a rank sends.
    fn price(
        &self,
        rule: &OpRule,
        rows: &[(Value, Dims, &Vec<Option<usize>>)],
        results: usize,
        chosen: &Chosen,
    ) -> i64 {
        let axes = |row: &[Option<usize>], pass_only: bool| -> Dims {
            let each = row.iter().map(|f| match f {
                Some(f) if !pass_only || rule.kinds[*f] == Kind::Pass => chosen[*f].clone(),
                _ => Vec::new(),
            });
            each.collect()
        };
        let mut contributes: Axes = Vec::new();
        for (kind, axes) in rule.kinds.iter().zip(chosen) {
            if matches!(kind, Kind::Reduce(_)) {
                contributes.extend(axes);
            }
        }
        let mut total = 0;
        for (at, (value, dims, row)) in rows.iter().enumerate() {
            let ty = self.func.ty(*value);
            total += if at < results {
                let mut contributes = contributes.clone();
                contributes.extend(added(rule, chosen, at));
                let from = Placement { dims: axes(row, true), contributes };
                cost(self.mesh(), ty, &from, dims)
            } else {
                if self.number_of(*value).is_some() {
                    continue;
                }
                let from = Placement { dims: dims.clone(), contributes: Vec::new() };
                cost(self.mesh(), ty, &from, &axes(row, false))
            };
        }
        total
    }

    /// The value on the first rank along axes, and zeros on the others.
    fn once(&mut self, x: Value, axes: &Axes, loc: &Loc) -> Result<Value, Diagnostic> {
        let ty = self.b.ty(x).clone();
        let zero = self.b.splat(neutral(ReduceOp::Sum, ty.dtype()).unwrap_or(0.0), &ty, loc)?;
        let spec = OpSpec::new(GraphOp::AxisIndex, &[]);
        let attrs = self.mesh().pick(axes.iter().copied()).attrs();
        let index = self.b.value(OpSpec { attrs, ..spec }, loc.clone())?;
        let origin =
            self.b.splat(0.0, &tessera_graph::scalar(tessera_numerics::DType::I64), loc)?;
        let is_first = self.b.ew(tessera_numerics::ScalarFn::Eq, &[index, origin], loc)?;
        self.b.select(is_first, x, zero, loc)
    }

    fn block_of(&self, value: Value, dims: &Dims) -> Type {
        block(self.mesh(), self.func.ty(value), dims)
    }

    fn size(&self, axes: &[usize]) -> i64 {
        count(self.mesh(), axes)
    }
}
