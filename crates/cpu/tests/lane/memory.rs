//! Access to arrays of every dtype and layout.

use super::harness::{Arg, Kernel, Layout, SIZES, array, check, ints};
use tessera_numerics::{DType, Scalar};

const SAXPY: &str = "
func @saxpy(%x: view<[n], f32, read>, %y: view<[n], f32, read_write>, %alpha: f32) {kind = lane} {
  %i = tile.linear_id : i64
  %n = tile.dim {name = n} : i64
  %0 = tile.lt %i, %n : bool
  tile.if %0 do {
    %1 = tile.load %x at(%i) {extent = [0]} : f32
    %2 = tile.mul %alpha, %1 : f32
    %3 = tile.load %y at(%i) {extent = [0]} : f32
    %4 = tile.add %2, %3 : f32
    tile.store %y, %4 at(%i) {extent = [0]}
    tile.yield
  } do {
    tile.yield
  }
  tile.return
}";

#[test]
fn saxpy_of_any_size_and_layout() {
    let alpha = Arg::Scalar(Scalar::F32(1.7));
    let kernel = Kernel::new(SAXPY);
    let check = |args: &[Arg], domain, lanes| kernel.check(args, domain, lanes).unwrap();
    for n in SIZES {
        for layout in [Layout::Rows, Layout::Gaps, Layout::Back] {
            let x = array(&[n], DType::F32, layout, 1);
            let y = array(&[n], DType::F32, layout, 2);
            check(&[x, y, alpha.clone()], n, 256);
        }
        // More lanes than elements, and fewer.
        let x = array(&[n], DType::F32, Layout::Rows, 1);
        let y = array(&[n], DType::F32, Layout::Back, 2);
        check(&[x.clone(), y.clone(), alpha.clone()], n + 21, 32);
        check(&[x, y, alpha.clone()], n / 2, 7);
    }
}

#[test]
fn every_dtype_is_copied_and_doubled() {
    for &dtype in DType::ALL {
        let c = dtype.compute();
        let text = format!(
            "func @f(%x: view<[n], {dtype}, read>, %y: view<[n], {dtype}, read_write>, %z: view<[n], {dtype}, read_write>) {{kind = lane}} {{
               %i = tile.linear_id : i64
               %a = tile.load %x at(%i) {{extent = [0]}} : {dtype}
               tile.store %y, %a at(%i) {{extent = [0]}}
               %b = tile.cast %a : {c}
               %d = tile.load %z at(%i) {{extent = [0]}} : {dtype}
               %e = tile.cast %d : {c}
               %g = tile.maximum %b, %e : {c}
               %h = tile.cast %g : {dtype}
               tile.store %z, %h at(%i) {{extent = [0]}}
               tile.return
             }}"
        );
        let text = match dtype {
            d if d == c => text
                .replace(&format!("%b = tile.cast %a : {c}"), "")
                .replace(&format!("%e = tile.cast %d : {c}"), "")
                .replace(&format!("%h = tile.cast %g : {dtype}"), "")
                .replace("maximum %b, %e", "maximum %a, %d")
                .replace("%z, %h", "%z, %g"),
            _ => text,
        };
        let kernel = Kernel::new(&text);
        for (n, layout) in [(37, Layout::Rows), (19, Layout::Gaps), (300, Layout::Back)] {
            let all = [1, 2, 3].map(|seed| array(&[n], dtype, layout, seed));
            kernel.check(&all, n, 64).unwrap();
        }
    }
}

/// A stencil whose ends read zero, or what the kernel says.
const STENCIL: &str = "
func @stencil(%x: view<[n], f32, read>, %y: view<[n], f32, write>, %edge: f32) {kind = lane} {
  %i = tile.linear_id : i64
  %1 = tile.const {value = 1} : i64
  %l = tile.sub %i, %1 : i64
  %r = tile.add %i, %1 : i64
  %a = tile.load %x at(%l) other(%edge) {extent = [0]} : f32
  %b = tile.load %x at(%i) {extent = [0]} : f32
  %c = tile.load %x at(%r) {extent = [0]} : f32
  %ab = tile.add %a, %b : f32
  %s = tile.add %ab, %c : f32
  tile.store %y, %s at(%i) {extent = [0]}
  tile.return
}";

