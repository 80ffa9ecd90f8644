//! What runs for a launch beside the kernel's own code, where the cost model predicts a gain for
//! the arrays of a call: copies of operands to aligned rows ([`pad`]).
//!
//! The arrays of the caller are never changed: a kernel is given copies of arrays that it only
//! reads, and that no written one overlaps. `strict` and `deterministic` run the code as it is.

mod pad;

use crate::backends::Choice;
use crate::copies::room;
use crate::device;
use crate::mode::Mode;
use crate::overlap::ranges_overlap;
use crate::predict::{Known, predict, rows_on};
use crate::tuning::speed_of;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, Attrs, OpId, Privilege, Type, Value};
use tessera_lower::stage::{Off, Step};
use tessera_numerics::{Profile, Scalar};
use tessera_support::{ForkLock, Hash128};
use tessera_target::arrays::{ArrayClass, Said};
use tessera_target::device::DeviceKind;
use tessera_target::frame::Frame;
use tessera_target::speed::{LINE, Speed};
use tessera_target::{ArgValue, Artifact, BufferArg, LaunchArgs, Queue, Settled};
use tessera_tile::{KernelKind, TileFunc, TileOp, kind_of};

/// The least gain that is taken: predictions are not exact.
const GAIN: f64 = 0.85;
/// The fraction of the memory bandwidth that a copy from unaligned rows reaches, and the fraction
/// of a launch's cost that one more on the same stream has.
const COPY_RATE: f64 = 0.6;
const NEXT_LAUNCH: f64 = 0.5;
/// Plans that are kept; all are dropped where there are more.
const HELD: usize = 64;

/// A kernel whose launches may be more than its own code.
pub struct Planned {
    own: Box<dyn Artifact>,
    func: TileFunc,
    frame: Frame,
    choice: Choice,
    /// Parameters that loops of MMAs load and nothing writes, by their places.
    operands: Vec<usize>,
    stages: Option<u64>,
    plans: ForkLock<BTreeMap<Shape, Arc<Plan>>>,
    last: ForkLock<Option<Arc<Plan>>>,
}

/// What a plan depends on: the layouts of arrays and which may not be copied, extents, sizes, and the grid.
type Shape = (Vec<(ArrayClass, Vec<i64>, bool)>, BTreeMap<String, i64>, [i64; 3]);

#[derive(Default)]
struct Plan {
    pads: Vec<Pad>,
    /// Seconds that the cost model predicts without and with them.
    predicted: Option<(f64, f64)>,
}

struct Pad {
    place: usize,
    layout: pad::Layout,
    func: TileFunc,
    copy: Arc<dyn Artifact>,
}

