//! Barriers, shared memory, and collective operations of a group's lanes.

use super::harness::{Arg, Kernel, Layout, array, ints};
use tessera_numerics::{DType, Scalar};

const LANES: [i64; 6] = [1, 5, 16, 64, 100, 256];

/// A sum of the group in shared memory, halving the lanes that add.
const TREE: &str = "
func @tree(%x: view<[n], f32, read>, %y: view<[n], f32, write>) {kind = lane} {
  %i = tile.linear_id : i64
  %l = tile.local_id : i64
  %b = tile.buf_alloc : buf<256xf32>
  %c = tile.buf_alloc : buf<2x256xi32>
  %v = tile.load %x at(%i) {extent = [0]} : f32
  %0 = tile.const {value = 0} : i64
  %1 = tile.const {value = 1} : i64
  %2 = tile.const {value = 2} : i64
  %256 = tile.const {value = 256} : i64
  %zero = tile.const {value = 0.0} : f32
  %size = tile.group_size : i64
  tile.for %l, %256, %size do (%k: i64) {
    tile.store %b, %zero at(%k) {extent = [0]}
    tile.yield
  }
  tile.barrier
  tile.store %b, %v at(%l) {extent = [0]}
  tile.barrier
  %128 = tile.const {value = 128} : i64
  %last = tile.while init(%128) : i64 do (%h: i64) {
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
    let kernel = Kernel::new(TREE);
    for n in [0, 1, 16, 257, 1000] {
        for lanes in LANES {
            let x = array(&[n], DType::F32, Layout::Rows, n as u64);
            let y = array(&[n], DType::F32, Layout::Rows, 2);
            // Some lanes of the last group may not be there to clear their part.
            let _ = kernel.both(&[x.clone(), y.clone()], n, lanes);
            let whole = (n + lanes - 1) / lanes * lanes;
            kernel.check(&[x, y], whole, lanes).unwrap();
        }
    }
}

/// Everything that lanes do together, on one dtype.
fn together(dtype: DType, ops: &[&str]) -> String {
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
    let cases: [(DType, Scalar, &[&str]); 5] = [
        (DType::F32, Scalar::F32(0.3), &["sum", "max"]),
        (DType::F64, Scalar::F64(-1.7), &["prod"]),
        (DType::I32, Scalar::I32(7), &["min", "xor"]),
        (DType::I64, Scalar::I64(-3), &["sum"]),
        (DType::Bool, Scalar::Bool(true), &["and"]),
    ];
    for (dtype, w, ops) in cases {
        let kernel = Kernel::new(&together(dtype, ops));
        for (n, lanes) in [(1, 4), (16, 16), (70, 33), (257, 256), (300, 128), (63, 64), (200, 1)] {
            let x = array(&[n], dtype, Layout::Rows, 5);
            let order: Vec<i32> = (0..n as i32).map(|i| (i * 31) % 70 - 3).collect();
            let y = array(&[8 * ops.len() as i64, n], dtype, Layout::Rows, 6);
            for k in [0, 3, 100, -1] {
                let k = Arg::Scalar(Scalar::I64(k));
                let args = [x.clone(), Arg::Scalar(w), ints(&order), y.clone(), k];
                kernel.check(&args, n, lanes).unwrap();
            }
        }
    }
}

const HISTOGRAM: &str = "
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
  tile.for %l, %B, %L do (%k1: i64) {
    %m = tile.load %counts at(%k1) {extent = [0]} : i32
    %old1 = tile.atomic %bins, %m at(%k1) {op = add} : i32
    tile.yield
  }
  tile.return
}";

#[test]
fn a_histogram_in_shared_memory() {
    let kernel = Kernel::new(HISTOGRAM);
    for (n, lanes, b) in [(1, 16, 5), (100, 32, 64), (1000, 256, 7), (500, 64, 33)] {
        let x = array(&[n], DType::I32, Layout::Rows, 1);
        let bins = array(&[b], DType::I32, Layout::Rows, 2);
        let whole = (n + lanes - 1) / lanes * lanes;
        kernel.check(&[x, bins], whole, lanes).unwrap();
    }
}

#[test]
fn lanes_that_do_not_all_come_to_a_barrier_are_an_error() {
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
        let kernel = Kernel::new(&text(what));
        for (k, good) in
            [(40, true), (64, true), (0, true), (39, false), (1, false), (16, false), (24, false)]
        {
            let x = array(&[40], DType::I64, Layout::Rows, 1);
            let result = kernel.check(&[x, Arg::Scalar(Scalar::I64(k))], 40, 20);
            assert_eq!(result.is_ok(), good || k == 20, "{what} {k} {result:?}");
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
  %t = tile.while init(%z, %zero) : f32, i64 do (%p: f32, %q: i64) {
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

#[test]
fn loops_around_barriers_carry_values_of_each_lane() {
    let kernel = Kernel::new(&ROUNDS.replace("%t = tile.while", "%t, %tq = tile.while"));
    for (n, lanes) in [(1, 1), (64, 64), (128, 32), (20, 20), (51, 17)] {
        for rounds in [0, 1, 3] {
            let x = array(&[n], DType::F32, Layout::Rows, 1);
            let Arg::Array(mut r) = array(&[1], DType::I64, Layout::Rows, 1) else {
                unreachable!()
            };
            let at = r.first;
            r.bytes[at..at + 8].copy_from_slice(&i64::to_le_bytes(rounds));
            let y = array(&[n], DType::F32, Layout::Rows, 2);
            kernel.check(&[x, Arg::Array(r), y], n, lanes).unwrap();
        }
    }
}

/// Lanes that part around group operations only they would need: an error once one is reached.
#[test]
fn rounds_that_differ_are_an_error_at_the_barrier() {
    let kernel = Kernel::new(
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
    for (differ, good) in [(false, true), (true, false)] {
        let Arg::Array(mut r) = array(&[40], DType::I64, Layout::Rows, 1) else { unreachable!() };
        for i in 0..40 {
            let rounds: i64 = if differ && i == 33 { 3 } else { 4 };
            let at = r.first + 8 * i;
            r.bytes[at..at + 8].copy_from_slice(&rounds.to_le_bytes());
        }
        let y = array(&[40], DType::I64, Layout::Rows, 2);
        let result = kernel.check(&[Arg::Array(r), y], 40, 20);
        assert_eq!(result.is_ok(), good, "{result:?}");
    }
}
