//! Checked mode: integers that wrap, division by zero, NaN and infinities.

use super::args;
use super::check::{broken, check, places};
use super::lanes;
use tessera_interp::HostArray;
use tessera_numerics::{DType, Scalar};
use tessera_target::ArgValue;

fn group(params: &str, body: &str) -> String {
    format!(
        "func @f({params}) {{kind = group}} {{
  %zero = tile.const {{value = 0}} : i64
  %one = tile.const {{value = 1}} : i64
  %four = tile.const {{value = 4}} : i64
  {body}
  tile.return
}}"
    )
}

fn int(v: i64) -> ArgValue {
    ArgValue::Scalar(Scalar::I64(v))
}

#[test]
fn i32_arithmetic_that_wraps_on_the_way_to_an_index_is_found_where_it_wraps() {
    let text = group(
        "%x: view<[n], f32, read>, %y: view<[1], f32, write>, %k: i64",
        "%ki = tile.cast %k : i32
         %sq = tile.mul %ki, %ki : i32 loc(\"k.py\":3:9)
         %wide = tile.cast %sq : i64
         %at = tile.add %wide, %one : i64
         %v = tile.load %x at(%at) {extent = [1]} : tile<1xf32> loc(\"k.py\":5:9)
         tile.store %y, %v at(%zero) {extent = [1]}",
    );
    let mut x = HostArray::zeros(&[4], DType::F32);
    let mut y = HostArray::zeros(&[1], DType::F32);
    let mut launch = || args(vec![x.as_arg(), y.as_arg(), int(65536)], [1; 3]);
    let slow_path = (
        "%sq = tile.mul %ki, %ki : i32 loc(\"k.py\":3:9)\n         %wide = tile.cast %sq : i64",
        "%kw = tile.cast %ki : i64\n%wide = tile.mul %kw, %kw : i64",
    );
    let shown = broken(&text, "E_OVERFLOW 3", slow_path, &mut launch);
    assert!(
        shown.contains("65536 * 65536 does not fit i32, and the result is used as an index"),
        "{shown}"
    );
    // The same product that is only stored wraps as integers do.
    let stored = group(
        "%y: view<[1], i32, write>, %k: i64",
        "%ki = tile.cast %k : i32
         %sq = tile.mul %ki, %ki : i32
         tile.store %y, %sq at(%zero) {extent = [0]}",
    );
    let mut y = HostArray::zeros(&[1], DType::I32);
    assert!(check(&stored, &args(vec![y.as_arg(), int(65536)], [1; 3])).is_clean());
}

#[test]
fn i64_that_wraps_in_a_loop_is_found() {
    let text = group(
        "%x: view<[n], f32, write>, %k: i64",
        "%v = tile.const {value = 1.0} : tile<1xf32>
         %at = tile.for %zero, %four, %one init(%one) : i64 do (%i: i64, %a: i64) {
           %b = tile.mul %a, %k : i64 loc(\"k.py\":4:9)
           tile.yield %b
         }
         tile.store %x, %v at(%at) {extent = [1]}",
    );
    let mut x = HostArray::zeros(&[4], DType::F32);
    let mut run = |k| places(&check(&text, &args(vec![x.as_arg(), int(k)], [1; 3])));
    assert_eq!(run(1 << 31), ["E_OVERFLOW 4"]);
    assert_eq!(run(1 << 15), [""; 0]);
}

#[test]
fn an_index_that_does_not_fit_its_conversion_is_found() {
    let text = group(
        "%x: view<[n], f32, read>, %y: view<[1], f32, write>, %k: i64",
        "%ki = tile.cast %k : i32 loc(\"k.py\":3:9)
         %at = tile.cast %ki : i64
         %v = tile.load %x at(%at) {extent = [1]} : tile<1xf32>
         tile.store %y, %v at(%zero) {extent = [1]}",
    );
    let mut x = HostArray::zeros(&[4], DType::F32);
    let mut y = HostArray::zeros(&[1], DType::F32);
    let mut launch = || args(vec![x.as_arg(), y.as_arg(), int((1 << 32) + 1)], [1; 3]);
    let shown = broken(&text, "E_OVERFLOW 3", ("load %x at(%at)", "load %x at(%k)"), &mut launch);
    assert!(shown.contains("4294967297 does not fit i32"), "{shown}");
}

#[test]
fn lanes_divide_by_zero_where_they_run() {
    let text = "
func @f(%x: view<[n], i32, read>, %y: view<[n], i32, read_write>) {kind = lane} {
  %i = tile.linear_id : i64
  %z = tile.const {value = 0} : i32
  %a = tile.load %x at(%i) {extent = [0]} : i32
  %b = tile.load %y at(%i) {extent = [0]} : i32
  %some = tile.ne %b, %z : bool
  %any = tile.eq %b, %b : bool
  tile.if %any do {
    %q = tile.floordiv %a, %b : i32 loc(\"k.py\":5:13)
    tile.store %y, %q at(%i) {extent = [0]}
    tile.yield
  } do {
    tile.yield
  }
  tile.return
}";
    let mut x = HostArray::new(&[6], DType::I32, &[7.0; 6]);
    let values = [1.0, 2.0, 3.0, 4.0, 0.0, 6.0];
    let mut y = HostArray::new(&[6], DType::I32, &values);
    let divisors = y.bytes.clone();
    let shown = broken(text, "E_DIV_ZERO 5", ("tile.if %any", "tile.if %some"), || {
        y.bytes.copy_from_slice(&divisors);
        lanes(vec![x.as_arg(), y.as_arg()], 6, 4)
    });
    assert!(
        shown.contains("7 // 0 divides by zero") && shown.contains("lane 0 of group 1"),
        "{shown}"
    );
}

#[test]
fn tiles_divide_by_zero_but_not_in_the_padding() {
    let text = group(
        "%x: view<[n], i32, read>, %y: view<[n], i32, write>",
        "%t = tile.load %x at(%zero) {extent = [8]} : tile<8xi32>
         %z = tile.const {value = 0} : tile<8xi32>
         %o = tile.const {value = 1} : tile<8xi32>
         %s = tile.const {value = 7} : tile<8xi32>
         %is = tile.eq %t, %z : tile<8xbool>
         %d = tile.select %is, %o, %t : tile<8xi32>
         %r = tile.mod %s, %t : tile<8xi32> loc(\"k.py\":4:9)
         tile.store %y, %r at(%zero) {extent = [8]}",
    );
    let mut x = HostArray::new(&[5], DType::I32, &[1.0, 2.0, 0.0, 3.0, 4.0]);
    let mut y = HostArray::zeros(&[5], DType::I32);
    let shown = broken(&text, "E_DIV_ZERO 4", ("mod %s, %t", "mod %s, %d"), || {
        args(vec![x.as_arg(), y.as_arg()], [1; 3])
    });
    assert!(shown.contains("7 % 0") && shown.contains("element [2]"), "{shown}");
    assert!(!shown.contains("times"), "{shown}");
    let mut x = HostArray::new(&[5], DType::I32, &[1.0; 5]);
    assert!(check(&text, &args(vec![x.as_arg(), y.as_arg()], [1; 3])).is_clean());
}

/// Loads `%a` and `%b`, two tiles of 2×3, and stores `%r`.
fn floats(body: &str) -> String {
    group(
        "%x: view<[n, 3], f32, read>, %y: view<[n, 3], f32, read>, %o: view<[n, 3], f32, write>",
        &format!(
            "%a = tile.load %x at(%zero, %zero) {{extent = [2, 3]}} : tile<2x3xf32>
             %b = tile.load %y at(%zero, %zero) {{extent = [2, 3]}} : tile<2x3xf32>
             {body}
             tile.store %o, %r at(%zero, %zero) {{extent = [2, 3]}} loc(\"k.py\":9:5)"
        ),
    )
}

fn on(text: &str, rows: i64, a: [f64; 6], b: [f64; 6]) -> (Vec<String>, String) {
    let mut x = HostArray::new(&[rows, 3], DType::F32, &a);
    let mut y = HostArray::new(&[rows, 3], DType::F32, &b);
    let mut o = HostArray::zeros(&[rows, 3], DType::F32);
    let report = check(text, &args(vec![x.as_arg(), y.as_arg(), o.as_arg()], [1; 3]));
    (places(&report), report.findings.render())
}

const ONES: [f64; 6] = [1.0; 6];

#[test]
fn zero_by_zero_is_found_where_it_is_divided() {
    let text = floats(
        "%q = tile.div %a, %b : tile<2x3xf32> loc(\"k.py\":4:9)
         %r = tile.add %q, %a : tile<2x3xf32> loc(\"k.py\":5:9)",
    );
    let zero = [1.0, 1.0, 1.0, 1.0, 0.0, 1.0];
    let (found, shown) = on(&text, 2, zero, zero);
    assert_eq!(found, ["E_NAN_INF 4 < 9"], "{shown}");
    assert!(
        shown.contains("`div` makes NaN of 0.0 and 0.0 in element [1, 1] of its result"),
        "{shown}"
    );
    assert!(shown.contains("stored here into `o` at [1, 1]"), "{shown}");
    assert_eq!(on(&text, 2, ONES, ONES).0, [""; 0]);
    // The second row is padding: nothing reads its results.
    assert_eq!(on(&text, 1, zero, zero).0, [""; 0]);
    // NaN and Inf from inputs, or computed from them, were not born here.
    let infinite = [f64::INFINITY, f64::NAN, 0.0, 1.0, 1.0, 1.0];
    assert_eq!(on(&text, 2, infinite, ONES).0, [""; 0]);
}

#[test]
fn what_a_mask_takes_away_is_no_finding() {
    let text = floats(
        "%z = tile.const {value = 0.0} : tile<2x3xf32>
         %q = tile.div %a, %b : tile<2x3xf32> loc(\"k.py\":4:9)
         %c = tile.ne %b, %z : tile<2x3xbool>
         %r = tile.select %c, %q, %a : tile<2x3xf32>",
    );
    let zero = [1.0, 0.0, 1.0, 1.0, 1.0, 1.0];
    assert_eq!(on(&text, 2, ONES, zero).0, [""; 0]);
    let broken = text.replace("tile.ne %b, %z", "tile.eq %b, %b");
    let (found, shown) = on(&broken, 2, ONES, zero);
    assert_eq!(found, ["E_NAN_INF 4 < 9"]);
    assert!(shown.contains("makes inf of 1.0 and 0.0"), "{shown}");
}

#[test]
fn infinite_constants_are_masks() {
    let text = floats(
        "%i = tile.const {value = -inf} : tile<2x3xf32>
         %c = tile.lt %a, %b : tile<2x3xbool>
         %m = tile.select %c, %a, %i : tile<2x3xf32>
         %d = tile.add %m, %m : tile<2x3xf32> loc(\"k.py\":4:9)
         %e = tile.exp %m : tile<2x3xf32>
         %r = tile.add %d, %e : tile<2x3xf32>",
    );
    assert_eq!(on(&text, 2, ONES, ONES).0, [""; 0]);
    // Two infinities may give a NaN: a row of a softmax that is masked completely.
    let broken = text.replace("tile.add %m, %m", "tile.sub %m, %m");
    let (found, shown) = on(&broken, 2, ONES, ONES);
    assert_eq!(found, ["E_NAN_INF 4 < 9"]);
    assert!(shown.contains("`sub` makes NaN of -inf and -inf"), "{shown}");
}

#[test]
fn exp_overflows_unless_the_maximum_goes_first() {
    let text = floats(
        "%m = tile.reduce %a {op = max, axis = 1} : tile<2xf32>
         %me = tile.expand %m {axis = 1} : tile<2x1xf32>
         %mb = tile.broadcast %me : tile<2x3xf32>
         %s = tile.sub %a, %mb : tile<2x3xf32>
         %e = tile.exp %a : tile<2x3xf32> loc(\"k.py\":5:9)
         %t = tile.reduce %e {op = sum, axis = 1} : tile<2xf32> loc(\"k.py\":6:9)
         %te = tile.expand %t {axis = 1} : tile<2x1xf32>
         %tb = tile.broadcast %te : tile<2x3xf32>
         %r = tile.div %e, %tb : tile<2x3xf32> loc(\"k.py\":7:9)",
    );
    let big = [1.0, 2.0, 3.0, 1.0, 200.0, 3.0];
    let (found, shown) = on(&text, 2, big, ONES);
    assert_eq!(found, ["E_NAN_INF 5 < 9"], "{shown}");
    assert!(shown.contains("`exp` makes inf of 200.0 in element [1, 1]"), "{shown}");
    assert_eq!(on(&text.replace("tile.exp %a", "tile.exp %s"), 2, big, ONES).0, [""; 0]);
    // An infinity that ends as a zero is harmless.
    let recip = text.replace("%r = tile.div %e, %tb", "%r = tile.div %a, %tb");
    assert_eq!(on(&recip, 2, big, ONES).0, [""; 0]);
}

#[test]
fn sums_and_products_that_overflow_are_found() {
    let sum = floats(
        "%s = tile.reduce %a {op = sum, axis = 0} : tile<3xf32> loc(\"k.py\":4:9)
         %e = tile.expand %s {axis = 0} : tile<1x3xf32>
         %r = tile.broadcast %e : tile<2x3xf32>",
    );
    let big = [1.0, 3e38, 1.0, 1.0, 3e38, 1.0];
    let (found, shown) = on(&sum, 2, big, ONES);
    assert_eq!(found, ["E_NAN_INF 4 < 9"]);
    assert!(shown.contains("`sum` makes inf of finite numbers in element [1]"), "{shown}");
    assert_eq!(on(&sum, 2, ONES, ONES).0, [""; 0]);
    let steps = floats("%r = tile.scan %a {op = sum, axis = 0} : tile<2x3xf32> loc(\"k.py\":4:9)");
    let (found, shown) = on(&steps, 2, big, ONES);
    assert_eq!(found, ["E_NAN_INF 4 < 9"]);
    assert!(shown.contains("`scan` makes inf of finite numbers in element [1, 1]"), "{shown}");
    // An exclusive scan begins with the identity.
    let top = "tile.scan %a {op = max, axis = 0, exclusive = true}";
    assert_eq!(
        on(&steps.replace("tile.scan %a {op = sum, axis = 0}", top), 2, big, ONES).0,
        [""; 0]
    );
    let product = floats(
        "%t = tile.transpose %b {perm = [1, 0]} : tile<3x2xf32>
         %z = tile.const {value = 0.0} : tile<2x2xf32>
         %p = tile.mma %a, %t, %z : tile<2x2xf32> loc(\"k.py\":4:9)
         %z3 = tile.const {value = 0.0} : tile<2x3xf32>
         %r = tile.mma %p, %a, %z3 : tile<2x3xf32> loc(\"k.py\":5:9)",
    );
    let (found, shown) = on(&product, 2, big, [1.0, 2.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(found, ["E_NAN_INF 4 < 9"]);
    assert!(shown.contains("`mma` makes inf of finite numbers in element [0, 0]"), "{shown}");
    assert_eq!(on(&product, 2, ONES, ONES).0, [""; 0]);
}

#[test]
fn conversion_to_a_smaller_dtype_overflows() {
    let text = group(
        "%x: view<[2], f32, read>, %y: view<[2], f16, write>",
        "%a = tile.load %x at(%zero) {extent = [2]} : tile<2xf32>
         %r = tile.cast %a : tile<2xf16> loc(\"k.py\":3:9)
         tile.store %y, %r at(%zero) {extent = [2]} loc(\"k.py\":3:5)",
    );
    let mut x = HostArray::new(&[2], DType::F32, &[1.0, 70000.0]);
    let mut y = HostArray::zeros(&[2], DType::F16);
    let slow_path = ("%a : tile<2xf16>", "%a {saturate = true} : tile<2xf16>");
    let shown =
        broken(&text, "E_NAN_INF 3 < 3", slow_path, || args(vec![x.as_arg(), y.as_arg()], [1; 3]));
    assert!(shown.contains("`cast` makes inf of 70000.0"), "{shown}");
}

#[test]
fn folding_that_overflows_is_found() {
    let text = group(
        "%x: view<[2], f32, reduce_sum>",
        "%v = tile.const {value = 2.0e38} : tile<2xf32>
         tile.accumulate %x, %v at(%one) {op = sum, extent = [2]} loc(\"k.py\":3:5)",
    );
    let mut x = HostArray::zeros(&[2], DType::F32);
    let shown = broken(&text, "E_NAN_INF 3 < 3", ("2.0e38", "1.0e30"), || {
        x = HostArray::zeros(&[2], DType::F32);
        args(vec![x.as_arg()], [3, 1, 1])
    });
    assert!(shown.contains("`accumulate` makes inf") && shown.contains("`x` at [1]"), "{shown}");
}

#[test]
fn a_birth_is_followed_through_shared_memory_loops_and_lanes() {
    let text = "
func @f(%x: view<[n], f32, read_write>) {kind = lane} {
  %i = tile.linear_id : i64
  %l = tile.local_id : i64
  %zero = tile.const {value = 0} : i64
  %one = tile.const {value = 1} : i64
  %three = tile.const {value = 3} : i64
  %b = tile.buf_alloc : buf<4xf32>
  %v = tile.load %x at(%i) {extent = [0]} : f32
  %odd = tile.gt %l, %one : bool
  %w = tile.if %odd : f32 do {
    %g = tile.log %v : f32 loc(\"k.py\":5:13)
    tile.yield %g
  } do {
    tile.yield %v
  }
  tile.store %b, %w at(%l) {extent = [0]}
  tile.barrier
  %m = tile.sub %three, %l : i64
  %r = tile.load %b at(%m) {extent = [0]} : f32
  %s = tile.for %zero, %l, %one init(%r) : f32 do (%k: i64, %acc: f32) {
    %n = tile.add %acc, %r : f32
    tile.yield %n
  }
  tile.store %x, %s at(%i) {extent = [0]} loc(\"k.py\":11:5)
  tile.return
}";
    let run = |values: &[f64]| {
        let mut x = HostArray::new(&[4], DType::F32, values);
        let report = check(text, &lanes(vec![x.as_arg()], 4, 4));
        (places(&report), report.findings.render())
    };
    let (found, shown) = run(&[0.0, 0.0, 1.0, 0.0]);
    assert_eq!(found, ["E_NAN_INF 5 < 11"], "{shown}");
    assert!(shown.contains("`log` makes -inf of 0.0"), "{shown}");
    assert!(shown.contains("into `x` at [0]") && shown.contains("lane 0 of group 0"), "{shown}");
    assert_eq!(run(&[0.0, 0.0, 1.0, 2.0]).0, [""; 0]);
}
