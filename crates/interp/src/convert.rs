//! Conversion between dtypes (LANGUAGE 9), a whole value at a time. The rules are those of
//! `tessera_numerics::cast_with`; the common conversions have loops of their own, which a test
//! holds to the same results.

use crate::value::{Data, Tile, each_data};
use std::sync::Arc;
use tessera_numerics::{Carrier, DType, Rounding, Scalar, cast_with};

pub fn cast(x: Tile, from: DType, to: DType, round: Rounding, saturate: bool) -> Option<Tile> {
    let plain = round == Rounding::Rne && saturate == to.saturates_by_default();
    if plain && from == to {
        return Some(x);
    }
    if plain && let Some(done) = quick(&x, to) {
        return Some(Arc::new(done));
    }
    let mut out = Data::fill(Scalar::zero(to), x.len());
    each_data!(&mut out, ys => each_data!(&*x, xs => {
        for (y, &x) in ys.iter_mut().zip(xs) {
            *y = Carrier::from_scalar(cast_with(x.into_scalar(), from, to, round, saturate))?;
        }
    }));
    Some(Arc::new(out))
}

/// Default conversions that are Rust's own, or the codec's loops over rows.
fn quick(x: &Data, to: DType) -> Option<Data> {
    Some(match (x, to) {
        (Data::F32(xs), DType::F64) => Data::F64(xs.iter().map(|&x| nan64(x as f64)).collect()),
        (Data::F64(xs), DType::F32) => Data::F32(xs.iter().map(|&x| nan32(x as f32)).collect()),
        (Data::F32(xs), DType::I32) => Data::I32(xs.iter().map(|&x| x as i32).collect()),
        (Data::F32(xs), DType::I64) => Data::I64(xs.iter().map(|&x| x as i64).collect()),
        (Data::I32(xs), DType::I64) => Data::I64(xs.iter().map(|&x| x as i64).collect()),
        (Data::I64(xs), DType::I32) => Data::I32(xs.iter().map(|&x| x as i32).collect()),
        (Data::I32(xs), DType::F32) => Data::F32(xs.iter().map(|&x| x as f32).collect()),
        (Data::I64(xs), DType::F32) => Data::F32(xs.iter().map(|&x| x as f32).collect()),
        (Data::I32(xs), DType::F64) => Data::F64(xs.iter().map(|&x| x as f64).collect()),
        (Data::Bool(xs), DType::I32) => Data::I32(xs.iter().map(|&x| x as i32).collect()),
        (Data::Bool(xs), DType::I64) => Data::I64(xs.iter().map(|&x| x as i64).collect()),
        (Data::Bool(xs), DType::F32) => Data::F32(xs.iter().map(|&x| x as u8 as f32).collect()),
        (Data::F32(_), to) if to.carrier() == DType::F32 => Data::decode(to, &x.encode(to)),
        (Data::I32(_), to) if to.carrier() == DType::I32 => Data::decode(to, &x.encode(to)),
        _ => return None,
    })
}

fn nan32(x: f32) -> f32 {
    if x.is_nan() { f32::NAN } else { x }
}

fn nan64(x: f64) -> f64 {
    if x.is_nan() { f64::NAN } else { x }
}

/// The same bits as another dtype; a NaN is made canonical first.
pub(crate) fn bitcast(x: &Data, from: DType, to: DType) -> Data {
    Data::decode(to, &x.encode(from))
}
