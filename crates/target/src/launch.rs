//! The arguments of one launch.

use crate::device::DeviceId;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_numerics::{DType, Scalar};

/// An array the caller owns. Strides are in bytes, may be negative or zero; `data` is the element
/// at position zero of every axis.
#[derive(Clone, Debug)]
pub struct BufferArg {
    pub data: *mut u8,
    pub dims: Vec<i64>,
    pub strides: Vec<i64>,
    pub dtype: DType,
    pub writable: bool,
}

// SAFETY: a launch borrows the caller's arrays for its duration; the binding keeps them alive and
// has checked that written ones overlap no other.
unsafe impl Send for BufferArg {}
unsafe impl Sync for BufferArg {}

#[derive(Clone, Debug)]
pub enum ArgValue {
    Buffer(BufferArg),
    Scalar(Scalar),
}

/// One launch: an argument for each parameter of the function, in order; a value for each
/// dimension symbol; and the grid.
#[derive(Clone, Debug)]
pub struct LaunchArgs {
    pub params: Vec<ArgValue>,
    pub dims: BTreeMap<String, i64>,
    /// Groups along each axis.
    pub grid: [i64; 3],
    /// Lane kernels: how many lanes exist along each axis, 1 along axes that the lanes do not have,
    /// and how many form a group.
    pub domain: [i64; 3],
    pub lanes: i64,
}

/// The device and stream of a launch.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Queue {
    pub device: DeviceId,
    /// The handle of one of its streams; 0 is the default one.
    pub stream: u64,
}

/// A launch that can be repeated with other arrays of the same sizes, strides and alignment.
pub trait Settled: Send + Sync {
    /// `addresses` are those of the arrays and `scalars` the numbers, each in the order of the
    /// parameters.
    fn launch(&self, addresses: &[u64], scalars: &[Scalar], stream: u64)
    -> Result<(), Diagnostics>;

    /// The launch with its parameters packed, for a list that launches it again and again; None where that saves nothing.
    fn packed(self: Arc<Self>) -> Option<Box<dyn Packed>> {
        None
    }
}

/// A launch whose parameters stay packed from one time to the next. One list has it for itself: nothing is locked,
/// allocated or looked up.
pub trait Packed: Send + Sync {
    /// Where the array of this place among the launch's arrays is from now on.
    fn point(&mut self, array: usize, address: u64);

    /// Bytes of memory that it finds zero and leaves zero; 0 where it takes none.
    fn context(&self) -> u64;

    /// Puts it on a stream, with the address of that memory. The caller counts it (`device::launched`).
    fn launch(&mut self, stream: u64, context: u64) -> Result<(), Diagnostics>;
}
