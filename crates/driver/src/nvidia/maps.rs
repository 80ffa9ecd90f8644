//! The tensor maps of a launch, after its argument words. Arrays often come back at the same
//! addresses: then the maps of the latest launch are reused. The device's table holds the maps of
//! earlier launches.

use tessera_diag::{Code as ErrorCode, Diagnostic, Loc};
use tessera_numerics::DType;
use tessera_ptx::{Code, MapRecipe, Placed, push_map};
use tessera_runtime::cuda::{self, CudaError, MapDType, Swizzle, TensorMap, TensorMapSpec};
use tessera_support::ForkLock;
use tessera_target::device::{Device, DeviceError, DeviceId};
use tessera_target::frame::Frame;

/// All maps of code for arrays of these sizes and strides, at any address.
#[derive(Default)]
pub struct Maps {
    rows: Vec<Row>,
    latest: ForkLock<Latest>,
}

struct Row {
    /// The word that holds the array's address.
    word: usize,
    name: String,
    placed: Placed,
    spec: TensorMapSpec,
}

/// What the latest launch took.
#[derive(Default)]
struct Latest {
    device: DeviceId,
    addresses: Vec<u64>,
    words: Vec<u64>,
}

impl Maps {
    /// `words` are those of a launch.
    pub fn new(code: &Code, frame: &Frame, words: &[u64], loc: &Loc) -> Result<Self, Diagnostic> {
        let row = |recipe: &MapRecipe| {
            let placed = recipe.place(frame, words);
            let name = frame.params[recipe.param].name.clone();
            match spec(recipe, &placed) {
                Ok(spec) => Ok(Row { word: recipe.word(frame), name, placed, spec }),
                Err(error) => Err(refused(error, &name, &placed).at(loc.clone())),
            }
        };
        let rows = code.maps.iter().map(row).collect::<Result<_, _>>()?;
        Ok(Self { rows, latest: ForkLock::default() })
    }

    /// Where the parameters of a launch begin, in bytes: the words, then each map; nothing where there
    /// are only words.
    pub fn starts(&self, words: usize) -> Vec<usize> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let maps = (0..self.rows.len()).map(|i| 8 * tessera_ptx::map_word(words, i));
        std::iter::once(0).chain(maps).collect()
    }

    /// Whether these are the addresses of the mapped arrays among `words`.
    #[inline]
    pub fn are_of(&self, words: &[u64], addresses: &[u64]) -> bool {
        self.rows.len() == addresses.len()
            && self.rows.iter().zip(addresses).all(|(row, &at)| words[row.word] == at)
    }

    /// The addresses of the mapped arrays among `words`.
    pub fn of(&self, words: &[u64], addresses: &mut Vec<u64>) {
        addresses.extend(self.rows.iter().map(|row| words[row.word]));
    }

    /// Puts the maps for the addresses among `words` behind them.
    pub fn push(
        &self,
        words: &mut Vec<u64>,
        device: &dyn Device,
        loc: &Loc,
    ) -> Result<(), Diagnostic> {
        if self.rows.is_empty() {
            return Ok(());
        }
        self.push_by(words, device.id(), loc, |spec| {
            let Some(device) = device.any().downcast_ref::<cuda::Device>() else {
                let message = format!("{} has no tensor maps", device.id());
                return Err(Diagnostic::new(ErrorCode::E_UNSUPPORTED, message).into());
            };
            Ok(*device.tensor_map(spec)?.bytes())
        })
    }

    fn push_by(
        &self,
        words: &mut Vec<u64>,
        device: DeviceId,
        loc: &Loc,
        encode: impl Fn(&TensorMapSpec) -> Result<[u8; TensorMap::BYTES], DeviceError>,
    ) -> Result<(), Diagnostic> {
        let mut latest = self.latest.lock();
        let same = latest.device == device && self.are_of(words, &latest.addresses);
        let first = tessera_ptx::map_word(words.len(), 0);
        if same {
            words.resize(first, 0);
            words.extend_from_slice(&latest.words);
            return Ok(());
        }
        latest.addresses.clear();
        for row in &self.rows {
            let spec = row.spec.at(words[row.word]);
            let map = encode(&spec).map_err(|error| {
                let mut placed = row.placed;
                placed.address = spec.address();
                refused(error, &row.name, &placed).at(loc.clone())
            })?;
            push_map(words, &map);
        }
        let Latest { device: on, addresses, words: kept } = &mut *latest;
        *on = device;
        self.of(words, addresses);
        kept.clear();
        kept.extend_from_slice(&words[first..]);
        Ok(())
    }
}

