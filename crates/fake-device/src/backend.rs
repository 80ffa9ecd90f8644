//! The backend of the fake device: what the compiler of a real one does, with Tile IR in the place of its code.

use crate::code::reach;
use crate::device::{Fake, FakeDevice};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_numerics::Scalar;
use tessera_support::Hash128;
use tessera_target::device::{
    Device, DeviceId, DeviceKind, Function, LaunchShape, LoadedCode, Memory,
};
use tessera_target::frame::{Frame, ParamKind, bits};
use tessera_target::{
    ArgValue, Artifact, Backend, BufferArg, Caps, CompileOptions, LaunchArgs, ObjectStore, Packed,
    Queue, Settled,
};
use tessera_tile::TileFunc;

/// Compiles for the architecture of a device of a platform, which launches on arrays of the host run on, by copies.
pub struct FakeBackend {
    platform: Arc<Fake>,
    device: Arc<FakeDevice>,
}

impl FakeBackend {
    pub fn new(platform: &Arc<Fake>, ordinal: u32) -> Result<Self, Diagnostics> {
        Ok(Self { platform: platform.clone(), device: platform.device(ordinal)? })
    }
}

impl Backend for FakeBackend {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn memory(&self) -> DeviceKind {
        DeviceKind::FAKE
    }

    fn target(&self) -> &str {
        &self.device.info().arch
    }

    fn device(&self) -> DeviceId {
        self.device.id()
    }

    fn caps(&self) -> Caps {
        let caps = tessera_interp::Interp.caps();
        Caps { backend: "fake", arch: self.target().into(), ..caps }
    }

    fn compile(
        &self,
        func: &TileFunc,
        options: &CompileOptions,
    ) -> Result<Box<dyn Artifact>, Diagnostics> {
        // What the interpreter refuses is refused here, and not by the first launch.
        tessera_interp::Interp.compile(func, &CompileOptions::new(options.profile))?;
        let (frame, arch) = (Frame::new(func)?, self.target().to_string());
        self.platform.generates(&arch, &func.name);
        let (first, platform, func) = (self.device(), self.platform.clone(), func.clone());
        let (store, loaded) = (options.store.clone(), LoadedCode::default());
        Ok(Box::new(Kernel { func, frame, arch, first, platform, store, loaded }))
    }
}

struct Kernel {
    func: TileFunc,
    frame: Frame,
    arch: String,
    /// Where launches run that name no device.
    first: DeviceId,
    platform: Arc<Fake>,
    store: Arc<dyn ObjectStore>,
    loaded: LoadedCode<Arc<dyn Function>>,
}

/// An array of the host with its copy on the device.
struct Copied {
    /// The lowest byte of the array, and how many there are up to the highest.
    first: *mut u8,
    bytes: usize,
    there: Box<dyn Memory>,
    written: bool,
}

/// The words of a launch as bytes.
fn as_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

impl Kernel {
    fn function(&self, on: DeviceId) -> Result<Arc<dyn Function>, Diagnostics> {
        if let Some(function) = self.loaded.get(on) {
            return Ok(function);
        }
        let device = self.platform.device(on.ordinal)?;
        let (there, arch) = (device.info().arch.clone(), &self.arch);
        if on.kind != DeviceKind::FAKE || there != *arch {
            let message = format!(
                "expected a launch on {arch}, which the code is for, got {on}, which is {there}"
            );
            return Err(Diagnostic::new(Code::E_LAUNCH_DEVICE_MISMATCH, message).into());
        }
        let image = self.func.to_string();
        self.loaded.on(&*device, &*self.store, |store| {
            let module = device.clone().load(image.as_bytes(), store, &self.func.name)?;
            Ok(module.function(&self.func.name)?)
        })
    }

    fn words(&self, args: &LaunchArgs) -> Result<Vec<u64>, Diagnostics> {
        let mut words = Vec::new();
        self.frame.fill(&self.func, args, &mut words, |_, _, _| {})?;
        Ok(words)
    }

    fn copied(
        &self,
        device: &Arc<FakeDevice>,
        buffer: &mut BufferArg,
        written: bool,
    ) -> Result<Copied, Diagnostics> {
        let (low, high) = reach(buffer);
        let bytes = (high - low) as usize;
        let there = device.clone().alloc(bytes.max(1) as u64, 0)?;
        let first = buffer.data.wrapping_offset(low as isize);
        if bytes > 0 {
            // SAFETY: the caller lends all positions of the array, and the bytes between them, for the launch.
            let all = unsafe { std::slice::from_raw_parts(first, bytes) };
            // SAFETY: the memory has as many bytes.
            unsafe { device.copy_in(there.address(), all, 0) }?;
        }
        buffer.data = there.address().wrapping_add_signed(-low) as *mut u8;
        Ok(Copied { first, bytes, there, written })
    }
}

