//! Barriers, shared memory, and group operations of lanes.

use super::harness::*;
use tessera_numerics::{DType, Profile, Scalar};

const GROUPS: [i64; 8] = [1, 5, 16, 32, 64, 100, 256, 1000];

/// The group's elements backwards, through shared memory.
const REVERSED: &str = "
func @reversed(%x: view<[n], DTYPE, read>, %y: view<[n], DTYPE, write>) {kind = lane} {
  %i = tile.linear_id : i64
  %l = tile.local_id : i64
  %b = tile.buf_alloc : buf<1000xDTYPE>
  %v = tile.load %x at(%i) {extent = [0]} : DTYPE
  tile.store %b, %v at(%l) {extent = [0]}
  tile.barrier
  %size = tile.group_size : i64
  %1 = tile.const {value = 1} : i64
  %last = tile.sub %size, %1 : i64
  %far = tile.sub %last, %l : i64
  %w = tile.load %b at(%far) {extent = [0]} : DTYPE
  tile.store %y, %w at(%i) {extent = [0]}
  tile.return
}";

#[test]
fn groups_are_reversed_in_shared_memory_of_every_dtype() {
    for &dtype in DType::ALL {
        let text = REVERSED.replace("DTYPE", &dtype.to_string());
        for lanes in [5, 256] {
            let n = 3 * lanes;
            let [x, y] = [1, 2].map(|seed| array(&[n], dtype, Layout::Rows, seed));
            Kernel::new(&text, lanes).check(&[x, y], n);
        }
    }
}

#[test]
fn what_was_never_written_to_shared_memory_reads_as_zero() {
    let kernel = Kernel::new(&REVERSED.replace("DTYPE", "i32"), 64);
    let [x, y] = [1, 2].map(|seed| array(&[70], DType::I32, Layout::Rows, seed));
    // The interpreter reports a fault.
    assert!(kernel.wanted(&[x.clone(), y.clone()], 70).unwrap_err().starts_with("E_UNINIT"));
    for way in &kernel.ways {
        let got = kernel.got(way, &[x.clone(), y.clone()], 70).unwrap();
        let Arg::Array(a) = &y else { unreachable!() };
        let last = &got[1][a.first + 4 * 64..][..4 * 6];
        assert!(last.iter().all(|b| *b == 0), "{last:?}");
    }
}

/// A tree reduction of the group in shared memory.
pub const TREE: &str = "
func @tree(%x: view<[n], f32, read>, %y: view<[n], f32, write>) {kind = lane} {
  %i = tile.linear_id : i64
  %l = tile.local_id : i64
  %b = tile.buf_alloc : buf<1024xf32>
  %c = tile.buf_alloc : buf<2x256xi32>
  %v = tile.load %x at(%i) {extent = [0]} : f32
  %0 = tile.const {value = 0} : i64
  %1 = tile.const {value = 1} : i64
  %2 = tile.const {value = 2} : i64
  %1024 = tile.const {value = 1024} : i64
  %zero = tile.const {value = 0.0} : f32
  %size = tile.group_size : i64
  tile.for %l, %1024, %size do (%k: i64) {
    tile.store %b, %zero at(%k) {extent = [0]}
    tile.yield
  }
  tile.barrier
  tile.store %b, %v at(%l) {extent = [0]}
  tile.barrier
  %512 = tile.const {value = 512} : i64
  %last = tile.while init(%512) : i64 do (%h: i64) {
    %go = tile.gt %h, %0 : bool
    tile.yield %go
  } do (%h2: i64) {
    %mine = tile.lt %l, %h2 : bool
    tile.if %mine do {
      %far = tile.add %l, %h2 : i64
      %p = tile.load %b at(%l) {extent = [0]} : f32
      %q = tile.load %b at(%far) {extent = [0]} : f32
      %s = tile.add %p, %q : f32
      tile.store %b, %s at(%l) {extent = [0]}
      tile.yield
    } do {
      tile.yield
    }
    tile.barrier
    %h3 = tile.floordiv %h2, %2 : i64
    tile.yield %h3
  }
  %sum = tile.load %b at(%last) {extent = [0]} : f32
  %mean = tile.div %v, %sum : f32
  tile.store %y, %mean at(%i) {extent = [0]}
  tile.return
}";

