//! Stages every kernel under `tests/async_mma` for a target with asynchronous MMAs, and compares
//! with the text after the line `=>`. `TESSERA_BLESS=1` rewrites that text. It is what the header
//! says: the whole kernel; with `; against: gemm` what is different from that case; with `; against:
//! all passes` what the passes do that `config` switches off (the lines with `-`); with `; outline`
//! the ops that copy, wait, multiply and branch.
//!
//! Lines that begin with `; ` are options: `cols: a b` names arrays with contiguous columns,
//! `boxes: not a` those that are not TMA compatible, `profile: strict` the profile. Each `run: m=3
//! n=4 grid=1,1` is a launch for which the interpreter of Staged IR must give the results of the
//! interpreter of Tile IR, bit by bit, or with `within: 1e-5` that close, whatever the timing.

use crate::golden;
use crate::ir_diff::ir_diff;
use crate::outline::outline;
use std::fmt::Write;
use std::path::Path;
use tessera_diag::Diagnostics;
use tessera_interp::{HostArray, Interp, StagedOptions, Timing, run_staged};
use tessera_ir::{Attr, Dim, PassContext, PassOptions, Type, verify};
use tessera_lower::stage::{GpuCaps, MOST_STAGES, MatrixRow, Off, Staging, Step, stage};
use tessera_numerics::{DType, Profile, ReduceOp};
use tessera_staged::StagedFunc;
use tessera_target::arrays::ArrayClass;
use tessera_target::{Backend, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

const SPLIT: &str = "\n=>\n";

fn headers<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    text.lines().filter_map(|l| l.strip_prefix("; ")?.strip_prefix(name)).map(str::trim).collect()
}

fn words<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    headers(text, name).into_iter().flat_map(str::split_whitespace).collect()
}

fn profile(text: &str) -> Profile {
    match headers(text, "profile:").first() {
        Some(&"strict") => Profile::Strict,
        _ => Profile::Default,
    }
}

fn classes(func: &TileFunc, text: &str) -> Vec<ArrayClass> {
    let (cols, not) = (words(text, "cols:"), words(text, "tma_compatible: not"));
    let one = |&v| match func.ty(v) {
        Type::View { dims, .. } if !dims.is_empty() => {
            let named = |list: &[&str]| func.name_of(v).is_some_and(|n| list.contains(&n));
            let axis = if named(&cols) { dims.len() - 2 } else { dims.len() - 1 };
            let tma_compatible = !named(&not);
            ArrayClass {
                contiguous: 1 << axis,
                align: if tma_compatible { 16 } else { 2 },
                tma_compatible,
            }
        }
        _ => ArrayClass::default(),
    };
    func.params().iter().map(one).collect()
}

fn caps() -> GpuCaps {
    use DType::{BF16, F16, F32, Fp8E4M3, I8, I32, Tf32, U8};
    let row = |a, b, acc, k| MatrixRow { a, b, acc, k };
    GpuCaps {
        max_cluster: 8,
        matrix: vec![row(BF16, BF16, F32, 16), row(F16, F16, F32, 16), row(I8, I8, I32, 32)],
        async_mma: vec![
            row(BF16, BF16, F32, 16),
            row(F16, F16, F32, 16),
            row(Tf32, Tf32, F32, 8),
            row(Fp8E4M3, Fp8E4M3, F32, 32),
            row(I8, I8, I32, 32),
            row(U8, I8, I32, 32),
        ],
        folds: vec![(ReduceOp::Sum, F32)],
        register_pools: true,
        ..golden::caps()
    }
}

