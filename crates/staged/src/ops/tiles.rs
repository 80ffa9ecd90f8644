//! The persistent loop over the tiles of a grid: tile schedulers and raster orders.

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
    /// The axis that is walked first goes from both ends to the middle: last, first, last but one, ….
    pub folded: bool,
    pub raster: Option<Raster>,
    /// About how many tiles a section has, where it need not be as wide as possible.
    pub section: Option<i64>,
    pub longest_first: bool,
    /// CTAs of a cluster that take neighbours along each axis.
    pub team: Team,
}

/// A raster order other than the last axis first.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Raster {
    /// In bands of this width along one of the first two axes, that axis first.
    Band { axis: usize, width: i64 },
    /// This many positions of all axes but the last, these first; the end of the last axis ends a
    /// section.
    Sections(i64),
}

pub fn order_of(func: &Func<Staged>, id: OpId) -> Result<Order, String> {
    let op = &func.ops[id];
    let (dynamic, pairs, folded, once) = match op.attr("order").and_then(Attr::as_word) {
        None | Some("static") => (false, false, false, false),
        Some("dynamic") => (true, false, false, false),
        Some("pairs") => (false, true, false, false),
        Some("folded") => (false, true, true, false),
        Some("once") => (false, false, false, true),
        Some(other) => {
            let known = "static, pairs, folded, dynamic or once";
            return Err(format!("expected `order` {known}, got {other}"));
        }
    };
    let raster = match op.attr("raster").and_then(Attr::as_word) {
        None => None,
        Some(word) => {
            Some(raster(word).filter(|_| op.group("grid").len() > 1).ok_or_else(|| {
                format!(
                    "expected `raster` like m8, n8 or s8 on a grid of two axes or more, got {word}"
                )
            })?)
        }
    };
    if folded && raster.is_some() {
        return Err("expected `order` folded without `raster`, got both".into());
    }
    let section = op.attr("section").and_then(Attr::as_int);
    if section.is_some_and(|n| n < 1 || !matches!(raster, Some(Raster::Sections(_)))) {
        return Err("expected `section` above 0 and beside `raster` like s8, got another".into());
    }
    let longest_first = op.attr("longest_first").and_then(Attr::as_bool).unwrap_or(false);
    let team = Team::of_tiles(func, id)?;
    Ok(Order { dynamic, once, pairs, folded, raster, section, longest_first, team })
}

/// Whether each block of a launch takes one tile, and there are as many as tiles.
pub fn is_once(func: &Func<Staged>) -> bool {
    let tiles = func.walk().into_iter().find(|&id| func.ops[id].code == StagedOp::Tiles);
    tiles.is_some_and(|id| order_of(func, id).is_ok_and(|order| order.once))
}

fn raster(word: &str) -> Option<Raster> {
    let kind = word.chars().next()?;
    let width = word.get(1..)?.parse().ok().filter(|&n: &i64| n > 0)?;
    match kind {
        'm' => Some(Raster::Band { axis: 0, width }),
        'n' => Some(Raster::Band { axis: 1, width }),
        's' => Some(Raster::Sections(width)),
        _ => None,
    }
}

/// The fewest positions of a section: one alone has too few short tiles at its end to balance.
pub const LEAST_SECTION: i64 = 2;
/// Tiles for each block from which on they are taken in pairs: with fewer, some blocks would have
/// none.
pub const LEAST_PAIRED: i64 = 3;

impl Order {
    /// The grid in teams, which clusters take one after another. Raster widths count tiles, and so
    /// teams.
    pub fn teams(&self, grid: &[i64]) -> Vec<i64> {
        let each = grid.iter().zip(self.team.shape);
        each.map(|(&n, by)| {
            n.max(0).div_euclid(i64::from(by)) + i64::from(n.max(0) % i64::from(by) != 0)
        })
        .collect()
    }

