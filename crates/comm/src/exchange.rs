//! From any placement to any other, inside one process: elements that blocks have in common are copied, and contributions are combined in
//! the canonical order. Workers take parts of it.

use crate::{Threads, Workers};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_mesh::{BlockMove, BlockMoves, Combine, Kind, Piece, Placed, between};
use tessera_numerics::{DType, ReduceOp, combine_arrays};

/// Bytes of a part, and how many there are at least for each thread: one takes about as long to start as half of that to copy.
const PART: usize = 1 << 20;
const SHARE: usize = 4 * PART;

/// A row-major block in host memory.
pub struct BlockMemory {
    data: *mut u8,
    extents: Vec<u64>,
    /// Bytes of an element, and from one position of each dim to the next.
    item: usize,
    steps: Vec<usize>,
    dtype: Option<DType>,
}

// SAFETY: it is an address; who makes one promises that the memory may be used from any thread.
unsafe impl Send for BlockMemory {}
// SAFETY: as above.
unsafe impl Sync for BlockMemory {}

impl BlockMemory {
    /// `dtype` is needed of contributions alone.
    ///
    /// # Safety
    /// While an exchange runs, `data` has all elements; nothing writes those of a source, and nothing else uses those of a target.
    pub unsafe fn new(data: *mut u8, extents: Vec<u64>, item: usize, dtype: Option<DType>) -> Self {
        let mut steps = vec![item; extents.len()];
        for dim in (1..extents.len()).rev() {
            steps[dim - 1] = steps[dim] * extents[dim] as usize;
        }
        Self { data, extents, item, steps, dtype }
    }

    /// The bytes of an element.
    pub fn item(&self) -> usize {
        self.item
    }

    pub fn extents(&self) -> &[u64] {
        &self.extents
    }

    pub fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    pub fn data(&self) -> *mut u8 {
        self.data
    }

    pub fn bytes(&self) -> usize {
        self.extents.iter().product::<u64>() as usize * self.item
    }
}

/// What an exchange did.
pub struct Exchanged {
    pub kind: Kind,
    /// Of each target, whether it has elements by it.
    pub filled: Vec<bool>,
}

enum Part<'a> {
    Copies(&'a [BlockMove]),
    /// Of one move, the `positions` of those that it has in a dim.
    Slab {
        of: &'a BlockMove,
        dim: usize,
        positions: Range<u64>,
    },
    /// Some bytes of a target; its contributions are in the same bytes of the sources.
    Combine {
        of: &'a [BlockMove],
        bytes: Range<usize>,
    },
    /// A target whose contributions are elsewhere in the sources.
    Gather(&'a [BlockMove]),
}

/// Fills the blocks of `to` from those of `from`, both in the order of [`Placed::blocks`], by `most` threads or fewer.
pub fn exchange(
    from: &Placed,
    to: &Placed,
    sources: &[BlockMemory],
    targets: &[BlockMemory],
    most: usize,
) -> Result<Exchanged, Diagnostics> {
    let fits = |blocks: &[BlockMemory], placed: &Placed| {
        let wanted = placed.blocks();
        blocks.len() == wanted.len()
            && blocks.iter().zip(wanted).all(|(b, w)| {
                b.extents.len() == w.index.len()
                    && b.extents.iter().zip(&w.index).all(|(n, set)| *n == set.len())
            })
    };
    let item = sources.first().map_or(1, |b| b.item);
    let mut ranges: Vec<(usize, usize, bool)> = Vec::with_capacity(sources.len() + targets.len());
    let range = |b: &BlockMemory, written| (b.data as usize, b.data as usize + b.bytes(), written);
    ranges.extend(sources.iter().map(|b| range(b, false)));
    ranges.extend(targets.iter().map(|b| range(b, true)));
    ranges.retain(|r| r.0 < r.1);
    ranges.sort_unstable();
    let (mut read, mut written) = (0, 0);
    let apart = ranges.iter().all(|&(begin, end, is_written)| {
        let before = if is_written { read.max(written) } else { written };
        let last = if is_written { &mut written } else { &mut read };
        *last = end.max(*last);
        begin >= before
    });
    if !apart
        || sources.iter().chain(targets).any(|b| b.item != item)
        || !fits(sources, from)
        || !fits(targets, to)
    {
        let text = "expected blocks of these placements, apart from each other in memory";
        let error = Diagnostic::new(Code::E_ARGUMENT, text);
        return Err(error.help("give the blocks of the two placements, as new arrays").into());
    }
    let plan = between(from, to)?;
    let work = Exchange { plan: &plan, sources, targets };
    let mut filled = vec![false; targets.len()];
    plan.moves.iter().for_each(|m| filled[m.target] = true);
    run_plan(&work, most)?;
    Ok(Exchanged { kind: plan.kind, filled })
}

/// Blocks and what goes between them.
pub struct Exchange<'a> {
    pub plan: &'a BlockMoves,
    pub sources: &'a [BlockMemory],
    pub targets: &'a [BlockMemory],
}

