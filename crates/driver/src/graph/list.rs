//! The commands of a plan: its Schedule IR, decoded once for a run at a time. Executors on the host
//! and on devices go through the same list.

use super::run::buffer_arg;
use super::strided::runs;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_graph::GraphModule;
use tessera_ir::{Attr, Attrs, BlockId, Func, OpId, Privilege, Type, Value};
use tessera_plan::{Array, Collective, Meaning, Written};
use tessera_schedule::{Place, SchedOp, Schedule, accesses, place};
use tessera_target::{ArgValue, LaunchArgs, Packed, Settled};

/// A launch with all but addresses filled in.
pub struct Launch {
    pub kernel: usize,
    pub args: Box<LaunchArgs>,
    pub arrays: Vec<Array>,
    pub label: String,
    pub loc: Loc,
    /// The launch as it can be repeated with other addresses, where there is such a form, and
    /// whether that is known.
    pub settled: Option<Arc<dyn Settled>>,
    pub is_tried: bool,
    /// The same with its parameters packed: for executors that put launches in a row.
    pub packed: Option<Box<dyn Packed>>,
    /// The arrays whose addresses differ from run to run: their places, buffers and offsets.
    given: Vec<(usize, usize, i64)>,
    /// An array moves with the iterations of a loop.
    moves: bool,
    /// Iterations of loops do not change how its addresses are aligned.
    pub steady: bool,
    walk: Walk,
}

/// The addresses of a launch. In the body of a loop they are computed at its beginning; from one
/// iteration to the next those that move are advanced.
#[derive(Default)]
struct Walk {
    addresses: Vec<u64>,
    /// Which move, and by how many bytes.
    moves: Vec<(usize, i64)>,
    in_loop: bool,
}

impl Launch {
    /// Where its arrays are now.
    pub fn addresses(&mut self, at: &Addresses) -> &[u64] {
        if !self.walk.in_loop {
            self.walk.addresses.clear();
            self.walk.addresses.extend(self.arrays.iter().map(|a| at.of(a)));
        }
        &self.walk.addresses
    }

    /// Puts the addresses into its arguments.
    pub fn fill(&mut self, at: &Addresses) {
        self.addresses(at);
        for (param, &address) in self.args.params.iter_mut().zip(&self.walk.addresses) {
            if let ArgValue::Buffer(b) = param {
                b.data = address as *mut u8;
            }
        }
    }

    /// Settles it by what it was launched with; `fill` has put in the addresses.
    pub fn settle(&mut self, settled: Option<Arc<dyn Settled>>) {
        self.is_tried = true;
        self.packed = settled.clone().and_then(Settled::packed);
        self.settled = settled;
        let at = self.walk.addresses.iter();
        if let Some(packed) = &mut self.packed {
            at.enumerate().for_each(|(place, &address)| packed.point(place, address));
        }
    }

    /// The packed launch with the addresses of now, where there is one.
    #[inline]
    pub fn pointed(&mut self, at: &Addresses) -> Option<&mut dyn Packed> {
        let packed = self.packed.as_deref_mut()?;
        if self.walk.in_loop || self.moves {
            if !self.walk.in_loop {
                self.walk.addresses.clear();
                self.walk.addresses.extend(self.arrays.iter().map(|a| at.of(a)));
            }
            let addresses = self.walk.addresses.iter();
            addresses.enumerate().for_each(|(place, &address)| packed.point(place, address));
        } else {
            for &(place, buffer, offset) in &self.given {
                packed.point(place, at.bases[buffer].wrapping_add_signed(offset));
            }
        }
        Some(packed)
    }

    /// The addresses of the first iteration of a loop, and the bytes of its next ones.
    fn begin(&mut self, at: &Addresses, moved: impl Fn(&Array) -> i64) {
        self.walk.in_loop = false;
        self.addresses(at);
        self.walk.in_loop = true;
        let moves = self.arrays.iter().map(moved).enumerate().filter(|(_, by)| *by != 0);
        self.walk.moves.clear();
        self.walk.moves.extend(moves);
    }

    fn advance(&mut self) {
        for &(place, by) in &self.walk.moves {
            let address = &mut self.walk.addresses[place];
            *address = address.wrapping_add_signed(by);
        }
    }
}

