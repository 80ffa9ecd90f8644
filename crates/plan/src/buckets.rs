//! Buckets: combinations of small arrays over ranks, such as gradients, become one of them all.
//!
//! - *Before*: each collective stands behind the last step that it depends on (`overlap`).
//! - *After*: `all_reduce`s, or `reduce_scatter`s, of one operator, dtype and list of axes are joined where no step between them uses
//!   the result of an earlier one or writes over its operand, up to [`BUCKET`] bytes. The joined one stands where the last of them stood.
//!   Its arrays are parts of one buffer. Where an operand or a result cannot be one, it is copied, if it is small.
//! - *Not changed*: the order of all other steps, and every bit: arrays are combined element by element.
//!
//! The idea is that of gradient buckets (S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", 3.2.2): a
//! collective takes a time of its own beside that of its bytes.

use crate::collective::{Collective, Member, Together};
use crate::forward::{inner_lists, is_dense, visit, visit_mut};
use crate::places::ALIGN;
use crate::planner::{Array, Buffer, BufferId, Origin, Plan, Step, row_major};
use crate::text::check;
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, Dim};
use tessera_numerics::{DType, NumType, ReduceOp};

/// The most bytes of a bucket. A larger array is combined alone.
pub const BUCKET: i64 = 25 << 20;

/// The most bytes of an array that is copied to be in a bucket.
const COPIED: i64 = 64 << 10;

/// What buffers must have alike to be joined, as the caller knows it: along which axes of the mesh they vary, say.
pub type Alike = (u64, u64);

/// Collectives that may be joined.
type Key = (bool, &'static str, Vec<String>, DType, [Alike; 2]);

/// Joins what may be joined; a plan that results is checked.
pub fn buckets(plan: &mut Plan, alike: &dyn Fn(BufferId) -> Alike) -> Result<(), Diagnostics> {
    let steps = std::mem::take(&mut plan.steps);
    let before = plan.buffers.len();
    let mut made = Buckets { plan, alike, moved: BTreeMap::new() };
    let mut steps = made.list(steps);
    let moved = made.moved;
    for step in &mut steps {
        visit_mut(step, &mut |a| {
            if let Some(&(bucket, offset)) = moved.get(&a.buffer) {
                a.buffer = bucket;
                a.offset += offset;
            }
        });
    }
    plan.steps = steps;
    if plan.buffers.len() == before { Ok(()) } else { check(plan) }
}

struct Buckets<'a> {
    plan: &'a mut Plan,
    alike: &'a dyn Fn(BufferId) -> Alike,
    /// Buffers that become parts of others, and where they begin there.
    moved: BTreeMap<BufferId, (BufferId, i64)>,
}

/// A collective of a list.
struct Found<'s> {
    how: &'s Collective,
    from: &'s Array,
    to: &'s Array,
    /// The first step behind it that would see that it is done later.
    end: usize,
}

/// Collectives that are joined, as far as the list was read.
struct Open {
    places: Vec<usize>,
    bytes: i64,
    end: usize,
}

fn bytes(a: &Array) -> i64 {
    a.dims.iter().product::<i64>() * a.dtype.bytes() as i64
}

fn operator(how: &Collective) -> Option<(bool, ReduceOp)> {
    match how.kind {
        Together::AllReduce(op) => Some((false, op)),
        Together::ReduceScatter { op, .. } => Some((true, op)),
        Together::AllGather { .. }
        | Together::AllToAll { .. }
        | Together::Permute(_)
        | Together::FromRank { .. } => None,
    }
}

/// The first step from a place on that uses the result of a collective or writes its operand.
fn end(steps: &[Step], begin: usize, from: &Array, to: &Array) -> usize {
    let sees = |step: &Step| {
        let mut found = false;
        visit(step, &mut |a, writes| {
            found |= a.buffer == to.buffer || writes && a.buffer == from.buffer;
        });
        found
    };
    (begin..steps.len()).find(|&at| sees(&steps[at])).unwrap_or(steps.len())
}

