//! Register pressure: how many 32-bit registers of a thread the live tiles take at the widest point
//! of a role. Scalars, addresses and temporaries of instructions are not counted: the assembler
//! allocates those.
//!
//! Liveness is computed backwards over the structured regions. A value from outside that a loop
//! reads is live in all of the loop, because the next iteration reads it again.

use crate::ops::roles::role_of;
use crate::verify::registers;
use crate::{Staged, StagedOp};
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{BlockId, Func, OpId, Value, ValueDef};
use tessera_tile::TileOp;

/// The widest point of a block, without the blocks inside it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Widest {
    /// The role around the block; none outside roles.
    pub role: Option<OpId>,
    /// 32-bit registers of a thread.
    pub registers: u64,
    pub at: OpId,
}

/// The widest point of each role, in their order; of a function without roles, its own.
pub fn pressure(func: &Func<Staged>) -> Vec<Widest> {
    let mut found: BTreeMap<Option<OpId>, Widest> = BTreeMap::new();
    for one in widest(func) {
        let best = found.entry(one.role).or_insert(one);
        if one.registers > best.registers {
            *best = one;
        }
    }
    let has_roles = found.keys().any(Option::is_some);
    found.into_values().filter(|w| w.role.is_some() || !has_roles).collect()
}

/// The widest point of every block that has ops, inner blocks before the one around them.
pub(crate) fn widest(func: &Func<Staged>) -> Vec<Widest> {
    let mut found = Vec::new();
    let fed = fed_in_steps(func);
    Walk { func, fed, found: &mut found }.block(func.body, &BTreeSet::new());
    found
}

struct Walk<'a> {
    func: &'a Func<Staged>,
    fed: BTreeSet<Value>,
    found: &'a mut Vec<Widest>,
}

impl Walk<'_> {
    /// `around` are the values outside the block that are live in all of it.
    fn block(&mut self, block: BlockId, around: &BTreeSet<Value>) {
        let func = self.func;
        let mut live = around.clone();
        let mut most: Option<(u64, OpId)> = None;
        let passing = passing(func, block);
        for &id in func.blocks[block].ops.iter().rev() {
            let op = &func.ops[id];
            let after = live.clone();
            for result in &op.results {
                live.remove(result);
            }
            live.extend(op.operands.iter().filter(|&&v| func.ty(v).layout().is_some()));
            for &region in &op.regions {
                let mut inner = BTreeSet::new();
                func.walk_block(region, &mut |o| {
                    inner.extend(func.ops[o].operands.iter().copied())
                });
                inner.retain(|&v| func.ty(v).layout().is_some() && outside(func, v, region));
                // Initial values of a loop become its arguments.
                let mut kept: BTreeSet<Value> =
                    after.iter().copied().filter(|v| !op.results.contains(v)).collect();
                if repeats(op.code) {
                    kept.extend(&inner);
                }
                live.extend(inner);
                self.block(region, &kept);
            }
            // A result may take the registers of an operand that ends here.
            let sum = |values: &BTreeSet<Value>| {
                let whole = values.iter().filter(|v| !passing.contains(v));
                whole.map(|&v| self.held(v)).sum::<u64>()
            };
            let held = sum(&live).max(sum(&after)) + self.beside(id);
            if most.is_none_or(|(most, _)| held > most) {
                most = Some((held, id));
            }
        }
        if let Some((registers, at)) = most {
            self.found.push(Widest { role: role_of(func, at), registers, at });
        }
    }

    /// Constants are rematerialised where they are used, and take nothing before.
    fn held(&self, v: Value) -> u64 {
        use TileOp::{Broadcast, Const, Expand, Iota, Reshape, Transpose};
        match self.func.def(v).map(|op| op.code) {
            Some(StagedOp::Tile(Const | Iota)) => 0,
            // These name registers that another value holds.
            Some(StagedOp::Tile(Broadcast | Expand | Reshape | Transpose) | StagedOp::FragPart) => {
                0
            }
            _ if self.fed.contains(&v) => 0,
            _ => registers(self.func.ty(v)),
        }
    }

    /// What an op holds beside its operands and results: the old values of an accumulation; of MMA
    /// operands that are loaded step by step, the current step and the next.
    fn beside(&self, id: OpId) -> u64 {
        let op = &self.func.ops[id];
        match op.code {
            StagedOp::Tile(TileOp::Accumulate) => return registers(self.func.ty(op.operands[1])),
            StagedOp::Tile(TileOp::Mma) => {}
            _ => return 0,
        }
        let depth = |v: Value, axis: usize| {
            let shape = self.func.ty(v).static_shape().unwrap_or_default();
            shape.get(axis).map_or(1, |&n| n.max(1) as u64)
        };
        let step = |(axis, &v): (usize, &Value)| {
            // Words of a step: 32 bytes along k.
            let k = 256 / u64::from(self.func.ty(v).dtype().bits()).max(1);
            let steps = depth(v, 1 - axis).div_ceil(k.max(1)).max(1);
            (2 * registers(self.func.ty(v))).div_ceil(steps).min(registers(self.func.ty(v)))
        };
        op.operands[..2].iter().enumerate().filter(|(_, v)| self.fed.contains(v)).map(step).sum()
    }
}

