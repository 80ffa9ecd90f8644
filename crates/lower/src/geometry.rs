//! `tile-geometry` (LANGUAGE 3): infers the launch grid of a group kernel, or the domain of a lane
//! kernel, from its accesses.
//!
//! Before: no implicit origins.
//! After: the function has `grid` (or `domain`) where the rules give one answer.
//! Must not: fail, or replace a geometry the kernel states. A launch that has no grid from
//! elsewhere gets [`geometry_error`].

use crate::facts::{
    dim_expr, extents, is_view, positioned, python, quoted, step, user_name, written,
};
use crate::order::order_at;
use crate::taint::{Taint, computed_from};
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_ir::{Attr, Changed, DimExpr, Op, OpId, Pass, PassContext, Type, Value};
use tessera_tile::{
    Atom, KernelKind, Tile, TileFunc, TileOp, dim_expr_of, is_table, kind_of, lane_axes, lane_axis,
    linear_of,
};

pub struct Geometry;

impl Pass<Tile> for Geometry {
    fn name(&self) -> &'static str {
        "tile-geometry"
    }

    fn run(&self, func: &mut TileFunc, _context: &mut PassContext) -> Result<Changed, Diagnostics> {
        if func.attrs.get("grid").is_some() || func.attrs.get("domain").is_some() {
            return Ok(Changed::No);
        }
        let found = match kind_of(func) {
            Some(KernelKind::Group) => {
                infer_grid(func).ok().map(|grid| ("grid", Attr::exprs(grid)))
            }
            Some(KernelKind::Lane) => {
                infer_domain(func).ok().map(|domain| ("domain", Attr::extents(domain)))
            }
            None => None,
        };
        let Some((name, value)) = found else { return Ok(Changed::No) };
        func.attrs.set(name, value);
        Ok(Changed::Yes)
    }
}

/// Why a launch without a grid is refused, located at the op that leaves it open.
pub fn geometry_error(func: &TileFunc) -> Diagnostic {
    let lane = kind_of(func) == Some(KernelKind::Lane);
    let failure = if lane { infer_domain(func).err() } else { infer_grid(func).err() };
    // The open op was a store that `tile-empty` removed.
    let failure = failure.unwrap_or_else(|| Failure {
        message: "expected a launch grid: the tiles that are stored have no elements, so its size cannot be inferred"
            .into(),
        loc: func.loc.clone(),
    });
    let help = if lane {
        let words: Vec<_> = (0..lane_axes(func)).map(|axis| lane_words(func, axis)).collect();
        let guards: Vec<_> = words.iter().map(|(i, n)| format!("{i} < {n}")).collect();
        let extents: Vec<_> = words.into_iter().map(|(_, n)| n).collect();
        format!(
            "guard the accesses with `if {}:`, or give the number of lanes: `{}[{}](…)`",
            guards.join(" and "),
            func.name,
            extents.join(", ")
        )
    } else {
        grid_help(func)
    };
    Diagnostic::new(Code::E_LAUNCH_GEOMETRY, failure.message).at(failure.loc).help(help)
}

/// The name that the kernel gives its lane along an axis, and an extent that its accesses suggest:
/// that of an array that is written at the lane, if there is one.
fn lane_words(func: &TileFunc, axis: usize) -> (String, String) {
    let mut lane = None;
    let mut found: Option<(bool, String)> = None;
    for id in func.walk() {
        let op = &func.ops[id];
        if op.results.first().is_some_and(|&v| is_linear_id(func, v, axis)) {
            lane = lane.or_else(|| user_name(func, op.result()).map(str::to_string));
        }
        let Some(memory) = positioned(op).filter(|&m| is_view(func, m)) else { continue };
        let writes = written(op) == Some(memory);
        let dims = func.ty(memory).shape();
        for (&at, dim) in op.group("at").iter().zip(dims) {
            let better = found.as_ref().is_none_or(|(wrote, _)| writes && !wrote);
            if is_linear_id(func, at, axis)
                && better
                && let Some(size) = dim_expr(dim)
            {
                found = Some((writes, python(&size)));
            }
        }
    }
    let (own, size) = [("i", "n"), ("j", "m"), ("k", "l")][axis.min(2)];
    (lane.unwrap_or(own.into()), found.map_or(size.into(), |(_, n)| n))
}

