//! The tile scheduler of persistent kernels: the loop over the tiles of a grid that this block
//! computes.
//!
//! Tile numbers are below 2^32. A number becomes coordinates by multiplication with reciprocals
//! that are computed once before the loop. With a dynamic schedule one role hands out the
//! coordinates (see `work_queue`). Where no role can, each block takes the tiles of the static
//! schedule: any assignment of tiles to blocks is correct.

use super::work_queue::QueueEnd;
use super::{Repr, Select};
use crate::inst::*;
use tessera_diag::Diagnostics;
use tessera_ir::OpId;
use tessera_staged::StagedOp;
use tessera_staged::ops::tiles::{Bands, LEAST_PAIRED, LEAST_SECTION, Order, order_of};

/// A divisor with its reciprocal.
#[derive(Copy, Clone)]
struct Divisor {
    by: Reg,
    /// (2^32 - 1) / by.
    inverse: Reg,
}

/// What the coordinates of a tile are computed from (the raster order).
pub struct Walk {
    order: Order,
    grid: Vec<Reg>,
    /// The divisors of the axes, by axis.
    axes: Vec<Option<Divisor>>,
    plane: Option<Divisor>,
    band: Option<Band>,
}

/// Bands of rows or columns.
struct Band {
    axis: usize,
    /// The extent of the grid along it.
    along: Reg,
    /// Tiles of a band, its extent along the axis, and the extent of the last band.
    size: Divisor,
    width: Divisor,
    last: Divisor,
}

