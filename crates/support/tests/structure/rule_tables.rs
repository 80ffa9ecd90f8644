//! Rule tables have an answer for every op: a match over an op enum that decides what ops mean, cost
//! or become has no `_` arm, so that the compiler lists what a new op still lacks. The lint that
//! holds this stands on the file or on the function; here it is required.

use std::collections::{BTreeMap, BTreeSet};

use crate::repository::{files, text};

const LINT: &str = "deny(clippy::wildcard_enum_match_arm)]";

/// The enums with a table of rows, to which rows are added.
const ENUMS: [&str; 7] = ["TileOp", "GraphOp", "StagedOp", "ScalarFn", "Basic", "Real", "DType"];

/// A match that names at least this number of variants of one of them is a rule table.
const TABLE: usize = 12;

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
    let (mut faults, mut tables) = (Vec::new(), 0);
    for file in files().iter().filter(|f| f.starts_with("crates/") && f.contains("/src/")) {
        let Some(source) = text(file).filter(|_| file.ends_with(".rs")) else { continue };
        if file.contains("/tests/") {
            continue;
        }
        for table in matches(&source) {
            let name = table.named.iter().find(|(_, all)| all.len() >= TABLE);
            tables += usize::from(name.is_some());
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
    assert!(tables > 60, "only {tables} rule tables found");
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
