//! Tiling: how a kernel goes through its iteration space. Which axes are merged, which are tiled
//! and which are axes of the grid.

use crate::index::Axis;
use crate::machine::{Machine, Matrix, Side, threads};
use crate::nodes::{Access, Body, Node, Product};
use std::collections::{BTreeMap, BTreeSet};
use tessera_cost::matmul::Schedule;
use tessera_ir::{Attr, Attrs};
use tessera_target::speed::LINE;

/// The part of the grid that runs along an axis.
#[derive(Clone, Debug)]
pub struct Part {
    pub program: usize,
    /// How many groups there are along it.
    pub blocks: i64,
    /// The divisor of a group's coordinate, and whether the blocks divide the axis without a
    /// remainder.
    pub divide: i64,
    pub last: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// The axes from the outermost to the innermost.
    pub order: Vec<Axis>,
    /// Axes of tiles and their extents, in order.
    pub tiled: Vec<(Axis, i64)>,
    pub parts: BTreeMap<Axis, Part>,
    pub grid: [i64; 3],
    /// Rows and columns of a matmul.
    pub matrix: Option<(Axis, Axis)>,
    pub depth: Axis,
    pub depth_tile: i64,
    /// The rest of a matmul's schedule, as the attribute `config` of its kernel.
    pub config: Attrs,
}

/// Elements of a tile that fit in the nearest cache with their neighbours.
const TILE: i64 = 4096;
/// The least contiguous elements where rows are reduced.
const WIDE: i64 = 256;
/// Rows that are reduced together: short ones, and long ones.
const MANY: i64 = 16;
const SEVERAL: i64 = 4;

pub fn shape(body: &mut Body, machine: Machine) -> Result<Shape, String> {
    let mut out = Shape { grid: [1; 3], ..Shape::default() };
    let order = order(body);
    let order = collapse(body, order);
    out.order = order;
    match body.product.is_some() {
        true => matrix(body, machine, &mut out)?,
        false => nest(body, machine, &mut out),
    }
    Ok(out)
}

fn accesses(body: &Body) -> Vec<&Access> {
    let mut out: Vec<&Access> = body.writes.iter().map(|w| &w.access).collect();
    for node in &body.nodes {
        if let Node::Load { access, .. } = node {
            out.push(access);
        }
    }
    out
}

/// All axes of more than one position, by the strides of the array that has most of them.
fn order(body: &Body) -> Vec<Axis> {
    let mut axes: BTreeSet<Axis> = body.full.iter().copied().collect();
    for access in accesses(body) {
        axes.extend(access.strides.iter().map(|(a, _)| *a));
    }
    for node in &body.nodes {
        if let Node::Position { strides, .. } = node {
            axes.extend(strides.iter().map(|(a, _)| *a));
        }
    }
    if let Some(product) = &body.product {
        axes.extend(product.a.strides.iter().chain(&product.b.strides).map(|(a, _)| *a));
        for depth in &product.depth {
            axes.remove(depth);
        }
    }
    axes.retain(|&a| body.space.extents[a] != 1);
    // Positions have an order too: that of the axes' indices.
    let best = accesses(body).into_iter().rev().max_by_key(|a| a.strides.len());
    let stride = |a: Axis| -> i64 {
        let found = best.and_then(|b| b.strides.iter().find(|(b, _)| *b == a));
        found.map_or(i64::MAX, |(_, s)| s.abs())
    };
    let mut list: Vec<Axis> = axes.into_iter().collect();
    list.sort_by_key(|&a| (std::cmp::Reverse(stride(a)), a));
    if let Some(product) = &body.product {
        let role = |a: &Axis| match () {
            _ if product.rows.contains(a) => 1,
            _ if product.columns.contains(a) => 2,
            _ => 0,
        };
        list.sort_by_key(role);
    }
    list
}

