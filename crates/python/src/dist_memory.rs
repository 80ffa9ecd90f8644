//! Blocks in host memory: what is copied between them, and how contributions are combined.

use crate::arrays::{class, descr_dtype, head};
use crate::enter::enter_call;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_driver::dist::{BlockMemory, Exchanged, exchange, exchange_between};
use tessera_mesh::{IndexSet, Kind, Placed};
use tessera_numerics::{ReduceOp, Rounding, combine_arrays, decode, encode};

/// The memory of a row-major array, which its caller keeps.
pub struct Block {
    memory: BlockMemory,
    writable: bool,
}

impl Block {
    pub fn of(value: &Bound<'_, PyAny>) -> PyResult<Block> {
        if class(value)?.is_none() || !head(value).row_major {
            return Err(PyTypeError::new_err("expected a row-major array as a block"));
        }
        let found = head(value);
        let extents = found.dims.iter().map(|n| *n as u64).collect();
        let item = found.dtype.getattr("itemsize")?.extract()?;
        let dtype = descr_dtype(&found.dtype)?.ok();
        // SAFETY: the arrays live as long as the call, and `dist` orders it with all other work on them.
        let memory = unsafe { BlockMemory::new(found.data, extents, item, dtype) };
        Ok(Block { memory, writable: found.writable })
    }

    /// One that another process has.
    fn elsewhere(index: &[IndexSet], item: usize) -> Block {
        let extents = index.iter().map(IndexSet::len).collect();
        // SAFETY: nobody reads or writes what is elsewhere.
        let memory = unsafe { BlockMemory::new(std::ptr::null_mut(), extents, item, None) };
        Block { memory, writable: true }
    }

    /// The blocks of a placement; None stands for those of other processes.
    pub fn all(placed: &Placed, values: &[Bound<'_, PyAny>], item: usize) -> PyResult<Vec<Block>> {
        if values.len() != placed.blocks().len() {
            return Err(PyTypeError::new_err("expected all blocks of the placement"));
        }
        let one = |(value, block): (&Bound<'_, PyAny>, &tessera_mesh::Block)| {
            if value.is_none() {
                return Ok(Block::elsewhere(&block.index, item));
            }
            let found = Block::of(value)?;
            let fits =
                found.memory.extents().iter().copied().eq(block.index.iter().map(IndexSet::len));
            match fits && found.memory.item() == item {
                true => Ok(found),
                false => Err(PyTypeError::new_err("expected blocks of the placement")),
            }
        };
        values.iter().zip(placed.blocks()).map(one).collect()
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: a row-major array has all bytes of its shape, and the caller keeps it.
        unsafe { std::slice::from_raw_parts(self.memory.data(), self.memory.bytes()) }
    }

    /// All blocks are different arrays, so that none is written while it is read.
    #[allow(clippy::mut_from_ref)]
    fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as above; each target is borrowed once at a time, and is no source.
        unsafe { std::slice::from_raw_parts_mut(self.memory.data(), self.memory.bytes()) }
    }

    fn is_like(&self, other: &Block) -> bool {
        self.memory.extents() == other.memory.extents() && self.memory.data() != other.memory.data()
    }
}

fn wrong(what: &str) -> Diagnostics {
    Diagnostic::new(Code::E_ARGUMENT, what)
        .help("give the blocks of the two placements, as new arrays")
        .into()
}

/// `everyone` is None in one process; in several, whether each gets all blocks.
pub fn fill(
    from: &Placed,
    to: &Placed,
    everyone: Option<bool>,
    sources: Vec<Block>,
    targets: Vec<Block>,
) -> Result<(&'static str, Vec<bool>), Diagnostics> {
    if !targets.iter().all(|b| b.writable) {
        return Err(wrong("expected new arrays as blocks"));
    }
    let memory =
        |blocks: Vec<Block>| blocks.into_iter().map(|b| b.memory).collect::<Vec<BlockMemory>>();
    let (sources, targets) = (memory(sources), memory(targets));
    let Exchanged { kind, filled } = match everyone {
        None => exchange(from, to, &sources, &targets)?,
        Some(everyone) => exchange_between((from, to, everyone), sources, &targets)?,
    };
    let name = match kind {
        Kind::Values => "values",
        Kind::Kept => "kept",
        Kind::Combined(_) => "combined",
    };
    Ok((name, filled))
}

/// Arrays of one shape, combined by the canonical reduction over their order.
#[tessera_entry::entry]
#[pyfunction]
#[pyo3(name = "combine_arrays")]
pub fn combined(
    py: Python<'_>,
    op: &str,
    values: Vec<Bound<'_, PyAny>>,
    out: Bound<'_, PyAny>,
) -> PyResult<()> {
    let values = values.iter().map(Block::of).collect::<PyResult<Vec<_>>>()?;
    let out = Block::of(&out)?;
    enter_call(py, || {
        let of = out.memory.dtype();
        let alike = values.iter().all(|v| v.memory.dtype() == of && v.is_like(&out));
        let op = ReduceOp::ALL.iter().find(|o| o.name() == op && alike && out.writable);
        let bytes: Vec<&[u8]> = values.iter().map(Block::bytes).collect();
        let done =
            op.zip(of).is_some_and(|(op, of)| combine_arrays(*op, of, &bytes, out.bytes_mut()));
        if done {
            Ok(())
        } else {
            Err(wrong("expected arrays of one shape and accumulation dtype"))
        }
    })
}

/// The elements of an array in the dtype of another, by the language's rules: NumPy's makes a NaN of what fp8 holds as its largest number.
#[tessera_entry::entry]
#[pyfunction]
#[pyo3(name = "convert_arrays")]
pub fn converted(
    py: Python<'_>,
    values: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (values, out) = (Block::of(values)?, Block::of(out)?);
    enter_call(py, || {
        let alike = values.is_like(&out) && out.writable;
        let (Some(from), Some(to)) = (values.memory.dtype().filter(|_| alike), out.memory.dtype())
        else {
            return Err(wrong("expected two arrays of one shape"));
        };
        let saturates = to.saturates_by_default();
        for (x, y) in values
            .bytes()
            .chunks_exact(from.bytes())
            .zip(out.bytes_mut().chunks_exact_mut(to.bytes()))
        {
            let mut bits = [0; 8];
            bits[..x.len()].copy_from_slice(x);
            let value = decode(from, u64::from_le_bytes(bits));
            let code = encode(to, value, Rounding::Rne, saturates).to_le_bytes();
            y.copy_from_slice(&code[..y.len()]);
        }
        Ok(())
    })
}
