//! Programs of ranks that run rank by rank: the body of a `manual` becomes a function of one rank, which is planned and compiled once for all
//! ranks, whose blocks are equal. Its collectives are steps of the plan on a queue of their own (`plan::overlap`), and ranks are cursors in it
//! (`rank_run.rs`) on the transport of `comm`. In the whole function it is the call of a kernel, with memory for the results.
//!
//! Small programs of which all ranks take the same way run as one function with a row for each rank instead (`autodiff::expand_ranks`), and so do
//! programs with calls of kernels or with extents that are not known.

use super::calls::MadeKernels;
use super::list::List;
use super::program::GraphProgram;
use super::rank_code::Code;
use super::rank_run::Rig;
use super::shared::Shared;
use std::collections::BTreeMap;
use tessera_diag::{Diagnostic, Diagnostics};
use tessera_graph::ops::collective::{Manual, MeshAxes};
use tessera_graph::walk::{captures, dce_module, fresh_name};
use tessera_graph::{
    Graph, GraphFunc, GraphModule, GraphOp, Refusal, elem, extents, scalar, states, tensor,
};
use tessera_ir::{Attr, Attrs, BlockId, DimExpr, OpId, OpSpec, Type, Value};
use tessera_lower::stage::{Off, Step as Pass};
use tessera_numerics::{DType, NumType, ScalarFn};
use tessera_plan::{Chosen, Plan, Written, buckets};
use tessera_support::ForkLock;

/// The program of a rank, for all ranks of a mesh.
pub struct RankProgram {
    pub manual: Manual,
    /// On the blocks of the operands, and then the rank's positions.
    pub program: Box<GraphProgram>,
    /// The axes of each position.
    pub positions: Vec<Vec<String>>,
    pub shared: Shared,
    pub idle: ForkLock<Vec<Rig>>,
    /// Code for a worker at a time.
    pub codes: ForkLock<Vec<Code>>,
}

/// Programs by the names that calls have for them.
pub type RankPrograms = BTreeMap<String, RankProgram>;

/// What is done to a plan before its kernels are compiled.
pub type Change<'a> = &'a dyn Fn(&mut Plan) -> Result<(), Diagnostics>;

/// Compiles a function of a module for arguments of these types; None where its plan is none of ranks.
type Compile<'a> = &'a mut dyn FnMut(
    (&GraphModule, &str, &[Type]),
    Change<'_>,
) -> Result<Option<GraphProgram>, Diagnostics>;

/// Replaces the programs of a module that are to run rank by rank by calls, and compiles them.
pub fn take_out(
    module: &mut GraphModule,
    off: Off,
    (chosen, kernels): (&Chosen, &MadeKernels),
    compile: Compile<'_>,
) -> Result<RankPrograms, Diagnostics> {
    let mut made = RankPrograms::new();
    for at in 0..module.funcs.len() {
        let source = module.funcs[at].clone();
        for id in source.walk() {
            let is_manual = source.ops[id].code == GraphOp::Manual;
            if !is_manual || !is_for_cursors(module, &source, id, kernels, off) {
                continue;
            }
            // No name that a kernel of a user may have.
            let name = format!("{}.ranks_{}", source.name, made.len());
            if let Some(ranks) = program(module, (&source, id), (chosen, off), compile)? {
                made.insert(name.clone(), ranks);
                call(&mut module.funcs[at], id, &name)?;
            }
        }
    }
    Ok(made)
}

/// Programs whose values have fewer bytes on all ranks together are one function with rows, unless ranks take different ways: a launch
/// costs more than what it computes.
const SMALL: i64 = 4 << 20;

pub fn is_for_cursors(
    module: &GraphModule,
    func: &GraphFunc,
    id: OpId,
    kernels: &MadeKernels,
    off: Off,
) -> bool {
    let region = func.ops[id].regions[0];
    let fixed = |v: &Value| func.ty(*v).static_shape().is_some();
    if !captures(func, region).is_empty() || !func.blocks[region].args.iter().all(fixed) {
        return false;
    }
    let (mut is_possible, mut bytes) = (true, 0i64);
    func.walk_block(region, &mut |id| {
        let op = &func.ops[id];
        let combines = op.attr("op").is_some() && states::is_collective(op.code);
        is_possible &= op.results.iter().all(fixed)
            && (!combines || combined(func.ty(op.operands[0])).is_some())
            && is_possible_op(module, func, id, kernels);
        for ty in op.results.iter().map(|&v| func.ty(v)) {
            let count: i64 = ty.static_shape().unwrap_or_default().iter().product();
            bytes = bytes.saturating_add(count.saturating_mul(ty.dtype().bytes() as i64));
        }
    });
    let ranks = MeshAxes::of(&func.ops[id].attrs).map_or(1, |mesh| mesh.count());
    let is_small = bytes.saturating_mul(ranks) < SMALL && !off.has(Pass::RankRows);
    is_possible && (!is_small || states::diverges(module, func, id))
}