/// Merges adjacent axes wherever every array has matching strides.
fn collapse(body: &mut Body, mut order: Vec<Axis>) -> Vec<Axis> {
    let mut i = 1;
    while i < order.len() {
        let (a, b) = (order[i - 1], order[i]);
        if mergeable(body, a, b) {
            merge(body, a, b);
            order.remove(i - 1);
        } else {
            i += 1;
        }
    }
    if let Some(product) = &body.product {
        let mut depth: Vec<Axis> =
            product.depth.iter().copied().filter(|&a| body.space.extents[a] != 1).collect();
        let mut i = 1;
        while i < depth.len() {
            let (a, b) = (depth[i - 1], depth[i]);
            if mergeable(body, a, b) {
                merge(body, a, b);
                depth.remove(i - 1);
            } else {
                i += 1;
            }
        }
        if let Some(product) = &mut body.product {
            product.depth = depth;
        }
    }
    order
}

fn of(strides: &[(Axis, i64)], axis: Axis) -> i64 {
    strides.iter().find(|(a, _)| *a == axis).map_or(0, |(_, s)| *s)
}

fn mergeable(body: &Body, a: Axis, b: Axis) -> bool {
    if body.full.contains(&a) != body.full.contains(&b)
        || body.apart.contains(&a)
        || body.apart.contains(&b)
    {
        return false;
    }
    let extent = body.space.extents[b];
    let alike = |strides: &[(Axis, i64)]| of(strides, a) == of(strides, b) * extent;
    if let Some(p) = &body.product {
        let role = |x: Axis| (p.rows.contains(&x), p.columns.contains(&x), p.depth.contains(&x));
        if role(a) != role(b) || !alike(&p.a.strides) || !alike(&p.b.strides) {
            return false;
        }
    }
    let nodes = body.nodes.iter().all(|node| match node {
        Node::Load { access, .. } => alike(&access.strides),
        Node::Position { strides, .. } => alike(strides),
        Node::Reduce { axes, .. } => {
            let both = axes.contains(&a) && axes.contains(&b);
            let follow = || {
                let mut list = axes.iter().filter(|&&x| body.space.extents[x] != 1);
                list.any(|&x| x == a) && list.next() == Some(&b)
            };
            axes.contains(&a) == axes.contains(&b) && (!both || !body.ordered || follow())
        }
        _ => true,
    });
    nodes && body.writes.iter().all(|w| alike(&w.access.strides))
}

/// `b` becomes both.
fn merge(body: &mut Body, a: Axis, b: Axis) {
    body.space.extents[b] *= body.space.extents[a];
    let drop = |strides: &mut Vec<(Axis, i64)>| strides.retain(|(x, _)| *x != a);
    for node in &mut body.nodes {
        match node {
            Node::Load { access, .. } => drop(&mut access.strides),
            Node::Position { strides, .. } => drop(strides),
            Node::Reduce { axes, .. } => axes.retain(|x| *x != a),
            _ => {}
        }
    }
    for write in &mut body.writes {
        drop(&mut write.access.strides);
    }
    if let Some(p) = &mut body.product {
        drop(&mut p.a.strides);
        drop(&mut p.b.strides);
        for list in [&mut p.rows, &mut p.columns, &mut p.depth] {
            list.retain(|x| *x != a);
        }
    }
    body.full.retain(|x| *x != a);
}

fn nest(body: &Body, machine: Machine, out: &mut Shape) {
    let extent = |a: Axis| body.space.extents[a];
    let tiles = match machine {
        Machine::Cpu => in_caches(body, &out.order),
        Machine::Gpu { .. } => in_threads(body, &out.order, machine.processors()),
    };
    out.tiled = out.order.iter().filter_map(|a| tiles.get(a).map(|&t| (*a, t))).collect();
    let blocks: Vec<(Axis, i64)> = out
        .order
        .iter()
        .rev()
        .filter(|a| !body.full.contains(a))
        .map(|&a| (a, (extent(a) + tiles.get(&a).unwrap_or(&1) - 1) / tiles.get(&a).unwrap_or(&1)))
        .filter(|(_, n)| *n > 1)
        .collect();
    spread(out, &blocks, 0);
}

