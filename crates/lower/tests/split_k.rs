//! Split-K of every kernel under `tests/split_k`, compared with the text after the line `=>`, which
//! is empty where nothing is divided. `TESSERA_BLESS=1` rewrites that text. The two kernels together
//! give what the one gives: on small integers, every sum is exact.

use crate::golden::{self, tile_func};
use std::fmt::Write;
use tessera_interp::{HostArray, Interp};
use tessera_ir::verify;
use tessera_lower::{GROUPS, SPLITS, split_k};
use tessera_numerics::{DType, Profile};
use tessera_target::{Backend, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

const RESULT: &str = "=>\n";

fn launch(func: &TileFunc, arrays: &mut [HostArray], grid: [i64; 3], dims: &[(&str, i64)]) {
    let artifact = Interp.compile(func, &CompileOptions::new(Profile::Strict)).unwrap();
    let args = LaunchArgs {
        params: arrays.iter_mut().map(HostArray::as_arg).collect(),
        dims: dims.iter().map(|(name, n)| (name.to_string(), *n)).collect(),
        grid,
        domain: [0; 3],
        lanes: 1,
    };
    artifact.launch(&args).unwrap_or_else(|e| panic!("{e}\n{func}"));
}

/// The operands of a matmul `[m, k]` by `[k, n]`, and what is there before.
fn operands([m, k, n]: [i64; 3]) -> Vec<HostArray> {
    let values = |count: i64, by: i64| -> Vec<f64> {
        (0..count).map(|i| (i * by % 7) as f64 - 3.0).collect()
    };
    vec![
        HostArray::new(&[m, k], DType::BF16, &values(m * k, 7919)),
        HostArray::new(&[k, n], DType::BF16, &values(k * n, 104_729)),
        HostArray::new(&[m, n], DType::F32, &values(m * n, 31)),
    ]
}

fn compare(text: &str, func: &TileFunc, sizes: [i64; 3], splits: i64) {
    let found = split_k(func).unwrap();
    let [m, k, n] = sizes;
    let axes = func.attrs.get("grid").and_then(tessera_ir::Attr::as_exprs).unwrap().len();
    let grid = [(m + 15) / 16, if axes > 1 { (n + 15) / 16 } else { 1 }, 1];
    let dims = [("m", m), ("k", k), ("n", n)];
    let mut whole = operands(sizes);
    launch(func, &mut whole, grid, &dims);
    let mut arrays = operands(sizes);
    let groups = grid[0] * grid[1];
    for (shape, dtype) in &found.sums {
        let dims: Vec<i64> = [splits, groups].into_iter().chain(shape.iter().copied()).collect();
        let poison = vec![f64::NAN; dims.iter().product::<i64>() as usize];
        arrays.push(HostArray::new(&dims, *dtype, &poison));
    }
    let dims = [("m", m), ("k", k), ("n", n), (SPLITS, splits), (GROUPS, groups)];
    launch(&found.parts, &mut arrays, [grid[0], grid[1], splits], &dims);
    launch(&found.rest, &mut arrays, grid, &dims);
    assert_eq!(whole[2].values(), arrays[2].values(), "{text}: {sizes:?} in {splits}");
}

#[test]
fn the_parts_and_the_rest_are_the_whole() {
    let bless = std::env::var_os("TESSERA_BLESS").is_some();
    let (mut wrong, mut divided) = (String::new(), 0);
    for path in golden::files("split_k", 6) {
        let text = std::fs::read_to_string(&path).unwrap();
        let (input, expected) = text.split_once(RESULT).unwrap_or((&text, ""));
        let func = tile_func(input);
        let new = split_k(&func);
        let got = new.as_ref().map_or(String::new(), |s| format!("{}\n{}", s.parts, s.rest));
        if bless {
            std::fs::write(&path, format!("{input}{RESULT}{got}")).unwrap();
        } else if got != expected {
            let _ = writeln!(wrong, "--- {}\nexpected:\n{expected}\ngot:\n{got}", path.display());
        }
        let Some(new) = new else { continue };
        divided += 1;
        for part in [&new.parts, &new.rest] {
            verify(part).unwrap_or_else(|e| panic!("not valid:\n{part}\n{e}"));
        }
        let name = path.display().to_string();
        for sizes in [[16, 16, 16], [17, 100, 33], [1, 15, 20], [40, 160, 16], [16, 1, 16]] {
            for splits in [1, 2, 3, 7, 16] {
                compare(&name, &func, sizes, splits);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(divided, 2);
}
