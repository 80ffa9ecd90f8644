//! Arithmetic: the common dtype and shape of operands (promotion and broadcasting, LANGUAGE 9), and
//! the op that results.

use super::literal::{Weight, join};
use super::val::{Const, OpenKind, Val};
use super::{Elab, describe_type, show_shape};
use std::cmp::Ordering;
use tessera_diag::{Code, Diagnostic};
use tessera_ir::{Dim, DimExpr, DimOp, Shape, Type, Value};
use tessera_numerics::{Basic, DType, FnClass, ScalarFn};
use tessera_tile::TileBuild;

impl Elab<'_> {
    /// `a op b` for Python's operators.
    pub fn binary(&mut self, f: ScalarFn, a: Val, b: Val) -> Val {
        if a == Val::Poison || b == Val::Poison {
            return Val::Poison;
        }
        if let (Val::Const(x), Val::Const(y)) = (&a, &b)
            && let Some(folded) = self.fold(f, x, y)
        {
            return folded;
        }
        if let Some(e) = self.fold_dims(f, &a, &b) {
            return e;
        }
        if let (Some(x), Some(y)) = (open_kind(&a), open_kind(&b))
            && (matches!(a, Val::Open(_)) || matches!(b, Val::Open(_)))
        {
            return Val::Open(join_open(f, x, y));
        }
        // `x ** 2` is a product; other powers are floating point.
        if f == ScalarFn::Pow && b == Val::int(2) {
            let x = match self.runtime(&a) {
                Some(x) => Val::Rt(x),
                None => return Val::Poison,
            };
            return self.binary(ScalarFn::Mul, x.clone(), x);
        }
        self.apply(f, &[a, b])
    }

    pub fn unary(&mut self, f: ScalarFn, x: Val) -> Val {
        match (&x, f) {
            (Val::Poison, _) => Val::Poison,
            (Val::Const(Const::Int(v)), ScalarFn::Neg) => {
                Val::Const(Const::Int(v.saturating_neg()))
            }
            (Val::Const(Const::Float(v)), ScalarFn::Neg) => Val::Const(Const::Float(-v)),
            (Val::Const(Const::Bool(v)), ScalarFn::Neg) => Val::int(-i64::from(*v)),
            (Val::Const(Const::Int(v)), ScalarFn::Not) => Val::Const(Const::Int(!v)),
            (Val::Dim(e), ScalarFn::Neg) => {
                Val::Dim(DimExpr::bin(DimOp::Sub, DimExpr::Const(0), e.clone()))
            }
            (Val::Open(k), _) => Val::Open(*k),
            _ => self.apply(f, &[x]),
        }
    }

    /// Applies an elementwise function: operands are brought to one dtype and one shape.
    pub fn apply(&mut self, f: ScalarFn, operands: &[Val]) -> Val {
        if operands.contains(&Val::Poison) {
            return Val::Poison;
        }
        let Some(values) = self.unify(operands, Some(f)) else { return Val::Poison };
        let dtype = self.ty(values[0]).dtype();
        if !f.accepts(dtype) {
            return self.error_help(
                Code::E_TYPE,
                format!(
                    "expected an operand that `{}` takes, got {}",
                    f.name(),
                    describe_type(&self.ty(values[0]).clone())
                ), "cast it first: ts.tile.cast(x, ts.f32) for functions of floats, ts.i32 for those of integers");
        }
        let result = self.b().ew(f, &values);
        self.note_widening(f, operands, result);
        if let Some(weak) = self.weak_result(f, operands) {
            self.note_weak(result, weak, operands);
        }
        Val::Rt(result)
    }

    /// Brings operands to one compute dtype and one shape. `f` says what they are for: division and
    /// the functions of real numbers take floats, logic keeps bools.
    pub fn unify(&mut self, operands: &[Val], f: Option<ScalarFn>) -> Option<Vec<Value>> {
        let loaded: Vec<Val> = operands
            .iter()
            .map(|v| match v {
                Val::Const(_) | Val::Open(_) | Val::Rt(_) => Some(v.clone()),
                other => self.runtime(other).map(Val::Rt),
            })
            .collect::<Option<_>>()?;
        let (dtype, shape) = self.common_type(&loaded, f)?;
        loaded.iter().map(|v| self.convert(v, dtype, &shape)).collect()
    }

    /// The common dtype and shape of operands; nothing is emitted.
    pub fn common_type(&mut self, operands: &[Val], f: Option<ScalarFn>) -> Option<(DType, Shape)> {
        let mut weight: Option<Weight> = None;
        for v in operands {
            let w = self.weight(v)?;
            weight = Some(match weight {
                None => w,
                Some(before) => match join(before, w) {
                    Some(w) => w,
                    None => return self.no_common_type(operands, v, f),
                },
            });
        }
        let Some(mut dtype) = weight?.dtype() else {
            return self.no_common_type(operands, &operands[0], f);
        };
        let class = f.map(ScalarFn::class);
        if dtype == DType::Bool
            && matches!(class, Some(FnClass::Arith | FnClass::Shift | FnClass::Word))
        {
            dtype = DType::I32;
        }
        if matches!(class, Some(FnClass::Float | FnClass::Predicate)) && !dtype.is_float() {
            dtype = if matches!(dtype, DType::I64 | DType::U64) { DType::F64 } else { DType::F32 };
        }
        Some((dtype, self.join_shapes(operands)?))
    }

    fn weight(&mut self, v: &Val) -> Option<Weight> {
        let weight = self.weight_of(v);
        if weight.is_none() {
            let what = self.describe(v);
            self.error_help(
                Code::E_TYPE,
                format!("expected a number or a tile, got {what}"),
                "take a slice of an array, index a tuple, or call a function of ts.tile",
            );
        }
        weight
    }

    /// Reports that no dtype holds the values of all operands.
    fn no_common_type<T>(
        &mut self,
        operands: &[Val],
        last: &Val,
        f: Option<ScalarFn>,
    ) -> Option<T> {
        let literal = |v: &&Val| matches!(v, Val::Const(Const::Int(_)));
        let (a, b) = (self.describe(&operands[0]), self.describe(last));
        if operands.len() == 1 || operands.iter().all(|v| literal(&v)) {
            self.error_help(
                Code::E_TYPE,
                format!("expected an integer that 64 bits hold, got {b}"),
                "constant expressions of integers are exact; their result must fit i64 or u64 where it is used",
            );
        } else if operands.iter().any(|v| literal(&v)) {
            self.error_help(
                Code::E_TYPE,
                format!("expected operands that one integer type holds, got {a} and {b}"),
                "cast the value to a float or to the type that is meant: ts.tile.cast(x, ts.i64)",
            );
        } else {
            self.error_help(
                Code::E_TYPE,
                format!("expected operands of one signedness, got {a} and {b}"),
                match (f.map(ScalarFn::class), self.weight_of(&operands[0])) {
                    (Some(FnClass::Shift), Some(Weight::Strong(own))) => {
                        format!("cast the count of bits: ts.tile.cast(n, ts.{})", own.carrier())
                    }
                    _ => "cast one of them: ts.tile.cast(x, ts.i64)".to_string(),
                },
            );
        }
        None
    }

    /// One operand as a value of the dtype and shape.
    pub fn convert(&mut self, v: &Val, dtype: DType, shape: &[Dim]) -> Option<Value> {
        let value = match v {
            Val::Const(c) => self.scalar(c, dtype)?,
            // A weak value is held in a dtype that keeps all of it.
            Val::Rt(value) => {
                if self.weak.contains_key(value) && self.ty(*value).dtype() != dtype {
                    self.weak_used.extend(self.weak_roots.get(value).into_iter().flatten());
                }
                self.b().cast(*value, dtype)
            }
            other => {
                let value = self.runtime(other)?;
                self.b().cast(value, dtype)
            }
        };
        Some(self.b().broadcast(value, shape.to_vec()))
    }

    /// The broadcast shape of the operands: of equal ranks, with axes of extent 1, or scalars.
    fn join_shapes(&mut self, operands: &[Val]) -> Option<Shape> {
        let mut shape: Shape = Vec::new();
        let mut first: Option<usize> = None;
        for (place, v) in operands.iter().enumerate() {
            let Val::Rt(value) = v else { continue };
            let other = self.ty(*value).shape().to_vec();
            if other.is_empty() {
                continue;
            }
            let Some(before) = first else {
                shape = other;
                first = Some(place);
                continue;
            };
            if shape.len() != other.len() {
                return self.rank_mismatch(operands, before, place, &shape, &other);
            }
            for (mine, theirs) in shape.iter_mut().zip(&other) {
                if mine.is_one() {
                    *mine = theirs.clone();
                } else if !theirs.is_one() && !mine.may_equal(theirs) {
                    let (a, b) = (self.describe(&operands[before]), self.describe(v));
                    self.error_help(
                        Code::E_SHAPE_MISMATCH,
                        format!("expected operands of one shape, got {a} and {b}"), "extents must be equal or 1: take slices of one extent, or put in an axis with `x[:, None]`");
                    return None;
                } else if mine.as_static().is_none()
                    && theirs.as_static().is_some()
                    && !theirs.is_one()
                {
                    *mine = theirs.clone();
                }
            }
        }
        Some(shape)
    }

    /// Rank 1 with rank 2 is refused; the help has the subscript to write. Elaboration goes on as
    /// if it were there, so that the rest is checked too.
    fn rank_mismatch(
        &mut self,
        operands: &[Val],
        before: usize,
        place: usize,
        a: &Shape,
        b: &Shape,
    ) -> Option<Shape> {
        let (low, high, low_at) = if a.len() < b.len() { (a, b, before) } else { (b, a, place) };
        let name = match &operands[low_at] {
            Val::Rt(v) => self.func.name_of(*v).unwrap_or("x").to_string(),
            _ => "x".into(),
        };
        let rows = low.len() == 1 && high.len() == 2 && low[0].may_equal(&high[0]);
        let help = match (low.len(), high.len()) {
            (1, 2) if rows => format!("write `{name}[:, None]` to use it for each row"),
            (1, 2) => format!("write `{name}[None, :]` to use it for each column"),
            _ => "bring both to one rank with `x[:, None]` or ts.tile.reshape".into(),
        };
        self.report(
            Diagnostic::new(
                Code::E_SHAPE_MISMATCH,
                format!(
                    "expected operands of one rank, got shapes {} and {}",
                    show_shape(a),
                    show_shape(b)
                ),
            )
            .help(help),
        );
        None
    }

    /// What a binary expression of the shapes `a` and `b` gives after the error above: the larger.
    pub fn recovered(&mut self, f: ScalarFn, operands: &[Val]) -> Val {
        let mut best: Option<Type> = None;
        for v in operands {
            if let Val::Rt(value) = v {
                let ty = self.ty(*value).clone();
                if best.as_ref().is_none_or(|b| ty.rank() > b.rank()) {
                    best = Some(ty);
                }
            }
        }
        let Some(ty) = best else { return Val::Poison };
        let dtype =
            f.result(if ty.dtype() == DType::Bool { DType::Bool } else { ty.dtype().compute() });
        Val::Rt(self.b().constant(ty.with_dtype(dtype), Self::zero(dtype)))
    }

    /// Compile-time arithmetic, as Python does it; `None` where it is left to run time.
    fn fold(&mut self, f: ScalarFn, a: &Const, b: &Const) -> Option<Val> {
        use ScalarFn as F;
        if let (Const::Str(x), Const::Str(y)) = (a, b) {
            return match f {
                F::Eq => Some(Val::Const(Const::Bool(x == y))),
                F::Ne => Some(Val::Const(Const::Bool(x != y))),
                F::Add => Some(Val::Const(Const::Str(format!("{x}{y}")))),
                _ => None,
            };
        }
        if let (Const::DType(x), Const::DType(y)) = (a, b) {
            return match f {
                F::Eq => Some(Val::Const(Const::Bool(x == y))),
                F::Ne => Some(Val::Const(Const::Bool(x != y))),
                _ => None,
            };
        }
        let ints = (as_int(a), as_int(b));
        if let (Some(x), Some(y)) = ints
            && f != F::Div
        {
            let both_bool = matches!((a, b), (Const::Bool(_), Const::Bool(_)));
            let whole = |v: Option<i128>| v.map(|v| Val::Const(Const::Int(v)));
            let truth = |v: bool| Some(Val::Const(Const::Bool(v)));
            if matches!(f, F::FloorDiv | F::Mod) && y == 0 {
                return Some(self.constant_by_zero(x));
            }
            if matches!(f, F::Shl | F::Shr) && y < 0 {
                return Some(self.error_help(
                    Code::E_ARGUMENT,
                    format!("expected a shift by 0 bits or more, got {y}"),
                    "this is a constant expression: Python would raise ValueError",
                ));
            }
            let out = match f {
                F::Add => whole(x.checked_add(y)),
                F::Sub => whole(x.checked_sub(y)),
                F::Mul => whole(x.checked_mul(y)),
                F::FloorDiv => whole(floor_div(x, y)),
                F::Mod => whole(floor_div(x, y).map(|q| x - q * y)),
                F::Pow if y >= 0 => whole(u32::try_from(y).ok().and_then(|y| x.checked_pow(y))),
                F::Shl => whole(
                    u32::try_from(y).ok().filter(|s| *s < 127).and_then(|s| x.checked_mul(1 << s)),
                ),
                F::Shr => whole(u32::try_from(y).ok().map(|s| x >> s.min(127))),
                F::And if both_bool => truth(x & y != 0),
                F::Or if both_bool => truth(x | y != 0),
                F::Xor if both_bool => truth(x != y),
                F::And => whole(Some(x & y)),
                F::Or => whole(Some(x | y)),
                F::Xor => whole(Some(x ^ y)),
                F::Minimum => whole(Some(x.min(y))),
                F::Maximum => whole(Some(x.max(y))),
                F::Eq => truth(x == y),
                F::Ne => truth(x != y),
                F::Lt => truth(x < y),
                F::Le => truth(x <= y),
                F::Gt => truth(x > y),
                F::Ge => truth(x >= y),
                _ => return self.fold_floats(f, x as f64, y as f64),
            };
            if out.is_none() {
                return Some(self.error_help(
                    Code::E_TYPE,
                    format!(
                        "expected a constant of at most 128 bits, got `{}` of {x} and {y}",
                        f.name()
                    ),
                    "constant expressions of integers are exact, up to 128 bits",
                ));
            }
            return out;
        }
        if f == F::Div
            && let (Some(x), Some(0)) = ints
        {
            return Some(self.constant_by_zero(x));
        }
        if let Some(order) = compared(a, b) {
            let holds = match f {
                F::Eq => Some(order == Some(Ordering::Equal)),
                F::Ne => Some(order != Some(Ordering::Equal)),
                F::Lt => Some(order == Some(Ordering::Less)),
                F::Le => Some(matches!(order, Some(Ordering::Less | Ordering::Equal))),
                F::Gt => Some(order == Some(Ordering::Greater)),
                F::Ge => Some(matches!(order, Some(Ordering::Greater | Ordering::Equal))),
                _ => None,
            };
            if let Some(holds) = holds {
                return Some(Val::Const(Const::Bool(holds)));
            }
        }
        let (x, y) = (as_float(a)?, as_float(b)?);
        self.fold_floats(f, x, y)
    }

    fn constant_by_zero(&mut self, x: i128) -> Val {
        self.error_help(
            Code::E_DIV_ZERO,
            format!("expected a divisor other than 0, got {x} divided by 0"),
            "this is a constant expression: Python would raise ZeroDivisionError",
        )
    }

    fn fold_floats(&mut self, f: ScalarFn, x: f64, y: f64) -> Option<Val> {
        use ScalarFn as F;
        let number = |v: f64| Some(Val::Const(Const::Float(v)));
        let truth = |v: bool| Some(Val::Const(Const::Bool(v)));
        match f {
            F::Add => number(x + y),
            F::Sub => number(x - y),
            F::Mul => number(x * y),
            F::Div => number(x / y),
            F::FloorDiv => number(python_divmod(x, y).0),
            F::Mod => number(python_divmod(x, y).1),
            F::Pow => number(x.powf(y)),
            // The first, unless the other is beyond it.
            F::Minimum => number(if y < x { y } else { x }),
            F::Maximum => number(if y > x { y } else { x }),
            F::Eq => truth(x == y),
            F::Ne => truth(x != y),
            F::Lt => truth(x < y),
            F::Le => truth(x <= y),
            F::Gt => truth(x > y),
            F::Ge => truth(x >= y),
            _ => None,
        }
    }

    /// Arithmetic of dimension symbols and integers stays symbolic: the host can evaluate it, and
    /// it folds to an integer once the symbols are known.
    fn fold_dims(&mut self, f: ScalarFn, a: &Val, b: &Val) -> Option<Val> {
        let expr = |v: &Val| match v {
            Val::Dim(e) => Some(e.clone()),
            Val::Const(Const::Int(i)) => i64::try_from(*i).ok().map(DimExpr::Const),
            _ => None,
        };
        let (x, y) = (expr(a)?, expr(b)?);
        Some(match DimExpr::bin(dim_op(f)?, x, y) {
            DimExpr::Const(v) => Val::int(v),
            e => Val::Dim(e),
        })
    }
}

