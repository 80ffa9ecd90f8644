//! Matmuls of block-scaled tiles (LANGUAGE 16): one MMA for each block along K.
//!
//! The scales of a row and of a column are one number for a block: the sum of its products times
//! the product of both, rounded once to f32. Neither scale is applied by itself, so a sum overflows
//! where the true number does.

use super::Args;
use super::mma::{emulated, legal_operands};
use crate::elab::val::{Const, Val};
use crate::elab::{Elab, show_shape};
use tessera_diag::Code;
use tessera_ir::{Attr, Dim, OpSpec, Type, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{TileBuild, TileOp};

/// How the sum of a block is scaled so that it is rounded once.
#[derive(Copy, Clone)]
enum Rule {
    /// The product of two fp8 scales is exact in f32.
    Product,
    /// Powers of two, whose product may be outside f32. Sums of products of at most eight bits are
    /// multiples of 2^-32 below 2^60: they are scaled in two steps, of which the first is exact.
    Powers,
    /// Powers of two, and sums of any magnitude: in f64 every product is exact.
    Wide,
}

fn is_narrow(t: DType) -> bool {
    use DType::{Fp4E2M1, Fp6E2M3, Fp6E3M2, Fp8E4M3, Fp8E5M2};
    matches!(t, Fp8E4M3 | Fp8E5M2 | Fp6E3M2 | Fp6E2M3 | Fp4E2M1)
}

/// The rule for the dtypes of `a`, `scale_a`, `b` and `scale_b`; reports those that have none.
fn rule(e: &mut Elab<'_>, [a, sa, b, sb]: [DType; 4]) -> Option<Rule> {
    let multiplied =
        |t| is_narrow(t) || matches!(t, DType::BF16 | DType::F16 | DType::Tf32 | DType::F32);
    if let Some(wrong) = [a, b].into_iter().find(|&t| !multiplied(t)) {
        e.error_help(
            Code::E_TYPE,
            format!(
                "expected elements of a block format, or floats of at most 32 bits, got {wrong}"
            ),
            "ts.tile.quantize gives elements and scales of a block format",
        );
        return None;
    }
    let block = |scale| match scale {
        DType::E8M0 => Some("blocks of 32 elements"),
        DType::Fp8E4M3 => Some("blocks of 16 elements"),
        _ => None,
    };
    match (block(sa), block(sb)) {
        (Some(_), Some(_)) if sa == sb => Some(match sa {
            DType::E8M0 if is_narrow(a) && is_narrow(b) => Rule::Powers,
            DType::E8M0 => Rule::Wide,
            _ => Rule::Product,
        }),
        (Some(left), Some(right)) => {
            let shown = |scale| if scale == DType::E8M0 { "an mx format" } else { "nvfp4" };
            e.error_help(
                Code::E_UNSUPPORTED_DTYPE,
                format!(
                    "expected both operands in one kind of block format, got `a` in {} ({left} with a scale of \
                     {sa}) and `b` in {} ({right} with a scale of {sb})",
                    shown(sa),
                    shown(sb)
                ),
                "quantize both to mx formats, or both to nvfp4",
            );
            None
        }
        (left, _) => {
            let (name, wrong) = if left.is_none() { ("scale_a", sa) } else { ("scale_b", sb) };
            e.error_help(
                Code::E_UNSUPPORTED_DTYPE,
                format!("expected `{name}` of e8m0 (mx formats) or fp8_e4m3 (nvfp4), got {wrong}"),
                "for scales of other dtypes multiply the operands by them, and use ts.tile.mma",
            );
            None
        }
    }
}

pub(super) fn mma_scaled(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let names = ["a", "scale_a", "b", "scale_b"];
    let values: Option<Vec<Value>> =
        names.iter().map(|n| super::parts::tile_of(e, &args.get(n), "to multiply")).collect();
    let Some(values) = values else { return Val::Poison };
    let [a, sa, b, sb] = [0, 1, 2, 3].map(|i| values[i]);
    let dtypes = [a, sa, b, sb].map(|v| e.ty(v).dtype());
    let Some(rule) = rule(e, dtypes) else { return Val::Poison };
    let shapes: Vec<_> = values.iter().map(|&v| e.ty(v).shape().to_vec()).collect();
    let known: Option<Vec<Vec<i64>>> = values.iter().map(|&v| e.ty(v).static_shape()).collect();
    if let Some(wrong) = unfit(&shapes, known.as_deref()) {
        let shown: Vec<String> = shapes.iter().map(|s| show_shape(s)).collect();
        let transposed = |i: usize| {
            let mut turned = shapes.clone();
            turned[i].reverse();
            let known = known.clone().map(|mut k| {
                k[i].reverse();
                k
            });
            shapes[i].len() == 2 && unfit(&turned, known.as_deref()).is_none()
        };
        let help = match (0..4).find(|&i| transposed(i)) {
            Some(i) => format!("transpose `{}`: `{}.T`", names[i], args.text(names[i])),
            None => "blocks of 32 elements along K share a scale in the mx formats, of 16 in nvfp4"
                .into(),
        };
        return e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!(
                "expected shapes (M, K), (M, K / block), (K, N) and (K / block, N), got {}: {wrong}",
                shown.join(", ")
            ),
            help,
        );
    }
    let what = match (is_narrow(dtypes[0]), is_narrow(dtypes[2])) {
        (true, true) => format!("block-scaled {} and {}", dtypes[0], dtypes[2]),
        _ => "block-scaled tiles".to_string(),
    };
    emulated(e, format!("the matmul of {what} is computed block by block, and scaled in f32"));
    let dims = vec![shapes[0][0].clone(), shapes[2][1].clone()];
    let ty = Type::Tile { shape: dims.clone(), dtype: DType::F32 };
    let given = args.get("accumulator");
    let mut acc = match given {
        Val::None | Val::Const(Const::DType(_)) => e.b().constant(ty, Attr::Float(0.0)),
        other => match e.convert(&other, DType::F32, &dims) {
            Some(v) => v,
            None => return Val::Poison,
        },
    };
    let Some(known) = known else { return Val::Rt(acc) };
    let (blocks, k) = (known[1][1], known[0][1]);
    // Without blocks nothing is added.
    let block = k / blocks.max(1);
    let [sa, sb] = [sa, sb].map(|v| e.b().cast(v, DType::F32));
    for i in 0..blocks {
        let part = |e: &mut Elab<'_>, v: Value, at: [i64; 2], extent: [i64; 2]| {
            e.slice_value(v, &at, &[1, 1], extent.map(Dim::Static).to_vec())
        };
        let (m, n) = (known[0][0], known[2][1]);
        let left = part(e, a, [0, i * block], [m, block]);
        let right = part(e, b, [i * block, 0], [block, n]);
        let Some((left, right)) = legal_operands(e, args, left, right) else { return Val::Poison };
        let zero = e.b().constant(Type::tile(&[m, n], DType::F32), Attr::Float(0.0));
        let spec =
            OpSpec::new(TileOp::Mma, &[left, right, zero]).result(Type::tile(&[m, n], DType::F32));
        let Ok(sum) = e.b().value(spec) else { return Val::Poison };
        let rows = part(e, sa, [0, i], [m, 1]);
        let cols = part(e, sb, [i, 0], [1, n]);
        let scaled = scaled(e, rule, sum, [rows, cols]);
        acc = e.b().ew(ScalarFn::Add, &[acc, scaled]);
    }
    Val::Rt(acc)
}