impl Buckets<'_> {
    fn list(&mut self, mut steps: Vec<Step>) -> Vec<Step> {
        for inner in steps.iter_mut().flat_map(inner_lists) {
            *inner = self.list(std::mem::take(inner));
        }
        let groups = self.groups(&steps);
        let mut changes = Changes::default();
        for places in groups {
            self.join(&steps, &places, &mut changes);
        }
        changes.apply(steps)
    }

    /// The places of collectives that become one.
    fn groups(&self, steps: &[Step]) -> Vec<Vec<usize>> {
        let (mut open, mut out): (BTreeMap<Key, Open>, Vec<Vec<usize>>) = Default::default();
        for (place, step) in steps.iter().enumerate() {
            let Step::Collective { how, from, to } = step else { continue };
            let Some(key) = self.key(how, from, to) else { continue };
            let (size, end) = (bytes(from), end(steps, place + 1, from, to));
            match open.get_mut(&key) {
                Some(one) if place < one.end && one.bytes + size <= BUCKET => {
                    one.places.push(place);
                    one.bytes += size;
                    one.end = one.end.min(end);
                }
                _ => {
                    let next = Open { places: vec![place], bytes: size, end };
                    out.extend(open.insert(key, next).map(|one| one.places));
                }
            }
        }
        out.extend(open.into_values().map(|one| one.places));
        out.retain(|places| places.len() > 1);
        out
    }

    /// None of a collective that stays alone.
    fn key(&self, how: &Collective, from: &Array, to: &Array) -> Option<Key> {
        let (scatters, op) = operator(how)?;
        let size = bytes(from);
        let copied = size * i64::from(scatters || !self.is_whole(from))
            + bytes(to) * i64::from(!self.is_whole(to));
        let fits = size > 0 && size <= BUCKET && copied <= COPIED && from.buffer != to.buffer;
        let alike = [(self.alike)(from.buffer), (self.alike)(to.buffer)];
        fits.then(|| (scatters, op.name(), how.axes.names.clone(), from.dtype, alike))
    }

    /// Whether an array is a buffer of the plan that can become a part of another.
    fn is_whole(&self, a: &Array) -> bool {
        let buffer = &self.plan.buffers[a.buffer];
        buffer.origin == Origin::Scratch
            && a.offset == 0
            && a.iterations.is_empty()
            && is_dense(a)
            && bytes(a) == buffer.bytes as i64
            && !self.moved.contains_key(&a.buffer)
            && !self.plan.results.iter().any(|(b, _)| *b == a.buffer)
    }

    fn buffer(&mut self, dims: &[i64], dtype: DType) -> Array {
        let names: BTreeSet<&str> = self.plan.buffers.iter().map(|b| &*b.name).collect();
        let free = (0..).map(|n| format!("bucket_{n}")).find(|name| !names.contains(&**name));
        let item = dtype.bytes();
        let dims = dims.to_vec();
        let ty = tessera_graph::tensor(
            dims.iter().map(|&d| Dim::Static(d)).collect(),
            NumType::plain(dtype),
        );
        let strides = row_major(&dims, item as i64);
        let bytes = dims.iter().product::<i64>() as usize * item;
        let (origin, name) = (Origin::Scratch, free.unwrap_or_default());
        self.plan.buffers.push(Buffer { bytes, origin, name, ty });
        let buffer = self.plan.buffers.len() - 1;
        Array { buffer, offset: 0, dims, strides, dtype, writes: true, iterations: Vec::new() }
    }

    fn join(&mut self, steps: &[Step], places: &[usize], changes: &mut Changes) {
        let found = places.iter().filter_map(|&place| match &steps[place] {
            Step::Collective { how, from, to } => {
                Some(Found { how, from, to, end: end(steps, place + 1, from, to) })
            }
            _ => None,
        });
        let all: Vec<Found<'_>> = found.collect();
        let (Some(first), Some(&last)) = (all.first(), places.last()) else { return };
        let (dtype, ranks) = (first.from.dtype, first.how.axes.count());
        let item = dtype.bytes() as i64;
        // Where each begins in the result, as aligned as it was.
        let (mut begins, mut total) = (Vec::new(), 0);
        for one in &all {
            let begin = (total as usize).next_multiple_of(ALIGN) as i64;
            begins.push(begin);
            total = begin + bytes(one.to);
        }
        let elements = total / item;
        let mut how = first.how.clone();
        let (from, to) = match &mut how.kind {
            Together::ReduceScatter { dim, .. } => {
                *dim = 0;
                how.attrs.set("dim", Attr::Int(0));
                (self.buffer(&[ranks, elements], dtype), self.buffer(&[1, elements], dtype))
            }
            _ => (self.buffer(&[elements], dtype), self.buffer(&[elements], dtype)),
        };
        how.attrs.set("joined", Attr::Int(all.len() as i64));
        let member = |one: &Found| Member { loc: one.how.loc.clone(), bytes: bytes(one.from) };
        how.members = all.iter().map(member).collect();
        let mut joined = Vec::new();
        for (one, &begin) in all.iter().zip(&begins) {
            match one.how.kind {
                Together::ReduceScatter { dim, .. } => {
                    joined.push(by_rank(one.from, &from, (begin, dim, ranks)));
                }
                _ => joined.extend(self.part(one.from, &from, begin, true)),
            }
            let copy = self.part(one.to, &to, begin, false);
            changes.before.entry(one.end).or_default().extend(copy);
        }
        joined.push(Step::Collective { how, from: Array { writes: false, ..from }, to });
        changes.gone.extend(places);
        changes.joined.insert(last, joined);
    }

    /// Makes an array a part of a bucket, or gives the copy to it, or from it.
    fn part(&mut self, array: &Array, bucket: &Array, begin: i64, to: bool) -> Option<Step> {
        if self.is_whole(array) {
            self.moved.insert(array.buffer, (bucket.buffer, begin));
            return None;
        }
        let item = array.dtype.bytes() as i64;
        let strides = row_major(&array.dims, item);
        let dims = array.dims.clone();
        let part = Array { offset: begin, strides, dims, ..bucket.clone() };
        let read = |a: &Array| Array { writes: false, ..a.clone() };
        Some(match to {
            true => Step::Copy { from: read(array), to: part, queue: 0 },
            false => Step::Copy { from: read(&part), to: array.clone(), queue: 0 },
        })
    }
}