/// The widest access: what code is made for beyond it is the same.
pub const WIDEST: u64 = 16;

/// How addresses are aligned, as far as code is made for it.
pub fn alignment(at: &[u64]) -> Vec<u8> {
    at.iter().map(|at| (at % WIDEST) as u8).collect()
}

/// A step; `on` is the number of its queue in the list, 0 the main one.
pub enum Command {
    Launch {
        launch: Launch,
        on: usize,
    },
    Host {
        module: Box<GraphModule>,
        inputs: Vec<Array>,
        outputs: Vec<Array>,
    },
    Call {
        kernel: String,
        config: Option<Attrs>,
        args: Vec<(Array, Privilege)>,
        loc: Loc,
        on: usize,
    },
    Copy {
        from: Array,
        to: Array,
        on: usize,
    },
    Collective {
        how: Collective,
        from: Array,
        to: Array,
    },
    Record {
        event: usize,
        on: usize,
    },
    Wait {
        event: usize,
        on: usize,
    },
    If {
        pred: Array,
        branches: [Vec<Command>; 2],
        loc: Loc,
        on: usize,
    },
    While {
        test: Vec<Command>,
        pred: Array,
        body: Vec<Command>,
        loc: Loc,
        on: usize,
    },
    Loop {
        id: usize,
        trip: i64,
        reverse: bool,
        position: Array,
        body: Vec<Command>,
    },
}

pub struct List {
    pub commands: Vec<Command>,
    /// How many queues and events it has, and the trip counts of its loops.
    pub queues: usize,
    pub events: usize,
    pub trips: Vec<i64>,
}

impl List {
    pub fn new(plan: &Written) -> Result<List, Diagnostics> {
        let mut decoder = Decoder {
            plan,
            func: &plan.func,
            queues: BTreeMap::from([(Place::MAIN, 0)]),
            events: BTreeMap::new(),
            loops: BTreeMap::new(),
            trips: Vec::new(),
        };
        let mut commands = decoder.block(plan.func.body)?;
        let Decoder { queues, events, trips, .. } = decoder;
        let mut moved = BTreeSet::new();
        positions(&commands, &mut moved);
        find_given(&mut commands, &moved, &plan.places.offsets);
        Ok(List { commands, queues: queues.len(), events: events.len(), trips })
    }
}

/// The buffers of loops' indices.
fn positions(steps: &[Command], out: &mut BTreeSet<usize>) {
    for step in steps {
        match step {
            Command::If { branches, .. } => branches.iter().for_each(|b| positions(b, out)),
            Command::While { test, body, .. } => {
                positions(test, out);
                positions(body, out);
            }
            Command::Loop { position, body, .. } => {
                out.insert(position.buffer);
                positions(body, out);
            }
            Command::Launch { .. }
            | Command::Host { .. }
            | Command::Call { .. }
            | Command::Copy { .. }
            | Command::Collective { .. }
            | Command::Record { .. }
            | Command::Wait { .. } => {}
        }
    }
}

/// Finds which arrays of launches are elsewhere in each run. Those in the memory of the run itself stay where they are.
fn find_given(steps: &mut [Command], moved: &BTreeSet<usize>, offsets: &[Option<usize>]) {
    let stays = |a: &Array| offsets[a.buffer].is_some() && !moved.contains(&a.buffer);
    for step in steps {
        match step {
            Command::Launch { launch, .. } => {
                let arrays = launch.arrays.iter().enumerate();
                let given = arrays.filter(|(_, a)| !stays(a));
                launch.given = given.map(|(place, a)| (place, a.buffer, a.offset)).collect();
                launch.moves = launch.arrays.iter().any(|a| !a.iterations.is_empty());
            }
            Command::If { branches, .. } => {
                branches.iter_mut().for_each(|b| find_given(b, moved, offsets));
            }
            Command::While { test, body, .. } => {
                find_given(test, moved, offsets);
                find_given(body, moved, offsets);
            }
            Command::Loop { body, .. } => find_given(body, moved, offsets),
            Command::Host { .. }
            | Command::Call { .. }
            | Command::Copy { .. }
            | Command::Collective { .. }
            | Command::Record { .. }
            | Command::Wait { .. } => {}
        }
    }
}