/// Whether the region of an op is a loop body.
fn repeats(code: StagedOp) -> bool {
    matches!(code, StagedOp::Tile(TileOp::For | TileOp::While) | StagedOp::Tiles)
}

/// Tiles that only warp-level MMAs in the same block read, from shared memory or through it: they
/// are loaded step by step along k.
fn fed_in_steps(func: &Func<Staged>) -> BTreeSet<Value> {
    let mut fed: BTreeMap<Value, BlockId> = BTreeMap::new();
    for id in func.walk() {
        let op = &func.ops[id];
        if matches!(op.code, StagedOp::FragLoad | StagedOp::ConvertLayout) {
            fed.extend(op.results.iter().map(|&v| (v, op.block)));
        }
    }
    for id in func.walk() {
        let op = &func.ops[id];
        for (place, v) in op.operands.iter().enumerate() {
            let here = fed.get(v) == Some(&op.block);
            if op.code != StagedOp::Tile(TileOp::Mma) || place > 1 || !here {
                fed.remove(v);
            }
        }
    }
    fed.into_keys().collect()
}

fn outside(func: &Func<Staged>, v: Value, region: BlockId) -> bool {
    let block = match func.values[v].def {
        ValueDef::Result(op, _) => func.ops[op].block,
        ValueDef::Arg(block, _) => block,
    };
    !func.block_within(block, region)
}

/// Tiles that are used only between elementwise ops, or by the reduction right after them. Elements
/// can go through such a chain one by one, so the tile never exists as a whole.
fn passing(func: &Func<Staged>, block: BlockId) -> BTreeSet<Value> {
    use TileOp::{Broadcast, Cast, Const, Ew, Expand, Iota, Reduce, Select};
    let tile = |&v: &Value| func.ty(v).layout().is_some();
    let mut run = 0;
    let mut runs = BTreeMap::new();
    for &id in &func.blocks[block].ops {
        let op = &func.ops[id];
        match op.code {
            StagedOp::FragLoad
            | StagedOp::Tile(Ew(_) | Cast | Select | Const | Iota | Broadcast | Expand) => {
                runs.insert(id, run);
            }
            // A reduction takes elements one by one, and ends a chain.
            StagedOp::Tile(Reduce) => {
                runs.insert(id, run);
                run += 1;
            }
            // Scalar ops do not interrupt a chain.
            _ => {
                run += u32::from(
                    !op.regions.is_empty() || op.operands.iter().chain(&op.results).any(tile),
                )
            }
        }
    }
    // Any other use of a tile needs all of it.
    let mut out: BTreeSet<Value> =
        runs.keys().flat_map(|&id| func.ops[id].results.iter().copied()).collect();
    for id in func.walk() {
        for v in &func.ops[id].operands {
            let made = func.def_id(*v).and_then(|def| runs.get(&def));
            if made.is_some() && made != runs.get(&id) {
                out.remove(v);
            }
        }
    }
    out
}
