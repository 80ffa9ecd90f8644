//! Analysis of a kernel: which values depend on which parameters (activity), where memory is read
//! and written, and which carried values are sums. Nothing is emitted here.

use super::weave::moves;
use crate::scalar;
use std::collections::BTreeMap;
use tessera_ir::{Attr, BlockId, OpId, Privilege, Type, Value, ValueDef};
use tessera_numerics::ScalarFn;
use tessera_support::SideTable;
use tessera_tile::{Atom, Linear, TileFunc, TileOp, lane_axis, linear_of};

/// A block of memory: for each axis where it begins, how long it is, and by which steps.
pub type Key = Vec<(Linear, i64, i64)>;

pub struct Study<'s> {
    pub func: &'s TileFunc,
    /// Values and buffers that depend on the parameters to differentiate by.
    pub active: SideTable<Value, bool>,
    /// Of each parameter in memory.
    pub loads: BTreeMap<Value, Vec<OpId>>,
    pub stores: BTreeMap<Value, Vec<OpId>>,
    pub folds: BTreeMap<Value, Vec<OpId>>,
    /// Values that may be NaN or infinite where elements are outside the arrays: they are computed
    /// from zeros there, and a function may have a pole at zero.
    pub wild: SideTable<Value, bool>,
    /// Who uses a value: the op and the operand's place.
    uses: SideTable<Value, Vec<(OpId, usize)>>,
}

/// Whether the results of an op are active where its operands are, if both are floats; control flow
/// and memory are handled elsewhere.
#[deny(clippy::wildcard_enum_match_arm)]
fn passes(code: TileOp) -> bool {
    match code {
        TileOp::Ew(f) => scalar::moves(f),
        TileOp::Select
        | TileOp::Cast
        | TileOp::Bitcast
        | TileOp::Reshape
        | TileOp::Transpose
        | TileOp::Broadcast
        | TileOp::Expand
        | TileOp::Mma
        | TileOp::Reduce
        | TileOp::Scan
        | TileOp::Slice
        | TileOp::Concat
        | TileOp::Take
        | TileOp::ReduceBy
        | TileOp::ScanBy
        | TileOp::Sort
        | TileOp::GroupReduce
        | TileOp::GroupScan
        | TileOp::GroupBroadcast
        | TileOp::GroupShuffle
        | TileOp::Atomic
        | TileOp::SlowPath
        | TileOp::Asm
        | TileOp::AsmEffect => true,
        TileOp::ArgReduce | TileOp::Histogram | TileOp::Philox | TileOp::Const | TileOp::Iota => {
            false
        }
        TileOp::ProgramId
        | TileOp::NumPrograms
        | TileOp::LinearId
        | TileOp::LocalId
        | TileOp::GroupSize
        | TileOp::WarpSize
        | TileOp::Dim
        | TileOp::Origin => false,
        TileOp::For | TileOp::If | TileOp::While | TileOp::Yield | TileOp::Return => false,
        TileOp::Load | TileOp::Gather | TileOp::Store | TileOp::Scatter | TileOp::Accumulate => {
            false
        }
        TileOp::BufAlloc
        | TileOp::CopyAsync
        | TileOp::Barrier
        | TileOp::CopyCommit
        | TileOp::CopyWait
        | TileOp::Print
        | TileOp::Owned
        | TileOp::Assert => false,
    }
}

impl<'s> Study<'s> {
    /// `wrt` says which parameters are active.
    pub fn new(func: &'s TileFunc, wrt: &[bool]) -> Self {
        let mut this = Self {
            func,
            active: SideTable::new(false),
            loads: BTreeMap::new(),
            stores: BTreeMap::new(),
            folds: BTreeMap::new(),
            wild: SideTable::new(false),
            uses: SideTable::new(Vec::new()),
        };
        let order = func.walk();
        for &id in &order {
            let op = &func.ops[id];
            for (place, &v) in op.operands.iter().enumerate() {
                this.uses.get_mut(v).push((id, place));
            }
            let list = match op.code {
                TileOp::Load | TileOp::Gather => &mut this.loads,
                TileOp::Store | TileOp::Scatter => &mut this.stores,
                TileOp::Accumulate | TileOp::Atomic => &mut this.folds,
                TileOp::CopyAsync => {
                    this.loads.entry(op.operands[1]).or_default().push(id);
                    continue;
                }
                _ => continue,
            };
            list.entry(op.operands[0]).or_default().push(id);
        }
        for (&p, &moves) in func.params().iter().zip(wrt) {
            this.active.set(p, moves && func.ty(p).dtype().is_float());
        }
        while order.iter().filter(|&&id| this.step(id)).count() > 0 {}
        while order.iter().filter(|&&id| this.stray(id)).count() > 0 {}
        this
    }

