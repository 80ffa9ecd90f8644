//! Which backends there are, and which one a call runs on (LANGUAGE 12).

use crate::knobs;
use crate::location::Location;
use crate::nvidia;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_support::ForkLock;
use tessera_target::{Backend, Caps, MachineCaps};

enum BackendState {
    Ready(Arc<dyn Backend>),
    /// NVIDIA GPUs: code is made for many, and run on those that are there.
    Nvidia,
    /// The code of NVIDIA GPUs, run by an interpreter of PTX in host memory.
    Emulated,
    /// What is missing for it.
    Missing(&'static str),
}

struct Entry {
    name: &'static str,
    state: BackendState,
}

/// The backends of this build and the one the user selected. Every name that exists anywhere is
/// known, so that an absent backend is distinguished from a misspelt one.
pub struct Backends {
    entries: Vec<Entry>,
    selected: ForkLock<Option<String>>,
    /// How often another one was selected.
    changes: AtomicU64,
}

/// A backend with the reason it was taken.
#[derive(Clone)]
pub struct Choice {
    pub backend: Arc<dyn Backend>,
    pub why: &'static str,
}

pub(crate) const NOT_IN_BUILD: &str = "this build does not contain it";

/// A name for the backend of NVIDIA GPUs.
pub(crate) const PTX: &str = "ptx";
/// A name for a GPU in software.
pub(crate) const PTX_EMULATED: &str = "ptx-emulated";

impl Default for Backends {
    fn default() -> Self {
        let mut entries = vec![Entry {
            name: "interp",
            state: BackendState::Ready(Arc::new(tessera_interp::Interp)),
        }];
        entries.push(Entry { name: "cpu", state: cpu() });
        let gpu = if cfg!(feature = "cuda") {
            BackendState::Nvidia
        } else {
            BackendState::Missing(NOT_IN_BUILD)
        };
        entries.push(Entry { name: PTX, state: gpu });
        let software = if cfg!(feature = "cuda") {
            BackendState::Emulated
        } else {
            BackendState::Missing(NOT_IN_BUILD)
        };
        entries.push(Entry { name: PTX_EMULATED, state: software });
        for name in ["rocm", "level_zero", "cudatile"] {
            entries.push(Entry { name, state: BackendState::Missing(NOT_IN_BUILD) });
        }
        Self { entries, selected: ForkLock::new(None), changes: AtomicU64::new(0) }
    }
}

#[cfg(feature = "cpu")]
fn cpu() -> BackendState {
    let isa = knobs::cpu().ok().flatten().unwrap_or_else(tessera_cpu::Isa::host);
    BackendState::Ready(Arc::new(tessera_cpu::Cpu::new(isa)))
}

#[cfg(not(feature = "cpu"))]
fn cpu() -> BackendState {
    BackendState::Missing(NOT_IN_BUILD)
}

impl Choice {
    /// What the backend can do, as the environment has it.
    pub fn caps(&self) -> Result<Caps, Diagnostics> {
        let mut caps = self.backend.caps();
        if caps.backend == "interp"
            && let MachineCaps::Cpu(machine) = &mut caps.machine
        {
            machine.warp_size = knobs::interp_warp()?;
        }
        #[cfg(feature = "cpu")]
        if caps.backend == "cpu" {
            knobs::cpu()?;
            crate::processor::settle_threads()?;
        }
        Ok(caps)
    }

    /// Whether the backend works in the memory of NVIDIA GPUs.
    pub fn is_cuda(&self) -> bool {
        self.backend.name() == PTX
    }
}

/// A backend that is named: the text, the setting it comes from, and why it takes effect.
struct Named {
    text: String,
    requested: &'static str,
    why: &'static str,
}

impl Backends {
    /// Each name, with what is missing for it if something is.
    pub fn list(&self) -> impl Iterator<Item = (&'static str, Option<String>)> {
        self.entries.iter().map(|e| match e.state {
            BackendState::Ready(_) | BackendState::Emulated => (e.name, None),
            BackendState::Nvidia => (e.name, nvidia::missing()),
            BackendState::Missing(what) => (e.name, Some(what.to_string())),
        })
    }

