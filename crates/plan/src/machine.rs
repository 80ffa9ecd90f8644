//! Machine models: tile sizes of graph kernels for CPUs and GPUs. They affect speed only, never
//! results. Those of matmuls on GPUs are the schedules of [`tessera_cost::matmul`], which the library
//! uses too.

use tessera_cost::matmul::{Problem, Schedule, Shape, schedule};
use tessera_cost::weight;
use tessera_numerics::DType;
use tessera_target::speed::{LINE, Speed};

/// A CPU takes tiles that stay in its nearest cache. A GPU holds a tile in registers: large enough
/// that each thread has a few wide accesses in flight, and small enough that many groups are
/// resident.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub enum Machine {
    #[default]
    Cpu,
    Gpu {
        /// What the cost model chooses schedules by.
        speed: Speed,
    },
}

/// Elements of a tile in which rows are reduced.
const COMBINED: i64 = 4096;
/// The most elements of a tile that is not forced to be larger.
const MOST: i64 = 16384;
/// The least contiguous elements of an access, where there are as many.
const WIDE: i64 = 32;

fn power(n: i64) -> i64 {
    (n.max(1) as u64).next_power_of_two() as i64
}

/// The largest power of two of at most `n`.
fn floor_power(n: i64) -> i64 {
    1 << n.max(1).ilog2()
}

/// The matmul that a tile is chosen for.
pub struct Matrix {
    pub rows: i64,
    pub columns: i64,
    pub depth: i64,
    /// The number of matmuls of these extents.
    pub batch: i64,
    /// The dtype of the left operand.
    pub of: DType,
    /// Bytes of an element of the result.
    pub out_bytes: i64,
    /// The bytes that rows of the operands begin at multiples of.
    pub rows_on: [u64; 2],
    /// Whether sums may be in another order than along k.
    pub may_split: bool,
}

/// Tile extents along m, n and k of a matmul.
pub struct Tiles {
    pub rows: i64,
    pub columns: i64,
    pub depth: i64,
    /// The rest of the schedule, on GPUs.
    pub schedule: Option<Schedule>,
}

impl Matrix {
    fn problem(&self) -> Problem {
        let size = |n: i64| n.max(0) as u64;
        let odd_rows = self.rows_on.map(|on| Some(on).filter(|&on| on < TMA_ROWS));
        let good = odd_rows.iter().zip(self.rows_on).filter(|(odd, _)| odd.is_none());
        let row_bytes = good.map(|(_, on)| on).min().unwrap_or(LINE);
        let shape = Shape {
            batch: size(self.batch),
            m: size(self.rows),
            n: size(self.columns),
            k: size(self.depth),
            bytes: self.of.bytes() as u64,
            out_bytes: size(self.out_bytes),
            weight: weight(self.of),
            row_bytes,
        };
        Problem { shape, odd_rows, may_split: self.may_split }
    }
}

/// TMA takes rows at multiples of these bytes.
pub const TMA_ROWS: u64 = 16;

impl Machine {
    pub fn is_gpu(self) -> bool {
        match self {
            Machine::Gpu { .. } => true,
            Machine::Cpu => false,
        }
    }

    /// Elements of one row that a group of a scatter takes.
    pub fn row_part(self) -> i64 {
        match self {
            Machine::Cpu => 2048,
            Machine::Gpu { .. } => 1024,
        }
    }

    /// Groups that run at the same time: threads of a CPU share one.
    pub fn processors(self) -> i64 {
        match self {
            Machine::Cpu => 1,
            Machine::Gpu { speed } => i64::try_from(speed.processors.max(1)).unwrap_or(i64::MAX),
        }
    }

    /// The tiles of a matmul.
    pub fn matrix(self, m: &Matrix) -> Tiles {
        match self {
            Machine::Cpu => {
                let fit = |n: i64, most: i64| if n >= most { most } else { power(n.max(2)) };
                let (rows, columns) = (fit(m.rows, 64), fit(m.columns, 64));
                Tiles { rows, columns, depth: fit(m.depth, 32), schedule: None }
            }
            Machine::Gpu { speed } => {
                let found = schedule(&m.problem(), &speed);
                let [rows, columns, depth] =
                    [found.rows, found.columns, found.depth].map(|n| n as i64);
                Tiles { rows, columns, depth, schedule: Some(found) }
            }
        }
    }

