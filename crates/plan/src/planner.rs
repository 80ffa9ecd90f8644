//! Plans a function: a list of steps (launches, copies, loops, host calls) over buffers.

use crate::class::{Class, class, is_empty};
use crate::collective::Collective;
use crate::composites::Chosen;
use crate::emit::{ArrayUse, Kernel, emit};
use crate::epilogue::crowded;
use crate::forward::forward;
use crate::group::{END, Group, Grouping, Kind, group};
use crate::loop_kernel::loop_kernel;
use crate::machine::Machine;
use crate::nodes::{memory_of, trace};
use crate::overlap::overlap;
use crate::scatter::scatter;
use crate::strided::{self, Strided};
use crate::text::check;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_graph::ops::kernel::fresh;
use tessera_graph::ops::value::hex_bytes;
use tessera_graph::states::is_collective;
use tessera_graph::{GraphFunc, GraphModule, GraphOp, walk};
use tessera_ir::{
    Attr, Attrs, BlockId, Dim, Op, OpId, Opcode, Privilege, Type, Value, ValueData, ValueDef,
};
use tessera_lower::stage::{Off, Step as Pass};
use tessera_numerics::DType;
use tessera_schedule::Kept;
use tessera_support::Hash128;
use tessera_tile::TileFunc;

pub type BufferId = usize;

/// The contents of a buffer when the plan begins.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// An argument of the function; never written.
    Argument(usize),
    Constant(Vec<u8>),
    /// Uninitialised.
    Scratch,
}

#[derive(Clone, Debug)]
pub struct Buffer {
    pub bytes: usize,
    pub origin: Origin,
    /// The value's name, for people.
    pub name: String,
    pub ty: Type,
}

/// Elements of a buffer. Offset and strides are in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub buffer: BufferId,
    pub offset: i64,
    pub dims: Vec<i64>,
    pub strides: Vec<i64>,
    pub dtype: DType,
    pub writes: bool,
    /// Loops that move it: bytes in each iteration.
    pub iterations: Vec<(usize, i64)>,
}

#[derive(Clone, Debug)]
pub enum Step {
    Launch {
        kernel: usize,
        args: Vec<Array>,
        grid: [i64; 3],
        /// For lane kernels, the number of lanes and of lanes of a group.
        domain: [i64; 3],
        lanes: i64,
        label: String,
        loc: Loc,
        /// The queue of the device that it is put on.
        queue: usize,
    },
    /// The host evaluates one op by its definition.
    Host {
        op: GraphFunc,
        inputs: Vec<Array>,
        outputs: Vec<Array>,
        label: String,
    },
    /// A kernel of the user.
    Call {
        kernel: String,
        config: Option<Attrs>,
        args: Vec<(Array, Privilege)>,
        loc: Loc,
    },
    Copy {
        from: Array,
        to: Array,
        queue: usize,
    },
    /// What ranks do together, on the queue of collectives.
    Collective {
        how: Collective,
        from: Array,
        to: Array,
    },
    Cond {
        pred: Array,
        then: Vec<Step>,
        otherwise: Vec<Step>,
        loc: Loc,
    },
    While {
        test: Vec<Step>,
        pred: Array,
        body: Vec<Step>,
        loc: Loc,
    },
    /// `position` is the buffer of the iteration's index.
    Loop {
        id: usize,
        trip: i64,
        reverse: bool,
        position: Array,
        body: Vec<Step>,
    },
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub name: String,
    pub kernels: Vec<TileFunc>,
    pub buffers: Vec<Buffer>,
    pub steps: Vec<Step>,
    pub params: Vec<BufferId>,
    /// Where results are, and their types.
    pub results: Vec<(BufferId, Type)>,
    /// Fused values without memory: name, type, and the op.
    pub fused: Vec<(String, Type, &'static str)>,
}

#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    /// Values that get memory of their own, by name.
    pub materialise: BTreeSet<String>,
    /// The plan that requests them, where one was given back.
    pub given: Option<Arc<Kept>>,
    /// Every value gets memory: no fusion.
    pub separate: bool,
    /// The machine model.
    pub machine: Machine,
    /// Functions may be replaced by others that differ within the bounds of the profile `default`.
    pub short: bool,
    /// Sums over several axes take them in row-major order (LANGUAGE 14), as the profile `strict` requests.
    pub ordered: bool,
    /// Independent steps are put on this many queues, wherever they are; where it is not given, on
    /// queues of a device where the cost model says that it pays.
    pub queues: Option<usize>,
    /// Passes that are left out.
    pub off: Off,
    /// The functions that stand for composites.
    pub chosen: Chosen,
}

