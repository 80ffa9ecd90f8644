//! The environment variables that Tessera reads. One that is not in this table does not exist.

use std::path::PathBuf;
use tessera_diag::{Code, Diagnostic, Diagnostics};

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

pub const CHECK: Knob = Knob {
    name: "TESSERA_CHECK",
    alias: None,
    doc: "1 runs every launch on the interpreter and looks for mistakes; what it finds is raised when the launch is over.",
};
pub const INTERP_WARP: Knob = Knob {
    name: "TESSERA_INTERP_WARP",
    alias: None,
    doc: "The warp width that the interpreter emulates: 16, 32 or 64. Only `lane_id` and `warp_id` show it.",
};
pub const DEBUG_PANIC: Knob = Knob {
    name: "TESSERA_DEBUG_PANIC",
    alias: None,
    doc: "For tests of Tessera itself: 1 makes the compiler fail as a fault of its own would.",
};

pub const ALL: &[Knob] = &[BACKEND, CHECK, INTERP_WARP, DUMP_DIR, DEBUG_IR, VERIFY, DEBUG_PANIC];

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

/// The warp width that the interpreter is to have, where the environment says one.
pub fn interp_warp() -> Result<Option<u32>, Diagnostics> {
    let Some(text) = INTERP_WARP.get() else { return Ok(None) };
    match text.parse() {
        Ok(width @ (16 | 32 | 64)) => Ok(Some(width)),
        _ => {
            let message = format!("expected 16, 32 or 64 in {}, got {text:?}", INTERP_WARP.name);
            Err(Diagnostic::new(Code::E_ARGUMENT, message).into())
        }
    }
}

/// Whether the text of a level is to be printed.
pub fn debug_ir(level: &str) -> bool {
    DEBUG_IR.get().is_some_and(|v| {
        let mut words = v.split(',').map(str::trim);
        words.any(|w| w == level || w == "all" || w == "1" || (w == "sched" && level == "schedule"))
    })
}
