//! Integer arithmetic of one thread, and the definition of every `Alu` operation.

use super::float::{self, Mods};
use tessera_ptx::inst::{Alu, Ty};

/// An operation with everything but its operands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AluSpec {
    pub op: Alu,
    pub ty: Ty,
    pub mods: Mods,
}

#[inline(always)]
pub fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

#[inline(always)]
pub(super) fn sign_extend(x: u64, bits: u32) -> i64 {
    ((x << (64 - bits)) as i64) >> (64 - bits)
}

/// The number of operands; `None` where the type does not have the operation.
pub fn arity(op: Alu, ty: Ty) -> Option<usize> {
    let float = float::format(ty).is_some();
    let int = !float && matches!(ty.bits(), 16 | 32 | 64);
    let n = match op {
        Alu::Add | Alu::Sub | Alu::Min | Alu::Max => 2,
        Alu::Mul | Alu::Div | Alu::MinNan | Alu::MaxNan | Alu::CopySign | Alu::DivApprox
            if float =>
        {
            2
        }
        Alu::Div | Alu::Rem | Alu::MulLo | Alu::MulHi | Alu::MulWide if int => 2,
        Alu::AddCc | Alu::Addc if int => 2,
        Alu::MadLo | Alu::MadWide if int => 3,
        Alu::Fma if float => 3,
        Alu::Neg | Alu::Abs => 1,
        Alu::And | Alu::Or | Alu::Xor if int || ty == Ty::Pred => 2,
        Alu::Not if int || ty == Ty::Pred => 1,
        Alu::Shl | Alu::Shr if int => 2,
        Alu::Sqrt | Alu::Rcp | Alu::SqrtApprox | Alu::RcpApprox | Alu::RsqrtApprox if float => 1,
        Alu::Ex2Approx | Alu::Lg2Approx | Alu::SinApprox | Alu::CosApprox | Alu::TanhApprox
            if float =>
        {
            1
        }
        Alu::Popc | Alu::Clz | Alu::Brev if int => 1,
        Alu::Bfe if int => 3,
        Alu::Bfi if int => 4,
        Alu::Prmt | Alu::ShfL | Alu::ShfR | Alu::Lop3(_) | Alu::Dp4a if int && ty.bits() == 32 => 3,
        _ => return None,
    };
    Some(n)
}

/// The result in its low bits; higher bits are undefined. Carries are handled elsewhere.
pub fn eval(spec: AluSpec, x: [u64; 4]) -> u64 {
    let AluSpec { op, ty, mods } = spec;
    if float::format(ty).is_some() {
        return float::eval(op, ty, mods, [x[0], x[1], x[2]]);
    }
    let w = ty.bits();
    let signed = ty.is_signed();
    let [a, b, c] = [x[0] & mask(w), x[1] & mask(w), x[2] & mask(w)];
    let wide = |v: u64| if signed { sign_extend(v, w) as i128 } else { v as i128 };
    let (sa, sb) = (wide(a), wide(b));
    match op {
        Alu::Add | Alu::Sub => {
            let sum = if op == Alu::Add { sa + sb } else { sa - sb };
            if mods.sat && signed { clamp(sum, w) } else { sum as u64 }
        }
        Alu::MulLo => a.wrapping_mul(b),
        Alu::MulHi => {
            // A product of two u64 does not fit into i128.
            if signed { ((sa * sb) >> w) as u64 } else { ((a as u128 * b as u128) >> w) as u64 }
        }
        Alu::MulWide => (sa.wrapping_mul(sb)) as u64,
        Alu::MadLo => a.wrapping_mul(b).wrapping_add(c),
        Alu::MadWide => (sa.wrapping_mul(sb) as u64).wrapping_add(x[2]),
        // The ISA leaves division by zero undefined; the hardware gives all ones.
        Alu::Div => {
            if b == 0 {
                u64::MAX
            } else {
                (sa / sb) as u64
            }
        }
        Alu::Rem => {
            if b == 0 {
                u64::MAX
            } else {
                (sa % sb) as u64
            }
        }
        Alu::Neg => a.wrapping_neg(),
        Alu::Abs => sign_extend(a, w).unsigned_abs(),
        Alu::Min => sa.min(sb) as u64,
        Alu::Max => sa.max(sb) as u64,
        Alu::And => a & b,
        Alu::Or => a | b,
        Alu::Xor => a ^ b,
        Alu::Not => !a,
        // Shift amounts are 32-bit words for every type; they are clamped to the width.
        Alu::Shl => {
            let n = x[1] as u32;
            if n >= w { 0 } else { a << n }
        }
        Alu::Shr => {
            let n = x[1] as u32;
            if signed {
                (sign_extend(a, w) >> n.min(63)) as u64
            } else if n >= w {
                0
            } else {
                a >> n
            }
        }
        Alu::Popc => a.count_ones() as u64,
        Alu::Clz => (a.leading_zeros() - (64 - w)) as u64,
        Alu::Brev => a.reverse_bits() >> (64 - w),
        Alu::Bfe => bfe(a, x[1] as u32, x[2] as u32, w, signed),
        Alu::Bfi => bfi(a, b, x[2] as u32, x[3] as u32, w),
        Alu::Prmt => prmt(a as u32, b as u32, c as u32) as u64,
        Alu::ShfL => {
            let n = c as u32 & 31;
            ((b << 32 | a) << n) >> 32
        }
        Alu::ShfR => {
            let n = c as u32 & 31;
            (b << 32 | a) >> n
        }
        Alu::Dp4a => dp4a(a, b, signed).wrapping_add(c),
        Alu::Lop3(table) => lop3(a as u32, b as u32, c as u32, table) as u64,
        Alu::AddCc
        | Alu::Addc
        | Alu::Mul
        | Alu::Fma
        | Alu::MinNan
        | Alu::MaxNan
        | Alu::Sqrt
        | Alu::Rcp
        | Alu::SqrtApprox
        | Alu::RcpApprox
        | Alu::DivApprox
        | Alu::RsqrtApprox
        | Alu::Ex2Approx
        | Alu::Lg2Approx
        | Alu::SinApprox
        | Alu::CosApprox
        | Alu::TanhApprox
        | Alu::CopySign => 0,
    }
}

