//! What NVIDIA's assembler makes of a few kernels. `TESSERA_BLESS=1` rewrites the counts.

use super::Variant;
use crate::assembler::{blessing, folder, tools};
use tessera_conformance::harness::*;
use tessera_conformance::lane::groups::{HISTOGRAM, TREE, together};
use tessera_conformance::lane::memory::{SAXPY, STENCIL, matrix};
use tessera_numerics::{DType, Profile};
use tessera_ptx::count::{count, ratchet};

/// Kernels with arguments that compile in them.
fn kernels() -> Vec<(&'static str, String, Vec<Arg>)> {
    let row = |dtype, seed| array(&[1000], dtype, Layout::Rows, seed);
    let table = |seed| array(&[10, 2, 64], DType::F32, Layout::Rows, seed);
    let floats = || vec![row(DType::F32, 1), row(DType::F32, 2), scalar(2.0f32)];
    let skewed = || [1, 2].map(|seed| array(&[1000], DType::F32, Layout::Skewed, seed));
    let [x, y] = skewed();
    let groups = |dtype| {
        let y = array(&[8, 1000], dtype, Layout::Rows, 3);
        let ix = ints(&(0..1000).collect::<Vec<_>>());
        let w = match dtype {
            DType::F32 => scalar(1.5f32),
            _ => scalar(3i64),
        };
        vec![row(dtype, 1), w, ix, y, scalar(1i64)]
    };
    vec![
        ("saxpy", SAXPY.into(), floats()),
        ("skewed", SAXPY.into(), vec![x, y, scalar(2.0f32)]),
        ("stencil", STENCIL.into(), floats()),
        ("matrix", matrix(false), vec![table(1), table(2), table(3)]),
        ("tree", TREE.into(), vec![row(DType::F32, 1), row(DType::F32, 2)]),
        ("histogram", HISTOGRAM.into(), vec![row(DType::I32, 1), row(DType::I32, 2)]),
        ("groups_f32", together(DType::F32, &["sum"]), groups(DType::F32)),
        ("groups_i64", together(DType::I64, &["max"]), groups(DType::I64)),
    ]
}

#[test]
fn the_assembler_takes_the_code_and_spills_nothing() {
    let Some(tools) = tools() else { return };
    let mut rows = Vec::new();
    for (name, text, args) in kernels() {
        for (profile, short) in [(Profile::Default, ""), (Profile::Strict, "_strict")] {
            let mut code = Variant::newest(&text, 256, profile).code(&args, 1000);
            code.module.kernels[0].name = format!("{name}{short}");
            for one in count(&tools, &code.module).unwrap_or_else(|e| panic!("{name}: {e}")) {
                assert_eq!([one.stack, one.spill_stores, one.spill_loads], [0; 3], "{one}");
                rows.push(one.to_string());
            }
        }
    }
    ratchet(&folder("lane").join("ratchet.txt"), &rows, blessing())
        .unwrap_or_else(|e| panic!("{e}"));
}

/// The instructions of the fast path.
#[test]
fn saxpy_moves_16_bytes_at_a_time_and_does_little_else() {
    let (_, text, args) = kernels().swap_remove(0);
    let text = Variant::newest(&text, 256, Profile::Default).code(&args, 1000).module.text();
    let (fast, _) = text.split_once("    ret;").unwrap();
    let body = fast.split_once('{').unwrap().1;
    let is_code = |l: &&str| !l.trim_start().starts_with('.') && l.ends_with(';');
    let code: Vec<&str> = body.lines().filter(is_code).collect();
    let wide = code.iter().filter(|l| l.contains(".v4.b32")).count();
    assert_eq!((wide, code.len()), (3, 41), "{text}");
}
