//! Barriers, shared memory, and group operations of lanes.

use crate::harness::*;
use crate::{Case, Failure};
use tessera_numerics::{DType, Rounding, Scalar, decode, encode};

const GROUPS: [i64; 8] = [1, 5, 16, 32, 64, 100, 256, 1000];

/// The group's elements backwards, through shared memory.
pub const REVERSED: &str = "
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

pub fn groups_are_reversed_in_shared_memory_of_every_dtype(case: &Case) {
    for (d, &dtype) in DType::ALL.iter().enumerate() {
        let kernel = case.kernel(&REVERSED.replace("DTYPE", &dtype.to_string())).rotate(5 * d);
        for lanes in [5, 256] {
            let n = 3 * lanes;
            let [x, y] = arrays(&[n], dtype, Layout::Rows);
            let got = kernel.check(&[x.clone(), y.clone()], n, lanes);
            let (x, y) = (x.array().unwrap(), y.array().unwrap());
            // What is stored saturates as a cast does.
            let saturate = dtype.saturates_by_default();
            let stored = |code| encode(dtype, decode(dtype, code), Rounding::Rne, saturate);
            let mut groups: Vec<_> = x.codes(&x.bytes).into_iter().map(stored).collect();
            groups.chunks_mut(lanes as usize).for_each(<[u64]>::reverse);
            for (wanted, got) in groups.into_iter().zip(y.codes(&got[1])) {
                let both_nan = is_nan(dtype, wanted) && is_nan(dtype, got);
                assert!(wanted == got || both_nan, "{dtype} {wanted:#x} {got:#x}");
            }
        }
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

pub fn a_tree_of_sums_in_shared_memory(case: &Case) {
    let kernel = case.kernel(TREE);
    for lanes in GROUPS {
        // Arrays may end before the lanes do.
        for n in [0, 1, 16, 257, lanes, 3 * lanes] {
            let [x, y] = arrays(&[n], DType::F32, Layout::Rows);
            let whole = (n + lanes - 1) / lanes * lanes;
            kernel.check(&[x.clone(), y.clone()], whole, lanes);
            // Lanes of the last group that do not exist clear nothing: what is read is not defined.
            for variant in kernel.variants(lanes).iter() {
                let got = variant.run(&[x.clone(), y.clone()], n, lanes);
                assert!(!matches!(got, Err(Failure::Fault(_))), "{got:?}");
            }
        }
        let [x, y] = arrays(&[lanes], DType::F32, Layout::Rows);
        kernel.check(&[x, y], 2 * lanes, lanes);
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

pub fn reductions_scans_and_shuffles_of_the_group(case: &Case) {
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
    for (number, (dtype, w, ops)) in cases.into_iter().enumerate() {
        let kernel = case.kernel(&together(dtype, ops)).rotate(5 * number);
        for (n, lanes) in
            [(1, 4), (16, 16), (70, 33), (257, 256), (300, 128), (63, 64), (200, 1), (1900, 1000)]
        {
            let x = array(&[n], dtype, Layout::Rows, 5);
            let order: Vec<i32> = (0..n as i32).map(|i| (i * 31) % 70 - 3).collect();
            let y = array(&[8 * ops.len() as i64, n], dtype, Layout::Rows, 6);
            for k in [0, 3, 100, -1] {
                let args = [x.clone(), Arg::Scalar(w), ints(&order), y.clone(), scalar(k as i64)];
                // Any order of additions is allowed where none is promised.
                kernel.check_where(&args, n, lanes, |v| !dtype.is_float() || v.promises.sum_order);
            }
        }
    }
}

pub fn sums_of_floats_in_the_default_profile_are_close(case: &Case) {
    let text = together(DType::F32, &["sum"]);
    let kernel = case.kernel(&text);
    let n = 600;
    let ones: Vec<f32> = (0..n).map(|i| ((i * 37) % 101) as f32).collect();
    let x = floats(&ones);
    let order: Vec<i32> = (0..n).collect();
    let y = array(&[8, n as i64], DType::F32, Layout::Rows, 6);
    // Integers do not round.
    let args = [x, scalar(2.0f32), ints(&order), y, scalar(3i64)];
    kernel.check(&args, n as i64, 256);
}

/// Group operations in loops and branches that all lanes take, on values that only some change.
pub fn group_operations_in_loops_and_branches_of_all_lanes(case: &Case) {
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
    let kernel = case.kernel(text);
    for lanes in [1, 7, 32, 65, 256] {
        for n in [1, lanes, 2 * lanes + 1] {
            for k in [0, 1, 5] {
                let [x, y] = [1, 2].map(|seed| array(&[n], DType::I32, Layout::Rows, seed));
                kernel.check(&[x, y, scalar(k as i64)], n, lanes);
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

pub fn histograms_in_shared_memory(case: &Case) {
    let kernel = case.kernel(HISTOGRAM);
    for lanes in [1, 16, 32, 33, 64, 256] {
        for (n, b) in [(1, 5), (5, 3), (700, 64), (1000, 17), (500, 33)] {
            let x = array(&[n], DType::I32, Layout::Rows, 1);
            let bins = array(&[b], DType::I32, Layout::Rows, 2);
            let got =
                kernel.check(&[x.clone(), bins.clone()], (n + lanes - 1) / lanes * lanes, lanes);
            let (x, bins) = (x.array().unwrap(), bins.array().unwrap());
            let mut counts = bins.codes(&bins.bytes);
            for v in x.codes(&x.bytes) {
                let bin = &mut counts[i64::from(v as i32).rem_euclid(b) as usize];
                *bin = u64::from((*bin as u32).wrapping_add(1));
            }
            assert_eq!(counts, bins.codes(&got[1]));
        }
    }
}

pub fn atomics_of_every_kind_in_shared_memory(case: &Case) {
    for (d, &dtype) in DType::ALL.iter().enumerate() {
        let c = dtype.compute();
        for (number, op) in tessera_tile::ops::atomic::OPS.into_iter().enumerate() {
            let combine = tessera_tile::ops::atomic::combine(op);
            if combine.is_some_and(|f| !f.accepts(c)) || case.skips(5 * d + number) {
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
            let kernel = case.kernel(&format!(
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
                )).rotate(5 * d + number);
            let all = [1, 2, 3, 4].map(|seed| array(&[66], dtype, Layout::Rows, seed));
            let [x, h, o, p] = all;
            kernel.check(&[x, h, o, p, scalar(30i64)], 66, 33);
        }
    }
}

/// Two axes, positions outside, and a fold.
pub fn buffers_of_two_axes_are_held_against_their_extents(case: &Case) {
    let kernel = case.kernel(
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
    );
    for k in [0, 1, -3, 100, i64::MIN] {
        let [x, y] = [1, 2].map(|seed| array(&[128], DType::I16, Layout::Rows, seed));
        kernel.check(&[x, y, scalar(k)], 128, 64);
    }
}

pub fn groups_of_2000_lanes_synchronise(case: &Case) {
    let kernel = case.kernel(&REVERSED.replace("DTYPE", "f32").replace("1000x", "2000x"));
    let [x, y] = arrays(&[4000], DType::F32, Layout::Rows);
    kernel.check(&[x, y], 4000, 2000);
}

pub fn lanes_that_do_not_all_come_to_a_barrier_are_an_error(case: &Case) {
    let text = |what: &str| {
        format!(
            "func @f(%x: view<[n], i64, write>, %k: i64) {{kind = lane}} {{
               %i = tile.linear_id : i64
               %c = tile.lt %i, %k : bool
               %r = tile.if %c : i64 do {{
                 {what}
                 tile.store %x, %i at(%i) {{extent = [0]}}
                 tile.yield %i
               }} do {{
                 %m = tile.mul %i, %k : i64
                 tile.yield %m
               }}
               tile.store %x, %r at(%i) {{extent = [0]}}
               tile.return
             }}"
        )
    };
    for what in ["tile.barrier", "%s = tile.group_reduce %i {op = sum} : i64"] {
        let kernel = case.kernel(&text(what));
        let x = array(&[40], DType::I64, Layout::Rows, 1);
        for k in [40i64, 64, 0, 20] {
            kernel.check(&[x.clone(), scalar(k)], 40, 20);
        }
        // The second group has lanes in one of its warps only.
        let long = array(&[100], DType::I64, Layout::Rows, 1);
        for k in [100i64, 96, 0] {
            kernel.check(&[long.clone(), scalar(k)], 100, 96);
        }
        for k in [39i64, 1, 16, 24] {
            let errors =
                kernel.compare(&[x.clone(), scalar(k)], 40, 20, |v| v.promises.exact_errors);
            assert!(errors.is_err(), "{what} {k}");
        }
    }
}

/// Loops around barriers whose rounds differ by lane in form only, and carried values that lanes
/// change apart from each other.
const ROUNDS: &str = "
func @rounds(%x: view<[n], f32, read>, %r: view<[m], i64, read>, %y: view<[n], f32, write>) {kind = lane} {
  %i = tile.linear_id : i64
  %l = tile.local_id : i64
  %b = tile.buf_alloc : buf<64xf32>
  %0 = tile.const {value = 0} : i64
  %1 = tile.const {value = 1} : i64
  %64 = tile.const {value = 64} : i64
  %v = tile.load %x at(%i) {extent = [0]} : f32
  %zero = tile.mul %l, %0 : i64
  %count = tile.load %r at(%zero) {extent = [0]} : i64
  %half = tile.const {value = 0.5} : f32
  %s, %w = tile.for %zero, %count, %1 init(%v, %half) : f32, f32 do (%k: i64, %a: f32, %c: f32) {
    tile.store %b, %a at(%l) {extent = [0]}
    tile.barrier
    %n1 = tile.add %l, %k : i64
    %n2 = tile.add %n1, %1 : i64
    %L = tile.group_size : i64
    %n3 = tile.mod %n2, %L : i64
    %other = tile.load %b at(%n3) {extent = [0]} : f32
    %d = tile.gt %other, %a : bool
    %e, %f = tile.if %d : f32, f32 do {
      %g = tile.mul %other, %c : f32
      tile.yield %g, %a
    } do {
      %h = tile.add %a, %other : f32
      tile.yield %c, %h
    }
    tile.barrier
    tile.yield %f, %e
  }
  %z = tile.add %s, %w : f32
  %t, %tq = tile.while init(%z, %zero) : f32, i64 do (%p: f32, %q: i64) {
    %go = tile.lt %q, %count : bool
    tile.yield %go
  } do (%p2: f32, %q2: i64) {
    %sum = tile.group_reduce %p2 {op = max} : f32
    %p3 = tile.sub %p2, %sum : f32
    %q3 = tile.add %q2, %1 : i64
    tile.yield %p3, %q3
  }
  tile.store %y, %t at(%i) {extent = [0]}
  tile.return
}";

pub fn loops_around_barriers_carry_values_of_each_lane(case: &Case) {
    let kernel = case.kernel(ROUNDS);
    for (n, lanes) in [(1, 1), (64, 64), (128, 32), (20, 20), (51, 17)] {
        for rounds in [0, 1, 3] {
            let x = array(&[n], DType::F32, Layout::Rows, 1);
            let y = array(&[n], DType::F32, Layout::Rows, 2);
            kernel.check(&[x, longs(&[rounds]), y], n, lanes);
        }
    }
}

/// Lanes that part around group operations only they would need: an error once one is reached.
pub fn rounds_that_differ_are_an_error_at_the_barrier(case: &Case) {
    let kernel = case.kernel(
        "func @f(%r: view<[n], i64, read>, %y: view<[n], i64, read_write>) {kind = lane} {
           %i = tile.linear_id : i64
           %0 = tile.const {value = 0} : i64
           %1 = tile.const {value = 1} : i64
           %count = tile.load %r at(%i) {extent = [0]} : i64
           %t = tile.for %0, %count, %1 init(%0) : i64 do (%k: i64, %a: i64) {
             tile.barrier
             %b = tile.add %a, %k : i64
             tile.yield %b
           }
           tile.store %y, %t at(%i) {extent = [0]}
           tile.return
         }",
    );
    let y = array(&[40], DType::I64, Layout::Rows, 2);
    kernel.check(&[longs(&[4; 40]), y.clone()], 40, 20);
    let mut counts = [4; 40];
    counts[33] = 3;
    let errors = kernel.compare(&[longs(&counts), y], 40, 20, |v| v.promises.exact_errors);
    assert!(errors.is_err());
}