#[test]
fn positions_outside_read_zero_or_other_and_are_not_written() {
    let kernel = Kernel::new(STENCIL);
    for n in SIZES {
        for (size, domain) in [(n, n), (n, n + 40), (n + 3, n)] {
            let x = array(&[size], DType::F32, Layout::Rows, 1);
            let y = array(&[n], DType::F32, Layout::Rows, 2);
            kernel.check(&[x, y, Arg::Scalar(Scalar::F32(9.5))], domain, 48).unwrap();
        }
    }
}

/// Positions by steps of 3, backwards, and far off.
const STEPS: &str = "
func @steps(%x: view<[m], i32, read>, %y: view<[n], i32, write>, %k: i64) {kind = lane} {
  %i = tile.linear_id : i64
  %3 = tile.const {value = 3} : i64
  %i3 = tile.mul %i, %3 : i64
  %p = tile.add %i3, %k : i64
  %q = tile.sub %k, %i : i64
  %r = tile.neg %i3 : i64
  %a = tile.load %x at(%p) {extent = [0]} : i32
  %b = tile.load %x at(%q) {extent = [0]} : i32
  %c = tile.load %x at(%r) {extent = [0]} : i32
  %d = tile.add %a, %b : i32
  %e = tile.add %d, %c : i32
  tile.store %y, %e at(%i) {extent = [0]}
  tile.return
}";

#[test]
fn positions_in_steps_are_held_against_the_extents_wherever_they_begin() {
    let kernel = Kernel::new(STEPS);
    for n in [1, 16, 100] {
        for k in [0, -1, 5, 40, -50, 1 << 40, i64::MAX, i64::MAX - 20, i64::MIN, i64::MIN + 9] {
            let x = array(&[n + 7], DType::I32, Layout::Rows, 1);
            let y = array(&[n], DType::I32, Layout::Rows, 2);
            kernel.check(&[x, y, Arg::Scalar(Scalar::I64(k))], n, 64).unwrap();
        }
    }
}

/// A matrix by its row and column, a third axis, and a transposed result.
const MATRIX: &str = "
func @matrix(%x: view<[a, b, c], f32, read>, %y: view<[c, b, a], f32, write>, %z: view<[a, b, c], f32, read_write>) {kind = lane} {
  %i = tile.linear_id : i64
  %a = tile.dim {name = a} : i64
  %b = tile.dim {name = b} : i64
  %c = tile.dim {name = c} : i64
  %bc = tile.mul %b, %c : i64
  %p = tile.floordiv %i, %bc : i64
  %rest = tile.mod %i, %bc : i64
  %q = tile.floordiv %rest, %c : i64
  %r = tile.mod %i, %c : i64
  %v = tile.load %x at(%p, %q, %r) {extent = [0, 0, 0]} : f32
  tile.store %y, %v at(%r, %q, %p) {extent = [0, 0, 0]}
  tile.accumulate %z, %v at(%p, %q, %r) {op = sum, extent = [0, 0, 0]}
  tile.return
}";

#[test]
fn rows_and_columns_by_division() {
    let kernel = Kernel::new(MATRIX);
    for [a, b, c] in
        [[1, 1, 1], [2, 3, 5], [3, 2, 16], [2, 2, 33], [1, 4, 100], [5, 7, 0], [2, 1, 64]]
    {
        for layout in [Layout::Rows, Layout::Gaps, Layout::Back] {
            let x = array(&[a, b, c], DType::F32, layout, 1);
            let y = array(&[c, b, a], DType::F32, Layout::Rows, 2);
            let z = array(&[a, b, c], DType::F32, layout, 3);
            // Some lanes more than elements: their rows are outside.
            kernel.check(&[x, y, z], a * b * c + 5, 32).unwrap();
        }
    }
}

