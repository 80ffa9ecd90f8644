//! Every other op, on shapes that include empty ones, axes of 1 and broadcasting.

use crate::common::{arguments, check, check_with, func, module};
use tessera_interp::HostArray;
use tessera_numerics::DType;

const NEAR: (f64, f64) = (-1.5, 1.5);

fn unary(from: &str, op: &str, to: &str) {
    let body = format!(
        "  %r = graph.{op} : tensor<[{to}], f64>\n  %q = graph.mul %r, %r : tensor<[{to}], f64>\n  graph.return %q"
    );
    check(&func(&format!("%x: tensor<[{from}], f64>"), &body), NEAR);
}

#[test]
fn shapes() {
    for (from, op, to) in [
        ("3", "broadcast %x {dims = [1]}", "2, 3"),
        ("1, 3", "broadcast %x {dims = [0, 2]}", "4, 2, 3"),
        ("1", "broadcast %x {dims = [0]}", "0"),
        ("", "broadcast %x {dims = []}", "2, 1"),
        ("1, 1", "broadcast %x {dims = [0, 1]}", "1, 3"),
        ("2, 3", "reshape %x", "3, 2"),
        ("", "reshape %x", "1, 1"),
        ("0, 3", "reshape %x", "3, 0"),
        ("2, 3, 4", "transpose %x {perm = [2, 0, 1]}", "4, 2, 3"),
        ("7, 3", "slice %x {start = [1, 0], limit = [6, 3], stride = [2, 1]}", "3, 3"),
        ("8", "slice %x {start = [1], limit = [8], stride = [3]}", "3"),
        ("4", "slice %x {start = [2], limit = [2]}", "0"),
        ("5", "reverse %x {axes = [0]}", "5"),
        ("2, 3", "reverse %x {axes = [1, 0]}", "2, 3"),
    ] {
        unary(from, op, to);
    }
}

#[test]
fn symbolic_extents_reach_the_pullback() {
    let body = "  %s = graph.reduce %x {op = sum, axes = [0]} : tensor<[], f64>
  %b = graph.broadcast %s {dims = []} : tensor<[m], f64>
  %r = graph.mul %b, %b : tensor<[m], f64>
  %t = graph.reduce %r {op = sum, axes = [0]} : tensor<[], f64>
  graph.return %t";
    check(&func("%x: tensor<[n], f64>, %y: tensor<[m], f64>", body), NEAR);
}

#[test]
fn pads_and_joins() {
    for (from, attrs, to) in [
        ("3, 4", "lo = [1, 0], hi = [2, 1]", "6, 5"),
        ("3, 4", "lo = [1, -1], hi = [0, -2], interior = [2, 0]", "8, 1"),
        ("5", "lo = [-1], hi = [2], interior = [1]", "10"),
        ("0", "lo = [1], hi = [1], interior = [1]", "2"),
        ("1", "lo = [0], hi = [0], interior = [3]", "1"),
    ] {
        let body = format!(
            "  %r = graph.pad %x, %v {{{attrs}}} : tensor<[{to}], f64>
  %q = graph.mul %r, %r : tensor<[{to}], f64>\n  graph.return %q"
        );
        check(&func(&format!("%x: tensor<[{from}], f64>, %v: tensor<[], f64>"), &body), NEAR);
    }
    let body = "  %r = graph.concat %x, %y, %x {axis = 1} : tensor<[2, 7], f64>
  %q = graph.mul %r, %r : tensor<[2, 7], f64>\n  graph.return %q";
    check(&func("%x: tensor<[2, 3], f64>, %y: tensor<[2, 1], f64>", body), NEAR);
    let body = "  %r = graph.concat %x, %y {axis = 0} : tensor<[2], f64>\n  graph.return %r";
    check(&func("%x: tensor<[0], f64>, %y: tensor<[2], f64>", body), NEAR);
}

