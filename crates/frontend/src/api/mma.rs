//! Matrix multiply-accumulate (MMA).

use super::{Args, Handler::*, Rows, rows};
use crate::elab::val::{Const, Val};
use crate::elab::{Elab, show_shape};
use tessera_diag::{Code, Diagnostic};
use tessera_ir::{Attr, Dim, OpSpec, Type, Value};
use tessera_numerics::{Accum, DType};
use tessera_tile::ops::mma::{LEGAL, accumulator};
use tessera_tile::{TileBuild, TileOp};

pub const ROWS: Rows = rows! {
    Group "tile.mma" "(a, b, accumulator=None, transpose_a=False, transpose_b=False, accum=None, precision=None)" Call(mma),
        "Matrix multiply-accumulate: the matmul of tiles `(M, K)` and `(K, N)`, or of each of a batch `(B, M, K)` and `(B, K, N)`, added to `accumulator`: a tile, or a dtype for a fresh one (f32 by default, i32 for integers). `precision` is `\"tf32\"` for f32 operands that are rounded to ten fraction bits; of 8-bit floats it is `\"fast\"` for sums without promotions, `\"f32\"` for sums that keep all bits of f32.";
    Group "tile.dot" "(a, b, accumulator=None, transpose_a=False, transpose_b=False, accum=None, precision=None)" Call(mma),
        "Another name for `mma`.";
    Group "tile.mma_scaled" "(a, scale_a, b, scale_b, accumulator=None)" Call(super::mma_scaled::mma_scaled),
        "The matmul of block-scaled tiles: `scale_a` of shape `(M, K / block)` and `scale_b` of shape `(K / block, N)` multiply the blocks of `a` and `b` along K. The scales are both e8m0, or both fp8_e4m3. Each block is multiplied exactly and accumulated in f32; the sum times the product of its two scales is rounded once, and added.";
};

/// Warns, once for a kernel, that no target multiplies these operands themselves.
pub(super) fn emulated(e: &mut Elab<'_>, message: String) {
    if !std::mem::replace(&mut e.emulated, true) {
        e.report(Diagnostic::new(Code::W_EMULATED, message).help(
            "the operands keep their values; the speed is that of wider ones. To silence it: \
             warnings.filterwarnings(\"ignore\", \"W_EMULATED\", ts.TesseraWarning)",
        ));
    }
}

fn operand(e: &mut Elab<'_>, args: &Args, name: &str, transpose: &str) -> Option<Value> {
    let v = e.runtime(&args.get(name))?;
    let ty = e.ty(v).clone();
    if ty.rank() != 2 {
        let what = e.describe(&Val::Rt(v));
        e.report(
            Diagnostic::new(
                Code::E_SHAPE_MISMATCH,
                format!("expected a tile of rank 2 for `{name}`, got {what}"),
            ).help("index with a slice for each of two axes; `x[None, :]` makes a row of a rank-1 tile, `x[:, None]` a column")
            .at(args.loc(name)),
        );
        return None;
    }
    match args.get(transpose) {
        Val::Const(Const::Bool(true)) => match e.transpose(v) {
            Val::Rt(v) => Some(v),
            _ => None,
        },
        _ => Some(v),
    }
}

