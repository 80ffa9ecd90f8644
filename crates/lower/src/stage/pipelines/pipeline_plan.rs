//! Plans software pipelines: which loads become fields of which pipeline stages, their layout in
//! shared memory, and the pipeline depth that fits.

use super::super::lanes::is_worth_turning;
use super::super::scalars::divisor;
use super::super::{Staging, register_prefetch};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Attr, BlockId, Field as PipelineField, OpId, Type, Value, ValueDef};
use tessera_layout::{Layout, Move, Shared, conversion, cost_of};
use tessera_staged::ops::smem::holds_its_part;
use tessera_staged::{StagedFunc, StagedOp};
use tessera_target::arrays::{ArrayClass, WIDEST};
use tessera_tile::TileOp;
use tessera_tile::attrs::checked_axes;

/// A use of a load's elements.
pub enum Use {
    /// A tile in the operand's layout, after these casts.
    Fragment { value: Value, perm: Vec<i64>, casts: Vec<OpId> },
    /// Shared memory that the load was stored to.
    Memory { mem: Value, perm: Vec<i64> },
}

impl Use {
    /// The load's axes in the order in which the use has them.
    pub fn perm(&self) -> &[i64] {
        match self {
            Use::Fragment { perm, .. } | Use::Memory { perm, .. } => perm,
        }
    }
}

pub struct Field {
    pub load: OpId,
    pub name: String,
    pub extent: Vec<i64>,
    /// For each axis of the parameter: whether the position depends on the loop, and whether the
    /// load itself may leave the extent.
    pub moving: Vec<bool>,
    pub checked: Vec<bool>,
    pub uses: Vec<Use>,
    /// Ops between the load and its uses that are not needed any more.
    pub through: Vec<OpId>,
    ty: PipelineField,
}

pub struct PipelinePlan {
    pub loop_op: OpId,
    pub fields: Vec<Field>,
    pub stages: u32,
    /// Whether the loop is in another one.
    pub again: bool,
}

impl PipelinePlan {
    pub fn ty(&self) -> Type {
        let fields = self.fields.iter().map(|f| f.ty.clone()).collect();
        Type::Pipeline { stages: self.stages, fields }
    }

    fn stage_bytes(&self) -> u32 {
        self.fields
            .iter()
            .fold(0u32, |at, f| at.next_multiple_of(f.ty.layout.align()) + f.ty.layout.bytes())
    }
}

#[derive(Default)]
pub struct Plans {
    pub pipelines: Vec<PipelinePlan>,
    /// Ops that have nothing left to do.
    pub gone: BTreeSet<OpId>,
}

impl Plans {
    /// The pipelines whose loops are inside an op.
    pub fn inside(&self, func: &StagedFunc, id: OpId) -> Vec<usize> {
        let within = |p: &PipelinePlan| func.ancestors(func.ops[p.loop_op].block).contains(&id);
        (0..self.pipelines.len()).filter(|&i| within(&self.pipelines[i])).collect()
    }
}

/// The pipeline depth where the user does not request one.
const STAGES: u32 = 4;
/// Below this depth, another stage is worth more than a second resident block.
const ENOUGH: u32 = 3;