fn clamp(x: i128, w: u32) -> u64 {
    x.clamp(-(1i128 << (w - 1)), (1i128 << (w - 1)) - 1) as u64
}

/// Positions and lengths up to 255. Beyond, the ISA says nothing: 32-bit operations read eight bits
/// of them, 64-bit operations all, as observed on hardware.
fn field(pos: u32, len: u32, w: u32) -> (u32, u32) {
    if w == 64 { (pos.min(255), len.min(255)) } else { (pos & 0xFF, len & 0xFF) }
}

fn bfe(a: u64, pos: u32, len: u32, w: u32, signed: bool) -> u64 {
    let (pos, len) = field(pos, len, w);
    let fill = if signed && len > 0 { a >> (pos + len - 1).min(w - 1) & 1 } else { 0 };
    let field = if pos >= w { 0 } else { a >> pos };
    // How many bits come from `a`; the others are copies of the sign.
    let real = len.min(w.saturating_sub(pos));
    let keep = if real == 0 { 0 } else { mask(real) };
    field & keep | if fill == 1 { !keep } else { 0 }
}

fn bfi(a: u64, b: u64, pos: u32, len: u32, w: u32) -> u64 {
    let (pos, len) = field(pos, len, w);
    if len == 0 || pos >= w {
        return b;
    }
    let field = mask(len.min(w - pos)) << pos;
    b & !field | (a << pos) & field
}

/// The dot product of four bytes.
fn dp4a(a: u64, b: u64, signed: bool) -> u64 {
    let byte = |x: u64, i: u32| {
        let x = (x >> (8 * i)) as u8;
        if signed { x as i8 as i64 } else { x as i64 }
    };
    (0..4).map(|i| byte(a, i) * byte(b, i)).sum::<i64>() as u64
}

pub(super) fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = (b as u64) << 32 | a as u64;
    (0..4).fold(0, |out, i| {
        let s = selector >> (4 * i);
        let byte = (bytes >> (8 * (s & 7))) as u8;
        let byte = if s & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 };
        out | (byte as u32) << (8 * i)
    })
}

#[inline(always)]
pub(super) fn lop3(a: u32, b: u32, c: u32, table: u8) -> u32 {
    let mut out = 0;
    for i in 0..8u32 {
        let pick = |x: u32, on: bool| if on { x } else { !x };
        let row = pick(a, i & 4 != 0) & pick(b, i & 2 != 0) & pick(c, i & 1 != 0);
        out |= row & (table as u32 >> i & 1).wrapping_neg();
    }
    out
}
