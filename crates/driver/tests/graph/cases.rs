//! Every op, in shapes that differ.

use super::check::{check, check_args, noise};
use tessera_interp::HostArray;
use tessera_numerics::DType;

fn f(params: &str, body: &str) -> String {
    format!("func @f({params}) {{\n{body}\n}}")
}

#[test]
fn elementwise_chains() {
    for dtype in ["f32", "f64", "bf16", "f16", "i32", "i64", "u8", "i8"] {
        for dims in ["", "1", "7", "4, 1, 9", "300, 70"] {
            let t = format!("tensor<[{dims}], {dtype}>");
            check(&f(
                &format!("%x: {t}, %y: {t}"),
                &format!(
                    "  %a = graph.add %x, %y : {t}\n  %b = graph.mul %a, %x : {t}\n  %c = graph.maximum %b, %y : {t}\n  graph.return %c, %a"
                ),
            ));
        }
    }
}

#[test]
fn functions_compare_select_cast() {
    check(&f(
        "%x: tensor<[9, 40], f32>, %y: tensor<[9, 40], f32>",
        "  %e = graph.exp %x : tensor<[9, 40], f32>
  %t = graph.tanh %e : tensor<[9, 40], f32>
  %l = graph.lt %x, %y : tensor<[9, 40], bool>
  %n = graph.not %l : tensor<[9, 40], bool>
  %s = graph.select %n, %t, %y : tensor<[9, 40], f32>
  %i = graph.cast %s : tensor<[9, 40], i8>
  %h = graph.cast %s : tensor<[9, 40], bf16>
  %b = graph.bitcast %h : tensor<[9, 40], u16>
  %k = graph.cast %l : tensor<[9, 40], f64>
  graph.return %s, %i, %b, %k",
    ));
}

