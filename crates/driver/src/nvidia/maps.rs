//! The tensor maps of a launch, behind its argument words. Arrays come back at the same addresses:
//! then the maps of the latest launch are taken, and those of others are found in the device's table.

use tessera_diag::{Code as ErrorCode, Diagnostic, Loc};
use tessera_numerics::DType;
use tessera_ptx::{Code, MapRecipe, Placed, push_map};
use tessera_runtime::cuda::{CudaError, Device, MapDType, Swizzle, TensorMapSpec};
use tessera_support::ForkLock;
use tessera_target::frame::Frame;

/// All maps of code for arrays of these sizes and strides, wherever they lie.
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
    device: u32,
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

    /// Puts the maps for the addresses among `words` behind them.
    pub fn push(&self, words: &mut Vec<u64>, device: &Device, loc: &Loc) -> Result<(), Diagnostic> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut latest = self.latest.lock();
        let same = latest.device == device.ordinal()
            && latest.addresses.len() == self.rows.len()
            && self.rows.iter().zip(&latest.addresses).all(|(row, &at)| words[row.word] == at);
        let first = tessera_ptx::map_word(words.len(), 0);
        if same {
            words.resize(first, 0);
            words.extend_from_slice(&latest.words);
            return Ok(());
        }
        latest.addresses.clear();
        for row in &self.rows {
            let spec = row.spec.at(words[row.word]);
            let map = device.tensor_map(&spec).map_err(|error| {
                let placed = Placed { address: spec.address(), ..row.placed };
                refused(error, &row.name, &placed).at(loc.clone())
            })?;
            push_map(words, map.bytes());
        }
        let Latest { device: on, addresses, words: kept } = &mut *latest;
        *on = device.ordinal();
        addresses.extend(self.rows.iter().map(|row| words[row.word]));
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

/// Elements by their size alone: the engine moves bits, and changes none.
fn elements(dtype: DType) -> MapDType {
    match dtype.bytes() {
        8 => MapDType::U64,
        4 => MapDType::U32,
        2 => MapDType::U16,
        _ => MapDType::U8,
    }
}

/// What the engine cannot be told of an array, with the array's name.
fn refused(error: CudaError, name: &str, placed: &Placed) -> Diagnostic {
    let error = Diagnostic::from(error);
    let (dims, strides) = (placed.dims(), placed.strides());
    let mut out = Diagnostic { message: format!("`{name}`: {}", error.message), ..error };
    out.notes.push(format!(
        "`{name}` begins at {:#x} and has extents {dims:?} and strides {strides:?} bytes, the axis whose elements lie side by side first",
        placed.address
    ));
    if out.code == ErrorCode::E_LAUNCH_BAD_LAYOUT && out.help.is_none() {
        out.help = Some("copy the array to memory of its own".into());
    }
    out
}
