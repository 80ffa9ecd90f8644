//! The schedule of a matmul, before there is a kernel: its tiles, and its split-K factor where
//! there are too few tiles for all processors; [`schedule()`] has the rest.

mod schedule;

use crate::Work;
use crate::counts::{Counts, Product};
use crate::estimate::{Estimate, Limit, Requested, estimate};
use tessera_target::speed::{LINE, Speed};

pub use schedule::{OddRows, Problem, Schedule, schedule};

/// `[P, M, K]` by `[P, K, N]`.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Shape {
    pub batch: u64,
    pub m: u64,
    pub n: u64,
    pub k: u64,
    /// Bytes of an element of the matrices, and of the result.
    pub bytes: u64,
    pub out_bytes: u64,
    /// See [`Product::weight`].
    pub weight: Option<f64>,
    /// Rows of the matrices are aligned to this many bytes.
    pub row_bytes: u64,
}

impl Shape {
    fn lies_on(&self, unit: u64) -> bool {
        self.row_bytes.is_multiple_of(unit)
    }
}

/// A schedule, and its time.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct MatmulPlan {
    pub rows: u64,
    pub columns: u64,
    /// The split-K factor; with more than 1, a second launch adds the partial sums.
    pub split: u64,
    /// Whether all tiles are computed in one wave, so that no processor takes a second one.
    pub once: bool,
    /// The pipeline depth; none where it is what shared memory holds.
    pub stages: Option<u64>,
    pub seconds: f64,
    pub limit: Limit,
}

/// Tile sizes that are tried; of equal ones the first is taken.
const TILES: [(u64, u64); 7] =
    [(128, 256), (256, 128), (128, 192), (128, 128), (64, 256), (64, 128), (64, 64)];
/// Split-K factors, and the least k of a chunk.
const SPLITS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
const CHUNK: u64 = 512;
/// Up to this many columns the large matrix is read once, and nothing else takes time.
pub const FEW: u64 = 64;
/// The least k of a chunk of such a matmul: long reads matter more. Threads take longer for each.
const LONG_CHUNK: u64 = 1024;
const THREADS_CHUNK: u64 = 128;
/// The rows of its tiles: threads that multiply one by one are many in more and smaller ones, where
/// 16 columns are enough.
const NARROW_ROWS: u64 = 64;
const THREADS_ROWS: u64 = 32;
/// The fraction of the processors that reaches the full memory bandwidth: more chunks gain nothing
/// for their second launch.
const ENOUGH: (u64, u64) = (2, 5);
/// Split-K must be this many times as fast: two launches vary more than one, and smaller predicted
/// gains were losses as often.
const SURE: f64 = 1.05;
/// Bytes of a partial sum in memory between two launches.
const SUM: u64 = 4;
/// Partial sums that the second launch loads together, and the part of the memory latency that
/// each such step takes: they were just written.
const TOGETHER: u64 = 4;
const NEAR: f64 = 0.25;

/// The schedules, the fastest first; `may_split` says whether split-K is allowed.
pub fn plans(shape: &Shape, may_split: bool, speed: &Speed) -> Vec<MatmulPlan> {
    if shape.n <= FEW {
        return sorted(narrow(shape, may_split, speed));
    }
    let mut found = Vec::new();
    for (rows, columns) in TILES {
        if rows >= 2 * shape.m.max(64) || columns >= 2 * shape.n.max(64) {
            continue;
        }
        let count = shape.batch * shape.m.div_ceil(rows) * shape.n.div_ceil(columns);
        for split in SPLITS {
            let fits = shape.k >= split * CHUNK && count * split <= 2 * speed.processors;
            if split > 1 && !(may_split && fits) {
                break;
            }
            found.push(plan(shape, rows, columns, split, speed));
        }
    }
    sorted(found)
}

/// The fastest first; tiles of equal times keep their order.
fn sorted(mut found: Vec<MatmulPlan>) -> Vec<MatmulPlan> {
    let key = |p: &MatmulPlan| if p.split > 1 { p.seconds * SURE } else { p.seconds };
    found.sort_by(|a, b| key(a).total_cmp(&key(b)));
    found
}

