//! Warp specialization: producer warps fill the pipelines, consumer warpgroups compute.
//!
//! Input: a valid function with one loop over groups, whose pipelines are filled and read by the
//! same threads. Output: one function body for each role. A role has its own copy of the loop with
//! the ops that it needs (a backward slice): producers from `acquire`, `fill` and `publish`, the
//! consumer from all other ops with effects. So all roles follow the same control flow, and each
//! carries its own pipeline counters. A producer is one thread: where it would need the elements of
//! a tile, the function cannot be cut.
//!
//! Each pipeline has a producer warp of its own as far as there are warps. A producer that waits
//! for a free stage of one pipeline does not delay another pipeline, whatever the order in which
//! they are read.

mod slice;

use super::super::{Off, Staging, Step, threads::Team};
use super::{GROUP, LANES, Refusal, budget};
use slice::Slice;
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Rewriter, Type, Value};
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp};
use tessera_tile::TileOp;

/// Which warpgroups issue MMAs.
#[derive(Clone, Copy)]
pub enum Share {
    /// One team.
    All,
    /// That many warpgroups, which `m_split` makes of one: each has a part of the rows.
    Parts(u32),
    /// That many warpgroups that take whole tiles, each with its own shared memory; `pingpong`
    /// separates their counters.
    PingPong(u32),
}

impl Share {
    fn teams(self) -> u32 {
        match self {
            Self::All => 1,
            Self::Parts(n) | Self::PingPong(n) => n,
        }
    }
}

/// The warp-specialized function, with the registers and threads of all roles.
pub fn roles(
    func: &StagedFunc,
    staging: &Staging<'_>,
    team: Team,
    share: Share,
) -> Result<StagedFunc, Refusal> {
    let body = &func.blocks[func.body].ops;
    // Constants and memory come first and are there for all roles.
    let first = |id: &OpId| {
        super::tile_scheduler::is_once(func, *id) || func.ops[*id].code == StagedOp::PipelineCreate
    };
    let Some(cut) = body.iter().position(|id| !first(id)) else {
        return Err("there is nothing to do".into());
    };
    let (before, rest) = body.split_at(cut);
    let work = Slice::of(func, rest, |id| has_effects(func, id) && !fills(func, id));
    let pipelines: Vec<Value> = before
        .iter()
        .filter(|&&id| func.ops[id].code == StagedOp::PipelineCreate)
        .map(|&id| func.ops[id].result())
        .collect();
    let feeders = feeders(&pipelines);
    let mut loads = Vec::new();
    for own in &feeders {
        let slice = Slice::of(func, rest, |id| {
            fills(func, id) && pipeline_of(func, id).is_none_or(|pipeline| own.contains(&pipeline))
        });
        one_thread(func, &slice)?;
        loads.push(slice);
    }

    let mut rw = Rewriter::new(func);
    let (top, loc) = (rw.new.body, func.loc.clone());
    let in_turns = matches!(share, Share::PingPong(_));
    let own = |id: &OpId| in_turns && func.ops[*id].code == StagedOp::SmemAlloc;
    for &id in before.iter().filter(|id| !own(id)) {
        rw.copy_op(id, top);
    }
    let fields = |own: &Vec<Value>| -> usize {
        let count = |pipeline: &Value| match func.ty(*pipeline) {
            Type::Pipeline { fields, .. } => fields.len(),
            _ => 0,
        };
        own.iter().map(count).sum()
    };
    let most = feeders.iter().map(fields).max().unwrap_or(0);
    let pools = budget::registers(staging, team.warps * share.teams(), most);
    let pools = pools.filter(|_| !Off::of(func).has(Step::RegisterReallocation));

    let spec = OpSpec::new(StagedOp::WarpSpecialize, &[]);
    let both = rw.builder(top, loc.clone()).effect(spec);
    let inside = rw.new.ops[both].regions[0];
    let block = role(&mut rw, inside, "consumer", team.warps, pools.map(|p| p.0), false);
    if let Share::PingPong(replicas) = share {
        let work = rw.new.blocks[block].parent.expect("a role has an op");
        let attrs = &mut rw.new.ops[work].attrs;
        attrs.set("replicas", Attr::Int(replicas.into()));
        attrs.set("part", Attr::word("tiles"));
    }
    for &id in before.iter().filter(|id| own(id)) {
        rw.copy_op(id, block);
    }
    for &id in rest {
        work.copy(&mut rw, id, block);
    }
    rw.builder(block, loc.clone()).yield_(&[]);
    for (n, (own, load)) in feeders.iter().zip(&loads).enumerate() {
        let last = n + 1 == feeders.len();
        let warps = if last { GROUP - n as u32 } else { 1 };
        let name = if n == 0 { "producer".to_string() } else { format!("producer{}", n + 1) };
        let block = role(&mut rw, inside, &name, warps, pools.map(|p| p.1), true);
        for &id in rest {
            load.copy(&mut rw, id, block);
        }
        for &pipeline in own {
            let pipeline = rw.get(pipeline);
            rw.builder(block, loc.clone()).drain(pipeline);
        }
        rw.builder(block, loc.clone()).yield_(&[]);
    }
    rw.builder(inside, loc.clone()).yield_(&[]);
    rw.builder(top, loc).return_();
    let threads = i64::from((team.warps * share.teams() + GROUP) * LANES);
    rw.new.attrs.set("threads", Attr::Int(threads));
    Ok(rw.new)
}

