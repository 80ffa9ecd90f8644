//! Uniformity analysis: which values may differ between the lanes of a group, and which ops the
//! lanes do together.

use tessera_ir::{Attr, BlockId, Op, OpId, Value};
use tessera_support::Entity;
use tessera_tile::{Tile, TileFunc, TileOp, lane_axes};

/// The values that a region yields.
pub fn yields(func: &TileFunc, block: BlockId) -> Vec<Value> {
    match func.terminator(block) {
        Some(id) if func.ops[id].code == TileOp::Yield => func.ops[id].operands.clone(),
        _ => Vec::new(),
    }
}

/// Whether the lanes of a group synchronise at an op.
fn synchronises(code: TileOp) -> bool {
    matches!(
        code,
        TileOp::Barrier
            | TileOp::GroupReduce
            | TileOp::GroupScan
            | TileOp::GroupBroadcast
            | TileOp::GroupShuffle
    )
}

pub struct Uniform {
    varying: Vec<bool>,
    /// Ops that synchronise, and those around them.
    synchronises: Vec<bool>,
    /// Lanes synchronise or share memory: a group is one block.
    pub together: bool,
    /// No op reads the group index.
    pub flat: bool,
    /// A fault may stop a lane.
    pub stops: bool,
}

impl Uniform {
    pub fn new(func: &TileFunc) -> Self {
        let walk = func.walk();
        let mut meeting = vec![false; func.ops.len()];
        for &id in walk.iter().filter(|&&id| synchronises(func.ops[id].code)) {
            meeting[id.index()] = true;
            for around in func.ancestors(func.ops[id].block) {
                meeting[around.index()] = true;
            }
        }
        let any =
            |wanted: &dyn Fn(TileOp) -> bool| walk.iter().any(|&id| wanted(func.ops[id].code));
        let together = any(&|c| synchronises(c) || c == TileOp::BufAlloc);
        let placed = any(&|c| matches!(c, TileOp::LocalId | TileOp::ProgramId));
        let may_stop = |id: &OpId| match func.ops[*id].code {
            TileOp::Assert => true,
            TileOp::For => !steps_forwards(func, func.ops[*id].operands[2]),
            _ => false,
        };
        let stops = walk.iter().any(may_stop);
        // The rows of lanes of several axes are those of their groups.
        let flat = !together && !placed && lane_axes(func) == 1;
        Self { varying: varying(func), synchronises: meeting, together, flat, stops }
    }

    /// Whether lanes at one point of the program may see different values.
    pub fn varies(&self, v: Value) -> bool {
        self.varying[v.index()]
    }

    /// Whether lanes synchronise at an op, or in its regions.
    pub fn synchronises(&self, id: OpId) -> bool {
        self.synchronises[id.index()]
    }

    /// Whether lanes synchronise in the regions of an op, where what decides on them varies in form.
    pub fn must_agree(&self, func: &TileFunc, id: OpId) -> bool {
        let op = &func.ops[id];
        let decides = match op.code {
            TileOp::While => yields(func, op.regions[0])[..1].to_vec(),
            TileOp::If => op.operands[..1].to_vec(),
            _ => op.operands[..3].to_vec(),
        };
        self.synchronises(id) && decides.iter().any(|&v| self.varies(v))
    }

    /// Whether threads without a lane must also run an op with regions: to synchronise with the
    /// others there, or to know its uniform results.
    pub fn for_all(&self, func: &TileFunc, id: OpId) -> bool {
        self.synchronises(id) || func.ops[id].results.iter().any(|&v| !self.varies(v))
    }
}

/// Whether the step of a loop is above 0 for certain.
fn steps_forwards(func: &TileFunc, step: Value) -> bool {
    func.def(step).is_some_and(|op| match op.code {
        TileOp::Const => op.attr("value").and_then(Attr::as_int).is_some_and(|n| n > 0),
        code => code == TileOp::GroupSize,
    })
}

fn varying(func: &TileFunc) -> Vec<bool> {
    let mut marks = Marks { func, varying: vec![false; func.values.len()], changed: true };
    // Loops feed values back, so marks are propagated to a fixed point.
    while std::mem::take(&mut marks.changed) {
        marks.block(func.body);
    }
    marks.varying
}

struct Marks<'f> {
    func: &'f TileFunc,
    varying: Vec<bool>,
    changed: bool,
}

impl Marks<'_> {
    fn any(&self, values: &[Value]) -> bool {
        values.iter().any(|v| self.varying[v.index()])
    }

    fn mark(&mut self, v: Value, varies: bool) {
        if varies && !self.varying[v.index()] {
            self.varying[v.index()] = true;
            self.changed = true;
        }
    }

    fn block(&mut self, block: BlockId) {
        let func = self.func;
        for &id in &func.blocks[block].ops {
            self.op(&func.ops[id]);
        }
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn op(&mut self, op: &Op<Tile>) {
        use TileOp::*;
        match op.code {
            If => {
                op.regions.iter().for_each(|&r| self.block(r));
                let apart = self.any(&op.operands[..1]);
                for &region in &op.regions {
                    for (&result, y) in op.results.iter().zip(yields(self.func, region)) {
                        let varies = apart || self.any(&[y]);
                        self.mark(result, varies);
                    }
                }
            }
            For => {
                let body = op.regions[0];
                let args = &self.func.blocks[body].args;
                // Active lanes are all in the same iteration, whichever leave earlier.
                let place = self.any(&[op.operands[0], op.operands[2]]);
                self.mark(args[0], place);
                let apart = place || self.any(&op.operands[1..2]);
                self.carry(op, apart, &[&args[1..]], body);
            }
            While => {
                let (cond, body) = (op.regions[0], op.regions[1]);
                self.block(cond);
                let apart = self.any(&yields(self.func, cond));
                let blocks = &self.func.blocks;
                self.carry(op, apart, &[&blocks[cond].args, &blocks[body].args], body);
            }
            LinearId | LocalId | Atomic | GroupScan => {
                self.mark(op.result(), true);
            }
            // A text may read what differs from thread to thread, such as %laneid.
            Asm | AsmEffect => op.results.iter().for_each(|&result| self.mark(result, true)),
            GroupReduce => {}
            GroupBroadcast | GroupShuffle => {
                let from = self.any(&op.operands[1..2]);
                self.mark(op.result(), from);
            }
            Yield | Return | SlowPath | ProgramId | NumPrograms | GroupSize | WarpSize | Dim
            | Origin | Const | Iota | Select | Cast | Bitcast | Reshape | Transpose | Broadcast
            | Expand | Load | Store | Gather | Scatter | Accumulate | BufAlloc | CopyAsync
            | Barrier | CopyCommit | CopyWait | Mma | Philox | Print | Assert | Reduce | Scan
            | ArgReduce | Ew(_) | Slice | Concat | Take | ReduceBy | ScanBy | Sort | Histogram
            | Owned => {
                if let Some(&result) = op.results.first() {
                    let varies = self.any(&op.operands);
                    self.mark(result, varies);
                }
            }
        }
    }

    /// Loop-carried values: lanes that leave the loop keep theirs.
    fn carry(&mut self, op: &Op<Tile>, apart: bool, args: &[&[Value]], body: BlockId) {
        self.block(body);
        let yields = yields(self.func, body);
        for (i, &init) in op.group("init").iter().enumerate() {
            let next = yields.get(i).is_some_and(|&y| self.any(&[y]));
            let varies = apart || next || self.any(&[init, op.results[i]]);
            self.mark(op.results[i], varies);
            args.iter().for_each(|list| self.mark(list[i], varies));
        }
    }
}
