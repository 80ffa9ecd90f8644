//! The rules on a whole function, one a file. They know nothing of the passes that made it.
//!
//! Those on what may stand where read the function. Those on the order of events — counters, stages,
//! what engines borrow, fences — read traces: each role's ops as they come when the function is run
//! with its dimensions set to a few sizes, without any data (`trace/`). So what they report does
//! happen, and at those sizes nothing is missed that one role can see alone; what only the
//! interplay of roles shows, the interpreter finds.

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

/// What a rule on traces found: where, and what.
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
    // Traces of a function that is wrong in itself would repeat what was said.
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

/// Says at which size, where there is one to choose.
fn with_size(why: String, run: &Run<'_>) -> String {
    match run.size {
        Some(size) => format!("{why} (where dimensions are {size})"),
        None => why,
    }
}
