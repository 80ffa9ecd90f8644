//! M split over warpgroups: three consumer warpgroups share the rows of a tile, 64 rows each.
//! Layouts divide a tile by powers of two only, so other numbers of warpgroups need this pass.
//!
//! Input: a valid warp-specialized function whose consumer role is written for one warpgroup that
//! holds all rows. Along the rows, the layout of each tile repeats its atom. Output: `parts`
//! replicas of the consumer, each with its share of the repeats. All of them read the same pipeline
//! stages; the producers do not change.
//!
//! The row axis of each tile is followed from the accumulators through all ops that use them. Where
//! rows are combined (a sum along them, a transposition into another MMA) the function cannot be
//! split.

use super::uses::yielded;
use super::{GROUP, Refusal};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_ir::{Attr, BlockId, Builder, OpId, OpSpec, Type, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_staged::{StagedBuild, StagedFunc, StagedOp};
use tessera_tile::TileOp;

/// How an axis of one value corresponds to another value.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Link {
    Axis(usize),
    /// No axis: the other value repeats along it.
    Free,
    /// Its elements are combined.
    Combined,
}

/// Two values, and the correspondence of each axis.
struct Tie {
    a: Value,
    b: Value,
    to: Vec<Link>,
    back: Vec<Link>,
}

type Axes = BTreeMap<Value, usize>;

/// Splits the rows of the consumer, the first role, over `parts` replicas.
pub fn split(func: &StagedFunc, parts: u32) -> Result<StagedFunc, Refusal> {
    let role = func.walk().into_iter().find(|&id| func.ops[id].code == StagedOp::WarpRole);
    let role = role.ok_or("there are no roles")?;
    let body = func.ops[role].regions[0];
    let mut inside = Vec::new();
    func.walk_block(body, &mut |id| inside.push(id));
    let axes = rows(func, &inside)?;
    // For the memory of epilogues: which of its axes are rows.
    let mut memory = Axes::new();
    for op in inside.iter().map(|&id| &func.ops[id]) {
        if let (StagedOp::FragStore, [mem, tile]) = (op.code, &op.operands[..])
            && let Some(&axis) = axes.get(tile)
            && memory.insert(*mem, axis).is_some_and(|before| before != axis)
        {
            return Err("memory has rows along two of its axes".into());
        }
    }

    let mut new = func.clone();
    let first = func.ops[role].loc.clone();
    let mut build = Builder::before(&mut new, body, 0, first);
    let number = build.one(OpSpec::new(StagedOp::Replica, &[]), Type::INDEX);
    let starts = BTreeMap::new();
    let mut divided = Divided { new, axes, memory, parts, number, starts, body, at: 1 };
    for &id in &inside {
        divided.op(id)?;
    }
    let mut new = divided.new;
    let op = &mut new.ops[role];
    op.attrs.set("warps", Attr::Int(GROUP.into()));
    op.attrs.set("replicas", Attr::Int(parts.into()));
    op.attrs.set("part", Attr::word("rows"));
    Ok(new)
}

fn is_tile(func: &StagedFunc, v: Value) -> bool {
    matches!(func.ty(v), Type::Frag { .. } | Type::Pending(_))
}

fn extents(ty: &Type) -> Vec<i64> {
    ty.static_shape().unwrap_or_default()
}

/// The row axis of every tile that has rows.
fn rows(func: &StagedFunc, inside: &[OpId]) -> Result<Axes, Refusal> {
    let mut axes = Axes::new();
    let mut ties = Vec::new();
    for &id in inside {
        if func.ops[id].code == StagedOp::MmaIssue {
            axes.insert(func.ops[id].result(), 0);
        }
        ties.extend(self::ties(func, id)?);
    }
    loop {
        let mut changed = false;
        for tie in &ties {
            for (from, to, links) in [(tie.a, tie.b, &tie.to), (tie.b, tie.a, &tie.back)] {
                let Some(&axis) = axes.get(&from) else { continue };
                match links.get(axis).copied().unwrap_or(Link::Combined) {
                    Link::Free => {}
                    Link::Combined => {
                        return Err("rows of an MMA are combined in other tiles".into());
                    }
                    Link::Axis(there) => match axes.insert(to, there) {
                        None => changed = true,
                        Some(before) if before == there => {}
                        Some(_) => return Err("rows of one MMA are columns of another".into()),
                    },
                }
            }
        }
        if !changed {
            return Ok(axes);
        }
    }
}

