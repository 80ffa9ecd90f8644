//! A plan as Schedule IR text: which values have memory, which kernels run in which order on what;
//! and the options that a printed and edited plan requests.

use crate::collective::Collective;
use crate::forward::visit;
use crate::order::{Order, Point, is_plain, queue};
use crate::places::{Places, assign, own, scratch};
use crate::planner::{Array, BufferId, Origin, Plan, PlanOptions, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_graph::GraphFunc;
use tessera_ir::{
    Attr, Attrs, BlockId, Builder, Dim, DimExpr, Func, Module, OpId, OpSpec, Privilege, Type,
    Value, verify,
};
use tessera_numerics::NumType;
use tessera_schedule::{Kept, SchedOp, Schedule, kept};

/// The name that a plan's text has in errors.
pub(crate) const FILE: &str = "<plan>";

/// A plan as Schedule IR, which is what runs, with what its text does not hold.
#[derive(Clone)]
pub struct Written {
    pub func: Func<Schedule>,
    /// The buffers of the plan, by their values.
    pub buffers: BTreeMap<Value, BufferId>,
    /// What the steps are.
    pub steps: BTreeMap<OpId, Meaning>,
    /// Where scratch buffers are in one block, and its bytes.
    pub places: Places,
}

/// What the text of a step leaves out.
#[derive(Clone, Debug)]
pub enum Meaning {
    Launch {
        /// The number of the kernel.
        kernel: usize,
        grid: [i64; 3],
        domain: [i64; 3],
        lanes: i64,
        label: String,
        loc: Loc,
    },
    /// The op as a function, and how many of the operands it reads.
    Host {
        op: GraphFunc,
        inputs: usize,
    },
    Call {
        kernel: String,
        config: Option<Attrs>,
        privileges: Vec<Privilege>,
        loc: Loc,
    },
    Collective(Collective),
    /// A branch or a loop.
    Control(Loc),
}

impl Plan {
    /// The plan as a module of Schedule IR. Its launches are on the backend of this name.
    pub fn module(&self, backend: &str) -> Module<Schedule> {
        let mut module = Module::new(&*self.name);
        module.funcs.push(self.write(backend).func);
        module
    }

    /// The same, with what the text does not hold.
    pub fn write(&self, backend: &str) -> Written {
        let mut writer = Writer {
            plan: self,
            backend,
            func: Func::new(&*self.name),
            places: assign(self),
            memory: BTreeMap::new(),
            iterations: BTreeMap::new(),
            meanings: BTreeMap::new(),
        };
        let own = scratch(self);
        let body = writer.func.body;
        writer.outside(&own);
        writer.steps(&self.steps, body, &own, false);
        let results: Vec<Value> = self.results.iter().map(|(b, _)| writer.memory[b]).collect();
        writer.op(body, OpSpec::new(SchedOp::Return, &[]).group("values", &results));
        let Writer { func, memory, meanings, places, .. } = writer;
        let buffers = memory.into_iter().map(|(b, v)| (v, b)).collect();
        Written { func, buffers, steps: meanings, places }
    }
}

struct Writer<'p> {
    plan: &'p Plan,
    backend: &'p str,
    func: Func<Schedule>,
    places: Places,
    /// Of each buffer, from its `sched.store` on.
    memory: BTreeMap<BufferId, Value>,
    /// The indices of the loops around.
    iterations: BTreeMap<usize, Value>,
    meanings: BTreeMap<OpId, Meaning>,
}

/// Memory of the type of a value.
fn view(ty: &Type, privilege: Privilege) -> Type {
    Type::View { dims: ty.shape().to_vec(), elem: NumType::plain(ty.dtype()), privilege }
}

