//! The rules on a whole function, one per file. They know nothing about the passes that made it.
//!
//! Structural rules read the function. Rules on the order of events (counters, stages, borrowed
//! operands, fences) read traces: each role's ops in execution order, with the dimensions set to a
//! few sizes, without any data (`trace/`). So what they report does happen, and at those sizes
//! nothing is missed within one role. Errors in the interaction of roles are found by the
//! interpreter.

mod barriers;
mod borrows;
mod counters;
mod pending;
mod places;
mod resources;
mod stages;
mod team;
mod trace;
mod visible;

use crate::Staged;
use std::collections::BTreeSet;
use tessera_diag::Code;
use tessera_ir::{Func, OpErrors, OpId};
use trace::Run;

pub use resources::{registers, shared_bytes};

/// A finding of a rule on traces: where, and what.
pub(crate) type Finding = (OpId, String);

/// A rule on traces.
type Rule = fn(&Func<Staged>, &Run<'_>) -> Vec<Finding>;

const RULES: &[(Rule, Code)] = &[
    (counters::check, Code::E_GRAPH_INVALID),
    (stages::check, Code::E_UNINIT),
    (borrows::check, Code::E_UNWAITED),
    (visible::check, Code::E_RACE),
];

pub(crate) fn check(func: &Func<Staged>, errors: &mut OpErrors) {
    let before = errors.len();
    for rule in [places::check, barriers::check, pending::check, team::check, resources::check] {
        errors.at_func(func);
        rule(func, errors);
    }
    // Traces of an invalid function would repeat the same errors.
    if errors.len() != before {
        return;
    }
    let mut said = BTreeSet::new();
    for run in trace::runs(func) {
        for (rule, code) in RULES {
            for (op, why) in rule(func, &run) {
                if said.insert((op, *code)) {
                    errors.at_op(func, op);
                    errors.push(*code, with_size(why, &run));
                }
            }
        }
    }
}

/// Adds the size, where there is one to choose.
fn with_size(why: String, run: &Run<'_>) -> String {
    match run.size {
        Some(size) => format!("{why} (where dimensions are {size})"),
        None => why,
    }
}
