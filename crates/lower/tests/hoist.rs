//! Runs `stage-hoist` over every function under `tests/hoist` and compares the whole output with
//! the text after the line `=>`. `TESSERA_BLESS=1` rewrites that text.

use std::fmt::Write;
use std::path::Path;
use tessera_ir::verify;
use tessera_lower::stage::{StageCaps, Staging, hoist};
use tessera_numerics::Profile;

const SPLIT: &str = "\n=>\n";

fn run(text: &str) -> String {
    let func = tessera_staged::parse(text).unwrap_or_else(|e| panic!("{e}"));
    verify(&func).unwrap_or_else(|e| panic!("input: {e}"));
    let caps = StageCaps {
        max_threads: 1024,
        shared_bytes: 227 * 1024,
        regs_per_thread: 255,
        regs_per_block: 65536,
        max_cluster: 1,
        async_copy: true,
        matrix: Vec::new(),
        async_mma: Vec::new(),
        folds: Vec::new(),
        register_pools: false,
        multiprocessors: 132,
        cache_bytes: 32 << 20,
    };
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hoist");
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
    assert!(paths.len() >= 3, "only {} cases found", paths.len());
    assert!(wrong.is_empty(), "{wrong}");
}
