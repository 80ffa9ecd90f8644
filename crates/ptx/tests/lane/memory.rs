//! Access to arrays of every dtype and layout.

use super::harness::*;
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

#[test]
fn saxpy_of_any_size_and_layout() {
    let kernel = Kernel::new(SAXPY, 256);
    for n in SIZES {
        for layout in LAYOUTS {
            let x = array(&[n], DType::F32, layout, 1);
            let y = array(&[n], DType::F32, layout, 2);
            kernel.check(&[x, y, scalar(1.7f32)], n);
        }
        // More lanes than elements, and fewer.
        let x = array(&[n], DType::F32, Layout::Rows, 1);
        let y = array(&[n], DType::F32, Layout::Back, 2);
        kernel.check(&[x.clone(), y.clone(), scalar(1.7f32)], n + 21);
        kernel.check(&[x, y, scalar(1.7f32)], n / 2);
    }
}

#[test]
fn contiguous_arrays_are_accessed_16_bytes_at_a_time() {
    let kernel = Kernel::new(SAXPY, 256);
    for (layout, wide) in LAYOUTS.into_iter().zip([3, 0, 0, 0]) {
        let [x, y] = [1, 2].map(|seed| array(&[1000], DType::F32, layout, seed));
        let text = kernel.text(&kernel.ways[0], &[x, y, scalar(2.0f32)], 1000);
        assert_eq!(text.matches(".v4.b32").count(), wide, "{layout:?}\n{text}");
    }
}

