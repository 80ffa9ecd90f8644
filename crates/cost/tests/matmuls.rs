//! Which schedules are chosen for matmuls on a Hopper of 132 multiprocessors. The choices for bf16
//! were measured (docs/perf/gemm.md); a change of the model must check what becomes of them.

use std::collections::BTreeMap;
use tessera_cost::matmul::{
    MatmulPlan, OddRows, Problem, Schedule, Shape, counts, grouped, plans, schedule,
};
use tessera_cost::{Counts, Launch, Requested, estimate, weight};
use tessera_numerics::DType;
use tessera_target::speed::Speed;

/// As `tessera-ptx` describes `sm_90a`.
const HOPPER: Speed = Speed {
    processors: 132,
    clock: 1.755e9,
    matrix: 2048.0,
    scalar: 128.0,
    warps: 3.0,
    local_bytes: 1 << 18,
    shared_bytes: 227 << 10,
    l2_lines_per_s: 2048.0 * 1.755e9 / 24.0,
    memory: 4.2e12,
    memory_latency: 2048.0,
    group: 1.5e-6,
    max_resident_blocks: 16,
    fetch: 2e-9,
    wait: 4.5e-7,
    epilogue_overhead: 96.0,
    launch: 3.9e-6,
};

fn shape(batch: u64, [m, n, k]: [u64; 3], of: DType) -> Shape {
    let bytes = of.bytes() as u64;
    // Rows of 1000 elements of 2 bytes do not begin at cache lines.
    let whole_lines =
        (k * bytes).is_multiple_of(128) && (n * bytes).is_multiple_of(128) || k > 4090;
    let out_bytes = if bytes == 1 { 2 } else { bytes };
    Shape {
        batch,
        m,
        n,
        k,
        bytes,
        out_bytes,
        weight: weight(of),
        row_bytes: if whole_lines { 128 } else { 16 },
    }
}

fn best(batch: u64, sides: [u64; 3], of: DType) -> MatmulPlan {
    plans(&shape(batch, sides, of), true, &HOPPER)[0]
}

fn chosen(batch: u64, sides: [u64; 3], of: DType) -> (u64, u64, u64) {
    let MatmulPlan { rows, columns, split, .. } = best(batch, sides, of);
    (rows, columns, split)
}

#[test]
fn the_choices_that_were_measured_stay() {
    for (batch, sides, expected) in [
        (1, [4096, 4096, 4096], (128, 256, 1)),
        (1, [8192, 8192, 8192], (128, 256, 1)),
        (1, [16384, 16384, 16384], (128, 256, 1)),
        (1, [4096, 14336, 4096], (128, 256, 1)),
        (1, [8192, 8192, 1024], (128, 256, 1)),
        (1, [8192, 8192, 4096], (128, 256, 1)),
        (1, [2048, 2048, 2048], (128, 256, 1)),
        (1, [1024, 1024, 1024], (64, 128, 1)),
        (1, [4095, 4095, 4095], (128, 256, 1)),
        (1, [4097, 4099, 4101], (128, 192, 1)),
        (1, [1000, 1000, 1000], (64, 128, 1)),
        (1, [3000, 3000, 3000], (128, 192, 1)),
        (1, [512, 512, 512], (64, 64, 1)),
        (1, [1024, 1024, 4096], (64, 128, 1)),
        (1, [256, 4096, 4096], (64, 128, 1)),
        (1, [512, 4096, 4096], (128, 128, 1)),
        (8, [1024, 1024, 1024], (128, 256, 1)),
        (16, [2048, 2048, 2048], (128, 256, 1)),
        (64, [512, 512, 512], (128, 256, 1)),
        (128, [256, 256, 256], (128, 256, 1)),
        (16, [1000, 1000, 1000], (128, 256, 1)),
        (1, [256, 256, 16384], (64, 64, 8)),
        // The transposed matmuls of 16 and of 64 rows: the large matrix is read once.
        (1, [4096, 16, 14336], (64, 16, 1)),
        (1, [8192, 64, 8192], (64, 64, 1)),
        (1, [1024, 16, 14336], (64, 16, 4)),
    ] {
        assert_eq!(chosen(batch, sides, DType::BF16), expected, "{batch} {sides:?}");
    }
    for of in [DType::Fp8E4M3, DType::I8, DType::Tf32, DType::F32] {
        assert_eq!(chosen(1, [4096, 4096, 4096], of), (128, 256, 1), "{of}");
        assert_eq!(chosen(1, [8192, 8192, 8192], of), (128, 256, 1), "{of}");
    }
}

/// A count of multiply-adds alone chose split-K by four for 128 rows. The matrix is read from
/// memory in any case, which takes longer than the MMAs of 128 small tiles, and needs no second
/// launch.
#[test]
fn what_memory_bounds_is_not_split() {
    assert_eq!(chosen(1, [128, 4096, 14336], DType::BF16), (64, 64, 1));
    let best = best(1, [128, 8192, 8192], DType::BF16);
    assert_eq!((best.split, best.limit.to_string().as_str()), (1, "memory"));
}