/// Moves and combines all of it, by `most` threads or fewer.
pub fn run_plan(work: &Exchange<'_>, most: usize) -> Result<(), Diagnostics> {
    let touched = work.plan.moves.chunk_by(|a, b| a.target == b.target);
    let bytes: usize = touched.map(|m| work.targets[m[0].target].bytes()).sum();
    let threads = most.min(bytes / SHARE).max(1);
    let parts = work.parts(if threads > 1 { PART } else { usize::MAX });
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let one = || {
        let mut scratch = Vec::with_capacity(8);
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !work.perform(part, &mut scratch) {
                failed.store(true, Ordering::Relaxed);
            }
        }
    };
    match threads.min(parts.len()) {
        0 | 1 => one(),
        threads => Threads(threads).each(&one),
    }
    if failed.into_inner() {
        let text = "expected contributions of an accumulation dtype";
        let error = Diagnostic::new(Code::E_TYPE, text);
        return Err(error.help("cast them first: `x.astype(\"f32\")`").into());
    }
    Ok(())
}

impl<'a> Exchange<'a> {
    /// Parts of about this many bytes.
    fn parts(&self, size: usize) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        let moves = &self.plan.moves[..];
        if matches!(self.plan.kind, Kind::Combined(_)) {
            for of in moves.chunk_by(|a, b| a.target == b.target) {
                let target = &self.targets[of[0].target];
                let each = of.chunk_by(|a, b| a.contribution == b.contribution);
                if !each.clone().all(|moves| moves.len() == 1 && self.is_whole(&moves[0])) {
                    parts.push(Part::Gather(of));
                    continue;
                }
                let step = size - size % target.item.max(1);
                for begin in (0..target.bytes()).step_by(step) {
                    let bytes = begin..target.bytes().min(begin.saturating_add(step));
                    parts.push(Part::Combine { of, bytes });
                }
            }
            return parts;
        }
        let (mut first, mut held) = (0, 0);
        for (at, of) in moves.iter().enumerate() {
            let counts: Vec<u64> =
                self.plan.dims(of).map(|dim| dim.iter().map(|p| p.count).sum()).collect();
            let item = self.targets[of.target].item;
            let bytes = counts.iter().product::<u64>() as usize * item;
            if let (true, Some(dim)) = (bytes > size, counts.iter().position(|n| *n > 1)) {
                if first < at {
                    parts.push(Part::Copies(&moves[first..at]));
                }
                (first, held) = (at + 1, 0);
                let each = (counts[dim] * size as u64 / bytes as u64).max(1);
                for begin in (0..counts[dim]).step_by(each as usize) {
                    let positions = begin..counts[dim].min(begin + each);
                    parts.push(Part::Slab { of, dim, positions });
                }
                continue;
            }
            held += bytes;
            if held >= size {
                parts.push(Part::Copies(&moves[first..=at]));
                (first, held) = (at + 1, 0);
            }
        }
        if first < moves.len() {
            parts.push(Part::Copies(&moves[first..]));
        }
        parts
    }

    /// Whether a source has the elements of the target, and no others.
    fn is_whole(&self, of: &BlockMove) -> bool {
        let target = &self.targets[of.target];
        self.sources[of.source].extents == target.extents
            && self.plan.dims(of).zip(&target.extents).all(
                |(dim, n)| matches!(dim[..], [Piece { count, from: 0, to: 0, .. }] if count == *n),
            )
    }

    /// `scratch` is empty memory that is used again. Whether it could be done.
    fn perform(&self, part: &Part<'a>, scratch: &mut Vec<&'a [Piece]>) -> bool {
        match part {
            Part::Copies(moves) => {
                for of in *moves {
                    let target = &self.targets[of.target];
                    // SAFETY: the blocks are of the placements, so each piece is inside both; other threads write other elements.
                    unsafe { self.copy(of, None, target.data, scratch) }
                }
                true
            }
            Part::Slab { of, dim, positions } => {
                let target = &self.targets[of.target];
                let all = self.plan.dims(of).nth(*dim).map_or(&[][..], |pieces| pieces);
                let some = cut(all, positions);
                // SAFETY: as above.
                unsafe { self.copy(of, Some((*dim, &some)), target.data, &mut Vec::new()) }
                true
            }
            Part::Combine { of, bytes } => {
                let values: Vec<&[u8]> = of
                    .iter()
                    .map(|m| {
                        let data = self.sources[m.source].data;
                        // SAFETY: the source has the bytes of the target, and nothing writes them.
                        unsafe { std::slice::from_raw_parts(data.add(bytes.start), bytes.len()) }
                    })
                    .collect();
                self.combine(&values, &self.targets[of[0].target], bytes)
            }
            Part::Gather(of) => {
                let target = &self.targets[of[0].target];
                let size = target.bytes();
                let by_contribution = of.chunk_by(|a, b| a.contribution == b.contribution);
                let copies: Vec<Vec<u8>> = by_contribution
                    .map(|moves| {
                        let mut made = vec![0; size];
                        for m in moves {
                            // SAFETY: as of copies; the elements have the places that they have in the target.
                            unsafe { self.copy(m, None, made.as_mut_ptr(), scratch) }
                        }
                        made
                    })
                    .collect();
                let values: Vec<&[u8]> = copies.iter().map(|c| &c[..]).collect();
                self.combine(&values, target, &(0..size))
            }
        }
    }

    fn combine(&self, values: &[&[u8]], target: &BlockMemory, bytes: &Range<usize>) -> bool {
        let (Kind::Combined(op), Some(dtype)) = (self.plan.kind, target.dtype) else {
            return false;
        };
        // SAFETY: other parts have other bytes, and sources are apart from targets.
        let out =
            unsafe { std::slice::from_raw_parts_mut(target.data.add(bytes.start), bytes.len()) };
        combine_arrays(operator(op), dtype, values, out)
    }

    /// Copies the elements of a move to memory with the extents of the target; of one dim, only some pieces.
    ///
    /// # Safety
    /// All pieces are inside both memories, and nothing else uses what is written.
    unsafe fn copy<'p>(
        &self,
        of: &BlockMove,
        only: Option<(usize, &'p [Piece])>,
        to: *mut u8,
        dims: &mut Vec<&'p [Piece]>,
    ) where
        'a: 'p,
    {
        let (source, target) = (&self.sources[of.source], &self.targets[of.target]);
        dims.clear();
        let plan: &'a BlockMoves = self.plan;
        dims.extend(plan.dims(of).map(|pieces| &pieces[..]));
        if let Some((dim, pieces)) = only {
            dims[dim] = pieces;
        }
        // Dims at the end that are copied whole are one run of bytes.
        let mut depth = dims.len();
        let mut inner = source.item;
        while depth > 0 {
            let (dim, n) = (depth - 1, source.extents[depth - 1]);
            let is_whole = match dims[dim] {
                [p] => n == 1 || p.count == n && (p.from_step, p.to_step) == (1, 1),
                _ => false,
            };
            if n != target.extents[dim] || !is_whole {
                break;
            }
            inner *= n as usize;
            depth = dim;
        }
        let (here, there) = (&source.steps[..depth], &target.steps[..depth]);
        // SAFETY: as of this function.
        unsafe { go(&dims[..depth], here, there, inner, source.data, to) }
    }
}