#[test]
fn conversions() {
    let body = "  %r = graph.cast %x : tensor<[3], f64>
  %i = graph.cast %x : tensor<[3], i32>
  %b = graph.bitcast %x : tensor<[3], i64>
  %s = graph.stop_gradient %x : tensor<[3], f64>
  %h, %g = graph.opt_barrier %x, %i : tensor<[3], f64>, tensor<[3], i32>
  %q = graph.mul %h, %r : tensor<[3], f64>
  graph.return %q, %i, %b, %g";
    check(&func("%x: tensor<[3], f64>", body), (0.2, 0.8));
    let body = "  %s = graph.shard %x {axes = [dp], sizes = [3], split = [[dp]]} : tensor<[3], f64>
  %q = graph.mul %s, %x : tensor<[3], f64>
  graph.return %q";
    check(&func("%x: tensor<[3], f64>", body), (0.2, 0.8));
    let body = "  %n = graph.dim {name = n} : tensor<[], i64>
  %f = graph.cast %n : tensor<[], f64>
  %p = graph.iota {axis = 0} : tensor<[n], f64>
  %c = graph.const {value = 2.0} : tensor<[n], f64>
  %q = graph.mul %p, %x : tensor<[n], f64>
  %w = graph.mul %q, %c : tensor<[n], f64>
  %v = graph.mul %w, %x : tensor<[n], f64>
  graph.return %v, %f, %p";
    check(&func("%x: tensor<[n], f64>", body), NEAR);
}

#[test]
fn parts_at_computed_places() {
    let body = "  %r = graph.dynamic_slice %x at(%i, %j) {extent = [2, 2]} : tensor<[2, 2], f64>
  %q = graph.mul %r, %r : tensor<[2, 2], f64>
  %y = graph.dynamic_update_slice %x, %q at(%j, %i) : tensor<[4, 3], f64>
  %z = graph.mul %y, %x : tensor<[4, 3], f64>
  graph.return %z";
    let params = "%x: tensor<[4, 3], f64>, %i: tensor<[], i64>, %j: tensor<[], i32>";
    check(&func(params, body), (0.3, 3.9));
}

#[test]
fn gathers() {
    for (x, at, attrs, to) in [
        ("4, 3", "5, 1", "axes = [0]", "5, 3"),
        ("4, 3", "5, 2", "axes = [1, 0], oob = fill", "5"),
        ("2, 4, 3", "2, 5, 1", "axes = [2], batch = 1, oob = fill", "2, 5, 4"),
        ("4, 3", "0, 1", "axes = [1]", "0, 4"),
        ("4", "1", "axes = [0]", ""),
    ] {
        let body = format!(
            "  %r = graph.gather %x, %i {{{attrs}}} : tensor<[{to}], f64>
  %q = graph.mul %r, %r : tensor<[{to}], f64>\n  graph.return %q"
        );
        let params = format!("%x: tensor<[{x}], f64>, %i: tensor<[{at}], i32>");
        check(&func(&params, &body), (-1.0, 5.9));
    }
    let body = "  %r = graph.gather %x, %i other(%o) {axes = [0], oob = fill} : tensor<[6, 2], f64>
  %q = graph.mul %r, %r : tensor<[6, 2], f64>\n  graph.return %q";
    let params = "%x: tensor<[3, 2], f64>, %i: tensor<[6, 1], i64>, %o: tensor<[], f64>";
    check(&func(params, body), (-1.0, 4.9));
    // Only the padding value is active.
    let body = "  %x = graph.const {value = 0.5} : tensor<[3, 2], f64>
  %r = graph.gather %x, %i other(%o) {axes = [0], oob = fill} : tensor<[6, 2], f64>
  %q = graph.mul %r, %r : tensor<[6, 2], f64>\n  graph.return %q";
    check(&func("%i: tensor<[6, 1], i64>, %o: tensor<[], f64>", body), (-1.0, 4.9));
}

fn scatter(op: &str, more: &str) {
    for (x, at, attrs, u) in [
        ("4, 3", "6, 1", "axes = [0]", "6, 3"),
        ("4, 3", "6, 2", "axes = [1, 0], oob = clamp", "6"),
        ("2, 4, 3", "2, 3, 1", "axes = [2], batch = 1", "2, 3, 4"),
        ("4", "0, 1", "axes = [0]", "0"),
    ] {
        let body = format!(
            "  %r = graph.scatter %x, %i, %u {{op = {op}, {attrs}{more}}} : tensor<[{x}], f64>
  %q = graph.mul %r, %x : tensor<[{x}], f64>\n  graph.return %q"
        );
        let params =
            format!("%x: tensor<[{x}], f64>, %i: tensor<[{at}], i64>, %u: tensor<[{u}], f64>");
        check(&func(&params, &body), (-1.0, 4.9));
    }
}

#[test]
fn scatters() {
    for op in ["set", "sum", "prod", "max", "min"] {
        scatter(op, "");
    }
}

