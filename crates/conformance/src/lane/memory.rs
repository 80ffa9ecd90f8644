//! Access to arrays of every dtype and layout.

use crate::Case;
use crate::harness::*;
use std::fmt::Write;
use tessera_numerics::DType;

pub const SAXPY: &str = "
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

pub fn saxpy_of_any_size_and_layout(case: &Case) {
    let kernel = case.kernel(SAXPY);
    for n in SIZES {
        for layout in LAYOUTS {
            let x = array(&[n], DType::F32, layout, 1);
            let y = array(&[n], DType::F32, layout, 2);
            let args = [x, y, scalar(1.7f32)];
            let got = kernel.check(&args, n, 256);
            let real = |code: &u64| f32::from_bits(*code as u32);
            let [x, y] = [0, 1].map(|i| args[i].array().unwrap());
            let rows = x.codes(&x.bytes).into_iter().zip(y.codes(&y.bytes)).zip(y.codes(&got[1]));
            for ((x, y), z) in rows {
                let (wanted, got) = (1.7 * real(&x) + real(&y), real(&z));
                assert!(wanted == got || wanted.is_nan() && got.is_nan(), "{wanted} {got}");
            }
        }
        // More lanes than elements, and fewer.
        let x = array(&[n], DType::F32, Layout::Rows, 1);
        let y = array(&[n], DType::F32, Layout::Back, 2);
        kernel.check(&[x.clone(), y.clone(), scalar(1.7f32)], n + 21, 32);
        kernel.check(&[x, y, scalar(1.7f32)], n / 2, 7);
    }
}

pub fn every_dtype_is_copied_and_compared(case: &Case) {
    for (number, &dtype) in DType::ALL.iter().enumerate() {
        let c = dtype.compute();
        let cast = |from: &str, to: &str, ty: DType| match dtype == c {
            true => format!("%{to} = tile.select %yes, %{from}, %{from} : {ty}"),
            false => format!("%{to} = tile.cast %{from} : {ty}"),
        };
        let text = format!(
            "func @f(%x: view<[n], {dtype}, read>, %y: view<[n], {dtype}, read_write>, %z: view<[n], {dtype}, read_write>) {{kind = lane}} {{
               %i = tile.linear_id : i64
               %yes = tile.const {{value = true}} : bool
               %a = tile.load %x at(%i) {{extent = [0]}} : {dtype}
               tile.store %y, %a at(%i) {{extent = [0]}}
               {}
               %d = tile.load %z at(%i) {{extent = [0]}} : {dtype}
               {}
               %g = tile.maximum %b, %e : {c}
               {}
               tile.store %z, %h at(%i) {{extent = [0]}}
               tile.return
             }}",
            cast("a", "b", c),
            cast("d", "e", c),
            cast("g", "h", dtype),
        );
        if !tessera_numerics::ScalarFn::Maximum.accepts(c) {
            continue;
        }
        let kernel = case.kernel(&text);
        let forms =
            [(600, Layout::Rows), (37, Layout::Skewed), (19, Layout::Gaps), (300, Layout::Back)];
        for (place, &(n, layout)) in forms.iter().enumerate() {
            let all = [1, 2, 3].map(|seed| array(&[n], dtype, layout, seed));
            kernel.check_share(&all, n, 64, number + place, forms.len());
        }
    }
}

/// A stencil whose ends read zero, or what the kernel says.
pub const STENCIL: &str = "
func @stencil(%x: view<[n], f32, read>, %y: view<[m], f32, write>, %edge: f32) {kind = lane} {
  %i = tile.linear_id : i64
  %1 = tile.const {value = 1} : i64
  %8 = tile.const {value = 8} : i64
  %l = tile.sub %i, %1 : i64
  %r = tile.add %i, %8 : i64
  %a = tile.load %x at(%l) other(%edge) {extent = [0]} : f32
  %b = tile.load %x at(%i) {extent = [0]} : f32
  %c = tile.load %x at(%r) other(%edge) {extent = [0]} : f32
  %ab = tile.add %a, %b : f32
  %s = tile.add %ab, %c : f32
  tile.store %y, %s at(%i) {extent = [0]}
  tile.return
}";

