//! A function that was compiled for arguments of given types.

use super::calls::{MadeKernels, place};
use super::device::There;
use super::kernels;
use super::layouts::layouts;
use super::on_mesh::{OnMesh, in_buckets, on_mesh};
use super::ranks::{Change, RankPrograms, take_out};
use super::run::{Recorded, bytes_of};
use crate::backends::{Backends, Choice};
use crate::location::Location;
use crate::mode::Mode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_cost::Work;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_graph::{Collective, GraphModule};
use tessera_ir::{Module, PassContext, PassOptions, Type};
use tessera_lower::stage::Step as Pass;
use tessera_numerics::Profile;
use tessera_plan::{
    Chosen, Machine, Plan, PlanOptions, Queues, Step, Written, plan_graph, queues, rearranged,
};
use tessera_support::{Census, ForkLock};
use tessera_target::Artifact;
use tessera_target::device::DeviceId;

/// How a function is compiled.
#[derive(Clone, Debug, Default)]
pub struct GraphOptions {
    /// The backend's name; the process's choice for arrays that are there where not given.
    pub backend: Option<String>,
    /// The device that holds the arrays; none is the host.
    pub device: Option<DeviceId>,
    pub profile: Profile,
    pub plan: PlanOptions,
    /// Kernels that the function calls and that belong to its code.
    pub kernels: MadeKernels,
    /// What [`on_mesh`] made of the function, where the caller has it.
    pub on_mesh: Option<Arc<OnMesh>>,
}

/// What compiling took.
#[derive(Clone, Debug, Default)]
pub struct GraphStats {
    /// Placing values on a mesh, and writing the program of a rank.
    pub partition: Duration,
    /// With those of programs of ranks that it calls, as `compile` and `compiled`.
    pub plan: Duration,
    pub compile: Duration,
    pub launches: usize,
    pub kernels: usize,
    /// Kernels that were not there before.
    pub compiled: usize,
    /// Ops that the host evaluates by their definition.
    pub host_ops: usize,
    pub scratch_bytes: usize,
    pub unshared_bytes: usize,
}

/// The work of kernels by their number and grid.
type Counted = BTreeMap<(usize, [i64; 3]), Option<Work>>;

pub struct GraphProgram {
    pub(super) plan: Plan,
    /// The plan as it runs.
    pub(super) written: Written,
    /// Its steps are not in the order that the planner gave them.
    is_rearranged: bool,
    pub(super) kernels: Vec<Arc<dyn Artifact>>,
    pub(super) choice: Choice,
    pub(super) stats: GraphStats,
    /// How many bytes each argument and result has, one after another.
    pub(super) bytes: Vec<u64>,
    /// Launches with all but addresses filled in, for a run at a time.
    pub(super) idle: ForkLock<Vec<Recorded>>,
    /// Operation counts, as far as a profile requested them.
    counted: ForkLock<Counted>,
    /// Programs of ranks that it calls.
    pub(super) ranks: RankPrograms,
    /// None of a function without a mesh.
    rank: Option<Arc<OnMesh>>,
    collectives: Vec<Collective>,
    /// What it has on each device that ran it.
    there: ForkLock<BTreeMap<DeviceId, Arc<There>>>,
    _alive: tessera_support::Counted,
}

static ALIVE: Census = Census::new();

/// How many compiled functions there are, and the memory that they keep between runs.
pub fn census() -> (usize, usize) {
    ALIVE.now()
}

/// Compiles a function of a module for arguments of these types (tensors with known extents).
pub fn compile_graph(
    module: &GraphModule,
    func: &str,
    args: &[Type],
    backends: &Backends,
    options: &GraphOptions,
) -> Result<GraphProgram, Diagnostics> {
    compile_graph_for(module, func, args, options.choose(backends)?, options)
}

