//! Copies of operands to aligned rows. TMA takes rows at multiples of 16 bytes and asynchronous
//! copies pieces of at least 4: an operand that has neither is loaded by threads, and MMAs wait for
//! it. A copy moves each element once; a matmul reads it once for each row or column of tiles.

use crate::artifacts::Artifacts;
use crate::backends::Choice;
use crate::cache;
use crate::made::geometry;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{PassContext, PassManager, PassOptions};
use tessera_lower::{Bounds, Canonicalise};
use tessera_numerics::{DType, Profile};
use tessera_support::Flights;
use tessera_target::arrays::ArrayClass;
use tessera_target::speed::LINE;
use tessera_target::{ArgValue, Artifact, BufferArg, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

/// Elements of a tile of the copy: with 4 warps, each thread has several wide loads in flight.
const TILE: i64 = 4096;
const WIDTHS: [i64; 5] = [512, 256, 128, 64, 32];

/// An array as `[outer, rows, columns]` with contiguous or nearly contiguous columns, and its copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The strides of the copy, in bytes, by the axes of the array.
    pub strides: Vec<i64>,
    pub bytes: u64,
    extents: [i64; 3],
    from: [i64; 3],
    to: [i64; 3],
    word: DType,
}

/// How an array can be copied to rows at multiples of a cache line, so that TMA can describe the
/// copy; none where that cannot be, or where axes do not merge into three.
pub fn layout(b: &BufferArg) -> Option<Layout> {
    let word = match b.dtype.bytes() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        8 => DType::U64,
        _ => return None,
    };
    let size = b.dtype.bytes() as i64;
    let long = |&axis: &usize| b.dims[axis] > 1;
    // From the axis with the shortest steps to that with the longest.
    let mut axes: Vec<usize> = (0..b.dims.len()).filter(long).collect();
    axes.sort_by_key(|&axis| (b.strides[axis].unsigned_abs(), std::cmp::Reverse(axis)));
    if axes.is_empty() || b.dims.iter().any(|&n| n <= 0) || b.strides[axes[0]] != size {
        return None;
    }
    let mut strides = vec![size; b.dims.len()];
    let mut step = size;
    for (place, &axis) in axes.iter().enumerate() {
        strides[axis] = step;
        step = step.checked_mul(b.dims[axis])?;
        if place == 0 {
            let line = LINE as i64;
            step = step.checked_add(line - 1)? / line * line;
        }
    }
    let bytes = u64::try_from(step).ok()?;
    // Axes of one element may have any stride.
    let copied = BufferArg {
        data: std::ptr::without_provenance_mut(LINE as usize),
        strides: strides.clone(),
        ..b.clone()
    };
    if !ArrayClass::of(&copied).tma_compatible {
        return None;
    }
    let axis = |at: usize| axes.get(at).copied();
    let row = |at: usize, of: &[i64]| axis(at).map_or((1, 0), |axis| (b.dims[axis], of[axis]));
    let (mut extents, mut from, mut to) = ([1; 3], [0; 3], [0; 3]);
    for place in 0..2 {
        (extents[2 - place], from[2 - place]) = row(place, &b.strides);
        to[2 - place] = row(place, &strides).1;
    }
    for &axis in axes.iter().skip(2) {
        let (merged, extent) = (extents[0] * from[0], extents[0]);
        if extent == 1 {
            (extents[0], from[0], to[0]) = (b.dims[axis], b.strides[axis], strides[axis]);
        } else if b.strides[axis] == merged {
            // The copy's own axes always merge.
            extents[0] = extent.checked_mul(b.dims[axis])?;
        } else {
            return None;
        }
    }
    Some(Layout { strides, bytes, extents, from, to, word })
}

impl Layout {
    /// The tile of the copy: the widest that covers at most 1/16 more elements than the best does.
    fn tile(&self) -> (i64, i64) {
        let columns = self.extents[2];
        let covered = |wide: i64| (columns + wide - 1) / wide * wide;
        let least = WIDTHS.into_iter().map(covered).min().unwrap_or(columns);
        let wide = WIDTHS.into_iter().find(|&w| 16 * covered(w) <= 17 * least).unwrap_or(32);
        (TILE / wide, wide)
    }

    /// The launch that copies `from` to memory at `to`.
    pub fn args(
        &self,
        func: &TileFunc,
        from: *mut u8,
        to: *mut u8,
    ) -> Result<LaunchArgs, Diagnostics> {
        let array = |data, strides: [i64; 3], writable| BufferArg {
            data,
            dims: self.extents.to_vec(),
            strides: strides.to_vec(),
            dtype: self.word,
            writable,
        };
        let params = [array(from, self.from, false), array(to, self.to, true)];
        let types = func.params().iter().map(|&p| func.ty(p));
        let shape = geometry(func, types.zip(params.iter().map(|b| &b.dims[..])))?;
        let params = params.into_iter().map(ArgValue::Buffer).collect();
        let (grid, domain, lanes, dims) = (shape.grid, shape.domain, shape.lanes, shape.dims);
        Ok(LaunchArgs { params, dims, grid, domain, lanes })
    }
}

