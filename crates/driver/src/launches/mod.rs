//! What runs for a launch beside the kernel's own code, where the cost model predicts a gain for
//! the arrays of a call: copies of operands to aligned rows ([`pad`]), and two launches in the place
//! of one whose groups are few and whose loops are long ([`divide`], split-K).
//!
//! The arrays of the caller are never changed: a kernel is given copies of arrays that it only
//! reads, and that no written one overlaps. `strict` and `deterministic` run the code as it is.

mod divide;
mod pad;
mod planner;

use crate::backends::Choice;
use crate::copies::room;
use crate::device;
use crate::mode::Mode;
use planner::{Best, Way, buffer, report};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::Attrs;
use tessera_numerics::Scalar;
use tessera_support::{ForkLock, Hash128};
use tessera_target::arrays::ArrayClass;
use tessera_target::device::DeviceKind;
use tessera_target::speed::LINE;
use tessera_target::{ArgValue, Artifact, LaunchArgs, Queue, Settled};
use tessera_tile::TileFunc;

pub use planner::Planner;

/// Plans that are kept; all are dropped where there are more.
const HELD: usize = 64;

/// A kernel whose launches may be more than its own code.
pub struct Planned {
    own: Box<dyn Artifact>,
    planner: Planner,
    plans: ForkLock<BTreeMap<Shape, Arc<Plan>>>,
    last: ForkLock<Option<Arc<Plan>>>,
}

/// What a plan depends on: the layouts of arrays and which may not be copied, extents, sizes, and
/// the grid.
type Shape = (Vec<(ArrayClass, Vec<i64>, bool)>, BTreeMap<String, i64>, [i64; 3]);

#[derive(Default)]
struct Plan {
    pads: Vec<Pad>,
    /// One launch copies all of them.
    copy: Option<(TileFunc, Arc<dyn Artifact>)>,
    /// The parts of loops, where they are divided.
    splits: Option<i64>,
    /// Bytes of memory for copies and sums.
    bytes: u64,
    /// What the cost model compared, the chosen launches first.
    ways: Vec<Way>,
}

struct Pad {
    place: usize,
    layout: pad::Layout,
}

/// The code of a divided kernel, and its two launches.
type Both<'a> = (&'a [Arc<dyn Artifact>; 2], [LaunchArgs; 2]);

/// The artifact of a function, with plans where they can be of use.
pub fn planned(
    own: Box<dyn Artifact>,
    func: &TileFunc,
    choice: &Choice,
    mode: Mode,
) -> Box<dyn Artifact> {
    let Some(planner) = Planner::of(func, choice, mode) else { return own };
    Box::new(Planned { own, planner, plans: ForkLock::default(), last: ForkLock::default() })
}

impl Planned {
    fn plan(&self, args: &LaunchArgs) -> Arc<Plan> {
        let planner = &self.planner;
        if planner.is_plain(args) {
            return Arc::default();
        }
        let class = |(param, arg): (&tessera_target::frame::Param, &ArgValue)| match arg {
            ArgValue::Buffer(b) => {
                (ArrayClass::of_param(&param.kind, b), b.dims.clone(), planner.stays(args, b))
            }
            ArgValue::Scalar(_) => (ArrayClass::default(), Vec::new(), false),
        };
        let classes = planner.frame.params.iter().zip(&args.params).map(class).collect();
        let shape: Shape = (classes, args.dims.clone(), args.grid);
        if let Some(plan) = self.plans.lock().get(&shape) {
            return plan.clone();
        }
        let best = planner.best(args);
        let plan = Arc::new(best.and_then(|best| self.make(args, best)).unwrap_or_default());
        let mut plans = self.plans.lock();
        if plans.len() >= HELD {
            plans.clear();
        }
        plans.insert(shape, plan.clone());
        plan
    }

