//! Composites: an operation with a name is differentiated by its rule or by its decomposition, and
//! batched as its decomposition.

use crate::common::{arguments, check, close, func, module, run};
use tessera_autodiff::{jvp, vjp, vmap};
use tessera_interp::HostArray;
use tessera_ir::Dim;
use tessera_numerics::DType;

const NEAR: (f64, f64) = (-1.2, 1.2);

/// `sin(x * y)`, with rules whose derivative is twice the right one, so that a result says who made it.
const SMOOTH: &str = "func @smooth(%x: tensor<[3], f64>, %y: tensor<[3], f64>) {
  %a = graph.mul %x, %y : tensor<[3], f64>
  %b = graph.sin %a : tensor<[3], f64>
  graph.return %b
}

func @fwd(%x: tensor<[3], f64>, %y: tensor<[3], f64>) {
  %b = graph.composite %x, %y {name = smooth, decomposition = @smooth} : tensor<[3], f64>
  %a = graph.mul %x, %y : tensor<[3], f64>
  %c = graph.cos %a : tensor<[3], f64>
  graph.return %b, %c, %x, %y
}

func @bwd(%c: tensor<[3], f64>, %x: tensor<[3], f64>, %y: tensor<[3], f64>, %ct: tensor<[3], f64>) {
  %a = graph.mul %ct, %c : tensor<[3], f64>
  %gx = graph.mul %a, %y : tensor<[3], f64>
  %gx2 = graph.add %gx, %gx : tensor<[3], f64>
  graph.return %gx2
}

func @jvp(%x: tensor<[3], f64>, %y: tensor<[3], f64>, %dx: tensor<[3], f64>) {
  %a = graph.mul %x, %y : tensor<[3], f64>
  %b = graph.sin %a : tensor<[3], f64>
  %c = graph.cos %a : tensor<[3], f64>
  %p = graph.mul %dx, %y : tensor<[3], f64>
  %t = graph.mul %c, %p : tensor<[3], f64>
  %t2 = graph.add %t, %t : tensor<[3], f64>
  graph.return %b, %t2
}

";

const REVERSE: &str = ", fwd = @fwd, bwd = @bwd, nondiff = [1]";
const FORWARD: &str = ", jvp = @jvp, nondiff = [1]";
const BOTH: &str = ", fwd = @fwd, bwd = @bwd, jvp = @jvp, nondiff = [1]";

fn smooth(rule: &str) -> String {
    let body = format!(
        "  %r = graph.composite %x, %y {{name = smooth, decomposition = @smooth{rule}}} : tensor<[3], f64>\n  \
         graph.return %r"
    );
    format!("{SMOOTH}{}", func("%x: tensor<[3], f64>, %y: tensor<[3], f64>", &body))
}

fn ones() -> HostArray {
    HostArray::new(&[3], DType::F64, &[1.0, 2.0, 3.0])
}

/// The cotangent or tangent by `x`, over the one of the decomposition.
fn factor(rule: &str, wrt: &[usize], forward: bool) -> Vec<f64> {
    let of = |rule: &str| {
        let mut m = module(&smooth(rule));
        let args = arguments(&m, "f", NEAR, 2);
        if forward {
            let made = jvp(&mut m, "f", wrt).unwrap();
            let tangents = wrt.iter().map(|_| ones());
            let all: Vec<_> = args.into_iter().chain(tangents).collect();
            return run(&m, &made.func, &all)[1].values();
        }
        let back = vjp(&mut m, "f", wrt).unwrap();
        let kept = run(&m, &back.forward, &args);
        let mut inner = kept[1..].to_vec();
        inner.push(ones());
        run(&m, &back.pullback, &inner)[0].values()
    };
    of(rule).iter().zip(of("")).map(|(a, b)| a / b).collect()
}

fn all_are(got: &[f64], wanted: f64, what: &str) {
    for &x in got {
        close(x, wanted, 1e-12, what);
    }
}

