//! Emits ops at the source location of the op that is being differentiated, and skips no-ops.

use crate::scalar::Scalars;
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_graph::dims::{expr_of, same_shape};
use tessera_graph::{Graph, GraphBuilder, GraphOp, elem, tensor};
use tessera_ir::{Attr, Dim, DimExpr, Op, OpSpec, Type, Value};
use tessera_numerics::{DType, NumType, ReduceOp, ScalarFn};

pub type Out = Result<Value, Diagnostic>;
pub type Outs = Result<Vec<Option<Value>>, Diagnostic>;

/// A function under construction, and the location of the user's op that is being differentiated.
pub struct Emit {
    pub b: GraphBuilder,
    pub loc: Loc,
}

/// An op of the source as rules see it: its row and attributes, and its operands and results in the
/// function that is being made.
pub struct View<'a> {
    pub op: &'a Op<Graph>,
    pub operands: Vec<Value>,
    pub results: Vec<Value>,
    /// Values that the forward pass kept for this op alone.
    pub extra: Vec<Value>,
}

impl View<'_> {
    pub fn ints(&self, name: &str) -> Vec<i64> {
        self.op.attr(name).and_then(Attr::as_ints).unwrap_or_default()
    }

    pub fn ints_or(&self, name: &str, len: usize, default: i64) -> Vec<i64> {
        match self.op.attr(name) {
            None => vec![default; len],
            Some(_) => self.ints(name),
        }
    }

    /// One extent for each axis; zeros where the attribute is left out.
    pub fn exprs(&self, name: &str, len: usize) -> Vec<Dim> {
        match self.op.attr(name).and_then(Attr::as_exprs) {
            None => vec![Dim::Static(0); len],
            Some(all) => all.into_iter().map(Dim::from).collect(),
        }
    }

    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.op.attr(name).and_then(Attr::as_int).unwrap_or(default)
    }

    pub fn flag(&self, name: &str) -> bool {
        self.op.attr(name).and_then(Attr::as_bool).unwrap_or(false)
    }

    pub fn word(&self, name: &str) -> &str {
        self.op.attr(name).and_then(Attr::as_word).unwrap_or_default()
    }

    pub fn reduce_op(&self) -> ReduceOp {
        // The verifier has checked the word; scatters that set were handled before.
        ReduceOp::from_name(self.word("op")).unwrap_or(ReduceOp::Sum)
    }

    pub fn result(&self) -> Value {
        self.results[0]
    }

    /// The op on other operands, in the order and number of its own.
    pub fn spec_on(&self, operands: &[Value]) -> OpSpec<Graph> {
        let positional = self.op.positional().len();
        let mut spec = OpSpec::new(self.op.code, &operands[..positional]);
        let mut at = positional;
        let rows = tessera_ir::Opcode::<Graph>::info(self.op.code).groups;
        for (row, &len) in rows.iter().zip(&self.op.group_lens) {
            spec = spec.group(row.name, &operands[at..at + len]);
            at += len;
        }
        spec.attrs = self.op.attrs.clone();
        spec
    }
}

/// A dimension as an expression; an extent that is not known cannot be written into an op.
pub fn expr(dim: &Dim, loc: &Loc) -> Result<DimExpr, Diagnostic> {
    expr_of(dim).ok_or_else(|| {
        Diagnostic::new(
            Code::E_SHAPE_MISMATCH,
            "expected extents that are numbers or symbols in a derivative, got `?`",
        )
        .at(loc.clone())
        .help("name the extent with a symbol in the types of the parameters")
    })
}

pub fn ints(list: impl IntoIterator<Item = i64>) -> Attr {
    Attr::ints(list)
}

/// The type with another shape.
pub fn reshaped(ty: &Type, dims: Vec<Dim>) -> Type {
    tensor(dims, elem(ty))
}

/// Whether some extent is known to be 0.
pub fn is_empty(ty: &Type) -> bool {
    ty.shape().iter().any(|d| d.as_static() == Some(0))
}

impl Scalars for Emit {
    fn ew(&mut self, f: ScalarFn, args: &[Value]) -> Out {
        let loc = self.loc.clone();
        self.b.ew(f, args, &loc)
    }

    fn like(&mut self, value: f64, v: Value) -> Out {
        let ty = self.ty(v);
        self.splat(value, &ty)
    }

    fn select(&mut self, c: Value, a: Value, b: Value) -> Out {
        let loc = self.loc.clone();
        self.b.select(c, a, b, &loc)
    }

    fn splat_of(&self, v: Value) -> Option<f64> {
        let op = self.b.func().def(v)?;
        match (op.code, op.attr("value")?) {
            (GraphOp::Const, Attr::Float(x)) => Some(*x),
            (GraphOp::Const, Attr::Int(x)) => Some(*x as f64),
            _ => None,
        }
    }
}