#[test]
fn a_tree_of_sums_in_shared_memory() {
    for lanes in GROUPS {
        let kernel = Kernel::new(TREE, lanes);
        for n in [lanes, 3 * lanes] {
            let [x, y] = [1, 2].map(|seed| array(&[n], DType::F32, Layout::Rows, seed));
            kernel.check(&[x, y], n);
        }
        // Arrays may end before the lanes do.
        let [x, y] = [1, 2].map(|seed| array(&[lanes], DType::F32, Layout::Rows, seed));
        kernel.check(&[x, y], 2 * lanes);
    }
}

/// Every group operation, on one dtype.
pub fn together(dtype: DType, ops: &[&str]) -> String {
    let mut body = String::new();
    for (k, op) in ops.iter().enumerate() {
        body.push_str(&format!(
            "%r{k} = tile.group_reduce %v {{op = {op}}} : {dtype}
             %s{k} = tile.group_scan %v {{op = {op}}} : {dtype}
             %e{k} = tile.group_scan %v {{op = {op}, exclusive = true}} : {dtype}
             %u{k} = tile.group_reduce %w {{op = {op}}} : {dtype}
             %d{k} = tile.group_scan %w {{op = {op}}} : {dtype}
             %b{k} = tile.group_broadcast %s{k}, %k : {dtype}
             %f{k} = tile.group_shuffle %e{k}, %at : {dtype}
             %g{k} = tile.group_shuffle %w, %at : {dtype}
"
        ));
        for (n, name) in ["r", "s", "e", "u", "d", "b", "f", "g"].into_iter().enumerate() {
            let row = 8 * k + n;
            body.push_str(&format!(
                "%c{name}{k} = tile.const {{value = {row}}} : i64
                 tile.store %y, %{name}{k} at(%c{name}{k}, %i) {{extent = [0, 0]}}\n"
            ));
        }
    }
    format!(
        "func @f(%x: view<[n], {dtype}, read>, %w: {dtype}, %ix: view<[n], i32, read>, %y: view<[{}, n], {dtype}, write>, %k: i64) {{kind = lane}} {{
           %i = tile.linear_id : i64
           %v = tile.load %x at(%i) {{extent = [0]}} : {dtype}
           %ix0 = tile.load %ix at(%i) {{extent = [0]}} : i32
           %at = tile.cast %ix0 : i64
           {body}
           tile.return
         }}",
        8 * ops.len()
    )
}

#[test]
fn reductions_scans_and_shuffles_of_the_group() {
    let cases: [(DType, Scalar, &[&str]); 8] = [
        (DType::F32, Scalar::F32(0.3), &["sum", "max"]),
        (DType::F64, Scalar::F64(-1.7), &["prod", "sum"]),
        (DType::I32, Scalar::I32(7), &["min", "xor"]),
        (DType::I32, Scalar::I32(-7), &["sum", "max", "prod"]),
        (DType::U32, Scalar::U32(7), &["and", "or", "min"]),
        (DType::I64, Scalar::I64(-3), &["sum", "max"]),
        (DType::Bool, Scalar::Bool(true), &["and", "or"]),
        (DType::Bool, Scalar::Bool(false), &["xor"]),
    ];
    for (dtype, w, ops) in cases {
        let text = together(dtype, ops);
        for (n, lanes) in
            [(1, 4), (16, 16), (70, 33), (257, 256), (300, 128), (63, 64), (200, 1), (1900, 1000)]
        {
            let kernel = Kernel::new(&text, lanes);
            let x = array(&[n], dtype, Layout::Rows, 5);
            let order: Vec<i32> = (0..n as i32).map(|i| (i * 31) % 70 - 3).collect();
            let y = array(&[8 * ops.len() as i64, n], dtype, Layout::Rows, 6);
            for k in [0, 3, 100, -1] {
                let args = [x.clone(), Arg::Scalar(w), ints(&order), y.clone(), scalar(k as i64)];
                // Any order of additions is allowed in the default profile.
                match dtype.is_float() {
                    true => kernel.check_strict(&args, n),
                    false => kernel.check(&args, n),
                }
            }
        }
    }
}

#[test]
fn sums_of_floats_in_the_default_profile_are_close() {
    let text = together(DType::F32, &["sum"]);
    let kernel = Kernel::new(&text, 256);
    let n = 600;
    let ones: Vec<f32> = (0..n).map(|i| ((i * 37) % 101) as f32).collect();
    let x = filled(DType::F32, &ones, |v| v.to_le_bytes().to_vec());
    let order: Vec<i32> = (0..n).collect();
    let y = array(&[8, n as i64], DType::F32, Layout::Rows, 6);
    // Integers do not round.
    let args = [x, scalar(2.0f32), ints(&order), y, scalar(3i64)];
    assert!(kernel.ways.iter().any(|w| w.profile == Profile::Default));
    kernel.check(&args, n as i64);
}

