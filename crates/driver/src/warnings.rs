//! Warnings of one kernel: each is reported once.

use crate::params::{Kind, Params};
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::{Code, Diagnostic, Diagnostics, Severity};
use tessera_frontend::{Capture, Config};

/// With this many values an `int` parameter is taken for a size that changes, not for a choice.
const MANY_VALUES: usize = 8;

#[derive(Default)]
pub struct Warnings {
    reported: BTreeSet<String>,
    pending: Vec<String>,
    values: BTreeMap<String, BTreeSet<i128>>,
}

impl Warnings {
    /// Notes among them are for `explain()` only.
    pub fn add(&mut self, found: &Diagnostics) {
        for d in found.iter().filter(|d| d.severity() == Severity::Warning) {
            if self.reported.insert(first_line(d)) {
                self.pending.push(text(d));
            }
        }
    }

    /// Counts the values that `int` parameters were compiled for.
    pub fn count_values(&mut self, params: &Params, config: &Config) {
        for param in
            params.items.iter().filter(|p| matches!(&p.kind, Kind::Const(ty) if ty == "int"))
        {
            let Some(Capture::Int(value)) = config.consts.get(&param.name) else { continue };
            let seen = self.values.entry(param.name.clone()).or_default();
            if seen.insert(*value) && seen.len() == MANY_VALUES {
                let name = &param.name;
                let message = format!(
                    "the kernel was compiled for {MANY_VALUES} values of `{name}`, each anew"
                );
                let warning = Diagnostic::new(Code::W_RESPECIALISE, message)
                    .at(param.loc.clone())
                    .help(format!("if `{name}` need not be known at compile time, annotate it `{name}: ts.i64`"));
                self.add(&warning.into());
            }
        }
    }

    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.pending)
    }
}

/// A warning as Python shows it.
pub fn text(d: &Diagnostic) -> String {
    let whole = d.render();
    let rest = whole.split_once('\n').map(|(_, rest)| format!("\n{rest}")).unwrap_or_default();
    first_line(d) + &rest
}

/// The code leads, so that Python's filters can match it.
fn first_line(d: &Diagnostic) -> String {
    format!("{}: {}", d.code, d.message)
}
