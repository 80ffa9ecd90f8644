//! Which launches a call of a kernel takes, by the cost model.

use super::divide::Divided;
use super::pad;
use crate::backends::Choice;
use crate::mode::Mode;
use crate::overlap::ranges_overlap;
use crate::predict::{Known, predict, rows_on};
use crate::tuning::speed_of;
use std::collections::BTreeMap;
use tessera_ir::{Attr, OpId, Privilege, Type, Value};
use tessera_lower::stage::{Off, Step};
use tessera_numerics::Profile;
use tessera_support::ForkLock;
use tessera_target::arrays::{ArrayClass, Said};
use tessera_target::frame::{Frame, ParamKind};
use tessera_target::speed::{LINE, Speed};
use tessera_target::{ArgValue, BufferArg, Footprint, LaunchArgs};
use tessera_tile::{KernelKind, TileFunc, TileOp, kind_of};

/// The part of the kernel's own time that other launches must stay below: predictions are not exact,
/// least of all those of loops that wait for their loads.
const GAIN: f64 = 0.7;
/// The fraction of the memory bandwidth that a copy from unaligned rows reaches, and the fraction
/// of a launch's cost that one more on the same stream has.
const COPY_RATE: f64 = 0.6;
const NEXT_LAUNCH: f64 = 0.5;
/// How many of the other ways are shown.
const RUNNERS_UP: usize = 3;
/// Layouts of arrays whose footprints are kept; all are dropped where there are more.
const HELD: usize = 256;

/// A kernel, and what its launches may begin with or be divided into.
pub struct Planner {
    func: TileFunc,
    pub frame: Frame,
    pub choice: Choice,
    /// Parameters that loops of MMAs load and nothing writes, by their places.
    operands: Vec<usize>,
    /// The kernel as two, where its loop only adds up.
    pub divided: Option<Divided>,
    requested: Requested,
    speed: Speed,
    /// What staging found, by function and the layouts of arrays.
    footprints: ForkLock<BTreeMap<(usize, Said), Option<Footprint>>>,
}

/// What the schedule says.
#[derive(Copy, Clone, Debug, Default)]
struct Requested {
    stages: Option<u64>,
    /// Whether operands are to be copied; the cost model decides where it is left open.
    pad: Option<bool>,
    /// Into how many parts loops are to be divided; 1 is not.
    splits: Option<i64>,
}

/// A way to launch a kernel, and its predicted seconds.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Way {
    pub padded: bool,
    pub splits: Option<i64>,
    pub seconds: f64,
}

/// The launches that were chosen, and what they were compared with.
pub struct Best {
    /// The arrays that are copied, by their places.
    pub layouts: Vec<(usize, pad::Layout)>,
    pub splits: Option<i64>,
    /// The chosen one first, the others by their time.
    pub ways: Vec<Way>,
}

/// What was predicted, as a user reads it.
pub fn report(ways: &[Way]) -> Option<String> {
    let show = |way: &Way| {
        let how = match (way.padded, way.splits) {
            (false, None) => "as it is".to_string(),
            (true, None) => "with copies to aligned rows".to_string(),
            (false, Some(n)) => format!("in {n} parts"),
            (true, Some(n)) => format!("with copies to aligned rows in {n} parts"),
        };
        format!("{:.1} us {how}", way.seconds * 1e6)
    };
    let (chosen, others) = ways.split_first()?;
    let mut out = show(chosen);
    // The kernel by itself is always named.
    let plain = others.iter().find(|w| !w.padded && w.splits.is_none());
    let near = others.iter().filter(|w| Some(*w) != plain).take(RUNNERS_UP).chain(plain);
    let near: Vec<String> = near.map(show).collect();
    if !near.is_empty() {
        out.push_str(&format!("; others {}", near.join(", ")));
    }
    let least = others.iter().map(|w| w.seconds).fold(f64::INFINITY, f64::min);
    if !chosen.padded && chosen.splits.is_none() && least < chosen.seconds {
        out.push_str(&format!(" (chosen only below {GAIN} of the kernel as it is)"));
    }
    Some(out)
}

