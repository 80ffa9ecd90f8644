//! The candidates of a search: they are lowered, pruned, ranked and compiled. The record has a row
//! with the reason for each rejected one.

use super::hook::{self, Moment, Phase};
use super::{machine, parallel};
use crate::backends::Choice;
use crate::bind::{Bound, Slot, stored};
use crate::config::{self, show_all};
use crate::dims::Sizes;
use crate::kernel::KernelHandle;
use crate::launch::Prepared;
use crate::launches::Planner;
use crate::mode::Mode;
use crate::pack::row_major;
use crate::predict::{self, Known, slot_rows_on};
use crate::specialise::{self, Lowered, Specialised, first_message, lanes_or_default, scheduled};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tessera_cost::Estimate;
use tessera_diag::{Code, Diagnostics, Kind};
use tessera_frontend::{Capture, Config};
use tessera_ir::{Attr, Value};
use tessera_numerics::{DType, Scalar};
use tessera_support::Hash128;
use tessera_target::arrays::{ArrayClass, Said};
use tessera_target::speed::{LINE, Speed};
use tessera_target::{ArgValue, BufferArg, Footprint, LaunchArgs, interruption};
use tessera_tile::{KernelKind, TileFunc, kind_of};
use tessera_tune::resource::{Limits, Requested, need, refuse};
use tessera_tune::{Record, RecordState, Row, rank};

/// How many of the best by the cost model are compiled and measured.
const FEW: usize = 8;

pub struct Candidate {
    pub tunables: BTreeMap<String, Capture>,
    pub text: String,
    pub config: Config,
    /// Whether its row was there before and says all there is.
    pub known: bool,
    pub row: Row,
    lowered: Option<Lowered>,
    /// What a block of it will take, where the backend knows, and what its launches may be.
    staged: Staged,
    /// An earlier candidate that gives the same code, and is measured for both.
    twin: Option<usize>,
    pub compiled: Option<Ready>,
}

pub struct Ready {
    pub spec: Arc<Specialised>,
    /// Compiled for this search.
    pub is_new: bool,
}

impl Candidate {
    fn fall(&mut self, state: RecordState, reason: impl Into<String>) {
        self.row.state = state;
        self.row.reason = reason.into();
        self.lowered = None;
    }
}

/// The kernel's candidates, in order.
pub fn list(kernel: &KernelHandle, config: &Config) -> Vec<Candidate> {
    let one = |tunables: BTreeMap<String, Capture>| {
        let text = show_all(&tunables);
        let config = Config { tunables: tunables.clone(), ..config.clone() };
        let row = Row::new(&text, RecordState::Skipped, "not reached");
        Candidate {
            tunables,
            text,
            config,
            known: false,
            row,
            lowered: None,
            staged: Staged::default(),
            twin: None,
            compiled: None,
        }
    };
    kernel.candidate_list().into_iter().map(one).collect()
}

/// Whether there is something to find out about a candidate: it was not reached, or it failed for
/// what the arguments held or for memory that others had.
pub fn is_open(row: Option<&Row>) -> bool {
    let Some(row) = row else { return true };
    let code = row.reason.split(':').next().and_then(Code::parse);
    let transient = code.is_some_and(|c| c.kind() == Kind::Check || c == Code::E_OOM);
    row.state == RecordState::Skipped || row.state == RecordState::Failed && transient
}

/// Takes rows of an earlier search. What was measured then is measured again if it is the best, so
/// that new candidates are compared with it in the same rounds.
pub fn set_known(all: &mut [Candidate], record: &Record) {
    let names = all.iter().map(|c| c.text.as_str());
    let best = tessera_tune::choose(record, names, tessera_tune::Metric::Latency);
    for candidate in all {
        let Some(row) = record.rows.get(&candidate.text) else { continue };
        match row.state {
            _ if is_open(Some(row)) => {}
            RecordState::Skipped => {}
            RecordState::Started => {
                candidate.fall(RecordState::Failed, "a process ended while it ran this");
                continue;
            }
            RecordState::Pruned | RecordState::Failed | RecordState::Measured => {
                candidate.row = row.clone();
                candidate.known = best.as_ref().is_none_or(|b| b.config != candidate.text);
            }
        }
    }
}

