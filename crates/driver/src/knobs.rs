//! The environment variables that Tessera reads. One that is not in this table does not exist.

use std::path::PathBuf;

pub struct Knob {
    pub name: &'static str,
    /// An older spelling, read where the first is not set.
    pub alias: Option<&'static str>,
    pub doc: &'static str,
}

pub const BACKEND: Knob = Knob {
    name: "TESSERA_BACKEND",
    alias: None,
    doc: "The backend every call runs on, unless `select_backend` names one.",
};
pub const DUMP_DIR: Knob = Knob {
    name: "TESSERA_DUMP_DIR",
    alias: Some("TESSERA_DEBUG_DUMP_DIR"),
    doc: "A directory that gets the IR before the first pass and after each that changed it.",
};
pub const DEBUG_IR: Knob = Knob {
    name: "TESSERA_DEBUG_IR",
    alias: None,
    doc: "Levels whose text is printed when a kernel is compiled: graph, schedule, tile, target, separated by commas; or all.",
};
pub const VERIFY: Knob =
    Knob { name: "TESSERA_VERIFY", alias: None, doc: "1 verifies the IR after every pass." };

pub const ALL: &[Knob] = &[BACKEND, DUMP_DIR, DEBUG_IR, VERIFY];

impl Knob {
    /// What it is set to; an empty value counts as not set.
    pub fn get(&self) -> Option<String> {
        let read = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        read(self.name).or_else(|| self.alias.and_then(read))
    }

    pub fn is_on(&self) -> bool {
        self.get().is_some_and(|v| !matches!(v.as_str(), "0" | "false" | "off"))
    }
}

pub fn dump_dir() -> Option<PathBuf> {
    DUMP_DIR.get().map(PathBuf::from)
}

/// Whether the text of a level is to be printed.
pub fn debug_ir(level: &str) -> bool {
    DEBUG_IR.get().is_some_and(|v| {
        let mut words = v.split(',').map(str::trim);
        words.any(|w| w == level || w == "all" || w == "1" || (w == "sched" && level == "schedule"))
    })
}