/// The function of dimension expressions that a scalar function is, if any. Comparisons are not: a
/// size may become compile-time, and its comparison is open while checking.
#[deny(clippy::wildcard_enum_match_arm)]
fn dim_op(f: ScalarFn) -> Option<DimOp> {
    use Basic::*;
    Some(match f.basic()? {
        Add => DimOp::Add,
        Sub => DimOp::Sub,
        Mul => DimOp::Mul,
        FloorDiv => DimOp::FloorDiv,
        Mod => DimOp::Mod,
        Minimum => DimOp::Min,
        Maximum => DimOp::Max,
        Div | Neg | Abs | Fma | Sqrt | Recip | Floor | Ceil | Round | Trunc | Sign | Clamp
        | And | Or | Xor | Not | Shl | Shr | Popcount | Clz | Ctz | Brev | MulHi | FunnelShift
        | Eq | Ne | Lt | Le | Gt | Ge | IsNan | IsInf | IsFinite => return None,
    })
}

fn as_int(c: &Const) -> Option<i128> {
    match c {
        Const::Int(v) => Some(*v),
        Const::Bool(b) => Some(i128::from(*b)),
        Const::Float(_) | Const::Str(_) | Const::DType(_) => None,
    }
}

fn as_float(c: &Const) -> Option<f64> {
    match c {
        Const::Float(v) => Some(*v),
        other => as_int(other).map(|v| v as f64),
    }
}

