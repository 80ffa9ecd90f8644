//! The loops of a nest: in order, the vector loop last. Loop-invariant values are hoisted.

use super::nest::{Nest, Node};
use super::transpose_squares::Squares;
use super::{Group, Repr};
use crate::llvm::Val;
use std::collections::BTreeSet;

impl Group<'_> {
    /// Opens all loops and calls `leaf` inside the innermost.
    pub fn nested(
        &mut self,
        n: &mut Nest,
        roots: &[Node],
        leaf: &mut dyn FnMut(&mut Self, &mut Nest),
    ) {
        match self.squares(n, roots) {
            Some(squares) => self.before_squares(n, roots, 0, &squares, leaf),
            None => self.loops(n, roots, 0, leaf),
        }
    }

    /// The loops before the two innermost ones, which are run in squares.
    fn before_squares(
        &mut self,
        n: &mut Nest,
        roots: &[Node],
        depth: usize,
        squares: &Squares,
        leaf: &mut dyn FnMut(&mut Self, &mut Nest),
    ) {
        self.hoist(n, roots, depth);
        if depth + 2 == n.order.len() {
            return self.in_squares(n, roots, squares, leaf);
        }
        let (ir, axis) = (self.ir, n.order[depth]);
        ir.for_range(ir.c64(0), ir.c64(n.dims[axis]), 1, &[], |_, at, _| {
            n.index[axis] = Some(at);
            n.open();
            self.before_squares(n, roots, depth + 1, squares, leaf);
            n.close();
            Vec::new()
        });
    }

    /// Opens the loops one after another and calls `leaf` inside the innermost.
    pub fn loops(
        &mut self,
        n: &mut Nest,
        roots: &[Node],
        depth: usize,
        leaf: &mut dyn FnMut(&mut Self, &mut Nest),
    ) {
        self.hoist(n, roots, depth);
        let Some(&axis) = n.order.get(depth) else { return leaf(self, n) };
        let (ir, extent) = (self.ir, n.dims[axis]);
        if n.lane != Some(axis) {
            ir.for_range(ir.c64(0), ir.c64(extent), 1, &[], |_, at, _| {
                n.index[axis] = Some(at);
                n.open();
                self.loops(n, roots, depth + 1, leaf);
                n.close();
                Vec::new()
            });
            return;
        }
        for chunk in self.beside_each_other(n, roots, chunks(extent, self.lanes)) {
            self.vectors(n, roots, depth, chunk, leaf);
        }
    }

    /// A run of vectors along the vector axis, whose loop is at this depth.
    pub fn vectors(
        &mut self,
        n: &mut Nest,
        roots: &[Node],
        depth: usize,
        chunk: Chunk,
        leaf: &mut dyn FnMut(&mut Self, &mut Nest),
    ) {
        let (ir, axis) = (self.ir, n.order[depth]);
        let (lo, hi) = (ir.c64(chunk.first), ir.c64(chunk.first + chunk.count));
        ir.for_range(lo, hi, chunk.step(), &[], |ir, at, _| {
            n.index[axis] = Some(at);
            n.lanes = chunk.lanes;
            n.tail = chunk.tail(ir);
            n.open();
            self.loops(n, roots, depth + 1, leaf);
            n.close();
            Vec::new()
        });
        (n.lanes, n.tail) = (1, None);
    }

    /// Computes what needs no more than the open loops.
    pub fn hoist(&mut self, n: &mut Nest, roots: &[Node], depth: usize) {
        if depth == n.order.len() {
            return;
        }
        let (mut ready, mut seen) = (Vec::new(), BTreeSet::new());
        for root in roots {
            self.collect(n, root, depth, &mut ready, &mut seen);
        }
        for node in ready {
            self.eval(n, &node);
        }
    }

    fn collect(
        &self,
        n: &Nest,
        node: &Node,
        depth: usize,
        ready: &mut Vec<Node>,
        seen: &mut BTreeSet<Node>,
    ) {
        if !seen.insert(node.clone()) || n.known(node).is_some() {
            return;
        }
        let repr = self.repr(node.0);
        if matches!(repr, Repr::Scalar(_)) {
            return;
        }
        if n.depth(&node.1) <= depth {
            return ready.push(node.clone());
        }
        if let (Repr::Expression, Some(id)) = (repr, self.func.def_id(node.0)) {
            for input in self.inputs(id, &node.1) {
                self.collect(n, &input, depth, ready, seen);
            }
        }
    }
}

/// A run of vectors along the vector axis.
pub struct Chunk {
    pub first: i64,
    /// Positions in all.
    pub count: i64,
    pub lanes: u32,
}

impl Chunk {
    pub fn step(&self) -> i64 {
        self.lanes.into()
    }

    /// The lanes that are inside, where not all are.
    pub fn tail(&self, ir: &crate::llvm::Ir) -> Option<Val> {
        let inside = self.count as u32;
        (self.count < self.step()).then(|| ir.const_first_lanes(inside, self.lanes))
    }
}

/// Whole vectors first, then one that is just wide enough for the rest.
pub fn chunks(extent: i64, lanes: u32) -> Vec<Chunk> {
    let whole = extent / i64::from(lanes) * i64::from(lanes);
    let rest = extent - whole;
    let mut out = Vec::new();
    if whole > 0 {
        out.push(Chunk { first: 0, count: whole, lanes });
    }
    if rest > 0 {
        out.push(Chunk { first: whole, count: rest, lanes: (rest as u32).next_power_of_two() });
    }
    out
}
