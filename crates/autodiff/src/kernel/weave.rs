//! A Tile IR function that is built from another: the map from old values to new ones, and the few
//! ops that derivatives use.

use crate::emit::Out;
use crate::scalar::Scalars;
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_ir::{
    Attr, BlockId, Builder, Dim, Effects, OpId, OpSpec, Opcode, Privilege, Rewriter, Type, Value,
};
use tessera_numerics::{DType, NumType, ReduceOp, ScalarFn};
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp};

/// A value as a cotangent or tangent of it: narrow floats are added up in what they are computed in.
pub fn wide(ty: &Type) -> Type {
    ty.with_dtype(ty.dtype().carrier())
}

/// Whether values of the type can be active: floats in registers.
pub fn moves(ty: &Type) -> bool {
    ty.is_value() && ty.dtype().is_float()
}

pub struct Weave<'s> {
    pub old: &'s TileFunc,
    pub rw: Rewriter<'s, Tile>,
    /// Where ops go.
    pub block: BlockId,
    pub loc: Loc,
}

impl<'s> Weave<'s> {
    /// A function with the parameters of `old`, which it may only read.
    pub fn reading(old: &'s TileFunc, name: &str) -> Self {
        let mut rw = Rewriter::new(old);
        rw.new.name = name.to_string();
        let block = rw.new.body;
        for p in rw.new.params().to_vec() {
            if let Type::View { privilege, .. } = &mut rw.new.values[p].ty {
                *privilege = Privilege::Read;
            }
        }
        Self { old, rw, block, loc: old.loc.clone() }
    }

    pub fn b(&mut self) -> Builder<'_, Tile> {
        Builder::at_end(&mut self.rw.new, self.block, self.loc.clone())
    }

    pub fn ty(&self, v: Value) -> &Type {
        self.rw.new.ty(v)
    }

    pub fn get(&self, old: Value) -> Value {
        self.rw.get(old)
    }

    pub fn get_all(&self, old: &[Value]) -> Vec<Value> {
        old.iter().map(|&v| self.rw.get(v)).collect()
    }

    /// One more parameter in memory.
    pub fn param(&mut self, name: &str, dims: Vec<Dim>, dtype: DType, how: Privilege) -> Value {
        let ty = Type::View { dims, elem: NumType::plain(dtype), privilege: how };
        let body = self.rw.new.body;
        self.rw.new.add_arg(body, ty, Some(name))
    }

    pub fn op(&mut self, spec: OpSpec<Tile>) -> Result<OpId, Diagnostic> {
        let loc = self.loc.clone();
        self.b().op(spec).map_err(|why| internal(why, &loc))
    }

    pub fn value(&mut self, spec: OpSpec<Tile>) -> Out {
        let id = self.op(spec)?;
        Ok(self.rw.new.ops[id].result())
    }

    pub fn zeros(&mut self, ty: &Type) -> Value {
        self.b().constant(ty.clone(), Attr::Float(0.0))
    }

    pub fn cast(&mut self, v: Value, dtype: DType) -> Value {
        self.b().cast(v, dtype)
    }

    /// In the dtype that it is added up in.
    pub fn widen(&mut self, v: Value) -> Value {
        let dtype = self.ty(v).dtype().carrier();
        self.cast(v, dtype)
    }

    pub fn reshape(&mut self, v: Value, ty: &Type) -> Out {
        let ty = Type::value(ty.shape().to_vec(), self.ty(v).dtype());
        if *self.ty(v) == ty {
            return Ok(v);
        }
        self.value(OpSpec::new(TileOp::Reshape, &[v]).result(ty))
    }

    pub fn transpose(&mut self, v: Value, perm: &[i64]) -> Out {
        if perm.is_sorted() {
            return Ok(v);
        }
        self.value(OpSpec::new(TileOp::Transpose, &[v]).attr("perm", Attr::ints(perm.to_vec())))
    }

    pub fn broadcast(&mut self, v: Value, like: &Type) -> Value {
        let shape = like.shape().to_vec();
        self.b().broadcast(v, shape)
    }

    pub fn sum(&mut self, v: Value, axis: usize) -> Value {
        self.b().reduce(v, ReduceOp::Sum, axis)
    }

    /// What was reduced along an axis, at every element it came from.
    pub fn spread(&mut self, v: Value, axis: usize, like: &Type) -> Value {
        let column = if like.rank() == 1 { v } else { self.b().expand(v, axis) };
        self.broadcast(column, like)
    }

    /// The transpose of a broadcast: sums over the broadcast axes.
    pub fn gather_up(&mut self, v: Value, to: &Type) -> Out {
        let from = self.ty(v).clone();
        let mut out = v;
        for axis in (0..from.rank()).rev() {
            let stretched = to.rank() == 0 || to.shape()[axis] != from.shape()[axis];
            if stretched {
                out = self.sum(out, axis);
            }
        }
        if to.rank() == 0 {
            return Ok(out);
        }
        if self.ty(out).rank() == 0 {
            return Ok(self.broadcast(out, to));
        }
        self.reshape(out, to)
    }

    /// `other` where the condition does not hold.
    pub fn pick(&mut self, c: Value, a: Value, b: Value) -> Value {
        let shape = self.ty(a).shape().to_vec();
        let c = if self.ty(c).rank() == 0 { c } else { self.b().broadcast(c, shape) };
        self.b().select(c, a, b)
    }

    /// Copies what a block computes, without what it does to memory and to the host.
    pub fn again(&mut self, block: BlockId) {
        let into = self.block;
        for &id in &self.old.blocks[block].ops.clone() {
            if !self.old.ops[id].is_terminator() {
                compute(&mut self.rw, id, into);
            }
        }
    }
}

/// Copies one op where it only computes; regions lose what they do.
pub fn compute(rw: &mut Rewriter<'_, Tile>, id: OpId, into: BlockId) {
    let op = &rw.old.ops[id];
    let keep = match op.code.info().effects {
        Effects::Pure | Effects::Read | Effects::Control | Effects::Terminator => true,
        Effects::Write
        | Effects::ReadWrite
        | Effects::Sync
        | Effects::Collective
        | Effects::Host => false,
    };
    if keep {
        rw.copy_op_with(id, into, &mut |rw, inner, block| compute(rw, inner, block));
    }
}

impl Scalars for Weave<'_> {
    fn ew(&mut self, f: ScalarFn, args: &[Value]) -> Out {
        Ok(self.b().ew(f, args))
    }

    fn like(&mut self, value: f64, v: Value) -> Out {
        let ty = self.ty(v).clone();
        Ok(self.b().constant(ty, Attr::Float(value)))
    }

    fn select(&mut self, c: Value, a: Value, b: Value) -> Out {
        Ok(self.b().select(c, a, b))
    }

    fn splat_of(&self, v: Value) -> Option<f64> {
        splat(&self.rw.new, v)
    }
}

/// The number that every element of a constant is.
pub fn splat(func: &TileFunc, v: Value) -> Option<f64> {
    let op = func.def(v)?;
    match (op.code, op.attr("value")) {
        (TileOp::Const, Some(Attr::Float(x))) => Some(*x),
        (TileOp::Const, Some(Attr::Int(x))) => Some(*x as f64),
        (TileOp::Broadcast, _) => splat(func, op.operands[0]),
        _ => None,
    }
}

/// A fault of the rules, not of the user.
pub fn internal(why: impl std::fmt::Display, loc: &Loc) -> Diagnostic {
    Diagnostic::new(Code::E_UNKNOWN, format!("the derivative of a kernel: {why}")).at(loc.clone())
}
