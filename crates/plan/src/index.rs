//! Index maps: each axis of a value as a line through the axes of a kernel's iteration space. Views
//! only change lines; no data moves.

use tessera_graph::{GraphFunc, GraphOp};
use tessera_ir::{Attr, OpId};

/// One axis of a kernel's iteration space.
pub type Axis = usize;

/// A position along one axis of a value: `offset + step · p`, where `p` is the row-major position in
/// some axes of the space.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Line {
    pub offset: i64,
    pub step: i64,
    pub axes: Vec<Axis>,
}

/// One line for each axis of a value.
pub type Map = Vec<Line>;

impl Line {
    pub fn at(offset: i64) -> Self {
        Self { offset, step: 1, axes: Vec::new() }
    }

    pub fn along(axes: Vec<Axis>) -> Self {
        Self { offset: 0, step: 1, axes }
    }

    fn moved(&self, offset: i64, step: i64) -> Self {
        Self {
            offset: offset + step * self.offset,
            step: step * self.step,
            axes: self.axes.clone(),
        }
    }
}

/// The axes of a space. An axis may be split in two when an op needs a part of it.
#[derive(Clone, Debug, Default)]
pub struct Space {
    pub extents: Vec<i64>,
    /// The two axes that an axis was split into, outer first.
    cuts: Vec<Option<(Axis, Axis)>>,
    /// Axes that must stay as they are.
    pub fixed: Vec<Axis>,
}

impl Space {
    pub fn add(&mut self, extent: i64) -> Axis {
        self.extents.push(extent);
        self.cuts.push(None);
        self.extents.len() - 1
    }

    /// The uncut axes that these are made of.
    pub fn expand(&self, axes: &[Axis]) -> Vec<Axis> {
        let mut out = Vec::new();
        for &axis in axes {
            match self.cuts[axis] {
                None => out.push(axis),
                Some((outer, inner)) => out.extend(self.expand(&[outer, inner])),
            }
        }
        out
    }

    pub fn settle(&self, map: &Map) -> Map {
        let line = |l: &Line| Line { axes: self.expand(&l.axes), ..l.clone() };
        map.iter().map(line).collect()
    }

    pub fn size(&self, axes: &[Axis]) -> i64 {
        axes.iter().map(|&a| self.extents[a]).product()
    }

    fn cut(&mut self, axis: Axis, inner: i64) -> (Axis, Axis) {
        let outer = self.add(self.extents[axis] / inner);
        let inner = self.add(inner);
        self.cuts[axis] = Some((outer, inner));
        (outer, inner)
    }
}

pub fn dims_of(func: &GraphFunc, v: tessera_ir::Value) -> Vec<i64> {
    func.ty(v).static_shape().unwrap_or_default()
}

fn ints(func: &GraphFunc, id: OpId, name: &str) -> Vec<i64> {
    func.ops[id].attr(name).and_then(Attr::as_ints).unwrap_or_default()
}

/// Whether an op only rearranges its operand, so that a map of the result gives one of the operand.
pub fn is_view(code: GraphOp) -> bool {
    matches!(
        code,
        GraphOp::Broadcast
            | GraphOp::Reshape
            | GraphOp::Transpose
            | GraphOp::Slice
            | GraphOp::Reverse
            | GraphOp::StopGradient
            | GraphOp::Shard
            | GraphOp::OptBarrier
    )
}

/// The map of the operand, given that of the result; `None` where data would have to move. May
/// split axes.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn through(func: &GraphFunc, id: OpId, map: &Map, space: &mut Space) -> Option<Map> {
    use GraphOp::*;
    let op = &func.ops[id];
    let map = &space.settle(map);
    match op.code {
        StopGradient | OptBarrier | Shard => Some(map.clone()),
        Broadcast => {
            let from = dims_of(func, op.operands[0]);
            let places = ints(func, id, "dims");
            let line = |(&extent, &at): (&i64, &i64)| match extent {
                1 => Line::at(0),
                _ => map[at as usize].clone(),
            };
            Some(from.iter().zip(&places).map(line).collect())
        }
        Transpose => {
            let mut out = vec![Line::at(0); map.len()];
            for (i, &p) in ints(func, id, "perm").iter().enumerate() {
                out[p as usize] = map[i].clone();
            }
            Some(out)
        }
        Slice => {
            let start = ints(func, id, "start");
            let stride = match op.attr("stride") {
                Some(_) => ints(func, id, "stride"),
                None => vec![1; start.len()],
            };
            Some(map.iter().zip(start).zip(stride).map(|((l, o), s)| l.moved(o, s)).collect())
        }
        Reverse => {
            let (axes, dims) = (ints(func, id, "axes"), dims_of(func, op.operands[0]));
            let turned = |(i, l): (usize, &Line)| match axes.contains(&(i as i64)) {
                true => l.moved(dims[i] - 1, -1),
                false => l.clone(),
            };
            Some(map.iter().enumerate().map(turned).collect())
        }
        Reshape => {
            let (from, to) = (dims_of(func, op.operands[0]), dims_of(func, op.results[0]));
            reshape(&from, &to, map, space)
        }
        Manual | Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute
        | FromRank | AxisIndex | KernelCall | Return | Yield | Cond | While | Loop | Call
        | Composite | Const | Iota | Select | Cast | Bitcast | Dim | Pad | Concat
        | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce | ArgReduce | Scan
        | Sort | Dot | Conv | WindowReduce | WindowArgReduce | Philox | Ew(_) => None,
    }
}