impl Planner {
    /// None where launches are always the kernel by itself.
    pub fn of(func: &TileFunc, choice: &Choice, mode: Mode) -> Option<Self> {
        choice.backend.caps().gpu()?;
        if mode.profile != Profile::Default {
            return None;
        }
        let config = func.attrs.get("config").and_then(Attr::as_dict);
        let int = |name: &str| config.and_then(|c| c.get(name).and_then(Attr::as_int));
        let requested = Requested {
            stages: int("num_stages").and_then(|n| u64::try_from(n).ok()).filter(|&n| n > 0),
            pad: config.and_then(|c| c.get("operand_padding").and_then(Attr::as_bool)),
            splits: int("k_splits").filter(|&n| n > 0),
        };
        let off = Off::of(func);
        let pads = !off.has(Step::OperandPadding) && requested.pad != Some(false);
        let splits = !off.has(Step::SplitK) && requested.splits != Some(1);
        let operands = if pads { operands(func) } else { Vec::new() };
        let divided = if splits { Divided::of(func) } else { None };
        if operands.is_empty() && divided.is_none() {
            return None;
        }
        Some(Self {
            func: func.clone(),
            frame: Frame::new(func).ok()?,
            choice: choice.clone(),
            operands,
            divided,
            requested,
            speed: speed_of(choice).ok()?,
            footprints: ForkLock::default(),
        })
    }

    /// Whether an array may not be copied: something that is written overlaps it.
    pub fn stays(&self, args: &LaunchArgs, b: &BufferArg) -> bool {
        self.frame.params.iter().zip(&args.params).any(|(param, arg)| match (&param.kind, arg) {
            (ParamKind::Array { privilege, .. }, ArgValue::Buffer(other)) => {
                *privilege != Privilege::Read && ranges_overlap(other, b)
            }
            (ParamKind::Array { .. } | ParamKind::Scalar(_), _) => false,
        })
    }

    /// Whether it is known without a prediction that the kernel runs by itself.
    pub fn is_plain(&self, args: &LaunchArgs) -> bool {
        let good = |&place: &usize| {
            let kind = &self.frame.params[place].kind;
            buffer(args, place).is_none_or(|b| ArrayClass::of_param(kind, b).tma_compatible)
        };
        let groups = args.grid.iter().map(|&n| n.max(0) as u64).fold(1, u64::saturating_mul);
        let whole = self.requested.splits.is_none() && groups >= self.speed.processors;
        (self.divided.is_none() || whole) && self.operands.iter().all(good)
    }

    /// The launches with the least predicted time: the kernel by itself where they are not far below
    /// its own. None where there is nothing to compare, or no prediction.
    pub fn best(&self, args: &LaunchArgs) -> Option<Best> {
        if self.is_plain(args) {
            return None;
        }
        let speed = self.speed;
        let mut layouts = Vec::new();
        for &place in &self.operands {
            let b = buffer(args, place)?;
            let class = ArrayClass::of_param(&self.frame.params[place].kind, b);
            let layout = if class.tma_compatible { None } else { pad::layout(b) };
            if let Some(layout) = layout.filter(|_| !self.stays(args, b)) {
                layouts.push((place, layout));
            }
        }
        let own = Layouts { kernel: (0, &self.func, &self.frame), copied: &[] };
        let before = self.seconds(args, own, &speed)?;
        let pad_pinned = self.requested.pad == Some(true) && !layouts.is_empty();
        let pinned = pad_pinned || self.requested.splits.is_some();
        let copies = copy_seconds(&layouts, &speed);
        let plain = Way { padded: false, splits: None, seconds: before };
        let mut ways = Vec::new();
        for padded in [false, true] {
            if padded && layouts.is_empty() || !padded && pad_pinned {
                continue;
            }
            let (count, ahead) = if padded { (layouts.len(), copies) } else { (0, 0.0) };
            let copied = &layouts[..count];
            let numbers = self.numbers(args, &speed).into_iter().map(Some);
            let whole = (padded && self.requested.splits.is_none()).then_some(None);
            for splits in whole.into_iter().chain(numbers) {
                let seconds = match splits {
                    None => self.seconds(args, Layouts { copied, ..own }, &speed),
                    Some(splits) => self.divided_seconds(args, splits, copied, &speed),
                };
                let seconds = ahead + seconds.unwrap_or(f64::INFINITY);
                ways.push(Way { padded, splits, seconds });
            }
        }
        ways.retain(|way| way.seconds.is_finite());
        ways.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let least = if pinned { f64::INFINITY } else { GAIN * before };
        let place = match ways.first() {
            Some(first) if first.seconds < least => ways.len(),
            _ => 0,
        };
        ways.insert(place, plain);
        let Way { padded, splits, .. } = ways[0];
        let layouts = if padded { layouts } else { Vec::new() };
        Some(Best { layouts, splits, ways })
    }

    /// The numbers of parts to consider.
    fn numbers(&self, args: &LaunchArgs, speed: &Speed) -> Vec<i64> {
        match (&self.divided, self.requested.splits) {
            (None, _) => Vec::new(),
            (Some(_), Some(pinned)) if args.grid[2] == 1 => vec![pinned],
            (Some(divided), _) => divided.numbers(args, speed.processors),
        }
    }

