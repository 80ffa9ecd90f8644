//! Counts of a launch that its time depends on: MMAs, other flops, bytes, cache lines.

use crate::tally::Tally;
use crate::{Launch, Work, ops, tallied};
use tessera_ir::Type;
use tessera_numerics::DType;
use tessera_target::speed::LINE;
use tessera_tile::{TileFunc, TileOp};

/// An MMA on tiles, and how often a launch executes it.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Product {
    pub rows: u64,
    pub columns: u64,
    pub depth: u64,
    /// The time of one of its multiply-adds relative to 16-bit elements, on tensor cores; none
    /// where those do not take the dtype.
    pub weight: Option<f64>,
    pub times: u64,
}

impl Product {
    /// Of all times together.
    pub fn multiply_adds(&self) -> f64 {
        self.rows as f64 * self.columns as f64 * self.depth as f64 * self.times as f64
    }

    /// The fraction of its peak that a processor reaches with such tiles: operands come from
    /// shared memory, and small tiles read more for each multiply-add.
    pub fn efficiency(&self) -> f64 {
        match self.weight {
            Some(_) => self.of_tensor_cores(),
            None => self.of_threads(),
        }
    }

    /// Where threads multiply (f32 on an H200, docs/perf/gemm.md).
    fn of_threads(&self) -> f64 {
        match (self.rows, self.columns) {
            (128.., 256..) | (256.., 128..) => 0.9,
            (128.., 192..) => 0.86,
            (128.., 128..) | (64.., 256..) => 0.82,
            (64.., 128..) | (128.., 64..) => 0.72,
            (64.., 64..) => 0.6,
            (128.., _) => 0.48,
            (64.., 32..) => 0.4,
            (64.., _) => 0.26,
            (32.., _) => 0.23,
            (rows, _) => 0.23 * rows.max(1) as f64 / 32.0,
        }
    }

    fn of_tensor_cores(&self) -> f64 {
        match (self.rows, self.columns) {
            (256.., 192..) | (128.., 256..) => 1.0,
            (256.., 128..) => 0.98,
            (128.., 192..) => 0.95,
            (128.., 128..) => 0.87,
            (64.., 256..) => 0.8,
            (64.., 128..) | (128.., 64..) => 0.7,
            (64.., 64..) => 0.5,
            (64.., columns) => 0.5 * columns.max(1) as f64 / 64.0,
            (rows, _) => 0.5 * rows.max(1) as f64 / 64.0,
        }
    }
}

/// The weight of a multiply-add of elements of this dtype.
pub fn weight(of: DType) -> Option<f64> {
    match of {
        DType::F32 => None,
        DType::F64 => Some(16.0),
        DType::Tf32 => Some(2.0),
        narrow => Some(if narrow.bytes() > 1 { 1.0 } else { 0.5 }),
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Counts {
    pub work: Work,
    pub groups: u64,
    pub products: Vec<Product>,
    /// Bytes that are requested from the L2 cache, in whole sectors.
    pub requested: u64,
    /// The largest tile, in bytes.
    pub tile: u64,
    /// Flops outside MMAs of a group that goes through its code one time: how long the code is.
    pub code: u64,
    /// How often groups wait for loads, all groups together.
    pub waits: u64,
}

impl Counts {
    /// The counts of a launch of `func`, which has been through the tile passes. `Err` names the
    /// size that is not given.
    pub fn of(func: &TileFunc, launch: &Launch<'_>) -> Result<Self, String> {
        Self::counted(func, launch).map(|(counts, _)| counts)
    }

    /// The same where the rows of each parameter are aligned to a number of bytes: loads and stores
    /// of MMAs are then counted in cache lines. The position of a row is not given in any other
    /// form.
    pub fn lying(func: &TileFunc, launch: &Launch<'_>, on: &[u64]) -> Result<Self, String> {
        let (mut counts, tally) = Self::counted(func, launch)?;
        if !counts.products.is_empty() {
            let one = |(&(place, bytes), &rows): (&(usize, u64), &u64)| {
                rows as f64 * lines(bytes, on.get(place).copied().unwrap_or(LINE))
            };
            counts.requested = (tally.rows.iter().map(one).sum::<f64>() * LINE as f64) as u64;
        }
        Ok(counts)
    }

    fn counted(func: &TileFunc, launch: &Launch<'_>) -> Result<(Self, Tally), String> {
        let (work, tally) = tallied(func, launch)?;
        let product = |(&id, &times): (&tessera_ir::OpId, &u64)| {
            let op = &func.ops[id];
            let side = |value: usize, axis: usize| {
                let shape = func.ty(op.operands[value]).static_shape().unwrap_or_default();
                shape.get(axis).map_or(1, |&n| n.max(1) as u64)
            };
            let (rows, depth, columns) = (side(0, 0), side(0, 1), side(1, 1));
            Product { rows, columns, depth, weight: weight(func.ty(op.operands[0]).dtype()), times }
        };
        let results = func.walk().into_iter().flat_map(|id| func.ops[id].results.clone());
        let counts = Self {
            work,
            groups: launch.grid.iter().map(|&n| n.max(0) as u64).fold(1, u64::saturating_mul),
            products: tally.products.iter().map(product).collect(),
            requested: tally.requested,
            tile: results.map(|r| bytes(func.ty(r))).max().unwrap_or(0),
            code: length(func),
            waits: tally.waits,
        };
        Ok((counts, tally))
    }

    /// Flops outside MMAs.
    pub fn other_flops(&self) -> f64 {
        let products: f64 = self.products.iter().map(|p| 2.0 * p.multiply_adds()).sum();
        (self.work.flops as f64 - products).max(0.0)
    }
}

/// Every op outside MMAs counted one time, whatever loops and branches are around it.
fn length(func: &TileFunc) -> u64 {
    let mut each = Tally::new(func.params().len());
    let all = func.walk().into_iter().map(|id| &func.ops[id]);
    all.filter(|op| op.code != TileOp::Mma).for_each(|op| ops::count(func, op, &mut each));
    each.flops
}

/// The cache lines that a row of `bytes` bytes touches, on average over its possible starts:
/// multiples of `on`. TMA copies rows in pieces of a line's length, each by itself, and requests a
/// whole line for a short one.
pub fn lines(bytes: u64, on: u64) -> f64 {
    let piece = |bytes: u64| match on.is_multiple_of(LINE) {
        true => 1.0,
        false => 1.0 + bytes.saturating_sub(on.max(1)) as f64 / LINE as f64,
    };
    let rest = bytes % LINE;
    (bytes / LINE) as f64 * piece(LINE) + if rest > 0 { piece(rest) } else { 0.0 }
}

fn bytes(ty: &Type) -> u64 {
    if !matches!(ty, Type::Tile { .. }) {
        return 0;
    }
    let shape = ty.static_shape().unwrap_or_default();
    shape.iter().map(|&n| n.max(0) as u64).fold(ty.dtype().bytes() as u64, u64::saturating_mul)
}