#[test]
fn strict_products_are_not_split_and_all_ways_are_reported_in_order() {
    let shape = shape(1, [256, 256, 16384], DType::BF16);
    let found = plans(&shape, false, &HOPPER);
    assert!(found.iter().all(|p| p.split == 1) && found.len() > 3);
    assert!(found.windows(2).all(|pair| pair[0].seconds <= pair[1].seconds));
    // A gain of 2% is none: measured, two chunks took 4% longer here.
    assert_eq!(chosen(1, [1200, 1200, 8192], DType::Tf32), (128, 128, 1));
    assert!(plans(&shape, true, &HOPPER)[0].seconds < found[0].seconds);
    assert_eq!(grouped(128, 68, 4096, &shape, &HOPPER), 256);
}

/// The largest matmuls of docs/perf/gemm.md, in TFLOP/s.
#[test]
fn predictions_are_near_what_was_measured() {
    for (n, measured) in [(4096u64, 779.9), (8192, 709.8)] {
        let seconds = best(1, [n, n, n], DType::BF16).seconds;
        let predicted = 2.0 * (n as f64).powi(3) / seconds * 1e-12;
        let error = predicted / measured - 1.0;
        assert!(error.abs() < 0.25, "{n}: {predicted:.1} against {measured}");
    }
}

/// The same kernel as Tile IR gives the same counts, and so the same time.
#[test]
fn tile_ir_and_shapes_are_counted_alike() {
    let text = "func @gemm(%A: view<[M, K], bf16, read>, %B: view<[K, N], bf16, read>, %C: view<[M, N], bf16, write>) {kind = group, grid = [cdiv(M, 128), cdiv(N, 256)]} {
  %p = tile.program_id {axis = 0} : i64
  %q = tile.program_id {axis = 1} : i64
  %z = tile.const {value = 0} : i64
  %bm = tile.const {value = 128} : i64
  %bn = tile.const {value = 256} : i64
  %s = tile.const {value = 64} : i64
  %m = tile.mul %p, %bm : i64
  %n = tile.mul %q, %bn : i64
  %K = tile.dim {name = K} : i64
  %zero = tile.const {value = 0.0} : tile<128x256xf32>
  %acc = tile.for %z, %K, %s init(%zero) : tile<128x256xf32> do (%k: i64, %c: tile<128x256xf32>) {
    %x = tile.load %A at(%m, %k) {extent = [128, 64]} : tile<128x64xbf16>
    %y = tile.load %B at(%k, %n) {extent = [64, 256]} : tile<64x256xbf16>
    %d = tile.mma %x, %y, %c : tile<128x256xf32>
    tile.yield %d
  }
  %o = tile.cast %acc : tile<128x256xbf16>
  tile.store %C, %o at(%m, %n) {extent = [128, 256]}
  tile.return
}";
    let func = tessera_tile::parse(text).unwrap();
    let dims: BTreeMap<String, i64> =
        [("M", 1024), ("N", 2048), ("K", 512)].map(|(n, v)| (n.to_string(), v)).into();
    let launch = Launch { dims: &dims, grid: [8, 8, 1], domain: [0; 3], lanes: 256 };
    let found = Counts::of(&func, &launch).unwrap();
    let foretold = counts(&shape(1, [1024, 2048, 512], DType::BF16), 128, 256, 1);
    assert_eq!((found.groups, &found.work, found.tile), (64, &foretold.work, foretold.tile));
    assert_eq!(found.other_flops(), 0.0);
    let [one] = found.products[..] else { panic!("{found:?}") };
    assert_eq!(one.multiply_adds(), foretold.products[0].multiply_adds());
    // The store of the result is counted too.
    assert_eq!(found.requested, foretold.requested + 2 * 1024 * 2048);
    let seconds = |counts| estimate(counts, Requested::default(), &HOPPER).seconds;
    assert!((seconds(&found) / seconds(&foretold) - 1.0).abs() < 0.02);
}

/// Measured: for a matmul of 1000, 8 stages have more loads in flight than the memory latency
/// requires, and larger tiles have as few as fit anyway.
#[test]
fn misaligned_rows_are_loaded_no_earlier_than_needed() {
    let of = |rows: u64| Shape { row_bytes: rows, ..shape(1, [1000; 3], DType::BF16) };
    let stages = |rows: u64| plans(&of(rows), true, &HOPPER)[0].stages;
    assert_eq!([stages(128), stages(32), stages(16)], [None, Some(6), Some(6)]);
}

fn scheduled(sides: [u64; 3], of: DType, odd: [Option<u64>; 2]) -> Schedule {
    let odd_rows = odd.map(|on| on.map(|on| OddRows { on, bytes: 128 }));
    let shape = Shape { row_bytes: 128, ..shape(1, sides, of) };
    schedule(&Problem { shape, odd_rows, may_split: true }, &HOPPER)
}

