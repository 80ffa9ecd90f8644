//! What a kernel requires of its dims (`require=`).

use crate::dims::{Sizes, parse_dim};
use std::fmt;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};

#[derive(Clone, Debug, PartialEq)]
pub enum Constraint {
    Divisible {
        dim: String,
        by: i64,
    },
    Range {
        dim: String,
        low: i64,
        high: i64,
    },
    /// Equal to another dim, an integer, or a product of them.
    Derived {
        dim: String,
        expr: String,
    },
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constraint::Divisible { dim, by } => write!(f, "`{dim}` to be a multiple of {by}"),
            Constraint::Range { dim, low, high } => write!(f, "`{dim}` to be from {low} to {high}"),
            Constraint::Derived { dim, expr } => write!(f, "`{dim}` to be `{expr}`"),
        }
    }
}

impl Constraint {
    /// `Some` describes what broke it; what is not known yet breaks nothing.
    fn broken(&self, sizes: &Sizes) -> Option<String> {
        let value = |text: &str| parse_dim(text).and_then(|e| sizes.eval(&e).ok());
        match self {
            Constraint::Divisible { dim, by } => {
                value(dim).filter(|v| *by == 0 || v % by != 0).map(|v| format!("{dim} = {v}"))
            }
            Constraint::Range { dim, low, high } => {
                value(dim).filter(|v| v < low || v > high).map(|v| format!("{dim} = {v}"))
            }
            Constraint::Derived { dim, expr } => {
                let (a, b) = (value(dim)?, value(expr)?);
                (a != b).then(|| format!("{dim} = {a} and {expr} = {b}"))
            }
        }
    }
}

pub fn check(constraints: &[Constraint], sizes: &Sizes, loc: &Loc, errors: &mut Diagnostics) {
    for constraint in constraints {
        if let Some(got) = constraint.broken(sizes) {
            let message = format!("the kernel requires {constraint}, got {got}");
            let help = "pass arrays of such sizes (pad them), or relax `ts.require`";
            errors.push(Diagnostic::new(Code::E_SPECIALIZE, message).at(loc.clone()).help(help));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_wait_for_sizes_and_then_bind() {
        let rule = Constraint::Derived { dim: "E".into(), expr: "H*D".into() };
        let mut sizes = Sizes::default();
        assert_eq!(rule.broken(&sizes), None);
        sizes.known.extend([("E".into(), 12), ("H".into(), 3), ("D".into(), 4)]);
        assert_eq!(rule.broken(&sizes), None);
        sizes.known.insert("E".into(), 13);
        assert_eq!(rule.broken(&sizes), Some("E = 13 and H*D = 12".into()));
    }
}