impl Emit {
    pub fn new(name: &str) -> Self {
        Self { b: GraphBuilder::new(name), loc: Loc::unknown() }
    }

    pub fn ty(&self, v: Value) -> Type {
        self.b.ty(v).clone()
    }

    pub fn shape(&self, v: Value) -> Vec<Dim> {
        self.b.ty(v).shape().to_vec()
    }

    pub fn rank(&self, v: Value) -> usize {
        self.b.ty(v).rank()
    }

    pub fn dtype(&self, v: Value) -> DType {
        self.b.ty(v).dtype()
    }

    pub fn refuse<T>(&self, why: impl Into<String>, help: &str) -> Result<T, Diagnostic> {
        Err(Diagnostic::new(Code::E_UNSUPPORTED, why).at(self.loc.clone()).help(help))
    }

    pub fn op(&mut self, spec: OpSpec<Graph>) -> Out {
        let loc = self.loc.clone();
        self.b.value(spec, loc)
    }

    pub fn ops(&mut self, spec: OpSpec<Graph>) -> Result<Vec<Value>, Diagnostic> {
        let loc = self.loc.clone();
        self.b.push(spec, loc)
    }

    pub fn splat(&mut self, value: f64, ty: &Type) -> Out {
        let loc = self.loc.clone();
        let plain = tensor(ty.shape().to_vec(), elem(ty));
        self.b.splat(value, &plain, &loc)
    }

    pub fn zeros(&mut self, ty: &Type) -> Out {
        self.splat(0.0, ty)
    }

    /// A float constant of one number under another shape; nothing where it is none.
    fn splat_shaped(&mut self, v: Value, dims: &[Dim]) -> Outs1 {
        let ty = self.ty(v);
        match self.splat_of(v) {
            Some(value) if ty.dtype().is_float() => {
                Ok(Some(self.splat(value, &reshaped(&ty, dims.to_vec()))?))
            }
            _ => Ok(None),
        }
    }

    /// Adds values of one type, in the carrier where the dtype is stored narrower, and stores once.
    pub fn add_all(&mut self, all: &[Value]) -> Out {
        let ty = self.ty(all[0]);
        let carrier = ty.dtype().carrier();
        if all.len() == 1 {
            return Ok(all[0]);
        }
        let mut sum = self.cast_to(all[0], carrier)?;
        for &v in &all[1..] {
            let v = self.cast_to(v, carrier)?;
            sum = self.add(sum, v)?;
        }
        self.retype(sum, &ty)
    }

    pub fn cast_to(&mut self, v: Value, dtype: DType) -> Out {
        let loc = self.loc.clone();
        self.b.cast(v, dtype, &loc)
    }

    /// A conversion to exactly this element type; nothing where it is that already.
    pub fn retype(&mut self, v: Value, ty: &Type) -> Out {
        if elem(self.b.ty(v)) == elem(ty) {
            return Ok(v);
        }
        let to = tensor(self.shape(v), elem(ty));
        self.op(OpSpec::new(GraphOp::Cast, &[v]).result(to))
    }

    pub fn broadcast(&mut self, v: Value, dims: &[Dim], axes: &[i64]) -> Out {
        let whole: Vec<i64> = (0..dims.len() as i64).collect();
        if axes == whole && same_shape(self.b.ty(v).shape(), dims) {
            return Ok(v);
        }
        if let Some(constant) = self.splat_shaped(v, dims)? {
            return Ok(constant);
        }
        let loc = self.loc.clone();
        self.b.broadcast(v, dims, axes, &loc)
    }

    pub fn reshape(&mut self, v: Value, dims: &[Dim]) -> Out {
        if self.b.ty(v).shape() == dims {
            return Ok(v);
        }
        if let Some(constant) = self.splat_shaped(v, dims)? {
            return Ok(constant);
        }
        let loc = self.loc.clone();
        self.b.reshape(v, dims, &loc)
    }

    pub fn transpose(&mut self, v: Value, perm: &[i64]) -> Out {
        if perm.is_sorted() {
            return Ok(v);
        }
        let have = self.shape(v);
        let dims: Vec<Dim> = perm.iter().map(|&p| have[p as usize].clone()).collect();
        if let Some(constant) = self.splat_shaped(v, &dims)? {
            return Ok(constant);
        }
        let loc = self.loc.clone();
        self.b.transpose(v, perm, &loc)
    }

    /// Moves an axis; the others keep their order.
    pub fn move_axis(&mut self, v: Value, from: usize, to: usize) -> Out {
        let mut perm: Vec<i64> = (0..self.rank(v) as i64).collect();
        let axis = perm.remove(from);
        perm.insert(to, axis);
        self.transpose(v, &perm)
    }

