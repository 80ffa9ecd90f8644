//! Dependencies point one way: a crate may use only crates listed before it.

use std::fs;

use crate::repository::root;

/// All crates, lowest first.
const ORDER: &str = "support diag trust numerics layout mesh ir graph region schedule tile staged target interp \
    autodiff cost shard lower plan conformance fake-device cpu ptx ptx-emulator runtime comm tune frontend driver entry python filetest";

/// Crates that run or compile Tile or Staged IR; the rest of the compiler does not know them.
const BACKENDS: &str = "interp cpu ptx ptx-emulator";

/// The crates that may name a backend. Tests of any crate may: they compare with the interpreter,
/// as do `conformance` and `fake-device`, which only tests use. The emulator of a backend runs its code.
const MAY_NAME_BACKENDS: &str = "conformance fake-device ptx-emulator driver python filetest";

/// A crate, and one after it on which its tests run what it makes.
const RUNS_TESTS_OF: [(&str, &str); 1] = [("ptx", "ptx-emulator")];

#[derive(Debug, PartialEq)]
struct Dependency {
    /// The crate's name without `tessera-`.
    name: String,
    only_for_tests: bool,
}

#[test]
fn crates_use_only_crates_before_them() {
    let mut faults = Vec::new();
    for folder in fs::read_dir(root().join("crates")).unwrap().map(Result::unwrap) {
        let Ok(manifest) = fs::read_to_string(folder.path().join("Cargo.toml")) else {
            continue;
        };
        let name = folder.file_name().into_string().unwrap();
        if !manifest.contains(&format!("name = \"tessera-{name}\"")) {
            faults.push(format!("crates/{name}: its package must be called tessera-{name}"));
        }
        for dependency in dependencies(&manifest) {
            faults.extend(fault(&name, &dependency));
        }
        if place(&name).is_none() {
            faults.push(unlisted(&name));
        }
    }
    let listed = [ORDER, BACKENDS, MAY_NAME_BACKENDS].into_iter().flat_map(str::split_whitespace);
    for name in listed.filter(|name| !root().join("crates").join(name).is_dir()) {
        faults.push(format!("{name} is listed in {}, but there is no crates/{name}", file!()));
    }
    faults.sort();
    assert!(faults.is_empty(), "{faults:#?}");
}

fn place(name: &str) -> Option<usize> {
    ORDER.split_whitespace().position(|listed| listed == name)
}

fn is_in(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|listed| listed == name)
}

fn unlisted(name: &str) -> String {
    format!("crates/{name} is not in ORDER in {}: list it after all it uses", file!())
}

/// What is wrong with `name` using `dependency`.
fn fault(name: &str, dependency: &Dependency) -> Option<String> {
    let used = dependency.name.as_str();
    let runs_its_tests = dependency.only_for_tests && RUNS_TESTS_OF.contains(&(name, used));
    if place(used)? >= place(name)? && !runs_its_tests {
        return Some(format!("crates/{name} may not use {used}, which comes after it"));
    }
    let hidden = is_in(BACKENDS, used) && !is_in(MAY_NAME_BACKENDS, name);
    (hidden && !dependency.only_for_tests).then(|| {
        format!("crates/{name} may not use {used}: only {MAY_NAME_BACKENDS} name backends")
    })
}

/// The crates of this workspace that a manifest names in its dependency tables.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut table = "";
    for line in manifest.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        let header = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        table = header.unwrap_or(table);
        if !table.contains("dependencies") {
            continue;
        }
        // In a header, a key, or the value of `package`.
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_');
        for name in words.filter_map(|word| word.strip_prefix("tessera-")) {
            let only_for_tests = table.contains("dev-dependencies");
            found.push(Dependency { name: name.to_owned(), only_for_tests });
        }
    }
    found
}

#[test]
fn dependencies_are_read_from_every_kind_of_table() {
    let manifest = r#"
        [package]
        name = "tessera-lower"
        [dependencies]
        tessera-ir.workspace = true # and not tessera-cpu
        half = "2"
        values = { package = "tessera-numerics", path = "../numerics" }
        [target.'cfg(unix)'.dependencies]
        tessera-tile = { path = "../tile" }
        [dependencies.tessera-target]
        path = "../target"
        [dev-dependencies]
        tessera-interp.workspace = true
        [features]
        tessera-diag = []
    "#;
    let found = dependencies(manifest);
    let names: Vec<_> = found.iter().map(|dependency| dependency.name.as_str()).collect();
    assert_eq!(names, ["ir", "numerics", "tile", "target", "interp"]);
    assert!(found.iter().all(|found| found.only_for_tests == (found.name == "interp")));
}

#[test]
fn a_later_crate_or_a_backend_is_a_fault() {
    let uses = |name: &str, used: &str, only_for_tests| {
        fault(name, &Dependency { name: used.to_owned(), only_for_tests })
    };
    assert_eq!(uses("lower", "interp", true), None);
    assert!(uses("lower", "interp", false).unwrap().contains("name backends"));
    assert!(uses("ir", "tile", false).unwrap().contains("comes after it"));
    assert!(uses("ir", "tile", true).unwrap().contains("comes after it"));
    assert_eq!(uses("driver", "interp", false), None);
}
