//! Joins the compiler to PTX with the devices that load PTX: code is made for an architecture, with no device needed, and
//! run on the devices that are there. Everything goes through [`tessera_target::device`], except for what CUDA alone has:
//! tensor maps, and the assembler `ptxas`.

mod host;
mod kernel;
mod maps;
mod settled;

use crate::backends::Family;
use crate::platforms::{self, PTX};
use crate::{device, knobs};
use kernel::Kernel;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_numerics::Profile;
use tessera_ptx::{Feature, PtxCaps, classes_said};
use tessera_ptx_emulator::Emulated;
use tessera_runtime::cuda::ptxas::Ptxas;
use tessera_support::ForkLock;
use tessera_target::arrays::Said;
use tessera_target::device::{DeviceId, DeviceInfo, DeviceKind};
use tessera_target::frame::Frame;
use tessera_target::{Artifact, Backend, Caps, CompileOptions, Footprint, MachineCaps};
use tessera_tile::TileFunc;

/// Code for one architecture, and the device that calls with host arrays run on.
pub struct Nvidia {
    caps: &'static PtxCaps,
    device: Option<u32>,
    /// The architecture, and which device if it is not the first.
    key: String,
}

/// What is compiled for where no device and no architecture is named: the generation that the
/// library's schedules are made for.
const DEFAULT: (u32, bool) = (90, true);

/// The devices of CUDA, by their numbers.
const KIND: DeviceKind = DeviceKind::CUDA;

/// NVIDIA GPUs: code is made for many, and run on those that are there.
pub struct Gpus;

impl Family for Gpus {
    fn memory(&self) -> DeviceKind {
        KIND
    }

    fn missing(&self) -> Option<String> {
        absent().map(|error| error.message)
    }

    fn to_compile(
        &self,
        arch: Option<&str>,
        device: Option<u32>,
    ) -> Result<Arc<dyn Backend>, Diagnostics> {
        if let Some(arch) = arch {
            return Ok(Arc::new(Nvidia::new(named(arch)?, device)));
        }
        if absent().is_none() {
            return on_device(device.unwrap_or(0), None);
        }
        let (sm, exact) = DEFAULT;
        let caps = PtxCaps::of(sm, exact).ok_or_else(|| unknown(&format!("sm{sm}")))?;
        Ok(Arc::new(Nvidia::new(caps, device)))
    }

    fn on_device(&self, device: u32, arch: Option<&str>) -> Result<Arc<dyn Backend>, Diagnostics> {
        on_device(device, arch)
    }
}

/// What is missing for a device to be used, if something is.
fn absent() -> Option<Diagnostic> {
    platforms::of(KIND)?.missing()
}

/// The assembler that a user may have beside the driver's own, with its version.
pub fn assembler(packages: &[PathBuf]) -> Result<String, Diagnostics> {
    let named = knobs::PTXAS.path();
    let found = Ptxas::find(named.as_deref(), packages)?;
    Ok(format!("{}, {}", found.path.display(), found.build))
}

/// The architecture that code is made for on a device.
pub fn code_arch(info: &DeviceInfo) -> String {
    let (major, minor) = info.capability;
    let caps = PtxCaps::for_device(major, minor);
    caps.map_or_else(|| info.arch.clone(), |caps| caps.target.to_string())
}

/// A device, and the architecture that code is to be made for.
type Key = (u32, Option<String>);

static OPEN: ForkLock<BTreeMap<Key, Arc<Nvidia>>> = ForkLock::new(BTreeMap::new());

