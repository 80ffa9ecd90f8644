//! What is known of the candidates of one kernel, for one kind of call, on one kind of device.

use crate::json::Json;
use crate::stats;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use tessera_support::{Hash128, StableHasher};

/// The form of the text. One of another form is not read.
const FORMAT: f64 = 1.0;

/// What a record is of. Two calls with equal subjects run the same code at the same speed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub kernel: String,
    /// The hash of the source with all it captures.
    pub source: String,
    /// The build of the compiler.
    pub compiler: String,
    pub backend: String,
    /// The architecture or instruction set that code is made for.
    pub target: String,
    /// What runs it, as its maker calls it, with how many threads where that is chosen.
    pub device: String,
    pub profile: String,
    /// Sizes of dims by name.
    pub sizes: BTreeMap<String, i64>,
    /// Types of arguments by name.
    pub types: BTreeMap<String, String>,
    /// Compile-time arguments by name, as Python writes them.
    pub consts: BTreeMap<String, String>,
}

impl Subject {
    pub fn key(&self) -> Hash128 {
        let mut h = StableHasher::new();
        for text in self.texts() {
            h.write_str(text.1);
        }
        h.write_u64(self.sizes.len() as u64);
        for (name, size) in &self.sizes {
            h.write_str(name);
            h.write_u64(*size as u64);
        }
        for map in [&self.types, &self.consts] {
            h.write_u64(map.len() as u64);
            for (name, text) in map {
                h.write_str(name);
                h.write_str(text);
            }
        }
        h.finish()
    }

    fn texts(&self) -> [(&'static str, &String); 7] {
        [
            ("kernel", &self.kernel),
            ("source", &self.source),
            ("compiler", &self.compiler),
            ("backend", &self.backend),
            ("target", &self.target),
            ("device", &self.device),
            ("profile", &self.profile),
        ]
    }

    /// `M=64, N=64; A=f32`.
    pub fn about(&self) -> String {
        let sizes: Vec<_> = self.sizes.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let rest: Vec<_> =
            self.types.iter().chain(&self.consts).map(|(n, v)| format!("{n}={v}")).collect();
        [sizes.join(", "), rest.join(", ")]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("; ")
    }

    fn json(&self) -> Json {
        let texts = self.texts().into_iter();
        let mut fields: BTreeMap<String, Json> =
            texts.map(|(n, v)| (n.to_string(), Json::Text(v.clone()))).collect();
        let sizes = self.sizes.iter().map(|(n, v)| (n.clone(), Json::Text(v.to_string())));
        fields.insert("sizes".into(), Json::Object(sizes.collect()));
        fields.insert("types".into(), Json::texts(&self.types));
        fields.insert("consts".into(), Json::texts(&self.consts));
        Json::Object(fields)
    }

    fn of(json: &Json) -> Result<Self, String> {
        let text = |name: &str| text_field(json, name);
        let map = |name: &str| texts_field(json, name);
        let mut sizes = BTreeMap::new();
        for (name, size) in map("sizes")? {
            let size = size.parse().map_err(|_| format!("the size of `{name}` is no integer"))?;
            sizes.insert(name, size);
        }
        Ok(Self {
            kernel: text("kernel")?,
            source: text("source")?,
            compiler: text("compiler")?,
            backend: text("backend")?,
            target: text("target")?,
            device: text("device")?,
            profile: text("profile")?,
            sizes,
            types: map("types")?,
            consts: map("consts")?,
        })
    }
}

/// The state of a candidate. Later states carry more information, and win when records are merged.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordState {
    /// Not considered: ranked after others, or the budget was spent.
    Skipped,
    /// A measurement began and its end is not known: the process was lost with it.
    Started,
    /// Cannot fit the target by the model of its resources.
    Pruned,
    /// Could not be compiled or launched.
    Failed,
    Measured,
}

impl RecordState {
    pub const ALL: [RecordState; 5] = [
        RecordState::Skipped,
        RecordState::Started,
        RecordState::Pruned,
        RecordState::Failed,
        RecordState::Measured,
    ];

    pub fn name(self) -> &'static str {
        match self {
            RecordState::Skipped => "skipped",
            RecordState::Started => "started",
            RecordState::Pruned => "pruned",
            RecordState::Failed => "failed",
            RecordState::Measured => "measured",
        }
    }

    fn parse(text: &str) -> Option<RecordState> {
        Self::ALL.into_iter().find(|s| s.name() == text)
    }
}

