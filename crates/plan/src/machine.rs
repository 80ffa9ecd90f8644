//! Machine models: tile sizes of graph kernels for CPUs and GPUs. They affect speed only, never
//! results.

/// A CPU takes tiles that stay in its nearest cache. A GPU holds a tile in registers: large enough
/// that each thread has a few wide accesses in flight, and small enough that many groups are
/// resident.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Machine {
    #[default]
    Cpu,
    Gpu {
        /// Multiprocessors: output tiles of matmuls are assigned to them in waves.
        processors: u32,
    },
}

/// Elements of a tile in which rows are reduced.
const COMBINED: i64 = 4096;
/// The most elements of a tile that is not forced to be larger.
const MOST: i64 = 16384;
/// The least contiguous elements of an access, where there are as many.
const WIDE: i64 = 32;

/// Tile extents of a matmul, and the fraction of the tensor cores' peak that a multiprocessor
/// reaches with them.
const TILES: [(i64, i64, f64); 7] = [
    (128, 256, 1.0),
    (256, 128, 0.98),
    (128, 192, 0.95),
    (128, 128, 0.87),
    (64, 256, 0.8),
    (64, 128, 0.7),
    (64, 64, 0.5),
];
/// The epilogue overhead of an output tile, in elements of k.
const AROUND: f64 = 96.0;

/// Split-K factors.
const SPLITS: [i64; 5] = [1, 2, 4, 8, 16];

/// The tile and the split-K factor that take the least time, counted in waves over all
/// multiprocessors.
fn deal(m: &Matrix, processors: i64, splits: &[i64]) -> (i64, i64, i64) {
    let mut best = (f64::INFINITY, (64, 64, 1));
    for (bm, bn, speed) in TILES {
        if bm >= 2 * m.rows || bn >= 2 * m.columns {
            continue;
        }
        let count = m.batch * cdiv(m.rows, bm) * cdiv(m.columns, bn);
        for &split in splits {
            let whole = m.depth % split == 0 && m.depth >= split * 512;
            if split > 1 && (!whole || count * split > 2 * processors) {
                continue;
            }
            let rounds = cdiv(count * split, processors) as f64;
            let mut time = rounds * (bm * bn) as f64 * ((m.depth / split) as f64 / speed + AROUND);
            if split > 1 {
                // Partial sums are written and read again.
                let parts = (m.batch * m.rows * m.columns * (split + 1)) as f64;
                time += parts * 12.0 / processors as f64 + 128.0 * 256.0 * 150.0;
            }
            if time < best.0 {
                best = (time, (bm, bn, split));
            }
        }
    }
    best.1
}

fn cdiv(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}

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
    /// Bytes of an operand's element.
    pub bytes: i64,
}

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

    /// Tile extents along m, n and k of a matmul.
    pub fn matrix(self, m: &Matrix) -> (i64, i64, i64) {
        match self {
            Machine::Cpu => {
                let fit = |n: i64, most: i64| if n >= most { most } else { power(n.max(2)) };
                (fit(m.rows, 64), fit(m.columns, 64), fit(m.depth, 32))
            }
            Machine::Gpu { processors } => {
                let depth = (128 / m.bytes).max(16).min(power(m.depth.max(16)));
                let small = |n: i64| power(n).clamp(16, 64);
                if m.rows < 64 || m.columns < 64 {
                    return (small(m.rows), small(m.columns), depth);
                }
                let (bm, bn, _) = deal(m, processors.into(), &[1]);
                (bm, bn, depth)
            }
        }
    }

    /// The split-K factor: more than one where there are too few output tiles for all
    /// multiprocessors.
    pub fn chunks(self, m: &Matrix) -> i64 {
        match self {
            Machine::Gpu { processors } if m.rows >= 64 && m.columns >= 64 => {
                deal(m, processors.into(), &SPLITS).2
            }
            Machine::Gpu { .. } | Machine::Cpu => 1,
        }
    }

    /// How many of `count` elements along an axis that is not contiguous, or of elements in a row
    /// where there are `rows` rows, one group combines; a second kernel combines the partial
    /// results.
    pub fn combined(self, count: i64, contiguous: bool, rows: i64) -> i64 {
        let most = match (self, contiguous) {
            (Machine::Cpu, _) => return count,
            (Machine::Gpu { processors }, true) if rows >= processors.into() => 4 * MOST,
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
pub fn threads(axes: &[Side], processors: u32) -> Vec<i64> {
    let groups = 2 * i64::from(processors.max(1));
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
