//! Uniformity analysis: which values may differ between the lanes of a group, and which ops are
//! collective.

use tessera_ir::{BlockId, Op, OpId, Type, Value};
use tessera_numerics::Profile;
use tessera_support::Entity;
use tessera_tile::{Tile, TileFunc, TileOp};

/// For each value, whether lanes at one point of the program may have different ones.
pub fn varying(func: &TileFunc) -> Vec<bool> {
    let mut marks = Marks { func, varying: vec![false; func.values.len()], changed: true };
    // Loops hand values to themselves, so marks are made until there are no new ones.
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
    fn is(&self, v: Value) -> bool {
        self.varying[v.index()]
    }

    fn any(&self, values: &[Value]) -> bool {
        values.iter().any(|&v| self.is(v))
    }

    fn mark(&mut self, v: Value, varies: bool) {
        if varies && !self.is(v) {
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
            If => self.branch(op),
            For => self.counted(op),
            While => self.conditional(op),
            LinearId | LocalId | Atomic | GroupScan => {
                self.mark(op.result(), true);
            }
            // Each lane runs it, and may get another result.
            AsmEffect => op.results.iter().for_each(|&result| self.mark(result, true)),
            GroupReduce => {}
            GroupBroadcast | GroupShuffle => {
                let from = self.is(op.operands[1]);
                self.mark(op.result(), from);
            }
            Yield | Return | SlowPath | ProgramId | NumPrograms | GroupSize | WarpSize | Dim
            | Origin | Const | Iota | Select | Cast | Bitcast | Reshape | Transpose | Broadcast
            | Expand | Load | Store | Gather | Scatter | Accumulate | BufAlloc | CopyAsync
            | Barrier | CopyCommit | CopyWait | Mma | Philox | Print | Assert | Reduce | Scan
            | ArgReduce | Ew(_) | Slice | Concat | Take | ReduceBy | ScanBy | Sort | Histogram
            | Owned | Asm => {
                if let Some(&result) = op.results.first() {
                    let varies = self.any(&op.operands);
                    self.mark(result, varies);
                }
            }
        }
    }

    fn branch(&mut self, op: &Op<Tile>) {
        op.regions.iter().for_each(|&r| self.block(r));
        let apart = self.is(op.operands[0]);
        for &region in &op.regions {
            for (&result, y) in op.results.iter().zip(yields(self.func, region)) {
                let varies = apart || self.is(y);
                self.mark(result, varies);
            }
        }
    }

    fn counted(&mut self, op: &Op<Tile>) {
        let body = op.regions[0];
        let args = &self.func.blocks[body].args;
        // Lanes that still run are all in one iteration, whichever left earlier.
        let place = self.is(op.operands[0]) || self.is(op.operands[2]);
        self.mark(args[0], place);
        let apart = place || self.is(op.operands[1]);
        self.carry(op, apart, &[&args[1..]], body);
    }

    fn conditional(&mut self, op: &Op<Tile>) {
        let (cond, body) = (op.regions[0], op.regions[1]);
        self.block(cond);
        let apart = self.any(&yields(self.func, cond));
        let blocks = &self.func.blocks;
        self.carry(op, apart, &[&blocks[cond].args, &blocks[body].args], body);
    }

    /// The values that a loop carries: lanes that leave it keep theirs.
    fn carry(&mut self, op: &Op<Tile>, apart: bool, args: &[&[Value]], body: BlockId) {
        self.block(body);
        let yields = yields(self.func, body);
        for (i, &init) in op.group("init").iter().enumerate() {
            let next = yields.get(i).is_some_and(|&y| self.is(y));
            let varies = apart || self.is(init) || next || self.is(op.results[i]);
            self.mark(op.results[i], varies);
            args.iter().for_each(|list| self.mark(list[i], varies));
        }
    }
}

/// What a region hands to its op.
pub fn yields(func: &TileFunc, block: BlockId) -> Vec<Value> {
    match func.terminator(block) {
        Some(id) if func.ops[id].code == TileOp::Yield => func.ops[id].operands.clone(),
        _ => Vec::new(),
    }
}

/// For each op, whether all lanes of the group must have come to it before any goes on, or there is
/// such an op in its regions.
pub fn cuts(func: &TileFunc, profile: Profile) -> Vec<bool> {
    let walk = func.walk();
    let ordered: Vec<OpId> = walk.iter().copied().filter(|&id| is_ordered(func, id)).collect();
    let in_loop = |id: &OpId| {
        let around = func.ancestors(func.ops[*id].block);
        around.iter().any(|&a| matches!(func.ops[a].code, TileOp::For | TileOp::While))
    };
    // One such op by itself happens in the order of the lanes, vector after vector.
    let fences = profile != Profile::Default && (ordered.len() > 1 || ordered.iter().any(in_loop));
    let mut cuts = vec![false; func.ops.len()];
    for &id in &walk {
        if is_cut(func.ops[id].code) || (fences && ordered.contains(&id)) {
            cuts[id.index()] = true;
            for around in func.ancestors(func.ops[id].block) {
                cuts[around.index()] = true;
            }
        }
    }
    cuts
}

fn is_cut(code: TileOp) -> bool {
    matches!(
        code,
        TileOp::Barrier
            | TileOp::BufAlloc
            | TileOp::Print
            | TileOp::GroupReduce
            | TileOp::GroupScan
            | TileOp::GroupBroadcast
            | TileOp::GroupShuffle
    )
}

/// Whether the order in which lanes do it can be seen in the result.
fn is_ordered(func: &TileFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    match op.code {
        TileOp::Atomic => true,
        TileOp::Accumulate => {
            matches!(func.ty(op.operands[0]), Type::View { privilege, .. } if privilege.reduces())
        }
        _ => false,
    }
}

/// Ops that only compute: they may happen earlier, more often, or for lanes that are not there.
pub fn is_pure(code: TileOp) -> bool {
    matches!(
        code,
        TileOp::Ew(_)
            | TileOp::Const
            | TileOp::Select
            | TileOp::Cast
            | TileOp::Bitcast
            | TileOp::Philox
            | TileOp::Asm
            | TileOp::ProgramId
            | TileOp::NumPrograms
            | TileOp::LinearId
            | TileOp::LocalId
            | TileOp::GroupSize
            | TileOp::WarpSize
            | TileOp::Dim
    )
}
