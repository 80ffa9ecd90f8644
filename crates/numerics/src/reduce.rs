//! Reduction operators.

use crate::dtype::DType;
use crate::scalar::Scalar;
use crate::scalar_fn::ScalarFn;
use std::fmt;

/// How a reduction joins two values.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReduceOp {
    Sum,
    Max,
    Min,
    Prod,
    And,
    Or,
    Xor,
}

impl ReduceOp {
    pub const ALL: &'static [ReduceOp] = &[
        ReduceOp::Sum,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::Prod,
        ReduceOp::And,
        ReduceOp::Or,
        ReduceOp::Xor,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Prod => "prod",
            ReduceOp::And => "and",
            ReduceOp::Or => "or",
            ReduceOp::Xor => "xor",
        }
    }

    /// `"add"` is accepted for `"sum"`.
    pub fn from_name(s: &str) -> Option<ReduceOp> {
        if s == "add" {
            return Some(ReduceOp::Sum);
        }
        ReduceOp::ALL.iter().copied().find(|op| op.name() == s)
    }

    /// The function that joins two values.
    pub const fn combine(self) -> ScalarFn {
        match self {
            ReduceOp::Sum => ScalarFn::Add,
            ReduceOp::Max => ScalarFn::Maximum,
            ReduceOp::Min => ScalarFn::Minimum,
            ReduceOp::Prod => ScalarFn::Mul,
            ReduceOp::And => ScalarFn::And,
            ReduceOp::Or => ScalarFn::Or,
            ReduceOp::Xor => ScalarFn::Xor,
        }
    }

    /// The identity, which is also the result over no elements; `None` where the operator does not
    /// take the carrier type `dt`. The identity of a float sum is −0.0: with +0.0 a sum of −0.0
    /// would be +0.0.
    pub fn identity(self, dt: DType) -> Option<Scalar> {
        use Scalar::{Bool, F32, F64, I32, I64, U32, U64};
        if !self.combine().accepts(dt) {
            return None;
        }
        let row = match self {
            ReduceOp::Sum => [I32(0), I64(0), U32(0), U64(0), F32(-0.0), F64(-0.0), Bool(false)],
            ReduceOp::Prod => [I32(1), I64(1), U32(1), U64(1), F32(1.0), F64(1.0), Bool(true)],
            ReduceOp::Max => [
                I32(i32::MIN),
                I64(i64::MIN),
                U32(0),
                U64(0),
                F32(f32::NEG_INFINITY),
                F64(f64::NEG_INFINITY),
                Bool(false),
            ],
            ReduceOp::Min => [
                I32(i32::MAX),
                I64(i64::MAX),
                U32(u32::MAX),
                U64(u64::MAX),
                F32(f32::INFINITY),
                F64(f64::INFINITY),
                Bool(true),
            ],
            // The float entries are never read: `accepts` has refused them.
            ReduceOp::And => [I32(-1), I64(-1), U32(!0), U64(!0), F32(0.0), F64(0.0), Bool(true)],
            ReduceOp::Or | ReduceOp::Xor => {
                [I32(0), I64(0), U32(0), U64(0), F32(0.0), F64(0.0), Bool(false)]
            }
        };
        row.into_iter().find(|s| s.dtype() == dt)
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
