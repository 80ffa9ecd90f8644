//! Tensor maps, which describe arrays to TMA. Code lists the maps it needs; a launch encodes them
//! from its arrays' addresses, extents and strides, and passes them after the argument words.

use crate::module::Kernel;
use tessera_diag::{Code as ErrorCode, Diagnostic};
use tessera_numerics::DType;
use tessera_target::arrays::BOX_RANK;
use tessera_target::frame::{Frame, ParamKind};

/// Bytes of a tensor map among the parameters.
pub const MAP_BYTES: u32 = 128;
/// Its alignment.
pub const MAP_ALIGN: u32 = 64;

const MAP_WORDS: usize = MAP_BYTES as usize / 8;

/// What a tensor map is made from, besides the address, extents and strides of its array, which are
/// known at launch. Code has maps only for arrays whose class is `tma_compatible`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MapRecipe {
    /// The kernel's parameter that is the array.
    pub param: usize,
    /// The array's axes in the order of coordinates: the contiguous one first.
    pub axes: Vec<usize>,
    /// The box along `axes`.
    pub extent: Vec<u32>,
    /// The swizzle span in bytes: 0 for none, 32, 64 or 128.
    pub span: u32,
    pub dtype: DType,
}

/// An array as a map describes it, in the order of the recipe's axes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    pub address: u64,
    pub rank: usize,
    dims: [u64; BOX_RANK],
    /// In bytes, of all axes but the first.
    strides: [u64; BOX_RANK],
}

impl Placed {
    pub fn dims(&self) -> &[u64] {
        &self.dims[..self.rank]
    }

    pub fn strides(&self) -> &[u64] {
        &self.strides[..self.rank.saturating_sub(1)]
    }
}

impl MapRecipe {
    /// The argument word of the array's address.
    pub fn word(&self, frame: &Frame) -> usize {
        frame.params[self.param].word
    }

    /// The array of a launch with these words.
    pub fn place(&self, frame: &Frame, words: &[u64]) -> Placed {
        let first = self.word(frame);
        let rank = match &frame.params[self.param].kind {
            ParamKind::Array { dims, .. } => dims.len(),
            ParamKind::Scalar(_) => 0,
        };
        let mut out = Placed {
            address: words[first],
            rank: self.axes.len(),
            dims: [0; BOX_RANK],
            strides: [0; BOX_RANK],
        };
        let mut beyond = self.dtype.bytes() as u64;
        for (i, &axis) in self.axes.iter().enumerate() {
            let (n, own) = (words[first + 1 + axis], words[first + 1 + rank + axis]);
            // The stride of an axis of one position does not matter: a valid one replaces it.
            let stride = match (i, n) {
                (0, _) => self.dtype.bytes() as u64,
                (_, 1) => beyond.next_multiple_of(16),
                _ => own,
            };
            out.dims[i] = n;
            if i > 0 {
                out.strides[i - 1] = stride;
            }
            beyond = stride.saturating_mul(n).min(LARGEST_STRIDE);
        }
        out
    }

    /// `a: boxes of 128x64 bf16, swizzled within 128 bytes`, the box in the order of the array's
    /// axes.
    pub fn text(&self, frame: &Frame) -> String {
        let mut along: Vec<_> = self.axes.iter().zip(&self.extent).collect();
        along.sort_unstable();
        let sizes: Vec<_> = along.iter().map(|(_, n)| n.to_string()).collect();
        let swizzle = match self.span {
            0 => String::new(),
            span => format!(", swizzled within {span} bytes"),
        };
        let name = &frame.params[self.param].name;
        format!("{name}: boxes of {} {}{swizzle}", sizes.join("x"), self.dtype)
    }

    /// What TMA never accepts: then the code is at fault, not the caller.
    fn check(&self, frame: &Frame) -> Result<(), String> {
        let bytes = self.dtype.bytes() as u32;
        let kind = frame.params.get(self.param).map(|p| &p.kind);
        let Some(ParamKind::Array { dims, elem, .. }) = kind else {
            return Err(format!("parameter {} is no array", self.param));
        };
        let mut seen = vec![false; dims.len()];
        for &axis in &self.axes {
            match seen.get_mut(axis) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err(format!("axis {axis} is none of {} or stands twice", dims.len())),
            }
        }
        if !(1..=BOX_RANK).contains(&self.axes.len()) || self.extent.len() != self.axes.len() {
            return Err(format!("{} axes and a box of {:?}", self.axes.len(), self.extent));
        }
        if self.extent.iter().any(|n| !(1..=256).contains(n)) {
            return Err(format!("a box of {:?}, beyond 256 elements", self.extent));
        }
        let row = self.extent[0] * bytes;
        if !row.is_multiple_of(16) || !matches!(self.span, 0 | 32 | 64 | 128) {
            return Err(format!("rows of {row} bytes with a swizzle of {} bytes", self.span));
        }
        if self.span != 0 && row > self.span {
            return Err(format!("rows of {row} bytes in a swizzle of {} bytes", self.span));
        }
        if elem.storage.bytes() as u32 != bytes {
            return Err(format!("elements of {} for an array of {}", self.dtype, elem.storage));
        }
        Ok(())
    }
}

