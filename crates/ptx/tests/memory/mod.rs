//! Memory-bound kernels: transposes, loops that load an iteration ahead, copies that the end of an
//! array cuts. Values are small integers: every result is exact.

use crate::gemm::form::{Array, Form, Runs, plain};
use tessera_interp::HostArray;
use tessera_numerics::DType;

fn numbers(n: i64) -> Vec<f64> {
    (0..n).map(|i| ((i * 7919 + i / 13) % 15 - 7) as f64).collect()
}

fn filled(dims: &[i64], dtype: DType) -> Array {
    let values = numbers(dims.iter().product());
    // Unsigned numbers have no signs.
    let values: Vec<f64> = match dtype {
        DType::U8 | DType::U16 => values.iter().map(|v| v + 7.0).collect(),
        _ => values,
    };
    plain(dims, dtype, &values)
}

/// Rows that begin at multiples of 16 bytes, whatever their length.
fn spaced(rows: i64, cols: i64, dtype: DType) -> Array {
    let bytes = dtype.bytes() as i64;
    let each = (cols * bytes + 15) / 16 * 16 / bytes;
    // The last row ends where the array does: nothing beyond it may be read.
    let values = numbers((rows - 1) * each + cols);
    let array = HostArray::new(&[values.len() as i64], dtype, &values);
    (array, vec![rows, cols], vec![each * bytes, bytes])
}

/// Rows with a pitch of `pitch` elements; the array ends with the last row.
fn pitched(rows: i64, cols: i64, pitch: i64, dtype: DType) -> Array {
    let (array, ..) = filled(&[(rows - 1) * pitch + cols], dtype);
    let bytes = dtype.bytes() as i64;
    (array, vec![rows, cols], vec![pitch * bytes, bytes])
}

#[test]
fn tiles_of_every_width_are_transposed() {
    let all = [DType::U8, DType::I16, DType::BF16, DType::F16, DType::F32, DType::F64];
    for dtype in all {
        for ((a, b), (m, n)) in [((64, 64), (128, 64)), ((32, 64), (70, 130)), ((8, 16), (9, 40))] {
            let text = format!(
                "func @transpose(%x: view<[m, n], {dtype}, read>, %y: view<[n, m], {dtype}, write>) {{kind = group, grid = [cdiv(m, {a}), cdiv(n, {b})]}} {{
  %a = tile.const {{value = {a}}} : i64
  %b = tile.const {{value = {b}}} : i64
  %i = tile.program_id {{axis = 0}} : i64
  %j = tile.program_id {{axis = 1}} : i64
  %r = tile.mul %i, %a : i64
  %c = tile.mul %j, %b : i64
  %t = tile.load %x at(%r, %c) {{extent = [{a}, {b}]}} : tile<{a}x{b}x{dtype}>
  %u = tile.transpose %t {{perm = [1, 0]}} : tile<{b}x{a}x{dtype}>
  tile.store %y, %u at(%c, %r) {{extent = [{b}, {a}]}}
  tile.return
}}"
            );
            let grid = [(m + a - 1) / a, (n + b - 1) / b, 1];
            let runs = Runs::new(text, vec![("m", m), ("n", n)], grid);
            runs.check(&[filled(&[m, n], dtype), filled(&[n, m], dtype)]);
        }
    }
}

/// A group sums its own part of the array, which may end anywhere, or be empty.
#[test]
fn sums_of_parts_are_loaded_an_iteration_ahead() {
    for (dtype, tile) in [(DType::F32, 1024), (DType::BF16, 2048), (DType::I8, 4096)] {
        let acc = if dtype.is_float() { "f32" } else { "i32" };
        let zero = if dtype.is_float() { "0.0" } else { "0" };
        let cast = if dtype == DType::F32 { "%t = tile.neg %x0" } else { "%t = tile.cast %x0" };
        for (n, each) in [(5 * tile, 2), (4 * tile + 3, 3), (tile - 1, 1), (9 * tile + 8, 2)] {
            let groups = 5;
            let text = format!(
                "func @part(%x: view<[n], {dtype}, read>, %y: view<[g], {acc}, write>) {{kind = group, grid = [g]}} {{
  %step = tile.const {{value = {tile}}} : i64
  %each = tile.const {{value = {}}} : i64
  %zero = tile.const {{value = {zero}}} : tile<{tile}x{acc}>
  %g = tile.program_id {{axis = 0}} : i64
  %n = tile.dim {{name = n}} : i64
  %lo = tile.mul %g, %each : i64
  %end = tile.add %lo, %each : i64
  %hi = tile.minimum %n, %end : i64
  %r = tile.for %lo, %hi, %step init(%zero) : tile<{tile}x{acc}> do (%i: i64, %acc: tile<{tile}x{acc}>) {{
    %x0 = tile.load %x at(%i) {{extent = [{tile}]}} : tile<{tile}x{dtype}>
    {cast} : tile<{tile}x{acc}>
    %s = tile.add %acc, %t : tile<{tile}x{acc}>
    tile.yield %s
  }}
  %all = tile.reduce %r {{op = sum, axis = 0}} : {acc}
  tile.store %y, %all at(%g) {{extent = [0]}}
  tile.return
}}",
                each * tile
            );
            let runs = Runs::new(text, vec![("n", n), ("g", groups)], [groups, 1, 1]);
            let of = if dtype.is_float() { DType::F32 } else { DType::I32 };
            let staged = runs.check(&[filled(&[n], dtype), filled(&[groups], of)]);
            assert!(!staged.contains("pipeline_create"), "{staged}");
            assert!(staged.matches("staged.load").count() == 2, "{staged}");
        }
    }
}