pub fn plan(func: &StagedFunc, staging: &Staging<'_>, most: u32, notes: &mut Diagnostics) -> Plans {
    let users = users(func);
    let mut plans = Plans::default();
    for id in func.walk() {
        if func.ops[id].code != StagedOp::Tile(TileOp::For) {
            continue;
        }
        let mut fields: Vec<Field> = Vec::new();
        let in_registers = register_prefetch::takes(func, id);
        for &load in &func.blocks[func.ops[id].regions[0]].ops {
            if func.ops[load].code != StagedOp::Tile(TileOp::Load) || in_registers.contains(&load) {
                continue;
            }
            let product = feeds(func, &users, load);
            let is_product = product.is_some();
            let Some((uses, through)) = product.or_else(|| streams(func, load)) else { continue };
            match field(func, staging, id, load) {
                // Loop-invariant loads are not worth a stage.
                Ok(make) if !is_product && !make.moving.contains(&true) => {}
                Ok(mut make) => {
                    if is_read_along_lines(func, &users, &uses, make.shared.order[0]) {
                        make.shared = make.shared.plain();
                    } else if is_turned(func, &users, &uses, &make.shared) {
                        make.shared = turned(make.shared);
                    }
                    fields.push(make.named(func, &fields, uses, through));
                }
                Err(why) if is_product => not_pipelined(func, load, &why, notes),
                Err(_) => {}
            }
        }
        if !fields.is_empty() {
            let again = !func.ancestors(func.ops[id].block).is_empty();
            plans.pipelines.push(PipelinePlan { loop_op: id, fields, stages: 0, again });
        }
    }
    let count = plans.pipelines.len() as u32;
    let room = room(func, staging, &plans);
    for plan in &mut plans.pipelines {
        plan.stages = stages(func, plan, room / count.max(1)).min(most);
    }
    plans.pipelines.retain(|plan| {
        let fits = plan.stages >= 2;
        if !fits {
            let load = plan.fields[0].load;
            not_pipelined(
                func,
                load,
                "two iterations of the loop do not fit in shared memory",
                notes,
            );
        }
        fits
    });
    plans.gone = gone(func, &users, &plans);
    plans
}

fn not_pipelined(func: &StagedFunc, load: OpId, why: &str, notes: &mut Diagnostics) {
    let op = &func.ops[load];
    let name = func.name_of(op.result()).map_or("a load".into(), |n| format!("`{n}`"));
    notes.push(
        Diagnostic::new(
            Code::N_NOT_PIPELINED,
            format!("{name} is not copied ahead of the loop's iterations: {why}"),
        )
        .at(op.loc.clone()),
    );
}

type Users = BTreeMap<Value, Vec<(OpId, usize)>>;

fn users(func: &StagedFunc) -> Users {
    let mut users = Users::new();
    for id in func.walk() {
        for (i, &v) in func.ops[id].operands.iter().enumerate() {
            users.entry(v).or_default().push((id, i));
        }
    }
    users
}

/// A large tile with arbitrary uses: its threads read it from the stage as they would from global
/// memory.
fn streams(func: &StagedFunc, load: OpId) -> Option<(Vec<Use>, Vec<OpId>)> {
    let value = func.ops[load].result();
    let ty = func.ty(value);
    let elements: i64 = ty.static_shape()?.iter().product();
    let bytes = elements * ty.dtype().bytes() as i64;
    let perm = (0..ty.rank() as i64).collect();
    // Of a loop of MMAs, the copies of operands are most of the work.
    let body = func.ops[load].block;
    let multiplies = func.blocks[body].ops.iter().any(|&id| is_mma(func, id));
    let least = if multiplies { LEAST_BESIDE } else { register_prefetch::least(func) };
    (ty.is_tile() && bytes as u64 >= least)
        .then(|| (vec![Use::Fragment { value, perm, casts: Vec::new() }], Vec::new()))
}

/// Tiles of fewer bytes beside the operands of MMAs are not worth a stage.
const LEAST_BESIDE: u64 = 4096;

fn is_mma(func: &StagedFunc, id: OpId) -> bool {
    matches!(func.ops[id].code, StagedOp::Tile(TileOp::Mma) | StagedOp::MmaIssue)
}