const LARGEST_STRIDE: u64 = (1 << 40) - 16;

/// The first word of a map among those of a launch; `words` are the arguments'.
pub fn map_word(words: usize, map: usize) -> usize {
    words.next_multiple_of(MAP_ALIGN as usize / 8) + map * MAP_WORDS
}

/// Appends a map to the words of a launch, aligned.
pub fn push_map(words: &mut Vec<u64>, map: &[u8; MAP_BYTES as usize]) {
    words.resize(map_word(words.len(), 0), 0);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |all, &b| all << 8 | u64::from(b));
    words.extend(map.chunks_exact(8).map(word));
}

/// Checks that a kernel's parameters are its argument words and these maps.
pub fn check(kernel: &Kernel, frame: &Frame, maps: &[MapRecipe]) -> Result<(), Diagnostic> {
    let wrong = |why: String| {
        let message = format!("`{}`: a tensor map that cannot be: {why}", kernel.name);
        Err(Diagnostic::new(ErrorCode::E_UNKNOWN, message))
    };
    if kernel.params.len() != maps.len() + 1 {
        let got = kernel.params.len();
        return wrong(format!("{} maps among {got} parameters", maps.len()));
    }
    if let Some(p) =
        kernel.params[1..].iter().find(|p| (p.bytes, p.align) != (MAP_BYTES, MAP_ALIGN))
    {
        return wrong(format!("`{}` has {} bytes at multiples of {}", p.name, p.bytes, p.align));
    }
    match maps.iter().find_map(|map| map.check(frame).err()) {
        Some(why) => wrong(why),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulate;
    use crate::interp::TensorMap;
    use crate::module::Param;
    use tessera_target::{ArgValue, BufferArg, LaunchArgs};
    use tessera_tile::TileFunc;

    const TEXT: &str = "\
func @copy(%n: i64, %a: view<[p, m, k], bf16, read>) {kind = group, grid = [1]} {
  tile.return
}
";

    fn func() -> TileFunc {
        tessera_tile::parse(TEXT).unwrap_or_else(|e| panic!("{e}"))
    }

    fn words(frame: &Frame, func: &TileFunc, dims: &[i64], strides: &[i64]) -> Vec<u64> {
        let array = BufferArg {
            data: std::ptr::null_mut::<u8>().wrapping_add(0x1000),
            dims: dims.to_vec(),
            strides: strides.to_vec(),
            dtype: DType::BF16,
            writable: false,
        };
        let params =
            vec![ArgValue::Scalar(tessera_numerics::Scalar::I64(7)), ArgValue::Buffer(array)];
        let named = ["p", "m", "k"].map(String::from).into_iter().zip(dims.iter().copied());
        let args =
            LaunchArgs { params, dims: named.collect(), grid: [1; 3], domain: [0; 3], lanes: 1 };
        let mut words = Vec::new();
        frame.fill(func, &args, &mut words, |_, _, _| {}).unwrap_or_else(|e| panic!("{e}"));
        words
    }

    fn recipe() -> MapRecipe {
        let (axes, extent) = (vec![2, 1, 0], vec![64, 128, 1]);
        MapRecipe { param: 1, axes, extent, span: 128, dtype: DType::BF16 }
    }

    #[test]
    fn maps_are_made_of_the_words_of_a_launch() {
        let func = func();
        let frame = Frame::new(&func).unwrap_or_else(|e| panic!("{e}"));
        let map = |recipe: &MapRecipe, dims: &[i64], strides: &[i64]| {
            emulate::map(recipe, &frame, &words(&frame, &func, dims, strides))
        };
        let wanted = TensorMap {
            base: 0x1000,
            dtype: DType::BF16,
            dims: vec![300, 200, 3],
            strides: vec![608, 131_072],
            tile: vec![64, 128, 1],
            swizzle: 128,
        };
        assert_eq!(map(&recipe(), &[3, 200, 300], &[131_072, 608, 2]), wanted);
        // Column-major.
        let transposed = MapRecipe { axes: vec![1, 2, 0], ..recipe() };
        let wanted = TensorMap { dims: vec![200, 300, 3], strides: vec![400, 131_072], ..wanted };
        assert_eq!(map(&transposed, &[3, 200, 300], &[131_072, 2, 400]), wanted);
        // Strides that no element uses may be anything.
        let wanted = TensorMap { dims: vec![200, 1, 1], strides: vec![400, 400], ..wanted };
        assert_eq!(map(&transposed, &[1, 200, 1], &[0, 2, -6]), wanted);
        let wanted = TensorMap { dims: vec![3, 1, 5], strides: vec![16, 32], ..wanted };
        assert_eq!(map(&transposed, &[5, 3, 1], &[32, 2, 2]), wanted);
        assert_eq!(recipe().word(&frame), frame.params[1].word);
    }

    #[test]
    fn maps_stand_behind_the_words_where_the_kernel_looks_for_them() {
        for count in 1..20 {
            let mut words = vec![7; count];
            let maps = [[0xA1_u8; 128], [0xB2; 128]];
            maps.iter().for_each(|map| push_map(&mut words, map));
            // The parameter layout of a kernel.
            let mut at = count as u32 * 8;
            for (i, map) in maps.iter().enumerate() {
                at = at.next_multiple_of(MAP_ALIGN);
                assert_eq!(map_word(count, i) * 8, at as usize);
                let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
                assert_eq!(&bytes[at as usize..at as usize + 128], map);
                at += MAP_BYTES;
            }
            assert_eq!(words.len() * 8, at as usize);
        }
    }

    #[test]
    fn a_recipe_is_reported_in_the_order_of_the_array() {
        let func = func();
        let frame = Frame::new(&func).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(recipe().text(&frame), "a: boxes of 1x128x64 bf16, swizzled within 128 bytes");
        let plain = MapRecipe { span: 0, ..recipe() };
        assert_eq!(plain.text(&frame), "a: boxes of 1x128x64 bf16");
    }

    #[test]
    fn what_cannot_be_a_map_is_found_before_it_is_launched() {
        let func = func();
        let frame = Frame::new(&func).unwrap_or_else(|e| panic!("{e}"));
        let mut kernel = Kernel::new("copy", 128);
        kernel.params.push(Param { name: "args".into(), bytes: 128, align: 8 });
        let reported = |kernel: &Kernel, map: MapRecipe| {
            check(kernel, &frame, &[map]).err().map_or(String::new(), |e| e.message)
        };
        assert!(reported(&kernel, recipe()).contains("1 maps among 1 parameters"));
        kernel.params.push(Param { name: "map0".into(), bytes: 128, align: 64 });
        assert_eq!(reported(&kernel, recipe()), "");
        for (wrong, words) in [
            (MapRecipe { param: 0, ..recipe() }, "parameter 0 is no array"),
            (MapRecipe { param: 9, ..recipe() }, "parameter 9 is no array"),
            (MapRecipe { axes: vec![2, 2, 0], ..recipe() }, "axis 2 is none of 3 or stands twice"),
            (MapRecipe { axes: vec![2, 1, 3], ..recipe() }, "axis 3 is none"),
            (MapRecipe { axes: vec![2, 1], ..recipe() }, "2 axes and a box of [64, 128, 1]"),
            (MapRecipe { extent: vec![64, 257, 1], ..recipe() }, "beyond 256"),
            (MapRecipe { extent: vec![4, 128, 1], ..recipe() }, "rows of 8 bytes"),
            (MapRecipe { span: 16, ..recipe() }, "a swizzle of 16 bytes"),
            (MapRecipe { span: 64, ..recipe() }, "rows of 128 bytes in a swizzle of 64"),
            (
                MapRecipe { dtype: DType::F64, extent: vec![8, 1, 1], ..recipe() },
                "for an array of bf16",
            ),
        ] {
            assert!(
                reported(&kernel, wrong.clone()).contains(words),
                "{}",
                reported(&kernel, wrong)
            );
        }
        kernel.params[1].align = 8;
        assert!(reported(&kernel, recipe()).contains("at multiples of 8"));
    }
}
