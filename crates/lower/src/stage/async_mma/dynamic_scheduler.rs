//! Dynamic tile scheduler, longest first: assigns the longest remaining tile to the next free CTA.
//! Causal attention is the usual case.
//!
//! Input: a valid function with one loop over groups. Output: the same loop with an `order`
//! (`dynamic`, or for a static scheduler `pairs` or `folded`), `longest_first` and `raster`. The
//! amount of work per group is read off the bounds of the loops inside: along which axes of the
//! grid they change, and whether they grow.
//!
//! Where lengths change along one axis alone, that axis is walked from its long end, in sections of
//! the other axes. The short groups come last and finish together, and resident groups still share
//! what they read in the L2 cache. Where a CTA must know its groups beforehand (static scheduler),
//! it takes a long one and a short one in turn, which add up to equal work.
//!
//! The schedule is a heuristic: a wrong guess costs time only, because every order takes every
//! group once.

use super::budget::{around, depends, reorder};
use tessera_ir::{Attr, OpId, Value, ValueDef};
use tessera_numerics::{Basic, ScalarFn};
use tessera_staged::{StagedFunc, StagedOp};
use tessera_tile::TileOp;

/// The most positions of the other axes in a section. Wider sections balance better, but resident
/// groups read more different data.
const SECTION: i64 = 16;
/// The most ops that an analysis follows.
const FUEL: u32 = 64;

/// `free`: a scheduler warp can hand out groups. `cache`: bytes of L2 cache that the groups of a
/// section may read, so that they share it.
pub fn choose(func: &mut StagedFunc, free: bool, cache: u64) {
    let all = func.walk();
    let Some(tiles) = all.iter().copied().find(|&id| func.ops[id].code == StagedOp::Tiles) else {
        return;
    };
    let axes = func.ops[tiles].group("grid").len();
    let args = func.blocks[func.ops[tiles].regions[0]].args[..axes].to_vec();
    let lengths: Vec<Length> = args.iter().map(|&axis| length(func, &all, axis)).collect();
    if lengths.iter().all(|&l| l == Length::Same) {
        return;
    }
    let banded = func.ops[tiles].attr("raster").is_some();
    let order = match (free, banded) {
        (true, _) => "dynamic",
        (false, true) if lengths[0] == Length::Same => return,
        (false, true) => "pairs",
        (false, false) => match lengths[axes - 1] {
            Length::Same => return,
            Length::Grows | Length::Shrinks => "folded",
            Length::Moves | Length::Unknown => "pairs",
        },
    };
    func.ops[tiles].attrs.set("order", Attr::word(order));
    let mut uneven = (0..axes).filter(|&axis| lengths[axis] != Length::Same);
    if !free || banded {
        return;
    }
    // One axis, whose long end is known.
    let (Some(axis), None) = (uneven.next(), uneven.next()) else { return };
    let grows = match lengths[axis] {
        Length::Grows => true,
        Length::Shrinks => false,
        Length::Same | Length::Moves | Length::Unknown => return,
    };
    let mut order: Vec<usize> = (0..axes).filter(|&a| a != axis).collect();
    order.push(axis);
    reorder(func, tiles, &order);
    if axes > 1 {
        let config = func.attrs.get("config").and_then(Attr::as_dict);
        let pinned = config.and_then(|c| c.get("raster").and_then(Attr::as_int));
        // A plan that was printed and is given again must lead to the same choice.
        match pinned.filter(|&n| n > 0 && n != SECTION) {
            Some(width) => func.ops[tiles].attrs.set("raster", Attr::word(format!("s{width}"))),
            None => {
                let most = tiles_in_cache(func, &all, args[axis], cache);
                let attrs = &mut func.ops[tiles].attrs;
                attrs.set("raster", Attr::word(format!("s{SECTION}")));
                attrs.set("section", Attr::Int(most));
            }
        }
    }
    if grows {
        func.ops[tiles].attrs.set("longest_first", Attr::Bool(true));
    }
}

