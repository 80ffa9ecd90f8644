//! Splits the loops of every kernel under `tests/split`, and compares the text with what follows
//! the line `=>`, which is empty where there is nothing to split. `TESSERA_BLESS=1` rewrites that
//! text. A split kernel gives the same bits as before, for lengths that end at a block and inside
//! one.

use crate::golden::{self, tile_func};
use std::fmt::Write;
use tessera_interp::{HostArray, Interp};
use tessera_ir::verify;
use tessera_lower::split;
use tessera_numerics::{DType, Profile};
use tessera_target::{Backend, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

const SPLIT: &str = "=>\n";

/// Of `n` queries and keys, with a number `w` beside them.
fn run(func: &TileFunc, n: i64, w: i64) -> Vec<u64> {
    let values: Vec<f64> = (0..16 * n).map(|i| (i * 7919 % 13) as f64 - 6.0).collect();
    let mut arrays = [
        HostArray::new(&[n, 16], DType::BF16, &values),
        HostArray::new(&[n, 16], DType::BF16, &values),
        HostArray::new(&[n, 16], DType::F32, &vec![0.0; 16 * n as usize]),
        HostArray::new(&[1], DType::I64, &[w as f64]),
    ];
    let artifact = Interp.compile(func, &CompileOptions::new(Profile::Strict)).unwrap();
    let args = LaunchArgs {
        params: arrays.iter_mut().map(HostArray::as_arg).collect(),
        dims: [("n".to_string(), n)].into_iter().collect(),
        grid: [(n + 15) / 16, 1, 1],
        domain: [0; 3],
        lanes: 1,
    };
    artifact.launch(&args).unwrap_or_else(|e| panic!("{e}\n{func}"));
    arrays[2].values().iter().map(|x| x.to_bits()).collect()
}

#[test]
fn cases_give_their_expected_text_and_the_same_bits() {
    let bless = std::env::var_os("TESSERA_BLESS").is_some();
    let (mut wrong, mut cut) = (String::new(), 0);
    for path in golden::files("split", 6) {
        let text = std::fs::read_to_string(&path).unwrap();
        let (input, expected) = text.split_once(SPLIT).unwrap_or((&text, ""));
        let func = tile_func(input);
        let new = split(&func);
        let got = new.as_ref().map_or(String::new(), ToString::to_string);
        if bless {
            std::fs::write(&path, format!("{input}{SPLIT}{got}")).unwrap();
        } else if got != expected {
            let _ = writeln!(wrong, "--- {}\nexpected:\n{expected}\ngot:\n{got}", path.display());
        }
        let Some(new) = new else { continue };
        cut += 1;
        verify(&new).unwrap_or_else(|e| panic!("not valid:\n{new}\n{e}"));
        assert!(split(&new).is_none(), "what was cut is cut again:\n{new}");
        for n in [1, 15, 16, 17, 31, 32, 48, 63, 80] {
            for w in [-40, -1, 0, 1, 16, 100] {
                assert_eq!(run(&func, n, w), run(&new, n, w), "{}, {n}, {w}", path.display());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(cut, 4);
}
