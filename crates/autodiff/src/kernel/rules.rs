//! The reverse rules of the ops that compute.

use super::reverse::Reverse;
use super::weave::wide;
use crate::scalar::{Factor, Scalars};
use tessera_diag::Diagnostic;
use tessera_ir::{Attr, OpId, OpSpec, Value};
use tessera_numerics::{DType, ReduceOp, ScalarFn};
use tessera_tile::{TileBuild, TileOp};

/// The dtype of MMAs of an operand and a cotangent: that of the operand, where it holds a cotangent
/// accurately enough. All 8-bit floats are exact in bf16.
fn factor_dtype(operand: DType) -> DType {
    match operand {
        DType::Fp8E4M3 | DType::Fp8E5M2 => DType::BF16,
        other => other,
    }
}

impl Reverse<'_, '_> {
    /// Hands the cotangent of a result on to the operands.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub fn rule(&mut self, id: OpId, ct: Value) -> Result<(), Diagnostic> {
        use TileOp::*;
        let op = &self.study.func.ops[id];
        let ty = |v: Value| self.study.func.ty(v).clone();
        let operand = |i: usize| op.operands[i];
        match op.code {
            Ew(f) => self.elementwise(id, f, ct)?,
            Select => {
                let zero = self.w.like(0.0, ct)?;
                let c = self.w.get(operand(0));
                if self.study.active[operand(1)] {
                    let part = self.w.pick(c, ct, zero);
                    self.give(operand(1), part);
                }
                if self.study.active[operand(2)] {
                    let part = self.w.pick(c, zero, ct);
                    self.give(operand(2), part);
                }
            }
            Cast => {
                let part = self.w.cast(ct, ty(operand(0)).dtype().carrier());
                self.give(operand(0), part);
            }
            Reshape | Expand => {
                let part = self.w.reshape(ct, &ty(operand(0)))?;
                self.give(operand(0), part);
            }
            Transpose => {
                let perm = op.attr("perm").and_then(Attr::as_ints).unwrap_or_default();
                let mut back = vec![0; perm.len()];
                for (i, &p) in perm.iter().enumerate() {
                    back[p as usize] = i as i64;
                }
                let part = self.w.transpose(ct, &back)?;
                self.give(operand(0), part);
            }
            Broadcast => {
                let part = self.w.gather_up(ct, &ty(operand(0)))?;
                self.give(operand(0), part);
            }
            Reduce => self.reduced(id, ct)?,
            Scan => {
                // The sum of what comes after, as the whole less what came before.
                let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0);
                let exclusive = op.attr("exclusive").and_then(Attr::as_bool).unwrap_or(false);
                let whole = self.w.sum(ct, axis as usize);
                let whole = self.w.spread(whole, axis as usize, &wide(&ty(operand(0))));
                let spec = OpSpec::new(Scan, &[ct])
                    .attr("op", Attr::word("sum"))
                    .attr("axis", Attr::Int(axis))
                    .attr("exclusive", Attr::Bool(!exclusive));
                let before = self.w.value(spec)?;
                let part = self.w.sub(whole, before)?;
                self.give(operand(0), part);
            }
            Mma => self.product(id, ct)?,
            Slice => self.sliced(id, ct)?,
            Concat => self.concatenated(id, ct)?,
            Sort => self.sorted(id, ct)?,
            Take => self.taken_by_position(id, ct)?,
            // The others have no derivative by nature, or were refused.
            For | If | While | Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId
            | LocalId | GroupSize | WarpSize | Dim | Origin | Const | Iota | Bitcast | Load
            | Store | Gather | Scatter | Accumulate | BufAlloc | CopyAsync | Barrier | Atomic
            | CopyCommit | CopyWait | GroupReduce | GroupScan | GroupBroadcast | GroupShuffle
            | Philox | Print | Assert | ArgReduce | ReduceBy | ScanBy | Histogram | Owned | Asm
            | AsmEffect => {}
        }
        Ok(())
    }

    fn elementwise(&mut self, id: OpId, f: ScalarFn, ct: Value) -> Result<(), Diagnostic> {
        let op = &self.study.func.ops[id];
        let x = self.w.get_all(&op.operands);
        let r = self.w.get(op.result());
        let wild = self.ragged
            && (crate::scalar::is_singular(f) || op.operands.iter().any(|&v| self.study.wild[v]));
        for (by, &v) in op.operands.iter().enumerate() {
            if !self.study.active[v] {
                continue;
            }
            let factor = self.w.factor(f, &x, r, by)?;
            let Some(mut part) = self.w.along(ct, factor)? else { continue };
            // Outside the arrays the cotangent is zero, and so is its part, whatever the
            // derivative is there.
            let number = matches!(factor, Factor::Times(_) | Factor::Over(_));
            if wild && number {
                let zero = self.w.like(0.0, ct)?;
                let none = self.w.ew(ScalarFn::Eq, &[ct, zero])?;
                part = self.w.select(none, zero, part)?;
            }
            self.give(v, part);
        }
        Ok(())
    }

    fn reduced(&mut self, id: OpId, ct: Value) -> Result<(), Diagnostic> {
        let op = &self.study.func.ops[id];
        let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
        let like = wide(self.study.func.ty(op.operands[0]));
        let back = self.w.spread(ct, axis, &like);
        let part = match op.attr("op").and_then(Attr::as_word).and_then(ReduceOp::from_name) {
            Some(ReduceOp::Sum) => back,
            Some(ReduceOp::Max | ReduceOp::Min) => {
                let share = self.share(id, axis)?;
                self.w.mul(back, share)?
            }
            _ => return Ok(()),
        };
        self.give(op.operands[0], part);
        Ok(())
    }

    /// The share of each element in the cotangent of the maximum: elements equal to it share it
    /// evenly.
    fn share(&mut self, id: OpId, axis: usize) -> Result<Value, Diagnostic> {
        let op = &self.study.func.ops[id];
        let (x, best) = (self.w.get(op.operands[0]), self.w.get(op.result()));
        share(&mut self.w, x, best, axis)
    }

    fn product(&mut self, id: OpId, ct: Value) -> Result<(), Diagnostic> {
        let op = &self.study.func.ops[id];
        let (a, b, acc) = (op.operands[0], op.operands[1], op.operands[2]);
        self.give(acc, ct);
        let class = op.attr("class").cloned();
        for (left, v, other) in [(true, a, b), (false, b, a)] {
            if !self.study.active[v] {
                continue;
            }
            let dtype = factor_dtype(self.study.func.ty(other).dtype());
            let other = self.w.get(other);
            let other = self.w.cast(other, dtype);
            let turned = self.w.transpose(other, &[1, 0])?;
            let ct = self.w.cast(ct, dtype);
            let zero = self.w.zeros(&wide(self.study.func.ty(v)));
            let factors = if left { [ct, turned, zero] } else { [turned, ct, zero] };
            let mut spec = OpSpec::new(TileOp::Mma, &factors);
            if let Some(class) = class.clone() {
                spec = spec.attr("class", class);
            }
            let part = self.w.value(spec)?;
            self.give(v, part);
        }
        Ok(())
    }
}

/// 1 shared by the elements of `x` along an axis that are equal to `best`, else 0.
pub fn share(
    w: &mut super::weave::Weave<'_>,
    x: Value,
    best: Value,
    axis: usize,
) -> Result<Value, Diagnostic> {
    let like = w.ty(x).clone();
    let best = w.spread(best, axis, &like);
    let equal = w.b().ew(ScalarFn::Eq, &[x, best]);
    let (one, zero) = (w.like(1.0, x)?, w.like(0.0, x)?);
    let equal = w.select(equal, one, zero)?;
    let count = w.sum(equal, axis);
    let count = w.spread(count, axis, &like);
    w.ew(ScalarFn::Div, &[equal, count])
}