impl GraphOptions {
    /// The backend that they choose.
    pub fn choose(&self, backends: &Backends) -> Result<Choice, Diagnostics> {
        let pinned = self.backend.as_deref();
        match self.device {
            None => backends.to_compile(pinned),
            Some(device) => backends.to_launch(pinned, Location::Device(device)),
        }
    }
}

fn machine(choice: &Choice) -> Result<Machine, Diagnostics> {
    Ok(match choice.caps()?.gpu() {
        Some(gpu) => Machine::Gpu { speed: gpu.speed },
        None => Machine::Cpu,
    })
}

/// What a plan and its code depend on of where they are to run, and nothing more: devices of equal texts run each other's
/// programs.
pub fn machine_text(choice: &Choice) -> Result<String, Diagnostics> {
    let (backend, machine, off) = (&choice.backend, machine(choice)?, crate::knobs::off()?);
    Ok(format!("{} for {:?}, {machine:?}, without {off:?}", backend.name(), backend.target()))
}

/// The same for a given backend.
pub fn compile_graph_for(
    module: &GraphModule,
    func: &str,
    args: &[Type],
    choice: Choice,
    options: &GraphOptions,
) -> Result<GraphProgram, Diagnostics> {
    let start = Instant::now();
    is_small(module)?;
    tessera_graph::verify_module(module)?;
    let rank = match &options.on_mesh {
        Some(known) => Some(known.clone()),
        None => on_mesh(module, func, args, options.profile)?.map(Arc::new),
    };
    if let Some(rank) = &rank {
        rank.check_kernels()?;
    }
    // Programs of ranks are compiled for all ranks together, which share the device, or run rank by rank.
    let expand = |rank: &Arc<OnMesh>| -> Result<(GraphModule, RankPrograms), Diagnostics> {
        let chosen = &options.plan.chosen;
        let mut all = rank.with_chosen(module, chosen);
        let mut programs = RankPrograms::new();
        // On a device, and where extents are open, all ranks are one function.
        if !choice.is_on_device() {
            let off = options.plan.off;
            let with = |chosen: &Chosen| {
                let plan = PlanOptions { off, chosen: chosen.clone(), ..PlanOptions::default() };
                GraphOptions { plan, ..options.clone() }
            };
            let (chosen, decomposed) = (with(chosen), with(&Chosen::default()));
            programs = take_out(
                &mut all,
                crate::knobs::off()?.and(off),
                (&options.plan.chosen, &options.kernels),
                &mut |called, change| {
                    let compiled = |options: &GraphOptions| {
                        compile_flat(called, choice.clone(), (options, change), Instant::now())
                    };
                    // A rank launches kernels, and calls none that its plan does not hold.
                    let made = compiled(&chosen)?;
                    if !calls(&made.plan.steps) {
                        return Ok(Some(made));
                    }
                    let made = compiled(&decomposed)?;
                    Ok(Some(made).filter(|made| !calls(&made.plan.steps)))
                },
            )?;
        }
        tessera_autodiff::expand_ranks(&mut all)?;
        let roots: Vec<&str> = std::iter::once(func).chain(chosen.names()).collect();
        tessera_graph::walk::dce_module(&mut all, &roots);
        is_small(&all)?;
        Ok((all, programs))
    };
    let partition = rank.as_ref().map_or(Duration::ZERO, |rank| rank.took);
    let (expanded, ranks) = rank.as_ref().map(expand).transpose()?.unzip();
    let module = expanded.as_ref().unwrap_or(module);
    let mut made = compile_flat((module, func, args), choice, (options, &|_| Ok(())), start)?;
    let ranks = ranks.unwrap_or_default();
    // What was measured from the beginning has all of that in it.
    let is_known = options.on_mesh.is_some();
    let mut of_ranks = Duration::ZERO;
    for of_rank in ranks.values().map(|r| &r.program.stats) {
        of_ranks += of_rank.compile;
        made.stats.compiled += of_rank.compiled;
    }
    let inside = if is_known { of_ranks } else { of_ranks + partition };
    made.stats.plan = made.stats.plan.saturating_sub(inside);
    made.stats.compile += of_ranks;
    made.stats.partition = partition;
    let collectives = rank.as_ref().map_or(Vec::new(), |r| in_buckets(&r.collectives, &ranks));
    Ok(GraphProgram { ranks, rank, collectives, ..made })
}

