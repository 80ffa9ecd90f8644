//! Rounding in the bodies of kernels: `ts.bf16 @ ts.round("rtz")` and
//! `ts.bf16 @ ts.stochastic_round(seed, at=i)` as the dtype of a cast.

use super::{Args, Handler::*, Rows, rows};
use crate::elab::Elab;
use crate::elab::val::{Const, Drawn, RoundingRule, Val};
use tessera_diag::Code;
use tessera_ir::{Attr, OpSpec, Value};
use tessera_numerics::{DType, NumType, PolicyItem, Rounding, ScalarFn};
use tessera_tile::{TileBuild, TileOp};

pub const ROWS: Rows = rows! {
    Any "round" "(mode)" Call(round), "How a cast rounds, after `@`: \"rne\", \"rtz\", \"up\" or \"down\".";
    Any "stochastic_round" "(seed, at)" Call(stochastic), "Rounds at random, after `@`: up in magnitude with the probability of the dropped fraction. The draw of each element is the Philox word of the seed and of its counter in `at`.";
};

fn round(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let mode = args.get("mode");
    let found = match &mode {
        Val::Const(Const::Str(s)) => Rounding::from_name(s).filter(|r| *r != Rounding::Stochastic),
        _ => None,
    };
    match found {
        Some(mode) => Val::Rounding(Box::new(RoundingRule::Mode(mode))),
        None => {
            let what = e.describe(&mode);
            let meant = match &mode {
                Val::Const(Const::Str(s)) => nearest_name(s),
                _ => None,
            };
            let help = match meant {
                Some(meant) => format!("write ts.round(\"{meant}\")"),
                None => "to nearest is \"rne\", toward zero \"rtz\"; at random is \
                         ts.stochastic_round(seed, at=i)"
                    .into(),
            };
            e.error_help(
                Code::E_ARGUMENT,
                format!("expected \"rne\", \"rtz\", \"up\" or \"down\", got {what}"),
                help,
            )
        }
    }
}

/// The mode that another word for it means, as NumPy, MPFR, C and CUDA have them.
fn nearest_name(word: &str) -> Option<&'static str> {
    let word = word.to_lowercase();
    Some(match word.as_str() {
        "nearest" | "even" | "nearest_even" | "half_even" | "tonearest" | "rn" | "rint" => "rne",
        "zero" | "toward_zero" | "towardzero" | "trunc" | "truncate" | "rz" => "rtz",
        "ceil" | "ceiling" | "upward" | "inf" | "ru" | "rup" => "up",
        "floor" | "downward" | "-inf" | "rd" | "rdn" => "down",
        _ => return None,
    })
}

fn stochastic(_: &mut Elab<'_>, args: &mut Args) -> Val {
    let (seed, at) = (args.get("seed"), args.get("at"));
    Val::Rounding(Box::new(RoundingRule::Stochastic { seed, at }))
}

impl Elab<'_> {
    /// `dtype @ rule`.
    pub fn with_rounding(&mut self, dtype: &Val, rule: &Val) -> Val {
        let (Val::Const(Const::DType(t)), Val::Rounding(rule)) = (dtype, rule) else {
            let what = self.describe(dtype);
            return self.error_help(
                Code::E_TYPE,
                format!("expected a dtype before `@`, got {what}"),
                "write `ts.bf16 @ ts.round(\"rtz\")`",
            );
        };
        let mode = match &**rule {
            RoundingRule::Mode(mode) => *mode,
            RoundingRule::Stochastic { .. } => Rounding::Stochastic,
        };
        let truncates = matches!(mode, Rounding::Rtz | Rounding::Stochastic);
        if !t.storage.is_float() && !truncates {
            return self.error_help(
                Code::E_TYPE,
                format!("expected a float to round to, got {}, which casts truncate to", t.storage),
                "round before the cast: ts.tile.cast(ts.tile.round(x), ts.i32), or with floor or ceil",
            );
        }
        let with = match t.with(PolicyItem::Round(mode)) {
            Ok(with) => with,
            Err(_) => {
                return self.error_help(
                    Code::E_TYPE,
                    format!("expected one rounding for {}, got two", t.storage),
                    "leave out one of them",
                );
            }
        };
        match &**rule {
            RoundingRule::Mode(_) => Val::Const(Const::DType(with)),
            RoundingRule::Stochastic { seed, at } => {
                Val::Drawn(Box::new(Drawn { dtype: *t, seed: seed.clone(), at: at.clone() }))
            }
        }
    }
}

