//! Called functions, custom rules, checkpoints, kernels, and what is refused.

use crate::common::{arguments, batches, check, first_order, func, module, run};
use tessera_autodiff::{check_custom_jvp, check_custom_vjp, gradient, jvp, vjp, vmap};
use tessera_interp::HostArray;
use tessera_ir::Dim;
use tessera_numerics::DType;

const NEAR: (f64, f64) = (-1.2, 1.2);

const LAYER: &str = "func @layer(%x: tensor<[n], f64>, %w: tensor<[n], f64>) {
  %a = graph.mul %x, %w : tensor<[n], f64>
  %b = graph.tanh %a : tensor<[n], f64>
  %s = graph.reduce %b {op = sum, axes = [0]} : tensor<[], f64>
  %t = graph.broadcast %s {dims = []} : tensor<[n], f64>
  %r = graph.mul %b, %t : tensor<[n], f64>
  graph.return %r
}

";

fn layers(kind: &str) -> String {
    let body = format!(
        "  %a = graph.call %x, %w {{callee = @layer, kind = {kind}}} : tensor<[3], f64>
  %b = graph.call %a, %v {{callee = @layer, kind = {kind}}} : tensor<[3], f64>
  %c = graph.mul %b, %x : tensor<[3], f64>
  graph.return %c"
    );
    let params = "%x: tensor<[3], f64>, %w: tensor<[3], f64>, %v: tensor<[3], f64>";
    format!("{LAYER}{}", func(params, &body))
}

#[test]
fn calls_keep_their_names_and_are_made_once() {
    check(&layers("jit"), NEAR);
    let mut m = module(&layers("jit"));
    let back = vjp(&mut m, "f", &[0, 1, 2]).unwrap();
    let names: Vec<&str> = m.funcs.iter().map(|f| &f.name[..]).collect();
    assert_eq!(names, ["layer", "f", "layer.fwd", "layer.bwd", "f.fwd", "f.bwd"]);
    assert_eq!(back.forward, "f.fwd");
}

#[test]
fn a_checkpoint_keeps_its_arguments_only() {
    check(&layers("checkpoint"), NEAR);
    let mut m = module(&layers("checkpoint"));
    let back = vjp(&mut m, "f", &[0, 1, 2]).unwrap();
    // x, w, v, the first layer's result and the second's: nothing from inside.
    assert_eq!(back.residuals, 5);
    let again = m.func("layer.again").unwrap().to_string();
    assert!(again.contains("opt_barrier"), "{again}");
}

const SMOOTH: &str = "func @smooth(%x: tensor<[3], f64>, %y: tensor<[3], f64>) {
  %a = graph.mul %x, %y : tensor<[3], f64>
  %b = graph.sin %a : tensor<[3], f64>
  graph.return %b
}

func @smooth_fwd(%x: tensor<[3], f64>, %y: tensor<[3], f64>) {
  %a = graph.mul %x, %y : tensor<[3], f64>
  %b = graph.sin %a : tensor<[3], f64>
  %c = graph.cos %a : tensor<[3], f64>
  graph.return %b, %c, %x, %y
}

func @smooth_bwd(%c: tensor<[3], f64>, %x: tensor<[3], f64>, %y: tensor<[3], f64>, %ct: tensor<[3], f64>) {
  %a = graph.mul %ct, %c : tensor<[3], f64>
  %gx = graph.mul %a, %y : tensor<[3], f64>
  %gy = graph.mul %a, %x : tensor<[3], f64>
  graph.return %gx, %gy
}

func @smooth_jvp(%x: tensor<[3], f64>, %y: tensor<[3], f64>, %dx: tensor<[3], f64>, %dy: tensor<[3], f64>) {
  %a = graph.mul %x, %y : tensor<[3], f64>
  %b = graph.sin %a : tensor<[3], f64>
  %c = graph.cos %a : tensor<[3], f64>
  %p = graph.mul %dx, %y : tensor<[3], f64>
  %q = graph.mul %dy, %x : tensor<[3], f64>
  %s = graph.add %p, %q : tensor<[3], f64>
  %t = graph.mul %c, %s : tensor<[3], f64>
  graph.return %b, %t
}

";

/// What `@smooth` is in other ops.
const PLAIN: &str = "func @plain(%x: tensor<[3], f64>, %y: tensor<[3], f64>) {
  %a = graph.mul %y, %x : tensor<[3], f64>
  %b = graph.sin %a : tensor<[3], f64>
  graph.return %b
}

";