/// How many groups along the uneven axis, over all positions together, read as much as the cache
/// holds. The longest group of a position reads what all its groups read: the number of groups
/// along the axis, times the iterations that each has more than the one before.
fn tiles_in_cache(func: &StagedFunc, all: &[OpId], axis: Value, cache: u64) -> i64 {
    let loops = all.iter().filter(|&&id| func.ops[id].code == StagedOp::Tile(TileOp::For));
    let bytes = loops.map(|&id| {
        let op = &func.ops[id];
        let constant = |v: Value| func.def(v).and_then(|d| d.attr("value")?.as_int());
        let step = constant(op.operands[2]).unwrap_or(1).max(1) as f64;
        let [lo, hi] = [0, 1].map(|i| slope(func, op.operands[i], axis, FUEL).abs());
        let mut bytes = 0.0;
        func.walk_block(op.regions[0], &mut |o| {
            let fill = &func.ops[o];
            if fill.code == StagedOp::Fill {
                let extent = fill.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
                let elements: i64 = extent.iter().map(|&e| e.max(1)).product();
                bytes += elements as f64 * func.ty(fill.operands[1]).dtype().bytes() as f64;
            }
        });
        bytes * lo.max(hi) / step
    });
    let each = bytes.fold(1.0, f64::max);
    (cache as f64 / each).clamp(1.0, f64::from(1 << 30)) as i64
}

/// About how much a number changes with another.
fn slope(func: &StagedFunc, v: Value, on: Value, fuel: u32) -> f64 {
    if v == on {
        return 1.0;
    }
    let Some(fuel) = fuel.checked_sub(1).filter(|&fuel| depends(func, v, on, fuel)) else {
        return 0.0;
    };
    let id = match func.values[v].def {
        ValueDef::Result(id, _) => id,
        ValueDef::Arg(block, i) => {
            return around(func, block, i).map_or(1.0, |o| slope(func, o, on, fuel));
        }
    };
    let op = &func.ops[id];
    let of = |i: usize| slope(func, op.operands[i], on, fuel);
    let most = || (0..op.operands.len()).map(|i| of(i).abs()).fold(0.0, f64::max);
    let constant = |i: usize| {
        let value = op.operands.get(i).and_then(|&v| func.def(v)?.attr("value")?.as_int());
        value.map(|n| n as f64)
    };
    let StagedOp::Tile(TileOp::Ew(f)) = op.code else { return most() };
    match (f, constant(0), constant(1)) {
        (ScalarFn::Mul, Some(n), _) => n * of(1),
        (ScalarFn::Mul, _, Some(n)) => n * of(0),
        (ScalarFn::FloorDiv, _, Some(n)) if n != 0.0 => of(0) / n,
        (ScalarFn::Shl, _, Some(n)) => of(0) * n.exp2(),
        (ScalarFn::Shr, _, Some(n)) => of(0) / n.exp2(),
        _ => most(),
    }
}

/// How the iteration counts of loops change along an axis.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Length {
    Same,
    Grows,
    Shrinks,
    /// Begin and end change alike.
    Moves,
    Unknown,
}

impl Length {
    pub fn of(lo: Trend, hi: Trend) -> Self {
        use Trend::*;
        match (lo, hi) {
            (Level, Level) => Length::Same,
            (Level | Down, Up) | (Down, Level) => Length::Grows,
            (Level | Up, Down) | (Up, Level) => Length::Shrinks,
            (Up, Up) | (Down, Down) => Length::Moves,
            (Any, _) | (_, Any) => Length::Unknown,
        }
    }

    /// Of two consecutive loops.
    pub fn and(self, other: Self) -> Self {
        use Length::*;
        match (self, other) {
            (Same, l) | (l, Same) => l,
            (Moves, l) | (l, Moves) => l,
            (Grows, Grows) => Grows,
            (Shrinks, Shrinks) => Shrinks,
            (Grows, Shrinks) | (Shrinks, Grows) | (Unknown, _) | (_, Unknown) => Unknown,
        }
    }
}