/// Rows are aligned, but their length is no multiple of the copy size.
#[test]
fn copies_that_the_end_of_an_array_cuts() {
    for (dtype, sizes) in [
        (DType::BF16, [33, 35, 38, 44].as_slice()),
        (DType::F32, &[33, 34, 35]),
        (DType::I8, &[33, 34, 35, 37, 46]),
        (DType::F64, &[17, 33]),
    ] {
        for &k in sizes {
            let form = Form::new(dtype, (16, 16, 16));
            let (m, n) = (20, k + 2);
            let runs =
                Runs::new(form.text(), vec![("m", m), ("n", n), ("k", k)], [2, (n + 15) / 16, 1]);
            let arrays = [spaced(m, k, dtype), spaced(k, n, dtype), filled(&[m, n], form.out)];
            let staged = runs.check(&arrays);
            assert!(staged.contains("pipeline_create"), "{staged}");
        }
    }
}

/// Rows of narrow elements at odd pitches, copied to aligned addresses and summed: a thread's
/// elements are loaded in aligned pieces and shifted, except at the ends of the array.
#[test]
fn narrow_rows_at_any_address() {
    let some = [DType::U8, DType::I8, DType::U16, DType::BF16, DType::F16, DType::Fp8E4M3];
    for dtype in some {
        for (m, n) in [(9, 65), (5, 131), (3, 7), (1, 1), (4, 64), (17, 47)] {
            let text = format!(
                "func @rows(%x: view<[m, n], {dtype}, read>, %y: view<[m, n], {dtype}, write>) {{kind = group, grid = [cdiv(m, 4), cdiv(n, 64)]}} {{
  %r = tile.const {{value = 4}} : i64
  %c = tile.const {{value = 64}} : i64
  %i = tile.program_id {{axis = 0}} : i64
  %j = tile.program_id {{axis = 1}} : i64
  %a = tile.mul %i, %r : i64
  %b = tile.mul %j, %c : i64
  %t = tile.load %x at(%a, %b) {{extent = [4, 64]}} : tile<4x64x{dtype}>
  tile.store %y, %t at(%a, %b) {{extent = [4, 64]}}
  tile.return
}}"
            );
            let grid = [(m + 3) / 4, (n + 63) / 64, 1];
            let runs = Runs::new(text, vec![("m", m), ("n", n)], grid);
            let staged = runs.check(&[pitched(m, n, n | 1, dtype), spaced(m, n, dtype)]);
            // Shifted elements are contiguous in a thread.
            let rough = m > 1;
            assert!(!rough || staged.contains("#[reg 0,1 0,2 0,4"), "{staged}");
        }
        // Sums, where nothing narrow is written.
        let acc = if dtype.is_float() { "f32" } else { "i32" };
        for n in [1, 63, 64, 129, 1001] {
            let text = format!(
                "func @sum(%x: view<[m, n], {dtype}, read>, %y: view<[m], {acc}, write>) {{kind = group, grid = [m]}} {{
  %lo = tile.const {{value = 0}} : i64
  %c = tile.const {{value = 512}} : i64
  %z = tile.const {{value = {}}} : {acc}
  %i = tile.program_id {{axis = 0}} : i64
  %n = tile.dim {{name = n}} : i64
  %s = tile.for %lo, %n, %c init(%z) : {acc} do (%k: i64, %old: {acc}) {{
    %t = tile.load %x at(%i, %k) {{extent = [0, 512]}} : tile<512x{dtype}>
    %w = tile.cast %t : tile<512x{acc}>
    %part = tile.reduce %w {{op = sum, axis = 0}} : {acc}
    %new = tile.add %old, %part : {acc}
    tile.yield %new
  }}
  tile.store %y, %s at(%i) {{extent = [0]}}
  tile.return
}}",
                if dtype.is_float() { "0.0" } else { "0" }
            );
            let runs = Runs::new(text, vec![("m", 3), ("n", n)], [3, 1, 1]);
            let of = if dtype.is_float() { DType::F32 } else { DType::I32 };
            runs.check(&[filled(&[3, n], dtype), filled(&[3], of)]);
        }
    }
}

