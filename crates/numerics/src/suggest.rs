//! "Did you mean": the nearest known names to one that is not known.

use crate::dtype::{ALIASES, DType};
use std::fmt;

/// A name that is no dtype, with the names nearest to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownDType {
    pub name: String,
    pub suggestions: Vec<&'static str>,
}

impl fmt::Display for UnknownDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.suggestions.is_empty() {
            let all: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
            write!(f, "expected a dtype (one of {}), got `{}`", all.join(", "), self.name)
        } else {
            let near = self.suggestions.join("`, `");
            write!(f, "expected a dtype (did you mean `{near}`?), got `{}`", self.name)
        }
    }
}

impl std::error::Error for UnknownDType {}

/// Names of C, CUDA and PyTorch, with ours.
const ELSEWHERE: &[(&str, &str)] = &[
    ("half", "f16"),
    ("float", "f32"),
    ("double", "f64"),
    ("nv_bfloat16", "bf16"),
    ("__nv_bfloat16", "bf16"),
    ("__half", "f16"),
    ("int", "i32"),
    ("long", "i64"),
    ("short", "i16"),
    ("char", "i8"),
    ("byte", "u8"),
    ("unsigned", "u32"),
    ("uint", "u32"),
    ("int1", "bool"),
];

/// The dtype names nearest to `name`, best first, at most four and one for each dtype. Empty when
/// nothing is near enough to be a likely slip.
pub fn unknown_dtype_suggestions(name: &str) -> Vec<&'static str> {
    if let Some((_, ours)) = ELSEWHERE.iter().find(|(theirs, _)| *theirs == name) {
        return vec![ours];
    }
    let canonical = DType::ALL.iter().map(|&d| (d.name(), d));
    let mut ranked: Vec<(usize, &'static str, DType)> =
        canonical.chain(ALIASES.iter().copied()).map(|(n, d)| (distance(name, n), n, d)).collect();
    // A stable sort keeps canonical names before aliases and table order among equals.
    ranked.sort_by_key(|r| r.0);
    // What is much worse than the best is noise beside it.
    let best = ranked.first().map_or(0, |r| r.0);
    let limit = if name.len() <= 3 { 1 } else { 2 }.min(best + 1);
    let mut taken: Vec<DType> = Vec::new();
    let mut out = Vec::new();
    for (d, n, dt) in ranked {
        if d > limit || out.len() == 4 {
            break;
        }
        if !taken.contains(&dt) {
            taken.push(dt);
            out.push(n);
        }
    }
    out
}

/// The nearest of `known` to `name`, for items and modes.
pub(crate) fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let best = known.iter().map(|k| (distance(name, k), *k)).min_by_key(|r| r.0)?;
    (best.0 <= 2).then_some(best.1)
}

/// Edits (insert, delete, replace) between two names, letter case ignored since `BF16` for `bf16`
/// is a slip too. Long input is cut: it is near no name, and the cost must stay bounded.
fn distance(a: &str, b: &str) -> usize {
    let lower =
        |s: &str| -> Vec<char> { s.chars().take(32).map(|c| c.to_ascii_lowercase()).collect() };
    let (a, b) = (lower(a), lower(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replace = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