/// The copy of an operand to a bucket of which each rank gets a row: the block of each along a dim.
fn by_rank(from: &Array, bucket: &Array, (begin, dim, ranks): (i64, usize, i64)) -> Step {
    let mut block = from.dims.clone();
    block[dim] /= ranks;
    let with = |first: i64, rest: &[i64]| [&[first][..], rest].concat();
    let dims = with(ranks, &block);
    let strides = with(from.strides[dim] * block[dim], &from.strides);
    let from = Array { dims: dims.clone(), strides, writes: false, ..from.clone() };
    let rows = row_major(&block, bucket.dtype.bytes() as i64);
    let strides = with(bucket.strides[0], &rows);
    Step::Copy { from, to: Array { dims, strides, offset: begin, ..bucket.clone() }, queue: 0 }
}

/// What is done to a list.
#[derive(Default)]
struct Changes {
    gone: BTreeSet<usize>,
    /// In the place of a step that is gone.
    joined: BTreeMap<usize, Vec<Step>>,
    /// Before a step, or at the end.
    before: BTreeMap<usize, Vec<Step>>,
}

impl Changes {
    fn apply(mut self, steps: Vec<Step>) -> Vec<Step> {
        let mut out = Vec::with_capacity(steps.len());
        for (place, step) in steps.into_iter().enumerate() {
            out.extend(self.before.remove(&place).into_iter().flatten());
            out.extend(self.joined.remove(&place).into_iter().flatten());
            if !self.gone.contains(&place) {
                out.push(step);
            }
        }
        out.extend(self.before.into_values().flatten());
        out
    }
}
