//! Runs every file under `/filetests`.

use std::path::{Path, PathBuf};
use tessera_cpu::{Cpu, Isa};
use tessera_filetest::{Tools, files_under, run_all};
use tessera_interp::Interp;
use tessera_ir::{Opcode, PassOptions};
use tessera_lower::{pass_by_name, tile_pipeline};
use tessera_ptx::PtxCaps;
use tessera_ptx_emulator::Emulated;
use tessera_target::Backend;
use tessera_tile::TileOp;

/// The passes of the tile level, and every backend that runs here.
fn tools() -> Tools {
    let mut backends: Vec<Box<dyn Backend>> = vec![Box::new(Interp)];
    for isa in Isa::ALL.into_iter().filter(|&isa| isa <= Isa::host()) {
        for threads in [1, 2] {
            backends.push(Box::new(Cpu { isa, threads }));
        }
    }
    for sm in [75, 90] {
        let caps = PtxCaps::of(sm, false).expect("a known target");
        backends.push(Box::new(Emulated::new(caps.clone())));
    }
    let pipeline = tile_pipeline(PassOptions { verify_each: true, ..PassOptions::default() });
    Tools {
        pass: Box::new(pass_by_name),
        pipeline: Box::new(move |func, context| pipeline.run(func, context).map(drop)),
        backends,
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests")
}

#[test]
fn every_tile_op_has_a_roundtrip_file() {
    let mut text = String::new();
    for path in files_under(&root()).unwrap().iter().filter(|p| p.ends_with("roundtrip.tir")) {
        text.push_str(&std::fs::read_to_string(path).unwrap());
    }
    // `elementwise.rs` makes the texts of elementwise ops.
    for op in TileOp::all().into_iter().filter(|op| !matches!(op, TileOp::Ew(_))) {
        let name = format!("tile.{}", op.mnemonic());
        let shown = text
            .match_indices(&name)
            .any(|(at, _)| text[at + name.len()..].starts_with([' ', '\n']));
        assert!(shown, "{name} is in no roundtrip.tir");
    }
}

#[test]
fn filetests_pass() {
    let root = root();
    let bless = std::env::var_os("TESSERA_BLESS").is_some_and(|v| v == "1");
    let summary = run_all(&root, &tools(), bless).unwrap();
    for (name, why) in &summary.failed {
        println!("--- {name}\n{}", why.trim_end());
    }
    if summary.blessed > 0 {
        println!("{} blessed", summary.blessed);
    }
    println!("{} passed, {} failed", summary.passed, summary.failed.len());
    assert!(summary.failed.is_empty(), "{} file tests failed", summary.failed.len());
    assert!(summary.passed + summary.blessed > 0, "no file tests under {}", root.display());
}
