//! Blocks in host memory: what is copied between them, and how contributions are combined.

use crate::arrays::{class, descr_dtype, head};
use crate::enter::enter_call;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_mesh::{BlockMove, Combine, Kind, Placed, Shape, between, copy};
use tessera_numerics::{DType, ReduceOp, Rounding, combine_arrays, decode, encode};

/// The memory of a row-major array, which its caller keeps.
pub struct Block {
    data: *mut u8,
    extents: Vec<u64>,
    item: usize,
    dtype: Option<DType>,
    writable: bool,
}

// SAFETY: the arrays live as long as the call, and `dist` orders it with all other work on them.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    pub fn of(value: &Bound<'_, PyAny>) -> PyResult<Block> {
        if class(value)?.is_none() || !head(value).row_major {
            return Err(PyTypeError::new_err("expected a row-major array as a block"));
        }
        let found = head(value);
        let extents = found.dims.iter().map(|n| *n as u64).collect();
        let item = found.dtype.getattr("itemsize")?.extract()?;
        let dtype = descr_dtype(&found.dtype)?.ok();
        Ok(Block { data: found.data, extents, item, dtype, writable: found.writable })
    }

    fn shape(&self) -> Shape<'_> {
        Shape { extents: &self.extents, item: self.item }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: a row-major array has all bytes of its shape, and the caller keeps it.
        unsafe { std::slice::from_raw_parts(self.data, self.shape().bytes()) }
    }

    /// All blocks are different arrays, so that none is written while it is read.
    #[allow(clippy::mut_from_ref)]
    fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as above; each target is borrowed once at a time, and is no source.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.shape().bytes()) }
    }
}

fn wrong(what: &str) -> Diagnostics {
    Diagnostic::new(Code::E_ARGUMENT, what)
        .help("give the blocks of the two placements, as new arrays")
        .into()
}

pub fn fill(
    from: &Placed,
    to: &Placed,
    sources: &[Block],
    targets: &[Block],
) -> Result<(&'static str, Vec<bool>), Diagnostics> {
    let fits = |blocks: &[Block], placed: &Placed| {
        let wanted = placed.blocks();
        blocks.len() == wanted.len()
            && blocks.iter().zip(wanted).all(|(b, w)| {
                b.extents.len() == w.index.len()
                    && b.extents.iter().zip(&w.index).all(|(n, set)| *n == set.len())
            })
    };
    let item = sources.first().map_or(1, |b| b.item);
    let alike = sources.iter().chain(targets).all(|b| b.item == item)
        && targets.iter().all(|b| {
            b.writable && sources.iter().all(|s| s.data != b.data || b.bytes().is_empty())
        });
    if !alike || !fits(sources, from) || !fits(targets, to) {
        return Err(wrong("expected blocks of these placements"));
    }
    let (kind, moves) = between(from, to)?;
    let mut filled = vec![false; targets.len()];
    for of_target in moves.chunk_by(|a, b| a.target == b.target) {
        let target = &targets[of_target[0].target];
        filled[of_target[0].target] = true;
        match kind {
            Kind::Values | Kind::Kept => {
                for m in of_target {
                    one(m, &sources[m.source], target.bytes_mut(), target.shape());
                }
            }
            Kind::Combined(op) => combine(op, of_target, sources, target)?,
        }
    }
    let name = match kind {
        Kind::Values => "values",
        Kind::Kept => "kept",
        Kind::Combined(_) => "combined",
    };
    Ok((name, filled))
}

fn one(m: &BlockMove, source: &Block, to: &mut [u8], shape: Shape<'_>) {
    copy(&m.dims, (source.bytes(), source.shape()), (to, shape));
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
        let alike = values
            .iter()
            .all(|v| (v.dtype, &v.extents) == (out.dtype, &out.extents) && v.data != out.data);
        let op = Combine::parse(op).filter(|_| alike && out.writable);
        let bytes: Vec<&[u8]> = values.iter().map(Block::bytes).collect();
        let done = op
            .zip(out.dtype)
            .is_some_and(|(op, of)| combine_arrays(operator(op), of, &bytes, out.bytes_mut()));
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
        let alike = values.extents == out.extents && values.data != out.data && out.writable;
        let (Some(from), Some(to)) = (values.dtype.filter(|_| alike), out.dtype) else {
            return Err(wrong("expected two arrays of one shape"));
        };
        let saturates = to.saturates_by_default();
        for (x, y) in
            values.bytes().chunks_exact(values.item).zip(out.bytes_mut().chunks_exact_mut(out.item))
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

fn operator(op: Combine) -> ReduceOp {
    match op {
        Combine::Sum => ReduceOp::Sum,
        Combine::Max => ReduceOp::Max,
        Combine::Min => ReduceOp::Min,
        Combine::Prod => ReduceOp::Prod,
    }
}

/// Contributions are read where they are if they have the elements of the target in its order, else from a copy of those elements.
fn combine(
    op: Combine,
    moves: &[BlockMove],
    sources: &[Block],
    target: &Block,
) -> Result<(), Diagnostics> {
    let size = target.bytes().len();
    let in_place = |m: &BlockMove| {
        sources[m.source].extents == target.extents
            && m.dims
                .iter()
                .zip(&target.extents)
                .all(|(d, n)| d.len() == 1 && d[0].count == *n && d[0].from == 0 && d[0].to == 0)
    };
    let by_contribution: Vec<&[BlockMove]> =
        moves.chunk_by(|a, b| a.contribution == b.contribution).collect();
    let copies: Vec<Option<Vec<u8>>> = by_contribution
        .iter()
        .map(|of_one| {
            if let [only] = of_one
                && in_place(only)
            {
                return None;
            }
            let mut made = vec![0; size];
            of_one.iter().for_each(|m| one(m, &sources[m.source], &mut made, target.shape()));
            Some(made)
        })
        .collect();
    let values: Vec<&[u8]> = by_contribution
        .iter()
        .zip(&copies)
        .map(|(of_one, copy)| copy.as_deref().unwrap_or_else(|| sources[of_one[0].source].bytes()))
        .collect();
    let done = target
        .dtype
        .is_some_and(|of| combine_arrays(operator(op), of, &values, target.bytes_mut()));
    if done { Ok(()) } else { Err(wrong("expected contributions of an accumulation dtype")) }
}