/// Compiles a verified function that is one of one device, or the program of a rank.
fn compile_flat(
    (module, func, args): (&GraphModule, &str, &[Type]),
    choice: Choice,
    (options, change): (&GraphOptions, Change<'_>),
    start: Instant,
) -> Result<GraphProgram, Diagnostics> {
    let machine = machine(&choice)?;
    let ordered = options.profile == Profile::Strict;
    // Devices have short code for the functions themselves.
    let short = machine == Machine::Cpu && options.profile == Profile::Default;
    let off = crate::knobs::off()?.and(options.plan.off);
    let requested = PlanOptions { machine, short, ordered, off, ..options.plan.clone() };
    let planned = |requested: &PlanOptions| -> Result<(Plan, BTreeSet<usize>), Diagnostics> {
        let mut plan = plan_graph(module, func, args, requested)?;
        let made = place(&mut plan, &options.kernels)?;
        spread(&mut plan, &choice, requested)?;
        change(&mut plan)?;
        Ok((plan, made))
    };
    let (plan, made) = planned(&requested)?;
    let given = requested.check(&plan, &mut |other| planned(&other).map(|(plan, _)| plan))?;
    if choice.is_on_device() {
        on_host(&plan.steps)?;
    }
    GraphProgram::from_plan(plan, made, choice, (options, given), start.elapsed())
}

/// Whether steps call kernels that the plan does not hold.
fn calls(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::Call { .. } => true,
        Step::Cond { then, otherwise, .. } => calls(then) || calls(otherwise),
        Step::While { test, body, .. } => calls(test) || calls(body),
        Step::Loop { body, .. } => calls(body),
        Step::Launch { .. } | Step::Host { .. } | Step::Copy { .. } | Step::Collective { .. } => {
            false
        }
    })
}

/// The most queues of a plan: more hold up the host, and fill no more of a device.
const QUEUES: usize = 4;

/// Puts independent steps on several queues where these run together: on a device. The host is one queue.
fn spread(plan: &mut Plan, choice: &Choice, options: &PlanOptions) -> Result<(), Diagnostics> {
    let caps = choice.caps()?;
    let (most, speed) = match (options.queues, caps.gpu()) {
        (Some(most), _) => (most, None),
        (None, Some(gpu)) if choice.is_on_device() && !options.off.has(Pass::Queues) => {
            (QUEUES, Some(&gpu.speed))
        }
        (None, _) => (1, None),
    };
    queues(plan, &Queues { most, speed })
}

/// Refuses functions that would take minutes to plan and to compile.
fn is_small(module: &GraphModule) -> Result<(), Diagnostics> {
    let most = FUNCTION * crate::knobs::max_ops()?;
    let mut left = most;
    for func in &module.funcs {
        let ops = func.walk();
        let Some(&first) = ops.get(left) else {
            left -= ops.len();
            continue;
        };
        let message =
            format!("expected at most {most} operations in a traced function, got more up to here");
        let help = "write a loop that is not unrolled (`ts.scan`, `ts.fori_loop`), or several functions; \
                    a tenth of this number stands in TESSERA_MAX_OPS";
        let error = Diagnostic::new(Code::E_TOO_LARGE, message).help(help);
        return Err(error.at(func.ops[first].loc.clone()).into());
    }
    Ok(())
}

/// A traced function may have this many times the ops of a kernel: it becomes many kernels.
const FUNCTION: usize = 10;