/// One candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The tunables as Python writes them, by name: `BM=64, BN=128`.
    pub config: String,
    pub state: RecordState,
    /// Why it was not measured, or not to the end; empty otherwise.
    pub reason: String,
    /// Every sample in seconds, in order, outliers too.
    pub samples: Vec<f64>,
    /// What the cost model said, in seconds.
    pub predicted: Option<f64>,
    pub compile_seconds: Option<f64>,
    /// Figures of the compiled code.
    pub resources: BTreeMap<String, String>,
    /// Whose clock, and the versions around it: `clock`, `driver`.
    pub provenance: BTreeMap<String, String>,
}

impl Row {
    pub fn new(config: &str, state: RecordState, reason: impl Into<String>) -> Self {
        Self {
            config: config.into(),
            state,
            reason: reason.into(),
            samples: Vec::new(),
            predicted: None,
            compile_seconds: None,
            resources: BTreeMap::new(),
            provenance: BTreeMap::new(),
        }
    }

    /// The samples that count.
    pub fn kept(&self) -> Vec<f64> {
        stats::kept(&self.samples)
    }

    pub fn median(&self) -> Option<f64> {
        stats::median(&self.kept())
    }

    /// Which of two rows of one candidate says more: a total order, so that merging does not depend
    /// on what is merged into what.
    fn says(&self, other: &Row) -> Ordering {
        let median = |row: &Row| row.median().unwrap_or(f64::INFINITY);
        (self.state, self.samples.len())
            .cmp(&(other.state, other.samples.len()))
            .then(median(other).total_cmp(&median(self)))
            .then_with(|| other.json().pretty().cmp(&self.json().pretty()))
    }

    fn json(&self) -> Json {
        let number = |value: Option<f64>| value.map_or(Json::Null, Json::Number);
        Json::object([
            ("config", Json::Text(self.config.clone())),
            ("state", Json::Text(self.state.name().into())),
            ("reason", Json::Text(self.reason.clone())),
            ("samples_s", Json::List(self.samples.iter().map(|&s| Json::Number(s)).collect())),
            ("median_s", number(self.median())),
            ("predicted_s", number(self.predicted)),
            ("compile_s", number(self.compile_seconds)),
            ("resources", Json::texts(&self.resources)),
            ("provenance", Json::texts(&self.provenance)),
        ])
    }

    fn of(json: &Json) -> Result<Self, String> {
        let state = text_field(json, "state")?;
        let samples = json.get("samples_s").and_then(Json::as_list).ok_or("no `samples_s`")?;
        let samples: Option<Vec<f64>> = samples.iter().map(Json::as_number).collect();
        let samples = samples.filter(|all| all.iter().all(|s| *s >= 0.0));
        let number = |name: &str| json.get(name).and_then(Json::as_number);
        Ok(Self {
            config: text_field(json, "config")?,
            state: RecordState::parse(&state)
                .ok_or_else(|| format!("no state is called `{state}`"))?,
            reason: text_field(json, "reason")?,
            samples: samples.ok_or("`samples_s` has something else than times")?,
            predicted: number("predicted_s"),
            compile_seconds: number("compile_s"),
            resources: texts_field(json, "resources")?,
            provenance: texts_field(json, "provenance")?,
        })
    }
}

/// All candidates that were ever looked at, each with what is known of it. Which of them a kernel
/// still has is the kernel's to say: rows do not depend on the list they were once part of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    pub subject: Subject,
    /// By the text of the candidate.
    pub rows: BTreeMap<String, Row>,
}

impl Record {
    pub fn new(subject: Subject) -> Self {
        Self { subject, rows: BTreeMap::new() }
    }

    /// Replaces the row of a candidate.
    pub fn set(&mut self, row: Row) {
        self.rows.insert(row.config.clone(), row);
    }

    /// Takes in what another record of the same subject knows.
    pub fn merge(&mut self, other: Record) {
        for (config, row) in other.rows {
            match self.rows.get(&config) {
                Some(own) if own.says(&row).is_ge() => {}
                _ => self.set(row),
            }
        }
    }

    pub(crate) fn json(&self) -> Json {
        Json::object([
            ("format", Json::Number(FORMAT)),
            ("subject", self.subject.json()),
            ("rows", Json::List(self.rows.values().map(Row::json).collect())),
        ])
    }

