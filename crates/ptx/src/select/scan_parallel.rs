//! Parallel scans by all threads: within a thread, across the lanes that hold a row, across warps.
//! For operations that may be combined in any order: integers and extremes always, sums of floats
//! where the profile leaves the order open.

use super::{Repr, Select};
use crate::inst::*;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::OpId;
use tessera_layout::Layout;
use tessera_numerics::DType;

/// How the threads of a block divide a tile for a scan: along the axis a thread holds contiguous
/// elements, lanes hold adjacent runs, and warps hold runs of those.
struct Division {
    layout: Arc<Layout>,
    /// Bits of the lane and warp index along the axis: the lowest of each.
    lanes: u32,
    warps: u32,
}

impl Division {
    fn of(shape: &[u32], axis: usize, warps: u32) -> Option<Division> {
        let bits = |n: u32| n.next_power_of_two().trailing_zeros();
        let mut left: Vec<u32> = shape.iter().map(|&n| bits(n)).collect();
        let mut taken = vec![0; shape.len()];
        let total: u32 = left.iter().sum();
        let warp_bits = warps.trailing_zeros();
        let in_thread = total.saturating_sub(5 + warp_bits);
        let mut take = |dim: usize| {
            left[dim] = left[dim].checked_sub(1)?;
            let mut base = vec![0; shape.len()];
            base[dim] = 1 << taken[dim];
            taken[dim] += 1;
            Some(base)
        };
        // The axis first: a thread then scans alone. Then the last dims, which are contiguous.
        let order: Vec<usize> =
            [axis].into_iter().chain((0..shape.len()).rev().filter(|&d| d != axis)).collect();
        let mut next = || order.iter().find_map(|&dim| Some((dim, take(dim)?)));
        let mut all: [Vec<Vec<u32>>; 3] = Default::default();
        let mut along = [0; 3];
        for (place, count) in [in_thread, 5, warp_bits].into_iter().enumerate() {
            for _ in 0..count {
                match next() {
                    Some((dim, base)) => {
                        along[place] += u32::from(dim == axis);
                        all[place].push(base);
                    }
                    // Remaining threads hold copies.
                    None => all[place].push(vec![0; shape.len()]),
                }
            }
        }
        let [reg, lane, warp] = all;
        let layout = Layout::tiled(shape, reg, lane, warp, Vec::new()).ok()?;
        Some(Division { layout: Arc::new(layout), lanes: along[1], warps: along[2] })
    }
}

