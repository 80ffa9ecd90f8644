//! How long a launch takes. Groups go in rounds over the processors, and the last may be almost empty; in a round a
//! processor computes and moves at once, and the slower of the two counts; what is at the beginning and the end of a
//! tile of sums comes on top. The constants are those of [`Speed`]; docs/perf/gemm.md holds predictions against measured
//! times.

use crate::counts::{Counts, Product};
use std::fmt;
use tessera_target::speed::{LINE, Speed};

/// What is requested of a launch beside its counts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// Iterations of a loop whose operands are held at once, where that is pinned.
    pub stages: Option<u64>,
    /// Whether rows of arrays begin at lines of the cache: pieces that do not lie in two.
    pub whole_lines: bool,
    /// Registers of a thread that its tiles take beyond those it may have.
    pub spilled: u32,
    /// Whether warps make products on a machine with an engine for them.
    pub by_warps: bool,
}

impl Default for Requested {
    fn default() -> Self {
        Self { stages: None, whole_lines: true, spilled: 0, by_warps: false }
    }
}

/// What the time of a launch is mostly.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    Arithmetic,
    Cache,
    Memory,
    /// What is before and after the work of groups.
    Groups,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Arithmetic => "arithmetic",
            Limit::Cache => "reads of the cache",
            Limit::Memory => "memory",
            Limit::Groups => "the beginnings and ends of groups",
        })
    }
}

/// The seconds of a launch, and of its parts.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Estimate {
    pub seconds: f64,
    pub arithmetic: f64,
    pub cache: f64,
    pub memory: f64,
    pub epilogue_overhead: f64,
    /// How often each processor takes a group.
    pub rounds: u64,
    /// Registers of a thread that do not fit.
    pub spilled: u32,
}

impl Estimate {
    pub fn limit(&self) -> Limit {
        let parts = [
            (self.arithmetic, Limit::Arithmetic),
            (self.cache, Limit::Cache),
            (self.memory, Limit::Memory),
            (self.epilogue_overhead, Limit::Groups),
        ];
        parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).map_or(Limit::Groups, |(_, l)| l)
    }
}

/// Of what overlaps the longest counts, and so much of the rest: among ways that are bound by the same thing the one
/// with less of the others is the better.
const REST: f64 = 0.1;
/// How many times as long products of warps take where there is an engine: as measured, docs/perf/gemm.md.
const BY_WARPS: f64 = 1.8;
/// A thread with so many registers too few takes twice as long: what it holds goes to memory and back in every iteration, and
/// products wait for that. As measured, docs/perf/untuned.md.
const SPILLED: f64 = 32.0;
/// The part of the processors that read as fast from memory as all of them.
const ENOUGH: f64 = 0.4;

pub fn estimate(counts: &Counts, requested: Requested, speed: &Speed) -> Estimate {
    let groups = counts.groups.max(1);
    let processors = speed.processors.max(1);
    let has_products = !counts.products.is_empty() && speed.matrix > 0.0;
    let rounds = groups.div_ceil(processors);
    // The last round takes as long as the others, however few groups are in it.
    let uneven = (rounds * processors) as f64 / groups as f64;
    let products: f64 = counts.products.iter().map(|p| clocks(p, requested, speed)).sum();
    let others = counts.other_flops() / (2.0 * speed.scalar.max(1.0));
    let products = if requested.by_warps { BY_WARPS * products } else { products };
    let slower = 1.0 + f64::from(requested.spilled) / SPILLED;
    let arithmetic = (products + others) * slower * uneven / (processors as f64 * speed.clock);
    let twice = if requested.whole_lines { 1.0 } else { 2.0 };
    let cache = twice * counts.requested as f64 / LINE as f64 / speed.l2_lines_per_s;
    let reading = (groups as f64 / (ENOUGH * processors as f64)).min(1.0);
    let memory = counts.work.bytes() as f64 / (speed.memory * reading);
    let sums = counts.products.iter().map(|p| p.rows * p.columns).max().unwrap_or(0);
    // The groups of a processor without products begin while others work; one with products has the processor alone.
    let (epilogue_overhead, begun) = if has_products {
        (rounds as f64 * sums as f64 * speed.epilogue_overhead / speed.matrix_rate(), 0.0)
    } else {
        let begun =
            groups.div_ceil(processors * speed.max_resident_blocks.max(1)) as f64 * speed.group;
        (begun, begun)
    };
    let parts = [arithmetic, cache, memory, begun];
    let longest = parts.into_iter().fold(0.0, f64::max);
    let overlapped = longest + REST * (parts.iter().sum::<f64>() - longest);
    let spilled = if counts.tile > speed.local_bytes { 2 * counts.tile } else { 0 };
    let spilled = (spilled * rounds * processors) as f64 / speed.memory;
    let seconds = speed.launch + overlapped + (epilogue_overhead - begun) + spilled;
    Estimate {
        seconds,
        arithmetic,
        cache,
        memory,
        epilogue_overhead,
        rounds,
        spilled: requested.spilled,
    }
}

