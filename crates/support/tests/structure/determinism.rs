//! The same program compiles to the same bytes: nothing that compiles iterates in hash order.

use crate::repository::{files, text};

/// The crates whose sources may not name the standard hash map and set.
const ORDERED: &str = "ir graph schedule tile staged interp autodiff cost lower plan cpu ptx ptx-emulator cudatile amdgpu spirv tune frontend";

#[test]
fn compiling_crates_use_no_hash_ordered_collection() {
    let mut uses = Vec::new();
    for file in files() {
        let Some((name, path)) = file.strip_prefix("crates/").and_then(|f| f.split_once('/'))
        else {
            continue;
        };
        let ordered = ORDERED.split(' ').any(|ordered| ordered == name);
        if !ordered || !path.starts_with("src/") || !path.ends_with(".rs") {
            continue;
        }
        let text = text(&file).unwrap_or_default();
        for (number, line) in (1..).zip(text.lines()) {
            if names_a_hash_collection(line) {
                uses.push(format!("{file}:{number}: {}", line.trim()));
            }
        }
    }
    assert!(
        uses.is_empty(),
        "use the insertion-ordered collections of tessera-support instead: {uses:#?}"
    );
}

/// Whether code, not a comment, has `HashMap` or `HashSet` as a word.
fn names_a_hash_collection(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|word| word == "HashMap" || word == "HashSet")
}

#[test]
fn hash_collections_are_recognised_in_code_only() {
    assert!(names_a_hash_collection("use std::collections::{BTreeMap, HashMap};"));
    assert!(names_a_hash_collection("    seen: HashSet<ValueId>, // in order"));
    assert!(!names_a_hash_collection("//! Unlike a `HashMap`, it keeps its order."));
    assert!(!names_a_hash_collection("use tessera_support::OrderedHashMap;"));
}
