//! The interpreter of Schedule IR: runs a plan, one step at a time, in any order that its queues and
//! events allow.
//!
//! The host goes through the plan in program order and gives steps to queues. Which queue runs its
//! next step, and when, is drawn from a seed: every order of a plan that the verifier accepts gives
//! the same results, and an executor of plans is right where it gives those. Memory holds no zeros
//! before it is written and after it is freed, so that a step which comes too early or too late is
//! seen in the results. What a step does is the caller's: [`PlanSteps`].

mod issue;
mod queues;

use crate::HostArray;
use issue::Host;
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Dim, DimExpr, Func, OpId, Type, Value, verify};
use tessera_schedule::Schedule;
use tessera_target::LaunchArgs;

/// What the steps of a plan do.
pub trait PlanSteps {
    /// Runs a `sched.launch`, a `sched.call` or a `sched.host` on its operands. The last two have no
    /// grid.
    fn run(&mut self, step: OpId, args: &LaunchArgs) -> Result<(), Diagnostics>;
    /// The bytes of a `sched.constant`.
    fn constant(&mut self, constant: OpId) -> Result<Vec<u8>, Diagnostics>;
}

/// Which step runs next, of those that may.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum QueueOrder {
    /// Each step when it is given to its queue: program order.
    Program,
    /// Drawn from a seed.
    Random(u64),
}

/// Runs a plan on its arguments; the arrays of the result are what it returns. Arguments that it may
/// write are written.
pub fn run_schedule(
    func: &Func<Schedule>,
    inputs: &mut [HostArray],
    steps: &mut dyn PlanSteps,
    order: QueueOrder,
) -> Result<Vec<HostArray>, Diagnostics> {
    verify(func)?;
    run_unverified(func, inputs, steps, order)
}

/// The same for a plan whose flow was not verified: what its steps do may then depend on their order.
/// Each op must be valid by itself.
pub fn run_unverified(
    func: &Func<Schedule>,
    inputs: &mut [HostArray],
    steps: &mut dyn PlanSteps,
    order: QueueOrder,
) -> Result<Vec<HostArray>, Diagnostics> {
    let dims = arguments(func, inputs)?;
    Host::new(func, inputs, dims, steps, order)?.run()
}

/// The extents of the arguments by their symbols, and their integers by name.
fn arguments(
    func: &Func<Schedule>,
    inputs: &[HostArray],
) -> Result<BTreeMap<String, i64>, Diagnostics> {
    let refuse = |code, why: String| Err(Diagnostic::new(code, why).at(func.loc.clone()).into());
    let params = func.params();
    if params.len() != inputs.len() {
        let why = format!("expected {} arguments, got {}", params.len(), inputs.len());
        return refuse(Code::E_ARGUMENT, why);
    }
    let mut symbols = BTreeMap::new();
    for (&param, input) in params.iter().zip(inputs) {
        let ty = func.ty(param);
        let (wanted, got) = (ty.shape(), &input.dims);
        let mut fits = wanted.len() == got.len() && ty.dtype() == input.dtype;
        for (dim, &extent) in wanted.iter().zip(got) {
            fits &= match dim {
                Dim::Static(wanted) => *wanted == extent,
                Dim::Expr(DimExpr::Sym(name)) => {
                    *symbols.entry(name.to_string()).or_insert(extent) == extent
                }
                Dim::Expr(_) | Dim::Any => true,
            };
        }
        let bytes = got.iter().map(|&d| d.max(0)).product::<i64>() as usize * input.dtype.bytes();
        if !fits || bytes != input.bytes.len() {
            let name = shown(func, param);
            let why = format!("expected {name} to be {ty}, got {} of shape {got:?}", input.dtype);
            return refuse(Code::E_LAUNCH_INVALID_SHAPE, why);
        }
        if matches!(ty, Type::Scalar(d) if d.is_int())
            && let (Some(name), Some(v)) = (func.name_of(param), input.scalars().first())
        {
            symbols.insert(name.to_string(), v.as_f64() as i64);
        }
    }
    Ok(symbols)
}

fn shown(func: &Func<Schedule>, v: Value) -> String {
    func.name_of(v).map_or_else(|| v.to_string(), |name| format!("%{name}"))
}
