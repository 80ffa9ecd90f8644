//! Programs of ranks that run rank by rank. Where conditions differ between ranks (`states::diverges`), one function with a row for each rank
//! (`autodiff::expand_ranks`) would compute both branches, and every iteration of the longest loop, for all of them. Such a program is cut at
//! its collectives instead: what is between them is compiled once for all ranks, whose blocks are equal, and ranks are cursors
//! (`rank_run.rs`) on the transport of `comm`. In the function it is the call of a kernel, with memory for the results.
//!
//! Programs with a collective in a loop or branch, with calls of kernels, or with extents that are not known stay rows.

use super::program::GraphProgram;
use super::rank_run::Rig;
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_graph::ops::collective::{Manual, MeshAxes, pairs};
use tessera_graph::walk::{captures, dce_module, fresh_name, returned};
use tessera_graph::{Copier, GraphFunc, GraphModule, GraphOp, states, tensor};
use tessera_ir::{Attr, Attrs, BlockId, OpId, OpSpec, Opcode, Type, Value};
use tessera_numerics::{DType, NumType, ReduceOp};
use tessera_plan::ALIGN;
use tessera_support::ForkLock;

/// A value of one rank, at a place in its memory.
pub struct Slot {
    pub dims: Vec<usize>,
    pub dtype: DType,
    pub offset: usize,
}

impl Slot {
    pub fn count(&self) -> usize {
        self.dims.iter().product()
    }

    pub fn bytes(&self) -> usize {
        self.count() * self.dtype.bytes()
    }
}

/// What ranks do together; positions are those along the axes.
pub enum Together {
    AllReduce(ReduceOp),
    ReduceScatter { op: ReduceOp, dim: usize },
    AllGather { dim: usize },
    AllToAll { split: usize, concat: usize },
    Permute(Vec<(usize, usize)>),
    FromRank { root: usize },
}

/// A step of a rank's program; values are numbers of slots.
pub enum Step {
    Run {
        program: Box<GraphProgram>,
        ins: Vec<usize>,
        outs: Vec<usize>,
    },
    /// The position along axes.
    Index {
        axes: Vec<String>,
        out: usize,
    },
    /// The own block of `dim`.
    Own {
        axes: Vec<String>,
        dim: usize,
        x: usize,
        out: usize,
    },
    Collective {
        kind: Together,
        axes: Vec<String>,
        x: usize,
        out: usize,
        loc: Loc,
    },
}

/// The program of a rank, for all ranks of a mesh.
pub struct RankProgram {
    pub manual: Manual,
    pub slots: Vec<Slot>,
    /// The blocks of the operands and of the results.
    pub params: Vec<usize>,
    pub yields: Vec<usize>,
    pub steps: Vec<Step>,
    /// The memory of one rank.
    pub bytes: usize,
    pub idle: ForkLock<Vec<Rig>>,
}

/// Programs by the names that calls have for them.
pub type RankPrograms = BTreeMap<String, RankProgram>;

/// Compiles a function of a module for arguments of these types.
type Compile<'a> =
    &'a mut dyn FnMut(&GraphModule, &str, &[Type]) -> Result<GraphProgram, Diagnostics>;

/// Replaces the programs of a module that are to run rank by rank by calls, and compiles them.
pub fn take_out(
    module: &mut GraphModule,
    compile: Compile<'_>,
) -> Result<RankPrograms, Diagnostics> {
    let mut made = RankPrograms::new();
    for at in 0..module.funcs.len() {
        let source = module.funcs[at].clone();
        for id in source.walk() {
            if source.ops[id].code != GraphOp::Manual || !is_for_cursors(module, &source, id) {
                continue;
            }
            // No name that a kernel of a user may have.
            let name = format!("{}.ranks_{}", source.name, made.len());
            let program = Cutting::new(module, &source, id, compile)?.cut()?;
            call(&mut module.funcs[at], id, &name)?;
            made.insert(name, program);
        }
    }
    Ok(made)
}

