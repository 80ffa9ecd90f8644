//! Branches and loops, also nested.

use crate::common::{check, func, module};
use tessera_autodiff::{jvp, vjp};

const NEAR: (f64, f64) = (-1.2, 1.2);

#[test]
fn a_loop_that_carries_stacks_and_captures() {
    for reverse in ["", ", reverse = true"] {
        let body = format!(
            "  %last, %all, %n = graph.loop init(%h, %k) xs(%x) {{trip = 4{reverse}}} : tensor<[2], f64>, tensor<[], i64>, tensor<[4, 2], f64> do (%i: tensor<[], i64>, %c: tensor<[2], f64>, %t: tensor<[], i64>, %r: tensor<[2], f64>) {{
    %m = graph.mul %c, %w : tensor<[2], f64>
    %s = graph.add %m, %r : tensor<[2], f64>
    %q = graph.tanh %s : tensor<[2], f64>
    %f = graph.cast %i : tensor<[], f64>
    %g = graph.broadcast %f {{dims = []}} : tensor<[2], f64>
    %o = graph.mul %q, %g : tensor<[2], f64>
    %u = graph.add %t, %i : tensor<[], i64>
    graph.yield %q, %u, %o
  }}
  %z = graph.mul %last, %last : tensor<[2], f64>
  graph.return %z, %all, %n"
        );
        let body = body.replace("%last, %all, %n =", "%last, %n, %all =");
        let params = "%h: tensor<[2], f64>, %k: tensor<[], i64>, %x: tensor<[4, 2], f64>, %w: tensor<[2], f64>";
        check(&func(params, &body), NEAR);
    }
}

#[test]
fn a_loop_over_nothing() {
    let body = "  %last, %all = graph.loop init(%h) xs(%x) {trip = 0} : tensor<[2], f64>, tensor<[0, 2], f64> do (%i: tensor<[], i64>, %c: tensor<[2], f64>, %r: tensor<[2], f64>) {
    %m = graph.mul %c, %r : tensor<[2], f64>
    graph.yield %m, %c
  }
  graph.return %last, %all";
    check(&func("%h: tensor<[2], f64>, %x: tensor<[0, 2], f64>", body), NEAR);
}

#[test]
fn activity_that_spreads_from_one_carried_value_to_the_next() {
    // `b` is active only from the second step on, `c` from the third.
    let body = "  %c0 = graph.const {value = 0.5} : tensor<[], f64>
  %la, %lb, %lc = graph.loop init(%x, %c0, %c0) {trip = 4} : tensor<[], f64>, tensor<[], f64>, tensor<[], f64> do (%i: tensor<[], i64>, %a: tensor<[], f64>, %b: tensor<[], f64>, %c: tensor<[], f64>) {
    %p = graph.sin %a : tensor<[], f64>
    %q = graph.mul %a, %b : tensor<[], f64>
    %r = graph.add %b, %c : tensor<[], f64>
    graph.yield %p, %q, %r
  }
  graph.return %lc";
    check(&func("%x: tensor<[], f64>", body), NEAR);
}

#[test]
fn branches() {
    let body = "  %r, %s = graph.cond %p : tensor<[3], f64>, tensor<[3], f64> do {
    %a = graph.exp %x : tensor<[3], f64>
    %b = graph.mul %a, %y : tensor<[3], f64>
    graph.yield %b, %x
  } do {
    %c = graph.sin %y : tensor<[3], f64>
    %d = graph.const {value = 2.0} : tensor<[3], f64>
    %e = graph.mul %c, %d : tensor<[3], f64>
    graph.yield %e, %c
  }
  %z = graph.mul %r, %s : tensor<[3], f64>
  graph.return %z";
    for value in ["true", "false"] {
        let body = format!("  %p = graph.const {{value = {value}}} : tensor<[], bool>\n{body}");
        check(&func("%x: tensor<[3], f64>, %y: tensor<[3], f64>", &body), NEAR);
    }
    // The question itself may differ between examples.
    let body = format!(
        "  %s0 = graph.reduce %x {{op = sum, axes = [0]}} : tensor<[], f64>
  %c0 = graph.const {{value = 0.0}} : tensor<[], f64>
  %p = graph.lt %s0, %c0 : tensor<[], bool>\n{body}"
    );
    check(&func("%x: tensor<[3], f64>, %y: tensor<[3], f64>", &body), NEAR);
}

#[test]
fn a_branch_in_a_loop_in_a_loop() {
    let body = "  %r = graph.loop init(%x) {trip = 3} : tensor<[2], f64> do (%i: tensor<[], i64>, %c: tensor<[2], f64>) {
    %in, %st = graph.loop init(%c) xs(%w) {trip = 2, reverse = true} : tensor<[2], f64>, tensor<[2, 2], f64> do (%j: tensor<[], i64>, %d: tensor<[2], f64>, %v: tensor<[2], f64>) {
      %even = graph.eq %i, %j : tensor<[], bool>
      %e = graph.cond %even : tensor<[2], f64> do {
        %f = graph.mul %d, %v : tensor<[2], f64>
        graph.yield %f
      } do {
        %g = graph.cos %d : tensor<[2], f64>
        graph.yield %g
      }
      graph.yield %e, %d
    }
    %sum = graph.reduce %st {op = sum, axes = [0]} : tensor<[2], f64>
    %n = graph.mul %in, %sum : tensor<[2], f64>
    graph.yield %n
  }
  graph.return %r";
    check(&func("%x: tensor<[2], f64>, %w: tensor<[2, 2], f64>", body), NEAR);
}

