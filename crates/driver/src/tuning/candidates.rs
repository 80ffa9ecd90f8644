//! The candidates of a search on their way: lowered, pruned, ranked, compiled. One that falls out
//! has a row with the reason.

use super::hook::{self, Moment, Phase};
use super::{machine, parallel};
use crate::backends::Choice;
use crate::config::show_all;
use crate::dims::Sizes;
use crate::kernel::KernelHandle;
use crate::launch::Prepared;
use crate::mode::Mode;
use crate::specialise::{self, DEFAULT_LANES, Lowered, Specialised, first_message, scheduled};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tessera_diag::{Code, Diagnostics, Kind};
use tessera_frontend::{Capture, Config};
use tessera_ir::Attr;
use tessera_support::Hash128;
use tessera_target::arrays::Said;
use tessera_target::interruption;
use tessera_tile::{KernelKind, TileFunc, kind_of};
use tessera_tune::resource::{Asked, Limits, largest_tile, need, refuse};
use tessera_tune::{Record, Row, State, rank};

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
    fn fall(&mut self, state: State, reason: impl Into<String>) {
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
        let row = Row::new(&text, State::Skipped, "not reached");
        Candidate {
            tunables,
            text,
            config,
            known: false,
            row,
            lowered: None,
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
    row.state == State::Skipped || row.state == State::Failed && transient
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
            State::Skipped => {}
            State::Started => {
                candidate.fall(State::Failed, "a process ended while it ran this");
                continue;
            }
            State::Pruned | State::Failed | State::Measured => {
                candidate.row = row.clone();
                candidate.known = best.as_ref().is_none_or(|b| b.config != candidate.text);
            }
        }
    }
}

impl Candidate {
    /// What it says of how a group runs.
    fn asked(&self) -> Asked {
        let int = |name: &str| match self.tunables.get(name) {
            Some(Capture::Int(n)) => Some(*n),
            _ => None,
        };
        Asked { warps: int("num_warps"), stages: int("num_stages") }
    }

    fn is_open(&self) -> bool {
        !self.known && self.row.state != State::Failed
    }
}

/// Elaborates and lowers all that are to be looked at.
pub fn lower(
    kernel: &KernelHandle,
    all: &mut [Candidate],
    choice: &Choice,
    mode: Mode,
) -> Result<(), Diagnostics> {
    let open: Vec<usize> = (0..all.len()).filter(|&i| all[i].is_open()).collect();
    let configs: Vec<Config> = open.iter().map(|&i| all[i].config.clone()).collect();
    let mut found: Vec<(usize, Result<Lowered, Diagnostics>)> = Vec::new();
    let work = |config: &Config| specialise::lower(&kernel.kernel, config, choice, mode);
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
            Ok(lowered) => all[place].lowered = Some(lowered),
            Err(errors) => all[place].fall(State::Failed, first_message(&errors)),
        }
    }
    ended
}

/// What cannot fit falls out, and the rest gets a prediction.
pub fn prune_and_predict(
    kernel: &KernelHandle,
    all: &mut [Candidate],
    call: &Prepared,
) -> Result<(), Diagnostics> {
    let choice = &call.spec.choice;
    // Only GPUs have blocks with resources of their own; a processor's memory is one.
    let limits = if choice.is_cuda() { Limits::of(&choice.caps()?) } else { Limits::default() };
    let device = machine::device(choice, call.location)?;
    for candidate in all {
        let Some(lowered) = &candidate.lowered else { continue };
        let refused = refuse(&need(&lowered.func, candidate.asked(), &limits), &limits);
        let predicted = predict(kernel, &lowered.func, &call.bound.sizes, device.as_ref());
        candidate.row.predicted = predicted;
        if let Some(why) = refused {
            candidate.fall(State::Pruned, why);
        }
    }
    Ok(())
}

/// Finds candidates that differ in nothing the target sees. Where there are no threads to share
/// out, the schedule is nothing.
pub fn find_twins(all: &mut [Candidate], choice: &Choice, mode: Mode) {
    let mut first: BTreeMap<Hash128, usize> = BTreeMap::new();
    for (place, candidate) in all.iter_mut().enumerate() {
        let Some(lowered) = &candidate.lowered else { continue };
        let hash = if choice.is_cuda() {
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
        if all[place].row.state == State::Measured && original.row.state != State::Measured {
            // An earlier search knows more.
            continue;
        }
        let mut row = Row { config: text, ..original.row.clone() };
        let rest = if row.reason.is_empty() { String::new() } else { format!(": {}", row.reason) };
        row.reason = format!("the same code as {}{rest}", original.text);
        all[place].row = row;
    }
}

fn predict(
    kernel: &KernelHandle,
    func: &TileFunc,
    sizes: &Sizes,
    device: Option<&crate::gpu::DeviceRow>,
) -> Option<f64> {
    let eval = |expr: &tessera_ir::DimExpr| sizes.eval(expr).ok();
    let lanes = kernel.kernel.decl().lanes.unwrap_or(DEFAULT_LANES);
    let mut launch = tessera_cost::Launch { dims: &sizes.known, grid: [1; 3], domain: 0, lanes };
    if kind_of(func) == Some(KernelKind::Lane) {
        launch.domain = func.attrs.get("domain").and_then(Attr::as_expr).as_ref().and_then(eval)?;
        launch.grid[0] = launch.domain.div_euclid(lanes) + i64::from(launch.domain % lanes != 0);
    } else {
        let grid = func.attrs.get("grid").and_then(Attr::as_exprs)?;
        for (extent, expr) in launch.grid.iter_mut().zip(&grid) {
            *extent = eval(expr)?;
        }
    }
    let groups = launch.grid.iter().map(|&n| n.max(0) as u64).fold(1, u64::saturating_mul);
    let work = tessera_cost::work(func, &launch).ok()?;
    Some(rank::predict(&work, groups, largest_tile(func), &machine::figures(func, device).ok()?))
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
    let first = |i: usize| all[i].text == default || all[i].row.state == State::Measured;
    let (mut chosen, rest): (Vec<usize>, Vec<usize>) =
        ranked.iter().copied().partition(|&i| first(i));
    chosen.extend(&rest[..FEW.saturating_sub(chosen.len()).min(rest.len())]);
    for (rank, &place) in ranked.iter().enumerate() {
        if !chosen.contains(&place) {
            let why = format!("number {} of {count} by the cost model", rank + 1);
            all[place].fall(State::Skipped, why);
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
    let queue = call.queue();
    let work = |Job { config, before, lowered }: &Job| {
        let mut lowered = lowered.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        let made = match (before, lowered.take()) {
            (Some(spec), _) => Some(spec.clone()),
            (None, Some(l)) => Some(Arc::new(l.compile(config, choice, mode, &Said::new())?)),
            (None, None) => None,
        };
        if let Some((spec, queue)) = made.as_ref().zip(queue) {
            // A device's assembler runs when code is loaded: that too is done several at a time.
            // What is wrong with it the first launch tells.
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
                Err(errors) => candidate.fall(State::Failed, first_message(&errors)),
            }
        },
    );
    let mut left = false;
    for &place in &chosen {
        let candidate = &mut all[place];
        if candidate.compiled.is_none() && candidate.row.state == State::Skipped {
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
