//! Plans producer loads: which loads become fields of which pipeline stages, and where a stage is
//! filled, waited for and released. Pipelines that are never in use at the same time share memory.

use super::super::super::Staging;
use super::super::super::seeds::extents;
use super::super::encode::{boxed, is_rounding, permutation_of};
use super::super::uses::{Users, place_in, users};
use super::super::{Refusal, budget};
use std::collections::BTreeSet;
use std::sync::Arc;
use tessera_ir::{Attr, BlockId, Field as PipelineField, OpId, Type, Value};
use tessera_numerics::DType;
use tessera_staged::{StagedFunc, StagedOp};
use tessera_tile::TileOp;

pub struct Field {
    pub load: OpId,
    pub ty: PipelineField,
    /// Shared memory that the load was written to, with the order of the load's dims.
    pub memory: Vec<(Value, Vec<usize>)>,
    /// Whether other ops use the tile itself.
    pub is_read: bool,
}

pub struct Pipeline {
    pub fields: Vec<Field>,
    /// The block of the loads. In it: the last load, the first op that needs the fields and the
    /// last.
    pub block: BlockId,
    pub filled: usize,
    pub first: usize,
    pub last: usize,
    pub stages: u32,
    /// Whether the loads are in a loop of the group.
    pub iterations: bool,
    /// The pipeline whose memory it uses: its own index, or one that is never in use at the same
    /// time.
    pub of: usize,
}

impl Pipeline {
    pub fn ty(&self) -> Type {
        let fields = self.fields.iter().map(|f| f.ty.clone()).collect();
        Type::Pipeline { stages: self.stages, fields }
    }

    pub fn stage_bytes(&self) -> u32 {
        let place =
            |at: u32, f: &Field| at.next_multiple_of(f.ty.layout.align()) + f.ty.layout.bytes();
        self.fields.iter().fold(0, place).next_multiple_of(budget::ALIGN)
    }
}

#[derive(Default)]
pub struct LoadPlan {
    pub pipelines: Vec<Pipeline>,
    /// Ops that have nothing left to do.
    pub gone: BTreeSet<OpId>,
}

impl LoadPlan {
    /// Pipelines that own their memory, with their indices.
    pub fn own(&self) -> impl Iterator<Item = (usize, &Pipeline)> {
        self.pipelines.iter().enumerate().filter(|(i, r)| r.of == *i)
    }

    /// Lets consecutive loops use the stages of the same pipeline where these have the same fields.
    fn share(&mut self, func: &StagedFunc) {
        for i in 1..self.pipelines.len() {
            let apart = |a: BlockId, b: BlockId| {
                let within = |inner: BlockId, outer: BlockId| {
                    inner == outer
                        || func.blocks[outer].parent.is_some_and(|op| {
                            func.ancestors(inner).contains(&op) && !branches(func, op, inner, outer)
                        })
                };
                !within(a, b) && !within(b, a)
            };
            let pipeline = &self.pipelines[i];
            let alike = |other: &Pipeline| {
                let holds = |f: &Field| (f.ty.shape.clone(), f.ty.dtype, f.ty.layout.clone());
                other.iterations == pipeline.iterations
                    && other.fields.len() == pipeline.fields.len()
                    && other.fields.iter().zip(&pipeline.fields).all(|(a, b)| holds(a) == holds(b))
            };
            let free = |of: usize| {
                self.pipelines[..i].iter().all(|r| r.of != of || apart(r.block, pipeline.block))
            };
            let found =
                (0..i).find(|&j| self.pipelines[j].of == j && alike(&self.pipelines[j]) && free(j));
            if let Some(j) = found {
                let names: Vec<String> =
                    self.pipelines[j].fields.iter().map(|f| f.ty.name.clone()).collect();
                for (field, name) in self.pipelines[i].fields.iter_mut().zip(names) {
                    field.ty.name = name;
                }
                self.pipelines[i].of = j;
            }
        }
    }

    pub fn is_load(&self, id: OpId) -> bool {
        self.pipelines.iter().flat_map(|r| &r.fields).any(|f| f.load == id)
    }
}

/// Whether an op holds two blocks in different regions, of which one runs.
fn branches(func: &StagedFunc, op: OpId, inner: BlockId, outer: BlockId) -> bool {
    let regions = &func.ops[op].regions;
    let holder = |block: BlockId| {
        regions.iter().position(|&r| {
            r == block || func.blocks[r].ops.iter().any(|&o| func.ancestors(block).contains(&o))
        })
    };
    holder(inner) != holder(outer)
}

/// What a load becomes, and the first and last op in its block that need it.
struct Found {
    field: Field,
    first: usize,
    last: usize,
}