impl GraphProgram {
    fn from_plan(
        plan: Plan,
        made: BTreeSet<usize>,
        choice: Choice,
        (options, given): (&GraphOptions, Option<&str>),
        planned: Duration,
    ) -> Result<Self, Diagnostics> {
        let start = Instant::now();
        let (profile, off) = (options.profile, crate::knobs::off()?);
        let mode = Mode { profile, off, ..Mode::default() };
        let (code, compiled) =
            kernels::compile(&plan.kernels, &layouts(&plan), &made, &choice, mode)?;
        let backend = choice.backend.name();
        let mut written = plan.write(backend);
        let given = given.filter(|text| *text != text_of(&plan, &written));
        if let Some(text) = given {
            written = rearranged(text, &plan, &written, backend)?;
        }
        let mut counts = Counts::default();
        counts.steps(&plan.steps);
        let stats = GraphStats {
            plan: planned,
            compile: start.elapsed(),
            launches: counts.launches,
            kernels: plan.kernels.len(),
            compiled,
            host_ops: counts.host.len(),
            scratch_bytes: written.places.bytes,
            unshared_bytes: written.places.unshared,
            ..GraphStats::default()
        };
        let arguments = plan.params.iter().map(|&b| &plan.buffers[b].ty);
        let both = arguments.chain(plan.results.iter().map(|(_, ty)| ty));
        let size = |ty: &Type| bytes_of(&ty.static_shape().unwrap_or_default(), ty.dtype()) as u64;
        let bytes = both.map(size).collect();
        Ok(Self {
            plan,
            bytes,
            _alive: ALIVE.count(written.places.bytes),
            written,
            is_rearranged: given.is_some(),
            kernels: code,
            choice,
            stats,
            idle: ForkLock::default(),
            ranks: RankPrograms::new(),
            rank: None,
            collectives: Vec::new(),
            there: ForkLock::default(),
            counted: ForkLock::default(),
        })
    }

    /// What it has on a device.
    pub(super) fn on(&self, device: DeviceId) -> Arc<There> {
        self.there.lock().entry(device).or_default().clone()
    }

    pub(super) fn everywhere(&self) -> Vec<Arc<There>> {
        self.there.lock().values().cloned().collect()
    }

    /// Refuses arrays of a device that it has no code for.
    pub(super) fn check_device(&self, device: DeviceId) -> Result<(), Diagnostics> {
        if self.choice.works_at(Location::Device(device)) {
            return Ok(());
        }
        let (backend, kind) = (self.backend(), self.choice.memory());
        let message =
            format!("expected arrays of {kind}, where `{backend}` works, got arrays on {device}");
        let help = "copy them to a device that the function was compiled for";
        Err(Diagnostic::new(Code::E_LAUNCH_DEVICE_MISMATCH, message).help(help).into())
    }

    pub fn stats(&self) -> &GraphStats {
        &self.stats
    }

