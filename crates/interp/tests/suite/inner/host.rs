//! Arrays of the host.

use tessera_interp::HostArray;
use tessera_numerics::{DType, Scalar};

#[test]
fn values_pass_through_storage() {
    let a = HostArray::new(&[2, 2], DType::Fp8E4M3, &[1000.0, -0.0, f64::NAN]);
    assert_eq!(a.text(), "[448.0, -0.0, nan, 0.0]");
    let b = HostArray::from_scalars(&[1], DType::U64, &[Scalar::U64(u64::MAX)]);
    assert_eq!(b.text(), "[18446744073709551615]");
    assert_eq!(HostArray::new(&[3], DType::I4, &[7.0, 8.0, -9.0]).text(), "[7, 7, -8]");
}
