//! Simplifies expansions without changing a bit of their results.
//!
//! An expansion is written for any machine and for proofs that are easy to follow. Here some of its
//! steps become shorter ones that give the same bits, for every argument that reaches them:
//!
//! * The error of a sum takes six operations when nothing is known of the summands and three when
//!   one is known to be zero or not the lesser in magnitude. Both are the error exactly.
//! * `y + (0 - x)` is `y - x` but for the sign of a zero, which no function here lets through.
//! * A number times 2^n in two steps, the first exact, is one instruction of AVX-512.
//! * Where such a product is the result, but for arguments whose result is zero, the instruction leaves
//!   those out by itself, and what else was put in their place does not matter.
//!
//! That results stay the same was tried on every f32, and on 2^32 pairs for two operands;
//! a test repeats it on a grid.

use tessera_numerics::{DType, ExpOp, Expansion, Scalar, ScalarFn, Slot};

/// What is known of the summands of a sum whose error is taken.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) enum Summands {
    Unknown,
    /// The first is zero or the greater, or close enough to it that nothing is lost.
    FirstGreater,
    SecondGreater,
}

/// `y · 2^n`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Scale {
    pub y: Slot,
    /// The exponent, an i32 or a whole f32.
    pub n: Slot,
}

/// An expansion of which not all operations are needed any more.
pub(super) struct Shortened {
    pub e: Expansion,
    /// Whether the result depends on an operation.
    pub live: Vec<bool>,
    /// For an operation that is a scaling, its operands.
    pub scales: Vec<Option<Scale>>,
    /// Where the last operation, a scaling, gives zero.
    pub none: Option<Slot>,
    /// Operations that are nothing but an earlier one.
    pub same: Vec<Option<Slot>>,
    /// Whether an inverse may be the processor's estimate, corrected once.
    pub inverses: bool,
}

/// What is known of the sums of a function, in the order in which they stand; of others nothing.
const KNOWN_SUMS: &[(ScalarFn, &[Summands])] = {
    use Summands::{FirstGreater as First, SecondGreater as Second, Unknown};
    &[
        (ScalarFn::Exp, &[First]),
        (ScalarFn::Exp2, &[First]),
        (ScalarFn::Sigmoid, &[First]),
        (ScalarFn::Log, &[First]),
        (ScalarFn::Log2, &[First]),
        (ScalarFn::Log10, &[First]),
        (ScalarFn::Log1p, &[Unknown, First, First]),
        (ScalarFn::Expm1, &[First, Unknown, First]),
        (ScalarFn::Atan, &[Second, Second, First]),
        (ScalarFn::Atan2, &[Second, Second, First]),
        (ScalarFn::Tanh, &[First, First]),
        (ScalarFn::Erf, &[First, First, First]),
        (ScalarFn::Pow, &[Second, First, Unknown]),
    ]
};

impl Shortened {
    /// The expansion as it was.
    #[cfg(test)]
    pub(super) fn not(e: &Expansion) -> Self {
        let n = e.ops.len();
        let (scales, same) = (vec![None; n], vec![None; n]);
        Shortened { e: e.clone(), live: vec![true; n], scales, none: None, same, inverses: false }
    }
}

/// The expansion of `f` made shorter, with scalings where the machine has them.
pub(super) fn shorten(f: ScalarFn, e: &Expansion, scales: bool) -> Shortened {
    let mut e = e.clone();
    let known = KNOWN_SUMS.iter().find(|row| row.0 == f).map_or(&[][..], |row| row.1);
    let mut sums = known.iter().copied();
    let slots = (0..e.ops.len() as u32).map(Slot);
    for slot in slots.clone() {
        if let Some(sum) = two_sum(&e, slot) {
            shorten_sum(&mut e, slot, sum, sums.next().unwrap_or(Summands::Unknown));
        }
        if let Some((y, x)) = plus_zero_minus(&e, slot) {
            e.ops[slot.0 as usize] = apply(ScalarFn::Sub, [y, x]);
        }
    }
    let scale_at = |slot| scale(&e, slot).filter(|_| scales);
    let mut scales: Vec<_> = slots.clone().map(scale_at).collect();
    let none = zero_or_scaled(&e, &mut scales);
    let same: Vec<_> = slots.map(|slot| none.and_then(|none| unless(&e, slot, none))).collect();
    let mut live = vec![false; e.ops.len()];
    if let Some(last) = live.last_mut() {
        *last = true;
    }
    none.iter().for_each(|s| live[s.0 as usize] = true);
    for i in (0..live.len()).rev() {
        if live[i] {
            let operands = match (scales[i], same[i]) {
                (Some(s), _) => vec![s.y, s.n],
                (None, Some(s)) => vec![s],
                (None, None) => e.ops[i].operands(),
            };
            operands.iter().for_each(|s| live[s.0 as usize] = true);
        }
    }
    Shortened { e, live, scales, none, same, inverses: false }
}

/// Makes a last operation that picks zero or a scaling that scaling, and gives where it is zero.
fn zero_or_scaled(e: &Expansion, scales: &mut [Option<Scale>]) -> Option<Slot> {
    let Some(ExpOp::Select { cond, then, other }) = e.ops.last() else { return None };
    let scale = scales[other.0 as usize].filter(|_| is_const(e, *then, 0.0f32))?;
    *scales.last_mut()? = Some(scale);
    Some(*cond)
}

