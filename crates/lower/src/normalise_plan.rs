//! Plans `tile-normalise`: which implicit origins are grid axes, which are loops, and around which
//! statements.

use crate::facts::{is_view, quoted, read, subtree, written};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_ir::{Attr, DimExpr, Effects, OpId, Opcode, Value, ValueDef};
use tessera_tile::{TileFunc, TileOp, linear_of};

/// One name `tile_<x>`; all its ops are one number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Origin {
    pub name: String,
    pub dim: DimExpr,
    pub step: i64,
    pub loc: Loc,
}

/// An origin that is a loop, and the top-level statements it goes around.
#[derive(Clone, Debug)]
pub(crate) struct LoopRun {
    pub origin: usize,
    pub run: Range<usize>,
}

/// A `+=` in implicit loops: folded in a carried value, written once after them.
#[derive(Clone, Debug)]
pub(crate) struct Reduction {
    /// Places of the accumulations in the body, ascending.
    pub places: Vec<usize>,
}

#[derive(Default)]
pub(crate) struct NormalisePlan {
    pub origins: Vec<Origin>,
    /// Indices into `origins`, in the order of the axes.
    pub grid: Vec<usize>,
    /// Outer before inner.
    pub loops: Vec<LoopRun>,
    pub reductions: Vec<Reduction>,
    /// For each top-level statement the loop origins it depends on.
    pub depends: Vec<BTreeSet<usize>>,
}

pub(crate) fn index_of(plan: &NormalisePlan, func: &TileFunc, id: OpId) -> Option<usize> {
    let op = &func.ops[id];
    let name = op.attr("name").and_then(Attr::as_word).filter(|_| op.code == TileOp::Origin)?;
    plan.origins.iter().position(|o| o.name == name)
}

/// `Ok(None)`: the kernel has no implicit origins.
pub(crate) fn plan(func: &TileFunc) -> Result<Option<NormalisePlan>, Diagnostics> {
    let mut plan = NormalisePlan::default();
    collect(func, &mut plan)?;
    if plan.origins.is_empty() {
        return Ok(None);
    }
    plan.origins = in_order_of_use(func, &plan);
    let uses = all_uses(func, &plan);
    choose_grid(func, &mut plan, &uses)?;
    plan.depends =
        uses.iter().map(|set| set.difference(&as_set(&plan.grid)).copied().collect()).collect();
    find_runs(func, &mut plan)?;
    find_reductions(func, &mut plan)?;
    Ok(Some(plan))
}

fn as_set(items: &[usize]) -> BTreeSet<usize> {
    items.iter().copied().collect()
}

fn collect(func: &TileFunc, plan: &mut NormalisePlan) -> Result<(), Diagnostics> {
    for id in func.walk() {
        let op = &func.ops[id];
        if op.code != TileOp::Origin {
            continue;
        }
        let dims = op.attr("dim").and_then(Attr::as_exprs).unwrap_or_default();
        let origin = Origin {
            name: op.attr("name").and_then(Attr::as_word).unwrap_or_default().to_string(),
            dim: dims.into_iter().next().unwrap_or(DimExpr::Const(0)),
            step: op.attr("step").and_then(Attr::as_int).unwrap_or(1),
            loc: op.loc.clone(),
        };
        match plan.origins.iter().find(|o| o.name == origin.name) {
            None => plan.origins.push(origin),
            Some(known) if (&known.dim, known.step) == (&origin.dim, origin.step) => {}
            Some(known) => {
                return Err(Diagnostic::new(
                    Code::E_GRAPH_INVALID,
                    format!(
                        "expected `{}` to go over {} in steps of {}, got {} in steps of {}",
                        known.name, known.dim, known.step, origin.dim, origin.step
                    ),
                )
                .at(origin.loc)
                .label(known.loc.clone(), "first used here")
                .help("give each `tile_…` name one dimension and one extent")
                .into());
            }
        }
    }
    Ok(())
}

/// The origins by the place of their first use; the op that names one may stand anywhere before.
fn in_order_of_use(func: &TileFunc, plan: &NormalisePlan) -> Vec<Origin> {
    let mut order: Vec<usize> = Vec::new();
    for id in func.walk() {
        for &value in &func.ops[id].operands {
            let origin = func.def_id(value).and_then(|d| index_of(plan, func, d));
            order.extend(origin.filter(|o| !order.contains(o)));
        }
    }
    order.extend((0..plan.origins.len()).filter(|o| !order.contains(o)).collect::<Vec<_>>());
    order.into_iter().map(|o| plan.origins[o].clone()).collect()
}