    /// The split-K factor: more than one where there are too few output tiles for all
    /// multiprocessors.
    pub fn chunks(self, m: &Matrix) -> i64 {
        match self {
            Machine::Cpu => 1,
            Machine::Gpu { speed } => schedule(&m.problem(), &speed).split as i64,
        }
    }

    /// How many of `count` elements along an axis that is not contiguous, or of elements in a row
    /// where there are `rows` rows, one group combines; a second kernel combines the partial
    /// results.
    pub fn combined(self, count: i64, contiguous: bool, rows: i64) -> i64 {
        let most = match (self, contiguous) {
            (Machine::Cpu, _) => return count,
            (Machine::Gpu { .. }, true) if rows >= self.processors() => 4 * MOST,
            (Machine::Gpu { .. }, true) => COMBINED,
            (Machine::Gpu { .. }, false) => 128,
        };
        if count <= most { count } else { most }
    }
}

/// An axis of a loop nest: its extent, whether all of it must be in one tile, and whether some
/// array is contiguous along it.
pub struct Side {
    pub extent: i64,
    pub full: bool,
    pub neighbours: bool,
}

/// Tile extents for the axes of a loop nest, from the outermost to the innermost; 1 where it is not
/// tiled. Two groups for each multiprocessor keep a GPU busy: with fewer, each group takes less.
pub fn threads(axes: &[Side], processors: i64) -> Vec<i64> {
    let groups = 2 * processors.max(1);
    let mut out: Vec<i64> = axes.iter().map(|a| if a.full { a.extent } else { 1 }).collect();
    let mut size: i64 = out.iter().product();
    let free: Vec<usize> = (0..axes.len()).filter(|&i| !axes[i].full).collect();
    let total = axes.iter().fold(1i64, |n, a| n.saturating_mul(a.extent));
    // A tile of this many elements leaves enough groups.
    let line = floor_power((total / groups).clamp(256, COMBINED));
    let Some(&last) = free.last() else { return out };
    if size > 1 {
        // Rows, or adjacent columns: as many as fit, while enough groups are left.
        let inner = last + 1 == axes.len();
        let mut room = (line / size).max(1);
        if inner || axes[last].neighbours {
            room = room.max(WIDE.min(MOST / size)).max(1);
        }
        for &i in free.iter().rev() {
            let n = axes[i].extent;
            let tile = even(n, floor_power(room));
            out[i] = tile;
            room /= tile;
            if room <= 1 || tile < n {
                break;
            }
        }
        return out;
    }
    // Where an array is contiguous along another axis too, a square of both.
    let other = free.iter().copied().rev().find(|&i| i != last && axes[i].neighbours);
    if let Some(other) = other {
        let (a, b) = (power(axes[other].extent), power(axes[last].extent));
        let side = floor_power((total / groups).clamp(1024, COMBINED)).ilog2();
        let half = 1 << (side / 2);
        let (mut a, mut b) = (a.min(half), b.min(half));
        if a < half {
            b = (power(axes[last].extent)).min((1 << side) / a);
        } else if b < half {
            a = (power(axes[other].extent)).min((1 << side) / b);
        }
        (out[other], out[last]) = (a, b);
        return out;
    }
    for &i in free.iter().rev() {
        let room = line / size;
        if room <= 1 {
            break;
        }
        let n = axes[i].extent;
        out[i] = even(n, room.min(1024.max(line / axes.len() as i64)));
        size *= out[i];
        if out[i] < n {
            // The remaining room goes to rows where the row is short.
            if power(n) > out[i] * 4 {
                break;
            }
        }
    }
    out
}

/// A power of two of at most `room` elements: one that divides `n` where that is not much less.
fn even(n: i64, room: i64) -> i64 {
    let most = power(n).min(floor_power(room));
    let divides = 1i64 << n.trailing_zeros();
    if divides < most && divides * 4 >= most { divides } else { most }
}
