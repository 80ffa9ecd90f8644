//! The flow of padding through a kernel: the state of every value, to a fixed point.

use super::condition::{Masked, Sides, bounded_axes, bounded_by_complement, cuts};
use super::held::{Held, apply};
use super::ragged_state::{Axis, Root, Spread};
use crate::facts::{extents, int_const, kept_axes, positioned, reach, written, yielded};
use crate::sign::may_be_negative;
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, BlockId, OpId, Value, ValueDef};
use tessera_numerics::{DType, ScalarFn};
use tessera_support::SideTable;
use tessera_tile::{TileFunc, TileOp};

pub(super) type State = Vec<Axis>;

pub(super) struct Flow<'f> {
    pub(super) func: &'f TileFunc,
    states: SideTable<Value, Option<State>>,
    /// What any element of a value may be, where constants alone make it.
    wholes: SideTable<Value, Option<Held>>,
    /// What any write left in a buffer that is memory, by the buffer's axes.
    buffers: BTreeMap<Value, State>,
    /// Buffers that nothing but copies of tensors writes.
    copied: BTreeSet<Value>,
    changed: bool,
}

/// The states at the fixed point. Loop arguments and buffers only ever get worse, so it is reached.
pub(super) fn flow(func: &TileFunc) -> Flow<'_> {
    let (states, wholes) = (SideTable::new(None), SideTable::new(None));
    let mut flow = Flow {
        func,
        states,
        wholes,
        buffers: BTreeMap::new(),
        copied: copied(func),
        changed: true,
    };
    while flow.changed {
        flow.changed = false;
        flow.block(func.body);
    }
    flow
}

/// Buffers that are written by copies alone, of tensors.
fn copied(func: &TileFunc) -> BTreeSet<Value> {
    let (mut copied, mut other) = (BTreeSet::new(), BTreeSet::new());
    for id in func.walk() {
        let op = &func.ops[id];
        let Some(memory) = written(op) else { continue };
        match op.code == TileOp::CopyAsync && crate::facts::is_view(func, op.operands[1]) {
            true => copied.insert(memory),
            false => other.insert(memory),
        };
    }
    copied.retain(|memory| !other.contains(memory));
    copied
}

/// Whether a block is inside its memory for reasons known at compile time: a constant start, and an
/// end within a static dimension; or because the access says so. Sizes known at run time never
/// count.
fn inside(func: &TileFunc, access: OpId, memory: Value, axis: usize) -> bool {
    let op = &func.ops[access];
    if op.attr("inbounds").and_then(Attr::as_bool) == Some(true) {
        return true;
    }
    let start = op.group("at").get(axis).and_then(|&at| int_const(func, at));
    let end = start.and_then(|s| s.checked_add(reach(op, axis)?));
    let size = func.ty(memory).shape()[axis].as_static();
    matches!((start, end, size), (Some(s), Some(e), Some(d)) if s >= 0 && e <= d)
}

fn is_zero(constant: Option<&Attr>) -> bool {
    match constant {
        Some(Attr::Bool(b)) => !b,
        Some(other) => other.as_float() == Some(0.0),
        None => false,
    }
}

/// Whether a slice is read inside a loop, at a position that may be another in each iteration.
fn moves(func: &TileFunc, owner: OpId, root: Root) -> bool {
    let start = func.ops[root.access].group("at").get(root.axis).copied();
    let inside: BTreeSet<OpId> = inner(func, owner).into_iter().collect();
    let mut seen = BTreeSet::new();
    let mut left: Vec<Value> =
        start.into_iter().filter(|_| inside.contains(&root.access)).collect();
    while let Some(value) = left.pop() {
        if !seen.insert(value) {
            continue;
        }
        match func.values[value].def {
            ValueDef::Arg(block, _) => {
                let parent = func.blocks[block].parent;
                if parent.is_some_and(|p| p == owner || inside.contains(&p)) {
                    return true;
                }
            }
            ValueDef::Result(op, _) if !inside.contains(&op) => {}
            ValueDef::Result(op, _) => {
                let op = &func.ops[op];
                if !op.regions.is_empty() || positioned(op).is_some() {
                    return true;
                }
                left.extend(&op.operands);
            }
        }
    }
    false
}

/// The ops in the regions of an op.
fn inner(func: &TileFunc, owner: OpId) -> Vec<OpId> {
    let mut out = Vec::new();
    for &region in &func.ops[owner].regions {
        for &id in &func.blocks[region].ops {
            out.push(id);
            out.extend(inner(func, id));
        }
    }
    out
}