/// Group operations in loops and branches that all lanes take, on values that only some change.
#[test]
fn group_operations_in_loops_and_branches_of_all_lanes() {
    let text = "
func @f(%x: view<[n], i32, read>, %y: view<[n], i32, write>, %k: i64) {kind = lane} {
  %i = tile.linear_id : i64
  %l = tile.local_id : i64
  %0 = tile.const {value = 0} : i64
  %1 = tile.const {value = 1} : i64
  %2 = tile.const {value = 2} : i64
  %v = tile.load %x at(%i) {extent = [0]} : i32
  %b = tile.buf_alloc : buf<300xi32>
  %top = tile.load %x at(%0) {extent = [0]} : i32
  %s = tile.for %0, %k, %1 init(%v) : i32 do (%j: i64, %a: i32) {
    %odd = tile.mod %j, %2 : i64
    %c = tile.eq %odd, %1 : bool
    %r = tile.if %c : i32 do {
      %m = tile.group_reduce %a {op = max} : i32
      %t = tile.group_scan %a {op = sum} : i32
      %u = tile.sub %t, %m : i32
      tile.yield %u
    } do {
      %far = tile.add %l, %j : i64
      %w = tile.group_shuffle %a, %far : i32
      %first = tile.group_broadcast %a, %j : i32
      tile.store %b, %w at(%l) {extent = [0]}
      tile.barrier
      %near = tile.sub %l, %1 : i64
      %q = tile.load %b at(%near) {extent = [0]} : i32
      tile.barrier
      %low = tile.gt %a, %top : bool
      %z = tile.if %low : i32 do {
        %z1 = tile.add %q, %first : i32
        tile.yield %z1
      } do {
        tile.yield %w
      }
      tile.yield %z
    }
    %d = tile.sub %r, %a : i32
    tile.yield %d
  }
  tile.store %y, %s at(%i) {extent = [0]}
  tile.return
}";
    for lanes in [1, 7, 32, 65, 256] {
        let kernel = Kernel::new(text, lanes);
        for n in [1, lanes, 2 * lanes + 1] {
            for k in [0, 1, 5] {
                let [x, y] = [1, 2].map(|seed| array(&[n], DType::I32, Layout::Rows, seed));
                kernel.check(&[x, y, scalar(k as i64)], n);
            }
        }
    }
}

pub const HISTOGRAM: &str = "
func @histogram(%x: view<[n], i32, read>, %bins: view<[b], i32, read_write>) {kind = lane} {
  %i = tile.linear_id : i64
  %counts = tile.buf_alloc : buf<64xi32>
  %l = tile.local_id : i64
  %B = tile.dim {name = b} : i64
  %L = tile.group_size : i64
  tile.for %l, %B, %L do (%k: i64) {
    %z = tile.const {value = 0} : i32
    tile.store %counts, %z at(%k) {extent = [0]}
    tile.yield
  }
  tile.barrier
  %N = tile.dim {name = n} : i64
  %c = tile.lt %i, %N : bool
  tile.if %c do {
    %v = tile.load %x at(%i) {extent = [0]} : i32
    %b = tile.cast %B : i32
    %r = tile.mod %v, %b : i32
    %at = tile.cast %r : i64
    %one = tile.const {value = 1} : i32
    %old = tile.atomic %counts, %one at(%at) {op = add} : i32
    tile.yield
  } do {
    tile.yield
  }
  tile.barrier
  tile.for %l, %B, %L do (%k2: i64) {
    %sum = tile.load %counts at(%k2) {extent = [0]} : i32
    %was = tile.atomic %bins, %sum at(%k2) {op = add} : i32
    tile.yield
  }
  tile.return
}";

#[test]
fn histograms_in_shared_memory() {
    for lanes in [1, 33, 64, 256] {
        let kernel = Kernel::new(HISTOGRAM, lanes);
        for (n, b) in [(5, 3), (700, 64), (1000, 17)] {
            let x = array(&[n], DType::I32, Layout::Rows, 1);
            let bins = array(&[b], DType::I32, Layout::Rows, 2);
            let whole = (n + lanes - 1) / lanes * lanes;
            kernel.check(&[x, bins], whole);
        }
    }
}

