//! The properties of a device, queried once.

use super::api::{Api, Failure};
use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute};
use std::ffi::{CStr, c_char};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    pub name: String,
    /// Compute capability: (9, 0) on Hopper.
    pub capability: (u32, u32),
    pub multiprocessors: u32,
    pub warp_size: u32,
    pub threads_per_block: u32,
    pub threads_per_multiprocessor: u32,
    pub blocks_per_multiprocessor: u32,
    /// What every kernel may have; more must be requested, see [`Self::shared_per_block_opt_in`].
    pub shared_per_block: u32,
    pub shared_per_block_opt_in: u32,
    pub shared_per_multiprocessor: u32,
    /// What the system takes of the shared memory for each block.
    pub shared_reserved_per_block: u32,
    pub registers_per_block: u32,
    pub registers_per_multiprocessor: u32,
    pub l2_bytes: u64,
    pub max_grid: [u32; 3],
    pub clusters: bool,
    pub cooperative: bool,
    pub tensor_maps: bool,
    /// In kHz, as the driver names it for a device at full speed.
    pub clock_khz: u32,
    pub memory_clock_khz: u32,
    pub memory_bus_bits: u32,
    pub total_memory: u64,
    /// The newest CUDA that the driver serves: 13000 for 13.0.
    pub driver_version: u32,
    /// The newest PTX that it assembles: (9, 0).
    pub ptx_isa: (u32, u32),
}

impl DeviceInfo {
    pub(crate) fn ask(
        api: &Api,
        device: CUdevice,
        driver_version: u32,
        total_memory: u64,
    ) -> Result<Self, Failure> {
        use Attribute::*;
        let ask = |attribute| attribute_of(api, device, attribute);
        // Attributes that older drivers do not know are zero.
        let maybe = |attribute| ask(attribute).unwrap_or(0);
        Ok(Self {
            name: name(api, device)?,
            capability: (
                ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            warp_size: ask(CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
            threads_per_block: ask(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            threads_per_multiprocessor: ask(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            blocks_per_multiprocessor: maybe(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
            shared_per_block: ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
            shared_per_block_opt_in: ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            shared_per_multiprocessor: ask(
                CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            )?,
            shared_reserved_per_block: maybe(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
            registers_per_block: ask(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)?,
            registers_per_multiprocessor: ask(
                CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
            )?,
            l2_bytes: ask(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
            max_grid: [
                ask(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
                ask(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
                ask(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
            ],
            clusters: maybe(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) != 0,
            cooperative: maybe(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) != 0,
            tensor_maps: maybe(CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED) != 0,
            clock_khz: maybe(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
            memory_clock_khz: maybe(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
            memory_bus_bits: maybe(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
            total_memory,
            driver_version,
            ptx_isa: ptx_isa(driver_version).unwrap_or((7, 0)),
        })
    }

    /// What all platforms report.
    pub(crate) fn facts(&self) -> tessera_target::device::DeviceInfo {
        let (cuda, ptx) = (self.driver_version, self.ptx_isa);
        let cuda = format!("{}.{}", cuda / 1000, cuda % 1000 / 10);
        tessera_target::device::DeviceInfo {
            name: self.name.clone(),
            arch: self.arch(),
            capability: self.capability,
            processors: self.multiprocessors,
            lanes: self.warp_size,
            memory_bytes: self.total_memory,
            l2_bytes: self.l2_bytes,
            shared_bytes_per_block: self.shared_per_block_opt_in,
            driver: format!("CUDA {cuda}"),
            versions: vec![("cuda", cuda), ("ptx", format!("{}.{}", ptx.0, ptx.1))],
        }
    }

    /// The architecture's name for an assembler, without a suffix: `sm_90`.
    pub fn arch(&self) -> String {
        format!("sm_{}{}", self.capability.0, self.capability.1)
    }
}

fn attribute_of(api: &Api, device: CUdevice, attribute: Attribute) -> Result<u32, Failure> {
    let mut value = 0;
    // SAFETY: `value` is a place for one number.
    unsafe { api.cuDeviceGetAttribute(&mut value, attribute, device) }?;
    Ok(value.max(0).unsigned_abs())
}

fn name(api: &Api, device: CUdevice) -> Result<String, Failure> {
    let mut text: [c_char; 256] = [0; 256];
    // SAFETY: the driver writes at most this many characters, the last of them zero.
    unsafe { api.cuDeviceGetName(text.as_mut_ptr(), text.len() as i32, device) }?;
    text[255] = 0;
    // SAFETY: it ends with a zero at the latest in its last place.
    Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
}

/// The first CUDA version that takes each PTX version, from the release notes in the PTX manual.
const PTX_OF: &[(u32, (u32, u32))] = &[
    (11_000, (7, 0)),
    (11_010, (7, 1)),
    (11_020, (7, 2)),
    (11_030, (7, 3)),
    (11_040, (7, 4)),
    (11_050, (7, 5)),
    (11_060, (7, 6)),
    (11_070, (7, 7)),
    (11_080, (7, 8)),
    (12_000, (8, 0)),
    (12_010, (8, 1)),
    (12_020, (8, 2)),
    (12_030, (8, 3)),
    (12_040, (8, 4)),
    (12_050, (8, 5)),
    (12_070, (8, 6)),
    (12_080, (8, 7)),
    (12_090, (8, 8)),
    (13_000, (9, 0)),
    (13_010, (9, 1)),
    (13_020, (9, 2)),
    (13_030, (9, 3)),
    (13_040, (9, 4)),
];

/// The newest PTX that CUDA of this version takes, as far as is known here: a newer one takes at
/// least the newest of these. `None` for versions before 11.0.
pub fn ptx_isa(cuda_version: u32) -> Option<(u32, u32)> {
    PTX_OF.iter().rev().find(|(since, _)| *since <= cuda_version).map(|(_, isa)| *isa)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_driver_takes_the_ptx_of_its_version_and_older() {
        assert!(PTX_OF.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
        let cases = [
            (10_020, None),
            (11_040, Some((7, 4))),
            (12_060, Some((8, 5))),
            (13_000, Some((9, 0))),
            (13_001, Some((9, 0))),
            (20_000, Some((9, 4))),
        ];
        for (version, isa) in cases {
            assert_eq!(ptx_isa(version), isa, "{version}");
        }
    }
}