const WHILE: &str = "  %big = graph.const {value = 8.0} : tensor<[], f64>
  %r, %n = graph.while init(%x, %k) : tensor<[2], f64>, tensor<[], i64> do (%a: tensor<[2], f64>, %i: tensor<[], i64>) {
    %q = graph.mul %a, %a : tensor<[2], f64>
    %s = graph.reduce %q {op = sum, axes = [0]} : tensor<[], f64>
    %go = graph.lt %s, %big : tensor<[], bool>
    graph.yield %go
  } do (%b: tensor<[2], f64>, %j: tensor<[], i64>) {
    %c = graph.mul %b, %w : tensor<[2], f64>
    %d = graph.add %b, %c : tensor<[2], f64>
    %one = graph.const {value = 1} : tensor<[], i64>
    %m = graph.add %j, %one : tensor<[], i64>
    graph.yield %d, %m
  }
  %z = graph.mul %r, %r : tensor<[2], f64>
  graph.return %z, %n";

const WHILE_PARAMS: &str = "%x: tensor<[2], f64>, %k: tensor<[], i64>, %w: tensor<[2], f64>";

#[test]
fn a_while_moves_forward_and_batches() {
    let mut m = module(&func(WHILE_PARAMS, WHILE));
    let made = jvp(&mut m, "f", &[0, 2]).unwrap();
    let twice = jvp(&mut m, &made.func, &[0, 2]).unwrap();
    let args = crate::common::arguments(&m, "f", (0.3, 0.9), 4);
    // Differences of forward mode, and of its own.
    for (source, func, wrt) in [("f", &made.func, 2), (&made.func[..], &twice.func, 2)] {
        let mut inner = crate::common::arguments(&m, source, (0.3, 0.9), 4);
        inner[..3].clone_from_slice(&args);
        let tangents = [args[2].clone(), args[0].clone()];
        let out = crate::common::run(&m, func, &[&inner[..], &tangents[..wrt]].concat());
        let n = crate::common::returned_count(&m, source);
        let at = |sign: f64| {
            let mut moved = inner.clone();
            for (place, t) in [(0, &tangents[0]), (2, &tangents[1])] {
                let values: Vec<f64> = moved[place]
                    .values()
                    .iter()
                    .zip(t.values())
                    .map(|(x, d)| x + sign * 1e-6 * d)
                    .collect();
                moved[place] =
                    tessera_interp::HostArray::new(&moved[place].dims, moved[place].dtype, &values);
            }
            crate::common::run(&m, source, &moved)
        };
        let (up, down) = (at(1.0), at(-1.0));
        let floats: Vec<usize> = (0..n).filter(|&i| up[i].dtype.is_float()).collect();
        for (k, &i) in floats.iter().enumerate() {
            for ((u, d), t) in up[i].values().iter().zip(down[i].values()).zip(out[n + k].values())
            {
                crate::common::close((u - d) / 2e-6, t, 1e-6, "difference and tangent");
            }
        }
    }
    crate::common::batches(&mut m, "f", (0.3, 0.9));
    crate::common::batches(&mut m, &made.func, (0.3, 0.9));
}

#[test]
fn a_while_is_refused_backwards_with_the_reason() {
    let mut m = module(&func(WHILE_PARAMS, WHILE));
    let error = vjp(&mut m, "f", &[0]).unwrap_err().to_string();
    assert!(error.contains("while has no reverse mode"), "{error}");
    assert!(error.contains("trip count"), "{error}");
    // Where it needs no cotangent, it is copied.
    let body = WHILE.replace("graph.return %z, %n", "graph.return %n, %w");
    let mut m = module(&func(WHILE_PARAMS, &body));
    vjp(&mut m, "f", &[0, 2]).unwrap();
}

#[test]
fn a_loop_in_a_narrow_dtype_sums_in_its_carrier() {
    let body = "  %r = graph.loop init(%x) {trip = 3} : tensor<[2], bf16> do (%i: tensor<[], i64>, %c: tensor<[2], bf16>) {
    %m = graph.mul %c, %w : tensor<[2], bf16>
    graph.yield %m
  }
  graph.return %r";
    let mut m = module(&func("%x: tensor<[2], bf16>, %w: tensor<[2], bf16>", body));
    let back = vjp(&mut m, "f", &[0, 1]).unwrap();
    let text = m.func(&back.pullback).unwrap().to_string();
    assert!(text.contains("tensor<[2], f32>"), "{text}");
    let array = |v: &[f64]| tessera_interp::HostArray::new(&[2], tessera_numerics::DType::BF16, v);
    let kept = crate::common::run(&m, &back.forward, &[array(&[1.0, 2.0]), array(&[2.0, 0.5])]);
    let inner = [&kept[1..], &[array(&[1.0, 1.0])]].concat();
    let grads = crate::common::run(&m, &back.pullback, &inner);
    // w^3 and 3 x w^2, exact in bf16.
    assert_eq!(grads[0].text(), "[8.0, 0.125]");
    assert_eq!(grads[1].text(), "[12.0, 1.5]");
}
