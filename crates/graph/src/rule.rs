//! Typing rules: one function for each op takes the operand types, the attributes, and the result
//! types where they were written, and returns the result types or an error. Inference, the verifier
//! and the builder share it.

use crate::dims::show;
use crate::ops::{
    collective, control_ops, dot, elementwise, index, kernel, random, reduce, shape, value, window,
};
use crate::{Graph, GraphOp};
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_ir::{Attr, Attrs, Dim, DimExpr, Func, InferContext, OpErrors, OpId, Type};
use tessera_numerics::{DType, NumType};

/// What is wrong with an op.
#[derive(Clone, PartialEq, Debug)]
pub struct Refusal {
    pub code: Code,
    pub message: String,
}

impl Refusal {
    pub fn shape(message: impl Into<String>) -> Self {
        Self { code: Code::E_SHAPE_MISMATCH, message: message.into() }
    }

    pub fn ty(message: impl Into<String>) -> Self {
        Self { code: Code::E_TYPE, message: message.into() }
    }

    pub fn structure(message: impl Into<String>) -> Self {
        Self { code: Code::E_GRAPH_INVALID, message: message.into() }
    }

    pub fn at(self, loc: Loc) -> Diagnostic {
        Diagnostic::new(self.code, self.message).at(loc)
    }
}

/// The result types, or why there are none.
pub type Ruled = Result<Vec<Type>, Refusal>;

/// What a rule sees of an op. Rules also run before the structure is checked, so nothing here may
/// be taken for granted.
pub struct Site<'a> {
    pub operands: &'a [Type],
    pub groups: &'a [(&'static str, Vec<Type>)],
    pub attrs: &'a Attrs,
    /// As written; empty where types are inferred.
    pub results: &'a [Type],
}

impl Site<'_> {
    pub fn operand(&self, place: usize) -> Result<&Type, Refusal> {
        self.operands.get(place).ok_or_else(|| {
            Refusal::structure(format!(
                "expected at least {} operands, got {}",
                place + 1,
                self.operands.len()
            ))
        })
    }

    pub fn group(&self, name: &str) -> &[Type] {
        self.groups.iter().find(|(n, _)| *n == name).map_or(&[], |(_, t)| t)
    }

    /// The result type as written, for ops whose operands do not imply it.
    pub fn written(&self) -> Result<&Type, Refusal> {
        match self.results {
            [Type::Tensor { .. }] => Ok(&self.results[0]),
            [other] => Err(Refusal::ty(format!("expected a tensor as the result, got {other}"))),
            _ => Err(Refusal::structure("expected a result type, the op does not imply one")),
        }
    }

    pub fn attr(&self, name: &str) -> Option<&Attr> {
        self.attrs.get(name)
    }

    pub fn word(&self, name: &str) -> Option<&str> {
        self.attr(name).and_then(Attr::as_word)
    }

    pub fn flag(&self, name: &str) -> bool {
        self.attr(name).and_then(Attr::as_bool).unwrap_or(false)
    }

    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.attr(name).and_then(Attr::as_int).unwrap_or(default)
    }

    pub fn ints(&self, name: &str) -> Vec<i64> {
        self.attr(name).and_then(Attr::as_ints).unwrap_or_default()
    }

    /// One integer for each axis; `default` for all where the attribute is left out.
    pub fn ints_or(&self, name: &str, len: usize, default: i64) -> Result<Vec<i64>, Refusal> {
        match self.attr(name) {
            None => Ok(vec![default; len]),
            Some(_) => counted(name, self.ints(name), len),
        }
    }

    /// One dimension expression for each axis; zeros where the attribute is left out.
    pub fn exprs(&self, name: &str, len: usize) -> Result<Vec<Dim>, Refusal> {
        match self.attr(name) {
            None => Ok(vec![Dim::Static(0); len]),
            Some(a) => {
                let all: Vec<_> =
                    a.as_exprs().unwrap_or_default().into_iter().map(Dim::from).collect();
                counted(name, all, len)
            }
        }
    }

    pub fn expr(&self, name: &str) -> Option<DimExpr> {
        self.attr(name).and_then(Attr::as_expr)
    }

    /// A dtype by name, where the attribute is there.
    pub fn dtype(&self, name: &str) -> Result<Option<DType>, Refusal> {
        let Some(word) = self.word(name) else { return Ok(None) };
        let found = DType::parse(word).filter(|d| d.name() == word);
        found
            .map(Some)
            .ok_or_else(|| Refusal::ty(format!("expected a dtype in `{name}`, got {word}")))
    }

    /// An attribute that takes one of a few words.
    pub fn choice(
        &self,
        name: &str,
        all: &[&str],
        default: &'static str,
    ) -> Result<String, Refusal> {
        let word = self.word(name).unwrap_or(default);
        if all.contains(&word) {
            return Ok(word.to_string());
        }
        let all = all.join(" ");
        Err(Refusal::structure(format!("expected `{name}` to be one of {all}, got `{word}`")))
    }
}