/// The origins that each top-level statement depends on, through values and through buffers.
fn all_uses(func: &TileFunc, plan: &NormalisePlan) -> Vec<BTreeSet<usize>> {
    let body = &func.blocks[func.body].ops;
    let mut of_value: BTreeMap<Value, BTreeSet<usize>> = BTreeMap::new();
    let mut of_buffer: BTreeMap<Value, BTreeSet<usize>> = BTreeMap::new();
    let mut out = Vec::with_capacity(body.len());
    for &id in body {
        let mut set = BTreeSet::new();
        let inside = subtree(func, id);
        for &op in &inside {
            set.extend(index_of(plan, func, op));
            for value in &func.ops[op].operands {
                set.extend(of_value.get(value).into_iter().flatten());
            }
            if let Some(memory) = read(&func.ops[op]) {
                set.extend(of_buffer.get(&memory).into_iter().flatten());
            }
        }
        for &op in &inside {
            if let Some(memory) = written(&func.ops[op]).filter(|&m| !is_view(func, m)) {
                of_buffer.entry(memory).or_default().extend(&set);
            }
        }
        for &result in &func.ops[id].results {
            of_value.insert(result, set.clone());
        }
        out.push(set);
    }
    out
}

/// The origins in the positions of stored parameters are the grid, in order of first occurrence.
fn choose_grid(
    func: &TileFunc,
    plan: &mut NormalisePlan,
    uses: &[BTreeSet<usize>],
) -> Result<(), Diagnostics> {
    let body = &func.blocks[func.body].ops;
    for id in func.walk() {
        let op = &func.ops[id];
        if written(op).is_none_or(|memory| !is_view(func, memory)) {
            continue;
        }
        for &at in op.group("at") {
            let found: Vec<usize> = match func.def_id(at).and_then(|d| index_of(plan, func, d)) {
                Some(origin) => vec![origin],
                // Computed: by the statement that holds its definition.
                None => holder(func, at)
                    .and_then(|top| body.iter().position(|&b| b == top))
                    .map(|place| uses[place].iter().copied().collect())
                    .unwrap_or_default(),
            };
            for origin in found {
                if !plan.grid.contains(&origin) {
                    plan.grid.push(origin);
                }
            }
        }
    }
    if plan.grid.is_empty() {
        return Ok(());
    }
    let first = plan.origins[plan.grid[0]].clone();
    let explicit = func
        .walk()
        .into_iter()
        .find(|&id| matches!(func.ops[id].code, TileOp::ProgramId | TileOp::NumPrograms));
    if explicit.is_some() || func.attrs.get("grid").is_some() {
        let got = if explicit.is_some() { "`program_id`" } else { "`ts.tile.grid`" };
        let mut error = Diagnostic::new(
            Code::E_LAUNCH_GEOMETRY,
            format!(
                "expected one way to say the grid, got {got} and the implicit `{}`",
                first.name
            ),
        )
        .at(first.loc.clone())
        .help(format!(
            "write `{} = ts.tile.program_id(…) * {}` for each name, or use no `program_id`",
            first.name, first.step
        ));
        if let Some(id) = explicit {
            error = error.label(func.ops[id].loc.clone(), "the grid is explicit here");
        }
        return Err(error.into());
    }
    if plan.grid.len() > 3 {
        return Err(Diagnostic::new(
            Code::E_LAUNCH_GEOMETRY,
            format!(
                "expected at most 3 origins in the index of stored parameters, got {}",
                plan.grid.len()
            ),
        )
        .at(first.loc)
        .help("write one of them as a loop: `for … in ts.tile.range(0, …, …)`")
        .into());
    }
    Ok(())
}

/// The statement of the body that holds the definition of a value.
fn holder(func: &TileFunc, value: Value) -> Option<OpId> {
    let (mut id, mut block) = match func.values[value].def {
        ValueDef::Result(op, _) => (Some(op), func.ops[op].block),
        ValueDef::Arg(block, _) => (None, block),
    };
    while let Some(parent) = func.blocks[block].parent {
        id = Some(parent);
        block = func.ops[parent].block;
    }
    id
}

