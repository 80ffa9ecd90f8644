//! What Python calls is guarded: a panic in it would be an exception that programs do not catch.

use crate::repository::{files, text};

const GUARD: &str = "#[tessera_entry::entry]";

#[test]
fn every_function_that_python_calls_stands_under_the_guard() {
    let mut bare = Vec::new();
    for file in files().iter().filter(|f| f.starts_with("crates/python/src/")) {
        let text = text(file).unwrap_or_default();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate() {
            let is_entry = line.starts_with("#[pyfunction") || line.starts_with("#[pymethods");
            if is_entry && lines.get(number.wrapping_sub(1)) != Some(&GUARD) {
                bare.push(format!("{file}:{}: put {GUARD} above it", number + 1));
            }
        }
    }
    assert!(bare.is_empty(), "{bare:#?}");
}
