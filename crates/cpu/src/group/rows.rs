//! Several rows of a reduction together (unroll and jam).
//!
//! A row alone reads again what all rows share, waits for the sums of the previous vector, and ends
//! in a chain of shuffles for one number. Adjacent rows share vectors and their last steps: the
//! vectors of two rows are combined by halves into one vector that has half the lanes of both, and
//! so on. The elements of each row are combined in the order in which they are combined alone.

use super::Group;
use super::nest::{Nest, Node};
use super::reduce::Fold;
use super::sink::Sink;
use crate::llvm::Val;
use std::collections::{BTreeMap, BTreeSet};
use tessera_numerics::LANES;

/// Rows that are reduced together, where each is a vector or less; longer ones each hold four
/// vectors of sums.
const SHORT: i64 = 16;
const LONG: i64 = 4;
/// Instructions of all rows' elements: code grows with them.
const MOST: u32 = 192;

impl Group<'_> {
    /// How many rows along `axis` are reduced together.
    pub fn rows_together(&self, n: &Nest, fold: &Fold, axis: usize) -> i64 {
        let width = i64::from(self.lanes);
        let (len, extent) = (n.dims[fold.axis], n.dims[axis]);
        let mut rows = if len <= width { SHORT.min(width) } else { LONG };
        let parts = ((len + width - 1) / width).min(LANES as i64 / width).max(1) as u32;
        let weight = self.plan.weight(fold.x.0).max(1).saturating_mul(parts);
        while rows > 1 && (rows > extent || weight.saturating_mul(rows as u32) > MOST) {
            rows /= 2;
        }
        // Vectors of results are of full lanes.
        if self.isa.registers() < 32 || rows < LONG || len > tessera_numerics::CHUNK as i64 {
            return 1;
        }
        rows
    }

    /// The rows from the present place along `axis` on; gives their results as a vector.
    pub fn several_rows(
        &mut self,
        n: &mut Nest,
        fold: &Fold,
        keeps: &[Sink],
        axis: usize,
        rows: i64,
    ) -> Val {
        let ir = self.ir;
        let roots = [fold.x.clone()];
        let first = n.index[axis].unwrap_or_else(|| ir.c64(0));
        let outer = n.order.len() - 1;
        // What belongs to a row alone.
        let mut own: Vec<BTreeMap<Node, Val>> = Vec::new();
        for row in 0..rows {
            n.index[axis] = Some(ir.add_const(first, row));
            n.open();
            self.hoist(n, &roots, outer);
            own.push(n.memo.pop().unwrap_or_default());
        }
        let shared = self.without(&roots, axis);
        let (len, width) = (n.dims[fold.axis], i64::from(self.lanes).min(LANES as i64));
        let parts = LANES as i64 / width;
        let empty = self.s.identity(fold.op, fold.dtype, width as u32);
        let whole = len / LANES as i64 * LANES as i64;
        let mut sums = vec![empty; (rows * parts) as usize];
        let mut used = if whole > 0 { parts } else { 0 };
        (n.lanes, n.tail) = (width as u32, None);
        let step = |group: &mut Self, n: &mut Nest, at: Val, sums: &[Val]| -> Vec<Val> {
            n.index[fold.axis] = Some(at);
            n.index[axis] = Some(first);
            n.open();
            for node in &shared {
                group.eval(n, node);
            }
            let mut out = Vec::new();
            for (row, own) in own.iter().enumerate() {
                n.index[axis] = Some(ir.add_const(first, row as i64));
                n.memo.push(own.clone());
                n.open();
                out.push(group.folded(n, fold, keeps, sums[row]));
                n.close();
                n.close();
            }
            n.close();
            out
        };
        let of_part = |sums: &[Val], part: i64| -> Vec<Val> {
            (0..rows).map(|row| sums[(row * parts + part) as usize]).collect()
        };
        if whole > 0 {
            let end = ir.c64(whole);
            sums = ir.for_range(ir.c64(0), end, LANES as i64, &sums, |ir, at, sums| {
                let mut next = sums.to_vec();
                for part in 0..parts {
                    let at = ir.add_const(at, part * width);
                    for (row, sum) in
                        step(self, n, at, &of_part(sums, part)).into_iter().enumerate()
                    {
                        next[row * parts as usize + part as usize] = sum;
                    }
                }
                next
            });
        }
        let rest = len - whole;
        for part in 0..parts {
            let start = part * width;
            if start >= rest {
                break;
            }
            let inside = (rest - start).min(width);
            n.tail = (inside < width).then(|| ir.const_first_lanes(inside as u32, width as u32));
            let before = of_part(&sums, part);
            let after = step(self, n, ir.c64(whole + start), &before);
            for (row, (sum, joined)) in before.into_iter().zip(after).enumerate() {
                sums[row * parts as usize + part as usize] =
                    n.tail.map_or(joined, |tail| ir.select(tail, joined, sum));
            }
            used = used.max(part + 1);
        }
        (n.lanes, n.tail) = (1, None);
        n.index[axis] = Some(first);
        let mut vectors = Vec::new();
        for row in 0..rows {
            let list =
                (0..parts).map(|part| (part < used).then(|| sums[(row * parts + part) as usize]));
            vectors.push(self.one_vector(fold, list.collect(), width as u32));
        }
        self.by_halves(fold, vectors)
    }

    /// Joins the lanes of each vector by halves, all vectors together; lane `i` of the result is what becomes of vector
    /// `i`.
    fn by_halves(&self, fold: &Fold, mut vectors: Vec<Val>) -> Val {
        let ir = self.ir;
        let mut width = vectors.first().map_or(1, |&v| ir.lanes(ir.ty(v)));
        // Lanes that each row has in a vector.
        let mut own = width;
        while own > 1 {
            let half = own / 2;
            let pick = |from: u32, all: u32| -> Vec<u32> {
                (0..all / own)
                    .flat_map(|row| (0..half).map(move |i| row * own + from + i))
                    .collect()
            };
            vectors = if vectors.len() > 1 {
                let both = 2 * width;
                let pair = |v: &[Val]| {
                    let low = ir.shuffle(v[0], v[1], &pick(0, both));
                    let high = ir.shuffle(v[0], v[1], &pick(half, both));
                    self.join(fold, low, high)
                };
                vectors.chunks(2).map(pair).collect()
            } else {
                let v = vectors[0];
                let joined = self.join(
                    fold,
                    ir.shuffle(v, v, &pick(0, width)),
                    ir.shuffle(v, v, &pick(half, width)),
                );
                width /= 2;
                vec![joined]
            };
            own = half;
        }
        vectors[0]
    }

    /// The outermost of what the roots are computed from that does not follow an axis.
    fn without(&self, roots: &[Node], axis: usize) -> Vec<Node> {
        let (mut list, mut seen, mut out) = (roots.to_vec(), BTreeSet::new(), Vec::new());
        while let Some(node) = list.pop() {
            if !seen.insert(node.clone()) {
                continue;
            }
            if !node.1.contains(&Some(axis as u8)) {
                if !node.1.is_empty() {
                    out.push(node);
                }
            } else if let (super::Repr::Expression, Some(id)) =
                (self.repr(node.0), self.func.def_id(node.0))
            {
                list.extend(self.inputs(id, &node.1));
            }
        }
        out
    }
}