/// Which axes the tiles of an op have in common.
#[deny(clippy::wildcard_enum_match_arm)]
fn ties(func: &StagedFunc, id: OpId) -> Result<Vec<Tie>, Refusal> {
    use Link::{Axis, Combined, Free};
    use TileOp::*;
    let op = &func.ops[id];
    let rank = |v: Value| extents(func.ty(v)).len();
    let same = |a: Value, b: Value| {
        let all: Vec<Link> = (0..rank(a)).map(Axis).collect();
        Tie { a, b, to: all.clone(), back: all }
    };
    let tiles = |list: &[Value]| -> Vec<Value> {
        list.iter().copied().filter(|&v| is_tile(func, v)).collect()
    };
    // Ties each of these to the first.
    let alike = |list: Vec<Value>| -> Vec<Tie> {
        let first = list.first().copied();
        first
            .into_iter()
            .flat_map(|a| list[1..].iter().map(move |&b| (a, b)))
            .map(|(a, b)| same(a, b))
            .collect()
    };
    let (x, r) = (op.operands.first().copied(), op.results.first().copied());
    let axis = || op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
    let out = match op.code {
        StagedOp::ConvertLayout | StagedOp::MmaOpen | StagedOp::MmaRetire | StagedOp::FragPart => {
            alike([tiles(&op.operands), tiles(&op.results)].concat())
        }
        StagedOp::MmaIssue => {
            let (a, acc, result) = (op.operands[0], op.operands[2], op.result());
            let mut out = vec![same(acc, result)];
            if is_tile(func, a) {
                let (to, back) = (vec![Axis(0), Combined], vec![Axis(0), Free]);
                out.push(Tie { a, b: result, to, back });
            }
            out
        }
        StagedOp::Tile(code) => match code {
            Ew(_) | Select | Cast | Bitcast | Asm => {
                alike([tiles(&op.operands), tiles(&op.results)].concat())
            }
            Store => alike(tiles(&[&op.operands[1..2], op.group("mask")].concat())),
            Expand => {
                let (a, b, at) = (op.operands[0], op.result(), axis());
                let to = (0..rank(a)).map(|i| Axis(i + usize::from(i >= at))).collect();
                let back = (0..rank(b)).map(|i| match i.cmp(&at) {
                    std::cmp::Ordering::Less => Axis(i),
                    std::cmp::Ordering::Equal => Combined,
                    std::cmp::Ordering::Greater => Axis(i - 1),
                });
                vec![Tie { a, b, to, back: back.collect() }]
            }
            Broadcast => match (x.filter(|&v| is_tile(func, v)), r) {
                (Some(a), Some(b)) => {
                    let (from, into) = (extents(func.ty(a)), extents(func.ty(b)));
                    if from.len() != into.len() {
                        return Err("a tile is repeated along an axis it has not".into());
                    }
                    let kept = |i: usize| from[i] == into[i];
                    let to = (0..from.len()).map(|i| if kept(i) { Axis(i) } else { Combined });
                    let back = (0..from.len()).map(|i| if kept(i) { Axis(i) } else { Free });
                    vec![Tie { a, b, to: to.collect(), back: back.collect() }]
                }
                _ => vec![],
            },
            Reduce | ArgReduce => match r.filter(|&v| is_tile(func, v)) {
                Some(b) => {
                    let (a, at) = (op.operands[0], axis());
                    let to = (0..rank(a)).map(|i| match i.cmp(&at) {
                        std::cmp::Ordering::Less => Axis(i),
                        std::cmp::Ordering::Equal => Combined,
                        std::cmp::Ordering::Greater => Axis(i - 1),
                    });
                    let back = (0..rank(b)).map(|i| Axis(i + usize::from(i >= at))).collect();
                    vec![Tie { a, b, to: to.collect(), back }]
                }
                None => all_combined(op.operands[0], rank(op.operands[0])),
            },
            Reshape => {
                let (a, b) = (op.operands[0], op.result());
                let (from, into) = (extents(func.ty(a)), extents(func.ty(b)));
                // A reshape of the other axes leaves the first axis alone.
                let kept = from.first() == into.first();
                let link = |i: usize| if kept && i == 0 { Axis(0) } else { Combined };
                let [to, back] = [from.len(), into.len()].map(|n| (0..n).map(link).collect());
                vec![Tie { a, b, to, back }]
            }
            Transpose => {
                let (a, b) = (op.operands[0], op.result());
                let perm = super::encode::permutation_of(func, id);
                let back: Vec<Link> = perm.iter().map(|&p| Axis(p)).collect();
                let to = (0..perm.len())
                    .map(|i| perm.iter().position(|&p| p == i).map_or(Combined, Axis))
                    .collect();
                vec![Tie { a, b, to, back }]
            }
            For | While | If | SlowPath => carried(func, id, &same),
            Const | Iota | Load | Yield => vec![],
            // Every other op that takes a tile takes all of it.
            Return | ProgramId | NumPrograms | LinearId | LocalId | GroupSize | WarpSize | Dim
            | Origin | Gather | Scatter | Accumulate | BufAlloc | CopyAsync | Barrier | Atomic
            | CopyCommit | CopyWait | Mma | GroupReduce | GroupScan | GroupBroadcast
            | GroupShuffle | Philox | Print | Assert | Scan | Slice | Concat | Take | ReduceBy
            | ScanBy | Sort | Histogram | Owned | AsmEffect => {
                combined_all(func, op.operands.iter().chain(&op.results), rank)
            }
        },
        StagedOp::Tiles => carried(func, id, &same),
        StagedOp::FragStore if only_leaves(func, op.operands[0]) => vec![],
        StagedOp::SmemAlloc
        | StagedOp::SmemView
        | StagedOp::FragLoad
        | StagedOp::FragStore
        | StagedOp::PipelineCreate
        | StagedOp::Acquire
        | StagedOp::Fill
        | StagedOp::Publish
        | StagedOp::Wait
        | StagedOp::Field
        | StagedOp::Release
        | StagedOp::Drain
        | StagedOp::BulkStore
        | StagedOp::BulkReduce
        | StagedOp::BulkWait
        | StagedOp::OrderBarrierCreate
        | StagedOp::OrderWait
        | StagedOp::OrderArrive
        | StagedOp::RoleBarrier
        | StagedOp::ClusterBarrier
        | StagedOp::BlockBarrier
        | StagedOp::FenceAsync
        | StagedOp::WarpSpecialize
        | StagedOp::WarpRole
        | StagedOp::Replica
        | StagedOp::Worker
        | StagedOp::Workers => combined_all(func, op.operands.iter().chain(&op.results), rank),
    };
    let is_between = |t: &Tie| is_tile(func, t.a) && is_tile(func, t.b);
    Ok(out.into_iter().filter(is_between).collect())
}

