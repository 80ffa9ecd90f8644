//! Slow paths per row slot.
//!
//! A thread holds parts of two rows of a WGMMA accumulator, and rarely do both need the slow path.
//! The region computes each row independently, so its code can be split: for each row slot among a
//! thread's registers there is a copy of the region, reduced to what that slot's results depend on.
//! A warp runs the copies that one of its rows needs.

use super::super::Select;
use crate::inst::*;
use crate::module::Stmt;
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::Value;

/// The most row slots with separate code.
const MOST: usize = 4;

impl Select<'_> {
    /// The registers of a tile by row slot; of words where two elements share one.
    pub fn row_places(
        &self,
        v: Value,
        regs: &[Reg],
        words: bool,
    ) -> Option<BTreeMap<u32, Vec<usize>>> {
        let layout = self.layout(v);
        let each = if words { 4 / self.dtype(v).bytes() } else { 1 };
        let mut out: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for i in 0..regs.len() {
            let rows: BTreeSet<u32> =
                (0..each).map(|k| layout.reg_part((i * each + k) as u32)[0]).collect();
            let row = *rows.first().filter(|_| rows.len() == 1)?;
            out.entry(row).or_default().push(i);
        }
        Some(out)
    }

    /// The registers of a condition by row slot, where slots are few.
    pub fn rows_by_slot(&mut self, bad: Value) -> BTreeMap<u32, BTreeSet<Reg>> {
        let regs = self.regs(bad);
        let places = self.row_places(bad, &regs, false).filter(|p| p.len() <= MOST);
        let own = |of: Vec<usize>| of.into_iter().map(|i| regs[i]).collect();
        places.into_iter().flatten().map(|(row, of)| (row, own(of))).collect()
    }
}

/// The slice of straight-line code that `wanted` depends on, if it reads none of `others`.
pub fn part_for(code: &[Stmt], wanted: &[Reg], others: &BTreeSet<Reg>) -> Option<Vec<Stmt>> {
    let mut live: BTreeSet<Reg> = wanted.iter().copied().collect();
    let mut kept = Vec::new();
    for stmt in code.iter().rev() {
        match stmt {
            Stmt::Inst { guard, inst } => {
                let writes = inst.writes();
                if !is_pure(inst) {
                    return None;
                }
                if !writes.iter().any(|d| live.contains(d)) {
                    continue;
                }
                if guard.is_none() {
                    writes.iter().for_each(|d| {
                        live.remove(d);
                    });
                }
                live.extend(inst.reads().into_iter().chain(guard.map(|g| g.reg)));
                kept.push(stmt.clone());
            }
            Stmt::Label(_) => return None,
            _ => kept.push(stmt.clone()),
        }
    }
    kept.reverse();
    live.is_disjoint(others).then_some(kept)
}

/// Whether an instruction has no effect but its results. All threads of a warp leave the same ones
/// out, so a shuffle stays convergent.
fn is_pure(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::Alu { .. }
            | Inst::Mov { .. }
            | Inst::Cvt { .. }
            | Inst::Setp { .. }
            | Inst::Selp { .. }
            | Inst::Pack { .. }
            | Inst::Unpack { .. }
            | Inst::Shfl { .. }
            | Inst::Vote { .. }
    )
}