/// What is wrong with the shapes.
fn unfit(shapes: &[Vec<Dim>], known: Option<&[Vec<i64>]>) -> Option<String> {
    const NAMES: [&str; 4] = ["a", "scale_a", "b", "scale_b"];
    if let Some(i) = shapes.iter().position(|s| s.len() != 2) {
        return Some(format!("`{}` is not of rank 2", NAMES[i]));
    }
    let [a, sa, b, sb] = [0, 1, 2, 3].map(|i| known.map(|k| &k[i]));
    let (a, sa, b, sb) = (a?, sa?, b?, sb?);
    if b[0] != a[1] {
        return Some(format!("`b` has {} rows for the {} columns of `a`", b[0], a[1]));
    }
    if sa[0] != a[0] {
        return Some(format!("`scale_a` has {} rows, `a` has {}", sa[0], a[0]));
    }
    if sb[1] != b[1] {
        return Some(format!("`scale_b` has {} columns, `b` has {}", sb[1], b[1]));
    }
    if sa[1] != sb[0] {
        return Some(format!("`scale_a` has {} blocks along K, `scale_b` has {}", sa[1], sb[0]));
    }
    let fits = if sa[1] > 0 { a[1] % sa[1] == 0 } else { a[1] == 0 };
    (!fits).then(|| format!("the {} elements along K are not {} blocks of one size", a[1], sa[1]))
}

