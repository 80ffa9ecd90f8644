//! The shape of a binary floating format, as data.
//!
//! Every codec in this crate reads these numbers instead of having a function per format: a format
//! is then one row, and a test over all codes of a row is a test of the codec.

/// How a format spells "not a number".
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NanConvention {
    /// All exponent bits set and a non-zero fraction; a zero fraction is infinity.
    Ieee,
    /// Only the code with every exponent and fraction bit set (the OCP "FN" form).
    AllOnes,
    /// The format has no NaN.
    None,
}

/// Field widths and special values of one floating format.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FloatFormat {
    pub exp_bits: u32,
    pub man_bits: u32,
    pub bias: i32,
    /// False only for `e8m0`, a scale, which also has no zero and no subnormals.
    pub has_sign: bool,
    pub has_inf: bool,
    pub has_nan: bool,
    pub nan: NanConvention,
}

impl FloatFormat {
    const fn new(exp_bits: u32, man_bits: u32, nan: NanConvention) -> Self {
        FloatFormat {
            exp_bits,
            man_bits,
            bias: (1 << (exp_bits - 1)) - 1,
            has_sign: true,
            has_inf: matches!(nan, NanConvention::Ieee),
            has_nan: !matches!(nan, NanConvention::None),
            nan,
        }
    }

    pub const F64: Self = Self::new(11, 52, NanConvention::Ieee);
    pub const F32: Self = Self::new(8, 23, NanConvention::Ieee);
    /// The operand precision of tf32 mathematics. It is not how tf32 tensors are stored: those are f32.
    pub const TF32: Self = Self::new(8, 10, NanConvention::Ieee);
    pub const F16: Self = Self::new(5, 10, NanConvention::Ieee);
    pub const BF16: Self = Self::new(8, 7, NanConvention::Ieee);
    pub const FP8_E4M3: Self = Self::new(4, 3, NanConvention::AllOnes);
    pub const FP8_E5M2: Self = Self::new(5, 2, NanConvention::Ieee);
    pub const FP6_E3M2: Self = Self::new(3, 2, NanConvention::None);
    pub const FP6_E2M3: Self = Self::new(2, 3, NanConvention::None);
    pub const FP4_E2M1: Self = Self::new(2, 1, NanConvention::None);
    pub const E8M0: Self =
        FloatFormat { has_sign: false, ..Self::new(8, 0, NanConvention::AllOnes) };

    /// Width of a code in bits, the sign included.
    pub const fn width(self) -> u32 {
        self.exp_bits + self.man_bits + self.has_sign as u32
    }

    /// Exponent of the smallest normal value. `e8m0` has no subnormals, so its code 0 is a normal.
    pub const fn min_exp(self) -> i32 {
        if self.has_sign { 1 - self.bias } else { -self.bias }
    }

    /// Every exponent and fraction bit set.
    const fn ones(self) -> u64 {
        (1 << (self.exp_bits + self.man_bits)) - 1
    }

    /// Magnitude code of +infinity in the formats that have one, and in the IEEE layout generally.
    pub const fn inf_code(self) -> u64 {
        self.ones() & !((1 << self.man_bits) - 1)
    }

    /// Magnitude code of the largest finite value.
    pub const fn max_code(self) -> u64 {
        match self.nan {
            NanConvention::Ieee => self.inf_code() - 1,
            NanConvention::AllOnes => self.ones() - 1,
            NanConvention::None => self.ones(),
        }
    }

    /// The one NaN this crate writes: positive and quiet. A format without NaN takes its largest
    /// finite value instead (LANGUAGE 19).
    pub const fn nan_code(self) -> u64 {
        match self.nan {
            NanConvention::Ieee => self.inf_code() | (1 << (self.man_bits - 1)),
            NanConvention::AllOnes | NanConvention::None => self.ones(),
        }
    }

    /// Position of the sign bit.
    pub const fn sign_shift(self) -> u32 {
        self.exp_bits + self.man_bits
    }
}
