//! Functions in files with what a pass makes of them, after a line `=>`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use tessera_ir::{Pass, PassContext, verify};
use tessera_lower::Canonicalise;
use tessera_lower::stage::GpuCaps;
use tessera_target::speed::Speed;
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
/// No pass of this crate reads it.
const SPEED: Speed = Speed {
    processors: 132,
    clock: 1e9,
    matrix: 1024.0,
    scalar: 128.0,
    warps: 3.0,
    local_bytes: 1 << 18,
    shared_bytes: 227 << 10,
    l2_lines_per_s: 1e11,
    memory: 1e12,
    memory_latency: 2048.0,
    group: 1e-6,
    max_resident_blocks: 16,
    fetch: 2e-9,
    wait: 4.5e-7,
    epilogue_overhead: 96.0,
    launch: 4e-6,
};

pub fn caps() -> GpuCaps {
    GpuCaps {
        warp_size: 32,
        max_threads_per_block: 1024,
        registers_per_thread: 255,
        registers_per_sm: 65536,
        threads_per_sm: 2048,
        blocks_per_sm: 32,
        shared_per_block: 227 * 1024,
        shared_per_sm: 228 * 1024,
        shared_reserved: 1024,
        multiprocessors: 132,
        max_cluster: 1,
        l2_bytes: 50 << 20,
        async_copy: true,
        matrix: Vec::new(),
        async_mma: Vec::new(),
        folds: Vec::new(),
        register_pools: false,
        speed: SPEED,
    }
}
