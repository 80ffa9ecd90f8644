//! Floating-point arithmetic of one thread: NaN, subnormal numbers, rounding and saturation, as PTX
//! defines them.
//!
//! What the ISA leaves open follows an H200: every operation and conversion was compared with one,
//! bit by bit.
//!
//! The bits of hardware approximations (`.approx`) are not published. Here they are computed in f64
//! and rounded once, which is within every bound that NVIDIA states. The hardware's own are off by
//! one or two ulp (`tanh` and `lg2` near 1 by hundreds), and its `sin` and `cos` are meaningless
//! for large arguments, where these are still accurate.

use super::soft::{self, Mode};
use tessera_numerics::{DType, FloatFormat, Rounding, decode, encode};
use tessera_ptx::inst::{Alu, Round, Ty};

/// The modifiers of a floating-point instruction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Mods {
    pub round: Option<Round>,
    pub ftz: bool,
    pub sat: bool,
}

pub const NAN_F32: u32 = 0x7FFF_FFFF;
/// The NaN of the hardware where no operand is a NaN; a NaN operand is propagated, quieted.
pub const NAN_F64: u64 = 0xFFF8_0000_0000_0000;

/// Flushes subnormal numbers to zeros of their sign.
#[inline(always)]
pub(super) fn flush(x: u32) -> u32 {
    if x & 0x7F80_0000 == 0 { x & 0x8000_0000 } else { x }
}

pub(super) fn format(ty: Ty) -> Option<(FloatFormat, DType)> {
    Some(match ty {
        Ty::F16 | Ty::F16x2 => (FloatFormat::F16, DType::F16),
        Ty::BF16 | Ty::BF16x2 => (FloatFormat::BF16, DType::BF16),
        Ty::F32 => (FloatFormat::F32, DType::F32),
        Ty::F64 => (FloatFormat::F64, DType::F64),
        _ => return None,
    })
}

/// The value of a float of at most 64 bits.
pub fn value(ty: Ty, bits: u64) -> f64 {
    match ty {
        Ty::F64 => f64::from_bits(bits),
        Ty::F32 | Ty::Tf32 => f32::from_bits(bits as u32) as f64,
        Ty::F16 | Ty::F16x2 => decode(DType::F16, bits & 0xFFFF).as_f64(),
        Ty::BF16 | Ty::BF16x2 => decode(DType::BF16, bits & 0xFFFF).as_f64(),
        _ => f64::NAN,
    }
}

/// The code of a number in a format, NaN as PTX writes it.
pub fn code(ty: Ty, x: f64, mode: Mode) -> u64 {
    let Some((fmt, dt)) = format(ty) else { return 0 };
    if x.is_nan() {
        return soft::nan(fmt);
    }
    let r = match mode {
        Mode::Nearest => Rounding::Rne,
        Mode::Zero => Rounding::Rtz,
        Mode::Down => Rounding::Down,
        Mode::Up => Rounding::Up,
    };
    encode(dt, x.into(), r, false)
}

/// One floating-point operation; packed types by halves.
pub fn eval(op: Alu, ty: Ty, mods: Mods, a: [u64; 3]) -> u64 {
    match ty {
        Ty::F32 => eval_f32(op, mods, a.map(|x| x as u32)) as u64,
        Ty::F16x2 | Ty::BF16x2 => {
            let half = if ty == Ty::F16x2 { Ty::F16 } else { Ty::BF16 };
            let low = eval_soft(op, half, mods, a.map(|x| x & 0xFFFF));
            let high = eval_soft(op, half, mods, a.map(|x| x >> 16 & 0xFFFF));
            low | high << 16
        }
        Ty::F64 => eval_f64(op, mods, a),
        _ => eval_soft(op, ty, mods, a),
    }
}

fn eval_f32(op: Alu, mods: Mods, bits: [u32; 3]) -> u32 {
    let bits = if mods.ftz { bits.map(flush) } else { bits };
    let nearest = Mode::of(mods.round) == Mode::Nearest;
    let [a, b, c] = bits.map(f32::from_bits);
    let plain = match op {
        Alu::Add if nearest => a + b,
        Alu::Sub if nearest => a - b,
        Alu::Mul if nearest => a * b,
        Alu::Fma if nearest => a.mul_add(b, c),
        Alu::Div if nearest => a / b,
        Alu::Sqrt if nearest => f32::from_bits(sqrt_f32(bits[0])),
        Alu::Rcp if nearest => 1.0 / a,
        _ => return eval_soft(op, Ty::F32, mods, bits.map(u64::from)) as u32,
    };
    finish_f32(plain, mods)
}

/// The square root, with the NaN of PTX. The domain test uses bits: LLVM folds
/// `if x < 0 { NAN } else { sqrt(x) }` on floats into `sqrt(x)`, and so loses which NaN it is.
#[inline(always)]
pub(super) fn sqrt_f32(x: u32) -> u32 {
    let none = x > 0x8000_0000 || x > 0x7F80_0000 && x < 0x8000_0000;
    if none { NAN_F32 } else { f32::from_bits(x).sqrt().to_bits() }
}

#[inline(always)]
fn finish_f32(x: f32, mods: Mods) -> u32 {
    let bits = if x.is_nan() { NAN_F32 } else { x.to_bits() };
    let bits = if mods.ftz { flush(bits) } else { bits };
    if mods.sat { saturate(f32::from_bits(bits)) } else { bits }
}

/// Clamps to 0..1; NaN becomes 0.
fn saturate(x: f32) -> u32 {
    if x > 1.0 {
        1f32.to_bits()
    } else if x > 0.0 {
        x.to_bits()
    } else {
        0
    }
}