#[test]
fn every_dtype_is_copied_and_compared() {
    for &dtype in DType::ALL {
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
        let kernel = Kernel::new(&text, 64);
        for (n, layout) in
            [(600, Layout::Rows), (37, Layout::Skewed), (19, Layout::Gaps), (300, Layout::Back)]
        {
            let all = [1, 2, 3].map(|seed| array(&[n], dtype, layout, seed));
            kernel.check(&all, n);
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

#[test]
fn positions_outside_read_zero_or_other_and_are_not_written() {
    let kernel = Kernel::new(STENCIL, 48);
    for n in SIZES {
        for (size, domain) in [(n, n), (n, n + 40), (n + 3, n)] {
            let x = array(&[size], DType::F32, Layout::Rows, 1);
            let y = array(&[n], DType::F32, Layout::Rows, 2);
            kernel.check(&[x, y, scalar(9.5f32)], domain);
        }
    }
}

/// Positions by steps of 3, backwards, and far off.
const STEPS: &str = "
func @steps(%x: view<[m], i32, read>, %y: view<[n], i32, write>, %k: i64) {kind = lane} {
  %i = tile.linear_id : i64
  %3 = tile.const {value = 3} : i64
  %i3 = tile.mul %i, %3 : i64
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

#[test]
fn positions_in_steps_are_held_against_the_extents_wherever_they_begin() {
    let kernel = Kernel::new(STEPS, 64);
    for n in [1, 16, 300] {
        for k in [0, -1, 5, 8, 40, -50, 1 << 40, i64::MAX, i64::MAX - 20, i64::MIN, i64::MIN + 9] {
            let x = array(&[n + 7], DType::I32, Layout::Rows, 1);
            let y = array(&[n], DType::I32, Layout::Rows, 2);
            kernel.check(&[x, y, scalar(k)], n);
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

#[test]
fn rows_and_columns_by_division() {
    for transposed in [false, true] {
        let kernel = Kernel::new(&matrix(transposed), 32);
        let shapes =
            [[1, 1, 1], [2, 3, 5], [3, 2, 16], [2, 2, 36], [1, 4, 100], [5, 7, 0], [2, 1, 64]];
        for [a, b, c] in shapes {
            for layout in LAYOUTS {
                let x = array(&[a, b, c], DType::F32, layout, 1);
                let y = if transposed { [c, b, a] } else { [a, b, c] };
                let y = array(&y, DType::F32, Layout::Rows, 2);
                let z = array(&[a, b, c], DType::F32, layout, 3);
                // Some lanes more than elements: their rows are outside.
                kernel.check(&[x, y, z], a * b * c + 5);
            }
        }
    }
    let rows = [[3, 2, 64], [3, 2, 64], [3, 2, 64]].map(|d| array(&d, DType::F32, Layout::Rows, 1));
    assert_eq!(Kernel::new(&matrix(false), 32).per_thread(&rows, 384), 4);
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
         }",
        64,
    );
    for k in [1, 2, 16, 17, 100, 0, -1, -5, -100, 1 << 33, i64::MIN, i64::MAX] {
        for o in [0, -50, 3, 1 << 40, i64::MAX, i64::MIN] {
            let x = array(&[60], DType::I32, Layout::Rows, 1);
            let y = array(&[199], DType::I64, Layout::Rows, 2);
            let z = array(&[199], DType::I32, Layout::Rows, 2);
            kernel.check(&[x, y, z, scalar(k), scalar(o)], 199);
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
        32,
    );
    let order: Vec<i32> = (0..177).map(|i| (i * 31) % 183 - 3).collect();
    for layout in LAYOUTS {
        let x = array(&[170], DType::F64, layout, 1);
        let y = array(&[170], DType::F64, layout, 2);
        let z = array(&[177], DType::F64, layout, 3);
        kernel.check(&[ints(&order), x, y, z], 177);
    }
}

#[test]
fn masks_and_others_of_each_lane() {
    let kernel = Kernel::new(
        "func @f(%x: view<[n], f32, read>, %b: view<[m], bool, read>, %y: view<[m], f32, write>, %z: view<[m], f32, read_write>, %k: i64) {kind = lane} {
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
         }",
        32,
    );
    for k in [0, 5, 33, -3, 99] {
        let x = array(&[540], DType::F32, Layout::Rows, 1);
        let b = array(&[550], DType::Bool, Layout::Rows, 2);
        let y = array(&[550], DType::F32, Layout::Rows, 3);
        let z = array(&[550], DType::F32, Layout::Rows, 4);
        kernel.check(&[x, b, y, z, scalar(k)], 550);
    }
}

#[test]
fn one_value_for_all_lanes_is_read_and_written_once() {
    let kernel = Kernel::new(
        "func @f(%x: view<[n], f32, read>, %y: view<[m], f32, write>, %one: view<[], f32, read_write>, %z: view<[n], f32, write>, %k: i64) {kind = lane} {
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
         }",
        16,
    );
    for (n, k) in [(1, 0), (40, 3), (640, 7), (33, 9), (33, -1), (33, 8)] {
        let x = array(&[n], DType::F32, Layout::Rows, 1);
        let y = array(&[9], DType::F32, Layout::Rows, 2);
        let one = array(&[], DType::F32, Layout::Rows, 3);
        let z = array(&[n], DType::F32, Layout::Rows, 4);
        kernel.check(&[x, y, one, z, scalar(k)], n);
    }
}

const IDS: &str = "
func @f(%y: view<[n], i64, write>) {kind = lane} {
  %i = tile.linear_id : i64
  %l = tile.local_id : i64
  %p = tile.program_id {axis = 0} : i64
  %p1 = tile.program_id {axis = 1} : i64
  %g = tile.num_programs {axis = 0} : i64
  %s = tile.group_size : i64
  %h = tile.const {value = 100} : i64
  %a = tile.mul %p, %h : i64
  %b = tile.add %a, %l : i64
  %c = tile.mul %b, %h : i64
  %d = tile.add %c, %g : i64
  %e = tile.mul %d, %h : i64
  %f = tile.add %e, %s : i64
  %r = tile.add %f, %p1 : i64
  tile.store %y, %r at(%i) {extent = [0]}
  tile.return
}";

#[test]
fn ids_know_groups_of_any_size() {
    for lanes in [1, 3, 31, 64, 100, 256, 300, 1024, 2500, 9000] {
        let kernel = Kernel::new(IDS, lanes);
        for n in [0, 1, 67, 3 * lanes - 1] {
            kernel.check(&[array(&[n], DType::I64, Layout::Rows, 1)], n);
        }
    }
    let long = array(&[2560], DType::I64, Layout::Rows, 1);
    assert_eq!(Kernel::new(IDS, 256).per_thread(&[long], 2560), 2);
}

#[test]
fn groups_may_be_smaller_than_the_kernel_was_compiled_for() {
    // Without the attribute 256 lanes are assumed, and the launch says how many there are.
    let text = IDS.replace("func @f", "func @g");
    for compiled in [256, 64] {
        let kernel = Kernel::new(&text, compiled);
        for lanes in [1, 2, 5, 60, 64] {
            let y = array(&[150], DType::I64, Layout::Rows, 1);
            let wanted = kernel.wanted_by(std::slice::from_ref(&y), 147, lanes).unwrap();
            for way in &kernel.ways {
                assert_eq!(
                    kernel.got_by(way, std::slice::from_ref(&y), 147, lanes).unwrap(),
                    wanted
                );
            }
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

#[test]
fn atomics_of_every_kind_change_elements_and_give_what_was_there() {
    for &dtype in DType::ALL {
        for op in tessera_tile::ops::atomic::OPS {
            let combine = tessera_tile::ops::atomic::combine(op);
            if combine.is_some_and(|f| !f.accepts(dtype.compute())) {
                continue;
            }
            let kernel = Kernel::new(&atomic(dtype, op), 32);
            for layout in [Layout::Rows, Layout::Gaps, Layout::Back] {
                let x = array(&[70], dtype, Layout::Rows, 1);
                let h = array(&[70], dtype, layout, 2);
                let o = array(&[70], dtype, Layout::Rows, 3);
                kernel.check(&[x, h.clone(), o, h, scalar(3i64)], 70);
            }
        }
    }
}

#[test]
fn lanes_that_share_elements_all_count() {
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
        let kernel = Kernel::new(
            &format!(
                "func @f(%ix: view<[n], i32, read>, %h: view<[m], {dtype}, read_write>) {{kind = lane}} {{
                   %i = tile.linear_id : i64
                   %at32 = tile.load %ix at(%i) {{extent = [0]}} : i32
                   %at = tile.cast %at32 : i64
                   %v = tile.cast %i : {c}
                   %old = tile.atomic %h, %v at(%at) {{op = {op}}} : {dtype}
                   tile.return
                 }}"
            )
            .replace("%v = tile.cast %i : i64", "%v = tile.add %i, %i : i64"),
            64,
        );
        let order: Vec<i32> = (0..450).map(|i| (i * 7) % 13 - 2).collect();
        let h = array(&[9], dtype, Layout::Rows, 2);
        kernel.check(&[ints(&order), h], 450);
    }
}

#[test]
fn folds_into_shared_elements_all_count() {
    for (dtype, op, at) in [
        (DType::I32, "sum", "%at"),
        (DType::I64, "max", "%at"),
        (DType::F32, "max", "%at"),
        (DType::I32, "sum", "%k"),
        (DType::F32, "min", "%k"),
        (DType::I32, "prod", "%k"),
    ] {
        let kernel = Kernel::new(
            &format!(
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
            ),
            64,
        );
        let order: Vec<i32> = (0..450).map(|i| (i * 7) % 13 - 2).collect();
        let x = array(&[450], dtype, Layout::Rows, 1);
        let h = array(&[9], dtype, Layout::Rows, 2);
        kernel.check(&[ints(&order), x, h, scalar(3i64)], 450);
    }
}

#[test]
fn sums_of_floats_from_many_lanes_are_refused_where_their_order_shows() {
    let kernel = Kernel::new(
        "func @f(%x: view<[n], f32, read>, %h: view<[m], f32, reduce_sum>, %k: i64) {kind = lane} {
           %i = tile.linear_id : i64
           %v = tile.load %x at(%i) {extent = [0]} : f32
           tile.accumulate %h, %v at(%k) {op = sum, extent = [0]}
           tile.return
         }",
        64,
    );
    let ones = filled(DType::F32, &[1.0f32; 300], |v| v.to_le_bytes().to_vec());
    let h = filled(DType::F32, &[0.5f32; 4], |v| v.to_le_bytes().to_vec());
    let args = [ones, h, scalar(2i64)];
    let wanted = kernel.wanted(&args, 300).unwrap();
    for way in &kernel.ways {
        match (way.profile, kernel.got(way, &args, 300)) {
            (tessera_numerics::Profile::Default, got) => assert_eq!(got.unwrap(), wanted),
            (_, got) => assert!(got.unwrap_err().starts_with("E_UNSUPPORTED folding")),
        }
    }
}
