//! The time that counts take.

use tessera_cost::{Counts, Limit, Product, Requested, Work, estimate, lines};
use tessera_target::speed::Speed;

const HOPPER: Speed = Speed {
    processors: 132,
    clock: 1.755e9,
    matrix: 2048.0,
    scalar: 128.0,
    warps: 3.0,
    local_bytes: 1 << 18,
    shared_bytes: 227 << 10,
    l2_lines_per_s: 1.5e11,
    memory: 4.2e12,
    memory_latency: 2048.0,
    group: 1.5e-6,
    max_resident_blocks: 16,
    fetch: 2e-9,
    wait: 4.5e-7,
    epilogue_overhead: 96.0,
    launch: 3.9e-6,
};

/// An n x n bf16 matmul in tiles of b x b with k tiles of 64, padding included.
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
        code: 0,
        waits: 0,
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
    let off = estimate(&counts, Requested { whole_lines: false, ..Requested::default() }, &HOPPER);
    assert_eq!(off.cache, 2.0 * estimate(&counts, Requested::default(), &HOPPER).cache);
    assert_eq!(off.limit(), Limit::Cache);
}

#[test]
fn tiles_that_spill_and_synchronous_mmas_come_last() {
    let seconds = |b: u64, spilled: u32, by_warps: bool| {
        let requested = Requested { spilled, by_warps, ..Requested::default() };
        estimate(&gemm(4096, b), requested, &HOPPER).seconds
    };
    // Smaller tiles that fit are better than larger ones that do not.
    assert!(seconds(64, 0, false) < seconds(128, 100, false));
    assert!(seconds(128, 0, false) < seconds(128, 0, true));
    // A few spilled registers cost little.
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
            code: 0,
            waits: 0,
        };
        estimate(&counts, Requested::default(), &HOPPER)
    };
    assert_eq!(copy(1 << 14).limit(), Limit::Memory);
    assert!(copy(1 << 14).seconds < copy(256).seconds);
    assert_eq!(copy(64).limit(), Limit::Groups);
}

#[test]
fn short_and_misaligned_rows_touch_more_lines() {
    assert_eq!([64, 128, 256, 320].map(|bytes| lines(bytes, 128)), [1.0, 1.0, 2.0, 3.0]);
    assert_eq!(lines(128, 16), 1.875);
    assert_eq!(lines(64, 16), 1.375);
    assert_eq!(lines(64, 64), 1.0);
    // The same bytes in pieces of half the length are more lines.
    assert!(2.0 * lines(64, 16) > lines(128, 16));
}

/// A row for each group, in pieces: with fewer groups than processors, what one group's warps reach is the time.
#[test]
fn few_groups_of_few_warps_wait_for_themselves() {
    let rows = |groups: u64, warps: u64, resident: u64| {
        let work = Work { flops: groups * 18_000_000, ..Work::moved(groups << 17) };
        // A piece has 1024 elements for each warp.
        let waits = groups * 200 / warps;
        let (products, requested, tile) = (Vec::new(), groups << 18, 1 << 12);
        let counts = Counts { work, groups, products, requested, tile, code: 0, waits };
        estimate(
            &counts,
            Requested { warps: Some(warps), resident, ..Requested::default() },
            &HOPPER,
        )
    };
    let few = |warps| rows(78, warps, 16).seconds;
    assert_eq!(rows(78, 1, 16).limit(), Limit::Latency);
    assert!(few(1) > 1.8 * few(2) && few(2) > 1.5 * few(4) && few(4) > few(8));
    // Where a processor has many groups, their size matters little.
    assert!(rows(13_200, 1, 16).seconds < 1.1 * rows(13_200, 8, 4).seconds);
    // Where nothing is known of the warps, it is left out.
    let counts = gemm(256, 64);
    assert_eq!(estimate(&counts, Requested::default(), &HOPPER).latency, 0.0);
}

/// Few groups of two MMAs each: the time to fetch their code decides.
#[test]
fn long_code_is_fetched_before_anything_else() {
    let with = |warps| Requested { warps, ..Requested::default() };
    let mut counts = gemm(256, 64);
    counts.products.push(counts.products[0]);
    let before = estimate(&counts, with(Some(4)), &HOPPER).seconds;
    counts.code = 64 * 64 * 20;
    let seconds = |warps| estimate(&counts, with(warps), &HOPPER).seconds;
    assert!(seconds(Some(4)) > before + 2e-6 && seconds(Some(8)) < seconds(Some(4)));
    assert_eq!(seconds(None), before);
}
