//! Interprets one role at one size, and records its trace.

use super::{Actor, Base, Event, Place, Trace, What};
use crate::ops::roles::{RoleInfo, role_info};
use crate::ops::tiles::order_of;
use crate::{Staged, StagedOp};
use tessera_ir::{Attr, BlockId, Func, Op, OpId, Type, Value};
use tessera_numerics::{DType, Scalar, cast, decode, eval};
use tessera_support::SideTable;
use tessera_tile::TileOp;

/// The most ops of one trace: enough for any kernel at these sizes.
const MOST_STEPS: usize = 200_000;
/// Iterations of a loop with unknown bounds, where it is entered at all.
const UNKNOWN_ITERATIONS: i64 = 2;
/// Tiles of a persistent loop.
const MOST_TILES: i64 = 3;

/// What is known of a value.
#[derive(Clone, Debug)]
enum Known {
    Nothing,
    Number(Scalar),
    Pipeline(Value),
    Stage {
        pipeline: Value,
        i: i64,
        filling: bool,
    },
    Memory(Place),
    /// The newest MMA group that adds to it.
    Pending(Option<usize>),
}

/// Why a trace ends early.
struct Stop;

struct Walker<'f> {
    func: &'f Func<Staged>,
    known: SideTable<Value, Known>,
    events: Vec<Event>,
    role: Option<RoleInfo>,
    replica: i64,
    size: i64,
    /// The outcome of conditions that the size does not decide, and whether there were any.
    maybe: bool,
    requested: bool,
    steps: usize,
    /// For each loop around, whether this is its first iteration.
    first: Vec<bool>,
    groups: usize,
    bulks: usize,
}

/// The trace of a role's replica, or of the block outside roles; and whether it had a condition
/// that the size does not decide. `None` where it cannot be followed.
pub(super) fn follow(
    func: &Func<Staged>,
    role: Option<OpId>,
    replica: i64,
    size: i64,
    maybe: bool,
) -> Option<(Trace, bool)> {
    let info = role.map(|r| role_info(func, r));
    let by_tiles = info.as_ref().is_some_and(|r| r.by_tiles);
    let mut w = Walker {
        func,
        known: SideTable::new(Known::Nothing),
        events: Vec::new(),
        role: None,
        replica,
        size,
        maybe,
        requested: false,
        steps: 0,
        first: Vec::new(),
        groups: 0,
        bulks: 0,
    };
    for &param in func.params() {
        if let Type::Scalar(dtype) = func.ty(param)
            && dtype.is_int()
        {
            w.known.set(param, Known::Number(decode(*dtype, size as u64)));
        }
    }
    let end = *func.blocks[func.body].ops.last()?;
    w.block(func.body).ok()?;
    let Some(role) = role else {
        return Some((Trace { role: None, by_tiles, events: w.events, end }, w.requested));
    };
    // The ops before the roles gave the values they use; their events are the block's.
    w.events.clear();
    w.role = info;
    let body = func.ops[role].regions[0];
    let end = *func.blocks[body].ops.last()?;
    w.block(body).ok()?;
    Some((Trace { role: Some(role), by_tiles, events: w.events, end }, w.requested))
}

