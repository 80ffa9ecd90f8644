//! Arrays at the boundary of programs of ranks: whole, or in blocks that belong to the ranks.

use super::program::GraphProgram;
use super::ranks::RankProgram;
use super::shared::{mask, sharers};
use std::ops::Range;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_graph::ops::collective::{MeshAxes, Split};
use tessera_numerics::DType;
use tessera_plan::{Origin, Step};
use tessera_target::BufferArg;

/// An argument or a result of a function that is one program of ranks.
pub enum Given {
    Whole(BufferArg),
    /// The block of each rank. Ranks may have the same one.
    Blocks(Vec<BufferArg>),
}

/// What a function that is one program of ranks has at its boundary.
pub struct Boundary {
    pub mesh: MeshAxes,
    /// How each argument is split; None of one that is taken whole.
    pub arguments: Vec<Option<Split>>,
    pub results: Vec<Split>,
}

/// Blocks of a value: where the ranks have them.
pub struct Blocks<'a> {
    given: &'a Given,
    pub dims: Vec<usize>,
    dtype: DType,
    pub split: &'a Split,
    /// Ranks work on what is given: their blocks are contiguous in it.
    pub in_place: bool,
}

/// Whether a block of a row-major array is contiguous in it.
fn is_contiguous(dims: &[usize], block: &[usize]) -> bool {
    let first = dims.iter().zip(block).rposition(|(d, b)| d != b);
    first.is_none_or(|first| block[..first].iter().all(|&b| b == 1))
}

/// The byte at which a block begins in a row-major array.
fn begin(dims: &[usize], start: &[usize], item: usize) -> usize {
    dims.iter().zip(start).fold(0, |n, (d, s)| n * d + s) * item
}

/// Copies a box of elements between two row-major arrays.
fn copy_box(
    (from, from_dims, from_start): (*const u8, &[usize], &[usize]),
    (to, to_dims, to_start): (*mut u8, &[usize], &[usize]),
    dims: &[usize],
    item: usize,
) {
    if dims.contains(&0) {
        return;
    }
    let place = |dims: &[usize], start: &[usize], at: &[usize]| {
        let each = dims.iter().zip(start).zip(at);
        each.fold(0, |n, ((d, s), i)| n * d + s + i)
    };
    let row = dims.last().copied().unwrap_or(1) * item;
    let outer = dims.len().saturating_sub(1);
    let mut at = vec![0; dims.len()];
    loop {
        // SAFETY: the box is inside both arrays, which do not overlap.
        unsafe {
            let source = from.add(place(from_dims, from_start, &at) * item);
            let target = to.add(place(to_dims, to_start, &at) * item);
            std::ptr::copy_nonoverlapping(source, target, row);
        }
        let Some(dim) = (0..outer).rev().find(|&d| at[d] + 1 < dims[d]) else { return };
        at[dim] += 1;
        at[dim + 1..].fill(0);
    }
}

pub fn extents(array: &BufferArg) -> Vec<usize> {
    array.dims.iter().map(|&d| d.max(0) as usize).collect()
}

impl<'a> Blocks<'a> {
    pub fn all(mesh: &MeshAxes, given: &'a [Given], splits: &'a [Split]) -> Vec<Self> {
        given.iter().zip(splits).map(|(a, s)| Self::of(mesh, a, s)).collect()
    }

    fn of(mesh: &MeshAxes, given: &'a Given, split: &'a Split) -> Self {
        match given {
            Given::Whole(array) => {
                let dims = extents(array);
                let (_, block) = mesh.block(split, &dims, 0);
                let in_place = is_contiguous(&dims, &block);
                Self { given, dims, dtype: array.dtype, split, in_place }
            }
            Given::Blocks(blocks) => {
                let along = |axes: &Vec<String>| mesh.position(0, axes).1;
                let block = extents(&blocks[0]);
                let dims = block.iter().zip(split).map(|(d, axes)| d * along(axes)).collect();
                let dtype = blocks[0].dtype;
                Self { given, dims, dtype, split, in_place: true }
            }
        }
    }

    fn item(&self) -> usize {
        self.dtype.bytes()
    }

    /// The bytes of a block.
    pub fn bytes(&self, mesh: &MeshAxes) -> usize {
        let (_, block) = mesh.block(self.split, &self.dims, 0);
        block.iter().product::<usize>() * self.item()
    }

    /// The block of a rank where it was given.
    pub fn direct(&self, mesh: &MeshAxes, rank: usize) -> *mut u8 {
        match self.given {
            Given::Whole(array) => {
                let (start, _) = mesh.block(self.split, &self.dims, rank);
                array.data.wrapping_add(begin(&self.dims, &start, self.item()))
            }
            Given::Blocks(blocks) => blocks[rank].data,
        }
    }

    /// The lowest of the ranks of this process that have the block of this one.
    pub fn first(&self, mesh: &MeshAxes, rank: usize, here: &Range<usize>) -> usize {
        let along = self.split.iter().fold(0, |m, names| m | mask(mesh, names));
        sharers(mesh, rank, along).into_iter().find(|r| here.contains(r)).unwrap_or(rank)
    }

