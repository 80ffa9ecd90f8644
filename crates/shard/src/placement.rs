//! Where the elements of a value are on a mesh, and the shortest ways from one placement to another.

use tessera_graph::ops::collective::{MeshAxes, Split};
use tessera_ir::{Dim, Type};

/// Axes of a mesh by place, coarsest first.
pub type Axes = Vec<usize>;

/// For each dim the axes that split it. All but the finest divide it evenly; blocks of the finest have `ceil` of the rest, and the last
/// ones are filled up, with elements that nobody may look at.
pub type Dims = Vec<Axes>;

/// A value of a rank's program.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Placement {
    pub dims: Dims,
    /// Along these axes ranks hold contributions.
    pub contributes: Axes,
}

/// One step from a placement to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Move {
    AllReduce { axes: Axes },
    ReduceScatter { axes: Axes, dim: usize },
    AllToAll { axis: usize, split: usize, concat: usize },
    AllGather { axes: Axes, dim: usize },
    Own { axes: Axes, dim: usize },
}

pub fn count(mesh: &MeshAxes, axes: &[usize]) -> i64 {
    axes.iter().map(|&a| mesh.sizes[a]).product()
}

pub fn copies(rank: usize) -> Dims {
    vec![Vec::new(); rank]
}

pub fn is_used(dims: &Dims, axis: usize) -> bool {
    dims.iter().any(|d| d.contains(&axis))
}

/// Whether these axes cut the dim into equal blocks.
pub fn divides(mesh: &MeshAxes, ty: &Type, dim: usize, axes: &[usize]) -> bool {
    let n = count(mesh, axes);
    n == 1 || ty.shape()[dim].as_static().is_some_and(|d| d % n == 0)
}

/// Whether these axes may split the dim: evenly, or all but the last of them.
pub fn may_split(mesh: &MeshAxes, ty: &Type, dim: usize, axes: &[usize], even: bool) -> bool {
    let Some((_, coarse)) = axes.split_last() else { return true };
    divides(mesh, ty, dim, axes)
        || !even
            && divides(mesh, ty, dim, coarse)
            && ty.shape()[dim].as_static().is_some_and(|d| d / count(mesh, coarse) > 1)
}

/// What is left of an extent between the coarser axes, and the blocks of it along the finest.
pub fn cut(mesh: &MeshAxes, extent: i64, axes: &[usize]) -> (i64, i64) {
    match axes.split_last() {
        None => (extent, extent),
        Some((&finest, coarse)) => {
            let part = extent / count(mesh, coarse);
            (part, part.div_euclid(mesh.sizes[finest]) + i64::from(part % mesh.sizes[finest] != 0))
        }
    }
}

/// The block that a rank has of a value of this type.
pub fn block(mesh: &MeshAxes, ty: &Type, dims: &Dims) -> Type {
    let each = ty.shape().iter().zip(dims).map(|(d, axes)| match d.as_static() {
        Some(n) => Dim::Static(cut(mesh, n, axes).1),
        None => d.clone(),
    });
    tessera_graph::tensor(each.collect(), tessera_graph::elem(ty))
}

pub fn named(mesh: &MeshAxes, dims: &Dims) -> Split {
    dims.iter().map(|axes| axes.iter().map(|&a| mesh.names[a].clone()).collect()).collect()
}

/// The axes of a placement with names, as far as the ranks divide the dims.
pub fn numbered(mesh: &MeshAxes, ty: &Type, split: &Split) -> Dims {
    let each = split.iter().enumerate().map(|(dim, names)| {
        let mut axes = Vec::new();
        for axis in names.iter().filter_map(|n| mesh.place(n)) {
            axes.push(axis);
            if !may_split(mesh, ty, dim, &axes, false) {
                axes.pop();
                break;
            }
        }
        axes
    });
    each.collect()
}

fn shared(a: &[usize], b: &[usize]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// The steps from one placement to another: contributions are combined where they are wanted, axes move between dims without
/// a copy of the whole, and what no other dim has is cut off before anything is gathered.
pub fn path(from: &Placement, to: &Dims) -> Vec<Move> {
    let (mut at, mut rest, mut out) = (from.dims.clone(), from.contributes.clone(), Vec::new());
    for dim in 0..to.len() {
        if !to[dim].starts_with(&at[dim]) {
            continue;
        }
        let next = to[dim][at[dim].len()..].iter();
        let axes: Axes = next.take_while(|a| rest.contains(a)).copied().collect();
        if !axes.is_empty() {
            rest.retain(|a| !axes.contains(a));
            at[dim].extend(&axes);
            out.push(Move::ReduceScatter { axes, dim });
        }
    }
    if !rest.is_empty() {
        out.push(Move::AllReduce { axes: rest });
    }
    while at != *to {
        if let Some((axis, concat, split)) = exchange(&at, to) {
            at[concat].pop();
            at[split].push(axis);
            out.push(Move::AllToAll { axis, split, concat });
            continue;
        }
        let own = (0..to.len()).find_map(|dim| {
            let next = to[dim].get(at[dim].len()..).filter(|_| to[dim].starts_with(&at[dim]))?;
            let free = next.iter().take_while(|&&a| !is_used(&at, a));
            let axes: Axes = free.copied().collect();
            (!axes.is_empty()).then_some((axes, dim))
        });
        if let Some((axes, dim)) = own {
            at[dim].extend(&axes);
            out.push(Move::Own { axes, dim });
            continue;
        }
        // Some dim has axes that it should not have, else an axis above would be free.
        let Some(dim) = (0..to.len()).find(|&d| !to[d].starts_with(&at[d])) else { break };
        let keep = shared(&at[dim], &to[dim]);
        let axes = at[dim].split_off(keep);
        out.push(Move::AllGather { axes, dim });
    }
    out
}

/// An axis that is the finest of one dim and the next of another: (axis, the dim that it leaves, the dim that it goes to).
fn exchange(at: &Dims, to: &Dims) -> Option<(usize, usize, usize)> {
    (0..at.len()).find_map(|from| {
        let axis = *at[from].last()?;
        if to[from].starts_with(&at[from]) {
            return None;
        }
        let takes =
            |d: &usize| to[*d].starts_with(&at[*d]) && to[*d].get(at[*d].len()) == Some(&axis);
        Some((axis, from, (0..to.len()).find(takes)?))
    })
}

/// The bytes that a rank sends on a path, for a value of this type.
pub fn cost(mesh: &MeshAxes, ty: &Type, from: &Placement, to: &Dims) -> i64 {
    let mut at = from.dims.clone();
    let mut total = 0;
    for step in path(from, to) {
        let have = bytes(&block(mesh, ty, &at));
        match step {
            Move::AllReduce { axes } => {
                let n = count(mesh, &axes);
                total += 2 * have / n * (n - 1);
            }
            Move::ReduceScatter { axes, dim } => {
                let n = count(mesh, &axes);
                total += have / n * (n - 1);
                at[dim].extend(axes);
            }
            Move::AllToAll { axis, split, concat } => {
                let n = mesh.sizes[axis];
                total += have / n * (n - 1);
                at[concat].pop();
                at[split].push(axis);
            }
            Move::AllGather { axes, dim } => {
                total += have * (count(mesh, &axes) - 1);
                let keep = at[dim].len() - axes.len();
                at[dim].truncate(keep);
            }
            Move::Own { axes, dim } => at[dim].extend(axes),
        }
    }
    total
}

/// The bytes of a value.
pub fn bytes(ty: &Type) -> i64 {
    let elements: i64 = ty.shape().iter().map(|d| d.as_static().unwrap_or(1)).product();
    elements * ty.dtype().bytes().max(1) as i64
}