/// Whether memory is only copied from there to an array. Then each warpgroup can write and copy the
/// rows that it holds.
fn only_leaves(func: &StagedFunc, mem: Value) -> bool {
    func.walk().iter().map(|&id| &func.ops[id]).all(|op| {
        !op.operands.contains(&mem)
            || matches!(op.code, StagedOp::FragStore | StagedOp::BulkStore) && op.operands[0] == mem
    })
}

fn combined_all<'v>(
    func: &StagedFunc,
    list: impl Iterator<Item = &'v Value>,
    rank: impl Fn(Value) -> usize,
) -> Vec<Tie> {
    list.filter(|&&v| is_tile(func, v)).flat_map(|&v| all_combined(v, rank(v))).collect()
}

fn all_combined(v: Value, rank: usize) -> Vec<Tie> {
    vec![Tie { a: v, b: v, to: vec![Link::Combined; rank], back: vec![Link::Combined; rank] }]
}

/// Ties the initial values, region arguments, yields and results of a control op.
fn carried(func: &StagedFunc, id: OpId, same: &dyn Fn(Value, Value) -> Tie) -> Vec<Tie> {
    let op = &func.ops[id];
    let lead = super::uses::leading(func, id);
    let mut out = Vec::new();
    for (i, &result) in op.results.iter().enumerate() {
        out.extend(op.group("init").get(i).map(|&v| same(v, result)));
        for (at, &region) in op.regions.iter().enumerate() {
            let asks = op.code == StagedOp::Tile(TileOp::While) && at == 0;
            out.extend(func.blocks[region].args.get(lead + i).map(|&v| same(v, result)));
            let end = yielded(func, region).get(i).filter(|_| !asks);
            out.extend(end.map(|&v| same(v, result)));
        }
    }
    out
}

