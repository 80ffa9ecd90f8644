//! WGMMA: every dtype, shape and shared memory layout.

pub mod form;
mod loops;
mod single;

use crate::assembler::tools;
use form::{Case, assembled};
use single::{From, Single};
use tessera_layout::Layout;
use tessera_numerics::{DType, Profile};
use tessera_ptx::{Alu, Inst, Ty};
use tessera_tile::ops::mma::LEGAL;

/// The dtypes of WGMMA: all that the language has, but for full f32 and f64.
fn rows() -> Vec<(DType, DType, DType)> {
    let narrow = |row: &&(DType, DType, DType)| !matches!(row.0, DType::F32 | DType::F64);
    LEGAL.iter().filter(narrow).copied().collect()
}

#[test]
fn every_dtype() {
    for (a, b, acc) in rows() {
        let k = if a.bytes() == 2 { 32 } else { 64 };
        for from in [From::Shared, From::Registers] {
            Single { a, b, acc, from, ..Single::new(64, 24, k) }.check();
        }
    }
}

#[test]
fn every_order_and_span() {
    // K-major and MN-major operands; rows of 32, 64, 128 and several times 128 bytes.
    for transposed in [(false, false), (true, false), (false, true), (true, true)] {
        for (n, k) in [(16, 16), (32, 32), (64, 64), (128, 16), (48, 128), (72, 48)] {
            Single { transposed, ..Single::new(64, n, k) }.check();
        }
        Single { transposed, a: DType::F16, b: DType::F16, ..Single::new(128, 40, 32) }.check();
    }
    for k in [32, 64, 128, 256] {
        for dtype in [DType::Fp8E4M3, DType::I8] {
            Single::of(dtype, 64, 16, k).check();
        }
    }
}

#[test]
fn any_number_of_columns() {
    for n in (8..=264).step_by(24) {
        Single::new(64, n, 16).check();
        Single { transposed: (false, true), ..Single::new(64, n, 16) }.check();
    }
    // Integers have not every number of columns.
    for n in [8, 24, 40, 56, 104, 320] {
        Single::of(DType::U8, 64, n, 32).check();
    }
}

#[test]
fn warpgroups_divide_rows_or_columns() {
    let by_rows = |m: u32, warps: u32| (m, warps, Layout::mma_acc(&[m, 64], [warps, 1]), None);
    // Blocks of columns take one instruction per k step, interleaved columns one for each eight of
    // them.
    let blocks = (64, 8, Layout::mma_acc_blocks(&[64, 64], [4, 2]), Some(2));
    let in_turns = (64, 8, Layout::mma_acc(&[64, 64], [4, 2]), Some(2 * 4));
    let copies = (64, 8, Layout::mma_acc(&[64, 64], [8, 1]), Some(2));
    let all = [
        by_rows(64, 4),
        by_rows(128, 8),
        by_rows(128, 4),
        by_rows(256, 8),
        blocks,
        in_turns,
        copies,
    ];
    for (m, warps, layout, calls) in all {
        for transposed in [(false, false), (true, true)] {
            for from in [From::Shared, From::Registers] {
                let case = Single { transposed, from, warps, calls, ..Single::new(m, 64, 32) };
                Single { layout: Some(layout.clone()), ..case }.check();
            }
        }
    }
}

#[test]
fn results_of_16_bits_go_out_by_matrix_stores() {
    for dtype in [DType::BF16, DType::F16] {
        for transposed in [false, true] {
            let case = Single { out: Some((dtype, transposed)), ..Single::new(128, 96, 32) };
            let code = Single { warps: 8, ..case }.check();
            let stores =
                |i: &Inst| matches!(i, Inst::Stmatrix { trans, .. } if *trans == transposed);
            let singly = |i: &Inst| matches!(i, Inst::Cvt { b: None, to: Ty::BF16 | Ty::F16, .. });
            let all: Vec<&Inst> = code.kernel().instructions().collect();
            assert_eq!(all.iter().copied().filter(|i| stores(i)).count(), 96 / 16);
            let last = all.iter().rposition(|i| stores(i)).unwrap();
            let first = all.iter().rposition(|i| matches!(i, Inst::Wgmma { .. })).unwrap();
            assert_eq!(all[first..last].iter().copied().filter(|i| singly(i)).count(), 0);
        }
    }
}