/// The MMAs that use a load, and the ops between; none where any other op uses it too.
fn feeds(func: &StagedFunc, users: &Users, load: OpId) -> Option<(Vec<Use>, Vec<OpId>)> {
    let op = &func.ops[load];
    let rank = func.ty(op.result()).rank();
    if rank != 2 {
        return None;
    }
    let mut uses = Vec::new();
    let mut through = Vec::new();
    let mut open = vec![(op.result(), (0..rank as i64).collect::<Vec<_>>(), Vec::new())];
    while let Some((v, perm, casts)) = open.pop() {
        let mut in_product = false;
        for &(user, at) in users.get(&v).map_or(&[][..], |u| u) {
            let user_op = &func.ops[user];
            if user_op.block != op.block {
                return None;
            }
            match user_op.code {
                StagedOp::Tile(TileOp::Mma) if at < 2 => in_product = true,
                StagedOp::ConvertLayout => {
                    if !only_multiplied(func, users, user_op.result()) {
                        return None;
                    }
                    let (value, perm, casts) = (user_op.result(), perm.clone(), casts.clone());
                    uses.push(Use::Fragment { value, perm, casts });
                }
                StagedOp::Tile(TileOp::Transpose) => {
                    let iteration = user_op.attr("perm").and_then(Attr::as_ints)?;
                    let next = iteration.iter().map(|&p| perm[p as usize]).collect();
                    through.push(user);
                    open.push((user_op.result(), next, casts.clone()));
                }
                StagedOp::Tile(TileOp::Cast) => {
                    let mut casts = casts.clone();
                    casts.push(user);
                    through.push(user);
                    open.push((user_op.result(), perm.clone(), casts));
                }
                StagedOp::FragStore if at == 1 && casts.is_empty() => {
                    let mem = user_op.operands[0];
                    if !only_for_products(func, users, mem) {
                        return None;
                    }
                    through.push(user);
                    uses.push(Use::Memory { mem, perm: perm.clone() });
                }
                _ => return None,
            }
        }
        if in_product {
            through.retain(|&o| func.ops[o].results.first() != Some(&v));
            uses.push(Use::Fragment { value: v, perm, casts });
        }
    }
    (!uses.is_empty()).then_some((uses, through))
}

/// Whether a tile is an operand of MMAs alone, itself or cast.
fn only_multiplied(func: &StagedFunc, users: &Users, v: Value) -> bool {
    users.get(&v).is_some_and(|all| {
        all.iter().all(|&(user, at)| match func.ops[user].code {
            StagedOp::Tile(TileOp::Mma) => at < 2,
            StagedOp::Tile(TileOp::Cast) => only_multiplied(func, users, func.ops[user].result()),
            _ => false,
        })
    })
}

/// Whether only SIMT matmuls read a field, with vectors along its dim `fast` that is m or n and not
/// k. Such loads have no bank conflicts, whatever the layout of the rows.
fn is_read_along_lines(func: &StagedFunc, users: &Users, uses: &[Use], fast: usize) -> bool {
    uses.iter().all(|used| match used {
        Use::Fragment { .. } => false,
        Use::Memory { mem, perm } => users.get(mem).is_some_and(|all| {
            all.iter().filter(|(o, _)| func.ops[*o].code == StagedOp::MmaIssue).all(|&(_, at)| {
                // The dim of the operand that is k, as one of the load.
                perm.get(1 - at.min(1)).is_some_and(|&k| k as usize != fast)
            })
        }),
    })
}

/// Whether only SIMT matmuls read a field, along k, and use each element so often that a
/// transposing copy is worth it.
fn is_turned(func: &StagedFunc, users: &Users, uses: &[Use], shared: &Shared) -> bool {
    let fast = shared.order[0];
    let worth = |issue: OpId, at: usize, perm: &[i64]| {
        let other = &func.ops[issue].operands[1 - at.min(1)];
        let times = func.ty(*other).static_shape().and_then(|s| s.get(1 - at.min(1)).copied());
        at < 2
            && perm.get(1 - at).is_some_and(|&k| k as usize == fast)
            && times.is_some_and(|n| is_worth_turning(shared.elem_bytes, n.max(0) as u32))
    };
    shared.blocks == 1
        && shared.shape.len() == 2
        && uses.iter().all(|used| match used {
            Use::Fragment { .. } => false,
            Use::Memory { mem, perm } => users.get(mem).is_some_and(|all| {
                let issues = all.iter().filter(|(o, _)| func.ops[*o].code == StagedOp::MmaIssue);
                issues.into_iter().all(|&(o, at)| worth(o, at, perm))
            }),
        })
}

/// The same tile with its other dim contiguous, swizzled so that pieces of 16 bytes down the
/// columns are in different banks.
fn turned(shared: Shared) -> Shared {
    let order: Vec<usize> = shared.order.iter().rev().copied().collect();
    let pad = (16 / shared.elem_bytes).max(1);
    Shared { pad, ..Shared::ordered(&shared.shape, &order, shared.elem_bytes) }
}

