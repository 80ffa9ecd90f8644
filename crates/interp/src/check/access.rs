//! The elements of memory that an op accesses, and how.

use super::check_plan::{Guard, Place};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::program::{Action, Inst};
use crate::value::{Data, Tile};
use tessera_numerics::ReduceOp;
use tessera_tile::KernelKind;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Touch {
    Read,
    Write,
    /// Read, changed and written back by one group or lane, which must own the element.
    Update,
    /// Folded into a `reduce_*` parameter: in any order, by any number of groups.
    Fold(ReduceOp),
    /// One indivisible step.
    Atomic,
    /// Nothing, but a promise that the group alone touches it from now on.
    Own,
}

impl Touch {
    /// Whether two writes to one element need no order between them.
    pub fn agrees(self, other: Touch) -> bool {
        match (self, other) {
            (Touch::Fold(a), Touch::Fold(b)) => a == b,
            (Touch::Atomic, Touch::Atomic) => true,
            _ => false,
        }
    }
}

/// One access of an op to one memory; operands are given by their indices.
#[derive(Debug)]
pub(crate) struct Access<'i> {
    pub memory: usize,
    pub touch: Touch,
    /// The first of the positions, one for each axis.
    pub at: usize,
    pub rank: usize,
    /// The block's extents, 0 for an axis with one position; `None` where each element (lane) has
    /// a position of its own.
    pub extent: Option<&'i [i64]>,
    /// The block's steps; empty where all are 1.
    pub step: &'i [i64],
    /// The whole of the memory behind the positions, which are those of its first axes.
    pub whole: bool,
    pub value: Option<usize>,
    pub mask: Option<usize>,
    /// The program gives a value for elements outside.
    pub other: bool,
}

pub(crate) fn accesses<'i>(
    inst: &'i Inst,
    kind: KernelKind,
    memory: &[Option<Place>],
) -> Vec<Access<'i>> {
    let count = inst.args.len();
    let block = |extent: &'i [i64]| (kind == KernelKind::Group).then_some(extent);
    let read = |at: usize, rank: usize, extent| Access {
        memory: 0,
        touch: Touch::Read,
        at,
        rank,
        extent,
        step: &[],
        whole: false,
        value: None,
        mask: None,
        other: count > at + rank,
    };
    let write = |touch, rank: usize, extent| Access {
        touch,
        value: Some(1),
        mask: (count > 2 + rank).then_some(2 + rank),
        other: false,
        ..read(2, rank, extent)
    };
    match &inst.action {
        Action::Load { extent, step, .. } => {
            vec![Access { step, ..read(1, extent.len(), block(extent)) }]
        }
        Action::Gather { rank, .. } => vec![read(1, *rank, None)],
        Action::Owned { extent, step } => {
            let (touch, other) = (Touch::Own, true);
            vec![Access { step, touch, other, ..read(1, extent.len(), block(extent)) }]
        }
        Action::Store { extent, step, .. } => {
            vec![Access { step, ..write(Touch::Write, extent.len(), block(extent)) }]
        }
        Action::Scatter { rank, .. } => vec![write(Touch::Write, *rank, None)],
        Action::Accumulate { extent, step, .. } => {
            let place = inst.args.first().and_then(|a| memory.get(a.slot)?.as_ref());
            let touch = place.and_then(|p| p.reduces).map_or(Touch::Update, Touch::Fold);
            vec![Access { step, ..write(touch, extent.len(), block(extent)) }]
        }
        Action::Atomic { rank, wide, .. } => {
            // An atomic of group scope is a plain update for other groups.
            let alone = kind == KernelKind::Group && !wide;
            let touch = if alone { Touch::Update } else { Touch::Atomic };
            vec![Access { mask: None, ..write(touch, *rank, None) }]
        }
        Action::CopyAsync { extent, .. } => {
            let from = Access { memory: 1, other: false, ..read(2, extent.len(), Some(extent)) };
            let at = 2 + extent.len();
            let to = Access {
                whole: true,
                at,
                rank: count - at,
                value: None,
                mask: None,
                ..write(Touch::Write, 0, None)
            };
            vec![from, to]
        }
        _ => vec![],
    }
}