struct Decoder<'p> {
    plan: &'p Written,
    func: &'p Func<Schedule>,
    queues: BTreeMap<Place, usize>,
    events: BTreeMap<Value, usize>,
    /// The number of each loop, by the value of its index.
    loops: BTreeMap<Value, usize>,
    trips: Vec<i64>,
}

impl Decoder<'_> {
    fn refused(&self, id: OpId, got: &str) -> Diagnostics {
        let message = format!("expected a step that this plan can run, got {got}");
        Diagnostic::new(Code::E_UNSUPPORTED, message).at(self.func.ops[id].loc.clone()).into()
    }

    fn queue(&mut self, id: OpId) -> Result<usize, Diagnostics> {
        let at = place(&self.func.ops[id]);
        if at.device != 0 {
            return Err(self.refused(id, "one on another device than the plan's first"));
        }
        let next = self.queues.len();
        Ok(*self.queues.entry(at).or_insert(next))
    }

    fn array(&self, id: OpId, v: Value, writes: bool) -> Result<Array, Diagnostics> {
        let func = self.func;
        let (mut offset, mut iterations, mut at) = (0, Vec::new(), v);
        while let Some(op) = func.def(at).filter(|op| op.code == SchedOp::View) {
            offset += op.attr("offset").and_then(Attr::as_int).unwrap_or(0);
            let moves = op.attr("iteration_bytes").and_then(Attr::as_ints).unwrap_or_default();
            for (index, by) in op.group("at").iter().zip(moves) {
                let number = self.loops.get(index);
                let number = number.ok_or_else(|| self.refused(id, "the index of no loop"))?;
                iterations.push((*number, by));
            }
            at = op.operands[0];
        }
        let buffer = self.plan.buffers.get(&at);
        let buffer = *buffer.ok_or_else(|| self.refused(id, "memory that it does not have"))?;
        let ty: &Type = func.ty(v);
        let (dims, dtype) = (ty.static_shape().unwrap_or_default(), ty.dtype());
        let strides = func.def(v).and_then(|op| op.attr("strides")).and_then(Attr::as_ints);
        let strides = strides.unwrap_or_else(|| crate::pack::row_major(&dims, dtype));
        Ok(Array { buffer, offset, dims, strides, dtype, writes, iterations })
    }

    fn arrays(&self, id: OpId) -> Result<Vec<Array>, Diagnostics> {
        let all = accesses(self.func, id);
        all.iter().map(|a| self.array(id, a.value, a.writes)).collect()
    }

    fn block(&mut self, block: BlockId) -> Result<Vec<Command>, Diagnostics> {
        let func = self.func;
        let mut out = Vec::new();
        for &id in &func.blocks[block].ops {
            out.extend(self.step(id)?);
        }
        Ok(out)
    }

    fn step(&mut self, id: OpId) -> Result<Option<Command>, Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let meaning = self.plan.steps.get(&id);
        let loc = || match meaning {
            Some(
                Meaning::Launch { loc, .. } | Meaning::Call { loc, .. } | Meaning::Control(loc),
            ) => loc.clone(),
            Some(Meaning::Collective(how)) => how.loc.clone(),
            Some(Meaning::Host { .. }) | None => Loc::unknown(),
        };
        Ok(Some(match op.code {
            SchedOp::Store
            | SchedOp::Fused
            | SchedOp::Constant
            | SchedOp::View
            | SchedOp::Free
            | SchedOp::Yield
            | SchedOp::Return => return Ok(None),
            SchedOp::Launch | SchedOp::Host | SchedOp::Call => {
                let on = self.queue(id)?;
                let arrays = self.arrays(id)?;
                match meaning {
                    Some(Meaning::Launch { kernel, grid, domain, lanes, label, loc }) => {
                        let args = LaunchArgs {
                            params: arrays
                                .iter()
                                .map(|a| ArgValue::Buffer(buffer_arg(a)))
                                .collect(),
                            dims: BTreeMap::new(),
                            grid: *grid,
                            domain: *domain,
                            lanes: *lanes,
                        };
                        let mut moves = arrays.iter().flat_map(|a| &a.iterations);
                        let steady = moves.all(|(_, by)| by % WIDEST as i64 == 0);
                        let launch = Launch {
                            kernel: *kernel,
                            args: Box::new(args),
                            arrays,
                            label: label.clone(),
                            loc: loc.clone(),
                            settled: None,
                            is_tried: false,
                            packed: None,
                            given: Vec::new(),
                            moves: false,
                            steady,
                            walk: Walk::default(),
                        };
                        Command::Launch { launch, on }
                    }
                    Some(Meaning::Host { op, inputs }) => {
                        let mut module = Box::new(GraphModule::new("op"));
                        module.funcs.push(op.clone());
                        let mut inputs_and_outputs = arrays;
                        let outputs = inputs_and_outputs.split_off(*inputs);
                        Command::Host { module, inputs: inputs_and_outputs, outputs }
                    }
                    Some(Meaning::Call { kernel, config, privileges, loc }) => Command::Call {
                        kernel: kernel.clone(),
                        config: config.clone(),
                        args: arrays.into_iter().zip(privileges.iter().copied()).collect(),
                        loc: loc.clone(),
                        on,
                    },
                    Some(Meaning::Collective(_) | Meaning::Control(_)) | None => {
                        return Err(self.refused(id, "one that the planner did not make"));
                    }
                }
            }
            SchedOp::Collective => {
                self.queue(id)?;
                let from = self.array(id, op.operands[0], false)?;
                let to = self.array(id, op.operands[1], true)?;
                let Some(Meaning::Collective(how)) = meaning else {
                    return Err(self.refused(id, "one that the planner did not make"));
                };
                Command::Collective { how: how.clone(), from, to }
            }
            SchedOp::Copy => {
                let on = self.queue(id)?;
                let from = self.array(id, op.operands[0], false)?;
                let to = self.array(id, op.operands[1], true)?;
                Command::Copy { from, to, on }
            }
            SchedOp::Record => {
                let next = self.events.len();
                let event = *self.events.entry(op.result()).or_insert(next);
                Command::Record { event, on: self.queue(id)? }
            }
            SchedOp::Wait => match self.events.get(&op.operands[0]) {
                Some(&event) => Command::Wait { event, on: self.queue(id)? },
                None => return Err(self.refused(id, "an event that was not recorded")),
            },
            SchedOp::If => {
                let (on, pred) = (self.queue(id)?, self.array(id, op.operands[0], false)?);
                let branches = [self.block(op.regions[0])?, self.block(op.regions[1])?];
                Command::If { pred, branches, loc: loc(), on }
            }
            SchedOp::While => {
                let on = self.queue(id)?;
                let test = self.block(op.regions[0])?;
                let end = func.terminator(op.regions[0]).map(|end| func.ops[end].operands[0]);
                let end = end.ok_or_else(|| self.refused(id, "one without a condition"))?;
                let pred = self.array(id, end, false)?;
                Command::While { test, pred, body: self.block(op.regions[1])?, loc: loc(), on }
            }
            SchedOp::Loop => {
                self.queue(id)?;
                let trip = op.attr("trip").and_then(Attr::as_int).unwrap_or(0);
                let number = self.trips.len();
                self.trips.push(trip);
                self.loops.insert(func.blocks[op.regions[0]].args[0], number);
                let reverse = op.attr("reverse").and_then(Attr::as_bool).unwrap_or(false);
                let position = self.array(id, op.operands[0], true)?;
                let body = self.block(op.regions[0])?;
                Command::Loop { id: number, trip, reverse, position, body }
            }
        }))
    }
}