/// Whether memory is written once and read by MMAs on shared memory alone.
fn only_for_products(func: &StagedFunc, users: &Users, mem: Value) -> bool {
    let allocated = func.def(mem).is_some_and(|op| op.code == StagedOp::SmemAlloc);
    let all = users.get(&mem).map_or(&[][..], |u| u);
    let stores = all.iter().filter(|(u, _)| func.ops[*u].code == StagedOp::FragStore).count();
    let known = |&(u, _): &(OpId, usize)| {
        matches!(func.ops[u].code, StagedOp::FragStore | StagedOp::MmaIssue)
    };
    // An MMA whose other operand is not pipelined keeps its barriers, and both its stores.
    allocated && stores == 1 && all.iter().all(known)
}

/// A field whose uses are not known yet.
struct Make {
    load: OpId,
    extent: Vec<i64>,
    moving: Vec<bool>,
    checked: Vec<bool>,
    shared: Shared,
}

impl Make {
    fn named(
        self,
        func: &StagedFunc,
        others: &[Field],
        uses: Vec<Use>,
        through: Vec<OpId>,
    ) -> Field {
        let v = func.ops[self.load].result();
        let word = |n: &str| n.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        let base = func.name_of(v).filter(|n| word(n)).unwrap_or("field");
        let base: String =
            base.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let taken = |name: &str| others.iter().any(|f| f.name == name);
        let mut name = base.clone();
        let mut n = 1;
        while taken(&name) {
            n += 1;
            name = format!("{base}{n}");
        }
        let ty = PipelineField {
            name: name.clone(),
            shape: func.ty(v).shape().to_vec(),
            dtype: func.ty(v).dtype(),
            layout: Arc::new(self.shared),
        };
        let Make { load, extent, moving, checked, .. } = self;
        Field { load, name, extent, moving, checked, uses, through, ty }
    }
}

/// A load as a field of the loop's pipeline, or why it cannot be one.
fn field(
    func: &StagedFunc,
    staging: &Staging<'_>,
    loop_op: OpId,
    load: OpId,
) -> Result<Make, String> {
    let op = &func.ops[load];
    let view = op.operands[0];
    if !staging.caps.async_copy {
        return Err("this target has no asynchronous copies".into());
    }
    let Some(param) = func.params().iter().position(|&p| p == view) else {
        return Err("it does not read a parameter".into());
    };
    if func.walk().iter().any(|&o| writes(func, o, view)) {
        return Err("the kernel writes what it reads".into());
    }
    if !func
        .ancestors(func.ops[loop_op].block)
        .iter()
        .all(|&o| func.ops[o].code == StagedOp::Tile(TileOp::For))
    {
        return Err("the loop is in a branch or another kind of loop".into());
    }
    if !op.group("other").is_empty() || op.attr("step").is_some() {
        return Err("it reads every other element, or something in place of what is outside".into());
    }
    if func.ty(view).dtype() != func.ty(op.result()).dtype() {
        return Err("it converts what it reads".into());
    }
    let body = func.ops[loop_op].regions[0];
    let position = func.blocks[body].args[0];
    let mut moving = Vec::new();
    for &v in op.group("at") {
        match depends(func, v, body, position, 64) {
            Some(moves) => moving.push(moves),
            None => {
                return Err("where it reads is not known an iteration ahead".into());
            }
        }
    }
    let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
    let axes: Vec<usize> = (0..extent.len()).filter(|&a| extent[a] != 0).collect();
    let class = staging.classes[param];
    let shape = super::super::seeds::extents(func.ty(op.result()));
    let bytes = func.ty(view).dtype().bytes() as u32;
    let neighbours = neighbour_axis(class, extent.len());
    let fast = axes.iter().position(|&a| neighbours == Some(a));
    let chunk = fast.map_or(bytes.min(class.align), |dim| {
        let at = op.group("at")[axes[dim]];
        chunk_bytes(bytes, class.align, divisor(func, at), shape[dim])
    });
    if chunk < 4 {
        return Err(format!("copies of {chunk} bytes are below the least of 4"));
    }
    let mut shared = layout(&shape, bytes, fast.unwrap_or(shape.len() - 1));
    let blocks = blocks(func);
    if blocks > 1 {
        let held = func.ty(op.result()).layout();
        let divided = shared.divided(blocks).filter(|s| held.is_some_and(|l| holds_its_part(s, l)));
        shared = divided.ok_or("the blocks of a cluster do not hold contiguous parts of it")?;
    }
    let checked = checked_axes(op, extent.len());
    Ok(Make { load, extent, moving, checked, shared })
}

