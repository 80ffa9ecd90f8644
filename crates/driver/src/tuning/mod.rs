//! Autotuning of kernels: which candidate a call runs, by records of earlier measurements, and
//! measuring where that is requested. `tessera-tune` has the search and the records; this module
//! compiles and runs candidates.
//!
//! A call looks its kind up in the records of this process, then in those on disk. Without a
//! record, the candidate that the cost model ranks first runs, or the first legal one where the
//! model may not choose, unless the call is to measure by itself.

mod candidates;
mod hook;
mod known;
mod machine;
mod memory;
mod parallel;
mod records;
mod runner;
mod subject;

use crate::backends::Choice;
use crate::bind::Bound;
use crate::config;
use crate::device;
use crate::kernel::KernelHandle;
use crate::knobs;
use crate::launch::Prepared;
use crate::location::Location;
use crate::mode::{Form, GridFrom, Mode};
use crate::params::{Kind, Params, show_dim};
use crate::specialise::{Specialised, is_passed_over};
use candidates::{Candidate, Ranked};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_numerics::Profile;
use tessera_target::arrays::Said;
pub use tessera_tune::Metric;
use tessera_tune::search::search;
use tessera_tune::{Record, RecordState, Row};

pub use hook::{Moment as TuneMoment, Phase as TunePhase, set_progress};
pub use known::{Report as TuningReport, ReportRow as TuningRow, Source as TuningSource};
pub(crate) use known::{Tuned, Tuning};
pub(crate) use machine::speed as speed_of;
pub use records::{clear, export, import, list, merge};

/// How a kernel is tuned, as its decorator says.
#[derive(Clone, Debug, Default)]
pub struct TuneOptions {
    /// The dims and integers that a choice depends on; all dims where it is not said.
    pub key: Option<Vec<String>>,
    /// If given, a call whose kind has no record measures by itself, for about this long.
    pub budget: Option<Duration>,
    pub metric: Metric,
    /// Where its records are kept, if not with all others.
    pub dir: Option<PathBuf>,
}

/// What `k.tune(...)` requests.
#[derive(Clone, Debug, Default)]
pub struct TuneAsk {
    pub budget: Option<Duration>,
    /// Measures again what has been measured.
    pub force: bool,
}

/// The default budget of a search, compilation included.
const BUDGET: Duration = Duration::from_secs(10);
/// The least part of the budget that is for measuring.
const MEASURING: f64 = 0.4;

impl KernelHandle {
    /// The code for a call: of the candidate that its record chooses, else of the first legal one.
    /// Also says whether the call is to measure first.
    pub(crate) fn choose(
        &self,
        bound: &Bound,
        location: Location,
        choice: &Choice,
        mode: Mode,
    ) -> Result<(Arc<Specialised>, bool, bool), Diagnostics> {
        let none = BTreeMap::new();
        let call = bound.call_on(location, choice);
        let tuned = self.tuned(bound, location, choice, mode)?;
        let pinned = tuned.as_deref().and_then(|t| t.tunables.as_ref());
        if let Some(pinned) = pinned {
            match self.specialise(&bound.config, pinned, choice, mode, &Said::new(), call) {
                Ok((spec, hit)) => return Ok((spec, hit, false)),
                // A record from another machine may name a candidate that is impossible here.
                Err(errors) if is_passed_over(&errors) => {}
                Err(errors) => return Err(errors),
            }
        }
        let predicted = tuned.as_deref().map_or(&[][..], |t| &t.predicted);
        let (spec, hit) = match self.predicted(predicted, bound, location, choice, mode)? {
            Some(found) => found,
            None => self.specialise(&bound.config, &none, choice, mode, &Said::new(), call)?,
        };
        let measure = tuned.is_some_and(|t| !t.tried) && self.measures_by_itself(mode.profile);
        Ok((spec, hit, measure && !device::is_recording()))
    }

    /// The code of the candidate that the cost model puts first, of those that can be compiled.
    fn predicted(
        &self,
        ranked: &[Ranked],
        bound: &Bound,
        location: Location,
        choice: &Choice,
        mode: Mode,
    ) -> Result<Option<(Arc<Specialised>, bool)>, Diagnostics> {
        let call = bound.call_on(location, choice);
        for Ranked { tunables, .. } in ranked {
            match self.specialise(&bound.config, tunables, choice, mode, &Said::new(), call) {
                Ok(found) => return Ok(Some(found)),
                Err(errors) if is_passed_over(&errors) => {}
                Err(errors) => return Err(errors),
            }
        }
        Ok(None)
    }