#[test]
fn without_a_rule_a_composite_is_its_decomposition() {
    check(&smooth(""), NEAR);
}

#[test]
fn each_mode_takes_its_rule_and_else_the_decomposition() {
    for (rule, forward, wanted) in [
        (REVERSE, false, 2.0),
        (REVERSE, true, 1.0),
        (FORWARD, true, 2.0),
        (FORWARD, false, 2.0),
        (BOTH, true, 2.0),
        (BOTH, false, 2.0),
    ] {
        let what = format!("{rule}, forward mode: {forward}");
        all_are(&factor(rule, &[0], forward), wanted, &what);
        // The rules have nothing for `y`: where it is active, they are not taken.
        all_are(&factor(rule, &[0, 1], forward), 1.0, &what);
        all_are(&factor(rule, &[1], forward), 1.0, &what);
    }
}

#[test]
fn what_a_rule_made_is_differentiated_again() {
    let mut m = module(&smooth(REVERSE));
    let back = vjp(&mut m, "f", &[0]).unwrap();
    let text = m.func(&back.forward).unwrap().to_string();
    assert!(text.contains("graph.call") && text.contains("@fwd"), "{text}");
    let twice = vjp(&mut m, &back.pullback, &[0]).unwrap();
    assert!(m.func(&twice.pullback).is_some());
    tessera_graph::verify_module(&m).unwrap();
}

#[test]
fn a_batched_composite_is_its_batched_decomposition() {
    for on in [[Some(0), None], [Some(0), Some(0)], [None, Some(0)]] {
        let mut out = Vec::new();
        for rule in ["", BOTH] {
            let mut m = module(&smooth(rule));
            let made = vmap(&mut m, "f", &on, &[], &Dim::Static(2)).unwrap();
            tessera_graph::verify_module(&m).unwrap();
            let args = arguments(&m, &made.func, NEAR, 5);
            out.push(run(&m, &made.func, &args)[0].values());
            // By the decomposition, whatever its rules say.
            let back = vjp(&mut m, &made.func, &[0]).unwrap();
            let kept = run(&m, &back.forward, &args);
            let mut inner = kept[1..].to_vec();
            inner.push(HostArray::new(&[2, 3], DType::F64, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
            out.push(run(&m, &back.pullback, &inner)[0].values());
        }
        assert_eq!(out[..2], out[2..]);
    }
    // One that takes nothing batched stays whole.
    let text = smooth(BOTH).replace("func @f(%x", "func @f(%z: tensor<[3], f64>, %x");
    let mut m =
        module(&text.replace("  graph.return %r", "  %s = graph.add %r, %z\n  graph.return %s"));
    let made = vmap(&mut m, "f", &[Some(0), None, None], &[], &Dim::Static(2)).unwrap();
    let text = m.func(&made.func).unwrap().to_string();
    assert!(text.contains("graph.composite"), "{text}");
}

#[test]
fn composites_that_do_not_fit_their_functions_are_refused() {
    let refused = |old: &str, new: &str| {
        let text = smooth(BOTH);
        assert!(text.contains(old));
        let m = module(&text.replacen(old, new, 1));
        let verified = tessera_graph::verify_module(&m);
        let mut m = m;
        verified.and_then(|()| vjp(&mut m, "f", &[0]).map(|_| ())).unwrap_err().to_string()
    };
    let error = refused("decomposition = @smooth, fwd", "decomposition = @nobody, fwd");
    assert!(error.contains("expected a function of the module in `decomposition`"), "{error}");
    let error = refused("decomposition = @smooth, fwd", "decomposition = @jvp, fwd");
    assert!(error.contains("expected 3 arguments for @jvp, got 2"), "{error}");
    let error = refused("bwd = @bwd", "bwd = @smooth");
    assert!(error.contains("expected the backward function @smooth to take"), "{error}");
    let error = refused("jvp = @jvp", "jvp = @smooth");
    assert!(error.contains("expected the forward rule @smooth to take"), "{error}");
}