fn is_for_cursors(module: &GraphModule, func: &GraphFunc, id: OpId) -> bool {
    let region = func.ops[id].regions[0];
    let fixed = |v: &Value| func.ty(*v).static_shape().is_some();
    let is_fixed = |id: OpId| {
        let op = &func.ops[id];
        let narrow = op.attr("op").is_some() && states::is_collective(op.code);
        op.results.iter().all(fixed) && (!narrow || combined(func.ty(op.operands[0])).is_some())
    };
    states::diverges(module, func, id)
        && captures(func, region).is_empty()
        && func.blocks[region].args.iter().all(fixed)
        && func.blocks[region].ops.iter().all(|&id| {
            let op = &func.ops[id];
            is_fixed(id)
                && op.regions.iter().all(|&r| is_local(module, func, r))
                && is_local_op(module, func, id, true)
        })
}

/// Whether a block holds nothing of other ranks, and calls no kernels.
fn is_local(module: &GraphModule, func: &GraphFunc, block: BlockId) -> bool {
    let mut local = true;
    func.walk_block(block, &mut |id| local &= is_local_op(module, func, id, false));
    local
}

fn is_local_op(module: &GraphModule, func: &GraphFunc, id: OpId, at_top: bool) -> bool {
    let op = &func.ops[id];
    if states::is_of_a_rank(op.code) && op.code != GraphOp::Vary {
        return at_top;
    }
    if matches!(op.code, GraphOp::KernelCall | GraphOp::Manual) {
        return false;
    }
    let callee = op.attr("callee").and_then(Attr::as_ref_name);
    callee.and_then(|name| module.func(name)).is_none_or(|f| is_local(module, f, f.body))
}