#[test]
fn a_unique_scatter() {
    let body = "  %i = graph.iota {axis = 0} : tensor<[3, 1], i64>
  %a = graph.scatter %x, %i, %u {op = set, axes = [0], unique = true} : tensor<[4], f64>
  %b = graph.scatter %a, %i, %u {op = prod, axes = [0], unique = true} : tensor<[4], f64>
  graph.return %b";
    check(&func("%x: tensor<[4], f64>, %u: tensor<[3], f64>", body), NEAR);
}

#[test]
fn a_product_with_zeros_is_exact() {
    let text = func(
        "%x: tensor<[4], f64>, %i: tensor<[3, 1], i64>, %u: tensor<[3], f64>",
        "  %r = graph.scatter %x, %i, %u {op = prod, axes = [0]} : tensor<[4], f64>\n  graph.return %r",
    );
    let mut m = module(&text);
    let args = [
        HostArray::new(&[4], DType::F64, &[2.0, 3.0, 0.0, 5.0]),
        HostArray::new(&[3, 1], DType::I64, &[0.0, 0.0, 1.0]),
        HostArray::new(&[3], DType::F64, &[0.0, 7.0, 1.5]),
    ];
    crate::common::first_order(&mut m, "f", &args);
    let text = func(
        "%x: tensor<[5], f64>",
        "  %r = graph.reduce %x {op = prod, axes = [0]} : tensor<[], f64>\n  %s = graph.scan %x {op = prod, axis = 0} : tensor<[5], f64>\n  graph.return %r, %s",
    );
    let mut m = module(&text);
    check_with(&mut m, &[HostArray::new(&[5], DType::F64, &[2.0, 0.0, 1.5, 0.0, 3.0])]);
}

#[test]
fn reductions() {
    for op in ["sum", "prod", "max", "min"] {
        for (from, axes, to) in [
            ("5", "0", ""),
            ("2, 3, 4", "0, 2", "3"),
            ("2, 3, 4", "1", "2, 4"),
            ("1, 3", "0", "3"),
            ("3, 0", "1", "3"),
            ("2, 2", "", "2, 2"),
        ] {
            // The greatest of nothing is an infinity, which has no differences.
            if from != "3, 0" || !matches!(op, "max" | "min") {
                unary(from, &format!("reduce %x {{op = {op}, axes = [{axes}]}}"), to);
            }
        }
    }
}

#[test]
fn running_reductions() {
    for op in ["sum", "prod", "max", "min"] {
        for flags in
            ["", ", reverse = true", ", exclusive = true", ", exclusive = true, reverse = true"]
        {
            for (shape, axis) in [("5", 0), ("2, 4", 1), ("3, 2", 0), ("2, 1", 1), ("0, 2", 0)] {
                // A running maximum of nothing is an infinity, which has no differences.
                let limited = format!(
                    "  %y = graph.scan %x {{op = {op}, axis = {axis}{flags}}} : tensor<[{shape}], f64>
  %lo = graph.const {{value = -9.0}} : tensor<[{shape}], f64>
  %hi = graph.const {{value = 9.0}} : tensor<[{shape}], f64>
  %r = graph.clamp %y, %lo, %hi : tensor<[{shape}], f64>
  %q = graph.mul %r, %x : tensor<[{shape}], f64>
  graph.return %q"
                );
                check(&func(&format!("%x: tensor<[{shape}], f64>"), &limited), NEAR);
            }
        }
    }
}

#[test]
fn sorting() {
    for (shape, attrs) in [
        ("6", "axis = 0"),
        ("3, 4", "axis = 1, descending = true"),
        ("4, 3", "axis = 0, keys = 2"),
        ("0, 2", "axis = 0"),
        ("2, 1", "axis = 1"),
    ] {
        let body = format!(
            "  %r, %q, %p = graph.sort %x, %y, %k {{{attrs}}} : tensor<[{shape}], f64>, tensor<[{shape}], f64>, tensor<[{shape}], i32>
  %z = graph.mul %r, %q : tensor<[{shape}], f64>
  graph.return %z, %p"
        );
        let params = format!(
            "%x: tensor<[{shape}], f64>, %y: tensor<[{shape}], f64>, %k: tensor<[{shape}], i32>"
        );
        check(&func(&params, &body), NEAR);
    }
}