    /// Whether the cost model may choose where nothing was measured: it knows GPUs, and another build may choose
    /// otherwise, which only the default profile allows.
    fn may_predict(&self, choice: &Choice, mode: Mode) -> bool {
        mode.profile == Profile::Default && choice.is_on_device()
    }

    fn measures_by_itself(&self, profile: Profile) -> bool {
        let requested = self.tuning.options.budget.is_some() && !knobs::TUNE.is_off();
        profile == Profile::Default && (requested || knobs::TUNE.is_on())
    }

    /// Whether candidates may be chosen from: under `strict` the first is taken (LANGUAGE 14), and
    /// a caller's grid was made for it too.
    fn may_choose(&self, mode: Mode) -> bool {
        self.has_candidates()
            && mode.profile != Profile::Strict
            && mode.grid == GridFrom::Kernel
            && mode.form == Form::Lowered
    }

    /// What is known for calls of this kind; none where there is nothing to choose.
    fn tuned(
        &self,
        bound: &Bound,
        location: Location,
        choice: &Choice,
        mode: Mode,
    ) -> Result<Option<Arc<Tuned>>, Diagnostics> {
        if !self.may_choose(mode) {
            return Ok(None);
        }
        let key = subject::quick(self, bound, location, choice, mode)?;
        if let Some(found) = self.tuning.get(key) {
            return Ok(Some(found));
        }
        let subject = subject::of(self, bound, location, choice, mode)?;
        let found = match self.store() {
            Some(store) => store.get(&subject),
            None => Ok(None),
        };
        // A record that is damaged or not trusted is ignored; the next measurement overwrites it.
        let found = found.unwrap_or_else(|why| {
            let help = "nothing need be done: measuring writes another";
            self.warn(Diagnostic::new(Code::W_CACHE_IO, why).help(help));
            None
        });
        let source = if found.is_some() { known::Source::Stored } else { known::Source::Nothing };
        let record = found.unwrap_or_else(|| Record::new(subject));
        let mut tuned = Tuned::new(record, self, source);
        if tuned.tunables.is_none() && self.may_predict(choice, mode) {
            tuned.predicted = candidates::ranked(self, bound, choice, mode)?;
        }
        Ok(Some(self.tuning.put(key, tuned)))
    }

    /// A call with the code that measuring finds best, where it is one that measures by itself.
    pub(crate) fn after_tuning(&self, call: Prepared) -> Result<Prepared, Diagnostics> {
        if !call.measure || call.checked {
            return Ok(call);
        }
        match self.tune(&call, &TuneAsk::default()) {
            Ok(()) => {}
            Err(errors) if tessera_target::is_interrupt(&errors) => return Err(errors),
            // The call itself says what is wrong, or runs.
            Err(_) => {}
        }
        let Prepared { bound, location, spec, .. } = &call;
        let (spec, cache_hit, _) = self.choose(bound, *location, &spec.choice, spec.mode)?;
        Ok(call.with(spec, cache_hit))
    }

    /// Measures the candidates for calls like this one, and keeps what it finds. The arrays of the
    /// call are read; what candidates write goes into copies.
    pub fn tune(&self, call: &Prepared, ask: &TuneAsk) -> Result<(), Diagnostics> {
        let (choice, mode) = (call.spec.choice.clone(), call.spec.mode);
        self.refuse_tuning(call, mode)?;
        let start = Instant::now();
        let budget = ask.budget.or(self.tuning.options.budget).unwrap_or(BUDGET);
        let key = subject::quick(self, &call.bound, call.location, &choice, mode)?;
        let before = self.tuned(&call.bound, call.location, &choice, mode)?;
        let subject = match &before {
            Some(tuned) => tuned.record.subject.clone(),
            None => subject::of(self, &call.bound, call.location, &choice, mode)?,
        };
        // Another process may have measured since.
        let kept = self.store().and_then(|store| store.get(&subject).ok().flatten());
        let mut record = before.map_or_else(|| Record::new(subject.clone()), |t| t.record.clone());
        if let Some(kept) = kept {
            record.merge(kept);
        }
        let mut all = candidates::list(self, &call.bound.config);
        let names: Vec<String> = all.iter().map(|c| c.text.clone()).collect();
        if ask.force {
            record.rows.clear();
        } else if !names.iter().any(|name| candidates::is_open(record.rows.get(name))) {
            let tuned = self.tuning.put(key, Tuned::new(record, self, known::Source::Stored));
            return self.measured_something(&tuned, &names);
        }
        candidates::set_known(&mut all, &record);
        let mut fresh = Record::new(subject);
        let outcome = self.search(call, all, &mut fresh, (start, budget));
        // What was found is kept, however the search ended.
        let whole = self.keep(fresh, record);
        let tuned = self.tuning.put(key, Tuned::new(whole, self, known::Source::Measured));
        drop(self.replays().take());
        outcome?;
        self.measured_something(&tuned, &names)
    }

