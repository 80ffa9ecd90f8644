//! The full text of hand-written kernels, and what the assembler makes of it. `TESSERA_BLESS=1`
//! rewrites the expectations.

mod samples;

use crate::assembler::{blessing, folder, tools};
use std::fs;
use tessera_ptx::count::{count, ratchet};
use tessera_ptx::*;

#[test]
fn text_is_as_expected_and_valid() {
    for (name, module) in samples::all() {
        let file = folder("text").join(format!("{name}.ptx"));
        let text = module.text();
        if blessing() {
            fs::write(&file, &text).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(text, expected, "{}: TESSERA_BLESS=1 accepts what is", file.display());
        verify(&module).unwrap_or_else(|errors| panic!("{}", errors.render()));
    }
}

#[test]
fn the_assembler_takes_the_text_and_keeps_the_lines() {
    let Some(tools) = tools() else { return };
    let mut rows = Vec::new();
    for (name, module) in samples::all() {
        let said = tools.assemble(&module).unwrap();
        let loud = said.words.lines().any(|l| l.contains("error") || l.contains("warning"));
        assert!(said.cubin.is_some() && !loud, "{name}: {}", said.words);
        rows.extend(count(&tools, &module).unwrap().iter().map(|c| c.to_string()));
        if name == "scale" {
            let code = tools.disassemble_with_lines(&said.cubin.unwrap()).unwrap();
            assert!(code.contains("kernels/sample.py\", line 4"), "{code}");
        }
    }
    ratchet(&folder("text").join("ratchet.txt"), &rows, blessing())
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_hash_is_of_the_code_and_not_of_places_and_notes() {
    let (_, module) = samples::all().remove(0);
    let mut bare = module.clone();
    bare.files.clear();
    bare.kernels[0].body.retain(|s| !matches!(s, Stmt::Place { .. } | Stmt::Note(_)));
    assert_eq!(module.text_without_places(), bare.text());
    assert_eq!(module.hash(), bare.hash());
    bare.kernels[0].threads = 128;
    assert_ne!(module.hash(), bare.hash());
}

#[test]
fn the_version_grows_with_what_is_used() {
    let versions: Vec<String> =
        samples::all().iter().map(|(_, m)| m.minimum_version().to_string()).collect();
    assert_eq!(versions, ["7.4", "6.3", "7.0", "8.0"]);
}
