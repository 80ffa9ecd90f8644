//! The functions of `filetests/staged`, by fused multiply-adds.

use super::harness::{Arg, check};
use tessera_interp::HostArray;
use tessera_numerics::DType;

const PARTS: &str = include_str!("../../../../filetests/staged/parts.tir");
const ROLES: &str = include_str!("../../../../filetests/staged/roles.tir");

pub fn named(text: &str, name: &str) -> String {
    let start = text.find(&format!("func @{name}(")).unwrap();
    let end = text[start..].find("\n}\n").unwrap();
    text[start..start + end + 3].to_string()
}

pub fn noise(n: i64, seed: i64) -> Vec<f64> {
    (0..n).map(|i| ((i + seed) * 7919 % 257) as f64 / 16.0 - 8.0).collect()
}

fn arrays(a: [i64; 2], b: [i64; 2], c: [i64; 2]) -> Vec<Arg> {
    let of = |d: [i64; 2], seed| HostArray::new(&d, DType::F32, &noise(d[0] * d[1], seed));
    vec![Arg::Array(of(a, 1)), Arg::Array(of(b, 5)), Arg::Array(HostArray::zeros(&c, DType::F32))]
}

/// More stages than iterations and fewer, whole tiles and others, more blocks than tiles.
const SIZES: [[i64; 3]; 5] = [[8, 8, 8], [16, 24, 40], [13, 20, 36], [40, 8, 4], [8, 40, 64]];

#[test]
fn one_role_loads_and_one_multiplies() {
    for [m, n, k] in SIZES {
        check(&named(ROLES, "gemm"), &arrays([m, k], [n, k], [m, n]), &[1, 2, 5]);
    }
}

#[test]
fn replicas_divide_rows() {
    for [m, n, k] in SIZES {
        check(&named(PARTS, "rows"), &arrays([m, k], [k, n], [m, n]), &[1, 2, 5]);
    }
}

#[test]
fn replicas_alternate_over_tiles() {
    for [m, n, k] in SIZES {
        check(&named(PARTS, "pingpong"), &arrays([m, k], [k, n], [m, n]), &[1, 2, 3]);
    }
}

/// Loops without an iteration in tiles that exist: nothing is loaded, and zeros are stored.
#[test]
fn loops_without_an_iteration() {
    let text = named(ROLES, "gemm")
        .replace("%c: view<[m, n], f32, write>)", "%c: view<[m, n], f32, write>, %nk: i64)")
        .replace("  %nk = staged.floordiv %uk, %eight : i64\n", "")
        // A kept MMA is released only if there is one: here each iteration retires its own.
        .replace("%u = staged.mma_retire %t {keep = 1} : pending<tile<8x8xf32, #[reg 4,0; lane 0,1 0,2 0,4 1,0 2,0]>>\n          %before = staged.sub %j2, %one : i64\n          staged.release %r, %before {unless_first = true}",
                 "%d = staged.mma_retire %t {keep = 0} : tile<8x8xf32, #[reg 4,0; lane 0,1 0,2 0,4 1,0 2,0]>\n          %u = staged.mma_open %d : pending<tile<8x8xf32, #[reg 4,0; lane 0,1 0,2 0,4 1,0 2,0]>>\n          staged.release %r, %j2")
        .replace("        %back = staged.sub %end2, %one : i64\n        staged.release %r, %back\n", "");
    for iterations in [0, 1, 2] {
        let mut args = arrays([16, 16], [24, 16], [16, 24]);
        args.push(Arg::Int(iterations));
        check(&text, &args, &[1, 4]);
    }
}
