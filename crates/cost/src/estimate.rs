//! The time of a launch (a roofline model with waves). Groups run in waves over the processors, and
//! the last wave may be almost empty. In a wave, computation and memory traffic of a processor
//! overlap, and the slower of the two counts. The prologue and epilogue of an output tile are
//! added. The constants are those of [`Speed`]; docs/perf/gemm.md compares predictions with
//! measured times.

use crate::counts::{Counts, Product};
use std::fmt;
use tessera_target::speed::{LINE, Speed};

/// The schedule of a launch, beside its counts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// The pipeline depth, where it is known; 1 where MMAs wait for loads of their own iteration.
    pub stages: Option<u64>,
    /// Blocks that a processor holds together: while one waits for memory, the others compute.
    pub resident: u64,
    /// Warps of a block, where they are known.
    pub warps: Option<u64>,
    /// Whether rows of arrays begin at cache lines: no piece is in two lines.
    pub whole_lines: bool,
    /// Registers of a thread that its tiles take beyond those it may have.
    pub spilled: u32,
    /// Whether MMAs are synchronous on a machine with asynchronous ones.
    pub by_warps: bool,
}

impl Default for Requested {
    fn default() -> Self {
        Self {
            stages: None,
            resident: 1,
            warps: None,
            whole_lines: true,
            spilled: 0,
            by_warps: false,
        }
    }
}

/// What limits the time of a launch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    Arithmetic,
    Cache,
    Memory,
    /// Groups that wait for their own loads, and warps for their own results.
    Latency,
    /// The beginning and end of groups.
    Groups,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Arithmetic => "arithmetic",
            Limit::Cache => "reads of the cache",
            Limit::Memory => "memory",
            Limit::Latency => "waiting for loads",
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
    pub latency: f64,
    pub epilogue_overhead: f64,
    /// Waves: how many groups each processor runs one after another.
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
            (self.latency, Limit::Latency),
            (self.epilogue_overhead, Limit::Groups),
        ];
        parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).map_or(Limit::Groups, |(_, l)| l)
    }
}

/// The longest of the overlapping parts counts, and this fraction of the others: among schedules
/// with the same limit the one with less of the others is better.
const REST: f64 = 0.1;
/// The slowdown of synchronous MMAs of warps where there are asynchronous ones (measured,
/// docs/perf/gemm.md).
const BY_WARPS: f64 = 1.8;
/// With this many registers too few, a thread takes twice as long: spills go to memory and back in
/// every iteration, and MMAs wait for them (measured, docs/perf/untuned.md).
const SPILLED: f64 = 32.0;
/// How much longer the code of a loop with several MMAs is: for masked and unmasked iterations, the first and the last ones
/// (textbook attention, docs/perf/wild.md).
const SEVERAL: f64 = 5.0;
/// The clocks of one multiply-add in a warp that has its unit to itself (rows and reductions of fewer groups than processors,
/// docs/perf/wild.md).
const STEP: f64 = 0.65;
/// Threads of a warp.
const LANES: u64 = 32;
/// The fraction of the processors that reaches the full memory bandwidth.
const ENOUGH: f64 = 0.4;