fn find_runs(func: &TileFunc, plan: &mut NormalisePlan) -> Result<(), Diagnostics> {
    let body = &func.blocks[func.body].ops;
    for origin in 0..plan.origins.len() {
        // The op that only names the origin is no statement that depends on it.
        let places: Vec<usize> = (0..body.len())
            .filter(|&p| {
                plan.depends[p].contains(&origin) && func.ops[body[p]].code != TileOp::Origin
            })
            .collect();
        if let (Some(&first), Some(&last)) = (places.first(), places.last()) {
            plan.loops.push(LoopRun { origin, run: first..last + 1 });
        }
    }
    // `origins` is in order of first use, and the sort is stable: of two equal runs the one used
    // first is outside.
    plan.loops.sort_by_key(|l| (l.run.start, std::cmp::Reverse(l.run.end)));
    for (i, outer) in plan.loops.iter().enumerate() {
        for inner in &plan.loops[i + 1..] {
            if inner.run.start < outer.run.end && inner.run.end > outer.run.end {
                let [a, b] = [outer, inner].map(|l| &plan.origins[l.origin]);
                return Err(Diagnostic::new(
                    Code::E_GRAPH_INVALID,
                    format!(
                        "expected the loops over `{}` and `{}` to be nested or apart, got loops that overlap",
                        a.name, b.name
                    ),
                )
                .at(b.loc.clone())
                .label(func.ops[body[outer.run.end - 1]].loc.clone(), format!("the loop over `{}` ends here", a.name))
                .help(explicit_loop(b))
                .into());
            }
        }
    }
    Ok(())
}

fn explicit_loop(origin: &Origin) -> String {
    format!(
        "write the loop out: `for {} in ts.tile.range(0, {}, {}):`",
        origin.name,
        crate::facts::python(&origin.dim),
        origin.step
    )
}

fn find_reductions(func: &TileFunc, plan: &mut NormalisePlan) -> Result<(), Diagnostics> {
    let body = &func.blocks[func.body].ops;
    let mut errors = Diagnostics::new();
    for (place, &statement) in body.iter().enumerate() {
        let around: Vec<usize> =
            plan.loops.iter().filter(|l| l.run.contains(&place)).map(|l| l.origin).collect();
        if around.is_empty() {
            continue;
        }
        for id in subtree(func, statement) {
            if let Err(e) = effect_in_loop(func, plan, place, id, &around) {
                errors.push(e);
            }
        }
        if written(&func.ops[statement]).is_some_and(|m| is_view(func, m)) {
            add_reduction(func, plan, place).unwrap_or_else(|e| errors.push(e));
        }
    }
    errors.into_result().map(|_| ())
}

/// Refuses what an implicit loop would not do once: plain stores, and effects it does not reach.
fn effect_in_loop(
    func: &TileFunc,
    plan: &NormalisePlan,
    place: usize,
    id: OpId,
    around: &[usize],
) -> Result<(), Diagnostic> {
    let op = &func.ops[id];
    let body = &func.blocks[func.body].ops;
    let Some(memory) = written(op) else { return Ok(()) };
    let name = quoted(func, memory, "the memory");
    let origin = |index: usize| &plan.origins[index];
    if let Some(&missing) = around.iter().find(|o| !plan.depends[place].contains(o)) {
        let o = origin(missing);
        return Err(Diagnostic::new(
            Code::E_GRAPH_INVALID,
            format!(
                "expected a write to {name} that depends on `{}`, got one between statements that do: \
                 the loop over `{}` would repeat it",
                o.name, o.name
            ),
        )
        .at(op.loc.clone())
        .help(format!("move it before or after the statements that use `{}`", o.name)));
    }
    // Every step of the loop is to make its own atomic change.
    if !is_view(func, memory) || op.code == TileOp::Atomic {
        return Ok(());
    }
    let o = origin(around[0]);
    if op.code != TileOp::Accumulate {
        return Err(Diagnostic::new(
            Code::E_RACE,
            format!(
                "expected `+=` into {name}, got `=`: its index does not use `{}`, so each step of that loop \
                 would overwrite the one before",
                o.name
            ),
        )
        .at(op.loc.clone())
        .help("use `+=` to sum over the loop"));
    }
    if id != body[place] {
        return Err(Diagnostic::new(
            Code::E_UNSUPPORTED,
            format!("expected `+=` into {name} outside `if` and `for`, got one inside an implicit loop over `{}`", o.name),
        )
        .at(op.loc.clone())
        .help(explicit_loop(o)));
    }
    if !op.group("mask").is_empty() {
        return Err(Diagnostic::new(
            Code::E_UNSUPPORTED,
            format!(
                "expected `+=` into {name} without a mask in the implicit loop over `{}`",
                o.name
            ),
        )
        .at(op.loc.clone())
        .help(explicit_loop(o)));
    }
    Ok(())
}

