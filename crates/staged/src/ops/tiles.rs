//! The persistent loop over the tiles of a grid.

use crate::{Staged, StagedOp};
use tessera_ir::{Attr, Func, OpErrors, OpId, Type, Value};

/// In which order the tiles of a grid are walked.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Order {
    pub dynamic: bool,
    /// A block takes two tiles in a row, where there are enough of them.
    pub pairs: bool,
    /// The axis that is walked first, in groups of so many.
    pub raster: Option<(usize, i64)>,
    pub longest_first: bool,
}

pub fn order_of(func: &Func<Staged>, id: OpId) -> Result<Order, String> {
    let op = &func.ops[id];
    let (dynamic, pairs) = match op.attr("order").and_then(Attr::as_word) {
        None | Some("static") => (false, false),
        Some("dynamic") => (true, false),
        Some("pairs") => (false, true),
        Some(other) => {
            return Err(format!("expected `order` static, pairs or dynamic, got {other}"));
        }
    };
    let raster = match op.attr("raster").and_then(Attr::as_word) {
        None => None,
        Some(word) => {
            Some(raster(word).filter(|_| op.group("grid").len() > 1).ok_or_else(|| {
                format!("expected `raster` like m8 or n8 on a grid of two axes or more, got {word}")
            })?)
        }
    };
    let longest_first = op.attr("longest_first").and_then(Attr::as_bool).unwrap_or(false);
    Ok(Order { dynamic, pairs, raster, longest_first })
}

fn raster(word: &str) -> Option<(usize, i64)> {
    let axis = match word.chars().next()? {
        'm' => 0,
        'n' => 1,
        _ => return None,
    };
    word[1..].parse().ok().filter(|&n: &i64| n > 0).map(|n| (axis, n))
}

/// Tiles for each block from which on they are taken in pairs: fewer would leave blocks without any.
pub const LEAST_PAIRED: i64 = 3;

impl Order {
    /// The block that takes a tile, where it does not depend on who is free.
    pub fn block_of(&self, number: i64, total: i64, blocks: i64) -> i64 {
        let blocks = blocks.max(1);
        let paired = self.pairs && total >= LEAST_PAIRED.saturating_mul(blocks);
        (if paired { number / 2 } else { number }) % blocks
    }

    /// The coordinates of a tile by its number in this order.
    pub fn coordinates(&self, grid: &[i64], number: i64) -> Vec<i64> {
        let mut at = match self.raster {
            None => row_major(grid, number),
            Some((axis, group)) => {
                // The plane of the first two axes; what lies beyond them changes slowest.
                let (plane, other) = (grid[0] * grid[1], 1 - axis);
                let (slow, rest) = (number / plane, number % plane);
                let band = group * grid[other];
                let first = rest / band * group;
                let width = group.min(grid[axis] - first);
                let inside = rest % band;
                let mut at = vec![0, 0];
                at[axis] = first + inside % width;
                at[other] = inside / width;
                at.extend(row_major(&grid[2..], slow));
                at
            }
        };
        if self.longest_first {
            at[0] = grid[0] - 1 - at[0];
        }
        at
    }
}

fn row_major(grid: &[i64], mut number: i64) -> Vec<i64> {
    let mut at: Vec<i64> = grid
        .iter()
        .rev()
        .map(|&n| {
            let p = number % n;
            number /= n;
            p
        })
        .collect();
    at.reverse();
    at
}

pub fn verify_tiles(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    if let Err(why) = order_of(func, id) {
        errors.structure(why);
    }
    let around = func.ancestors(op.block);
    let outer =
        around.iter().all(|&o| matches!(func.ops[o].code, StagedOp::Role | StagedOp::Roles));
    if !outer {
        errors.structure("expected `tiles` in no loop or branch");
    }
    let types =
        |values: &[Value]| -> Vec<Type> { values.iter().map(|&v| func.ty(v).clone()).collect() };
    let show = |types: &[Type]| {
        let list: Vec<_> = types.iter().map(Type::to_string).collect();
        format!("({})", list.join(", "))
    };
    let mut expect = |what: &str, wanted: &[Type], got: &[Type]| {
        if wanted != got {
            errors.ty(format!("expected {what} of types {}, got {}", show(wanted), show(got)));
        }
    };
    let carried = types(&op.results);
    expect("initial values", &carried, &types(op.group("init")));
    let mut wanted = vec![Type::INDEX; op.group("grid").len()];
    wanted.extend(carried.iter().cloned());
    expect("loop arguments", &wanted, &types(&func.blocks[op.regions[0]].args));
    if let Some(end) = func.terminator(op.regions[0]) {
        expect("the loop to yield values", &carried, &types(func.ops[end].group("values")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_order_visits_every_tile_once() {
        for raster in [None, Some((0, 3)), Some((1, 2)), Some((0, 64))] {
            for longest_first in [false, true] {
                let order = Order { raster, longest_first, ..Order::default() };
                let grid = [5, 4, 2];
                let seen: BTreeSet<_> = (0..40).map(|n| order.coordinates(&grid, n)).collect();
                assert_eq!(seen.len(), 40);
                assert!(seen.iter().all(|at| at.iter().zip(grid).all(|(&p, n)| p < n)));
            }
        }
    }

    #[test]
    fn pairs_stay_together_where_there_are_enough() {
        let order = Order { pairs: true, ..Order::default() };
        let takers =
            |total: i64| -> Vec<i64> { (0..total).map(|n| order.block_of(n, total, 2)).collect() };
        assert_eq!(takers(7), [0, 0, 1, 1, 0, 0, 1]);
        assert_eq!(takers(5), [0, 1, 0, 1, 0]);
    }

    #[test]
    fn groups_are_walked_along_their_axis_first() {
        let order = Order { raster: Some((0, 2)), ..Order::default() };
        let walk: Vec<_> = (0..6).map(|n| order.coordinates(&[3, 2], n)).collect();
        assert_eq!(walk, [[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [2, 1]]);
    }
}