/// How two constants compare, of which one is a float: exactly, as Python does it. The inner `None` is NaN's.
fn compared(a: &Const, b: &Const) -> Option<Option<Ordering>> {
    match (a, b) {
        (Const::Float(x), Const::Float(y)) => Some(x.partial_cmp(y)),
        (Const::Float(x), other) => Some(against(*x, as_int(other)?)),
        (other, Const::Float(y)) => Some(against(*y, as_int(other)?).map(Ordering::reverse)),
        _ => None,
    }
}

fn against(x: f64, n: i128) -> Option<Ordering> {
    // Beyond 2^127 the float decides; up to it, whole floats are integers of 128 bits.
    const END: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;
    if x.is_nan() {
        return None;
    }
    if !(-END..END).contains(&x) {
        return Some(if x > 0.0 { Ordering::Greater } else { Ordering::Less });
    }
    let whole = x.floor();
    Some((whole as i128).cmp(&n).then(if x > whole { Ordering::Greater } else { Ordering::Equal }))
}

/// What kind of compile-time number this is; `None` for run-time values.
pub fn open_kind(v: &Val) -> Option<OpenKind> {
    match v {
        Val::Open(k) => Some(*k),
        Val::Const(Const::Bool(_)) => Some(OpenKind::Bool),
        Val::Const(Const::Int(_)) | Val::Dim(_) => Some(OpenKind::Int),
        Val::Const(Const::Float(_)) => Some(OpenKind::Float),
        _ => None,
    }
}

