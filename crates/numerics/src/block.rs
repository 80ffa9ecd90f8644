//! Block formats (LANGUAGE 16): narrow elements that share a scale.
//!
//! Blocks run along the last axis and a row's last block may be short, which is as if it were
//! padded with zeros. Infinite elements count as the largest finite f32 of their sign, in the scale
//! and in the element, so every finite or infinite input has a finite code and scale.

use crate::codec::{decode, encode};
use crate::dtype::DType;
use crate::modes::Rounding;
use crate::scalar::Scalar;
use std::fmt;

macro_rules! formats {
    ($($variant:ident = $name:literal, $element:ident, $scale:ident, $block:literal;)*) => {
        /// A block format by its name in programs.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum BlockFormat { $($variant,)* }

        impl BlockFormat {
            pub const ALL: &'static [BlockFormat] = &[$(BlockFormat::$variant,)*];

            pub const fn name(self) -> &'static str {
                match self { $(BlockFormat::$variant => $name,)* }
            }

            pub fn from_name(s: &str) -> Option<BlockFormat> {
                match s { $($name => Some(BlockFormat::$variant),)* _ => None }
            }

            /// Type of an element.
            pub const fn element(self) -> DType {
                match self { $(BlockFormat::$variant => DType::$element,)* }
            }

            /// Type of a block's scale.
            pub const fn scale(self) -> DType {
                match self { $(BlockFormat::$variant => DType::$scale,)* }
            }

            /// Elements that share a scale.
            pub const fn block(self) -> usize {
                match self { $(BlockFormat::$variant => $block,)* }
            }
        }
    };
}

formats! {
    MxFp8E4M3 = "mxfp8_e4m3", Fp8E4M3, E8M0, 32;
    MxFp8E5M2 = "mxfp8_e5m2", Fp8E5M2, E8M0, 32;
    MxFp6E3M2 = "mxfp6_e3m2", Fp6E3M2, E8M0, 32;
    MxFp6E2M3 = "mxfp6_e2m3", Fp6E2M3, E8M0, 32;
    MxFp4 = "mxfp4", Fp4E2M1, E8M0, 32;
    NvFp4 = "nvfp4", Fp4E2M1, Fp8E4M3, 16;
}

impl fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl BlockFormat {
    /// Whether there is one f32 scale for the whole tensor beside the blocks' own.
    pub const fn has_tensor_scale(self) -> bool {
        matches!(self, BlockFormat::NvFp4)
    }

    /// Exponent of the element type's largest value.
    pub fn element_exponent(self) -> i32 {
        let dt = self.element();
        let format = dt.float_format().expect("elements of block formats are floats");
        exponent(decode(dt, format.max_code()).as_f64() as f32)
    }
}

/// A tensor in a block format. Codes are one a byte, whatever their width.
#[derive(Clone, PartialEq, Debug)]
pub struct Quantized {
    pub format: BlockFormat,
    /// Length of the last axis.
    pub last: usize,
    /// One element code for each input, in its order.
    pub data: Vec<u8>,
    /// One scale code for each block: `last` over the block length, rounded up, for each row.
    pub scales: Vec<u8>,
    /// `None` for the MX formats.
    pub tensor_scale: Option<f32>,
}

/// Quantizes a tensor whose last axis has the length `last`. `None` when `last` does not divide the
/// length.
pub fn quantize(x: &[f32], last: usize, format: BlockFormat) -> Option<Quantized> {
    if x.len().checked_rem(last).unwrap_or(x.len()) != 0 {
        return None;
    }
    let tensor_scale = format.has_tensor_scale().then(|| {
        // NaN spoils its own block, not the tensor.
        let amax = x.iter().filter(|v| !v.is_nan()).fold(0f32, |m, v| m.max(bounded(*v).abs()));
        amax / (6.0 * 448.0)
    });
    let mut q = Quantized { format, last, data: Vec::new(), scales: Vec::new(), tensor_scale };
    for block in x.chunks(last.max(1)).flat_map(|row| row.chunks(format.block())) {
        match tensor_scale {
            None => mx_block(block, &mut q),
            Some(s) => nvfp4_block(block, s, &mut q),
        }
    }
    Some(q)
}

/// The f32 values: element times block scale, which is exact but for f32's range, times the
/// tensor's scale.
pub fn dequantize(q: &Quantized) -> Vec<f32> {
    let value = |dt, code: u8| decode(dt, code as u64).as_f64() as f32;
    let rows = q.data.chunks(q.last.max(1));
    let blocks = rows.flat_map(|row| row.chunks(q.format.block()));
    let scaled = blocks.zip(&q.scales).flat_map(|(block, &scale)| {
        let scale = value(q.format.scale(), scale);
        block.iter().map(move |&code| value(q.format.element(), code) * scale)
    });
    scaled.map(|v| v * q.tensor_scale.unwrap_or(1.0)).collect()
}

/// An infinity as the largest finite number of its sign.
fn bounded(x: f32) -> f32 {
    if x.is_infinite() { f32::MAX.copysign(x) } else { x }
}

/// Largest magnitude of a block; NaN if any element is.
fn amax(block: &[f32]) -> f32 {
    block.iter().fold(0f32, |m, &v| {
        if m.is_nan() || v.is_nan() { f32::NAN } else { m.max(bounded(v).abs()) }
    })
}

/// floor(log2(x)) of a positive finite number, subnormals too: in f64 they are normal.
fn exponent(x: f32) -> i32 {
    ((x as f64).to_bits() >> 52) as i32 - 1023
}

fn code(dt: DType, v: f64) -> u8 {
    encode(dt, Scalar::F64(v), Rounding::Rne, true) as u8
}

fn mx_block(block: &[f32], q: &mut Quantized) {
    let amax = amax(block);
    let scale = if amax.is_nan() {
        f64::NAN
    } else if amax == 0.0 {
        2f64.powi(-127)
    } else {
        2f64.powi((exponent(amax) - q.format.element_exponent()).clamp(-127, 127))
    };
    q.scales.push(code(DType::E8M0, scale));
    // The quotient is exact in f64, so an element is rounded once.
    q.data.extend(block.iter().map(|&v| code(q.format.element(), bounded(v) as f64 / scale)));
}

/// All arithmetic is f32, as a kernel does it.
fn nvfp4_block(block: &[f32], tensor_scale: f32, q: &mut Quantized) {
    let amax = amax(block);
    let wanted = if amax == 0.0 || (tensor_scale == 0.0 && !amax.is_nan()) {
        0.0
    } else {
        amax / (6.0 * tensor_scale)
    };
    let scale_code = code(DType::Fp8E4M3, wanted as f64);
    q.scales.push(scale_code);
    let scale = decode(DType::Fp8E4M3, scale_code as u64).as_f64() as f32 * tensor_scale;
    let element = |&v: &f32| {
        if scale == 0.0 { 0 } else { code(DType::Fp4E2M1, (bounded(v) / scale) as f64) }
    };
    q.data.extend(block.iter().map(element));
}