#[test]
fn atomics_of_every_kind_in_shared_memory() {
    for &dtype in DType::ALL {
        let c = dtype.compute();
        for op in tessera_tile::ops::atomic::OPS {
            let combine = tessera_tile::ops::atomic::combine(op);
            if combine.is_some_and(|f| !f.accepts(c)) {
                continue;
            }
            let (given, expected) = match op {
                "exchange" => (dtype, ""),
                "cas" => (dtype, " expected(%e)"),
                _ => (c, ""),
            };
            let cast = match dtype == given {
                true => format!("%v = tile.select %yes, %a, %a : {given}"),
                false => format!("%v = tile.cast %a : {given}"),
            };
            let kernel = Kernel::new(
                &format!(
                    "func @f(%x: view<[n], {dtype}, read>, %h: view<[n], {dtype}, read>, %o: view<[n], {dtype}, write>, %p: view<[n], {dtype}, write>, %k: i64) {{kind = lane}} {{
                       %i = tile.linear_id : i64
                       %l = tile.local_id : i64
                       %yes = tile.const {{value = true}} : bool
                       %0 = tile.const {{value = 0}} : i64
                       %b = tile.buf_alloc : buf<35x{dtype}>
                       %h0 = tile.load %h at(%i) {{extent = [0]}} : {dtype}
                       tile.store %b, %h0 at(%l) {{extent = [0]}}
                       tile.barrier
                       %e = tile.load %h at(%0) {{extent = [0]}} : {dtype}
                       %a = tile.load %x at(%i) {{extent = [0]}} : {dtype}
                       {cast}
                       %j = tile.sub %k, %l : i64
                       %old = tile.atomic %b, %v at(%j){expected} {{op = {op}}} : {dtype}
                       tile.store %o, %old at(%i) {{extent = [0]}}
                       tile.barrier
                       %new = tile.load %b at(%l) {{extent = [0]}} : {dtype}
                       tile.store %p, %new at(%i) {{extent = [0]}}
                       tile.return
                     }}"
                ),
                33,
            );
            let all = [1, 2, 3, 4].map(|seed| array(&[66], dtype, Layout::Rows, seed));
            let [x, h, o, p] = all;
            kernel.check(&[x, h, o, p, scalar(30i64)], 66);
        }
    }
}

/// Two axes, positions outside, and a fold.
#[test]
fn buffers_of_two_axes_are_held_against_their_extents() {
    let kernel = Kernel::new(
        "func @f(%x: view<[n], i16, read>, %y: view<[n], i16, write>, %k: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %l = tile.local_id : i64
           %8 = tile.const {value = 8} : i64
           %b = tile.buf_alloc {alignment = 128} : buf<8x8xi16>
           %v = tile.load %x at(%i) {extent = [0]} : i16
           %r = tile.floordiv %l, %8 : i64
           %c = tile.mod %l, %8 : i64
           tile.store %b, %v at(%r, %c) {extent = [0, 0]}
           tile.barrier
           %cs = tile.add %c, %k : i64
           %w = tile.load %b at(%cs, %r) other(%v) {extent = [0, 0]} : i16
           tile.barrier
           %w32 = tile.cast %w : i32
           tile.accumulate %b, %w32 at(%r, %c) {op = sum, extent = [0, 0]}
           %z = tile.load %b at(%r, %c) {extent = [0, 0]} : i16
           tile.store %y, %z at(%i) {extent = [0]}
           tile.return
         }",
        64,
    );
    for k in [0, 1, -3, 100, i64::MIN] {
        let [x, y] = [1, 2].map(|seed| array(&[128], DType::I16, Layout::Rows, seed));
        kernel.check(&[x, y, scalar(k)], 128);
    }
}

#[test]
fn too_many_lanes_that_synchronise_are_refused() {
    let kernel = Kernel::new(&REVERSED.replace("DTYPE", "f32"), 2000);
    let [x, y] = [1, 2].map(|seed| array(&[10], DType::F32, Layout::Rows, seed));
    let why = kernel.got(&kernel.ways[0], &[x, y], 10).unwrap_err();
    assert_eq!(
        why.split(" [").next(),
        Some(
            "E_UNSUPPORTED expected at most 1024 lanes in a group whose lanes synchronise, got 2000"
        )
    );
}
