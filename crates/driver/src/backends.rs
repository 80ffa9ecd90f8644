//! Which backends there are, and which one a call runs on (LANGUAGE 12).

use crate::knobs;
use crate::location::Location;
use crate::platforms;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_support::ForkLock;
use tessera_target::device::{DeviceId, DeviceKind};
use tessera_target::{Backend, Caps, MachineCaps};

/// The backends of one kind of devices: one for each architecture that code is made for, and for each device that runs
/// it.
pub trait Family: Send + Sync {
    /// The kind of devices whose memory launches work in.
    fn memory(&self) -> DeviceKind;
    /// Why no code can be run, if it cannot; it may be compiled all the same.
    fn missing(&self) -> Option<String>;
    /// The backend for an architecture, or for the device, or for what the library's schedules are made for.
    fn to_compile(
        &self,
        arch: Option<&str>,
        device: Option<u32>,
    ) -> Result<Arc<dyn Backend>, Diagnostics>;
    /// The backend for a device, to run on it; `arch` is what code is made for, where that is said.
    fn on_device(&self, device: u32, arch: Option<&str>) -> Result<Arc<dyn Backend>, Diagnostics>;
}

enum BackendState {
    Ready(Arc<dyn Backend>),
    Family(Arc<dyn Family>),
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

impl Default for Backends {
    fn default() -> Self {
        let mut entries = vec![Entry {
            name: "interp",
            state: BackendState::Ready(Arc::new(tessera_interp::Interp)),
        }];
        entries.push(Entry { name: "cpu", state: cpu() });
        entries.extend(platforms::families().into_iter().map(|(name, found)| {
            let state = found.map_or_else(BackendState::Missing, BackendState::Family);
            Entry { name, state }
        }));
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

    /// The kind of devices whose memory its launches work in.
    pub fn memory(&self) -> DeviceKind {
        self.backend.memory()
    }

    /// Whether it runs on devices with memory and streams of their own.
    pub fn is_on_device(&self) -> bool {
        self.memory() != DeviceKind::CPU
    }

    /// Whether launches take arrays there as they are; others are copied.
    pub fn works_at(&self, location: Location) -> bool {
        location.id().kind == self.memory()
    }
}

/// A backend that is named: the text, the setting it comes from, and why it takes effect.
struct Named {
    text: String,
    requested: &'static str,
    why: &'static str,
}

impl Backends {
    /// The same with one more family of backends, before all others.
    pub fn with_family(mut self, name: &'static str, family: Arc<dyn Family>) -> Self {
        self.entries.insert(0, Entry { name, state: BackendState::Family(family) });
        self
    }

