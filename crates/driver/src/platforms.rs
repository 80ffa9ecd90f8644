//! Which platforms and families of backends this build has, and the names that users write for them. With the module
//! that joins a compiler with the devices that load its code (`nvidia`), this is the only file that knows vendors.

use crate::backends::{Family, NOT_IN_BUILD, Target};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_target::device::{Device, DeviceInfo, DeviceKind, Platform, Result};

#[cfg(feature = "cuda")]
#[path = "nvidia/mod.rs"]
mod nvidia;

/// The backend of NVIDIA GPUs.
pub(crate) const PTX: &str = "ptx";
/// The same code, run by an interpreter of PTX in host memory.
const PTX_EMULATED: &str = "ptx-emulated";

/// The backend whose schedules the library asks the cost model for.
pub(crate) const LIBRARY_TARGET: &str = PTX;

/// The platforms by kind. Those that are not built in come from `register`.
static PLATFORMS: [OnceLock<Arc<dyn Platform>>; DeviceKind::COUNT] =
    [const { OnceLock::new() }; DeviceKind::COUNT];

fn built_in(kind: DeviceKind) -> Option<Arc<dyn Platform>> {
    match kind {
        DeviceKind::CPU => Some(Arc::new(tessera_runtime::host::Host)),
        #[cfg(feature = "cuda")]
        DeviceKind::CUDA => Some(Arc::new(tessera_runtime::cuda::Cuda)),
        #[cfg(not(feature = "cuda"))]
        DeviceKind::CUDA => Some(Arc::new(Absent(kind, &["gpu"]))),
        _ => None,
    }
}

/// The platform of a kind, where this build or a test has one.
pub(crate) fn of(kind: DeviceKind) -> Option<&'static Arc<dyn Platform>> {
    let place = &PLATFORMS[kind.index()];
    if let Some(platform) = place.get() {
        return Some(platform);
    }
    let platform = built_in(kind)?;
    Some(place.get_or_init(|| platform))
}

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Arc<dyn Platform>> {
    DeviceKind::all().filter_map(of)
}

/// Adds a platform that is not built in; false where its kind has one already.
pub fn register(platform: Arc<dyn Platform>) -> bool {
    let kind = platform.kind();
    of(kind).is_none() && PLATFORMS[kind.index()].set(platform).is_ok()
}

/// A platform that the build leaves out. Users may write its names all the same.
#[cfg_attr(feature = "cuda", allow(dead_code))]
struct Absent(DeviceKind, &'static [&'static str]);

impl Platform for Absent {
    fn kind(&self) -> DeviceKind {
        self.0
    }

    fn aliases(&self) -> &'static [&'static str] {
        self.1
    }

    fn missing(&self) -> Option<Diagnostic> {
        let error = Diagnostic::new(Code::E_DRIVER, NOT_IN_BUILD);
        Some(error.help(format!("install a build of Tessera with the platform `{}`", self.0)))
    }

    fn count(&self) -> u32 {
        0
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>> {
        let message = format!("{}:{ordinal} is not available: {NOT_IN_BUILD}", self.0);
        let help = format!("install a build of Tessera with the platform `{}`", self.0);
        Err(Diagnostic::new(Code::E_DRIVER, message).help(help).into())
    }

    fn device_of(&self, _: u64) -> Option<u32> {
        None
    }
}

/// A family of backends, or what is missing for it.
pub(crate) type Presence = std::result::Result<Arc<dyn Family>, &'static str>;

/// The families of backends in the order that users see, each absent one with what is missing.
pub(crate) fn families() -> Vec<(&'static str, Presence)> {
    let mut out: Vec<(_, Presence)> = Vec::new();
    #[cfg(feature = "cuda")]
    {
        out.push((PTX, Ok(Arc::new(nvidia::Gpus))));
        out.push((PTX_EMULATED, Ok(Arc::new(nvidia::InSoftware(PTX_EMULATED)))));
    }
    #[cfg(not(feature = "cuda"))]
    out.extend([(PTX, Err(NOT_IN_BUILD)), (PTX_EMULATED, Err(NOT_IN_BUILD))]);
    out.extend(["rocm", "level_zero", "cudatile"].map(|name| (name, Err(NOT_IN_BUILD))));
    out
}