impl Writer<'_> {
    fn op(&mut self, block: BlockId, spec: OpSpec<Schedule>) -> OpId {
        let mut b = Builder::at_end(&mut self.func, block, Loc::unknown());
        b.op(spec).expect("the results are given")
    }

    fn made(&mut self, block: BlockId, spec: OpSpec<Schedule>, name: Option<&str>) -> Value {
        let id = self.op(block, spec);
        let v = self.func.ops[id].result();
        if let Some(name) = name {
            self.func.set_name(v, name);
        }
        v
    }

    /// Memory that the plan has not for itself, and the values that have none.
    fn outside(&mut self, own: &BTreeSet<BufferId>) {
        let body = self.func.body;
        for (b, buffer) in self.plan.buffers.iter().enumerate().filter(|(b, _)| !own.contains(b)) {
            let (ty, name) = (&buffer.ty, &*buffer.name);
            let v = match buffer.origin {
                Origin::Argument(_) => {
                    self.func.add_arg(body, view(ty, Privilege::Read), Some(name))
                }
                Origin::Constant(_) => {
                    let spec =
                        OpSpec::new(SchedOp::Constant, &[]).result(view(ty, Privilege::Read));
                    self.made(body, spec, Some(name))
                }
                Origin::Scratch => self.store(body, b),
            };
            self.memory.insert(b, v);
        }
        for (name, ty, op) in &self.plan.fused {
            let spec = OpSpec::new(SchedOp::Fused, &[])
                .attr("op", Attr::word(*op))
                .result(view(ty, Privilege::ReadWrite));
            self.made(body, spec, Some(name));
        }
    }

    fn store(&mut self, block: BlockId, b: BufferId) -> Value {
        let buffer = &self.plan.buffers[b];
        let mut spec =
            OpSpec::new(SchedOp::Store, &[]).result(view(&buffer.ty, Privilege::ReadWrite));
        if let Some(at) = self.places.offsets[b] {
            spec = spec.attr("at", Attr::Int(at as i64));
        }
        self.made(block, spec, Some(&*buffer.name))
    }

    /// An array: its whole buffer, or a view of it.
    fn array(&mut self, block: BlockId, a: &Array) -> Value {
        let buffer = self.memory[&a.buffer];
        let elem = NumType::plain(a.dtype);
        let dims: Vec<Dim> = a.dims.iter().map(|&d| Dim::Static(d)).collect();
        let mut dense = a.dtype.bytes() as i64;
        let mut plain = true;
        for (&d, &s) in a.dims.iter().zip(&a.strides).rev() {
            plain &= d == 1 || s == dense;
            dense *= d.max(1);
        }
        let ty = self.func.ty(buffer).clone();
        let Type::View { privilege, .. } = ty else { return buffer };
        let part = Type::View { dims, elem, privilege };
        if plain && a.offset == 0 && a.iterations.is_empty() && part == ty {
            return buffer;
        }
        let moved: Vec<(Value, i64)> = a
            .iterations
            .iter()
            .filter_map(|(id, by)| Some((*self.iterations.get(id)?, *by)))
            .collect();
        let at: Vec<Value> = moved.iter().map(|(v, _)| *v).collect();
        let mut spec = OpSpec::new(SchedOp::View, &[buffer]).group("at", &at).result(part);
        if a.offset != 0 {
            spec = spec.attr("offset", Attr::Int(a.offset));
        }
        if !plain {
            spec = spec.attr("strides", Attr::ints(a.strides.clone()));
        }
        if !moved.is_empty() {
            spec = spec.attr("iteration_bytes", Attr::ints(moved.iter().map(|(_, by)| *by)));
        }
        self.made(block, spec, None)
    }

    /// An op on arrays, with which of them it writes.
    fn on(&mut self, block: BlockId, spec: OpSpec<Schedule>, arrays: &[&Array], what: Meaning) {
        let values: Vec<Value> = arrays.iter().map(|a| self.array(block, a)).collect();
        let writes: Vec<i64> =
            (0i64..).zip(arrays).filter(|(_, a)| a.writes).map(|(i, _)| i).collect();
        let mut spec = spec.group("values", &values);
        if !writes.is_empty() {
            spec = spec.attr("writes", Attr::ints(writes));
        }
        let id = self.op(block, spec);
        self.meanings.insert(id, what);
    }

    /// The region of an op, with what is in it; `end` is what it yields. `decided`: the host has waited
    /// for queue 0 before it comes to the region.
    fn region(
        &mut self,
        region: BlockId,
        steps: &[Step],
        (own, decided): (&BTreeSet<BufferId>, bool),
        end: Option<&Array>,
    ) {
        self.steps(steps, region, own, decided);
        let end: Vec<Value> = end.iter().map(|a| self.array(region, a)).collect();
        self.op(region, OpSpec::new(SchedOp::Yield, &[]).group("values", &end));
    }

    /// Steps, with the memory that nothing else uses.
    fn steps(
        &mut self,
        steps: &[Step],
        block: BlockId,
        inside: &BTreeSet<BufferId>,
        decided: bool,
    ) {
        let own = own(steps, inside);
        for &b in own.here.keys() {
            let v = self.store(block, b);
            self.memory.insert(b, v);
        }
        let none = <[BTreeSet<BufferId>; 2]>::default();
        let mut events = Events::of(self.plan, steps, decided);
        let frees = events.frees(steps, own.here);
        self.record(block, &mut events, 0, 0);
        for (place, step) in steps.iter().enumerate() {
            self.wait(block, &events, events.waits(place), queue(step));
            match step {
                Step::Launch { kernel, args, grid, domain, lanes, label, loc, queue } => {
                    let name = self.plan.kernels[*kernel].name.clone();
                    let mut spec = OpSpec::new(SchedOp::Launch, &[])
                        .attr("kernel", Attr::Ref(name))
                        .attr("backend", Attr::word(self.backend))
                        .attr("of", Attr::Str(label.clone()));
                    let func = &self.plan.kernels[*kernel];
                    spec = if tessera_tile::kind_of(func) == Some(tessera_tile::KernelKind::Lane) {
                        let axes = tessera_tile::lane_axes(func);
                        let domain = domain[..axes].iter().map(|&n| DimExpr::Const(n));
                        let mut extents = tessera_tile::lane_extents(func);
                        if extents.is_empty() {
                            extents.push(*lanes);
                        }
                        spec.attr("domain", Attr::extents(domain))
                            .attr("lanes", tessera_tile::lanes_attr(&extents))
                    } else {
                        spec.attr("grid", Attr::exprs(grid.iter().map(|&n| DimExpr::Const(n))))
                    };
                    let what = Meaning::Launch {
                        kernel: *kernel,
                        grid: *grid,
                        domain: *domain,
                        lanes: *lanes,
                        label: label.clone(),
                        loc: loc.clone(),
                    };
                    let spec = on_queue(spec, *queue);
                    self.on(block, spec, &args.iter().collect::<Vec<_>>(), what);
                }
                Step::Host { op, inputs, outputs, label } => {
                    let spec = OpSpec::new(SchedOp::Host, &[]).attr("op", Attr::Str(label.clone()));
                    // Operands are read and results written, whatever the arrays say of themselves.
                    let set = |writes: bool| move |a: &Array| Array { writes, ..a.clone() };
                    let arrays: Vec<Array> = inputs
                        .iter()
                        .map(set(false))
                        .chain(outputs.iter().map(set(true)))
                        .collect();
                    let what = Meaning::Host { op: op.clone(), inputs: inputs.len() };
                    self.on(block, spec, &arrays.iter().collect::<Vec<_>>(), what);
                }
                Step::Call { kernel, config, args, loc } => {
                    let mut spec =
                        OpSpec::new(SchedOp::Call, &[]).attr("kernel", Attr::Ref(kernel.clone()));
                    if let Some(config) = config.as_ref().filter(|c: &&Attrs| !c.is_empty()) {
                        spec = spec.attr("config", Attr::Dict(config.clone()));
                    }
                    let arrays: Vec<Array> = args
                        .iter()
                        .map(|(a, how)| Array { writes: how.writes(), ..a.clone() })
                        .collect();
                    let what = Meaning::Call {
                        kernel: kernel.clone(),
                        config: config.clone(),
                        privileges: args.iter().map(|(_, how)| *how).collect(),
                        loc: loc.clone(),
                    };
                    self.on(block, spec, &arrays.iter().collect::<Vec<_>>(), what);
                }
                Step::Copy { from, to, queue } => {
                    let both = [self.array(block, from), self.array(block, to)];
                    self.op(block, on_queue(OpSpec::new(SchedOp::Copy, &both), *queue));
                }
                Step::Collective { how, from, to } => {
                    let both = [self.array(block, from), self.array(block, to)];
                    let spec = OpSpec::new(SchedOp::Collective, &both);
                    let spec = OpSpec { attrs: how.attrs.clone(), ..spec };
                    let id = self.op(block, on_queue(spec, queue(step)));
                    self.meanings.insert(id, Meaning::Collective(how.clone()));
                }
                Step::Cond { pred, then, otherwise, loc } => {
                    let pred = self.array(block, pred);
                    let id = self.op(block, OpSpec::new(SchedOp::If, &[pred]));
                    self.meanings.insert(id, Meaning::Control(loc.clone()));
                    let regions = self.func.ops[id].regions.clone();
                    let [a, b] = own.branches.get(&place).unwrap_or(&none);
                    self.region(regions[0], then, (a, true), None);
                    self.region(regions[1], otherwise, (b, true), None);
                }
                Step::While { test, pred, body, loc } => {
                    let id = self.op(block, OpSpec::new(SchedOp::While, &[]));
                    self.meanings.insert(id, Meaning::Control(loc.clone()));
                    let regions = self.func.ops[id].regions.clone();
                    self.region(regions[0], test, (&none[0], false), Some(pred));
                    self.region(regions[1], body, (&none[0], true), None);
                }
                Step::Loop { id: number, trip, reverse, position, body } => {
                    let position = self.array(block, position);
                    let mut spec =
                        OpSpec::new(SchedOp::Loop, &[position]).attr("trip", Attr::Int(*trip));
                    if *reverse {
                        spec = spec.attr("reverse", Attr::Bool(true));
                    }
                    let id = self.op(block, spec);
                    let region = self.func.ops[id].regions[0];
                    let iteration = self.func.add_arg(region, Type::INDEX, Some("iteration"));
                    self.iterations.insert(*number, iteration);
                    self.region(region, body, (&none[0], false), None);
                }
            }
            for b in frees.get(&Some(place)).into_iter().flatten() {
                self.free(block, *b, queue(step));
            }
            self.record(block, &mut events, place + 1, queue(step));
        }
        self.wait(block, &events, events.end(), 0);
        for b in frees.get(&None).into_iter().flatten() {
            self.free(block, *b, 0);
        }
    }

    fn free(&mut self, block: BlockId, b: BufferId, queue: usize) {
        let memory = self.memory[&b];
        self.op(block, on_queue(OpSpec::new(SchedOp::Free, &[memory]), queue));
    }

    /// An event at a point that something waits for.
    fn record(&mut self, block: BlockId, events: &mut Events, point: Point, queue: usize) {
        if events.order.as_ref().is_some_and(|order| order.recorded.contains(&point)) {
            let event = self.made(block, on_queue(OpSpec::new(SchedOp::Record, &[]), queue), None);
            events.recorded.insert(point, event);
        }
    }

    fn wait(&mut self, block: BlockId, events: &Events, points: &[Point], queue: usize) {
        for event in points.iter().filter_map(|point| events.recorded.get(point)) {
            self.op(block, on_queue(OpSpec::new(SchedOp::Wait, &[*event]), queue));
        }
    }
}

