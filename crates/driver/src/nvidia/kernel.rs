//! A kernel as PTX: code for each layout of arrays that occurred, loaded on the devices that ran
//! it.

use super::host;
use super::maps::Maps;
use super::settled::{self, Repeatable};
use crate::device::{self, About};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::{Code as ErrorCode, Diagnostic, Diagnostics};
use tessera_ir::Attrs;
use tessera_numerics::Profile;
use tessera_ptx::{ArrayClass, Classes, Code, PtxCaps, Shape, compile, refused_text};
use tessera_support::{Flights, ForkLock, Hash128};
use tessera_target::arrays::{classes_first, misaligned};
use tessera_target::device::{
    Device, DeviceError, DeviceId, DeviceKind, Function, LaunchShape, LoadedCode,
};
use tessera_target::frame::{CONTEXT, Frame};
use tessera_target::{
    ArgValue, Artifact, BufferArg, CompileOptions, LaunchArgs, ObjectStore, Queue, Settled,
};
use tessera_tile::TileFunc;

pub struct Kernel {
    pub func: TileFunc,
    frame: Frame,
    caps: &'static PtxCaps,
    profile: Profile,
    store: Arc<dyn ObjectStore>,
    variants: ForkLock<BTreeMap<Classes, Arc<Variant>>>,
    building: Flights<Classes>,
    /// What the latest launch ran.
    last: ForkLock<Option<Arc<Variant>>>,
    /// What was compiled first.
    first: Arc<Variant>,
    about: Arc<About>,
}

/// Code for one set of layouts.
pub struct Variant {
    pub code: Code,
    loaded: LoadedCode<Loaded>,
}

impl Variant {
    fn new(code: Code) -> Self {
        Self { code, loaded: LoadedCode::default() }
    }
}

/// Code on a device.
#[derive(Clone)]
struct Loaded {
    function: Arc<dyn Function>,
    device: Arc<dyn Device>,
    /// How many blocks, or clusters of them, are resident on the device; computed where launches
    /// depend on it.
    max_resident_blocks: u64,
}