impl Candidate {
    /// What it says of how a group runs.
    fn requested(&self) -> Requested {
        let int = |name: &str| match self.tunables.get(name) {
            Some(Capture::Int(n)) => i64::try_from(*n).ok(),
            _ => None,
        };
        Requested { warps: int("num_warps"), stages: int("num_stages") }
    }

    fn is_open(&self) -> bool {
        !self.known && self.row.state != RecordState::Failed
    }
}

/// What is known of a candidate after staging.
#[derive(Default)]
pub struct Staged {
    footprint: Option<Footprint>,
    planner: Option<Planner>,
}

/// A candidate that has been lowered, and what it will take.
type Looked = (Lowered, Staged);

/// Elaborates and lowers all candidates to consider, for arrays of these layouts, and predicts
/// their times.
pub fn lower(
    kernel: &KernelHandle,
    all: &mut [Candidate],
    choice: &Choice,
    mode: Mode,
    arrays: &Said,
) -> Result<(), Diagnostics> {
    let open: Vec<usize> = (0..all.len()).filter(|&i| all[i].is_open()).collect();
    let configs: Vec<Config> = open.iter().map(|&i| all[i].config.clone()).collect();
    let mut found: Vec<(usize, Result<Looked, Diagnostics>)> = Vec::new();
    let work = |config: &Config| {
        let lowered = specialise::lower(&kernel.kernel, config, choice, mode)?;
        let func = scheduled(&lowered.func, config, mode.off);
        let footprint = choice.backend.footprint(&func, mode.profile, arrays);
        let planner = Planner::of(&func, choice, mode);
        Ok((lowered, Staged { footprint, planner }))
    };
    let ended = parallel::each(
        &configs,
        || true,
        work,
        |place, result| {
            found.push((open[place], result));
        },
    );
    for (place, result) in found {
        match result {
            Ok((lowered, staged)) => {
                (all[place].lowered, all[place].staged) = (Some(lowered), staged);
            }
            Err(errors) => all[place].fall(RecordState::Failed, first_message(&errors)),
        }
    }
    ended
}

/// What cannot fit falls out, and the rest gets a prediction.
pub fn prune_and_predict(
    kernel: &KernelHandle,
    all: &mut [Candidate],
    bound: &Bound,
    choice: &Choice,
) -> Result<(), Diagnostics> {
    let judge = Judge::new(kernel, bound, choice)?;
    for candidate in all {
        let Some(lowered) = &candidate.lowered else { continue };
        let requested = candidate.requested();
        let predicted = judge.predict(&lowered.func, requested, &candidate.staged);
        candidate.row.predicted = predicted.map(|e| e.seconds);
        if let Some(why) = judge.refuse(&lowered.func, requested) {
            candidate.fall(RecordState::Pruned, why);
        }
    }
    Ok(())
}

/// What candidates for a call are judged by.
struct Judge<'a> {
    kernel: &'a KernelHandle,
    bound: &'a Bound,
    limits: Limits,
    speed: Speed,
    /// The alignment of the rows of each array, in bytes.
    rows_on: BTreeMap<String, u64>,
}

/// The layouts of the arrays of a call; arrays that do not exist yet get the usual one.
pub fn arrays(kernel: &KernelHandle, bound: &Bound) -> Said {
    let said = kernel.params.items.iter().zip(&bound.slots).filter_map(|(param, slot)| {
        let Slot::Array(array) = slot else { return None };
        Some((param.name.clone(), ArrayClass::of(&array.buffer)))
    });
    said.collect()
}

