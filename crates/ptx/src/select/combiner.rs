//! Reductions and scans by a function of the user's. Its region is evaluated on registers: first
//! over the elements of a thread, then across lanes by shuffles, then across warps through shared
//! memory. The layout numbers positions along the axis by register, lane and warp, in this order.
//!
//! A reduction combines neighbours, level by level: in every profile it is the balanced tree of
//! LANGUAGE 21. A scan across threads associates freely; where its order is defined, a thread holds
//! the whole axis and folds it from the left.

use super::{Repr, Select};
use crate::inst::*;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, BlockId, OpId, Type, Value};
use tessera_layout::{Along, Layout};
use tessera_numerics::{DType, Profile, Scalar, eval};
use tessera_staged::StagedOp;
use tessera_tile::TileOp;

/// One element of each tile.
type Item = Vec<Reg>;

/// The tiles of an op in the layout that it combines them in.
struct Tiles {
    layout: Arc<Layout>,
    axis: usize,
    along: Along,
    items: Vec<Item>,
}

/// What a thread knows of a scan of its row before its own elements: whether there is anything, and
/// what.
type Before = Option<(Reg, Item)>;

impl Select<'_> {
    /// What the combiner of an op yields for two elements.
    fn apply_combiner(&mut self, id: OpId, a: &[Reg], b: &[Reg]) -> Result<Item, Diagnostics> {
        let func = self.func;
        let region = func.ops[id].regions[0];
        for (&arg, &r) in func.blocks[region].args.iter().zip(a.iter().chain(b)) {
            self.set(arg, Repr::Scalar(r));
        }
        let around = self.combining.replace(id);
        let out = self.evaluate(region);
        self.combining = around;
        out
    }

    /// The values that a block of scalar ops yields. They differ from thread to thread: both sides
    /// of a branch are computed, and each thread takes its own.
    fn evaluate(&mut self, block: BlockId) -> Result<Item, Diagnostics> {
        let func = self.func;
        for &id in &func.blocks[block].ops {
            let op = &func.ops[id];
            match op.code {
                StagedOp::Tile(TileOp::Yield) => {
                    return Ok(op.operands.iter().map(|&v| self.scalar(v)).collect());
                }
                StagedOp::Tile(TileOp::If) => {
                    let p = self.scalar(op.operands[0]);
                    let then = self.evaluate(op.regions[0])?;
                    let otherwise = self.evaluate(op.regions[1])?;
                    for (&v, (a, b)) in op.results.iter().zip(then.into_iter().zip(otherwise)) {
                        let r = self.choose(p, a, b);
                        self.set(v, Repr::Scalar(r));
                    }
                }
                _ => {
                    self.asm.at(&op.loc);
                    match self.constant_of_combiner(id) {
                        Some(value) => {
                            let dtype = func.ty(op.result()).dtype();
                            let r = self.scalars().constant(dtype, value);
                            self.set(op.result(), Repr::Scalar(r));
                        }
                        None => self.op(id)?,
                    }
                }
            }
        }
        Ok(Vec::new())
    }

    /// What an op of a combiner gives where its operands are constants: counts of elements, for one,
    /// are the same for all pairs of a level. Only what gives the same bits as running the op.
    fn constant_of_combiner(&self, id: OpId) -> Option<Scalar> {
        let func = self.func;
        let op = &func.ops[id];
        let StagedOp::Tile(TileOp::Ew(f)) = op.code else { return None };
        let known = |&v: &Value| {
            let Repr::Scalar(r) = *self.repr(v) else { return None };
            number(func.ty(v).dtype(), self.asm.known(r)?)
        };
        let args: Option<Vec<Scalar>> = op.operands.iter().map(known).collect();
        let value = if f.real().is_none() { eval(f, &args?)? } else { return None };
        // The bits of a NaN are the machine's.
        (!value.dtype().is_float() || !value.as_f64().is_nan()).then_some(value)
    }

    fn combined_tiles(&mut self, id: OpId) -> Result<Tiles, Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let axis = self.axis(id);
        let layout = self.layout(op.operands[0]);
        let Some(along) = layout.along(axis) else {
            return self.unsupported(id, format!("{layout} is not divided along {axis}"));
        };
        let tiles: Vec<Vec<Reg>> = op.operands.iter().map(|&v| self.regs(v)).collect();
        let items = (0..layout.regs() as usize).map(|r| tiles.iter().map(|t| t[r]).collect());
        let items = items.collect();
        Ok(Tiles { layout, axis, along, items })
    }

    /// The registers of each row, in the order of their positions along the axis.
    fn rows_of(t: &Tiles) -> Vec<Vec<usize>> {
        let map = t.layout.reduce_regs(t.axis);
        let mut rows = vec![Vec::new(); t.layout.reduce(t.axis).regs() as usize];
        for reg in 0..t.items.len() {
            rows[map[reg] as usize].push(reg);
        }
        for row in &mut rows {
            row.sort_by_key(|&reg| t.layout.reg_part(reg as u32)[t.axis]);
        }
        rows
    }

    fn shuffled_item(&mut self, kind: Shfl, item: &[Reg], by: i64) -> Item {
        let shuffled = |&x: &Reg| match self.asm.known(x) {
            // All lanes have it.
            Some(_) => x,
            None => self.shuffle(kind, x, Opnd::Int(by)),
        };
        item.iter().map(shuffled).collect()
    }

    fn chosen(&mut self, p: Reg, a: &[Reg], b: &[Reg]) -> Item {
        let either = |(&a, &b): (&Reg, &Reg)| {
            let known = a.class == b.class && self.asm.known(a).is_some();
            match a == b || known && self.asm.known(a) == self.asm.known(b) {
                true => a,
                false => self.choose(p, a, b),
            }
        };
        a.iter().zip(b).map(either).collect()
    }

    pub fn reduce_by(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let t = self.combined_tiles(id)?;
        let len = t.layout.shape()[t.axis];
        let mut out: Vec<Item> = Vec::new();
        for row in Self::rows_of(&t) {
            out.push(self.reduce_row(id, &t, len, &row)?);
        }
        let (lane_bit, lanes) = t.along.lanes;
        for bit in 0..lanes {
            let step = 1u32 << (t.along.regs + bit);
            let lane = self.lane();
            let low = self.none_of(lane, 1 << (lane_bit + bit));
            // Whether the right one of the two has an element at all.
            let there = self.is_there(&t, len, step);
            for item in &mut out {
                let other = self.shuffled_item(Shfl::Bfly, item, 1 << (lane_bit + bit));
                let left = self.chosen(low, item, &other);
                let right = self.chosen(low, &other, item);
                let both = self.apply_combiner(id, &left, &right)?;
                *item = match there {
                    Some(p) => self.chosen(p, &both, &left),
                    None => both,
                };
            }
        }
        if t.along.warps.1 > 0 {
            self.reduce_warps(id, &t, len, &mut out)?;
        }
        let func = self.func;
        for (k, &result) in func.ops[id].results.iter().enumerate() {
            let regs: Vec<Reg> = out.iter().map(|item| item[k]).collect();
            let repr = match func.ty(result) {
                Type::Scalar(_) => Repr::Scalar(regs[0]),
                _ => Repr::Tile(regs),
            };
            self.set(result, repr);
        }
        Ok(())
    }

    /// The elements of a thread as a tree of neighbours. Padding is at the end of the row: what has
    /// nothing to its right goes up unchanged.
    fn reduce_row(
        &mut self,
        id: OpId,
        t: &Tiles,
        len: u32,
        row: &[usize],
    ) -> Result<Item, Diagnostics> {
        let mut level: Vec<Item> = row.iter().map(|&reg| t.items[reg].clone()).collect();
        let mut step = 1u32;
        while level.len() > 1 {
            let mut next = Vec::with_capacity(level.len() / 2);
            for (i, pair) in level.chunks(2).enumerate() {
                // The position of the right one in the thread.
                let at = (2 * i as u32 + 1) * step;
                let whole = t.layout.box_extents()[t.axis] == len;
                let reach = t.layout.box_extents()[t.axis] - (1 << t.along.regs);
                next.push(match pair {
                    [a, b] if whole || at + reach < len => self.apply_combiner(id, a, b)?,
                    [a, _] if at >= len => a.clone(),
                    [a, b] => {
                        let both = self.apply_combiner(id, a, b)?;
                        match self.thread_coord(&t.layout, t.axis) {
                            Some(first) => {
                                let there = self.below(first, len - at);
                                self.chosen(there, &both, a)
                            }
                            None => both,
                        }
                    }
                    _ => pair[0].clone(),
                });
            }
            level = next;
            step *= 2;
        }
        Ok(level.swap_remove(0))
    }

    /// Whether the right half of the `2 * step` positions around a thread has an element: none where
    /// every one has.
    fn is_there(&mut self, t: &Tiles, len: u32, step: u32) -> Option<Reg> {
        let whole = t.layout.box_extents()[t.axis];
        if len + step > whole {
            return None;
        }
        let first = self.thread_coord(&t.layout, t.axis)?;
        let mask = Opnd::Int(i64::from(whole - 1) & !i64::from(2 * step - 1));
        let start = self.asm.int(Alu::And, Ty::B32, &[first.into(), mask]);
        let start = self.asm.int(Alu::Add, Ty::U32, &[start.into(), Opnd::Int(step.into())]);
        Some(self.asm.setp(Cmp::Lt, Ty::U32, start, Opnd::Int(len.into())))
    }

    /// Partial results of the warps of each row: every lane writes its own, and reads those of all
    /// warps of its row.
    fn partials(&mut self, t: &Tiles, out: &[Item]) -> Vec<Vec<Item>> {
        let warps = i64::from(self.warps);
        let (first_bit, count) = t.along.warps;
        let width = out[0].len() as i64;
        let plane = warps * 32 * 8;
        let region = self.scratch((plane * width * out.len() as i64) as u32);
        let base = self.region(region);
        let (tid, lane, warp) = (self.tid(), self.lane(), self.warp());
        let own = self.asm.int(Alu::MadLo, Ty::U32, &[tid.into(), Opnd::Int(8), base.into()]);
        for (i, item) in out.iter().enumerate() {
            for (k, &x) in item.iter().enumerate() {
                if self.asm.known(x).is_some() {
                    continue;
                }
                let place = (i as i64 * width + k as i64) * plane;
                self.put(Addr::reg(own, place), x, None);
            }
        }
        self.block_barrier();
        let others = (warps - 1) & !(((1 << count) - 1) << first_bit);
        let row = self.asm.int(Alu::And, Ty::B32, &[warp.into(), Opnd::Int(others)]);
        let at = self.asm.int(Alu::MadLo, Ty::U32, &[lane.into(), Opnd::Int(8), base.into()]);
        let at = self.asm.int(Alu::MadLo, Ty::U32, &[row.into(), Opnd::Int(32 * 8), at.into()]);
        let parts = (0..out.len() as i64)
            .map(|i| {
                let one = |me: &mut Self, n: i64, k: i64| {
                    let own = out[i as usize][k as usize];
                    if me.asm.known(own).is_some() {
                        return own;
                    }
                    let place = (i * width + k) * plane + (n << first_bit) * 32 * 8;
                    me.take(Space::Shared, Addr::reg(at, place), own.class)
                };
                (0..1i64 << count).map(|n| (0..width).map(|k| one(self, n, k)).collect()).collect()
            })
            .collect();
        self.reading(region);
        parts
    }

    fn reduce_warps(
        &mut self,
        id: OpId,
        t: &Tiles,
        len: u32,
        out: &mut [Item],
    ) -> Result<(), Diagnostics> {
        let span = 1u32 << (t.along.regs + t.along.lanes.1);
        let parts = self.partials(t, out);
        for (item, all) in out.iter_mut().zip(parts) {
            // Warps without an element have padding only.
            let some = all.into_iter().enumerate().filter(|(n, _)| *n as u32 * span < len);
            let mut level: Vec<Item> = some.map(|(_, part)| part).collect();
            while level.len() > 1 {
                let mut next = Vec::new();
                for pair in level.chunks(2) {
                    next.push(match pair {
                        [a, b] => self.apply_combiner(id, a, b)?,
                        _ => pair[0].clone(),
                    });
                }
                level = next;
            }
            *item = level.swap_remove(0);
        }
        Ok(())
    }

    pub fn scan_by(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let reverse = func.ops[id].attr("reverse").and_then(Attr::as_bool) == Some(true);
        let t = self.combined_tiles(id)?;
        let threads = t.along.lanes.1 + t.along.warps.1;
        if threads > 0 && self.profile != Profile::Default {
            return self.unsupported(id, "a scan in order does not go across threads");
        }
        let len = t.layout.shape()[t.axis];
        if reverse && len != t.layout.box_extents()[t.axis] {
            return self.unsupported(id, "a scan from the end does not begin with padding");
        }
        let mut rows = Self::rows_of(&t);
        let mut inside: Vec<Vec<Item>> = Vec::new();
        for row in &mut rows {
            if reverse {
                row.reverse();
            }
            let mut done: Vec<Item> = Vec::new();
            for &reg in row.iter() {
                // Padding comes last, and affects nothing.
                let next = match done.last() {
                    Some(before) if t.layout.reg_part(reg as u32)[t.axis] < len => {
                        let before = before.clone();
                        self.apply_combiner(id, &before, &t.items[reg])?
                    }
                    _ => t.items[reg].clone(),
                };
                done.push(next);
            }
            inside.push(done);
        }
        let before = self.scan_threads(id, &t, reverse, &inside)?;
        let mut out = t.items.clone();
        for ((row, done), before) in rows.iter().zip(inside).zip(before) {
            for (&reg, own) in row.iter().zip(done) {
                out[reg] = match &before {
                    None => own,
                    Some((has, before)) => {
                        let both = self.apply_combiner(id, before, &own)?;
                        self.chosen(*has, &both, &own)
                    }
                };
            }
        }
        for (k, &result) in func.ops[id].results.iter().enumerate() {
            self.set(result, Repr::Tile(out.iter().map(|item| item[k]).collect()));
        }
        Ok(())
    }

    /// For each row of registers what the threads before this one have.
    fn scan_threads(
        &mut self,
        id: OpId,
        t: &Tiles,
        reverse: bool,
        inside: &[Vec<Item>],
    ) -> Result<Vec<Before>, Diagnostics> {
        let ((lane_bit, lanes), (warp_bit, warps)) = (t.along.lanes, t.along.warps);
        let kind = if reverse { Shfl::Down } else { Shfl::Up };
        let last = (1i64 << lanes) - 1;
        // How many lanes of the row come before this one.
        let place = (lanes > 0).then(|| {
            let lane = self.lane();
            let bits = &[lane.into(), Opnd::Int(lane_bit.into()), Opnd::Int(lanes.into())];
            let place = self.asm.int(Alu::Bfe, Ty::U32, bits);
            match reverse {
                true => self.asm.int(Alu::Sub, Ty::U32, &[Opnd::Int(last), place.into()]),
                false => place,
            }
        });
        let mut before: Vec<Before> = vec![None; inside.len()];
        let mut until: Vec<Item> = inside.iter().map(|done| done[done.len() - 1].clone()).collect();
        if let Some(place) = place {
            for (all, before) in until.iter_mut().zip(&mut before) {
                for bit in 0..lanes {
                    let other = self.shuffled_item(kind, all, 1 << (lane_bit + bit));
                    let has = self.asm.setp(Cmp::Ge, Ty::U32, place, Opnd::Int(1 << bit));
                    let both = self.apply_combiner(id, &other, all)?;
                    *all = self.chosen(has, &both, all);
                }
                let other = self.shuffled_item(kind, all, 1 << lane_bit);
                let has = self.asm.setp(Cmp::Gt, Ty::U32, place, Opnd::Int(0));
                *before = Some((has, other));
            }
        }
        if warps == 0 {
            return Ok(before);
        }
        // The last lane of each row has the result of its warp.
        if lanes > 0 {
            let lane = self.lane();
            let of_row = if reverse { 0 } else { last << lane_bit };
            let others = 31 & !(last << lane_bit);
            let from = self.asm.int(Alu::And, Ty::B32, &[lane.into(), Opnd::Int(others)]);
            let from = self.asm.int(Alu::Or, Ty::B32, &[from.into(), Opnd::Int(of_row)]);
            for all in &mut until {
                *all = all.iter().map(|&x| self.shuffle(Shfl::Idx, x, from.into())).collect();
            }
        }
        let parts = self.partials(t, &until);
        let warp = self.warp();
        let bits = &[warp.into(), Opnd::Int(warp_bit.into()), Opnd::Int(warps.into())];
        let mut number = self.asm.int(Alu::Bfe, Ty::U32, bits);
        if reverse {
            let most = Opnd::Int((1 << warps) - 1);
            number = self.asm.int(Alu::Sub, Ty::U32, &[most, number.into()]);
        }
        let some = self.asm.setp(Cmp::Gt, Ty::U32, number, Opnd::Int(0));
        for (mut parts, before) in parts.into_iter().zip(&mut before) {
            if reverse {
                parts.reverse();
            }
            // Those of the warps before this one; nobody needs that of the last.
            parts.pop();
            let mut parts = parts.into_iter().enumerate();
            let Some((_, mut all)) = parts.next() else { continue };
            for (n, next) in parts {
                let has = self.asm.setp(Cmp::Gt, Ty::U32, number, Opnd::Int(n as i64));
                let both = self.apply_combiner(id, &all, &next)?;
                all = self.chosen(has, &both, &all);
            }
            *before = Some(match before.take() {
                None => (some, all),
                Some((has, own)) => {
                    let both = self.apply_combiner(id, &all, &own)?;
                    let with = self.chosen(has, &both, &all);
                    let value = self.chosen(some, &with, &own);
                    (self.asm.int(Alu::Or, Ty::Pred, &[has.into(), some.into()]), value)
                }
            });
        }
        Ok(before)
    }
}

/// The number that a constant register of a dtype's carrier holds.
fn number(dtype: DType, held: Opnd) -> Option<Scalar> {
    Some(match (dtype.carrier(), held) {
        (DType::Bool, Opnd::Int(n)) => Scalar::Bool(n != 0),
        (DType::I32, Opnd::Int(n)) => Scalar::I32(n as i32),
        (DType::U32, Opnd::Int(n)) => Scalar::U32(n as u32),
        (DType::I64, Opnd::Int(n)) => Scalar::I64(n),
        (DType::U64, Opnd::Int(n)) => Scalar::U64(n as u64),
        (DType::F32, Opnd::F32(bits)) => Scalar::F32(f32::from_bits(bits)),
        (DType::F64, Opnd::F64(bits)) => Scalar::F64(f64::from_bits(bits)),
        _ => return None,
    })
}