fn length(func: &StagedFunc, all: &[OpId], axis: Value) -> Length {
    let loops = all.iter().map(|&id| &func.ops[id]);
    let loops = loops.filter(|op| op.code == StagedOp::Tile(TileOp::For));
    loops.fold(Length::Same, |so_far, op| {
        let [lo, hi, step] = [0, 1, 2].map(|i| trend(func, op.operands[i], axis, FUEL));
        let own = if step == Trend::Level { Length::of(lo, hi) } else { Length::Unknown };
        so_far.and(own)
    })
}

/// How a number changes with another.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Trend {
    Level,
    Up,
    Down,
    Any,
}

impl Trend {
    /// Of an expression that grows with both.
    fn and(self, other: Self) -> Self {
        use Trend::*;
        match (self, other) {
            (Level, t) | (t, Level) => t,
            (Up, Up) => Up,
            (Down, Down) => Down,
            (Up, Down) | (Down, Up) | (Any, _) | (_, Any) => Any,
        }
    }

    fn reversed(self) -> Self {
        match self {
            Trend::Up => Trend::Down,
            Trend::Down => Trend::Up,
            Trend::Level | Trend::Any => self,
        }
    }
}

#[deny(clippy::wildcard_enum_match_arm)]
fn trend(func: &StagedFunc, v: Value, on: Value, fuel: u32) -> Trend {
    use Basic::*;
    use StagedOp::*;
    if v == on {
        return Trend::Up;
    }
    if !depends(func, v, on, fuel) {
        return Trend::Level;
    }
    let Some(fuel) = fuel.checked_sub(1) else { return Trend::Any };
    let id = match func.values[v].def {
        ValueDef::Result(id, _) => id,
        ValueDef::Arg(block, i) => {
            return around(func, block, i).map_or(Trend::Any, |o| trend(func, o, on, fuel));
        }
    };
    let op = &func.ops[id];
    let of = |i: usize| trend(func, op.operands[i], on, fuel);
    let constant =
        |i: usize| op.operands.get(i).and_then(|&v| func.def(v)?.attr("value")?.as_int());
    // Times a number: grows with it, or shrinks where the number is negative.
    let times = |t: Trend, n: Option<i64>| match n {
        Some(n) if n >= 0 => t,
        Some(_) => t.reversed(),
        None => Trend::Any,
    };
    match op.code {
        Tile(TileOp::Cast) => of(0),
        Tile(TileOp::Ew(f)) => f.basic().map_or(Trend::Any, |f| match f {
            Add | Minimum | Maximum => of(0).and(of(1)),
            Sub => of(0).and(of(1).reversed()),
            Neg => of(0).reversed(),
            Mul if constant(0).is_some() => times(of(1), constant(0)),
            Mul => times(of(0), constant(1)),
            FloorDiv => times(of(0), constant(1)),
            Shl | Shr => times(of(0), constant(1).map(|_| 1)),
            // A mask that keeps all high bits rounds down.
            And => match (constant(0), constant(1)) {
                (_, Some(mask)) if (-mask).count_ones() == 1 && mask < 0 => of(0),
                (Some(mask), _) if (-mask).count_ones() == 1 && mask < 0 => of(1),
                _ => Trend::Any,
            },
            Div | Mod | Abs | Fma | Sqrt | Recip | Floor | Ceil | Round | Trunc | Sign | Clamp
            | Or | Xor | Not | Popcount | Clz | Ctz | Brev | MulHi | FunnelShift | Eq | Ne | Lt
            | Le | Gt | Ge | IsNan | IsInf | IsFinite => Trend::Any,
        }),
        ConvertLayout | SmemAlloc | SmemView | FragLoad | FragStore | FragPart | PipelineCreate
        | Acquire | Fill | Publish | Wait | Field | Release | Drain | MmaOpen | MmaIssue
        | MmaRetire | BulkStore | BulkReduce | BulkWait | OrderBarrierCreate | OrderWait
        | OrderArrive | RoleBarrier | ClusterBarrier | BlockBarrier | FenceAsync
        | WarpSpecialize | WarpRole | Replica | Worker | Workers | Tiles | Tile(_) => Trend::Any,
    }
}
