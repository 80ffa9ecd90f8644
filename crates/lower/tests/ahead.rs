//! Runs `stage-ahead` over every function under `tests/ahead` and compares the whole output with
//! the text after the line `=>`: `unchanged` where nothing is loaded ahead. `TESSERA_BLESS=1`
//! rewrites that text.

use std::fmt::Write;
use std::path::Path;
use tessera_ir::verify;
use tessera_lower::stage::ahead;

const SPLIT: &str = "\n=>\n";

fn run(text: &str) -> String {
    let func = tessera_staged::parse(text).unwrap_or_else(|e| panic!("{e}"));
    verify(&func).unwrap_or_else(|e| panic!("input: {e}"));
    let Some(new) = ahead(&func) else { return "unchanged\n".into() };
    verify(&new).unwrap_or_else(|e| panic!("after the pass:\n{new}\n{e}"));
    new.to_string()
}

#[test]
fn cases_give_their_expected_text() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ahead");
    let bless = std::env::var_os("TESSERA_BLESS").is_some();
    let mut paths: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let mut wrong = String::new();
    for path in &paths {
        let text = std::fs::read_to_string(path).unwrap();
        let (input, expected) = text.split_once(SPLIT).unwrap_or((text.trim_end(), ""));
        let got = run(input);
        if bless {
            std::fs::write(path, format!("{input}{SPLIT}{got}")).unwrap();
        } else if got != expected {
            let _ = writeln!(wrong, "--- {}\nexpected:\n{expected}\ngot:\n{got}", path.display());
        }
    }
    assert!(paths.len() >= 5, "only {} cases found", paths.len());
    assert!(wrong.is_empty(), "{wrong}");
}