/// The statement to write, with the extents that are known.
fn grid_help(func: &TileFunc) -> String {
    let axes = used_axes(func);
    let known = candidates(func).unwrap_or_default();
    let count = axes.iter().next_back().map_or(1, |&a| a as usize + 1);
    let spare = [("pm", "ts.cdiv(M, BM)"), ("pn", "ts.cdiv(N, BN)"), ("pk", "ts.cdiv(K, BK)")];
    let names: Vec<_> = spare.iter().take(count).map(|s| s.0).collect();
    let extents: Vec<_> = (0..count)
        .map(|a| match known.get(&(a as i64)) {
            Some(answers) if answers.len() == 1 => python(&answers[0].0),
            _ => spare[a.min(2)].1.to_string(),
        })
        .collect();
    format!(
        "write `{} = ts.tile.grid({})`, or call it with a grid: `{}[…](…)`",
        names.join(", "),
        extents.join(", "),
        func.name
    )
}

struct Failure {
    message: String,
    loc: Loc,
}

type Answers = BTreeMap<i64, Vec<(DimExpr, OpId)>>;

fn axis_of(func: &TileFunc, id: OpId) -> Option<i64> {
    let op = &func.ops[id];
    let grid_op = matches!(op.code, TileOp::ProgramId | TileOp::NumPrograms);
    op.attr("axis").and_then(Attr::as_int).filter(|_| grid_op)
}

fn used_axes(func: &TileFunc) -> BTreeSet<i64> {
    func.walk().into_iter().filter_map(|id| axis_of(func, id)).collect()
}

fn first_use(func: &TileFunc, axis: i64) -> Loc {
    let found = func.walk().into_iter().find(|&id| axis_of(func, id) == Some(axis));
    found.map_or(func.loc.clone(), |id| func.ops[id].loc.clone())
}

fn infer_grid(func: &TileFunc) -> Result<Vec<DimExpr>, Failure> {
    let axes = used_axes(func);
    if axes.is_empty() {
        return Ok(vec![DimExpr::Const(1)]);
    }
    let answers = candidates(func)?;
    let mut grid = Vec::new();
    for (wanted, &axis) in (0..).zip(&axes) {
        if axis != wanted {
            return Err(Failure {
                message: format!(
                    "expected the grid axes 0, 1, … without gaps, got program_id({axis}) but no program_id({wanted})"
                ),
                loc: first_use(func, axis),
            });
        }
        match answers.get(&axis).map(Vec::as_slice) {
            None | Some([]) => {
                return Err(Failure {
                    message: format!(
                        "expected a grid: program_id({axis}) does not begin a slice of a stored parameter, \
                         so its size cannot be inferred"
                    ),
                    loc: first_use(func, axis),
                });
            }
            Some([(one, _)]) => grid.push(one.clone()),
            Some([(a, _), (b, at), ..]) => {
                return Err(Failure {
                    message: format!(
                        "expected one extent for program_id({axis}), got {} and {}",
                        python(a),
                        python(b)
                    ),
                    loc: func.ops[*at].loc.clone(),
                });
            }
        }
    }
    Ok(grid)
}

/// The grid extents that the positions in stored parameters imply for each axis, each different one
/// once. Index tiles and positions from memory imply nothing.
fn candidates(func: &TileFunc) -> Result<Answers, Failure> {
    let taints: BTreeMap<i64, Taint> = used_axes(func)
        .into_iter()
        .map(|axis| {
            (
                axis,
                computed_from(func, &|op| {
                    op.code == TileOp::ProgramId && op.attr("axis") == Some(&Attr::Int(axis))
                }),
            )
        })
        .collect();
    let mut answers = Answers::new();
    for id in func.walk() {
        let op = &func.ops[id];
        let Some(memory) = written(op).filter(|&m| is_view(func, m)) else { continue };
        // A copy into a buffer reads the parameter it is positioned in; any number of groups may fold
        // into one element of a `reduce_*` parameter.
        let folds = matches!(func.ty(memory), Type::View { privilege, .. } if privilege.reduces());
        if positioned(op) != Some(memory) || folds {
            continue;
        }
        let extent = extents(op);
        for (dim, &at) in op.group("at").iter().enumerate() {
            // An index tile may reach any element.
            if func.ty(at).rank() > 0 {
                continue;
            }
            let reaching: Vec<i64> =
                taints.iter().filter(|(_, t)| t.value(at)).map(|(a, _)| *a).collect();
            let [axis] = reaching[..] else {
                if reaching.is_empty() {
                    continue;
                }
                return Err(other_use(func, id, at));
            };
            let form = linear_of(func, at);
            // A strided slice is as long as the range of its positions.
            let block = extent.get(dim).copied().unwrap_or(0) * step(op, dim);
            let alone = form.constant == 0 && form.terms.len() == 1;
            let factor = form.terms.get(&Atom::Program(axis)).copied();
            let size = dim_expr(&func.ty(memory).shape()[dim]);
            let is_block = alone && factor == Some(block.max(1));
            let (true, Some(size)) = (is_block, size) else { return Err(other_use(func, id, at)) };
            let answer = size.ceil_div(block.max(1));
            let list = answers.entry(axis).or_default();
            if !list.iter().any(|(known, _)| *known == answer) {
                list.push((answer, id));
            }
        }
    }
    Ok(answers)
}