pub fn positions_outside_read_zero_or_other_and_are_not_written(case: &Case) {
    let shifted = [STENCIL.into(), STENCIL.replace("value = 8", "value = 1")];
    let kernels = shifted.map(|text: String| case.kernel(&text));
    for (n, text) in SIZES.into_iter().flat_map(|n| [0, 1].map(|k| (n, k))) {
        let kernel = &kernels[text];
        for (size, domain) in [(n, n), (n, n + 40), (n + 3, n)] {
            let x = array(&[size], DType::F32, Layout::Rows, 1);
            let y = array(&[n], DType::F32, Layout::Rows, 2);
            kernel.check(&[x, y, scalar(9.5f32)], domain, 48);
        }
    }
}

/// Positions by steps of 3, backwards, and far off.
const STEPS: &str = "
func @steps(%x: view<[m], i32, read>, %y: view<[n], i32, write>, %k: i64) {kind = lane} {
  %i = tile.linear_id : i64
  %3 = tile.const {value = 3} : i64
  %i3 = tile.mul %i, %3 : i64
  %r = tile.neg %i3 : i64
  %p = tile.add %i, %k : i64
  %q = tile.sub %k, %i : i64
  %a = tile.load %x at(%p) {extent = [0]} : i32
  %b = tile.load %x at(%i) {extent = [0]} : i32
  %c = tile.load %x at(%q) {extent = [0]} : i32
  %d = tile.add %a, %b : i32
  %e = tile.add %d, %c : i32
  tile.store %y, %e at(%i) {extent = [0]}
  tile.return
}";

pub fn positions_in_steps_are_held_against_the_extents_wherever_they_begin(case: &Case) {
    let apart = STEPS.replace("add %i, %k", "add %i3, %k").replace("%x at(%i)", "%x at(%r)");
    for kernel in [STEPS, &apart].map(|text| case.kernel(text)) {
        for n in [1, 16, 100, 300] {
            let ends = [i64::MAX, i64::MAX - 20, i64::MIN, i64::MIN + 9];
            for k in [0, -1, 5, 8, 40, -50, 1 << 40].into_iter().chain(ends) {
                let x = array(&[n + 7], DType::I32, Layout::Rows, 1);
                let y = array(&[n], DType::I32, Layout::Rows, 2);
                kernel.check(&[x, y, scalar(k)], n, 64);
            }
        }
    }
}

/// Several axes by division, and a transposed result.
pub fn matrix(transposed: bool) -> String {
    let (y, at) = match transposed {
        true => ("[c, b, a]", "%r, %q, %p"),
        false => ("[a, b, c]", "%p, %q, %r"),
    };
    format!(
        "func @matrix(%x: view<[a, b, c], f32, read>, %y: view<{y}, f32, write>, %z: view<[a, b, c], f32, read_write>) {{kind = lane}} {{
           %i = tile.linear_id : i64
           %b = tile.dim {{name = b}} : i64
           %c = tile.dim {{name = c}} : i64
           %bc = tile.mul %b, %c : i64
           %p = tile.floordiv %i, %bc : i64
           %rest = tile.mod %i, %bc : i64
           %q = tile.floordiv %rest, %c : i64
           %r = tile.mod %i, %c : i64
           %v = tile.load %x at(%p, %q, %r) {{extent = [0, 0, 0]}} : f32
           tile.store %y, %v at({at}) {{extent = [0, 0, 0]}}
           tile.accumulate %z, %v at(%p, %q, %r) {{op = sum, extent = [0, 0, 0]}}
           tile.return
         }}"
    )
}