#[test]
fn what_a_call_means_serves_transforms_that_it_has_no_rule_for() {
    let own = "kind = custom_vjp, fwd = @smooth_fwd, bwd = @smooth_bwd, plain = @plain";
    for rule in ["kind = jit, plain = @plain", own] {
        check(&format!("{PLAIN}{}", smooth(rule)), NEAR);
    }
    // Reverse mode takes the call's own rule where it has one.
    for (rule, taken, left) in
        [(own, "smooth_fwd", "plain.fwd"), ("plain = @plain", "plain.fwd", "smooth.fwd")]
    {
        let mut m = module(&format!("{PLAIN}{}", smooth(rule)));
        let back = vjp(&mut m, "f", &[0, 1]).unwrap();
        let text = m.func(&back.forward).unwrap().to_string();
        assert!(text.contains(taken), "{text}");
        assert!(m.func(left).is_none(), "{left}");
    }
    let text = format!("{PLAIN}{}", smooth("kind = custom_jvp, jvp = @smooth_jvp, plain = @plain"));
    let error = tessera_graph::verify_module(&module(&text)).unwrap_err().to_string();
    assert!(error.contains("expected `plain` with `kind = jit`"), "{error}");
}

fn smooth(rule: &str) -> String {
    let body = format!(
        "  %r = graph.call %x, %y {{callee = @smooth, {rule}}} : tensor<[3], f64>
  %z = graph.mul %r, %r : tensor<[3], f64>\n  graph.return %z"
    );
    format!("{SMOOTH}{}", func("%x: tensor<[3], f64>, %y: tensor<[3], f64>", &body))
}

const OWN_VJP: &str = "kind = custom_vjp, fwd = @smooth_fwd, bwd = @smooth_bwd";
const OWN_JVP: &str = "kind = custom_jvp, jvp = @smooth_jvp";

#[test]
fn a_forward_rule_works_in_both_directions() {
    check(&smooth(OWN_JVP), NEAR);
}

/// The gradient of the sum of the results, as numbers.
fn grads(m: &mut tessera_graph::GraphModule, args: &[HostArray]) -> Vec<Vec<f64>> {
    let back = vjp(m, "f", &[0, 1]).unwrap();
    let kept = run(m, &back.forward, args);
    let mut inner = kept[1..].to_vec();
    inner.push(HostArray::new(&[3], DType::F64, &[1.0, 2.0, 3.0]));
    run(m, &back.pullback, &inner).iter().map(HostArray::values).collect()
}

#[test]
fn a_backward_rule_wins_and_is_differentiated_again() {
    let (mut own, mut plain) = (module(&smooth(OWN_VJP)), module(&smooth("kind = jit")));
    let args = arguments(&own, "f", NEAR, 2);
    let (a, b) = (grads(&mut own, &args), grads(&mut plain, &args));
    for (a, b) in a.iter().flatten().zip(b.iter().flatten()) {
        crate::common::close(*a, *b, 1e-12, "own rule and derived rule");
    }
    let text = own.func("f.fwd").unwrap().to_string();
    assert!(text.contains("@smooth_fwd"), "{text}");
    // Reverse over reverse goes through the rule's own functions.
    let back = vjp(&mut own, "f", &[0, 1]).unwrap();
    let twice = crate::common::both(&mut own, "f", &back);
    let all = [&args[..], &[HostArray::new(&[3], DType::F64, &[1.0, -1.0, 0.5])]].concat();
    first_order(&mut own, &twice, &all);
    let error = jvp(&mut own, "f", &[0]).unwrap_err().to_string();
    assert!(error.contains("custom_vjp rule, which goes backwards only"), "{error}");
}