    fn mark(&mut self, v: Value, on: bool) -> bool {
        if !on || self.active[v] || !self.func.ty(v).dtype().is_float() {
            return false;
        }
        self.active.set(v, true);
        true
    }

    pub fn any(&self, values: &[Value]) -> bool {
        values.iter().any(|&v| self.active[v])
    }

    /// Propagates activity over one op; whether anything changed.
    fn step(&mut self, id: OpId) -> bool {
        let op = &self.func.ops[id];
        let mut changed = false;
        match op.code {
            TileOp::Load | TileOp::Gather => {
                let on = self.active[op.operands[0]] || self.any(op.group("other"));
                changed |= self.mark(op.result(), on);
            }
            // A load from shared memory is active where a store to it is.
            TileOp::Store | TileOp::Scatter | TileOp::Accumulate => {
                let buf = matches!(self.func.ty(op.operands[0]), Type::Buf { .. });
                changed |= self.mark(op.operands[0], buf && self.active[op.operands[1]]);
            }
            TileOp::CopyAsync => changed |= self.mark(op.operands[0], self.active[op.operands[1]]),
            TileOp::If => {
                for &region in &op.regions {
                    for (&r, &y) in op.results.iter().zip(self.yielded(region)) {
                        changed |= self.mark(r, self.active[y]);
                    }
                }
            }
            TileOp::For | TileOp::While => {
                let body = *op.regions.last().unwrap_or(&self.func.body);
                for (place, &init) in op.group("init").iter().enumerate() {
                    let next = self.yielded(body)[place];
                    let on = self.active[init] || self.active[next];
                    for &region in &op.regions {
                        let args = &self.func.blocks[region].args;
                        let first = args.len() - op.results.len();
                        changed |= self.mark(args[first + place], on);
                    }
                    changed |= self.mark(op.results[place], on);
                }
            }
            // Both sides of a combiner, and what it gives, are elements of one tile.
            TileOp::ReduceBy | TileOp::ScanBy => {
                let (region, tiles) = (op.regions[0], op.results.len());
                for place in 0..tiles {
                    let next = self.yielded(region)[place];
                    let on = self.active[op.operands[place]] || self.active[next];
                    let args = &self.func.blocks[region].args;
                    changed |= self.mark(args[place], on);
                    changed |= self.mark(args[tiles + place], on);
                    changed |= self.mark(op.results[place], on);
                }
            }
            code if passes(code) => {
                let on = self.any(&op.operands);
                for &r in &op.results {
                    changed |= moves(self.func.ty(r)) && self.mark(r, on);
                }
            }
            _ => {}
        }
        changed
    }

    /// Propagates `wild` over one op; whether anything changed.
    fn stray(&mut self, id: OpId) -> bool {
        let op = &self.func.ops[id];
        let pole = match op.code {
            TileOp::Ew(f) => scalar::is_singular(f),
            TileOp::Asm | TileOp::AsmEffect => true,
            TileOp::Const => {
                matches!(op.attr("value"), Some(Attr::Float(x)) if !x.is_finite())
            }
            _ => false,
        };
        let any = |this: &Self, values: &[Value]| values.iter().any(|&v| this.wild[v]);
        let mut on = pole || any(self, &op.operands);
        let mut touched = op.results.clone();
        for &region in &op.regions {
            on |= any(self, self.yielded(region));
            touched.extend(&self.func.blocks[region].args);
        }
        let mut changed = false;
        for v in touched {
            if on && !self.wild[v] && self.func.ty(v).dtype().is_float() {
                self.wild.set(v, true);
                changed = true;
            }
        }
        changed
    }