/// Where buffers are in a run, and which iteration each loop is in.
#[derive(Default)]
pub struct Addresses {
    pub bases: Vec<u64>,
    iterations: Vec<i64>,
}

impl Addresses {
    pub fn new(bases: Vec<u64>, list: &List) -> Self {
        Self { bases, iterations: vec![0; list.trips.len()] }
    }

    /// The same, where the list is elsewhere.
    pub fn for_loops(bases: Vec<u64>, loops: usize) -> Self {
        Self { bases, iterations: vec![0; loops] }
    }

    pub fn set_iteration(&mut self, id: usize, i: i64) {
        self.iterations[id] = i;
    }

    pub fn of(&self, array: &Array) -> u64 {
        let moved: i64 = array.iterations.iter().map(|&(id, by)| self.iterations[id] * by).sum();
        self.bases[array.buffer].wrapping_add_signed(array.offset + moved)
    }
}

/// What an executor does with a step.
pub trait Executor {
    /// A launch, a call or an op of the host.
    fn work(&mut self, step: &mut Command, at: &Addresses) -> Result<(), Diagnostics>;
    fn copy(&mut self, to: u64, from: u64, bytes: usize, on: usize) -> Result<(), Diagnostics>;
    fn record(&mut self, event: usize, on: usize) -> Result<(), Diagnostics>;
    fn wait(&mut self, event: usize, on: usize) -> Result<(), Diagnostics>;
    /// Reads a value behind the work of a queue; `what` is the step that it decides.
    fn truth(
        &mut self,
        pred: (&Array, u64),
        what: &str,
        loc: &Loc,
        on: usize,
    ) -> Result<bool, Diagnostics>;
    /// Puts the index of an iteration where the loop's steps read it.
    fn index(&mut self, at: &mut Addresses, id: usize, position: &Array, i: i64);
    /// By how many bytes that place moves from one index to the next.
    fn index_bytes(&self) -> i64;
}

