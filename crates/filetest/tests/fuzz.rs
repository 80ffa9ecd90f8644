//! Damaged text never panics and never hangs the parser, the verifier or the printer.

use crate::budget::Budget;
use crate::random::{Random, damaged};
use std::path::Path;
use tessera_filetest::files_under;
use tessera_graph::Graph;
use tessera_ir::{Level, parse_module, render_in_place, verify};
use tessera_schedule::Schedule;
use tessera_tile::Tile;

const PIECES: [&str; 24] = [
    "%",
    "@",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "\"",
    ";",
    ":",
    "=",
    ",",
    "\n",
    "-",
    "9999999999999999999",
    "tile.",
    "do",
    "func @f(",
    "é",
    "\\u{",
    "x",
    "loc(",
    "?",
];

/// Whatever happens is fine, as long as it ends; what still parses must read back as it prints.
fn survive<L: Level>(text: &str) {
    let Ok(module) = parse_module::<L>(text, "fuzz.tir") else { return };
    for func in &module.funcs {
        if let Err(errors) = verify(func) {
            let _ = (errors.render(), render_in_place(func));
        }
        let _ = func.hash();
    }
    let printed = module.to_string();
    let again = parse_module::<L>(&printed, "fuzz.tir")
        .unwrap_or_else(|e| panic!("{text}\n->\n{printed}\n{e}"));
    assert_eq!(again.to_string(), printed, "from\n{text}");
    assert_eq!(again.hash(), module.hash(), "from\n{text}");
}

/// Short texts, so that a few thousand cases take a second: one function of a file at a time.
fn corpus() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests");
    let mut out = Vec::new();
    for path in files_under(&root).unwrap() {
        let text = std::fs::read_to_string(path).unwrap();
        let parts: Vec<_> = text.split("\nfunc ").collect();
        out.push(parts[0].to_string());
        out.extend(parts[1..].iter().map(|p| format!("func {p}\n")));
    }
    out
}

#[test]
fn damaged_text_never_panics() {
    let (corpus, budget) = (corpus(), Budget::new(6));
    let mut r = Random(budget.seed | 1);
    let mut cases = 0u64;
    while budget.left() {
        cases += 1;
        let text = damaged(&corpus[r.below(corpus.len())], &PIECES, &mut r);
        survive::<Tile>(&text);
        survive::<Graph>(&text);
        survive::<Schedule>(&text);
    }
    println!("{cases} texts");
}

#[test]
fn deep_nesting_is_refused_not_followed() {
    let many = 100_000;
    let ifs =
        format!("func @f(%c: bool) {{kind = group}} {{\n{}", "tile.if %c do {\n".repeat(many));
    let lists = format!("func @f() {{kind = {}", "[".repeat(many));
    let dicts = format!("func @f() {}", "{a = ".repeat(many));
    let exprs = format!("func @f(%x: view<[{}", "(".repeat(many));
    for text in [ifs, lists, dicts, exprs] {
        let errors = parse_module::<Tile>(&text, "deep.tir").unwrap_err();
        assert!(
            errors.render().contains("nested"),
            "{}",
            &errors.render()[..200.min(errors.render().len())]
        );
    }
}

#[test]
fn the_deepest_nesting_that_parses_is_followed_by_everything() {
    let deep = 190;
    let mut text = String::from("func @f(%c: bool) {kind = group} {\n");
    text.push_str(&"tile.if %c do {\n".repeat(deep));
    text.push_str("tile.yield\n");
    text.push_str(&"} do {\ntile.yield\n}\ntile.yield\n".repeat(deep));
    // The outermost block is the function's own.
    let text = format!("{}tile.return\n}}\n", text.strip_suffix("tile.yield\n").unwrap());
    survive::<Tile>(&text);
    assert!(verify(&parse_module::<Tile>(&text, "deep.tir").unwrap().funcs[0]).is_ok());
}

#[test]
fn strings_end_with_their_line() {
    let text = "func @f() {kind = group, config = {a = \"x}} {\n  tile.return\n}\n";
    let errors = parse_module::<Tile>(text, "s.tir").unwrap_err();
    assert!(errors.render().contains("at the end of the string"), "{errors}");
}