    /// What a region hands to the op around it.
    pub fn yielded(&self, region: BlockId) -> &'s [Value] {
        match self.func.terminator(region) {
            Some(id) => self.func.ops[id].group("values"),
            None => &[],
        }
    }

    /// The op around a block, and so on outwards.
    pub fn around(&self, mut block: BlockId) -> Vec<OpId> {
        let mut out = Vec::new();
        while let Some(id) = self.func.blocks[block].parent {
            out.push(id);
            block = self.func.ops[id].block;
        }
        out
    }

    /// Whether a block is the region, or inside it.
    fn is_inside(&self, mut block: BlockId, region: BlockId) -> bool {
        loop {
            if block == region {
                return true;
            }
            match self.func.blocks[block].parent {
                Some(id) => block = self.func.ops[id].block,
                None => return false,
            }
        }
    }

    fn home(&self, v: Value) -> BlockId {
        match self.func.values[v].def {
            ValueDef::Result(id, _) => self.func.ops[id].block,
            ValueDef::Arg(block, _) => block,
        }
    }

    /// Active values, defined outside the regions and used inside, in the order of first use.
    pub fn captured(&self, regions: &[BlockId]) -> Vec<Value> {
        let mut out = Vec::new();
        for &region in regions {
            self.func.walk_block(region, &mut |id| {
                for &v in &self.func.ops[id].operands {
                    let outside = !regions.iter().any(|&r| self.is_inside(self.home(v), r));
                    let value = moves(self.func.ty(v));
                    if outside && value && self.active[v] && !out.contains(&v) {
                        out.push(v);
                    }
                }
            });
        }
        out
    }

    /// Whether a carried value is a sum: each iteration adds something that does not depend on it.
    pub fn is_sum(&self, id: OpId, place: usize) -> bool {
        let body = self.func.ops[id].regions[0];
        let mut at = self.func.blocks[body].args[place + 1];
        loop {
            let [(user, operand)] = self.uses[at][..] else { return false };
            let op = &self.func.ops[user];
            if op.block != body {
                return false;
            }
            let adds = match op.code {
                TileOp::Yield => return operand == place,
                TileOp::Ew(ScalarFn::Add) => true,
                TileOp::Ew(ScalarFn::Sub) => operand == 0,
                TileOp::Ew(ScalarFn::Fma) | TileOp::Mma => operand == 2,
                TileOp::For if operand >= 3 => {
                    if !self.is_sum(user, operand - 3) {
                        return false;
                    }
                    at = op.results[operand - 3];
                    continue;
                }
                _ => false,
            };
            if !adds {
                return false;
            }
            at = op.result();
        }
    }

    pub fn list<'a>(&self, of: &'a BTreeMap<Value, Vec<OpId>>, param: Value) -> &'a [OpId] {
        of.get(&param).map_or(&[], Vec::as_slice)
    }

    /// The block that an access names; `None` where it gathers.
    pub fn key(&self, id: OpId) -> Option<Key> {
        let op = &self.func.ops[id];
        let extent = op.attr("extent").and_then(Attr::as_ints)?;
        let step = op.attr("step").and_then(Attr::as_ints).unwrap_or_else(|| vec![1; extent.len()]);
        let at = op.group("at").iter().map(|&v| linear_of(self.func, v));
        Some(at.zip(extent).zip(step).map(|((at, extent), step)| (at, extent, step)).collect())
    }

    /// Whether no two groups or lanes read one element of the parameter: it is read where one of
    /// them writes, and what they write is theirs alone.
    pub fn is_owned(&self, param: Value) -> bool {
        let plain = |p: &Value| {
            matches!(
                self.func.ty(*p),
                Type::View { privilege: Privilege::Write | Privilege::ReadWrite, .. }
            )
        };
        let stores = self.stores.iter().filter(|(p, _)| plain(p)).flat_map(|(_, ids)| ids);
        let written: Vec<Key> = stores.filter_map(|&id| self.key(id)).collect();
        let mut loads = self.list(&self.loads, param).iter();
        loads.all(|&id| self.key(id).is_some_and(|k| written.contains(&k)))
    }

    /// Whether blocks of one access in different iterations of a loop have no element in common.
    pub fn parts_in(&self, key: &Key, id: OpId) -> bool {
        let op = &self.func.ops[id];
        if op.code != TileOp::For {
            return false;
        }
        let var = Atom::Value(self.func.blocks[op.regions[0]].args[0]);
        let iteration = linear_of(self.func, op.operands[2]).as_constant().unwrap_or(1);
        key.iter().any(|(at, extent, step)| {
            let by = at.terms.get(&var).copied().unwrap_or(0).unsigned_abs();
            let span = (extent.max(&1) - 1).saturating_mul(*step) + 1;
            by.saturating_mul(iteration.unsigned_abs()) >= span.unsigned_abs() && by > 0
        })
    }

    /// Whether two blocks never have an element in common, or are one block.
    pub fn apart_or_same(a: &Key, b: &Key) -> bool {
        if a == b {
            return true;
        }
        a.iter().zip(b).any(|((x, ex, sx), (y, ey, sy))| {
            let Some(by) = y.minus(x).and_then(|d| d.as_constant()) else { return false };
            let (ends_x, ends_y) = ((ex.max(&1) - 1) * sx + 1, (ey.max(&1) - 1) * sy + 1);
            by >= ends_x || -by >= ends_y
        })
    }

    /// Whether an index depends on the lane's place along an axis.
    pub fn by_lane(&self, v: Value, axis: usize) -> bool {
        let mut fuel = 1000usize;
        self.finds_lane(v, axis, &mut fuel)
    }

    fn finds_lane(&self, v: Value, axis: usize, fuel: &mut usize) -> bool {
        if *fuel == 0 {
            return true;
        }
        *fuel -= 1;
        match self.func.def(v) {
            Some(op) if op.code == TileOp::LinearId => lane_axis(op).unwrap_or(0) == axis,
            Some(op) if matches!(op.code, TileOp::Load | TileOp::For | TileOp::While) => false,
            Some(op) => op.operands.iter().any(|&v| self.finds_lane(v, axis, fuel)),
            None => false,
        }
    }
}