    /// The plan, compiled; none where something of it cannot be: the kernel itself can.
    fn make(&self, args: &LaunchArgs, best: Best) -> Option<Plan> {
        let choice = &self.planner.choice;
        let Best { layouts, splits, ways } = best;
        let one = |(place, layout): (usize, pad::Layout)| Pad { place, layout };
        let pads: Vec<Pad> = layouts.into_iter().map(one).collect();
        let copied: Vec<_> = pads.iter().map(|pad| &pad.layout).collect();
        let copy = match copied.is_empty() {
            true => None,
            false => Some(pad::kernel(&copied, choice).ok()?),
        };
        let mut bytes: u64 = pads.iter().map(|p| p.layout.bytes).sum();
        if let (Some(splits), Some(divided)) = (splits, &self.planner.divided) {
            let mut own = args.clone();
            pads.iter().for_each(|pad| pad.stand_in(&mut own, LINE));
            divided.code(choice, &divided.args(&own, splits, LINE))?;
            bytes += divided.bytes(args, splits);
        }
        Some(Plan { pads, copy, splits, bytes, ways })
    }

    /// Runs the launches of a plan with memory for copies and sums at an address.
    fn run(
        &self,
        plan: &Plan,
        args: &LaunchArgs,
        base: u64,
        launch: impl Fn(&dyn Artifact, &LaunchArgs) -> Result<(), Diagnostics>,
    ) -> Result<(), Diagnostics> {
        let mut own = args.clone();
        if let Some((code, args)) = plan.copies(args, base) {
            launch(&**code, &args?)?;
        }
        let at = plan.stand_in(&mut own, base);
        match self.both(plan, &own, at) {
            None => launch(&*self.own, &own),
            Some((code, args)) => {
                code.iter().zip(&args).try_for_each(|(code, args)| launch(&**code, args))
            }
        }
    }

    /// The two launches of a divided kernel.
    fn both(&self, plan: &Plan, args: &LaunchArgs, at: u64) -> Option<Both<'_>> {
        let (splits, divided) = (plan.splits?, self.planner.divided.as_ref()?);
        let args = divided.args(args, splits, at);
        Some((divided.code(&self.planner.choice, &args)?, args))
    }
}

impl Plan {
    /// Whether the kernel runs as it is.
    fn is_plain(&self) -> bool {
        self.pads.is_empty() && self.splits.is_none()
    }

    /// The launch that copies arrays of a launch to memory at `base`.
    fn copies(
        &self,
        args: &LaunchArgs,
        base: u64,
    ) -> Option<(&Arc<dyn Artifact>, Result<LaunchArgs, Diagnostics>)> {
        let (func, code) = self.copy.as_ref()?;
        let mut at = base;
        let mut addresses = Vec::new();
        for pad in &self.pads {
            let to = std::ptr::with_exposed_provenance_mut(at as usize);
            addresses.push([buffer(args, pad.place)?.data, to]);
            at += pad.layout.bytes;
        }
        let layouts: Vec<_> = self.pads.iter().map(|pad| &pad.layout).collect();
        Some((code, pad::args(&layouts, func, &addresses)))
    }

    /// Puts the copies at `base` in the places of the arrays; gives the address behind them.
    fn stand_in(&self, args: &mut LaunchArgs, base: u64) -> u64 {
        let mut at = base;
        for pad in &self.pads {
            pad.stand_in(args, at);
            at += pad.layout.bytes;
        }
        at
    }
}

impl Pad {
    /// Puts the copy in the place of the array.
    fn stand_in(&self, args: &mut LaunchArgs, at: u64) {
        if let Some(ArgValue::Buffer(b)) = args.params.get_mut(self.place) {
            b.data = std::ptr::with_exposed_provenance_mut(at as usize);
            b.strides.clone_from(&self.layout.strides);
        }
    }
}

impl Artifact for Planned {
    fn launch(&self, args: &LaunchArgs) -> Result<(), Diagnostics> {
        // A device with memory of its own is given packed copies in any case.
        if self.planner.choice.backend.memory() != DeviceKind::CPU || args.grid.contains(&0) {
            return self.own.launch(args);
        }
        let plan = self.plan(args);
        *self.last.lock() = Some(plan.clone());
        if plan.is_plain() {
            return self.own.launch(args);
        }
        let memory = room((plan.bytes + LINE) as usize)?;
        let base = (memory.as_ptr() as u64).next_multiple_of(LINE);
        self.run(&plan, args, base, |artifact, args| artifact.launch(args))
    }

