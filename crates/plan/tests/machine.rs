//! Tiles that a machine gets.

use tessera_numerics::DType;
use tessera_plan::Machine;
use tessera_plan::inner::{Matrix, Side, threads};
use tessera_target::speed::Speed;

/// About a Hopper of 132 multiprocessors.
const GPU: Machine = Machine::Gpu {
    speed: Speed {
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
    },
};

fn tiles(axes: &[(i64, bool, bool)]) -> Vec<i64> {
    let axes: Vec<Side> =
        axes.iter().map(|&(extent, full, neighbours)| Side { extent, full, neighbours }).collect();
    threads(&axes, 132)
}

#[test]
fn tiles_of_a_line_leave_enough_groups() {
    assert_eq!(tiles(&[(100, false, true)]), [128]);
    assert_eq!(tiles(&[(1 << 20, false, true)]), [2048]);
    assert_eq!(tiles(&[(1 << 24, false, true)]), [4096]);
}

#[test]
fn rows_are_taken_whole() {
    assert_eq!(tiles(&[(8192, false, false), (768, true, true)]), [4, 768]);
    assert_eq!(tiles(&[(8, false, false), (768, true, true)]), [1, 768]);
    assert_eq!(tiles(&[(64, false, false), (128, true, false), (768, false, true)]), [1, 128, 32]);
}

#[test]
fn transposes_take_squares() {
    assert_eq!(tiles(&[(4096, false, true), (4096, false, true)]), [64, 64]);
    assert_eq!(tiles(&[(4, false, true), (4096, false, true)]), [4, 256]);
}

#[test]
fn products_fit_the_processors() {
    let m = |rows, columns, depth, batch| Matrix {
        rows,
        columns,
        depth,
        batch,
        of: DType::BF16,
        out_bytes: 2,
        rows_on: [128; 2],
        row_bytes: [128; 2],
        may_split: true,
    };
    let tiles = |of: &Matrix| {
        let found = GPU.matrix(of);
        (found.rows, found.columns, found.depth)
    };
    assert_eq!(tiles(&m(8192, 3072, 768, 1)), (128, 256, 64));
    assert_eq!(tiles(&m(5, 9, 7, 1)), (16, 16, 16));
    assert!(GPU.chunks(&m(256, 256, 16384, 1)) > 1);
    assert_eq!(GPU.chunks(&m(8192, 3072, 768, 1)), 1);
    assert_eq!(Machine::Cpu.chunks(&m(768, 768, 8192, 1)), 1);
}