#[test]
fn sources_and_views() {
    check(&f(
        "%x: tensor<[6, 8], f32>, %r: tensor<[8], f32>",
        "  %c = graph.const {value = 1.5} : tensor<[6, 8], f32>
  %d = graph.const {data = \"0100feff\"} : tensor<[2], i16>
  %i = graph.iota {axis = 1} : tensor<[6, 8], f32>
  %j = graph.iota {axis = 0} : tensor<[6, 8], i32>
  %jf = graph.cast %j : tensor<[6, 8], f32>
  %b = graph.broadcast %r {dims = [1]} : tensor<[6, 8], f32>
  %s = graph.add %x, %b : tensor<[6, 8], f32>
  %s2 = graph.mul %s, %i : tensor<[6, 8], f32>
  %s3 = graph.add %s2, %c : tensor<[6, 8], f32>
  %s4 = graph.sub %s3, %jf : tensor<[6, 8], f32>
  %t = graph.transpose %s4 {perm = [1, 0]} : tensor<[8, 6], f32>
  %q = graph.reshape %t : tensor<[4, 12], f32>
  %v = graph.reverse %q {axes = [1]} : tensor<[4, 12], f32>
  %w = graph.slice %v {start = [1, 2], limit = [4, 11], stride = [2, 3]} : tensor<[2, 3], f32>
  %z = graph.exp %w : tensor<[2, 3], f32>
  %y = graph.reshape %x : tensor<[2, 3, 8], f32>
  graph.return %z, %v, %d, %y, %t, %x",
    ));
}

#[test]
fn pads_and_joins() {
    check(&f(
        "%x: tensor<[4, 8], f32>, %y: tensor<[3, 8], f32>, %p: tensor<[], f32>",
        "  %e = graph.exp %x : tensor<[4, 8], f32>
  %r = graph.pad %e, %p {lo = [1, 0], hi = [1, -2], interior = [0, 1]} : tensor<[6, 13], f32>
  %q = graph.pad %x, %p {lo = [-1, 2], hi = [2, -3], interior = [2, 0]} : tensor<[11, 7], f32>
  %c = graph.concat %e, %y, %x {axis = 0} : tensor<[11, 8], f32>
  %n = graph.neg %c : tensor<[11, 8], f32>
  graph.return %r, %q, %n",
    ));
}

#[test]
fn reductions() {
    for op in ["sum", "prod", "max", "min"] {
        for dtype in ["f32", "f64", "bf16", "i32", "i8"] {
            for (dims, axes, left) in [
                ("5, 33", "1", "5"),
                ("5, 33", "0", "33"),
                ("5, 33", "0, 1", ""),
                ("3, 4, 5", "1", "3, 5"),
                ("3, 4, 5", "0, 2", "4"),
                ("1, 7", "0", "7"),
            ] {
                check(&f(
                    &format!("%x: tensor<[{dims}], {dtype}>"),
                    &format!(
                        "  %r = graph.reduce %x {{op = {op}, axes = [{axes}]}} : tensor<[{left}], {dtype}>\n  graph.return %r"
                    ),
                ));
            }
        }
    }
    for op in ["and", "or", "xor"] {
        check(&f(
            "%x: tensor<[5, 9], i32>, %b: tensor<[5, 9], bool>",
            &format!(
                "  %r = graph.reduce %x {{op = {op}, axes = [1]}} : tensor<[5], i32>\n  %q = graph.reduce %b {{op = {op}, axes = [0]}} : tensor<[9], bool>\n  graph.return %r, %q"
            ),
        ));
    }
}

#[test]
fn arg_reductions_and_scans() {
    for dtype in ["f32", "i64", "bf16"] {
        for op in ["max", "min"] {
            check(&f(
                &format!("%x: tensor<[4, 30, 3], {dtype}>"),
                &format!(
                    "  %r = graph.argreduce %x {{op = {op}, axis = 1}} : tensor<[4, 3], i64>\n  %q = graph.argreduce %x {{op = {op}, axis = 2}} : tensor<[4, 30], i64>\n  graph.return %r, %q"
                ),
            ));
        }
        for op in ["sum", "max", "prod"] {
            for more in
                ["", ", exclusive = true", ", reverse = true", ", exclusive = true, reverse = true"]
            {
                let t = format!("tensor<[4, 6, 3], {dtype}>");
                check(&f(
                    &format!("%x: {t}"),
                    &format!(
                        "  %e = graph.add %x, %x : {t}\n  %r = graph.scan %e {{op = {op}, axis = 1{more}}} : {t}\n  %q = graph.scan %x {{op = {op}, axis = 2{more}}} : {t}\n  %n = graph.add %r, %q : {t}\n  graph.return %n"
                    ),
                ));
            }
        }
    }
}

#[test]
fn norms() {
    check(&f(
        "%x: tensor<[4, 16, 48], f32>, %g: tensor<[48], f32>",
        "  %s = graph.reduce %x {op = sum, axes = [2]} : tensor<[4, 16], f32>
  %n = graph.const {value = 48.0} : tensor<[4, 16], f32>
  %m = graph.div %s, %n : tensor<[4, 16], f32>
  %mr = graph.reshape %m : tensor<[4, 16, 1], f32>
  %mb = graph.broadcast %mr {dims = [0, 1, 2]} : tensor<[4, 16, 48], f32>
  %c = graph.sub %x, %mb : tensor<[4, 16, 48], f32>
  %sq = graph.mul %c, %c : tensor<[4, 16, 48], f32>
  %v = graph.reduce %sq {op = sum, axes = [2]} : tensor<[4, 16], f32>
  %vn = graph.div %v, %n : tensor<[4, 16], f32>
  %rs = graph.rsqrt %vn : tensor<[4, 16], f32>
  %rb = graph.broadcast %rs {dims = [0, 1]} : tensor<[4, 16, 48], f32>
  %y = graph.mul %c, %rb : tensor<[4, 16, 48], f32>
  %gb = graph.broadcast %g {dims = [2]} : tensor<[4, 16, 48], f32>
  %z = graph.mul %y, %gb : tensor<[4, 16, 48], f32>
  %zz = graph.reshape %z : tensor<[64, 48], f32>
  %dg = graph.reduce %zz {op = sum, axes = [0]} : tensor<[48], f32>
  graph.return %zz, %rs, %y, %dg",
    ));
}

#[test]
fn softmax() {
    check(&f(
        "%x: tensor<[2, 3, 20, 20], f32>",
        "  %i = graph.iota {axis = 0} : tensor<[20, 20], i32>
  %j = graph.iota {axis = 1} : tensor<[20, 20], i32>
  %k = graph.le %j, %i : tensor<[20, 20], bool>
  %kb = graph.broadcast %k {dims = [2, 3]} : tensor<[2, 3, 20, 20], bool>
  %low = graph.const {value = -1.0e30} : tensor<[2, 3, 20, 20], f32>
  %u = graph.select %kb, %x, %low : tensor<[2, 3, 20, 20], f32>
  %m = graph.reduce %u {op = max, axes = [3]} : tensor<[2, 3, 20], f32>
  %mb = graph.broadcast %m {dims = [0, 1, 2]} : tensor<[2, 3, 20, 20], f32>
  %c = graph.sub %u, %mb : tensor<[2, 3, 20, 20], f32>
  %e = graph.exp %c : tensor<[2, 3, 20, 20], f32>
  %s = graph.reduce %e {op = sum, axes = [3]} : tensor<[2, 3, 20], f32>
  %sb = graph.broadcast %s {dims = [0, 1, 2]} : tensor<[2, 3, 20, 20], f32>
  %y = graph.div %e, %sb : tensor<[2, 3, 20, 20], f32>
  graph.return %y",
    ));
}

#[test]
fn products() {
    for dtype in ["f32", "f64", "bf16", "i32", "f16", "i8", "i64"] {
        let out = match dtype {
            "i8" => ", out = i32",
            _ => "",
        };
        let r = if dtype == "i8" { "i32" } else { dtype };
        for (a, b, axes, c) in [
            ("5, 7", "7, 9", "contract_a = [1], contract_b = [0]", "5, 9"),
            ("70, 33", "80, 33", "contract_a = [1], contract_b = [1]", "70, 80"),
            ("33, 70", "33, 80", "contract_a = [0], contract_b = [0]", "70, 80"),
            ("7", "7", "contract_a = [0], contract_b = [0]", ""),
            ("5, 7", "7", "contract_a = [1], contract_b = [0]", "5"),
            ("3", "4", "contract_a = [], contract_b = []", "3, 4"),
            (
                "2, 3, 5, 7",
                "2, 3, 7, 9",
                "batch_a = [0, 1], batch_b = [0, 1], contract_a = [3], contract_b = [2]",
                "2, 3, 5, 9",
            ),
            (
                "2, 5, 3, 7",
                "2, 9, 3, 7",
                "batch_a = [0, 2], batch_b = [0, 2], contract_a = [3], contract_b = [3]",
                "2, 3, 5, 9",
            ),
            ("4, 5, 6", "5, 3, 4", "contract_a = [0, 1], contract_b = [2, 0]", "6, 3"),
        ] {
            check(&f(
                &format!("%a: tensor<[{a}], {dtype}>, %b: tensor<[{b}], {dtype}>"),
                &format!(
                    "  %c = graph.dot %a, %b {{{axes}{out}}} : tensor<[{c}], {r}>\n  graph.return %c"
                ),
            ));
        }
    }
}

#[test]
fn products_with_what_follows() {
    check(&f(
        "%x: tensor<[2, 24, 32], f32>, %w: tensor<[32, 48], f32>, %b: tensor<[48], f32>, %r: tensor<[48, 48], f32>",
        "  %xr = graph.reshape %x : tensor<[48, 32], f32>
  %d = graph.dot %xr, %w {contract_a = [1], contract_b = [0]} : tensor<[48, 48], f32>
  %bb = graph.broadcast %b {dims = [1]} : tensor<[48, 48], f32>
  %s = graph.add %d, %bb : tensor<[48, 48], f32>
  %t = graph.tanh %s : tensor<[48, 48], f32>
  %y = graph.add %t, %r : tensor<[48, 48], f32>
  %q = graph.reshape %y : tensor<[2, 24, 4, 12], f32>
  %qt = graph.transpose %q {perm = [0, 2, 1, 3]} : tensor<[2, 4, 24, 12], f32>
  %k = graph.dot %qt, %qt {batch_a = [0, 1], batch_b = [0, 1], contract_a = [3], contract_b = [3]} : tensor<[2, 4, 24, 24], f32>
  %o = graph.dot %k, %qt {batch_a = [0, 1], batch_b = [0, 1], contract_a = [3], contract_b = [2]} : tensor<[2, 4, 24, 12], f32>
  %ot = graph.transpose %o {perm = [0, 2, 1, 3]} : tensor<[2, 24, 4, 12], f32>
  %or = graph.reshape %ot : tensor<[48, 48], f32>
  %p = graph.dot %or, %r {contract_a = [1], contract_b = [0]} : tensor<[48, 48], f32>
  graph.return %p, %s",
    ));
}

#[test]
fn parts_at_computed_places() {
    let i = |v: f64| HostArray::new(&[], DType::I64, &[v]);
    for (a, b) in [(0.0, 0.0), (1.0, 3.0), (-4.0, 100.0)] {
        let args = [noise(&[6, 9], DType::F32, 1), noise(&[2, 3], DType::F32, 2), i(a), i(b)];
        check_args(
            &f(
                "%x: tensor<[6, 9], f32>, %u: tensor<[2, 3], f32>, %i: tensor<[], i64>, %j: tensor<[], i64>",
                "  %e = graph.exp %x : tensor<[6, 9], f32>
  %s = graph.dynamic_slice %e at(%i, %j) {extent = [2, 4]} : tensor<[2, 4], f32>
  %n = graph.neg %s : tensor<[2, 4], f32>
  %q = graph.dynamic_update_slice %x, %u at(%j, %i) : tensor<[6, 9], f32>
  %p = graph.add %q, %e : tensor<[6, 9], f32>
  graph.return %n, %p",
            ),
            &args,
        );
    }
}

#[test]
fn gathers_and_scatters() {
    let ix = HostArray::new(&[5, 1], DType::I32, &[0.0, 3.0, 3.0, -1.0, 9.0]);
    let pair = HostArray::new(&[3, 2], DType::I64, &[0.0, 1.0, 3.0, 2.0, 7.0, 0.0]);
    let args = [
        noise(&[4, 6], DType::F32, 1),
        ix,
        pair,
        noise(&[5, 6], DType::F32, 3),
        noise(&[3], DType::F32, 4),
    ];
    for oob in ["clamp", "fill"] {
        let drop = if oob == "fill" { "drop" } else { oob };
        for op in ["set", "sum", "max", "prod"] {
            check_args(
                &f(
                    "%x: tensor<[4, 6], f32>, %i: tensor<[5, 1], i32>, %p: tensor<[3, 2], i64>, %u: tensor<[5, 6], f32>, %w: tensor<[3], f32>",
                    &format!(
                        "  %a = graph.gather %x, %i {{axes = [0], oob = {oob}}} : tensor<[5, 6], f32>
  %b = graph.gather %x, %p {{axes = [0, 1], oob = {oob}}} : tensor<[3], f32>
  %c = graph.scatter %x, %i, %u {{op = {op}, axes = [0], oob = {drop}}} : tensor<[4, 6], f32>
  %d = graph.scatter %x, %p, %w {{op = {op}, axes = [0, 1], oob = {drop}}} : tensor<[4, 6], f32>
  %n = graph.neg %a : tensor<[5, 6], f32>
  graph.return %n, %b, %c, %d"
                    ),
                ),
                &args,
            );
        }
    }
    let ix = HostArray::new(&[2, 3, 1], DType::I64, &[0.0, 3.0, 2.0, 1.0, 0.0, 3.0]);
    check_args(
        &f(
            "%x: tensor<[2, 4, 5], bf16>, %i: tensor<[2, 3, 1], i64>",
            "  %a = graph.gather %x, %i {axes = [1], batch = 1} : tensor<[2, 3, 5], bf16>
  %c = graph.scatter %x, %i, %a {op = sum, axes = [1], batch = 1} : tensor<[2, 4, 5], bf16>
  graph.return %a, %c",
        ),
        &[noise(&[2, 4, 5], DType::BF16, 1), ix],
    );
}

#[test]
fn sorts() {
    for dtype in ["f32", "i32", "u8", "bf16"] {
        for more in ["", ", descending = true"] {
            check(&f(
                &format!("%x: tensor<[3, 17, 2], {dtype}>, %y: tensor<[3, 17, 2], i64>"),
                &format!(
                    "  %r, %q = graph.sort %x, %y {{axis = 1{more}}} : tensor<[3, 17, 2], {dtype}>, tensor<[3, 17, 2], i64>\n  graph.return %r, %q"
                ),
            ));
        }
    }
}

#[test]
fn convolutions_and_windows() {
    check(&f(
        "%x: tensor<[2, 4, 8, 9], f32>, %w: tensor<[6, 2, 3, 2], f32>",
        "  %r = graph.conv %x, %w {strides = [1, 2], lo = [1, 1], hi = [1, 0], dilate_w = [1, 2], groups = 2} : tensor<[2, 6, 8, 4], f32>
  %e = graph.exp %r : tensor<[2, 6, 8, 4], f32>
  %q = graph.conv %x, %w {lo = [-1, 1], hi = [1, 0], dilate_x = [2, 1], groups = 2} : tensor<[2, 6, 13, 9], f32>
  graph.return %e, %q",
    ));
    // Fewer windows than positions in one.
    check(&f(
        "%x: tensor<[3, 4, 7, 9], f32>, %w: tensor<[6, 2, 5, 4], f32>",
        "  %r = graph.conv %x, %w {strides = [2, 1], lo = [1, 0], hi = [0, 1], dilate_w = [1, 2], groups = 2} : tensor<[3, 6, 2, 4], f32>
  %q = graph.conv %x, %w {lo = [-1, 0], hi = [-1, -5], groups = 2} : tensor<[3, 6, 1, 1], f32>
  graph.return %r, %q",
    ));
    // A gate, whose sigmoid has no other use.
    check(&f(
        "%x: tensor<[3, 40], f32>",
        "  %s = graph.sigmoid %x : tensor<[3, 40], f32>
  %r = graph.mul %s, %x : tensor<[3, 40], f32>
  graph.return %r",
    ));
    for op in ["max", "sum", "min", "prod"] {
        check(&f(
            "%x: tensor<[2, 3, 8, 9], f32>",
            &format!(
                "  %r = graph.window_reduce %x {{op = {op}, window = [1, 1, 2, 3], strides = [1, 1, 2, 1], lo = [0, 0, 1, 1], hi = [0, 0, 1, 0]}} : tensor<[2, 3, 5, 8], f32>\n  %q = graph.window_reduce %x {{op = {op}, window = [1, 2, 2, 2], dilate = [1, 1, 2, 3]}} : tensor<[2, 2, 6, 6], f32>\n  graph.return %r, %q"
            ),
        ));
    }
    check(&f(
        "%x: tensor<[2, 3, 8, 9], f32>",
        "  %r = graph.window_argreduce %x {op = max, window = [1, 1, 2, 3], strides = [1, 1, 2, 1], lo = [0, 0, 1, 1], hi = [0, 0, 1, 0]} : tensor<[2, 3, 5, 8], i64>\n  graph.return %r",
    ));
}

#[test]
fn random_words() {
    check(&f(
        "%k: tensor<[], i64>, %c: tensor<[40], i64>",
        "  %a = graph.philox %k, %c : tensor<[40], u32>
  %b = graph.philox %k, %c {word = 3} : tensor<[40], u32>
  %x = graph.xor %a, %b : tensor<[40], u32>
  %kb = graph.broadcast %k {dims = []} : tensor<[40], i64>
  %d = graph.philox %kb, %c : tensor<[40], u32>
  graph.return %x, %d",
    ));
}

#[test]
fn control() {
    check(&f(
        "%x: tensor<[4, 8], f32>, %p: tensor<[], bool>, %r: tensor<[8], f32>",
        "  %y = graph.cond %p : tensor<[4, 8], f32> do {
    %e = graph.exp %x : tensor<[4, 8], f32>
    graph.yield %e
  } do {
    graph.yield %x
  }
  %last, %all = graph.loop init(%r) xs(%y) {trip = 4} : tensor<[8], f32>, tensor<[4, 8], f32> do (%i: tensor<[], i64>, %acc: tensor<[8], f32>, %row: tensor<[8], f32>) {
    %m = graph.add %acc, %row : tensor<[8], f32>
    %fi = graph.cast %i : tensor<[], f32>
    %b = graph.broadcast %fi {dims = []} : tensor<[8], f32>
    %n = graph.add %m, %b : tensor<[8], f32>
    graph.yield %n, %acc
  }
  %back = graph.loop init(%r) xs(%all) {trip = 4, reverse = true} : tensor<[8], f32> do (%i: tensor<[], i64>, %acc: tensor<[8], f32>, %row: tensor<[8], f32>) {
    %m = graph.sub %row, %acc : tensor<[8], f32>
    graph.yield %m
  }
  %one = graph.const {value = 1} : tensor<[], i64>
  %ten = graph.const {value = 10} : tensor<[], i64>
  %w, %u, %v = graph.while init(%one, %r, %last) : tensor<[], i64>, tensor<[8], f32>, tensor<[8], f32> do (%a: tensor<[], i64>, %s: tensor<[8], f32>, %t: tensor<[8], f32>) {
    %k = graph.lt %a, %ten : tensor<[], bool>
    graph.yield %k
  } do (%a: tensor<[], i64>, %s: tensor<[8], f32>, %t: tensor<[8], f32>) {
    %n = graph.add %a, %one : tensor<[], i64>
    graph.yield %n, %t, %s
  }
  graph.return %y, %last, %all, %back, %w, %u, %v",
    ));
}

