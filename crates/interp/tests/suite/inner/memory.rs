//! Arrays and buffers.

use tessera_interp::inner::{Data, Elem, Memory, Unwritten};
use tessera_numerics::{DType, Scalar};

const ZERO: Scalar = Scalar::I32(0);

fn filled(dims: &[i64]) -> Memory {
    let mut m = Memory::buffer(dims, DType::I8);
    let n = dims.iter().product::<i64>() as i32;
    m.store(&vec![0; dims.len()], dims, None, &Data::I32((1..=n).collect()));
    m
}

fn ints(data: Data) -> Vec<i32> {
    i32::of(&data).unwrap().to_vec()
}

#[test]
fn blocks_at_any_position_read_zero_outside() {
    let m = filled(&[2, 3]);
    let load = |at: [i64; 2], e: [i64; 2]| ints(m.load(&at, &e, None, ZERO).unwrap());
    assert_eq!(load([0, 0], [2, 3]), [1, 2, 3, 4, 5, 6]);
    assert_eq!(load([-1, 1], [3, 3]), [0, 0, 0, 2, 3, 0, 5, 6, 0]);
    assert_eq!(load([1, 2], [2, 2]), [6, 0, 0, 0]);
    assert_eq!(load([0, 1], [2, 0]), [2, 5]);
    assert_eq!(load([1, 0], [0, 2]), [4, 5]);
    assert_eq!(load([1, 1], [0, 0]), [5]);
    for p in [i64::MIN, i64::MAX, -2, 2] {
        assert_eq!(load([p, 0], [2, 2]), [0; 4]);
        assert_eq!(load([p, 0], [0, 0]), [0]);
    }
    assert_eq!(ints(m.load(&[1, 2], &[1, 2], None, Scalar::I32(9)).unwrap()), [6, 9]);
}

#[test]
fn masked_and_outside_elements_are_not_written() {
    let mut m = filled(&[4]);
    m.store(&[-1], &[4], Some(&[true, false, true, true]), &Data::I32(vec![50, 60, 70, 80]));
    m.store(&[3], &[3], None, &Data::I32(vec![5, 6, 7]));
    assert_eq!(ints(m.load(&[0], &[4], None, ZERO).unwrap()), [1, 70, 80, 5]);
}

#[test]
fn reading_what_was_never_written_says_where() {
    let mut m = Memory::buffer(&[2, 3], DType::I8);
    m.store(&[0, 0], &[2, 2], None, &Data::I32(vec![1, 2, 3, 4]));
    assert_eq!(m.load(&[0, 1], &[2, 2], None, ZERO), Err(Unwritten(vec![0, 2])));
    assert!(m.load(&[0, 1], &[2, 2], Some(&[true, false, true, false]), ZERO).is_ok());
    assert!(m.load(&[0, 3], &[2, 2], None, ZERO).is_ok());
}
