//! Layout assignment: propagates layouts from the seeds (`seeds`) to all tiles, as Triton's layout
//! propagation does.
//!
//! Input: a group kernel and its seeds. Output: a layout for every tile. A layout spreads to all
//! values that must or can share it without moving data, as long as they have none. Where two
//! layouts conflict, `open` inserts a conversion.

use super::Staging;
use super::seeds::{extents, seeds};
use super::threads::Team;
use super::tile_ops::{cut_axis, position};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tessera_ir::{Attr, BlockId, OpId, Type, Value};
use tessera_layout::Layout;
use tessera_tile::{TileFunc, TileOp};

pub type Layouts = BTreeMap<Value, Arc<Layout>>;

struct Spread<'a> {
    func: &'a TileFunc,
    /// The ops that each value is an operand or result of.
    near: BTreeMap<Value, Vec<OpId>>,
    /// Values that must have one layout: carried by loops, given by branches.
    same: BTreeMap<Value, Vec<Value>>,
    layouts: Layouts,
    queue: VecDeque<Value>,
}

/// A layout for every tile of the function.
pub fn assign(func: &TileFunc, staging: &Staging<'_>, team: Team) -> Layouts {
    let mut near: BTreeMap<Value, Vec<OpId>> = BTreeMap::new();
    let mut same: BTreeMap<Value, Vec<Value>> = BTreeMap::new();
    let mut join = |a: Value, b: Value| {
        same.entry(a).or_default().push(b);
        same.entry(b).or_default().push(a);
    };
    for id in func.walk() {
        let op = &func.ops[id];
        for &v in op.operands.iter().chain(&op.results) {
            near.entry(v).or_default().push(id);
        }
        let yields =
            |block: BlockId| func.terminator(block).map_or(&[][..], |t| &func.ops[t].operands);
        match op.code {
            TileOp::For => {
                let args = &func.blocks[op.regions[0]].args[1..];
                for (i, &arg) in args.iter().enumerate() {
                    join(arg, op.group("init")[i]);
                    join(arg, yields(op.regions[0])[i]);
                    join(arg, op.results[i]);
                }
            }
            TileOp::While => {
                let (cond, body) = (op.regions[0], op.regions[1]);
                for (i, &arg) in func.blocks[body].args.iter().enumerate() {
                    join(arg, func.blocks[cond].args[i]);
                    join(arg, op.group("init")[i]);
                    join(arg, yields(body)[i]);
                    join(arg, op.results[i]);
                }
            }
            TileOp::SlowPath => {
                for (i, &result) in op.results.iter().enumerate() {
                    join(result, op.group("init")[i]);
                    join(result, yields(op.regions[0])[i]);
                }
            }
            TileOp::If => {
                for (i, &result) in op.results.iter().enumerate() {
                    for &region in &op.regions {
                        join(result, yields(region)[i]);
                    }
                }
            }
            _ => {}
        }
    }
    let mut s = Spread { func, near, same, layouts: BTreeMap::new(), queue: VecDeque::new() };
    for seed in seeds(func, staging, team) {
        s.give(seed.value, Arc::new(seed.layout));
        while let Some(v) = s.queue.pop_front() {
            s.spread(v);
        }
    }
    // Arguments of regions that nothing touches.
    for (v, data) in func.values.iter() {
        if matches!(data.ty, Type::Tile { .. }) && !s.layouts.contains_key(&v) {
            let layout = super::seeds::plain(&extents(&data.ty), team);
            s.layouts.insert(v, Arc::new(layout));
        }
    }
    s.layouts
}

