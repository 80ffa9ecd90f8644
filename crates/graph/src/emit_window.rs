//! Where the elements are that `window_argreduce` chose: indices that `gather` and `scatter` take.
//! With them the derivative of a pooling is an indexed read one way and an indexed sum the other.

use crate::GraphBuilder;
use crate::rule::Refusal;
use tessera_diag::{Diagnostic, Loc};
use tessera_ir::{Dim, DimExpr, Value};
use tessera_numerics::{DType, ScalarFn};

/// How windows move, one entry for each axis, as the attributes of the window ops say it.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    pub window: Vec<i64>,
    pub strides: Vec<i64>,
    pub dilate: Vec<i64>,
    pub lo: Vec<DimExpr>,
}

impl GraphBuilder {
    /// `chosen` holds a position in each window. The result has one more axis, which holds the index
    /// along each axis of the array: `axes = [0, 1, …]`. Positions in the padding are outside, so that
    /// a gather fills them and a scatter drops them.
    pub fn window_indices(
        &mut self,
        chosen: Value,
        windows: &Windows,
        loc: &Loc,
    ) -> Result<Value, Diagnostic> {
        let ty = self.ty(chosen).clone();
        let dims = ty.shape().to_vec();
        let n = dims.len();
        let lists =
            [windows.window.len(), windows.strides.len(), windows.dilate.len(), windows.lo.len()];
        if n == 0 || ty.dtype() != DType::I64 || lists.iter().any(|&l| l != n) {
            let why =
                format!("expected positions (i64) and one entry for each of their axes, got {ty}");
            return Err(Refusal::shape(why).at(loc.clone()));
        }
        let mut column = dims.clone();
        column.push(Dim::Static(1));
        let mut parts = Vec::with_capacity(n);
        for axis in 0..n {
            let inner = windows.window[axis + 1..].iter().product::<i64>();
            let number = |b: &mut Self, v: i64| -> Result<Value, Diagnostic> {
                let spec = tessera_ir::OpSpec::new(crate::GraphOp::Const, &[])
                    .attr("value", tessera_ir::Attr::Int(v))
                    .result(ty.clone());
                b.value(spec, loc.clone())
            };
            let [inner, extent, apart, stride] =
                [inner, windows.window[axis], windows.dilate[axis], windows.strides[axis]]
                    .map(|v| number(self, v));
            let within = self.ew(ScalarFn::FloorDiv, &[chosen, inner?], loc)?;
            let within = self.ew(ScalarFn::Mod, &[within, extent?], loc)?;
            let within = self.ew(ScalarFn::Mul, &[within, apart?], loc)?;
            let begin = self.iota(&ty, axis as i64, loc)?;
            let begin = self.ew(ScalarFn::Mul, &[begin, stride?], loc)?;
            let padded = self.extent(windows.lo[axis].clone(), loc)?;
            let padded = self.broadcast(padded, &dims, &[], loc)?;
            let at = self.ew(ScalarFn::Add, &[begin, within], loc)?;
            let at = self.ew(ScalarFn::Sub, &[at, padded], loc)?;
            parts.push(self.reshape(at, &column, loc)?);
        }
        self.concat(&parts, n as i64, loc)
    }
}
