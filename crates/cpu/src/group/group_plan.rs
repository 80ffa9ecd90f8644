//! Which tiles of a group kernel get memory of their own, and which are only expressions.
//!
//! Before: a valid group function. After: `kept` names the tiles that are computed once into
//! memory; every other tile that an op of [`is_expression`] gives is computed where it is used,
//! element by element, inside the loop nest of its user. Meaning does not depend on it, save that a
//! load may not be put off past a write to what it reads: such loads are kept.

use super::stores::{self, Alias};
use crate::atomic::only_folds;
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, BlockId, OpId, Type, Value};
use tessera_numerics::{DType, ScalarFn, expansion};
use tessera_support::Entity;
use tessera_tile::{TileFunc, TileOp};

pub struct GroupPlan {
    pub kept: BTreeSet<Value>,
    /// The ops that use a value, each once.
    users: Vec<Vec<OpId>>,
    /// The ops in whose nests an expression is computed.
    nests: BTreeMap<Value, BTreeSet<OpId>>,
    /// What computing one element of a value costs, in simple operations.
    weight: Vec<u32>,
    /// For each store that shares its nest with others, all of them.
    runs: BTreeMap<OpId, Vec<OpId>>,
    pub alias: Alias,
}

/// Above this, computing a tile twice costs more than writing and reading it.
const WORTH_KEEPING: u32 = 4;
/// From this many elements on, a tile that others broadcast is worth a loop of its own.
const SEVERAL: i64 = 8;
const HEAVY: u32 = 1 << 16;

impl GroupPlan {
    pub fn new(func: &TileFunc) -> Self {
        let mut users = vec![Vec::new(); func.values.len()];
        let walk = func.walk();
        for &id in &walk {
            for &v in &func.ops[id].operands {
                let list: &mut Vec<OpId> = &mut users[v.index()];
                if list.last() != Some(&id) {
                    list.push(id);
                }
            }
        }
        let alias = Alias::of(func);
        let mut plan = Self {
            kept: BTreeSet::new(),
            users,
            nests: BTreeMap::new(),
            weight: vec![0; func.values.len()],
            runs: stores::runs(func, &alias),
            alias,
        };
        for &id in &walk {
            plan.weigh(func, id);
        }
        let written = written(func);
        let mut reach = BTreeMap::new();
        // Users come after what they use, so that going backwards each is decided before.
        for &id in walk.iter().rev() {
            for &v in &func.ops[id].results {
                if matches!(func.ty(v), Type::Tile { .. }) {
                    plan.decide(func, id, v, &written, &mut reach);
                }
            }
        }
        plan
    }

    pub fn users(&self, v: Value) -> &[OpId] {
        &self.users[v.index()]
    }

    /// The stores of the nest that a store is a part of, in order.
    pub fn run(&self, store: OpId) -> Vec<OpId> {
        self.runs.get(&store).cloned().unwrap_or_else(|| vec![store])
    }

    /// The op that stands where the nest of an op is emitted.
    fn nest_of(&self, user: OpId) -> OpId {
        self.runs.get(&user).and_then(|run| run.last()).copied().unwrap_or(user)
    }

    /// In how many nests the elements of an expression are computed.
    pub fn nests(&self, v: Value) -> usize {
        self.nests.get(&v).map_or(0, BTreeSet::len)
    }

    /// The work for each element of the heaviest store that computes an expression.
    pub fn heaviest_store(&self, func: &TileFunc, v: Value) -> u32 {
        let nests = self.nests.get(&v).into_iter().flatten();
        let stores = nests.filter(|&&id| func.ops[id].code == TileOp::Store);
        let weight = |&id: &OpId| -> u32 {
            let run = self.run(id).into_iter();
            run.map(|id| self.weight(func.ops[id].operands[1])).fold(0, u32::saturating_add)
        };
        stores.map(weight).max().unwrap_or(0)
    }

    pub fn weight(&self, v: Value) -> u32 {
        self.weight[v.index()]
    }

    fn weigh(&mut self, func: &TileFunc, id: OpId) {
        let op = &func.ops[id];
        let own = own_weight(func, id);
        let of = |v: &Value| if func.ty(*v).rank() == 0 { 0 } else { self.weight[v.index()] };
        let inputs: u32 = op.operands.iter().map(of).fold(0, u32::saturating_add);
        for &v in &op.results {
            self.weight[v.index()] =
                if is_expression(func, id) { inputs.saturating_add(own).min(HEAVY) } else { 1 };
        }
    }