pub(super) fn spoil(axis: Axis) -> Axis {
    axis.spoiled()
}

impl Flow<'_> {
    /// The state of a value; of a constant zero, `Nil` along every axis.
    pub fn state(&self, value: Value) -> State {
        let rank = self.func.ty(value).rank();
        self.states[value].clone().unwrap_or_else(|| vec![Axis::Clean; rank])
    }

    fn axis(&self, value: Value, axis: usize) -> Axis {
        if self.is_nil(value) { Axis::Nil } else { self.state(value)[axis] }
    }

    fn is_nil(&self, value: Value) -> bool {
        let state = self.state(value);
        if !state.is_empty() {
            return state.iter().all(|a| *a == Axis::Nil);
        }
        let constant = self.func.def(value).filter(|op| op.code == TileOp::Const);
        constant.is_some_and(|op| is_zero(op.attr("value")))
    }

    fn set(&mut self, value: Value, state: State) {
        if self.states[value].as_ref() != Some(&state) {
            self.states.set(value, Some(state));
        }
    }

    /// Adds what may come to a loop argument or the result of a branch.
    fn merge(&mut self, value: Value, more: &State) {
        let joined = match &self.states[value] {
            None => more.clone(),
            Some(old) => old.iter().zip(more).map(|(a, b)| a.join(*b)).collect(),
        };
        if self.states[value].as_ref() != Some(&joined) {
            self.states.set(value, Some(joined));
            self.changed = true;
        }
    }

    fn known(&self, value: Value) -> Option<State> {
        self.states[value].clone()
    }

    fn block(&mut self, block: BlockId) {
        for id in self.func.blocks[block].ops.clone() {
            self.op(id);
        }
    }

    fn merge_all(&mut self, from: &[Value], to: &[Value]) {
        for (&from, &to) in from.iter().zip(to) {
            // What was not reached yet adds nothing; what has no state of its own is clean.
            let state = self.known(from).unwrap_or_else(|| self.state(from));
            self.merge(to, &state);
        }
    }

    /// What one iteration gives to the next. Where each iteration reads a different slice, the
    /// padding is not at the ends of what is carried.
    fn carry(&mut self, owner: OpId, from: &[Value], to: &[Value]) {
        for (&from, &to) in from.iter().zip(to) {
            let state = self.state(from).into_iter().map(|axis| match axis.root() {
                Some(root) if moves(self.func, owner, root) => axis.spread(Spread::Carried),
                _ => axis,
            });
            let state = state.collect();
            self.merge(to, &state);
        }
    }

    fn op(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        match op.code {
            TileOp::For => {
                let args = func.blocks[op.regions[0]].args[1..].to_vec();
                self.merge_all(op.group("init"), &args);
                self.block(op.regions[0]);
                self.carry(id, yielded(func, op.regions[0]), &args);
                self.merge_all(&args, &op.results);
            }
            TileOp::While => {
                let args = func.blocks[op.regions[0]].args.clone();
                self.merge_all(op.group("init"), &args);
                self.block(op.regions[0]);
                self.merge_all(&args, &func.blocks[op.regions[1]].args);
                self.block(op.regions[1]);
                self.carry(id, yielded(func, op.regions[1]), &args);
                self.merge_all(&args, &op.results);
            }
            TileOp::Slice
            | TileOp::Concat
            | TileOp::Take
            | TileOp::ReduceBy
            | TileOp::ScanBy
            | TileOp::Sort => {
                let states = self.parts(id);
                for (&value, state) in op.results.iter().zip(states) {
                    self.set(value, state);
                }
            }
            // What a text makes of zeros is not known.
            TileOp::Asm | TileOp::AsmEffect => {
                for &result in &op.results {
                    let worst = |d: usize| {
                        let roots = op.operands.iter().filter_map(|&v| self.axis(v, d).root());
                        let root = roots.reduce(|a, b| a.worse(b));
                        root.map_or(Axis::Clean, |root| Axis::Dirty(root, Held::Unknown))
                    };
                    let state = (0..func.ty(result).rank()).map(worst).collect();
                    self.wholes.set(result, Some(Held::of(func.ty(result).dtype())));
                    self.set(result, state);
                }
            }
            TileOp::If => {
                for &region in &op.regions {
                    self.block(region);
                    self.merge_all(yielded(func, region), &op.results);
                }
            }
            _ => {
                if let Some(&result) = op.results.first()
                    && func.ty(result).is_value()
                {
                    let whole = self.whole_result(id);
                    self.wholes.set(result, Some(whole));
                    let state = self.result(id);
                    self.set(result, state);
                }
                self.write_buffer(id);
            }
        }
    }

    /// Padding that passes through memory is no longer known to be zero, except where copies of a
    /// tensor are all that is written there: each of them leaves zeros behind the tensor's end.
    fn write_buffer(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let Some(buffer) =
            written(op).filter(|b| func.ty(*b).rank() > 0 && !crate::facts::is_view(func, *b))
        else {
            return;
        };
        let rank = func.ty(buffer).rank();
        let mut state = vec![Axis::Clean; rank];
        if op.code == TileOp::CopyAsync {
            // A part is at positions of the first axes, and has the others.
            let part = op.group("into").len();
            let copied = self.copied.contains(&buffer);
            let kept = |a: Axis| if copied { a } else { spoil(a) };
            let axes = self.block_axes(id, op.operands[1]).into_iter().map(kept);
            state = vec![Axis::Clean; part].into_iter().chain(axes).collect();
        } else {
            let value: State = self.state(op.operands[1]).into_iter().map(spoil).collect();
            let extent = extents(op);
            if matches!(op.code, TileOp::Scatter | TileOp::Atomic) {
                let worst = value.iter().copied().fold(Axis::Clean, Axis::join);
                state = vec![worst; rank];
            } else {
                for (axis, a) in kept_axes(&extent).zip(value) {
                    state[axis] = a;
                }
            }
        }
        let joined: State = match self.buffers.get(&buffer) {
            None => state,
            Some(old) => old.iter().zip(&state).map(|(a, b)| a.join(*b)).collect(),
        };
        if self.buffers.get(&buffer) != Some(&joined) {
            self.buffers.insert(buffer, joined);
            self.changed = true;
        }
    }

    /// The axes of a block of memory as they come out of it.
    fn block_axes(&self, id: OpId, memory: Value) -> State {
        let extent = extents(&self.func.ops[id]);
        kept_axes(&extent)
            .map(|axis| {
                let edge = if inside(self.func, id, memory, axis) {
                    Axis::Clean
                } else {
                    {
                        let front = self.func.ops[id]
                            .group("at")
                            .get(axis)
                            .is_some_and(|&at| may_be_negative(self.func, at, id));
                        Axis::Zero(Root {
                            access: id,
                            axis,
                            front,
                            spread: Spread::Ends,
                            mask: None,
                        })
                    }
                };
                match self.buffers.get(&memory).map(|b| b[axis]) {
                    None | Some(Axis::Nil | Axis::Clean) => edge,
                    Some(stale) => stale,
                }
            })
            .collect()
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn result(&self, id: OpId) -> State {
        use TileOp::*;
        let func = self.func;
        let op = &func.ops[id];
        let rank = func.ty(op.result()).rank();
        match op.code {
            Load | Gather => self.read(id, rank),
            Transpose | Expand | Broadcast | Reshape => self.moved(id, rank),
            Const => {
                vec![if is_zero(op.attr("value")) { Axis::Nil } else { Axis::Clean }; rank]
            }
            Cast => {
                let (from, to) = (func.ty(op.operands[0]).dtype(), func.ty(op.result()).dtype());
                let converted = |a: Axis| match a {
                    Axis::Dirty(root, held) => Axis::padded(root, held.converted(from, to)),
                    a @ (Axis::Nil | Axis::Clean | Axis::Zero(_)) => a,
                };
                let state = self.state_or_nil(op.operands[0], rank);
                state.into_iter().map(converted).collect()
            }
            // A number for each counter, those of the padding too.
            Philox => self.state(op.operands[1]).into_iter().map(spoil).collect(),
            // The bits of -0.0, which is zero, are not; integers and magnitudes have no such zero.
            Bitcast => {
                let x = op.operands[0];
                let magnitude = func.def(x).is_some_and(|of| of.code == TileOp::Ew(ScalarFn::Abs));
                let keeps = magnitude || !func.ty(x).dtype().is_float();
                let bits = |a: Axis| if keeps && a.is_zero() { a } else { spoil(a) };
                self.state(x).into_iter().map(bits).collect()
            }
            Select => self.select(id, rank),
            Mma => {
                let [a, b, acc] = [0, 1, 2].map(|i| op.operands[i]);
                let zero = self.is_nil(a) || self.is_nil(b);
                // Zeros times the other operand's numbers are zeros; of others the sum is anything.
                let product = |axis: Axis| match axis {
                    _ if zero => Axis::Nil,
                    Axis::Dirty(root, Held::Between(..)) => Axis::Dirty(root, Held::Unknown),
                    axis @ (Axis::Nil | Axis::Clean | Axis::Zero(_) | Axis::Dirty(..)) => axis,
                };
                let add = |axis: Axis, d: usize| {
                    let dtype = func.ty(acc).dtype();
                    combined(
                        ScalarFn::Add,
                        dtype,
                        dtype,
                        &[(product(axis), Held::Unknown), (self.axis(acc, d), self.whole(acc))],
                    )
                };
                vec![add(self.axis(a, 0), 0), add(self.axis(b, 1), 1)]
            }
            Reduce => {
                // Zeros along the axes that stay give zeros, whatever the operator.
                let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
                let extremum = matches!(op.attr("op").and_then(Attr::as_word), Some("max" | "min"));
                let mut state = self.state(op.operands[0]);
                state.remove(axis);
                let combined = |a: Axis| match a {
                    Axis::Dirty(root, Held::Between(..)) if !extremum => {
                        Axis::Dirty(root, Held::Unknown)
                    }
                    a @ (Axis::Nil | Axis::Clean | Axis::Zero(_) | Axis::Dirty(..)) => a,
                };
                state.into_iter().map(combined).collect()
            }
            ArgReduce => {
                // The first of equal zeros is at 0.
                let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
                let mut state = self.state(op.operands[0]);
                state.remove(axis);
                let place = |a: Axis| if a.is_zero() { a } else { spoil(a) };
                state.into_iter().map(place).collect()
            }
            Scan => {
                // The running result goes on into the padding. Along the other axes zeros stay
                // zeros, unless an identity other than zero is put before them.
                let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
                let sums = matches!(
                    op.attr("op").and_then(Attr::as_word),
                    Some("sum" | "add" | "or" | "xor")
                );
                let keeps = sums || op.attr("exclusive").and_then(Attr::as_bool) != Some(true);
                let state = self.state(op.operands[0]).into_iter().enumerate();
                let kept = |d: usize, a: Axis| d != axis && keeps && (a.is_zero());
                state.map(|(d, a)| if kept(d, a) { a } else { spoil(a) }).collect()
            }
            Ew(f) => {
                let (from, to) = (func.ty(op.operands[0]).dtype(), func.ty(op.result()).dtype());
                let masked = |d: usize| f == ScalarFn::And && self.is_masked(id, d);
                let of = |d: usize| -> Vec<_> {
                    op.operands.iter().map(|&v| (self.axis(v, d), self.whole(v))).collect()
                };
                // A scale of a block format clears nothing, and spoils nothing.
                let clears = op.attr("clears").and_then(Attr::as_bool) == Some(true);
                let zero =
                    |d: usize| Some(self.axis(op.operands[0], d)).filter(|a| clears && a.is_zero());
                (0..rank)
                    .map(|d| zero(d).unwrap_or_else(|| combined(f, from, to, &of(d))))
                    .enumerate()
                    .map(|(d, axis)| match axis {
                        Axis::Dirty(root, _) if masked(d) => Axis::Zero(root),
                        axis @ (Axis::Nil | Axis::Clean | Axis::Zero(_) | Axis::Dirty(..)) => axis,
                    })
                    .collect()
            }
            For | If | While | Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId
            | LocalId | GroupSize | WarpSize | Dim | Origin | Iota | Store | Scatter
            | Accumulate | BufAlloc | CopyAsync | Barrier | Atomic | CopyCommit | CopyWait
            | GroupReduce | GroupScan | GroupBroadcast | GroupShuffle | Print | Assert | Slice
            | Concat | Take | ReduceBy | ScanBy | Sort | Histogram | Owned | AsmEffect | Asm => {
                vec![Axis::Clean; rank]
            }
        }
    }

    /// Whether a conjunction has a bounds condition along an axis: then it is false in the padding.
    fn is_masked(&self, id: OpId, axis: usize) -> bool {
        let op = &self.func.ops[id];
        let sides = bounded_axes(self.func, op.result()).get(&axis).copied().unwrap_or_default();
        let mut roots = op.operands.iter().filter_map(|&v| self.axis(v, axis).root());
        let extent = self.func.ty(op.result()).shape()[axis].as_static();
        let cut = |root| cuts(self.func, op.result(), true, Masked { axis, extent, root });
        sides.upper && roots.all(|r| sides.cut(r) && cut(r))
    }

    /// What any element of a value may be.
    fn whole(&self, value: Value) -> Held {
        self.wholes[value].unwrap_or_else(|| Held::of(self.func.ty(value).dtype()))
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn whole_result(&self, id: OpId) -> Held {
        use TileOp::*;
        let func = self.func;
        let op = &func.ops[id];
        let to = func.ty(op.result()).dtype();
        match op.code {
            Const => match op.attr("value") {
                Some(Attr::Bool(b)) => Held::number(f64::from(u8::from(*b))),
                Some(x) => x.as_float().map_or(Held::of(to), Held::number),
                None => Held::of(to),
            },
            Iota => {
                let start = op.attr("start").and_then(Attr::as_int).unwrap_or(0) as f64;
                let shape = func.ty(op.result()).static_shape().unwrap_or_default();
                let len = shape.first().copied().unwrap_or(1).max(1) as f64;
                Held::Between(start, start + len - 1.0)
            }
            Transpose | Expand | Broadcast | Reshape => self.whole(op.operands[0]),
            Cast => self.whole(op.operands[0]).converted(func.ty(op.operands[0]).dtype(), to),
            Select => self.whole(op.operands[1]).or(self.whole(op.operands[2])),
            Ew(f) => {
                let args: Vec<_> = op.operands.iter().map(|&v| (self.whole(v), false)).collect();
                apply(f, &args, func.ty(op.operands[0]).dtype(), to)
            }
            For | If | While | Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId
            | LocalId | GroupSize | WarpSize | Dim | Origin | Bitcast | Load | Store | Gather
            | Scatter | Accumulate | BufAlloc | CopyAsync | Barrier | Atomic | CopyCommit
            | CopyWait | Mma | GroupReduce | GroupScan | GroupBroadcast | GroupShuffle | Philox
            | Print | Assert | Reduce | Scan | ArgReduce | Slice | Concat | Take | ReduceBy
            | ScanBy | Sort | Histogram | Owned | Asm | AsmEffect => Held::of(to),
        }
    }

    fn read(&self, id: OpId, rank: usize) -> State {
        let op = &self.func.ops[id];
        if op.code == TileOp::Gather {
            // Where the index is padding, the element is one the user did not request.
            let tiles: Vec<Value> =
                op.group("at").iter().copied().filter(|&v| self.func.ty(v).rank() > 0).collect();
            let worst =
                |d: usize| tiles.iter().map(|&v| self.axis(v, d)).fold(Axis::Clean, Axis::join);
            return (0..rank).map(|d| spoil(worst(d))).collect();
        }
        let state = self.block_axes(id, op.operands[0]);
        if op.group("other").is_empty() {
            return state;
        }
        // `other` fills what is outside; what a buffer held before is not changed by it.
        let filled = |a: Axis| if matches!(a, Axis::Dirty(..)) { a } else { Axis::Clean };
        state.into_iter().map(filled).collect()
    }

    fn moved(&self, id: OpId, rank: usize) -> State {
        let op = &self.func.ops[id];
        let from = op.operands[0];
        if self.is_nil(from) {
            return vec![Axis::Nil; rank];
        }
        let mut state = self.state(from);
        match op.code {
            TileOp::Transpose => {
                let perm = op.attr("perm").and_then(Attr::as_ints).unwrap_or_default();
                perm.iter().map(|&p| state[p as usize]).collect()
            }
            TileOp::Expand => {
                let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
                state.insert(axis, Axis::Clean);
                state
            }
            TileOp::Reshape => self.reshape(from, op.result()),
            _ if state.is_empty() => vec![Axis::Clean; rank],
            _ => state,
        }
    }

    fn state_or_nil(&self, value: Value, rank: usize) -> State {
        if self.is_nil(value) { vec![Axis::Nil; rank] } else { self.state(value) }
    }

    fn select(&self, id: OpId, rank: usize) -> State {
        let op = &self.func.ops[id];
        let [cond, a, b] = [0, 1, 2].map(|i| op.operands[i]);
        // Each arm is taken where the condition is true, or where it is false.
        let taken = bounded_axes(self.func, cond);
        let passed = bounded_by_complement(self.func, cond);
        let cond_rank = self.func.ty(cond).rank();
        (0..rank)
            .map(|d| {
                let [taken, passed] =
                    [&taken, &passed].map(|b| b.get(&d).copied().unwrap_or_default());
                let extent = self.func.ty(op.result()).shape()[d].as_static();
                let cleared = |a: Axis, by: Sides, holds: bool| match a.root() {
                    Some(root) if by.cut(root) => {
                        let of = Masked { axis: d, extent, root };
                        if cuts(self.func, cond, holds, of) {
                            Axis::Clean
                        } else {
                            a.let_through(id)
                        }
                    }
                    _ => a,
                };
                let x = cleared(self.axis(a, d), taken, true);
                let y = cleared(self.axis(b, d), passed, false);
                let c = if cond_rank == 0 { Axis::Clean } else { self.axis(cond, d) };
                // A bounds condition is the same in all padding, whatever else it tests.
                let c = cleared(cleared(c, taken, true), passed, false);
                match (x, y) {
                    (Axis::Nil | Axis::Zero(_), Axis::Nil | Axis::Zero(_)) => x.join(y),
                    _ => {
                        let root = [x, y, c].iter().filter_map(|a| a.root()).reduce(Root::worse);
                        let held = |axis: Axis, v| axis.held().unwrap_or_else(|| self.whole(v));
                        root.map_or(Axis::Clean, |r| Axis::padded(r, held(x, a).or(held(y, b))))
                    }
                }
            })
            .collect()
    }

    /// Axes that correspond one to one keep their state; split or merged axes share it.
    fn reshape(&self, from: Value, to: Value) -> State {
        let state = self.state(from);
        let sizes = |v: Value| self.func.ty(v).static_shape().unwrap_or_default();
        let (a, b) = (sizes(from), sizes(to));
        let mut out = vec![Axis::Clean; b.len()];
        let (mut i, mut j) = (0, 0);
        while i < a.len() || j < b.len() {
            let (first_i, first_j) = (i, j);
            let (mut x, mut y) = (1, 1);
            loop {
                if x <= y && i < a.len() {
                    x *= a[i];
                    i += 1;
                } else if j < b.len() {
                    y *= b[j];
                    j += 1;
                } else {
                    i = a.len();
                    break;
                }
                if x == y && i > first_i && j > first_j {
                    break;
                }
            }
            // Axes of one element divide nothing.
            let wide = |sizes: &[i64], range: std::ops::Range<usize>| -> Vec<usize> {
                range.filter(|&d| sizes[d] != 1).collect()
            };
            let (ins, outs) = (wide(&a, first_i..i), wide(&b, first_j..j));
            let ragged: Vec<usize> = (first_i..i).filter(|&d| state[d].root().is_some()).collect();
            if let ([first, ..], &[only]) = (&ins[..], &outs[..])
                && ragged.iter().all(|d| d == first)
            {
                // The first of merged axes counts on across the others: its padding is at the end.
                out[only] = state[*first];
                continue;
            }
            let shared = state[first_i..i].iter().copied().fold(Axis::Clean, Axis::join);
            out[first_j..j].fill(shared.spread(Spread::Reshaped));
        }
        out
    }
}

/// One axis of an elementwise result from the same axis of its operands, and from what any of their
/// elements may be.
fn combined(f: ScalarFn, from: DType, to: DType, operands: &[(Axis, Held)]) -> Axis {
    let roots = operands.iter().filter_map(|(a, _)| a.root());
    let Some(root) = roots.reduce(Root::worse) else {
        let nil = !operands.is_empty() && operands.iter().all(|(a, _)| *a == Axis::Nil);
        let product = f == ScalarFn::Mul && operands.iter().any(|(a, _)| *a == Axis::Nil);
        return match nil || product {
            true if apply(f, &given(operands, from), from, to).is_zero() => Axis::Nil,
            _ => Axis::Clean,
        };
    };
    // Nothing added to padding leaves it as it is.
    Axis::padded(root, apply(f, &given(operands, from), from, to))
}

fn given(operands: &[(Axis, Held)], from: DType) -> Vec<(Held, bool)> {
    let known = |held: Held| if held == Held::Unknown { Held::of(from) } else { held };
    let of = |&(axis, whole): &(Axis, Held)| match axis.held() {
        Some(held) => (known(held), false),
        None => (known(whole), true),
    };
    operands.iter().map(of).collect()
}