    pub fn reverse(&mut self, v: Value, axes: &[i64]) -> Out {
        if axes.is_empty() {
            return Ok(v);
        }
        let loc = self.loc.clone();
        self.b.reverse(v, axes, &loc)
    }

    pub fn reduce(&mut self, op: ReduceOp, v: Value, axes: &[i64]) -> Out {
        let loc = self.loc.clone();
        self.b.reduce(op, v, axes, &loc)
    }

    pub fn sum(&mut self, v: Value, axes: &[i64]) -> Out {
        self.reduce(ReduceOp::Sum, v, axes)
    }

    pub fn sum_whole(&mut self, v: Value) -> Out {
        let axes: Vec<i64> = (0..self.rank(v) as i64).collect();
        self.sum(v, &axes)
    }

    pub fn iota(&mut self, ty: &Type, axis: usize) -> Out {
        let loc = self.loc.clone();
        self.b.iota(ty, axis as i64, &loc)
    }

    pub fn slice(&mut self, v: Value, start: &[Dim], limit: &[Dim], stride: &[i64]) -> Out {
        let loc = self.loc.clone();
        let (start, limit) = (self.exprs(start)?, self.exprs(limit)?);
        self.b.slice(v, &start, &limit, stride, &loc)
    }

    /// Zeros around and between the elements.
    pub fn pad_zeros(&mut self, v: Value, lo: &[Dim], hi: &[Dim], interior: &[i64]) -> Out {
        let zero = |d: &Dim| d.as_static() == Some(0);
        if lo.iter().all(zero) && hi.iter().all(zero) && interior.iter().all(|&i| i == 0) {
            return Ok(v);
        }
        let fill = tensor(Vec::new(), NumType::plain(self.dtype(v)));
        let fill = self.zeros(&fill)?;
        self.pad(v, fill, lo, hi, interior)
    }

    pub fn pad(&mut self, v: Value, fill: Value, lo: &[Dim], hi: &[Dim], interior: &[i64]) -> Out {
        let loc = self.loc.clone();
        let (lo, hi) = (self.exprs(lo)?, self.exprs(hi)?);
        self.b.pad((v, fill), &lo, &hi, interior, &loc)
    }

    pub fn concat(&mut self, parts: &[Value], axis: i64) -> Out {
        let loc = self.loc.clone();
        match parts {
            [one] => Ok(*one),
            _ => self.b.concat(parts, axis, &loc),
        }
    }

    pub fn exprs(&self, dims: &[Dim]) -> Result<Vec<DimExpr>, Diagnostic> {
        dims.iter().map(|d| expr(d, &self.loc)).collect()
    }

    /// The run-time value of an extent, spread over a shape.
    pub fn extent(&mut self, dim: &Dim, dims: &[Dim]) -> Out {
        let loc = self.loc.clone();
        let whole = tensor(dims.to_vec(), NumType::plain(DType::I64));
        match dim.as_static() {
            Some(n) => {
                let spec = OpSpec::new(GraphOp::Const, &[]).attr("value", Attr::Int(n));
                self.op(spec.result(whole))
            }
            None => {
                let v = self.b.extent(expr(dim, &loc)?, &loc)?;
                self.broadcast(v, dims, &[])
            }
        }
    }

    /// `x[…, at[…, i], …]` along the last axis: both have the same shape but for that axis; an index
    /// outside reads zero.
    pub fn take_last(&mut self, x: Value, at: Value) -> Out {
        let batch = self.rank(x) as i64 - 1;
        let at = self.column(at)?;
        let spec = OpSpec::new(GraphOp::Gather, &[x, at])
            .attr("axes", ints([batch]))
            .attr("batch", Attr::Int(batch))
            .attr("oob", Attr::word("fill"));
        self.op(spec)
    }

    /// The reverse of [`Emit::take_last`]: `updates` are summed into zeros of the shape of `like`.
    pub fn put_last(&mut self, like: &Type, at: Value, updates: Value, unique: bool) -> Out {
        let batch = like.rank() as i64 - 1;
        let at = self.column(at)?;
        let zeros = self.zeros(like)?;
        let mut spec = OpSpec::new(GraphOp::Scatter, &[zeros, at, updates])
            .attr("op", Attr::word("sum"))
            .attr("axes", ints([batch]))
            .attr("batch", Attr::Int(batch))
            .attr("oob", Attr::word("drop"));
        if unique {
            spec = spec.attr("unique", Attr::Bool(true));
        }
        self.op(spec)
    }

    /// One more axis of extent 1 at the end.
    fn column(&mut self, v: Value) -> Out {
        let mut dims = self.shape(v);
        dims.push(Dim::Static(1));
        self.reshape(v, &dims)
    }
}

pub type Outs1 = Result<Option<Value>, Diagnostic>;