#[test]
fn rules_of_ones_own_are_batched_with_their_function() {
    // The second argument is the same for all: its cotangent is the sum over the examples.
    let text = smooth(OWN_VJP);
    let mut m = module(&text);
    batches(&mut m, "f", NEAR);
    for (rule, mask) in
        [(OWN_VJP, [true, false]), (OWN_VJP, [true, true]), (OWN_JVP, [false, true])]
    {
        let axes = mask.map(|on| on.then_some(0));
        let (mut own, mut plain) = (module(&smooth(rule)), module(&smooth("kind = jit")));
        let mut out = Vec::new();
        for m in [&mut own, &mut plain] {
            let made = vmap(m, "f", &axes, &[], &Dim::Static(2)).unwrap();
            let args = arguments(m, &made.func, NEAR, 9);
            let back = vjp(m, &made.func, &[0, 1]).unwrap();
            let kept = run(m, &back.forward, &args);
            let mut inner = kept[1..].to_vec();
            inner.push(HostArray::new(&[2, 3], DType::F64, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
            out.push(run(m, &back.pullback, &inner));
        }
        for (a, b) in out[0].iter().zip(&out[1]) {
            assert_eq!(a.dims, b.dims);
            for (a, b) in a.values().iter().zip(b.values()) {
                crate::common::close(*a, b, 1e-12, "own rule and derived rule, batched");
            }
        }
    }
}

#[test]
fn rules_that_do_not_fit_are_refused() {
    let m = module(&smooth(OWN_VJP));
    assert_eq!(check_custom_vjp(&m, "smooth", "smooth_fwd", "smooth_bwd", &[]).unwrap(), 3);
    check_custom_jvp(&m, "smooth", "smooth_jvp", &[]).unwrap();
    let error = check_custom_vjp(&m, "smooth", "smooth_fwd", "smooth_bwd", &[1]).unwrap_err();
    assert!(error.to_string().contains("expected the backward function @smooth_bwd to give (tensor<[3], f64>), got (tensor<[3], f64>, tensor<[3], f64>)"), "{error}");
    let error = check_custom_vjp(&m, "smooth", "smooth_fwd", "smooth_fwd", &[]).unwrap_err();
    assert!(
        error.to_string().contains("expected the backward function @smooth_fwd to take"),
        "{error}"
    );
    let error = check_custom_jvp(&m, "smooth", "smooth_fwd", &[]).unwrap_err();
    assert!(error.to_string().contains("expected the forward rule @smooth_fwd to take"), "{error}");
    let error = check_custom_vjp(&m, "smooth", "nobody", "smooth_bwd", &[]).unwrap_err();
    assert!(error.to_string().contains("got @nobody"), "{error}");
    // A call with such a rule is refused before anything is transformed.
    let text = smooth("kind = custom_vjp, fwd = @smooth_fwd, bwd = @smooth_fwd");
    let error = vjp(&mut module(&text), "f", &[0]).unwrap_err();
    assert!(error.to_string().contains("backward function @smooth_fwd"), "{error}");
}

#[test]
fn a_kernel_known_by_name_only_has_no_derivative_but_batches() {
    let text = func(
        "%x: tensor<[4], f32>, %z: tensor<[4], f32>",
        "  %r = graph.kernel_call %x, %z {kernel = @k, privileges = [read, write]} : tensor<[4], f32>\n  graph.return %r",
    );
    let mut m = module(&text);
    let error = vjp(&mut m, "f", &[0]).unwrap_err().to_string();
    assert!(
        error.contains("got @k, which is known by its name only") && error.contains("custom_vjp"),
        "{error}"
    );
    assert!(jvp(&mut m, "f", &[0]).is_err());
    let made = vmap(&mut m, "f", &[Some(0), None], &[], &Dim::Static(2)).unwrap();
    let text = m.func(&made.func).unwrap().to_string();
    assert!(text.contains("graph.loop") && text.contains("kernel_call"), "{text}");
    tessera_graph::verify_module(&m).unwrap();
}

#[test]
fn what_cannot_be_differentiated_says_so() {
    let text = func(
        "%x: tensor<[3], f64>, %i: tensor<[3], i32>",
        "  %y = graph.mul %x, %x : tensor<[3], f64>\n  graph.return %y, %i",
    );
    let mut m = module(&text);
    let error = gradient(&mut m, "f", &[0]).unwrap_err().to_string();
    assert!(
        error.contains(
            "expected @f to give a float without axes to differentiate, got tensor<[3], f64>"
        ),
        "{error}"
    );
    let error = vjp(&mut m, "f", &[1]).unwrap_err().to_string();
    assert!(
        error.contains("expected a float to differentiate by, got %i of type tensor<[3], i32>"),
        "{error}"
    );
    let error = vjp(&mut m, "f", &[2]).unwrap_err().to_string();
    assert!(error.contains("below 2, got 2"), "{error}");
    let error = vjp(&mut m, "f", &[0, 0]).unwrap_err().to_string();
    assert!(error.contains("got %x twice"), "{error}");
    let error = vmap(&mut m, "f", &[Some(0)], &[], &Dim::Static(2)).unwrap_err().to_string();
    assert!(error.contains("one entry of in_axes for each of 2 arguments, got 1"), "{error}");
    let error = vmap(&mut m, "f", &[Some(3), None], &[], &Dim::Static(2)).unwrap_err().to_string();
    assert!(error.contains("up to 1 for %x"), "{error}");
    let error = vmap(&mut m, "f", &[Some(0), None], &[None, None], &Dim::Static(2))
        .unwrap_err()
        .to_string();
    assert!(error.contains("result 0 to be the same for all"), "{error}");
    let text = func(
        "%x: tensor<[3], f16>",
        "  %y = graph.bitcast %x : tensor<[3], bf16>\n  graph.return %y",
    );
    let error = vjp(&mut module(&text), "f", &[0]).unwrap_err().to_string();
    assert!(error.contains("bitcast from f16 to bf16 has no derivative"), "{error}");
}

#[test]
fn a_gradient_in_one_piece() {
    let text = func(
        "%x: tensor<[4], f64>, %y: tensor<[4], f64>",
        "  %y2 = graph.mul %x, %y : tensor<[4], f64>
  %s = graph.reduce %y2 {op = sum, axes = [0]} : tensor<[], f64>
  graph.return %s, %y2",
    );
    let mut m = module(&text);
    let name = gradient(&mut m, "f", &[1, 0]).unwrap();
    let args = arguments(&m, "f", NEAR, 3);
    let out = run(&m, &name, &args);
    assert_eq!(out.len(), 4);
    assert_eq!((out[2].values(), out[3].values()), (args[0].values(), args[1].values()));
}