/// The artifact of a function, with plans where they can be of use.
pub fn planned(
    own: Box<dyn Artifact>,
    func: &TileFunc,
    choice: &Choice,
    mode: Mode,
) -> Box<dyn Artifact> {
    let is_gpu = choice.backend.caps().gpu().is_some();
    if !is_gpu || mode.profile != Profile::Default || Off::of(func).has(Step::OperandPadding) {
        return own;
    }
    let operands = operands(func);
    let Ok(frame) = Frame::new(func) else { return own };
    if operands.is_empty() {
        return own;
    }
    let config = func.attrs.get("config").and_then(Attr::as_dict);
    let stages = config.and_then(|c| c.get("num_stages").and_then(Attr::as_int));
    Box::new(Planned {
        own,
        func: func.clone(),
        frame,
        choice: choice.clone(),
        operands,
        stages: stages.and_then(|n| u64::try_from(n).ok()).filter(|&n| n > 0),
        plans: ForkLock::default(),
        last: ForkLock::default(),
    })
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

fn buffer(args: &LaunchArgs, place: usize) -> Option<&BufferArg> {
    match args.params.get(place) {
        Some(ArgValue::Buffer(b)) => Some(b),
        Some(ArgValue::Scalar(_)) | None => None,
    }
}

impl Planned {
    fn plan(&self, args: &LaunchArgs) -> Arc<Plan> {
        let class = |(param, arg): (&tessera_target::frame::Param, &ArgValue)| match arg {
            ArgValue::Buffer(b) => {
                let written = |other: &ArgValue| matches!(other, ArgValue::Buffer(o) if o.writable && ranges_overlap(o, b) && !std::ptr::eq(o, b));
                let stays = args.params.iter().any(written);
                (ArrayClass::of_param(&param.kind, b), b.dims.clone(), stays)
            }
            ArgValue::Scalar(_) => (ArrayClass::default(), Vec::new(), false),
        };
        let shape: Shape = (
            self.frame.params.iter().zip(&args.params).map(class).collect(),
            args.dims.clone(),
            args.grid,
        );
        if let Some(plan) = self.plans.lock().get(&shape) {
            return plan.clone();
        }
        let plan = Arc::new(self.make(args, &shape).unwrap_or_default());
        let mut plans = self.plans.lock();
        if plans.len() >= HELD {
            plans.clear();
        }
        plans.insert(shape, plan.clone());
        plan
    }

    /// The plan with the least predicted time; none where that is the kernel by itself, or where
    /// something of it cannot be compiled: the kernel itself can.
    fn make(&self, args: &LaunchArgs, (classes, _, _): &Shape) -> Option<Plan> {
        let speed = speed_of(&self.choice).ok()?;
        let mut layouts = Vec::new();
        for &place in &self.operands {
            let (class, _, stays) = &classes[place];
            if !class.tma_compatible && !stays {
                layouts.push((place, pad::layout(buffer(args, place)?)?));
            }
        }
        if layouts.is_empty() {
            return None;
        }
        let own = self.seconds(args, &speed, |_| None)?;
        let copied = |place: usize| layouts.iter().find(|(p, _)| *p == place).map(|(_, l)| l);
        let kernel = self.seconds(args, &speed, copied)?;
        let copies = |(_, layout): &(usize, pad::Layout)| {
            NEXT_LAUNCH * speed.launch + 2.0 * layout.bytes as f64 / (COPY_RATE * speed.memory)
        };
        let padded = kernel + layouts.iter().map(copies).sum::<f64>();
        if padded > GAIN * own {
            return None;
        }
        let one = |(place, layout): (usize, pad::Layout)| {
            let (func, copy) = pad::kernel(&layout, &self.choice).ok()?;
            Some(Pad { place, layout, func, copy })
        };
        let pads = layouts.into_iter().map(one).collect::<Option<Vec<_>>>()?;
        Some(Plan { pads, predicted: Some((own, padded)) })
    }

    /// The predicted time of the kernel where some arrays are copied.
    fn seconds<'l>(
        &self,
        args: &LaunchArgs,
        speed: &Speed,
        copied: impl Fn(usize) -> Option<&'l pad::Layout>,
    ) -> Option<f64> {
        let (mut said, mut aligned) = (Said::new(), Vec::new());
        for (place, param) in self.frame.params.iter().enumerate() {
            let Some(b) = buffer(args, place) else {
                aligned.push(LINE);
                continue;
            };
            let (class, on) = match copied(place) {
                Some(layout) => {
                    let there = BufferArg {
                        data: std::ptr::without_provenance_mut(LINE as usize),
                        strides: layout.strides.clone(),
                        ..b.clone()
                    };
                    (ArrayClass::of_param(&param.kind, &there), LINE)
                }
                None => (ArrayClass::of_param(&param.kind, b), rows_on(b)),
            };
            said.insert(param.name.clone(), class);
            aligned.push(on);
        }
        let footprint = self.choice.backend.footprint(&self.func, Profile::Default, &said)?;
        let (dims, grid, domain, lanes) = (&args.dims, args.grid, args.domain, args.lanes);
        let launch = tessera_cost::Launch { dims, grid, domain, lanes };
        let (footprint, stages) = (Some(&footprint), self.stages);
        let known = Known { launch, rows_on: &aligned, footprint, stages };
        predict(&self.func, &known, speed).map(|e| e.seconds)
    }

    /// Runs the launches of a plan with memory for the copies at an address.
    fn run(
        &self,
        plan: &Plan,
        args: &LaunchArgs,
        base: u64,
        launch: impl Fn(&dyn Artifact, &LaunchArgs) -> Result<(), Diagnostics>,
    ) -> Result<(), Diagnostics> {
        let mut own = args.clone();
        let mut at = base;
        for pad in &plan.pads {
            let Some(ArgValue::Buffer(b)) = own.params.get_mut(pad.place) else { continue };
            let to = std::ptr::with_exposed_provenance_mut(at as usize);
            launch(&*pad.copy, &pad.layout.args(&pad.func, b.data, to)?)?;
            (b.data, b.strides) = (to, pad.layout.strides.clone());
            at += pad.layout.bytes;
        }
        launch(&*self.own, &own)?;
        Ok(())
    }
}

impl Plan {
    /// Bytes of the memory that its launches share, every part of it at a multiple of a line.
    fn bytes(&self) -> u64 {
        self.pads.iter().map(|p| p.layout.bytes.next_multiple_of(LINE)).sum()
    }
}

