//! `tile-normalise` (LANGUAGE 4): implicit origins become grid axes and loops.
//!
//! Input: unbound `tile_<x>` names are `tile.origin` ops; buffers that can be lifted are. Output:
//! there are no origins. Origins in the index of a stored parameter are `program_id(axis) * step`
//! and the function states its `grid`; the others are loops `for 0..D step T`, each around the
//! smallest run of statements that depend on it. A `+=` in such a loop is a reduction: the old
//! contents are read once before it, contributions are added in the accumulation dtype in ascending
//! order, and the result is converted and stored once after it (on a `reduce_*` parameter the sum
//! of the contributions is folded in once). Statements that do not depend on a loop move before it.
//! `N_IMPLICIT_TILE` says what each origin became.
//! Must not: change a kernel without origins, or repeat a write that the user wrote once.

use crate::facts::{emit_dim_expr, extents, join_words, quoted};
use crate::normalise_plan::{LoopRun, NormalisePlan, hoistable, index_of, plan};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{
    Attr, BlockId, Builder, Changed, Func, OpId, OpSpec, Pass, PassContext, Rewriter, Type, Value,
};
use tessera_numerics::{DType, NumType, ReduceOp, Scalar, ScalarFn};
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp};

pub struct Normalise;

impl Pass<Tile> for Normalise {
    fn name(&self) -> &'static str {
        "tile-normalise"
    }

    fn run(&self, func: &mut TileFunc, context: &mut PassContext) -> Result<Changed, Diagnostics> {
        let Some(plan) = plan(func)? else { return Ok(Changed::No) };
        let len = func.blocks[func.body].ops.len();
        let mut emitter = Emitter {
            rw: Rewriter::new(func),
            old: func,
            plan: &plan,
            done: BTreeSet::new(),
            carried: BTreeMap::new(),
        };
        emitter.grid();
        let into = emitter.rw.new.body;
        emitter.range(0..len, into, &mut Vec::new())?;
        let new = emitter.rw.new;
        context.notes.push(note(&plan));
        *func = new;
        Ok(Changed::Yes)
    }
}

fn note(plan: &NormalisePlan) -> Diagnostic {
    let of = |index: usize| &plan.origins[index];
    let all: Vec<_> = plan.origins.iter().map(|o| format!("`{}`", o.name)).collect();
    let axes: Vec<_> = plan
        .grid
        .iter()
        .map(|&o| format!("`{}` ({})", of(o).name, of(o).dim.clone().ceil_div(of(o).step)))
        .collect();
    let loops: Vec<_> = plan
        .loops
        .iter()
        .map(|l| {
            format!(
                "`{}` (0 to {} in steps of {})",
                of(l.origin).name,
                of(l.origin).dim,
                of(l.origin).step
            )
        })
        .collect();
    let what = if all.len() == 1 { "a tile origin" } else { "tile origins" };
    let mut parts = vec![format!("read {} as {what}", join_words(&all))];
    if !axes.is_empty() {
        parts.push(format!("the grid is {}", join_words(&axes)));
    }
    if !loops.is_empty() {
        parts.push(format!("loops go over {}", join_words(&loops)));
    }
    Diagnostic::new(Code::N_IMPLICIT_TILE, parts.join("; ")).at(plan.origins[0].loc.clone())
}

struct Emitter<'f> {
    rw: Rewriter<'f, Tile>,
    old: &'f TileFunc,
    plan: &'f NormalisePlan,
    /// Statements that were done before a loop.
    done: BTreeSet<usize>,
    /// The running value of each reduction that has begun.
    carried: BTreeMap<usize, Value>,
}