    /// Process-wide; `None` returns to the default.
    pub fn select(&self, name: Option<&str>) -> Result<(), Diagnostics> {
        if let Some(name) = name {
            self.to_run(name, "`select_backend`", Location::Host)?;
        }
        *self.selected.lock() = name.map(str::to_string);
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// How often another backend was selected. Cached choices are valid while it does not change.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The backend that something is compiled for without data, where no device is needed;
    /// `pinned` is the kernel's own `target=`.
    pub fn to_compile(&self, pinned: Option<&str>) -> Result<Choice, Diagnostics> {
        match self.named(pinned) {
            Some(Named { text, requested, why }) => {
                Ok(Choice { backend: self.ready(&text, requested)?, why })
            }
            None => self.by_location(Location::Host),
        }
    }

    /// The backend for a call whose arrays are there.
    pub fn to_launch(
        &self,
        pinned: Option<&str>,
        location: Location,
    ) -> Result<Choice, Diagnostics> {
        match self.named(pinned) {
            Some(Named { text, requested, why }) => {
                Ok(Choice { backend: self.to_run(&text, requested, location)?, why })
            }
            None => self.by_location(location),
        }
    }

    fn named(&self, pinned: Option<&str>) -> Option<Named> {
        if let Some(name) = pinned {
            let why = "`target=` names it";
            return Some(Named { text: name.into(), requested: "`target=`", why });
        }
        if let Some(text) = self.selected.lock().clone() {
            let why = "`select_backend` names it";
            return Some(Named { text, requested: "`select_backend`", why });
        }
        let why = "TESSERA_BACKEND names it";
        knobs::BACKEND.get().map(|text| Named { text, requested: knobs::BACKEND.name, why })
    }

    fn by_location(&self, location: Location) -> Result<Choice, Diagnostics> {
        let choice = |backend, why| Ok(Choice { backend, why });
        match (location, self.present("cpu")) {
            (Location::Cuda(device), _) => {
                let backend = nvidia::on_device(device, None)?;
                choice(backend, "the arrays are on a CUDA device")
            }
            (Location::Host, Some(cpu)) => choice(cpu, "the arrays are in host memory"),
            (Location::Host, None) => choice(
                self.ready("interp", "")?,
                "the arrays are in host memory and this build has no cpu backend",
            ),
        }
    }

    /// The backend for checked and watched calls, whatever is selected; `why` it is needed.
    pub fn interpreter(&self, why: &'static str) -> Result<Choice, Diagnostics> {
        Ok(Choice { backend: self.ready("interp", "the call")?, why })
    }

    fn present(&self, name: &str) -> Option<Arc<dyn Backend>> {
        self.entries.iter().find_map(|e| match &e.state {
            BackendState::Ready(backend) if e.name == name => Some(backend.clone()),
            BackendState::Ready(_)
            | BackendState::Nvidia
            | BackendState::Emulated
            | BackendState::Missing(_) => None,
        })
    }

    /// A backend by name, to compile with; `requested` names the setting that requests it.
    pub fn ready(&self, name: &str, requested: &str) -> Result<Arc<dyn Backend>, Diagnostics> {
        self.find(name, requested, nvidia::to_compile)
    }

    /// A backend by name, to run on arrays that are there.
    fn to_run(
        &self,
        name: &str,
        requested: &str,
        location: Location,
    ) -> Result<Arc<dyn Backend>, Diagnostics> {
        let backend = self.find(name, requested, |target| {
            let device = match (location, target.device) {
                (Location::Cuda(here), Some(named)) if here != named => {
                    return Err(elsewhere(here, &format!("cuda:{named}"), requested));
                }
                (Location::Cuda(here), _) => here,
                (Location::Host, named) => named.unwrap_or(0),
            };
            let found = nvidia::on_device(device, target.arch.as_deref());
            found.map_err(|errors| self.unavailable(errors, requested))
        })?;
        match location {
            Location::Cuda(device) if ["cpu", PTX_EMULATED].contains(&backend.name()) => {
                let place = format!("the backend `{}` in host memory", backend.name());
                Err(elsewhere(device, &place, requested))
            }
            _ => Ok(backend),
        }
    }

    fn find(
        &self,
        name: &str,
        requested: &str,
        nvidia: impl FnOnce(&Target) -> Result<Arc<dyn Backend>, Diagnostics>,
    ) -> Result<Arc<dyn Backend>, Diagnostics> {
        if let Some(backend) = self.present(name) {
            return Ok(backend);
        }
        let target = Target::parse(name);
        let Some(entry) = self.entries.iter().find(|e| e.name == target.backend) else {
            let names: Vec<_> = self.entries.iter().map(|e| e.name).collect();
            return Err(Diagnostic::new(
                Code::E_DRIVER,
                format!("expected a backend (one of {}), got `{name}`", names.join(", ")),
            ).help("`ts.runtime.backends()` lists them with what they miss; `select_backend(None)` returns to the default")
            .note(format!("{requested} requests it"))
            .into());
        };
        match &entry.state {
            BackendState::Ready(backend) => Ok(backend.clone()),
            BackendState::Nvidia => nvidia(&target),
            BackendState::Emulated => nvidia::emulated(&target),
            BackendState::Missing(what) => {
                let message = format!("the backend `{}` is not available: {what}", entry.name);
                Err(self.unavailable(Diagnostic::new(Code::E_DRIVER, message).into(), requested))
            }
        }
    }

    /// The error for an unavailable backend: what requested it, and which backends there are.
    fn unavailable(&self, found: Diagnostics, requested: &str) -> Diagnostics {
        let mut out = Diagnostics::new();
        for mut error in found {
            error.notes.push(format!("{requested} requests it"));
            error.help.get_or_insert_with(|| format!("use one of: {}", self.always().join(", ")));
            out.push(error);
        }
        out
    }

    /// Backends that need no device.
    fn always(&self) -> Vec<&'static str> {
        let ready = |e: &&Entry| matches!(e.state, BackendState::Ready(_));
        self.entries.iter().filter(ready).map(|e| e.name).collect()
    }
}

/// The error for arrays on one device and a request to run elsewhere.
fn elsewhere(device: u32, place: &str, requested: &str) -> Diagnostics {
    let message = format!("the arrays are on cuda:{device}, and {requested} requests {place}");
    let help = match requested {
        "`target=`" => "leave `target=` out, or copy the arrays to where it runs",
        "`select_backend`" => {
            "call `ts.runtime.select_backend(None)`, so that calls run where their arrays are, or copy the arrays first"
        }
        _ => {
            "unset TESSERA_BACKEND, so that calls run where their arrays are, or copy the arrays first"
        }
    };
    Diagnostic::new(Code::E_LAUNCH_DEVICE_MISMATCH, message).help(help).into()
}

/// The target that a name means: users write backends, architectures, vendors, and devices such as
/// `cuda:0`.
#[derive(Debug, PartialEq)]
pub(crate) struct Target {
    pub backend: String,
    /// An architecture of the backend: `sm90`.
    pub arch: Option<String>,
    pub device: Option<u32>,
}

impl Target {
    pub fn parse(name: &str) -> Self {
        let (text, device) = match name.split_once(':') {
            Some((text, number)) => (text, number.parse().ok()),
            None => (name, None),
        };
        let text = text.to_ascii_lowercase().replace('-', "_");
        if text == "ptx_emulated" {
            let arch = name.split_once(':').map(|(_, arch)| arch.to_ascii_lowercase());
            return Self { backend: PTX_EMULATED.into(), arch, device: None };
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
        Self { backend: backend.into(), arch: arch.map(str::to_string), device }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_and_unknown_backends_are_distinguished() {
        let backends = Backends::default();
        let absent = backends.select(Some("gfx942")).unwrap_err().render();
        assert!(
            absent.contains("`rocm` is not available") && absent.contains("interp"),
            "{absent}"
        );
        let unknown = backends.select(Some("fpga")).unwrap_err().render();
        assert!(unknown.contains("got `fpga`") && unknown.contains("level_zero"), "{unknown}");
    }

    #[test]
    fn names_stand_for_backends_architectures_and_devices() {
        let target = |backend: &str, arch: Option<&str>, device| Target {
            backend: backend.into(),
            arch: arch.map(str::to_string),
            device,
        };
        assert_eq!(Target::parse("cuda:1"), target(PTX, None, Some(1)));
        assert_eq!(Target::parse("SM_90a"), target(PTX, Some("sm_90a"), None));
        assert_eq!(Target::parse("hopper"), target(PTX, Some("sm90"), None));
        assert_eq!(Target::parse("ptx"), target(PTX, None, None));
        assert_eq!(Target::parse("smart"), target("smart", None, None));
        assert_eq!(Target::parse("ptx-emulated"), target(PTX_EMULATED, None, None));
        assert_eq!(Target::parse("ptx_emulated:sm_80"), target(PTX_EMULATED, Some("sm_80"), None));
    }

    #[test]
    fn selection_wins_and_can_be_taken_back() {
        let backends = Backends::default();
        let launch = |pinned| backends.to_launch(pinned, Location::Host);
        backends.select(Some("interp")).unwrap();
        assert!(launch(None).is_ok_and(|c| c.why.contains("select_backend")));
        backends.select(None).unwrap();
        assert!(launch(None).is_ok_and(|c| c.why.contains("host memory")));
        assert!(launch(Some("rocm")).is_err());
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn a_gpu_in_software_is_named_with_its_architecture() {
        let backends = Backends::default();
        let arch = |name: &str| {
            backends.to_launch(Some(name), Location::Host).map(|c| c.backend.caps().arch)
        };
        assert!(arch("ptx-emulated").is_ok_and(|a| a == "sm_90a"));
        assert!(arch("ptx-emulated:sm_80").is_ok_and(|a| a == "sm_80"));
        let error = arch("ptx-emulated:sm_42").unwrap_err().render();
        assert!(error.contains("sm_42") && error.contains("sm_80"), "{error}");
        assert!(!backends.to_launch(Some("ptx-emulated"), Location::Host).unwrap().is_cuda());
    }

    #[cfg(feature = "cpu")]
    #[test]
    fn a_backend_of_the_host_does_not_take_arrays_of_a_device() {
        let backends = Backends::default();
        let error = backends.to_launch(Some("cpu"), Location::Cuda(1)).err().unwrap().render();
        assert!(error.contains("E_LAUNCH_DEVICE_MISMATCH") && error.contains("cuda:1"), "{error}");
    }
}
