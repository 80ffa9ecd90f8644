//! Lanes of two and three axes: ids, partial groups along each axis, memory, group operations.

use super::groups::together;
use crate::harness::*;
use crate::{Case, Failure};
use tessera_numerics::{DType, Scalar};

/// Groups along each axis: rows shorter than a vector, as long, longer, and not a multiple.
const SHAPES: [[i64; 2]; 7] = [[4, 8], [1, 16], [16, 1], [3, 20], [16, 16], [5, 33], [2, 64]];

/// Every id of every lane, in rows of an array.
const IDS: &str = "
func @ids(%y: view<[8, m, n], i64, write>) {kind = lane, lanes = LANES} {
  %i = tile.linear_id {axis = 0} : i64
  %j = tile.linear_id {axis = 1} : i64
  %a = tile.local_id {axis = 0} : i64
  %b = tile.local_id {axis = 1} : i64
  %l = tile.local_id : i64
  %p = tile.program_id {axis = 0} : i64
  %q = tile.program_id {axis = 1} : i64
  %0 = tile.const {value = 0} : i64
  %1 = tile.const {value = 1} : i64
  %2 = tile.const {value = 2} : i64
  %3 = tile.const {value = 3} : i64
  %4 = tile.const {value = 4} : i64
  %5 = tile.const {value = 5} : i64
  %6 = tile.const {value = 6} : i64
  %7 = tile.const {value = 7} : i64
  %g = tile.num_programs {axis = 1} : i64
  %s = tile.group_size : i64
  %gs = tile.mul %g, %s : i64
  tile.store %y, %i at(%0, %i, %j) {extent = [0, 0, 0]}
  tile.store %y, %j at(%1, %i, %j) {extent = [0, 0, 0]}
  tile.store %y, %a at(%2, %i, %j) {extent = [0, 0, 0]}
  tile.store %y, %b at(%3, %i, %j) {extent = [0, 0, 0]}
  tile.store %y, %l at(%4, %i, %j) {extent = [0, 0, 0]}
  tile.store %y, %p at(%5, %i, %j) {extent = [0, 0, 0]}
  tile.store %y, %q at(%6, %i, %j) {extent = [0, 0, 0]}
  tile.store %y, %gs at(%7, %i, %j) {extent = [0, 0, 0]}
  tile.return
}";

pub fn ids_know_their_axes(case: &Case) {
    for by in SHAPES {
        let kernel = case.kernel(&IDS.replace("LANES", &format!("{by:?}")));
        for [m, n] in
            [[1, 1], [0, 5], [5, 0], [by[0], by[1]], [2 * by[0] + 1, 3 * by[1] - 1], [7, 40]]
        {
            let y = array(&[8, m, n], DType::I64, Layout::Rows, 1);
            let got = kernel.check(std::slice::from_ref(&y), [m, n], by);
            let y = y.array().unwrap();
            let ids = y.codes(&got[0]);
            let groups = (n + by[1] - 1) / by[1];
            for (place, &id) in (0..).zip(&ids) {
                let (which, i, j) = (place / (m * n), place / n % m, place % n);
                let (a, b) = (i % by[0], j % by[1]);
                let all = [i, j, a, b, a * by[1] + b, i / by[0], j / by[1], groups * by[0] * by[1]];
                assert_eq!(id as i64, all[which as usize], "{by:?} {m}x{n} {which} ({i}, {j})");
            }
        }
    }
}

/// The mean of the neighbours, with positions outside, a guard and a loop over rows.
const STENCIL: &str = "
func @stencil(%x: view<[m, n], f32, read>, %y: view<[m, n], f32, write>) {kind = lane, lanes = LANES} {
  %i = tile.linear_id {axis = 0} : i64
  %j = tile.linear_id {axis = 1} : i64
  %M = tile.dim {name = m} : i64
  %N = tile.dim {name = n} : i64
  %1 = tile.const {value = 1} : i64
  %2 = tile.const {value = 2} : i64
  %ci = tile.lt %i, %M : bool
  %cj = tile.lt %j, %N : bool
  %c = tile.and %ci, %cj : bool
  tile.if %c do {
    %zero = tile.const {value = 0.0} : f32
    %from = tile.sub %i, %1 : i64
    %to = tile.add %i, %2 : i64
    %s = tile.for %from, %to, %1 init(%zero) : f32 do (%k: i64, %a: f32) {
      %left = tile.sub %j, %1 : i64
      %right = tile.add %j, %1 : i64
      %u = tile.load %x at(%k, %left) {extent = [0, 0]} : f32
      %v = tile.load %x at(%k, %j) {extent = [0, 0]} : f32
      %w = tile.load %x at(%k, %right) {extent = [0, 0]} : f32
      %b = tile.add %a, %u : f32
      %d = tile.fma %v, %v, %b : f32
      %e = tile.add %d, %w : f32
      tile.yield %e
    }
    tile.store %y, %s at(%i, %j) {extent = [0, 0]}
    tile.yield
  } do {
    tile.yield
  }
  tile.return
}";

