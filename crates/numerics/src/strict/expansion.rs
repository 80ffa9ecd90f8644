//! A published expansion: a function as one fixed straight-line sequence of basic operations.

use crate::cast::cast;
use crate::codec::{CANONICAL_NAN_F32, decode};
use crate::dtype::DType;
use crate::eval::apply;
use crate::kernel::Kernel;
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

/// The functions an expansion may use: IEEE arithmetic rounded once, comparisons, and integer
/// operations.
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

/// The meaning of an expansion: its operations one after another, each by the scalar rules of this
/// crate.
///
/// # Panics
/// If `args` are not as many as the expansion takes.
pub fn eval_expansion(e: &Expansion, args: &[f32]) -> f32 {
    ExpansionEval::new(e).eval(args)
}

/// An expansion made ready to be evaluated many times: functions looked up, constants in place.
pub struct ExpansionEval<'a> {
    arity: usize,
    /// Every operation but the constants, with its place and the scalar function it applies, if it
    /// does.
    work: Vec<(usize, &'a ExpOp, Option<Kernel>)>,
    values: Vec<Scalar>,
}

impl<'a> ExpansionEval<'a> {
    pub fn new(e: &'a Expansion) -> ExpansionEval<'a> {
        let kernel = |op: &ExpOp| match op {
            ExpOp::Apply { f, args } => f.kernel(e.types[args[0].0 as usize]),
            _ => None,
        };
        let constant = |op: &ExpOp| if let ExpOp::Const(c) = op { Some(*c) } else { None };
        let ops = e.ops.iter().enumerate().filter(|(_, op)| constant(op).is_none());
        ExpansionEval {
            arity: e.arity,
            work: ops.map(|(i, op)| (i, op, kernel(op))).collect(),
            values: e.ops.iter().map(|op| constant(op).unwrap_or(Scalar::Bool(false))).collect(),
        }
    }

    /// [`eval_expansion`] of these operands.
    ///
    /// # Panics
    /// If `args` are not as many as the expansion takes.
    pub fn eval(&mut self, args: &[f32]) -> f32 {
        assert_eq!(args.len(), self.arity, "an expansion takes exactly its operands");
        for n in 0..self.work.len() {
            let (i, op, kernel) = self.work[n];
            self.values[i] = self.step(op, kernel, args);
        }
        match self.values.last() {
            Some(Scalar::F32(x)) => *x,
            other => unreachable!("an expansion ends in an f32, not {other:?}"),
        }
    }

    fn real(&self, s: &Slot) -> f32 {
        match &self.values[s.0 as usize] {
            Scalar::F32(x) => *x,
            other => unreachable!("an f32 operation reads {other:?}"),
        }
    }

    fn step(&self, op: &ExpOp, kernel: Option<Kernel>, inputs: &[f32]) -> Scalar {
        let at = |s: &Slot| self.values[s.0 as usize];
        match op {
            ExpOp::Input(i) => Scalar::F32(inputs[*i as usize]),
            ExpOp::Const(c) => *c,
            // Nearly all operations are on f32. Reading the numbers alone is several times quicker
            // than copying whole scalars, whose halves were written apart.
            ExpOp::Apply { args, .. } => match (kernel, args.as_slice()) {
                (Some(Kernel::F32U(k)), [a]) => Scalar::F32(k(self.real(a))),
                (Some(Kernel::F32B(k)), [a, b]) => Scalar::F32(k(self.real(a), self.real(b))),
                (Some(Kernel::F32T(k)), [a, b, c]) => {
                    Scalar::F32(k(self.real(a), self.real(b), self.real(c)))
                }
                (Some(Kernel::F32C(k)), [a, b]) => Scalar::Bool(k(self.real(a), self.real(b))),
                (kernel, args) => {
                    let mut operands = [Scalar::Bool(false); 3];
                    operands.iter_mut().zip(args).for_each(|(o, s)| *o = at(s));
                    let value = kernel.and_then(|k| apply(k, &operands[..args.len()]));
                    value.expect("recorded operations are well typed")
                }
            },
            ExpOp::Select { cond, then, other } => at(if at(cond).truth() { then } else { other }),
            ExpOp::Cast { to, value } => cast(at(value), at(value).dtype(), *to),
            ExpOp::Bitcast { to, value } => match at(value) {
                Scalar::F32(x) if x.is_nan() => decode(*to, CANONICAL_NAN_F32 as u64),
                v => decode(*to, v.bits()),
            },
        }
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
