//! Applies lazy rescaling to every kernel under `tests/free`, and compares the text with what
//! follows the line `=>`, or the reason why it was left alone. `TESSERA_BLESS=1` rewrites that
//! text.
//!
//! Changed kernels run on scores of every kind, and must give the same results: up to the rounding
//! of weights, with NaN in the same rows, and rows without scores as zeros.

use crate::golden::{self, tile_func};
use std::fmt::Write;
use std::path::PathBuf;
use tessera_interp::{HostArray, Interp};
use tessera_ir::verify;
use tessera_lower::lazy_rescale;
use tessera_numerics::{DType, Profile};
use tessera_target::{Backend, CompileOptions, LaunchArgs};
use tessera_tile::{TileFunc, TileOp, without_slow_paths};

const SPLIT: &str = "=>\n";
const ROWS: usize = 16;

fn cases() -> Vec<PathBuf> {
    golden::files("free", 8)
}

/// Numbers that look random and are the same in every run.
fn noise(i: usize) -> f64 {
    let mut x = (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^= x >> 32;
    // The sum of four is near enough to a normal number of variance 1.
    let parts = (0..4).map(|k| ((x >> (16 * k)) & 0xFFFF) as f64 / 65536.0 - 0.5);
    parts.sum::<f64>() * 3f64.sqrt()
}

type Scores = fn(usize, usize) -> f64;

/// Scores by row and column.
const KINDS: [(&str, Scores); 10] = [
    ("usual", |r, c| noise(r * 977 + c)),
    ("wide", |r, c| 16.0 * noise(r * 977 + c)),
    ("very wide", |r, c| 256.0 * noise(r * 977 + c)),
    // 2^41 a block.
    ("ramp", |r, c| noise(r * 977 + c) + (c / 16) as f64 * 41.0 * std::f64::consts::LN_2),
    // One weight of a row is about the largest number there is.
    ("at the edge", |r, c| match c {
        16 => (160.0 - 0.5f64.powi(r as i32)) * std::f64::consts::LN_2,
        _ => 0.0,
    }),
    ("falling", |r, c| noise(r * 977 + c) - (c / 16) as f64 * 41.0 * std::f64::consts::LN_2),
    ("far below", |r, c| noise(r * 977 + c) - 300.0),
    ("masked", |r, c| match r {
        // No scores at all; none at first; none at last; in every other block.
        0..4 => f64::NEG_INFINITY,
        4..7 if c < 32 => f64::NEG_INFINITY,
        7..10 if c >= 16 => f64::NEG_INFINITY,
        10..13 if c / 16 % 2 == 0 => f64::NEG_INFINITY,
        13 if c != 37 => f64::NEG_INFINITY,
        _ => noise(r * 977 + c) - 40.0,
    }),
    ("diagonal", |r, c| if c <= 3 * r { noise(r * 977 + c) } else { f64::NEG_INFINITY }),
    ("nan", |r, c| match (r, c) {
        (3, 20) | (5, 0) => f64::NAN,
        (7, 30) | (8, 3) => f64::INFINITY,
        _ => noise(r * 977 + c),
    }),
];

fn run(func: &TileFunc, n: usize, scores: Scores, v: f64) -> Vec<HostArray> {
    let s: Vec<f64> = (0..ROWS * n).map(|i| scores(i / n, i % n)).collect();
    let values: Vec<f64> = (0..n * 16).map(|i| v * noise(i + 12345)).collect();
    let dtype = func.ty(func.params()[1]).dtype();
    let mut arrays = vec![
        HostArray::new(&[ROWS as i64, n as i64], DType::F32, &s),
        HostArray::new(&[n as i64, 16], dtype, &values),
        HostArray::new(&[ROWS as i64, 16], DType::F32, &[0.0; ROWS * 16]),
        HostArray::new(&[ROWS as i64], DType::F32, &[0.0; ROWS]),
    ];
    let artifact = Interp.compile(func, &CompileOptions::new(Profile::Default)).unwrap();
    let args = LaunchArgs {
        params: arrays.iter_mut().map(HostArray::as_arg).collect(),
        dims: [("n".to_string(), n as i64)].into_iter().collect(),
        grid: [1, 1, 1],
        domain: [0; 3],
        lanes: 1,
    };
    artifact.launch(&args).unwrap_or_else(|e| panic!("{e}\n{func}"));
    arrays
}

fn compare(before: &TileFunc, after: &TileFunc, what: &str) {
    for (name, scores) in KINDS {
        for n in [16, 64, 80, 160] {
            let (wanted, got) = (run(before, n, scores, 1.0), run(after, n, scores, 1.0));
            // bf16 weights with another reference are rounded differently.
            for (array, bound) in [(2, 2e-2), (3, 1e-4)] {
                let (w, g) = (wanted[array].values(), got[array].values());
                for (i, (&w, &g)) in w.iter().zip(&g).enumerate() {
                    let near = (w - g).abs() <= bound * w.abs().max(1.0);
                    let alike = w.to_bits() == g.to_bits() || w.is_nan() && g.is_nan();
                    assert!(near || alike, "{what}, {name}, {n}: {array}.{i} is {g}, not {w}");
                }
            }
        }
    }
}

#[test]
fn cases_give_their_expected_text_and_values() {
    let bless = std::env::var_os("TESSERA_BLESS").is_some();
    let mut wrong = String::new();
    let mut freed = 0;
    for path in cases() {
        let text = std::fs::read_to_string(&path).unwrap();
        let (input, expected) = text.split_once(SPLIT).unwrap_or((&text, ""));
        let func = tile_func(input);
        let (new, reported) = lazy_rescale(&func);
        let mut got = new.as_ref().map_or(String::new(), ToString::to_string);
        for (_, why) in &reported {
            let _ = writeln!(got, "kept: {why}");
        }
        if bless {
            std::fs::write(&path, format!("{input}{SPLIT}{got}")).unwrap();
        } else if got != expected {
            let _ = writeln!(wrong, "--- {}\nexpected:\n{expected}\ngot:\n{got}", path.display());
        }
        if let Some(new) = new {
            freed += 1;
            verify(&new).unwrap_or_else(|e| panic!("not valid:\n{new}\n{e}"));
            // It has a rescale path, or scores are bounded and there is no maximum at all.
            let repaired = new.walk().iter().any(|&id| new.ops[id].code == TileOp::SlowPath);
            assert!(repaired || !new.to_string().contains("op = max"), "{new}");
            compare(&func, &new, &path.display().to_string());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(freed >= 3, "only {freed} kernels were changed");
}

/// A slow path gives the same whether it runs for all rows or only where the condition holds.
#[test]
fn slow_paths_change_no_row_that_is_not_bad() {
    for path in cases() {
        let text = std::fs::read_to_string(&path).unwrap();
        let func = tile_func(text.split_once(SPLIT).map_or(&text, |t| t.0));
        let (Some(new), _) = lazy_rescale(&func) else { continue };
        let Some(always) = without_slow_paths(&new) else { continue };
        verify(&always).unwrap_or_else(|e| panic!("not valid:\n{always}\n{e}"));
        for (name, scores) in KINDS {
            let (a, b) = (run(&new, 80, scores, 1.0), run(&always, 80, scores, 1.0));
            for array in [2, 3] {
                let bits = |a: &[HostArray]| {
                    let bits = |x: &f64| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() };
                    a[array].values().iter().map(bits).collect::<Vec<_>>()
                };
                assert_eq!(bits(&a), bits(&b), "{name}, {}", path.display());
            }
        }
    }
}
