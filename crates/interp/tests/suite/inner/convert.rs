//! Conversions.

use std::sync::Arc;
use tessera_interp::inner::{Data, cast};
use tessera_numerics::{DType, Rounding};

/// Values of each carrier that lie at the edges of the others.
fn edges(dtype: DType) -> Data {
    let floats = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        -2.5,
        7.0,
        127.5,
        -128.5,
        448.0,
        465.0,
        65504.0,
        65520.0,
        1e-8,
        1e-40,
        2147483648.0,
        -2147483904.0,
        9.3e18,
        3e38,
        1e300,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let ints = [
        0,
        1,
        -1,
        7,
        8,
        -8,
        -9,
        127,
        128,
        255,
        256,
        32768,
        65535,
        1 << 31,
        i64::MAX,
        i64::MIN,
        16777217,
    ];
    match dtype.carrier() {
        DType::F32 => Data::F32(floats.iter().map(|&x| x as f32).collect()),
        DType::F64 => Data::F64(floats.to_vec()),
        DType::I32 => Data::I32(ints.iter().map(|&x| x as i32).collect()),
        DType::I64 => Data::I64(ints.to_vec()),
        DType::U32 => Data::U32(ints.iter().map(|&x| x as u32).collect()),
        DType::U64 => Data::U64(ints.iter().map(|&x| x as u64).collect()),
        _ => Data::Bool(vec![false, true]),
    }
}

#[test]
fn quick_conversions_agree_with_the_rules() {
    for &from in DType::ALL {
        // Through the codec, so that every value is one the dtype has.
        let data = Data::decode(from, &edges(from).encode(from));
        for &to in DType::ALL {
            let got =
                cast(Arc::new(data.clone()), from, to, Rounding::Rne, to.saturates_by_default())
                    .unwrap();
            for i in 0..data.len() {
                let x = data.at(i).unwrap();
                let wanted = tessera_numerics::cast(x, from, to);
                assert_eq!(got.at(i), Some(wanted), "{from} to {to}: {x:?}");
            }
        }
    }
}