/// The kernel of copies of this layout.
fn text(word: DType, (rows, columns): (i64, i64)) -> String {
    format!(
        "func @to_aligned_rows(%from: view<[P, R, C], {word}, read>, %to: view<[P, R, C], {word}, write>) \
         {{kind = group, grid = [((0 - floordiv((0 - R), {rows})) * (0 - floordiv((0 - C), {columns}))), P], \
         config = {{num_warps = 4}}}} {{
  %rows = tile.const {{value = {rows}}} : i64
  %columns = tile.const {{value = {columns}}} : i64
  %C = tile.dim {{name = C}} : i64
  %at = tile.program_id {{axis = 0}} : i64
  %p = tile.program_id {{axis = 1}} : i64
  %less = tile.neg %C : i64
  %down = tile.floordiv %less, %columns : i64
  %wide = tile.neg %down : i64
  %i = tile.floordiv %at, %wide : i64
  %r = tile.mul %i, %rows : i64
  %j = tile.mod %at, %wide : i64
  %c = tile.mul %j, %columns : i64
  %tile = tile.load %from at(%p, %r, %c) {{extent = [0, {rows}, {columns}], bounds = [inside, checked, checked]}} : tile<{rows}x{columns}x{word}>
  tile.store %to, %tile at(%p, %r, %c) {{extent = [0, {rows}, {columns}], bounds = [inside, checked, checked]}}
  tile.return
}}"
    )
}

static COMPILED: Artifacts = Artifacts::new();
static BUILDING: Flights<String> = Flights::new();

/// The kernel of a layout as Tile IR, and compiled.
pub fn kernel(
    layout: &Layout,
    choice: &Choice,
) -> Result<(TileFunc, Arc<dyn Artifact>), Diagnostics> {
    let mut func = tessera_tile::parse(&text(layout.word, layout.tile()))?;
    let passes = PassManager::new(PassOptions::default()).with(Bounds).with(Canonicalise);
    passes.run(&mut func, &mut PassContext::default())?;
    let backend = &choice.backend;
    let key = format!("{} {} {}", backend.name(), backend.target(), func.hash());
    let make = || {
        let options =
            CompileOptions { store: cache::store()?, ..CompileOptions::new(Profile::Default) };
        let made: Arc<dyn Artifact> = Arc::from(backend.compile(&func, &options)?);
        COMPILED.insert(key.clone(), &made);
        Ok::<_, Diagnostics>(made)
    };
    let made = BUILDING.once(&key, || COMPILED.get(&key), make)?.0;
    Ok((func, made))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(dims: &[i64], strides: &[i64], dtype: DType) -> BufferArg {
        let data = std::ptr::without_provenance_mut(2);
        BufferArg { data, dims: dims.to_vec(), strides: strides.to_vec(), dtype, writable: false }
    }

    #[test]
    fn rows_begin_at_lines_and_the_contiguous_axis_stays() {
        let found = layout(&array(&[5, 65], &[130, 2], DType::BF16)).unwrap();
        assert_eq!((found.strides, found.bytes), (vec![256, 2], 5 * 256));
        assert_eq!((found.extents, found.from, found.to), ([1, 5, 65], [0, 130, 2], [0, 256, 2]));
        let turned = layout(&array(&[65, 5], &[2, 130], DType::BF16)).unwrap();
        assert_eq!((turned.strides, turned.extents), (vec![2, 256], [1, 5, 65]));
        assert_eq!(layout(&array(&[7], &[4], DType::F32)).unwrap().strides, [4]);
    }

    #[test]
    fn outer_axes_merge_or_the_array_stays() {
        let packed = array(&[2, 3, 5, 7], &[210, 70, 14, 2], DType::F16);
        let found = layout(&packed).unwrap();
        assert_eq!((found.extents, found.from), ([6, 5, 7], [70, 14, 2]));
        assert_eq!(found.strides, [1920, 640, 128, 2]);
        // A slice of the second axis: no one stride describes both outer ones.
        assert_eq!(layout(&array(&[2, 3, 5, 7], &[280, 70, 14, 2], DType::F16)), None);
        // Nothing is contiguous, or TMA does not take the copy either.
        assert_eq!(layout(&array(&[5, 7], &[28, 4], DType::F16)), None);
        assert_eq!(layout(&array(&[5, 1], &[2, 2], DType::F16)), None);
        assert_eq!(layout(&array(&[0, 7], &[14, 2], DType::F16)), None);
    }

    #[test]
    fn the_kernel_of_each_word_is_valid() {
        for word in [DType::U8, DType::U16, DType::U32, DType::U64] {
            for wide in WIDTHS {
                let func = tessera_tile::parse(&text(word, (TILE / wide, wide))).unwrap();
                tessera_ir::verify(&func).unwrap();
            }
        }
    }
}
