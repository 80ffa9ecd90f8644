//! The keys of `sort`: elements as unsigned integers of the same order, in which a NaN is above
//! every number.
//!
//! Zeros of both signs are equal, and a stable sort keeps the order in which they came. Alone of
//! all elements that compare as equal they differ in their bits (but for NaN, of which every one is
//! as good in `default`). So the keys of zeros are their places and signs: as many numbers between
//! the keys of negative and of positive numbers as there are places and signs. The keys of negative
//! numbers move down by that; the numbers below them would be those of negative NaN.

use super::Select;
use super::sort::Sort;
use crate::inst::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_layout::Layout;
use tessera_numerics::DType;

/// What differs between keys of one and of two words.
struct Width {
    bits: Ty,
    unsigned: Ty,
    signed: Ty,
    float: Ty,
    /// The number of the highest bit, and that bit.
    top: i64,
    low: i64,
    last: i64,
}

const ONE: Width = Width {
    bits: Ty::B32,
    unsigned: Ty::U32,
    signed: Ty::S32,
    float: Ty::F32,
    top: 31,
    low: 0x8000_0000,
    last: 0xffff_ffff,
};
const TWO: Width = Width {
    bits: Ty::B64,
    unsigned: Ty::U64,
    signed: Ty::S64,
    float: Ty::F64,
    top: 63,
    low: i64::MIN,
    last: -1,
};

impl Sort {
    /// A type of the keys.
    pub fn key_type(&self) -> Ty {
        self.width().unsigned
    }

    fn width(&self) -> Width {
        if self.dtype.bytes() > 4 { TWO } else { ONE }
    }

    /// How many of the highest bits of an [aligned key](Select::tied_keys) differ between elements.
    pub fn key_bits(&self) -> u32 {
        match self.held.float_format() {
            // Narrow floats are held as f32: a sign, its exponent, their fraction.
            Some(format) if self.held.bytes() < 4 => 9 + format.man_bits,
            _ => self.held.bits(),
        }
    }

    /// Half of the keys of zeros: the places of the axis, padding included.
    pub fn positions(&self) -> i64 {
        1 << self.network.len()
    }

    /// The key of a positive zero at place 0.
    fn first_zero(&self) -> i64 {
        self.width().low.wrapping_sub(2 * self.positions())
    }
}