pub fn estimate(counts: &Counts, requested: Requested, speed: &Speed) -> Estimate {
    let groups = counts.groups.max(1);
    let processors = speed.processors.max(1);
    let has_products = !counts.products.is_empty() && speed.matrix > 0.0;
    let rounds = groups.div_ceil(processors);
    // The last wave takes as long as the others, however few groups are in it.
    let uneven = (rounds * processors) as f64 / groups as f64;
    let latency = if has_products { 0.0 } else { latency(counts, requested, speed) };
    // As many as there are in a wave.
    let requested = Requested { resident: requested.resident.clamp(1, rounds), ..requested };
    let products: f64 = counts.products.iter().map(|p| clocks(p, requested, speed)).sum();
    // Between MMAs the warps that multiply wait for each other in any case.
    let busy = if has_products { 1.0 } else { busy(requested, speed) };
    let others = counts.other_flops() / (2.0 * speed.scalar.max(1.0) * busy);
    let slower = 1.0 + f64::from(requested.spilled) / SPILLED;
    let arithmetic = (products + others) * slower * uneven / (processors as f64 * speed.clock);
    let twice = if requested.whole_lines { 1.0 } else { 2.0 };
    let cache = twice * counts.requested as f64 / LINE as f64 / speed.l2_lines_per_s;
    let reading = (groups as f64 / (ENOUGH * processors as f64)).min(1.0);
    let memory = counts.work.bytes() as f64 / (speed.memory * reading);
    let sums = counts.products.iter().map(|p| p.rows * p.columns).max().unwrap_or(0);
    // Groups without MMAs begin while others of their processor work; one with MMAs has the
    // processor to itself.
    let (epilogue_overhead, begun) = if has_products {
        (rounds as f64 * sums as f64 * speed.epilogue_overhead / speed.matrix_rate(), 0.0)
    } else {
        let begun =
            groups.div_ceil(processors * speed.max_resident_blocks.max(1)) as f64 * speed.group;
        (begun, begun)
    };
    // Tiles of many elements a thread are long code, which the first groups wait for.
    let fetched = requested.warps.map_or(0.0, |warps| {
        let longer = match counts.products.len() {
            0 => 1.0,
            // The code of the MMA itself is most of it, and is not counted.
            1 => 0.0,
            _ => SEVERAL,
        };
        longer * speed.fetch * counts.code as f64 / (LANES * warps.max(1)) as f64
    });
    let parts = [arithmetic, cache, memory, latency, begun];
    let longest = parts.into_iter().fold(0.0, f64::max);
    let overlapped = longest + REST * (parts.iter().sum::<f64>() - longest);
    let spilled = if counts.tile > speed.local_bytes { 2 * counts.tile } else { 0 };
    let spilled = (spilled * rounds * processors) as f64 / speed.memory;
    let seconds = speed.launch + fetched + overlapped + (epilogue_overhead - begun) + spilled;
    Estimate {
        seconds,
        arithmetic,
        cache,
        memory,
        latency,
        epilogue_overhead,
        rounds,
        spilled: requested.spilled,
    }
}

/// The seconds of groups one after another, each by itself: it waits for the loads of an iteration before those of the next are
/// issued, and its warps for their own results. Groups that a processor holds together wait together.
fn latency(counts: &Counts, requested: Requested, speed: &Speed) -> f64 {
    let Some(warps) = requested.warps else { return 0.0 };
    let groups = counts.groups.max(1);
    let together = speed.processors.max(1) * requested.resident.max(1);
    let threads = (LANES * warps.max(1)) as f64;
    let steps = counts.other_flops() / (2.0 * groups as f64 * threads);
    let one = counts.waits as f64 / groups as f64 * speed.wait + steps * STEP / speed.clock;
    groups.div_ceil(together) as f64 * one
}

/// The fraction of a processor's rate that the warps of its blocks reach: a warp waits for its own results, and issues to one of
/// several units.
fn busy(requested: Requested, speed: &Speed) -> f64 {
    let Some(warps) = requested.warps else { return 1.0 };
    let all = (warps * requested.resident).max(1) as f64;
    (1.0 + (speed.warps / all).powi(2)).sqrt().recip()
}

/// The clocks of one processor for an MMA, over all its executions.
fn clocks(product: &Product, requested: Requested, speed: &Speed) -> f64 {
    let (rate, slower) = match product.weight {
        Some(weight) if speed.matrix > 0.0 => (speed.matrix, weight / product.efficiency()),
        // Dtypes that the tensor cores do not take go through shared memory too.
        None if speed.matrix > 0.0 => (speed.scalar.max(1.0), 1.0 / product.efficiency()),
        _ => (speed.scalar.max(1.0), 1.0),
    };
    let slower = if requested.by_warps { BY_WARPS * slower } else { slower };
    let whole = product.multiply_adds() * slower / rate;
    let iteration = whole / product.times.max(1) as f64;
    match requested.stages {
        // A stage is occupied from its load until its MMA is complete; only then can a later
        // iteration use it.
        Some(stages) => {
            let ahead = (stages.max(1) * requested.resident) as f64;
            product.times as f64 * iteration.max((speed.memory_latency + iteration) / ahead)
        }
        None => whole,
    }
}
