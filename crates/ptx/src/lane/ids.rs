//! Which lanes a thread has, and the code around the body that follows from it.

use super::survey::Share;
use super::value::{Facts, LANE_BITS, MOST, Steps};
use super::{Lanes, Repr};
use crate::caps::MAX_THREADS;
use crate::code::Shape;
use crate::inst::*;
use crate::module::Guard;
use tessera_diag::{Code as ErrorCode, Diagnostic, Diagnostics};
use tessera_target::frame;
use tessera_tile::{lane_axes, lane_extents};

/// The lane's index in the launch, and in its group.
pub struct Ids {
    pub linear: Repr,
    pub local: Repr,
    /// The number of lanes of the group that exist, or of numbers where those are not the first;
    /// none where it is not used.
    pub present: Option<Reg>,
    /// Where lanes have several.
    pub axes: Vec<Axis>,
}

/// Along one axis of the lanes, as 64-bit integers.
pub struct Axis {
    pub linear: Reg,
    pub local: Reg,
    /// The group's coordinate, and how many of its lanes exist.
    pub group: Reg,
    pub count: Reg,
    /// The lanes of a full group.
    pub extent: i64,
}

impl Default for Ids {
    fn default() -> Self {
        Self { linear: Repr::None, local: Repr::None, present: None, axes: Vec::new() }
    }
}

/// Threads of a block where groups do not matter: enough that blocks are started as fast as memory
/// can be moved.
fn flat_threads(width: usize) -> u32 {
    if width > 1 { 128 } else { 256 }
}

fn whole_warps(threads: i64) -> u32 {
    (threads.clamp(1, MAX_THREADS.into()) as u32).next_multiple_of(32)
}