fn eval_f64(op: Alu, mods: Mods, bits: [u64; 3]) -> u64 {
    let nearest = Mode::of(mods.round) == Mode::Nearest;
    let [a, b, c] = bits.map(f64::from_bits);
    let plain = match op {
        Alu::Add if nearest => a + b,
        Alu::Sub if nearest => a - b,
        Alu::Mul if nearest => a * b,
        Alu::Fma if nearest => a.mul_add(b, c),
        Alu::Div if nearest => a / b,
        Alu::Rcp if nearest => 1.0 / a,
        _ => return eval_soft(op, Ty::F64, mods, bits),
    };
    if plain.is_nan() { nan_f64(op, bits) } else { plain.to_bits() }
}

/// The last NaN operand (the first of a division), quieted, else the NaN of the hardware. Observed
/// on an H200; the ISA leaves it open.
fn nan_f64(op: Alu, bits: [u64; 3]) -> u64 {
    let n = match op {
        Alu::Fma => 3,
        Alu::Add | Alu::Sub | Alu::Mul | Alu::Div | Alu::Min | Alu::Max => 2,
        _ => 1,
    };
    let mut nans = bits[..n].iter().filter(|b| f64::from_bits(**b).is_nan());
    let pick = if op == Alu::Div { nans.next() } else { nans.next_back() };
    pick.map_or(NAN_F64, |b| b | 1 << 51)
}

/// Every operation in every rounding mode, slowly.
fn eval_soft(op: Alu, ty: Ty, mods: Mods, bits: [u64; 3]) -> u64 {
    let Some((fmt, _)) = format(ty) else { return 0 };
    let mode = Mode::of(mods.round);
    let sign = 1u64 << fmt.sign_shift();
    let flushed = |x: u64| if x & fmt.inf_code() == 0 { x & sign } else { x };
    let bits = if mods.ftz { bits.map(flushed) } else { bits };
    let [a, b, c] = bits.map(|x| soft::take_apart(fmt, x));
    let is_nan = |x: u64| soft::take_apart(fmt, x) == soft::Num::Nan;
    let result = match op {
        Alu::Add => soft::round(fmt, mode, soft::add(a, b, mode)),
        Alu::Sub => soft::round(fmt, mode, soft::add(a, soft::negate(b), mode)),
        Alu::Mul => soft::round(fmt, mode, soft::mul(a, b)),
        Alu::Fma => soft::round(fmt, mode, soft::add(soft::mul(a, b), c, mode)),
        Alu::Div => soft::round(fmt, mode, soft::div(a, b)),
        Alu::Sqrt => soft::round(fmt, mode, soft::sqrt(a)),
        Alu::Rcp => soft::round(fmt, mode, soft::div(soft::one(), a)),
        // The ISA leaves open which NaN these two give; f64 is propagated unchanged.
        Alu::Neg | Alu::Abs if is_nan(bits[0]) && ty == Ty::F64 => bits[0],
        Alu::Neg | Alu::Abs if is_nan(bits[0]) => soft::nan(fmt),
        Alu::Neg => bits[0] ^ sign,
        Alu::Abs => bits[0] & !sign,
        // The sign of the first on the second, for any operands.
        Alu::CopySign => return bits[0] & sign | bits[1] & (sign - 1),
        Alu::Min | Alu::Max | Alu::MinNan | Alu::MaxNan => {
            let min = matches!(op, Alu::Min | Alu::MinNan);
            let strict = matches!(op, Alu::MinNan | Alu::MaxNan);
            extreme(bits[0], bits[1], min, strict, soft::nan(fmt), &is_nan, sign)
        }
        _ => approx(op, ty, bits),
    };
    let result = if mods.ftz { flushed(result) } else { result };
    match (mods.sat, is_nan(result)) {
        (true, true) => 0,
        (true, false) => code(ty, value(ty, result).clamp(0.0, 1.0) + 0.0, Mode::Nearest),
        (false, true) if ty == Ty::F64 && !matches!(op, Alu::Neg | Alu::Abs) => nan_f64(op, bits),
        (false, _) => result,
    }
}

/// Minimum or maximum: a NaN loses, or wins where `strict`; -0 is below +0.
fn extreme(
    a: u64,
    b: u64,
    min: bool,
    strict: bool,
    nan: u64,
    is_nan: &dyn Fn(u64) -> bool,
    sign: u64,
) -> u64 {
    match (is_nan(a), is_nan(b)) {
        (true, true) => return nan,
        (true, false) => return if strict { nan } else { b },
        (false, true) => return if strict { nan } else { a },
        (false, false) => {}
    }
    // Codes as integers in the order of their values.
    let key = |x: u64| if x & sign != 0 { -((x & (sign - 1)) as i64) - 1 } else { x as i64 };
    if (key(a) < key(b)) == min { a } else { b }
}

/// Stand-ins for hardware approximations.
fn approx(op: Alu, ty: Ty, bits: [u64; 3]) -> u64 {
    let x = value(ty, bits[0]);
    let out = match op {
        Alu::SqrtApprox => x.sqrt(),
        Alu::RcpApprox => 1.0 / x,
        Alu::RsqrtApprox => 1.0 / x.sqrt(),
        Alu::Ex2Approx => x.exp2(),
        Alu::Lg2Approx => x.log2(),
        Alu::SinApprox => x.sin(),
        Alu::CosApprox => x.cos(),
        Alu::TanhApprox => x.tanh(),
        Alu::DivApprox => {
            let y = value(ty, bits[1]);
            // The hardware's reciprocal cannot represent 1 / y for y beyond 2^126.
            if ty == Ty::F32 && y.is_finite() && y.abs() > 2f64.powi(126) {
                if x.is_infinite() { f64::NAN } else { 0f64.copysign(x) * y.signum() }
            } else {
                x / y
            }
        }
        _ => return 0,
    };
    code(ty, out, Mode::Nearest)
}