impl Emitter<'_> {
    fn body(&self) -> &[OpId] {
        &self.old.blocks[self.old.body].ops
    }

    fn grid(&mut self) {
        if self.plan.grid.is_empty() {
            return;
        }
        let mut extents = Vec::new();
        for (axis, &index) in self.plan.grid.iter().enumerate() {
            let origin = &self.plan.origins[index];
            extents.push(origin.dim.clone().ceil_div(origin.step));
            let into = self.rw.new.body;
            let mut b = self.rw.builder(into, origin.loc.clone());
            let spec = OpSpec::new(TileOp::ProgramId, &[]).attr("axis", Attr::Int(axis as i64));
            let id = b.value(spec.result(Type::INDEX)).expect("the result type is given");
            let step = b.index(origin.step);
            let start = b.ew(ScalarFn::Mul, &[id, step]);
            b.name(start, &origin.name);
            self.bind(index, start);
        }
        self.rw.new.attrs.set("grid", Attr::exprs(extents));
    }

    /// Replaces every op that names the origin by `value`.
    fn bind(&mut self, origin: usize, value: Value) {
        for id in self.old.walk() {
            if index_of(self.plan, self.old, id) == Some(origin) {
                self.rw.set(self.old.ops[id].result(), value);
            }
        }
    }

    fn range(
        &mut self,
        range: Range<usize>,
        into: BlockId,
        active: &mut Vec<usize>,
    ) -> Result<(), Diagnostics> {
        let mut place = range.start;
        while place < range.end {
            let begins = (0..self.plan.loops.len())
                .find(|l| !active.contains(l) && self.plan.loops[*l].run.start == place);
            if let Some(index) = begins {
                self.loop_(index, into, active)?;
                place = self.plan.loops[index].run.end;
                continue;
            }
            if !self.done.contains(&place) {
                self.statement(place, into, active)?;
            }
            place += 1;
        }
        Ok(())
    }

    fn statement(
        &mut self,
        place: usize,
        into: BlockId,
        active: &[usize],
    ) -> Result<(), Diagnostics> {
        let id = self.body()[place];
        if self.old.ops[id].code == TileOp::Origin {
            return Ok(());
        }
        if let Some(index) = self.plan.reductions.iter().position(|r| r.places.contains(&place)) {
            let op = &self.old.ops[id];
            let acc = self.carried[&index];
            let dtype = self.rw.new.ty(acc).dtype();
            let value = self.rw.get(op.operands[1]);
            let mut b = self.rw.builder(into, op.loc.clone());
            let value = b.cast(value, dtype);
            let next = b.ew(reduce_op(op).combine(), &[acc, value]);
            self.carried.insert(index, next);
            return Ok(());
        }
        self.refuse_escape(place, active)?;
        self.copy(id, into);
        Ok(())
    }

    fn copy(&mut self, id: OpId, into: BlockId) {
        fn each(rw: &mut Rewriter<'_, Tile>, id: OpId, into: BlockId) {
            if rw.old.ops[id].code != TileOp::Origin {
                rw.copy_op_with(id, into, &mut each);
            }
        }
        each(&mut self.rw, id, into);
    }

    /// A value computed anew in each iteration has no single value after the loop.
    fn refuse_escape(&self, place: usize, active: &[usize]) -> Result<(), Diagnostics> {
        let Some(end) = active.iter().map(|&l| self.plan.loops[l].run.end).min() else {
            return Ok(());
        };
        let op = &self.old.ops[self.body()[place]];
        for &later in &self.body()[end..] {
            for id in crate::facts::subtree(self.old, later) {
                if let Some(&value) =
                    op.results.iter().find(|v| self.old.ops[id].operands.contains(v))
                {
                    let name = quoted(self.old, value, "a value");
                    let origin =
                        &self.plan.origins[self.plan.loops[active[active.len() - 1]].origin].name;
                    return Err(Diagnostic::new(
                        Code::E_GRAPH_INVALID,
                        format!("expected {name} to be used in the loop over `{origin}` only, got a use after it"),
                    )
                    .at(self.old.ops[id].loc.clone())
                    .label(op.loc.clone(), "made in the loop here")
                    .help(format!("compute {name} before the statements that use `{origin}`"))
                    .into());
                }
            }
        }
        Ok(())
    }

    fn loop_(
        &mut self,
        index: usize,
        into: BlockId,
        active: &mut Vec<usize>,
    ) -> Result<(), Diagnostics> {
        let LoopRun { origin, run } = self.plan.loops[index].clone();
        self.hoist(&run, into, active);
        let inside: Vec<usize> = (0..self.plan.reductions.len())
            .filter(|&r| self.plan.reductions[r].places.iter().all(|p| run.contains(p)))
            .collect();
        let begun: Vec<usize> =
            inside.iter().copied().filter(|r| !self.carried.contains_key(r)).collect();
        for &reduction in &begun {
            self.begin(reduction, into)?;
        }
        let about = self.plan.origins[origin].clone();
        let hi = emit_dim_expr(&mut self.rw.new, into, &about.loc, &about.dim);
        let mut b = self.rw.builder(into, about.loc.clone());
        let (lo, step) = (b.index(0), b.index(about.step));
        let init: Vec<Value> = inside.iter().map(|r| self.carried[r]).collect();
        let types: Vec<Type> = init.iter().map(|&v| self.rw.new.ty(v).clone()).collect();
        let spec =
            OpSpec::new(TileOp::For, &[lo, hi, step]).group("init", &init).results(types.clone());
        let mut b = self.rw.builder(into, about.loc.clone());
        let id = b.op(spec).expect("the result types are given");
        let block = self.rw.new.ops[id].regions[0];
        let position = self.rw.new.add_arg(block, Type::INDEX, Some(&about.name));
        self.bind(origin, position);
        for (&reduction, ty) in inside.iter().zip(types) {
            let arg = self.rw.new.add_arg(block, ty, None);
            self.carried.insert(reduction, arg);
        }
        active.push(index);
        self.range(run, block, active)?;
        active.pop();
        let next: Vec<Value> = inside.iter().map(|r| self.carried[r]).collect();
        self.rw.builder(block, about.loc).yield_(&next);
        for (place, &reduction) in inside.iter().enumerate() {
            self.carried.insert(reduction, self.rw.new.ops[id].results[place]);
        }
        for reduction in begun {
            self.finish(reduction, into);
        }
        Ok(())
    }

    /// Hoists what does not depend on the loop.
    fn hoist(&mut self, run: &Range<usize>, into: BlockId, active: &[usize]) {
        let known: BTreeSet<usize> = active.iter().map(|&l| self.plan.loops[l].origin).collect();
        for place in run.clone() {
            let id = self.body()[place];
            let ready = |this: &Self| {
                let inner = crate::facts::subtree(this.old, id);
                let outside = |v: &Value| !inner.iter().any(|&i| defines(this.old, i, *v));
                inner
                    .iter()
                    .flat_map(|&i| &this.old.ops[i].operands)
                    .filter(|v| outside(v))
                    .all(|&v| this.rw.is_mapped(v))
            };
            if self.done.contains(&place)
                || self.old.ops[id].code == TileOp::Origin
                || !self.plan.depends[place].is_subset(&known)
                || !hoistable(self.old, self.plan, place, run)
                || !ready(self)
            {
                continue;
            }
            self.copy(id, into);
            self.done.insert(place);
        }
    }

    fn begin(&mut self, reduction: usize, into: BlockId) -> Result<(), Diagnostics> {
        let op = &self.old.ops[self.body()[self.plan.reductions[reduction].places[0]]];
        let memory = op.operands[0];
        if let Some(&at) = op.group("at").iter().find(|&&at| !self.rw.is_mapped(at)) {
            let name = quoted(self.old, at, "the position");
            return Err(Diagnostic::new(
                Code::E_GRAPH_INVALID,
                format!(
                    "expected {name} to be known before the loop that sums into {}",
                    quoted(self.old, memory, "memory")
                ),
            )
            .at(op.loc.clone())
            .help("compute it before the statements that use the loop's origin")
            .into());
        }
        let at: Vec<Value> = op.group("at").iter().map(|&v| self.rw.get(v)).collect();
        let value_ty = self.old.ty(op.operands[1]).clone();
        let dtype = accumulation_dtype(self.old, memory, value_ty.dtype());
        let target = self.rw.get(memory);
        let mut b = self.rw.builder(into, op.loc.clone());
        let start = if reduces(self.old, memory) {
            let identity = reduce_op(op).identity(dtype).unwrap_or(Scalar::zero(dtype));
            let value = identity
                .as_int()
                .map_or_else(|| Attr::Float(identity.as_f64()), |v| Attr::Int(v as i64));
            b.constant(value_ty.with_dtype(dtype), value)
        } else {
            let ty = Type::value(value_ty.shape().to_vec(), self.old.ty(memory).dtype());
            let spec = OpSpec::new(TileOp::Load, &[target]).group("at", &at).result(ty);
            let old = b.value(as_block(spec, op)).expect("the result type is given");
            b.cast(old, dtype)
        };
        self.carried.insert(reduction, start);
        Ok(())
    }

    fn finish(&mut self, reduction: usize, into: BlockId) {
        let op = &self.old.ops[self.body()[self.plan.reductions[reduction].places[0]]];
        let memory = op.operands[0];
        let at: Vec<Value> = op.group("at").iter().map(|&v| self.rw.get(v)).collect();
        let total = self.carried[&reduction];
        let target = self.rw.get(memory);
        let mut b = self.rw.builder(into, op.loc.clone());
        if reduces(self.old, memory) {
            let spec = OpSpec::new(TileOp::Accumulate, &[target, total]).group("at", &at);
            let spec = spec.attr("op", Attr::word(reduce_op(op).name()));
            b.op(as_block(spec, op)).expect("the op has no results");
        } else if let Type::View { elem, .. } = self.old.ty(memory) {
            let stored = to_storage(&mut b, total, elem);
            let spec = OpSpec::new(TileOp::Store, &[target, stored]).group("at", &at);
            b.op(as_block(spec, op)).expect("the op has no results");
        }
    }
}