    /// Copies the block of a rank from the whole array or to it.
    pub fn copy(&self, mesh: &MeshAxes, rank: usize, block: *mut u8, into_whole: bool) {
        let Given::Whole(array) = self.given else { return };
        let (start, dims) = mesh.block(self.split, &self.dims, rank);
        let zero = vec![0; dims.len()];
        let whole = array.data;
        match into_whole {
            true => {
                copy_box((block, &dims, &zero), (whole, &self.dims, &start), &dims, self.item())
            }
            false => {
                copy_box((whole, &self.dims, &start), (block, &dims, &zero), &dims, self.item())
            }
        }
    }
}

impl GraphProgram {
    /// The one program of ranks that the function is, with the place of each of its operands among the arguments.
    fn only_ranks(&self) -> Option<(&RankProgram, Vec<usize>)> {
        let [Step::Call { kernel, args, .. }] = &self.plan.steps[..] else { return None };
        let program = self.ranks.get(kernel)?;
        let (ins, outs) = args.split_at_checked(program.manual.ins.len())?;
        let place = |buffer: usize| match self.plan.buffers[buffer].origin {
            Origin::Argument(place) => Some(place),
            Origin::Constant(_) | Origin::Scratch => None,
        };
        let places = ins.iter().map(|(a, _)| place(a.buffer)).collect::<Option<Vec<_>>>()?;
        let results = self.plan.results.iter().map(|(b, _)| *b);
        results.eq(outs.iter().map(|(a, _)| a.buffer)).then_some((program, places))
    }

    /// How arguments and results may be given in blocks; None where the function takes whole arrays.
    pub fn boundary(&self) -> Option<Boundary> {
        let (program, places) = self.only_ranks()?;
        let mut arguments = vec![None; self.plan.params.len()];
        for (&place, split) in places.iter().zip(&program.manual.ins) {
            // What is an operand twice is cut in two ways.
            let is_once = places.iter().filter(|p| **p == place).count() == 1;
            arguments[place] = is_once.then(|| split.clone());
        }
        let results = program.manual.outs.clone();
        Some(Boundary { mesh: program.manual.mesh.clone(), arguments, results })
    }

    /// Runs a function that has a [`Self::boundary`]; blocks are row-major and in host memory, and no result overlaps another array.
    /// Where other processes play some of the ranks (`is_joined`), all of them call it together, and of blocks that another process has the
    /// memory is null.
    pub fn run_blocks(
        &self,
        mut inputs: Vec<Given>,
        outputs: Vec<Given>,
        is_joined: bool,
    ) -> Result<(), Diagnostics> {
        let error = |code, why: String| Err(Diagnostic::new(code, why).into());
        let (Some(boundary), Some((program, places))) = (self.boundary(), self.only_ranks()) else {
            return error(
                Code::E_ARGUMENT,
                "expected a function that is one program of ranks".into(),
            );
        };
        let (types, made) = (self.arguments(), self.results());
        if (inputs.len(), outputs.len()) != (types.len(), made.len()) {
            let why = format!("expected {} arguments and {} results", types.len(), made.len());
            return error(
                Code::E_ARGUMENT,
                format!("{why}, got {} and {}", inputs.len(), outputs.len()),
            );
        }
        let none = Vec::new();
        let splits = boundary.arguments.iter().map(|s| s.as_ref());
        let splits = splits.chain(boundary.results.iter().map(Some));
        let given = inputs.iter().chain(&outputs).zip(types.iter().chain(&made));
        for ((given, ty), split) in given.zip(splits) {
            let dims = ty.static_shape().unwrap_or_default();
            let whole: Vec<usize> = dims.iter().map(|&d| d.max(0) as usize).collect();
            let (blocks, wanted) = match (given, split) {
                (Given::Whole(array), _) => (std::slice::from_ref(array), whole),
                (Given::Blocks(blocks), Some(split)) => {
                    (&blocks[..], boundary.mesh.block(split, &whole, 0).1)
                }
                (Given::Blocks(_), None) => (&none[..], whole),
            };
            let ranks = boundary.mesh.count() as usize;
            let counted = matches!(given, Given::Whole(_)) || blocks.len() == ranks;
            let fits = |b: &BufferArg| {
                let is_dense = b.dims.contains(&0) || super::run::dense(b);
                extents(b) == wanted && b.dtype == ty.dtype() && is_dense
            };
            if !counted || !blocks.iter().all(fits) {
                let why = format!(
                    "expected {ty}, or its blocks of {wanted:?} on {ranks} ranks, row-major"
                );
                return error(Code::E_LAUNCH_INVALID_SHAPE, format!("{why}, got others"));
            }
        }
        let mut inputs: Vec<Option<Given>> = inputs.drain(..).map(Some).collect();
        let mut ins = Vec::with_capacity(places.len());
        for (at, &place) in places.iter().enumerate() {
            let again = places[..at].iter().position(|p| *p == place);
            ins.push(match (inputs[place].take(), again.map(|at| &ins[at])) {
                (Some(given), _) => given,
                (None, Some(Given::Whole(array))) => Given::Whole(array.clone()),
                (None, _) => return error(Code::E_ARGUMENT, "expected a whole array".into()),
            });
        }
        #[cfg(target_os = "linux")]
        let joined = crate::dist::processes::current().filter(|_| is_joined);
        #[cfg(target_os = "linux")]
        let _one = joined.as_ref().map(|j| j.alone());
        program.run(&ins, &outputs, is_joined)
    }
}
