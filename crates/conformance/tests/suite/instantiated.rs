//! Each case is a test.

/// The cases of each module, and the macro that names them.
const SOURCES: [&str; 7] = [
    include_str!("../../src/lane/axes.rs"),
    include_str!("../../src/lane/control.rs"),
    include_str!("../../src/lane/groups.rs"),
    include_str!("../../src/lane/memory.rs"),
    include_str!("../../src/lane/print.rs"),
    include_str!("../../src/lane/random.rs"),
    include_str!("../../src/scalar/functions.rs"),
];

#[test]
fn every_case_is_instantiated() {
    let list = include_str!("../../src/lib.rs");
    let names = SOURCES.iter().flat_map(|source| {
        let heads = source.lines().filter(|line| line.ends_with("(case: &Case) {"));
        heads.filter_map(|line| line.strip_prefix("pub fn ")?.split('(').next())
    });
    let missing: Vec<_> =
        names.filter(|name| !list.lines().any(|line| line.trim() == *name)).collect();
    assert!(missing.is_empty(), "not in `instantiate!`: {missing:?}");
}