struct Divided {
    new: StagedFunc,
    axes: Axes,
    memory: Axes,
    parts: u32,
    /// The replica's index, and the first row of each, by the number of rows that each has.
    number: Value,
    starts: BTreeMap<i64, Value>,
    body: BlockId,
    /// Where ops for the replica's positions are inserted.
    at: usize,
}

impl Divided {
    fn op(&mut self, id: OpId) -> Result<(), Refusal> {
        let op = self.new.ops[id].clone();
        let given = op.results.clone();
        for region in &op.regions {
            let args = self.new.blocks[*region].args.clone();
            args.into_iter().try_for_each(|v| self.narrow(v))?;
        }
        given.into_iter().try_for_each(|v| self.narrow(v))?;
        let axis = |v: Value| self.axes.get(&v).copied();
        match op.code {
            StagedOp::MmaIssue if matches!(self.new.ty(op.operands[0]), Type::Smem { .. }) => {
                let own = self.own_memory(id, op.operands[0], 0)?;
                self.new.ops[id].operands[0] = own;
            }
            StagedOp::FragStore | StagedOp::FragLoad => {
                let tile = op.operands.get(1).copied().unwrap_or_else(|| op.results[0]);
                let Some(axis) = axis(tile) else {
                    return Err("all warpgroups would write the same shared memory".into());
                };
                let own = self.own_memory(id, op.operands[0], axis)?;
                self.new.ops[id].operands[0] = own;
            }
            // Each warpgroup copies the rows that it wrote.
            StagedOp::BulkStore => {
                let Some(&axis) = self.memory.get(&op.operands[0]) else {
                    return Err("a tile is stored in one copy".into());
                };
                let own = self.own_memory(id, op.operands[0], axis)?;
                let each = extents(self.new.ty(own))[axis];
                self.new.ops[id].operands[0] = own;
                self.move_access(id, axis, each)?;
            }
            StagedOp::BulkReduce => return Err("a tile is stored in one copy".into()),
            StagedOp::FragPart => {
                if let Some(axis) = axis(op.operands[0]) {
                    let ints =
                        |name: &str| op.attr(name).and_then(Attr::as_ints).unwrap_or_default();
                    let (at, mut extent) = (ints("at"), ints("extent"));
                    let now = extents(self.new.ty(op.operands[0]))[axis];
                    if at[axis] != 0 || extent[axis] != now * i64::from(self.parts) {
                        return Err("some rows of a tile are taken".into());
                    }
                    extent[axis] = now;
                    self.new.ops[id].attrs.set("extent", Attr::ints(extent));
                }
            }
            StagedOp::Tile(TileOp::Iota) => {
                if axis(op.result()).is_some() {
                    self.count_on(id)?;
                }
            }
            StagedOp::Tile(TileOp::Load) if is_tile(&self.new, op.result()) => {
                if let Some(axis) = axis(op.result()) {
                    self.move_access(id, axis, extents(self.new.ty(op.result()))[axis])?;
                }
            }
            StagedOp::Tile(TileOp::Store) => match axis(op.operands[1]) {
                Some(axis) => {
                    let each = extents(self.new.ty(op.operands[1]))[axis];
                    self.move_access(id, axis, each)?;
                }
                None => return Err("all warpgroups would store the same".into()),
            },
            code => {
                use tessera_ir::{Effects, Opcode};
                let code_effects = Opcode::info(code).effects;
                let pipeline = matches!(
                    code,
                    StagedOp::Wait
                        | StagedOp::Release
                        | StagedOp::MmaRetire
                        | StagedOp::RoleBarrier
                        | StagedOp::FenceAsync
                        | StagedOp::BulkWait
                );
                let seen = match code_effects {
                    Effects::Write
                    | Effects::ReadWrite
                    | Effects::Sync
                    | Effects::Host
                    | Effects::Collective => !pipeline,
                    Effects::Pure | Effects::Read | Effects::Control | Effects::Terminator => false,
                };
                if seen {
                    let name = Opcode::mnemonic(code);
                    return Err(format!("all warpgroups would do what `{name}` does"));
                }
            }
        }
        Ok(())
    }