pub fn rows_and_columns_by_division(case: &Case) {
    for transposed in [false, true] {
        let kernel = case.kernel(&matrix(transposed));
        let shapes = [
            [1, 1, 1],
            [2, 3, 5],
            [3, 2, 16],
            [2, 2, 33],
            [2, 2, 36],
            [1, 4, 100],
            [5, 7, 0],
            [2, 1, 64],
        ];
        for [a, b, c] in shapes {
            for layout in LAYOUTS {
                let x = array(&[a, b, c], DType::F32, layout, 1);
                let y = if transposed { [c, b, a] } else { [a, b, c] };
                let y = array(&y, DType::F32, Layout::Rows, 2);
                let z = array(&[a, b, c], DType::F32, layout, 3);
                // Some lanes more than elements: their rows are outside.
                kernel.check(&[x, y, z], a * b * c + 5, 32);
            }
        }
    }
}

pub fn divisors_of_any_sign_divide_as_the_interpreter_does(case: &Case) {
    let kernel = case.kernel("func @f(%x: view<[m], i32, read>, %y: view<[n], i64, write>, %z: view<[n], i32, write>, %k: i64, %o: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %p = tile.add %i, %o : i64
           %q = tile.floordiv %p, %k : i64
           %r = tile.mod %p, %k : i64
           %100 = tile.const {value = 100} : i64
           %16 = tile.const {value = 16} : i64
           %4 = tile.const {value = 4} : i64
           %s = tile.mul %q, %100 : i64
           %t = tile.add %s, %r : i64
           %t16 = tile.mod %t, %16 : i64
           %t4 = tile.floordiv %p, %4 : i64
           %i4 = tile.floordiv %i, %4 : i64
           %t100 = tile.mod %p, %100 : i64
           %u1 = tile.add %t, %t16 : i64
           %u2 = tile.add %u1, %t4 : i64
           %u3 = tile.add %u2, %t100 : i64
           %u4 = tile.xor %u3, %i4 : i64
           tile.store %y, %u4 at(%i) {extent = [0]}
           %j = tile.floordiv %i, %k : i64
           %l = tile.mod %i, %k : i64
           %m = tile.add %j, %l : i64
           %v = tile.load %x at(%m) {extent = [0]} : i32
           tile.store %z, %v at(%i) {extent = [0]}
           tile.return
         }");
    for k in [1, 2, 16, 17, 100, 0, -1, -5, -100, 1 << 33, i64::MIN, i64::MAX] {
        for o in [0, -50, 3, 1 << 40, i64::MAX, i64::MIN] {
            let x = array(&[60], DType::I32, Layout::Rows, 1);
            let y = array(&[199], DType::I64, Layout::Rows, 2);
            let z = array(&[199], DType::I32, Layout::Rows, 2);
            kernel.check(&[x, y, z, scalar(k), scalar(o)], 199, 64);
        }
    }
}

pub fn gathers_and_scatters_take_each_lane_where_it_points(case: &Case) {
    let kernel = case.kernel("func @f(%ix: view<[n], i32, read>, %x: view<[m], f64, read>, %y: view<[m], f64, write>, %z: view<[n], f64, write>) {kind = lane} {
           %i = tile.linear_id : i64
           %j = tile.load %ix at(%i) {extent = [0]} : i32
           %k = tile.cast %j : i64
           %v = tile.load %x at(%k) {extent = [0]} : f64
           tile.store %z, %v at(%i) {extent = [0]}
           tile.store %y, %v at(%k) {extent = [0]}
           tile.return
         }");
    let order: Vec<i32> = (0..177).map(|i| (i * 31) % 183 - 3).collect();
    for layout in LAYOUTS {
        let x = array(&[170], DType::F64, layout, 1);
        let y = array(&[170], DType::F64, layout, 2);
        let z = array(&[177], DType::F64, layout, 3);
        kernel.check(&[ints(&order), x, y, z], 177, 32);
    }
}