#[test]
fn contractions() {
    for (a, b, attrs, to) in [
        ("2, 3", "3, 4", "contract_a = [1], contract_b = [0]", "2, 4"),
        ("3", "3", "contract_a = [0], contract_b = [0]", ""),
        ("2, 3", "4, 3", "contract_a = [1], contract_b = [1]", "2, 4"),
        (
            "5, 2, 3",
            "3, 5, 4",
            "batch_a = [0], batch_b = [1], contract_a = [2], contract_b = [0]",
            "5, 2, 4",
        ),
        ("2, 3, 4", "4, 3, 5", "contract_a = [2, 1], contract_b = [0, 1]", "2, 5"),
        (
            "3, 2, 4, 5",
            "5, 2, 3",
            "batch_a = [1, 0], batch_b = [1, 2], contract_a = [3], contract_b = [0]",
            "2, 3, 4",
        ),
        ("2", "3", "contract_a = [], contract_b = []", "2, 3"),
        ("2, 0", "0, 3", "contract_a = [1], contract_b = [0]", "2, 3"),
        ("2, 1", "1, 1", "contract_a = [1], contract_b = [0]", "2, 1"),
    ] {
        let body =
            format!("  %r = graph.dot %a, %b {{{attrs}}} : tensor<[{to}], f64>\n  graph.return %r");
        check(&func(&format!("%a: tensor<[{a}], f64>, %b: tensor<[{b}], f64>"), &body), NEAR);
    }
}

#[test]
fn convolutions() {
    for (x, w, attrs, to) in [
        ("1, 2, 5", "3, 2, 3", "", "1, 3, 3"),
        ("2, 2, 6", "4, 1, 3", "{strides = [2], lo = [1], hi = [2], groups = 2}", "2, 4, 4"),
        ("1, 2, 7", "2, 2, 2", "{strides = [3], dilate_w = [2]}", "1, 2, 2"),
        ("1, 1, 4", "2, 1, 3", "{dilate_x = [2], lo = [1], hi = [-1], strides = [2]}", "1, 2, 3"),
        (
            "2, 4, 4, 5",
            "6, 2, 3, 2",
            "{strides = [1, 2], lo = [1, 0], hi = [1, 1], dilate_w = [1, 2], groups = 2}",
            "2, 6, 4, 2",
        ),
        ("2, 3", "4, 3", "", "2, 4"),
        ("0, 2, 5", "3, 2, 3", "", "0, 3, 3"),
        ("1, 2, 2", "3, 2, 3", "", "1, 3, 0"),
        ("1, 2, 0", "3, 2, 1", "{lo = [1], hi = [1]}", "1, 3, 2"),
        ("1, 0, 4", "3, 0, 2", "", "1, 3, 3"),
    ] {
        let body =
            format!("  %r = graph.conv %x, %w {attrs} : tensor<[{to}], f64>\n  graph.return %r");
        check(&func(&format!("%x: tensor<[{x}], f64>, %w: tensor<[{w}], f64>"), &body), NEAR);
    }
}

#[test]
fn windows() {
    for op in ["sum", "max", "min", "prod"] {
        for (x, attrs, to) in [
            ("6", "window = [2], strides = [2]", "3"),
            ("7", "window = [3], strides = [2], lo = [1], hi = [1]", "4"),
            ("4, 5", "window = [2, 3], strides = [1, 2]", "3, 2"),
            ("2, 6", "window = [1, 2], dilate = [1, 2], strides = [1, 3]", "2, 2"),
            ("7", "window = [3], strides = [2], lo = [-1], hi = [-1]", "2"),
            ("2", "window = [3]", "0"),
        ] {
            // The padding of a maximum is an infinity where a window holds nothing else.
            unary(x, &format!("window_reduce %x {{op = {op}, {attrs}}}"), to);
        }
    }
}

#[test]
fn positions_and_random_words_do_not_move() {
    let body = "  %i = graph.argreduce %x {op = max, axis = 1} : tensor<[2], i64>
  %w = graph.window_argreduce %x {op = min, window = [1, 2]} : tensor<[2, 2], i64>
  %b = graph.philox %k, %i : tensor<[2], u32>
  %f = graph.cast %b : tensor<[2], f64>
  %s = graph.reduce %x {op = sum, axes = [1]} : tensor<[2], f64>
  %c = graph.const {value = 2.3283064365386963e-10} : tensor<[2], f64>
  %g = graph.mul %f, %c : tensor<[2], f64>
  %r = graph.mul %s, %g : tensor<[2], f64>
  %q = graph.mul %r, %s : tensor<[2], f64>
  graph.return %q, %i, %w";
    check(&func("%x: tensor<[2, 3], f64>, %k: tensor<[], i64>", body), NEAR);
}

