//! Files stay short enough to read in one sitting.

use std::io::{Write, stderr};

use crate::repository::{files, text};

const HARD_CAP: usize = 1000;
const SOFT_CAP: usize = 600;

/// Files that may be longer than the hard cap, each with the reason: op tables, generated code and
/// frozen test corpora only.
const MAY_BE_LONG: [(&str, &str); 0] = [];

#[test]
fn source_files_stay_under_the_hard_cap() {
    let mut too_long = Vec::new();
    for file in files().into_iter().filter(|file| file.ends_with(".rs") || file.ends_with(".py")) {
        let lines = text(&file).map_or(0, |text| text.lines().count());
        if lines > HARD_CAP && !MAY_BE_LONG.iter().any(|(long, _)| *long == file) {
            too_long.push(format!("{file} has {lines} lines"));
        } else if lines > SOFT_CAP {
            // Written past the test runner, which keeps the output of tests that pass to itself.
            writeln!(stderr(), "note: {file} has {lines} lines, aim for {SOFT_CAP} at most")
                .unwrap();
        }
    }
    assert!(
        too_long.is_empty(),
        "split these files, {HARD_CAP} lines is the most one may have: {too_long:#?}"
    );
}