#[test]
fn divisors_of_any_sign_divide_as_the_interpreter_does() {
    let kernel = Kernel::new(
        "func @f(%x: view<[m], i32, read>, %y: view<[n], i64, write>, %z: view<[n], i32, write>, %k: i64, %o: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %p = tile.add %i, %o : i64
           %q = tile.floordiv %p, %k : i64
           %r = tile.mod %p, %k : i64
           %100 = tile.const {value = 100} : i64
           %s = tile.mul %q, %100 : i64
           %t = tile.add %s, %r : i64
           tile.store %y, %t at(%i) {extent = [0]}
           %j = tile.floordiv %i, %k : i64
           %l = tile.mod %i, %k : i64
           %m = tile.add %j, %l : i64
           %v = tile.load %x at(%m) {extent = [0]} : i32
           tile.store %z, %v at(%i) {extent = [0]}
           tile.return
         }",
    );
    for k in [1, 2, 16, 17, 100, 0, -1, -5, -100, i64::MIN, i64::MAX] {
        for o in [0, -50, 3, i64::MAX, i64::MIN] {
            let x = array(&[60], DType::I32, Layout::Rows, 1);
            let y = array(&[99], DType::I64, Layout::Rows, 2);
            let z = array(&[99], DType::I32, Layout::Rows, 2);
            let [k, o] = [k, o].map(|v| Arg::Scalar(Scalar::I64(v)));
            kernel.check(&[x, y, z, k, o], 99, 64).unwrap();
        }
    }
}

#[test]
fn gathers_and_scatters_take_each_lane_where_it_points() {
    let kernel = Kernel::new(
        "func @f(%ix: view<[n], i32, read>, %x: view<[m], f64, read>, %y: view<[m], f64, write>, %z: view<[n], f64, write>) {kind = lane} {
           %i = tile.linear_id : i64
           %j = tile.load %ix at(%i) {extent = [0]} : i32
           %k = tile.cast %j : i64
           %v = tile.load %x at(%k) {extent = [0]} : f64
           tile.store %z, %v at(%i) {extent = [0]}
           tile.store %y, %v at(%k) {extent = [0]}
           tile.return
         }",
    );
    let order: Vec<i32> = (0..77).map(|i| (i * 31) % 83 - 3).collect();
    for layout in [Layout::Rows, Layout::Gaps, Layout::Back] {
        let x = array(&[70], DType::F64, layout, 1);
        let y = array(&[70], DType::F64, layout, 2);
        let z = array(&[77], DType::F64, layout, 3);
        kernel.check(&[ints(&order), x, y, z], 77, 32).unwrap();
    }
}

#[test]
fn all_lanes_at_one_place_leave_the_last_value() {
    let kernel = Kernel::new(
        "func @f(%x: view<[n], f32, read>, %y: view<[m], f32, write>, %one: view<[], f32, read_write>, %k: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %v = tile.load %x at(%i) {extent = [0]} : f32
           tile.store %y, %v at(%k) {extent = [0]}
           %w = tile.load %x at(%k) {extent = [0]} : f32
           %1 = tile.const {value = 1} : i64
           %k1 = tile.add %k, %1 : i64
           tile.store %y, %w at(%k1) {extent = [0]}
           %c = tile.gt %v, %w : bool
           tile.if %c do {
             tile.store %one, %w {extent = []}
             tile.yield
           } do {
             tile.yield
           }
           tile.return
         }",
    );
    for (n, k) in [(1, 0), (40, 3), (64, 7), (33, 9), (33, -1), (33, 8)] {
        let x = array(&[n], DType::F32, Layout::Rows, 1);
        let y = array(&[9], DType::F32, Layout::Rows, 2);
        let one = array(&[], DType::F32, Layout::Rows, 3);
        kernel.check(&[x, y, one, Arg::Scalar(Scalar::I64(k))], n, 16).unwrap();
    }
}

#[test]
fn masks_and_others_of_each_lane() {
    let kernel = Kernel::new(
        "func @f(%x: view<[n], f32, read>, %b: view<[m], bool, read>, %y: view<[m], f32, write>, %k: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %c = tile.load %b at(%i) {extent = [0]} : bool
           %o = tile.cast %i : f32
           %p = tile.add %i, %k : i64
           %v = tile.load %x at(%p) other(%o) {extent = [0]} : f32
           tile.store %y, %v at(%i) mask(%c) {extent = [0]}
           %d = tile.lt %i, %k : bool
           %u = tile.load %x at(%k) other(%o) {extent = [0]} : f32
           tile.store %y, %u at(%i) mask(%d) {extent = [0]}
           tile.return
         }",
    );
    for k in [0, 5, 33, -3, 99] {
        let x = array(&[40], DType::F32, Layout::Rows, 1);
        let b = array(&[50], DType::Bool, Layout::Rows, 2);
        let y = array(&[50], DType::F32, Layout::Rows, 3);
        kernel.check(&[x, b, y, Arg::Scalar(Scalar::I64(k))], 50, 32).unwrap();
    }
}

