//! Arrays of `; run:` lines: their text, their bytes, and back.

use tessera_numerics::{DType, Rounding, Scalar, decode, encode};
use tessera_target::BufferArg;

/// A row-major array in memory of our own.
#[derive(Clone, Debug)]
pub struct Array {
    pub dtype: DType,
    pub dims: Vec<i64>,
    bytes: Vec<u8>,
}

/// One number as it is written: `1.5`, `-0.0`, `inf`, `nan`, `7`, `true`.
pub fn scalar(text: &str, dtype: DType) -> Result<Scalar, String> {
    let wrong = || format!("expected a value of {dtype}, got `{text}`");
    let float = text.contains(['.', 'e', 'i', 'n']);
    Ok(match dtype.carrier() {
        DType::Bool => Scalar::Bool(text.parse().map_err(|_| wrong())?),
        DType::F32 if float => Scalar::F32(text.parse().map_err(|_| wrong())?),
        DType::F64 if float => Scalar::F64(text.parse().map_err(|_| wrong())?),
        DType::I32 => Scalar::I32(text.parse().map_err(|_| wrong())?),
        DType::I64 => Scalar::I64(text.parse().map_err(|_| wrong())?),
        DType::U32 => Scalar::U32(text.parse().map_err(|_| wrong())?),
        DType::U64 => Scalar::U64(text.parse().map_err(|_| wrong())?),
        _ => return Err(wrong()),
    })
}

pub fn show(value: Scalar) -> String {
    match value {
        Scalar::Bool(v) => v.to_string(),
        Scalar::I32(v) => v.to_string(),
        Scalar::I64(v) => v.to_string(),
        Scalar::U32(v) => v.to_string(),
        Scalar::U64(v) => v.to_string(),
        Scalar::F32(v) if v.is_nan() => "nan".into(),
        Scalar::F64(v) if v.is_nan() => "nan".into(),
        Scalar::F32(v) => format!("{v:?}"),
        Scalar::F64(v) => format!("{v:?}"),
    }
}

impl Array {
    pub fn new(dtype: DType, dims: Vec<i64>, values: &[Scalar]) -> Result<Self, String> {
        let count: i64 = dims.iter().product();
        if count != values.len() as i64 {
            return Err(format!("expected {count} values for {dims:?}, got {}", values.len()));
        }
        let mut bytes = Vec::new();
        for &v in values {
            let code = encode(dtype, v, Rounding::Rne, dtype.saturates_by_default());
            bytes.extend_from_slice(&code.to_le_bytes()[..dtype.bytes()]);
        }
        Ok(Self { dtype, dims, bytes })
    }

    pub fn argument(&mut self, writable: bool) -> BufferArg {
        let mut strides = vec![self.dtype.bytes() as i64; self.dims.len()];
        for i in (1..self.dims.len()).rev() {
            strides[i - 1] = strides[i] * self.dims[i];
        }
        let data = self.bytes.as_mut_ptr();
        BufferArg { data, dims: self.dims.clone(), strides, dtype: self.dtype, writable }
    }

    /// Nested lists, as the array would be written.
    pub fn show(&self) -> String {
        let size = self.dtype.bytes();
        let codes = self.bytes.chunks_exact(size).map(|c| {
            let mut code = [0; 8];
            code[..size].copy_from_slice(c);
            u64::from_le_bytes(code)
        });
        let values: Vec<_> = codes.map(|c| show(decode(self.dtype, c))).collect();
        nested(&self.dims, &values)
    }
}

fn nested(dims: &[i64], values: &[String]) -> String {
    let Some((&first, inner)) = dims.split_first() else { return values.concat() };
    let size = inner.iter().product::<i64>() as usize;
    let parts: Vec<_> =
        (0..first as usize).map(|i| nested(inner, &values[i * size..(i + 1) * size])).collect();
    format!("[{}]", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_and_show_exactly() {
        for text in ["-0.0", "inf", "-inf", "nan", "1e-45", "0.1"] {
            assert_eq!(show(scalar(text, DType::F32).unwrap()), text);
        }
        assert!(scalar("1", DType::F32).is_err());
        assert!(scalar("1.0", DType::I32).is_err());
        let a =
            Array::new(DType::BF16, vec![1, 2], &[Scalar::F32(1.0), Scalar::F32(f32::INFINITY)]);
        assert_eq!(a.unwrap().show(), "[[1.0, inf]]");
    }
}