impl Artifact for Planned {
    fn launch(&self, args: &LaunchArgs) -> Result<(), Diagnostics> {
        // A device with memory of its own is given packed copies in any case.
        if self.choice.backend.memory() != DeviceKind::CPU || args.grid.contains(&0) {
            return self.own.launch(args);
        }
        let plan = self.plan(args);
        *self.last.lock() = Some(plan.clone());
        if plan.pads.is_empty() {
            return self.own.launch(args);
        }
        let memory = room((plan.bytes() + LINE) as usize)?;
        let base = (memory.as_ptr() as u64).next_multiple_of(LINE);
        self.run(&plan, args, base, |artifact, args| artifact.launch(args))
    }

    fn enqueue(&self, args: &LaunchArgs, queue: Queue) -> Result<(), Diagnostics> {
        if args.grid.contains(&0) {
            return Ok(());
        }
        let plan = self.plan(args);
        *self.last.lock() = Some(plan.clone());
        if plan.pads.is_empty() {
            return self.own.enqueue(args, queue);
        }
        device::with_memory(queue, plan.bytes(), |base| {
            self.run(&plan, args, base, |artifact, args| artifact.enqueue(args, queue))
        })
    }

    fn settle(&self, args: &LaunchArgs, queue: Queue) -> Option<Arc<dyn Settled>> {
        let plan = self.plan(args);
        if plan.pads.is_empty() {
            return self.own.settle(args, queue);
        }
        // The copies stand where memory is lent for a moment: only addresses change later.
        let mut own = args.clone();
        let mut copies = Vec::new();
        for pad in &plan.pads {
            let Some(ArgValue::Buffer(b)) = own.params.get_mut(pad.place) else { return None };
            let to = std::ptr::without_provenance_mut(LINE as usize);
            let copy = pad.copy.settle(&pad.layout.args(&pad.func, b.data, to).ok()?, queue)?;
            let before = args.params[..pad.place].iter();
            let array = before.filter(|a| matches!(a, ArgValue::Buffer(_))).count();
            copies.push((array, pad.layout.bytes, copy));
            (b.data, b.strides) = (to, pad.layout.strides.clone());
        }
        let own = self.own.settle(&own, queue)?;
        Some(Arc::new(Repeated { copies, own, bytes: plan.bytes(), queue }))
    }

    fn settle_here(&self, args: &LaunchArgs) -> Option<Arc<dyn Settled>> {
        if self.choice.backend.memory() == DeviceKind::CPU && !self.plan(args).pads.is_empty() {
            return None;
        }
        self.own.settle_here(args)
    }

    fn target_text(&self) -> String {
        self.own.target_text()
    }

    fn hash(&self) -> Hash128 {
        self.own.hash()
    }

    fn staged_text(&self) -> Option<String> {
        self.own.staged_text()
    }

    fn chosen(&self) -> Attrs {
        self.own.chosen()
    }

    fn warnings(&self) -> Diagnostics {
        self.own.warnings()
    }

    fn resources(&self) -> Vec<(&'static str, String)> {
        let mut out = self.own.resources();
        let last = self.last.lock().clone();
        if let Some(plan) = last.filter(|plan| !plan.pads.is_empty()) {
            let names: Vec<_> =
                plan.pads.iter().map(|p| self.frame.params[p.place].name.as_str()).collect();
            let mut text = format!("{} to aligned rows", names.join(", "));
            if let Some((before, after)) = plan.predicted {
                text +=
                    &format!(" (predicted {:.1} us, {:.1} us without)", after * 1e6, before * 1e6);
            }
            out.push(("copied_first", text));
        }
        out
    }

    fn code_bytes(&self) -> usize {
        self.own.code_bytes()
    }
}

/// The launches of a plan, to be repeated with other addresses.
struct Repeated {
    /// The place of the array among the arrays, the bytes of its copy, and the launch that copies.
    copies: Vec<(usize, u64, Arc<dyn Settled>)>,
    own: Arc<dyn Settled>,
    bytes: u64,
    queue: Queue,
}

impl Settled for Repeated {
    fn launch(
        &self,
        addresses: &[u64],
        scalars: &[Scalar],
        stream: u64,
    ) -> Result<(), Diagnostics> {
        let queue = Queue { stream, ..self.queue };
        device::with_memory(queue, self.bytes, |base| {
            let (mut own, mut at) = (addresses.to_vec(), base);
            for (array, bytes, copy) in &self.copies {
                copy.launch(&[own[*array], at], &[], stream)?;
                own[*array] = at;
                at += bytes;
            }
            self.own.launch(&own, scalars, stream)
        })
    }
}