impl Select<'_> {
    /// The scan of a tile, in the requested layout.
    pub fn scan_by_all(
        &mut self,
        id: OpId,
        (name, exclusive): (&str, bool),
        dtype: DType,
        axis: usize,
    ) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (x, result) = (op.operands[0], op.result());
        let (from, to) = (self.layout(x), self.layout(result));
        let Some(by) = Division::of(from.shape(), axis, self.warps) else {
            return self.unsupported(id, format!("{from} is not divided for a scan along {axis}"));
        };
        let xs = self.regs(x);
        let Some(xs) = self.relaid((&from, &xs), &by.layout, dtype) else {
            return self.unsupported(id, "a scan does not go across the blocks of a cluster");
        };
        let out = self.scan_divided(id, (name, exclusive), dtype, axis, &by, &xs)?;
        let Some(out) = self.relaid((&by.layout, &out), &to, dtype) else {
            return self.unsupported(id, "a scan does not go across the blocks of a cluster");
        };
        self.set(result, Repr::Tile(out));
        Ok(())
    }

    fn scan_divided(
        &mut self,
        id: OpId,
        (name, exclusive): (&str, bool),
        dtype: DType,
        axis: usize,
        by: &Division,
        xs: &[Reg],
    ) -> Result<Vec<Reg>, Diagnostics> {
        // The registers of each row, in order. Padding comes after all elements, and affects none
        // of them.
        let map = by.layout.reduce_regs(axis);
        let results = by.layout.reduce(axis).regs() as usize;
        let mut rows: Vec<Vec<usize>> = vec![Vec::new(); results];
        for reg in 0..xs.len() {
            rows[map[reg] as usize].push(reg);
        }
        let mut inside: Vec<Vec<Reg>> = Vec::new();
        for row in &mut rows {
            row.sort_by_key(|&reg| by.layout.reg_part(reg as u32)[axis]);
            let mut sums: Vec<Reg> = Vec::new();
            for &reg in row.iter() {
                sums.push(match sums.last() {
                    None => xs[reg],
                    Some(&before) => self.combine(id, name, dtype, before, xs[reg])?,
                });
            }
            inside.push(sums);
        }
        let lane = self.lane();
        let mask = (1i64 << by.lanes) - 1;
        let place = self.asm.int(Alu::And, Ty::B32, &[lane.into(), Opnd::Int(mask)]);
        // The exclusive and inclusive result of a thread in its warp; none where it is the first.
        let mut before: Vec<Option<(Reg, Reg)>> = vec![None; results];
        let mut until: Vec<Reg> = Vec::new();
        for (sums, before) in inside.iter().zip(&mut before) {
            let mut all = sums[sums.len() - 1];
            for bit in 0..by.lanes {
                let far = Opnd::Int(1 << bit);
                let other = self.shuffle(Shfl::Up, all, far);
                let has = self.asm.setp(Cmp::Ge, Ty::U32, place, far);
                let both = self.combine(id, name, dtype, other, all)?;
                all = self.choose(has, both, all);
            }
            if by.lanes > 0 {
                let other = self.shuffle(Shfl::Up, all, Opnd::Int(1));
                let has = self.asm.setp(Cmp::Gt, Ty::U32, place, Opnd::Int(0));
                *before = Some((has, other));
            }
            until.push(all);
        }
        if by.warps > 0 {
            self.add_warps_before(id, name, dtype, by, place, &until, &mut before)?;
        }
        let nothing = self.identity(name, dtype);
        let mut out = vec![nothing; xs.len()];
        for ((row, sums), before) in rows.iter().zip(&inside).zip(&before) {
            for (i, &reg) in row.iter().enumerate() {
                let own = if exclusive { i.checked_sub(1).map(|i| sums[i]) } else { Some(sums[i]) };
                out[reg] = match (own, *before) {
                    (None, None) => nothing,
                    (None, Some((has, b))) => self.choose(has, b, nothing),
                    (Some(own), None) => own,
                    (Some(own), Some((has, b))) => {
                        let both = self.combine(id, name, dtype, b, own)?;
                        self.choose(has, both, own)
                    }
                };
            }
        }
        Ok(out)
    }

    /// Combines what the warps before this one hold of a row with the thread's prefix.
    #[allow(clippy::too_many_arguments)] // The operation, the layout, and the destination.
    fn add_warps_before(
        &mut self,
        id: OpId,
        name: &str,
        dtype: DType,
        by: &Division,
        place: Reg,
        until: &[Reg],
        before: &mut [Option<(Reg, Reg)>],
    ) -> Result<(), Diagnostics> {
        let class = crate::scalar::carrier(dtype);
        // One word for each row of registers, warp, and set of lanes that hold other rows.
        let sets = 32i64 >> by.lanes;
        let warps = i64::from(self.warps);
        let plane = sets * warps * 8;
        let region = self.scratch((plane * until.len() as i64) as u32);
        let base = self.region(region);
        let (lane, warp) = (self.lane(), self.warp());
        let shift = Opnd::Int(by.lanes.into());
        let set = self.asm.int(Alu::Shr, Ty::U32, &[lane.into(), shift]);
        let at = self.asm.int(Alu::MadLo, Ty::U32, &[set.into(), Opnd::Int(8), base.into()]);
        let own = self.asm.int(Alu::MadLo, Ty::U32, &[warp.into(), Opnd::Int(sets * 8), at.into()]);
        let last = Opnd::Int((1i64 << by.lanes) - 1);
        let is_last = self.asm.setp(Cmp::Eq, Ty::U32, place, last);
        for (i, &all) in until.iter().enumerate() {
            self.put(Addr::reg(own, i as i64 * plane), all, Some(is_last));
        }
        self.barrier();
        // The first warp of this row, and how many of the row's warps come before this one.
        let along = 1i64 << by.warps;
        let number = self.asm.int(Alu::And, Ty::B32, &[warp.into(), Opnd::Int(along - 1)]);
        let first = self.asm.int(Alu::Sub, Ty::U32, &[warp.into(), number.into()]);
        let n = Opnd::Int(sets * 8);
        let row = self.asm.int(Alu::MadLo, Ty::U32, &[first.into(), n, at.into()]);
        let some = self.asm.setp(Cmp::Gt, Ty::U32, number, Opnd::Int(0));
        for (i, before) in before.iter_mut().enumerate() {
            let at = i as i64 * plane;
            let mut all = self.take(Space::Shared, Addr::reg(row, at), class);
            for k in 1..along - 1 {
                let next = self.take(Space::Shared, Addr::reg(row, at + k * sets * 8), class);
                let has = self.asm.setp(Cmp::Gt, Ty::U32, number, Opnd::Int(k));
                let both = self.combine(id, name, dtype, all, next)?;
                all = self.choose(has, both, all);
            }
            *before = Some(match *before {
                None => (some, all),
                Some((has, own)) => {
                    let both = self.combine(id, name, dtype, all, own)?;
                    let with = self.choose(has, both, all);
                    let value = self.choose(some, with, own);
                    (self.asm.int(Alu::Or, Ty::Pred, &[has.into(), some.into()]), value)
                }
            });
        }
        self.reading(region);
        Ok(())
    }
}