pub fn plan(func: &GraphFunc, options: &PlanOptions) -> Result<Plan, Diagnostics> {
    let mut planner = Planner {
        func,
        options,
        plan: Plan {
            name: func.name.clone(),
            kernels: Vec::new(),
            buffers: Vec::new(),
            steps: Vec::new(),
            params: Vec::new(),
            results: Vec::new(),
            fused: Vec::new(),
        },
        known: BTreeMap::new(),
        at: BTreeMap::new(),
        names: names(func),
        loops: 0,
    };
    for (i, &param) in func.params().iter().enumerate() {
        let buffer = planner.buffer(param, Origin::Argument(i));
        planner.at.insert(param, Array { writes: false, ..planner.whole(buffer, param) });
        planner.plan.params.push(buffer);
    }
    let (steps, results) = planner.block(func.body, None)?;
    planner.plan.steps = steps;
    for (v, array) in results {
        let buffer = planner.own_memory(v, array);
        planner.plan.results.push((buffer, func.ty(v).clone()));
    }
    let mut plan = planner.plan;
    if options.machine == Machine::Cpu && !options.separate && !options.off.has(Pass::CopyElision) {
        forward(&mut plan);
    }
    if !options.off.has(Pass::Overlap) {
        overlap(&mut plan);
    }
    // A plan that fails is a fault of the planner.
    match check(&plan) {
        Ok(()) => Ok(plan),
        Err(found) => {
            let first = found.iter().next().map_or("", |d| &*d.message);
            Err(internal(&format!("a plan of which is said: {first}"), &func.loc))
        }
    }
}

/// The steps of a block, and where the values are that it yields.
type Lowered = (Vec<Step>, Vec<(Value, Array)>);

struct Planner<'f> {
    func: &'f GraphFunc,
    options: &'f PlanOptions,
    plan: Plan,
    known: BTreeMap<Hash128, usize>,
    /// Where values are that have memory.
    at: BTreeMap<Value, Array>,
    /// What values are called in the plan.
    names: BTreeMap<Value, String>,
    loops: usize,
}

/// A unique name for each value: regions, and functions that were inlined several times, may have
/// one name twice.
fn names(func: &GraphFunc) -> BTreeMap<Value, String> {
    let mut taken = BTreeSet::new();
    let own = |v: Value| match func.name_of(v) {
        Some(name) if taken.insert(name) => (v, name.to_string()),
        _ => (v, v.to_string()),
    };
    func.values.ids().map(own).collect()
}

pub fn row_major(dims: &[i64], bytes: i64) -> Vec<i64> {
    (0..dims.len())
        .map(|i| bytes * dims[i + 1..].iter().map(|d| d.max(&1)).product::<i64>())
        .collect()
}

