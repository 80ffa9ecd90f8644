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

/// Bytes of a chain: the instruction takes three cycles and begins in each, so three chains take the time of one.
#[cfg(target_arch = "x86_64")]
const CHAIN: usize = 256;

/// `BEHIND[k][b]` is what byte `k` of a register with the value `b` is behind the zero bytes of a chain. Registers are linear: that of two
/// chains is the first behind the length of the second, and the second from zero.
#[cfg(target_arch = "x86_64")]
const BEHIND: [[u32; 256]; 4] = behind();

#[cfg(target_arch = "x86_64")]
const fn behind() -> [[u32; 256]; 4] {
    let mut bits = [0; 32];
    let mut bit = 0;
    while bit < 32 {
        let mut register: u32 = 1 << bit;
        let mut byte = 0;
        while byte < CHAIN {
            register = register >> 8 ^ TABLES[0][(register & 255) as usize];
            byte += 1;
        }
        bits[bit] = register;
        bit += 1;
    }
    let mut all = [[0; 256]; 4];
    let mut at = 0;
    while at < 1024 {
        let (byte, value) = (at / 256, at % 256);
        let mut bit = 0;
        while bit < 8 {
            if value >> bit & 1 == 1 {
                all[byte][value] ^= bits[8 * byte + bit];
            }
            bit += 1;
        }
        at += 1;
    }
    all
}

#[cfg(target_arch = "x86_64")]
fn behind_a_chain(register: u64) -> u64 {
    let at = |k: usize| BEHIND[k][(register >> (8 * k) & 255) as usize];
    u64::from(at(0) ^ at(1) ^ at(2) ^ at(3))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn by_instruction(before: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let mut crc = u64::from(!before);
    let (threes, rest) = bytes.as_chunks::<{ 3 * CHAIN }>();
    for three in threes {
        let (words, _) = three.as_chunks::<8>();
        let (first, others) = words.split_at(CHAIN / 8);
        let (second, third) = others.split_at(CHAIN / 8);
        let (mut b, mut c) = (0, 0);
        for ((x, y), z) in first.iter().zip(second).zip(third) {
            crc = _mm_crc32_u64(crc, u64::from_le_bytes(*x));
            b = _mm_crc32_u64(b, u64::from_le_bytes(*y));
            c = _mm_crc32_u64(c, u64::from_le_bytes(*z));
        }
        crc = behind_a_chain(behind_a_chain(crc) ^ b) ^ c;
    }
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
    }
    let mut crc = crc as u32;
    for byte in rest {
        crc = _mm_crc32_u8(crc, *byte);
    }
    !crc
}
