//! Checked mode: a launch under a race detector and sanitizer. It computes what an ordinary launch
//! computes and reports what is wrong with it, each mistake once at the user's line.
//!
//! | code | what is found |
//! |---|---|
//! | `E_RACE` | two groups touch one element of an argument and one writes, unless both fold it with the operator of a `reduce_*` parameter, both are atomic, or a release of the first and an acquire of the second order them (`order.rs`); the same for two lanes of a group between two barriers, in arguments and shared memory. Lanes may store one and the same value. Also a store with `unique=True` whose positions repeat or that another group writes too, and an access to a block that another group owns (`claims.rs`). |
//! | `E_UNINIT` | an element of shared memory is read before it was written, or an element of an array that was made for the launch is never written. |
//! | `E_OOB` | an index of its own (not a slice's edge) is outside, unless the read says what outside is (`other=`) or is masked. |
//! | `E_OVERFLOW` | signed arithmetic that reaches an index wraps, or a conversion on the way loses the value. |
//! | `E_DIV_ZERO` | an integer is divided by zero, in a lane that runs; padding that a slice read outside is not counted. |
//! | `E_DIVERGENT_BARRIER` | a barrier is reached by some lanes only. |
//! | `E_NAN_INF` | an infinity is made of finite numbers, or a NaN of numbers that are none, and reaches an argument; see `origins.rs` for the rule. |
//!
//! The static part is `check_plan.rs`; `checker.rs` runs before and after each op; `races.rs` and
//! `numbers.rs` describe what is wrong. An op on memory needs a row in `access.rs`, one that
//! computes floats a row in `origins.rs`; ops without one run unchecked.

mod access;
mod arith;
mod check_plan;
mod checker;
mod claims;
mod findings;
mod group_shadow;
mod lane_shadow;
mod numbers;
mod order;
mod order_shadow;
mod origins;
mod races;

pub(crate) mod inner {
    pub use super::access::Touch;
    pub use super::arith::exact;
    pub use super::findings::Findings;
    pub use super::group_shadow::{Earlier as GroupEarlier, GroupShadow};
    pub use super::lane_shadow::{Earlier as LaneEarlier, LaneShadow};
    pub use super::order::Order;
    pub use super::order_shadow::{Now, OrderShadow};
    pub use super::origins::{Birth, Origins, PADDING};
}

pub(crate) use checker::Checker;

use crate::backend::{Interp, Prepared};
use crate::fault::{Outcome, broken};
use crate::lanes::Mask;
use crate::launch::run;
use crate::machine::Machine;
use crate::program::{Action, Inst};
use crate::tile_control::merge;
use crate::value::Tile;
use check_plan::CheckPlan;
use checker::Made;
use std::sync::Arc;
use tessera_diag::{Diagnostics, Kind, Loc};
use tessera_support::Hash128;
use tessera_target::{ArgValue, Artifact, Backend, Caps, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

/// How a launch is checked.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct CheckOptions {
    /// How many findings are described; further locations are only counted.
    pub limit: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { limit: 20 }
    }
}

/// The findings of a checked launch. It is clean if there are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckReport {
    /// One for each code and location, in the order in which they happened first.
    pub findings: Diagnostics,
    /// Locations with findings beyond the limit.
    pub omitted: usize,
}

impl CheckReport {
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// The findings as errors, for a caller that raises them.
    pub fn into_result(self) -> Result<(), Diagnostics> {
        if self.is_clean() { Ok(()) } else { Err(self.findings.raised_as(Kind::Check)) }
    }
}

/// Runs a function once under the checker: the arrays are written as by an ordinary launch. `Err`
/// when it could not be run (or was interrupted), and not for findings.
pub fn check(
    func: &TileFunc,
    args: &LaunchArgs,
    options: &CheckOptions,
) -> Result<CheckReport, Diagnostics> {
    Checked::new(func, options)?.check(args)
}

/// The interpreter in checked mode, as a backend: a launch with findings fails with them, after it
/// has written its results.
#[derive(Copy, Clone, Debug, Default)]
pub struct CheckedInterp {
    pub options: CheckOptions,
}