/// Blocks of a cluster.
fn blocks(func: &StagedFunc) -> u32 {
    let cluster = func.attrs.get("cluster").and_then(Attr::as_ints).unwrap_or_default();
    cluster.iter().product::<i64>().max(1) as u32
}

/// The contiguous axis, where there is exactly one: rows that are one element apart would not have
/// the stated alignment.
pub fn neighbour_axis(class: ArrayClass, rank: usize) -> Option<usize> {
    let mut all = (0..rank).filter(|&a| class.is_contiguous(a));
    all.next().filter(|_| all.next().is_none())
}

/// The bytes that one copy moves: a common divisor of the array's alignment, the position along the
/// contiguous axis and the block's extent along it.
pub fn chunk_bytes(elem: u32, align: u32, divisor: u64, extent: u32) -> u32 {
    let elements = match divisor {
        0 => WIDEST,
        d => 1 << d.trailing_zeros().min(4),
    };
    let even = 1 << extent.trailing_zeros().min(4);
    (elem * elements.min(even)).min(align).min(WIDEST)
}

/// The layout of a field in shared memory: rows along the memory's contiguous axis, with 16-byte
/// pieces swizzled from row to row. Neither copies along rows nor matrix loads down the columns
/// have bank conflicts.
pub fn layout(shape: &[u32], elem_bytes: u32, fast: usize) -> Shared {
    let order: Vec<usize> =
        [fast].into_iter().chain((0..shape.len()).rev().filter(|&d| d != fast)).collect();
    let row = shape[fast] * elem_bytes;
    match [128, 64, 32].into_iter().find(|span| row.is_multiple_of(*span)) {
        Some(span) => Shared::swizzled(shape, &order, elem_bytes, span),
        None => Shared::ordered(shape, &order, elem_bytes),
    }
}

pub fn writes(func: &StagedFunc, id: OpId, view: Value) -> bool {
    let op = &func.ops[id];
    matches!(
        op.code,
        StagedOp::Tile(TileOp::Store | TileOp::Scatter | TileOp::Accumulate | TileOp::Atomic)
    ) && op.operands[0] == view
}

/// Whether a scalar depends on the loop's position; none where it depends on anything else that
/// changes in the loop.
pub fn depends(
    func: &StagedFunc,
    v: Value,
    body: BlockId,
    position: Value,
    fuel: u32,
) -> Option<bool> {
    if v == position {
        return Some(true);
    }
    let home = match func.values[v].def {
        ValueDef::Result(id, _) => func.ops[id].block,
        ValueDef::Arg(block, _) => block,
    };
    if !func.block_within(home, body) {
        return Some(false);
    }
    let fuel = fuel.checked_sub(1)?;
    let op = func.def(v)?;
    let StagedOp::Tile(code) = op.code else { return None };
    let pure = matches!(
        code,
        TileOp::Const
            | TileOp::Dim
            | TileOp::ProgramId
            | TileOp::NumPrograms
            | TileOp::Ew(_)
            | TileOp::Cast
            | TileOp::Select
    ) && matches!(func.ty(v), Type::Scalar(_))
        && op.block == body;
    if !pure {
        return None;
    }
    let mut any = false;
    for &o in &op.operands {
        any |= depends(func, o, body, position, fuel)?;
    }
    Some(any)
}