#[test]
fn narrow_dtypes_keep_their_types() {
    let text = func(
        "%x: tensor<[4, 3], bf16>, %w: tensor<[3, 2], bf16>",
        "  %y = graph.dot %x, %w {contract_a = [1], contract_b = [0], out = f32} : tensor<[4, 2], f32>
  %z = graph.mul %y, %y : tensor<[4, 2], f32>
  %c = graph.cast %x : tensor<[4, 3], f32>
  %s = graph.reduce %c {op = sum, axes = [1]} : tensor<[4], f32>
  graph.return %z, %s",
    );
    let mut m = module(&text);
    let args = arguments(&m, "f", (-1.0, 1.0), 3);
    let back = tessera_autodiff::vjp(&mut m, "f", &[0, 1]).unwrap();
    let kept = crate::common::run(&m, &back.forward, &args);
    let mut inner = kept[2..].to_vec();
    inner.push(HostArray::new(&[4, 2], DType::F32, &[1.0; 8]));
    inner.push(HostArray::new(&[4], DType::F32, &[1.0; 4]));
    let grads = crate::common::run(&m, &back.pullback, &inner);
    assert_eq!((grads[0].dtype, grads[1].dtype), (DType::BF16, DType::BF16));
}

#[test]
fn symbolic_extents_everywhere() {
    // Attention over a symbolic batch and length, with a mask, a split and a join.
    let body = "  %q = graph.dot %x, %w {contract_a = [2], contract_b = [0]} : tensor<[b, t, 4], f64>
  %k = graph.slice %q {start = [0, 0, 0], limit = [b, t, 2]} : tensor<[b, t, 2], f64>
  %v = graph.slice %q {start = [0, 0, 2], limit = [b, t, 4]} : tensor<[b, t, 2], f64>
  %s = graph.dot %k, %v {batch_a = [0], batch_b = [0], contract_a = [2], contract_b = [2]} : tensor<[b, t, t], f64>
  %i = graph.iota {axis = 1} : tensor<[b, t, t], i32>
  %j = graph.iota {axis = 2} : tensor<[b, t, t], i32>
  %m = graph.ge %i, %j : tensor<[b, t, t], bool>
  %low = graph.const {value = -1e9} : tensor<[b, t, t], f64>
  %sm = graph.select %m, %s, %low : tensor<[b, t, t], f64>
  %mx = graph.reduce %sm {op = max, axes = [2]} : tensor<[b, t], f64>
  %mb = graph.broadcast %mx {dims = [0, 1]} : tensor<[b, t, t], f64>
  %d = graph.sub %sm, %mb : tensor<[b, t, t], f64>
  %e = graph.exp %d : tensor<[b, t, t], f64>
  %z = graph.reduce %e {op = sum, axes = [2]} : tensor<[b, t], f64>
  %zb = graph.broadcast %z {dims = [0, 1]} : tensor<[b, t, t], f64>
  %p = graph.div %e, %zb : tensor<[b, t, t], f64>
  %o = graph.dot %p, %v {batch_a = [0], batch_b = [0], contract_a = [2], contract_b = [1]} : tensor<[b, t, 2], f64>
  %c = graph.concat %o, %k {axis = 2} : tensor<[b, t, 4], f64>
  %r = graph.reshape %c : tensor<[(b * t), 4], f64>
  %head = graph.slice %r {start = [1, 0], limit = [(b * t), 4]} : tensor<[((b * t) - 1), 4], f64>
  %n = graph.dim {name = t} : tensor<[], i64>
  %f = graph.cast %n : tensor<[], f64>
  %fb = graph.broadcast %f {dims = []} : tensor<[((b * t) - 1), 4], f64>
  %y = graph.div %head, %fb : tensor<[((b * t) - 1), 4], f64>
  graph.return %y";
    check(&func("%x: tensor<[b, t, 2], f64>, %w: tensor<[2, 4], f64>", body), NEAR);
    // Windows and convolutions over a symbolic length.
    let body = "  %y = graph.conv %x, %w {lo = [1], hi = [1]} : tensor<[b, 2, n], f64>
  %p = graph.window_reduce %y {op = sum, window = [1, 1, 3]} : tensor<[b, 2, max((n - 2), 0)], f64>
  %z = graph.mul %p, %p : tensor<[b, 2, max((n - 2), 0)], f64>
  graph.return %z";
    check(&func("%x: tensor<[b, 3, n], f64>, %w: tensor<[2, 3, 3], f64>", body), NEAR);
}
