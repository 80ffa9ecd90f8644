//! The platform and its devices.

use crate::code::Kernel;
use crate::memory::ordinal_of;
use crate::objects::{Event, Memory, Module, Recording, Stream};
use crate::queue::{Order, Work};
use crate::world::{Call, Live, World};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tessera_diag::{Code, Diagnostic};
use tessera_support::StableHasher;
use tessera_target::ObjectStore;
use tessera_target::device::{
    self as hal, DeviceError, DeviceId, DeviceInfo, DeviceKind, MemoryInfo, PoolStats, Result,
};

/// A platform with a number of devices, each made when it is opened first.
pub struct Fake {
    count: u32,
    devices: Mutex<BTreeMap<u32, Arc<FakeDevice>>>,
    /// By architecture.
    generated: Mutex<BTreeMap<String, Generated>>,
}

/// What the backend generated for an architecture.
#[derive(Clone, Default)]
struct Generated {
    kernels: u64,
    before: Option<BeforeKernel>,
}

/// What a test does before code of a kernel, by its name, is generated.
type BeforeKernel = Arc<dyn Fn(&str) + Send + Sync>;

/// The architecture of devices that are not said to have another.
const ARCH: &str = "fake";

/// Bytes of a workspace, as on other devices.
const WORKSPACE: u64 = 16;

impl Fake {
    pub fn new(count: u32) -> Self {
        Self { count, devices: Mutex::default(), generated: Mutex::default() }
    }

    /// A device of the platform, as its tests want it.
    pub fn device(&self, ordinal: u32) -> Result<Arc<FakeDevice>> {
        self.device_of_arch(ordinal, ARCH)
    }

    /// The same; one that is opened first is made of this architecture.
    pub fn device_of_arch(&self, ordinal: u32, arch: &str) -> Result<Arc<FakeDevice>> {
        if ordinal >= self.count {
            let count = self.count;
            let message = format!("expected a device below fake:{count}, got fake:{ordinal}");
            let error = Diagnostic::new(Code::E_DRIVER, message);
            return Err(error.help("`tessera doctor` lists the devices").into());
        }
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(devices.entry(ordinal).or_insert_with(|| FakeDevice::of_arch(ordinal, arch)).clone())
    }

    fn generated(&self) -> MutexGuard<'_, BTreeMap<String, Generated>> {
        self.generated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many kernels the backend has generated code of, for an architecture.
    pub fn kernels(&self, arch: &str) -> u64 {
        self.generated().get(arch).map_or(0, |found| found.kernels)
    }

    /// Calls this before code of a kernel is generated for the architecture, on the thread that does it.
    pub fn before_kernels(&self, arch: &str, call: impl Fn(&str) + Send + Sync + 'static) {
        self.generated().entry(arch.into()).or_default().before = Some(Arc::new(call));
    }

    /// Counts a kernel that is generated.
    pub(crate) fn generates(&self, arch: &str, kernel: &str) {
        let before = {
            let mut generated = self.generated();
            let found = generated.entry(arch.into()).or_default();
            found.kernels += 1;
            found.before.clone()
        };
        if let Some(before) = before {
            before(kernel);
        }
    }
}

impl hal::Platform for Fake {
    fn kind(&self) -> DeviceKind {
        DeviceKind::FAKE
    }

    fn missing(&self) -> Option<Diagnostic> {
        let error = Diagnostic::new(Code::E_DRIVER, "there is no fake device");
        (self.count == 0).then(|| error.help("ask for one or more"))
    }

    fn count(&self) -> u32 {
        self.count
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn hal::Device>> {
        Ok(self.device(ordinal)?)
    }

    fn device_of(&self, address: u64) -> Option<u32> {
        ordinal_of(address).filter(|&ordinal| ordinal < self.count)
    }
}

pub struct FakeDevice {
    me: Weak<FakeDevice>,
    ordinal: u32,
    info: DeviceInfo,
    world: Mutex<World>,
}

impl FakeDevice {
    pub fn new(ordinal: u32) -> Arc<Self> {
        Self::of_arch(ordinal, ARCH)
    }