/// The dtype that contributions of a type are combined in.
#[deny(clippy::wildcard_enum_match_arm)]
fn combined(ty: &Type) -> Option<DType> {
    let elem = tessera_graph::elem(ty);
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

/// Makes the op a call that reads the operands and writes the results.
fn call(func: &mut GraphFunc, id: OpId, name: &str) -> Result<(), Diagnostics> {
    let (block, loc, results) =
        (func.ops[id].block, func.ops[id].loc.clone(), func.ops[id].results.clone());
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
        let place = func.blocks[block].ops.iter().position(|&o| o == id).unwrap_or(0);
        let memory =
            func.insert(block, place, spec, loc.clone()).map_err(|why| broken(why, &loc))?;
        operands.push(func.ops[memory].result());
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

fn broken(why: String, loc: &Loc) -> Diagnostics {
    Diagnostic::new(Code::E_UNKNOWN, why).at(loc.clone()).into()
}

/// Cuts a program at the ops of ranks.
struct Cutting<'a, 'c> {
    module: &'a GraphModule,
    compile: Compile<'c>,
    manual: Manual,
    func: GraphFunc,
    slot_of: BTreeMap<Value, usize>,
    slots: Vec<Slot>,
    bytes: usize,
    steps: Vec<Step>,
}

impl<'a, 'c> Cutting<'a, 'c> {
    fn new(
        module: &'a GraphModule,
        source: &GraphFunc,
        id: OpId,
        compile: Compile<'c>,
    ) -> Result<Self, Diagnostics> {
        let op = &source.ops[id];
        let manual = Manual::of(&op.attrs).map_err(|r| r.at(op.loc.clone()))?;
        let mut func = tessera_autodiff::outline(source, op.regions[0]).func;
        // A value that is taken as each rank's own is that value.
        for id in func.walk() {
            if func.ops[id].code == GraphOp::Vary {
                let (x, block) = (func.ops[id].operands[0], func.ops[id].block);
                func.replace_uses(func.ops[id].result(), x);
                func.blocks[block].ops.retain(|&o| o != id);
            }
        }
        let (slot_of, slots, steps) = (BTreeMap::new(), Vec::new(), Vec::new());
        Ok(Self { module, compile, manual, func, slot_of, slots, bytes: 0, steps })
    }

    fn new_slot(&mut self, ty: &Type, dtype: DType) -> usize {
        let dims = ty.static_shape().unwrap_or_default();
        let dims = dims.iter().map(|&d| d.max(0) as usize).collect();
        let slot = Slot { dims, dtype, offset: self.bytes };
        self.bytes += slot.bytes().next_multiple_of(ALIGN);
        self.slots.push(slot);
        self.slots.len() - 1
    }

    fn slot(&mut self, value: Value) -> usize {
        if let Some(&known) = self.slot_of.get(&value) {
            return known;
        }
        let ty = self.func.ty(value).clone();
        let made = self.new_slot(&ty, ty.dtype());
        self.slot_of.insert(value, made);
        made
    }

    /// The values that an op needs, with those of its regions.
    fn needs(&self, id: OpId) -> Vec<Value> {
        let op = &self.func.ops[id];
        let inside = op.regions.iter().flat_map(|&r| captures(&self.func, r));
        op.operands.iter().copied().chain(inside).collect()
    }

    fn cut(mut self) -> Result<RankProgram, Diagnostics> {
        let params: Vec<Value> = self.func.params().to_vec();
        let params = params.into_iter().map(|v| self.slot(v)).collect();
        let yielded = returned(&self.func).to_vec();
        let ops = self.func.blocks[self.func.body].ops.clone();
        let mut open = Vec::new();
        for (place, &id) in ops.iter().enumerate() {
            let code = self.func.ops[id].code;
            if self.func.ops[id].is_terminator() {
                self.close(&mut open, &ops[place..])?;
            } else if code == GraphOp::AxisIndex {
                // It depends on nothing: no reason to cut.
                self.rank_op(id)?;
            } else if states::is_of_a_rank(code) {
                self.close(&mut open, &ops[place..])?;
                self.rank_op(id)?;
            } else {
                open.push(id);
            }
        }
        let yields = yielded.into_iter().map(|v| self.slot(v)).collect();
        let Self { manual, slots, steps, bytes, .. } = self;
        Ok(RankProgram { manual, slots, params, yields, steps, bytes, idle: ForkLock::default() })
    }

    /// Compiles the ops since the last cut; `rest` are those that come.
    fn close(&mut self, open: &mut Vec<OpId>, rest: &[OpId]) -> Result<(), Diagnostics> {
        let ops = std::mem::take(open);
        let made: BTreeSet<Value> =
            ops.iter().flat_map(|&id| self.func.ops[id].results.clone()).collect();
        let later: BTreeSet<Value> = rest.iter().flat_map(|&id| self.needs(id)).collect();
        let outs: Vec<Value> = made.intersection(&later).copied().collect();
        if outs.is_empty() {
            return Ok(());
        }
        let mut ins: Vec<Value> = Vec::new();
        for value in ops.iter().flat_map(|&id| self.needs(id)) {
            if !made.contains(&value) && !ins.contains(&value) {
                ins.push(value);
            }
        }
        let mut part = GraphFunc::new(&*self.func.name);
        part.loc = self.func.loc.clone();
        let (body, mut copier) = (part.body, Copier::new(&self.func));
        for &v in &ins {
            let data = &self.func.values[v];
            copier.set(v, part.add_arg(body, data.ty.clone(), data.name.as_deref()));
        }
        for &id in &ops {
            copier.copy_op(id, &mut part, body);
        }
        let results: Vec<Value> = outs.iter().filter_map(|&v| copier.get(v)).collect();
        self.run(part, &results, &ins, &outs)
    }

    /// A step that runs a function.
    fn run(
        &mut self,
        mut part: GraphFunc,
        results: &[Value],
        ins: &[Value],
        outs: &[Value],
    ) -> Result<(), Diagnostics> {
        let ins = ins.iter().map(|&v| self.slot(v)).collect();
        let outs = outs.iter().map(|&v| self.slot(v)).collect();
        self.run_slots(&mut part, results, ins, outs)
    }

    fn run_slots(
        &mut self,
        part: &mut GraphFunc,
        results: &[Value],
        ins: Vec<usize>,
        outs: Vec<usize>,
    ) -> Result<(), Diagnostics> {
        let (body, loc) = (part.body, part.loc.clone());
        let place = part.blocks[body].ops.len();
        let spec = OpSpec::new(GraphOp::Return, &[]).group("values", results);
        part.insert(body, place, spec, loc.clone()).map_err(|why| broken(why, &loc))?;
        let mut module = self.module.clone();
        part.name = fresh_name(&module, &part.name);
        let types: Vec<Type> = part.params().iter().map(|&p| part.ty(p).clone()).collect();
        let name = part.name.clone();
        module.funcs.push(part.clone());
        dce_module(&mut module, &[&name]);
        let program = Box::new((self.compile)(&module, &name, &types)?);
        self.steps.push(Step::Run { program, ins, outs });
        Ok(())
    }

    /// Casts a slot, as a step.
    fn cast(&mut self, x: usize, from: &Type, to: &Type, out: usize) -> Result<(), Diagnostics> {
        let loc = self.func.loc.clone();
        let mut part = GraphFunc::new("cast");
        part.loc = loc.clone();
        let body = part.body;
        let given = part.add_arg(body, from.clone(), Some("x"));
        let spec = OpSpec::new(GraphOp::Cast, &[given]).result(to.clone());
        let id = part.insert(body, 0, spec, loc.clone()).map_err(|why| broken(why, &loc))?;
        let result = part.ops[id].result();
        self.run_slots(&mut part, &[result], vec![x], vec![out])
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn rank_op(&mut self, id: OpId) -> Result<(), Diagnostics> {
        use GraphOp::*;
        let op = self.func.ops[id].clone();
        let axes = MeshAxes::of(&op.attrs).map_err(|r| r.at(op.loc.clone()))?;
        let int = |name: &str| op.attr(name).and_then(Attr::as_int).unwrap_or(0).max(0) as usize;
        let word = op.attr("op").and_then(Attr::as_word).unwrap_or_default();
        let operator = ReduceOp::from_name(word).unwrap_or(ReduceOp::Sum);
        let out = self.slot(op.result());
        let kind = match op.code {
            AxisIndex => {
                self.steps.push(Step::Index { axes: axes.names, out });
                return Ok(());
            }
            Own => {
                let x = self.slot(op.operands[0]);
                self.steps.push(Step::Own { axes: axes.names, dim: int("dim"), x, out });
                return Ok(());
            }
            AllReduce => Together::AllReduce(operator),
            ReduceScatter => Together::ReduceScatter { op: operator, dim: int("dim") },
            AllGather => Together::AllGather { dim: int("dim") },
            AllToAll => Together::AllToAll { split: int("split"), concat: int("concat") },
            FromRank => Together::FromRank { root: int("root") },
            Permute => {
                let attr = op.attr("pairs").cloned().unwrap_or(Attr::List(Vec::new()));
                let pairs = pairs(&attr, &axes).map_err(|r| r.at(op.loc.clone()))?;
                Together::Permute(pairs.iter().map(|&(s, t)| (s as usize, t as usize)).collect())
            }
            Vary | Manual | KernelCall | Composite | Return | Yield | Cond | While | Loop
            | Call | Const | Iota | Select | Cast | Bitcast | Dim | StopGradient | OptBarrier
            | Shard | Broadcast | Reshape | Transpose | Slice | Pad | Concat | Reverse
            | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce | ArgReduce | Scan
            | Sort | Dot | Conv | WindowReduce | WindowArgReduce | Philox | Ew(_) => {
                let why = format!("`graph.{}` is no op of ranks", op.code.mnemonic());
                return Err(broken(why, &op.loc));
            }
        };
        let x = self.slot(op.operands[0]);
        let (names, loc) = (axes.names, op.loc.clone());
        let from = self.func.ty(op.operands[0]).clone();
        let wide = op.attr("op").and_then(|_| combined(&from)).filter(|d| *d != from.dtype());
        let Some(wide) = wide else {
            self.steps.push(Step::Collective { kind, axes: names, x, out, loc });
            return Ok(());
        };
        // Combined in the accumulation dtype and stored once.
        let to = self.func.ty(op.result()).clone();
        let widened = |ty: &Type| tensor(ty.shape().to_vec(), NumType::plain(wide));
        let (wide_x, wide_out) = (self.new_slot(&from, wide), self.new_slot(&to, wide));
        self.cast(x, &from, &widened(&from), wide_x)?;
        self.steps.push(Step::Collective { kind, axes: names, x: wide_x, out: wide_out, loc });
        self.cast(wide_out, &widened(&to), &to, out)
    }
}
