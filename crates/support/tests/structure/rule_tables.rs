//! Rule tables have an answer for every op: a match over an op enum that decides what ops mean, cost
//! or become has no `_` arm, so that the compiler lists what a new op still lacks. The lint that
//! holds this stands on the file or on the function; here it is required.

use std::collections::{BTreeMap, BTreeSet};

use crate::repository::{files, text};

const LINT: &str = "deny(clippy::wildcard_enum_match_arm)]";

/// The enums with a table of rows, to which rows are added.
const ENUMS: [&str; 5] = ["TileOp", "GraphOp", "StagedOp", "ScalarFn", "DType"];

/// A match that names as many variants of one of them is a rule table.
const TABLE: usize = 12;

/// The files with rule tables, by crate, below `src`: the lint stands in each of them.
const TABLES: [(&str, &str); 12] = [
    (
        "autodiff",
        "activity.rs forward.rs joint.rs kernel/class.rs kernel/reverse.rs kernel/rules.rs \
        kernel/tangent.rs kernel/value_and_grad.rs rules/mod.rs rules/shape.rs split.rs \
        vmap/rules.rs",
    ),
    ("cost", "ops.rs scalar.rs"),
    (
        "cpu",
        "atomic.rs group/group_plan.rs group/mod.rs group/nest.rs lane/group.rs \
        lane/ops.rs lane/uniform.rs",
    ),
    ("driver", "pointwise.rs"),
    ("frontend", "api/pure.rs elab/arith.rs elab/flow.rs"),
    ("graph", "rule.rs"),
    (
        "interp",
        "check/arith.rs graph/eval.rs graph/graph_control.rs graph/reduce.rs prepare.rs \
        staged/ops.rs",
    ),
    (
        "lower",
        "graph/class.rs graph/expand.rs graph/flatten.rs graph/index.rs \
        graph/loop_kernel.rs graph/loop_kernel/ops.rs graph/nodes.rs graph/nothing.rs \
        graph/scatter.rs if_convert.rs interval.rs lazy_rescale/bounded.rs \
        lazy_rescale/degree.rs ragged/ragged_flow.rs sign.rs \
        stage/async_mma/dynamic_scheduler.rs stage/async_mma/m_split.rs \
        stage/async_mma/warp_specialize.rs stage/layouts.rs stage/open.rs \
        stage/persist.rs",
    ),
    (
        "ptx",
        "atomic.rs interp/async_copy.rs lane/mod.rs lane/survey.rs lane/uniform.rs \
        scalar/float.rs select/mma.rs select/mod.rs select/pipeline.rs select/tma.rs",
    ),
    ("python", "graph/checkpoint.rs"),
    ("staged", "family.rs layouts.rs verify/trace/walk.rs"),
    ("tile", "analysis.rs"),
];

/// Folders and files without the lint, each with the reason.
const EXCEPT: [(&str, &str); 5] = [
    ("crates/numerics/", NEXT),
    ("crates/cpu/src/scalar/", NEXT),
    ("crates/ptx/src/scalar/", NEXT),
    ("crates/autodiff/src/scalar.rs", NEXT),
    ("crates/autodiff/src/kernel/study.rs", NEXT),
];

const NEXT: &str = "its tables are complete; the lint comes with the next change of its functions";

