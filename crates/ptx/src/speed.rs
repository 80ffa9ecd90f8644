//! Machine models of the targets, for choosing between schedules. Hopper's figures were fitted to
//! measured launches (docs/perf/gemm.md); the others are from data sheets.

use tessera_target::speed::Speed;

/// A generation: multiprocessors of its large chip, clock, multiply-adds of 16-bit elements and of
/// f32 per multiprocessor and clock, memory bandwidth in bytes per second.
struct Row {
    from: u32,
    processors: u64,
    clock: f64,
    matrix: f64,
    scalar: f64,
    memory: f64,
}

const fn row(from: u32, processors: u64, clock: f64, matrix: f64, scalar: f64, memory: f64) -> Row {
    Row { from, processors, clock, matrix, scalar, memory }
}

/// Oldest first.
const ROWS: &[Row] = &[
    row(70, 80, 1.4e9, 512.0, 64.0, 0.8e12),
    row(75, 68, 1.5e9, 512.0, 64.0, 0.6e12),
    row(80, 108, 1.3e9, 1024.0, 64.0, 1.7e12),
    row(86, 84, 1.7e9, 512.0, 128.0, 0.8e12),
    row(89, 128, 2.2e9, 512.0, 128.0, 0.9e12),
    // Under full load, with the memory of an H200.
    row(90, 132, 1.755e9, 2048.0, 128.0, 4.2e12),
    row(100, 148, 1.7e9, 4096.0, 128.0, 6.5e12),
    row(120, 170, 2.2e9, 512.0, 128.0, 1.6e12),
];

/// The speed of the usual chip of a generation, with these registers of a multiprocessor and bytes of shared memory of a
/// block.
pub fn speed(sm: u32, registers_per_sm: u32, shared_per_block: u32) -> Speed {
    let row = ROWS.iter().rev().find(|row| row.from <= sm).unwrap_or(&ROWS[0]);
    Speed {
        processors: row.processors,
        clock: row.clock,
        matrix: row.matrix,
        scalar: row.scalar,
        // This, `fetch` and `wait`: rows in pieces, reductions and attention of few groups (docs/perf/wild.md).
        warps: 3.0,
        local_bytes: u64::from(registers_per_sm) * 4,
        shared_bytes: shared_per_block.into(),
        // 24 multiply-adds of one multiprocessor of Hopper.
        l2_lines_per_s: row.matrix * row.clock / 24.0,
        memory: row.memory,
        memory_latency: 2048.0,
        group: 1.5e-6,
        max_resident_blocks: 16,
        fetch: 2e-9,
        wait: 4.5e-7,
        epilogue_overhead: 96.0,
        launch: 3.9e-6,
    }
}