fn spec(recipe: &MapRecipe, placed: &Placed) -> Result<TensorMapSpec, CudaError> {
    let span = match recipe.span {
        32 => Swizzle::B32,
        64 => Swizzle::B64,
        128 => Swizzle::B128,
        _ => Swizzle::None,
    };
    let (dims, strides) = (placed.dims(), placed.strides());
    let dtype = elements(recipe.dtype);
    let spec = TensorMapSpec::tiled(dtype, placed.address, dims, strides, &recipe.extent)?;
    let spec = spec.swizzle(span);
    spec.check()?;
    Ok(spec)
}

/// The element type of a tensor map. TMA copies bits, and reduces by the type. It rounds tf32 to
/// nearest even, since MMAs would truncate. Types that TMA does not know are copied as integers of
/// their width.
fn elements(dtype: DType) -> MapDType {
    match dtype {
        DType::Tf32 => MapDType::TF32,
        DType::F64 => MapDType::F64,
        DType::F32 => MapDType::F32,
        DType::F16 => MapDType::F16,
        DType::BF16 => MapDType::BF16,
        DType::I64 => MapDType::I64,
        DType::I32 => MapDType::I32,
        _ => match dtype.bytes() {
            8 => MapDType::U64,
            4 => MapDType::U32,
            2 => MapDType::U16,
            _ => MapDType::U8,
        },
    }
}

