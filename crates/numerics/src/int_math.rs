//! Integer functions where the language differs from Rust: no overflow, no division trap, and
//! shift counts of any size.

macro_rules! shared {
    ($t:ident) => {
        /// A count outside the width, a negative one included, shifts everything out.
        pub fn shl(a: $t, n: $t) -> $t {
            u32::try_from(n).ok().and_then(|n| a.checked_shl(n)).unwrap_or(0)
        }

        /// The high half of the product. Its bits are right where the product of 128 bits wraps.
        pub fn mulhi(a: $t, b: $t) -> $t {
            (i128::from(a).wrapping_mul(i128::from(b)) >> $t::BITS) as $t
        }

        /// The high word of `hi:lo`, shifted left by the count modulo the width.
        pub fn funnel_shift(hi: $t, lo: $t, n: $t) -> $t {
            let word = |x: $t| x as u128 & (u128::MAX >> (128 - $t::BITS));
            let both = word(hi) << $t::BITS | word(lo);
            (both << (n as u32 % $t::BITS) >> $t::BITS) as $t
        }
    };
}

macro_rules! signed {
    ($t:ident) => {
        pub mod $t {
            shared!($t);

            pub fn floordiv(a: $t, b: $t) -> $t {
                if b == 0 {
                    return 0;
                }
                let (q, r) = (a.wrapping_div(b), a.wrapping_rem(b));
                if r != 0 && (r < 0) != (b < 0) { q - 1 } else { q }
            }

            pub fn modulo(a: $t, b: $t) -> $t {
                if b == 0 {
                    return 0;
                }
                let r = a.wrapping_rem(b);
                if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
            }

            pub fn abs(a: $t) -> $t {
                a.wrapping_abs()
            }

            pub fn sign(a: $t) -> $t {
                a.signum()
            }

            /// Shifting a signed number right by its width less one leaves its sign, and so does
            /// any greater count.
            pub fn shr(a: $t, n: $t) -> $t {
                let last = $t::BITS - 1;
                a >> u32::try_from(n).map_or(last, |n| n.min(last))
            }
        }
    };
}

macro_rules! unsigned {
    ($t:ident) => {
        pub mod $t {
            shared!($t);

            pub fn floordiv(a: $t, b: $t) -> $t {
                a.checked_div(b).unwrap_or(0)
            }

            pub fn modulo(a: $t, b: $t) -> $t {
                a.checked_rem(b).unwrap_or(0)
            }

            pub fn abs(a: $t) -> $t {
                a
            }

            pub fn sign(a: $t) -> $t {
                (a != 0) as $t
            }

            pub fn shr(a: $t, n: $t) -> $t {
                u32::try_from(n).ok().and_then(|n| a.checked_shr(n)).unwrap_or(0)
            }
        }
    };
}

signed!(i32);
signed!(i64);
unsigned!(u32);
unsigned!(u64);
