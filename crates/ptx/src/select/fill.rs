//! Pipeline fills by `cp.async` (Ampere-style): all threads copy a block of global memory into a
//! field of a stage.
//!
//! Each thread copies runs of contiguous elements, as wide as the alignment allows. Loop invariants
//! are computed before the loop. Runs outside the array are filled with zeros. Where the edge of
//! the array cuts a run, a separate path copies part of it; the branch is uniform over all threads
//! and rarely taken.

use super::memory::word_of;
use super::place::Coord;
use super::sync::Smem;
use super::{Select, View};
use crate::inst::*;
use std::collections::BTreeMap;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId, Value};
use tessera_layout::{Blocked, LANES, Layout, Shared};
use tessera_lower::stage::{chunk_bytes, divisor, is_from_zero, neighbour_axis};
use tessera_tile::attrs::checked_axes;

/// From this many single-element copies of a thread, one test whether the whole block is inside
/// pays off.
const MANY: usize = 8;

/// A fill: what is copied, and what was computed before the loop.
struct Filling {
    view: View,
    layout: Layout,
    /// The memory's axis of each dim of the tile.
    axes: Vec<usize>,
    /// The dim along which runs are contiguous, and their length.
    fast: Option<usize>,
    cells: u32,
    field: Smem,
    /// The address of the thread's first element, without the positions in `moving`, by axis.
    base: Reg,
    moving: Vec<(usize, Reg)>,
    /// For each dim, which positions are inside, where they are checked.
    limits: Vec<Option<Bound>>,
    /// For axes without a dim, whether the position is inside.
    always: Vec<Inside>,
    /// The bytes of a number of rows along an axis.
    steps: BTreeMap<(usize, i64), Reg>,
}

/// Known before the loop, or computed in each iteration.
#[derive(Copy, Clone)]
enum Bound {
    Known(Limit),
    Iteration { at: Reg, extent: Reg, n: u32, from_zero: bool },
}

#[derive(Copy, Clone)]
enum Inside {
    Known(Reg),
    Iteration { at: Reg, extent: Reg },
}

/// Which positions of a tile are inside.
#[derive(Copy, Clone)]
struct Limit {
    /// Positions from here on are outside.
    end: Reg,
    /// Positions below it are outside too.
    start: Option<Reg>,
}

/// A fill in one iteration.
struct Iteration {
    base: Reg,
    limits: Vec<Option<Limit>>,
    always: Option<Reg>,
    /// Addresses of rows that were computed.
    rows: Vec<(Vec<u32>, Reg)>,
    places: BTreeMap<u32, Reg>,
}

