//! Calls of kernels whose Tile IR is available become launches of the plan: they are compiled with
//! its kernels, for its machine, and run without calling Python. Derivatives of kernels can only
//! run this way. A user's kernel with several candidates is tuned, and one with a target of its own is
//! not for this machine: such calls stay calls, and so do those whose grid the plan does not know.
//!
//! A launch has array arguments only. A number that is known becomes a constant of the code; any
//! other is loaded from memory, so that the host does not wait for it.

use crate::made::{Geometry, geometry};
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_interp::HostArray;
use tessera_ir::{Attr, Dim, OpSpec, Privilege, Type, Value, ValueDef};
use tessera_numerics::{DType, NumType, Scalar};
use tessera_plan::{Array, Origin, Plan, Step};
use tessera_support::Hash128;
use tessera_tile::{TileFunc, TileOp};

/// A kernel that functions call, by its Tile IR for the sizes of the call.
#[derive(Clone, Debug)]
pub struct MadeKernel {
    pub func: TileFunc,
    /// For each of its parameters, the argument of the call.
    pub args: Vec<usize>,
    /// It cannot be called otherwise.
    pub required: bool,
}

/// Kernels by the names that calls have for them.
pub type MadeKernels = BTreeMap<String, MadeKernel>;

/// Puts launches in place of calls; gives the numbers of the kernels that came in so, which have been
/// through the passes for kernels of the user's.
pub fn place(plan: &mut Plan, kernels: &MadeKernels) -> Result<BTreeSet<usize>, Diagnostics> {
    let mut placing = Placing { kernels, known: BTreeMap::new(), funcs: Vec::new() };
    let first = plan.kernels.len();
    let mut steps = std::mem::take(&mut plan.steps);
    let done = placing.steps(plan, first, &mut steps);
    plan.steps = steps;
    done?;
    let made = (first..first + placing.funcs.len()).collect();
    plan.kernels.extend(placing.funcs);
    Ok(made)
}

struct Placing<'a> {
    kernels: &'a MadeKernels,
    known: BTreeMap<Hash128, usize>,
    funcs: Vec<TileFunc>,
}

impl Placing<'_> {
    fn steps(
        &mut self,
        plan: &Plan,
        first: usize,
        steps: &mut Vec<Step>,
    ) -> Result<(), Diagnostics> {
        for step in &mut *steps {
            match step {
                Step::Call { kernel, args, loc, .. } => {
                    if let Some(made) = self.kernels.get(kernel) {
                        match self.launch(plan, first, (kernel, made), args, loc) {
                            Ok(launch) => *step = launch,
                            Err(errors) if made.required => return Err(errors),
                            Err(_) => {}
                        }
                    }
                }
                Step::Cond { then, otherwise, .. } => {
                    self.steps(plan, first, then)?;
                    self.steps(plan, first, otherwise)?;
                }
                Step::While { test, body, .. } => {
                    self.steps(plan, first, test)?;
                    self.steps(plan, first, body)?;
                }
                Step::Loop { body, .. } => self.steps(plan, first, body)?,
                Step::Launch { .. }
                | Step::Host { .. }
                | Step::Copy { .. }
                | Step::Collective { .. } => {}
            }
        }
        // Nothing is launched on an empty grid.
        steps.retain(|s| !matches!(s, Step::Launch { grid, .. } if grid.contains(&0)));
        Ok(())
    }

    fn launch(
        &mut self,
        plan: &Plan,
        first: usize,
        (label, made): (&str, &MadeKernel),
        args: &[(Array, Privilege)],
        loc: &Loc,
    ) -> Result<Step, Diagnostics> {
        let mut func = made.func.clone();
        let mut arrays = Vec::new();
        for (&param, &arg) in made.func.params().iter().zip(&made.args) {
            let Some((array, privilege)) = args.get(arg) else {
                let why = format!("@{label} is called with too few arguments");
                return Err(Diagnostic::new(Code::E_UNKNOWN, why).at(loc.clone()).into());
            };
            let array = Array { writes: privilege.writes(), ..array.clone() };
            match (func.ty(param).clone(), known(plan, &array)) {
                (Type::Scalar(dtype), Some(number)) if dtype.carrier() == number.dtype() => {
                    fix(&mut func, param, number, loc)?;
                }
                (Type::Scalar(_), _) => {
                    read(&mut func, param, loc)?;
                    arrays.push(one(array));
                }
                _ => arrays.push(array),
            }
        }
        let extents = func.params().iter().zip(&arrays).map(|(&p, a)| (func.ty(p), &a.dims[..]));
        let Geometry { grid, domain, lanes, .. } = geometry(&func, extents)?;
        let next = first + self.funcs.len();
        let kernel = *self.known.entry(func.hash()).or_insert(next);
        if kernel == next {
            self.funcs.push(func);
        }
        let (label, loc) = (label.to_string(), loc.clone());
        Ok(Step::Launch { kernel, args: arrays, grid, domain, lanes, label, loc, queue: 0 })
    }
}