impl Planner<'_> {
    fn buffer(&mut self, v: Value, origin: Origin) -> BufferId {
        let ty = self.func.ty(v).clone();
        // A value that is a result and something else besides has memory twice.
        let name = match self.names.get(&v) {
            Some(name) if !self.plan.buffers.iter().any(|b| b.name == *name) => name.clone(),
            _ => v.to_string(),
        };
        self.typed_buffer(ty, name, origin)
    }

    fn typed_buffer(&mut self, ty: Type, name: String, origin: Origin) -> BufferId {
        let count: i64 = ty.static_shape().unwrap_or_default().iter().product();
        let bytes = count.max(0) as usize * ty.dtype().bytes();
        self.plan.buffers.push(Buffer { bytes, origin, name, ty });
        self.plan.buffers.len() - 1
    }

    fn whole(&self, buffer: BufferId, v: Value) -> Array {
        let ty = self.func.ty(v);
        let dims = ty.static_shape().unwrap_or_default();
        let strides = row_major(&dims, ty.dtype().bytes() as i64);
        Array {
            buffer,
            offset: 0,
            dims,
            strides,
            dtype: ty.dtype(),
            writes: true,
            iterations: Vec::new(),
        }
    }

    /// A buffer that the caller may keep as a whole: results are never arguments, constants or each
    /// other.
    fn own_memory(&mut self, v: Value, array: Array) -> BufferId {
        let taken = self.plan.results.iter().any(|(b, _)| *b == array.buffer);
        let own = self.plan.buffers[array.buffer].origin == Origin::Scratch;
        if own && !taken && array.iterations.is_empty() {
            return array.buffer;
        }
        let buffer = self.buffer(v, Origin::Scratch);
        let to = self.whole(buffer, v);
        self.plan.steps.push(Step::Copy { from: array, to, queue: 0 });
        buffer
    }

    /// The steps of a block, and where the values are that it yields.
    fn block(&mut self, block: BlockId, outer: Option<&Grouping>) -> Result<Lowered, Diagnostics> {
        let func = self.func;
        let mut split = BTreeSet::new();
        if self.options.separate {
            split.extend(func.values.ids());
        } else {
            split.extend(func.values.ids().filter(|&v| self.is_requested(v)));
        }
        let mut apart = BTreeSet::new();
        let grouping = loop {
            let grouping = group(func, block, &split, self.options.separate, &apart, outer);
            let more = match self.options.machine {
                machine @ Machine::Gpu { .. } => crowded(func, &grouping, machine),
                Machine::Cpu => BTreeSet::new(),
            };
            let before = apart.len();
            apart.extend(more);
            if apart.len() == before {
                break grouping;
            }
        };
        for &v in grouping.stored.keys() {
            if self.at.contains_key(&v) {
                continue;
            }
            let origin = match func.def(v).filter(|op| op.code == GraphOp::Const) {
                Some(op) => match op.attr("data").and_then(Attr::as_str).and_then(hex_bytes) {
                    Some(bytes) => Origin::Constant(bytes),
                    None => Origin::Scratch,
                },
                None => Origin::Scratch,
            };
            let buffer = self.buffer(v, origin);
            let array = self.whole(buffer, v);
            self.at.insert(v, array);
        }
        for &id in &func.blocks[block].ops {
            let op = &func.ops[id];
            for &v in op.results.iter().filter(|_| op.code != GraphOp::Const) {
                if !self.at.contains_key(&memory_of(&grouping, v)) {
                    let name = self.names.get(&v).cloned().unwrap_or_default();
                    self.plan.fused.push((name, func.ty(v).clone(), op.code.mnemonic()));
                }
            }
        }
        let mut steps = Vec::new();
        for place in in_order(&grouping.groups) {
            self.step(&grouping, place, &mut steps)?;
        }
        let end =
            func.terminator(block).map(|id| func.ops[id].operands.clone()).unwrap_or_default();
        let mut results = Vec::new();
        for v in end {
            results.push((v, self.array(&grouping, v, &func.loc)?));
        }
        Ok((steps, results))
    }

    /// All of a value, row-major.
    fn array(&self, grouping: &Grouping, v: Value, loc: &Loc) -> Result<Array, Diagnostics> {
        let root = memory_of(grouping, v);
        let Some(found) = self.at.get(&root) else {
            return Err(internal("a value without memory", loc));
        };
        Ok(Array {
            iterations: found.iterations.clone(),
            offset: found.offset,
            ..self.whole(found.buffer, v)
        })
    }

    /// A value as a part of another's memory.
    fn part(
        &self,
        grouping: &Grouping,
        v: Value,
        part: &Strided,
        loc: &Loc,
    ) -> Result<Array, Diagnostics> {
        let root = self.array(grouping, part.root, loc)?;
        let whole = self.whole(root.buffer, v);
        let bytes = whole.dtype.bytes() as i64;
        Ok(Array {
            offset: root.offset + part.offset * bytes,
            strides: part.strides.iter().map(|s| s * bytes).collect(),
            iterations: root.iterations,
            writes: false,
            ..whole
        })
    }

    fn step(
        &mut self,
        grouping: &Grouping,
        place: usize,
        steps: &mut Vec<Step>,
    ) -> Result<(), Diagnostics> {
        let g = &grouping.groups[place];
        match g.kind {
            Kind::End => Ok(()),
            Kind::Nest => self.launch(grouping, place, steps),
            Kind::Op(id) => self.own(grouping, id, steps),
        }
    }

    fn launch(
        &mut self,
        grouping: &Grouping,
        place: usize,
        steps: &mut Vec<Step>,
    ) -> Result<(), Diagnostics> {
        let func = self.func;
        let g: &Group = &grouping.groups[place];
        let body = trace(func, grouping, place);
        let main = g.product.or(g.outputs.first().map(|o| o.value));
        let loc = main.and_then(|v| func.def(v)).map_or(func.loc.clone(), |op| op.loc.clone());
        let label = label(func, g);
        let kernel = emit(body, self.options.machine, self.options.ordered, &loc)
            .map_err(|why| internal(&why, &loc))?;
        self.emitted(kernel, label, &loc, steps)
    }

    fn emitted(
        &mut self,
        kernel: Kernel,
        label: String,
        loc: &Loc,
        steps: &mut Vec<Step>,
    ) -> Result<(), Diagnostics> {
        let Kernel { func: tile, args, grid } = kernel;
        let mut arrays = Vec::new();
        for one in &args {
            arrays.push(self.used(one, loc)?);
        }
        let kernel = self.kernel(tile);
        let (label, loc) = (label, loc.clone());
        steps.push(Step::Launch {
            kernel,
            args: arrays,
            grid,
            domain: [0; 3],
            lanes: 1,
            label,
            loc,
            queue: 0,
        });
        Ok(())
    }

    fn used(&self, one: &ArrayUse, loc: &Loc) -> Result<Array, Diagnostics> {
        let Some(found) = self.at.get(&one.value) else {
            return Err(internal("a value without memory", loc));
        };
        let bytes = one.dtype.bytes() as i64;
        Ok(Array {
            buffer: found.buffer,
            offset: found.offset + one.offset * bytes,
            dims: one.dims.clone(),
            strides: one.strides.iter().map(|s| s * bytes).collect(),
            dtype: one.dtype,
            writes: one.writes,
            iterations: found.iterations.clone(),
        })
    }

    /// The index of a kernel; an equal one is reused.
    pub fn kernel(&mut self, mut tile: TileFunc) -> usize {
        // Arithmetic with subnormals is many times slower. Conversions from f64 keep them, and so does f64.
        if self.options.short && !tile.values.iter().any(|(_, v)| v.ty.dtype() == DType::F64) {
            tile.attrs.set("flush", Attr::Bool(true));
        }
        let hash = tile.hash();
        if let Some(&found) = self.known.get(&hash) {
            return found;
        }
        let place = self.plan.kernels.len();
        tile.name = format!("k{place}");
        self.plan.kernels.push(tile);
        self.known.insert(hash, place);
        place
    }

    fn own(
        &mut self,
        grouping: &Grouping,
        id: OpId,
        steps: &mut Vec<Step>,
    ) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let loc = &op.loc;
        let all = |planner: &Self, list: &[Value]| -> Result<Vec<Array>, Diagnostics> {
            list.iter().map(|&v| planner.array(grouping, v, loc)).collect()
        };
        match op.code {
            // In memory before anything runs.
            GraphOp::Const if op.attr("data").is_some() && !op.results.is_empty() => {}
            GraphOp::Cond => {
                let pred = self.array(grouping, op.operands[0], loc)?;
                let results = all(self, &op.results)?;
                let mut branches = Vec::new();
                for &region in &op.regions {
                    let (mut inner, yields) = self.block(region, Some(grouping))?;
                    for ((_, from), to) in yields.into_iter().zip(&results) {
                        inner.push(Step::Copy { from, to: to.clone(), queue: 0 });
                    }
                    branches.push(inner);
                }
                let otherwise = branches.pop().unwrap_or_default();
                let then = branches.pop().unwrap_or_default();
                steps.push(Step::Cond { pred, then, otherwise, loc: loc.clone() });
            }
            // One without updates is evaluated by the host: nothing has copied its operand.
            GraphOp::Scatter if matches!(class(func, id), Class::Parts) => {
                let kernel = scatter(func, id, self.options.machine, self.options.ordered, &|v| {
                    memory_of(grouping, v)
                });
                self.emitted(kernel, "scatter".into(), loc, steps)?;
            }
            GraphOp::While | GraphOp::Loop => {
                match self.whole_loop(id, &|v| memory_of(grouping, v)) {
                    Some(kernel) => self.emitted(kernel, "loop".into(), loc, steps)?,
                    None if op.code == GraphOp::While => self.repeat(grouping, id, steps)?,
                    None => self.counted(grouping, id, steps)?,
                }
            }
            GraphOp::KernelCall => {
                let words = op.attr("privileges").and_then(Attr::as_list).unwrap_or_default();
                let privileges: Vec<Privilege> =
                    words.iter().filter_map(|w| w.as_word().and_then(Privilege::parse)).collect();
                let mut results = all(self, &op.results)?.into_iter();
                let mut args = Vec::new();
                let unread = fresh(op.attr("fresh"));
                for (i, (&v, privilege)) in op.operands.iter().zip(privileges).enumerate() {
                    let array = match privilege.writes() {
                        true => {
                            let to = results
                                .next()
                                .ok_or_else(|| internal("a result without a place", loc))?;
                            if !unread.contains(&i) {
                                let from = self.array(grouping, v, loc)?;
                                steps.push(Step::Copy { from, to: to.clone(), queue: 0 });
                            }
                            to
                        }
                        false => match strided::argument(func, op, i) {
                            Some(part) => self.part(grouping, v, &part, loc)?,
                            None => self.array(grouping, v, loc)?,
                        },
                    };
                    args.push((array, privilege));
                }
                let kernel = op.attr("kernel").and_then(Attr::as_ref_name).unwrap_or_default();
                let config = op.attr("config").and_then(Attr::as_dict).cloned();
                steps.push(Step::Call { kernel: kernel.into(), config, args, loc: loc.clone() });
            }
            code if is_collective(code) => {
                let from = Array { writes: false, ..self.array(grouping, op.operands[0], loc)? };
                let to = self.array(grouping, op.result(), loc)?;
                let how = Collective::of(op)?;
                let how = how.ok_or_else(|| internal("no collective", loc))?;
                steps.push(Step::Collective { how, from, to });
            }
            _ if op.results.iter().all(|&v| is_empty(func, v)) => {}
            _ => {
                let (inputs, outputs) = (all(self, &op.operands)?, all(self, &op.results)?);
                let label = op.code.mnemonic().to_string();
                steps.push(Step::Host { op: single(func, id), inputs, outputs, label });
            }
        }
        Ok(())
    }

    /// Whether a value is to have memory of its own.
    fn is_requested(&self, v: Value) -> bool {
        self.names.get(&v).is_some_and(|name| self.options.materialise.contains(name))
    }

    /// A loop as one kernel, where the machine runs a kernel of one group well and no value of it
    /// is requested.
    fn whole_loop(&self, id: OpId, memory: &dyn Fn(Value) -> Value) -> Option<Kernel> {
        let mut separate = self.options.separate || self.options.off.has(Pass::LoopKernel);
        for &region in &self.func.ops[id].regions {
            self.func.walk_block(region, &mut |inner| {
                separate |= self.func.ops[inner].results.iter().any(|v| self.is_requested(*v));
            });
        }
        match self.options.machine {
            Machine::Cpu if !separate => loop_kernel(self.func, id, memory),
            Machine::Cpu | Machine::Gpu { .. } => None,
        }
    }

    /// Memory for carried values, filled with their initial values.
    fn carried(
        &mut self,
        grouping: &Grouping,
        id: OpId,
        steps: &mut Vec<Step>,
    ) -> Result<Vec<Array>, Diagnostics> {
        let op = &self.func.ops[id];
        let mut out = Vec::new();
        for (&init, &result) in op.group("init").iter().zip(&op.results) {
            let from = self.array(grouping, init, &op.loc)?;
            let to = self.array(grouping, result, &op.loc)?;
            steps.push(Step::Copy { from, to: to.clone(), queue: 0 });
            out.push(to);
        }
        Ok(out)
    }

    /// Copies yielded values to where the next iteration reads them. A value that is another's old
    /// value is saved first.
    fn hand_on(&mut self, yields: &[(Value, Array)], to: &[Array], steps: &mut Vec<Step>) {
        let shared: BTreeSet<BufferId> = to.iter().map(|a| a.buffer).collect();
        let mut late = Vec::new();
        for ((v, from), to) in yields.iter().zip(to) {
            if from.buffer == to.buffer {
                continue;
            }
            if shared.contains(&from.buffer) {
                let buffer = self.buffer(*v, Origin::Scratch);
                let aside = self.whole(buffer, *v);
                steps.push(Step::Copy { from: from.clone(), to: aside.clone(), queue: 0 });
                late.push((aside, to.clone()));
            } else {
                late.push((from.clone(), to.clone()));
            }
        }
        for (from, to) in late {
            steps.push(Step::Copy { from, to, queue: 0 });
        }
    }

    fn repeat(
        &mut self,
        grouping: &Grouping,
        id: OpId,
        steps: &mut Vec<Step>,
    ) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let carried = self.carried(grouping, id, steps)?;
        for &region in &op.regions {
            for (&arg, array) in func.blocks[region].args.iter().zip(&carried) {
                self.at.insert(arg, array.clone());
            }
        }
        let (test, pred) = self.block(op.regions[0], Some(grouping))?;
        let Some((_, pred)) = pred.into_iter().next() else {
            return Err(internal("no condition", &op.loc));
        };
        let (mut body, yields) = self.block(op.regions[1], Some(grouping))?;
        self.hand_on(&yields, &carried, &mut body);
        steps.push(Step::While { test, pred, body, loc: op.loc.clone() });
        Ok(())
    }

    fn counted(
        &mut self,
        grouping: &Grouping,
        id: OpId,
        steps: &mut Vec<Step>,
    ) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let trip = op.attr("trip").and_then(Attr::as_expr).and_then(|e| e.eval(&|_| None).ok());
        let trip = trip.ok_or_else(|| internal("a trip count that is not known", &op.loc))?;
        let reverse = op.attr("reverse").and_then(Attr::as_bool).unwrap_or(false);
        let carried = self.carried(grouping, id, steps)?;
        let number = self.loops;
        self.loops += 1;
        let region = op.regions[0];
        let args = func.blocks[region].args.clone();
        let buffer = self.buffer(args[0], Origin::Scratch);
        let position = self.whole(buffer, args[0]);
        self.at.insert(args[0], position.clone());
        for (&arg, array) in args[1..].iter().zip(&carried) {
            self.at.insert(arg, array.clone());
        }
        for (&arg, &x) in args[1 + carried.len()..].iter().zip(op.group("xs")) {
            let stack = self.array(grouping, x, &op.loc)?;
            let array = self.turned(&stack, arg, number);
            self.at.insert(arg, array);
        }
        let (mut body, yields) = self.block(region, Some(grouping))?;
        let (next, rows) = yields.split_at(carried.len().min(yields.len()));
        for ((v, from), &stack) in rows.iter().zip(&op.results[carried.len()..]) {
            let stack = self.array(grouping, stack, &op.loc)?;
            let to = self.turned(&stack, *v, number);
            body.push(Step::Copy { from: from.clone(), to, queue: 0 });
        }
        self.hand_on(next, &carried, &mut body);
        steps.push(Step::Loop { id: number, trip, reverse, position, body });
        Ok(())
    }

    /// The part of a stack that belongs to one iteration of a loop.
    fn turned(&self, stack: &Array, step: Value, number: usize) -> Array {
        let mut out = Array { offset: stack.offset, ..self.whole(stack.buffer, step) };
        out.iterations = stack.iterations.clone();
        out.iterations.push((number, stack.strides.first().copied().unwrap_or(0)));
        out
    }
}

