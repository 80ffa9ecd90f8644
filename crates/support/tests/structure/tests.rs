//! Every test is in a binary, and there are few of them: each is linked with all of the compiler.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::process::Command;

use crate::repository::{files, root, text};

/// Tests that need a process of their own, with the reason.
const ALONE: [(&str, &str); 1] =
    [("filetest/ptx_prints", "what kernels print goes to the process")];

/// The modules that a file names: `mod name;`.
fn modules(source: &str) -> BTreeSet<&str> {
    let lines = source.lines().map(|line| line.trim_start_matches("pub "));
    lines.filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect()
}

/// By crate, the files and folders with Rust sources right under `tests`, without `.rs`.
fn tests_by_crate() -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for file in files().iter().filter(|f| f.ends_with(".rs") && text(f).is_some()) {
        let Some((name, rest)) = file.strip_prefix("crates/").and_then(|f| f.split_once("/tests/"))
        else {
            continue;
        };
        if name.contains('/') {
            continue;
        }
        let first = rest.split('/').next().unwrap().trim_end_matches(".rs");
        found.entry(name.to_owned()).or_default().insert(first.to_owned());
    }
    found
}

#[test]
fn every_test_file_is_in_the_one_binary_of_its_crate() {
    let mut faults = Vec::new();
    for (name, tests) in tests_by_crate() {
        let Some(main) = text(&format!("crates/{name}/tests/main.rs")) else {
            // One folder with a `main.rs`, which cargo finds.
            let is_binary =
                |t: &String| text(&format!("crates/{name}/tests/{t}/main.rs")).is_some();
            if tests.len() != 1 || !tests.iter().all(is_binary) {
                faults.push(format!("{name}: {tests:?} are several binaries, write tests/main.rs"));
            }
            continue;
        };
        let manifest = text(&format!("crates/{name}/Cargo.toml")).unwrap();
        if !manifest.contains("\nautotests = false\n") {
            faults.push(format!("{name}: its Cargo.toml lacks `autotests = false`"));
        }
        let named = modules(&main);
        let is_alone = |t: &str| ALONE.iter().any(|(alone, _)| *alone == format!("{name}/{t}"));
        let missing = tests.iter().filter(|t| *t != "main" && !named.contains(t.as_str()));
        for test in missing.filter(|t| !is_alone(t)) {
            faults.push(format!("{name}: tests/main.rs has no `mod {test};`, so it does not run"));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Whether the documentation of a source has a block that rustdoc runs.
fn has_example(source: &str) -> bool {
    let docs = source.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))
    });
    // Fences open and close in turn; what is no Rust says so behind the one that opens.
    let fences = docs.filter_map(|line| line.trim_start().strip_prefix("```"));
    fences.step_by(2).any(|kind| !matches!(kind.trim(), "text" | "ignore" | "python" | "console"))
}

/// Each costs a run of the compiler, also where there is nothing to find: over the whole library.
#[test]
fn libraries_have_tests_and_examples_run_exactly_where_they_have_some() {
    let mut faults = Vec::new();
    let files = files();
    for manifest in files.iter().filter(|f| f.starts_with("crates/") && f.ends_with("/Cargo.toml"))
    {
        let folder = manifest.trim_end_matches("Cargo.toml");
        let sources = files.iter().filter(|f| f.starts_with(&format!("{folder}src/")));
        let sources: Vec<_> = sources.filter_map(|f| text(f)).collect();
        let Some(manifest_text) = text(manifest) else { continue };
        let table = manifest_text.split("\n[").find(|table| table.starts_with("lib]"));
        let runs = |setting: &str| !table.is_some_and(|t| t.lines().any(|line| line == setting));
        let has_tests = sources.iter().any(|source| source.contains("#[test]"));
        let has_examples = sources.iter().any(|source| has_example(source));
        for (has, setting, what) in [
            (has_tests, "test = false", "tests"),
            (has_examples, "doctest = false", "examples in its documentation"),
        ] {
            if has && !runs(setting) {
                faults.push(format!("{manifest}: the {what} in src do not run: `[lib] {setting}`"));
            } else if !has && runs(setting) {
                faults.push(format!("{manifest}: write `[lib] {setting}`: src has no {what}"));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn examples_that_rustdoc_runs_are_found() {
    assert!(has_example("//! ```\n//! assert!(true);\n//! ```\n"));
    assert!(has_example("/// ```text\n/// a\n/// ```\n    /// ```no_run\n    /// b();\n"));
    assert!(!has_example("/// ```text\n/// a\n/// ```\nlet fence = \"```\";\n"));
}

/// Unit tests in `src` would compile the library a second time: what the tests in `tests` need beyond the
/// interface is in `inner`.
#[test]
fn inner_modules_are_for_the_tests_of_their_crate() {
    let mut faults = Vec::new();
    for file in files().iter().filter(|f| f.ends_with(".rs")) {
        let Some(source) = text(file) else { continue };
        for (n, line) in source.lines().enumerate() {
            for (at, _) in line.match_indices("::inner::") {
                let before = line[..at].rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
                let Some(owner) = before.and_then(|b| b.strip_prefix("tessera_")) else { continue };
                let owner = owner.replace('_', "-");
                if !file.starts_with(&format!("crates/{owner}/tests/")) {
                    faults.push(format!("{file}:{}: `inner` of `{owner}`", n + 1));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn modules_of_a_file_are_found() {
    let source = "//! mod no;\nmod a;\n#[path = \"x\"]\npub mod b;\nmod c {}\n";
    assert_eq!(modules(source), BTreeSet::from(["a", "b"]));
}

/// The crates that a selection is built of, each with its features.
fn built(selection: &[&str]) -> BTreeSet<String> {
    let cargo = env::var_os("CARGO").expect("cargo sets it for tests");
    let form = ["tree", "--offline", "--prefix", "none", "--format", "{p} [{f}]"];
    let listing = Command::new(cargo).args(form).args(selection).current_dir(root()).output();
    let listing = listing.expect("cargo runs");
    assert!(listing.status.success(), "{}", String::from_utf8_lossy(&listing.stderr));
    let text = String::from_utf8(listing.stdout).expect("names are text");
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

#[test]
fn tests_and_extension_module_share_what_is_built() {
    let extension = built(&["--package", "tessera-python", "--edges", "normal,build"]);
    let tests = built(&["--workspace", "--edges", "normal,build,dev"]);
    let twice: Vec<_> = extension.difference(&tests).collect();
    assert!(
        twice.is_empty(),
        "tests have them with other features, so they are built twice: {twice:#?}"
    );
}