pub fn plan(func: &StagedFunc, staging: &Staging<'_>) -> Result<LoadPlan, Refusal> {
    let users = users(func);
    let mut plan = LoadPlan::default();
    let mut taken = BTreeSet::new();
    for id in func.walk() {
        let op = &func.ops[id];
        let tile = op.code == StagedOp::Tile(TileOp::Load) && func.ty(op.result()).rank() == 2;
        if !tile || !func.ty(op.result()).is_tile() {
            continue;
        }
        let Some(found) = look(func, staging, &users, id, &mut plan.gone)? else { continue };
        let Found { mut field, first, last } = found;
        field.ty.name = name(func, id, &mut taken);
        let block = op.block;
        let place = place_in(func, block, id).unwrap_or(0);
        match plan.pipelines.iter_mut().find(|r| (r.block, r.first) == (block, first)) {
            Some(pipeline) => {
                pipeline.filled = pipeline.filled.max(place);
                pipeline.last = pipeline.last.max(last);
                pipeline.fields.push(field);
            }
            None => {
                let iterations = func
                    .ancestors(block)
                    .iter()
                    .any(|&o| func.ops[o].code == StagedOp::Tile(TileOp::For));
                let fields = vec![field];
                let of = plan.pipelines.len();
                plan.pipelines.push(Pipeline {
                    of,
                    fields,
                    block,
                    filled: place,
                    first,
                    last,
                    stages: 1,
                    iterations,
                });
            }
        }
    }
    if plan.pipelines.is_empty() {
        return Err("no MMA reads what is loaded for it".into());
    }
    let fed: BTreeSet<Value> = plan
        .pipelines
        .iter()
        .flat_map(|r| &r.fields)
        .flat_map(|f| f.memory.iter().map(|m| m.0))
        .collect();
    plan.share(func);
    let needless = barriers(func, &fed);
    plan.gone.extend(needless);
    Ok(plan)
}

/// The uses of a load's elements.
#[derive(Default)]
struct Taken {
    memory: Vec<(Value, Vec<usize>)>,
    /// MMAs, and the ops that wait for them.
    products: Vec<OpId>,
    /// Ops that use the tile itself.
    others: Vec<OpId>,
    /// Writes, memory and transpositions that are not needed where the memory is a field.
    needless: Vec<OpId>,
}

impl Taken {
    /// An MMA that reads memory, or the tile that is loaded from there for MMAs.
    fn read_by(&mut self, func: &StagedFunc, users: &Users, reader: OpId) {
        match func.ops[reader].code {
            StagedOp::MmaIssue => {
                self.products.push(reader);
                let result = func.ops[reader].result();
                self.products.extend(users[&result].iter().map(|u| u.0));
            }
            StagedOp::FragLoad => {
                self.products.push(reader);
                for product in users[&func.ops[reader].result()].iter().map(|u| u.0) {
                    self.read_by(func, users, product);
                }
            }
            _ => {}
        }
    }

    /// Follows a tile that is the load with its dims in the order `perm`. Returns whether the tile
    /// itself is needed.
    fn follow(&mut self, func: &StagedFunc, users: &Users, v: Value, perm: &[usize]) -> bool {
        let mut needed = false;
        for &(user, at) in users.get(&v).map_or(&[][..], |u| u) {
            let op = &func.ops[user];
            match op.code {
                StagedOp::FragStore if at == 1 && is_for_products(func, users, op.operands[0]) => {
                    let mem = op.operands[0];
                    self.memory.push((mem, perm.to_vec()));
                    self.needless.push(user);
                    self.needless.extend(func.def_id(mem));
                    for reader in users[&mem].iter().map(|u| u.0) {
                        self.read_by(func, users, reader);
                    }
                }
                StagedOp::Tile(TileOp::Transpose) => {
                    let next: Vec<usize> =
                        permutation_of(func, user).iter().map(|&p| perm[p]).collect();
                    if self.follow(func, users, op.result(), &next) {
                        needed = true;
                        self.others.push(user);
                    } else {
                        self.needless.push(user);
                    }
                }
                StagedOp::Tile(TileOp::Cast) if is_rounding(func, user) => {
                    if self.follow(func, users, op.result(), perm) {
                        needed = true;
                        self.others.push(user);
                    } else {
                        self.needless.push(user);
                    }
                }
                _ => {
                    needed = true;
                    self.others.push(user);
                }
            }
        }
        needed
    }
}

