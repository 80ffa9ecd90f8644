//! Integer overflow in index computations, and division by zero.

use super::origins::PADDING;
use crate::program::Action;
use crate::value::{Data, Tile};
use tessera_numerics::{Basic, DType, Scalar, ScalarFn};

/// The first element an op goes wrong in, and how many there are.
pub(crate) struct Wrong {
    pub i: usize,
    pub what: String,
    pub count: u64,
}

impl Wrong {
    fn first(found: impl Iterator<Item = usize>, what: impl Fn(usize) -> String) -> Option<Wrong> {
        let mut found = found.peekable();
        let i = *found.peek()?;
        Some(Wrong { i, what: what(i), count: found.count() as u64 })
    }
}

/// Signed arithmetic that wraps, and conversions that lose the value. Unsigned integers wrap by
/// intent, in hashes for one.
pub(crate) fn overflow(
    action: &Action,
    operands: &[Tile],
    result: &Data,
    active: impl Fn(usize) -> bool,
) -> Option<Wrong> {
    let wide = |o: usize, i: usize| operands.get(o).and_then(|x| signed(x, i)).unwrap_or(0);
    let number = |i: usize| signed(result, i).unwrap_or(0);
    let all = || (0..result.len()).filter(|&i| active(i));
    match action {
        Action::Cast { from, to, .. } if from.is_int() && to.is_int() => {
            // Whatever the dtypes, the value is the same or it is not.
            let value = |x: &Data, i: usize| x.at(i).map(integer);
            let lost = |&i: &usize| value(&operands[0], i) != value(result, i);
            let what = |i| {
                let x = value(&operands[0], i).unwrap_or(0);
                format!("{x} does not fit {to}")
            };
            Wrong::first(all().filter(lost), what)
        }
        Action::Ew { f, .. } => {
            let dtype = match result {
                Data::I32(_) => DType::I32,
                Data::I64(_) => DType::I64,
                _ => return None,
            };
            let exact = |i: usize| exact(*f, wide(0, i), wide(1, i), wide(2, i));
            let what = |i| format!("{} does not fit {dtype}", formula(*f, operands, i));
            Wrong::first(all().filter(|&i| exact(i).is_some_and(|e| e != number(i))), what)
        }
        _ => None,
    }
}

/// The result in unbounded integers; `None` for functions that stay in range.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn exact(f: ScalarFn, a: i128, b: i128, c: i128) -> Option<i128> {
    use Basic::*;
    Some(match f.basic()? {
        Add => a + b,
        Sub => a - b,
        Mul => a * b,
        Fma => a * b + c,
        Neg => -a,
        Abs => a.abs(),
        Shl if (0..64).contains(&b) => a << b,
        // A shift beyond any width; only zero keeps its value.
        Shl if a != 0 => i128::MAX,
        // The one quotient that does not fit is of the least number.
        FloorDiv if b == -1 => -a,
        Div | FloorDiv | Mod | Sqrt | Recip | Floor | Ceil | Round | Trunc | Sign | Maximum
        | Minimum | Clamp | And | Or | Xor | Not | Shl | Shr | Popcount | Clz | Ctz | Brev
        | MulHi | FunnelShift | Eq | Ne | Lt | Le | Gt | Ge | IsNan | IsInf | IsFinite => {
            return None;
        }
    })
}

/// `marks` are those of the divisor: padding was not written by the user.
pub(crate) fn division(
    action: &Action,
    operands: &[Tile],
    marks: Option<&[u64]>,
    active: impl Fn(usize) -> bool,
) -> Option<Wrong> {
    let Action::Ew { f: f @ (ScalarFn::FloorDiv | ScalarFn::Mod), .. } = action else {
        return None;
    };
    let divisor = operands.get(1)?;
    let zero = |i: usize| match &**divisor {
        Data::I32(xs) => xs[i] == 0,
        Data::I64(xs) => xs[i] == 0,
        Data::U32(xs) => xs[i] == 0,
        Data::U64(xs) => xs[i] == 0,
        Data::Bool(_) | Data::F32(_) | Data::F64(_) => false,
    };
    let padding = |i: usize| marks.is_some_and(|m| m[i] == PADDING);
    let found = (0..divisor.len()).filter(|&i| zero(i) && active(i) && !padding(i));
    Wrong::first(found, |i| formula(*f, operands, i))
}

/// The computation in numbers, as the user may have written it.
fn formula(f: ScalarFn, operands: &[Tile], i: usize) -> String {
    let numbers: Vec<String> =
        operands.iter().filter_map(|o| Some(integer(o.at(i)?).to_string())).collect();
    let sign = match f {
        ScalarFn::Add => "+",
        ScalarFn::Sub => "-",
        ScalarFn::Mul => "*",
        ScalarFn::Shl => "<<",
        ScalarFn::FloorDiv => "//",
        ScalarFn::Mod => "%",
        _ => return format!("{f}({})", numbers.join(", ")),
    };
    numbers.join(&format!(" {sign} "))
}

fn signed(data: &Data, i: usize) -> Option<i128> {
    match data {
        Data::I32(xs) => xs.get(i).map(|&x| x.into()),
        Data::I64(xs) => xs.get(i).map(|&x| x.into()),
        _ => None,
    }
}

pub(crate) fn integer(x: Scalar) -> i128 {
    match x {
        Scalar::Bool(x) => x.into(),
        Scalar::I32(x) => x.into(),
        Scalar::I64(x) => x.into(),
        Scalar::U32(x) => x.into(),
        Scalar::U64(x) => x.into(),
        Scalar::F32(_) | Scalar::F64(_) => 0,
    }
}
