//! Uniformity analysis over a cluster: which values are the same in all CTAs that take neighbouring
//! tiles.
//!
//! A value is uniform if it does not depend on the tile's coordinate along an axis on which the
//! CTAs differ: neither through its operands, nor through carried values, nor through the iteration
//! counts of loops.

use crate::{Staged, StagedOp};
use std::collections::BTreeSet;
use tessera_ir::{BlockId, Effects, Func, OpId, Opcode, Value, ValueDef};
use tessera_tile::TileOp;

/// Queries on one function.
pub struct Alike<'f> {
    func: &'f Func<Staged>,
}

impl<'f> Alike<'f> {
    pub fn new(func: &'f Func<Staged>) -> Self {
        Self { func }
    }

    /// Whether CTAs that differ along `axes` of the grid execute an op equally often, with equal
    /// `values`. The op is in a persistent loop.
    pub fn is(&self, id: OpId, values: &[Value], axes: &[usize]) -> bool {
        let func = self.func;
        let mut open = values.to_vec();
        let mut block = func.ops[id].block;
        let mut inside = false;
        while let Some(around) = func.blocks[block].parent {
            let op = &func.ops[around];
            match op.code {
                StagedOp::Tiles => inside = true,
                StagedOp::WarpRole | StagedOp::WarpSpecialize => {}
                _ if inside => return false,
                _ => self.iterations(around, &mut open),
            }
            block = op.block;
        }
        inside && self.closed(open, axes)
    }

    /// Whether nothing that some values are computed from differs.
    fn closed(&self, mut open: Vec<Value>, axes: &[usize]) -> bool {
        let func = self.func;
        let mut seen = BTreeSet::new();
        while let Some(v) = open.pop() {
            if !seen.insert(v) {
                continue;
            }
            match func.values[v].def {
                ValueDef::Result(id, i) => {
                    let op = &func.ops[id];
                    match op.code {
                        StagedOp::Tile(
                            TileOp::For | TileOp::While | TileOp::If | TileOp::SlowPath,
                        )
                        | StagedOp::Tiles => {
                            self.iterations(id, &mut open);
                            self.carried(id, i, &mut open);
                        }
                        StagedOp::Tile(TileOp::ProgramId)
                        | StagedOp::Worker
                        | StagedOp::Replica => return false,
                        code => match Opcode::info(code).effects {
                            Effects::Pure | Effects::Read => open.extend(&op.operands),
                            Effects::Write
                            | Effects::ReadWrite
                            | Effects::Sync
                            | Effects::Host
                            | Effects::Collective
                            | Effects::Control
                            | Effects::Terminator => return false,
                        },
                    }
                }
                ValueDef::Arg(block, i) => {
                    let Some(id) = func.blocks[block].parent else { continue };
                    let op = &func.ops[id];
                    let before = match op.code {
                        StagedOp::Tiles => op.group("grid").len(),
                        StagedOp::Tile(TileOp::For) => 1,
                        _ => 0,
                    };
                    match i.checked_sub(before) {
                        Some(i) => self.carried(id, i, &mut open),
                        None if op.code == StagedOp::Tiles && axes.contains(&i) => return false,
                        None => {}
                    }
                    self.iterations(id, &mut open);
                }
            }
        }
        true
    }

    /// What decides how often the regions of an op run.
    fn iterations(&self, id: OpId, open: &mut Vec<Value>) {
        let op = &self.func.ops[id];
        open.extend(op.positional());
        if op.code == StagedOp::Tiles {
            open.extend(op.group("grid"));
        }
        if op.code == StagedOp::Tile(TileOp::While) {
            open.extend(self.ends(op.regions[0]));
        }
    }

    /// The values that a control op carries as its `i`th one.
    fn carried(&self, id: OpId, i: usize, open: &mut Vec<Value>) {
        let op = &self.func.ops[id];
        open.extend(op.group("init").get(i));
        for &region in &op.regions {
            open.extend(self.ends(region).get(i));
        }
    }

    fn ends(&self, region: BlockId) -> &[Value] {
        let func = self.func;
        func.terminator(region).map_or(&[], |end| func.ops[end].group("values"))
    }
}

/// Whether a role, or the block, drains a pipeline.
pub fn drained_by(func: &Func<Staged>, pipeline: Value, role: Option<OpId>) -> bool {
    func.walk().iter().any(|&id| {
        let op = &func.ops[id];
        op.code == StagedOp::Drain
            && op.operands[0] == pipeline
            && crate::ops::roles::role_of(func, id) == role
    })
}
