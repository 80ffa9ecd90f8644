//! The persistent loop: the tiles of a grid that fall to this block, one after another.
//!
//! Numbers of tiles are below 2^32. A number becomes coordinates by multiplication with reciprocals
//! that are found once before the loop. Where whoever is free may take the next tile, each block takes
//! those it would take by its number: any way of sharing them out is right.

use super::{Repr, Select};
use crate::inst::*;
use tessera_diag::Diagnostics;
use tessera_ir::OpId;
use tessera_staged::ops::tiles::{LEAST_PAIRED, Order, order_of};

/// A number to divide by, with its reciprocal.
#[derive(Copy, Clone)]
struct Divisor {
    by: Reg,
    /// (2^32 - 1) / by.
    inverse: Reg,
}

/// What the coordinates of a tile are computed from.
struct Walk {
    order: Order,
    grid: Vec<Reg>,
    /// Of the axes along which numbers are divided, by axis.
    axes: Vec<Option<Divisor>>,
    plane: Option<Divisor>,
    band: Option<Band>,
}

/// Groups of rows or columns that are walked together.
struct Band {
    axis: usize,
    /// All tiles of a band, how many it has along the axis, and how many the last one has.
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

    /// Quotient and remainder. The product is at most one below the quotient.
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
        let first = match order.band() {
            None => 1,
            Some((axis, group)) => {
                if rank > 2 {
                    let plane =
                        self.asm.int(Alu::MulLo, Ty::U32, &[grid[0].into(), grid[1].into()]);
                    out.plane = Some(self.divisor(plane));
                }
                let group = group.min(i64::from(u32::MAX));
                let size =
                    self.asm.int(Alu::MulLo, Ty::U32, &[grid[1 - axis].into(), Opnd::Int(group)]);
                let width = self.known_divisor(group);
                let (_, last) = self.divide(grid[axis], width);
                let [size, last] = [size, last].map(|by| self.divisor(by));
                out.band = Some(Band { axis, size, width, last });
                3
            }
        };
        for (axis, d) in axes.iter_mut().enumerate().skip(first) {
            *d = Some(self.divisor(grid[axis]));
        }
        out.axes = axes;
        out
    }

    /// As `Order::coordinates` says.
    fn coordinates(&mut self, walk: &Walk, number: Reg) -> Vec<Reg> {
        let rank = walk.grid.len();
        let mut at = vec![number; rank];
        let mut slow = number;
        let first = match &walk.band {
            None => 0,
            Some(band) => {
                let mut rest = number;
                if let Some(plane) = walk.plane {
                    (slow, rest) = self.divide(number, plane);
                }
                let (nth, inside) = self.divide(rest, band.size);
                let begin = self.asm.int(Alu::MulLo, Ty::U32, &[nth.into(), band.width.by.into()]);
                let left =
                    self.asm.int(Alu::Sub, Ty::U32, &[walk.grid[band.axis].into(), begin.into()]);
                let whole = self.asm.setp(Cmp::Ge, Ty::U32, left, band.width.by);
                let pick = |me: &mut Self, a: Reg, b: Reg| me.asm.selp(Ty::B32, whole, a, b);
                let by = pick(self, band.width.by, band.last.by);
                let inverse = pick(self, band.width.inverse, band.last.inverse);
                let (other, along) = self.divide(inside, Divisor { by, inverse });
                at[band.axis] = self.asm.int(Alu::Add, Ty::U32, &[begin.into(), along.into()]);
                at[1 - band.axis] = other;
                2
            }
        };
        for axis in (first..rank).rev() {
            match walk.axes[axis] {
                Some(d) if axis > first => {
                    let (q, r) = self.divide(slow, d);
                    at[axis] = r;
                    slow = q;
                }
                _ => at[axis] = slow,
            }
        }
        if walk.order.longest_first {
            let last = self.asm.int(Alu::Sub, Ty::U32, &[walk.grid[0].into(), Opnd::Int(1)]);
            at[0] = self.asm.int(Alu::Sub, Ty::U32, &[last.into(), at[0].into()]);
        }
        at
    }

    /// Where two tiles in a row are taken, changes the first number and the step to the second one; gives
    /// the step to the next two, which takes turns with it.
    fn pairs(&mut self, order: Order, total: Reg, number: &mut Reg, step: &mut Reg) -> Option<Reg> {
        if !order.pairs || self.crew.by_tiles {
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

    pub fn tiles(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let order = order_of(func, id).or_else(|why| self.unsupported(id, why))?;
        let grid: Vec<Reg> = op
            .group("grid")
            .to_vec()
            .iter()
            .map(|&v| {
                let n = self.scalar(v);
                let n = self.asm.int(Alu::Max, Ty::S64, &[n.into(), Opnd::Int(0)]);
                self.asm.cvt(Ty::U32, Ty::U64, None, n)
            })
            .collect();
        let grid = self.in_teams(grid);
        let total = grid[1..]
            .iter()
            .fold(grid[0], |all, n| self.asm.int(Alu::MulLo, Ty::U32, &[all.into(), (*n).into()]));
        let walk = self.walk_of(order, grid);
        let together = self.asm.kernel.cluster;
        let by = Opnd::Int(together.trailing_zeros().into());
        let [mut number, mut step] = [self.block_id(), self.block_count()];
        if together > 1 {
            [number, step] =
                [number, step].map(|r| self.asm.int(Alu::Shr, Ty::U32, &[r.into(), by]));
        }
        if self.crew.by_tiles {
            // Replicas take turns: each begins at its own and leaves out those of the others.
            let before = Opnd::Int(self.crew.replica.into());
            number = self.asm.int(Alu::MadLo, Ty::U32, &[step.into(), before, number.into()]);
            let all = Opnd::Int(self.crew.replicas.into());
            step = self.asm.int(Alu::MulLo, Ty::U32, &[step.into(), all]);
        }
        let far = self.pairs(order, total, &mut number, &mut step);
        let number = self.asm.mov(Ty::B32, number);

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
        let none = self.asm.setp(Cmp::Ge, Ty::U32, number, total);
        let uniform = !self.crew.one_thread;
        self.asm.when(none, true, |asm| asm.emit(Inst::Bra { to: done, uniform }));
        let before = self.sync_state();
        self.enter_loop(&[body]);
        self.begin_turns(&[body]);
        self.begin_group();
        self.open_loop(body);
        self.asm.place(again);
        let at = self.coordinates(&walk, number);
        for (&v, at) in axes.iter().zip(self.in_team(at)) {
            let at = self.asm.cvt(Ty::U64, Ty::U32, None, at);
            self.set(v, Repr::Scalar(at));
        }
        self.block(body)?;
        let next = self.yielded(body);
        self.carry_on(&carried, &next);
        self.end_turn();
        let stepped = self.asm.int(Alu::Add, Ty::U32, &[number.into(), step.into()]);
        self.asm.mov_to(Ty::B32, number, stepped);
        if let Some(far) = far {
            let near = self.asm.mov(Ty::B32, step);
            self.asm.mov_to(Ty::B32, step, far);
            self.asm.mov_to(Ty::B32, far, near);
        }
        let more = self.asm.setp(Cmp::Lt, Ty::U32, number, total);
        self.asm.when(more, true, |asm| asm.emit(Inst::Bra { to: again, uniform }));
        self.close_loop();
        self.end_turns();
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
