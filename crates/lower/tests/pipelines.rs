//! Runs `stage-pipelines` over every function under `tests/pipelines` and compares the whole output
//! with the text after the line `=>`. `TESSERA_BLESS=1` rewrites that text. The first line gives
//! the array layouts: `; align: 16` (bytes), with `; cols: a b` for arrays with contiguous columns,
//! and `; without async` for a target that has no asynchronous copies.

use crate::golden;
use std::fmt::Write;
use tessera_diag::Diagnostics;
use tessera_ir::{Type, verify};
use tessera_lower::stage::{GpuCaps, MOST_STAGES, Staging, pipelines};
use tessera_numerics::Profile;
use tessera_staged::StagedFunc;
use tessera_target::arrays::ArrayClass;

fn header<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|l| l.strip_prefix("; ")?.strip_prefix(name))
}

fn classes(func: &StagedFunc, text: &str) -> Vec<ArrayClass> {
    let align = header(text, "align: ").map_or(16, |n| n.trim().parse().unwrap());
    let cols: Vec<&str> = header(text, "cols: ").map_or(Vec::new(), |l| l.split(' ').collect());
    func.params()
        .iter()
        .map(|&v| match func.ty(v) {
            Type::View { dims, .. } => {
                let first = func.name_of(v).is_some_and(|n| cols.contains(&n));
                let axis = if first { 0 } else { dims.len() - 1 };
                ArrayClass { contiguous: 1 << axis, align, tma_compatible: align == 16 }
            }
            _ => ArrayClass::default(),
        })
        .collect()
}

fn run(text: &str) -> String {
    let func = tessera_staged::parse(text).unwrap_or_else(|e| panic!("{e}"));
    verify(&func).unwrap_or_else(|e| panic!("input: {e}"));
    let caps = GpuCaps {
        shared_per_block: 99 * 1024,
        async_copy: header(text, "without async").is_none(),
        multiprocessors: 108,
        l2_bytes: 40 << 20,
        ..golden::caps()
    };
    let classes = classes(&func, text);
    let staging = Staging { caps: &caps, classes: &classes, profile: Profile::Default };
    let mut notes = Diagnostics::new();
    let new = pipelines(&func, &staging, MOST_STAGES, &mut notes);
    verify(&new).unwrap_or_else(|e| panic!("after the pass:\n{new}\n{e}"));
    let mut out = new.to_string();
    for note in notes.iter() {
        let _ = writeln!(out, "{} at {}: {}", note.code, note.loc.line(), note.message);
    }
    out
}

#[test]
fn cases_give_their_expected_text() {
    golden::check("pipelines", 8, run);
}