    fn refuse_tuning(&self, call: &Prepared, mode: Mode) -> Result<(), Diagnostics> {
        let (message, help) = if self.candidate_list().len() < 2 {
            (
                format!(
                    "expected a kernel with several candidates, got `{}` with one",
                    self.name()
                ),
                "give it some: `@ts.kernel.autotune(space=dict(BM=[64, 128]))`",
            )
        } else if mode.profile == Profile::Strict {
            (
                "expected another profile than strict, which always takes the first candidate"
                    .into(),
                "tune in the profile that the calls run in",
            )
        } else if mode.grid != GridFrom::Kernel {
            (
                "expected the kernel's own grid, got one of the caller, which fits one candidate"
                    .into(),
                "leave the grid to the kernel",
            )
        } else if call.checked {
            ("expected launches that are not checked: TESSERA_CHECK is set".into(), "unset it")
        } else if device::is_recording() {
            (
                "expected no recording, got one in progress: measuring waits".into(),
                "tune before it begins",
            )
        } else {
            return Ok(());
        };
        let error = Diagnostic::new(Code::E_ARGUMENT, message).at(self.params.loc.clone());
        Err(error.help(help).into())
    }

    /// Prunes, ranks, compiles and measures. Every candidate gets a row in `record`.
    fn search(
        &self,
        call: &Prepared,
        mut all: Vec<Candidate>,
        record: &mut Record,
        (start, budget): (Instant, Duration),
    ) -> Result<(), Diagnostics> {
        let spec = &call.spec;
        let arrays = candidates::arrays(self, &call.bound);
        let lowered = candidates::lower(self, &mut all, &spec.choice, spec.mode, &arrays);
        candidates::prune_and_predict(self, &mut all, &call.bound, &spec.choice)?;
        candidates::find_twins(&mut all, &spec.choice, spec.mode);
        let compiling = budget.mul_f64(1.0 - MEASURING).saturating_sub(start.elapsed());
        let compiled = lowered.and_then(|()| candidates::compile(self, &mut all, call, compiling));
        let measured = compiled.and_then(|()| {
            let left = budget.saturating_sub(start.elapsed()).max(budget.mul_f64(MEASURING));
            self.measure(call, &mut all, left)
        });
        candidates::share(&mut all);
        for candidate in all.into_iter().filter(|c| !c.known) {
            if let Some(compiled) = candidate.compiled.as_ref().filter(|c| c.is_new) {
                self.keep_compiled(&call.bound.config, &compiled.spec);
            }
            record.set(candidate.row);
        }
        measured
    }

    fn measure(
        &self,
        call: &Prepared,
        all: &mut [Candidate],
        budget: Duration,
    ) -> Result<(), Diagnostics> {
        let mut ready: Vec<usize> = (0..all.len()).filter(|&i| all[i].compiled.is_some()).collect();
        let key = |i: usize| all[i].row.predicted.unwrap_or(f64::INFINITY);
        ready.sort_by(|&a, &b| key(a).total_cmp(&key(b)).then(a.cmp(&b)));
        let mut runner = runner::Runner::new(self, call, all, &ready)?;
        let found = search(&mut runner, ready.len(), budget);
        let provenance = runner.provenance();
        drop(runner);
        for (&place, outcome) in ready.iter().zip(found.outcomes) {
            let candidate = &mut all[place];
            let row = &mut candidate.row;
            if !outcome.failed && outcome.samples.is_empty() && row.state == RecordState::Measured {
                // It was not reached again, and what it was measured at before still holds.
                candidate.known = true;
                continue;
            }
            row.state = match (outcome.failed, outcome.samples.is_empty()) {
                (true, _) => RecordState::Failed,
                (false, true) => RecordState::Skipped,
                (false, false) => RecordState::Measured,
            };
            row.samples = outcome.samples;
            row.reason = outcome.reason;
            row.provenance.clone_from(&provenance);
            if let Some(compiled) = &candidate.compiled {
                let figures = compiled.spec.artifact.resources().into_iter();
                row.resources = figures.map(|(name, value)| (name.to_string(), value)).collect();
            }
            // One that was measured before is measured again beside the new ones.
            candidate.known = false;
        }
        if !hook::done(self.name()) || found.interrupted {
            return Err(tessera_target::interruption().into());
        }
        match found.lost {
            Some(why) => {
                let message = format!("the device was lost while `{}` was tuned", self.name());
                let error = Diagnostic::new(Code::E_TUNE_MEASURE_FAIL, message);
                let help = "begin a new process: it leaves out the candidate that did it";
                Err(error.at(self.params.loc.clone()).note(why).help(help).into())
            }
            None => Ok(()),
        }
    }

