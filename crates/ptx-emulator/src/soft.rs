//! Floating-point arithmetic in every rounding mode, by exact integers.
//!
//! A finite number is `± m · 2^e`. Sums keep at least 100 bits and a sticky bit for what was lost
//! below them, so the one rounding at the end is correct.

use tessera_numerics::FloatFormat;
use tessera_ptx::inst::Round;

/// To nearest even, towards zero, down, up.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    Nearest,
    Zero,
    Down,
    Up,
}

impl Mode {
    /// The mode of a floating-point instruction; to nearest by default.
    pub fn of(round: Option<Round>) -> Mode {
        match round {
            None | Some(Round::Rn | Round::Rni | Round::Rna) => Mode::Nearest,
            Some(Round::Rz | Round::Rzi) => Mode::Zero,
            Some(Round::Rm | Round::Rmi) => Mode::Down,
            Some(Round::Rp | Round::Rpi) => Mode::Up,
        }
    }
}

#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Num {
    Nan,
    Inf {
        neg: bool,
    },
    /// Zero where `m` is zero. `more`: the magnitude is a little greater (sticky bit).
    Finite {
        neg: bool,
        m: u128,
        e: i32,
        more: bool,
    },
}

fn finite(neg: bool, m: u128, e: i32) -> Num {
    Num::Finite { neg, m, e, more: false }
}

pub fn take_apart(fmt: FloatFormat, bits: u64) -> Num {
    let neg = bits >> fmt.sign_shift() & 1 != 0;
    let fraction = bits & ((1 << fmt.man_bits) - 1);
    let exponent = bits >> fmt.man_bits & ((1 << fmt.exp_bits) - 1);
    let low = fmt.min_exp() - fmt.man_bits as i32;
    if exponent == (1 << fmt.exp_bits) - 1 {
        return if fraction != 0 { Num::Nan } else { Num::Inf { neg } };
    }
    match exponent {
        0 => finite(neg, fraction as u128, low),
        e => finite(neg, (fraction | 1 << fmt.man_bits) as u128, low + e as i32 - 1),
    }
}

/// The canonical NaN of PTX: all bits but the sign. For f64 it is the hardware's.
pub(super) fn nan(fmt: FloatFormat) -> u64 {
    if fmt == FloatFormat::F64 { 0xFFF8_0000_0000_0000 } else { (1 << fmt.sign_shift()) - 1 }
}

pub fn round(fmt: FloatFormat, mode: Mode, x: Num) -> u64 {
    let signed = |neg: bool, code: u64| code | (neg as u64) << fmt.sign_shift();
    let (neg, m, e, more) = match x {
        Num::Nan => return nan(fmt),
        Num::Inf { neg } => return signed(neg, fmt.inf_code()),
        Num::Finite { neg, m: 0, .. } => return signed(neg, 0),
        Num::Finite { neg, m, e, more } => (neg, m, e, more),
    };
    let top = 127 - m.leading_zeros() as i32 + e;
    let unit = top.max(fmt.min_exp()) - fmt.man_bits as i32;
    let base = if top < fmt.min_exp() { 0 } else { ((top - fmt.min_exp()) as u64) << fmt.man_bits };
    let significand = if e >= unit {
        (m << (e - unit)) as u64
    } else {
        let s = (unit - e) as u32;
        // From a shift of 128 on all of it is below half a unit: no significand here has 128 bits.
        let (kept, dropped, half) = if s < 128 {
            (m >> s, m & ((1 << s) - 1), 1u128 << (s - 1))
        } else {
            (0, 1, u128::MAX)
        };
        let inexact = dropped != 0 || more;
        let up = match mode {
            Mode::Nearest => dropped > half || (dropped == half && (more || kept & 1 == 1)),
            Mode::Zero => false,
            Mode::Down => inexact && neg,
            Mode::Up => inexact && !neg,
        };
        kept as u64 + up as u64
    };
    let code = base + significand;
    if code < fmt.inf_code() {
        return signed(neg, code);
    }
    let inward = match mode {
        Mode::Nearest => false,
        Mode::Zero => true,
        Mode::Down => !neg,
        Mode::Up => neg,
    };
    signed(neg, if inward { fmt.max_code() } else { fmt.inf_code() })
}

pub(super) fn negate(x: Num) -> Num {
    match x {
        Num::Nan => Num::Nan,
        Num::Inf { neg } => Num::Inf { neg: !neg },
        Num::Finite { neg, m, e, more } => Num::Finite { neg: !neg, m, e, more },
    }
}

