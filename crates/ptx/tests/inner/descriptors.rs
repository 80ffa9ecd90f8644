//! Matrix descriptors.

use tessera_layout::Shared;
use tessera_ptx::inner::Matrix;

fn swizzled(shape: [u32; 2], order: [usize; 2], elem: u32, span: u32) -> Shared {
    Shared::swizzled(&shape, &order, elem, span)
}

#[test]
fn the_widest_form_of_both_kinds() {
    // 128 x 64 of 16 bits, K-major: eight rows are 1024 bytes, a step of k is 32.
    let a = Matrix::of(&swizzled([128, 64], [1, 0], 2, 128), 0).unwrap();
    assert_eq!((a.transposed, a.bytes(64, 0), a.bytes(0, 16)), (false, 8192, 32));
    assert_eq!(a.words(), [1 << 16, 64 | 1 << 30]);
    // 64 x 256, N-major: panels of 64 columns, each with 64 rows of k.
    let b = Matrix::of(&swizzled([64, 256], [1, 0], 2, 128), 1).unwrap();
    assert_eq!((b.transposed, b.bytes(64, 0), b.bytes(0, 16)), (true, 8192, 2048));
    assert_eq!(b.words(), [8192 >> 4 << 16, 64 | 1 << 30]);
    assert_eq!([b.run(0), b.run(64), b.run(40)], [u32::MAX, u32::MAX, 24]);
}

#[test]
fn panels_along_k_are_stepped_over() {
    // 256 bytes of k are two panels of 64 rows of 128 bytes.
    let a = Matrix::of(&swizzled([64, 256], [1, 0], 1, 128), 0).unwrap();
    assert_eq!([a.bytes(0, 96), a.bytes(0, 128), a.bytes(8, 160)], [96, 8192, 8192 + 1024 + 32]);
}

#[test]
fn narrow_spans_have_their_own_marks() {
    for (span, form) in [(64, 2), (32, 3)] {
        let a = Matrix::of(&swizzled([64, span / 2], [1, 0], 2, span), 0).unwrap();
        assert_eq!(a.words()[1], (8 * span) >> 4 | form << 30);
    }
}

#[test]
fn other_layouts_have_no_descriptor() {
    let plain = Shared::row_major(&[64, 64], 2);
    assert_eq!(Matrix::of(&plain, 0), None);
    // A row shorter than the swizzle, MN-major bytes, padding.
    assert_eq!(Matrix::of(&swizzled([64, 32], [1, 0], 2, 128), 0), None);
    assert_eq!(Matrix::of(&swizzled([64, 128], [0, 1], 1, 64), 0), None);
    let padded = Shared { pad: 8, ..swizzled([64, 64], [1, 0], 2, 128) };
    assert_eq!(Matrix::of(&padded, 0), None);
}