/// What a load becomes; none where no MMA reads it in memory.
fn look(
    func: &StagedFunc,
    staging: &Staging<'_>,
    users: &Users,
    load: OpId,
    gone: &mut BTreeSet<OpId>,
) -> Result<Option<Found>, Refusal> {
    let op = &func.ops[load];
    let mut taken = Taken::default();
    let is_read = taken.follow(func, users, op.result(), &[0, 1]);
    if taken.memory.is_empty() {
        return Ok(None);
    }
    let places = |ops: &[OpId]| -> Vec<usize> {
        ops.iter().filter_map(|&o| place_in(func, op.block, o)).collect()
    };
    // TMA rounds elements to tf32.
    let dtypes: BTreeSet<DType> = taken.memory.iter().map(|m| func.ty(m.0).dtype()).collect();
    let dtype = *dtypes.first().unwrap_or(&func.ty(op.result()).dtype());
    if dtypes.len() > 1 || is_read && dtype == DType::Tf32 {
        return Err("a tile is rounded to tf32 for an MMA and used as it is elsewhere".into());
    }
    let (products, others) = (places(&taken.products), places(&taken.others));
    let Some(&first) = products.iter().chain(&others).min() else { return Ok(None) };
    let last = products.iter().copied().max().unwrap_or(first).max(first);
    gone.extend(taken.needless);
    let param = func.params().iter().position(|&p| p == op.operands[0]);
    let class = param.map(|p| staging.classes[p]).unwrap_or_default();
    let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
    let ty = func.ty(op.result());
    let shared = boxed(class, &extent, &extents(ty), ty.dtype().bytes() as u32)?;
    let ty = PipelineField {
        name: String::new(),
        shape: ty.shape().to_vec(),
        dtype,
        layout: Arc::new(shared),
    };
    let memory = taken.memory;
    Ok(Some(Found { field: Field { load, ty, memory, is_read }, first, last }))
}

/// Whether memory is written once, and read by WGMMAs alone.
fn is_for_products(func: &StagedFunc, users: &Users, mem: Value) -> bool {
    let allocated = func.def(mem).is_some_and(|op| op.code == StagedOp::SmemAlloc);
    let all = users.get(&mem).map_or(&[][..], |u| u);
    let count = |code: StagedOp| all.iter().filter(|(u, _)| func.ops[*u].code == code).count();
    let stores = count(StagedOp::FragStore);
    let loads = all.iter().filter(|(u, _)| is_left_of_products(func, users, *u)).count();
    allocated && stores == 1 && count(StagedOp::MmaIssue) + stores + loads == all.len()
}

/// Whether an op loads a tile that WGMMA takes as a register operand only.
fn is_left_of_products(func: &StagedFunc, users: &Users, id: OpId) -> bool {
    let op = &func.ops[id];
    let multiplied = |&(u, at): &(OpId, usize)| {
        func.ops[u].code == StagedOp::MmaIssue && func.ops[u].block == op.block && at == 0
    };
    op.code == StagedOp::FragLoad
        && users.get(&op.result()).is_some_and(|all| all.iter().all(multiplied))
}

/// Fences and barriers around MMAs that only read pipeline stages.
fn barriers(func: &StagedFunc, fed: &BTreeSet<Value>) -> BTreeSet<OpId> {
    let mut gone = BTreeSet::new();
    for id in func.walk() {
        let op = &func.ops[id];
        let reads = |v: &Value| matches!(func.ty(*v), Type::Smem { .. });
        if op.code != StagedOp::MmaIssue
            || !op.operands[..2].iter().filter(|v| reads(v)).all(|v| fed.contains(v))
        {
            continue;
        }
        let ops = &func.blocks[op.block].ops;
        let Some(at) = ops.iter().position(|&o| o == id) else { continue };
        let code = |o: &OpId| func.ops[*o].code;
        let passed = |o: &&OpId| {
            let loads = code(o) == StagedOp::FragLoad && fed.contains(&func.ops[**o].operands[0]);
            code(o) == StagedOp::MmaOpen || loads
        };
        let before = ops[..at].iter().rev().filter(|o| !passed(o)).take(2);
        let after = ops[at + 1..].iter().filter(|o| code(o) != StagedOp::MmaRetire).take(1);
        let syncs = |o: &&OpId| matches!(code(o), StagedOp::BlockBarrier | StagedOp::FenceAsync);
        gone.extend(before.take_while(syncs));
        gone.extend(after.take_while(syncs));
    }
    gone
}

/// A field's name: the tile's name where that is a word, made unique.
fn name(func: &StagedFunc, load: OpId, taken: &mut BTreeSet<String>) -> String {
    let own = func.name_of(func.ops[load].result()).unwrap_or_default();
    let own: String = own.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let word = own.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let base = if word { own } else { "field".to_string() };
    let mut name = base.clone();
    let mut n = 1;
    while !taken.insert(name.clone()) {
        n += 1;
        name = format!("{base}{n}");
    }
    name
}