fn counted<T>(name: &str, list: Vec<T>, len: usize) -> Result<Vec<T>, Refusal> {
    if list.len() == len {
        return Ok(list);
    }
    let got = list.len();
    Err(Refusal::shape(format!(
        "expected `{name}` to have one entry for each of {len} axes, got {got}"
    )))
}

pub fn tensor(dims: Vec<Dim>, elem: NumType) -> Type {
    Type::Tensor { dims, elem }
}

/// A rank-0 tensor.
pub fn scalar(dtype: DType) -> Type {
    tensor(Vec::new(), NumType::plain(dtype))
}

/// The element type with its policy.
pub fn elem(ty: &Type) -> NumType {
    match ty {
        Type::Tensor { elem, .. } | Type::View { elem, .. } => *elem,
        ty => NumType::plain(ty.dtype()),
    }
}

/// The policy that several operands of one dtype leave to the result: theirs where it is one.
pub fn joint(types: &[&Type]) -> NumType {
    let first = elem(types[0]);
    let one = types.iter().all(|t| elem(t) == first);
    if one { first } else { NumType::plain(first.storage) }
}

/// An axis below the rank.
pub fn axis(name: &str, axis: i64, ty: &Type) -> Result<usize, Refusal> {
    let rank = ty.rank();
    match usize::try_from(axis) {
        Ok(a) if a < rank => Ok(a),
        _ => Err(Refusal::shape(format!(
            "expected `{name}` to be an axis of {}, below {rank}, got {axis}",
            show(ty.shape())
        ))),
    }
}

/// Axes of a type, each once, ascending.
pub fn ascending(name: &str, list: &[i64], ty: &Type) -> Result<Vec<usize>, Refusal> {
    let all = list.iter().map(|&a| axis(name, a, ty)).collect::<Result<Vec<_>, _>>()?;
    if all.is_sorted_by(|a, b| a < b) {
        return Ok(all);
    }
    Err(Refusal::structure(format!("expected `{name}` to ascend, got {list:?}")))
}

/// Axes of a type, each once, in any order.
pub fn distinct(name: &str, list: &[i64], ty: &Type) -> Result<Vec<usize>, Refusal> {
    let all = list.iter().map(|&a| axis(name, a, ty)).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = all.clone();
    sorted.sort_unstable();
    if sorted.is_sorted_by(|a, b| a < b) {
        return Ok(all);
    }
    Err(Refusal::structure(format!("expected `{name}` to name each axis once, got {list:?}")))
}

/// An operand of rank 0 with this dtype.
pub fn expect_scalar(what: &str, ty: &Type, dtype: DType) -> Result<(), Refusal> {
    if ty.rank() != 0 {
        return Err(Refusal::shape(format!(
            "expected `{what}` to have no axes, got {}",
            show(ty.shape())
        )));
    }
    if ty.dtype() != dtype {
        return Err(Refusal::ty(format!("expected `{what}` to be {dtype}, got {}", ty.dtype())));
    }
    Ok(())
}

