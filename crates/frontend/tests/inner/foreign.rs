//! Names of other libraries.

use tessera_frontend::inner::{ELSEWHERE, Handler, KEYWORDS, METHODS, NAMES, PYTHON, find};
use tessera_frontend::{api, closest, instead_of};

fn fixes() -> impl Iterator<Item = (String, &'static str)> {
    let names = NAMES
        .iter()
        .chain(ELSEWHERE)
        .chain(METHODS)
        .chain(PYTHON)
        .map(|(n, w)| (n.to_string(), *w));
    names.chain(KEYWORDS.iter().map(|(of, n, w)| (format!("{of} {n}"), *w)))
}

#[test]
fn every_function_that_a_fix_names_exists() {
    for (names, write) in fixes() {
        for piece in write.split("ts.").skip(1) {
            let path: String =
                piece.chars().take_while(|c| c.is_alphanumeric() || "_.".contains(*c)).collect();
            let path = path.trim_end_matches('.');
            if let Some(function) = path.strip_prefix("tile.") {
                let row = find(&format!("tile.{function}"));
                let is_there = row.is_some_and(|r| !matches!(r.handler, Handler::Reserved(_)));
                assert!(is_there || function == "group", "`{names}`: `ts.{path}` is no function");
            }
        }
    }
}

#[test]
fn what_the_language_has_is_not_foreign() {
    for (names, _) in NAMES {
        for name in names.split(' ') {
            assert!(find(&format!("tile.{name}")).is_none(), "`{name}` is a function of ts.tile");
        }
    }
    for (names, _) in ELSEWHERE {
        for name in names.split(' ') {
            assert!(find(&format!("tile.{name}")).is_some(), "`{name}` belongs to NAMES");
        }
    }
    for (of, names, _) in KEYWORDS.iter().filter(|(of, ..)| of.contains('.')) {
        for row in api().iter().filter(|r| r.name.starts_with(of)) {
            for name in names.split(' ') {
                let has = row.parameters().iter().any(|p| p.name == name);
                assert!(!has, "`{}` has a parameter `{name}`", row.name);
            }
        }
    }
}

#[test]
fn no_name_stands_twice() {
    let mut seen = std::collections::BTreeSet::new();
    for (names, _) in NAMES {
        for name in names.split(' ') {
            assert!(seen.insert(name), "`{name}` stands twice");
        }
    }
}

#[test]
fn paths_are_answered_by_their_last_telling_part() {
    assert!(instead_of("np.dot").is_some_and(|w| w.contains("ts.tile.mma")));
    assert!(instead_of("cuda.threadIdx.x").is_some_and(|w| w.contains("local_id")));
    assert!(instead_of("tl.math.exp").is_some_and(|w| w == "write `ts.tile.exp(x)`"));
    assert!(instead_of("np.float32").is_some_and(|w| w == "write `ts.float32`"));
    assert_eq!(instead_of("np.quux"), None);
}

#[test]
fn typos_are_near_and_other_words_are_not() {
    assert_eq!(closest("vlaue", ["value", "v"]), Some("value"));
    assert_eq!(closest("expp", ["exp", "exp2", "expm1"]), Some("exp"));
    assert_eq!(closest("axsi", ["x", "axis"]), Some("axis"));
    assert_eq!(closest("j", ["x", "i"]), None);
    assert_eq!(closest("m", ["M", "x"]), Some("M"));
    assert_eq!(closest("program", ["transpose"]), None);
}