/// An op on a queue.
fn on_queue(spec: OpSpec<Schedule>, queue: usize) -> OpSpec<Schedule> {
    match queue {
        0 => spec,
        queue => spec.attr("queue", Attr::Int(queue as i64)),
    }
}

/// The events of a list.
struct Events {
    /// None where all steps are on queue 0.
    order: Option<Order>,
    recorded: BTreeMap<Point, Value>,
}

impl Events {
    fn of(plan: &Plan, steps: &[Step], decided: bool) -> Self {
        let order = (!is_plain(steps)).then(|| Order::of(plan, steps, decided));
        Self { order, recorded: BTreeMap::new() }
    }

    fn waits(&self, place: usize) -> &[Point] {
        self.order.as_ref().map_or(&[], |order| &order.waits[place])
    }

    fn end(&self) -> &[Point] {
        self.order.as_ref().map_or(&[], |order| &order.end)
    }

    /// The memory of a list by the step behind which it is freed, none where that is at the end.
    /// `last` is the last use of each.
    fn frees(
        &self,
        steps: &[Step],
        last: BTreeMap<BufferId, usize>,
    ) -> BTreeMap<Option<usize>, Vec<BufferId>> {
        let mut uses: BTreeMap<BufferId, Vec<usize>> = BTreeMap::new();
        if self.order.is_some() {
            for (place, step) in steps.iter().enumerate() {
                visit(step, &mut |a, _| uses.entry(a.buffer).or_default().push(place));
            }
        }
        let mut out: BTreeMap<Option<usize>, Vec<BufferId>> = BTreeMap::new();
        for (b, last) in last {
            let free = match &self.order {
                Some(order) => order.all_over(&uses[&b]),
                None => Some(last),
            };
            out.entry(free).or_default().push(b);
        }
        out
    }
}