    /// Each name, with what is missing for it if something is.
    pub fn list(&self) -> impl Iterator<Item = (&'static str, Option<String>)> {
        self.entries.iter().map(|e| match e.state {
            BackendState::Ready(_) => (e.name, None),
            BackendState::Family(ref family) => (e.name, family.missing()),
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

    /// A number for what code of functions depends on beside the function and its arguments: the
    /// backend that is named process-wide and the passes that the environment leaves out. Equal
    /// settings have equal numbers, also when they return.
    pub fn settings(&self) -> u64 {
        let selected = self.selected.lock().clone();
        knobs::of_launches(|knobs| match &selected {
            None => knobs.number,
            Some(_) => knobs::number(&selected, &knobs.off),
        })
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
            (Location::Device(device), _) => {
                let backend = self.of_memory(device)?.on_device(device.ordinal, None)?;
                choice(backend, "the arrays are on a device")
            }
            (Location::Host, Some(cpu)) => choice(cpu, "the arrays are in host memory"),
            (Location::Host, None) => choice(
                self.ready("interp", "")?,
                "the arrays are in host memory and this build has no cpu backend",
            ),
        }
    }

    /// The backends that work in the memory of a device.
    fn of_memory(&self, device: DeviceId) -> Result<&Arc<dyn Family>, Diagnostics> {
        let found = self.entries.iter().find_map(|e| match &e.state {
            BackendState::Family(family) if family.memory() == device.kind => Some(family),
            BackendState::Family(_) | BackendState::Ready(_) | BackendState::Missing(_) => None,
        });
        found.ok_or_else(|| {
            let message = format!("no backend of this build runs on {device}");
            let help = "copy the arrays to host memory; `ts.runtime.backends()` lists the backends";
            Diagnostic::new(Code::E_DRIVER, message).help(help).into()
        })
    }

    /// The backend for checked and watched calls, whatever is selected; `why` it is needed.
    pub fn interpreter(&self, why: &'static str) -> Result<Choice, Diagnostics> {
        Ok(Choice { backend: self.ready("interp", "the call")?, why })
    }

    fn present(&self, name: &str) -> Option<Arc<dyn Backend>> {
        self.entries.iter().find_map(|e| match &e.state {
            BackendState::Ready(backend) if e.name == name => Some(backend.clone()),
            BackendState::Ready(_) | BackendState::Family(_) | BackendState::Missing(_) => None,
        })
    }

    /// A backend by name, to compile with; `requested` names the setting that requests it.
    pub fn ready(&self, name: &str, requested: &str) -> Result<Arc<dyn Backend>, Diagnostics> {
        self.find(name, requested, |family, target| {
            family.to_compile(target.arch.as_deref(), target.device)
        })
    }

    /// A backend by name, to run on arrays that are there.
    fn to_run(
        &self,
        name: &str,
        requested: &str,
        location: Location,
    ) -> Result<Arc<dyn Backend>, Diagnostics> {
        let backend = self.find(name, requested, |family, target| {
            let (kind, arch) = (family.memory(), target.arch.as_deref());
            if kind == DeviceKind::CPU {
                return family.to_compile(arch, target.device);
            }
            let device = match (location, target.device) {
                (Location::Device(here), Some(named)) if here != DeviceId::new(kind, named) => {
                    let place = DeviceId::new(kind, named).to_string();
                    return Err(elsewhere(here, &place, requested));
                }
                (Location::Device(here), None) if here.kind != kind => {
                    let place = format!("the backend `{name}`, which runs on {kind} devices");
                    return Err(elsewhere(here, &place, requested));
                }
                (Location::Device(here), _) => here.ordinal,
                (Location::Host, named) => named.unwrap_or(0),
            };
            let found = family.on_device(device, arch);
            found.map_err(|errors| self.unavailable(errors, requested))
        })?;
        match location {
            // The interpreter takes copies of arrays from anywhere.
            Location::Device(device)
                if backend.memory() == DeviceKind::CPU && backend.name() != "interp" =>
            {
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
        of_family: impl FnOnce(&dyn Family, &Target) -> Result<Arc<dyn Backend>, Diagnostics>,
    ) -> Result<Arc<dyn Backend>, Diagnostics> {
        if let Some(backend) = self.present(name) {
            return Ok(backend);
        }
        let target = platforms::target(name);
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
            BackendState::Family(family) => of_family(&**family, &target),
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
fn elsewhere(device: DeviceId, place: &str, requested: &str) -> Diagnostics {
    let message = format!("the arrays are on {device}, and {requested} requests {place}");
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

/// The target that a name means: a backend, and what is said of it.
#[derive(Debug, PartialEq)]
pub(crate) struct Target {
    pub backend: String,
    /// An architecture of the backend.
    pub arch: Option<String>,
    pub device: Option<u32>,
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
        assert!(!backends.to_launch(Some("ptx-emulated"), Location::Host).unwrap().is_on_device());
    }

    #[cfg(feature = "cpu")]
    #[test]
    fn a_backend_of_the_host_does_not_take_arrays_of_a_device() {
        let backends = Backends::default();
        let error = backends
            .to_launch(Some("cpu"), Location::Device(DeviceId::new(DeviceKind::CUDA, 1)))
            .err()
            .unwrap()
            .render();
        assert!(error.contains("E_LAUNCH_DEVICE_MISMATCH") && error.contains("cuda:1"), "{error}");
    }
}
