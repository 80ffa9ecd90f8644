//! Whole arrays, and two operations on all of them: taking elements from positions, and storing
//! computed results.

use crate::HostArray;
use crate::convert::cast;
use crate::value::{Data, Elem, Tile, each_data};
use std::sync::Arc;
use tessera_ir::{Dim, Type};
use tessera_numerics::{DType, NumType, Rounding, Scalar};

/// A row-major array: elements in the carrier of `elem`, each exactly one of its values.
#[derive(Clone, Debug)]
pub struct Array {
    pub dims: Vec<usize>,
    pub elem: NumType,
    pub data: Tile,
}

impl Array {
    pub fn new(dims: Vec<usize>, elem: NumType, data: Data) -> Self {
        Self { dims, elem, data: Arc::new(data) }
    }

    pub fn from_host(host: &HostArray) -> Self {
        let dims = host.dims.iter().map(|&d| d.max(0) as usize).collect();
        Self::new(dims, NumType::plain(host.dtype), Data::decode(host.dtype, &host.bytes))
    }

    pub fn to_host(&self) -> HostArray {
        let dtype = self.dtype();
        let dims = self.dims.iter().map(|&d| d as i64).collect();
        HostArray { dims, dtype, bytes: self.data.encode(dtype) }
    }

    pub fn dtype(&self) -> DType {
        self.elem.storage
    }

    pub fn len(&self) -> usize {
        self.data.len()
    }

    pub fn ty(&self) -> Type {
        let dims = self.dims.iter().map(|&d| Dim::Static(d as i64)).collect();
        Type::Tensor { dims, elem: self.elem }
    }

    /// The one element of an array without axes.
    pub fn scalar(&self) -> Option<Scalar> {
        self.data.at(0)
    }

    /// The elements at these positions under another shape; where a position is none, `fill`.
    pub fn take(&self, dims: &[usize], at: &[usize], fill: Option<Scalar>) -> Option<Array> {
        Some(Array::new(dims.to_vec(), self.elem, take(&self.data, at, fill)?))
    }
}

/// A position that is none.
pub const NOWHERE: usize = usize::MAX;

/// `None` where a position is outside and there is no `fill` of the type.
pub fn take(x: &Data, at: &[usize], fill: Option<Scalar>) -> Option<Data> {
    each_data!(x, xs => typed_take(xs, at, fill))
}

fn typed_take<T: Elem>(xs: &[T], at: &[usize], fill: Option<Scalar>) -> Option<Data> {
    let fill = fill.and_then(T::from_scalar);
    let all: Option<Vec<T>> = at.iter().map(|&i| xs.get(i).copied().or(fill)).collect();
    all.map(T::wrap)
}

/// Calls `each` with every position of a shape, in row-major order.
pub fn positions(shape: &[usize], mut each: impl FnMut(&[usize])) {
    if shape.contains(&0) {
        return;
    }
    let mut at = vec![0; shape.len()];
    loop {
        each(&at);
        let mut axis = shape.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            at[axis] += 1;
            if at[axis] < shape[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
}

pub fn count(dims: &[usize]) -> usize {
    dims.iter().product()
}

/// The index of a position in row-major order.
pub fn offset(at: &[usize], strides: &[usize]) -> usize {
    at.iter().zip(strides).map(|(a, s)| a * s).sum()
}

/// Converts values from the dtype they were computed in to the type they are stored in. `clamp`
/// saturates integers to a small dtype's range, where wrapping would change a minimum or maximum.
pub fn store(data: Tile, from: DType, to: NumType, clamp: bool) -> Option<Tile> {
    if from == to.storage && from == from.carrier() {
        return Some(data);
    }
    let saturate = to.saturates() || (clamp && to.storage.is_int());
    let round = match to.rounding() {
        // Stochastic rounding has no random draw here; round to nearest is its expectation.
        Rounding::Stochastic => Rounding::Rne,
        round => round,
    };
    cast(data, from, to.storage, round, saturate)
}

/// Values in another dtype's carrier by the default rules.
pub fn convert(data: &Tile, from: DType, to: DType) -> Option<Tile> {
    if from == to {
        return Some(data.clone());
    }
    cast(data.clone(), from, to, Rounding::Rne, to.saturates_by_default())
}