/// Exact for numbers with up to 64 bits.
pub fn mul(x: Num, y: Num) -> Num {
    match (x, y) {
        (Num::Nan, _) | (_, Num::Nan) => Num::Nan,
        (Num::Inf { .. }, Num::Finite { m: 0, .. })
        | (Num::Finite { m: 0, .. }, Num::Inf { .. }) => Num::Nan,
        (Num::Inf { neg: p }, Num::Inf { neg: q } | Num::Finite { neg: q, .. })
        | (Num::Finite { neg: p, .. }, Num::Inf { neg: q }) => Num::Inf { neg: p != q },
        (Num::Finite { neg: p, m, e, .. }, Num::Finite { neg: q, m: n, e: f, .. }) => {
            finite(p != q, m * n, e + f)
        }
    }
}

/// The sum; `mode` decides the sign of an exact zero.
pub fn add(x: Num, y: Num, mode: Mode) -> Num {
    match (x, y) {
        (Num::Nan, _) | (_, Num::Nan) => Num::Nan,
        (Num::Inf { neg: p }, Num::Inf { neg: q }) => {
            if p == q {
                x
            } else {
                Num::Nan
            }
        }
        (Num::Inf { .. }, _) => x,
        (_, Num::Inf { .. }) => y,
        (Num::Finite { neg: p, m: 0, .. }, Num::Finite { neg: q, m: 0, .. }) => {
            let neg = if p == q { p } else { mode == Mode::Down };
            finite(neg, 0, 0)
        }
        (Num::Finite { m: 0, .. }, _) => y,
        (_, Num::Finite { m: 0, .. }) => x,
        (Num::Finite { neg: p, m, e, .. }, Num::Finite { neg: q, m: n, e: f, .. }) => {
            add_finite((p, m, e), (q, n, f), mode)
        }
    }
}

fn add_finite(x: (bool, u128, i32), y: (bool, u128, i32), mode: Mode) -> Num {
    // Leading bits at position 126, the greater first.
    let raise = |(neg, m, e): (bool, u128, i32)| {
        let s = m.leading_zeros() - 1;
        (neg, m << s, e - s as i32)
    };
    let (x, y) = (raise(x), raise(y));
    let (big, small) = if (x.2, x.1) >= (y.2, y.1) { (x, y) } else { (y, x) };
    let gap = (big.2 - small.2) as u32;
    let (low, lost) = if gap == 0 {
        (small.1, false)
    } else if gap < 128 {
        (small.1 >> gap, small.1 & ((1 << gap) - 1) != 0)
    } else {
        (0, true)
    };
    if big.0 == small.0 {
        return Num::Finite { neg: big.0, m: big.1 + low, e: big.2, more: lost };
    }
    // Lost bits are subtracted from the last place, and the sticky bit makes up the difference.
    let m = big.1 - low - lost as u128;
    if m == 0 {
        return finite(mode == Mode::Down, 0, 0);
    }
    Num::Finite { neg: big.0, m, e: big.2, more: lost }
}

/// For numbers with up to 64 bits.
pub fn div(x: Num, y: Num) -> Num {
    match (x, y) {
        (Num::Nan, _) | (_, Num::Nan) => Num::Nan,
        (Num::Inf { .. }, Num::Inf { .. }) => Num::Nan,
        (Num::Inf { neg: p }, Num::Finite { neg: q, .. }) => Num::Inf { neg: p != q },
        (Num::Finite { neg: p, .. }, Num::Inf { neg: q }) => finite(p != q, 0, 0),
        (Num::Finite { m: 0, .. }, Num::Finite { m: 0, .. }) => Num::Nan,
        (Num::Finite { neg: p, .. }, Num::Finite { neg: q, m: 0, .. }) => Num::Inf { neg: p != q },
        (Num::Finite { neg: p, m: 0, .. }, Num::Finite { neg: q, .. }) => finite(p != q, 0, 0),
        (Num::Finite { neg: p, m, e, .. }, Num::Finite { neg: q, m: n, e: f, .. }) => {
            let s = m.leading_zeros() - 1;
            let (quotient, rest) = ((m << s) / n, (m << s) % n);
            Num::Finite { neg: p != q, m: quotient, e: e - s as i32 - f, more: rest != 0 }
        }
    }
}

pub fn sqrt(x: Num) -> Num {
    match x {
        Num::Nan | Num::Inf { neg: true } => Num::Nan,
        Num::Inf { neg: false } | Num::Finite { m: 0, .. } => x,
        Num::Finite { neg: true, .. } => Num::Nan,
        Num::Finite { m, e, .. } => {
            let mut s = m.leading_zeros() - 1;
            if (e - s as i32) & 1 != 0 {
                s -= 1;
            }
            let wide = m << s;
            let root = wide.isqrt();
            Num::Finite { neg: false, m: root, e: (e - s as i32) / 2, more: root * root != wide }
        }
    }
}

pub(super) fn one() -> Num {
    finite(false, 1, 0)
}
