//! Interleaves several vectors of a nest (instruction-level parallelism).
//!
//! A math function is a chain of about thirty operations, each of which waits for the one before.
//! The processor's window holds the operations of three or four vectors, so half of the time none
//! of them is ready. Vectors of several registers are computed step by step: the operations of one
//! step are independent. Results are the same, since lanes are independent.

use super::group_plan::same_but_ones;
use super::loops::Chunk;
use super::nest::{Nest, Node};
use super::{Group, Repr};
use tessera_ir::OpId;
use tessera_numerics::{DType, Real, ScalarFn, expansion, quick_expansion};
use tessera_tile::TileOp;

/// Registers of a vector; more would not leave room for constants.
const BESIDE: i64 = 4;
/// The same for functions with several live intermediates, as the strict ones have.
const BESIDE_LARGE: i64 = 2;
/// Chains shorter than this are hidden by the processor.
const LONG: u32 = 20;

impl Group<'_> {
    /// The vectors of an axis, those of the first chunk as wide as it pays.
    pub fn beside_each_other(&self, n: &Nest, roots: &[Node], chunks: Vec<Chunk>) -> Vec<Chunk> {
        if self.gains(n, roots) { self.wider(roots, chunks) } else { chunks }
    }

    /// The vectors of columns that are combined, several registers wide: more of a row is read while its page and its
    /// lines are at hand, and sums do not wait for each other.
    pub fn columns_together(&self, n: &Nest, roots: &[Node], chunks: Vec<Chunk>) -> Vec<Chunk> {
        let light = self.weight_of(roots) < LONG;
        if light && !roots.is_empty() && self.has_room(n, roots) {
            self.wider(roots, chunks)
        } else {
            chunks
        }
    }

    fn wider(&self, roots: &[Node], chunks: Vec<Chunk>) -> Vec<Chunk> {
        let Some(first) = chunks.first() else { return chunks };
        let wide = self.registers(roots) * first.step();
        let count = first.count / wide * wide;
        if count == 0 {
            return chunks;
        }
        let mut out = vec![Chunk { first: first.first, count, lanes: wide as u32 }];
        if count < first.count {
            let rest = first.count - count;
            out.push(Chunk { first: first.first + count, count: rest, lanes: first.lanes });
        }
        out.extend(chunks.into_iter().skip(1));
        out
    }

    fn registers(&self, roots: &[Node]) -> i64 {
        let large = |f: ScalarFn| match self.s.quick {
            true => expansion(f).is_some() && quick_expansion(f).is_none(),
            false => expansion(f).is_some(),
        };
        let is_large = |(v, _): &Node| match self.func.def(*v).map(|op| op.code) {
            Some(TileOp::Ew(f)) => matches!(self.repr(*v), Repr::Expression) && large(f),
            _ => false,
        };
        if self.reached(roots).iter().any(is_large) { BESIDE_LARGE } else { BESIDE }
    }

    /// Whether the innermost loop computes long chains, and nothing that has no wide form.
    fn gains(&self, n: &Nest, roots: &[Node]) -> bool {
        let innermost = n.lane.is_some() && n.order.last().copied() == n.lane;
        innermost && self.weight_of(roots) >= LONG && self.has_room(n, roots)
    }

    fn weight_of(&self, roots: &[Node]) -> u32 {
        roots.iter().map(|(v, _)| self.plan.weight(*v)).fold(0, u32::saturating_add)
    }

    /// Whether there are registers for wide vectors, and everything has a wide form.
    fn has_room(&self, n: &Nest, roots: &[Node]) -> bool {
        // Masks are made for one register.
        let (room, plain) = (self.isa.registers() >= 32, n.inside && self.trusted.is_none());
        let known = |node: &Node| match (self.repr(node.0), self.func.def_id(node.0)) {
            (Repr::Scalar(_) | Repr::Buffer(_), _) => self.is_narrow(node),
            (Repr::Expression, Some(id)) => self.is_narrow(node) && self.has_wide_form(id),
            _ => false,
        };
        room && plain && self.reached(roots).iter().all(known)
    }

    /// Whether elements take as many bits as a lane has, or one.
    fn is_narrow(&self, (v, map): &Node) -> bool {
        let dtype = self.func.ty(*v).dtype();
        // One element for all is a scalar of any dtype: positions are such.
        map.iter().all(Option::is_none) || matches!(dtype, DType::F32 | DType::Bool)
    }

    fn has_wide_form(&self, id: OpId) -> bool {
        let func = self.func;
        let op = &func.ops[id];
        match op.code {
            TileOp::Const | TileOp::Select | TileOp::Broadcast | TileOp::Expand => true,
            TileOp::Reshape => same_but_ones(func.ty(op.operands[0]), func.ty(op.result())),
            TileOp::Load => {
                let mem = self.memory(op.operands[0]);
                mem.dtype == DType::F32 && mem.unit.last() == Some(&true)
            }
            // Remainders are calls.
            TileOp::Ew(ScalarFn::FloorDiv | ScalarFn::Mod) => false,
            TileOp::Ew(f) => f.real().is_none_or(has_wide_code),
            _ => false,
        }
    }
}

/// Real functions whose code takes vectors of several registers. The others are calls, or code for
/// one register.
fn has_wide_code(f: Real) -> bool {
    use Real::{Atan, Erf, Exp, Exp2, Expm1, Log, Log1p, Log2, Log10, Rsqrt, Sigmoid, Tanh};
    let logarithm = matches!(f, Log | Log2 | Log10 | Log1p);
    logarithm || matches!(f, Rsqrt | Exp | Exp2 | Expm1 | Atan | Tanh | Sigmoid | Erf)
}
