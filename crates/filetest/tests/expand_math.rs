//! The expansions as Tile IR compute what the functions compute, bit for bit, over numbers of every
//! kind: so a backend that has only the basic operations gives the same results.

use tessera_interp::HostArray;
use tessera_ir::{Pass, PassContext, verify};
use tessera_lower::{ExpandMath, expanded_functions};
use tessera_numerics::{DType, Scalar};
use tessera_target::LaunchArgs;

/// Bit patterns spread over all floats, with the special ones.
fn numbers(count: usize) -> Vec<Scalar> {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e-45,
        -1e-40,
        f32::MAX,
        f32::MIN_POSITIVE,
        0.5,
        88.7,
        -103.9,
    ];
    let spread = (0..count as u32).map(|i| f32::from_bits(i.wrapping_mul(0x9E37_79B1)));
    special.into_iter().chain(spread).take(count).map(Scalar::F32).collect()
}

#[test]
fn expansions_as_tile_ir_give_the_functions_bits() {
    let n = 4096;
    for &f in expanded_functions() {
        let call = match f.arity() {
            1 => format!("tile.{} %a", f.name()),
            _ => format!("tile.{} %a, %b", f.name()),
        };
        let text = format!(
            "func @f(%x: view<[{n}], f32, read>, %z: view<[{n}], f32, read>, %y: view<[{n}], f32, write>) {{kind = group}} {{\n\
               %o = tile.const {{value = 0}} : i64\n\
               %a = tile.load %x at(%o) {{extent = [{n}]}} : tile<{n}xf32>\n\
               %b = tile.load %z at(%o) {{extent = [{n}]}} : tile<{n}xf32>\n\
               %r = {call} : tile<{n}xf32>\n\
               tile.store %y, %r at(%o) {{extent = [{n}]}}\n\
               tile.return\n}}\n"
        );
        let direct = tessera_tile::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        let mut expanded = direct.clone();
        ExpandMath.run(&mut expanded, &mut PassContext::default()).unwrap();
        verify(&expanded).unwrap_or_else(|e| panic!("{f}: {e}"));
        assert!(
            !expanded.to_string().contains(&format!("tile.{} ", f.name())),
            "{f} is still there"
        );
        let run = |func| {
            let mut x = HostArray::from_scalars(&[n], DType::F32, &numbers(n as usize));
            let mut other = numbers(n as usize);
            other.reverse();
            let mut z = HostArray::from_scalars(&[n], DType::F32, &other);
            let mut y = HostArray::zeros(&[n], DType::F32);
            let args = LaunchArgs {
                params: vec![x.as_arg(), z.as_arg(), y.as_arg()],
                dims: Default::default(),
                grid: [1, 1, 1],
                domain: [0; 3],
                lanes: 1,
            };
            tessera_interp::run(func, &args).unwrap_or_else(|e| panic!("{f}: {e}"));
            y.bytes
        };
        assert_eq!(run(&direct), run(&expanded), "{f}");
    }
}
