//! What is known of a tile's padding along each axis, and how elementwise functions change it.

use tessera_ir::OpId;
use tessera_numerics::ScalarFn;

/// Where raggedness came from: a block access and the axis of memory it may leave.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Root {
    pub access: OpId,
    pub axis: usize,
    /// The block may begin before the tensor, too.
    pub front: bool,
}

/// One axis, from the most to the least that is known.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Axis {
    /// The whole value is a constant zero.
    Nil,
    /// Nothing along the axis is padding.
    Clean,
    /// There may be padding, and it is still zero.
    Zero(Root),
    /// There may be padding, and it may be anything.
    Dirty(Root),
}

impl Axis {
    pub fn root(self) -> Option<Root> {
        match self {
            Axis::Nil | Axis::Clean => None,
            Axis::Zero(r) | Axis::Dirty(r) => Some(r),
        }
    }

    fn is_zero(self) -> bool {
        matches!(self, Axis::Nil | Axis::Zero(_))
    }

    /// The same padding with other contents.
    fn spoiled(self) -> Axis {
        self.root().map_or(Axis::Clean, Axis::Dirty)
    }

    /// One of two values, it is not known which.
    pub fn join(self, other: Axis) -> Axis {
        match (self, other) {
            // Two paths with padding of different places: the first place is as good a name.
            (Axis::Dirty(_), Axis::Dirty(_)) | (Axis::Zero(_), Axis::Zero(_)) => self,
            (a, b) => a.max(b),
        }
    }

    pub fn add(self, other: Axis) -> Axis {
        match (self, other) {
            (Axis::Nil, x) | (x, Axis::Nil) => x,
            (Axis::Clean, Axis::Clean) => Axis::Clean,
            (Axis::Zero(_), Axis::Zero(_)) => self,
            (a, b) => a.ragged_of(b).spoiled(),
        }
    }

    /// A product is still zero where one factor is.
    pub fn mul(self, other: Axis) -> Axis {
        match (self, other) {
            (Axis::Nil, _) | (_, Axis::Nil) => Axis::Nil,
            (z @ Axis::Zero(_), _) | (_, z @ Axis::Zero(_)) => z,
            (a, b) => a.join(b),
        }
    }

    fn ragged_of(self, other: Axis) -> Axis {
        if self.root().is_some() { self } else { other }
    }

    /// Any function of the operands: `at_zero` says whether it gives zero where all are zero.
    fn through(axes: &[Axis], at_zero: bool) -> Axis {
        if at_zero && axes.iter().all(|a| a.is_zero()) {
            return axes.iter().copied().fold(Axis::Nil, Axis::join);
        }
        let worst =
            axes.iter().copied().fold(Axis::Nil, |a, b| if a.root().is_some() { a } else { b });
        worst.spoiled()
    }
}

/// What an op knows beyond its operands' axes.
pub(super) struct Context<'c> {
    pub is_int: bool,
    /// Whether an operand is a constant other than zero.
    pub nonzero: &'c dyn Fn(usize) -> bool,
}

/// One axis of an elementwise result from the same axis of its operands.
pub(super) fn elementwise(f: ScalarFn, axes: &[Axis], context: &Context<'_>) -> Axis {
    use ScalarFn as F;
    match f {
        F::Mul | F::And => axes[0].mul(axes[1]),
        F::Add | F::Sub => axes[0].add(axes[1]),
        F::Fma => axes[0].mul(axes[1]).add(axes[2]),
        // 0 / x is zero unless x is; an integer divided by zero is zero by definition.
        F::Div | F::FloorDiv | F::Mod => {
            let keeps = axes[0].is_zero()
                && ((context.nonzero)(1) || (context.is_int && matches!(f, F::FloorDiv | F::Mod)));
            if keeps { axes[0] } else { Axis::through(axes, false) }
        }
        F::Shl | F::Shr if axes[0].is_zero() => axes[0],
        _ => Axis::through(axes, zero_at_zero(f)),
    }
}

/// Whether the function of zeros is zero.
fn zero_at_zero(f: ScalarFn) -> bool {
    use ScalarFn as F;
    match f {
        F::Neg | F::Abs | F::Sqrt | F::Log1p | F::Expm1 | F::Sin | F::Tan | F::Asin | F::Atan => {
            true
        }
        F::Sinh | F::Tanh | F::Erf | F::Floor | F::Ceil | F::Round | F::Trunc | F::Sign => true,
        F::Maximum | F::Minimum | F::Clamp | F::Or | F::Xor | F::Shl | F::Shr => true,
        // Of bools: false is zero.
        F::Ne | F::Lt | F::Gt | F::IsNan | F::IsInf => true,
        F::Add | F::Sub | F::Mul | F::And | F::Fma => true,
        F::Div
        | F::FloorDiv
        | F::Mod
        | F::Rsqrt
        | F::Recip
        | F::Exp
        | F::Exp2
        | F::Log
        | F::Log2 => false,
        F::Cos | F::Acos | F::Atan2 | F::Cosh | F::Sigmoid | F::Pow | F::Not => false,
        F::Eq | F::Le | F::Ge | F::IsFinite => false,
    }
}