pub fn stencils_of_any_size_and_layout(case: &Case) {
    for (number, by) in SHAPES.into_iter().enumerate() {
        let kernel = case.kernel(&STENCIL.replace("LANES", &format!("{by:?}"))).rotate(5 * number);
        for (m, n) in [(1, 1), (9, 35), (16, 64), (33, 17), (3, 200)] {
            for layout in LAYOUTS {
                let [x, y] = arrays(&[m, n], DType::F32, layout);
                kernel.check(&[x.clone(), y.clone()], [m, n], by);
                // More lanes than elements, which the guard leaves out.
                kernel.check(&[x, y], [m + 3, n + 5], by);
            }
        }
    }
}

/// A group's elements transposed in shared memory; lanes outside the array leave a value.
const TURNED: &str = "
func @turned(%x: view<[m, n], f32, read>, %y: view<[n, m], f32, write>) {kind = lane, lanes = [16, 16]} {
  %b = tile.buf_alloc : buf<16x17xf32>
  %i = tile.linear_id {axis = 0} : i64
  %j = tile.linear_id {axis = 1} : i64
  %r = tile.local_id {axis = 0} : i64
  %c = tile.local_id {axis = 1} : i64
  %v = tile.load %x at(%i, %j) {extent = [0, 0]} : f32
  tile.store %b, %v at(%r, %c) {extent = [0, 0]}
  tile.barrier
  %p = tile.program_id {axis = 0} : i64
  %q = tile.program_id {axis = 1} : i64
  %16 = tile.const {value = 16} : i64
  %p16 = tile.mul %p, %16 : i64
  %q16 = tile.mul %q, %16 : i64
  %to = tile.add %q16, %r : i64
  %at = tile.add %p16, %c : i64
  %w = tile.load %b at(%c, %r) {extent = [0, 0]} : f32
  tile.store %y, %w at(%to, %at) {extent = [0, 0]}
  tile.return
}";

pub fn groups_are_transposed_in_shared_memory(case: &Case) {
    let kernel = case.kernel(TURNED);
    for (m, n) in [(16, 16), (48, 32), (32, 80)] {
        let x = array(&[m, n], DType::F32, Layout::Rows, 1);
        let y = array(&[n, m], DType::F32, Layout::Rows, 2);
        let got = kernel.check(&[x.clone(), y.clone()], [m, n], [16, 16]);
        let (x, y) = (x.array().unwrap(), y.array().unwrap());
        let (from, to) = (x.codes(&x.bytes), y.codes(&got[1]));
        for (place, &got) in to.iter().enumerate() {
            let (i, j) = (place % m as usize, place / m as usize);
            let wanted = from[i * n as usize + j];
            let both_nan = is_nan(DType::F32, wanted) && is_nan(DType::F32, got);
            assert!(wanted == got || both_nan);
        }
    }
}