/// Accumulations into one block are one reduction. Into different blocks of one parameter, or mixed
/// with reads of it, their order would matter, and it is not specified.
fn add_reduction(
    func: &TileFunc,
    plan: &mut NormalisePlan,
    place: usize,
) -> Result<(), Diagnostic> {
    let body = &func.blocks[func.body].ops;
    let op = &func.ops[body[place]];
    let same_loops = |plan: &NormalisePlan, a: usize, b: usize| {
        plan.loops.iter().all(|l| l.run.contains(&a) == l.run.contains(&b))
    };
    let first_of = |r: &Reduction| r.places[0];
    let known = plan
        .reductions
        .iter()
        .position(|r| func.ops[body[first_of(r)]].operands[0] == op.operands[0]);
    let memory = quoted(func, op.operands[0], "the memory");
    if let Some(index) = known {
        let first = first_of(&plan.reductions[index]);
        let other = &func.ops[body[first]];
        let block = |op: &tessera_ir::Op<tessera_tile::Tile>| {
            op.group("at").iter().map(|&v| linear_of(func, v)).collect::<Vec<_>>()
        };
        let value = |op: &tessera_ir::Op<tessera_tile::Tile>| func.ty(op.operands[1]).clone();
        let equal =
            block(op) == block(other) && op.attrs == other.attrs && value(op) == value(other);
        if equal && same_loops(plan, first, place) {
            plan.reductions[index].places.push(place);
            return Ok(());
        }
        return Err(Diagnostic::new(
            Code::E_GRAPH_INVALID,
            format!("expected all `+=` into {memory} to sum one block in the same implicit loops, got another"),
        )
        .at(op.loc.clone())
        .label(other.loc.clone(), "the first one")
        .help("write the loops out with `ts.tile.range`, or add the contributions up before one `+=`"));
    }
    let loops: Vec<_> = plan.loops.iter().filter(|l| l.run.contains(&place)).cloned().collect();
    let reader =
        loops.iter().flat_map(|l| l.run.clone()).flat_map(|p| subtree(func, body[p])).find(|&id| {
            func.ops[id].code != TileOp::Accumulate && read(&func.ops[id]) == Some(op.operands[0])
        });
    if let Some(reader) = reader {
        return Err(Diagnostic::new(
            Code::E_GRAPH_INVALID,
            format!("expected {memory} not to be read in the loop that sums into it"),
        )
        .at(func.ops[reader].loc.clone())
        .label(op.loc.clone(), "summed here")
        .help("read it before the statements that use the loop's origin, or after them"));
    }
    plan.reductions.push(Reduction { places: vec![place] });
    Ok(())
}

/// Whether a statement may run once before a loop that it does not depend on: it writes nothing,
/// and reads nothing that the loop writes.
pub(crate) fn hoistable(
    func: &TileFunc,
    plan: &NormalisePlan,
    place: usize,
    run: &Range<usize>,
) -> bool {
    let body = &func.blocks[func.body].ops;
    let writes_in_loop = |memory: Value| {
        run.clone().filter(|p| !plan.reductions.iter().any(|r| r.places.contains(p))).any(|p| {
            subtree(func, body[p]).iter().any(|&id| written(&func.ops[id]) == Some(memory))
        })
    };
    subtree(func, body[place]).iter().all(|&id| {
        let op = &func.ops[id];
        match op.code.info().effects {
            Effects::Pure | Effects::Control => true,
            Effects::Terminator => op.code == TileOp::Yield,
            Effects::Read => read(op).is_some_and(|m| !writes_in_loop(m)),
            Effects::Write => op.code == TileOp::BufAlloc,
            Effects::ReadWrite | Effects::Sync | Effects::Host | Effects::Collective => false,
        }
    })
}