fn operator(op: Combine) -> ReduceOp {
    match op {
        Combine::Sum => ReduceOp::Sum,
        Combine::Max => ReduceOp::Max,
        Combine::Min => ReduceOp::Min,
        Combine::Prod => ReduceOp::Prod,
    }
}

/// Some of the positions that pieces have, counted along them.
fn cut(pieces: &[Piece], positions: &Range<u64>) -> Vec<Piece> {
    let mut before = 0;
    let mut made = Vec::new();
    for p in pieces {
        let (first, end) = (
            positions.start.max(before) - before,
            positions.end.min(before + p.count).saturating_sub(before),
        );
        if first < end {
            made.push(Piece {
                from: p.from + first * p.from_step,
                to: p.to + first * p.to_step,
                count: end - first,
                ..*p
            });
        }
        before += p.count;
    }
    made
}

/// Copies all combinations of the pieces of the dims, `inner` bytes each; `here` and `there` are the bytes between neighbours.
///
/// # Safety
/// All of them are inside both memories, which do not overlap.
unsafe fn go(
    dims: &[&[Piece]],
    here: &[usize],
    there: &[usize],
    inner: usize,
    from: *const u8,
    to: *mut u8,
) {
    let (Some((pieces, dims)), [here, more_here @ ..], [there, more_there @ ..]) =
        (dims.split_first(), here, there)
    else {
        // SAFETY: as of this function, here and below.
        unsafe { std::ptr::copy_nonoverlapping(from, to, inner) };
        return;
    };
    for piece in *pieces {
        let n = piece.count as usize;
        let (da, db) = (piece.from_step as usize * here, piece.to_step as usize * there);
        // SAFETY: as above.
        unsafe {
            let (mut a, mut b) =
                (from.add(piece.from as usize * here), to.add(piece.to as usize * there));
            if !dims.is_empty() {
                for _ in 0..n {
                    go(dims, more_here, more_there, inner, a, b);
                    (a, b) = (a.wrapping_add(da), b.wrapping_add(db));
                }
                continue;
            }
            match inner {
                _ if n == 1 || da == inner && db == inner => {
                    std::ptr::copy_nonoverlapping(a, b, n * inner);
                }
                1 => elements::<1>((a, da), (b, db), n),
                2 => elements::<2>((a, da), (b, db), n),
                4 => elements::<4>((a, da), (b, db), n),
                8 => elements::<8>((a, da), (b, db), n),
                _ => {
                    for i in 0..n {
                        std::ptr::copy_nonoverlapping(a.add(i * da), b.add(i * db), inner);
                    }
                }
            }
        }
    }
}

/// Single elements, whose size the compiler knows.
///
/// # Safety
/// As of [`go`].
unsafe fn elements<const N: usize>(
    (from, da): (*const u8, usize),
    (to, db): (*mut u8, usize),
    count: usize,
) {
    for i in 0..count {
        // SAFETY: as of this function.
        unsafe { to.add(i * db).cast::<[u8; N]>().write(from.add(i * da).cast::<[u8; N]>().read()) }
    }
}
