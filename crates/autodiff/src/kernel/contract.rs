//! The adjoints of a contraction (K3): one kernel for each input of the loop, whose grid are the
//! axes in that input's index and whose loop are the others, so that the derivatives of a matmul
//! are matmuls.
//!
//! Two steps. The first kernel is the adjoint of everything outside the loop: it gives the
//! cotangent of the sum, as an array beside the results. Each other kernel takes blocks of that
//! array and applies the reverse rules of the loop's body; it accumulates the cotangent of one
//! block of its input in registers.
//!
//! A kernel that does not have this form (a loop in a loop, bounds that depend on the group, an
//! input that is read twice) keeps its adjoint in one kernel, where groups add into memory.

use super::reverse::{Arg, Made, Reverse, Target, finish};
use super::study::{Key, Study};
use super::weave::{Weave, wide};
use crate::scalar::Scalars;
use tessera_diag::Diagnostic;
use tessera_ir::{Attr, DimExpr, OpId, OpSpec, Privilege, Type, Value};
use tessera_numerics::ScalarFn;
use tessera_tile::{
    Atom, KernelKind, TileBuild, TileFunc, TileOp, dim_expr_of, kind_of, linear_of,
};

/// A loop at the top of a kernel that adds up one value, and where that value is stored.
pub struct Contraction {
    pub id: OpId,
    /// The store of the sum.
    pub store: OpId,
    /// The parameter that is stored to: the array between has its extents.
    pub out: usize,
    /// Inputs of the loop, each with its load.
    pub inputs: Vec<(usize, OpId)>,
    grid: Vec<i64>,
    /// Lower bound, upper bound and step of the loop.
    bounds: [i64; 3],
}

/// Where an axis of a load's index comes from.
#[derive(Clone, PartialEq)]
enum Axis {
    Program(usize),
    Iteration,
}

fn number(e: &DimExpr) -> Option<i64> {
    if let DimExpr::Const(v) = e { Some(*v) } else { None }
}

/// The axes that a block depends on, in the order of the index; `None` where it is made of more.
fn axes(key: &Key, iteration: Value) -> Option<Vec<Axis>> {
    let mut out = Vec::new();
    for (at, _, _) in key {
        for atom in at.terms.keys() {
            let axis = match atom {
                Atom::Program(a) => Axis::Program(usize::try_from(*a).ok()?),
                Atom::Value(v) if *v == iteration => Axis::Iteration,
                Atom::Value(_) | Atom::Dim(_) => return None,
            };
            if !out.contains(&axis) {
                out.push(axis);
            }
        }
    }
    Some(out)
}

/// Whether blocks of different iterations are disjoint: each axis advances its own dimension by at
/// least the block.
fn parts(key: &Key, axes: &[Axis], iteration: Value, step: i64) -> bool {
    axes.iter().all(|axis| {
        let (atom, by) = match axis {
            Axis::Program(a) => (Atom::Program(*a as i64), 1),
            Axis::Iteration => (Atom::Value(iteration), step),
        };
        key.iter().any(|(at, extent, each)| {
            let move_by = at.terms.get(&atom).copied().unwrap_or(0).saturating_mul(by);
            at.terms.len() == 1 && move_by > 0 && move_by > (extent.max(&1) - 1) * each
        })
    })
}

/// The contraction of a kernel, where it has one.
pub fn find(study: &Study<'_>, wrt: &[bool], seeded: &[bool]) -> Option<Contraction> {
    let func = study.func;
    if kind_of(func) != Some(KernelKind::Group) {
        return None;
    }
    let top = &func.blocks[func.body].ops;
    let mut loops = top.iter().filter(|&&id| {
        let op = &func.ops[id];
        op.code == TileOp::For && study.any(&op.results)
    });
    let (&id, None) = (loops.next()?, loops.next()) else { return None };
    let op = &func.ops[id];
    let [_] = op.results[..] else { return None };
    let body = op.regions[0];
    let plain = |id: &OpId| func.ops[*id].regions.is_empty() && !writes(func, *id);
    if !func.blocks[body].ops.iter().all(plain) {
        return None;
    }
    // Active values inside come from memory: only inactive numbers are captured.
    if !study.captured(&op.regions).is_empty() {
        return None;
    }
    // Sizes are known where a call is traced; elsewhere groups add into memory.
    let at = |i: usize| dim_expr_of(func, op.operands[i]).as_ref().and_then(number);
    let bounds = [at(0)?, at(1)?, at(2)?];
    let step = bounds[2];
    let exprs = func.attrs.get("grid").and_then(Attr::as_exprs).unwrap_or_default();
    let grid: Vec<i64> = exprs.iter().map(number).collect::<Option<_>>()?;
    let iteration = func.blocks[body].args[0];
    // The one store at the top that has the shape of the sum, and that every group does once.
    let sum = func.ty(op.result());
    let mut stores = top.iter().filter(|&&s| {
        let store = &func.ops[s];
        store.code == TileOp::Store
            && func.ty(store.operands[1]).shape() == sum.shape()
            && study.active[store.operands[1]]
    });
    let &store = stores.next()?;
    let key = study.key(store)?;
    if key.iter().filter(|(_, extent, _)| *extent != 0).any(|(_, _, step)| *step != 1) {
        return None;
    }
    let place = |v: Value| func.params().iter().position(|&p| p == v);
    let out = place(func.ops[store].operands[0])?;
    if !seeded[out] {
        return None;
    }
    let programs: Vec<Axis> = (0..grid.len()).map(Axis::Program).collect();
    let own = axes(&key, iteration)?;
    if !programs.iter().all(|a| own.contains(a)) || !parts(&key, &own, iteration, step) {
        return None;
    }
    let mut inputs = Vec::new();
    for &load in &func.blocks[body].ops {
        let op = &func.ops[load];
        if op.code != TileOp::Load || !study.active[op.result()] {
            continue;
        }
        let p = place(op.operands[0])?;
        let once = study.list(&study.loads, op.operands[0]).len() == 1;
        let read = matches!(func.ty(op.operands[0]), Type::View { privilege: Privilege::Read, .. });
        let key = study.key(load)?;
        let found = axes(&key, iteration)?;
        let fits = found.len() <= 3 && parts(&key, &found, iteration, step);
        if !(wrt[p] && once && read && fits) {
            return None;
        }
        inputs.push((p, load));
    }
    (!inputs.is_empty()).then_some(Contraction { id, store, out, inputs, grid, bounds })
}

