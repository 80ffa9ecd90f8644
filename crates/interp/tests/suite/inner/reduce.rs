//! Reductions.

use tessera_interp::inner::{Data, Elem, reduce};
use tessera_numerics::{CHUNK, ReduceOp, canonical_reduce};

#[test]
fn every_length_gives_the_bits_of_the_canonical_reduction() {
    for len in [1, 2, 63, 64, 65, 1000, CHUNK, CHUNK + 1] {
        let xs: Vec<f32> = (0..len * 2).map(|i| ((i * 7919) % 1013) as f32 / 3.0 - 99.0).collect();
        for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Prod] {
            let rows = reduce(&Data::F32(xs.clone()), op, len, 1).unwrap();
            let wanted = xs.chunks(len).map(|r| canonical_reduce(op, r.iter().copied()).unwrap());
            assert_eq!(bits(&rows), wanted.map(f32::to_bits).collect::<Vec<_>>(), "{op} {len}");
            let columns = reduce(&Data::F32(xs.clone()), op, len, 2).unwrap();
            let wanted = [0, 1].map(|i| {
                canonical_reduce(op, xs[i..].iter().step_by(2).copied()).unwrap().to_bits()
            });
            assert_eq!(bits(&columns), wanted, "{op} {len}");
        }
    }
}

fn bits(data: &Data) -> Vec<u32> {
    f32::of(data).unwrap().iter().map(|x| x.to_bits()).collect()
}

#[test]
fn operators_that_do_not_take_a_type_are_refused() {
    assert!(reduce(&Data::F32(vec![1.0]), ReduceOp::Xor, 1, 1).is_none());
    assert_eq!(
        reduce(&Data::Bool(vec![true, false]), ReduceOp::Or, 2, 1),
        Some(Data::Bool(vec![true]))
    );
}
