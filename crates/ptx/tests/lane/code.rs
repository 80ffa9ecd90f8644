//! What the code looks like: lanes of a thread, wide accesses, shared memory, sizes of groups.

use super::{Emulated, Variant};
use tessera_conformance::Case;
use tessera_conformance::harness::*;
use tessera_conformance::lane::control::{INNER, TANGLE};
use tessera_conformance::lane::groups::REVERSED;
use tessera_conformance::lane::memory::{IDS, SAXPY, matrix};
use tessera_conformance::lane::random::{draw, launch};
use tessera_numerics::{DType, Profile};

fn row(dtype: DType, n: i64, seed: u64) -> Arg {
    array(&[n], dtype, Layout::Rows, seed)
}

#[test]
fn threads_take_several_lanes_where_they_can() {
    let per_thread = |text: &str, lanes, args: &[Arg], domain| {
        Variant::newest(text, lanes, Profile::Strict).per_thread(args, domain)
    };
    let args = [row(DType::F32, 256, 1), row(DType::F32, 256, 2), row(DType::I64, 256, 3)];
    let args = [&args[..], &[scalar(4i64)]].concat();
    // With a loop of varying trip count a thread has one lane.
    for (inner, lanes) in [(INNER, 1), ("%p = tile.neg %h : f32", 2)] {
        assert_eq!(per_thread(&TANGLE.replace("LOOP", inner), 64, &args, 256), lanes);
    }
    let tables = [1, 2, 3].map(|seed| array(&[3, 2, 64], DType::F32, Layout::Rows, seed));
    assert_eq!(per_thread(&matrix(false), 32, &tables, 384), 4);
    assert_eq!(per_thread(IDS, 256, &[row(DType::I64, 2560, 1)], 2560), 2);
}

/// Every other random kernel can run with several lanes per thread: a few must.
#[test]
fn random_kernels_run_with_several_lanes_of_a_thread() {
    let wide = (0..10).map(|k| 2 * k).filter(|&seed| {
        let (text, shared) = draw(seed, true, false);
        let (args, domain, lanes) = launch(seed, 2, true, shared);
        Variant::newest(&text, lanes, Profile::Strict).per_thread(&args, domain) > 1
    });
    assert!(wide.count() > 0);
}

#[test]
fn contiguous_arrays_are_accessed_16_bytes_at_a_time() {
    let saxpy = Variant::newest(SAXPY, 256, Profile::Strict);
    for (layout, wide) in LAYOUTS.into_iter().zip([3, 0, 0, 0]) {
        let [x, y] = arrays(&[1000], DType::F32, layout);
        let text = saxpy.code(&[x, y, scalar(2.0f32)], 1000).module.text();
        assert_eq!(text.matches(".v4.b32").count(), wide, "{layout:?}\n{text}");
    }
}

#[test]
fn what_was_never_written_to_shared_memory_reads_as_zero() {
    let case = Case::new(&Emulated, "zeros");
    let kernel = case.kernel(&REVERSED.replace("DTYPE", "i32"));
    let args: [Arg; 2] = arrays(&[70], DType::I32, Layout::Rows);
    // The interpreter reports a fault.
    assert!(format!("{:?}", kernel.reference(&args, 70, 64).unwrap_err()).contains("E_UNINIT"));
    for variant in kernel.variants(64).iter() {
        let got = variant.run(&args, 70, 64).unwrap();
        assert_eq!(args[1].array().unwrap().codes(&got[1])[64..], [0; 6]);
    }
}

#[test]
fn groups_may_be_smaller_than_the_kernel_was_compiled_for() {
    // Without the attribute 256 lanes are assumed, and the launch says how many there are.
    let case = Case::new(&Emulated, "smaller");
    let kernel = case.kernel(IDS);
    for compiled in [256, 64] {
        for lanes in [1, 2, 5, 60, 64] {
            let y = [row(DType::I64, 150, 1)];
            let wanted = kernel.reference(&y, 147, lanes).unwrap();
            for variant in kernel.variants(compiled).iter() {
                assert_eq!(variant.run(&y, 147, lanes).unwrap(), wanted);
            }
        }
    }
}