impl Spread<'_> {
    fn give(&mut self, v: Value, layout: Arc<Layout>) {
        let Type::Tile { .. } = self.func.ty(v) else { return };
        // Constants are rematerialised where they are needed: they pass nothing on.
        if self.layouts.contains_key(&v) {
            return;
        }
        self.layouts.insert(v, layout);
        let free =
            self.func.def(v).is_some_and(|op| matches!(op.code, TileOp::Const | TileOp::Iota));
        if !free {
            self.queue.push_back(v);
        }
    }

    fn spread(&mut self, v: Value) {
        let layout = self.layouts[&v].clone();
        for other in self.same.get(&v).cloned().unwrap_or_default() {
            self.give(other, layout.clone());
        }
        for id in self.near.get(&v).cloned().unwrap_or_default() {
            self.across(id, v, &layout);
        }
    }

    /// Propagates the layout of one value of an op to the others.
    #[deny(clippy::wildcard_enum_match_arm)]
    fn across(&mut self, id: OpId, v: Value, layout: &Arc<Layout>) {
        use TileOp::*;
        let func = self.func;
        let op = &func.ops[id];
        let axis = || op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
        let from_operand = op.operands.first() == Some(&v);
        let is_result = op.results.first() == Some(&v);
        match op.code {
            Ew(_) | Select | Cast | Bitcast | Philox | Scan | ScanBy | Store | Gather | Scatter
            | Accumulate | Atomic | Asm | AsmEffect => {
                for &other in op.operands.iter().chain(&op.results) {
                    self.give(other, layout.clone());
                }
            }
            Expand if is_result => {
                if let Some(l) = layout.squeeze(axis()) {
                    self.give(op.operands[0], Arc::new(l));
                }
            }
            Expand if from_operand => {
                self.give(op.result(), Arc::new(layout.expand(axis())));
            }
            Transpose => {
                let perm = permutation(op.attr("perm"));
                if is_result {
                    self.give(op.operands[0], Arc::new(layout.transpose(&inverse(&perm))));
                } else {
                    self.give(op.result(), Arc::new(layout.transpose(&perm)));
                }
            }
            Broadcast if is_result => {
                let operand = op.operands[0];
                if let Type::Tile { .. } = func.ty(operand) {
                    let l = layout.broadcast_from(&extents(func.ty(operand)));
                    self.give(operand, Arc::new(l));
                }
            }
            Reduce | ArgReduce if from_operand => {
                let l = layout.reduce(axis());
                self.give(op.result(), Arc::new(l));
            }
            ReduceBy if op.operands.contains(&v) => {
                for &other in &op.operands {
                    self.give(other, layout.clone());
                }
                let l = Arc::new(layout.reduce(axis()));
                for &result in &op.results {
                    self.give(result, l.clone());
                }
            }
            Sort if from_operand => {
                if let Some(l) = layout.ascending(axis()).map(Arc::new) {
                    for &result in &op.results {
                        self.give(result, l.clone());
                    }
                }
            }
            Slice if from_operand => {
                if let Some((axis, _)) = cut_axis(func, op) {
                    self.give(op.result(), Arc::new(position(layout, axis)));
                }
            }
            Reshape => {
                let (other, shape) = if is_result {
                    (op.operands[0], extents(func.ty(op.operands[0])))
                } else {
                    (op.result(), extents(func.ty(op.result())))
                };
                if let Some(l) = layout.reshape(&shape) {
                    self.give(other, Arc::new(l));
                }
            }
            // The accumulators alone share a layout; the operands have one of their own.
            Mma if op.operands[2] == v || is_result => {
                self.give(op.operands[2], layout.clone());
                self.give(op.result(), layout.clone());
            }
            For | If | While | Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId
            | LocalId | GroupSize | WarpSize | Dim | Origin | Const | Iota | Broadcast | Expand
            | Load | BufAlloc | CopyAsync | Barrier | CopyCommit | CopyWait | Mma | GroupReduce
            | GroupScan | GroupBroadcast | GroupShuffle | Print | Assert | Reduce | ArgReduce
            | Slice | Concat | Take | ReduceBy | Sort | Histogram | Owned => {}
        }
    }
}

pub fn permutation(perm: Option<&Attr>) -> Vec<usize> {
    let perm = perm.and_then(Attr::as_ints).unwrap_or_default();
    perm.iter().map(|&p| p as usize).collect()
}

pub fn inverse(perm: &[usize]) -> Vec<usize> {
    let mut out = vec![0; perm.len()];
    for (i, &p) in perm.iter().enumerate() {
        out[p] = i;
    }
    out
}