/// Operands of rank 3 are batches of matrices: one MMA for each.
fn batched(e: &mut Elab<'_>, args: &Args, a: Value, b: Value) -> Val {
    let (ta, tb) = (e.ty(a).clone(), e.ty(b).clone());
    let same = ta.rank() == 3 && tb.rank() == 3 && ta.shape()[0].may_equal(&tb.shape()[0]);
    let acc = match args.get("accumulator") {
        v @ (Val::Rt(_) | Val::Block(_) | Val::Buf { .. }) => e.runtime(&v),
        _ => None,
    };
    let fits = same
        && acc.is_none_or(|v| {
            let shape = e.ty(v).shape();
            shape.len() == 3 && shape[0].may_equal(&ta.shape()[0])
        });
    if !fits {
        let shown = (show_shape(ta.shape()), show_shape(tb.shape()));
        return e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!(
                "expected shapes (B, M, K) and (B, K, N), and an accumulator (B, M, N), got {} and {}",
                shown.0, shown.1
            ),
            "a batch of matmuls takes one matrix of each operand at a time: give both the same first extent",
        );
    }
    // While checking, one matrix stands for a batch that is not known.
    let count = ta.shape()[0].as_static().or(tb.shape()[0].as_static());
    let mut parts = Vec::new();
    for i in 0..count.unwrap_or(1) {
        let mut one = args.clone();
        for (name, v) in [("a", Some(a)), ("b", Some(b)), ("accumulator", acc)] {
            let Some(v) = v else { continue };
            let mut dims = e.ty(v).shape().to_vec();
            dims[0] = Dim::Static(1);
            let whole = count.is_none() || e.ty(v).shape()[0] == Dim::Static(1);
            let matrix = match whole {
                true => v,
                false => e.slice_value(v, &[i, 0, 0], &[1, 1, 1], dims),
            };
            let matrix = e.without_axes(matrix, &[0]);
            one = one.with(name, Val::Rt(matrix));
        }
        match mma(e, &mut one) {
            Val::Rt(v) => parts.push(e.b().expand(v, 0)),
            other => return other,
        }
    }
    super::parts::joined(e, &parts, 0)
}

fn mma(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let ranked = |e: &mut Elab<'_>, name: &str| match args.get(name) {
        v @ (Val::Rt(_) | Val::Block(_) | Val::Buf { .. }) => e.runtime(&v),
        _ => None,
    };
    if let (Some(a), Some(b)) = (ranked(e, "a"), ranked(e, "b")) {
        *args = args.with("a", Val::Rt(a)).with("b", Val::Rt(b));
        if e.ty(a).rank() == 3 || e.ty(b).rank() == 3 {
            return batched(e, args, a, b);
        }
    }
    let (Some(a), Some(b)) =
        (operand(e, args, "a", "transpose_a"), operand(e, args, "b", "transpose_b"))
    else {
        return Val::Poison;
    };
    let (k, kb) = (e.ty(a).shape()[1].clone(), e.ty(b).shape()[0].clone());
    if !k.may_equal(&kb) {
        let (sa, sb) = (show_shape(e.ty(a).shape()), show_shape(e.ty(b).shape()));
        return e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!("expected shapes (M, K) and (K, N), got {sa} and {sb}: {k} is not {kb}"), "the columns of the first operand are the rows of the second: take slices of one extent, or transpose one with `transpose_b=True`");
    }
    let Some(mode) = math_mode(e, args) else { return Val::Poison };
    let (a, b) = match mode {
        Mode::Tf32 => {
            // The first that does not fit says it for both.
            let Some(a) = as_tf32(e, args, "a", a) else { return Val::Poison };
            let Some(b) = as_tf32(e, args, "b", b) else { return Val::Poison };
            (a, b)
        }
        Mode::Usual | Mode::Exact | Mode::Fast => (a, b),
    };
    let Some((a, b)) = legal_operands(e, args, a, b) else { return Val::Poison };
    let class = match mode {
        _ if !is_narrow(e, a) => None,
        Mode::Exact => Some("f32"),
        Mode::Fast => Some("fast"),
        Mode::Usual | Mode::Tf32 => (is_fast(e, a) && is_fast(e, b)).then_some("fast"),
    };
    let (m, n) = (e.ty(a).shape()[0].clone(), e.ty(b).shape()[1].clone());
    let default = accumulator(e.ty(a).dtype(), e.ty(b).dtype()).unwrap_or(DType::F32);
    let given = if args.has("accumulator") { args.get("accumulator") } else { args.get("accum") };
    let acc = match given {
        Val::None => None,
        Val::Const(Const::DType(t)) if t.storage == default => None,
        Val::Const(Const::DType(t)) => {
            return e.error_help(
                Code::E_TYPE,
                format!(
                    "expected an accumulator of dtype {default} for {} operands, got {}",
                    e.ty(a).dtype(),
                    t.storage
                ),
                format!("accumulate in {default} and cast the result"),
            );
        }
        other => match e.runtime(&other) {
            Some(v) => Some(v),
            None => return Val::Poison,
        },
    };
    let acc = match acc {
        Some(v) => {
            let ty = e.ty(v).clone();
            let fits = ty.rank() == 2 && ty.shape()[0].may_equal(&m) && ty.shape()[1].may_equal(&n);
            if !fits {
                let what = e.describe(&Val::Rt(v));
                return e.error_help(
                    Code::E_SHAPE_MISMATCH,
                    format!("expected an accumulator of shape ({m}, {n}), got {what}"),
                    format!("make it with ts.tile.zeros(({m}, {n}), ts.f32)"),
                );
            }
            if ty.dtype() != default {
                return e.error_help(
                    Code::E_TYPE,
                    format!("expected an accumulator of dtype {default}, got {}", ty.dtype()),
                    format!("begin with ts.tile.zeros(shape, ts.{default})"),
                );
            }
            v
        }
        None => {
            let zero = Elab::zero(default);
            e.b().constant(Type::Tile { shape: vec![m, n], dtype: default }, zero)
        }
    };
    let ty = e.ty(acc).clone();
    let mut spec = OpSpec::new(TileOp::Mma, &[a, b, acc]).result(ty);
    if let Some(class) = class {
        spec = spec.attr("class", Attr::word(class));
    }
    match e.b().value(spec) {
        Ok(v) => Val::Rt(v),
        Err(_) => Val::Poison,
    }
}