/// The pipelines that each producer fills: one each, and the last takes all that are left.
fn feeders(pipelines: &[Value]) -> Vec<Vec<Value>> {
    let most = GROUP as usize;
    let mut out: Vec<Vec<Value>> = pipelines.iter().take(most).map(|&r| vec![r]).collect();
    if let Some(last) = out.last_mut() {
        last.extend(pipelines.iter().skip(most));
    }
    out
}

/// The pipeline that an op fills.
fn pipeline_of(func: &StagedFunc, id: OpId) -> Option<Value> {
    let op = &func.ops[id];
    match op.code {
        StagedOp::Fill => func.def(op.operands[0]).map(|acquire| acquire.operands[0]),
        _ => Some(op.operands[0]),
    }
}

fn role(
    rw: &mut Rewriter<'_, Staged>,
    into: BlockId,
    name: &str,
    warps: u32,
    regs: Option<u32>,
    one_thread: bool,
) -> BlockId {
    let mut spec = OpSpec::new(StagedOp::WarpRole, &[])
        .attr("name", Attr::word(name))
        .attr("warps", Attr::Int(warps.into()));
    if let Some(regs) = regs {
        spec = spec.attr("regs", Attr::Int(regs.into()));
    }
    if one_thread {
        spec = spec.attr("one_thread", Attr::Bool(true));
    }
    let id = rw.builder(into, rw.old.loc.clone()).effect(spec);
    rw.new.ops[id].regions[0]
}

fn fills(func: &StagedFunc, id: OpId) -> bool {
    matches!(func.ops[id].code, StagedOp::Acquire | StagedOp::Fill | StagedOp::Publish)
}

/// Whether an op has an effect that other ops, the host or memory observe.
fn has_effects(func: &StagedFunc, id: OpId) -> bool {
    use tessera_ir::Effects;
    match tessera_ir::Opcode::info(func.ops[id].code).effects {
        Effects::Write
        | Effects::ReadWrite
        | Effects::Sync
        | Effects::Host
        | Effects::Collective => true,
        // Reads are kept where their result is needed, control ops where an op inside is;
        // terminators are made anew for each role.
        Effects::Pure | Effects::Read | Effects::Control | Effects::Terminator => false,
    }
}

/// Checks that one thread can run the ops of a producer.
#[deny(clippy::wildcard_enum_match_arm)]
fn one_thread(func: &StagedFunc, load: &Slice<'_>) -> Result<(), Refusal> {
    use TileOp::*;
    for id in load.ops() {
        let op = &func.ops[id];
        // Ops before the roles are there for all of them.
        let outside = op.block == func.body;
        if outside || fills(func, id) || super::uses::is_control(op.code) {
            continue;
        }
        let scalar = op.results.iter().all(|&v| matches!(func.ty(v), Type::Scalar(_)));
        let StagedOp::Tile(code) = op.code else {
            return Err("where it reads depends on the elements of a tile".into());
        };
        let plain = match code {
            Const | Dim | NumPrograms | ProgramId | Ew(_) | Cast | Bitcast | Select => true,
            // Scalars from memory that no group writes.
            Load => !is_written(func, op.operands[0]),
            For | If | While | Yield | Return | SlowPath | LinearId | LocalId | GroupSize
            | WarpSize | Origin | Iota | Reshape | Transpose | Broadcast | Expand | Store
            | Gather | Scatter | Accumulate | BufAlloc | CopyAsync | Barrier | Atomic
            | CopyCommit | CopyWait | Mma | GroupReduce | GroupScan | GroupBroadcast
            | GroupShuffle | Philox | Print | Assert | Reduce | Scan | ArgReduce | Slice
            | Concat | Take | ReduceBy | ScanBy | Sort | Histogram | Owned | Asm | AsmEffect => {
                false
            }
        };
        if !scalar || !plain {
            let what = func.name_of(*op.results.first().unwrap_or(&op.operands[0]));
            return Err(format!(
                "where it reads depends on {}, which one thread alone cannot know",
                what.map_or("the elements of a tile".to_string(), |n| format!("`{n}`"))
            ));
        }
    }
    Ok(())
}

fn is_written(func: &StagedFunc, view: Value) -> bool {
    func.walk().iter().any(|&id| {
        let op = &func.ops[id];
        let dst = match op.code {
            StagedOp::BulkStore | StagedOp::BulkReduce => op.operands[1],
            StagedOp::Tile(
                TileOp::Store | TileOp::Scatter | TileOp::Accumulate | TileOp::Atomic,
            ) => op.operands[0],
            _ => return false,
        };
        dst == view
    })
}