impl Select<'_> {
    pub fn fill(&mut self, id: OpId) -> Result<(), Diagnostics> {
        if self.has_roles() {
            return self.tma_fill(id);
        }
        let op = &self.func.ops[id];
        let name = op.attr("field").and_then(Attr::as_word).unwrap_or_default();
        let Some(field) = self.field_of(op.operands[0], name) else {
            return self.unsupported(id, "expected a field of the stage");
        };
        let src = op.operands[1];
        let mut f = match self.filling(id, field) {
            Ok(f) => f,
            Err(why) => return self.unsupported(id, why),
        };
        let unless = self.may_be_cut(&f, src).map(|maybe| self.copy_cut(&mut f, maybe));
        self.copy_whole(&mut f, unless);
        Ok(())
    }

    fn filling(&mut self, id: OpId, field: Smem) -> Result<Filling, &'static str> {
        let func = self.func;
        let op = &func.ops[id];
        let view = self.view(op.operands[1]);
        let extents = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
        let axes: Vec<usize> = (0..view.rank).filter(|&a| extents[a] != 0).collect();
        let shape = field.layout.shape.clone();
        if axes.len() != shape.len() {
            return Err("axes of one position in a pipeline are not supported here");
        }
        let at: Vec<Value> = op.group("at").to_vec();
        let bytes = view.dtype.bytes() as u32;
        let order = &field.layout.order;
        let neighbours = neighbour_axis(view.class, view.rank);
        let fast = order.first().copied().filter(|&d| neighbours == Some(axes[d]));
        let chunk = fast.map_or(bytes.min(view.class.align), |d| {
            chunk_bytes(bytes, view.class.align, divisor(func, at[axes[d]]), shape[d])
        });
        if chunk < 4 {
            return Err("copies of fewer than 4 bytes are not supported here");
        }
        let cells = (chunk / bytes).max(1);
        let along = axes.iter().position(|&a| neighbours == Some(a));
        let layout = self.copy_layout(&field.layout, cells, along);
        let mut base = self.word(view.word);
        let mut moving = Vec::new();
        for (axis, &v) in at.iter().enumerate() {
            let r = self.scalar(v);
            if self.is_outside(v) {
                base = self.before_loop(true, |me| me.moved(&view, axis, r, base));
            } else {
                moving.push((axis, r));
            }
        }
        for (dim, &axis) in axes.iter().enumerate() {
            let Some(t) = self.thread_coord(&layout, dim) else { continue };
            base = self.before_loop(true, |me| {
                let t = me.widen(t);
                me.moved(&view, axis, t, base)
            });
        }
        let checked = checked_axes(op, view.rank);
        let mut limits = vec![None; axes.len()];
        let mut always = Vec::new();
        for axis in (0..view.rank).filter(|&a| checked[a]) {
            let (v, r) = (at[axis], self.scalar(at[axis]));
            let outside = self.is_outside(v);
            let extent = self.extent(&view, axis);
            match axes.iter().position(|&a| a == axis) {
                None if outside => {
                    let p = self.before_loop(true, |me| me.asm.setp(Cmp::Lt, Ty::U64, r, extent));
                    always.push(Inside::Known(p));
                }
                None => always.push(Inside::Iteration { at: r, extent }),
                Some(dim) => {
                    let (n, from_zero) = (shape[dim], is_from_zero(func, v));
                    limits[dim] = Some(if outside {
                        let limit = self.before_loop(true, |me| me.limit(r, extent, n, from_zero));
                        Bound::Known(limit)
                    } else {
                        Bound::Iteration { at: r, extent, n, from_zero }
                    });
                }
            }
        }
        let steps = BTreeMap::new();
        Ok(Filling { view, layout, axes, fast, cells, field, base, moving, limits, always, steps })
    }

    /// What changes from iteration to iteration.
    fn iteration(&mut self, f: &Filling) -> Iteration {
        let base =
            f.moving.iter().fold(f.base, |base, &(axis, r)| self.moved(&f.view, axis, r, base));
        let limits = f.limits.iter().map(|limit| {
            limit.map(|limit| match limit {
                Bound::Known(limit) => limit,
                Bound::Iteration { at, extent, n, from_zero } => {
                    self.limit(at, extent, n, from_zero)
                }
            })
        });
        let limits = limits.collect();
        let mut always = None;
        for inside in &f.always {
            let p = match *inside {
                Inside::Known(p) => p,
                Inside::Iteration { at, extent } => self.asm.setp(Cmp::Lt, Ty::U64, at, extent),
            };
            always = self.both(always, Some(p));
        }
        Iteration { base, limits, always, rows: Vec::new(), places: BTreeMap::new() }
    }

    /// The stride of an axis; zero where the axis has one position: its stride may then be any
    /// number, and positions outside would have misaligned addresses.
    fn copy_stride(&mut self, view: &View, axis: usize) -> Reg {
        let key = (view.param, axis);
        if let Some(&r) = self.pipelines.strides.get(&key) {
            return r;
        }
        let (stride, extent) = (self.stride(view, axis), self.extent(view, axis));
        let r = self.head(|me| {
            let p = me.asm.setp(Cmp::Gt, Ty::S64, extent, Opnd::Int(1));
            me.asm.selp(Ty::B64, p, stride, Opnd::Int(0))
        });
        self.pipelines.strides.insert(key, r);
        r
    }

    /// An address moved by `by` positions along an axis.
    fn moved(&mut self, view: &View, axis: usize, by: Reg, base: Reg) -> Reg {
        let term = if neighbour_axis(view.class, view.rank) == Some(axis) {
            self.scaled(view, axis, by)
        } else {
            let stride = self.copy_stride(view, axis);
            self.asm.int(Alu::MulLo, Ty::S64, &[by.into(), stride.into()])
        };
        self.add64(base, term)
    }

    /// The layout of a fill: all threads, each a run of contiguous elements; lanes along rows, then
    /// down, then warps. Threads that no factor of an extent employs go along it all the same: the
    /// last of them have no run. Blocks copy their own parts. Where the array is contiguous along another
    /// dim than the shared memory, lanes take pieces of the memory's rows and the other lanes go
    /// along the array's contiguous axis, so that reads are coalesced and writes are free of bank
    /// conflicts.
    fn copy_layout(&self, memory: &Shared, cells: u32, along: Option<usize>) -> Layout {
        let (shape, order) = (&memory.shape, &memory.order);
        let fast = order[0];
        if let Some(along) = along.filter(|&d| d != fast && memory.blocks == 1) {
            return transposing_layout(memory, along, self.warps);
        }
        let mut vector = vec![1; shape.len()];
        vector[fast] = cells;
        let mut room: Vec<u32> = shape.clone();
        room[fast] = memory.part() / cells;
        let mut give = |mut left: u32| {
            let mut counts = vec![1; shape.len()];
            for padded in [false, true] {
                for &dim in order {
                    let exact = 1 << room[dim].trailing_zeros();
                    let most = if padded { room[dim].next_power_of_two() } else { exact };
                    let n = most.min(left);
                    counts[dim] *= n;
                    room[dim] = room[dim].div_ceil(n);
                    left /= n;
                }
                // Blocks of a cluster have equal parts, without padding.
                if memory.blocks > 1 {
                    break;
                }
            }
            // The remaining threads hold copies, and copy nothing.
            counts[order[order.len() - 1]] *= left;
            counts
        };
        let (lanes, warps) = (give(LANES), give(self.warps));
        let mut ctas = vec![1; shape.len()];
        ctas[fast] = memory.blocks;
        Layout::blocked(shape, &Blocked { vector, lanes, warps, ctas, order: order.clone() })
    }

    /// Which of `n` positions from `at` on are inside an extent.
    fn limit(&mut self, at: Reg, extent: Reg, n: u32, from_zero: bool) -> Limit {
        let end = self.clamped_difference(extent.into(), at, n);
        let start = (!from_zero).then(|| self.clamped_difference(Opnd::Int(0), at, n));
        Limit { end, start }
    }

    /// `a - b`, clamped to 0..=n.
    fn clamped_difference(&mut self, a: Opnd, b: Reg, n: u32) -> Reg {
        let asm = &mut self.asm;
        let r = asm.int(Alu::Sub, Ty::S64, &[a, b.into()]);
        let r = asm.int(Alu::Max, Ty::S64, &[r.into(), Opnd::Int(0)]);
        let r = asm.int(Alu::Min, Ty::S64, &[r.into(), Opnd::Int(n.into())]);
        asm.cvt(Ty::U32, Ty::U64, None, r)
    }

    /// Whether the edge of the array ever cuts a run: the same for all threads and iterations, as
    /// positions are multiples of the run length. None where it never does.
    fn may_be_cut(&mut self, f: &Filling, src: Value) -> Option<Reg> {
        let dim = f.fast.filter(|_| f.cells > 1)?;
        f.limits[dim]?;
        let axis = f.axes[dim];
        let extent = self.func.ty(src).shape()[axis].as_static();
        if extent.is_some_and(|n| n % i64::from(f.cells) == 0) {
            return None;
        }
        let extent = self.extent(&f.view, axis);
        let mask = Opnd::Int((f.cells - 1).into());
        Some(self.before_loop(true, |me| {
            let rest = me.asm.int(Alu::And, Ty::B64, &[extent.into(), mask]);
            me.asm.setp(Cmp::Ne, Ty::S64, rest, Opnd::Int(0))
        }))
    }

    /// If runs of this iteration's block are cut, copies the part of each that is inside. No copy
    /// reads beyond the end of the array. Returns whether it did.
    fn copy_cut(&mut self, f: &mut Filling, maybe: Reg) -> Reg {
        let cut = self.asm.reg(Class::Pred);
        self.asm.mov_to(Ty::Pred, cut, Opnd::Int(0));
        let past = self.asm.label();
        self.asm.when(maybe, false, |asm| asm.emit(Inst::Bra { to: past, uniform: true }));
        let mut iteration = self.iteration(f);
        if let Some(limit) = f.fast.and_then(|dim| iteration.limits[dim]) {
            let mask = Opnd::Int((f.cells - 1).into());
            let rest = self.asm.int(Alu::And, Ty::B32, &[limit.end.into(), mask]);
            let p = self.asm.setp(Cmp::Ne, Ty::U32, rest, Opnd::Int(0));
            self.asm.mov_to(Ty::Pred, cut, p);
        }
        self.asm.when(cut, false, |asm| asm.emit(Inst::Bra { to: past, uniform: true }));
        for first in self.runs(f) {
            let guard = self.copies_run(f, first);
            let places = self.coords(&f.layout, first);
            let (dst, src) = self.ends(f, &mut iteration, &places, first);
            let Some((place, limit)) =
                f.fast.and_then(|d| iteration.limits[d].map(|l| (places[d], l)))
            else {
                continue;
            };
            let own = self.coord_value(place);
            let left = self.asm.int(Alu::Sub, Ty::S32, &[limit.end.into(), own.into()]);
            let left = match self.inside(f, &iteration, &places, true) {
                Some(p) => self.asm.selp(Ty::B32, p, left, Opnd::Int(0)),
                None => left,
            };
            self.copy_in_part(f, guard, (dst, src), left);
        }
        self.asm.place(past);
        cut
    }

    /// Copies the first `left` elements of a run, and zeros the rest. A run that the end cuts goes
    /// element by element through registers. Readers see these stores as they see the copies: the
    /// wait for the stage synchronises all threads.
    fn copy_in_part(
        &mut self,
        f: &Filling,
        guard: Option<Reg>,
        (dst, src): (Addr, Addr),
        left: Reg,
    ) {
        let dtype = f.view.dtype;
        let elem = dtype.bytes() as u32;
        let bytes = f.cells * elem;
        // From one to one less than all; zero wraps to the largest number.
        let less = self.asm.int(Alu::Sub, Ty::U32, &[left.into(), Opnd::Int(1)]);
        let most = Opnd::Int(i64::from(f.cells) - 1);
        let part = self.asm.setp(Cmp::Lt, Ty::U32, less, most);
        let whole = self.asm.int(Alu::Not, Ty::Pred, &[part.into()]);
        let some = self.asm.setp(Cmp::Gt, Ty::S32, left, Opnd::Int(0));
        let size = self.asm.selp(Ty::B32, some, Opnd::Int(bytes.into()), Opnd::Int(0));
        let when = self.both(guard, Some(whole));
        let (to, from, src_bytes) = (dst.clone(), src.clone(), Some(size.into()));
        self.asm.maybe(when, |asm| {
            asm.emit(Inst::CpAsync { dst: to, src: from, bytes, src_bytes });
        });
        let past = self.asm.label();
        let when = self.both(guard, Some(part)).unwrap_or(part);
        self.asm.when(when, false, |asm| asm.emit(Inst::Bra { to: past, uniform: false }));
        for i in 0..i64::from(f.cells) {
            let at =
                |addr: &Addr| Addr { offset: addr.offset + i * i64::from(elem), ..addr.clone() };
            let inside = self.asm.setp(Cmp::Gt, Ty::S32, left, Opnd::Int(i));
            let (space, cache) = (Space::Global, Cache::Usual);
            let raw = self.load_words(space, dtype, at(&src), 1, Some(inside), cache);
            let raw: Vec<Opnd> = raw.into_iter().map(Opnd::Reg).collect();
            let (ty, _) = word_of(elem, 1);
            self.asm.st(Space::Shared, ty, &raw, at(&dst), Cache::Usual);
        }
        self.asm.place(past);
    }

    /// Queues a copy for each run: whole where it is inside, zeros where not.
    fn copy_whole(&mut self, f: &mut Filling, unless: Option<Reg>) {
        let runs = self.runs(f);
        let checked = !f.always.is_empty() || f.limits.iter().any(Option::is_some);
        if checked && f.fast.is_none() && runs.len() >= MANY {
            return self.copy_many(f, &runs);
        }
        let bytes = f.cells * f.view.dtype.bytes() as u32;
        let mut iteration = None;
        for first in runs {
            let guard = self.copies_run(f, first);
            self.hold(|me| {
                let iteration = iteration.get_or_insert_with(|| me.iteration(f));
                let places = me.coords(&f.layout, first);
                let inside = me.inside(f, iteration, &places, false);
                let (dst, src) = me.ends(f, iteration, &places, first);
                let src_bytes = inside
                    .map(|p| me.asm.selp(Ty::B32, p, Opnd::Int(bytes.into()), Opnd::Int(0)).into());
                let not = unless.map(|p| me.asm.int(Alu::Not, Ty::Pred, &[p.into()]));
                let guard = me.both(guard, not);
                me.asm.maybe(guard, |asm| asm.emit(Inst::CpAsync { dst, src, bytes, src_bytes }));
            });
        }
    }

    /// The same for many runs: no test per run where the whole block is inside, which is uniform
    /// over all threads. Where it is not, all runs are copied immediately.
    fn copy_many(&mut self, f: &mut Filling, runs: &[u32]) {
        let bytes = f.cells * f.view.dtype.bytes() as u32;
        let mut iteration: Option<(Iteration, Option<Reg>)> = None;
        let guards: Vec<_> = runs.iter().map(|&first| self.copies_run(f, first)).collect();
        for (&first, &guard) in runs.iter().zip(&guards) {
            self.hold(|me| {
                let (iteration, whole) = iteration.get_or_insert_with(|| {
                    let iteration = me.iteration(f);
                    let whole = me.is_whole(f, &iteration);
                    if let Some(whole) = whole {
                        me.copy_checked(f, whole, runs, &guards);
                    }
                    (iteration, whole)
                });
                let places = me.coords(&f.layout, first);
                let (dst, src) = me.ends(f, iteration, &places, first);
                let guard = me.both(guard, *whole);
                me.asm.maybe(guard, |asm| {
                    asm.emit(Inst::CpAsync { dst, src, bytes, src_bytes: None });
                });
            });
        }
    }

    /// All runs of a block that is partly outside.
    fn copy_checked(&mut self, f: &mut Filling, whole: Reg, runs: &[u32], guards: &[Option<Reg>]) {
        let bytes = f.cells * f.view.dtype.bytes() as u32;
        let past = self.asm.label();
        self.asm.when(whole, true, |asm| asm.emit(Inst::Bra { to: past, uniform: true }));
        let mut iteration = self.iteration(f);
        for (&first, &guard) in runs.iter().zip(guards) {
            let places = self.coords(&f.layout, first);
            let (dst, src) = self.ends(f, &mut iteration, &places, first);
            let src_bytes = self
                .inside(f, &iteration, &places, false)
                .map(|p| self.asm.selp(Ty::B32, p, Opnd::Int(bytes.into()), Opnd::Int(0)).into());
            self.asm.maybe(guard, |asm| {
                asm.emit(Inst::CpAsync { dst, src, bytes, src_bytes });
            });
        }
        self.asm.place(past);
    }

    /// Whether all of this iteration's block is inside; none where that is known.
    fn is_whole(&mut self, f: &Filling, iteration: &Iteration) -> Option<Reg> {
        let mut all = iteration.always;
        for (dim, limit) in iteration.limits.iter().enumerate() {
            let Some(limit) = limit else { continue };
            let n = Opnd::Int(f.field.layout.shape[dim].into());
            let ends = self.asm.setp(Cmp::Ge, Ty::U32, limit.end, n);
            all = self.both(all, Some(ends));
            if let Some(start) = limit.start {
                let begins = self.asm.setp(Cmp::Eq, Ty::U32, start, Opnd::Int(0));
                all = self.both(all, Some(begins));
            }
        }
        all
    }

    /// The first registers of all runs that are not padding.
    fn runs(&mut self, f: &Filling) -> Vec<u32> {
        let all = (0..f.layout.regs()).step_by(f.cells as usize);
        all.filter(|&r| self.valid(&f.layout, r) != Ok(false)).collect()
    }

    /// Which threads copy a run: of those that hold the same one, one.
    fn copies_run(&mut self, f: &Filling, first: u32) -> Option<Reg> {
        let valid = self.valid(&f.layout, first).err();
        let owner = self.owner(&f.layout);
        self.both(valid, owner)
    }

    /// Where a run is copied to, and where it comes from.
    fn ends(
        &mut self,
        f: &mut Filling,
        iteration: &mut Iteration,
        places: &[Coord],
        first: u32,
    ) -> (Addr, Addr) {
        let coords: Vec<_> = (0..f.axes.len()).map(|d| self.thread_coord(&f.layout, d)).collect();
        let offset = f.layout.reg_part(first);
        let dst = self.place_address(&coords, &f.field, &offset, &mut iteration.places);
        (dst, self.source(f, iteration, places))
    }

    /// Whether a position is inside along all dims that are checked; for a run that may be cut,
    /// whether it starts inside.
    fn inside(
        &mut self,
        f: &Filling,
        iteration: &Iteration,
        places: &[Coord],
        cut: bool,
    ) -> Option<Reg> {
        let mut all = iteration.always;
        for (dim, (place, limit)) in places.iter().zip(&iteration.limits).enumerate() {
            let Some(limit) = limit else { continue };
            let offset = Opnd::Int(place.offset.into());
            let mut test = |cmp: Cmp, than: Reg| match place.thread {
                None => self.asm.setp(cmp.swapped(), Ty::S32, than, offset),
                Some(t) if place.offset == 0 => self.asm.setp(cmp, Ty::S32, t, than),
                Some(t) => {
                    let than = self.asm.int(Alu::Sub, Ty::S32, &[than.into(), offset]);
                    self.asm.setp(cmp, Ty::S32, t, than)
                }
            };
            let below = (!cut || f.fast != Some(dim)).then(|| test(Cmp::Lt, limit.end));
            let above = limit.start.map(|start| test(Cmp::Ge, start));
            all = self.both(all, below);
            all = self.both(all, above);
        }
        all
    }

    /// Where a run is in global memory.
    fn source(&mut self, f: &mut Filling, iteration: &mut Iteration, places: &[Coord]) -> Addr {
        let bytes = f.view.dtype.bytes() as i64;
        let mut constant = 0;
        let mut far = vec![0; places.len()];
        for (dim, place) in places.iter().enumerate() {
            if neighbour_axis(f.view.class, f.view.rank) == Some(f.axes[dim]) {
                constant += i64::from(place.offset) * bytes;
            } else {
                far[dim] = place.offset;
            }
        }
        if let Some((_, r)) = iteration.rows.iter().find(|(known, _)| *known == far) {
            return Addr::reg(*r, constant);
        }
        // Computed from the row before, so that few addresses are live.
        let (from, base) =
            iteration.rows.last().cloned().unwrap_or((vec![0; far.len()], iteration.base));
        let mut r = base;
        for dim in (0..far.len()).filter(|&d| far[d] != from[d]) {
            let rows = i64::from(far[dim]) - i64::from(from[dim]);
            let key = (f.axes[dim], rows);
            let step = match f.steps.get(&key) {
                Some(&step) => step,
                None => {
                    let stride = self.copy_stride(&f.view, f.axes[dim]);
                    let step = self.before_loop(true, |me| {
                        me.asm.int(Alu::MulLo, Ty::S64, &[stride.into(), Opnd::Int(rows)])
                    });
                    f.steps.insert(key, step);
                    step
                }
            };
            r = self.add64(r, step);
        }
        iteration.rows.push((far, r));
        Addr::reg(r, constant)
    }
}

