//! Which values may differ between the lanes of a group, and which ops the lanes do together.

use tessera_ir::{BlockId, Op, OpId, Value};
use tessera_support::Entity;
use tessera_tile::{Tile, TileFunc, TileOp};

/// What a region hands to its op.
pub fn yields(func: &TileFunc, block: BlockId) -> Vec<Value> {
    match func.terminator(block) {
        Some(id) if func.ops[id].code == TileOp::Yield => func.ops[id].operands.clone(),
        _ => Vec::new(),
    }
}

/// Whether the lanes of a group meet at an op.
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
    /// Ops at which lanes meet, and those around them.
    synchronises: Vec<bool>,
    /// Lanes meet somewhere or share memory: a group is one block.
    pub together: bool,
    /// Nothing asks which group a lane is in.
    pub flat: bool,
    /// A lane can be stopped by what it finds.
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
        let stops = any(&|c| c == TileOp::Assert);
        let flat = !together && !placed;
        Self { varying: varying(func), synchronises: meeting, together, flat, stops }
    }

    /// Whether lanes that are at one place in the program may see different values.
    pub fn varies(&self, v: Value) -> bool {
        self.varying[v.index()]
    }

    /// Whether threads without a lane must go through an op with regions too: to meet the others
    /// there, or to know what all of them know afterwards.
    pub fn for_all(&self, func: &TileFunc, id: OpId) -> bool {
        self.synchronises[id.index()] || func.ops[id].results.iter().any(|&v| !self.varies(v))
    }
}

fn varying(func: &TileFunc) -> Vec<bool> {
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

    fn op(&mut self, op: &Op<Tile>) {
        match op.code {
            TileOp::If => {
                op.regions.iter().for_each(|&r| self.block(r));
                let apart = self.any(&op.operands[..1]);
                for &region in &op.regions {
                    for (&result, y) in op.results.iter().zip(yields(self.func, region)) {
                        let varies = apart || self.any(&[y]);
                        self.mark(result, varies);
                    }
                }
            }
            TileOp::For => {
                let body = op.regions[0];
                let args = &self.func.blocks[body].args;
                // Lanes that still run are all in one round, whichever leave earlier.
                let place = self.any(&[op.operands[0], op.operands[2]]);
                self.mark(args[0], place);
                let apart = place || self.any(&op.operands[1..2]);
                self.carry(op, apart, &[&args[1..]], body);
            }
            TileOp::While => {
                let (cond, body) = (op.regions[0], op.regions[1]);
                self.block(cond);
                let apart = self.any(&yields(self.func, cond));
                let blocks = &self.func.blocks;
                self.carry(op, apart, &[&blocks[cond].args, &blocks[body].args], body);
            }
            TileOp::LinearId | TileOp::LocalId | TileOp::Atomic | TileOp::GroupScan => {
                self.mark(op.result(), true);
            }
            TileOp::GroupReduce => {}
            TileOp::GroupBroadcast | TileOp::GroupShuffle => {
                let from = self.any(&op.operands[1..2]);
                self.mark(op.result(), from);
            }
            _ => {
                if let Some(&result) = op.results.first() {
                    let varies = self.any(&op.operands);
                    self.mark(result, varies);
                }
            }
        }
    }

    /// The values that a loop carries: lanes that leave it keep theirs.
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