fn internal(why: &str, loc: &Loc) -> Diagnostics {
    let message = format!("expected a function that can be planned, got {why}");
    Diagnostic::new(Code::E_UNKNOWN, message).at(loc.clone()).into()
}

/// A topological order that stays close to program order.
fn in_order(groups: &[Group]) -> Vec<usize> {
    let mut waits = vec![0; groups.len()];
    for g in groups {
        for &s in &g.succ {
            waits[s] += 1;
        }
    }
    let mut ready: BTreeSet<(usize, usize)> = BTreeSet::new();
    let key = |i: usize| (groups[i].place, groups.len() - i);
    let back = |k: (usize, usize)| groups.len() - k.1;
    ready.extend((0..groups.len()).filter(|&i| waits[i] == 0).map(key));
    let mut out = Vec::new();
    while let Some(first) = ready.pop_first() {
        let i = back(first);
        if i != END {
            out.push(i);
        }
        for &s in &groups[i].succ {
            waits[s] -= 1;
            if waits[s] == 0 {
                ready.insert(key(s));
            }
        }
    }
    out
}

/// A kernel's label: the names of its ops.
fn label(func: &GraphFunc, g: &Group) -> String {
    let mut names: Vec<String> = Vec::new();
    for v in g.product.iter().copied().chain(g.outputs.iter().map(|o| o.value)) {
        if let Some(op) = func.def(v) {
            let name = op.code.mnemonic().to_string();
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    if names.is_empty() {
        names.push("copy".into());
    }
    names.join("+")
}

/// One op as a function of its own.
fn single(func: &GraphFunc, id: OpId) -> GraphFunc {
    let op = &func.ops[id];
    let mut out = GraphFunc::new("op");
    let body = out.body;
    let operands = op
        .operands
        .iter()
        .map(|&v| out.add_arg(body, func.ty(v).clone(), None))
        .collect::<Vec<_>>();
    let new = out.ops.push(Op {
        code: op.code,
        operands,
        group_lens: op.group_lens.clone(),
        results: Vec::new(),
        attrs: op.attrs.clone(),
        regions: Vec::new(),
        loc: op.loc.clone(),
        block: body,
    });
    for (index, &v) in op.results.iter().enumerate() {
        let def = ValueDef::Result(new, index);
        let value = out.values.push(ValueData { ty: func.ty(v).clone(), name: None, def });
        out.ops[new].results.push(value);
    }
    let results = out.ops[new].results.clone();
    let end = out.ops.push(Op {
        code: GraphOp::Return,
        group_lens: vec![results.len()],
        operands: results,
        results: Vec::new(),
        attrs: Attrs::new(),
        regions: Vec::new(),
        loc: op.loc.clone(),
        block: body,
    });
    out.blocks[body].ops.extend([new, end]);
    out
}

/// The types of arguments as numbers say them.
pub fn argument_type(dims: &[i64], dtype: DType) -> Type {
    let dims = dims.iter().map(|&d| Dim::Static(d)).collect();
    Type::Tensor { dims, elem: tessera_numerics::NumType::plain(dtype) }
}

/// A plan for a function of a module on arguments of these types.
pub fn plan_graph(
    module: &GraphModule,
    func: &str,
    args: &[Type],
    options: &PlanOptions,
) -> Result<Plan, Diagnostics> {
    let mut flat = crate::flatten::flatten(
        module,
        func,
        args,
        options.machine,
        options.ordered,
        &options.chosen,
    )?;
    crate::sizes::check(&flat)?;
    if options.short {
        crate::gate::gate(&mut flat).map_err(|why| {
            let error = Diagnostic::new(Code::E_UNKNOWN, format!("expected a matmul, got {why}"));
            Diagnostics::from(error.at(flat.loc.clone()))
        })?;
        walk::dce(&mut flat, &|_| true);
    }
    plan(&flat, options)
}
