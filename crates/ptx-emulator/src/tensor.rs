//! Tensor maps, which describe to TMA the layout of a tensor in global memory and the box that is
//! copied.
//!
//! The driver's encoding is opaque. A kernel that runs here gets the encoding of
//! [`TensorMap::encode`] instead, also 128 bytes, so the kernel's code is the same.

use super::fault::{FaultKind, Res, Trouble};
use super::memory::Memory;
use tessera_numerics::DType;

/// A tensor for TMA. The contiguous axis comes first.
#[derive(Clone, PartialEq, Debug)]
pub struct TensorMap {
    pub base: u64,
    pub dtype: DType,
    pub dims: Vec<u64>,
    /// Strides in bytes, of all axes but the first.
    pub strides: Vec<u64>,
    pub tile: Vec<u32>,
    /// The swizzle span in bytes: 0 for none, 32, 64 or 128.
    pub swizzle: u32,
}

const MAGIC: u64 = 0x5445_5353_4D41_5031;

impl TensorMap {
    /// The bytes that replace the driver's map.
    pub fn encode(&self) -> [u8; 128] {
        let mut words = [0u64; 16];
        words[0] = MAGIC;
        words[1] = self.base;
        let dtype = DType::ALL.iter().position(|d| *d == self.dtype).unwrap_or(0) as u64;
        words[2] = self.dims.len() as u64 | (self.swizzle as u64) << 8 | dtype << 32;
        words[3..].iter_mut().zip(&self.dims).for_each(|(w, d)| *w = *d);
        words[8..].iter_mut().zip(&self.strides).for_each(|(w, d)| *w = *d);
        for (i, t) in self.tile.iter().enumerate().take(5) {
            words[12 + i / 2] |= (*t as u64) << (32 * (i % 2));
        }
        let mut out = [0; 128];
        out.chunks_mut(8).zip(words).for_each(|(o, w)| o.copy_from_slice(&w.to_le_bytes()));
        out
    }

    pub(super) fn read(params: &[u8], memory: &Memory<'_>, at: u64) -> Res<TensorMap> {
        let bad = |text: &str| Trouble::new(FaultKind::Invalid, text).address(at);
        if !at.is_multiple_of(64) {
            return Err(bad("a tensor map must lie at a multiple of 64 bytes"));
        }
        let offset = at.wrapping_sub(params.as_ptr() as u64) as usize;
        let mut bytes = [0; 128];
        match params.get(offset..offset.saturating_add(128)) {
            Some(map) => bytes.copy_from_slice(map),
            None => {
                memory.check_run(at, 128, false)?;
                bytes = memory.read(at);
            }
        }
        let words: [u64; 16] = std::array::from_fn(|i| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * i..8 * i + 8]);
            u64::from_le_bytes(word)
        });
        let rank = (words[2] & 0xFF) as usize;
        if words[0] != MAGIC || !(1..=5).contains(&rank) {
            return Err(bad("there is no tensor map at this address"));
        }
        let dtype = DType::ALL.get((words[2] >> 32) as usize).copied();
        Ok(TensorMap {
            base: words[1],
            dtype: dtype.ok_or_else(|| bad("the tensor map names no dtype"))?,
            dims: words[3..3 + rank].to_vec(),
            strides: words[8..8 + rank - 1].to_vec(),
            tile: (0..rank).map(|i| (words[12 + i / 2] >> (32 * (i % 2))) as u32).collect(),
            swizzle: (words[2] >> 8 & 0xFFFF) as u32,
        })
    }

    pub(super) fn bytes(&self) -> u32 {
        self.tile.iter().product::<u32>() * self.dtype.bytes() as u32
    }

    /// The requirements of `cuTensorMapEncodeTiled` and of TMA.
    pub(super) fn check(&self, coords: usize) -> Result<(), String> {
        let inner = self.tile[0] * self.dtype.bytes() as u32;
        if coords != self.dims.len() {
            return Err(format!("{coords} coordinates into a map of {} axes", self.dims.len()));
        }
        if !self.base.is_multiple_of(16) || self.strides.iter().any(|s| !s.is_multiple_of(16)) {
            return Err("the base and strides of a map must be multiples of 16".to_string());
        }
        if self.tile.iter().any(|t| !(1..=256).contains(t)) || !inner.is_multiple_of(16) {
            return Err(format!("a box of {:?} is not one a map may have", self.tile));
        }
        match self.swizzle {
            0 => Ok(()),
            32 | 64 | 128 if inner <= self.swizzle => Ok(()),
            s => Err(format!("rows of {inner} bytes do not fit a swizzle of {s}")),
        }
    }

    /// Pieces of at most 16 bytes of a box: the offset in shared memory for a box that begins at
    /// `to`, the address in global memory (none outside the tensor), and the number of bytes.
    pub(super) fn pieces(&self, coords: &[i64], to: u64) -> Vec<(u64, Option<u64>, u32)> {
        let size = self.dtype.bytes() as i64;
        let per = 16 / size;
        let rows: u64 = self.tile[1..].iter().map(|t| *t as u64).product();
        let chunks = self.tile[0] as i64 / per;
        let mut out = Vec::new();
        for row in 0..rows {
            let (mut rest, mut inside, mut address) = (row, true, self.base);
            let sizes = self.tile.iter().zip(&self.dims).zip(coords).skip(1);
            for (((&tile, &dim), &start), stride) in sizes.zip(&self.strides) {
                let i = (rest % tile as u64) as i64 + start;
                rest /= tile as u64;
                inside &= i >= 0 && i < dim as i64;
                address = address.wrapping_add((i as u64).wrapping_mul(*stride));
            }
            for chunk in 0..chunks {
                let place = swizzled(to + (row * chunks as u64 + chunk as u64) * 16, self.swizzle);
                let first = coords[0] + chunk * per;
                // Elements of the piece that are inside the tensor.
                let low = (-first).clamp(0, per);
                let high = (self.dims[0] as i64 - first).clamp(low, per);
                let mut put = |from: i64, until: i64, real: bool| {
                    if until > from {
                        let at = address.wrapping_add(((first + from) * size) as u64);
                        let bytes = ((until - from) * size) as u32;
                        out.push((place + (from * size) as u64, real.then_some(at), bytes));
                    }
                };
                if inside {
                    put(0, low, false);
                    put(low, high, true);
                    put(high, per, false);
                } else {
                    put(0, per, false);
                }
            }
        }
        out
    }
}

/// The swizzled shared address: bits 4 and up are XORed with those from 7 on.
pub(super) fn swizzled(address: u64, span: u32) -> u64 {
    let mask = match span {
        128 => 7,
        64 => 3,
        32 => 1,
        _ => 0,
    };
    address ^ (address >> 7 & mask) << 4
}