/// What `precision` requests.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Mode {
    Usual,
    Exact,
    Tf32,
    Fast,
}

fn math_mode(e: &mut Elab<'_>, args: &Args) -> Option<Mode> {
    let given = args.get("precision");
    let name = match &given {
        Val::None => return Some(Mode::Usual),
        Val::Const(Const::Str(s)) => Some(s.to_string()),
        Val::Const(Const::DType(t)) => Some(t.storage.name().to_string()),
        _ => None,
    };
    match name.as_deref() {
        Some("default") => Some(Mode::Usual),
        Some("tf32") => Some(Mode::Tf32),
        Some("fast") => Some(Mode::Fast),
        Some("f32" | "fp32") => Some(Mode::Exact),
        _ => {
            let what = e.describe(&given);
            e.report(
                Diagnostic::new(
                    Code::E_TYPE,
                    format!("expected a precision of \"default\", \"f32\", \"tf32\" or \"fast\", got {what}"),
                ).help("leave it out for IEEE f32, or write \"tf32\" for operands rounded to ten fraction bits")
                .at(args.loc("precision")),
            );
            None
        }
    }
}

/// An operand of f32 as one that is rounded to tf32 where it is multiplied.
fn as_tf32(e: &mut Elab<'_>, args: &Args, name: &str, v: Value) -> Option<Value> {
    match e.ty(v).dtype() {
        DType::Tf32 => Some(v),
        DType::F32 => Some(e.b().cast(v, DType::Tf32)),
        other => {
            e.report(
                Diagnostic::new(
                    Code::E_TYPE,
                    format!("expected operands of f32 for the precision \"tf32\", got {other}"),
                )
                .at(args.loc(name))
                .help("leave `precision` out: other dtypes are multiplied as they are"),
            );
            None
        }
    }
}

fn is_narrow(e: &Elab<'_>, v: Value) -> bool {
    matches!(e.ty(v).dtype(), DType::Fp8E4M3 | DType::Fp8E5M2)
}

/// Whether a tile is loaded, transposed or not, from an array whose type says `@accum(fp32_fast)`.
/// Computed values have a dtype and no policy.
fn is_fast(e: &Elab<'_>, v: Value) -> bool {
    let func = &e.func;
    let mut v = v;
    while let Some(id) = func.def_id(v) {
        let op = &func.ops[id];
        match op.code {
            TileOp::Transpose => v = op.operands[0],
            TileOp::Load => {
                let Type::View { elem, .. } = func.ty(op.operands[0]) else { return false };
                return elem.accum == Some(Accum::Fp32Fast);
            }
            _ => return false,
        }
    }
    false
}

