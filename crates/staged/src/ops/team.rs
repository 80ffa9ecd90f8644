//! Teams: CTAs of a cluster that take neighbouring tiles of a grid, and multicast what they all
//! load.
//!
//! The rank of a CTA in its cluster says which of the neighbours it takes: its lowest bits along
//! the first axis, the next along the second. A load that is the same for all CTAs along some axes
//! is made in parts, one by each CTA, and every part is multicast to all.

use crate::{Staged, StagedOp};
use tessera_ir::{Attr, Func, OpId, Type, Value};
use tessera_layout::Shared;

/// How many neighbours a cluster takes along each axis of a grid: powers of two.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Team {
    pub shape: [u32; 3],
}

impl Default for Team {
    fn default() -> Self {
        Self { shape: [1; 3] }
    }
}

impl Team {
    /// Of a `tiles` op; one block where it says nothing.
    pub fn of_tiles(func: &Func<Staged>, id: OpId) -> Result<Self, String> {
        let op = &func.ops[id];
        let Some(attr) = op.attr("team") else { return Ok(Self::default()) };
        let list = attr.as_ints().unwrap_or_default();
        let good = |n: &i64| (1..=16).contains(n) && (*n as u64).is_power_of_two();
        if list.len() != op.group("grid").len() || !list.iter().all(good) {
            return Err(format!(
                "expected `team` to have a power of two for each axis of the grid, got {attr}"
            ));
        }
        let mut shape = [1; 3];
        for (own, n) in shape.iter_mut().zip(list) {
            *own = n as u32;
        }
        Ok(Self { shape })
    }

    /// Of a function: that of its persistent loops.
    pub fn of(func: &Func<Staged>) -> Self {
        let tiles = func.walk().into_iter().find(|&id| func.ops[id].code == StagedOp::Tiles);
        tiles.and_then(|id| Self::of_tiles(func, id).ok()).unwrap_or_default()
    }

    /// Along the axes of the launch's grid, in their order; those of a loop may be in another.
    pub fn along_launch(func: &Func<Staged>) -> [u32; 3] {
        let team = Self::of(func);
        let mut out = [1; 3];
        let tiles = func.walk().into_iter().find(|&id| func.ops[id].code == StagedOp::Tiles);
        let grid = tiles.map_or(&[][..], |id| func.ops[id].group("grid"));
        for (place, &v) in grid.iter().enumerate() {
            let axis = func.def(v).and_then(|op| op.attr("axis")?.as_int());
            let axis = axis.and_then(|a| usize::try_from(a).ok()).unwrap_or(place);
            out[axis.min(2)] = team.shape[place];
        }
        out
    }

    pub fn blocks(&self) -> u32 {
        self.shape.iter().product()
    }

    /// The position of an axis in a rank.
    pub fn shift(&self, axis: usize) -> u32 {
        self.shape[..axis].iter().map(|n| n.trailing_zeros()).sum()
    }

    /// Which of the neighbours along each axis a block is.
    pub fn coordinates(&self, rank: u32) -> [u32; 3] {
        [0, 1, 2].map(|axis| rank >> self.shift(axis) & (self.shape[axis] - 1))
    }

    /// The bits of ranks in which neighbours along these axes differ.
    pub fn bits(&self, axes: &[usize]) -> u32 {
        axes.iter().map(|&axis| (self.shape[axis] - 1) << self.shift(axis)).sum()
    }

    /// Those of a load, and the number of its parts, which is 1 where each block makes its own.
    pub fn of_fill(&self, func: &Func<Staged>, fill: OpId) -> (u32, u32) {
        let bits = self.bits(&shared_axes(func, fill));
        (bits, 1 << bits.count_ones())
    }

    /// The CTAs of a cluster, by rank, that a CTA multicasts parts of a pipeline's stages to,
    /// itself included. They are also those that it receives from.
    pub fn peers(&self, func: &Func<Staged>, pipeline: Value, rank: u32) -> Vec<u32> {
        let groups: Vec<u32> = func
            .walk()
            .into_iter()
            .filter(|&id| {
                func.ops[id].code == StagedOp::Fill && pipeline_of(func, id) == Some(pipeline)
            })
            .map(|id| self.of_fill(func, id).0)
            .collect();
        let reaches = |to: &u32| *to == rank || groups.iter().any(|bits| (to ^ rank) & !bits == 0);
        (0..self.blocks()).filter(reaches).collect()
    }
}

/// The axes of the grid along which all CTAs of a cluster need what a `fill` loads.
pub fn shared_axes(func: &Func<Staged>, fill: OpId) -> Vec<usize> {
    let list = func.ops[fill].attr("multicast").and_then(Attr::as_ints).unwrap_or_default();
    list.into_iter().filter_map(|a| usize::try_from(a).ok().filter(|&a| a < 3)).collect()
}

/// The memory that a `fill` writes.
pub fn field_of(func: &Func<Staged>, fill: OpId) -> Option<&Shared> {
    let op = &func.ops[fill];
    let name = op.attr("field").and_then(Attr::as_word);
    let Type::Stage { fields } = func.ty(op.operands[0]) else { return None };
    fields.iter().find(|f| Some(f.name.as_str()) == name).map(|f| &*f.layout)
}

/// The pipeline of a `fill`.
pub fn pipeline_of(func: &Func<Staged>, fill: OpId) -> Option<Value> {
    let stage = func.def(func.ops[fill].operands[0])?;
    (stage.code == StagedOp::Acquire).then(|| stage.operands[0])
}

/// The dim along which memory is divided into `parts` contiguous parts, each aligned for TMA, and
/// the extent of a part; none where there is no such dim.
pub fn part_of(shared: &Shared, parts: u32) -> Option<(usize, u32)> {
    let place = |dim: usize, at: u32| {
        let mut coords = vec![0; shared.shape.len()];
        coords[dim] = at;
        shared.offset(&coords)
    };
    // The slowest dim first: its parts are the longest runs.
    let mut dims: Vec<usize> = shared.order.iter().rev().copied().collect();
    if shared.panel.is_some() {
        // Panels are slower than anything.
        dims.rotate_right(1);
    }
    dims.into_iter().find_map(|dim| {
        let all = shared.shape[dim];
        let part = all / parts.max(1);
        let fast = shared.order.first() == Some(&dim);
        let row = if fast { shared.panel.unwrap_or(all) } else { 1 };
        let good = all.is_multiple_of(parts) && part > 0 && part.is_multiple_of(row);
        let step = place(dim, part % all);
        let even = || (0..parts).all(|n| place(dim, n * part) == n * step);
        (good && step.is_multiple_of(shared.align().max(TMA_ALIGN)) && even())
            .then_some((dim, part))
    })
}

/// The alignment of TMA copies in shared memory, in bytes.
const TMA_ALIGN: u32 = 128;