impl<'a> Judge<'a> {
    fn new(
        kernel: &'a KernelHandle,
        bound: &'a Bound,
        choice: &Choice,
    ) -> Result<Self, Diagnostics> {
        // Only GPUs have blocks with resources of their own; a processor's memory is one.
        let limits = choice.caps()?.gpu().map_or_else(Limits::default, Limits::of);
        let names = kernel.params.items.iter().map(|param| param.name.clone());
        let rows_on = names.zip(bound.slots.iter().map(slot_rows_on)).collect();
        Ok(Self { kernel, bound, limits, speed: machine::speed(choice)?, rows_on })
    }

    /// Why a candidate cannot be, if it cannot.
    fn refuse(&self, func: &TileFunc, requested: Requested) -> Option<String> {
        refuse(&need(func, requested, &self.limits), &self.limits)
    }

    fn predict(&self, func: &TileFunc, requested: Requested, staged: &Staged) -> Option<Estimate> {
        let stages = requested.stages.and_then(|n| u64::try_from(n).ok()).filter(|&n| n > 0);
        let on = |&p: &Value| func.name_of(p).and_then(|name| self.rows_on.get(name)).copied();
        let rows_on: Vec<u64> = func.params().iter().map(|p| on(p).unwrap_or(LINE)).collect();
        let launch = launch(func, &self.bound.sizes)?;
        let (rows_on, footprint) = (&rows_on, staged.footprint.as_ref());
        let known = Known { launch, rows_on, footprint, stages };
        let estimate = predict::predict(func, &known, &self.speed)?;
        let best = staged.planner.as_ref().and_then(|p| p.best(&self.args(func, &launch)?));
        Some(match best {
            Some(best) => Estimate { seconds: best.ways[0].seconds, ..estimate },
            None => estimate,
        })
    }

    /// The launch of a candidate, with arrays in the place of those that do not exist yet; none
    /// where it has arrays that the call does not give.
    fn args(&self, func: &TileFunc, launch: &tessera_cost::Launch<'_>) -> Option<LaunchArgs> {
        let one = |&p: &Value| {
            let name = func.name_of(p)?;
            let place = self.kernel.params.items.iter().position(|param| param.name == name)?;
            Some(match self.bound.slots.get(place)? {
                Slot::Array(array) => ArgValue::Buffer(array.buffer.clone()),
                Slot::Missing { dims, elem } => {
                    let (dims, dtype) = (stored(dims, *elem), elem.storage);
                    ArgValue::Buffer(BufferArg {
                        data: std::ptr::without_provenance_mut(LINE as usize),
                        strides: row_major(&dims, dtype),
                        dims,
                        dtype,
                        writable: true,
                    })
                }
                Slot::Scalar(_) | Slot::Static => ArgValue::Scalar(Scalar::zero(DType::F32)),
            })
        };
        let params = func.params().iter().map(one).collect::<Option<_>>()?;
        let (dims, lanes) = (launch.dims.clone(), launch.lanes);
        Some(LaunchArgs { params, dims, grid: launch.grid, domain: launch.domain, lanes })
    }
}

/// Finds candidates that differ in nothing the target sees. Where there are no threads to share
/// out, the schedule is nothing.
pub fn find_twins(all: &mut [Candidate], choice: &Choice, mode: Mode) {
    let mut first: BTreeMap<Hash128, usize> = BTreeMap::new();
    for (place, candidate) in all.iter_mut().enumerate() {
        let Some(lowered) = &candidate.lowered else { continue };
        let hash = if choice.is_on_device() {
            scheduled(&lowered.func, &candidate.config, mode.off).hash()
        } else {
            lowered.func.hash()
        };
        let original = *first.entry(hash).or_insert(place);
        if original != place {
            candidate.twin = Some(original);
            candidate.lowered = None;
        }
    }
}

