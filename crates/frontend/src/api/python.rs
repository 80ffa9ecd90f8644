//! What Python itself offers and kernels may use: `min`, `max`, `float("inf")`, and `math` on
//! compile-time values.

use super::{Args, Handler::*, Rows, rows};
use crate::elab::Elab;
use crate::elab::val::{Const, OpenKind, Val};
use tessera_diag::Code;
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::TileBuild;

pub const ROWS: Rows = rows! {
    Any "tile.range" "(start, stop=None, step=1, prefetch=None)" Call(range), "At the head of a loop: `start, start + step, …` below `stop`, one after another.";
    Any "py.range" "(start, stop=None, step=1)" Call(range), "At the head of a loop.";
    Any "static_range" "(start, stop=None, step=1)" Call(range), "At the head of a loop that is unrolled: its variable is a compile-time integer in each round.";
    Any "py.reversed" "(items)" Call(range), "At the head of a loop: a range or a tuple from its end.";
    Any "py.enumerate" "(items)" Call(range), "At the head of a loop over a tuple: each item with its number.";
    Any "py.zip" "(*items)" Call(range), "At the head of a loop over tuples: their first items, their second ones, and so on.";
    Any "py.min" "(a, b)" Call(|e, a| two(e, a, ScalarFn::Minimum)), "The smallest of two scalars or more.";
    Any "py.max" "(a, b)" Call(|e, a| two(e, a, ScalarFn::Maximum)), "The largest of two scalars or more.";
    Any "py.pow" "(a, b)" Call(|e, a| two(e, a, ScalarFn::Pow)), "`a ** b`.";
    Any "py.abs" "(x)" Call(|e, a| one(e, a, ScalarFn::Abs, f64::abs)), "The absolute value.";
    Any "py.round" "(x)" Call(|e, a| one(e, a, ScalarFn::Round, f64::round_ties_even)), "The nearest integer, ties to even.";
    Any "py.float" "(x)" Call(float), "A float from a number or a string such as \"inf\".";
    Any "py.int" "(x)" Call(int), "An integer from a number.";
    Any "py.bool" "(x)" Call(boolean), "Whether a scalar is not zero.";
    Any "py.len" "(x)" Call(len), "The length of a tuple or of the first axis.";
    Any "math.sqrt" "(x)" Call(|e, a| one(e, a, ScalarFn::Sqrt, f64::sqrt)), "The square root.";
    Any "math.exp" "(x)" Call(|e, a| one(e, a, ScalarFn::Exp, f64::exp)), "The exponential.";
    Any "math.log" "(x)" Call(|e, a| one(e, a, ScalarFn::Log, f64::ln)), "The natural logarithm.";
    Any "math.log2" "(x)" Call(|e, a| one(e, a, ScalarFn::Log2, f64::log2)), "The logarithm to base 2.";
    Any "math.log10" "(x)" Call(|e, a| one(e, a, ScalarFn::Log10, f64::log10)), "The logarithm to base 10.";
    Any "math.sin" "(x)" Call(|e, a| one(e, a, ScalarFn::Sin, f64::sin)), "The sine.";
    Any "math.cos" "(x)" Call(|e, a| one(e, a, ScalarFn::Cos, f64::cos)), "The cosine.";
    Any "math.tanh" "(x)" Call(|e, a| one(e, a, ScalarFn::Tanh, f64::tanh)), "The hyperbolic tangent.";
    Any "math.fabs" "(x)" Call(|e, a| one(e, a, ScalarFn::Abs, f64::abs)), "The absolute value.";
    Any "math.floor" "(x)" Call(|e, a| whole(e, a, ScalarFn::Floor, f64::floor)), "The integer below: of a run-time scalar an i64.";
    Any "math.ceil" "(x)" Call(|e, a| whole(e, a, ScalarFn::Ceil, f64::ceil)), "The integer above: of a run-time scalar an i64.";
    Any "math.pow" "(a, b)" Call(|e, a| two(e, a, ScalarFn::Pow)), "`a ** b`.";
};

fn range(e: &mut Elab<'_>, _: &mut Args) -> Val {
    e.error_help(
        Code::E_SYNTAX,
        "expected `range` at the head of a `for` loop only",
        "write `for i in range(n):`; ts.tile.arange(n) is the tile 0 … n - 1",
    )
}

fn two(e: &mut Elab<'_>, args: &mut Args, f: ScalarFn) -> Val {
    e.binary(f, args.get("a"), args.get("b"))
}

fn as_float(v: &Val) -> Option<f64> {
    match v {
        Val::Const(Const::Float(x)) => Some(*x),
        Val::Const(Const::Int(i)) => Some(*i as f64),
        Val::Const(Const::Bool(b)) => Some(f64::from(u8::from(*b))),
        _ => None,
    }
}