/// Large tiles have a shorter tanh, by itself, times a constant, and of a scaled argument.
#[test]
fn tanh_of_large_tiles() {
    let text = "func @f(%x: view<[32, 256], f32, read>, %s: view<[32], f32, write>, %y: view<[32, 256], f32, write>) {kind = group, grid = [1]} {
  %lo = tile.const {value = 0} : i64
  %t = tile.load %x at(%lo, %lo) {extent = [32, 256]} : tile<32x256xf32>
  %c = tile.const {value = 4.0} : f32
  %four = tile.broadcast %c : tile<32x256xf32>
  %d = tile.const {value = 0.25} : f32
  %quarter = tile.broadcast %d : tile<32x256xf32>
  %less = tile.mul %t, %quarter : tile<32x256xf32>
  %h = tile.tanh %less : tile<32x256xf32>
  %r = tile.mul %four, %h : tile<32x256xf32>
  %g = tile.tanh %t : tile<32x256xf32>
  %m = tile.reduce %g {op = max, axis = 1} : tile<32xf32>
  tile.store %y, %r at(%lo, %lo) {extent = [32, 256]}
  tile.store %s, %m at(%lo) {extent = [32]}
  tile.return
}";
    let special = [f64::INFINITY, -f64::INFINITY, f64::NAN, 100.0, -100.0, 1e-30, 0.0, 0.939];
    // Rows of small numbers, of large ones, of both, and with a special one.
    let value = |i: usize| {
        let (row, column) = (i / 256, i % 256);
        let small = (column as f64 - 128.0) / 140.0;
        match row % 4 {
            0 => small,
            1 => 16.0 * small,
            2 if column == 8 * row => special[row / 4 % 8],
            2 => small / 16.0,
            _ => small * (1 + column % 3 * 4) as f64,
        }
    };
    let values: Vec<f64> = (0..32 * 256).map(value).collect();
    let runs = Runs::new(text.to_string(), vec![], [1, 1, 1]);
    let arrays = [
        plain(&[32, 256], DType::F32, &values),
        plain(&[32], DType::F32, &[]),
        plain(&[32, 256], DType::F32, &[]),
    ];
    let (_, got, _) = runs.run(&arrays);
    for (i, (x, y)) in values.iter().zip(got.values()).enumerate() {
        let wanted = 4.0 * f64::from(*x as f32 / 4.0).tanh();
        let near = (y - wanted).abs() <= 2f64.powi(-19) || (y.is_nan() && wanted.is_nan());
        assert!(near, "{i}: tanh of {x}: expected {wanted}, got {y}");
    }
}

/// `1 ± tanh x` is computed as one function: near the ends it is more accurate than tanh itself.
#[test]
fn one_and_tanh() {
    for (op, sign) in [("add %one, %h", 1.0), ("add %h, %one", 1.0), ("sub %one, %h", -1.0)] {
        let text = format!(
            "func @f(%x: view<[n], f32, read>, %y: view<[n], f32, write>) {{kind = group, grid = [1]}} {{
  %lo = tile.const {{value = 0}} : i64
  %c = tile.const {{value = 1.0}} : f32
  %one = tile.broadcast %c : tile<256xf32>
  %t = tile.load %x at(%lo) {{extent = [256]}} : tile<256xf32>
  %h = tile.tanh %t : tile<256xf32>
  %r = tile.{op} : tile<256xf32>
  tile.store %y, %r at(%lo) {{extent = [256]}}
  tile.return
}}"
        );
        let mut values: Vec<f64> = (-125..125).map(|i| f64::from(i) / 8.0).collect();
        values.extend([f64::INFINITY, -f64::INFINITY, f64::NAN, 100.0, -100.0, 1e-30]);
        let runs = Runs::new(text, vec![("n", 256)], [1, 1, 1]);
        let arrays = [plain(&[256], DType::F32, &values), plain(&[256], DType::F32, &[])];
        let (_, got, _) = runs.run(&arrays);
        for (x, y) in values.iter().zip(got.values()) {
            let wanted = 1.0 + sign * f64::from(*x as f32).tanh();
            let near = (y - wanted).abs() <= 2f64.powi(-21) || (y.is_nan() && wanted.is_nan());
            assert!(near, "{op} of {x}: expected {wanted}, got {y}");
        }
    }
}