impl Walker<'_> {
    fn block(&mut self, block: BlockId) -> Result<Vec<Known>, Stop> {
        for &id in &self.func.blocks[block].ops {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return Err(Stop);
            }
            if self.func.ops[id].code == StagedOp::Tile(TileOp::Yield) {
                let values = self.func.ops[id].group("values");
                return Ok(values.iter().map(|&v| self.known[v].clone()).collect());
            }
            self.op(id)?;
        }
        Ok(Vec::new())
    }

    fn number(&self, v: Value) -> Option<i64> {
        match &self.known[v] {
            Known::Number(Scalar::I64(x)) => Some(*x),
            _ => None,
        }
    }

    fn place(&self, v: Value) -> Option<&Place> {
        match &self.known[v] {
            Known::Memory(place) => Some(place),
            _ => None,
        }
    }

    fn say(&mut self, op: OpId, what: What) {
        self.events.push(Event { op, what });
    }

    /// After an unknown pipeline or counter nothing more can be checked.
    fn counter(&self, op: &Op<Staged>) -> Result<(Value, i64), Stop> {
        match (&self.known[op.operands[0]], self.number(op.operands[1])) {
            (Known::Pipeline(pipeline), Some(i)) => Ok((*pipeline, i)),
            _ => Err(Stop),
        }
    }

    fn touch(&mut self, id: OpId, mem: Value, by: Actor, writes: bool) {
        if let Some(place) = self.place(mem).cloned() {
            let what = if writes { What::Write { place, by } } else { What::Read { place, by } };
            self.say(id, what);
        }
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn op(&mut self, id: OpId) -> Result<(), Stop> {
        let func = self.func;
        let op = &func.ops[id];
        let int = |name: &str| op.attr(name).and_then(Attr::as_int);
        match op.code {
            StagedOp::Tile(code) => self.tile_op(id, code)?,
            StagedOp::ConvertLayout
            | StagedOp::FragPart
            | StagedOp::OrderBarrierCreate
            | StagedOp::OrderWait
            | StagedOp::OrderArrive
            | StagedOp::WarpSpecialize
            | StagedOp::WarpRole => {}
            StagedOp::SmemAlloc => {
                let place = Place::whole(Base::Alloc(op.result()), func.ty(op.result()).rank());
                self.known.set(op.result(), Known::Memory(place));
            }
            StagedOp::SmemView => {
                let at: Vec<_> = op.group("at").iter().map(|&v| self.number(v)).collect();
                let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
                let perm = op.attr("perm").and_then(Attr::as_ints);
                if let Some(place) = self.place(op.operands[0]) {
                    let view = place.view(&at, &extent, perm.as_deref());
                    self.known.set(op.result(), Known::Memory(view));
                }
            }
            StagedOp::FragLoad => self.touch(id, op.operands[0], Actor::Threads, false),
            StagedOp::FragStore => self.touch(id, op.operands[0], Actor::Threads, true),
            StagedOp::PipelineCreate => self.known.set(op.result(), Known::Pipeline(op.result())),
            StagedOp::Acquire | StagedOp::Wait => {
                let (pipeline, i) = self.counter(op)?;
                let filling = op.code == StagedOp::Acquire;
                self.known.set(op.result(), Known::Stage { pipeline, i, filling });
                let wait = What::Wait { pipeline, i };
                self.say(id, if filling { What::Acquire { pipeline, i } } else { wait });
            }
            StagedOp::Fill => {
                let name = op.attr("field").and_then(Attr::as_word).unwrap_or_default();
                if let Some(place) = self.field(op.operands[0], name) {
                    self.say(id, What::Write { place, by: Actor::Copy });
                }
            }
            StagedOp::Field => {
                let name = op.attr("name").and_then(Attr::as_word).unwrap_or_default();
                if let Some(place) = self.field(op.operands[0], name) {
                    self.known.set(op.result(), Known::Memory(place));
                }
            }
            StagedOp::Publish => {
                let (pipeline, i) = self.counter(op)?;
                self.say(id, What::Publish { pipeline, i });
            }
            StagedOp::Release => {
                let skips = op.attr("unless_first").and_then(Attr::as_bool).unwrap_or(false);
                if !(skips && self.first.last() == Some(&true)) {
                    let (pipeline, i) = self.counter(op)?;
                    self.say(id, What::Release { pipeline, i });
                }
            }
            StagedOp::Drain => {
                let Known::Pipeline(pipeline) = self.known[op.operands[0]] else {
                    return Err(Stop);
                };
                self.say(id, What::Drain { pipeline });
            }
            StagedOp::MmaOpen => self.known.set(op.result(), Known::Pending(None)),
            StagedOp::MmaIssue => {
                let group = self.groups;
                self.groups += 1;
                self.touch(id, op.operands[0], Actor::Mma(group), false);
                self.touch(id, op.operands[1], Actor::Mma(group), false);
                self.known.set(op.result(), Known::Pending(Some(group)));
            }
            StagedOp::MmaRetire => {
                let Known::Pending(newest) = self.known[op.operands[0]] else { return Err(Stop) };
                let tile = func.ty(op.result()).is_tile();
                let keep = int("keep").unwrap_or(0).max(0) as usize;
                self.say(id, What::Retire { keep, newest, tile });
                if !tile {
                    self.known.set(op.result(), Known::Pending(newest));
                }
            }
            StagedOp::BulkStore | StagedOp::BulkReduce => {
                let bulk = self.bulks;
                self.bulks += 1;
                self.touch(id, op.operands[0], Actor::Bulk(bulk), false);
            }
            StagedOp::BulkWait => {
                self.say(id, What::BulkWait { keep: int("keep").unwrap_or(0).max(0) as usize });
            }
            StagedOp::RoleBarrier | StagedOp::ClusterBarrier | StagedOp::BlockBarrier => {
                self.say(id, What::Barrier);
            }
            StagedOp::FenceAsync => self.say(id, What::Fence),
            StagedOp::Replica => self.set_number(op.result(), self.replica),
            // A single worker executes every iteration of its loop.
            StagedOp::Worker => self.set_number(op.result(), 0),
            StagedOp::Workers => self.set_number(op.result(), 1),
            StagedOp::Tiles => self.tiles(id)?,
        }
        Ok(())
    }

    fn set_number(&mut self, v: Value, x: i64) {
        self.known.set(v, Known::Number(Scalar::I64(x)));
    }

    fn field(&self, stage: Value, name: &str) -> Option<Place> {
        let Known::Stage { pipeline, i, filling } = self.known[stage] else { return None };
        let Type::Stage { fields } = self.func.ty(stage) else { return None };
        let rank = fields.iter().find(|f| f.name == name)?.shape.len();
        let name = name.to_string();
        Some(Place::whole(Base::Field { pipeline, i, name, filling }, rank))
    }

    fn tile_op(&mut self, id: OpId, code: TileOp) -> Result<(), Stop> {
        let op = &self.func.ops[id];
        match code {
            TileOp::For => self.counted(id)?,
            TileOp::While => self.conditional(id)?,
            TileOp::If => {
                let cond = match &self.known[op.operands[0]] {
                    Known::Number(Scalar::Bool(b)) => *b,
                    _ => self.ask(),
                };
                let out = self.block(op.regions[usize::from(!cond)])?;
                self.give(&op.results, out);
            }
            // It computes tiles, which have no values here.
            TileOp::SlowPath => {
                let out = self.block(op.regions[0])?;
                self.give(&op.results, out);
            }
            _ => {
                if let [result] = op.results[..] {
                    let known = self.scalar(op, code).map_or(Known::Nothing, Known::Number);
                    self.known.set(result, known);
                }
            }
        }
        Ok(())
    }

    fn ask(&mut self) -> bool {
        self.requested = true;
        self.maybe
    }

    fn give(&mut self, to: &[Value], values: Vec<Known>) {
        for (&v, known) in to.iter().zip(values) {
            self.known.set(v, known);
        }
    }

    fn counted(&mut self, id: OpId) -> Result<(), Stop> {
        let func = self.func;
        let op = &func.ops[id];
        let [lo, hi, step] = [0, 1, 2].map(|i| self.number(op.operands[i]));
        let mut carried: Vec<_> = op.group("init").iter().map(|&v| self.known[v].clone()).collect();
        let iterations = match (lo, hi, step) {
            (Some(lo), Some(hi), Some(step)) if step > 0 => {
                hi.saturating_sub(lo).max(0).saturating_add(step - 1) / step
            }
            _ => i64::from(self.ask()) * UNKNOWN_ITERATIONS,
        };
        for iteration in 0..iterations {
            let args = &func.blocks[op.regions[0]].args;
            let at =
                lo.zip(step).and_then(|(lo, step)| lo.checked_add(iteration.checked_mul(step)?));
            self.known.set(args[0], at.map_or(Known::Nothing, |x| Known::Number(Scalar::I64(x))));
            self.give(&args[1..], carried);
            self.first.push(iteration == 0);
            carried = self.block(op.regions[0])?;
            self.first.pop();
        }
        self.give(&op.results, carried);
        Ok(())
    }

    fn conditional(&mut self, id: OpId) -> Result<(), Stop> {
        let func = self.func;
        let op = &func.ops[id];
        let mut carried: Vec<_> = op.group("init").iter().map(|&v| self.known[v].clone()).collect();
        for iteration in 0.. {
            self.first.push(iteration == 0);
            self.give(&func.blocks[op.regions[0]].args, carried.clone());
            let goes_on = match self.block(op.regions[0])?.first() {
                Some(Known::Number(Scalar::Bool(b))) => *b,
                _ => self.ask() && iteration < UNKNOWN_ITERATIONS,
            };
            if goes_on {
                self.give(&func.blocks[op.regions[1]].args, carried);
                carried = self.block(op.regions[1])?;
            }
            self.first.pop();
            if !goes_on {
                break;
            }
        }
        self.give(&op.results, carried);
        Ok(())
    }

    /// A few of the tiles, as on a machine with enough blocks to leave that many to each.
    fn tiles(&mut self, id: OpId) -> Result<(), Stop> {
        let func = self.func;
        let op = &func.ops[id];
        let grid: Option<Vec<i64>> = op.group("grid").iter().map(|&v| self.number(v)).collect();
        // The CTAs of a cluster follow the same control flow; the first represents them.
        let order = order_of(func, id).unwrap_or_default();
        let teams = grid.as_ref().map(|g| order.teams(g));
        let total = teams.map(|g| g.iter().fold(1i64, |n, &d| n.saturating_mul(d)));
        let total = match total {
            Some(total) => total,
            None => MOST_TILES * i64::from(self.ask()),
        };
        let blocks = if order.once { total } else { (total + MOST_TILES - 1) / MOST_TILES };
        let mut carried: Vec<_> = op.group("init").iter().map(|&v| self.known[v].clone()).collect();
        let (mut number, mut iteration, mut first) = (0, 0, true);
        while number < total {
            let mine = match &self.role {
                Some(role) if role.by_tiles => iteration % role.replicas.max(1) == self.replica,
                _ => true,
            };
            if mine {
                let at = grid.as_ref().map(|g| order.tile(g, number, 0));
                let args = &func.blocks[op.regions[0]].args;
                let axes = op.group("grid").len();
                for (axis, &arg) in args[..axes].iter().enumerate() {
                    let known = at.as_ref().map(|at| Known::Number(Scalar::I64(at[axis])));
                    self.known.set(arg, known.unwrap_or(Known::Nothing));
                }
                self.give(&args[axes..], carried);
                self.first.push(first);
                carried = self.block(op.regions[0])?;
                self.first.pop();
                first = false;
            }
            number += blocks.max(1);
            iteration += 1;
        }
        self.give(&op.results, carried);
        Ok(())
    }

    /// The value of a scalar op on known scalars.
    fn scalar(&self, op: &Op<Staged>, code: TileOp) -> Option<Scalar> {
        let ty = self.func.ty(op.result());
        let Type::Scalar(dtype) = *ty else { return None };
        let arg = |i: usize| match &self.known[op.operands[i]] {
            Known::Number(x) => Some(*x),
            _ => None,
        };
        let index = |x: i64| Some(Scalar::I64(x));
        match code {
            TileOp::Const => match op.attr("value")? {
                Attr::Bool(b) => Some(Scalar::Bool(*b)),
                Attr::Int(v) => Some(decode(dtype, *v as u64)),
                Attr::Float(v) => Some(cast(Scalar::F64(*v), DType::F64, dtype)),
                _ => None,
            },
            TileOp::Dim => {
                let e = op.attr("name")?.as_expr()?;
                index(e.eval(&|_| Some(self.size)).ok()?)
            }
            TileOp::ProgramId => index(0),
            TileOp::NumPrograms => {
                let axis = op.attr("axis")?.as_int()? as usize;
                let grid = self.func.attrs.get("grid").and_then(Attr::as_exprs)?;
                index(grid.get(axis)?.eval(&|_| Some(self.size)).ok()?)
            }
            TileOp::Cast => {
                let from = self.func.ty(op.operands[0]).dtype();
                Some(cast(arg(0)?, from, dtype))
            }
            TileOp::Select => match arg(0)? {
                Scalar::Bool(true) => arg(1),
                Scalar::Bool(false) => arg(2),
                _ => None,
            },
            TileOp::Ew(f) => {
                let args: Option<Vec<_>> = (0..op.operands.len()).map(arg).collect();
                eval(f, &args?)
            }
            _ => None,
        }
    }
}
