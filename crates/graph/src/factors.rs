//! Factor rules: which dims of an operation are split together when it runs on a mesh. A rule has one
//! factor for each dim of each operand and result, `b s d, d -> b s d`; dims with one name are split
//! together. A factor in upper case must be whole, and of one that is written `_` nothing is said. Propagation over a mesh reads them.

use crate::Refusal;
use std::fmt::{self, Display};

/// The factors of each operand and of each result, dim by dim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactorRule {
    pub operands: Vec<Vec<String>>,
    pub results: Vec<Vec<String>>,
}

impl FactorRule {
    pub fn parse(text: &str) -> Result<FactorRule, Refusal> {
        let Some((from, to)) = text.split_once("->") else {
            return Err(refused(format!("expected `operands -> results`, got `{text}`")));
        };
        let rule = FactorRule { operands: side(from)?, results: side(to)? };
        for dims in rule.operands.iter().chain(&rule.results) {
            if let Some((at, twice)) =
                dims.iter().enumerate().find(|(i, n)| Self::is_named(n) && dims[..*i].contains(n))
            {
                return Err(refused(format!(
                    "expected each factor once an array, got `{twice}` again at dim {at}"
                )));
            }
        }
        let known = |name: &String| rule.operands.iter().flatten().any(|n| n == name);
        if let Some(name) = rule.results.iter().flatten().find(|n| Self::is_named(n) && !known(n)) {
            return Err(refused(format!(
                "expected factors of the operands, got `{name}` in a result"
            )));
        }
        Ok(rule)
    }

    /// Whether the rule says something of a factor.
    pub fn is_named(name: &str) -> bool {
        name != "_"
    }

    /// Whether a factor may not be split.
    pub fn is_whole(name: &str) -> bool {
        name.chars().next().is_some_and(char::is_uppercase)
    }

    /// Refuses a rule for other numbers of arrays or dims.
    pub fn check(&self, operands: &[usize], results: &[usize]) -> Result<(), Refusal> {
        for (what, rows, ranks) in
            [("operand", &self.operands, operands), ("result", &self.results, results)]
        {
            if rows.len() != ranks.len() {
                let (n, m) = (ranks.len(), rows.len());
                return Err(refused(format!("expected factors of {n} {what}s, got those of {m}")));
            }
            for (at, (row, &rank)) in rows.iter().zip(ranks).enumerate() {
                if row.len() != rank {
                    let n = row.len();
                    return Err(refused(format!(
                        "expected a factor for each of {rank} dims of {what} {at}, got {n}"
                    )));
                }
            }
        }
        Ok(())
    }
}

fn refused(message: String) -> Refusal {
    Refusal::structure(message)
}

fn side(text: &str) -> Result<Vec<Vec<String>>, Refusal> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    text.split(',').map(|array| array.split_whitespace().map(factor).collect()).collect()
}

fn factor(name: &str) -> Result<String, Refusal> {
    let mut chars = name.chars();
    let begins = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if begins && chars.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(name.to_string());
    }
    Err(refused(format!("expected names of factors, got `{name}`")))
}

impl Display for FactorRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |rows: &[Vec<String>]| {
            rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>().join(", ")
        };
        write!(f, "{} -> {}", side(&self.operands), side(&self.results))
    }
}
