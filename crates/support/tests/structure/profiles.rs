//! What is tested is what ships: no code depends on the profile that it is compiled with, and the profiles check the same.

use crate::repository;

#[test]
fn no_code_is_in_one_profile_alone() {
    let sources = repository::files().into_iter().filter(|f| f.ends_with(".rs"));
    let mut faults = Vec::new();
    for file in sources.filter(|f| !f.starts_with("crates/support/tests/structure/")) {
        let Some(text) = repository::text(&file) else { continue };
        for (number, line) in text.lines().enumerate() {
            if depends_on_the_profile(line) {
                faults.push(format!("{file}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "write `assert!`, or request it at run time:\n{}",
        faults.join("\n")
    );
}

fn depends_on_the_profile(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    ["debug_assert", "debug_assertions", "overflow_checks"].iter().any(|word| code.contains(word))
}

#[test]
fn integers_that_overflow_are_errors_in_every_profile() {
    let manifest = repository::text("Cargo.toml").expect("the workspace has a manifest");
    for profile in ["dev", "release"] {
        let table = manifest.split(&format!("[profile.{profile}]\n")).nth(1).unwrap_or_default();
        let table = table.split("\n[").next().unwrap_or_default();
        assert!(table.contains("overflow-checks = true"), "profile {profile}: {table}");
    }
    let dev = manifest.split("[profile.dev]\n").nth(1).and_then(|t| t.split("\n[").next());
    assert!(dev.is_some_and(|t| t.contains("debug-assertions = false")), "{dev:?}");
}

#[test]
fn code_that_depends_on_the_profile_is_recognised() {
    assert!(depends_on_the_profile("    debug_assert_eq!(a, b);"));
    assert!(depends_on_the_profile("if cfg!(debug_assertions) {"));
    assert!(!depends_on_the_profile("// a debug_assert would be left out"));
    assert!(!depends_on_the_profile("assert!(a)"));
}