/// Whether a rank's plan can hold an op: kernels that it launches, and no ops of ranks in functions that are called.
fn is_possible_op(module: &GraphModule, func: &GraphFunc, id: OpId, kernels: &MadeKernels) -> bool {
    let op = &func.ops[id];
    if op.code == GraphOp::KernelCall {
        let kernel = op.attr("kernel").and_then(Attr::as_ref_name);
        return kernel.is_some_and(|name| kernels.contains_key(name));
    }
    if op.code == GraphOp::Manual {
        return false;
    }
    let callee = op.attr("callee").or(op.attr("decomposition")).and_then(Attr::as_ref_name);
    callee.and_then(|name| module.func(name)).is_none_or(|f| is_local(module, f, f.body, kernels))
}

fn is_local(module: &GraphModule, func: &GraphFunc, block: BlockId, kernels: &MadeKernels) -> bool {
    let mut local = true;
    func.walk_block(block, &mut |id| {
        local &=
            !states::is_of_a_rank(func.ops[id].code) && is_possible_op(module, func, id, kernels);
    });
    local
}

/// The dtype that contributions of a type are combined in.
#[deny(clippy::wildcard_enum_match_arm)]
fn combined(ty: &Type) -> Option<DType> {
    let elem = elem(ty);
    if elem != NumType::plain(elem.storage) {
        return None;
    }
    match elem.storage {
        DType::F16 | DType::BF16 | DType::Tf32 => Some(DType::F32),
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64
        | DType::F32
        | DType::F64 => Some(elem.storage),
        DType::I4
        | DType::Fp8E4M3
        | DType::Fp8E5M2
        | DType::Fp6E3M2
        | DType::Fp6E2M3
        | DType::Fp4E2M1
        | DType::E8M0 => None,
    }
}

/// An op before another one, in its block.
fn before(func: &mut GraphFunc, id: OpId, spec: OpSpec<Graph>) -> Result<Value, Diagnostic> {
    let (block, loc) = (func.ops[id].block, func.ops[id].loc.clone());
    let place = func.blocks[block].ops.iter().position(|&o| o == id).unwrap_or(0);
    let new = func.insert(block, place, spec, loc.clone());
    let new = new.map_err(|why| Refusal::structure(why).at(loc))?;
    Ok(func.ops[new].result())
}

/// Makes the op a call that reads the operands and writes the results.
fn call(func: &mut GraphFunc, id: OpId, name: &str) -> Result<(), Diagnostics> {
    let results = func.ops[id].results.clone();
    let reads = func.ops[id].operands.len();
    let mut operands = func.ops[id].operands.clone();
    for &result in &results {
        let ty = func.ty(result).clone();
        let value = match ty.dtype() {
            DType::Bool => Attr::Bool(false),
            dtype if dtype.is_int() => Attr::Int(0),
            _ => Attr::Float(0.0),
        };
        let spec = OpSpec::new(GraphOp::Const, &[]).attr("value", value).result(ty);
        operands.push(before(func, id, spec)?);
    }
    let words = (0..operands.len()).map(|i| if i < reads { "read" } else { "write" });
    let attrs = Attrs::new()
        .with("kernel", Attr::Ref(name.to_string()))
        .with("privileges", Attr::words(words.map(str::to_string)))
        .with("fresh", Attr::ints(reads as i64..operands.len() as i64));
    let op = &mut func.ops[id];
    op.code = GraphOp::KernelCall;
    op.attrs = attrs;
    op.group_lens = vec![operands.len()];
    op.operands = operands;
    op.regions.clear();
    Ok(())
}

/// The function of one rank, compiled.
fn program(
    module: &GraphModule,
    (source, id): (&GraphFunc, OpId),
    (chosen, off): (&Chosen, Off),
    compile: Compile<'_>,
) -> Result<Option<RankProgram>, Diagnostics> {
    let op = &source.ops[id];
    let manual = Manual::of(&op.attrs).map_err(|r| r.at(op.loc.clone()))?;
    let func = tessera_autodiff::outline(source, op.regions[0]).func;
    let mut rank = Rank { func, positions: Vec::new() };
    for id in rank.func.walk() {
        rank.op(id)?;
    }
    let Rank { mut func, positions } = rank;
    let mut all = GraphModule::new(&*module.name);
    func.name = fresh_name(module, &format!("{}.rank", source.name));
    let name = func.name.clone();
    let types: Vec<Type> = func.params().iter().map(|&p| func.ty(p).clone()).collect();
    all.funcs.clone_from(&module.funcs);
    all.funcs.push(func);
    // Its composites may become these functions.
    let roots: Vec<&str> = std::iter::once(name.as_str()).chain(chosen.names()).collect();
    dce_module(&mut all, &roots);
    let sharing = |plan: &Plan, written: &Written| -> Result<Shared, Diagnostics> {
        let steps = List::new(written)?.commands;
        Ok(Shared::of(&manual, &positions, plan, &steps, !off.has(Pass::RankShare)))
    };
    let join = |plan: &mut Plan| -> Result<(), Diagnostics> {
        if off.has(Pass::Buckets) {
            return Ok(());
        }
        let shared = sharing(plan, &plan.write("any"))?;
        buckets(plan, &|buffer| shared.alike(buffer))
    };
    let program = compile((&all, &name, &types), &join)?.map(Box::new);
    let Some(program) = program else { return Ok(None) };
    let shared = sharing(program.plan(), &program.written)?;
    let (idle, codes) = (ForkLock::default(), ForkLock::default());
    Ok(Some(RankProgram { manual, program, positions, shared, idle, codes }))
}

