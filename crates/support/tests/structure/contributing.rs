//! `CONTRIBUTING.md` names what exists: paths, scripts, crates and targets of the Makefile.

use std::collections::BTreeSet;

use crate::repository::{files, root, text};

const PAGE: &str = "CONTRIBUTING.md";

/// What a checkout gets when it is built.
const BUILT: [&str; 2] = [".venv/", "build/"];

#[test]
fn contributing_names_what_there_is() {
    let page = text(PAGE).expect("the page is there");
    let makefile = text("Makefile").expect("the Makefile is there");
    let files = files();
    let mut faults = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        for path in paths(line) {
            if !exists(&path, &files) {
                faults.push(format!("{PAGE}:{number}: {path} does not exist"));
            }
        }
        for package in line.split("-p tessera-").skip(1) {
            let name = package.split_whitespace().next().unwrap_or_default();
            if !exists(&format!("crates/{name}/Cargo.toml"), &files) {
                faults.push(format!("{PAGE}:{number}: the crate {name} does not exist"));
            }
        }
        for target in targets(line) {
            if !makefile.lines().any(|rule| rule.starts_with(&format!("{target}:"))) {
                faults.push(format!("{PAGE}:{number}: `make {target}` does not exist"));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn structure_tests_are_all_in_the_page() {
    let page = text(PAGE).expect("the page is there");
    let folder = "crates/support/tests/structure/";
    let tests = files().into_iter().filter_map(|f| f.strip_prefix(folder).map(str::to_owned));
    let rows = tests.filter(|f| f != "main.rs" && f != "repository.rs");
    let missing: Vec<_> = rows.filter(|f| !page.contains(&format!("| `{f}` |"))).collect();
    assert!(missing.is_empty(), "{PAGE} has no row for {missing:?}");
}

fn exists(path: &str, files: &[String]) -> bool {
    // A file name alone is that of a file in a table whose heading names the folder.
    let last = |file: &String| file.rsplit('/').next() == Some(path);
    BUILT.iter().any(|built| path.starts_with(built))
        || root().join(path).exists()
        || !path.contains('/') && files.iter().any(last)
}

/// The words of a line that are paths: links, code in backticks, and commands.
fn paths(line: &str) -> BTreeSet<String> {
    let words = line.split(|c: char| c.is_whitespace() || "`()[]|,;\"'=".contains(c));
    let words = words.map(|word| word.trim_end_matches(['.', ':']).split("::").next().unwrap());
    words.filter(|word| is_path(word)).map(str::to_owned).collect()
}

fn is_path(word: &str) -> bool {
    const FOLDERS: &str = ".github .venv bench build conformance crates docs examples filetests gpurun ledger python scripts";
    const ENDINGS: &str = "rs py pyi md sh toml txt tir json jsonl yml yaml";
    if word.contains("://") || word.contains(['*', '<', '$', '@']) {
        return false;
    }
    if let Some((first, _)) = word.split_once('/') {
        return FOLDERS.split(' ').any(|folder| folder == first);
    }
    word.rsplit_once('.').is_some_and(|(stem, ending)| {
        !stem.is_empty() && ENDINGS.split(' ').any(|known| known == ending)
    })
}

/// The targets of `make` in a line: `make fuzz MINUTES=10`, in code or in a command.
fn targets(line: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, call) in line.match_indices("make ") {
        let begins = at == 0 || line[..at].ends_with('`');
        let word: String = line[at + call.len()..]
            .chars()
            .take_while(|c| c.is_ascii_lowercase() || *c == '-')
            .collect();
        if begins && !word.is_empty() {
            found.insert(word);
        }
    }
    found
}

#[test]
fn paths_and_targets_are_recognised() {
    let found = paths(
        "see [`docs/a.md`](docs/a.md), `crates/b/src/` and c.rs: not 1.95, x/y or `ts.op.softmax`",
    );
    let wanted = ["c.rs", "crates/b/src/", "docs/a.md"].map(str::to_owned);
    assert_eq!(found, BTreeSet::from(wanted));
    assert!(paths("https://example.org/a.md and filetests/**/*.tir").is_empty());
    let found = targets("`make bless` and `make fuzz MINUTES=1`, to make room");
    assert_eq!(found, BTreeSet::from(["bless", "fuzz"].map(str::to_owned)));
    assert_eq!(targets("make demo   # set up"), BTreeSet::from(["demo".to_owned()]));
}