    /// The work of one of its kernels, counted once.
    pub(super) fn work(&self, kernel: usize, grid: [i64; 3]) -> Option<Work> {
        let mut counted = self.counted.lock();
        *counted.entry((kernel, grid)).or_insert_with(|| {
            let dims = BTreeMap::new();
            let launch = tessera_cost::Launch { dims: &dims, grid, domain: [0; 3], lanes: 1 };
            // Counted in the form that the passes leave, as for kernels of a user's.
            let mut func = self.plan.kernels[kernel].clone();
            let passes = Mode::default().pipeline(PassOptions::default(), false);
            passes.run(&mut func, &mut PassContext::default()).ok()?;
            tessera_cost::work(&func, &launch).ok()
        })
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The plan as text, in Schedule IR: which values have memory, which kernels run on which. To
    /// change it, edit its `store` and `fused` lines and pass the text to
    /// [`PlanOptions::from_text`].
    pub fn plan_text(&self) -> String {
        text_of(&self.plan, &self.written)
    }

    /// The program of a rank in Graph IR; None of a function without a mesh.
    pub fn rank_text(&self) -> Option<String> {
        self.rank.as_ref().map(|rank| rank.module.to_string())
    }

    /// The plans of ranks that run rank by rank, as text; empty where they are rows of one function.
    pub fn rank_plans(&self) -> Vec<String> {
        self.ranks.values().map(|ranks| ranks.program.plan_text()).collect()
    }

    /// The collectives of the program of a rank, in order.
    pub fn collectives(&self) -> &[Collective] {
        &self.collectives
    }

    /// Why values are where they are on a mesh, and what requested the collectives; None of a function without placements.
    pub fn explained(&self) -> Option<&str> {
        self.rank.as_ref()?.explained.as_deref()
    }

    /// The kernels in Tile IR, as the passes get them.
    pub fn kernels_text(&self) -> String {
        self.plan.kernels.iter().map(|k| k.to_string()).collect::<Vec<_>>().join("\n")
    }

    /// What the code of each kernel says of itself, with what its launches began with or were
    /// divided into so far.
    pub fn resources(&self) -> Vec<Vec<(&'static str, String)>> {
        self.kernels.iter().map(|code| code.resources()).collect()
    }

    /// Results that may be written over arguments: pairs of a result's and an argument's position.
    pub fn donations(&self) -> Vec<(usize, usize)> {
        match self.is_rearranged {
            // An argument may be read after the result is written.
            true => Vec::new(),
            false => super::donate::donations(&self.plan),
        }
    }

    /// Whether its arrays are on a device.
    pub fn is_on_device(&self) -> bool {
        self.choice.is_on_device()
    }

    /// The backend that kernels run on.
    pub fn backend(&self) -> &'static str {
        self.choice.backend.name()
    }

    /// The types of the arguments and of the results.
    pub fn arguments(&self) -> Vec<Type> {
        self.plan.params.iter().map(|&b| self.plan.buffers[b].ty.clone()).collect()
    }

    pub fn results(&self) -> Vec<Type> {
        self.plan.results.iter().map(|(_, ty)| ty.clone()).collect()
    }

    /// Ops that the host evaluates by their definition, each name once.
    pub fn host_ops(&self) -> Vec<String> {
        let mut counts = Counts::default();
        counts.steps(&self.plan.steps);
        let names: BTreeSet<String> = counts.host.into_iter().collect();
        names.into_iter().collect()
    }
}

fn text_of(plan: &Plan, written: &Written) -> String {
    let mut module = Module::new(&*plan.name);
    module.funcs.push(written.func.clone());
    module.to_string()
}

/// Refuses steps that only the host can run.
fn on_host(steps: &[Step]) -> Result<(), Diagnostics> {
    for step in steps {
        match step {
            Step::Host { op, label, .. } => {
                let loc = op.walk().first().map_or(&op.loc, |&id| &op.ops[id].loc);
                let message =
                    format!("expected ops that have kernels for this device, got `graph.{label}`");
                let help = "run this part on arrays in host memory, or write it with other ops";
                let error = Diagnostic::new(Code::E_UNSUPPORTED, message);
                return Err(error.at(loc.clone()).help(help).into());
            }
            Step::Cond { then, otherwise, .. } => {
                on_host(then)?;
                on_host(otherwise)?;
            }
            Step::While { test, body, .. } => {
                on_host(test)?;
                on_host(body)?;
            }
            Step::Loop { body, .. } => on_host(body)?,
            Step::Launch { .. }
            | Step::Call { .. }
            | Step::Copy { .. }
            | Step::Collective { .. } => {}
        }
    }
    Ok(())
}

#[derive(Default)]
struct Counts {
    launches: usize,
    host: Vec<String>,
}

impl Counts {
    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Launch { .. } => self.launches += 1,
                Step::Host { label, .. } => self.host.push(label.clone()),
                Step::Call { .. } => self.launches += 1,
                Step::Copy { .. } | Step::Collective { .. } => {}
                Step::Cond { then, otherwise, .. } => {
                    self.steps(then);
                    self.steps(otherwise);
                }
                Step::While { test, body, .. } => {
                    self.steps(test);
                    self.steps(body);
                }
                Step::Loop { body, .. } => self.steps(body),
            }
        }
    }
}
