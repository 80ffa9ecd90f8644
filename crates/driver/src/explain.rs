//! What ran, recorded from what executed.

use crate::config;
use crate::cost::{self, Cost};
use crate::geometry::Geometry;
use crate::specialise::Specialised;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tessera_diag::Diagnostics;
use tessera_frontend::Capture;

/// The latest thing a kernel did.
#[derive(Clone)]
pub struct Record {
    pub spec: Arc<Specialised>,
    pub cache_hit: bool,
    /// `None` for a compilation without a launch.
    pub launch: Option<Launch>,
}

impl Record {
    /// The same, of a launch that took so long.
    pub fn taking(&self, time: Duration) -> Record {
        let launch = self.launch.clone().map(|l| Launch { time: Some(time), ..l });
        Record { launch, ..self.clone() }
    }
}

#[derive(Clone)]
pub struct Launch {
    pub geometry: Geometry,
    /// `None` where the call came back before the launch was done.
    pub time: Option<Duration>,
    pub how: How,
    /// Sizes of dims, and integers of the caller, by name.
    pub dims: BTreeMap<String, i64>,
}

/// What a launch ran on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum How {
    Backend,
    /// Enqueued on a stream of a device.
    Queued,
    /// On a device, on copies of the caller's arrays.
    Copied,
    Checked,
    Watched,
}

impl How {
    fn text(self) -> &'static str {
        match self {
            How::Backend => "on the backend",
            How::Queued => "on the backend, on the caller's stream",
            How::Copied => "on the backend, on copies of the arrays",
            How::Checked => "on the interpreter, checked",
            How::Watched => "on the interpreter, by the lines of the source",
        }
    }
}