/// What an operation is, if not one of two by this condition.
fn unless(e: &Expansion, slot: Slot, none: Slot) -> Option<Slot> {
    match op(e, slot) {
        ExpOp::Select { cond, other, .. } if *cond == none => Some(*other),
        _ => None,
    }
}

fn apply(f: ScalarFn, args: [Slot; 2]) -> ExpOp {
    ExpOp::Apply { f, args: args.to_vec() }
}

fn op(e: &Expansion, slot: Slot) -> &ExpOp {
    &e.ops[slot.0 as usize]
}

/// The operands, if `slot` is `f` of two.
fn args(e: &Expansion, slot: Slot, f: ScalarFn) -> Option<[Slot; 2]> {
    match op(e, slot) {
        ExpOp::Apply { f: g, args } if *g == f => args[..].try_into().ok(),
        _ => None,
    }
}

fn is_const(e: &Expansion, slot: Slot, value: impl Into<Scalar>) -> bool {
    *op(e, slot) == ExpOp::Const(value.into())
}

/// The parts of `lo = (a - (hi - part)) + (b - part)`, where `hi = a + b` and `part = hi - a`.
struct TwoSum {
    a: Slot,
    b: Slot,
    hi: Slot,
    part: Slot,
    /// The slot of `hi - part`, which nothing else needs.
    inner: Slot,
}

fn two_sum(e: &Expansion, lo: Slot) -> Option<TwoSum> {
    let sub = |s| args(e, s, ScalarFn::Sub);
    let [left, right] = args(e, lo, ScalarFn::Add)?;
    let ([a, inner], [b, part]) = (sub(left)?, sub(right)?);
    let [hi, part_again] = sub(inner)?;
    let same = part == part_again && sub(part)? == [hi, a] && args(e, hi, ScalarFn::Add)? == [a, b];
    same.then_some(TwoSum { a, b, hi, part, inner })
}

fn shorten_sum(e: &mut Expansion, lo: Slot, sum: TwoSum, known: Summands) {
    let TwoSum { a, b, hi, part, inner } = sum;
    let negated = match op(e, b) {
        ExpOp::Apply { f: ScalarFn::Neg, args } => Some(args[0]),
        _ => None,
    };
    let (first, second) = match (known, negated) {
        (Summands::Unknown, _) => return,
        // Less a number, where b is its negative.
        (Summands::FirstGreater, Some(c)) => ([a, hi], [inner, c]),
        (Summands::FirstGreater, None) => ([hi, a], [b, part]),
        (Summands::SecondGreater, _) => ([hi, b], [a, inner]),
    };
    e.ops[inner.0 as usize] = apply(ScalarFn::Sub, first);
    e.ops[lo.0 as usize] = apply(ScalarFn::Sub, second);
}

/// `y` and `x` of `y + (0 - x)`.
fn plus_zero_minus(e: &Expansion, slot: Slot) -> Option<(Slot, Slot)> {
    let [y, difference] = args(e, slot, ScalarFn::Add)?;
    let [zero, x] = args(e, difference, ScalarFn::Sub)?;
    is_const(e, zero, 0.0f32).then_some((y, x))
}

/// The operands of `y · 2^(n >> 1) · 2^(n - (n >> 1))`.
fn scale(e: &Expansion, slot: Slot) -> Option<Scale> {
    let [once, second] = args(e, slot, ScalarFn::Mul)?;
    let [y, first] = args(e, once, ScalarFn::Mul)?;
    let (half, rest) = (exponent(e, first)?, exponent(e, second)?);
    let [n, half_again] = args(e, rest, ScalarFn::Sub)?;
    let [whole, one] = args(e, half, ScalarFn::Shr)?;
    let same = half == half_again && n == whole && is_const(e, one, 1i32);
    same.then(|| Scale { y, n: as_float(e, n).unwrap_or(n) })
}

/// `n` of 2^n made from its bits.
fn exponent(e: &Expansion, slot: Slot) -> Option<Slot> {
    let ExpOp::Bitcast { to: DType::F32, value } = op(e, slot) else { return None };
    let [field, place] = args(e, *value, ScalarFn::Shl)?;
    let [n, bias] = args(e, field, ScalarFn::Add)?;
    (is_const(e, place, 23i32) && is_const(e, bias, 127i32)).then_some(n)
}

/// Where the integer `n` was read off the bits of a sum with 3 · 2^22, the float that is the sum
/// less that number.
fn as_float(e: &Expansion, n: Slot) -> Option<Slot> {
    const WHOLE: f32 = 12_582_912.0;
    let [bits, base] = args(e, n, ScalarFn::Sub)?;
    let ExpOp::Bitcast { value: sum, .. } = *op(e, bits) else { return None };
    let found = (0..e.ops.len() as u32).map(Slot).find(|&slot| {
        args(e, slot, ScalarFn::Sub).is_some_and(|[s, w]| s == sum && is_const(e, w, WHOLE))
    });
    found.filter(|_| is_const(e, base, WHOLE.to_bits() as i32))
}