fn in_threads(body: &Body, order: &[Axis], processors: i64) -> BTreeMap<Axis, i64> {
    let near = |a: Axis| accesses(body).iter().any(|x| of(&x.strides, a).abs() == 1);
    let sides: Vec<Side> = order
        .iter()
        .map(|&a| Side {
            extent: body.space.extents[a],
            full: body.full.contains(&a),
            neighbours: near(a),
        })
        .collect();
    let tiles = order.iter().copied().zip(threads(&sides, processors));
    tiles.filter(|(a, t)| *t > 1 || body.full.contains(a)).collect()
}

fn in_caches(body: &Body, order: &[Axis]) -> BTreeMap<Axis, i64> {
    let extent = |a: Axis| body.space.extents[a];
    let mut tiles: BTreeMap<Axis, i64> = BTreeMap::new();
    let mut size = 1;
    for &axis in order {
        if body.full.contains(&axis) {
            tiles.insert(axis, extent(axis));
            size *= extent(axis);
        }
    }
    let innermost = order.last().copied();
    for &axis in order.iter().rev() {
        if body.full.contains(&axis) {
            continue;
        }
        let n = extent(axis);
        let mut room = (TILE / size).max(1);
        if Some(axis) == innermost {
            room = room.max(WIDE.min(n));
        }
        if n <= room {
            tiles.insert(axis, n);
            size *= n;
            continue;
        }
        let tile = if body.full.is_empty() { evenly(n, room, 1) } else { rows(n, room) };
        if tile > 1 {
            tiles.insert(axis, tile);
        }
        break;
    }
    tiles
}

/// A number of at most `room`, a multiple of `by`: one that divides `n` where that is not much
/// less.
fn evenly(n: i64, room: i64, by: i64) -> i64 {
    let divides = (1..=room.min(n)).rev().find(|d| n % d == 0 && d % by == 0);
    divides.filter(|d| d * 4 >= room).unwrap_or(room / by * by)
}

/// Rows of a tile that are each reduced to one number: CPUs take several together.
fn rows(n: i64, room: i64) -> i64 {
    let by = if room >= MANY { MANY } else { SEVERAL };
    if room < by { evenly(n, room, 1) } else { evenly(n, room, by) }
}

/// Gives axes their parts of the grid from `first` on; excess axes share the last.
fn spread(out: &mut Shape, blocks: &[(Axis, i64)], first: usize) {
    for &axis in &out.order {
        let part = Part { program: 0, blocks: 1, divide: 1, last: true };
        out.parts.entry(axis).or_insert(part);
    }
    let mut divide = 1;
    for (i, &(axis, n)) in blocks.iter().enumerate() {
        let program = (first + i).min(2);
        let last = program < 2 || i + 1 == blocks.len();
        let part = if program < 2 {
            Part { program, blocks: n, divide: 1, last: true }
        } else {
            let part = Part { program, blocks: n, divide, last };
            divide *= n;
            part
        };
        out.parts.insert(axis, part);
        out.grid[program] *= n;
    }
}

/// Whether the result is contiguous along rows: `C^T = B^T A^T` is computed there.
fn is_turned(body: &Body, product: &Product, order: &[Axis]) -> bool {
    let Some(write) = body.writes.first() else { return false };
    let last = |list: &[Axis]| order.iter().copied().rfind(|a| list.contains(a));
    let stride = |axis: Option<Axis>| axis.map_or(0, |a| of(&write.access.strides, a).abs());
    stride(last(&product.rows)) == 1 && stride(last(&product.columns)) != 1
}

/// Exchanges rows and columns of a matmul.
fn swap_sides(product: &mut Product) {
    std::mem::swap(&mut product.a, &mut product.b);
    std::mem::swap(&mut product.rows, &mut product.columns);
    product.types.swap(0, 1);
}