/// A field of the explanation, for programs.
pub enum Field {
    Text(String),
    Flag(bool),
    Count(u64),
    Ints(Vec<i64>),
    Lists(Vec<Vec<i64>>),
    Lines(Vec<String>),
    Values(Vec<(String, Capture)>),
    Texts(Vec<(&'static str, String)>),
    /// Seconds by stage.
    Times(Vec<(String, f64)>),
    None,
}

pub struct Explanation {
    pub text: String,
    pub fields: Vec<(&'static str, Field)>,
}

pub fn explain(kernel: &str, decoration: &Diagnostics, record: Option<&Record>) -> Explanation {
    let Some(record) = record else {
        let notes: Vec<String> = decoration.iter().map(|d| d.render()).collect();
        let text = format!("kernel {kernel}: nothing was compiled or run yet");
        return Explanation {
            text: with_notes(text, &notes),
            fields: vec![("notes", Field::Lines(notes))],
        };
    };
    let spec = &record.spec;
    // What a configuration made certain replaces what decoration could say of it.
    let said_again = |code| spec.notes.iter().any(|d| d.code == code);
    let early = decoration.iter().filter(|d| !said_again(d.code));
    let notes: Vec<String> = early.chain(spec.notes.iter()).map(|d| d.render()).collect();
    let mut times: Vec<(String, f64)> =
        spec.stages.iter().map(|(n, t)| (n.clone(), t.as_secs_f64())).collect();
    if let Some(time) = record.launch.as_ref().and_then(|launch| launch.time) {
        times.push(("launch".into(), time.as_secs_f64()));
    }
    let entries = config::entries(&spec.config);
    let shown: Vec<_> = entries.iter().map(|(n, v)| format!("{n}={}", config::show(v))).collect();
    let mut text = format!(
        "kernel {kernel}\n  backend: {} ({})\n",
        spec.choice.backend.name(),
        spec.choice.why
    );
    let _ = writeln!(
        text,
        "  configuration: {}",
        if shown.is_empty() { "open".into() } else { shown.join(", ") }
    );
    let _ = writeln!(text, "  numerics: {}", spec.mode.profile);
    for (candidate, why) in &spec.rejected {
        let _ = writeln!(text, "  passed over: {candidate}: {why}");
    }
    let grid = record.launch.as_ref().map(|l| &l.geometry);
    let _ = writeln!(text, "  {}", geometry(spec, grid));
    let ran = record.launch.as_ref().map(|l| l.how.text());
    if let Some(ran) = ran {
        let _ = writeln!(text, "  ran: {ran}");
    }
    let _ = writeln!(
        text,
        "  tile hash: {}\n  target hash: {}",
        spec.func.hash(),
        spec.artifact.hash()
    );
    let _ = writeln!(
        text,
        "  compiled: {}",
        if record.cache_hit { "before (cache hit)" } else { "now" }
    );
    let resources = spec.artifact.resources();
    for (name, value) in &resources {
        let _ = writeln!(text, "  {name}: {value}");
    }
    let cost = record.launch.as_ref().and_then(|launch| cost::of_launch(spec, launch).ok());
    if let Some(cost) = &cost {
        let _ = writeln!(text, "  {}", show_work(cost));
    }
    let counted =
        |count: fn(&Cost) -> u64| cost.as_ref().map_or(Field::None, |c| Field::Count(count(c)));
    for (stage, seconds) in &times {
        let _ = writeln!(text, "  {:>10.3} ms  {stage}", seconds * 1e3);
    }
    let fields = vec![
        ("backend", Field::Text(spec.choice.backend.name().into())),
        ("why_backend", Field::Text(spec.choice.why.into())),
        ("profile", Field::Text(spec.mode.profile.name().into())),
        ("config", Field::Values(entries)),
        (
            "rejected",
            Field::Lines(spec.rejected.iter().map(|(c, w)| format!("{c}: {w}")).collect()),
        ),
        ("grid", grid.map_or(Field::None, |g| Field::Ints(g.grid.to_vec()))),
        (
            "lanes",
            grid.filter(|_| spec.is_lane()).map_or(Field::None, |g| {
                let by = spec.lanes();
                match by[..] {
                    [by] => Field::Ints(vec![g.domain[0], by]),
                    _ => Field::Lists(vec![g.domain[..by.len()].to_vec(), by]),
                }
            }),
        ),
        ("flops", counted(|c| c.work.flops)),
        ("bytes", counted(|c| c.work.bytes())),
        ("traffic", counted(|c| c.work.traffic())),
        ("resources", Field::Texts(resources)),
        ("tile_hash", Field::Text(spec.func.hash().to_string())),
        ("target_hash", Field::Text(spec.artifact.hash().to_string())),
        ("ran", ran.map_or(Field::None, |r| Field::Text(r.into()))),
        ("cache_hit", Field::Flag(record.cache_hit)),
        ("times", Field::Times(times)),
        ("notes", Field::Lines(notes.clone())),
    ];
    text.truncate(text.trim_end().len());
    Explanation { text: with_notes(text, &notes), fields }
}

fn geometry(spec: &Specialised, ran: Option<&Geometry>) -> String {
    let Some(g) = ran else { return "grid: not launched yet".into() };
    let who = if g.from_caller { "from the caller" } else { "from the kernel" };
    if spec.is_lane() {
        let by = spec.lanes();
        let (all, each) = (times(&g.domain[..by.len()]), times(&by));
        return format!("lanes: {all} in groups of {each} ({who})");
    }
    format!("grid: {}x{}x{} ({who})", g.grid[0], g.grid[1], g.grid[2])
}

/// `16x32`.
fn times(extents: &[i64]) -> String {
    extents.iter().map(i64::to_string).collect::<Vec<_>>().join("x")
}

/// `work: 4096 flops, 512 bytes (768 as written)`.
fn show_work(cost: &Cost) -> String {
    let work = &cost.work;
    let about = if work.exact { "" } else { "about " };
    let (flops, bytes, traffic) = (work.flops, work.bytes(), work.traffic());
    format!("work: {about}{flops} flops, {bytes} bytes ({traffic} as written)")
}

fn with_notes(mut text: String, notes: &[String]) -> String {
    for note in notes {
        let _ = write!(text, "\n{note}");
    }
    text
}
