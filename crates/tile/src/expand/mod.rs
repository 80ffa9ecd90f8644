//! Expands the ops on parts of tiles into loads and stores of shared buffers, loops and elementwise
//! ops: `slice`, `concat`, `take`, `reduce_by`, `scan_by`, `sort`, `histogram`. The interpreter runs
//! these ops by themselves; a backend that does not have them asks for this.
//!
//! Input: a verified group kernel without empty tiles. Output: the same results, bit for bit where
//! [`Scans::Ordered`] is given, and none of these ops. Buffers are allocated at the top of the
//! function and used again by later expansions. All accesses are inside the buffers but those of
//! `take` and `histogram`, whose positions are the user's.

mod buffers;
mod combine;
mod lift;
mod sort;

pub(crate) use lift::Lift;

use crate::{Tile, TileBuild, TileFunc, TileOp};
use buffers::Pool;
use tessera_diag::Loc;
use tessera_ir::{Attr, BlockId, Builder, OpId, OpSpec, Rewriter, Type, Value};
use tessera_numerics::{DType, ScalarFn};

/// In which order a scan by a function combines.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Scans {
    /// One element after another, as LANGUAGE 21 defines `deterministic` and `strict`.
    Ordered,
    /// In `log n` steps over all elements: for targets whose threads work on a tile together.
    Parallel,
}

/// Whether the expansion replaces an op.
pub fn is_part(code: TileOp) -> bool {
    matches!(
        code,
        TileOp::Slice
            | TileOp::Concat
            | TileOp::Take
            | TileOp::ReduceBy
            | TileOp::ScanBy
            | TileOp::Sort
            | TileOp::Histogram
    )
}

/// The function without ops on parts of tiles; `None` where it has none.
pub fn expand_parts(func: &TileFunc, scans: Scans) -> Option<TileFunc> {
    expand_parts_but(func, scans, &|_| false)
}

/// The same, where the target has some of these ops itself: those are kept.
pub fn expand_parts_but(
    func: &TileFunc,
    scans: Scans,
    kept: &dyn Fn(OpId) -> bool,
) -> Option<TileFunc> {
    let expands = |id: OpId| is_part(func.ops[id].code) && !kept(id);
    if !func.walk().into_iter().any(expands) {
        return None;
    }
    let mut expander = Expander { rw: Rewriter::new(func), scans, kept, pool: Pool::default() };
    let into = expander.rw.new.body;
    for &id in &func.blocks[func.body].ops {
        expander.op(id, into);
    }
    Some(expander.rw.new)
}

struct Expander<'f> {
    rw: Rewriter<'f, Tile>,
    scans: Scans,
    kept: &'f dyn Fn(OpId) -> bool,
    pool: Pool,
}

/// Where ops are put.
#[derive(Clone)]
struct Place {
    block: BlockId,
    loc: Loc,
}