#[test]
fn operands_that_tma_does_not_take_are_copied_where_that_pays() {
    let both = [Some(2), Some(2)];
    for (sides, of, odd, expected) in [
        ([4095, 4095, 4095], DType::BF16, both, [true, true]),
        ([4095, 4096, 4095], DType::BF16, [Some(2), None], [true, false]),
        // Few rows: where copies of 4 bytes are asynchronous, elements are not read one by one.
        ([30, 303, 301], DType::BF16, both, [true, true]),
        ([8, 4095, 4095], DType::BF16, [Some(8), Some(8)], [false, false]),
        // A short sum is over before a copy pays, and threads read f32 in place.
        ([30, 303, 101], DType::BF16, both, [false, false]),
        ([300, 303, 301], DType::F32, [Some(4), Some(4)], [false, false]),
    ] {
        assert_eq!(scheduled(sides, of, odd).padded, expected, "{sides:?} {of}");
    }
}

#[test]
fn few_rows_are_columns_of_the_transposed_product() {
    let found = scheduled([16, 4096, 14336], DType::BF16, [None; 2]);
    assert!(found.swapped);
    assert_eq!((found.rows, found.columns, found.depth), (64, 16, 128));
    assert!(!scheduled([4096, 16, 14336], DType::BF16, [None; 2]).swapped);
}

#[test]
fn tiles_of_one_step_are_no_larger_than_the_result() {
    let found = scheduled([5, 9, 7], DType::BF16, [None; 2]);
    assert_eq!((found.rows, found.columns, found.depth), (16, 16, 16));
    // One instruction takes 32 bytes along k.
    assert_eq!(scheduled([5, 9, 7], DType::Fp8E4M3, [None; 2]).depth, 32);
    let found = scheduled([4096, 4096, 40], DType::BF16, [None; 2]);
    assert_eq!((found.rows, found.columns, found.depth), (128, 256, 64));
}

#[test]
fn what_has_an_order_keeps_it_and_has_no_cluster() {
    let of = |may_split| {
        let shape = Shape { row_bytes: 16, ..shape(1, [1000; 3], DType::BF16) };
        schedule(&Problem { shape, odd_rows: [None; 2], may_split }, &HOPPER)
    };
    assert_eq!((of(true).cluster, of(true).stages), (Some([2, 1]), Some(6)));
    assert_eq!((of(false).cluster, of(false).stages), (None, None));
    // A tile without a neighbour in its cluster is taken among many only.
    for (m, n) in [(320, 320), (600, 1000), (2000, 4100), (4104, 4104), (4104, 264)] {
        let odd = Shape { row_bytes: 16, ..shape(1, [m, n, 1000], DType::BF16) };
        let found =
            schedule(&Problem { shape: odd, odd_rows: [None; 2], may_split: true }, &HOPPER);
        let tiles = [m.div_ceil(found.rows), n.div_ceil(found.columns)];
        let pairs = |count: u64| count.is_multiple_of(2) || count > 16;
        let sides = found.cluster.unwrap_or([1, 1]);
        assert!(sides.iter().zip(tiles).all(|(&side, count)| side == 1 || pairs(count)), "{m}x{n}");
    }
    let long = Shape { ..shape(1, [256, 256, 16384], DType::BF16) };
    let split = |may_split| {
        schedule(&Problem { shape: long, odd_rows: [None; 2], may_split }, &HOPPER).split
    };
    assert_eq!((split(true), split(false)), (8, 1));
}

#[test]
fn short_rows_are_read_where_they_begin() {
    let of = |on, bytes| {
        let shape = Shape { row_bytes: 128, ..shape(1, [10, 16, 184], DType::BF16) };
        let odd_rows = [Some(OddRows { on, bytes }), None];
        schedule(&Problem { shape, odd_rows, may_split: true }, &HOPPER).padded
    };
    assert_eq!([of(4, 20), of(4, 400), of(2, 20)], [[false; 2], [true, false], [true, false]]);
}

/// f32 on an H200, microseconds of the tiles that were the fastest: 1024^3 58.6, 3016x240x840 50.3,
/// 264x1600x488 23.7; with steps of 32 the first two take 99 and 86.
#[test]
fn threads_take_tiles_that_fill_the_processors() {
    for (sides, expected) in [
        ([1024, 1024, 1024], (64, 128, 16)),
        ([3016, 240, 840], (64, 128, 16)),
        ([264, 1600, 488], (64, 64, 32)),
        ([3296, 1008, 1960], (128, 256, 16)),
        ([3232, 8, 9160], (32, 16, 32)),
    ] {
        let found = scheduled(sides, DType::F32, [None; 2]);
        assert_eq!((found.rows, found.columns, found.depth), expected, "{sides:?}");
    }
}