/// The same block of memory as another op's.
fn as_block(spec: OpSpec<Tile>, op: &tessera_ir::Op<Tile>) -> OpSpec<Tile> {
    let spec = spec.attr("extent", Attr::ints(extents(op)));
    match op.attr("step") {
        Some(step) => spec.attr("step", step.clone()),
        None => spec,
    }
}

fn defines(func: &TileFunc, id: OpId, value: Value) -> bool {
    let op = &func.ops[id];
    op.results.contains(&value) || op.regions.iter().any(|&r| func.blocks[r].args.contains(&value))
}

fn reduces(func: &TileFunc, memory: Value) -> bool {
    matches!(func.ty(memory), Type::View { privilege, .. } if privilege.reduces())
}

fn reduce_op(op: &tessera_ir::Op<Tile>) -> ReduceOp {
    op.attr("op").and_then(Attr::as_word).and_then(ReduceOp::from_name).unwrap_or(ReduceOp::Sum)
}

/// Sums are kept in the parameter's accumulation dtype, or the contributions' where that is wider.
fn accumulation_dtype(func: &Func<Tile>, memory: Value, value: DType) -> DType {
    match func.ty(memory) {
        Type::View { elem, .. } => DType::join(elem.accumulator().dtype(), value).unwrap_or(value),
        _ => value,
    }
}

/// The conversion of a store, by the parameter's policy.
fn to_storage(b: &mut Builder<'_, Tile>, value: Value, elem: &NumType) -> Value {
    if b.func.ty(value).dtype() == elem.storage {
        return value;
    }
    let ty = b.func.ty(value).with_dtype(elem.storage);
    let mut spec = OpSpec::new(TileOp::Cast, &[value]).result(ty);
    if let Some(round) = elem.round {
        spec = spec.attr("round", Attr::word(round.name()));
    }
    if let Some(saturate) = elem.saturate {
        spec = spec.attr("saturate", Attr::Bool(saturate));
    }
    b.value(spec).expect("the result type is given")
}
