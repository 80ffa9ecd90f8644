//! The order in which candidates are worth measuring, from the work that their Tile IR is. Only
//! ratios matter: a machine's figures may be off by half and still order candidates well.

use tessera_cost::Work;

/// What runs groups.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Machine {
    /// Groups that run at once: multiprocessors, or threads.
    pub slots: u64,
    /// Of all slots together, in a second.
    pub flops: f64,
    /// Between a slot and the cache behind it, all slots together, in a second.
    pub cache_bytes: f64,
    /// Between that cache and memory.
    pub memory_bytes: f64,
    /// What a slot holds close by: tiles that are larger go to memory and back.
    pub local_bytes: u64,
    /// What a group takes before it does anything, in seconds.
    pub group: f64,
}

/// What overlaps takes as long as the longest, and a little of the rest: among candidates that are
/// bound by the same thing the one with less of the others is the better.
fn overlapped(a: f64, b: f64) -> f64 {
    a.max(b) + 0.1 * a.min(b)
}

/// The seconds that a launch would take: groups go in waves, and the last one may be almost empty;
/// in a wave each slot computes and moves at once, and the slower of the two counts. `tile` is the
/// largest tile, in bytes.
pub fn predict(work: &Work, groups: u64, tile: u64, machine: &Machine) -> f64 {
    let groups = groups.max(1);
    let slots = machine.slots.max(1);
    let waves = groups.div_ceil(slots) as f64;
    let part = |total: u64, rate: f64| total as f64 / groups as f64 * slots as f64 / rate.max(1.0);
    let compute = part(work.flops, machine.flops);
    let moved = part(work.traffic(), machine.cache_bytes);
    // Memory serves all slots, however few groups there are.
    let memory = work.bytes() as f64 / machine.memory_bytes.max(1.0);
    let spilled = if tile > machine.local_bytes { 2 * tile } else { 0 };
    let spilled = spilled as f64 * slots as f64 / machine.memory_bytes.max(1.0);
    overlapped(waves * (machine.group + overlapped(compute, moved) + spilled), memory)
}

/// The places of candidates, the quickest prediction first; equal ones in their own order, and
/// those without a prediction after all others.
pub fn order(predicted: &[Option<f64>]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..predicted.len()).collect();
    let key = |place: usize| predicted[place].unwrap_or(f64::INFINITY);
    places.sort_by(|&a, &b| key(a).total_cmp(&key(b)).then(a.cmp(&b)));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine {
        slots: 100,
        flops: 1e14,
        cache_bytes: 1e13,
        memory_bytes: 4e12,
        local_bytes: 1 << 18,
        group: 1e-6,
    };

    /// A product of n x n matrices in tiles of b x b, padding included.
    fn gemm(n: u64, b: u64) -> (Work, u64) {
        let tiles = n.div_ceil(b);
        let padded = tiles * b;
        let read = 2 * 2 * tiles * padded * padded;
        let work = Work {
            flops: 2 * padded * padded * padded,
            read,
            written: 2 * padded * padded,
            least_read: 4 * n * n,
            least_written: 2 * n * n,
            exact: true,
        };
        (work, tiles * tiles)
    }

    fn time(n: u64, b: u64) -> f64 {
        let (work, groups) = gemm(n, b);
        predict(&work, groups, 4 * b * b, &MACHINE)
    }

    #[test]
    fn large_tiles_win_where_there_are_many_and_small_ones_where_there_are_few() {
        assert!(time(8192, 128) < time(8192, 32));
        assert!(time(256, 32) < time(256, 256));
        // Half of every tile would be padding.
        assert!(time(8256, 64) < time(8256, 8192));
    }

    #[test]
    fn tiles_that_are_held_nowhere_cost_memory() {
        let (work, groups) = gemm(8192, 256);
        let small = predict(&work, groups, 1 << 18, &MACHINE);
        assert!(predict(&work, groups, 1 << 19, &MACHINE) > 1.01 * small);
    }

    #[test]
    fn the_order_is_stable() {
        assert_eq!(order(&[Some(2.0), None, Some(1.0), Some(1.0)]), [2, 3, 0, 1]);
    }
}