/// Gives the steps of a list to an executor, in program order.
pub fn execute(
    steps: &mut [Command],
    to: &mut dyn Executor,
    at: &mut Addresses,
) -> Result<(), Diagnostics> {
    steps.iter_mut().try_for_each(|step| one(step, to, at))
}

pub fn one(
    step: &mut Command,
    to: &mut dyn Executor,
    at: &mut Addresses,
) -> Result<(), Diagnostics> {
    match step {
        Command::Launch { .. } | Command::Host { .. } | Command::Call { .. } => to.work(step, at),
        Command::Copy { from, to: target, on } => {
            let (begin, end) = (at.of(from), at.of(target));
            if begin == end && from.strides == target.strides {
                return Ok(());
            }
            runs(from, target, &mut |a, b, bytes| {
                to.copy(end.wrapping_add_signed(b), begin.wrapping_add_signed(a), bytes, *on)
            })
        }
        // Cursors do these (`rank_run`).
        Command::Collective { how, .. } => {
            let why = "expected a plan of one device, got a collective";
            Err(Diagnostic::new(Code::E_UNKNOWN, why).at(how.loc.clone()).into())
        }
        Command::Record { event, on } => to.record(*event, *on),
        Command::Wait { event, on } => to.wait(*event, *on),
        Command::If { pred, branches: [then, otherwise], loc, on } => {
            let taken = to.truth((pred, at.of(pred)), "cond", loc, *on)?;
            execute(if taken { then } else { otherwise }, to, at)
        }
        Command::While { test, pred, body, loc, on } => loop {
            execute(test, to, at)?;
            if !to.truth((pred, at.of(pred)), "while", loc, *on)? {
                return Ok(());
            }
            execute(body, to, at)?;
        },
        Command::Loop { id, trip, reverse, position, body } => {
            for iteration in 0..*trip {
                let i = if *reverse { *trip - 1 - iteration } else { iteration };
                at.iterations[*id] = i;
                to.index(at, *id, position, i);
                let launches = body.iter_mut().filter_map(|step| match step {
                    Command::Launch { launch, .. } => Some(launch),
                    _ => None,
                });
                if iteration == 0 {
                    let one = if *reverse { -1 } else { 1 };
                    let index = (position.buffer, to.index_bytes());
                    let moved = |a: &Array| {
                        let own = a.iterations.iter().filter(|(of, _)| of == id);
                        let index = if a.buffer == index.0 { index.1 } else { 0 };
                        one * (own.map(|(_, by)| by).sum::<i64>() + index)
                    };
                    launches.for_each(|launch| launch.begin(at, moved));
                } else {
                    launches.for_each(Launch::advance);
                }
                execute(body, to, at)?;
            }
            Ok(())
        }
    }
}