/// Shared memory for pipelines: all that other ops do not need.
fn room(func: &StagedFunc, staging: &Staging<'_>, plans: &Plans) -> u32 {
    let mut fixed = 0;
    let mut scratch = 0;
    let of_pipelines: Vec<Value> = plans
        .pipelines
        .iter()
        .flat_map(|p| &p.fields)
        .flat_map(|f| &f.uses)
        .map(|u| match u {
            Use::Fragment { value, .. } => *value,
            Use::Memory { mem, .. } => *mem,
        })
        .collect();
    for id in func.walk() {
        let op = &func.ops[id];
        let Some(&result) = op.results.first() else { continue };
        if of_pipelines.contains(&result) {
            continue;
        }
        match (op.code, func.ty(result)) {
            (StagedOp::SmemAlloc, Type::Smem { layout, .. }) => fixed += layout.bytes() + 1024,
            // After the last loop the pipelines' own memory is free.
            (StagedOp::ConvertLayout, ty) if inside_or_before(func, plans, id) => {
                if let (Some(from), Some(to)) = (func.ty(op.operands[0]).layout(), ty.layout()) {
                    scratch = scratch.max(scratch_bytes(from, to, ty.dtype().bytes() as u32));
                }
            }
            _ => {}
        }
    }
    // Reductions between warps take little.
    let little = 4096;
    staging.caps.shared_per_block.saturating_sub(fixed + 2 * scratch + little)
}

fn inside_or_before(func: &StagedFunc, plans: &Plans, id: OpId) -> bool {
    let place = |id: OpId| func.blocks[func.body].ops.iter().position(|&o| o == id);
    let outermost = |id: OpId| {
        let all = func.ancestors(func.ops[id].block);
        place(all.last().copied().unwrap_or(id))
    };
    let last = plans.pipelines.iter().filter_map(|p| outermost(p.loop_op)).max();
    outermost(id) <= last
}

fn scratch_bytes(from: &Layout, to: &Layout, elem_bytes: u32) -> u32 {
    match conversion(from, to) {
        way @ (Move::Shared { .. } | Move::Shuffle { .. }) => {
            let through = match way {
                Move::Shuffle { .. } => Move::Shared { across: tessera_layout::In::Lane },
                way => way,
            };
            cost_of(&through, from, to, elem_bytes).bytes
        }
        _ => 0,
    }
}

/// The depth of a pipeline in `room` bytes of shared memory.
fn stages(func: &StagedFunc, plan: &PipelinePlan, room: u32) -> u32 {
    let bytes = plan.stage_bytes().next_multiple_of(1024).max(1);
    let fit = room / bytes;
    let config = func.attrs.get("config").and_then(Attr::as_dict);
    let wanted = func.ops[plan.loop_op]
        .attr("prefetch")
        .and_then(Attr::as_int)
        .map(|ahead| ahead + 1)
        .or_else(|| config.and_then(|c| c.get("num_stages").and_then(Attr::as_int)));
    if let Some(n) = wanted {
        return fit.min(u32::try_from(n).unwrap_or(0));
    }
    let half = (room / 2).saturating_sub(1024) / bytes;
    let fit = if half >= ENOUGH { half } else { fit };
    fit.min(STAGES)
}

/// Memory that pipelines replace, and the barriers around MMAs that only read pipelines.
fn gone(func: &StagedFunc, users: &Users, plans: &Plans) -> BTreeSet<OpId> {
    let mut gone = BTreeSet::new();
    let mut in_pipeline = BTreeSet::new();
    for used in plans.pipelines.iter().flat_map(|p| &p.fields).flat_map(|f| &f.uses) {
        if let Use::Memory { mem, .. } = used {
            in_pipeline.insert(*mem);
            gone.extend(func.def_id(*mem));
        }
    }
    for id in func.walk() {
        let op = &func.ops[id];
        if op.code != StagedOp::MmaIssue
            || !op.operands[..2].iter().all(|v| in_pipeline.contains(v))
        {
            continue;
        }
        let ops = &func.blocks[op.block].ops;
        let Some(at) = ops.iter().position(|&o| o == id) else { continue };
        let code = |o: &OpId| func.ops[*o].code;
        let before: Vec<&OpId> =
            ops[..at].iter().rev().filter(|o| code(o) != StagedOp::MmaOpen).take(2).collect();
        let retired = |o: &&OpId| {
            code(o) != StagedOp::MmaRetire || !users[&op.result()].iter().any(|(u, _)| u == *o)
        };
        let after = ops[at + 1..].iter().find(retired);
        let syncs = |o: &&OpId| matches!(code(o), StagedOp::BlockBarrier | StagedOp::FenceAsync);
        gone.extend(before.into_iter().take_while(syncs));
        gone.extend(after.filter(syncs));
    }
    gone
}