/// The function of a rank as it becomes one that a planner takes.
struct Rank {
    func: GraphFunc,
    /// The axes of the positions that are arguments.
    positions: Vec<Vec<String>>,
}

impl Rank {
    fn replace(&mut self, id: OpId, by: Value) {
        let old = self.func.ops[id].result();
        self.func.replace_uses(old, by);
        self.func.erase(id);
    }

    /// The rank's position along axes.
    fn position(&mut self, axes: &MeshAxes) -> Value {
        let place = self.positions.iter().position(|known| *known == axes.names);
        let place = place.unwrap_or_else(|| {
            self.positions.push(axes.names.clone());
            let name = format!("position_{}", axes.names.join("_"));
            self.func.add_arg(self.func.body, scalar(DType::I64), Some(&name));
            self.positions.len() - 1
        });
        let params = self.func.params();
        params[params.len() - self.positions.len() + place]
    }

    fn op(&mut self, id: OpId) -> Result<(), Diagnostic> {
        let op = self.func.ops[id].clone();
        if !states::is_of_a_rank(op.code) {
            return Ok(());
        }
        let axes = MeshAxes::of(&op.attrs).map_err(|r| r.at(op.loc.clone()))?;
        match op.code {
            // A value that is taken as each rank's own is that value.
            GraphOp::Vary => self.replace(id, op.operands[0]),
            GraphOp::AxisIndex => {
                let position = self.position(&axes);
                self.replace(id, position);
            }
            GraphOp::Own => {
                let block = self.own(id, op.operands[0], &axes)?;
                self.replace(id, block);
            }
            _ if op.attr("op").is_some() => self.widen(id)?,
            _ => {}
        }
        Ok(())
    }

    fn number(&mut self, id: OpId, n: i64) -> Result<Value, Diagnostic> {
        let spec = OpSpec::new(GraphOp::Const, &[]).attr("value", Attr::Int(n));
        before(&mut self.func, id, spec.result(scalar(DType::I64)))
    }

    /// The block of a rank.
    fn own(&mut self, id: OpId, x: Value, axes: &MeshAxes) -> Result<Value, Diagnostic> {
        let op = &self.func.ops[id];
        let (dim, ty) = (op.attr("dim").and_then(Attr::as_int).unwrap_or(0), op.result());
        let ty = self.func.ty(ty).clone();
        let dims = ty.static_shape().unwrap_or_default();
        let position = self.position(axes);
        let each = self.number(id, dims[dim as usize])?;
        let ew = OpSpec::new(GraphOp::Ew(ScalarFn::Mul), &[position, each]);
        let start = before(&mut self.func, id, ew.result(scalar(DType::I64)))?;
        let zero = self.number(id, 0)?;
        let at: Vec<Value> =
            (0..dims.len()).map(|d| if d as i64 == dim { start } else { zero }).collect();
        let extent: Vec<DimExpr> = dims.iter().map(|&d| DimExpr::Const(d)).collect();
        let spec = OpSpec::new(GraphOp::DynamicSlice, &[x]).group("at", &at);
        before(&mut self.func, id, spec.attr("extent", extents(&extent)).result(ty))
    }

    /// Contributions are combined in the accumulation dtype, and stored once.
    fn widen(&mut self, id: OpId) -> Result<(), Diagnostic> {
        let op = self.func.ops[id].clone();
        let (x, result) = (op.operands[0], op.result());
        let (from, to) = (self.func.ty(x).clone(), self.func.ty(result).clone());
        let Some(wide) = combined(&from).filter(|d| *d != from.dtype()) else { return Ok(()) };
        let widened = |ty: &Type| tensor(ty.shape().to_vec(), NumType::plain(wide));
        let cast = OpSpec::new(GraphOp::Cast, &[x]).result(widened(&from));
        let x = before(&mut self.func, id, cast)?;
        let spec = OpSpec { attrs: op.attrs, ..OpSpec::new(op.code, &[x]).result(widened(&to)) };
        let made = before(&mut self.func, id, spec)?;
        let cast = OpSpec::new(GraphOp::Cast, &[made]).result(to);
        let made = before(&mut self.func, id, cast)?;
        self.replace(id, made);
        Ok(())
    }
}