/// The error for an array that no tensor map can describe, with the array's name.
fn refused(error: impl Into<Diagnostic>, name: &str, placed: &Placed) -> Diagnostic {
    let error = error.into();
    let (dims, strides) = (placed.dims(), placed.strides());
    let mut out = Diagnostic { message: format!("`{name}`: {}", error.message), ..error };
    out.notes.push(format!(
        "`{name}` begins at {:#x} and has extents {dims:?} and strides {strides:?} bytes, the contiguous axis first",
        placed.address
    ));
    if out.code == ErrorCode::E_LAUNCH_BAD_LAYOUT && out.help.is_none() {
        out.help = Some("copy the array to memory of its own".into());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tessera_ptx::{Shape, Target, Version, map_word};
    use tessera_runtime::cuda::TensorMapFault;
    use tessera_target::device::DeviceKind;
    use tessera_target::{ArgValue, BufferArg, LaunchArgs};

    const TEXT: &str = "\
func @copy(%a: view<[m, k], bf16, read>, %b: view<[k, n], bf16, read>) {kind = group, grid = [1]} {
  tile.return
}
";

    fn code() -> Code {
        let map = |param, axes: [usize; 2]| MapRecipe {
            param,
            axes: axes.to_vec(),
            extent: vec![64, 128],
            span: 128,
            dtype: DType::BF16,
        };
        let version = Version { major: 8, minor: 0 };
        let target = Target { sm: 90, exact: true };
        Code {
            module: tessera_ptx::Module { version, target, files: vec![], kernels: vec![] },
            shape: Shape::Groups,
            sites: vec![],
            prints: vec![],
            stamps: vec![],
            context: 0,
            counts: false,
            maps: vec![map(0, [1, 0]), map(1, [0, 1])],
            staged: None,
            chosen: tessera_ir::Attrs::new(),
            warnings: tessera_diag::Diagnostics::new(),
            notes: vec![],
        }
    }

    /// The words of a launch with a `b` whose columns are contiguous.
    fn words(frame: &Frame, func: &tessera_tile::TileFunc, a: usize, row: i64) -> Vec<u64> {
        let array = |address: usize, strides: [i64; 2]| {
            ArgValue::Buffer(BufferArg {
                data: std::ptr::null_mut::<u8>().wrapping_add(address),
                dims: vec![96, 96],
                strides: strides.to_vec(),
                dtype: DType::BF16,
                writable: false,
            })
        };
        let args = LaunchArgs {
            params: vec![array(a, [row, 2]), array(0x9000, [2, 256])],
            dims: [("m", 96), ("n", 96), ("k", 96)].map(|(s, n)| (s.to_string(), n)).into(),
            grid: [1; 3],
            domain: [0; 3],
            lanes: 1,
        };
        let mut words = Vec::new();
        frame.fill(func, &args, &mut words, |_, _, _| {}).unwrap_or_else(|e| panic!("{e}"));
        words
    }

    #[test]
    fn maps_follow_the_addresses_of_a_launch_and_are_made_once_for_each() {
        let func = tessera_tile::parse(TEXT).unwrap_or_else(|e| panic!("{e}"));
        let frame = Frame::new(&func).unwrap_or_else(|e| panic!("{e}"));
        let first = words(&frame, &func, 0x4000, 192);
        let maps = Maps::new(&code(), &frame, &first, &Loc::unknown());
        let maps = maps.unwrap_or_else(|e| panic!("{e}"));
        let made = Cell::new(0);
        // The fake of a map: the array's address sixteen times.
        let encode = |spec: &TensorMapSpec| {
            made.set(made.get() + 1);
            let mut out = [0; TensorMap::BYTES];
            out.chunks_mut(8).for_each(|w| w.copy_from_slice(&spec.address().to_le_bytes()));
            Ok(out)
        };
        let launch = |a: u64, ordinal: u32| {
            let device = DeviceId::new(DeviceKind::CUDA, ordinal);
            let mut words = first.clone();
            words[frame.params[0].word] = a;
            let reported = maps.push_by(&mut words, device, &Loc::unknown(), encode);
            reported.unwrap_or_else(|e| panic!("{e}"));
            let at = |map: usize| {
                let at = map_word(first.len(), map);
                words[at..at + 16].to_vec()
            };
            assert_eq!((at(0), at(1)), (vec![a; 16], vec![0x9000; 16]));
            assert_eq!(words.len(), map_word(first.len(), 2));
            made.take()
        };
        assert_eq!((launch(0x4000, 0), launch(0x4000, 0)), (2, 0));
        // Other arrays, and another device whose maps are its own.
        assert_eq!((launch(0x8000, 0), launch(0x8000, 0), launch(0x8000, 1)), (2, 0, 2));
    }

    /// As words, floats would be added by their bits.
    #[test]
    fn tensor_maps_have_the_dtype_that_tma_adds() {
        let reported = [DType::F32, DType::BF16, DType::I32, DType::U32].map(elements);
        assert_eq!(reported, [MapDType::F32, MapDType::BF16, MapDType::I32, MapDType::U32]);
        assert_eq!([DType::Tf32, DType::Fp8E4M3].map(elements), [MapDType::TF32, MapDType::U8]);
    }

    #[test]
    fn an_array_that_tma_cannot_copy_is_named() {
        let func = tessera_tile::parse(TEXT).unwrap_or_else(|e| panic!("{e}"));
        let frame = Frame::new(&func).unwrap_or_else(|e| panic!("{e}"));
        let misaligned = words(&frame, &func, 0x4000, 194);
        let error = Maps::new(&code(), &frame, &misaligned, &Loc::unknown()).err();
        let error = error.unwrap_or_else(|| panic!("a stride of 194 bytes was taken"));
        assert_eq!(error.code, ErrorCode::E_LAUNCH_BAD_LAYOUT);
        assert!(error.message.starts_with("`a`: tensor map: expected the stride of axis 1"));
        assert!(error.notes[0].contains("strides [194] bytes") && error.help.is_some());
        // By the driver itself: then what was there before is not taken for it.
        let good = words(&frame, &func, 0x4000, 192);
        let maps = Maps::new(&code(), &frame, &good, &Loc::unknown());
        let maps = maps.unwrap_or_else(|e| panic!("{e}"));
        let refuse = |spec: &TensorMapSpec| match spec.address() {
            0x9000 => {
                Err(CudaError::from(TensorMapFault::Address { align: 32, got: 0x9000 }).into())
            }
            _ => Ok([0; TensorMap::BYTES]),
        };
        for _ in 0..2 {
            let error =
                maps.push_by(&mut good.clone(), DeviceId::default(), &Loc::unknown(), refuse).err();
            let error = error.unwrap_or_else(|| panic!("a refusal was passed over"));
            assert!(error.message.starts_with("`b`: tensor map: expected an address"));
        }
    }
}