/// Lanes along the array's contiguous axis: the fewest that read whole sectors.
const ALONG: u32 = 8;

/// The layout of a transposing copy, element by element, from arrays that are contiguous along
/// `along` to memory that is contiguous along another dim. The other lanes of a warp go along the
/// memory's rows, which writes all banks where rows are 16 bytes longer than whole wavefronts.
pub fn transposing_layout(memory: &Shared, along: usize, warps: u32) -> Layout {
    let (shape, fast) = (&memory.shape, memory.order[0]);
    let mut room = shape.clone();
    let mut take = |dim: usize, most: u32| {
        let n = (1 << room[dim].trailing_zeros()).min(most);
        room[dim] /= n;
        n
    };
    let mut lanes = vec![1; shape.len()];
    lanes[along] = take(along, ALONG);
    lanes[fast] = take(fast, LANES / ALONG);
    let left = LANES / (lanes[fast] * lanes[along]);
    take(fast, left);
    lanes[fast] *= left;
    let mut over = vec![1; shape.len()];
    over[fast] = take(fast, warps);
    over[along] = take(along, warps / over[fast]);
    // The remaining threads hold copies, and copy nothing.
    over[fast] *= warps / (over[fast] * over[along]);
    let others = memory.order.iter().copied().filter(|&d| d != along);
    let order = [along].into_iter().chain(others).collect();
    let (vector, ctas) = (vec![1; shape.len()], vec![1; shape.len()]);
    Layout::blocked(shape, &Blocked { vector, lanes, warps: over, ctas, order })
}

impl Cmp {
    /// The same comparison with its operands swapped.
    fn swapped(self) -> Cmp {
        match self {
            Cmp::Lt => Cmp::Gt,
            Cmp::Le => Cmp::Ge,
            Cmp::Gt => Cmp::Lt,
            Cmp::Ge => Cmp::Le,
            other => other,
        }
    }
}