    fn of_arch(ordinal: u32, arch: &str) -> Arc<Self> {
        let info = DeviceInfo {
            name: "a fake device".into(),
            arch: arch.into(),
            capability: (1, 0),
            processors: 2,
            lanes: 32,
            memory_bytes: 1 << 34,
            l2_bytes: 1 << 20,
            shared_bytes_per_block: 228 << 10,
            driver: "fake 1.0".into(),
            versions: vec![("fake", "1.0".into())],
        };
        let world = Mutex::new(World::new(ordinal));
        Arc::new_cyclic(|me| Self { me: me.clone(), ordinal, info, world })
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_order(&self, order: Order) {
        self.world().set_order(order);
    }

    /// Bytes that all allocations may have together.
    pub fn set_room(&self, bytes: u64) {
        self.world().room = bytes;
    }

    /// Lets a call fail: the n-th of a kind, or of any, counted from here on; `None` for none.
    pub fn fail(&self, which: Option<(Option<Call>, u64)>) {
        let mut world = self.world();
        world.calls.clear();
        world.total = 0;
        world.failing = which;
    }

    /// The calls since the last `fail`, all kinds together.
    pub fn calls(&self) -> u64 {
        self.world().total
    }

    pub fn calls_of(&self, call: Call) -> u64 {
        self.world().calls.get(&call).copied().unwrap_or(0)
    }

    /// Does nothing in the n-th wait of a stream for an event since the last `fail`, as for a program that lacks it.
    pub fn leave_out_wait(&self, number: Option<u64>) {
        self.world().left_out = number;
    }

    pub fn live(&self) -> Live {
        self.world().live
    }

    /// Bytes that are allocated and whose end no stream has reached.
    pub fn bytes_in_use(&self) -> u64 {
        let world = self.world();
        world.memory.in_use - WORKSPACE * world.workspaces.len() as u64
    }

    /// An image in the form that is loaded: behind a zero. The store keeps it for all devices of the architecture.
    fn assembled(&self, image: &[u8], store: &dyn ObjectStore, about: &str) -> Result<Vec<u8>> {
        let mut hasher = StableHasher::new();
        hasher.write_str(&self.info.arch);
        hasher.write_str(&StableHasher::of_bytes(image).to_string());
        let key = hasher.finish();
        if let Some(found) = store.get(key) {
            return Ok(found);
        }
        self.world().enter(Call::Assemble)?;
        let assembled = [&[0], image].concat();
        store.put(key, about, &assembled);
        Ok(assembled)
    }

    /// The accesses that no wait orders, since they were taken last.
    pub fn hazards(&self) -> Vec<String> {
        std::mem::take(&mut self.world().hazards)
    }
}

impl hal::Device for FakeDevice {
    fn id(&self) -> DeviceId {
        DeviceId::new(DeviceKind::FAKE, self.ordinal)
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> Result<MemoryInfo> {
        let mut world = self.world();
        world.enter(Call::MemoryInfo)?;
        Ok(MemoryInfo { free: world.room.saturating_sub(world.memory.in_use), total: world.room })
    }

    fn any(&self) -> &dyn Any {
        self
    }

    fn alloc(self: Arc<Self>, bytes: u64, stream: u64) -> Result<Box<dyn hal::Memory>> {
        let mut world = self.world();
        world.enter(Call::Alloc)?;
        world.not_capturing(stream, "allocating memory")?;
        let room = world.room;
        let address = match world.memory.alloc(bytes, room) {
            // What was freed may wait behind work that has not run.
            Err(_) => {
                world.settle();
                world.memory.alloc(bytes, room)?
            }
            Ok(address) => address,
        };
        world.live.memory += 1;
        drop(world);
        let others = Mutex::default();
        Ok(Box::new(Memory { device: self, address, bytes, home: stream, others }))
    }

    fn pool(&self) -> PoolStats {
        let world = self.world();
        PoolStats {
            held: world.memory.in_use,
            in_use: world.memory.in_use,
            peak: world.memory.peak,
            allocated: world.memory.count,
            ..PoolStats::default()
        }
    }

    fn trim(&self) -> Result<u64> {
        self.world().enter(Call::Trim)?;
        Ok(0)
    }

    unsafe fn copy_in(&self, to: u64, from: &[u8], stream: u64) -> Result<()> {
        let mut world = self.world();
        world.enter(Call::CopyIn)?;
        world.not_capturing(stream, "a copy from the host")?;
        world.give(stream, Work::CopyIn { to, data: from.to_vec() })
    }

    unsafe fn copy_out(&self, to: &mut [u8], from: u64, stream: u64) -> Result<()> {
        let mut world = self.world();
        world.enter(Call::CopyOut)?;
        world.not_capturing(stream, "a copy to the host")?;
        world.read(stream, from, to)
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: u64, stream: u64) -> Result<()> {
        let mut world = self.world();
        world.enter(Call::Copy)?;
        world.give(stream, Work::Copy { to, from, bytes })
    }

    unsafe fn fill(&self, to: u64, value: u8, bytes: u64, stream: u64) -> Result<()> {
        let mut world = self.world();
        world.enter(Call::Fill)?;
        world.give(stream, Work::Fill { to, value, bytes })
    }

    fn stream(self: Arc<Self>) -> Result<Box<dyn hal::Stream>> {
        let mut world = self.world();
        world.enter(Call::Stream)?;
        let handle = world.new_stream();
        world.live.streams += 1;
        drop(world);
        Ok(Box::new(Stream { device: self, handle }))
    }

    unsafe fn check_stream(&self, stream: u64) -> Result<()> {
        let mut world = self.world();
        world.enter(Call::CheckStream)?;
        world.known(stream)
    }

    fn synchronize(&self, stream: u64) -> Result<()> {
        let mut world = self.world();
        world.enter(Call::Synchronize)?;
        world.not_capturing(stream, "waiting for the stream")?;
        world.synchronize(stream)
    }

    fn synchronize_all(&self) -> Result<()> {
        let mut world = self.world();
        world.enter(Call::Synchronize)?;
        world.synchronize_all()
    }

    fn is_idle(&self, stream: u64) -> Result<bool> {
        let mut world = self.world();
        world.enter(Call::Query)?;
        world.is_idle(stream)
    }

    fn is_capturing(&self, stream: u64) -> Result<bool> {
        let world = self.world();
        world.known(stream)?;
        Ok(world.captures.contains_key(&stream))
    }

    fn event(&self, timed: bool) -> Result<Box<dyn hal::Event>> {
        let mut world = self.world();
        world.enter(Call::Event)?;
        let Some(device) = self.me.upgrade() else {
            return Err(Diagnostic::new(Code::E_DRIVER, "the device is gone").into());
        };
        let number = world.new_event();
        world.live.events += 1;
        drop(world);
        Ok(Box::new(Event { device, number, timed }))
    }

    fn load(
        self: Arc<Self>,
        image: &[u8],
        store: &dyn ObjectStore,
        about: &str,
    ) -> Result<Arc<dyn hal::Module>> {
        let assembled = self.assembled(image, store, about)?;
        let mut world = self.world();
        world.enter(Call::Load)?;
        let kernel = match assembled.split_first() {
            Some((0, code)) => Kernel::load(code),
            _ => Err(Diagnostic::new(Code::E_TARGET_CODEGEN, "the code is not assembled").into()),
        };
        let kernel = kernel.map_err(|errors| {
            let found = errors.into_iter().next();
            DeviceError::from(found.unwrap_or_else(|| {
                Diagnostic::new(Code::E_TARGET_CODEGEN, "the image is no code of this device")
            }))
        })?;
        world.live.modules += 1;
        drop(world);
        Ok(Arc::new(Module { device: self, kernel: Arc::new(kernel) }))
    }

    fn workspace(self: Arc<Self>, stream: u64, bytes: u64) -> Result<Option<u64>> {
        let mut world = self.world();
        world.enter(Call::Workspace)?;
        world.known(stream)?;
        if bytes > WORKSPACE || world.captures.contains_key(&stream) {
            return Ok(None);
        }
        if let Some(&address) = world.workspaces.get(&stream) {
            return Ok(Some(address));
        }
        let room = world.room;
        let address = world.memory.alloc(WORKSPACE, room)?;
        let at = world.memory.at(address, WORKSPACE)?;
        // SAFETY: `at` has found these bytes.
        unsafe { at.write_bytes(0, WORKSPACE as usize) };
        world.workspaces.insert(stream, address);
        Ok(Some(address))
    }

    fn record(self: Arc<Self>) -> Result<Box<dyn hal::Recording>> {
        let mut world = self.world();
        world.enter(Call::Capture)?;
        let stream = world.begin_capture();
        world.live.recordings += 1;
        drop(world);
        Ok(Box::new(Recording { device: self, stream }))
    }
}
