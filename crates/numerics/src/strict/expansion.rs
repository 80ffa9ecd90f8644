//! A published expansion: a function as one fixed straight-line sequence of basic operations.

use crate::cast::cast;
use crate::codec::{decode, encode};
use crate::dtype::DType;
use crate::eval::eval;
use crate::modes::Rounding;
use crate::scalar::Scalar;
use crate::scalar_fn::ScalarFn;
use std::fmt;

/// The result of an earlier operation of the same expansion, by its position.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// One operation. Each has a Tile IR op of the same name and meaning.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ExpOp {
    /// Operand of the function, an f32.
    Input(u32),
    /// A number given by its exact bits.
    Const(Scalar),
    /// A basic scalar function, on operands of one type.
    Apply { f: ScalarFn, args: Vec<Slot> },
    /// `then` where the bool `cond` holds, else `other`.
    Select { cond: Slot, then: Slot, other: Slot },
    /// Conversion of the value, by the rules of [`cast`](crate::cast).
    Cast { to: DType, value: Slot },
    /// The same bits read as another type of the same width; NaN is made canonical first.
    Bitcast { to: DType, value: Slot },
}

/// A function of f32 operands as data. The last operation's result is the value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expansion {
    pub arity: usize,
    pub ops: Vec<ExpOp>,
    /// Type of each operation's result.
    pub types: Vec<DType>,
}

/// The functions an expansion may use: IEEE arithmetic rounded once, comparisons, and integer operations.
pub const BASIC: &[ScalarFn] = &[
    ScalarFn::Add,
    ScalarFn::Sub,
    ScalarFn::Mul,
    ScalarFn::Div,
    ScalarFn::Fma,
    ScalarFn::Sqrt,
    ScalarFn::Neg,
    ScalarFn::Abs,
    ScalarFn::And,
    ScalarFn::Or,
    ScalarFn::Xor,
    ScalarFn::Not,
    ScalarFn::Shl,
    ScalarFn::Shr,
    ScalarFn::Lt,
    ScalarFn::Eq,
    ScalarFn::Ne,
];

impl ExpOp {
    /// The slots it reads, in order.
    pub fn operands(&self) -> Vec<Slot> {
        match self {
            ExpOp::Input(_) | ExpOp::Const(_) => vec![],
            ExpOp::Apply { args, .. } => args.clone(),
            &ExpOp::Select { cond, then, other } => vec![cond, then, other],
            &ExpOp::Cast { value, .. } | &ExpOp::Bitcast { value, .. } => vec![value],
        }
    }
}

/// The meaning of an expansion: its operations one after another, each by the scalar rules of this crate.
///
/// # Panics
/// If `args` are not as many as the expansion takes.
pub fn eval_expansion(e: &Expansion, args: &[f32]) -> f32 {
    assert_eq!(args.len(), e.arity, "an expansion takes exactly its operands");
    let mut values: Vec<Scalar> = Vec::with_capacity(e.ops.len());
    for op in &e.ops {
        let at = |s: &Slot| values[s.0 as usize];
        let value = match op {
            ExpOp::Input(i) => Scalar::F32(args[*i as usize]),
            ExpOp::Const(c) => *c,
            ExpOp::Apply { f, args } => {
                let mut operands = [Scalar::Bool(false); 3];
                operands.iter_mut().zip(args).for_each(|(o, s)| *o = at(s));
                eval(*f, &operands[..args.len()]).expect("recorded operations are well typed")
            }
            ExpOp::Select { cond, then, other } => at(if at(cond).truth() { then } else { other }),
            ExpOp::Cast { to, value } => cast(at(value), at(value).dtype(), *to),
            ExpOp::Bitcast { to, value } => {
                let v = at(value);
                decode(*to, encode(v.dtype(), v, Rounding::Rne, false))
            }
        };
        values.push(value);
    }
    match values.last() {
        Some(Scalar::F32(x)) => *x,
        other => unreachable!("an expansion ends in an f32, not {other:?}"),
    }
}

/// One line per operation, for documents and for comparing what a backend emits.
impl fmt::Display for Expansion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (op, ty)) in self.ops.iter().zip(&self.types).enumerate() {
            write!(f, "%{i} = ")?;
            match op {
                ExpOp::Input(n) => write!(f, "input {n}")?,
                ExpOp::Const(Scalar::F32(x)) => write!(f, "const {:#010x} ({x:e})", x.to_bits())?,
                ExpOp::Const(c) => write!(f, "const {:#x}", c.bits())?,
                ExpOp::Apply { f: name, .. } => write!(f, "{name}")?,
                ExpOp::Select { .. } => write!(f, "select")?,
                ExpOp::Cast { .. } => write!(f, "cast")?,
                ExpOp::Bitcast { .. } => write!(f, "bitcast")?,
            }
            for (n, slot) in op.operands().iter().enumerate() {
                write!(f, "{} %{}", if n == 0 { "" } else { "," }, slot.0)?;
            }
            writeln!(f, " : {ty}")?;
        }
        Ok(())
    }
}