/// The sum of a block times the scales of its rows and of its columns.
fn scaled(e: &mut Elab<'_>, rule: Rule, sum: Value, scales: [Value; 2]) -> Value {
    let dims = e.ty(sum).shape().to_vec();
    let outer = |e: &mut Elab<'_>, [rows, cols]: [Value; 2]| {
        let [rows, cols] = [rows, cols].map(|v| e.b().broadcast(v, dims.clone()));
        e.b().ew(ScalarFn::Mul, &[rows, cols])
    };
    match rule {
        Rule::Product => {
            let factor = outer(e, scales);
            cleared(e, ScalarFn::Mul, sum, factor)
        }
        // The far parts are other than one only where both near parts are at their limits. Then the
        // first step is by at most 2^127, and by at least 2^-127 where the result is zero anyway;
        // else it is exact, for it is by one scale's far part, of 64 binary places at the most.
        Rule::Powers => {
            let (near, far) = {
                let rows = divided(e, scales[0], -63, 64);
                let cols = divided(e, scales[1], -64, 63);
                ([rows.0, cols.0], [rows.1, cols.1])
            };
            let [far, near] = [far, near].map(|both| outer(e, both));
            let first = cleared(e, ScalarFn::Mul, sum, far);
            cleared(e, ScalarFn::Mul, first, near)
        }
        Rule::Wide => {
            let scales = scales.map(|v| e.b().cast(v, DType::F64));
            let factor = outer(e, scales);
            let sum = e.b().cast(sum, DType::F64);
            let product = cleared(e, ScalarFn::Mul, sum, factor);
            e.b().cast(product, DType::F32)
        }
    }
}

/// A power of two as one between `2^low` and `2^high`, and what is left: a power with an exponent of
/// the same sign.
fn divided(e: &mut Elab<'_>, scale: Value, low: i32, high: i32) -> (Value, Value) {
    let number = |e: &mut Elab<'_>, x: f64| {
        let ty = e.ty(scale).clone();
        e.b().constant(ty, Attr::Float(x))
    };
    let [least, most] = [low, high].map(|at| number(e, 2f64.powi(at)));
    let near = e.b().ew(ScalarFn::Maximum, &[scale, least]);
    let near = e.b().ew(ScalarFn::Minimum, &[near, most]);
    let [up, down] = [-low, -high].map(|by| number(e, 2f64.powi(by)));
    let one = number(e, 1.0);
    // What overflows or becomes subnormal here is on the other side of one.
    let below = e.b().ew(ScalarFn::Mul, &[scale, up]);
    let below = e.b().ew(ScalarFn::Minimum, &[below, one]);
    let above = e.b().ew(ScalarFn::Mul, &[scale, down]);
    let above = e.b().ew(ScalarFn::Maximum, &[above, one]);
    (near, e.b().ew(ScalarFn::Mul, &[below, above]))
}

/// An op whose zero operand stays zero, whatever the scale.
pub(super) fn cleared(e: &mut Elab<'_>, f: ScalarFn, x: Value, scale: Value) -> Value {
    let ty = e.ty(x).clone();
    let spec = OpSpec::new(TileOp::Ew(f), &[x, scale]).attr("clears", Attr::Bool(true)).result(ty);
    e.b().value(spec).expect("the result type is given")
}
