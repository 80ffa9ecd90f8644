//! Functions in files with what a pass makes of them, after a line `=>`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use tessera_ir::{Pass, PassContext, verify};
use tessera_lower::Canonicalise;
use tessera_lower::stage::StageCaps;
use tessera_tile::TileFunc;

pub const SPLIT: &str = "\n=>\n";

/// The files of a folder of `tests`, at least `least`.
pub fn files(folder: &str, least: usize) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= least, "only {} cases found", paths.len());
    paths
}

/// Runs the function of every file of a folder, and compares the result with the text after the
/// line `=>`. `TESSERA_BLESS=1` rewrites that text.
pub fn check(folder: &str, least: usize, run: impl Fn(&str) -> String) {
    let bless = std::env::var_os("TESSERA_BLESS").is_some();
    let mut wrong = String::new();
    for path in files(folder, least) {
        let text = std::fs::read_to_string(&path).unwrap();
        let (input, expected) = text.split_once(SPLIT).unwrap_or((text.trim_end(), ""));
        let got = run(input);
        if bless {
            std::fs::write(path, format!("{input}{SPLIT}{got}")).unwrap();
        } else if got != expected {
            let _ = writeln!(wrong, "--- {}\nexpected:\n{expected}\ngot:\n{got}", path.display());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A kernel in canonical form.
pub fn tile_func(text: &str) -> TileFunc {
    let mut func = tessera_tile::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify(&func).unwrap_or_else(|e| panic!("{e}\n{text}"));
    Canonicalise.run(&mut func, &mut PassContext::default()).unwrap();
    func
}

/// A target without MMAs.
pub fn caps() -> StageCaps {
    StageCaps {
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
    }
}