/// Gives twins what became of the candidates that were measured for them.
pub fn share(all: &mut [Candidate]) {
    for place in 0..all.len() {
        let Some(twin) = all[place].twin else { continue };
        let (original, text) = (&all[twin], all[place].text.clone());
        if all[place].row.state == RecordState::Measured
            && original.row.state != RecordState::Measured
        {
            // An earlier search knows more.
            continue;
        }
        let mut row = Row { config: text, ..original.row.clone() };
        let rest = if row.reason.is_empty() { String::new() } else { format!(": {}", row.reason) };
        row.reason = format!("the same code as {}{rest}", original.text);
        all[place].row = row;
    }
}

/// The geometry of a launch with these sizes.
fn launch<'s>(func: &TileFunc, sizes: &'s Sizes) -> Option<tessera_cost::Launch<'s>> {
    let eval = |expr: &tessera_ir::DimExpr| sizes.eval(expr).ok();
    let by = lanes_or_default(func);
    let lanes = by.iter().product();
    let mut launch =
        tessera_cost::Launch { dims: &sizes.known, grid: [1; 3], domain: [0; 3], lanes };
    if kind_of(func) == Some(KernelKind::Lane) {
        let extents = tessera_tile::domain_of(func)?;
        let extents = extents.iter().map(eval).collect::<Option<Vec<_>>>()?;
        (launch.grid, launch.domain) = tessera_tile::lane_grid(&by, &extents);
    } else {
        let grid = func.attrs.get("grid").and_then(Attr::as_exprs)?;
        for (extent, expr) in launch.grid.iter_mut().zip(&grid) {
            *extent = eval(expr)?;
        }
    }
    Some(launch)
}

/// How many candidates the cost model considers before a first call: each is elaborated and
/// lowered.
const LOOKED_AT: usize = 64;

/// The candidates as the cost model ranks them, the fastest first; none where it cannot predict.
/// Impossible ones are left out, and those that it does not consider come last, in their own order.
pub fn ranked(
    kernel: &KernelHandle,
    bound: &Bound,
    choice: &Choice,
    mode: Mode,
) -> Result<Vec<Ranked>, Diagnostics> {
    let mut all = list(kernel, &bound.config);
    let looked = all.len().min(LOOKED_AT);
    // Sizes that reach no tile leave Tile IR as it is.
    let none = BTreeMap::new();
    let arrays = arrays(kernel, bound);
    let key = config::key(&bound.config, &none, &*choice.backend, mode, &arrays);
    let funcs = match kernel.tuning.lowered(key) {
        Some(funcs) => funcs,
        None => {
            lower(kernel, &mut all[..looked], choice, mode, &arrays)?;
            let one =
                |c: &mut Candidate| Some((c.lowered.take()?.func, std::mem::take(&mut c.staged)));
            kernel.tuning.keep_lowered(key, all[..looked].iter_mut().map(one).collect())
        }
    };
    let judge = Judge::new(kernel, bound, choice)?;
    let mut reported = Vec::new();
    for (place, candidate) in all.into_iter().enumerate() {
        let requested = candidate.requested();
        let estimate = match funcs.get(place) {
            Some(Some((func, staged))) if judge.refuse(func, requested).is_none() => {
                judge.predict(func, requested, staged)
            }
            Some(_) => continue,
            None => None,
        };
        reported.push(Ranked { tunables: candidate.tunables, estimate });
    }
    let predicted: Vec<Option<f64>> =
        reported.iter().map(|r| r.estimate.map(|e| e.seconds)).collect();
    if predicted.iter().all(Option::is_none) {
        return Ok(Vec::new());
    }
    Ok(rank::order(&predicted).into_iter().map(|place| reported[place].clone()).collect())
}

/// A candidate, and what the cost model says of it.
#[derive(Clone, Debug)]
pub struct Ranked {
    pub tunables: BTreeMap<String, Capture>,
    pub estimate: Option<Estimate>,
}

/// A candidate that is to be compiled, or was for an earlier call.
struct Job {
    config: Config,
    before: Option<Arc<Specialised>>,
    lowered: Mutex<Option<Lowered>>,
}

