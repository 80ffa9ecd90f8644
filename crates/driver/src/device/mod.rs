//! The devices of this machine, for the driver and the binding: memory, copies, streams, events, recordings. A device is
//! named by its [`DeviceId`], a stream by its handle, as the library that it comes from reports it; 0 is the default
//! one. `platforms.rs` says which kinds there are.

mod memory;
mod recording;
mod stream;
mod transfer;

pub use memory::{Memory, with_context, with_memory, with_workspace, workspace};
pub use recording::{
    About, Graph, begin_recording, drop_recording, end_recording, is_recording, launched, launches,
};
pub(crate) use recording::{UsedByGraph, launched_all, of_launch, share};
pub(crate) use stream::or_wait;
pub use stream::{Mark, Stream, hold_back, wait_for};
pub use transfer::{copy_on_device, read, write};

use crate::platforms;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_target::device::{Device, DeviceId, DeviceInfo, DeviceKind};

/// What there is to know of a device.
#[derive(Clone, Debug)]
pub struct DeviceRow {
    pub id: DeviceId,
    pub info: DeviceInfo,
    /// What code is made for: `sm_90a`.
    pub arch: String,
    pub free_bytes: u64,
    /// Of the whole device; the driver may keep a part for itself.
    pub total_bytes: u64,
}

/// Bytes and counts of a device's pool.
#[derive(Copy, Clone, Debug, Default)]
pub struct MemoryStats {
    pub held: u64,
    pub in_use: u64,
    pub peak: u64,
    pub free_blocks: u64,
    pub reused: u64,
    pub allocated: u64,
    /// Of the whole device, all processes together.
    pub device_free: u64,
    pub device_total: u64,
}

/// The device of this name.
pub fn open(id: DeviceId) -> Result<Arc<dyn Device>, Diagnostics> {
    match platforms::of(id.kind) {
        Some(platform) => Ok(platform.open(id.ordinal)?),
        None => Err(unknown(&id.to_string())),
    }
}

/// Whether there is a platform for the kind, if one without a device or a driver.
pub fn is_known(kind: DeviceKind) -> bool {
    platforms::of(kind).is_some()
}

/// The device that a user's text names: `cuda:1`, `gpu`, `cpu`. It need not be there.
pub fn named(text: &str) -> Result<DeviceId, Diagnostics> {
    let found = DeviceId::split(text).and_then(|(name, ordinal)| {
        let is_meant =
            |kind: DeviceKind, aliases: &[&str]| kind.name() == name || aliases.contains(&name);
        let kind = platforms::all().find(|p| is_meant(p.kind(), p.aliases()))?.kind();
        // The host is one device, whatever number other libraries give it.
        let ordinal = if kind == DeviceKind::CPU { 0 } else { ordinal };
        Some(DeviceId::new(kind, ordinal))
    });
    found.ok_or_else(|| unknown(text))
}

fn unknown(text: &str) -> Diagnostics {
    let message = format!("expected a device such as \"cuda:0\" or \"cpu\", got {text:?}");
    Diagnostic::new(Code::E_ARGUMENT, message).help("`tessera doctor` lists the devices").into()
}

/// Each platform beside the host, with what is missing for it if something is.
pub fn missing() -> Vec<(DeviceKind, Option<String>)> {
    let beside = platforms::all().filter(|p| p.kind() != DeviceKind::CPU);
    beside.map(|p| (p.kind(), p.missing().map(|error| error.message))).collect()
}

/// All devices that can be used, without the host. Opens none.
pub fn present() -> Vec<DeviceId> {
    let beside = platforms::all().filter(|p| p.kind() != DeviceKind::CPU);
    beside.flat_map(|p| (0..p.count()).map(|n| DeviceId::new(p.kind(), n))).collect()
}

/// What there is to know of each. Opens them.
pub fn devices() -> Result<Vec<DeviceRow>, Diagnostics> {
    present().into_iter().map(row).collect()
}

pub fn row(id: DeviceId) -> Result<DeviceRow, Diagnostics> {
    let device = open(id)?;
    let (info, memory) = (device.info().clone(), device.memory()?);
    let arch = platforms::code_arch(id.kind, &info);
    Ok(DeviceRow { id, arch, info, free_bytes: memory.free, total_bytes: memory.total })
}

/// The device of a kind whose memory an address is; its first where the driver does not know.
pub fn of_address(kind: DeviceKind, address: u64) -> DeviceId {
    let found = platforms::of(kind).and_then(|platform| platform.device_of(address));
    DeviceId::new(kind, found.unwrap_or(0))
}

/// Waits for the work of one stream, or for all work of the device.
pub fn synchronize(id: DeviceId, on: Option<u64>) -> Result<(), Diagnostics> {
    let device = open(id)?;
    match on {
        Some(stream) => device.synchronize(stream),
        None => device.synchronize_all(),
    }
    .map_err(of_launch)
}

pub fn memory_stats(id: DeviceId) -> Result<MemoryStats, Diagnostics> {
    let device = open(id)?;
    let (pool, memory) = (device.pool(), device.memory()?);
    Ok(MemoryStats {
        held: pool.held,
        in_use: pool.in_use,
        peak: pool.peak,
        free_blocks: pool.free_blocks,
        reused: pool.reused,
        allocated: pool.allocated,
        device_free: memory.free,
        device_total: memory.total,
    })
}

/// Gives memory that is kept and not used back to the device; says how much.
pub fn trim(id: DeviceId) -> Result<u64, Diagnostics> {
    Ok(open(id)?.trim()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_one_name_whatever_users_write() {
        let of = |text: &str| named(text).map(|id| id.to_string());
        assert_eq!(of("cpu"), Ok("cpu".into()));
        assert_eq!(of("cpu:3"), Ok("cpu".into()));
        assert_eq!((of("cuda"), of("gpu:2")), (Ok("cuda:0".into()), Ok("cuda:2".into())));
        for text in ["", "cuda:", "cuda:x", "tpu:0", "cuda:-1", "hip:0"] {
            let error = of(text).err().unwrap_or_else(|| panic!("{text} was taken"));
            assert_eq!(error.iter().next().map(|d| d.code), Some(Code::E_ARGUMENT), "{text}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_a_typed_error() {
        let (cuda, hip) = (DeviceKind::CUDA, DeviceKind::HIP);
        for (id, code) in [
            (DeviceId::new(cuda, 4000), Code::E_DRIVER),
            (DeviceId::new(hip, 0), Code::E_ARGUMENT),
            (DeviceId::new(DeviceKind::CPU, 1), Code::E_DRIVER),
        ] {
            for error in [
                open(id).err(),
                synchronize(id, None).err(),
                memory_stats(id).err(),
                trim(id).err(),
                begin_recording(id).err(),
            ] {
                let found = error.unwrap_or_else(|| panic!("{id} was taken"));
                assert_eq!(found.iter().next().map(|d| d.code), Some(code), "{id}");
            }
        }
        assert!(!is_recording());
    }
}
