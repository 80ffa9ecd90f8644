//! The persistent loop over the tiles of a grid.

use super::team::Team;
use crate::{Staged, StagedOp};
use tessera_ir::{Attr, Func, OpErrors, OpId, Type, Value};

/// In which order the tiles of a grid are walked.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Order {
    pub dynamic: bool,
    /// A block takes one tile: a launch has as many blocks as there are tiles.
    pub once: bool,
    /// A block takes two tiles in a row, where there are enough of them.
    pub pairs: bool,
    /// The axis that is walked first, in groups of so many.
    pub raster: Option<(usize, i64)>,
    pub longest_first: bool,
    /// Blocks of a cluster that take neighbours along each axis.
    pub team: Team,
}

pub fn order_of(func: &Func<Staged>, id: OpId) -> Result<Order, String> {
    let op = &func.ops[id];
    let word = op.attr("order").and_then(Attr::as_word);
    let (dynamic, pairs, once) = match word {
        None | Some("static") => (false, false, false),
        Some("dynamic") => (true, false, false),
        Some("pairs") => (false, true, false),
        Some("once") => (false, false, true),
        Some(other) => {
            return Err(format!("expected `order` static, pairs, dynamic or once, got {other}"));
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
    let team = Team::of_tiles(func, id)?;
    Ok(Order { dynamic, once, pairs, raster, longest_first, team })
}

/// Whether each block of a launch takes one tile, and there are as many as tiles.
pub fn is_once(func: &Func<Staged>) -> bool {
    let tiles = func.walk().into_iter().find(|&id| func.ops[id].code == StagedOp::Tiles);
    tiles.is_some_and(|id| order_of(func, id).is_ok_and(|order| order.once))
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
    /// What clusters take one after another: the grid in teams. Raster counts tiles, and so teams.
    pub fn teams(&self, grid: &[i64]) -> Vec<i64> {
        let each = grid.iter().zip(self.team.shape);
        each.map(|(&n, by)| {
            n.max(0).div_euclid(i64::from(by)) + i64::from(n.max(0) % i64::from(by) != 0)
        })
        .collect()
    }

    /// The tiles that a raster's band has along its axis, counted in teams.
    pub fn band(&self) -> Option<(usize, i64)> {
        self.raster.map(|(axis, n)| (axis, (n / i64::from(self.team.shape[axis])).max(1)))
    }

    /// The coordinates of the tile that a block of a cluster takes, by the number of the team in this
    /// order and the block's rank. Where the grid ends inside of a team they may be beyond it.
    pub fn tile(&self, grid: &[i64], number: i64, rank: u32) -> Vec<i64> {
        let mut at = self.coordinates(&self.teams(grid), number);
        let own = self.team.coordinates(rank);
        for (axis, p) in at.iter_mut().enumerate() {
            *p = *p * i64::from(self.team.shape[axis]) + i64::from(own[axis]);
        }
        at
    }

    /// The cluster that takes a team, or the block that takes a tile, where it does not depend on who is
    /// free.
    pub fn block_of(&self, number: i64, total: i64, blocks: i64) -> i64 {
        if self.once {
            return number;
        }
        let blocks = blocks.max(1);
        let paired = self.pairs && total >= LEAST_PAIRED.saturating_mul(blocks);
        (if paired { number / 2 } else { number }) % blocks
    }

    /// The coordinates of a tile, or of a team in a grid of teams, by its number in this order.
    fn coordinates(&self, grid: &[i64], number: i64) -> Vec<i64> {
        let mut at = match self.band() {
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
                let seen: BTreeSet<_> = (0..40).map(|n| order.tile(&grid, n, 0)).collect();
                assert_eq!(seen.len(), 40);
                assert!(seen.iter().all(|at| at.iter().zip(grid).all(|(&p, n)| p < n)));
            }
        }
    }

    #[test]
    fn the_blocks_of_clusters_visit_every_tile_once_and_some_beyond_the_grid() {
        for (shape, raster) in
            [([2, 1, 1], Some((0, 4))), ([1, 4, 1], None), ([2, 2, 1], Some((1, 2)))]
        {
            let order = Order { raster, team: Team { shape }, ..Order::default() };
            let grid = [5, 3, 2];
            let teams: i64 = order.teams(&grid).iter().product();
            let ranks = order.team.blocks();
            let all: Vec<_> = (0..teams)
                .flat_map(|n| (0..ranks).map(move |r| (n, r)))
                .map(|(n, r)| order.tile(&grid, n, r))
                .collect();
            let inside: BTreeSet<_> =
                all.iter().filter(|at| at.iter().zip(grid).all(|(&p, n)| p < n)).collect();
            assert_eq!((inside.len(), all.len() as i64), (30, teams * i64::from(ranks)));
        }
    }

    #[test]
    fn pairs_stay_together_where_there_are_enough() {
        let order = Order { pairs: true, ..Order::default() };
        let takers =
            |total: i64| -> Vec<i64> { (0..total).map(|n| order.block_of(n, total, 2)).collect() };
        assert_eq!(takers(7), [0, 0, 1, 1, 0, 0, 1]);
        assert_eq!(takers(5), [0, 1, 0, 1, 0]);
        let once = Order { once: true, ..Order::default() };
        assert!((0..5).all(|n| once.block_of(n, 5, 5) == n));
    }

    #[test]
    fn groups_are_walked_along_their_axis_first() {
        let order = Order { raster: Some((0, 2)), ..Order::default() };
        let walk: Vec<_> = (0..6).map(|n| order.tile(&[3, 2], n, 0)).collect();
        assert_eq!(walk, [[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [2, 1]]);
    }
}