/// A function of a compile-time number is computed here in f64; of a run-time one, by the kernel.
fn one(e: &mut Elab<'_>, args: &mut Args, f: ScalarFn, eval: fn(f64) -> f64) -> Val {
    let x = args.get("x");
    if let (Val::Const(Const::Int(i)), ScalarFn::Abs) = (&x, f) {
        return Val::Const(Const::Int(i.saturating_abs()));
    }
    match &x {
        Val::Open(_) => Val::Open(OpenKind::Float),
        // A dimension that a configuration may fix: open while checking.
        Val::Dim(_) if e.mode == crate::elab::Mode::Check => Val::Open(OpenKind::Float),
        Val::Dim(_) => {
            let Some(v) = e.runtime(&x) else { return Val::Poison };
            let v = e.b().cast(v, DType::F32);
            e.apply(f, &[Val::Rt(v)])
        }
        v => match as_float(v) {
            Some(v) => Val::Const(Const::Float(eval(v))),
            None => e.apply(f, &[x]),
        },
    }
}

fn whole(e: &mut Elab<'_>, args: &mut Args, f: ScalarFn, eval: fn(f64) -> f64) -> Val {
    let x = args.get("x");
    match &x {
        Val::Open(_) => return Val::Open(OpenKind::Int),
        Val::Dim(_) | Val::Poison | Val::Const(Const::Int(_)) => return x,
        v => {
            if let Some(v) = as_float(v) {
                return Val::Const(Const::Int(eval(v) as i128));
            }
        }
    }
    let Some(v) = e.runtime(&x) else { return Val::Poison };
    if e.ty(v).rank() > 0 {
        return e.error_help(
            Code::E_TYPE,
            "expected a scalar, got a tile",
            format!("write ts.tile.{}(x), and ts.tile.cast(…, ts.i32) for integers", f.name()),
        );
    }
    if e.ty(v).dtype().is_int() {
        return Val::Rt(e.b().cast(v, DType::I64));
    }
    match e.apply(f, &[Val::Rt(v)]) {
        Val::Rt(v) => Val::Rt(e.b().cast(v, DType::I64)),
        other => other,
    }
}

fn float(e: &mut Elab<'_>, args: &mut Args) -> Val {
    match args.get("x") {
        Val::Const(Const::Str(s)) => match s.trim().to_ascii_lowercase().parse::<f64>() {
            Ok(v) => Val::Const(Const::Float(v)),
            Err(_) => e.error_help(
                Code::E_TYPE,
                format!("expected a number, got the string {s:?}"),
                "write float(\"inf\"), or the number itself",
            ),
        },
        Val::Open(_) => Val::Open(OpenKind::Float),
        v => match as_float(&v) {
            Some(x) => Val::Const(Const::Float(x)),
            None => match e.runtime(&v) {
                Some(x) => Val::Rt(e.b().cast(x, DType::F32)),
                None => Val::Poison,
            },
        },
    }
}

fn int(e: &mut Elab<'_>, args: &mut Args) -> Val {
    match args.get("x") {
        v @ (Val::Dim(_) | Val::Const(Const::Int(_))) => v,
        Val::Open(_) => Val::Open(OpenKind::Int),
        v => match as_float(&v) {
            Some(x) => Val::Const(Const::Int(x as i128)),
            None => match e.runtime(&v) {
                Some(x) => Val::Rt(e.b().cast(x, DType::I64)),
                None => Val::Poison,
            },
        },
    }
}

fn boolean(e: &mut Elab<'_>, args: &mut Args) -> Val {
    use crate::elab::expr::Truth;
    match e.truth(&args.get("x")) {
        Some(Truth::Known(b)) => Val::Const(Const::Bool(b)),
        Some(Truth::Open) => Val::Open(OpenKind::Bool),
        Some(Truth::Run(v)) => Val::Rt(v),
        None => Val::Poison,
    }
}

fn len(e: &mut Elab<'_>, args: &mut Args) -> Val {
    match args.get("x") {
        Val::Tuple(items) => Val::int(items.len() as i64),
        Val::Const(Const::Str(text)) => Val::int(text.chars().count() as i64),
        Val::View(v) | Val::Buf { buf: v, transposed: false } | Val::Rt(v)
            if e.ty(v).rank() > 0 =>
        {
            let dim = e.ty(v).shape()[0].clone();
            crate::elab::names::dim_val(&dim)
        }
        other => {
            let what = e.describe(&other);
            e.error_help(
                Code::E_TYPE,
                format!("expected a tuple, a string or a parameter, got {what}"),
                "the extents of a tile are `x.shape`",
            )
        }
    }
}