/// Compiles the best few, several at a time, for no longer than `budget`. The first that is legal
/// is always among them: it is what runs without tuning.
pub fn compile(
    kernel: &KernelHandle,
    all: &mut [Candidate],
    call: &Prepared,
    budget: Duration,
) -> Result<(), Diagnostics> {
    let start = Instant::now();
    let default = show_all(&call.spec.config.tunables);
    let mut ranked: Vec<usize> = {
        let predicted: Vec<Option<f64>> = all.iter().map(|c| c.row.predicted).collect();
        rank::order(&predicted)
    };
    ranked.retain(|&i| all[i].lowered.is_some());
    let count = ranked.len();
    // The default, then the best by prediction; an earlier winner is one of them.
    let first = |i: usize| all[i].text == default || all[i].row.state == RecordState::Measured;
    let (mut chosen, rest): (Vec<usize>, Vec<usize>) =
        ranked.iter().copied().partition(|&i| first(i));
    chosen.extend(&rest[..FEW.saturating_sub(chosen.len()).min(rest.len())]);
    for (rank, &place) in ranked.iter().enumerate() {
        if !chosen.contains(&place) {
            let why = format!("number {} of {count} by the cost model", rank + 1);
            all[place].fall(RecordState::Skipped, why);
        }
    }
    let (choice, mode) = (&call.spec.choice, call.spec.mode);
    let jobs: Vec<Job> = chosen
        .iter()
        .map(|&place| {
            let Candidate { config, tunables, text, .. } = &all[place];
            let before = (*text == default)
                .then(|| call.spec.clone())
                .or_else(|| kernel.compiled_before(&call.bound.config, tunables, choice, mode));
            Job { config: config.clone(), before, lowered: Mutex::new(all[place].lowered.take()) }
        })
        .collect();
    let (queue, arrays) = (call.queue(), call.bound.arrays_on(call.location, choice));
    let work = |Job { config, before, lowered }: &Job| {
        let mut lowered = lowered.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        let made = match (before, lowered.take()) {
            (Some(spec), _) => Some(spec.clone()),
            (None, Some(l)) => {
                let spec = l.compile(config, choice, mode, &Said::new(), &arrays)?;
                Some(Arc::new(spec))
            }
            (None, None) => None,
        };
        if let Some((spec, queue)) = made.as_ref().zip(queue) {
            // A device's assembler runs when code is loaded: that too is done several at a time.
            // The first launch reports its errors.
            let ready = kernel.ready(call.clone().with(spec.clone(), true))?;
            let _ = spec.artifact.settle(&ready.args, queue);
        }
        Ok((made, start.elapsed()))
    };
    let (mut done, mut stopped) = (0, false);
    let ended = parallel::each(
        &jobs,
        || start.elapsed() <= budget,
        work,
        |at, result| {
            done += 1;
            let part = done as f64 / jobs.len() as f64;
            let (phase, left) = (Phase::Compiling, jobs.len() - done);
            stopped |=
                !hook::tell(&Moment { kernel: kernel.name(), phase, part, left, best: None });
            let candidate = &mut all[chosen[at]];
            match result {
                Ok((Some(spec), took)) => {
                    candidate.row.compile_seconds = Some(took.as_secs_f64());
                    candidate.compiled = Some(Ready { spec, is_new: true });
                }
                Ok((None, _)) => {}
                Err(errors) => candidate.fall(RecordState::Failed, first_message(&errors)),
            }
        },
    );
    let mut left = false;
    for &place in &chosen {
        let candidate = &mut all[place];
        if candidate.compiled.is_none() && candidate.row.state == RecordState::Skipped {
            candidate.row.reason = "the budget was spent before it was compiled".into();
            left = true;
        }
    }
    // However small the budget, what runs anyway can be measured.
    if left && let Some(candidate) = all.iter_mut().find(|c| c.text == default) {
        candidate.compiled.get_or_insert(Ready { spec: call.spec.clone(), is_new: false });
    }
    if stopped { Err(interruption().into()) } else { ended }
}