/// The backend for a device, to run on it; `arch` is what code is to be made for, where that is
/// said.
fn on_device(device: u32, arch: Option<&str>) -> Result<Arc<dyn Backend>, Diagnostics> {
    // A forked child gets this error too: handles that its parent opened are invalid there.
    if let Some(mut error) = absent() {
        error.message = format!("the backend `{PTX}` is not available: {}", error.message);
        return Err(error.into());
    }
    let key = (device, arch.map(str::to_string));
    if let Some(found) = OPEN.lock().get(&key) {
        return Ok(found.clone());
    }
    let opened = device::open(DeviceId::new(KIND, device))?;
    let (major, minor) = opened.info().capability;
    let own = PtxCaps::for_device(major, minor).ok_or_else(|| {
        let DeviceInfo { name, arch, .. } = opened.info();
        let oldest = PtxCaps::all().first().map_or_else(String::new, |c| c.target.to_string());
        let message =
            format!("expected a device of {oldest} or newer, got {name}, which is {arch}");
        Diagnostic::new(Code::E_UNSUPPORTED, message)
    })?;
    let caps = match arch {
        None => own,
        Some(arch) => {
            let wanted = named(arch)?;
            let here = major * 10 + minor;
            let runs = match wanted.target {
                tessera_ptx::Target { sm, exact: true } => sm == here,
                tessera_ptx::Target { sm, exact: false } => sm <= here,
            };
            if !runs {
                let name = &opened.info().name;
                let message = format!(
                    "expected a device that runs code for {}, got {name}, which is {}",
                    wanted.target,
                    opened.info().arch
                );
                let help = format!("leave `target=` out, or name `{}`", own.target);
                return Err(Diagnostic::new(Code::E_DRIVER, message).help(help).into());
            }
            wanted
        }
    };
    let made = Arc::new(Nvidia::new(caps, Some(device)));
    OPEN.lock().insert(key, made.clone());
    Ok(made)
}

static IN_SOFTWARE: ForkLock<BTreeMap<Option<String>, Arc<Emulated>>> =
    ForkLock::new(BTreeMap::new());

/// A GPU in software, which runs the code made for an architecture on arrays of the host; with its name.
pub struct InSoftware(pub &'static str);

impl Family for InSoftware {
    fn memory(&self) -> DeviceKind {
        DeviceKind::CPU
    }

    fn missing(&self) -> Option<String> {
        None
    }

    fn to_compile(
        &self,
        arch: Option<&str>,
        _device: Option<u32>,
    ) -> Result<Arc<dyn Backend>, Diagnostics> {
        let key = arch.map(str::to_string);
        if let Some(found) = IN_SOFTWARE.lock().get(&key) {
            return Ok(found.clone());
        }
        let caps = match arch {
            Some(arch) => named(arch)?,
            None => PtxCaps::of(DEFAULT.0, DEFAULT.1).ok_or_else(|| unknown("sm90"))?,
        };
        let made = Arc::new(Emulated::named(self.0, caps.clone()));
        IN_SOFTWARE.lock().insert(key, made.clone());
        Ok(made)
    }

    fn on_device(&self, _device: u32, arch: Option<&str>) -> Result<Arc<dyn Backend>, Diagnostics> {
        self.to_compile(arch, None)
    }
}

/// `sm_90` is the architecture as PTX has it, which later ones run too, and `sm_90a` the one with
/// what it alone has; `sm90` is what its devices get: the latter where there is one.
fn named(arch: &str) -> Result<&'static PtxCaps, Diagnostics> {
    let digits = arch.trim_start_matches("sm");
    let plain = digits.strip_prefix('_');
    let text = plain.unwrap_or(digits);
    let number = text.trim_end_matches('a');
    let Ok(sm) = number.parse::<u32>() else { return Err(unknown(arch)) };
    let exact = PtxCaps::of(sm, true);
    let found = match (text.ends_with('a'), plain.is_some()) {
        (true, _) => exact,
        (false, true) => PtxCaps::of(sm, false),
        (false, false) => exact.or_else(|| PtxCaps::of(sm, false)),
    };
    found.ok_or_else(|| unknown(arch))
}

