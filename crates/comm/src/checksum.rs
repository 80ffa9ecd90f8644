//! CRC-32C (Castagnoli, RFC 3720), by the processor's instruction where it has one.

/// Eight tables: `TABLES[k][b]` is byte `b` followed by `k` zero bytes.
const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut all = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        all[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = all[k - 1][byte];
            all[k][byte] = before >> 8 ^ all[0][(before & 255) as usize];
            byte += 1;
        }
        k += 1;
    }
    all
}

/// The checksum of bytes that follow those with the checksum `before`; 0 of none.
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { by_instruction(before, bytes) };
    }
    by_tables(before, bytes)
}

/// The same without the instruction.
pub fn by_tables(before: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut crc = !before;
    for word in words {
        let low = crc ^ u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let at = |k: usize, byte: u32| TABLES[k][(byte & 255) as usize];
        crc = at(7, low) ^ at(6, low >> 8) ^ at(5, low >> 16) ^ at(4, low >> 24);
        crc ^= TABLES[3][usize::from(word[4])] ^ TABLES[2][usize::from(word[5])];
        crc ^= TABLES[1][usize::from(word[6])] ^ TABLES[0][usize::from(word[7])];
    }
    for byte in rest {
        crc = crc >> 8 ^ TABLES[0][((crc ^ u32::from(*byte)) & 255) as usize];
    }
    !crc
}

/// Words of a lane: the instruction has a latency of three cycles, and three lanes are in flight.
const LANE: usize = 128;

/// `BEHIND[k][b]` is byte `k` of a state with the value `b`, behind the zero bytes of a lane.
static BEHIND: [[u32; 256]; 4] = behind();

const fn behind() -> [[u32; 256]; 4] {
    // A state behind zeros is linear in its bits.
    let mut bits = [0u32; 32];
    let mut bit = 0;
    while bit < 32 {
        let mut crc = 1u32 << bit;
        let mut word = 0;
        while word < LANE {
            let at = TABLES[7][(crc & 255) as usize] ^ TABLES[6][(crc >> 8 & 255) as usize];
            crc = at ^ TABLES[5][(crc >> 16 & 255) as usize] ^ TABLES[4][(crc >> 24) as usize];
            word += 1;
        }
        bits[bit] = crc;
        bit += 1;
    }
    let mut all = [[0; 256]; 4];
    let mut k = 0;
    while k < 4 {
        let mut byte = 1;
        while byte < 256 {
            // Without its lowest bit it is known.
            let low = (byte as u32).trailing_zeros() as usize;
            all[k][byte] = all[k][byte & (byte - 1)] ^ bits[8 * k + low];
            byte += 1;
        }
        k += 1;
    }
    all
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn by_instruction(before: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let (threes, words) = words.as_chunks::<{ 3 * LANE }>();
    let mut crc = u64::from(!before);
    let behind = |state: u64| {
        let at = |k: usize| BEHIND[k][(state >> (8 * k) & 255) as usize];
        u64::from(at(0) ^ at(1) ^ at(2) ^ at(3))
    };
    for three in threes {
        let (mut second, mut third) = (0, 0);
        for at in 0..LANE {
            crc = _mm_crc32_u64(crc, u64::from_le_bytes(three[at]));
            second = _mm_crc32_u64(second, u64::from_le_bytes(three[LANE + at]));
            third = _mm_crc32_u64(third, u64::from_le_bytes(three[2 * LANE + at]));
        }
        crc = behind(behind(crc) ^ second) ^ third;
    }
    for word in words {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
    }
    let mut crc = crc as u32;
    for byte in rest {
        crc = _mm_crc32_u8(crc, *byte);
    }
    !crc
}
