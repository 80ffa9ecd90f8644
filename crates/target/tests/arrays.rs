//! Classes of arrays.

use std::ptr::null_mut;
use tessera_ir::Privilege;
use tessera_numerics::{DType, NumType, Profile};
use tessera_target::arrays::{ArrayClass, classes_first};
use tessera_target::frame::{Frame, ParamKind};
use tessera_target::{BufferArg, CompileOptions};

#[test]
fn rows_that_end_inside_a_piece_are_read_by_tma_and_not_written_by_it() {
    let param = |privilege| ParamKind::Array {
        dims: vec![None; 2],
        symbols: vec![None; 2],
        elem: NumType::plain(DType::BF16),
        privilege,
    };
    for (dims, whole) in [([1, 1], false), ([4, 7], false), ([4, 8], true)] {
        let b = buffer(1 << 20, &dims, &[16, 2]);
        assert!(ArrayClass::of_param(&param(Privilege::Read), &b).tma_compatible, "{dims:?}");
        for privilege in [Privilege::Write, Privilege::ReadWrite, Privilege::ReduceSum] {
            assert_eq!(
                ArrayClass::of_param(&param(privilege), &b).tma_compatible,
                whole,
                "{dims:?}"
            );
        }
    }
}

fn buffer(address: usize, dims: &[i64], strides: &[i64]) -> BufferArg {
    BufferArg {
        data: null_mut::<u8>().wrapping_add(address),
        dims: dims.to_vec(),
        strides: strides.to_vec(),
        dtype: DType::BF16,
        writable: true,
    }
}

fn class(address: usize, dims: &[i64], strides: &[i64]) -> ArrayClass {
    ArrayClass::of(&buffer(address, dims, strides))
}

#[test]
fn arrays_on_good_addresses_have_boxes_in_any_order_of_axes() {
    for (dims, strides, axis) in [
        (vec![64, 96], vec![192, 2], 1),
        (vec![64, 96], vec![2, 128], 0),
        (vec![3, 8, 96], vec![4096, 208, 2], 2),
        (vec![96], vec![2], 0),
        // Along an axis of one position no stride matters.
        (vec![1, 96], vec![6, 2], 1),
        (vec![1, 96], vec![0, 2], 1),
        (vec![1, 96], vec![2, 2], 1),
        (vec![1, 1], vec![2, 2], 1),
        (vec![1, 1], vec![0, 0], 1),
    ] {
        let found = class(1 << 20, &dims, &strides);
        assert_eq!(found, ArrayClass::said(dims.len(), Some(axis), 16), "{dims:?} {strides:?}");
        assert!(found.tma_compatible);
    }
}

#[test]
fn vectors_have_boxes_along_their_only_long_axis() {
    for (dims, strides) in [(vec![64, 1], vec![2, 2]), (vec![1, 64, 1], vec![2, 2, 2])] {
        let found = class(1 << 20, &dims, &strides);
        assert!(found.tma_compatible, "{dims:?}");
        assert_eq!(found.contiguous.trailing_zeros() as usize, dims.len() - 2);
    }
}

#[test]
fn arrays_that_no_map_describes_have_none() {
    let even = [192, 2];
    for (address, dims, strides) in [
        (1 << 20 | 8, vec![64, 96], even.to_vec()),
        (1 << 20, vec![64, 96], vec![194, 2]),
        (1 << 20, vec![64, 96], vec![-192, 2]),
        (1 << 20, vec![64, 96], vec![0, 2]),
        (1 << 20, vec![64, 96], vec![192, 16]),
        (1 << 20, vec![64, 96], vec![2, 2]),
        (1 << 20, vec![0, 96], even.to_vec()),
        (1 << 20, vec![64, 0], even.to_vec()),
        (1 << 20, vec![2, 96], vec![1 << 40, 2]),
        (1 << 20, vec![1 << 31], vec![2]),
        (1 << 20, vec![2; 6], vec![512, 256, 128, 64, 32, 2]),
        (1 << 20, vec![], vec![]),
    ] {
        assert!(
            !class(address, &dims, &strides).tma_compatible,
            "{address:#x} {dims:?} {strides:?}"
        );
    }
}

#[test]
fn the_first_classes_are_those_of_the_call() {
    let func = tessera_tile::parse(
        "func @f(%n: i64, %a: view<[m, k], bf16, read>, %b: view<[m, k], bf16, write>) {kind = group, grid = [1]} {\n  tile.return\n}\n",
    );
    let frame = Frame::new(&func.unwrap()).unwrap();
    let usual = ArrayClass::said(2, Some(1), 16);
    let classes = |call| {
        let options = CompileOptions { call, ..CompileOptions::new(Profile::Default) };
        classes_first(&frame, &options)[1..].to_vec()
    };
    assert_eq!(classes(Vec::new()), [usual, usual]);
    let columns = buffer(1 << 20, &[64, 96], &[2, 128]);
    // Rows of 14 bytes are not written by TMA.
    let short = buffer(1 << 20, &[64, 7], &[16, 2]);
    let found = classes(vec![None, Some(columns), Some(short)]);
    assert_eq!(found[0], ArrayClass::said(2, Some(0), 16));
    assert!(found[1].is_contiguous(1) && !found[1].tma_compatible);
    // What a launch refuses is not compiled for, and what is not there is taken to be as most are.
    let odd = buffer(1 << 20 | 1, &[64, 96], &[192, 2]);
    assert_eq!(classes(vec![None, Some(odd), None]), [usual, usual]);
}
