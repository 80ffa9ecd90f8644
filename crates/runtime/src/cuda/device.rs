//! A device of this machine.

use super::context::{Context, Current, Handle};
use super::driver::{self, driver};
use super::error::CudaError;
use super::graph::Relaxed;
use super::info::DeviceInfo;
use super::pool::{Blocks, DeviceMemory};
use super::staging::Staging;
use super::stream::StreamRef;
use super::tensor_map::Cache;
use super::wait;
use super::workspace::Workspaces;
use std::collections::BTreeMap;
use std::fmt;
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};
use tessera_diag::{Code, Diagnostic};
use tessera_support::ForkLock;
use tessera_target::device::MemoryInfo;

pub struct Device {
    ordinal: u32,
    pub(crate) context: Context,
    info: DeviceInfo,
    /// The same as all platforms report it.
    pub(crate) facts: tessera_target::device::DeviceInfo,
    pub(crate) blocks: Blocks<DeviceMemory>,
    pub(crate) staging: ForkLock<Option<Staging>>,
    /// Streams of dropped owners. They are reused and never destroyed: a handle then always
    /// identifies one order of work, which the pool relies on.
    pub(crate) idle_streams: ForkLock<Vec<u64>>,
    pub(crate) workspaces: ForkLock<Workspaces>,
    pub(crate) tensor_maps: ForkLock<Cache>,
}

static DEVICES: ForkLock<BTreeMap<u32, Arc<Device>>> = ForkLock::new(BTreeMap::new());

/// The first of them without a lock, each with the process that opened it.
static OPENED: [OnceLock<(u32, Arc<Device>)>; 16] = [const { OnceLock::new() }; 16];

impl Device {
    /// The device of this number; the same one each time. Its primary context is kept from the
    /// first call to the end of the process.
    pub fn get(ordinal: u32) -> Result<Arc<Device>, CudaError> {
        let known = OPENED.get(ordinal as usize).and_then(OnceLock::get);
        if let Some((process, device)) = known
            && *process == driver::process()
        {
            return Ok(device.clone());
        }
        Self::find(ordinal)
    }

    fn find(ordinal: u32) -> Result<Arc<Device>, CudaError> {
        let driver = driver()?;
        let mut devices = DEVICES.lock();
        if let Some(device) = devices.get(&ordinal) {
            return Ok(device.clone());
        }
        if ordinal >= driver.present.devices {
            let count = driver.present.devices;
            let message = format!("expected a device below cuda:{count}, got cuda:{ordinal}");
            return Err(CudaError::refused(Diagnostic::new(Code::E_DRIVER, message)));
        }
        let device = Arc::new(Self::open(driver, ordinal)?);
        devices.insert(ordinal, device.clone());
        if let Some(place) = OPENED.get(ordinal as usize) {
            place.get_or_init(|| (driver::process(), device.clone()));
        }
        Ok(device)
    }

    fn open(driver: driver::Driver, ordinal: u32) -> Result<Device, CudaError> {
        let api = driver.api;
        let (mut device, mut raw) = (0, null_mut());
        // SAFETY: places for a device and a context.
        unsafe {
            api.cuDeviceGet(&mut device, ordinal as i32)?;
            api.cuDevicePrimaryCtxRetain(&mut raw, device)?;
        }
        let context = Context { api, raw: Handle(raw) };
        let _current = context.make_current()?;
        let total = memory(context)?.total;
        let info = DeviceInfo::ask(api, device, driver.present.version, total)?;
        Ok(Self {
            ordinal,
            context,
            facts: info.facts(),
            info,
            blocks: Blocks::new(DeviceMemory { context }, format!("cuda:{ordinal}")),
            staging: ForkLock::default(),
            idle_streams: ForkLock::default(),
            workspaces: ForkLock::default(),
            tensor_maps: ForkLock::default(),
        })
    }

    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    pub fn memory(&self) -> Result<MemoryInfo, CudaError> {
        memory(self.context)
    }

    /// Makes the device's context the thread's, until the guard goes.
    pub fn make_current(&self) -> Result<Current, CudaError> {
        self.context.make_current()
    }

    /// Waits until all work of the stream is done, or the host asks to stop.
    pub fn synchronize(&self, stream: StreamRef) -> Result<(), CudaError> {
        let _current = self.make_current()?;
        stream.not_capturing(self.context.api, "waiting for the stream")?;
        let _relaxed = Relaxed::begin(self.context.api);
        wait::until(|| stream.is_idle(self.context.api))
    }

    /// Whether all work of the stream is done.
    pub(crate) fn is_stream_idle(&self, stream: StreamRef) -> Result<bool, CudaError> {
        let _current = self.make_current()?;
        stream.not_capturing(self.context.api, "asking for the stream's end")?;
        let _relaxed = Relaxed::begin(self.context.api);
        stream.is_idle(self.context.api)
    }

    /// Waits until all work that this process has given the device is done, on whatever stream, or
    /// the host asks to stop. The driver's own wait cannot be stopped: another thread does it.
    pub fn synchronize_all(&self) -> Result<(), CudaError> {
        let context = self.context;
        let waiting = std::thread::spawn(move || {
            let _current = context.make_current()?;
            // SAFETY: the context is current.
            unsafe { context.api.cuCtxSynchronize() }.map_err(CudaError::from)
        });
        wait::until(|| Ok(waiting.is_finished()))?;
        waiting.join().unwrap_or(Ok(()))
    }
}

pub(crate) fn memory(context: Context) -> Result<MemoryInfo, CudaError> {
    let _current = context.make_current()?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: places for two numbers.
    unsafe { context.api.cuMemGetInfo_v2(&mut free, &mut total) }?;
    Ok(MemoryInfo { free: free as u64, total: total as u64 })
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{} ({})", self.ordinal, self.info.name)
    }
}