fn unknown(arch: &str) -> Diagnostics {
    let names: Vec<_> = PtxCaps::all().iter().map(|c| c.target.to_string()).collect();
    let message = format!("expected an architecture (one of {}), got `{arch}`", names.join(", "));
    let help =
        "write for example `target=\"sm90\"`, which is all that GPUs of this generation have";
    Diagnostic::new(Code::E_UNSUPPORTED, message).help(help).into()
}

/// What an architecture has, by the names that `capabilities()` uses.
pub fn features(arch: &str) -> Vec<(&'static str, bool)> {
    let Ok(caps) = named(arch) else { return Vec::new() };
    let has = |feature| caps.has(feature);
    vec![
        ("ldmatrix", has(Feature::Ldmatrix)),
        ("tma", has(Feature::Tma)),
        ("mbarrier", has(Feature::Mbarrier)),
        ("wgmma", has(Feature::Wgmma)),
        ("clusters", has(Feature::Cluster)),
    ]
}

impl Nvidia {
    fn new(caps: &'static PtxCaps, device: Option<u32>) -> Self {
        let key = match device {
            None | Some(0) => caps.target.to_string(),
            Some(device) => format!("{} on {}", caps.target, DeviceId::new(KIND, device)),
        };
        Self { caps, device, key }
    }
}

impl Backend for Nvidia {
    fn name(&self) -> &'static str {
        PTX
    }

    fn memory(&self) -> DeviceKind {
        KIND
    }

    fn target(&self) -> &str {
        &self.key
    }

    fn caps(&self) -> Caps {
        let present = platforms::of(KIND).map_or(0, |platform| platform.count());
        let device = self.device.filter(|_| present > 0);
        let device = device.and_then(|d| device::open(DeviceId::new(KIND, d)).ok());
        let processors = device.as_ref().map(|d| d.info().processors);
        let gpu = processors.map_or_else(|| self.caps.gpu.clone(), |n| self.caps.gpu.on_device(n));
        Caps {
            backend: PTX,
            arch: self.caps.target.to_string(),
            mma_dtypes: self.caps.mma_dtypes(),
            device_count: present,
            memory_bytes: device.as_ref().map_or(0, |d| d.info().memory_bytes),
            machine: MachineCaps::Gpu(Box::new(gpu)),
            emulated: BTreeMap::new(),
        }
    }

    fn footprint(&self, func: &TileFunc, profile: Profile, arrays: &Said) -> Option<Footprint> {
        let classes = classes_said(&Frame::new(func).ok()?, arrays);
        tessera_ptx::footprint(func, self.caps, profile, &classes)
    }

    fn compile(
        &self,
        func: &TileFunc,
        options: &CompileOptions,
    ) -> Result<Box<dyn Artifact>, Diagnostics> {
        let device = DeviceId::new(KIND, self.device.unwrap_or(0));
        Ok(Box::new(Kernel::new(func, self.caps, device, options)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_numerics::DType;

    #[test]
    fn architectures_have_names() {
        let target = |name: &str| named(name).map(|c| c.target.to_string()).unwrap_or_default();
        assert_eq!(target("sm90"), "sm_90a");
        assert_eq!(target("sm_90"), "sm_90");
        assert_eq!(target("sm_90a"), "sm_90a");
        assert_eq!(target("sm80"), "sm_80");
        let error = named("sm42").unwrap_err().render();
        assert!(error.contains("E_UNSUPPORTED") && error.contains("sm_90a"), "{error}");
    }

    #[test]
    fn what_an_architecture_has_is_reported_without_a_device() {
        let hopper = features("sm_90a");
        assert!(hopper.contains(&("wgmma", true)) && hopper.contains(&("tma", true)));
        assert!(features("sm_80").contains(&("tma", false)));
        let Ok(caps) = named("sm90") else { panic!() };
        let dtypes = caps.mma_dtypes();
        assert!(dtypes.contains(&DType::BF16) && dtypes.contains(&DType::Fp8E4M3));
        assert!(!dtypes.contains(&DType::F32));
    }
}
