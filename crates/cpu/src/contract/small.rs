//! The MMA of tiles in memory, with sizes known when the code is emitted: for MMAs inside other
//! loops, whose operands are in the L1 or L2 cache already.

use super::Kind;
use super::contract_plan::Shape;
use super::registers::multiply_add;
use crate::isa::Isa;
use crate::llvm::{Ir, Ty, Val};

/// Adds the matmul of `a` (m x k) and `b` (k x n) to `acc` (m x n), or stores it there; `sizes` are
/// m, n and k. A tile is its address and its row stride in bytes. The result may not overlap the
/// operands. Accumulators are as in [`super::emit`]; the kinds are those of vectors.
#[allow(clippy::too_many_arguments)]
pub fn tile_product(
    ir: &Ir,
    isa: Isa,
    kind: Kind,
    sizes: [u32; 3],
    a: (Val, i64),
    b: (Val, i64),
    acc: (Val, i64),
    zero_start: bool,
) {
    let shape = Shape::of(isa, kind);
    let [m, n, k] = sizes;
    let p = Product { ir, shape, depth: k, a, b, acc, zero_start };
    for (from, count, widths) in groups(n, shape) {
        let columns: u32 = widths.iter().sum();
        for (row, panels, rows) in
            [(0, m / shape.rows, shape.rows), (m - m % shape.rows, 1, m % shape.rows)]
        {
            let range = |from: u32, count: u32, each: u32| {
                (ir.c64(from.into()), ir.c64((from + count * each).into()), i64::from(each))
            };
            if rows == 0 {
                continue;
            }
            let (lo, hi, step) = range(row, panels, rows);
            ir.for_range(lo, hi, step, &[], |ir, i, _| {
                let (lo, hi, step) = range(from, count, columns);
                ir.for_range(lo, hi, step, &[], |_, j, _| {
                    p.block(i, j, rows, &widths);
                    vec![]
                });
                vec![]
            });
        }
    }
}

/// Groups of columns: the first column, how many groups follow one another, and the vectors of each.
/// Whole vectors are divided evenly, what is left over into vectors of half as many lanes each.
fn groups(n: u32, shape: Shape) -> Vec<(u32, u32, Vec<u32>)> {
    let whole = n / shape.lanes;
    let count = whole.div_ceil(shape.vectors);
    let mut all = Vec::new();
    let mut at = 0;
    if let Some(narrow) = whole.checked_div(count) {
        let wide = whole % count;
        for (count, vectors) in [(wide, narrow + 1), (count - wide, narrow)] {
            if count > 0 {
                all.push((at, count, vec![shape.lanes; vectors as usize]));
                at += count * vectors * shape.lanes;
            }
        }
    }
    let rest = n % shape.lanes;
    let pieces: Vec<_> = (0..shape.lanes.ilog2()).rev().map(|b| 1 << b).collect();
    let pieces: Vec<_> = pieces.into_iter().filter(|p| rest & p != 0).collect();
    for chunk in pieces.chunks(shape.vectors as usize) {
        all.push((at, 1, chunk.to_vec()));
        at += chunk.iter().sum::<u32>();
    }
    all
}

struct Product<'a> {
    ir: &'a Ir,
    shape: Shape,
    depth: u32,
    a: (Val, i64),
    b: (Val, i64),
    acc: (Val, i64),
    zero_start: bool,
}

impl Product<'_> {
    /// One block of sums in registers, from row `i` and column `j`.
    fn block(&self, i: Val, j: Val, rows: u32, widths: &[u32]) {
        let (ir, size) = (self.ir, self.shape.operand);
        let column = ir.mul_const(j, size.into());
        let acc = ir.offset(ir.offset(self.acc.0, ir.mul_const(i, self.acc.1)), column);
        let places: Vec<_> = (0..rows)
            .flat_map(|r| {
                let row = ir.offset_const(acc, i64::from(r) * self.acc.1);
                self.spread(row, widths)
            })
            .collect();
        let start = |&(at, ty): &(Val, Ty)| {
            if self.zero_start { ir.zero(ty) } else { ir.load(ty, at, size) }
        };
        let a = ir.offset(self.a.0, ir.mul_const(i, self.a.1));
        let b = ir.offset(self.b.0, column);
        let carried: Vec<_> = [a, b].into_iter().chain(places.iter().map(start)).collect();
        let sums = ir.for_range(ir.c64(0), ir.c64(self.depth.into()), 1, &carried, |ir, _, at| {
            let (a, b, mut sums) = (at[0], at[1], at[2..].to_vec());
            let right = self.spread(b, widths);
            let right: Vec<_> = right.into_iter().map(|(at, ty)| ir.load(ty, at, size)).collect();
            for (r, sums) in sums.chunks_mut(widths.len()).enumerate() {
                let at = ir.offset_const(a, r as i64 * self.a.1);
                let left = ir.load(self.shape.operand_type(ir), at, size);
                for ((sum, &right), &lanes) in sums.iter_mut().zip(&right).zip(widths) {
                    let left = ir.splat(left, lanes);
                    *sum = multiply_add(ir, self.shape.kind, left, right, *sum);
                }
            }
            let next = [ir.offset_const(a, size.into()), ir.offset_const(b, self.b.1)];
            [next.to_vec(), sums].concat()
        });
        for (&(at, _), &sum) in places.iter().zip(&sums[2..]) {
            ir.store(sum, at, size);
        }
    }

    /// The vectors of a row from `at`: where each is, and its type.
    fn spread(&self, at: Val, widths: &[u32]) -> Vec<(Val, Ty)> {
        let (ir, size) = (self.ir, self.shape.operand);
        let elem = self.shape.operand_type(ir);
        let mut done = 0;
        let one = |&lanes: &u32| {
            let place = ir.offset_const(at, i64::from(done * size));
            done += lanes;
            (place, ir.vec(elem, lanes))
        };
        widths.iter().map(one).collect()
    }
}