/// The value of a number that is a constant of the plan, and that text can hold.
fn known(plan: &Plan, array: &Array) -> Option<Scalar> {
    let Origin::Constant(bytes) = &plan.buffers[array.buffer].origin else { return None };
    if !array.iterations.is_empty() || array.dims.iter().product::<i64>() != 1 {
        return None;
    }
    let from = usize::try_from(array.offset).ok()?;
    let bytes = bytes.get(from..from + array.dtype.bytes())?.to_vec();
    let number =
        HostArray { dims: vec![1], dtype: array.dtype, bytes }.scalars().first().copied()?;
    (!number.as_f64().is_nan()).then_some(number)
}

/// A number of one element, as an array of one axis.
fn one(array: Array) -> Array {
    Array { dims: vec![1], strides: vec![array.dtype.bytes() as i64], ..array }
}

fn refused(why: String, loc: &Loc) -> Diagnostics {
    Diagnostic::new(Code::E_UNKNOWN, why).at(loc.clone()).into()
}

/// Puts a number in place of a parameter.
fn fix(func: &mut TileFunc, param: Value, number: Scalar, loc: &Loc) -> Result<(), Diagnostics> {
    let ty = func.ty(param).clone();
    let value = match number {
        Scalar::Bool(b) => Attr::Bool(b),
        Scalar::I32(n) => Attr::Int(n.into()),
        Scalar::I64(n) => Attr::Int(n),
        Scalar::U32(n) => Attr::Int(n.into()),
        Scalar::U64(n) => Attr::Int(n as i64),
        Scalar::F32(x) => Attr::Float(x.into()),
        Scalar::F64(x) => Attr::Float(x),
    };
    let spec = OpSpec::new(TileOp::Const, &[]).attr("value", value).result(ty);
    let body = func.body;
    let id = func.insert(body, 0, spec, func.loc.clone()).map_err(|why| refused(why, loc))?;
    let new = func.ops[id].result();
    func.replace_uses(param, new);
    func.blocks[body].args.retain(|&arg| arg != param);
    for (place, &arg) in func.blocks[body].args.clone().iter().enumerate() {
        func.values[arg].def = ValueDef::Arg(body, place);
    }
    Ok(())
}

/// Makes a parameter that is a number an array of one, which is read first.
fn read(func: &mut TileFunc, param: Value, loc: &Loc) -> Result<(), Diagnostics> {
    let ty = func.ty(param).clone();
    let body = func.body;
    let at = OpSpec::new(TileOp::Const, &[])
        .attr("value", Attr::Int(0))
        .result(Type::Scalar(DType::I64));
    let at = func.insert(body, 0, at, func.loc.clone()).map_err(|why| refused(why, loc))?;
    let at = func.ops[at].result();
    let load = OpSpec::new(TileOp::Load, &[param])
        .group("at", &[at])
        .attr("extent", Attr::List(vec![Attr::Int(0)]))
        .result(ty.clone());
    let load = func.insert(body, 1, load, func.loc.clone()).map_err(|why| refused(why, loc))?;
    let value = func.ops[load].result();
    func.replace_uses(param, value);
    func.ops[load].operands[0] = param;
    func.values[param].ty = Type::View {
        dims: vec![Dim::Static(1)],
        elem: NumType::plain(ty.dtype()),
        privilege: Privilege::Read,
    };
    Ok(())
}