pub fn masks_and_others_of_each_lane(case: &Case) {
    let kernel = case.kernel("func @f(%x: view<[n], f32, read>, %b: view<[m], bool, read>, %y: view<[m], f32, write>, %z: view<[m], f32, read_write>, %k: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %c = tile.load %b at(%i) {extent = [0]} : bool
           %o = tile.cast %i : f32
           %p = tile.add %i, %k : i64
           %v = tile.load %x at(%p) other(%o) {extent = [0]} : f32
           tile.store %y, %v at(%i) mask(%c) {extent = [0]}
           %d = tile.lt %i, %k : bool
           %u = tile.load %x at(%k) other(%o) {extent = [0]} : f32
           tile.store %y, %u at(%i) mask(%d) {extent = [0]}
           tile.accumulate %z, %u at(%i) mask(%c) {op = max, extent = [0]}
           tile.return
         }");
    for k in [0, 5, 33, -3, 99] {
        let x = array(&[540], DType::F32, Layout::Rows, 1);
        let b = array(&[550], DType::Bool, Layout::Rows, 2);
        let y = array(&[550], DType::F32, Layout::Rows, 3);
        let z = array(&[550], DType::F32, Layout::Rows, 4);
        kernel.check(&[x, b, y, z, scalar(k)], 550, 32);
    }
}

pub fn one_value_for_all_lanes_is_read_and_written_once(case: &Case) {
    let kernel = case.kernel("func @f(%x: view<[n], f32, read>, %y: view<[m], f32, write>, %one: view<[], f32, read_write>, %z: view<[n], f32, write>, %k: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %v = tile.load %x at(%i) {extent = [0]} : f32
           %w = tile.load %x at(%k) {extent = [0]} : f32
           tile.store %y, %w at(%k) {extent = [0]}
           %c = tile.gt %v, %w : bool
           tile.if %c do {
             tile.store %one, %w {extent = []}
             tile.yield
           } do {
             tile.yield
           }
           %s = tile.add %v, %w : f32
           tile.store %z, %s at(%i) {extent = [0]}
           tile.return
         }");
    for (n, k) in [(1, 0), (40, 3), (640, 7), (33, 9), (33, -1), (33, 8)] {
        let x = array(&[n], DType::F32, Layout::Rows, 1);
        let y = array(&[9], DType::F32, Layout::Rows, 2);
        let one = array(&[], DType::F32, Layout::Rows, 3);
        let z = array(&[n], DType::F32, Layout::Rows, 4);
        kernel.check(&[x, y, one, z, scalar(k)], n, 16);
    }
}

pub const IDS: &str = "
func @f(%y: view<[n], i64, write>) {kind = lane} {
  %i = tile.linear_id : i64
  %l = tile.local_id : i64
  %p = tile.program_id {axis = 0} : i64
  %p1 = tile.program_id {axis = 1} : i64
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
  %q = tile.add %k, %w : i64
  %r = tile.add %q, %p1 : i64
  tile.store %y, %r at(%i) {extent = [0]}
  tile.return
}";

pub fn ids_know_groups_of_any_size(case: &Case) {
    let kernel = case.kernel(IDS);
    for lanes in [1, 3, 16, 31, 64, 100, 256, 300, 1024, 2500, 9000] {
        for (n, domain) in [0, 1, 67, 3 * lanes - 1].map(|n| (n, n)).into_iter().chain([(70, 67)]) {
            let y = array(&[n], DType::I64, Layout::Rows, 1);
            let got = kernel.check(std::slice::from_ref(&y), domain, lanes);
            let id = |i: i64| {
                let groups = (domain + lanes - 1) / lanes;
                [i % lanes, groups, lanes, 32].iter().fold(i / lanes, |a, b| 100 * a + b) as u64
            };
            let ids = y.array().unwrap().codes(&got[0]);
            assert!((0..domain).zip(ids).all(|(i, got)| got == id(i)), "{domain} by {lanes}");
        }
    }
}

