//! Runs `stage-hoist` over every function under `tests/hoist` and compares the whole output with
//! the text after the line `=>`. `TESSERA_BLESS=1` rewrites that text.

use crate::golden;
use tessera_ir::verify;
use tessera_lower::stage::{Staging, hoist};
use tessera_numerics::Profile;

fn run(text: &str) -> String {
    let func = tessera_staged::parse(text).unwrap_or_else(|e| panic!("{e}"));
    verify(&func).unwrap_or_else(|e| panic!("input: {e}"));
    let caps = golden::caps();
    let staging = Staging { caps: &caps, classes: &[], profile: Profile::Default };
    match hoist(&func, &staging) {
        None => "nothing\n".into(),
        Some(new) => {
            verify(&new).unwrap_or_else(|e| panic!("after the pass:\n{new}\n{e}"));
            new.to_string()
        }
    }
}

#[test]
fn cases_give_their_expected_text() {
    golden::check("hoist", 3, run);
}
