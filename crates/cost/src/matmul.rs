//! The schedule of a product of matrices, before there is a kernel: which tiles, and into how many chunks of K it is
//! divided where there are too few tiles for all processors.

use crate::Work;
use crate::counts::{Counts, Product};
use crate::estimate::{Estimate, Limit, Requested, estimate};
use tessera_target::speed::{LINE, Speed};

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
    /// Rows of the matrices lie on multiples of so many bytes.
    pub row_bytes: u64,
}

impl Shape {
    fn lies_on(&self, unit: u64) -> bool {
        self.row_bytes.is_multiple_of(unit)
    }
}

/// A way to compute it, and how long that takes.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct MatmulPlan {
    pub rows: u64,
    pub columns: u64,
    /// Chunks of K; more than one are combined by a second launch.
    pub split: u64,
    /// Whether all tiles are computed at once, so that no processor takes a second one.
    pub once: bool,
    /// Iterations whose operands are on their way at once; none where that is what memory holds.
    pub stages: Option<u64>,
    pub seconds: f64,
    pub limit: Limit,
}

/// Sides of tiles that are tried; of equal ones the first is taken.
const TILES: [(u64, u64); 7] =
    [(128, 256), (256, 128), (128, 192), (128, 128), (64, 256), (64, 128), (64, 64)];
/// Chunks that K may be divided into, and how much of K one must have.
const SPLITS: [u64; 6] = [1, 2, 4, 8, 16, 32];
const CHUNK: u64 = 512;
/// Up to so many columns the long matrix is read once, and nothing else takes time.
pub const FEW: u64 = 64;
/// Of such a product a chunk has more: what counts is that reads are long.
const LONG_CHUNK: u64 = 1024;
/// The part of the processors that read as fast as all: more chunks are a second launch for nothing.
const ENOUGH: (u64, u64) = (2, 5);
/// Chunks must be so many times as quick: two launches vary more than one, and what was predicted to gain less lost as much.
const SURE: f64 = 1.05;
/// Bytes of a sum that is kept between two launches.
const SUM: u64 = 4;

/// What ways there are, the quickest first; `may_split` says whether K may be divided.
pub fn plans(shape: &Shape, may_split: bool, speed: &Speed) -> Vec<MatmulPlan> {
    if shape.n <= FEW {
        return vec![narrow(shape, may_split, speed)];
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
    // The order of tiles stays where times are equal.
    let key = |p: &MatmulPlan| if p.split > 1 { p.seconds * SURE } else { p.seconds };
    found.sort_by(|a, b| key(a).total_cmp(&key(b)));
    found
}

/// The way for few columns: pieces of 64 rows, and as few chunks as keep enough processors reading.
fn narrow(shape: &Shape, may_split: bool, speed: &Speed) -> MatmulPlan {
    let columns = [16, 32, FEW].into_iter().find(|&w| w >= shape.n).unwrap_or(FEW);
    let count = shape.batch * shape.m.div_ceil(64);
    let enough =
        |s: &u64| count * s >= speed.processors * ENOUGH.0 / ENOUGH.1 || shape.k < LONG_CHUNK * s;
    let split = SPLITS.into_iter().find(enough).unwrap_or(SPLITS[SPLITS.len() - 1]);
    plan(shape, 64, columns, if may_split { split } else { 1 }, speed)
}

fn plan(shape: &Shape, rows: u64, columns: u64, split: u64, speed: &Speed) -> MatmulPlan {
    let requested = Requested { whole_lines: shape.lies_on(LINE), ..Requested::default() };
    let main: Estimate = estimate(&counts(shape, rows, columns, split), requested, speed);
    let mut seconds = main.seconds;
    if split > 1 {
        // Parts are read again, and the result is written.
        let elements = shape.batch * shape.m * shape.n;
        let bytes = elements * (SUM * split + shape.out_bytes);
        seconds += speed.launch + bytes as f64 / speed.memory;
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

/// Bytes of a row that a copy engine requests at once, and its clocks for such a row that begins inside of a line: as
/// measured, where one at the beginning of a line takes 1.5. Rows on multiples of 32 bytes take 1.8 where one processor
/// asks and 3.0 where all do, and the same count of stages was the best for them.
const PIECE: u64 = 128;
const INSIDE_LINE: f64 = 2.7;
/// Stages beside those that cover the way to memory: one that is multiplied, and one that is filled.
const BESIDE: u64 = 2;

/// Where rows begin inside of lines a copy engine is slow, and iterations that are requested earlier than the way to memory
/// wants it only wait for each other.
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

/// What a launch in such tiles is; the padding of K is left out.
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
    Counts { work, groups, products, requested: read, tile: SUM * rows * columns }
}

/// The width of tiles of `rows` for a product whose rows are in groups, each with a matrix of its own: `count` tiles of
/// rows, of which a group ends in the middle of one.
pub fn grouped(rows: u64, count: u64, n: u64, shape: &Shape, speed: &Speed) -> u64 {
    let fits = |&(r, c): &(u64, u64)| r == rows && (c <= 128 || c < 2 * n);
    let seconds = |columns: u64| {
        let of = Shape { batch: 1, m: count * rows, n, ..*shape };
        plan(&of, rows, columns, 1, speed).seconds
    };
    let best = TILES.into_iter().filter(fits).map(|(_, c)| c);
    best.min_by(|&a, &b| seconds(a).total_cmp(&seconds(b))).unwrap_or(128)
}
