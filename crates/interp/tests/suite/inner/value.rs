//! Values in the format of a dtype.

use tessera_interp::inner::Data;
use tessera_numerics::DType;

#[test]
fn codes_of_every_dtype_read_back() {
    for &dtype in DType::ALL {
        let codes: Vec<u8> =
            (0..8).flat_map(|c: u8| [c, 0, 0, 0, 0, 0, 0, 0][..dtype.bytes()].to_vec()).collect();
        let data = Data::decode(dtype, &codes);
        assert_eq!(data.len(), 8, "{dtype}");
        let bits = if dtype == DType::Bool { 1 } else { 7 };
        let wanted: Vec<u8> = codes.iter().map(|c| c & bits).collect();
        assert_eq!(data.encode(dtype), wanted, "{dtype}");
    }
}

#[test]
fn positions_beyond_64_bits_stay_outside() {
    assert_eq!(Data::U64(vec![u64::MAX]).positions().unwrap()[..], [i64::MAX]);
    assert!(Data::F32(vec![0.0]).positions().is_none());
}
