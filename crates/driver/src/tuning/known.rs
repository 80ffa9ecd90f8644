//! What a process knows of the candidates of a kernel.

use super::TuneOptions;
use super::candidates::{Ranked, Staged};
use crate::config::show_all;
use crate::kernel::KernelHandle;
use crate::{cache, knobs};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_frontend::Capture;
use tessera_support::{ForkLock, Hash128};
use tessera_tile::TileFunc;
use tessera_tune::{Chosen, Metric, Record, RecordState, Store, choose, plot, report};

/// A kernel's tuning: how, and what it brought.
#[derive(Default)]
pub(crate) struct Tuning {
    pub options: TuneOptions,
    known: ForkLock<Known>,
}

#[derive(Default)]
struct Known {
    by_key: BTreeMap<Hash128, Arc<Tuned>>,
    /// In the order they came to be known.
    order: Vec<Hash128>,
    /// The candidates of a configuration as Tile IR, as far as they are legal, and what each will take.
    lowered: BTreeMap<Hash128, Lowered>,
}

type Lowered = Arc<Vec<Option<(TileFunc, Staged)>>>;

/// Configurations whose candidates are kept; all are dropped where there are more.
const HELD: usize = 16;

/// Where a record is from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Nothing,
    Stored,
    Measured,
}

/// What is known for one kind of call.
pub(crate) struct Tuned {
    pub record: Record,
    /// The kernel's candidates as texts, in order.
    pub order: Vec<String>,
    pub metric: Metric,
    pub chosen: Option<Chosen>,
    pub tunables: Option<BTreeMap<String, Capture>>,
    pub source: Source,
    /// The candidates in the order of the cost model, where nothing was measured and it may choose.
    pub predicted: Vec<Ranked>,
    /// Whether there is nothing more to find out by measuring.
    pub tried: bool,
}

impl Tuned {
    pub fn new(record: Record, kernel: &KernelHandle, source: Source) -> Self {
        let candidates = kernel.candidate_list();
        let order: Vec<String> = candidates.iter().map(show_all).collect();
        let metric = kernel.tuning.options.metric;
        let chosen = choose(&record, order.iter().map(String::as_str), metric);
        let place = chosen.as_ref().and_then(|c| order.iter().position(|o| *o == c.config));
        let tunables = place.map(|place| candidates[place].clone());
        let tried = source == Source::Measured || chosen.is_some();
        Self { record, order, metric, chosen, tunables, source, predicted: Vec::new(), tried }
    }
}

impl Tuning {
    pub fn new(options: TuneOptions) -> Self {
        Self { options, known: ForkLock::default() }
    }

    pub fn get(&self, key: Hash128) -> Option<Arc<Tuned>> {
        self.known.lock().by_key.get(&key).cloned()
    }

    pub fn put(&self, key: Hash128, tuned: Tuned) -> Arc<Tuned> {
        let tuned = Arc::new(tuned);
        let mut known = self.known.lock();
        known.by_key.insert(key, tuned.clone());
        known.order.retain(|k| *k != key);
        known.order.push(key);
        tuned
    }

    pub fn lowered(&self, key: Hash128) -> Option<Lowered> {
        self.known.lock().lowered.get(&key).cloned()
    }

    pub fn keep_lowered(&self, key: Hash128, funcs: Vec<Option<(TileFunc, Staged)>>) -> Lowered {
        let funcs = Arc::new(funcs);
        let held = &mut self.known.lock().lowered;
        if held.len() >= HELD {
            held.clear();
        }
        held.insert(key, funcs.clone());
        funcs
    }

    pub fn clear(&self) {
        *self.known.lock() = Known::default();
    }

    /// What a configuration was chosen by, the latest first.
    pub fn find(&self, tunables: &BTreeMap<String, Capture>) -> Option<Arc<Tuned>> {
        let known = self.known.lock();
        let mut latest = known.order.iter().rev().filter_map(|key| known.by_key.get(key));
        let is_of = |t: &Tuned| match &t.tunables {
            Some(chosen) => chosen == tunables,
            None => t.predicted.iter().any(|r| r.tunables == *tunables),
        };
        latest.find(|t| is_of(t)).cloned()
    }

    pub fn reports(&self) -> Vec<Report> {
        let known = self.known.lock();
        let all = known.order.iter().filter_map(|key| known.by_key.get(key));
        all.filter(|t| !t.record.rows.is_empty()).map(|t| Report::new(t)).collect()
    }
}

impl KernelHandle {
    /// Where records are kept; nowhere if the environment says so.
    pub(super) fn store(&self) -> Option<Store> {
        if let Some(dir) = &self.tuning.options.dir {
            return Some(Store::new(dir, cache::trust_of_named()?));
        }
        if knobs::CACHE.is_off() { None } else { store() }
    }
}

/// The records of all kernels.
pub fn store() -> Option<Store> {
    let (dir, trust) = cache::trusted()?;
    Some(Store::new(&dir.join("tuning"), trust))
}

/// A row of a report: the candidate, its state, its time in seconds, and the reason for the state.
pub struct ReportRow {
    pub config: String,
    pub state: RecordState,
    pub seconds: Option<f64>,
    pub samples: Vec<f64>,
    pub predicted: Option<f64>,
    pub reason: String,
    pub resources: BTreeMap<String, String>,
}

/// A record for people and programs.
pub struct Report {
    pub text: String,
    pub svg: String,
    /// The record itself.
    pub json: String,
    pub chosen: Option<String>,
    pub source: Source,
    pub rows: Vec<ReportRow>,
}

impl Report {
    fn new(tuned: &Tuned) -> Self {
        let Tuned { record, order, metric, chosen, source, .. } = tuned;
        let row = |row: &tessera_tune::Row| ReportRow {
            config: row.config.clone(),
            state: row.state,
            seconds: metric.of(row),
            samples: row.samples.clone(),
            predicted: row.predicted,
            reason: row.reason.clone(),
            resources: row.resources.clone(),
        };
        Self {
            text: report::text(record, order, *metric, chosen.as_ref()),
            svg: plot::svg(record, order, *metric, chosen.as_ref()),
            json: record.text(),
            chosen: chosen.as_ref().map(|c| c.config.clone()),
            source: *source,
            rows: report::rows(record, order).into_iter().map(row).collect(),
        }
    }
}
