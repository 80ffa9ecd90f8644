//! The elementwise family: one op for each row of the `ScalarFn` table. Operands have one shape and
//! one dtype. A storage dtype is computed in its carrier and stored back, once, in each op.

use crate::Graph;
use crate::dims::{known, same_shape, show};
use crate::rule::{Refusal, Rule, Ruled, Site, infer, joint, tensor, verify};
use tessera_ir::{Effects, InferFn, OpInfo, OperandSpec, Type, TypeClass};
use tessera_numerics::{FnClass, NumType, ScalarFn};

const fn operand(name: &'static str) -> OperandSpec {
    OperandSpec { name, class: TypeClass::Tensor }
}

const fn row(
    operands: &'static [OperandSpec],
    infer: InferFn,
    example: &'static str,
) -> OpInfo<Graph> {
    OpInfo {
        number: 0x100,
        since: "0.1",
        doc: "Applies a scalar function to each element. Operands have one shape and dtype; storage \
              dtypes are computed in their carrier and stored back.\n",
        example,
        operands,
        groups: &[],
        attrs: &[],
        regions: &[],
        results: Some(1),
        effects: Effects::Pure,
        infer: Some(infer),
        verify: Some(verify),
    }
}

static UNARY: OpInfo<Graph> =
    row(&[operand("x")], infer::<Number>, "%r = graph.exp %x : tensor<[4, 8], f32>");
static BINARY: OpInfo<Graph> = row(
    &[operand("a"), operand("b")],
    infer::<Number>,
    "%r = graph.add %x, %y : tensor<[4, 8], f32>",
);
static TERNARY: OpInfo<Graph> = row(
    &[operand("a"), operand("b"), operand("c")],
    infer::<Number>,
    "%r = graph.fma %x, %y, %x : tensor<[4, 8], f32>",
);
static PREDICATE: OpInfo<Graph> =
    row(&[operand("x")], infer::<Truth>, "%r = graph.isnan %x : tensor<[4, 8], bool>");
static COMPARE: OpInfo<Graph> = row(
    &[operand("a"), operand("b")],
    infer::<Truth>,
    "%r = graph.lt %x, %y : tensor<[4, 8], bool>",
);

/// The row of an elementwise function, by its arity and whether its result is a bool.
pub fn info(f: ScalarFn) -> &'static OpInfo<Graph> {
    match (f.arity(), f.class()) {
        (1, FnClass::Predicate) => &PREDICATE,
        (2, FnClass::Compare) => &COMPARE,
        (1, _) => &UNARY,
        (2, _) => &BINARY,
        _ => &TERNARY,
    }
}

struct Number;
struct Truth;

impl Rule for Number {
    fn types(s: &Site<'_>) -> Ruled {
        operands(s, false)
    }
}

impl Rule for Truth {
    fn types(s: &Site<'_>) -> Ruled {
        operands(s, true)
    }
}

/// One shape and one dtype; where extents are known in one operand only, the result knows them.
fn operands(s: &Site<'_>, truth: bool) -> Ruled {
    let first = s.operand(0)?;
    let mut dims = first.shape().to_vec();
    for other in &s.operands[1..] {
        if !same_shape(&dims, other.shape()) {
            return Err(Refusal::shape(format!(
                "expected operands of one shape, got {} and {}",
                show(first.shape()),
                show(other.shape())
            )));
        }
        if other.dtype() != first.dtype() {
            return Err(Refusal::ty(format!(
                "expected operands of one dtype, got {} and {}",
                first.dtype(),
                other.dtype()
            )));
        }
        dims = dims.iter().zip(other.shape()).map(|(a, b)| known(a, b)).collect();
    }
    let elem = match truth {
        true => NumType::plain(tessera_numerics::DType::Bool),
        false => joint(&s.operands.iter().collect::<Vec<&Type>>()),
    };
    Ok(vec![tensor(dims, elem)])
}

pub fn types(f: ScalarFn, s: &Site<'_>) -> Ruled {
    if s.operands.len() != f.arity() {
        return Err(Refusal::structure(format!(
            "expected {} operands, got {}",
            f.arity(),
            s.operands.len()
        )));
    }
    let dtype = s.operand(0)?.dtype();
    let truth = matches!(f.class(), FnClass::Compare | FnClass::Predicate);
    let types = operands(s, truth)?;
    if !f.accepts(dtype.carrier()) {
        return Err(Refusal::ty(format!(
            "expected an operand that `{}` takes ({}), got {dtype}",
            f.name(),
            match f.class() {
                FnClass::Arith => "a number",
                FnClass::Float | FnClass::Predicate => "a float",
                FnClass::Compare => "a number or bool",
                FnClass::Bits => "an integer or bool",
                FnClass::Shift | FnClass::Word => "an integer",
            }
        )));
    }
    Ok(types)
}