/// An accessed element: which of the op's elements (or lanes), and its index in the memory in
/// row-major order.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Spot {
    pub i: usize,
    pub element: usize,
}

/// The first position that is outside.
#[derive(Debug)]
pub(crate) struct Outside {
    pub i: usize,
    pub axis: usize,
    pub index: Vec<i64>,
    pub count: u64,
}

/// The elements that an access touches inside the memory, and the first position outside it.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    pub spots: Vec<Spot>,
    pub outside: Option<Outside>,
    /// Elements of the block, those outside included.
    pub len: usize,
}

/// The spots are listed only on request. `None` when the operands are not what the op promises;
/// running it reports that.
pub(crate) fn touched(
    m: &Machine<'_>,
    inst: &Inst,
    access: &Access<'_>,
    guard: Option<Guard>,
    want: bool,
) -> Option<Touched> {
    let memory = m.memory(inst, access.memory).ok()?;
    if access.whole {
        let index = m.positions(inst, access.at, access.rank).ok()?;
        let (first, rest) = memory.dims.split_at(access.rank);
        let len = count(rest);
        if let Some(axis) = (0..first.len()).find(|&a| !(0..first[a]).contains(&index[a])) {
            let outside = Some(Outside { i: 0, axis, index, count: len as u64 });
            return Some(Touched { spots: Vec::new(), outside, len });
        }
        let part = first.iter().zip(&index).fold(0, |sum, (d, at)| sum * d + at) as usize;
        let spots = (0..len).map(|i| Spot { i, element: part * len + i }).collect();
        return Some(Touched { spots, outside: None, len });
    }
    let at: Option<Vec<&Tile>> =
        (access.at..access.at + access.rank).map(|i| m.value(inst, i).ok()).collect();
    let mask = access.mask.and_then(|i| m.value(inst, i).ok()).and_then(|t| t.bools());
    let guard = guard.and_then(|g| Some((m.slot(g.slot)?.bools()?, g.holds)));
    let happens = |i: usize| {
        let guarded = guard.is_none_or(|(g, holds)| g[if g.len() == 1 { 0 } else { i }] == holds);
        guarded && mask.is_none_or(|k| k[if k.len() == 1 { 0 } else { i }])
    };
    match access.extent {
        Some(extent) => block(memory, &at?, (extent, access.step), happens, want),
        None => {
            let lanes = (m.program.kind == KernelKind::Lane).then(|| m.mask.lanes());
            let happens = |i: usize| lanes.is_none_or(|l| l[i]) && happens(i);
            each(memory, &at?, m.width, happens, want)
        }
    }
}

pub(crate) fn count(dims: &[i64]) -> usize {
    dims.iter().map(|&d| d.max(0) as usize).product()
}

/// The position of an element from its index.
pub(crate) fn position(dims: &[i64], mut element: usize) -> Vec<i64> {
    let mut at: Vec<i64> = dims
        .iter()
        .rev()
        .map(|&d| {
            let d = d.max(1) as usize;
            let p = element % d;
            element /= d;
            p as i64
        })
        .collect();
    at.reverse();
    at
}