/// Atomics: first each lane has its own element, so that the old value is defined too; then all
/// lanes share a few.
fn atomic(dtype: DType, op: &str) -> String {
    let c = dtype.compute();
    let (given, expected) = match op {
        "exchange" => (dtype, ""),
        "cas" => (dtype, " expected(%e)"),
        _ => (c, ""),
    };
    let cast = match dtype == given {
        true => format!("%v = tile.select %yes, %a, %a : {given}"),
        false => format!("%v = tile.cast %a : {given}"),
    };
    format!(
        "func @f(%x: view<[n], {dtype}, read>, %h: view<[n], {dtype}, read_write>, %o: view<[n], {dtype}, write>, %was: view<[n], {dtype}, read>, %k: i64) {{kind = lane}} {{
           %i = tile.linear_id : i64
           %yes = tile.const {{value = true}} : bool
           %1 = tile.const {{value = 1}} : i64
           %j = tile.xor %i, %k : i64
           %odd = tile.and %i, %1 : i64
           %near = tile.sub %i, %odd : i64
           %e = tile.load %was at(%near) {{extent = [0]}} : {dtype}
           %a = tile.load %x at(%i) {{extent = [0]}} : {dtype}
           {cast}
           %old = tile.atomic %h, %v at(%j){expected} {{op = {op}}} : {dtype}
           tile.store %o, %old at(%i) {{extent = [0]}}
           tile.return
         }}"
    )
}

pub fn atomics_of_every_kind_change_elements_and_give_what_was_there(case: &Case) {
    for (d, &dtype) in DType::ALL.iter().enumerate() {
        for (o, op) in tessera_tile::ops::atomic::OPS.into_iter().enumerate() {
            let combine = tessera_tile::ops::atomic::combine(op);
            if combine.is_some_and(|f| !f.accepts(dtype.compute())) || case.skips(5 * d + o) {
                continue;
            }
            let kernel = case.kernel(&atomic(dtype, op)).rotate(5 * d + o);
            for layout in [Layout::Rows, Layout::Gaps, Layout::Back] {
                let x = array(&[70], dtype, Layout::Rows, 1);
                let h = array(&[70], dtype, layout, 2);
                let o = array(&[70], dtype, Layout::Rows, 3);
                kernel.check(&[x, h.clone(), o, h, scalar(3i64)], 70, 32);
            }
        }
    }
}

pub fn lanes_that_share_elements_all_count(case: &Case) {
    for (dtype, op) in [
        (DType::I32, "add"),
        (DType::I32, "max"),
        (DType::U8, "add"),
        (DType::I16, "min"),
        (DType::I64, "xor"),
        (DType::BF16, "max"),
        (DType::F64, "min"),
    ] {
        let c = dtype.compute();
        let kernel = case.kernel(&format!(
                "func @f(%ix: view<[n], i32, read>, %h: view<[m], {dtype}, read_write>) {{kind = lane}} {{
                   %i = tile.linear_id : i64
                   %at32 = tile.load %ix at(%i) {{extent = [0]}} : i32
                   %at = tile.cast %at32 : i64
                   %v = tile.cast %i : {c}
                   %old = tile.atomic %h, %v at(%at) {{op = {op}}} : {dtype}
                   tile.return
                 }}"
            )
            .replace("%v = tile.cast %i : i64", "%v = tile.add %i, %i : i64"));
        let order: Vec<i32> = (0..450).map(|i| (i * 7) % 13 - 2).collect();
        let h = array(&[9], dtype, Layout::Rows, 2);
        kernel.check(&[ints(&order), h], 450, 64);
    }
}

pub fn folds_into_shared_elements_all_count(case: &Case) {
    for (dtype, op, at) in [
        (DType::I32, "sum", "%at"),
        (DType::I64, "max", "%at"),
        (DType::F32, "max", "%at"),
        (DType::I32, "sum", "%k"),
        (DType::F32, "min", "%k"),
        (DType::I32, "prod", "%k"),
    ] {
        let kernel = case.kernel(&format!(
                "func @f(%ix: view<[n], i32, read>, %x: view<[n], {dtype}, read>, %h: view<[m], {dtype}, reduce_{op}>, %k: i64) {{kind = lane}} {{
                   %i = tile.linear_id : i64
                   %at32 = tile.load %ix at(%i) {{extent = [0]}} : i32
                   %at = tile.cast %at32 : i64
                   %v = tile.load %x at(%i) {{extent = [0]}} : {dtype}
                   %0 = tile.const {{value = 0}} : i32
                   %c = tile.gt %at32, %0 : bool
                   tile.accumulate %h, %v at({at}) mask(%c) {{op = {op}, extent = [0]}}
                   tile.return
                 }}"
            ));
        let order: Vec<i32> = (0..450).map(|i| (i * 7) % 13 - 2).collect();
        let x = array(&[450], dtype, Layout::Rows, 1);
        let h = array(&[9], dtype, Layout::Rows, 2);
        kernel.check(&[ints(&order), x, h, scalar(3i64)], 450, 64);
    }
}