/// What a body reads of the block around it: numbers one by one, a value of all elements, and what was computed there.
#[test]
fn bodies_read_what_is_around_them() {
    check(&f(
        "%x: tensor<[3], f64>, %p: tensor<[], bool>",
        "  %c = graph.const {data = \"000000000000f03f00000000000000400000000000000840\"} : tensor<[3], f64>
  %two = graph.const {value = 2.0} : tensor<[3], f64>
  %e = graph.exp %x : tensor<[3], f64>
  %l = graph.loop init(%x) {trip = 3} : tensor<[3], f64> do (%i: tensor<[], i64>, %acc: tensor<[3], f64>) {
    %m = graph.mul %acc, %c : tensor<[3], f64>
    %n = graph.add %m, %two : tensor<[3], f64>
    %o = graph.sub %n, %e : tensor<[3], f64>
    graph.yield %o
  }
  %y = graph.cond %p : tensor<[3], f64> do {
    %q = graph.add %l, %c : tensor<[3], f64>
    graph.yield %q
  } do {
    graph.yield %l
  }
  graph.return %y",
    ));
}

#[test]
fn calls_and_symbols() {
    let text = "func @f(%x: tensor<[n, m], f32>, %y: tensor<[m], f32>) {
  %r = graph.call %x, %y {callee = @g, kind = checkpoint} : tensor<[n, m], f32>
  %s = graph.stop_gradient %r : tensor<[n, m], f32>
  %b, %c = graph.opt_barrier %s, %y : tensor<[n, m], f32>, tensor<[m], f32>
  %d = graph.call %b, %c {callee = @g} : tensor<[n, m], f32>
  %n = graph.dim {name = n} : tensor<[], i64>
  graph.return %d, %n
}

func @g(%a: tensor<[p, q], f32>, %b: tensor<[q], f32>) {
  %c = graph.broadcast %b {dims = [1]} : tensor<[p, q], f32>
  %d = graph.mul %a, %c : tensor<[p, q], f32>
  graph.return %d
}";
    let args = [noise(&[3, 5], DType::F32, 0), noise(&[5], DType::F32, 1)];
    check_args(text, &args);
}

#[test]
fn nothing_and_one() {
    check(&f(
        "%x: tensor<[0, 4], f32>, %y: tensor<[3, 0], f32>",
        "  %r = graph.reduce %x {op = sum, axes = [0]} : tensor<[4], f32>
  %m = graph.reduce %x {op = max, axes = [0]} : tensor<[4], f32>
  %e = graph.exp %x : tensor<[0, 4], f32>
  %d = graph.dot %y, %x {contract_a = [1], contract_b = [0]} : tensor<[3, 4], f32>
  %n = graph.neg %d : tensor<[3, 4], f32>
  graph.return %r, %m, %e, %n",
    ));
}