    /// The grid of two axes that is walked in bands along one of them, and the width of a band: the
    /// plane of the first two axes, or all but the last as one and the last. Widths are counted in
    /// teams.
    pub fn band(&self) -> Option<Bands> {
        match self.raster? {
            Raster::Band { axis, width } => {
                let width = (width / i64::from(self.team.shape[axis])).max(1);
                Some(Bands { axis, width, sections: false })
            }
            Raster::Sections(width) => Some(Bands { axis: 0, width, sections: true }),
        }
    }

    /// The axis that `longest_first` walks from its end.
    pub fn reversed(&self, axes: usize) -> Option<usize> {
        let sections = matches!(self.raster, Some(Raster::Sections(_)));
        self.longest_first.then_some(if sections { axes.saturating_sub(1) } else { 0 })
    }

    /// The coordinates of the tile that a CTA of a cluster takes, by the index of the team in this
    /// order and the CTA's rank. Where the grid ends inside a team they may be beyond it.
    pub fn tile(&self, grid: &[i64], number: i64, rank: u32) -> Vec<i64> {
        let mut at = self.coordinates(&self.teams(grid), number);
        let own = self.team.coordinates(rank);
        for (axis, p) in at.iter_mut().enumerate() {
            *p = *p * i64::from(self.team.shape[axis]) + i64::from(own[axis]);
        }
        at
    }

    /// The cluster that takes a team, or the block that takes a tile, with a static scheduler.
    pub fn block_of(&self, number: i64, total: i64, blocks: i64) -> i64 {
        if self.once {
            return number;
        }
        let blocks = blocks.max(1);
        let paired = self.pairs && total >= LEAST_PAIRED.saturating_mul(blocks);
        (if paired { number / 2 } else { number }) % blocks
    }

    /// The coordinates of a tile, or of a team in a grid of teams, by its index in this order.
    fn coordinates(&self, grid: &[i64], number: i64) -> Vec<i64> {
        let mut at = match self.band() {
            None => row_major(grid, number),
            Some(Bands { width, sections: true, .. }) => {
                let (others, last) = grid.split_at(grid.len() - 1);
                let all = others.iter().product();
                let width = match self.section {
                    None => width,
                    Some(n) => even_section(all, n / last[0].max(1), width),
                };
                let place = in_bands([all, last[0]], 0, width, number);
                let mut at = row_major(others, place[0]);
                at.push(place[1]);
                at
            }
            Some(Bands { axis, width, sections: false }) => {
                // The plane of the first two axes; the others change slowest.
                let plane = grid[0] * grid[1];
                let mut at = in_bands([grid[0], grid[1]], axis, width, number % plane).to_vec();
                at.extend(row_major(&grid[2..], number / plane));
                at
            }
        };
        if self.folded
            && let (Some(p), Some(&n)) = (at.last_mut(), grid.last())
        {
            *p = if *p % 2 == 0 { n - 1 - *p / 2 } else { *p / 2 };
        }
        if let Some(axis) = self.reversed(grid.len()) {
            at[axis] = grid[axis] - 1 - at[axis];
        }
        at
    }
}

/// A grid that is walked in bands of `width` along an axis of two.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Bands {
    pub axis: usize,
    pub width: i64,
    /// The grid's last axis is the second of the two, and all others are the first.
    pub sections: bool,
}

/// The positions of a section that may have `fit` of them, at most `most`: sections are equal,
/// because a short last one would have too few tiles to balance.
fn even_section(all: i64, fit: i64, most: i64) -> i64 {
    let fit = fit.max(LEAST_SECTION).min(most);
    let count = ((all + fit / 2) / fit).max(1);
    ((all + count - 1) / count).max(1)
}

fn in_bands(grid: [i64; 2], axis: usize, width: i64, number: i64) -> [i64; 2] {
    let other = 1 - axis;
    let band = width * grid[other];
    let first = number / band * width;
    let width = width.min(grid[axis] - first);
    let inside = number % band;
    let mut at = [0, 0];
    at[axis] = first + inside % width;
    at[other] = inside / width;
    at
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
    let outer = around
        .iter()
        .all(|&o| matches!(func.ops[o].code, StagedOp::WarpRole | StagedOp::WarpSpecialize));
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