impl Artifact for Kernel {
    fn target_text(&self) -> String {
        self.func.to_string()
    }

    fn hash(&self) -> Hash128 {
        self.func.hash()
    }

    fn launch(&self, args: &LaunchArgs) -> Result<(), Diagnostics> {
        self.launch_on(args, self.first)
    }

    fn launch_on(&self, args: &LaunchArgs, on: DeviceId) -> Result<(), Diagnostics> {
        let device = self.platform.device(on.ordinal)?;
        let mut there = args.clone();
        let mut copied = Vec::new();
        for (arg, param) in there.params.iter_mut().zip(&self.frame.params) {
            if let (ArgValue::Buffer(buffer), ParamKind::Array { privilege, .. }) =
                (arg, &param.kind)
            {
                copied.push(self.copied(&device, buffer, privilege.writes())?);
            }
        }
        self.enqueue(&there, Queue { device: on, stream: 0 })?;
        for copy in copied.iter().filter(|copy| copy.written && copy.bytes > 0) {
            // SAFETY: as in `copied`; the array may be written.
            let all = unsafe { std::slice::from_raw_parts_mut(copy.first, copy.bytes) };
            // SAFETY: the memory has as many bytes.
            unsafe { device.copy_out(all, copy.there.address(), 0) }?;
        }
        Ok(device.synchronize(0)?)
    }

    fn enqueue(&self, args: &LaunchArgs, queue: Queue) -> Result<(), Diagnostics> {
        if args.grid.contains(&0) {
            return Ok(());
        }
        let (words, function) = (self.words(args)?, self.function(queue.device)?);
        let shape = LaunchShape::new([1; 3], 1);
        // SAFETY: the words are those of the function, and the caller keeps the arrays in the stream's order.
        Ok(unsafe { function.launch(&shape, &as_bytes(&words), &[], queue.stream) }?)
    }

    fn settle(&self, args: &LaunchArgs, queue: Queue) -> Option<Arc<dyn Settled>> {
        let places = |wanted: fn(&ParamKind) -> bool| {
            self.frame.params.iter().filter(|p| wanted(&p.kind)).map(|p| p.word).collect()
        };
        Some(Arc::new(Launch {
            function: self.function(queue.device).ok()?,
            words: self.words(args).ok()?,
            addresses: places(|kind| matches!(kind, ParamKind::Array { .. })),
            scalars: places(|kind| matches!(kind, ParamKind::Scalar(_))),
        }))
    }

    fn resources(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// A launch with all but addresses and numbers filled in.
struct Launch {
    function: Arc<dyn Function>,
    words: Vec<u64>,
    addresses: Vec<usize>,
    scalars: Vec<usize>,
}

impl Launch {
    fn put(&self, words: &[u64], stream: u64) -> Result<(), Diagnostics> {
        let shape = LaunchShape::new([1; 3], 1);
        // SAFETY: all but addresses and numbers is as in a launch that was checked.
        Ok(unsafe { self.function.launch(&shape, &as_bytes(words), &[], stream) }?)
    }
}

impl Settled for Launch {
    fn launch(
        &self,
        addresses: &[u64],
        scalars: &[Scalar],
        stream: u64,
    ) -> Result<(), Diagnostics> {
        let mut words = self.words.clone();
        for (&place, &address) in self.addresses.iter().zip(addresses) {
            words[place] = address;
        }
        for (&place, &value) in self.scalars.iter().zip(scalars) {
            words[place] = bits(value);
        }
        self.put(&words, stream)
    }

    fn packed(self: Arc<Self>) -> Option<Box<dyn Packed>> {
        Some(Box::new(Kept { words: self.words.clone(), launch: self }))
    }
}

/// The words of a launch from one time to the next.
struct Kept {
    launch: Arc<Launch>,
    words: Vec<u64>,
}

impl Packed for Kept {
    fn point(&mut self, array: usize, address: u64) {
        self.words[self.launch.addresses[array]] = address;
    }

    fn context(&self) -> u64 {
        0
    }

    fn launch(&mut self, stream: u64, _context: u64) -> Result<(), Diagnostics> {
        self.launch.put(&self.words, stream)
    }
}
