//! Nests that read arrays which are contiguous along another axis than the vectors: a transpose, or
//! a sum with one.
//!
//! Element by element every such read is a gather. Here squares are loaded along the contiguous
//! axis and transposed in registers; the rest of the nest uses the transposed vectors.

use super::loops::Chunk;
use super::nest::{Map, Nest, Node};
use super::{Group, Repr};
use crate::contract::square;
use tessera_ir::{Attr, OpId};
use tessera_numerics::DType;
use tessera_tile::TileOp;

/// Nests that compute more have other things to wait for, and are emitted three times here.
const LIGHT: u32 = 40;

/// What is transposed: the contiguous axis, and the elements.
pub struct Squares {
    axis: usize,
    nodes: Vec<Node>,
}

impl Group<'_> {
    /// What a nest reads across its vectors, where there are whole squares of it. The axis becomes
    /// the second innermost.
    pub fn squares(&self, n: &mut Nest, roots: &[Node]) -> Option<Squares> {
        let lane = n.lane.filter(|l| n.order.last() == Some(l))?;
        let whole = |axis: usize| n.dims[axis] >= i64::from(self.lanes);
        let plain = n.inside && self.trusted.is_none() && self.lanes.is_power_of_two();
        let weight = roots.iter().map(|(v, _)| self.plan.weight(*v)).fold(0, u32::saturating_add);
        if !plain || !whole(lane) || n.order.len() < 2 || weight > LIGHT {
            return None;
        }
        let mut nodes = self.reached(roots).into_iter().filter_map(|node| {
            let axis = self.across(&node, lane).filter(|&axis| whole(axis))?;
            Some((axis, node))
        });
        let (axis, first) = nodes.next()?;
        let rest = nodes.filter(|(other, _)| *other == axis).map(|(_, node)| node);
        let nodes = [first].into_iter().chain(rest).collect();
        n.order.retain(|&a| a != axis);
        n.order.insert(n.order.len() - 1, axis);
        Some(Squares { axis, nodes })
    }

    /// The axis of the nest that neighbours in memory follow, where that is not the vector axis and the vectors follow
    /// another of the memory's.
    fn across(&self, (v, map): &Node, lane: usize) -> Option<usize> {
        let dtype = self.func.ty(*v).dtype().carrier();
        if !matches!(dtype, DType::F32 | DType::I32 | DType::U32) {
            return None;
        }
        let (unit, follows): (Vec<bool>, Map) = match self.repr(*v) {
            Repr::Buffer(b) => (self.buffer_mem(&b).unit, map.clone()),
            Repr::Expression => self.axes_of_load(self.func.def_id(*v)?, map)?,
            Repr::Scalar(_) | Repr::Memory(_) => return None,
        };
        let lane = Some(lane as u8);
        let near = |m: &Option<u8>| unit.iter().zip(&follows).any(|(&u, f)| u && f == m);
        if !follows.contains(&lane) || near(&lane) {
            return None;
        }
        let axis = unit.iter().zip(&follows).find_map(|(&u, f)| f.filter(|_| u))?;
        Some(usize::from(axis))
    }

    /// Of a load in steps of one: which axes of the memory have neighbours, and what they follow.
    fn axes_of_load(&self, id: OpId, map: &Map) -> Option<(Vec<bool>, Map)> {
        let op = &self.func.ops[id];
        if op.code != TileOp::Load || op.attr("step").is_some() {
            return None;
        }
        let extent = op.attr("extent").and_then(Attr::as_ints)?;
        let mut axes = map.iter();
        let follows = extent.iter().map(|&e| if e == 0 { None } else { axes.next().copied()? });
        Some((self.memory(op.operands[0]).unit, follows.collect()))
    }

    /// The two innermost loops of a nest.
    pub fn in_squares(
        &mut self,
        n: &mut Nest,
        roots: &[Node],
        squares: &Squares,
        leaf: &mut dyn FnMut(&mut Self, &mut Nest),
    ) {
        let (ir, u, depth) = (self.ir, squares.axis, n.order.len() - 2);
        let Some(l) = n.lane else { return };
        let side = i64::from(self.lanes);
        let (rows, cols) = (n.dims[u] / side * side, n.dims[l] / side * side);
        let row = 4 * side;
        let places: Vec<_> = squares.nodes.iter().map(|_| self.room((side * row) as u64)).collect();
        let rest = n.dims[l] - cols;
        ir.for_range(ir.c64(0), ir.c64(rows), side, &[], |ir, top, _| {
            ir.for_range(ir.c64(0), ir.c64(cols), side, &[], |ir, left, _| {
                let mut types = Vec::new();
                for (node, &place) in squares.nodes.iter().zip(&places) {
                    (n.lane, n.lanes, n.index[u]) = (Some(u), self.lanes, Some(top));
                    let mut vectors = Vec::new();
                    for i in 0..side {
                        n.index[l] = Some(ir.add_const(left, i));
                        n.open();
                        let x = self.eval(n, node);
                        vectors.push(self.widen(n, x));
                        n.close();
                    }
                    types.push(ir.ty(vectors[0]));
                    for (i, x) in square(ir, vectors).into_iter().enumerate() {
                        ir.store(x, ir.offset_const(place, row * i as i64), 64);
                    }
                    (n.lane, n.index[l]) = (Some(l), Some(left));
                }
                ir.for_range(ir.c64(0), ir.c64(side), 1, &[], |ir, i, _| {
                    (n.lanes, n.index[u]) = (self.lanes, Some(ir.add(top, i)));
                    n.open();
                    for ((node, &place), &ty) in squares.nodes.iter().zip(&places).zip(&types) {
                        let x = ir.load(ty, ir.offset(place, ir.mul_const(i, row)), 64);
                        n.tell(node.clone(), x);
                    }
                    leaf(self, n);
                    n.close();
                    Vec::new()
                });
                n.lanes = 1;
                Vec::new()
            });
            if rest > 0 {
                let end = ir.add_const(top, side);
                ir.for_range(top, end, 1, &[], |_, at, _| {
                    n.index[u] = Some(at);
                    n.open();
                    self.hoist(n, roots, depth + 1);
                    let lanes = (rest as u32).next_power_of_two();
                    self.vectors(
                        n,
                        roots,
                        depth + 1,
                        Chunk { first: cols, count: rest, lanes },
                        leaf,
                    );
                    n.close();
                    Vec::new()
                });
            }
            Vec::new()
        });
        if rows < n.dims[u] {
            ir.for_range(ir.c64(rows), ir.c64(n.dims[u]), 1, &[], |_, at, _| {
                n.index[u] = Some(at);
                n.open();
                self.loops(n, roots, depth + 1, leaf);
                n.close();
                Vec::new()
            });
        }
        (n.lanes, n.tail) = (1, None);
    }
}
