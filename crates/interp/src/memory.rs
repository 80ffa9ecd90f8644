//! Memory as a kernel sees it: the caller's arrays and the group's own buffers, addressed alike by
//! positions along each axis. Outside is outside: no position, however large, reaches other memory.

use crate::value::{Data, Elem, each_data};
use std::convert::Infallible;
use tessera_numerics::{DType, Scalar};
use tessera_target::BufferArg;

#[derive(Debug)]
pub struct Memory {
    /// The element at position zero of every axis.
    base: *mut u8,
    pub dims: Vec<i64>,
    /// In bytes.
    strides: Vec<i64>,
    pub dtype: DType,
    /// A buffer owns its bytes and knows which elements were written.
    own: Option<Own>,
}

#[derive(Debug)]
struct Own {
    _bytes: Box<[u8]>,
    written: Vec<bool>,
    /// What was never written reads as zero and is no fault.
    tolerant: bool,
}

/// The position of an element that is read and was never written.
#[derive(Debug, PartialEq)]
pub struct Unwritten(pub Vec<i64>);

/// Elements of a block that are inside and contiguous in the tile: `len` from `first` on, in memory
/// at `offset`, `offset + stride`, ….
#[derive(Copy, Clone, Debug, PartialEq)]
struct Row {
    first: usize,
    len: usize,
    offset: i64,
    stride: i64,
}

impl Memory {
    /// The caller's array, its elements read as `dtype`.
    pub fn array(arg: &BufferArg, dtype: DType) -> Self {
        let (dims, strides) = (arg.dims.clone(), arg.strides.clone());
        Self { base: arg.data, dims, strides, dtype, own: None }
    }

    /// A row-major buffer, never written.
    pub fn buffer(dims: &[i64], dtype: DType) -> Self {
        let count = dims.iter().product::<i64>() as usize;
        let mut strides = vec![dtype.bytes() as i64; dims.len()];
        for i in (1..dims.len()).rev() {
            strides[i - 1] = strides[i] * dims[i];
        }
        let mut bytes = vec![0u8; count * dtype.bytes()].into_boxed_slice();
        let base = bytes.as_mut_ptr();
        let own = Some(Own { _bytes: bytes, written: vec![false; count], tolerant: false });
        Self { base, dims: dims.to_vec(), strides, dtype, own }
    }

    /// Reads a block. Positions outside, and elements where the mask is false, are `other`.
    pub fn load(
        &self,
        at: &[i64],
        extent: &[i64],
        mask: Option<&[bool]>,
        other: Scalar,
    ) -> Result<Data, Unwritten> {
        self.load_by(at, extent, &[], mask, other)
    }

    /// The same with a step along each axis; 1 where there is none.
    pub fn load_by(
        &self,
        at: &[i64],
        extent: &[i64],
        step: &[i64],
        mask: Option<&[bool]>,
        other: Scalar,
    ) -> Result<Data, Unwritten> {
        let mut out = Data::fill(other, extent.iter().map(|&e| e.max(1) as usize).product());
        each_data!(&mut out, xs => self.load_into(at, extent, step, mask, xs)?);
        Ok(out)
    }

    fn load_into<T: Elem>(
        &self,
        at: &[i64],
        extent: &[i64],
        step: &[i64],
        mask: Option<&[bool]>,
        out: &mut [T],
    ) -> Result<(), Unwritten> {
        let width = self.dtype.bytes();
        let mut packed = Vec::new();
        self.rows(at, extent, step, |row| {
            let mask = mask.map(|m| &m[row.first..row.first + row.len]);
            self.check_written(row, mask)?;
            let out = &mut out[row.first..row.first + row.len];
            if row.stride == width as i64 {
                T::decode(self.dtype, self.bytes(row.offset, row.len * width), out);
            } else {
                packed.clear();
                for j in 0..row.len {
                    packed.extend_from_slice(self.bytes(row.offset + j as i64 * row.stride, width));
                }
                T::decode(self.dtype, &packed, out);
            }
            Ok(())
        })
    }

    /// Writes a block. Positions outside, and elements where the mask is false, are left alone.
    pub fn store(&mut self, at: &[i64], extent: &[i64], mask: Option<&[bool]>, value: &Data) {
        self.store_by(at, extent, &[], mask, value);
    }

    /// The same with a step along each axis; 1 where there is none.
    pub fn store_by(
        &mut self,
        at: &[i64],
        extent: &[i64],
        step: &[i64],
        mask: Option<&[bool]>,
        value: &Data,
    ) {
        each_data!(value, xs => self.store_from(at, extent, step, mask, xs));
    }

    fn store_from<T: Elem>(
        &mut self,
        at: &[i64],
        extent: &[i64],
        step: &[i64],
        mask: Option<&[bool]>,
        xs: &[T],
    ) {
        let width = self.dtype.bytes();
        let mut packed = Vec::new();
        let mut rows = Vec::new();
        let Ok(()) = self.rows(at, extent, step, |row| {
            rows.push(row);
            Ok::<(), Infallible>(())
        });
        for row in rows {
            let xs = &xs[row.first..row.first + row.len];
            if row.stride == width as i64 && mask.is_none() {
                T::encode(self.dtype, xs, self.bytes_mut(row.offset, row.len * width));
                self.mark(row.offset, row.len);
                continue;
            }
            packed.resize(row.len * width, 0);
            T::encode(self.dtype, xs, &mut packed);
            for (j, code) in packed.chunks_exact(width).enumerate() {
                if mask.is_none_or(|m| m[row.first + j]) {
                    let offset = row.offset + j as i64 * row.stride;
                    self.bytes_mut(offset, width).copy_from_slice(code);
                    self.mark(offset, 1);
                }
            }
        }
    }