/// A conversion that rounds by this mode, to be read as the wide dtype again.
fn rounded(e: &mut Elab<'_>, x: Value, to: NumType, mode: Rounding) -> Value {
    let wide = e.ty(x).dtype();
    let ty = e.ty(x).with_dtype(to.storage);
    let mut spec =
        OpSpec::new(TileOp::Cast, &[x]).attr("round", Attr::word(mode.name())).result(ty);
    if let Some(sat) = to.saturate {
        spec = spec.attr("saturate", Attr::Bool(sat));
    }
    let narrow = e.b().value(spec).expect("the result type is given");
    e.b().cast(narrow, wide)
}

/// Stochastic rounding: of the two neighbours the one of larger magnitude where the dropped fraction,
/// cut to 32 bits, is above the draw. All steps are exact.
pub fn cast_drawn(e: &mut Elab<'_>, x: &Val, how: &Drawn) -> Val {
    let to = how.dtype;
    if !to.storage.is_float() || matches!(to.storage, DType::F64 | DType::E8M0) {
        return e.error_help(
            Code::E_TYPE,
            format!("expected a float below f64 to round to at random, got {}", to.storage),
            "integers are truncated: add a random number first",
        );
    }
    let Some(x) = e.runtime(x) else { return Val::Poison };
    let wide = if e.ty(x).dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let x = e.b().cast(x, wide);
    let (Some(seed), Some(at)) = (e.index_value(&how.seed), e.runtime(&how.at)) else {
        return Val::Poison;
    };
    let shape = e.ty(x).shape().to_vec();
    let fits = e.ty(at).rank() == 0 && shape.is_empty()
        || e.ty(at).rank() == shape.len()
            && e.ty(at).shape().iter().zip(&shape).all(|(a, b)| a.may_equal(b));
    if !e.ty(at).dtype().is_int() || !fits {
        let (what, of) = (e.describe(&how.at), e.describe(&Val::Rt(x)));
        return e.error_help(
            Code::E_TYPE,
            format!("expected in `at` an integer for each element of {of}, got {what}"),
            "count the elements of the whole array: at=start + ts.tile.arange(16)",
        );
    }
    let counter = e.b().cast(at, DType::I64);
    let spec = OpSpec::new(TileOp::Philox, &[seed, counter]).result(e.ty(x).with_dtype(DType::U32));
    let draw = e.b().value(spec).expect("the result type is given");
    let [toward, up, down, nearest] = [Rounding::Rtz, Rounding::Up, Rounding::Down, Rounding::Rne]
        .map(|mode| rounded(e, x, to, mode));
    let constant = |e: &mut Elab<'_>, v: f64| {
        let ty = e.ty(x).clone();
        e.b().constant(ty, Attr::Float(v))
    };
    let zero = constant(e, 0.0);
    let negative = e.b().ew(ScalarFn::Lt, &[x, zero]);
    let away = e.b().select(negative, down, up);
    let [own, low, high] = [x, toward, away].map(|v| e.b().ew(ScalarFn::Abs, &[v]));
    let dropped = e.b().ew(ScalarFn::Sub, &[own, low]);
    let apart = e.b().ew(ScalarFn::Sub, &[high, low]);
    let fraction = e.b().ew(ScalarFn::Div, &[dropped, apart]);
    let words = constant(e, 4294967296.0);
    let fraction = e.b().ew(ScalarFn::Mul, &[fraction, words]);
    // Of no distance it is NaN, and so 0: exact values never move.
    let fraction = e.b().cast(fraction, DType::U64);
    let draw = e.b().cast(draw, DType::U64);
    let moves = e.b().ew(ScalarFn::Gt, &[fraction, draw]);
    let chosen = e.b().select(moves, away, toward);
    // What rounding to nearest makes infinite stays so.
    let infinite = e.b().ew(ScalarFn::IsInf, &[nearest]);
    let chosen = e.b().select(infinite, nearest, chosen);
    Val::Rt(e.b().cast(chosen, to.storage))
}