/// The target that a name means: users write backends, architectures, vendors, and devices such as `cuda:0`.
pub(crate) fn target(name: &str) -> Target {
    let (text, device) = match name.split_once(':') {
        Some((text, number)) => (text, number.parse().ok()),
        None => (name, None),
    };
    let text = text.to_ascii_lowercase().replace('-', "_");
    if text == "ptx_emulated" {
        let arch = name.split_once(':').map(|(_, arch)| arch.to_ascii_lowercase());
        return Target { backend: PTX_EMULATED.into(), arch, device: None };
    }
    let is = |prefix: &str| {
        text.strip_prefix(prefix).is_some_and(|rest| {
            rest.trim_start_matches('_').starts_with(|c: char| c.is_ascii_digit())
        })
    };
    let (backend, arch) = match text.as_str() {
        "x86" => ("cpu", None),
        "cuda" | "gpu" | "nvidia" => (PTX, None),
        "turing" => (PTX, Some("sm75")),
        "ampere" => (PTX, Some("sm80")),
        "ada" => (PTX, Some("sm89")),
        "hopper" => (PTX, Some("sm90")),
        "blackwell" => (PTX, Some("sm100")),
        "amd" | "hip" | "mi300x" => ("rocm", None),
        "intel" => ("level_zero", None),
        other if is("sm") => (PTX, Some(other)),
        _ if is("gfx") => ("rocm", None),
        other => (other, None),
    };
    Target { backend: backend.into(), arch: arch.map(str::to_string), device }
}

/// The architecture that code is made for on a device.
pub(crate) fn code_arch(kind: DeviceKind, info: &DeviceInfo) -> String {
    #[cfg(feature = "cuda")]
    if kind == DeviceKind::CUDA {
        return nvidia::code_arch(info);
    }
    let _ = kind;
    info.arch.clone()
}

/// What an architecture has, by the names that `capabilities()` uses.
pub fn features(arch: &str) -> Vec<(&'static str, bool)> {
    #[cfg(feature = "cuda")]
    return nvidia::features(arch);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = arch;
        Vec::new()
    }
}

/// The assembler beside the driver's own, for people: where it is and its version. It is looked for in folders of
/// Python packages too.
pub fn assembler(packages: &[PathBuf]) -> std::result::Result<String, Diagnostics> {
    #[cfg(feature = "cuda")]
    return nvidia::assembler(packages);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = packages;
        let message = format!("the backend `{PTX}` is not available: {NOT_IN_BUILD}");
        Err(Diagnostic::new(Code::E_DRIVER, message).into())
    }
}

/// Begins to collect the cycle counts of launches of this thread.
pub(crate) fn clocks_begin() {
    #[cfg(feature = "cuda")]
    tessera_ptx::stamps::begin();
}

/// Ends it: what came, and for how many visits there was no room.
pub(crate) fn clocks_end() -> (Vec<crate::clocks::Visit>, u64) {
    #[cfg(feature = "cuda")]
    {
        let stamps = tessera_ptx::stamps::end();
        let visit = |s: tessera_ptx::stamps::Stamped| {
            (s.role, s.replica, s.line, s.least, s.block, s.iterations, s.begin, s.end)
        };
        (stamps.list.into_iter().map(visit).collect(), stamps.left_out)
    }
    #[cfg(not(feature = "cuda"))]
    (Vec::new(), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_backends_architectures_and_devices() {
        let expected = |backend: &str, arch: Option<&str>, device| Target {
            backend: backend.into(),
            arch: arch.map(str::to_string),
            device,
        };
        assert_eq!(target("cuda:1"), expected(PTX, None, Some(1)));
        assert_eq!(target("SM_90a"), expected(PTX, Some("sm_90a"), None));
        assert_eq!(target("hopper"), expected(PTX, Some("sm90"), None));
        assert_eq!(target("ptx"), expected(PTX, None, None));
        assert_eq!(target("smart"), expected("smart", None, None));
        assert_eq!(target("ptx-emulated"), expected(PTX_EMULATED, None, None));
        assert_eq!(target("ptx_emulated:sm_80"), expected(PTX_EMULATED, Some("sm_80"), None));
    }

    #[test]
    fn the_host_has_a_platform_and_keeps_it() {
        assert!(of(DeviceKind::CPU).is_some_and(|host| host.count() == 1));
        assert!(!register(Arc::new(tessera_runtime::host::Host)));
        assert!(of(DeviceKind::HIP).is_none());
    }
}