    /// Puts new rows in the place of old ones, here and on disk.
    fn keep(&self, fresh: Record, mut whole: Record) -> Record {
        for row in fresh.rows.values() {
            whole.set(row.clone());
        }
        let Some(store) = self.store() else { return whole };
        match store.add(fresh, true) {
            Ok(kept) => {
                whole.merge(kept);
            }
            Err(why) => self.warn(
                Diagnostic::new(Code::W_CACHE_IO, why)
                    .help("what was measured holds for this process only"),
            ),
        }
        whole
    }

    fn measured_something(&self, tuned: &Tuned, names: &[String]) -> Result<(), Diagnostics> {
        if tuned.chosen.is_some() {
            return Ok(());
        }
        let count = names.len();
        let message =
            format!("none of the {count} candidates of `{}` could be measured", self.name());
        let mut error = Diagnostic::new(Code::E_TUNE_MEASURE_FAIL, message);
        error = error.at(self.params.loc.clone());
        for row in tessera_tune::report::rows(&tuned.record, names) {
            error = error.note(format!("{}: {}", row.config, why(row)));
        }
        let help = "call the kernel with the same arguments: the first candidate's error says more";
        Err(error.help(help).into())
    }

    /// What was measured or found, latest last.
    pub fn tuning_reports(&self) -> Vec<TuningReport> {
        self.tuning.reports()
    }

    /// What the choice of a configuration rests on, for `.explain()`.
    pub(crate) fn chosen_by(&self, spec: &Specialised) -> Option<String> {
        let tuned = self.tuning.find(&spec.config.tunables)?;
        let Some(chosen) = tuned.chosen.as_ref() else {
            return predicted_by(&tuned.predicted, &spec.config.tunables);
        };
        let time = tessera_tune::report::time(chosen.seconds);
        let whence = match tuned.source {
            known::Source::Stored => "by a record",
            known::Source::Measured | known::Source::Nothing => "measured by this process",
        };
        Some(format!("{} at {time}, {whence}", config::show_all(&spec.config.tunables)))
    }
}

/// What a decorator names must be something that calls give.
pub(crate) fn check_key(params: &Params, tuning: &Tuning) -> Result<(), Diagnostics> {
    let mut known: Vec<String> =
        params.dims().map(show_dim).filter(|d| d.parse::<i64>().is_err()).collect();
    let integers = params.items.iter().filter(|p| matches!(p.kind, Kind::Scalar(t) if t.is_int()));
    known.extend(integers.map(|p| p.name.clone()));
    known.sort_unstable();
    known.dedup();
    let mut errors = Diagnostics::new();
    for name in tuning.options.key.iter().flatten().filter(|name| !known.contains(name)) {
        let message =
            format!("expected dims in `key=` (some of {}), got `{name}`", known.join(", "));
        let help =
            "name dims and integer parameters of the kernel, or leave out `key=` for all dims";
        errors.push(Diagnostic::new(Code::E_ARGUMENT, message).at(params.loc.clone()).help(help));
    }
    errors.into_result().map(|_| ())
}

/// How many of the other candidates the text names.
const RUNNERS_UP: usize = 3;

/// `BM=128 predicted at 12.0 us (arithmetic), by the cost model; then BM=64 at 13.1 us, …`.
fn predicted_by(
    ranked: &[Ranked],
    chosen: &BTreeMap<String, tessera_frontend::Capture>,
) -> Option<String> {
    let at = |r: &Ranked| {
        let estimate = r.estimate?;
        let time = tessera_tune::report::time(estimate.seconds);
        let short = match estimate.spilled {
            0 => String::new(),
            n => format!(" (its tiles are {n} registers of a thread too many)"),
        };
        Some(format!("{} at {time}{short}", config::show_all(&r.tunables)))
    };
    let one = ranked.iter().find(|r| r.tunables == *chosen)?;
    let estimate = one.estimate?;
    let time = tessera_tune::report::time(estimate.seconds);
    let mut out = format!("{} predicted at {time}", config::show_all(chosen));
    out.push_str(&format!(" (mostly {}), by the cost model", estimate.limit()));
    let others = ranked.iter().filter(|r| r.tunables != *chosen).filter_map(at);
    let others: Vec<String> = others.take(RUNNERS_UP).collect();
    if !others.is_empty() {
        out.push_str(&format!("; then {}", others.join(", ")));
    }
    Some(out)
}

fn why(row: &Row) -> String {
    if row.reason.is_empty() { row.state.name().into() } else { row.reason.clone() }
}