/// Checks a plan by the rules of its text: what is read was written, memory is used from its first
/// step to its last, and shares no place with what is in use. Without it, programs would compute with
/// what others left in memory.
pub fn check(plan: &Plan) -> Result<(), Diagnostics> {
    verify(&plan.module("any").funcs[0])
}

impl PlanOptions {
    /// The options that a plan's text, as printed or changed, requests.
    pub fn from_text(text: &str) -> Result<PlanOptions, Diagnostics> {
        let help = "change `f.compiled(*args).plan` in what has memory (`sched.store` or `sched.fused`), or in the order, the queues and the places of its steps";
        let given = kept(text, FILE).map_err(|found| found.or_help(help))?;
        let materialise = given.stored.keys().cloned().collect();
        Ok(PlanOptions { materialise, given: Some(Arc::new(given)), ..PlanOptions::default() })
    }

    /// Checks that a plan that was given back is one of this function. `made` is the plan with its
    /// values in memory, `again` computes the one that its steps were printed with. Where the text
    /// has the same values in memory as it had when it was printed, its steps are what runs
    /// ([`rearranged`]): it is given.
    pub fn check(
        &self,
        made: &Plan,
        again: &mut dyn FnMut(PlanOptions) -> Result<Plan, Diagnostics>,
    ) -> Result<Option<&str>, Diagnostics> {
        let Some(given) = &self.given else { return Ok(None) };
        let read = |plan: &Plan| -> Result<Kept, Diagnostics> {
            kept(&plan.module("any").to_string(), FILE)
        };
        let found = read(made)?;
        let mut errors = Diagnostics::new();
        for (name, loc) in given.stored.iter().filter(|(name, _)| !found.names.contains(*name)) {
            let message = format!("expected a value of @{}, got %{name}", made.name);
            let help = "names are those that `f.compiled(*args).plan` prints for these arguments";
            errors.push(Diagnostic::new(Code::E_NAME, message).at(loc.clone()).help(help));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        if given.used == found.used && given.used.iter().all(|v| given.stored.contains_key(v)) {
            return Ok(Some(&given.text));
        }
        let before = if given.used == found.used {
            found
        } else {
            let materialise = given.used.clone();
            read(&again(PlanOptions { materialise, given: None, ..self.clone() })?)?
        };
        let steps = given.steps.len().max(before.steps.len());
        let none = (
            "the end of the plan".to_string(),
            given.steps.last().map_or(Loc::unknown(), |s| s.1.clone()),
        );
        for place in 0..steps {
            let (got, loc) = given.steps.get(place).unwrap_or(&none);
            let (wanted, _) = before.steps.get(place).unwrap_or(&none);
            if got != wanted {
                let message = format!("expected `{wanted}`, got `{got}`");
                let help = "steps follow from what has memory: change `sched.fused` to `sched.store`, or the other \
                            way round, and leave the rest as it was printed for these arguments and this machine";
                return Err(Diagnostic::new(Code::E_ARGUMENT, message)
                    .at(loc.clone())
                    .help(help)
                    .into());
            }
        }
        Ok(None)
    }
}