    /// The predicted time of both launches.
    fn divided_seconds(
        &self,
        args: &LaunchArgs,
        splits: i64,
        copied: &[(usize, pad::Layout)],
        speed: &Speed,
    ) -> Option<f64> {
        let divided = self.divided.as_ref()?;
        let mut all = NEXT_LAUNCH * speed.launch;
        for (i, ((func, frame), args)) in
            divided.funcs().into_iter().zip(&divided.args(args, splits, LINE)).enumerate()
        {
            all += self.seconds(args, Layouts { kernel: (1 + i, func, frame), copied }, speed)?;
        }
        Some(all)
    }

    /// The predicted time of a kernel where some arrays are copied.
    fn seconds(&self, args: &LaunchArgs, of: Layouts<'_>, speed: &Speed) -> Option<f64> {
        let (number, func, frame) = of.kernel;
        let (mut said, mut aligned) = (Said::new(), Vec::new());
        for (place, param) in frame.params.iter().enumerate() {
            let Some(b) = buffer(args, place) else {
                aligned.push(LINE);
                continue;
            };
            let copy = of.copied.iter().find(|(p, _)| *p == place).map(|(_, layout)| BufferArg {
                data: std::ptr::without_provenance_mut(LINE as usize),
                strides: layout.strides.clone(),
                ..b.clone()
            });
            let b = copy.as_ref().unwrap_or(b);
            said.insert(param.name.clone(), ArrayClass::of_param(&param.kind, b));
            aligned.push(rows_on(b));
        }
        let key = (number, said);
        let known = self.footprints.lock().get(&key).cloned();
        let footprint = known.unwrap_or_else(|| {
            let found = self.choice.backend.footprint(func, Profile::Default, &key.1);
            let mut held = self.footprints.lock();
            if held.len() >= HELD {
                held.clear();
            }
            held.insert(key, found.clone());
            found
        })?;
        let (dims, grid, domain, lanes) = (&args.dims, args.grid, args.domain, args.lanes);
        let launch = tessera_cost::Launch { dims, grid, domain, lanes };
        let (footprint, stages) = (Some(&footprint), self.requested.stages);
        let known = Known { launch, rows_on: &aligned, footprint, stages };
        predict(func, &known, speed).map(|e| e.seconds)
    }
}

/// The places of the parameters that are only read, by loads in loops that also have MMAs.
fn operands(func: &TileFunc) -> Vec<usize> {
    if kind_of(func) == Some(KernelKind::Lane) {
        return Vec::new();
    }
    let loops = |id: OpId| -> Vec<OpId> {
        let around = func.ancestors(func.ops[id].block).into_iter();
        around.filter(|&o| matches!(func.ops[o].code, TileOp::For | TileOp::While)).collect()
    };
    let all = func.walk();
    let of_products: Vec<OpId> = all
        .iter()
        .filter(|&&id| func.ops[id].code == TileOp::Mma)
        .flat_map(|&id| loops(id))
        .collect();
    let is_loaded = |&param: &Value| {
        all.iter().any(|&id| {
            let op = &func.ops[id];
            op.code == TileOp::Load
                && op.operands.first() == Some(&param)
                && func.ty(op.result()).static_shape().is_some_and(|s| s.len() > 1)
                && loops(id).iter().any(|l| of_products.contains(l))
        })
    };
    let is_read = |&(_, param): &(usize, &Value)| {
        matches!(func.ty(*param), Type::View { privilege: Privilege::Read, .. }) && is_loaded(param)
    };
    func.params().iter().enumerate().filter(is_read).map(|(place, _)| place).collect()
}

pub fn buffer(args: &LaunchArgs, place: usize) -> Option<&BufferArg> {
    match args.params.get(place) {
        Some(ArgValue::Buffer(b)) => Some(b),
        Some(ArgValue::Scalar(_)) | None => None,
    }
}

/// A kernel, by its number, and the arrays that are copied.
#[derive(Copy, Clone)]
struct Layouts<'a> {
    kernel: (usize, &'a TileFunc, &'a Frame),
    copied: &'a [(usize, pad::Layout)],
}

/// The time of the launch that copies arrays.
fn copy_seconds(layouts: &[(usize, pad::Layout)], speed: &Speed) -> f64 {
    let bytes: u64 = layouts.iter().map(|(_, layout)| layout.bytes).sum();
    NEXT_LAUNCH * speed.launch + 2.0 * bytes as f64 / (COPY_RATE * speed.memory)
}
