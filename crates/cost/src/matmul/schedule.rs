//! All that is chosen for a matmul in memory: tiles and split-K by the cost model, the transposed
//! matmul, operands that are copied to aligned rows first, clusters, persistent groups, pipeline
//! depth. The library and the planner of whole functions ask the same.
//!
//! TMA takes rows at multiples of 16 bytes. An operand with other rows ("odd") is loaded by threads,
//! and where their multiples are below the sizes of asynchronous copies, MMAs wait for it.

use super::{FEW, MatmulPlan, Shape, plans};
use tessera_target::speed::{LINE, Speed};

/// A matmul, as its operands are in memory.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Problem {
    /// Its `row_bytes` are of the operands whose rows TMA takes.
    pub shape: Shape,
    /// For each operand with odd rows, the bytes that they begin at multiples of.
    pub odd_rows: [Option<u64>; 2],
    /// Whether sums may be in another order than along k: not under `strict`.
    pub may_split: bool,
}

/// How a matmul is computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub rows: u64,
    pub columns: u64,
    pub depth: u64,
    /// The split-K factor.
    pub split: u64,
    /// Whether `B^T A^T` is computed, on the same memory.
    pub swapped: bool,
    /// Which operands are copied to aligned rows first.
    pub padded: [bool; 2],
    /// Blocks of a cluster along rows and columns of tiles; none is the compiler's choice.
    pub cluster: Option<[u64; 2]>,
    /// Whether groups take one tile after another; not where all are resident together.
    pub persistent: bool,
    /// The pipeline depth; none where it is what shared memory holds.
    pub stages: Option<u64>,
    /// What the cost model compared, the chosen one first.
    pub ranked: Vec<MatmulPlan>,
}

/// Bytes of a step along k: a piece of TMA.
const STEP: u64 = 128;
/// The least extent of a tile, and the bytes of a step along k of one MMA instruction.
const LEAST: u64 = 16;
const LEAST_STEP_BYTES: u64 = 32;
/// Multiply-adds of a group that are unrolled where threads multiply: the code of a thread has to
/// fit in the instruction cache.
const UNROLLED: u64 = 2048 * 256;
/// From this side of the result on, odd rows are always copied: each row is read many times.
const WORTH_PADDING: u64 = 256;
/// Bytes of an operand up to which a copy of it takes no longer than a launch.
const SHORT_COPY: u64 = 16 << 20;
/// A `k` below which a matmul with a short side is over before a copy pays.
const SHORT_K: u64 = 128;
/// Asynchronous copies of the first number of bytes keep a pipeline full; of fewer than the second
/// there are none, and elements are read one by one.
const ASYNC_BYTES: (u64, u64) = (8, 4);
/// More tiles than this along a side, and one that has no neighbour in its cluster costs little.
const MANY: u64 = 16;

/// The schedule with the least predicted time.
pub fn schedule(problem: &Problem, speed: &Speed) -> Schedule {
    let Shape { batch, m, n, k, bytes, .. } = problem.shape;
    let one_by_one = problem.shape.weight.is_none();
    // Tiles are longer along their rows: few rows become few columns.
    let swapped = m <= FEW && n > m;
    let (m, n) = if swapped { (n, m) } else { (m, n) };
    let shape = Shape { m, n, ..problem.shape };
    let ranked = plans(&shape, problem.may_split, speed);
    let best = ranked[0];
    let MatmulPlan { mut rows, mut columns, split, once, stages, .. } = best;
    let mut depth = (STEP / bytes.max(1)).max(LEAST);
    if n <= FEW {
        // The long matrix is read once, in deeper steps; narrow tiles where there are too few.
        depth *= if k > depth { 2 } else { 1 };
        let tiles = |columns: u64| batch * m.div_ceil(rows) * n.div_ceil(columns) * split;
        while columns > LEAST && 2 * tiles(columns) <= speed.processors {
            columns /= 2;
        }
    } else if one_by_one {
        // A power of two: tiles begin where wide reads may.
        depth = depth.min((1 << (UNROLLED / (rows * columns)).ilog2()).max(LEAST));
    }
    if k <= depth {
        // One step: no pipeline to feed, and nothing to gain from the padding of small matrices.
        depth = depth.min(side(k).max(LEAST_STEP_BYTES / bytes.max(1)));
        (rows, columns) = (rows.min(side(m)), columns.min(side(n)));
    }
    let padded = padded(problem, one_by_one);
    // Rows that begin inside cache lines take two requests each, which limits the speed: a cluster
    // of two shares them.
    let inside = !problem.shape.row_bytes.is_multiple_of(LINE) && padded == [false; 2];
    let shares = inside && split == 1 && problem.may_split && n > FEW;
    let cluster = if shares { neighbours(m, n, rows, columns) } else { None };
    let stages = stages.filter(|_| cluster.is_some());
    Schedule {
        rows,
        columns,
        depth,
        split,
        swapped,
        padded,
        cluster,
        persistent: !once,
        stages,
        ranked,
    }
}

/// The least tile that covers an extent.
fn side(extent: u64) -> u64 {
    extent.next_power_of_two().max(LEAST)
}

/// Both odd operands are copied or none: one that is not pipelined delays the other.
fn padded(problem: &Problem, one_by_one: bool) -> [bool; 2] {
    let Shape { batch, m, n, k, bytes, .. } = problem.shape;
    let short = m.min(n);
    // Threads read matrices of 4 bytes in place: copies of 4 bytes are asynchronous too.
    if one_by_one || k < SHORT_K && short < WORTH_PADDING {
        return [false; 2];
    }
    let (wide, least) = ASYNC_BYTES;
    let sizes = [batch * m * k * bytes, batch * k * n * bytes];
    let pays = |(odd, size): (&Option<u64>, u64)| {
        odd.is_some_and(|on| {
            short >= WORTH_PADDING || bytes == 2 && (on < least || on < wide && size <= SHORT_COPY)
        })
    };
    match problem.odd_rows.iter().zip(sizes).any(pays) {
        true => problem.odd_rows.map(|odd| odd.is_some()),
        false => [false; 2],
    }
}

/// A cluster of two blocks that share the loads of the wider operand. Tiles along that side must
/// come in pairs, or number many.
fn neighbours(m: u64, n: u64, rows: u64, columns: u64) -> Option<[u64; 2]> {
    let pairs = |count: u64| count.is_multiple_of(2) || count > MANY;
    if columns >= rows && pairs(m.div_ceil(rows)) {
        return Some([2, 1]);
    }
    pairs(n.div_ceil(columns)).then_some([1, 2])
}
