//! The time of a launch by the cost model, with the resources that staging found.

use crate::bind::Slot;
use tessera_cost::{Counts, Estimate, Launch, Requested};
use tessera_target::speed::{LINE, Speed};
use tessera_target::{BufferArg, Footprint};
use tessera_tile::TileFunc;

/// Threads of a warp.
const LANES: u32 = 32;

/// What is known of a launch beside its Tile IR.
pub struct Known<'a> {
    pub launch: Launch<'a>,
    /// The alignment of the rows of each parameter's array, in bytes.
    pub rows_on: &'a [u64],
    pub footprint: Option<&'a Footprint>,
    /// The pipeline depth that the schedule pins.
    pub stages: Option<u64>,
}

pub fn predict(func: &TileFunc, known: &Known<'_>, speed: &Speed) -> Option<Estimate> {
    let counts = Counts::lying(func, &known.launch, known.rows_on).ok()?;
    let whole = known.rows_on.iter().all(|&bytes| bytes == LINE);
    // Fewer stages than pinned where loads cannot be asynchronous, or where they do not fit.
    let staged = known.footprint.and_then(|f| f.stages).map(u64::from);
    let requested = Requested {
        stages: staged.or(known.stages),
        resident: known.footprint.map_or(1, |f| f.resident.into()),
        whole_lines: whole || !counts.products.is_empty(),
        warps: known.footprint.map(|f| u64::from(f.threads.div_ceil(LANES))),
        spilled: known.footprint.map_or(0, Footprint::spilled),
        by_warps: known.footprint.is_some_and(|f| f.async_mma == Some(false)),
    };
    Some(tessera_cost::estimate(&counts, requested, speed))
}

/// The alignment of the rows of an argument; arrays that do not exist yet will be aligned.
pub fn slot_rows_on(slot: &Slot) -> u64 {
    match slot {
        Slot::Array(array) => rows_on(&array.buffer),
        Slot::Scalar(_) | Slot::Static | Slot::Missing { .. } => LINE,
    }
}

/// The alignment of the rows of an array, in bytes and up to a cache line.
pub fn rows_on(b: &BufferArg) -> u64 {
    let steps = b.dims.iter().zip(&b.strides).filter(|(n, _)| **n > 1).map(|(_, s)| *s);
    let each = b.dtype.bytes() as i64;
    let steps = steps.filter(|&s| s != each).fold(b.data as u64, |all, s| all | s.unsigned_abs());
    // The lowest bit that any of them has.
    1 << steps.trailing_zeros().min(LINE.trailing_zeros())
}