    /// `reach`: for each expression, the ops whose loop nests it would be computed in.
    fn decide(
        &mut self,
        func: &TileFunc,
        id: OpId,
        v: Value,
        written: &BTreeSet<Value>,
        reach: &mut BTreeMap<Value, BTreeSet<OpId>>,
    ) {
        if !is_expression(func, id) {
            return;
        }
        let mut nests = BTreeSet::new();
        let mut whole = false;
        for &user in self.users(v) {
            let result = func.ops[user].results.first().copied();
            match result {
                Some(r) if is_expression(func, user) && !self.kept.contains(&r) => {
                    if func.ty(r).rank() == 0 {
                        nests.insert(user);
                    } else if let Some(more) = reach.get(&r) {
                        nests.extend(more);
                    }
                }
                _ => {
                    nests.insert(self.nest_of(user));
                }
            }
            whole |= wants_memory(func, user, v);
        }
        let op = &func.ops[id];
        let reads = matches!(op.code, TileOp::Load | TileOp::Gather);
        let stale = reads
            && written.contains(&self.alias.memory(op.operands[0]))
            && !self.stays_fresh(func, id, &nests);
        // What loops use again and again is computed before them.
        let into_loop = nests.iter().any(|&n| func.ops[n].block != op.block);
        let dear = self.weight(v) > WORTH_KEEPING;
        if whole
            || stale
            || (dear && (nests.len() > 1 || into_loop || self.is_stretched(func, id, v)))
        {
            self.kept.insert(v);
        }
        self.nests.insert(v, nests.clone());
        reach.insert(v, nests);
    }

    /// Whether something computed is repeated along other axes. Inside the nest over those it would
    /// be computed one element at a time, or anew for each of their positions.
    fn is_stretched(&self, func: &TileFunc, id: OpId, v: Value) -> bool {
        let count = |v: Value| -> i64 {
            func.ty(v).static_shape().map_or(1, |shape| shape.into_iter().product())
        };
        if own_weight(func, id) == 0 || count(v) < SEVERAL {
            return false;
        }
        let mut list = vec![v];
        while let Some(of) = list.pop() {
            for &user in self.users(of) {
                let code = func.ops[user].code;
                if matches!(code, TileOp::Broadcast | TileOp::Expand | TileOp::Reshape) {
                    let result = func.ops[user].result();
                    if count(result) > count(v) {
                        return true;
                    }
                    list.push(result);
                }
            }
        }
        false
    }

    /// Whether nothing writes to what the load reads before its last user has read it: the users'
    /// nests are in its own block, with no write between; a store to the very elements that were
    /// read may be the last of them.
    fn stays_fresh(&self, func: &TileFunc, load: OpId, nests: &BTreeSet<OpId>) -> bool {
        let (op, block) = (&func.ops[load], func.ops[load].block);
        let mem = self.alias.memory(op.operands[0]);
        if op.code != TileOp::Load || nests.iter().any(|&n| func.ops[n].block != block) {
            return false;
        }
        let ops = &func.blocks[block].ops;
        let place = |id: OpId| ops.iter().position(|&o| o == id).unwrap_or(0);
        let (first, last) = (place(load), nests.iter().map(|&n| place(n)).max().unwrap_or(0));
        let between = &ops[first + 1..last.max(first + 1)];
        let run = self.run(ops[last]);
        if between.iter().any(|o| !run.contains(o) && writes(func, *o, mem)) {
            return false;
        }
        run.into_iter().all(|store| {
            !writes(func, store, mem)
                || (same_elements(func, load, store) && self.in_step(func, load, store))
        })
    }

    /// Whether the store uses the load's elements only at their own positions.
    fn in_step(&self, func: &TileFunc, load: OpId, store: OpId) -> bool {
        let mut list = vec![func.ops[load].result()];
        while let Some(v) = list.pop() {
            for &user in self.users(v) {
                if user == store {
                    continue;
                }
                match func.ops[user].results.first() {
                    Some(&r) if is_pointwise(func.ops[user].code) => list.push(r),
                    // Another nest, before the store.
                    _ if !is_expression(func, user) => {}
                    _ => return false,
                }
            }
        }
        true
    }
}

/// Ops that make each element of the elements at its own position.
pub fn is_pointwise(code: TileOp) -> bool {
    matches!(
        code,
        TileOp::Ew(_)
            | TileOp::Select
            | TileOp::Cast
            | TileOp::Bitcast
            | TileOp::Philox
            | TileOp::Asm
    )
}