impl Expander<'_> {
    fn op(&mut self, id: OpId, into: BlockId) {
        let old = self.rw.old;
        let op = &old.ops[id];
        if !is_part(op.code) || (self.kept)(id) {
            let mut inner: Vec<(OpId, BlockId)> = Vec::new();
            self.rw.copy_op_with(id, into, &mut |_, id, block| inner.push((id, block)));
            // Regions are filled after the op is there, in order.
            inner.into_iter().for_each(|(id, block)| self.op(id, block));
            return;
        }
        let at = Place { block: into, loc: op.loc.clone() };
        let operands: Vec<Value> = op.operands.iter().map(|&v| self.rw.get(v)).collect();
        let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
        let flag = |name: &str| op.attr(name).and_then(Attr::as_bool) == Some(true);
        let results = match op.code {
            TileOp::Slice => {
                let start = op.attr("start").and_then(Attr::as_ints).unwrap_or_default();
                let steps = crate::ops::parts::slice_steps(op.attr("step"), start.len());
                let extents = shape(old.ty(op.result()));
                vec![self.slice(&at, operands[0], &start, &steps, &extents)]
            }
            TileOp::Concat => vec![self.concat(&at, &operands, axis)],
            TileOp::Take => vec![self.take(&at, operands[0], operands[1], axis)],
            TileOp::ReduceBy => self.reduce_by(&at, &operands, axis, op.regions[0]),
            TileOp::ScanBy => {
                let reverse = flag("reverse");
                match self.scans {
                    Scans::Ordered => {
                        self.scan_in_order(&at, &operands, axis, reverse, op.regions[0])
                    }
                    Scans::Parallel => {
                        self.scan_in_steps(&at, &operands, axis, reverse, op.regions[0])
                    }
                }
            }
            TileOp::Sort => self.sort(&at, operands[0], axis, flag("descending")),
            _ => vec![self.histogram(&at, operands[0], shape(old.ty(op.result()))[0])],
        };
        for (&from, to) in op.results.iter().zip(results) {
            if self.rw.new.values[to].name.is_none() {
                self.rw.new.values[to].name = old.values[from].name.clone();
            }
            self.rw.set(from, to);
        }
        self.pool.release();
    }

    fn b(&mut self, at: &Place) -> Builder<'_, Tile> {
        self.rw.builder(at.block, at.loc.clone())
    }

    fn ty(&self, v: Value) -> &Type {
        self.rw.new.ty(v)
    }

    fn slice(
        &mut self,
        at: &Place,
        x: Value,
        start: &[i64],
        steps: &[i64],
        extents: &[i64],
    ) -> Value {
        let buffer = self.stored(at, x);
        if steps.iter().all(|&s| s > 0) {
            return self.load(at, buffer, start, steps, extents);
        }
        let positions: Vec<Value> = (0..start.len())
            .map(|d| {
                let counted = self.positions(at, d, extents);
                let by = self.spread(at, steps[d], extents);
                let far = self.b(at).ew(ScalarFn::Mul, &[counted, by]);
                let first = self.spread(at, start[d], extents);
                self.b(at).ew(ScalarFn::Add, &[far, first])
            })
            .collect();
        self.gather(at, buffer, &positions, true)
    }

    fn concat(&mut self, at: &Place, parts: &[Value], axis: usize) -> Value {
        let mut whole = shape(self.ty(parts[0]));
        whole[axis] = parts.iter().map(|&p| shape(self.ty(p))[axis]).sum();
        let dtype = self.ty(parts[0]).dtype();
        let buffer = self.buffer(&whole, dtype);
        let mut start = vec![0; whole.len()];
        for &part in parts {
            self.store(at, buffer, part, &start);
            start[axis] += shape(self.ty(part))[axis];
        }
        self.load(at, buffer, &vec![0; whole.len()], &vec![1; whole.len()], &whole)
    }

    fn take(&mut self, at: &Place, x: Value, index: Value, axis: usize) -> Value {
        let extents = shape(self.ty(index));
        let buffer = self.stored(at, x);
        let positions: Vec<Value> = (0..extents.len())
            .map(|d| if d == axis { index } else { self.positions(at, d, &extents) })
            .collect();
        // Positions of the user's may be outside.
        self.gather(at, buffer, &positions, false)
    }

    fn histogram(&mut self, at: &Place, x: Value, bins: i64) -> Value {
        let buffer = self.buffer(&[bins], DType::I32);
        let zeros = self.b(at).constant(Type::tile(&[bins], DType::I32), Attr::Int(0));
        self.store(at, buffer, zeros, &[0]);
        let extents = shape(self.ty(x));
        let ones = self.b(at).constant(Type::tile(&extents, DType::I32), Attr::Int(1));
        let spec = OpSpec::new(TileOp::Atomic, &[buffer, ones])
            .group("at", &[x])
            .attr("op", Attr::word("add"))
            .attr("scope", Attr::word("block"))
            .result(Type::tile(&extents, DType::I32));
        self.b(at).value(spec).expect("the result type is given");
        self.load(at, buffer, &[0], &[1], &[bins])
    }
}

/// The extents of a tile, which Tile IR has static.
fn shape(ty: &Type) -> Vec<i64> {
    ty.static_shape().unwrap_or_default()
}