/// The bytes that rows of an operand begin at multiples of, up to a cache line; memory itself is
/// aligned to one.
fn rows_on(body: &Body, access: &Access, bytes: i64) -> u64 {
    let steps = access.strides.iter().filter(|(a, s)| body.space.extents[*a] > 1 && s.abs() != 1);
    let all = steps.fold(access.offset * bytes, |all, (_, s)| all | (s * bytes));
    1 << all.trailing_zeros().min(LINE.trailing_zeros())
}

/// Tiles of a matmul. They do not change the result; the target tiles it again.
fn matrix(body: &mut Body, machine: Machine, out: &mut Shape) -> Result<(), String> {
    let Some(mut product) = body.product.clone() else { return Ok(()) };
    if is_turned(body, &product, &out.order) {
        swap_sides(&mut product);
    }
    // The innermost in the kernel's order; an axis that is missing has one position.
    let last = |list: &[Axis], order: &[Axis]| order.iter().copied().rfind(|a| list.contains(a));
    let row = last(&product.rows, &out.order);
    let column = last(&product.columns, &out.order);
    let mut row = row.unwrap_or_else(|| body.space.add(1));
    let mut column = column.unwrap_or_else(|| body.space.add(1));
    let depth = match product.depth[..] {
        [] => body.space.add(1),
        [one] => one,
        _ => return Err("a depth that is not one axis".into()),
    };
    out.order.retain(|&a| a != row && a != column);
    out.depth = depth;
    let extent = |a: Axis| body.space.extents[a];
    let batch: i64 = out.order.iter().map(|&a| extent(a)).product();
    let [a, b] = [(&product.a, 0), (&product.b, 1)]
        .map(|(access, side)| rows_on(body, access, product.types[side].bytes() as i64));
    let tiles = machine.matrix(&Matrix {
        rows: extent(row),
        columns: extent(column),
        depth: extent(depth),
        batch,
        of: product.types[0],
        out_bytes: body.writes.first().map_or(1, |w| w.dtype.bytes() as i64),
        rows_on: [a, b],
        // Where there are several matmuls, a kernel is not divided at its launch.
        may_split: batch == 1 && !body.ordered && product.class.as_deref() != Some(IN_ORDER),
    });
    if tiles.schedule.as_ref().is_some_and(|s| s.swapped) {
        swap_sides(&mut product);
        std::mem::swap(&mut row, &mut column);
    }
    // Rows and columns are last in the order.
    out.order.extend([row, column]);
    out.matrix = Some((row, column));
    out.depth_tile = tiles.depth;
    out.tiled = vec![(row, tiles.rows), (column, tiles.columns)];
    out.config = tiles.schedule.as_ref().map(config).unwrap_or_default();
    let cdiv = |a: i64, b: i64| (a + b - 1) / b;
    let mut blocks =
        vec![(row, cdiv(extent(row), tiles.rows)), (column, cdiv(extent(column), tiles.columns))];
    let rest = out.order.iter().rev().filter(|&&a| a != row && a != column);
    blocks.extend(rest.map(|&a| (a, extent(a))));
    spread(out, &blocks, 0);
    body.product = Some(product);
    Ok(())
}

/// The class of sums whose order is fixed.
const IN_ORDER: &str = "seq";

/// A schedule as a user would pin it. What is left out is the compiler's choice.
fn config(of: &Schedule) -> Attrs {
    let mut out = Attrs::new();
    let mut int = |name: &str, n: u64| out.set(name, Attr::Int(n as i64));
    if let Some([rows, columns]) = of.cluster {
        int("cluster_m", rows);
        int("cluster_n", columns);
    }
    if let Some(stages) = of.stages {
        int("num_stages", stages);
    }
    if of.split > 1 {
        int("k_splits", of.split);
    }
    if of.padded.contains(&true) {
        out.set("operand_padding", Attr::Bool(true));
    }
    if !of.persistent {
        out.set("persistent", Attr::Bool(false));
    }
    out
}