/// A match: the number of its first line from 0, and the variants that its arms name, by enum.
struct Match {
    line: usize,
    named: BTreeMap<&'static str, BTreeSet<String>>,
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a line begins a function.
fn is_function(line: &str) -> bool {
    let line = line.trim_start().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
    let line = line.trim_start_matches("pub(super) ").trim_start_matches("const ");
    line.starts_with("fn ")
}

/// The variants that a pattern names: `Enum::Name`, or `Name` where all are imported.
fn variants(pattern: &str, name: &str, imported: bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let prefix = format!("{name}::");
    let mut before = "";
    for word in pattern.split(|c: char| !is_name(c) && c != ':').filter(|w| !w.is_empty()) {
        let bare = !word.contains(':') && word.starts_with(char::is_uppercase) && before != "::";
        if let Some(variant) = word.strip_prefix(&prefix) {
            found.insert(variant.to_owned());
        } else if imported && bare {
            found.insert(word.to_owned());
        }
        before = word;
    }
    found
}

/// The matches of a formatted source: arms stand four columns right of the line of `match`.
fn matches(source: &str) -> Vec<Match> {
    let lines: Vec<&str> = source.lines().collect();
    let is_match = |l: &str| l.ends_with(" {") && l.split(' ').any(|w| w.ends_with("match"));
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_match(line)) {
        let left = indent(line);
        let end = lines[at + 1..].iter().position(|l| !l.trim().is_empty() && indent(l) <= left);
        let body = &lines[at + 1..at + 1 + end.unwrap_or(0)];
        let arms = body.iter().filter(|l| indent(l) == left + 4 && !l.trim().starts_with("//"));
        let patterns: Vec<&str> =
            arms.map(|l| l.split(" =>").next().unwrap().split(" if ").next().unwrap()).collect();
        let mut named = BTreeMap::new();
        let first = lines[..at].iter().rposition(|l| is_function(l)).unwrap_or(0);
        for name in ENUMS {
            let import = format!("use {name}::*;");
            let imported = lines[first..at].iter().any(|l| l.trim() == import);
            let all = patterns.iter().flat_map(|p| variants(p, name, imported));
            named.insert(name, all.collect::<BTreeSet<_>>());
        }
        found.push(Match { line: at, named });
    }
    found
}

/// Whether the lint stands on the file, or on the function around a line.
fn is_linted(source: &str, line: usize) -> bool {
    let lines: Vec<&str> = source.lines().collect();
    if lines.iter().any(|l| l.trim_start().starts_with("#![") && l.ends_with(LINT)) {
        return true;
    }
    let Some(first) = lines[..=line].iter().rposition(|l| is_function(l)) else { return false };
    let above = lines[..first].iter().rev().take_while(|l| l.trim_start().starts_with("#["));
    above.into_iter().any(|l| l.ends_with(LINT))
}

#[test]
fn rule_tables_deny_wildcards() {
    let mut faults = Vec::new();
    for file in files().iter().filter(|f| f.starts_with("crates/") && f.contains("/src/")) {
        let Some(source) = text(file).filter(|_| file.ends_with(".rs")) else { continue };
        if file.contains("/tests/") || EXCEPT.iter().any(|(name, _)| file.starts_with(name)) {
            continue;
        }
        for table in matches(&source) {
            let name = table.named.iter().find(|(_, all)| all.len() >= TABLE);
            let Some((name, all)) = name.filter(|_| !is_linted(&source, table.line)) else {
                continue;
            };
            faults.push(format!(
                "{file}:{}: a match that names {} of {name} is a rule table: write \
                 #[{LINT} on its function, and name the variants of `_`",
                table.line + 1,
                all.len(),
            ));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_listed_files_have_the_lint() {
    let listed = TABLES.iter().flat_map(|(name, all)| {
        all.split_whitespace().map(move |file| format!("crates/{name}/src/{file}"))
    });
    let listed: BTreeSet<String> = listed.collect();
    let is_linted = |file: &&String| text(file).is_some_and(|source| source.contains(LINT));
    let sources = files().into_iter().filter(|f| f.contains("/src/") && f.ends_with(".rs"));
    let linted: BTreeSet<String> = sources.filter(|f| is_linted(&f)).collect();
    let without: Vec<_> = listed.difference(&linted).collect();
    assert!(without.is_empty(), "rule tables without #[{LINT}: {without:#?}");
    let unlisted: Vec<_> = linted.difference(&listed).collect();
    assert!(unlisted.is_empty(), "list these in TABLES of {}: {unlisted:#?}", file!());
}

#[test]
fn tables_are_found_by_the_variants_they_name() {
    let source = "fn f(op: TileOp) -> u8 {\n    match op {\n        TileOp::A | TileOp::B => 1,\n        TileOp::C if x => {\n            2\n        }\n        _ => 3,\n    }\n}\n";
    let found = matches(source);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].named["TileOp"].len(), 3);
    assert!(!is_linted(source, found[0].line));
    assert!(is_linted(&format!("/// F.\n#[{LINT}\n{source}"), found[0].line + 2));
    assert!(is_linted(&format!("//! F.\n\n#![{LINT}\n\n{source}"), found[0].line + 4));
    let bare = "fn f(f: ScalarFn) -> u8 {\n    use ScalarFn::*;\n    match f {\n        Add | Sub\n        | Mul => 1,\n        Other::Thing | _ => 3,\n    }\n}\n";
    assert_eq!(matches(bare)[0].named["ScalarFn"].len(), 3);
}
