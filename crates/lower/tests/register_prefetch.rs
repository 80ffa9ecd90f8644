//! Runs `register_prefetch` over every function under `tests/register_prefetch` and compares the whole output with
//! the text after the line `=>`: `unchanged` where nothing is loaded ahead. `TESSERA_BLESS=1`
//! rewrites that text.

use crate::golden;
use tessera_ir::verify;
use tessera_lower::stage::register_prefetch;

fn run(text: &str) -> String {
    let func = tessera_staged::parse(text).unwrap_or_else(|e| panic!("{e}"));
    verify(&func).unwrap_or_else(|e| panic!("input: {e}"));
    let Some(new) = register_prefetch(&func) else { return "unchanged\n".into() };
    verify(&new).unwrap_or_else(|e| panic!("after the pass:\n{new}\n{e}"));
    new.to_string()
}

#[test]
fn cases_give_their_expected_text() {
    golden::check("register_prefetch", 5, run);
}