/// The schedules for few columns: tiles of few rows, and at most as many chunks as keep enough
/// processors reading.
fn narrow(shape: &Shape, may_split: bool, speed: &Speed) -> Vec<MatmulPlan> {
    let columns = [16, 32, FEW].into_iter().find(|&w| w >= shape.n).unwrap_or(FEW);
    let chunk = if shape.weight.is_some() { LONG_CHUNK } else { THREADS_CHUNK };
    let rows = match (shape.weight, columns) {
        (None, ..=16) => THREADS_ROWS,
        _ => NARROW_ROWS,
    };
    let count = shape.batch * shape.m.div_ceil(rows);
    // Threads that multiply take longer than the reads, and so more processors.
    let busy = match shape.weight {
        Some(_) => speed.processors * ENOUGH.0 / ENOUGH.1,
        None => speed.processors,
    };
    let enough = |s: &u64| count * s >= busy || shape.k < chunk * s;
    let most = SPLITS.into_iter().find(enough).unwrap_or(SPLITS[SPLITS.len() - 1]);
    let most = if may_split { most } else { 1 };
    let splits = SPLITS.into_iter().filter(|&s| s <= most);
    splits.map(|split| plan(shape, rows, columns, split, speed)).collect()
}

fn plan(shape: &Shape, rows: u64, columns: u64, split: u64, speed: &Speed) -> MatmulPlan {
    let requested = Requested { whole_lines: shape.lies_on(LINE), ..Requested::default() };
    let main: Estimate = estimate(&counts(shape, rows, columns, split), requested, speed);
    let mut seconds = main.seconds;
    if split > 1 {
        // Partial sums are read again, and the result is written. The groups that do it are short,
        // and their loads wait for each other.
        let elements = shape.batch * shape.m * shape.n;
        let bytes = elements * (SUM * split + shape.out_bytes);
        let waits = split.div_ceil(TOGETHER) as f64 * NEAR * speed.memory_latency / speed.clock;
        seconds += speed.launch + speed.group + waits + bytes as f64 / speed.memory;
    }
    MatmulPlan {
        rows,
        columns,
        split,
        once: main.rounds == 1,
        stages: stages(shape, rows, columns, speed),
        seconds,
        limit: main.limit(),
    }
}

/// Bytes of a row that TMA requests in one piece, and its clocks for a piece that does not begin at
/// a cache line (measured); one at a line takes 1.5 clocks. Rows aligned to 32 bytes take 1.8
/// clocks with one processor and 3.0 with all of them, and the same pipeline depth was the best for
/// them.
const PIECE: u64 = 128;
const INSIDE_LINE: f64 = 2.7;
/// Stages beside those that cover the memory latency: one that is read, and one that is filled.
const BESIDE: u64 = 2;

/// The pipeline depth for rows that do not begin at cache lines. TMA is slow for them, and loads
/// that are issued earlier than the memory latency requires only wait for each other.
fn stages(shape: &Shape, rows: u64, columns: u64, speed: &Speed) -> Option<u64> {
    if shape.lies_on(LINE) {
        return None;
    }
    let iteration = (rows + columns) as f64 * INSIDE_LINE;
    let deep = (PIECE / shape.bytes.max(1)).max(1);
    let products =
        (rows * columns * deep) as f64 * shape.weight.unwrap_or(1.0) / speed.matrix.max(1.0);
    Some((speed.memory_latency / iteration.max(products)).ceil() as u64 + BESIDE)
}

/// The counts of a launch with such tiles; the padding of k is left out.
pub fn counts(shape: &Shape, rows: u64, columns: u64, split: u64) -> Counts {
    let &Shape { batch, m, n, k, bytes, out_bytes, weight, .. } = shape;
    let tiles = batch * m.div_ceil(rows) * n.div_ceil(columns);
    let (groups, depth) = (tiles * split, k.div_ceil(split));
    let read = groups * (rows + columns) * depth * bytes;
    let each = if split > 1 { SUM } else { out_bytes };
    let written = groups * rows * columns * each;
    let work = Work {
        flops: 2 * groups * rows * columns * depth,
        read,
        written,
        least_read: batch * (m * k + k * n) * bytes,
        least_written: batch * m * n * split * each,
        exact: true,
    };
    let products = vec![Product { rows, columns, depth, weight, times: groups }];
    Counts {
        work,
        groups,
        products,
        requested: read,
        tile: SUM * rows * columns,
        code: 0,
        waits: 0,
    }
}

/// The tile width for a grouped matmul, whose rows are in groups with a matrix each: `count` tiles
/// of `rows` rows, where a group may end inside a tile.
pub fn grouped(rows: u64, count: u64, n: u64, shape: &Shape, speed: &Speed) -> u64 {
    let fits = |&(r, c): &(u64, u64)| r == rows && (c <= 128 || c < 2 * n);
    let seconds = |columns: u64| {
        let of = Shape { batch: 1, m: count * rows, n, ..*shape };
        plan(&of, rows, columns, 1, speed).seconds
    };
    let best = TILES.into_iter().filter(fits).map(|(_, c)| c);
    best.min_by(|&a, &b| seconds(a).total_cmp(&seconds(b))).unwrap_or(128)
}
