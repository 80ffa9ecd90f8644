//! Batching beyond what every rule is checked with: symbolic extents, no examples, nesting.

use crate::common::{arguments, func, module, run};
use tessera_autodiff::{gradient, jvp, vjp, vmap};
use tessera_interp::HostArray;
use tessera_ir::{Dim, DimExpr};
use tessera_numerics::DType;

const INNER: &str = "func @inner(%x: tensor<[n], f64>, %w: tensor<[n], f64>) {
  %a = graph.mul %x, %w : tensor<[n], f64>
  %s = graph.reduce %a {op = sum, axes = [0]} : tensor<[], f64>
  %e = graph.exp %s : tensor<[], f64>
  graph.return %e
}

";

fn calling() -> String {
    let body = "  %r = graph.call %x, %w {callee = @inner} : tensor<[], f64>\n  graph.return %r";
    format!("{INNER}{}", func("%x: tensor<[n], f64>, %w: tensor<[n], f64>", body))
}

#[test]
fn the_number_of_examples_may_be_a_symbol() {
    let mut m = module(&calling());
    // The symbol of the callee is its own: `n` there may be anything.
    let size = Dim::Expr(DimExpr::sym("b"));
    let made = vmap(&mut m, "f", &[Some(1), None], &[], &size).unwrap();
    tessera_graph::verify_module(&m).unwrap();
    let x = HostArray::new(&[2, 3], DType::F64, &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]);
    let w = HostArray::new(&[2], DType::F64, &[1.0, -1.0]);
    let out = run(&m, &made.func, &[x, w]);
    let wanted: Vec<f64> = vec![(-0.3f64).exp(); 3];
    for (a, b) in out[0].values().iter().zip(wanted) {
        crate::common::close(*a, b, 1e-12, "each example");
    }
}

#[test]
fn no_examples_and_one() {
    for size in [0, 1] {
        let mut m = module(&calling());
        let made = vmap(&mut m, "f", &[Some(0), None], &[Some(0)], &Dim::Static(size)).unwrap();
        let args = arguments(&m, &made.func, (-1.0, 1.0), 1);
        assert_eq!(run(&m, &made.func, &args)[0].dims, [size]);
    }
}

#[test]
fn a_result_that_is_the_same_for_all_is_repeated_or_not() {
    let text = func(
        "%x: tensor<[2], f64>, %w: tensor<[2], f64>",
        "  %a = graph.exp %w : tensor<[2], f64>\n  graph.return %a, %x",
    );
    let mut m = module(&text);
    let made = vmap(&mut m, "f", &[Some(0), None], &[None, Some(1)], &Dim::Static(3)).unwrap();
    assert_eq!(made.batched, [false, true]);
    let args = arguments(&m, &made.func, (-1.0, 1.0), 1);
    let out = run(&m, &made.func, &args);
    assert_eq!((&out[0].dims[..], &out[1].dims[..]), (&[2][..], &[2, 3][..]));
}

#[test]
fn a_hessian_by_nesting_three_transforms() {
    // Forward over reverse, batched over all directions.
    let mut m = module(&calling());
    let grad = gradient(&mut m, "f", &[0]).unwrap();
    let moved = jvp(&mut m, &grad, &[0]).unwrap();
    let all = vmap(&mut m, &moved.func, &[None, None, Some(0)], &[], &Dim::Static(3)).unwrap();
    let x = HostArray::new(&[3], DType::F64, &[0.3, -0.2, 0.5]);
    let w = HostArray::new(&[3], DType::F64, &[1.0, 2.0, -1.0]);
    let eye = HostArray::new(&[3, 3], DType::F64, &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    let out = run(&m, &all.func, &[x.clone(), w.clone(), eye]);
    // Results: value and gradient, then their tangents.
    let hessian = out.last().unwrap();
    assert_eq!(hessian.dims, [3, 3]);
    let value = x.values().iter().zip(w.values()).map(|(a, b)| a * b).sum::<f64>().exp();
    for (i, &h) in hessian.values().iter().enumerate() {
        crate::common::close(h, value * w.values()[i / 3] * w.values()[i % 3], 1e-12, "hessian");
    }
}

#[test]
fn examples_of_examples_of_gradients() {
    let mut m = module(&calling());
    let grad = gradient(&mut m, "f", &[0, 1]).unwrap();
    let once = vmap(&mut m, &grad, &[Some(0), None], &[], &Dim::Static(2)).unwrap();
    let twice = vmap(&mut m, &once.func, &[None, Some(0)], &[], &Dim::Static(3)).unwrap();
    let back = vjp(&mut m, &twice.func, &[0, 1]).unwrap();
    let args = arguments(&m, &twice.func, (-1.0, 1.0), 1);

    assert_eq!(run(&m, &twice.func, &args)[1].dims, [3, 2, 3]);
    run(&m, &back.forward, &args);
    crate::common::first_order(&mut m, &twice.func, &args);
}