#[test]
fn accumulators_become_operands_without_leaving_their_threads() {
    for dtype in [DType::BF16, DType::F16] {
        let code = loops::chained(dtype, 128, 64, 48, 64).check(4 + 4);
        let moves = |i: &&Inst| matches!(i, Inst::Shfl { .. } | Inst::Stmatrix { .. });
        // One shuffle makes the warpgroup index uniform.
        assert!(code.kernel().instructions().filter(moves).count() <= 1);
    }
}

#[test]
fn loops_carry_their_accumulators_in_place() {
    for kept in [false, true] {
        for iterations in [0, 1, 2, 5] {
            // What is kept is released after the loop, so there is something to release.
            if kept && iterations == 0 {
                continue;
            }
            let case = loops::pipeline(DType::BF16, (128, 64, 64), iterations, kept);
            case.check(4);
        }
        loops::pipeline(DType::Fp8E4M3, (64, 32, 128), 3, kept).check(4);
        loops::pipeline(DType::I8, (64, 32, 64), 3, kept).check(2);
    }
}

#[test]
fn accumulators_may_change_places() {
    for iterations in [0, 1, 2, 3] {
        loops::swapped(iterations).check(2);
    }
}

#[test]
fn sums_of_8_bit_floats_are_promoted_unless_fast() {
    let adds = |class: Option<&'static str>| {
        let case = Single { class, ..Single::of(DType::Fp8E4M3, 64, 16, 256) };
        let code = case.check();
        let count = code
            .kernel()
            .instructions()
            .filter(|i| matches!(i, Inst::Alu { op: Alu::Add, ty: Ty::F32, .. }));
        count.count()
    };
    // Two blocks of 128.
    assert_eq!(adds(None), 2 * 8);
    assert_eq!(adds(Some("f32")), 2 * 8);
    assert_eq!(adds(Some("fast")), 0);
}

#[test]
fn strict_mmas_are_left_to_threads() {
    let seq = Single { class: Some("seq"), calls: Some(0), ..Single::new(64, 16, 16) };
    seq.check();
    let strict = Single { profile: Profile::Strict, calls: Some(0), ..Single::new(64, 16, 16) };
    strict.check();
}

#[test]
fn memory_of_other_forms_is_left_to_threads() {
    Single { plain: true, calls: Some(0), ..Single::new(64, 16, 16) }.check();
}

/// How many WGMMA instructions the machine code has.
fn machine_calls(sass: &str) -> usize {
    sass.lines().filter(|l| ["HGMMA.", "QGMMA.", "IGMMA."].iter().any(|i| l.contains(i))).count()
}

#[test]
fn assemblers_neither_serialise_nor_spill() {
    let Some(tools) = tools() else { return };
    let look = |case: Case, calls: usize| {
        let sass = assembled(&tools, &case.code());
        assert_eq!(machine_calls(&sass), calls, "{}\n{sass}", case.text);
    };
    for kept in [false, true] {
        look(loops::pipeline(DType::BF16, (128, 256, 64), 4, kept), 4);
    }
    look(loops::pipeline(DType::I8, (128, 128, 128), 4, true), 4);
    look(loops::pipeline(DType::Fp8E4M3, (128, 128, 128), 4, false), 4);
    look(loops::chained(DType::BF16, 128, 64, 64, 128), 8 + 4);
    for (a, b, acc) in rows() {
        let case = Single { a, b, acc, ..Single::new(64, 32, 64) };
        look(case.case(), case.expected());
    }
}