fn writes(func: &TileFunc, id: OpId) -> bool {
    use tessera_ir::{Effects, Opcode};
    !matches!(
        Opcode::<tessera_tile::Tile>::info(func.ops[id].code).effects,
        Effects::Pure | Effects::Read | Effects::Terminator
    )
}

/// The array between the kernels: the cotangent of the sum, in what it is added up in.
pub fn between(r: &mut Reverse<'_, '_>, c: &Contraction, how: Privilege) -> Value {
    let func = r.study.func;
    let dims = func.ty(func.params()[c.out]).shape().to_vec();
    let dtype = func.ty(func.ops[c.id].result()).dtype().carrier();
    r.w.param("sum.ct", dims, dtype, how)
}

/// The kernel of one input.
pub fn input(
    study: &Study<'_>,
    c: &Contraction,
    (param, load): (usize, OpId),
    name: &str,
) -> Result<Made, Diagnostic> {
    let func = study.func;
    let op = &func.ops[c.id];
    let body = op.regions[0];
    let iteration = func.blocks[body].args[0];
    let mut r = Reverse::new(Weave::reading(func, name), study);
    let mut args: Vec<Arg> = (0..func.params().len()).map(Arg::Primal).collect();
    let sum = between(&mut r, c, Privilege::Read);
    args.push(Arg::Between { of: c.out, written: false });
    let mem = func.params()[param];
    let label = format!("{}.grad", func.name_of(mem).unwrap_or("x"));
    let (dims, dtype) = (func.ty(mem).shape().to_vec(), func.ty(mem).dtype().carrier());
    let grad = r.w.param(&label, dims, dtype, Privilege::ReadWrite);
    args.push(Arg::Grad { of: param, scalar: false });
    r.targets.insert(mem, Target::Register);
    r.w.loc = func.ops[load].loc.clone();

    // The grid: the axes of the input's index.
    let key = study.key(load).unwrap_or_default();
    let mine = axes(&key, iteration).unwrap_or_default();
    let [first, last, step] = c.bounds;
    let extent = |axis: &Axis| match axis {
        Axis::Program(a) => c.grid[*a],
        Axis::Iteration => ((last - first).max(0) + step - 1) / step,
    };
    let mut grid: Vec<DimExpr> = mine.iter().map(|a| DimExpr::Const(extent(a))).collect();
    if grid.is_empty() {
        grid.push(DimExpr::Const(1));
    }
    r.w.rw.new.attrs.set("grid", Attr::exprs(grid));

    // What stands for each old axis.
    let mut stands = Stands { programs: vec![None; c.grid.len()], iteration: None };
    for (place, axis) in mine.iter().enumerate() {
        let spec = OpSpec::new(TileOp::ProgramId, &[]).attr("axis", Attr::Int(place as i64));
        let id = r.w.value(spec)?;
        match axis {
            Axis::Program(a) => stands.programs[*a] = Some(id),
            Axis::Iteration => {
                let (by, lo) = (r.w.b().index(step), r.w.b().index(first));
                let far = r.w.b().ew(ScalarFn::Mul, &[id, by]);
                let at = r.w.b().ew(ScalarFn::Add, &[far, lo]);
                stands.iteration = Some((iteration, at));
            }
        }
    }
    let total = wide(func.ty(func.ops[load].result()));
    let mut carried = r.w.zeros(&total);
    // Loops over the other axes of the grid, one in the other, then over the iterations.
    let mut opened = Vec::new();
    for a in 0..c.grid.len() {
        if stands.programs[a].is_none() {
            let (id, var, inner) = open(&mut r.w, [0, c.grid[a], 1], carried, &total)?;
            opened.push(id);
            stands.programs[a] = Some(var);
            carried = inner;
        }
    }
    let at = match stands.iteration {
        Some((_, at)) => at,
        None => {
            let (id, var, inner) = open(&mut r.w, c.bounds, carried, &total)?;
            opened.push(id);
            carried = inner;
            var
        }
    };

    // Recompute everything before the loop, for the groups of these indices; then the body.
    let into = r.w.block;
    for &id in &func.blocks[func.body].ops {
        if id == c.id {
            break;
        }
        let op = &func.ops[id];
        match op.code {
            TileOp::ProgramId => {
                let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
                // An axis that the grid has not is one group.
                let v = match stands.programs.get(axis).copied().flatten() {
                    Some(v) => v,
                    None => r.w.b().index(0),
                };
                r.w.rw.set(op.result(), v);
            }
            TileOp::NumPrograms => {
                let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
                let v = r.w.b().index(c.grid.get(axis).copied().unwrap_or(1));
                r.w.rw.set(op.result(), v);
            }
            _ => super::weave::compute(&mut r.w.rw, id, into),
        }
    }
    r.w.rw.set(iteration, at);
    let zero = r.w.zeros(func.ty(op.result()));
    r.w.rw.set(func.blocks[body].args[1], zero);
    r.w.again(body);
    // The positions of the store are made of what is before the loop, or of what is as simple.
    let store = &func.ops[c.store];
    let mut places = Vec::new();
    for &v in store.group("at") {
        places.push(stands.again(&mut r.w, v)?);
    }
    let ty = wide(func.ty(op.result()));
    let mut spec = OpSpec::new(TileOp::Load, &[sum]).group("at", &places);
    if let Some(extent) = store.attr("extent") {
        spec = spec.attr("extent", extent.clone());
    }
    let seed = r.w.value(spec.result(ty))?;
    r.give(study.yielded(body)[0], seed);
    r.answer(body)?;
    let mut out = carried;
    for part in std::mem::take(&mut r.registers) {
        out = r.w.add(out, part)?;
    }
    // Close the loops, the innermost first.
    for &id in opened.iter().rev() {
        r.w.b().yield_(&[out]);
        r.w.block = r.w.rw.new.ops[id].block;
        out = r.w.rw.new.ops[id].result();
    }
    let mut places = Vec::new();
    let load = &func.ops[load];
    // Only the grid's own axes are in it, which stand at the top.
    for &v in load.group("at") {
        places.push(stands.again(&mut r.w, v)?);
    }
    let mut spec = OpSpec::new(TileOp::Store, &[grad, out]).group("at", &places);
    for name in ["extent", "step"] {
        if let Some(attr) = load.attr(name) {
            spec = spec.attr(name, attr.clone());
        }
    }
    r.w.op(spec)?;
    r.w.b().return_();
    Ok(finish(r.w.rw.new, args, Vec::new()))
}

