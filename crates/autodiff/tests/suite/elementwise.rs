//! Every scalar function on every shape.

use crate::common::{check, func};
use tessera_numerics::{Basic, DType, FnClass, FnKind, Scalar, ScalarFn, eval};

/// Where a function is smooth and its differences are good.
fn range(f: ScalarFn) -> (f64, f64) {
    match f.kind() {
        FnKind::Basic(Basic::Sqrt | Basic::Recip | Basic::Div) => (0.5, 2.0),
        FnKind::Basic(Basic::Abs | Basic::Sign) => (0.1, 0.9),
        FnKind::Basic(_) => (-1.4, 1.4),
        FnKind::Real(_) if f.arity() > 1 => (0.5, 2.0),
        FnKind::Real(_) => {
            let ranges = [(-1.4, 1.4), (0.5, 2.0), (-0.7, 0.7), (1.2, 3.0)];
            let good = ranges.into_iter().find(|&(low, high)| {
                let at = |i: u32| low + (high - low) * f64::from(i) / 100.0;
                let value = |i: u32| eval(f, &[at(i).into()]).map_or(f64::NAN, Scalar::as_f64);
                (0..100).all(|i| (value(i + 1) - value(i)).abs() < 1.0)
            });
            good.unwrap_or_else(|| panic!("no range for {f}: add one"))
        }
    }
}

#[test]
fn every_scalar_function_on_every_shape() {
    for &f in ScalarFn::ALL {
        if !f.accepts(DType::F64)
            || f.class() == FnClass::Compare
            || f.class() == FnClass::Predicate
        {
            continue;
        }
        for shape in ["", "0", "1", "5", "2, 3", "1, 1", "0, 2"] {
            let ty = format!("tensor<[{shape}], f64>");
            let names = ["%a", "%b", "%c"];
            let params: Vec<_> = names[..f.arity()].iter().map(|n| format!("{n}: {ty}")).collect();
            let body = format!(
                "  %r = graph.{} {} : {ty}\n  graph.return %r",
                f.name(),
                names[..f.arity()].join(", ")
            );
            check(&func(&params.join(", "), &body), range(f));
        }
    }
}

#[test]
fn constant_powers() {
    for n in ["0.0", "1.0", "2.0", "3.0", "-1.5", "0.5", "7.0"] {
        let body = format!(
            "  %n = graph.const {{value = {n}}} : tensor<[4], f64>
  %r = graph.pow %x, %n : tensor<[4], f64>
  graph.return %r"
        );
        check(&func("%x: tensor<[4], f64>", &body), (0.5, 1.5));
    }
}

#[test]
fn comparisons_do_not_move() {
    let body = "  %p = graph.lt %a, %b : tensor<[4], bool>
  %x = graph.mul %a, %b : tensor<[4], f64>
  %r = graph.select %p, %x, %b : tensor<[4], f64>
  %q = graph.isfinite %a : tensor<[4], bool>
  graph.return %r, %q, %p";
    check(&func("%a: tensor<[4], f64>, %b: tensor<[4], f64>", body), (-1.0, 1.0));
}

#[test]
fn one_condition_for_all() {
    let body = "  %r = graph.select %p, %a, %b : tensor<[4], f64>\n  graph.return %r";
    let params = "%a: tensor<[4], f64>, %b: tensor<[4], f64>, %p: tensor<[], bool>";
    check(&func(params, body), (-1.0, 1.0));
}