impl Backend for CheckedInterp {
    fn name(&self) -> &'static str {
        Interp.name()
    }

    fn caps(&self) -> Caps {
        Interp.caps()
    }

    fn compile(
        &self,
        func: &TileFunc,
        _: &CompileOptions,
    ) -> Result<Box<dyn Artifact>, Diagnostics> {
        Ok(Box::new(Checked::new(func, &self.options)?))
    }
}

/// A function prepared for checked launches.
pub struct Checked {
    prepared: Prepared,
    plan: Arc<CheckPlan>,
    options: CheckOptions,
}

impl Checked {
    pub fn new(func: &TileFunc, options: &CheckOptions) -> Result<Self, Diagnostics> {
        let prepared = Prepared::new(func)?;
        let plan = Arc::new(CheckPlan::new(func, &prepared.program));
        Ok(Self { prepared, plan, options: *options })
    }

    pub fn check(&self, args: &LaunchArgs) -> Result<CheckReport, Diagnostics> {
        self.check_with(args, &[])
    }

    /// The same where the arrays of these parameters are uninitialised, each with the location of
    /// its declaration. Elements that the launch does not write are reported.
    pub fn check_with(
        &self,
        args: &LaunchArgs,
        made: &[(usize, Loc)],
    ) -> Result<CheckReport, Diagnostics> {
        let mut m = Machine::new(&self.prepared.program);
        let mut checker = Checker::new(self.plan.clone(), self.options.limit);
        for (place, loc) in made {
            if let (Some(param), Some(ArgValue::Buffer(array))) =
                (self.prepared.program.params.get(*place), args.params.get(*place))
            {
                checker.made.insert(param.slot, Made::new(&array.dims, loc));
            }
        }
        m.check = Some(Box::new(checker));
        let outcome = run(&mut m, args);
        let found = m.check.take().map(|mut c| {
            if outcome.is_ok() {
                c.left_out();
            }
            c.findings.into_diagnostics()
        });
        let (mut findings, omitted) = found.unwrap_or_default();
        match outcome {
            // A fault that the checker reports is a finding like the others.
            Err(fault) if fault.code.kind() == Kind::Check => findings.push(*fault),
            Err(fault) => return Err(Diagnostics::from(*fault).inside_kernel(Kind::Check)),
            Ok(()) => {}
        }
        Ok(CheckReport { findings, omitted })
    }
}

impl Artifact for Checked {
    fn target_text(&self) -> String {
        self.prepared.target_text()
    }

    fn hash(&self) -> Hash128 {
        self.prepared.hash()
    }

    fn launch(&self, args: &LaunchArgs) -> Result<(), Diagnostics> {
        self.check(args)?.into_result()
    }

    fn resources(&self) -> Vec<(&'static str, String)> {
        self.prepared.resources()
    }
}

impl Machine<'_> {
    /// Runs one op with the checker looking on.
    pub(crate) fn execute_checked(&mut self, inst: &Inst) -> Outcome<()> {
        let nested =
            matches!(inst.action, Action::For { .. } | Action::If { .. } | Action::While { .. });
        let lost = || broken("a check without a checker", &inst.loc);
        if nested {
            let value = self.perform(inst)?;
            return self.finish(inst, value);
        }
        let mut checker = self.check.take().ok_or_else(lost)?;
        let seen = checker.before(self, inst);
        // The op sees that there is a checker, and leaves the finding to it.
        self.check = Some(checker);
        let value = self.perform(inst)?;
        let mut checker = self.check.take().ok_or_else(lost)?;
        checker.after(self, inst, seen, value.as_ref());
        self.check = Some(checker);
        self.finish(inst, value)
    }

    /// Merges values of the lanes of a mask with those of the others, and their marks.
    pub(crate) fn merge_checked(
        &mut self,
        mask: &Mask,
        new: Vec<Tile>,
        old: &[Tile],
        loc: &Loc,
    ) -> Outcome<Vec<Tile>> {
        let merged = merge(mask, new.clone(), old, loc)?;
        if let Some(checker) = &mut self.check {
            for ((new, old), out) in new.iter().zip(old).zip(&merged) {
                checker.merged(mask, new, old, out);
            }
        }
        Ok(merged)
    }
}