thread_local! {
    /// The words and classes of a launch, kept for the next.
    static SCRATCH: RefCell<(Vec<u64>, Classes)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

impl Kernel {
    pub fn new(
        func: &TileFunc,
        caps: &'static PtxCaps,
        options: &CompileOptions,
    ) -> Result<Self, Diagnostics> {
        let frame = Frame::new(func)?;
        // Other arrays get code of their own when they come.
        let classes = classes_first(&frame, options);
        let code = compile(func, caps, options.profile, &classes)?;
        let first = Arc::new(Variant::new(code));
        Ok(Self {
            func: func.clone(),
            frame,
            caps,
            profile: options.profile,
            store: options.store.clone(),
            variants: ForkLock::new([(classes, first.clone())].into()),
            building: Flights::new(),
            last: ForkLock::default(),
            first,
            about: Arc::new(About { name: func.name.clone(), loc: func.loc.clone() }),
        })
    }

    /// What ran last, or what was compiled first where nothing did.
    fn shown(&self) -> Arc<Variant> {
        self.last.lock().clone().unwrap_or_else(|| self.first.clone())
    }

    fn found(&self, classes: &Classes) -> Option<Arc<Variant>> {
        self.variants.lock().get(classes).cloned()
    }

    fn variant(&self, classes: &Classes) -> Result<Arc<Variant>, Diagnostics> {
        let make = || {
            let code = compile(&self.func, self.caps, self.profile, classes)?;
            let variant = Arc::new(Variant::new(code));
            self.variants.lock().insert(classes.clone(), variant.clone());
            Ok::<_, Diagnostics>(variant)
        };
        Ok(self.building.once(classes, || self.found(classes), make)?.0)
    }

    /// The variant's function on a device; its code is assembled and loaded when it first runs
    /// there. What is assembled is kept between processes.
    fn function(&self, variant: &Variant, on: DeviceId) -> Result<Loaded, Diagnostics> {
        if let Some(loaded) = variant.loaded.get(on) {
            return Ok(loaded);
        }
        if device::is_recording() {
            let message = format!(
                "the code of `{}` is not on the device yet, and cannot be loaded while a graph is recorded",
                self.func.name
            );
            let help = "call the kernel once, with arrays that lie as these do, before the recording begins";
            let error = Diagnostic::new(ErrorCode::E_CAPTURE, message);
            return Err(error.at(self.func.loc.clone()).help(help).into());
        }
        let device = device::open(on)?;
        // Where a kernel stands in its file changes nothing that runs.
        let ptx = variant.code.module.text_without_places();
        let about =
            format!("{} for {} on {}", self.func.name, self.caps.target, device.info().name);
        let load = |store: &dyn ObjectStore| {
            let module = device.clone().load(ptx.as_bytes(), store, &about)?;
            let function = module.function(&variant.code.kernel().name)?;
            let max_resident_blocks = resident_blocks(&variant.code, &*function, &*device)?;
            Ok(Loaded { function, device: device.clone(), max_resident_blocks })
        };
        let make = |store: &dyn ObjectStore| {
            load(store).map_err(|e: DeviceError| {
                let error = Diagnostic::from(e.note(self.compiled_for()));
                let error = match refused_text(&variant.code.module, &self.func, &error.notes) {
                    Some(refused) => refused,
                    None => error.at(self.func.loc.clone()),
                };
                Diagnostics::from(error)
            })
        };
        variant.loaded.on(&*device, &*self.store, make)
    }

    fn compiled_for(&self) -> String {
        format!("the kernel is `{}`, compiled for {}", self.func.name, self.caps.target)
    }

    fn shape(
        &self,
        code: &Code,
        args: &LaunchArgs,
        on: &Loaded,
    ) -> Result<LaunchShape, Diagnostics> {
        let kernel = code.kernel();
        let mut shape = LaunchShape::new([kernel.cluster, 1, 1], kernel.threads);
        shape.cluster = (kernel.cluster > 1).then_some([kernel.cluster, 1, 1]);
        shape.shared = kernel.dynamic_shared;
        let multiprocessors = on.device.info().processors;
        let blocks = code.blocks_where(args, multiprocessors, on.max_resident_blocks);
        let Ok(blocks) = u32::try_from(blocks) else {
            let message = format!("expected at most 2^31 - 1 blocks, got {blocks}");
            let error = Diagnostic::new(ErrorCode::E_LAUNCH_GEOMETRY, message);
            return Err(error.at(self.func.loc.clone()).into());
        };
        shape.grid = [blocks, code.phases(args, blocks.into()), 1];
        Ok(shape)
    }

    /// The words of a launch, and the code for its arrays.
    fn fit<'a>(
        &self,
        args: &LaunchArgs,
        (words, classes): (&'a mut Vec<u64>, &mut Classes),
    ) -> Result<(&'a mut Vec<u64>, Arc<Variant>), Diagnostics> {
        classes.clear();
        classes.resize(self.frame.params.len(), ArrayClass::default());
        let mut error = None;
        self.frame.fill(&self.func, args, words, |place, _, b| {
            classes[place] = ArrayClass::of_param(&self.frame.params[place].kind, b);
            if u64::from(classes[place].align) < b.dtype.bytes() as u64 && error.is_none() {
                let name = &self.frame.params[place].name;
                error = misaligned(name, b, self.func.loc.clone());
            }
        })?;
        if let Some(error) = error {
            return Err(error.into());
        }
        let variant = self.variant(classes)?;
        Ok((words, variant))
    }

    /// Runs code that can find fault or prints, and waits for what it says.
    fn launch_watched(
        &self,
        variant: &Variant,
        launch: impl FnOnce(u64) -> Result<(), Diagnostics>,
        grid: [i64; 3],
        queue: Queue,
    ) -> Result<(), Diagnostics> {
        if device::is_recording() {
            let message = format!(
                "`{}` has assertions or prints, which must be waited for, and cannot be recorded into a graph",
                self.func.name
            );
            let error = Diagnostic::new(ErrorCode::E_CAPTURE, message);
            return Err(error.at(self.func.loc.clone()).into());
        }
        let status = device::Memory::new(queue, variant.code.context.into())?;
        status.fill(0, queue.stream)?;
        launch(status.address())?;
        let read = |bytes: u32| {
            let mut room = vec![0; bytes as usize];
            let words = BufferArg {
                data: status.address() as *mut u8,
                dims: vec![bytes.into()],
                strides: vec![1],
                dtype: tessera_numerics::DType::U8,
                writable: false,
            };
            device::read(&words, queue, &mut room).map(|()| room)
        };
        variant.code.tell(&self.func.name, grid, read)?;
        let bytes = <[u8; 4]>::try_from(read(4)?).unwrap_or_default();
        match u32::from_le_bytes(bytes) {
            0 => Ok(()),
            number => Err(self.fault(variant, number).into()),
        }
    }

    fn fault(&self, variant: &Variant, number: u32) -> Diagnostic {
        let site = variant.code.sites.get(number as usize - 1);
        let (message, loc) = match site {
            Some(site) if !site.message.is_empty() => (site.message.as_str(), &site.loc),
            Some(site) => {
                ("expected the assertion to hold, got a condition that is false", &site.loc)
            }
            None => ("a kernel stopped at a place that it does not have", &self.func.loc),
        };
        let error = Diagnostic::new(ErrorCode::E_ASSERT, message).at(loc.clone());
        error.note(format!("in `{}`", self.func.name))
    }

    /// An error of the driver with what was being launched.
    fn failed(&self, error: DeviceError, args: &LaunchArgs, device: DeviceId) -> Diagnostics {
        let rows = self.frame.params.iter().zip(&args.params);
        let reported: Vec<String> = rows
            .map(|(param, arg)| match arg {
                ArgValue::Buffer(b) => format!(
                    "{}: {} {} on {device}",
                    param.name,
                    b.dtype,
                    crate::args::shape(&b.dims)
                ),
                ArgValue::Scalar(value) => {
                    format!("{}: {}", param.name, tessera_target::show(*value))
                }
            })
            .collect();
        error.at_launch(&self.func.name, &self.func.loc, &reported.join(", ")).into()
    }
}

/// Resident blocks or clusters of the device, for code whose launches have no more of them.
fn resident_blocks(
    code: &Code,
    function: &dyn Function,
    device: &dyn Device,
) -> Result<u64, DeviceError> {
    let kernel = code.kernel();
    match code.shape {
        Shape::Groups | Shape::Once { .. } | Shape::Lanes { .. } => Ok(u64::MAX),
        Shape::Persistent { .. } if kernel.cluster > 1 => {
            let mut shape = LaunchShape::new([kernel.cluster, 1, 1], kernel.threads);
            shape.cluster = Some([kernel.cluster, 1, 1]);
            shape.shared = kernel.dynamic_shared;
            Ok(u64::from(function.resident_clusters(&shape)?))
        }
        Shape::Persistent { .. } => {
            let each = function.resident_blocks(kernel.threads, kernel.dynamic_shared)?;
            Ok(u64::from(each) * u64::from(device.info().processors))
        }
    }
}

/// Parameter bytes of a launch: words first, and what else the code takes after them.
pub fn as_bytes(words: &[u64]) -> &[u8] {
    // SAFETY: words are bytes, eight each.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

impl Artifact for Kernel {
    fn target_text(&self) -> String {
        self.shown().code.module.text()
    }

    fn staged_text(&self) -> Option<String> {
        self.shown().code.staged.clone()
    }

    fn chosen(&self) -> Attrs {
        self.shown().code.chosen.clone()
    }

    fn hash(&self) -> Hash128 {
        self.shown().code.hash()
    }

    fn warnings(&self) -> Diagnostics {
        self.first.code.warnings.clone()
    }

    fn launch(&self, args: &LaunchArgs) -> Result<(), Diagnostics> {
        self.launch_on(args, DeviceId::new(DeviceKind::CUDA, 0))
    }

    fn launch_on(&self, args: &LaunchArgs, device: DeviceId) -> Result<(), Diagnostics> {
        host::launch(self, args, device)
    }

    fn enqueue(&self, args: &LaunchArgs, queue: Queue) -> Result<(), Diagnostics> {
        if args.grid.contains(&0) {
            return Ok(());
        }
        SCRATCH.with_borrow_mut(|(words, classes)| {
            let (words, variant) = self.fit(args, (words, classes))?;
            let loaded = self.function(&variant, queue.device)?;
            let shape = self.shape(&variant.code, args, &loaded)?;
            let Loaded { function, device: on, .. } = loaded;
            let mut starts = Vec::new();
            if !variant.code.maps.is_empty() {
                let maps = Maps::new(&variant.code, &self.frame, words, &self.func.loc)?;
                starts = maps.starts(words.len());
                maps.push(words, &*on, &self.func.loc)?;
            }
            let mut launch = |status: u64| {
                words[CONTEXT] = status;
                // SAFETY: the words are what the code was made for, checked against the types by
                // `Frame::fill`; the arrays are the caller's, who keeps them in the stream's order.
                unsafe { function.launch(&shape, as_bytes(words), &starts, queue.stream) }
                    .map_err(|error| self.failed(error, args, queue.device))
            };
            match (variant.code.context, variant.code.speaks()) {
                (0, _) => launch(0)?,
                (bytes, _) if variant.code.leaves_zero() => {
                    device::with_workspace(queue, bytes.into(), launch)?
                }
                (bytes, false) => device::with_context(queue, bytes.into(), launch)?,
                (_, true) => self.launch_watched(&variant, launch, args.grid, queue)?,
            }
            device::launched(&function, &self.about, queue);
            *self.last.lock() = Some(variant);
            Ok(())
        })
    }

    fn settle(&self, args: &LaunchArgs, queue: Queue) -> Option<Arc<dyn Settled>> {
        SCRATCH.with_borrow_mut(|(words, classes)| {
            let (words, variant) = self.fit(args, (words, classes)).ok()?;
            let loaded = self.function(&variant, queue.device).ok()?;
            let shape = self.shape(&variant.code, args, &loaded).ok()?;
            let Loaded { function, device, .. } = loaded;
            let about = self.about.clone();
            let all = Repeatable { code: &variant.code, function, shape, device, about };
            settled::settle(all, &self.frame, words)
        })
    }

    fn resources(&self) -> Vec<(&'static str, String)> {
        let variant = self.shown();
        let kernel = variant.code.kernel();
        let mut out = vec![("arch", self.caps.target.to_string())];
        out.extend(variant.code.notes.iter().cloned());
        if let Some(Loaded { function, .. }) = variant.loaded.any() {
            let made = function.facts();
            out.push(("registers", made.registers.to_string()));
            out.push(("local_bytes", made.local_bytes.to_string()));
            if let Ok(blocks) = function.resident_blocks(kernel.threads, kernel.dynamic_shared) {
                out.push(("blocks_per_multiprocessor", blocks.to_string()));
            }
        }
        out.push(("variants", self.variants.lock().len().to_string()));
        out
    }
}