fn block(
    memory: &Memory,
    at: &[&Tile],
    (extent, step): (&[i64], &[i64]),
    happens: impl Fn(usize) -> bool,
    want: bool,
) -> Option<Touched> {
    let at: Option<Vec<i64>> = at.iter().map(|t| t.positions()?.first().copied()).collect();
    let (at, dims) = (at?, &memory.dims);
    let len = extent.iter().map(|&e| e.max(1) as usize).product();
    let mut out = Touched { len, ..Touched::default() };
    let alone = |a: &usize| extent[*a] == 0 && !(0..dims[*a]).contains(&at[*a]);
    if let Some(axis) = (0..extent.len()).find(alone) {
        let count = (0..len).filter(|&i| happens(i)).count() as u64;
        if count > 0 {
            out.outside = Some(Outside { i: 0, axis, index: at, count });
        }
        return Some(out);
    }
    let by = |axis: usize| step.get(axis).copied().unwrap_or(1);
    // For each axis the positions of the block that are inside, counted from its start.
    let inside: Vec<(i64, i64)> = (0..extent.len())
        .map(|a| {
            // Steps are counted up to the next whole one.
            let steps = |far: i64| far.saturating_add(by(a) - 1).div_euclid(by(a));
            let lo = steps(at[a].saturating_neg()).max(0);
            (lo, steps(dims[a].saturating_sub(at[a])).min(extent[a].max(1)).max(lo))
        })
        .collect();
    if !want || inside.iter().any(|(lo, hi)| lo >= hi) {
        return Some(out);
    }
    let mut place: Vec<i64> = inside.iter().map(|r| r.0).collect();
    let row = inside.last().map_or(1, |r| (r.1 - r.0) as usize);
    let last = by(extent.len().saturating_sub(1)) as usize;
    loop {
        let (mut i, mut element) = (0i64, 0i64);
        for a in 0..extent.len() {
            i = i * extent[a].max(1) + place[a];
            element = element * dims[a] + at[a] + place[a] * by(a);
        }
        for j in 0..row {
            let spot = Spot { i: i as usize + j, element: element as usize + j * last };
            if happens(spot.i) {
                out.spots.push(spot);
            }
        }
        let mut axis = extent.len().saturating_sub(1);
        loop {
            if axis == 0 {
                return Some(out);
            }
            axis -= 1;
            place[axis] += 1;
            if place[axis] < inside[axis].1 {
                break;
            }
            place[axis] = inside[axis].0;
        }
    }
}

fn each(
    memory: &Memory,
    at: &[&Tile],
    width: usize,
    happens: impl Fn(usize) -> bool,
    want: bool,
) -> Option<Touched> {
    let axes: Option<Vec<_>> = at.iter().map(|t| t.positions()).collect();
    let axes = axes?;
    let len = axes.iter().map(|a| a.len()).max().unwrap_or(width);
    let mut out = Touched { len, ..Touched::default() };
    let at = |a: usize, i: usize| if axes[a].len() == 1 { axes[a][0] } else { axes[a][i] };
    'elements: for i in (0..len).filter(|&i| happens(i)) {
        let mut element = 0i64;
        for (axis, &dim) in memory.dims.iter().enumerate() {
            let p = at(axis, i);
            if p < 0 || p >= dim {
                let index = || (0..axes.len()).map(|a| at(a, i)).collect();
                out.outside
                    .get_or_insert_with(|| Outside { i, axis, index: index(), count: 0 })
                    .count += 1;
                continue 'elements;
            }
            element = element * dim + p;
        }
        if want {
            out.spots.push(Spot { i, element: element as usize });
        }
    }
    Some(out)
}

/// The values of the elements, in the order of the spots.
pub(crate) fn contents(memory: &Memory, spots: &[Spot]) -> Data {
    let mut bytes = Vec::with_capacity(spots.len() * memory.dtype.bytes());
    for spot in spots {
        match code(memory, spot.element) {
            Some(code) => bytes.extend_from_slice(code),
            None => bytes.resize(bytes.len() + memory.dtype.bytes(), 0),
        }
    }
    Data::decode(memory.dtype, &bytes)
}

/// The bytes of one element.
pub(crate) fn code(memory: &Memory, element: usize) -> Option<&[u8]> {
    let offset = memory.offset(position(&memory.dims, element).into_iter())?;
    memory.element(offset).ok()
}