    fn enqueue(&self, args: &LaunchArgs, queue: Queue) -> Result<(), Diagnostics> {
        if args.grid.contains(&0) {
            return Ok(());
        }
        let plan = self.plan(args);
        *self.last.lock() = Some(plan.clone());
        if plan.is_plain() {
            return self.own.enqueue(args, queue);
        }
        device::with_memory(queue, plan.bytes, |base| {
            self.run(&plan, args, base, |artifact, args| artifact.enqueue(args, queue))
        })
    }

    fn settle(&self, args: &LaunchArgs, queue: Queue) -> Option<Arc<dyn Settled>> {
        let plan = self.plan(args);
        if plan.is_plain() {
            return self.own.settle(args, queue);
        }
        // Only addresses change later; those of copies and sums are of any aligned memory.
        let mut own = args.clone();
        let copy = match plan.copies(&own, LINE) {
            Some((code, args)) => Some(code.settle(&args.ok()?, queue)?),
            None => None,
        };
        let array = |pad: &Pad| {
            let before = args.params[..pad.place].iter();
            before.filter(|a| matches!(a, ArgValue::Buffer(_))).count()
        };
        let copies: Vec<_> = plan.pads.iter().map(|p| (array(p), p.layout.bytes)).collect();
        plan.pads.iter().for_each(|pad| pad.stand_in(&mut own, LINE));
        let (mut launches, mut sums) = (Vec::new(), Vec::new());
        match self.both(&plan, &own, LINE) {
            None => launches.push(self.own.settle(&own, queue)?),
            Some((code, args)) => {
                for (code, args) in code.iter().zip(&args) {
                    launches.push(code.settle(args, queue)?);
                }
                let added = args[0].params[own.params.len()..].iter();
                let place = |arg: &ArgValue| match arg {
                    ArgValue::Buffer(b) => b.data as u64 - LINE,
                    ArgValue::Scalar(_) => 0,
                };
                sums.extend(added.map(place));
            }
        }
        let (bytes, copied) = (plan.bytes, copies.iter().map(|(_, bytes)| bytes).sum::<u64>());
        let sums = sums.into_iter().map(|at| at + copied).collect();
        Some(Arc::new(Repeated { copies, copy, launches, sums, bytes, queue }))
    }

    fn settle_here(&self, args: &LaunchArgs) -> Option<Arc<dyn Settled>> {
        if self.planner.choice.backend.memory() == DeviceKind::CPU && !self.plan(args).is_plain() {
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
        if let Some(plan) = last {
            let names: Vec<_> = plan
                .pads
                .iter()
                .map(|p| self.planner.frame.params[p.place].name.as_str())
                .collect();
            if !names.is_empty() {
                out.push(("copied_to_aligned_rows", names.join(", ")));
            }
            if let Some(splits) = plan.splits {
                out.push(("k_splits", splits.to_string()));
            }
            if let Some(text) = report(&plan.ways) {
                out.push(("predicted", text));
            }
        }
        out
    }

    fn code_bytes(&self) -> usize {
        self.own.code_bytes()
    }
}

/// The launches of a plan, to be repeated with other addresses.
struct Repeated {
    /// The place of each copied array among the arrays, the bytes of its copy, and the launch that
    /// copies them.
    copies: Vec<(usize, u64)>,
    copy: Option<Arc<dyn Settled>>,
    /// The kernel, or the two that it is divided into.
    launches: Vec<Arc<dyn Settled>>,
    /// Where the arrays of sums begin in the memory of the plan.
    sums: Vec<u64>,
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
            let mut moved = Vec::new();
            for (array, bytes) in &self.copies {
                moved.extend([own[*array], at]);
                own[*array] = at;
                at += bytes;
            }
            if let Some(copy) = &self.copy {
                copy.launch(&moved, &[], stream)?;
            }
            own.extend(self.sums.iter().map(|offset| base + offset));
            self.launches.iter().try_for_each(|one| one.launch(&own, scalars, stream))
        })
    }
}