fn join_open(f: ScalarFn, a: OpenKind, b: OpenKind) -> OpenKind {
    match f.class() {
        FnClass::Compare | FnClass::Predicate => OpenKind::Bool,
        _ if f == ScalarFn::Div || a == OpenKind::Float || b == OpenKind::Float => OpenKind::Float,
        _ => OpenKind::Int,
    }
}

/// The quotient towards minus infinity; `None` where it has more than 128 bits.
fn floor_div(x: i128, y: i128) -> Option<i128> {
    let q = x.checked_div(y)?;
    Some(if x % y != 0 && (x < 0) != (y < 0) { q - 1 } else { q })
}

/// `x // y` and `x % y` of floats as Python has them: the remainder is exact and has the sign of
/// the divisor, and the quotient goes with it.
fn python_divmod(x: f64, y: f64) -> (f64, f64) {
    let mut rest = x % y;
    let mut quotient = (x - rest) / y;
    if rest != 0.0 {
        if (y < 0.0) != (rest < 0.0) {
            rest += y;
            quotient -= 1.0;
        }
    } else {
        rest = 0.0f64.copysign(y);
    }
    let whole = if quotient != 0.0 {
        let floor = quotient.floor();
        if quotient - floor > 0.5 { floor + 1.0 } else { floor }
    } else {
        0.0f64.copysign(x / y)
    };
    (whole, rest)
}