#[test]
fn ids_know_groups_that_vectors_cross() {
    let text = "
func @f(%y: view<[n], i64, write>) {kind = lane} {
  %i = tile.linear_id : i64
  %l = tile.local_id : i64
  %p = tile.program_id {axis = 0} : i64
  %g = tile.num_programs {axis = 0} : i64
  %s = tile.group_size : i64
  %w = tile.warp_size : i64
  %h = tile.const {value = 100} : i64
  %a = tile.mul %p, %h : i64
  %b = tile.add %a, %l : i64
  %c = tile.mul %b, %h : i64
  %d = tile.add %c, %g : i64
  %e = tile.mul %d, %h : i64
  %f = tile.add %e, %s : i64
  %k = tile.mul %f, %h : i64
  %r = tile.add %k, %w : i64
  tile.store %y, %r at(%i) {extent = [0]}
  tile.return
}";
    let kernel = Kernel::new(text);
    for lanes in [1, 3, 16, 31, 64] {
        let y = array(&[70], DType::I64, Layout::Rows, 1);
        kernel.check(&[y], 67, lanes).unwrap();
    }
    check(text, &[array(&[0], DType::I64, Layout::Rows, 1)], 0, 4);
}

#[test]
fn atomics_and_folds_of_every_kind() {
    for dtype in [DType::I32, DType::F32, DType::BF16, DType::U8, DType::I64, DType::F64] {
        let c = dtype.compute();
        for op in ["add", "max", "exchange", "cas"] {
            let (given, expected) = match op {
                "exchange" => (dtype, ""),
                "cas" => (dtype, " expected(%e)"),
                _ => (c, ""),
            };
            let cast = |from: &str, to: &str, ty: DType| match dtype == ty {
                true => format!("%{to} = tile.select %yes, %{from}, %{from} : {ty}"),
                false => format!("%{to} = tile.cast %{from} : {ty}"),
            };
            let kernel = Kernel::new(&format!(
                "func @f(%ix: view<[n], i32, read>, %x: view<[n], {dtype}, read>, %h: view<[m], {dtype}, read_write>, %o: view<[n], {dtype}, write>, %was: view<[m], {dtype}, read>) {{kind = lane}} {{
                   %i = tile.linear_id : i64
                   %yes = tile.const {{value = true}} : bool
                   %0 = tile.const {{value = 0}} : i64
                   %at32 = tile.load %ix at(%i) {{extent = [0]}} : i32
                   %at = tile.cast %at32 : i64
                   %e = tile.load %was at(%0) {{extent = [0]}} : {dtype}
                   %a = tile.load %x at(%i) {{extent = [0]}} : {dtype}
                   {}
                   %old = tile.atomic %h, %v at(%at){expected} {{op = {op}}} : {dtype}
                   tile.store %o, %old at(%i) {{extent = [0]}}
                   tile.return
                 }}",
                cast("a", "v", given)
            ));
            let order: Vec<i32> = (0..50).map(|i| (i * 7) % 11 - 2).collect();
            let x = array(&[50], dtype, Layout::Rows, 1);
            let h = array(&[7], dtype, Layout::Gaps, 2);
            let o = array(&[50], dtype, Layout::Rows, 3);
            kernel.check(&[ints(&order), x, h.clone(), o, h], 50, 32).unwrap();
        }
    }
}

#[test]
fn lanes_fold_into_elements_that_they_share_one_after_another() {
    let kernel = Kernel::new(
        "func @f(%ix: view<[n], i32, read>, %x: view<[n], f32, read>, %h: view<[m], f32, reduce_sum>, %k: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %at = tile.load %ix at(%i) {extent = [0]} : i32
           %j = tile.cast %at : i64
           %v = tile.load %x at(%i) {extent = [0]} : f32
           tile.accumulate %h, %v at(%j) {op = sum, extent = [0]}
           tile.return
         }",
    );
    let order: Vec<i32> = (0..150).map(|i| (i * 7) % 13 - 2).collect();
    let x = array(&[150], DType::F32, Layout::Rows, 1);
    let h = array(&[9], DType::F32, Layout::Rows, 2);
    kernel.check(&[ints(&order), x, h, Arg::Scalar(Scalar::I64(3))], 150, 64).unwrap();
}