/// `map` is of an array of extents `to`, which holds the elements of one of extents `from`.
fn reshape(from: &[i64], to: &[i64], map: &Map, space: &mut Space) -> Option<Map> {
    let mut out = Vec::with_capacity(from.len());
    let (mut i, mut j) = (0, 0);
    while i < from.len() || j < to.len() {
        // The smallest runs of axes that hold equally many elements.
        let (i0, j0) = (i, j);
        let (mut a, mut b) = (1, 1);
        if i < from.len() {
            a = from[i];
            i += 1;
        }
        if j < to.len() && !(a == 1 && to[j] != 1) {
            b = to[j];
            j += 1;
        }
        while a != b {
            if a < b {
                a *= *from.get(i)?;
                i += 1;
            } else {
                b *= *to.get(j)?;
                j += 1;
            }
        }
        let (ours, theirs) = (&from[i0..i], &map[j0..j]);
        let whole = |k: usize| to[j0 + k] != 1;
        let many: Vec<usize> = (0..theirs.len()).filter(|&k| whole(k)).collect();
        let wanted: Vec<usize> = (0..ours.len()).filter(|&k| ours[k] != 1).collect();
        let mut lines = vec![Line::at(0); ours.len()];
        if let ([one], [other]) = (wanted.as_slice(), many.as_slice()) {
            lines[*one] = theirs[*other].clone();
        } else if !wanted.is_empty() {
            let mut axes = Vec::new();
            for &k in &many {
                let line = &theirs[k];
                let plain =
                    line.offset == 0 && line.step == 1 && space.size(&line.axes) == to[j0 + k];
                if !plain {
                    return None;
                }
                axes.extend(line.axes.iter().copied());
            }
            deal(&mut axes, ours, &mut lines, space)?;
        }
        out.append(&mut lines);
    }
    Some(out)
}

/// Gives axes to extents, left to right, cutting those that are too large.
fn deal(axes: &mut [Axis], extents: &[i64], lines: &mut [Line], space: &mut Space) -> Option<()> {
    let mut list: Vec<Axis> = axes.iter().rev().copied().collect();
    for (k, &extent) in extents.iter().enumerate() {
        let (mut have, mut mine) = (1, Vec::new());
        while have < extent {
            let axis = list.pop()?;
            let n = space.extents[axis];
            if have * n <= extent {
                if extent % (have * n) != 0 {
                    return None;
                }
                have *= n;
                mine.push(axis);
                continue;
            }
            let part = extent / have;
            if extent % have != 0 || n % part != 0 || space.fixed.contains(&axis) {
                return None;
            }
            let (outer, inner) = space.cut(axis, n / part);
            mine.push(outer);
            list.push(inner);
            have = extent;
        }
        lines[k] = Line::along(mine);
    }
    list.iter().all(|&a| space.extents[a] == 1).then_some(())
}

/// Offset and stride along each axis, in elements, of a map into a row-major array.
pub fn strides(dims: &[i64], map: &Map, space: &Space) -> (i64, Vec<(Axis, i64)>) {
    let (mut offset, mut out) = (0, Vec::new());
    let mut stride = 1;
    for (line, &extent) in map.iter().zip(dims).rev() {
        offset += line.offset * stride;
        let mut step = line.step * stride;
        for &axis in space.expand(&line.axes).iter().rev() {
            match out.iter_mut().find(|(a, _)| *a == axis) {
                Some((_, s)) => *s += step,
                None => out.push((axis, step)),
            }
            step *= space.extents[axis];
        }
        stride *= extent;
    }
    out.retain(|&(a, s)| s != 0 && space.extents[a] != 1);
    out.sort_unstable();
    (offset, out)
}

/// Whether a map takes each element of an array of these extents exactly once, along axes of its own.
pub fn is_whole(dims: &[i64], map: &Map, space: &Space) -> bool {
    let mut seen: Vec<Axis> = Vec::new();
    for (line, &extent) in map.iter().zip(dims) {
        let axes: Vec<Axis> =
            space.expand(&line.axes).into_iter().filter(|&a| space.extents[a] != 1).collect();
        if line.offset != 0 || (line.step != 1 && extent != 1) || space.size(&axes) != extent {
            return false;
        }
        for axis in axes {
            if seen.contains(&axis) {
                return false;
            }
            seen.push(axis);
        }
    }
    true
}