fn other_use(func: &TileFunc, id: OpId, at: Value) -> Failure {
    let position =
        user_name(func, at).map_or("a position".to_string(), |n| format!("the position `{n}`"));
    let memory = quoted(func, func.ops[id].operands[0], "a parameter");
    Failure {
        message: format!(
            "expected a grid: {position} in {memory} is not program_id(…) times the extent of the slice"
        ),
        loc: func.ops[id].loc.clone(),
    }
}

fn is_linear_id(func: &TileFunc, value: Value, axis: usize) -> bool {
    let own = |op: &Op<Tile>| lane_axis(op).unwrap_or(0) == axis;
    func.def(value).is_some_and(|op| op.code == TileOp::LinearId && own(op))
}

fn infer_domain(func: &TileFunc) -> Result<Vec<DimExpr>, Failure> {
    (0..lane_axes(func)).map(|axis| infer_lanes(func, axis)).collect()
}

/// The number of lanes along an axis.
fn infer_lanes(func: &TileFunc, axis: usize) -> Result<DimExpr, Failure> {
    let accesses: Vec<OpId> = func
        .walk()
        .into_iter()
        // The extent of a constant table is that of the table, not of what is computed.
        .filter(|&id| {
            positioned(&func.ops[id]).is_some_and(|m| is_view(func, m) && !is_table(func, m))
        })
        .collect();
    let mut guards: Option<Vec<DimExpr>> = None;
    for &id in &accesses {
        let here = guards_of(func, id, axis);
        guards = Some(match guards {
            None => here,
            Some(known) => known.into_iter().filter(|e| here.contains(e)).collect(),
        });
    }
    if let Some(first) = guards.and_then(|g| g.into_iter().next()) {
        return Ok(first);
    }
    let mut answer: Option<DimExpr> = None;
    for &id in &accesses {
        let op = &func.ops[id];
        let dims = positioned(op).map(|m| func.ty(m).shape().to_vec()).unwrap_or_default();
        for (&at, dim) in op.group("at").iter().zip(&dims) {
            if !is_linear_id(func, at, axis) {
                continue;
            }
            match (dim_expr(dim), &answer) {
                (Some(found), None) => answer = Some(found),
                (Some(found), Some(known)) if found == *known => {}
                (found, _) => {
                    let shown =
                        |e: Option<DimExpr>| e.map_or("an unknown extent".into(), |e| python(&e));
                    return Err(Failure {
                        message: format!(
                            "expected one dimension to be indexed by {}, got {} and {}",
                            lane_phrase(func, axis),
                            shown(answer.clone()),
                            shown(found)
                        ),
                        loc: op.loc.clone(),
                    });
                }
            }
        }
    }
    let (along, id) = match lane_axes(func) {
        1 => (String::new(), "linear_id()".to_string()),
        _ => (format!(" along axis {axis}"), format!("linear_id({axis})")),
    };
    answer.ok_or_else(|| Failure {
        message: format!(
            "expected the number of lanes{along}: no access is guarded by it or indexed by {id} alone"
        ),
        loc: accesses.first().map_or(func.loc.clone(), |&id| func.ops[id].loc.clone()),
    })
}

fn lane_phrase(func: &TileFunc, axis: usize) -> String {
    match lane_axes(func) {
        1 => "the lane".into(),
        _ => format!("linear_id({axis})"),
    }
}

/// The bounds `E` of the conditions `i < E` that hold at an op, outermost first.
fn guards_of(func: &TileFunc, id: OpId, axis: usize) -> Vec<DimExpr> {
    let known = order_at(func, id);
    let below = known.iter().filter(|o| o.strict && is_linear_id(func, o.less, axis));
    below.filter_map(|o| dim_expr_of(func, o.more)).collect()
}
