//! Which backends there are, and which one a call runs on (LANGUAGE 12).

use crate::knobs;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_support::ForkLock;
use tessera_target::{Backend, Caps};

enum State {
    Ready(Arc<dyn Backend>),
    /// What is missing for it.
    Missing(&'static str),
}

struct Entry {
    name: &'static str,
    state: State,
}

/// The backends of this build and the one the user selected. Every name that exists anywhere is
/// known, so that an absent backend is told from a misspelt one.
pub struct Backends {
    entries: Vec<Entry>,
    selected: ForkLock<Option<&'static str>>,
}

/// A backend with the reason it was taken.
#[derive(Clone)]
pub struct Choice {
    pub backend: Arc<dyn Backend>,
    pub why: &'static str,
}

const NOT_IN_BUILD: &str = "this build does not contain it";

impl Default for Backends {
    fn default() -> Self {
        let mut entries =
            vec![Entry { name: "interp", state: State::Ready(Arc::new(tessera_interp::Interp)) }];
        entries.push(Entry { name: "cpu", state: cpu() });
        for name in ["ptx", "rocm", "level_zero", "cudatile"] {
            entries.push(Entry { name, state: State::Missing(NOT_IN_BUILD) });
        }
        Self { entries, selected: ForkLock::new(None) }
    }
}

#[cfg(feature = "cpu")]
fn cpu() -> State {
    let isa = knobs::cpu().ok().flatten().unwrap_or_else(tessera_cpu::Isa::host);
    State::Ready(Arc::new(tessera_cpu::Cpu::new(isa)))
}

#[cfg(not(feature = "cpu"))]
fn cpu() -> State {
    State::Missing(NOT_IN_BUILD)
}

impl Choice {
    /// What the backend can do, as the environment has it.
    pub fn caps(&self) -> Result<Caps, Diagnostics> {
        let mut caps = self.backend.caps();
        if caps.backend == "interp" {
            caps.warp_size = knobs::interp_warp()?;
        }
        #[cfg(feature = "cpu")]
        if caps.backend == "cpu" {
            knobs::cpu()?;
            crate::processor::settle_threads()?;
        }
        Ok(caps)
    }
}

impl Backends {
    /// Each name, with what is missing for it if something is.
    pub fn list(&self) -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
        self.entries.iter().map(|e| match e.state {
            State::Ready(_) => (e.name, None),
            State::Missing(what) => (e.name, Some(what)),
        })
    }

    /// Process-wide; `None` returns to the default.
    pub fn select(&self, name: Option<&str>) -> Result<(), Diagnostics> {
        let name = name.map(|n| self.ready(n, "`select_backend`").map(|b| b.name())).transpose()?;
        *self.selected.lock() = name;
        Ok(())
    }

    /// The backend for a call with host arrays; `pinned` is the kernel's own `target=`.
    pub fn choose(&self, pinned: Option<&str>) -> Result<Choice, Diagnostics> {
        let choice = |backend, why| Ok(Choice { backend, why });
        if let Some(name) = pinned {
            return choice(self.ready(name, "`target=`")?, "the kernel's `target=` names it");
        }
        let selected = *self.selected.lock();
        if let Some(name) = selected {
            return choice(self.ready(name, "`select_backend`")?, "`select_backend` names it");
        }
        if let Some(name) = knobs::BACKEND.get() {
            return choice(self.ready(&name, knobs::BACKEND.name)?, "TESSERA_BACKEND names it");
        }
        match self.present("cpu") {
            Some(cpu) => choice(cpu, "the arrays are in host memory"),
            None => choice(
                self.ready("interp", "")?,
                "the arrays are in host memory and this build has no cpu backend",
            ),
        }
    }

    /// The backend that checks and watches, whatever is selected; `why` it is wanted.
    pub fn interpreter(&self, why: &'static str) -> Result<Choice, Diagnostics> {
        Ok(Choice { backend: self.ready("interp", "the call")?, why })
    }

    fn present(&self, name: &str) -> Option<Arc<dyn Backend>> {
        self.entries.iter().find_map(|e| match &e.state {
            State::Ready(backend) if e.name == name => Some(backend.clone()),
            State::Ready(_) | State::Missing(_) => None,
        })
    }

    /// A backend by name; `asked` says who asked for it.
    pub fn ready(&self, name: &str, asked: &str) -> Result<Arc<dyn Backend>, Diagnostics> {
        if let Some(backend) = self.present(name) {
            return Ok(backend);
        }
        let canonical = canonical(name);
        let Some(entry) = self.entries.iter().find(|e| e.name == canonical) else {
            let names: Vec<_> = self.entries.iter().map(|e| e.name).collect();
            return Err(Diagnostic::new(
                Code::E_DRIVER,
                format!("expected a backend (one of {}), got `{name}`", names.join(", ")),
            )
            .note(format!("{asked} asks for it"))
            .into());
        };
        match &entry.state {
            State::Ready(backend) => Ok(backend.clone()),
            State::Missing(what) => Err(Diagnostic::new(
                Code::E_DRIVER,
                format!("the backend `{}` is not available: {what}", entry.name),
            )
            .note(format!("{asked} asks for it"))
            .help(format!("use one of: {}", self.available().join(", ")))
            .into()),
        }
    }

    fn available(&self) -> Vec<&'static str> {
        self.list().filter(|(_, missing)| missing.is_none()).map(|(name, _)| name).collect()
    }
}

/// The backend that a target's name stands for: users also type architectures, vendors and
/// devices such as `cuda:0`.
fn canonical(name: &str) -> String {
    let device = name.split(':').next().unwrap_or(name);
    let text = device.to_ascii_lowercase().replace('-', "_");
    let is = |prefix: &str| {
        text.strip_prefix(prefix).is_some_and(|rest| {
            rest.trim_start_matches('_').starts_with(|c: char| c.is_ascii_digit())
        })
    };
    let backend = match text.as_str() {
        "x86" => "cpu",
        "cuda" | "gpu" | "hopper" | "blackwell" | "ampere" => "ptx",
        "amd" | "hip" | "mi300x" => "rocm",
        "intel" => "level_zero",
        _ if is("sm") => "ptx",
        _ if is("gfx") => "rocm",
        other => other,
    };
    backend.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_and_unknown_backends_are_told_apart() {
        let backends = Backends::default();
        let absent = backends.select(Some("sm90")).unwrap_err().render();
        assert!(absent.contains("`ptx` is not available") && absent.contains("interp"), "{absent}");
        let unknown = backends.select(Some("fpga")).unwrap_err().render();
        assert!(unknown.contains("got `fpga`") && unknown.contains("level_zero"), "{unknown}");
    }

    #[test]
    fn selection_wins_and_can_be_taken_back() {
        let backends = Backends::default();
        backends.select(Some("interp")).unwrap();
        assert!(backends.choose(None).is_ok_and(|c| c.why.contains("select_backend")));
        backends.select(None).unwrap();
        assert!(backends.choose(None).is_ok_and(|c| c.why.contains("host memory")));
        assert!(backends.choose(Some("ptx")).is_err());
    }
}