pub fn sums_of_floats_from_many_lanes(case: &Case) {
    let kernel = case.kernel(
        "func @f(%x: view<[n], f32, read>, %h: view<[m], f32, reduce_sum>, %k: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %v = tile.load %x at(%i) {extent = [0]} : f32
           tile.accumulate %h, %v at(%k) {op = sum, extent = [0]}
           tile.return
         }",
    );
    // Whole numbers do not round, so that any order gives the same.
    let args = [floats(&[1.0; 300]), floats(&[0.5; 4]), scalar(2i64)];
    kernel.check(&args, 300, 64);
}

pub fn all_lanes_at_one_place_leave_the_last_value(case: &Case) {
    let kernel = case.kernel(
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
        kernel.check_where(&[x, y, one, scalar(k)], n, 16, |v| v.promises.lane_order);
    }
}

pub fn atomics_and_folds_of_every_kind(case: &Case) {
    for dtype in [DType::I32, DType::F32, DType::BF16, DType::U8, DType::I64, DType::F64] {
        let c = dtype.compute();
        // All ops in one kernel, each on an array of its own.
        let ops = [
            ("add", c, ""),
            ("max", c, ""),
            ("exchange", dtype, ""),
            ("cas", dtype, " expected(%e)"),
        ];
        let (mut params, mut body) = (String::new(), String::new());
        for (op, given, expected) in ops {
            let _ = write!(
                params,
                ", %h_{op}: view<[m], {dtype}, read_write>, %o_{op}: view<[n], {dtype}, write>"
            );
            let convert = match dtype == given {
                true => "select %yes, %a, %a",
                false => "cast %a",
            };
            let _ = writeln!(
                body,
                "%v_{op} = tile.{convert} : {given}
                 %old_{op} = tile.atomic %h_{op}, %v_{op} at(%at){expected} {{op = {op}}} : {dtype}
                 tile.store %o_{op}, %old_{op} at(%i) {{extent = [0]}}"
            );
        }
        let kernel = case.kernel(&format!(
            "func @f(%ix: view<[n], i32, read>, %x: view<[n], {dtype}, read>, %was: view<[m], {dtype}, read>{params}) {{kind = lane}} {{
               %i = tile.linear_id : i64
               %yes = tile.const {{value = true}} : bool
               %0 = tile.const {{value = 0}} : i64
               %at32 = tile.load %ix at(%i) {{extent = [0]}} : i32
               %at = tile.cast %at32 : i64
               %e = tile.load %was at(%0) {{extent = [0]}} : {dtype}
               %a = tile.load %x at(%i) {{extent = [0]}} : {dtype}
               {body}tile.return
             }}"
        ));
        let order: Vec<i32> = (0..50).map(|i| (i * 7) % 11 - 2).collect();
        let h = array(&[7], dtype, Layout::Gaps, 2);
        let mut all = vec![ints(&order), array(&[50], dtype, Layout::Rows, 1), h.clone()];
        all.extend(ops.iter().flat_map(|_| [h.clone(), array(&[50], dtype, Layout::Rows, 3)]));
        kernel.check_where(&all, 50, 32, |v| v.promises.lane_order);
    }
}

pub fn lanes_fold_into_elements_that_they_share_one_after_another(case: &Case) {
    let kernel = case.kernel(
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
    kernel.check_where(&[ints(&order), x, h, scalar(3)], 150, 64, |v| v.promises.lane_order);
}