    pub(crate) fn of(json: &Json) -> Result<Self, String> {
        let format = json.get("format").and_then(Json::as_number).ok_or("no `format`")?;
        if format != FORMAT {
            return Err(format!("expected format {FORMAT}, got {format}"));
        }
        let subject = Subject::of(json.get("subject").ok_or("no `subject`")?)?;
        let mut record = Record::new(subject);
        for row in json.get("rows").and_then(Json::as_list).ok_or("no `rows`")? {
            record.set(Row::of(row)?);
        }
        Ok(record)
    }

    pub fn text(&self) -> String {
        self.json().pretty()
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        Self::of(&Json::parse(text)?)
    }
}

fn text_field(json: &Json, name: &str) -> Result<String, String> {
    let found = json.get(name).and_then(Json::as_text);
    found.map(str::to_string).ok_or_else(|| format!("no text `{name}`"))
}

fn texts_field(json: &Json, name: &str) -> Result<BTreeMap<String, String>, String> {
    let fields = json.get(name).and_then(Json::as_object);
    let fields = fields.ok_or_else(|| format!("no `{name}`"))?;
    let one = |(name, value): (&String, &Json)| {
        value.as_text().map(|text| (name.clone(), text.to_string()))
    };
    fields
        .iter()
        .map(one)
        .collect::<Option<_>>()
        .ok_or_else(|| format!("`{name}` has something else than texts"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn subject() -> Subject {
        let sizes = [("M".to_string(), 64), ("N".into(), 128)].into();
        let types = [("A".to_string(), "f32".to_string())].into();
        let kernel = "gemm".into();
        let (backend, device) = ("cpu".into(), "a processor, 2 threads".into());
        Subject { kernel, sizes, types, backend, device, ..Subject::default() }
    }

    pub fn measured(config: &str, samples: &[f64]) -> Row {
        Row { samples: samples.to_vec(), ..Row::new(config, RecordState::Measured, "") }
    }

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        let row = (0..4usize, 0..5usize, prop::collection::vec(1e-6f64..1.0, 0..4));
        let row = row.prop_map(|(config, state, samples)| Row {
            samples,
            ..Row::new(&format!("BM={config}"), RecordState::ALL[state], "why \"so\"\n")
        });
        prop::collection::vec(row, 0..6)
    }

    fn record(rows: Vec<Row>) -> Record {
        let mut out = Record::new(subject());
        for row in rows {
            let mut one = Record::new(subject());
            one.set(row);
            out.merge(one);
        }
        out
    }

    fn merged(a: &Record, b: &Record) -> Record {
        let mut out = a.clone();
        out.merge(b.clone());
        out
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(rows in rows()) {
            let record = record(rows);
            prop_assert_eq!(Record::parse(&record.text()), Ok(record));
        }

        #[test]
        fn merging_needs_no_order(a in rows(), b in rows(), c in rows()) {
            let (a, b, c) = (record(a), record(b), record(c));
            prop_assert_eq!(merged(&a, &b), merged(&b, &a));
            prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
            prop_assert_eq!(merged(&a, &a), a);
        }
    }

    #[test]
    fn everything_that_can_change_the_speed_is_in_the_key() {
        let key = subject().key();
        let changed = |change: fn(&mut Subject)| {
            let mut other = subject();
            change(&mut other);
            other.key()
        };
        for other in [
            changed(|s| s.source = "x".into()),
            changed(|s| s.compiler = "x".into()),
            changed(|s| s.device = "x".into()),
            changed(|s| s.profile = "strict".into()),
            changed(|s| _ = s.sizes.insert("M".into(), 65)),
            changed(|s| _ = s.types.insert("A".into(), "bf16".into())),
            changed(|s| _ = s.consts.insert("causal".into(), "True".into())),
        ] {
            assert_ne!(key, other);
        }
        assert_eq!(key, subject().key());
    }

    #[test]
    fn damage_is_reported() {
        let text = record(vec![measured("BM=1", &[1.0])]).text();
        let reported = |from: &str, to: &str| Record::parse(&text.replace(from, to)).unwrap_err();
        assert_eq!(reported("\"format\": 1", "\"format\": 9"), "expected format 1, got 9");
        assert_eq!(reported("measured", "guessed"), "no state is called `guessed`");
        assert!(reported("[1]", "[-1]").contains("times"));
    }
}
