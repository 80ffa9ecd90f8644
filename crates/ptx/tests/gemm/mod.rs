//! Matmuls: every dtype, size and layout in memory.

mod code;
pub mod form;
mod programs;

use form::{Case, Form, Lies};
use tessera_numerics::{DType, Profile};
use tessera_ptx_emulator::Copies;

/// Sizes: whole tiles, ragged everywhere, one element, an empty sum, more iterations than stages.
const SIZES: [(i64, i64, i64); 6] =
    [(64, 64, 32), (100, 70, 50), (96, 40, 200), (1, 1, 1), (70, 70, 0), (33, 65, 7)];

#[test]
fn every_dtype_and_size_is_exact() {
    for &(a, b, acc) in tessera_tile::ops::mma::LEGAL {
        for sm in [75, 80, 89, 90] {
            for size in SIZES {
                let form = Form { b, acc, out: acc, ..Form::new(a, (32, 32, 32)) };
                Case { sm, ..Case::new(form, size) }.check();
            }
        }
    }
}

#[test]
fn every_memory_layout() {
    use Lies::{Apart, Cols, Rows};
    // Rows of 64 and 56 elements begin at multiples of 16 bytes; 50 elements cut a run.
    let layouts = [Rows(0), Rows(6), Rows(14), Cols(0), Cols(4), Cols(28), Apart];
    for dtype in [DType::BF16, DType::F32, DType::I8, DType::F64] {
        for a in layouts {
            for b in layouts {
                for transposed in [(false, false), (true, true)] {
                    let form = Form { transposed, ..Form::new(dtype, (64, 32, 32)) };
                    let lies = (a, b, Rows(0));
                    Case { lies, ..Case::new(form, (100, 70, 50)) }.check();
                }
            }
        }
    }
}

#[test]
fn tiles_of_every_shape() {
    let tiles =
        [(128, 128, 32), (16, 8, 16), (64, 96, 48), (48, 24, 64), (128, 64, 16), (32, 256, 16)];
    for tile in tiles {
        for dtype in [DType::BF16, DType::F16, DType::F32] {
            Case::new(Form::new(dtype, tile), (130, 140, 90)).check();
        }
    }
}

#[test]
fn stages_as_requested() {
    for stages in [1, 2, 3, 5, 8] {
        for dtype in [DType::BF16, DType::F32] {
            let form = Form { stages: Some(stages), ..Form::new(dtype, (32, 32, 16)) };
            for k in [0, 16, 33, 200] {
                Case::new(form.clone(), (40, 40, k)).check();
            }
        }
    }
}

#[test]
fn results_that_are_added_or_rounded() {
    for (adds, out) in [(true, DType::F32), (false, DType::BF16), (false, DType::F16)] {
        for tile in [(64, 64, 32), (128, 32, 16)] {
            let form = Form { adds, out, ..Form::new(DType::BF16, tile) };
            for size in [(128, 128, 64), (100, 72, 50), (100, 70, 50)] {
                Case::new(form.clone(), size).check();
            }
        }
    }
}

#[test]
fn strict_results_are_the_interpreters_bits() {
    for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64, DType::Fp8E4M3] {
        for tile in [(32, 32, 16), (64, 64, 32), (16, 16, 128)] {
            let case = Case::new(Form::new(dtype, tile), (70, 50, 90));
            Case { profile: Profile::Strict, exact: false, ..case }.check();
        }
    }
}

#[test]
fn copies_may_land_at_any_time() {
    for copies in [Copies::Early, Copies::Late, Copies::Random] {
        for seed in [0, 1, 2] {
            for dtype in [DType::BF16, DType::F32] {
                let form = Form { stages: Some(3), ..Form::new(dtype, (64, 64, 16)) };
                Case { copies, seed, ..Case::new(form, (100, 72, 100)) }.check();
            }
        }
    }
}