/// Ops whose tile result can be computed one element at a time, wherever it is used.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn is_expression(func: &TileFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    match op.code {
        TileOp::Const
        | TileOp::Iota
        | TileOp::Ew(_)
        | TileOp::Select
        | TileOp::Cast
        | TileOp::Bitcast
        | TileOp::Broadcast
        | TileOp::Expand
        | TileOp::Transpose
        | TileOp::Load
        | TileOp::Gather
        | TileOp::Reshape
        | TileOp::Philox
        | TileOp::Asm => true,
        TileOp::For
        | TileOp::If
        | TileOp::While
        | TileOp::SlowPath
        | TileOp::Yield
        | TileOp::Return
        | TileOp::ProgramId
        | TileOp::NumPrograms
        | TileOp::LinearId
        | TileOp::LocalId
        | TileOp::GroupSize
        | TileOp::WarpSize
        | TileOp::Dim
        | TileOp::Origin
        | TileOp::Store
        | TileOp::Scatter
        | TileOp::Accumulate
        | TileOp::BufAlloc
        | TileOp::CopyAsync
        | TileOp::Barrier
        | TileOp::Atomic
        | TileOp::CopyCommit
        | TileOp::CopyWait
        | TileOp::Mma
        | TileOp::GroupReduce
        | TileOp::GroupScan
        | TileOp::GroupBroadcast
        | TileOp::GroupShuffle
        | TileOp::Print
        | TileOp::Assert
        | TileOp::Reduce
        | TileOp::Scan
        | TileOp::ArgReduce => false,
        // Expanded before.
        TileOp::Slice
        | TileOp::Concat
        | TileOp::Take
        | TileOp::ReduceBy
        | TileOp::ScanBy
        | TileOp::Sort
        | TileOp::Histogram
        | TileOp::Owned
        | TileOp::AsmEffect => false,
    }
}

/// Whether an op reads this operand as a whole tile in memory.
fn wants_memory(func: &TileFunc, user: OpId, v: Value) -> bool {
    let op = &func.ops[user];
    match op.code {
        TileOp::Mma => op.operands[..2].contains(&v),
        TileOp::Reshape => !same_but_ones(func.ty(op.operands[0]), func.ty(op.result())),
        TileOp::Atomic => !only_folds(func, user),
        TileOp::ArgReduce | TileOp::Print => true,
        _ => false,
    }
}

/// Whether two shapes differ only in axes of extent 1.
pub fn same_but_ones(a: &Type, b: &Type) -> bool {
    let long = |t: &Type| -> Vec<i64> {
        t.static_shape().unwrap_or_default().into_iter().filter(|&d| d != 1).collect()
    };
    long(a) == long(b)
}

fn own_weight(func: &TileFunc, id: OpId) -> u32 {
    let op = &func.ops[id];
    match op.code {
        TileOp::Ew(f)
            if func.ty(op.operands[0]).dtype() == DType::F32 && expansion(f).is_some() =>
        {
            20
        }
        TileOp::Ew(ScalarFn::Div | ScalarFn::Sqrt | ScalarFn::FloorDiv | ScalarFn::Mod) => 4,
        TileOp::Ew(_) | TileOp::Select | TileOp::Cast | TileOp::Bitcast | TileOp::Load => 1,
        TileOp::Gather => 8,
        TileOp::Philox => 30,
        // One element after another.
        TileOp::Asm => 8,
        _ => 0,
    }
}

/// The memories that the function writes to.
fn written(func: &TileFunc) -> BTreeSet<Value> {
    let one = |id: &OpId| written_by(func, *id);
    func.walk().iter().filter_map(one).collect()
}

/// The memory that an op itself writes to.
pub fn written_by(func: &TileFunc, id: OpId) -> Option<Value> {
    let op = &func.ops[id];
    let writes = matches!(
        op.code,
        TileOp::Store
            | TileOp::Scatter
            | TileOp::Accumulate
            | TileOp::Atomic
            | TileOp::CopyAsync
            | TileOp::CopyWait
    );
    writes.then(|| op.operands.first().copied()).flatten()
}

fn writes(func: &TileFunc, id: OpId, mem: Value) -> bool {
    // A wait may bring what any copy before it began.
    let own = |id: OpId| func.ops[id].code == TileOp::CopyWait || written_by(func, id) == Some(mem);
    if own(id) {
        return true;
    }
    let mut found = false;
    let mut inside = |block: BlockId| func.walk_block(block, &mut |o| found |= own(o));
    func.ops[id].regions.iter().for_each(|&r| inside(r));
    found
}

/// Whether a store writes exactly the block that a load read.
pub fn same_elements(func: &TileFunc, load: OpId, store: OpId) -> bool {
    let (a, b) = (&func.ops[load], &func.ops[store]);
    let ints =
        |op: &tessera_ir::Op<tessera_tile::Tile>, name| op.attr(name).and_then(Attr::as_ints);
    matches!(b.code, TileOp::Store | TileOp::Accumulate)
        && a.group("at") == b.group("at")
        && ints(a, "extent") == ints(b, "extent")
        && ints(a, "step") == ints(b, "step")
}