/// A loop with one carried value; what follows goes into it.
fn open(
    w: &mut Weave<'_>,
    bounds: [i64; 3],
    init: Value,
    ty: &Type,
) -> Result<(OpId, Value, Value), Diagnostic> {
    let bounds = bounds.map(|v| w.b().index(v));
    let spec = OpSpec::new(TileOp::For, &bounds).group("init", &[init]).result(ty.clone());
    let id = w.op(spec)?;
    let body = w.rw.new.ops[id].regions[0];
    let var = w.rw.new.add_arg(body, Type::INDEX, None);
    let carried = w.rw.new.add_arg(body, ty.clone(), None);
    w.block = body;
    Ok((id, var, carried))
}

/// The new values for the axes of the source's grid, and for the position of its loop.
struct Stands {
    programs: Vec<Option<Value>>,
    iteration: Option<(Value, Value)>,
}

impl Stands {
    /// Recomputes an index of the source from the new values of its axes.
    fn again(&self, w: &mut Weave<'_>, v: Value) -> Result<Value, Diagnostic> {
        let linear = linear_of(w.old, v);
        let mut sum = w.b().index(linear.constant);
        for (atom, &by) in &linear.terms {
            let part = match (atom, self.iteration) {
                (Atom::Program(a), _) => match self.programs.get(*a as usize).copied().flatten() {
                    Some(v) => v,
                    None => continue,
                },
                (Atom::Value(v), Some((old, new))) if old == *v => new,
                _ => return Err(super::weave::internal("an index of unknown parts", &w.loc)),
            };
            let by = w.b().index(by);
            let part = w.b().ew(ScalarFn::Mul, &[part, by]);
            sum = w.b().ew(ScalarFn::Add, &[sum, part]);
        }
        Ok(sum)
    }
}
