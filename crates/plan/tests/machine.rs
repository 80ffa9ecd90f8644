//! Tiles that a machine gets.

use tessera_plan::Machine;
use tessera_plan::inner::{Matrix, Side, threads};

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
    const GPU: Machine = Machine::Gpu { processors: 132 };
    let m = |rows, columns, depth, batch| Matrix { rows, columns, depth, batch, bytes: 2 };
    assert_eq!(GPU.matrix(&m(8192, 3072, 768, 1)), (128, 256, 64));
    assert_eq!(GPU.matrix(&m(5, 9, 7, 1)), (16, 16, 16));
    assert!(GPU.chunks(&m(768, 768, 8192, 1)) > 1);
    assert_eq!(GPU.chunks(&m(8192, 3072, 768, 1)), 1);
    assert_eq!(Machine::Cpu.chunks(&m(768, 768, 8192, 1)), 1);
}