impl Lanes<'_> {
    fn wide(&mut self, r: Reg) -> Reg {
        self.asm.cvt(Ty::U64, Ty::U32, None, r)
    }

    /// The group's number.
    pub fn group_number(&mut self) -> Reg {
        let block = self.special(Special::CtaidX);
        self.wide(block)
    }

    /// The index of the group's first lane.
    fn group_base(&mut self) -> Reg {
        let (number, size) = (self.group_number(), self.word(frame::LANES));
        self.asm.int(Alu::MulLo, Ty::S64, &[number.into(), size.into()])
    }

    /// One block per group and one thread per lane. Threads without a lane follow the control flow
    /// of the group.
    pub fn in_groups(&mut self, lanes: i64) -> Result<Shape, Diagnostics> {
        if lanes > MAX_THREADS.into() {
            let why = format!(
                "expected at most {MAX_THREADS} lanes in a group whose lanes synchronise, got {lanes}"
            );
            return Err(Diagnostic::new(ErrorCode::E_UNSUPPORTED, why)
                .at(self.func.loc.clone())
                .into());
        }
        self.asm.kernel.threads = whole_warps(lanes);
        self.lay_out_shared();
        if lane_axes(self.func) > 1 {
            return self.in_groups_of_rows();
        }
        let tid = self.special(Special::TidX);
        let (local, base) = (self.wide(tid), self.group_base());
        let (domain, size) = (self.word(frame::DOMAIN), self.word(frame::LANES));
        let linear = self.add64(base, local);
        // A group without lanes has no effects.
        let none = self.asm.setp(Cmp::Ge, Ty::S64, base, domain);
        self.asm.when(none, true, |asm| asm.emit(Inst::Ret));
        let left = self.asm.int(Alu::Sub, Ty::S64, &[domain.into(), base.into()]);
        let present = self.asm.int(Alu::Min, Ty::S64, &[left.into(), size.into()]);
        let here = self.asm.setp(Cmp::Lt, Ty::S64, local, present);
        self.ids = Ids {
            linear: Repr::One(linear),
            local: Repr::One(local),
            present: Some(present),
            axes: Vec::new(),
        };
        self.clear_shared();
        self.begin(1);
        self.guard = Some(vec![here]);
        self.block(self.func.body)?;
        Ok(Shape::Lanes { per_thread: 1, flat: false })
    }

    /// The same for lanes of several axes: those that exist need not be the first threads.
    fn in_groups_of_rows(&mut self) -> Result<Shape, Diagnostics> {
        let tid = self.special(Special::TidX);
        let (local, size) = (self.wide(tid), self.word(frame::LANES));
        let (axes, exists) = self.axes_of(tid);
        // A group without lanes has no effects.
        for axis in &axes {
            let none = self.asm.setp(Cmp::Le, Ty::S64, axis.count, Opnd::Int(0));
            self.asm.when(none, true, |asm| asm.emit(Inst::Ret));
        }
        let inside = self.asm.setp(Cmp::Lt, Ty::S64, local, size);
        let here = self.and(inside, exists);
        self.ids = Ids { linear: Repr::None, local: Repr::One(local), present: Some(size), axes };
        self.clear_shared();
        self.begin(1);
        self.guard = Some(vec![here]);
        self.block(self.func.body)?;
        Ok(Shape::Lanes { per_thread: 1, flat: false })
    }

    /// The place of the lane with a number in its group, 32 bits, along each axis; and whether it
    /// exists. The last axis counts fastest, of lanes and of groups.
    fn axes_of(&mut self, number: Reg) -> (Vec<Axis>, Reg) {
        let extents = lane_extents(self.func);
        let (mut lane, mut group) = (number, self.special(Special::CtaidX));
        let (mut axes, mut exists) = (Vec::new(), None);
        for (axis, &extent) in extents.iter().enumerate().rev() {
            let (mut own, mut at) = (lane, group);
            if axis > 0 {
                let grid = self.word(frame::GRID + axis);
                let grid = self.asm.cvt(Ty::U32, Ty::U64, None, grid);
                at = self.asm.int(Alu::Rem, Ty::U32, &[group.into(), grid.into()]);
                group = self.asm.int(Alu::Div, Ty::U32, &[group.into(), grid.into()]);
                (lane, own) = self.by_constant(lane, extent);
            }
            let (local, group) = (self.wide(own), self.wide(at));
            let base = self.asm.int(Alu::MulWide, Ty::U32, &[at.into(), Opnd::Int(extent)]);
            let linear = self.add64(base, local);
            let domain = self.word(self.frame.domain(axis));
            let left = self.asm.int(Alu::Sub, Ty::S64, &[domain.into(), base.into()]);
            let count = self.asm.int(Alu::Min, Ty::S64, &[left.into(), Opnd::Int(extent)]);
            let here = self.asm.setp(Cmp::Lt, Ty::S64, linear, domain);
            exists = Some(exists.map_or(here, |e| self.and(e, here)));
            axes.push(Axis { linear, local, group, count, extent });
        }
        axes.reverse();
        let Some(exists) = exists else { unreachable!("lanes have an axis") };
        (axes, exists)
    }

    /// Quotient and remainder by a number that is known.
    fn by_constant(&mut self, x: Reg, by: i64) -> (Reg, Reg) {
        let by = Opnd::Int(by);
        let quotient = self.asm.int(Alu::Div, Ty::U32, &[x.into(), by]);
        (quotient, self.asm.int(Alu::Rem, Ty::U32, &[x.into(), by]))
    }

    /// Whether the lane with a number of 64 bits exists; it is below those of a full group.
    pub fn is_in_rows(&mut self, number: Reg) -> Option<Reg> {
        if self.ids.axes.is_empty() {
            return None;
        }
        let rows: Vec<(i64, Reg)> = self.ids.axes.iter().map(|a| (a.extent, a.count)).collect();
        let mut rest = self.asm.cvt(Ty::U32, Ty::U64, None, number);
        let mut there = None;
        for (axis, (extent, count)) in rows.into_iter().enumerate().rev() {
            let mut own = rest;
            if axis > 0 {
                (rest, own) = self.by_constant(rest, extent);
            }
            let own = self.wide(own);
            let here = self.asm.setp(Cmp::Lt, Ty::S64, own, count);
            there = self.both(there, Some(here));
        }
        there
    }

    /// Lanes that never synchronise.
    pub fn apart(&mut self, lanes: i64, share: Share) -> Result<Shape, Diagnostics> {
        let flat = self.uniform.flat;
        let width = share.width as i64;
        let threads = match flat {
            true => flat_threads(share.width),
            false => whole_warps((lanes + width - 1) / width),
        };
        self.asm.kernel.threads = threads;
        let per_thread = match flat {
            true => share.width as u32,
            false => (lanes as u64).div_ceil(threads.into()) as u32,
        };
        if share.width > 1 && per_thread <= share.width as u32 {
            let slow = self.asm.label();
            self.all_lanes(share, slow)?;
            self.asm.emit(Inst::Ret);
            self.asm.place(slow);
            self.one_by_one(share.width as u32)?;
            return Ok(Shape::Lanes { per_thread: share.width as u32, flat });
        }
        self.one_by_one(per_thread)?;
        Ok(Shape::Lanes { per_thread, flat })
    }

    /// The offset of the thread's first lane among those of its block.
    fn first_of_block(&mut self, width: u32, apart: i64) -> Reg {
        let tid = self.special(Special::TidX);
        let by = Opnd::Int(width.into());
        if width == 1 {
            return tid;
        }
        if apart == 1 {
            return self.asm.int(Alu::MulLo, Ty::U32, &[tid.into(), by]);
        }
        // The start of the warp, and the thread's place in it.
        let warp = self.asm.int(Alu::And, Ty::B32, &[tid.into(), Opnd::Int(-32)]);
        let lane = self.asm.int(Alu::And, Ty::B32, &[tid.into(), Opnd::Int(31)]);
        self.asm.int(Alu::MadLo, Ty::U32, &[warp.into(), by, lane.into()])
    }

    /// The index of the block's first lane; `width` lanes for each thread where groups do not
    /// matter.
    fn block_base(&mut self, width: u32) -> Reg {
        if !self.uniform.flat {
            return self.group_base();
        }
        let block = self.special(Special::CtaidX);
        let per_block = i64::from(self.asm.kernel.threads) * i64::from(width);
        self.asm.int(Alu::MulWide, Ty::U32, &[block.into(), Opnd::Int(per_block)])
    }

    /// Sets `linear` and `local` to the lanes that a thread runs together.
    pub fn place_wide(&mut self, share: Share) {
        let width = share.width as u32;
        let local = self.first_of_block(width, share.apart);
        let (local, base) = (self.wide(local), self.block_base(width));
        let first = self.add64(base, local);
        let steps = |first: Reg, align: u32| {
            let align = if share.apart == 1 { align.min(MOST) } else { 1 };
            let facts = Facts { align, exact: false, low: true, bits: LANE_BITS };
            Repr::Steps(Steps { first, step: share.apart, facts })
        };
        self.ids = match self.uniform.flat {
            true => Ids {
                linear: steps(first, width),
                local: Repr::None,
                present: None,
                axes: Vec::new(),
            },
            // The alignment of group starts is known once groups have their size.
            false => Ids {
                linear: steps(first, 1),
                local: steps(local, width),
                present: None,
                axes: Vec::new(),
            },
        };
    }

    /// All lanes of a thread together, if the checks hold for the whole warp; else branches to
    /// `slow`.
    fn all_lanes(&mut self, share: Share, slow: Label) -> Result<(), Diagnostics> {
        self.width = share.width;
        self.place_wide(share);
        for (place, size) in
            [(self.ids.linear.clone(), frame::DOMAIN), (self.ids.local.clone(), frame::LANES)]
        {
            if let Repr::Steps(s) = place {
                let (last, size) = (self.end(s, true), self.word(size));
                let there = self.asm.setp(Cmp::Lt, Ty::S64, last, size);
                self.require(there);
            }
        }
        self.survey_all(share.width)?;
        let Some(good) = self.requirements() else { unreachable!("lanes are required to exist") };
        // The branch is warp-uniform, so that the other path can take lanes in turn.
        let all = self.asm.reg(Class::Pred);
        let p = Guard { reg: good, negated: false };
        self.asm.emit(Inst::Vote { kind: Vote::All, d: all, p, mask: Opnd::Int(-1) });
        self.asm.when(all, false, |asm| asm.emit(Inst::Bra { to: slow, uniform: true }));
        self.converged = true;
        self.block(self.func.body)
    }

    /// The warp takes 32 neighbouring lanes at a time, `rounds` times.
    fn one_by_one(&mut self, rounds: u32) -> Result<(), Diagnostics> {
        let start = self.first_of_block(rounds, 32);
        let start = self.wide(start);
        let base = (lane_axes(self.func) == 1).then(|| self.block_base(rounds));
        let [again, next] = [self.asm.label(), self.asm.label()];
        let round = self.asm.mov(Ty::B32, Opnd::Int(0));
        let local = self.asm.mov(Ty::B64, start);
        if rounds > 1 {
            self.asm.place(again);
        }
        let mut ids = Ids { local: Repr::One(local), ..Ids::default() };
        let mut here = match base {
            Some(base) => {
                let linear = self.add64(base, local);
                ids.linear = Repr::One(linear);
                let domain = self.word(frame::DOMAIN);
                self.asm.setp(Cmp::Lt, Ty::S64, linear, domain)
            }
            None => {
                let number = self.asm.cvt(Ty::U32, Ty::U64, None, local);
                let exists;
                (ids.axes, exists) = self.axes_of(number);
                exists
            }
        };
        if !self.uniform.flat {
            let size = self.word(frame::LANES);
            let inside = self.asm.setp(Cmp::Lt, Ty::S64, local, size);
            here = self.and(here, inside);
        }
        self.asm.bra_if(here, false, next);
        self.ids = ids;
        self.begin(1);
        self.survey = Default::default();
        self.block(self.func.body)?;
        self.asm.place(next);
        if rounds > 1 {
            let far = self.add64(local, Opnd::Int(32));
            self.asm.mov_to(Ty::B64, local, far);
            let more = self.asm.int(Alu::Add, Ty::U32, &[round.into(), Opnd::Int(1)]);
            self.asm.mov_to(Ty::B32, round, more);
            let more = self.asm.setp(Cmp::Lt, Ty::U32, round, Opnd::Int(rounds.into()));
            self.asm.bra_if(more, true, again);
        }
        Ok(())
    }
}