/// The clocks of one processor that makes a product all its times.
fn clocks(product: &Product, requested: Requested, speed: &Speed) -> f64 {
    let (rate, slower) = match product.weight {
        Some(weight) if speed.matrix > 0.0 => (speed.matrix, weight / product.efficiency()),
        // What the matrix units do not take goes the same way through shared memory.
        None if speed.matrix > 0.0 => (speed.scalar.max(1.0), 1.0 / product.efficiency()),
        _ => (speed.scalar.max(1.0), 1.0),
    };
    let whole = product.multiply_adds() * slower / rate;
    let iteration = whole / product.times.max(1) as f64;
    match requested.stages {
        // The operands of an iteration come, and are multiplied, before those of a later one can take their place: so long
        // each of the stages is taken.
        Some(stages) => {
            product.times as f64
                * iteration.max((speed.memory_latency + iteration) / stages.max(1) as f64)
        }
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Work;

    pub const HOPPER: Speed = Speed {
        processors: 132,
        clock: 1.755e9,
        matrix: 2048.0,
        scalar: 128.0,
        local_bytes: 1 << 18,
        shared_bytes: 227 << 10,
        l2_lines_per_s: 1.5e11,
        memory: 4.2e12,
        memory_latency: 2048.0,
        group: 1.5e-6,
        max_resident_blocks: 16,
        epilogue_overhead: 96.0,
        launch: 3.9e-6,
    };

    /// A product of n x n matrices of bf16 in tiles of b x b, 64 deep, padding included.
    fn gemm(n: u64, b: u64) -> Counts {
        let (tiles, iterations) = (n.div_ceil(b), n.div_ceil(64));
        let (groups, padded) = (tiles * tiles, tiles * b);
        let read = groups * iterations * 2 * b * 64 * 2;
        let times = groups * iterations;
        Counts {
            work: Work {
                flops: 2 * padded * padded * iterations * 64,
                read,
                written: 2 * padded * padded,
                least_read: 4 * n * n,
                least_written: 2 * n * n,
                exact: true,
            },
            groups,
            products: vec![Product { rows: b, columns: b, depth: 64, weight: Some(1.0), times }],
            requested: read + 2 * padded * padded,
            tile: 4 * b * b,
        }
    }

    fn time(n: u64, b: u64) -> f64 {
        estimate(&gemm(n, b), Requested::default(), &HOPPER).seconds
    }

    #[test]
    fn large_tiles_win_where_there_are_many_and_small_ones_where_there_are_few() {
        assert!(time(8192, 128) < time(8192, 64));
        assert!(time(256, 64) < time(256, 256));
        // Half of every tile would be padding.
        assert!(time(8256, 128) < time(8256, 8192));
    }

    #[test]
    fn tiles_that_are_held_nowhere_cost_memory() {
        let mut counts = gemm(8192, 256);
        let before = estimate(&counts, Requested::default(), &HOPPER).seconds;
        counts.tile *= 2;
        assert!(estimate(&counts, Requested::default(), &HOPPER).seconds > 1.01 * before);
    }

    #[test]
    fn too_few_stages_wait_for_memory_and_rows_off_lines_ask_twice() {
        let counts = gemm(4096, 64);
        let at = |stages| {
            estimate(&counts, Requested { stages, ..Requested::default() }, &HOPPER).arithmetic
        };
        assert!(at(Some(1)) > at(Some(2)) && at(Some(2)) > at(Some(4)) && at(Some(40)) == at(None));
        let off =
            estimate(&counts, Requested { whole_lines: false, ..Requested::default() }, &HOPPER);
        assert_eq!(off.cache, 2.0 * estimate(&counts, Requested::default(), &HOPPER).cache);
        assert_eq!(off.limit(), Limit::Cache);
    }

    #[test]
    fn tiles_that_spill_and_products_of_warps_come_last() {
        let seconds = |b: u64, spilled: u32, by_warps: bool| {
            let requested = Requested { spilled, by_warps, ..Requested::default() };
            estimate(&gemm(4096, b), requested, &HOPPER).seconds
        };
        // Smaller tiles that fit are better than larger ones that do not.
        assert!(seconds(64, 0, false) < seconds(128, 100, false));
        assert!(seconds(128, 0, false) < seconds(128, 0, true));
        // A few registers are a few moves.
        assert!(seconds(128, 4, false) < seconds(64, 0, false));
    }

    #[test]
    fn where_nothing_is_multiplied_bytes_count() {
        let n = 1u64 << 28;
        let copy = |tile: u64| {
            let counts = Counts {
                work: Work::moved(n),
                groups: n / tile,
                products: Vec::new(),
                requested: 2 * n,
                tile,
            };
            estimate(&counts, Requested::default(), &HOPPER)
        };
        assert_eq!(copy(1 << 14).limit(), Limit::Memory);
        assert!(copy(1 << 14).seconds < copy(256).seconds);
        assert_eq!(copy(64).limit(), Limit::Groups);
    }
}