/// Group operations go by the number of a lane in its group, and lanes outside give the identity.
pub fn group_operations_of_partial_groups(case: &Case) {
    let cases: [(DType, Scalar, &[&str]); 6] = [
        (DType::F32, Scalar::F32(0.3), &["sum", "max"]),
        (DType::F64, Scalar::F64(-1.7), &["prod", "sum"]),
        (DType::I32, Scalar::I32(-7), &["sum", "min", "xor"]),
        (DType::U32, Scalar::U32(7), &["and", "or"]),
        (DType::I64, Scalar::I64(-3), &["max"]),
        (DType::Bool, Scalar::Bool(true), &["and", "xor"]),
    ];
    for (number, (dtype, w, ops)) in cases.into_iter().enumerate() {
        for (k, (by, m, n)) in [
            ([4, 8], 6, 13),
            ([8, 4], 9, 9),
            ([16, 16], 20, 19),
            ([3, 20], 3, 41),
            ([2, 64], 5, 70),
        ]
        .into_iter()
        .enumerate()
        .filter(|(k, _)| (number + k) % 3 == 0)
        {
            // One array index for both axes.
            let text = together(dtype, ops)
                .replace("{kind = lane}", &format!("{{kind = lane, lanes = {by:?}}}"))
                .replace(
                    "%i = tile.linear_id : i64",
                    &format!(
                        "%i0 = tile.linear_id {{axis = 0}} : i64
                         %i1 = tile.linear_id {{axis = 1}} : i64
                         %wide = tile.const {{value = {n}}} : i64
                         %m0 = tile.mul %i0, %wide : i64
                         %i = tile.add %m0, %i1 : i64"
                    ),
                );
            let kernel = case.kernel(&text).rotate(5 * number + k);
            let all = m * n;
            let x = array(&[all], dtype, Layout::Rows, 5);
            let order: Vec<i32> = (0..all as i32).map(|i| (i * 31) % 140 - 3).collect();
            let y = array(&[8 * ops.len() as i64, all], dtype, Layout::Rows, 6);
            for src in [0, 3, 21, 100, -1] {
                let args = [x.clone(), Arg::Scalar(w), ints(&order), y.clone(), scalar(src as i64)];
                kernel
                    .check_where(&args, [m, n], by, |v| !dtype.is_float() || v.promises.sum_order);
            }
        }
    }
}

/// A sum over the lanes that exist, computed here.
pub fn lanes_that_do_not_exist_count_nothing(case: &Case) {
    let text = "
func @count(%y: view<[a, b], i32, write>) {kind = lane, lanes = [4, 8]} {
  %i = tile.linear_id {axis = 0} : i64
  %j = tile.linear_id {axis = 1} : i64
  %one = tile.const {value = 1} : i32
  %n = tile.group_reduce %one {op = sum} : i32
  %l = tile.local_id : i64
  %s = tile.group_scan %one {op = sum} : i32
  %t = tile.const {value = 1000} : i32
  %u = tile.mul %n, %t : i32
  %v = tile.add %u, %s : i32
  tile.store %y, %v at(%i, %j) {extent = [0, 0]}
  tile.return
}";
    let kernel = case.kernel(text);
    let (m, n) = (6i64, 13i64);
    let y = array(&[m, n], DType::I32, Layout::Rows, 1);
    let got = kernel.check(std::slice::from_ref(&y), [m, n], [4, 8]);
    for (place, got) in (0..).zip(y.array().unwrap().codes(&got[0])) {
        let (i, j) = (place / n, place % n);
        let (rows, columns) = ((m - i / 4 * 4).min(4), (n - j / 8 * 8).min(8));
        let before = i % 4 * columns + j % 8 + 1;
        assert_eq!(i64::from(got as i32), 1000 * rows * columns + before, "({i}, {j})");
    }
}

/// Three axes, divergent control flow around barriers, loops that lanes leave one by one.
const DEEP: &str = "
func @deep(%x: view<[a, b, c], i32, read>, %y: view<[a, b, c], i32, write>, %k: i64) {kind = lane, lanes = [2, 3, 7]} {
  %i = tile.linear_id {axis = 0} : i64
  %j = tile.linear_id {axis = 1} : i64
  %h = tile.linear_id {axis = 2} : i64
  %l = tile.local_id : i64
  %q = tile.local_id {axis = 1} : i64
  %0 = tile.const {value = 0} : i64
  %1 = tile.const {value = 1} : i64
  %two = tile.const {value = 2} : i32
  %buf = tile.buf_alloc : buf<42xi32>
  %v = tile.load %x at(%i, %j, %h) {extent = [0, 0, 0]} : i32
  tile.store %buf, %v at(%l) {extent = [0]}
  tile.barrier
  %n = tile.add %q, %k : i64
  %s = tile.for %0, %n, %1 init(%v) : i32 do (%r: i64, %acc: i32) {
    %odd = tile.mod %acc, %two : i32
    %oddw = tile.cast %odd : i64
    %c = tile.eq %oddw, %1 : bool
    %w = tile.if %c : i32 do {
      %far = tile.add %l, %r : i64
      %z = tile.load %buf at(%far) {extent = [0]} : i32
      tile.yield %z
    } do {
      tile.yield %acc
    }
    %next = tile.sub %w, %two : i32
    tile.yield %next
  }
  tile.barrier
  tile.store %buf, %s at(%l) {extent = [0]}
  tile.barrier
  %back = tile.sub %l, %1 : i64
  %t = tile.load %buf at(%back) {extent = [0]} : i32
  %o = tile.add %s, %t : i32
  tile.store %y, %o at(%i, %j, %h) {extent = [0, 0, 0]}
  tile.return
}";