/// One op's rule, as a type, so that each row of the table has functions of its own.
pub trait Rule {
    fn types(site: &Site<'_>) -> Ruled;
}

pub fn infer<R: Rule>(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    let site = Site { operands: c.operands, groups: c.groups, attrs: c.attrs, results: &[] };
    R::types(&site).map_err(|r| r.message)
}

/// The result types of any op by its rule. Ops whose results come out of regions, or of another
/// function, give back what is written.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn types_of(code: GraphOp, s: &Site<'_>) -> Ruled {
    match code {
        GraphOp::KernelCall => kernel::Call::types(s),
        GraphOp::Return
        | GraphOp::Yield
        | GraphOp::Cond
        | GraphOp::While
        | GraphOp::Loop
        | GraphOp::Call
        | GraphOp::Composite => Ok(s.results.to_vec()),
        GraphOp::Const => value::Const::types(s),
        GraphOp::Iota => value::Iota::types(s),
        GraphOp::Select => value::Select::types(s),
        GraphOp::Cast => value::Cast::types(s),
        GraphOp::Bitcast => value::Bitcast::types(s),
        GraphOp::Dim => value::DimOf::types(s),
        GraphOp::StopGradient => value::Same::types(s),
        GraphOp::OptBarrier => value::SameAll::types(s),
        GraphOp::Broadcast => shape::Broadcast::types(s),
        GraphOp::Reshape => shape::Reshape::types(s),
        GraphOp::Transpose => shape::Transpose::types(s),
        GraphOp::Slice => shape::Slice::types(s),
        GraphOp::Pad => shape::Pad::types(s),
        GraphOp::Concat => shape::Concat::types(s),
        GraphOp::Reverse => shape::Reverse::types(s),
        GraphOp::DynamicSlice => index::DynamicSlice::types(s),
        GraphOp::DynamicUpdateSlice => index::DynamicUpdateSlice::types(s),
        GraphOp::Gather => index::Gather::types(s),
        GraphOp::Scatter => index::Scatter::types(s),
        GraphOp::Reduce => reduce::Reduce::types(s),
        GraphOp::ArgReduce => reduce::ArgReduce::types(s),
        GraphOp::Scan => reduce::Scan::types(s),
        GraphOp::Sort => reduce::Sort::types(s),
        GraphOp::Dot => dot::Dot::types(s),
        GraphOp::Conv => dot::Conv::types(s),
        GraphOp::WindowReduce => window::Reduce::types(s),
        GraphOp::WindowArgReduce => window::ArgReduce::types(s),
        GraphOp::Philox => random::Philox::types(s),
        GraphOp::Shard => collective::Sharded::types(s),
        GraphOp::Manual => collective::ManualRule::types(s),
        GraphOp::Vary | GraphOp::AllReduce | GraphOp::Permute | GraphOp::FromRank => {
            collective::Kept::types(s)
        }
        GraphOp::Own | GraphOp::ReduceScatter => collective::Scattered::types(s),
        GraphOp::AllGather => collective::AllGather::types(s),
        GraphOp::AllToAll => collective::AllToAll::types(s),
        GraphOp::AxisIndex => collective::AxisIndex::types(s),
        GraphOp::Ew(f) => elementwise::types(f, s),
    }
}

/// The verifier's part of every op that a rule decides.
pub fn verify(func: &Func<Graph>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let of = |values: &[tessera_ir::Value]| -> Vec<Type> {
        values.iter().map(|&v| func.ty(v).clone()).collect()
    };
    let info = tessera_ir::Opcode::<Graph>::info(op.code);
    let groups: Vec<_> = info.groups.iter().map(|g| (g.name, of(op.group(g.name)))).collect();
    let (operands, results) = (of(op.positional()), of(&op.results));
    let site = Site { operands: &operands, groups: &groups, attrs: &op.attrs, results: &results };
    match types_of(op.code, &site) {
        Err(refusal) => errors.push(refusal.code, refusal.message),
        Ok(types) if types.len() != results.len() => {
            errors.structure(format!("expected {} results, got {}", types.len(), results.len()))
        }
        Ok(_) => {}
    }
    control_ops::verify(func, id, errors);
}
