//! Two 4-bit codes a byte, as `@packed` stores int4 and fp4: the lower index in the low nibble.

/// Packs codes, of which only the low four bits count. An odd last one leaves the high nibble zero.
pub fn pack_nibbles(codes: &[u8]) -> Vec<u8> {
    codes.chunks(2).map(|two| two[0] & 15 | two.get(1).map_or(0, |hi| hi << 4)).collect()
}

/// The first `count` codes of packed bytes, each below 16; fewer where the bytes run out.
pub fn unpack_nibbles(bytes: &[u8], count: usize) -> Vec<u8> {
    bytes.iter().flat_map(|b| [b & 15, b >> 4]).take(count).collect()
}

/// The code at an index.
pub fn nibble(bytes: &[u8], index: usize) -> Option<u8> {
    bytes.get(index / 2).map(|b| b >> (index % 2 * 4) & 15)
}

/// Writes the code at an index and leaves its neighbour; false when the index is beyond the end.
pub fn set_nibble(bytes: &mut [u8], index: usize, code: u8) -> bool {
    let shift = index % 2 * 4;
    let Some(byte) = bytes.get_mut(index / 2) else { return false };
    *byte = *byte & !(15 << shift) | (code & 15) << shift;
    true
}