pub fn three_axes_with_barriers_and_loops(case: &Case) {
    let kernel = case.kernel(DEEP);
    for [a, b, c] in [[2, 3, 7], [4, 6, 21], [2, 3, 14]] {
        for k in [0, 1, 4] {
            let [x, y] = arrays(&[a, b, c], DType::I32, Layout::Rows);
            kernel.check(&[x, y, scalar(k as i64)], [a, b, c], [2, 3, 7]);
        }
    }
}

/// The lanes of a partial group come to a barrier in a loop with masks, and elements that lanes
/// share are changed in the order of their numbers.
pub fn rows_take_turns_at_elements_that_they_share(case: &Case) {
    let text = "
func @exchanges(%x: view<[m, n], i32, read>, %h: view<[n], i32, read_write>, %y: view<[m, n], i32, write>) {kind = lane, lanes = [4, 20]} {
  %i = tile.linear_id {axis = 0} : i64
  %j = tile.linear_id {axis = 1} : i64
  %v = tile.load %x at(%i, %j) {extent = [0, 0]} : i32
  %old = tile.atomic %h, %v at(%j) {op = add} : i32
  %m = tile.group_reduce %v {op = max} : i32
  %zero = tile.const {value = 0} : i32
  %pos = tile.gt %v, %zero : bool
  tile.if %pos do {
    %o = tile.sub %v, %m : i32
    tile.store %y, %o at(%i, %j) {extent = [0, 0]}
    tile.yield
  } do {
    tile.yield
  }
  tile.return
}";
    let kernel = case.kernel(text);
    for (m, n) in [(4, 20), (7, 33), (9, 5)] {
        let [x, y] = arrays(&[m, n], DType::I32, Layout::Rows);
        let h = array(&[n], DType::I32, Layout::Rows, 9);
        kernel.check(&[x, h, y], [m, n], [4, 20]);
    }
}

/// A failed assertion names the first lane by its number, also where groups do not matter.
pub fn an_assertion_names_the_lane(case: &Case) {
    for ids in ["", "%l = tile.local_id {axis = 1} : i64\n"] {
        let text = format!(
            "func @f(%x: view<[k], i32, read>, %y: view<[m, n], i32, write>) {{kind = lane, lanes = [4, 8]}} {{
               %i = tile.linear_id {{axis = 0}} : i64
               %j = tile.linear_id {{axis = 1}} : i64
               {ids}
               %21 = tile.const {{value = 21}} : i64
               %row = tile.mul %i, %21 : i64
               %at = tile.add %row, %j : i64
               %v = tile.load %x at(%at) {{extent = [0]}} : i32
               %zero = tile.const {{value = 0}} : i32
               %c = tile.eq %v, %zero : bool
               tile.assert %c {{text = \"none\"}}
               tile.store %y, %v at(%i, %j) {{extent = [0, 0]}}
               tile.return
             }}"
        );
        let kernel = case.kernel(&text);
        let (m, n) = (9i64, 21i64);
        let mut values = vec![0; (m * n) as usize];
        values[(6 * n + 17) as usize] = 1;
        let y = array(&[m, n], DType::I32, Layout::Rows, 2);
        let stopped = kernel.compare(&[ints(&values), y], [m, n], [4, 8], |_| true);
        assert!(matches!(&stopped, Err(Failure::Stopped(m)) if m.contains("none")), "{stopped:?}");
    }
}
