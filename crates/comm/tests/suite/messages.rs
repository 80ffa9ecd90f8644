//! Headers, checksums, pieces.

use crate::{Random, script::call, seed};
use tessera_comm::inner::by_tables;
use tessera_comm::{HEADER_BYTES, Header, Kind, Piece, crc32c};
use tessera_numerics::{DType, ReduceOp};

/// Bit by bit, from the polynomial.
fn slowly(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        for bit in 0..8 {
            let carry = (crc ^ u32::from(*byte) >> bit) & 1;
            crc = (crc >> 1) ^ (carry * 0x82f6_3b78);
        }
    }
    !crc
}

#[test]
fn checksums_are_those_of_the_standard() {
    // The check value of the catalogue of CRCs, and RFC 3720, B.4.
    assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(0, &[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c(0, &[255; 32]), 0x62a8_ab43);
    let mut random = Random(seed());
    for _ in 0..200 {
        let most = random.pick(&[70, 3000]);
        let bytes: Vec<u8> = (0..random.below(most)).map(|_| random.below(256) as u8).collect();
        let cut = random.below(bytes.len() + 1);
        let whole = slowly(&bytes);
        assert_eq!(crc32c(0, &bytes), whole, "{bytes:?}");
        assert_eq!(by_tables(0, &bytes), whole, "{bytes:?}");
        assert_eq!(crc32c(crc32c(0, &bytes[..cut]), &bytes[cut..]), whole, "{bytes:?} at {cut}");
    }
}

#[test]
fn headers_read_back_and_say_whether_calls_agree() {
    let kinds = [
        Kind::AllReduce(ReduceOp::Sum),
        Kind::AllReduce(ReduceOp::Max),
        Kind::ReduceScatter(ReduceOp::Sum),
        Kind::AllGather,
        Kind::Broadcast { root: 0 },
        Kind::Broadcast { root: 1 },
        Kind::Permute([(0, 1)].into()),
        Kind::Permute([(1, 0)].into()),
        Kind::Barrier,
    ];
    let mut all = Vec::new();
    for kind in &kinds {
        for dtype in [DType::F32, DType::I8] {
            for counts in [[4, 4], [4, 5]] {
                all.push(Header {
                    checksum: 7,
                    ..Header::new(3, 9, 1, &call(kind.clone(), dtype, &counts, 1))
                });
            }
        }
    }
    for (i, a) in all.iter().enumerate() {
        assert_eq!(Header::decode(&a.encode()), Some(*a));
        for (j, b) in all.iter().enumerate() {
            assert_eq!(a.agrees(b), i == j, "{a} and {b}");
        }
        let from_another = Header { from: 5, checksum: 8, ..*a };
        assert!(a.agrees(&from_another));
        assert!(!a.agrees(&Header { sequence: 10, ..*a }) && !a.agrees(&Header { group: 4, ..*a }));
    }
    // What is no header is none.
    assert_eq!(Header::decode(&[0; HEADER_BYTES]), None);
    let mut damaged = all[0].encode();
    damaged[38] += 1;
    assert_eq!(Header::decode(&damaged), None);
    // What members send in an all_to_all may differ.
    let sends = |counts: &[u64]| Header::new(0, 0, 0, &call(Kind::AllToAll, DType::F32, counts, 1));
    assert!(sends(&[1, 2]).agrees(&sends(&[3, 0])));
    assert_eq!(all[0].to_string(), "all_reduce of 8 f32");
}

#[test]
fn pieces_are_blocks_along_a_dim() {
    let mut random = Random(seed());
    for _ in 0..300 {
        let extents: Vec<usize> = (0..random.below(4)).map(|_| random.below(4)).collect();
        let item = 1 + random.below(3);
        let dim = random.below(extents.len() + 1);
        let extent = extents.get(dim).copied().unwrap_or(1);
        let start = random.below(extent + 1);
        let count = random.below(extent - start + 1);
        let piece = Piece::along(&extents, dim, start, count, item);
        let bytes = item * extents.iter().product::<usize>();
        assert!(piece.fits(bytes), "{extents:?} {dim} {start} {count}");
        // Each byte, and whether its element is in the block.
        let inner: usize = item * extents.iter().skip(dim + 1).product::<usize>();
        let inside = |b: &usize| {
            dim == extents.len()
                || (start..start + count).contains(&(b / inner.max(1) % extent.max(1)))
        };
        let wanted: Vec<usize> = (0..bytes).filter(inside).collect();
        assert_eq!(piece.bytes(), wanted.len(), "{extents:?} {dim} {start} {count}");
        let from = random.below(wanted.len() + 1);
        let to = from + random.below(wanted.len() - from + 1);
        let found: Vec<usize> = piece.runs(from, to).flat_map(|(at, n)| at..at + n).collect();
        assert_eq!(found, wanted[from..to], "{extents:?} {dim} {start} {count}");
    }
    assert!(!Piece::contiguous(1, 8).fits(8));
    assert!(!Piece { offset: usize::MAX, rows: 2, len: 1, stride: usize::MAX }.fits(8));
}
