//! Arrays that own their elements, for tests: made from numbers, lent to a launch, read back.

use crate::value::Data;
use tessera_numerics::{DType, Scalar, cast};
use tessera_target::{ArgValue, BufferArg, show};

/// A row-major array of any dtype, unpacked.
#[derive(Clone, Debug, PartialEq)]
pub struct HostArray {
    pub dims: Vec<i64>,
    pub dtype: DType,
    /// The elements, little-endian in row-major order.
    pub bytes: Vec<u8>,
}

impl HostArray {
    /// Values are converted by the language's rules; missing ones are zero, surplus ones dropped.
    pub fn new(dims: &[i64], dtype: DType, values: &[f64]) -> Self {
        let values: Vec<_> = values.iter().map(|&v| Scalar::F64(v)).collect();
        Self::from_scalars(dims, dtype, &values)
    }

    /// Like [`HostArray::new`], for integers that f64 does not hold.
    pub fn from_scalars(dims: &[i64], dtype: DType, values: &[Scalar]) -> Self {
        let count = count(dims);
        let mut bytes = Vec::with_capacity(count * dtype.bytes());
        for i in 0..count {
            let v = values.get(i).copied().unwrap_or(Scalar::zero(dtype));
            bytes.extend(Data::fill(cast(v, v.dtype(), dtype), 1).encode(dtype));
        }
        Self { dims: dims.to_vec(), dtype, bytes }
    }

    pub fn zeros(dims: &[i64], dtype: DType) -> Self {
        Self { dims: dims.to_vec(), dtype, bytes: vec![0; count(dims) * dtype.bytes()] }
    }

    /// Strides of the array in bytes.
    pub fn strides(&self) -> Vec<i64> {
        let mut strides = vec![self.dtype.bytes() as i64; self.dims.len()];
        for i in (1..self.dims.len()).rev() {
            strides[i - 1] = strides[i] * self.dims[i];
        }
        strides
    }

    /// The array as a launch argument. The array must outlive the launch and not move.
    pub fn as_arg(&mut self) -> ArgValue {
        let (dims, strides) = (self.dims.clone(), self.strides());
        self.as_strided_arg(&dims, &strides, 0)
    }

    /// Another view of the same elements: `first` is the element at position zero, strides are in
    /// bytes. The caller guarantees that every position is inside the array.
    pub fn as_strided_arg(&mut self, dims: &[i64], strides: &[i64], first: usize) -> ArgValue {
        ArgValue::Buffer(BufferArg {
            data: self.bytes.as_mut_ptr().wrapping_add(first * self.dtype.bytes()),
            dims: dims.to_vec(),
            strides: strides.to_vec(),
            dtype: self.dtype,
            writable: true,
        })
    }

    /// The elements in row-major order, in the carrier of the dtype.
    pub fn scalars(&self) -> Vec<Scalar> {
        let data = Data::decode(self.dtype, &self.bytes);
        (0..data.len()).filter_map(|i| data.at(i)).collect()
    }

    /// The elements as f64: exact except for 64-bit integers beyond 2^53.
    pub fn values(&self) -> Vec<f64> {
        self.scalars().into_iter().map(Scalar::as_f64).collect()
    }

    /// The elements as text that distinguishes different values: `[1.0, -0.0, nan]`, `[true,
    /// false]`.
    pub fn text(&self) -> String {
        let items: Vec<_> = self.scalars().into_iter().map(show).collect();
        format!("[{}]", items.join(", "))
    }
}

fn count(dims: &[i64]) -> usize {
    dims.iter().map(|&d| d.max(0) as usize).product()
}
