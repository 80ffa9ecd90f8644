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
}

/// The launch that copies arrays of these layouts, each from its first address to its second.
pub fn args(
    layouts: &[&Layout],
    func: &TileFunc,
    addresses: &[[*mut u8; 2]],
) -> Result<LaunchArgs, Diagnostics> {
    let array = |of: &Layout, data, strides: [i64; 3], writable| BufferArg {
        data,
        dims: of.extents.to_vec(),
        strides: strides.to_vec(),
        dtype: of.word,
        writable,
    };
    let both = layouts.iter().zip(addresses);
    let params: Vec<BufferArg> = both
        .flat_map(|(of, [from, to])| {
            [array(of, *from, of.from, false), array(of, *to, of.to, true)]
        })
        .collect();
    let types = func.params().iter().map(|&p| func.ty(p));
    let shape = geometry(func, types.zip(params.iter().map(|b| &b.dims[..])))?;
    let params = params.into_iter().map(ArgValue::Buffer).collect();
    let (grid, domain, lanes, dims) = (shape.grid, shape.domain, shape.lanes, shape.dims);
    Ok(LaunchArgs { params, dims, grid, domain, lanes })
}

/// The kernel of copies of arrays with these words and tiles: the tiles of the first, then those of
/// the second, and so on. No array waits for the last groups of another.
fn text(arrays: &[(DType, (i64, i64))]) -> String {
    let up = |size: &str, i: usize, by: i64| format!("(0 - floordiv((0 - {size}{i}), {by}))");
    let blocks = |i: usize, (rows, columns): (i64, i64)| {
        format!("(({} * {}) * P{i})", up("R", i, rows), up("C", i, columns))
    };
    let each = || arrays.iter().enumerate();
    let params = each().map(|(i, (word, _))| {
        format!(
            "%from{i}: view<[P{i}, R{i}, C{i}], {word}, read>, %to{i}: view<[P{i}, R{i}, C{i}], {word}, write>"
        )
    });
    let params = params.collect::<Vec<_>>().join(", ");
    let grid = each().map(|(i, (_, tile))| blocks(i, *tile));
    let grid = grid.reduce(|a, b| format!("({a} + {b})")).unwrap_or_default();
    let mut out = format!(
        "func @to_aligned_rows({params}) {{kind = group, grid = [{grid}], config = {{num_warps = 4}}}} {{
  %at0 = tile.program_id {{axis = 0}} : i64
"
    );
    for (i, &(word, (rows, columns))) in each() {
        out.push_str(&format!(
            "  %rows{i} = tile.const {{value = {rows}}} : i64
  %columns{i} = tile.const {{value = {columns}}} : i64
  %R{i} = tile.dim {{name = R{i}}} : i64
  %C{i} = tile.dim {{name = C{i}}} : i64
  %P{i} = tile.dim {{name = P{i}}} : i64
  %fewer{i} = tile.neg %R{i} : i64
  %below{i} = tile.floordiv %fewer{i}, %rows{i} : i64
  %tall{i} = tile.neg %below{i} : i64
  %less{i} = tile.neg %C{i} : i64
  %down{i} = tile.floordiv %less{i}, %columns{i} : i64
  %wide{i} = tile.neg %down{i} : i64
  %each{i} = tile.mul %tall{i}, %wide{i} : i64
"
        ));
        if i + 1 < arrays.len() {
            out.push_str(&format!(
                "  %all{i} = tile.mul %each{i}, %P{i} : i64
  %is{i} = tile.lt %at{i}, %all{i} : bool
  tile.if %is{i} do {{
"
            ));
        }
        out.push_str(&format!(
            "  %p{i} = tile.floordiv %at{i}, %each{i} : i64
  %left{i} = tile.mod %at{i}, %each{i} : i64
  %i{i} = tile.floordiv %left{i}, %wide{i} : i64
  %r{i} = tile.mul %i{i}, %rows{i} : i64
  %j{i} = tile.mod %left{i}, %wide{i} : i64
  %c{i} = tile.mul %j{i}, %columns{i} : i64
  %tile{i} = tile.load %from{i} at(%p{i}, %r{i}, %c{i}) {{extent = [0, {rows}, {columns}], bounds = [inside, checked, checked]}} : tile<{rows}x{columns}x{word}>
  tile.store %to{i}, %tile{i} at(%p{i}, %r{i}, %c{i}) {{extent = [0, {rows}, {columns}], bounds = [inside, checked, checked]}}
"
        ));
        if i + 1 < arrays.len() {
            let next = i + 1;
            out.push_str(&format!(
                "  tile.yield
  }} do {{
  %at{next} = tile.sub %at{i}, %all{i} : i64
"
            ));
        }
    }
    out.push_str(&"  tile.yield\n  }\n".repeat(arrays.len().saturating_sub(1)));
    out + "  tile.return\n}"
}

static COMPILED: Artifacts = Artifacts::new();
static BUILDING: Flights<String> = Flights::new();

/// The kernel of copies of these layouts as Tile IR, and compiled.
pub fn kernel(
    layouts: &[&Layout],
    choice: &Choice,
) -> Result<(TileFunc, Arc<dyn Artifact>), Diagnostics> {
    let of: Vec<_> = layouts.iter().map(|of| (of.word, of.tile())).collect();
    let mut func = tessera_tile::parse(&text(&of))?;
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
        // Nothing is contiguous.
        assert_eq!(layout(&array(&[5, 7], &[28, 4], DType::F16)), None);
        assert_eq!(layout(&array(&[0, 7], &[14, 2], DType::F16)), None);
    }

    #[test]
    fn the_kernel_of_each_word_is_valid() {
        for word in [DType::U8, DType::U16, DType::U32, DType::U64] {
            for wide in WIDTHS {
                for count in 1..=3 {
                    let func =
                        tessera_tile::parse(&text(&vec![(word, (TILE / wide, wide)); count]));
                    tessera_ir::verify(&func.unwrap()).unwrap();
                }
            }
        }
    }
}