/// A plain MMA of two tiles whose shapes fit, for functions that contain one.
pub(super) fn product(e: &mut Elab<'_>, a: Value, b: Value) -> Val {
    let (ta, tb) = (e.ty(a).clone(), e.ty(b).clone());
    let (k, kb) = (&ta.shape()[1], &tb.shape()[0]);
    if !k.may_equal(kb) {
        let (sa, sb) = (show_shape(ta.shape()), show_shape(tb.shape()));
        return e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!("expected shapes (M, K) and (K, N), got {sa} and {sb}: {k} is not {kb}"), "the columns of the first operand are the rows of the second: take slices of one extent, or transpose one with `transpose_b=True`");
    }
    let Some(dtype) = accumulator(ta.dtype(), tb.dtype()) else {
        return e.error_help(
            Code::E_TYPE,
            format!("expected a dtype that products are made of, got {}", tb.dtype()),
            "cast it: ts.tile.cast(x, ts.bf16)",
        );
    };
    let zero = Elab::zero(dtype);
    let ty = Type::Tile { shape: vec![ta.shape()[0].clone(), tb.shape()[1].clone()], dtype };
    let acc = e.b().constant(ty.clone(), zero);
    match e.b().value(OpSpec::new(TileOp::Mma, &[a, b, acc]).result(ty)) {
        Ok(v) => Val::Rt(v),
        Err(_) => Val::Poison,
    }
}

/// Floats that no row has: they are multiplied in bf16.
const NARROWEST: [DType; 3] = [DType::Fp6E3M2, DType::Fp6E2M3, DType::Fp4E2M1];

/// Operands of one legal row. A mismatch is reported with the cast to write, and elaboration goes
/// on as if it stood there.
pub(super) fn legal_operands(
    e: &mut Elab<'_>,
    args: &Args,
    a: Value,
    b: Value,
) -> Option<(Value, Value)> {
    let (ta, tb) = (e.ty(a).dtype(), e.ty(b).dtype());
    if LEGAL.iter().any(|row| (row.0, row.1) == (ta, tb)) {
        return Some((a, b));
    }
    // The narrowest floats are exact in bf16, and their products in f32.
    let small = |t: DType| NARROWEST.contains(&t);
    let eight = |t: DType| matches!(t, DType::Fp8E4M3 | DType::Fp8E5M2);
    if (small(ta) || eight(ta)) && (small(tb) || eight(tb)) {
        emulated(e, format!("the matmul of {ta} and {tb} is computed in bf16, which holds both"));
        return Some((e.b().cast(a, DType::BF16), e.b().cast(b, DType::BF16)));
    }
    // The wider operand is the one to cast: the other came from memory as it is.
    let (wide, narrow, target) = if ta.bits() >= tb.bits() { ("a", tb, a) } else { ("b", ta, b) };
    let legal = |t: DType| LEGAL.iter().any(|row| (row.0, row.1) == (t, t));
    let text = args.text(wide);
    let d =
        Diagnostic::new(Code::E_TYPE, format!("expected operands of one dtype, got {ta} x {tb}"))
            .help("cast one of them to the dtype of the other with ts.tile.cast");
    // An integer is not what a float becomes.
    let (float, integer) = if ta.bits() >= tb.bits() { (ta, tb) } else { (tb, ta) };
    if legal(narrow) && float.is_float() && integer.is_int() && legal(float) {
        let other = args.text(if wide == "a" { "b" } else { "a" });
        e.report(d.help(format!("cast it: ts.tile.cast({other}, ts.{float})")));
        return None;
    }
    if !legal(narrow) {
        let rows: Vec<String> = LEGAL.iter().map(|r| format!("{} x {}", r.0, r.1)).collect();
        let narrowest: Vec<String> = NARROWEST.iter().map(|t| t.to_string()).collect();
        let (rows, any) = (rows.join(", "), narrowest.join(", "));
        let d = d.note(format!("legal pairs: {rows}; and {any} with each other and with fp8"));
        let (other, to) = if wide == "a" { ("b", ta) } else { ("a", tb) };
        e.report(match legal(to) && to.is_float() == narrow.is_float() {
            true => d.help(format!("cast it: ts.tile.cast({}, ts.{to})", args.text(other))),
            false => d,
        });
        return None;
    }
    e.report(d.help(format!("cast it: ts.tile.cast({text}, ts.{narrow})")));
    let cast = e.b().cast(target, narrow);
    Some(if wide == "a" { (cast, b) } else { (a, cast) })
}