    /// Gives a tile as many rows as a replica has.
    fn narrow(&mut self, v: Value) -> Result<(), Refusal> {
        let Some(&axis) = self.axes.get(&v) else { return Ok(()) };
        let less = |ty: &Type| -> Option<Type> {
            let Type::Frag { dtype, layout, .. } = ty else { return None };
            let mut extent = layout.shape().to_vec();
            if !extent[axis].is_multiple_of(self.parts) {
                return None;
            }
            extent[axis] /= self.parts;
            let (part, _) = layout.part(&vec![0; extent.len()], &extent)?;
            let shape = extent.iter().map(|&e| i64::from(e).into()).collect();
            Some(Type::Frag { shape, dtype: *dtype, layout: Arc::new(part) })
        };
        let ty = match self.new.ty(v) {
            Type::Pending(tile) => less(tile).map(Type::pending),
            ty => less(ty),
        };
        let ty = ty.ok_or("rows do not fall to warpgroups as a whole")?;
        self.new.values[v].ty = ty;
        Ok(())
    }

    /// This replica's first row, where each has `each` rows.
    fn start(&mut self, each: i64) -> Value {
        if let Some(&start) = self.starts.get(&each) {
            return start;
        }
        let loc = self.new.loc.clone();
        let mut build = Builder::before(&mut self.new, self.body, self.at, loc);
        let many = build.index(each);
        let start = build.ew(ScalarFn::Mul, &[self.number, many]);
        self.at += 2;
        self.starts.insert(each, start);
        start
    }

    fn before(&mut self, id: OpId) -> Builder<'_, tessera_staged::Staged> {
        let op = &self.new.ops[id];
        let (block, loc) = (op.block, op.loc.clone());
        let place = self.new.blocks[block].ops.iter().position(|&o| o == id).unwrap_or(0);
        Builder::before(&mut self.new, block, place, loc)
    }

    /// This replica's part of shared memory along an axis, before an op.
    fn own_memory(&mut self, id: OpId, mem: Value, axis: usize) -> Result<Value, Refusal> {
        if let Type::Smem { layout, .. } = self.new.ty(mem)
            && layout.panel.is_some()
            && layout.order.first() != Some(&axis)
        {
            return Err("rows that warpgroups would share are in several panels".into());
        }
        let mut extent = extents(self.new.ty(mem));
        extent[axis] /= i64::from(self.parts);
        let start = self.start(extent[axis]);
        let rank = extent.len();
        let mut build = self.before(id);
        let zero = build.index(0);
        let at: Vec<Value> = (0..rank).map(|d| if d == axis { start } else { zero }).collect();
        let spec = OpSpec::new(StagedOp::SmemView, &[mem]).group("at", &at);
        build.value(spec.attr("extent", Attr::ints(extent)))
    }

    /// Makes a block of an array begin at this replica's rows, and have as many.
    fn move_access(&mut self, id: OpId, axis: usize, each: i64) -> Result<(), Refusal> {
        let op = &self.new.ops[id];
        let mut extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
        let kept: Vec<usize> = (0..extent.len()).filter(|&d| extent[d] != 0).collect();
        let (Some(&dim), None) = (kept.get(axis), op.attr("step")) else {
            return Err("an array is not accessed along the rows of MMAs".into());
        };
        let place = op.positional().len() + dim;
        let from = op.operands[place];
        let start = self.start(each);
        let at = self.before(id).ew(ScalarFn::Add, &[from, start]);
        extent[dim] = each;
        let op = &mut self.new.ops[id];
        op.operands[place] = at;
        op.attrs.set("extent", Attr::ints(extent));
        Ok(())
    }

    /// Counts positions of rows from this replica's first.
    fn count_on(&mut self, id: OpId) -> Result<(), Refusal> {
        let op = &self.new.ops[id];
        let (v, block, loc) = (op.result(), op.block, op.loc.clone());
        let ty = self.new.ty(v).clone();
        let start = self.start(extents(&ty)[0]);
        let place = self.new.blocks[block].ops.iter().position(|&o| o == id).unwrap_or(0);
        let mut build = Builder::before(&mut self.new, block, place + 1, loc);
        let start = build.cast(start, DType::I32);
        let spec = OpSpec::new(StagedOp::Tile(TileOp::Broadcast), &[start]);
        let start = build.one(spec, ty);
        let sum = build.ew(ScalarFn::Add, &[v, start]);
        let made = self.new.def_id(sum);
        for id in self.new.walk() {
            if Some(id) != made {
                self.new.ops[id].operands.iter_mut().filter(|o| **o == v).for_each(|o| *o = sum);
            }
        }
        Ok(())
    }
}