impl Select<'_> {
    /// The keys of elements that are sorted without places; padding comes last.
    pub fn sort_keys(&mut self, s: &Sort, from: &Arc<Layout>, xs: &[Reg]) -> Vec<Reg> {
        let mut out = Vec::new();
        let mut threads = BTreeMap::new();
        for (reg, &x) in xs.iter().enumerate() {
            let key = match s.dtype.is_float() {
                true => self.key_in_place(s, from, reg, x, &mut threads),
                false => self.int_key(s, x),
            };
            let key = self.reversed(s, key);
            let held = self.held(from, s.axis, reg);
            out.push(self.or_last(s.key_type(), held, key));
        }
        out
    }

    /// The keys of elements that are followed by their places: zeros of both signs have one key. The
    /// bits of keys of narrow integers are the highest of the word where they are `aligned`.
    pub fn tied_keys(
        &mut self,
        s: &Sort,
        from: &Arc<Layout>,
        xs: &[Reg],
        aligned: bool,
    ) -> Vec<Reg> {
        let w = s.width();
        let mut out = Vec::new();
        for (reg, &x) in xs.iter().enumerate() {
            let key = match s.dtype.is_float() {
                true => {
                    // -0.0 + 0.0 is 0.0, and nothing else changes.
                    let zero = if w.bits == Ty::B64 { Opnd::F64(0) } else { Opnd::F32(0) };
                    let x = self.asm.float(Alu::Add, w.float, &[x.into(), zero]);
                    self.float_key(s, x, 0).0
                }
                false => self.int_key(s, x),
            };
            let mut key = self.reversed(s, key);
            let unused = 32u32.saturating_sub(s.held.bits());
            if aligned && !s.dtype.is_float() && unused > 0 {
                let up = Opnd::Int(unused.into());
                key = self.asm.int(Alu::Shl, w.bits, &[key.into(), up]);
                if s.held.is_signed_int() {
                    key = self.asm.int(Alu::Xor, w.bits, &[key.into(), Opnd::Int(w.low)]);
                }
            }
            let held = self.held(from, s.axis, reg);
            out.push(self.or_last(s.key_type(), held, key));
        }
        out
    }

    fn reversed(&mut self, s: &Sort, key: Reg) -> Reg {
        match s.descending {
            true => self.asm.int(Alu::Not, s.width().bits, &[key.into()]),
            false => key,
        }
    }

    fn int_key(&mut self, s: &Sort, x: Reg) -> Reg {
        let Width { bits, low, .. } = s.width();
        match s.dtype {
            DType::Bool => self.asm.selp(Ty::B32, x, Opnd::Int(1), Opnd::Int(0)),
            DType::U32 | DType::U64 => x,
            _ => self.asm.int(Alu::Xor, bits, &[x.into(), Opnd::Int(low)]),
        }
    }

    /// The key of a number, or of a NaN; those of negative numbers are moved down. And the sign of
    /// the number in every bit.
    fn float_key(&mut self, s: &Sort, x: Reg, down: i64) -> (Reg, Reg) {
        let Width { bits, unsigned, float, low, last, .. } = s.width();
        let nan = self.asm.setp(Cmp::Nan, float, x, x);
        // Of negative numbers all bits change, of others the sign alone.
        let sign = self.sign(s, x);
        let mask = self.asm.int(Alu::Or, bits, &[sign.into(), Opnd::Int(low)]);
        let mut key = self.asm.int(Alu::Xor, bits, &[x.into(), mask.into()]);
        if down != 0 {
            let by = Opnd::Int(down);
            key = self.asm.int(Alu::MadLo, unsigned, &[sign.into(), by, key.into()]);
        }
        (self.asm.selp(bits, nan, Opnd::Int(last), key), sign)
    }

    fn sign(&mut self, s: &Sort, x: Reg) -> Reg {
        let Width { signed, top, .. } = s.width();
        self.asm.int(Alu::Shr, signed, &[x.into(), Opnd::Int(top)])
    }

    /// A key that says of a zero where it was, and which. `threads` has what a thread's part of a
    /// place adds to it.
    fn key_in_place(
        &mut self,
        s: &Sort,
        from: &Arc<Layout>,
        reg: usize,
        x: Reg,
        threads: &mut BTreeMap<Reg, Reg>,
    ) -> Reg {
        let Width { bits, unsigned, float, .. } = s.width();
        let wide = bits == Ty::B64;
        let number = |n: i64| Opnd::Int(if wide { n } else { i64::from(n as u32) });
        let (key, sign) = self.float_key(s, x, 2 * s.positions());
        let zero = if wide { Opnd::F64(0) } else { Opnd::F32(0) };
        let is_zero = self.asm.setp(Cmp::Eq, float, x, zero);
        // The order of the keys is reversed after this.
        let (first, step) = match s.descending {
            true => (s.first_zero().wrapping_add(2 * (s.positions() - 1)), -2),
            false => (s.first_zero(), 2),
        };
        let c = self.coords(from, reg as u32)[s.axis];
        let mut place = number(first.wrapping_add(step * i64::from(c.offset)));
        if let Some(t) = c.thread {
            let t = *threads.entry(t).or_insert_with(|| {
                let t = if wide { self.asm.cvt(Ty::U64, Ty::U32, None, t) } else { t };
                self.asm.int(Alu::MulLo, unsigned, &[t.into(), number(step)])
            });
            place = self.asm.int(Alu::Add, unsigned, &[t.into(), place]).into();
        }
        let place = self.asm.int(Alu::Sub, unsigned, &[place, sign.into()]);
        self.asm.selp(bits, is_zero, place, key)
    }

    /// The element of a key of [`Select::sort_keys`], or of an integer's of [`Select::tied_keys`] that
    /// is not aligned.
    pub fn unkey(&mut self, s: &Sort, key: Reg) -> Reg {
        let Width { bits, unsigned, top, low, .. } = s.width();
        let key = self.reversed(s, key);
        match s.dtype {
            DType::Bool => self.asm.setp(Cmp::Ne, Ty::U32, key, Opnd::Int(0)),
            DType::U32 | DType::U64 => key,
            dtype if dtype.is_float() => {
                // A key without its highest bit is that of a zero or of a negative number.
                let flipped = self.asm.int(Alu::Not, bits, &[key.into()]);
                let sign = self.sign(s, flipped);
                let up = (2 * s.positions()).wrapping_neg();
                let up = Opnd::Int(if bits == Ty::B64 { up } else { i64::from(up as u32) });
                let number = self.asm.int(Alu::MadLo, unsigned, &[sign.into(), up, key.into()]);
                let mask = self.asm.int(Alu::Or, bits, &[sign.into(), Opnd::Int(low)]);
                let number = self.asm.int(Alu::Xor, bits, &[number.into(), mask.into()]);
                let first = Opnd::Int(s.first_zero());
                let above = self.asm.int(Alu::Sub, unsigned, &[key.into(), first]);
                let is_zero = self.asm.setp(Cmp::Lt, unsigned, above, Opnd::Int(2 * s.positions()));
                let zero = self.asm.int(Alu::Shl, bits, &[key.into(), Opnd::Int(top)]);
                self.asm.selp(bits, is_zero, zero, number)
            }
            _ => self.asm.int(Alu::Xor, bits, &[key.into(), Opnd::Int(low)]),
        }
    }
}