    /// From now on, elements that were never written read as zero, without a fault.
    pub fn tolerate_unwritten(&mut self) {
        if let Some(own) = &mut self.own {
            own.tolerant = true;
        }
    }

    /// Whether an element was written, by its index in row-major order. An array's always is.
    pub fn is_written(&self, element: usize) -> bool {
        self.own.as_ref().is_none_or(|own| own.written.get(element).is_none_or(|&w| w))
    }

    pub fn is_buffer(&self) -> bool {
        self.own.is_some()
    }

    /// The offset of one element, in bytes from the base; `None` for a position outside.
    pub fn offset(&self, at: impl Iterator<Item = i64>) -> Option<i64> {
        let mut offset = 0i64;
        for ((p, &dim), &stride) in at.zip(&self.dims).zip(&self.strides) {
            if p < 0 || p >= dim {
                return None;
            }
            // Wrapping: of an array without elements the strides may be anything.
            offset = p.wrapping_mul(stride).wrapping_add(offset);
        }
        Some(offset)
    }

    /// The bytes of the element at an offset that [`Memory::offset`] gave.
    pub fn element(&self, offset: i64) -> Result<&[u8], Unwritten> {
        self.check_written(Row { first: 0, len: 1, offset, stride: 0 }, None)?;
        Ok(self.bytes(offset, self.dtype.bytes()))
    }

    pub fn set_element(&mut self, offset: i64, code: &[u8]) {
        self.bytes_mut(offset, self.dtype.bytes()).copy_from_slice(code);
        self.mark(offset, 1);
    }

    /// Calls `f` for each row of the part of a block that is inside.
    fn rows<E>(
        &self,
        at: &[i64],
        extent: &[i64],
        step: &[i64],
        mut f: impl FnMut(Row) -> Result<(), E>,
    ) -> Result<(), E> {
        // Along each axis: how many positions are inside, and the strides in tile and memory.
        let mut axes = Vec::with_capacity(extent.len());
        let (mut first, mut offset, mut tile_stride) = (0, 0i64, 1);
        for (axis, &e) in extent.iter().enumerate().rev() {
            let (len, start, dim) = (e.max(1), at[axis], self.dims[axis]);
            let step = step.get(axis).copied().unwrap_or(1);
            // In 128 bits, where no position overflows. Steps are counted up to the next whole one.
            let steps = |to: i128| {
                let far = to - i128::from(start) + i128::from(step) - 1;
                far.div_euclid(step.into()).clamp(0, len.into()) as i64
            };
            let (low, high) = (steps(0), steps(dim.into()));
            if low >= high {
                return Ok(());
            }
            first += low * tile_stride;
            offset = (start + low * step).wrapping_mul(self.strides[axis]).wrapping_add(offset);
            if len > 1 {
                axes.push((high - low, tile_stride, self.strides[axis].wrapping_mul(step)));
            }
            tile_stride *= len;
        }
        // The innermost axis longer than 1 has stride 1 in the tile: it is the row.
        let mut axes = axes.into_iter();
        let (len, _, stride) = axes.next().unwrap_or((1, 1, self.dtype.bytes() as i64));
        let outer: Vec<_> = axes.collect();
        let mut place = vec![0; outer.len()];
        loop {
            f(Row { first: first as usize, len: len as usize, offset, stride })?;
            let mut axis = 0;
            loop {
                let Some(&(count, tile, memory)) = outer.get(axis) else { return Ok(()) };
                place[axis] += 1;
                // Wrapping: an axis of one position may have any stride, and is stepped back
                // immediately.
                (first, offset) = (first + tile, offset.wrapping_add(memory));
                if place[axis] < count {
                    break;
                }
                (first, offset) =
                    (first - count * tile, offset.wrapping_sub(count.wrapping_mul(memory)));
                place[axis] = 0;
                axis += 1;
            }
        }
    }

    fn check_written(&self, row: Row, mask: Option<&[bool]>) -> Result<(), Unwritten> {
        let Some(own) = self.own.as_ref().filter(|own| !own.tolerant) else { return Ok(()) };
        let width = self.dtype.bytes() as i64;
        for j in 0..row.len {
            let element = ((row.offset + j as i64 * row.stride) / width) as usize;
            if !own.written[element] && mask.is_none_or(|m| m[j]) {
                return Err(Unwritten(self.position(element as i64)));
            }
        }
        Ok(())
    }

    /// The position of an element of a row-major buffer.
    fn position(&self, mut element: i64) -> Vec<i64> {
        let mut at: Vec<i64> = self
            .dims
            .iter()
            .rev()
            .map(|&d| {
                let p = element % d;
                element /= d;
                p
            })
            .collect();
        at.reverse();
        at
    }

    fn mark(&mut self, offset: i64, len: usize) {
        if let Some(own) = &mut self.own {
            let element = offset as usize / self.dtype.bytes();
            own.written[element..element + len].fill(true);
        }
    }

    fn bytes(&self, offset: i64, len: usize) -> &[u8] {
        // SAFETY: the offset belongs to positions inside the dims, so the bytes belong to the array
        // that the caller lent for the launch, or to the buffer's own. The caller guarantees that
        // nothing else writes there meanwhile, and there is one thread here.
        unsafe { std::slice::from_raw_parts(self.base.offset(offset as isize), len) }
    }

    fn bytes_mut(&mut self, offset: i64, len: usize) -> &mut [u8] {
        // SAFETY: as in `bytes`; only parameters that may be written are stored to.
        unsafe { std::slice::from_raw_parts_mut(self.base.offset(offset as isize), len) }
    }
}