impl Select<'_> {
    fn divisor(&mut self, by: Reg) -> Divisor {
        let some = self.asm.int(Alu::Max, Ty::U32, &[by.into(), Opnd::Int(1)]);
        let all = self.asm.mov(Ty::B32, Opnd::Int(0xffff_ffff));
        let inverse = self.asm.int(Alu::Div, Ty::U32, &[all.into(), some.into()]);
        Divisor { by: some, inverse }
    }

    fn known_divisor(&mut self, by: i64) -> Divisor {
        let [by, inverse] =
            [by, i64::from(u32::MAX) / by].map(|n| self.asm.mov(Ty::B32, Opnd::Int(n)));
        Divisor { by, inverse }
    }

    /// Quotient and remainder. The estimate is at most one below the quotient.
    fn divide(&mut self, n: Reg, d: Divisor) -> (Reg, Reg) {
        let asm = &mut self.asm;
        let q = asm.int(Alu::MulHi, Ty::U32, &[n.into(), d.inverse.into()]);
        let whole = asm.int(Alu::MulLo, Ty::U32, &[q.into(), d.by.into()]);
        let r = asm.int(Alu::Sub, Ty::U32, &[n.into(), whole.into()]);
        let short = asm.setp(Cmp::Ge, Ty::U32, r, d.by);
        let [q1, r1] = [
            asm.int(Alu::Add, Ty::U32, &[q.into(), Opnd::Int(1)]),
            asm.int(Alu::Sub, Ty::U32, &[r.into(), d.by.into()]),
        ];
        (asm.selp(Ty::B32, short, q1, q), asm.selp(Ty::B32, short, r1, r))
    }

    fn walk_of(&mut self, order: Order, grid: Vec<Reg>) -> Walk {
        let rank = grid.len();
        let mut axes = vec![None; rank];
        let mut out = Walk { order, grid: grid.clone(), axes: Vec::new(), plane: None, band: None };
        // The slowest axis takes what is left.
        let mut end = rank;
        let first = match order.band() {
            None => 1,
            Some(Bands { axis, width, sections }) => {
                let mut plane = [grid[0], grid[rank.min(2) - 1]];
                if sections {
                    let others = &grid[1..rank - 1];
                    let all = others.iter().fold(grid[0], |all, n| {
                        self.asm.int(Alu::MulLo, Ty::U32, &[all.into(), (*n).into()])
                    });
                    plane = [all, grid[rank - 1]];
                    end = rank - 1;
                } else if rank > 2 {
                    let [m, n] = plane;
                    let all = self.asm.int(Alu::MulLo, Ty::U32, &[m.into(), n.into()]);
                    out.plane = Some(self.divisor(all));
                }
                let group = width.min(i64::from(u32::MAX));
                let along = plane[axis];
                let across = plane[1 - axis];
                let width = match order.section.filter(|_| sections) {
                    None => self.known_divisor(group),
                    Some(tiles) => {
                        let tiles =
                            self.asm.mov(Ty::B32, Opnd::Int(tiles.min(i64::from(i32::MAX))));
                        let asm = &mut self.asm;
                        let last = asm.int(Alu::Max, Ty::U32, &[across.into(), Opnd::Int(1)]);
                        let fit = asm.int(Alu::Div, Ty::U32, &[tiles.into(), last.into()]);
                        let least = Opnd::Int(LEAST_SECTION);
                        let fit = asm.int(Alu::Max, Ty::U32, &[fit.into(), least]);
                        let fit = asm.int(Alu::Min, Ty::U32, &[fit.into(), Opnd::Int(group)]);
                        // That many sections, all of equal size.
                        let half = asm.int(Alu::Shr, Ty::U32, &[fit.into(), Opnd::Int(1)]);
                        let all = asm.int(Alu::Add, Ty::U32, &[along.into(), half.into()]);
                        let count = asm.int(Alu::Div, Ty::U32, &[all.into(), fit.into()]);
                        let count = asm.int(Alu::Max, Ty::U32, &[count.into(), Opnd::Int(1)]);
                        let less = asm.int(Alu::Sub, Ty::U32, &[count.into(), Opnd::Int(1)]);
                        let up = asm.int(Alu::Add, Ty::U32, &[along.into(), less.into()]);
                        let width = asm.int(Alu::Div, Ty::U32, &[up.into(), count.into()]);
                        self.divisor(width)
                    }
                };
                let by = width.by;
                let size = self.asm.int(Alu::MulLo, Ty::U32, &[across.into(), by.into()]);
                let (_, last) = self.divide(along, width);
                let [size, last] = [size, last].map(|by| self.divisor(by));
                out.band = Some(Band { axis, along, size, width, last });
                if sections { 1 } else { 3 }
            }
        };
        for (axis, d) in axes.iter_mut().enumerate().take(end).skip(first) {
            *d = Some(self.divisor(grid[axis]));
        }
        out.axes = axes;
        out
    }

    /// As `Order::coordinates` defines it.
    fn coordinates(&mut self, walk: &Walk, number: Reg) -> Vec<Reg> {
        let rank = walk.grid.len();
        let mut at = vec![number; rank];
        let mut slow = number;
        let mut axes = 0..rank;
        if let Some(band) = &walk.band {
            let sections = walk.order.band().is_some_and(|b| b.sections);
            let mut rest = number;
            if let Some(plane) = walk.plane {
                (slow, rest) = self.divide(number, plane);
            }
            let (nth, inside) = self.divide(rest, band.size);
            let begin = self.asm.int(Alu::MulLo, Ty::U32, &[nth.into(), band.width.by.into()]);
            let left = self.asm.int(Alu::Sub, Ty::U32, &[band.along.into(), begin.into()]);
            let whole = self.asm.setp(Cmp::Ge, Ty::U32, left, band.width.by);
            let pick = |me: &mut Self, a: Reg, b: Reg| me.asm.selp(Ty::B32, whole, a, b);
            let by = pick(self, band.width.by, band.last.by);
            let inverse = pick(self, band.width.inverse, band.last.inverse);
            let (other, along) = self.divide(inside, Divisor { by, inverse });
            let place = self.asm.int(Alu::Add, Ty::U32, &[begin.into(), along.into()]);
            if sections {
                at[rank - 1] = other;
                slow = place;
                axes = 0..rank - 1;
            } else {
                at[band.axis] = place;
                at[1 - band.axis] = other;
                axes = 2..rank;
            }
        }
        let first = axes.start;
        for axis in axes.rev() {
            match walk.axes[axis] {
                Some(d) if axis > first => {
                    let (q, r) = self.divide(slow, d);
                    at[axis] = r;
                    slow = q;
                }
                _ => at[axis] = slow,
            }
        }
        if walk.order.folded {
            at[rank - 1] = self.folded(at[rank - 1], walk.grid[rank - 1]);
        }
        if let Some(axis) = walk.order.reversed(rank) {
            at[axis] = self.behind(at[axis], walk.grid[axis]);
        }
        at
    }

    fn behind(&mut self, at: Reg, of: Reg) -> Reg {
        let last = self.asm.int(Alu::Sub, Ty::U32, &[of.into(), Opnd::Int(1)]);
        self.asm.int(Alu::Sub, Ty::U32, &[last.into(), at.into()])
    }

    /// Even positions from the end on, odd ones from the start.
    fn folded(&mut self, at: Reg, of: Reg) -> Reg {
        let half = self.asm.int(Alu::Shr, Ty::U32, &[at.into(), Opnd::Int(1)]);
        let odd = self.asm.int(Alu::And, Ty::B32, &[at.into(), Opnd::Int(1)]);
        let odd = self.asm.setp(Cmp::Ne, Ty::U32, odd, Opnd::Int(0));
        let late = self.behind(half, of);
        self.asm.selp(Ty::B32, odd, half, late)
    }

    /// Where pairs of consecutive tiles are taken, changes the first number, and the step to the
    /// second of a pair; returns the step to the next pair, which alternates with it.
    fn pairs(&mut self, order: Order, total: Reg, number: &mut Reg, step: &mut Reg) -> Option<Reg> {
        if !order.pairs || self.instance.by_tiles {
            return None;
        }
        let asm = &mut self.asm;
        let least = asm.int(Alu::MulLo, Ty::U32, &[(*step).into(), Opnd::Int(LEAST_PAIRED)]);
        let enough = asm.setp(Cmp::Ge, Ty::U32, total, least);
        let [first, both] =
            [*number, *step].map(|r| asm.int(Alu::Add, Ty::U32, &[r.into(), r.into()]));
        let on = asm.int(Alu::Sub, Ty::U32, &[both.into(), Opnd::Int(1)]);
        let one = asm.mov(Ty::B32, Opnd::Int(1));
        let [first, near, far] =
            [(first, *number), (one, *step), (on, *step)].map(|(paired, alone)| {
                let r = asm.selp(Ty::B32, enough, paired, alone);
                asm.mov(Ty::B32, r)
            });
        (*number, *step) = (first, near);
        Some(far)
    }

    /// The grid of a loop in clusters.
    fn grid_of(&mut self, id: OpId) -> Vec<Reg> {
        let values = self.func.ops[id].group("grid").to_vec();
        let mut grid = Vec::new();
        for v in values {
            let n = self.scalar(v);
            let n = self.asm.int(Alu::Max, Ty::S64, &[n.into(), Opnd::Int(0)]);
            grid.push(self.asm.cvt(Ty::U32, Ty::U64, None, n));
        }
        self.in_teams(grid)
    }

    /// The one tile of each block: there are as many blocks as tiles. Computed once for all roles,
    /// before they synchronise.
    pub fn place_once(&mut self) -> Result<(), Diagnostics> {
        let func = self.func;
        let tiles = func.walk().into_iter().find(|&id| func.ops[id].code == StagedOp::Tiles);
        let Some(id) = tiles else { return Ok(()) };
        let order = order_of(func, id).or_else(|why| self.unsupported(id, why))?;
        if order.once {
            let at = self.only_tile(id, order);
            self.once = Some((func.ops[id].group("grid").to_vec(), at));
        }
        Ok(())
    }

    fn only_tile(&mut self, id: OpId, order: Order) -> Vec<Reg> {
        let grid = self.grid_of(id);
        let mut number = self.block_id();
        let together = self.asm.kernel.cluster;
        if together > 1 {
            let by = Opnd::Int(together.trailing_zeros().into());
            number = self.asm.int(Alu::Shr, Ty::U32, &[number.into(), by]);
        }
        let at = match order.band() {
            Some(_) => {
                let walk = self.walk_of(order, grid);
                self.coordinates(&walk, number)
            }
            None => {
                let mut at = vec![number; grid.len()];
                for axis in (1..grid.len()).rev() {
                    let by = self.asm.int(Alu::Max, Ty::U32, &[grid[axis].into(), Opnd::Int(1)]);
                    let q = self.asm.int(Alu::Div, Ty::U32, &[number.into(), by.into()]);
                    let whole = self.asm.int(Alu::MulLo, Ty::U32, &[q.into(), by.into()]);
                    at[axis] = self.asm.int(Alu::Sub, Ty::U32, &[number.into(), whole.into()]);
                    number = q;
                }
                at[0] = number;
                if order.longest_first {
                    let last = self.asm.int(Alu::Sub, Ty::U32, &[grid[0].into(), Opnd::Int(1)]);
                    at[0] = self.asm.int(Alu::Sub, Ty::U32, &[last.into(), number.into()]);
                }
                at
            }
        };
        let at = self.in_team(at);
        at.into_iter().map(|at| self.asm.cvt(Ty::U64, Ty::U32, None, at)).collect()
    }

    /// The body for the one tile of this block.
    fn tiles_once(&mut self, id: OpId, order: Order) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        if self.instance.by_tiles {
            return self.unsupported(
                id,
                "expected no replicas that divide tiles, of which a block has one",
            );
        }
        let known = self.once.clone().filter(|(grid, _)| grid == op.group("grid"));
        let at = match known {
            Some((_, at)) => at,
            None => self.only_tile(id, order),
        };
        let body = op.regions[0];
        let args = func.blocks[body].args.clone();
        let (axes, carried) = args.split_at(op.group("grid").len());
        for (&v, at) in axes.iter().zip(at) {
            self.set(v, Repr::Scalar(at));
        }
        for (&arg, &init) in carried.iter().zip(op.group("init")) {
            let repr = self.repr(init).clone();
            self.set(arg, repr);
        }
        self.block(body)?;
        for (&v, repr) in op.results.iter().zip(self.yielded(body)) {
            let repr = self.repr(repr).clone();
            self.set(v, repr);
        }
        Ok(())
    }

    pub fn tiles(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let order = order_of(func, id).or_else(|why| self.unsupported(id, why))?;
        if order.once {
            return self.tiles_once(id, order);
        }
        let grid = self.grid_of(id);
        let total = grid[1..]
            .iter()
            .fold(grid[0], |all, n| self.asm.int(Alu::MulLo, Ty::U32, &[all.into(), (*n).into()]));
        let handed = self.handed_out(order);
        // A reader of the work queue needs nothing to compute coordinates.
        let walk = (handed != Some(QueueEnd::Takes)).then(|| self.walk_of(order, grid));
        let together = self.asm.kernel.cluster;
        let by = Opnd::Int(together.trailing_zeros().into());
        let [mut number, mut step] = [self.block_id(), self.block_count()];
        if together > 1 {
            [number, step] =
                [number, step].map(|r| self.asm.int(Alu::Shr, Ty::U32, &[r.into(), by]));
        }
        if self.instance.by_tiles {
            // Replicas take tiles in turn: each starts at its own and skips those of the others.
            let before = Opnd::Int(self.instance.replica.into());
            number = self.asm.int(Alu::MadLo, Ty::U32, &[step.into(), before, number.into()]);
            let all = Opnd::Int(self.instance.replicas.into());
            step = self.asm.int(Alu::MulLo, Ty::U32, &[step.into(), all]);
        }
        let far = match handed {
            Some(_) => None,
            None => self.pairs(order, total, &mut number, &mut step),
        };
        let number = self.asm.mov(Ty::B32, number);
        let work_queue = handed.map(|hand| (hand, self.first_entry()));

        let body = op.regions[0];
        let args = func.blocks[body].args.clone();
        let (axes, carried_args) = args.split_at(op.group("grid").len());
        let as_words: Vec<bool> =
            (0..carried_args.len()).map(|i| self.goes_around_as_words(id, i)).collect();
        let carried = self.carry_as(carried_args, op.group("init"), &as_words);
        for (&v, carried) in carried_args.iter().zip(&carried) {
            self.bind_carried(v, carried);
        }
        let [again, done] = [self.asm.label(), self.asm.label()];
        let uniform = !self.instance.one_thread;
        let to_end = |me: &mut Self, more: Reg| {
            me.asm.when(more, false, |asm| asm.emit(Inst::Bra { to: done, uniform }));
        };
        if work_queue.is_none() {
            let more = self.asm.setp(Cmp::Lt, Ty::U32, number, total);
            to_end(self, more);
        }
        let before = self.sync_state();
        self.enter_loop(&[body]);
        self.begin_iterations(&[body]);
        self.begin_group();
        self.open_loop(body);
        self.asm.place(again);
        let found = walk.as_ref().map(|walk| self.coordinates(walk, number));
        let at = match (&work_queue, found) {
            (Some((QueueEnd::Gives, next)), Some(at)) => {
                let more = self.asm.setp(Cmp::Lt, Ty::U32, number, total);
                self.push_tile(next, &at, more);
                to_end(self, more);
                at
            }
            (Some((_, next)), _) => {
                let (at, more) = self.pop_tile(next, axes.len());
                to_end(self, more);
                at
            }
            (None, at) => at.unwrap_or_default(),
        };
        for (&v, at) in axes.iter().zip(self.in_team(at)) {
            let at = self.asm.cvt(Ty::U64, Ty::U32, None, at);
            self.set(v, Repr::Scalar(at));
        }
        self.block(body)?;
        let next = self.yielded(body);
        self.carry_on(&carried, &next);
        self.end_iteration();
        match handed {
            Some(hand) => {
                if hand == QueueEnd::Gives {
                    self.draw_tile(number, total, step);
                }
                self.asm.emit(Inst::Bra { to: again, uniform });
            }
            None => {
                let stepped = self.asm.int(Alu::Add, Ty::U32, &[number.into(), step.into()]);
                self.asm.mov_to(Ty::B32, number, stepped);
                if let Some(far) = far {
                    let near = self.asm.mov(Ty::B32, step);
                    self.asm.mov_to(Ty::B32, step, far);
                    self.asm.mov_to(Ty::B32, far, near);
                }
                let more = self.asm.setp(Cmp::Lt, Ty::U32, number, total);
                self.asm.when(more, true, |asm| asm.emit(Inst::Bra { to: again, uniform }));
            }
        }
        self.close_loop();
        self.end_iterations();
        self.asm.place(done);
        self.leave_loop();
        // There may have been no tile at all.
        self.join_sync_state(before);
        for (&v, carried) in op.results.iter().zip(&carried) {
            self.bind_carried(v, carried);
        }
        Ok(())
    }
}