/// The kernel after the tile passes.
fn tile_func(text: &str) -> TileFunc {
    let mut func = tessera_tile::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let options = PassOptions { verify_each: true, ..PassOptions::default() };
    let passes = tessera_lower::tile_pipeline(options);
    passes.run(&mut func, &mut PassContext::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    func
}

fn staged(func: &TileFunc, text: &str) -> (StagedFunc, Diagnostics) {
    let (caps, classes) = (caps(), classes(func, text));
    let staging = Staging { caps: &caps, classes: &classes, profile: profile(text) };
    let mut notes = Diagnostics::new();
    let new = stage(func, &staging, MOST_STAGES, &mut notes).unwrap_or_else(|e| panic!("{e}"));
    verify(&new).unwrap_or_else(|e| panic!("not valid:\n{new}\n{e}"));
    (new, notes)
}

/// Small integers: sums of their products are exact in any order.
fn number(seed: usize, i: usize, dtype: DType) -> f64 {
    let n = ((i * 7919 + i / 13 * 31 + seed * 5) % 7) as f64;
    if dtype == DType::U8 { n } else { n - 3.0 }
}

fn launch(
    func: &TileFunc,
    run: &str,
    mut arrays: Vec<HostArray>,
    how: &dyn Fn(&LaunchArgs) -> Result<(), Diagnostics>,
) -> Vec<HostArray> {
    let value =
        |word: &str, name: &str| word.strip_prefix(name)?.strip_prefix('=').map(String::from);
    let grid = run.split_whitespace().find_map(|w| value(w, "grid")).expect("a grid");
    let mut ints = grid.split(',').map(|n| n.parse::<i64>().unwrap());
    let grid = [0; 3].map(|_| ints.next().unwrap_or(1));
    let args = LaunchArgs {
        params: arrays.iter_mut().map(HostArray::as_arg).collect(),
        dims: sizes(run).into_iter().collect(),
        grid,
        domain: [0; 3],
        lanes: 1,
    };
    how(&args).unwrap_or_else(|e| panic!("{run}: {e}\n{func}"));
    arrays
}

fn sizes(run: &str) -> Vec<(String, i64)> {
    let pairs = run.split_whitespace().filter_map(|w| w.split_once('='));
    pairs.filter_map(|(name, n)| Some((name.to_string(), n.parse().ok()?))).collect()
}

fn arrays(func: &TileFunc, run: &str) -> Vec<HostArray> {
    let sizes = sizes(run);
    let extent = |d: &Dim| match d.as_static() {
        Some(n) => n,
        None => sizes.iter().find(|s| s.0 == d.to_string()).map_or(1, |s| s.1),
    };
    let mut out = Vec::new();
    for (seed, &v) in func.params().iter().enumerate() {
        let dims: Vec<i64> = func.ty(v).shape().iter().map(extent).collect();
        let count = dims.iter().product::<i64>() as usize;
        let dtype = func.ty(v).dtype();
        let values: Vec<f64> = (0..count).map(|i| number(seed, i, dtype)).collect();
        out.push(HostArray::new(&dims, dtype, &values));
    }
    out
}

/// Checks that every launch of a case gives the results of the oracle.
fn runs(func: &TileFunc, staged: &StagedFunc, text: &str) {
    let within: f64 = headers(text, "within:").first().map_or(0.0, |n| n.parse().unwrap());
    let artifact = Interp.compile(func, &CompileOptions::new(profile(text))).unwrap();
    for run in headers(text, "run:") {
        let wanted = launch(func, run, arrays(func, run), &|args| artifact.launch(args));
        for timing in [Timing::Early, Timing::Late, Timing::Random(1), Timing::Random(2)] {
            let options = StagedOptions { timing, verify: true };
            let got =
                launch(func, run, arrays(func, run), &|args| run_staged(staged, args, options));
            for (wanted, got) in wanted.iter().zip(&got) {
                let (w, g) = (wanted.values(), got.values());
                let off = |i: &usize| {
                    let (w, g) = (w[*i], g[*i]);
                    w.to_bits() != g.to_bits()
                        && ((w - g).abs() / w.abs().max(1.0) > within || w.is_nan() != g.is_nan())
                };
                if let Some(i) = (0..w.len()).find(off) {
                    panic!("{run} at {timing:?}: element {i} is {}, not {}\n{staged}", g[i], w[i]);
                }
            }
        }
    }
}

/// The text of a staged kernel as its case shows it.
fn shown(folder: &Path, func: &TileFunc, input: &str, new: &StagedFunc) -> String {
    if !headers(input, "outline").is_empty() {
        return outline(new);
    }
    let against = |base: &StagedFunc| ir_diff(&base.to_string(), &new.to_string());
    match headers(input, "against:").first().copied() {
        None => new.to_string(),
        Some("all passes") => {
            let mut all = func.clone();
            if let Some(Attr::Dict(mut config)) = all.attrs.remove("config") {
                config.remove("off");
                all.attrs.set("config", Attr::Dict(config));
            }
            against(&staged(&all, input).0)
        }
        Some(name) => {
            let text = std::fs::read_to_string(folder.join(format!("{name}.tir"))).unwrap();
            let input = text.split_once(SPLIT).map_or(text.as_str(), |(input, _)| input);
            against(&staged(&tile_func(input), input).0)
        }
    }
}

#[test]
fn cases_give_their_expected_text_and_values() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/async_mma");
    let bless = std::env::var_os("TESSERA_BLESS").is_some();
    let only = std::env::var("TESSERA_CASE").unwrap_or_default();
    let mut paths: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 12, "only {} cases found", paths.len());
    let mut wrong = String::new();
    for path in paths.iter().filter(|p| p.to_string_lossy().contains(&only)) {
        let text = std::fs::read_to_string(path).unwrap();
        let (input, expected) = text.split_once(SPLIT).unwrap_or((text.trim_end(), ""));
        let func = tile_func(input);
        let (new, notes) = staged(&func, input);
        let mut got = shown(&folder, &func, input, &new);
        for note in notes.iter() {
            let _ = writeln!(got, "{}: {}", note.code, note.message);
        }
        if bless {
            std::fs::write(path, format!("{input}{SPLIT}{got}")).unwrap();
        } else if got != expected {
            let _ = writeln!(wrong, "--- {}\nexpected:\n{expected}\ngot:\n{got}", path.display());
        }
        runs(&func, &new, input);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A kernel can be staged without any one pass, and computes the same.
#[test]
fn every_pass_can_be_left_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/async_mma");
    let mut plain = 0;
    for case in ["gemm.tir", "bias_relu.tir", "spec_attention.tir"] {
        let text = std::fs::read_to_string(folder.join(case)).unwrap();
        let input = text.split_once(SPLIT).map_or(text.as_str(), |(input, _)| input);
        let func = tile_func(input);
        let whole = staged(&func, input).0.to_string();
        for &step in Step::ALL {
            let mut less = func.clone();
            let off = Off::default().with(step).attr().unwrap();
            let mut config = tessera_ir::Attrs::new();
            config.set("off", off);
            less.attrs.set("config", tessera_ir::Attr::Dict(config));
            let (new, _) = staged(&less, input);
            // The attribute itself is the only difference where a pass had nothing to do.
            let text =
                new.to_string().replace(&format!(", config = {{off = [{}]}}", step.name()), "");
            plain += usize::from(text != whole);
            runs(&func, &new, input);
        }
    }
    assert!(plain >= 20, "only {plain} ways were different");
}
