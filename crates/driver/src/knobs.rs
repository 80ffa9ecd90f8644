//! The environment variables that Tessera reads. One that is not in this table does not exist.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::PathBuf;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_lower::stage::{Off, Step};
use tessera_support::ForkLock;

pub struct Knob {
    pub name: &'static str,
    /// An older spelling, read where the first is not set.
    pub alias: Option<&'static str>,
    /// Whether it names a file or a directory, whose name may be any bytes.
    pub is_path: bool,
    pub doc: &'static str,
}

pub const BACKEND: Knob = Knob {
    name: "TESSERA_BACKEND",
    alias: None,
    is_path: false,
    doc: "The backend every call runs on, unless `select_backend` names one.",
};
pub const DUMP_DIR: Knob = Knob {
    name: "TESSERA_DUMP_DIR",
    alias: Some("TESSERA_DEBUG_DUMP_DIR"),
    is_path: true,
    doc: "A directory that gets the IR before the first pass and after each that changed it.",
};
pub const DEBUG_IR: Knob = Knob {
    name: "TESSERA_DEBUG_IR",
    alias: None,
    is_path: false,
    doc: "Levels whose text is printed when a kernel is compiled: graph, schedule, tile, staged, target, separated by commas; or all.",
};
pub const CACHE: Knob = Knob {
    name: "TESSERA_CACHE",
    alias: None,
    is_path: false,
    doc: "0 keeps no compiled kernels between processes, and uses none that were kept.",
};
pub const CACHE_DIR: Knob = Knob {
    name: "TESSERA_CACHE_DIR",
    alias: None,
    is_path: true,
    doc: "The directory that compiled kernels are kept in; ~/.tessera where it is not set.",
};
pub const CACHE_SHARED: Knob = Knob {
    name: "TESSERA_CACHE_SHARED",
    alias: None,
    is_path: false,
    doc: "readonly uses a cache that root made: it and all folders above it belong to root, and nobody else may write them. Nothing is written.",
};
pub const CACHE_MB: Knob = Knob {
    name: "TESSERA_CACHE_MB",
    alias: None,
    is_path: false,
    doc: "The most that kept kernels may take, in MiB: 1024 where it is not set. Those not used for longest go first.",
};
pub const TUNE: Knob = Knob {
    name: "TESSERA_TUNE",
    alias: None,
    is_path: false,
    doc: "1 measures the candidates of every `@ts.kernel.autotune` at its first call for each key; 0 measures none by itself, also where `budget_ms=` is given.",
};
pub const VERIFY: Knob = Knob {
    name: "TESSERA_VERIFY",
    alias: None,
    is_path: false,
    doc: "1 verifies the IR after every pass.",
};

pub const CHECK: Knob = Knob {
    name: "TESSERA_CHECK",
    alias: None,
    is_path: false,
    doc: "1 runs every launch on the interpreter and looks for mistakes; what it finds is raised when the launch is over.",
};
pub const INTERP_WARP: Knob = Knob {
    name: "TESSERA_INTERP_WARP",
    alias: None,
    is_path: false,
    doc: "The warp width that the interpreter emulates: 16, 32 or 64. Only `lane_id` and `warp_id` show it.",
};
pub const CPU: Knob = Knob {
    name: "TESSERA_CPU",
    alias: None,
    is_path: false,
    doc: "The instructions that the CPU backend uses: generic, avx2, avx512 or amx; the most the processor has where it is not set. Read once, when Tessera starts.",
};
pub const THREADS: Knob = Knob {
    name: "TESSERA_THREADS",
    alias: None,
    is_path: false,
    doc: "How many threads a launch on the CPU may use; as many as there are cores where it is not set. Read once; `ts.runtime.set_threads` wins over it.",
};
pub const PTXAS: Knob = Knob {
    name: "TESSERA_PTXAS",
    alias: None,
    is_path: true,
    doc: "NVIDIA's assembler for PTX, the program; looked for among Python's packages and on the search path where it is not set. Kernels run without one.",
};
pub const OFF: Knob = Knob {
    name: "TESSERA_OFF",
    alias: None,
    is_path: false,
    doc: "Passes that are left out, separated by commas, to see what each gives: results stay the same. A name that no pass has is refused with the list of them.",
};
pub const MAX_OPS: Knob = Knob {
    name: "TESSERA_MAX_OPS",
    alias: None,
    is_path: false,
    doc: "The most operations that a kernel may have once functions stand in place of their calls: 20000 where it is not set. A traced function may have ten times as many.",
};
pub const DIST: Knob = Knob {
    name: "TESSERA_DIST",
    alias: None,
    is_path: false,
    doc: "off: a process that a launcher started does not join the others, and plays all ranks itself, to compare.",
};
pub const TOKEN: Knob = Knob {
    name: "TESSERA_TOKEN",
    alias: None,
    is_path: false,
    doc: "A secret of at most 64 bytes that the processes of a program tell each other; `tessera run` makes one. Without one they connect on a loopback address only.",
};
pub const COORDINATOR: Knob = Knob {
    name: "TESSERA_COORDINATOR",
    alias: None,
    is_path: false,
    doc: "launcher: who started the processes listens at MASTER_PORT, and not process 0. `tessera run` sets it.",
};
pub const COMM_TIMEOUT: Knob = Knob {
    name: "TESSERA_COMM_TIMEOUT",
    alias: None,
    is_path: false,
    doc: "How many seconds a collective between processes may wait for one that has not arrived: 300 where it is not set.",
};
pub const FAULT: Knob = Knob {
    name: "TESSERA_FAULT",
    alias: None,
    is_path: false,
    doc: "For tests: a fault of one process at one of its collectives, such as `rank=2,at=5,do=kill`; `do` is kill, hang, stop, drop, slow (with `seconds=`) or corrupt.",
};
pub const DEBUG_PANIC: Knob = Knob {
    name: "TESSERA_DEBUG_PANIC",
    alias: None,
    is_path: false,
    doc: "For tests of Tessera itself: 1 makes the compiler fail as a fault of its own would.",
};

pub const ALL: &[Knob] = &[
    BACKEND,
    CHECK,
    INTERP_WARP,
    CPU,
    THREADS,
    PTXAS,
    CACHE,
    CACHE_DIR,
    CACHE_SHARED,
    CACHE_MB,
    TUNE,
    DUMP_DIR,
    DEBUG_IR,
    VERIFY,
    OFF,
    MAX_OPS,
    DIST,
    TOKEN,
    COORDINATOR,
    COMM_TIMEOUT,
    FAULT,
    DEBUG_PANIC,
];

impl Knob {
    /// What it is set to; an empty value counts as not set. One that is not text is refused by
    /// `off`, which every call and every compilation reads.
    pub fn get(&self) -> Option<String> {
        self.bytes()?.into_string().ok()
    }

    /// What it is set to, as a path: file names need not be text.
    pub fn path(&self) -> Option<PathBuf> {
        self.bytes().map(PathBuf::from)
    }

    fn bytes(&self) -> Option<OsString> {
        let read = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        read(self.name).or_else(|| self.alias.and_then(read))
    }

    /// Whether it is set to what cannot be read.
    fn is_garbled(&self) -> bool {
        !self.is_path && self.bytes().is_some_and(|v| v.to_str().is_none())
    }

    /// Whether it is set to anything.
    pub fn is_set(&self) -> bool {
        std::env::var_os(self.name).is_some()
    }

    pub fn is_on(&self) -> bool {
        self.get().is_some() && !self.is_off()
    }

    /// Whether it is set to a false value: for features that are on by default.
    pub fn is_off(&self) -> bool {
        self.get().is_some_and(|v| matches!(v.as_str(), "0" | "false" | "off"))
    }
}

/// The variables that every launch reads. To look them up takes longer than all else that a
/// repeated launch compares, so it is done once for each state of the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfLaunches {
    /// The same for equal values of the variables below, and for no others.
    pub number: u64,
    pub check: bool,
    pub backend: Option<String>,
    pub off: Option<String>,
    /// One that is set to what is no text.
    pub garbled: Option<&'static str>,
}

thread_local! {
    static SEEN: RefCell<Option<(usize, OfLaunches)>> = const { RefCell::new(None) };
}

/// Passes the current values of the variables that launches read.
pub fn of_launches<T>(look: impl FnOnce(&OfLaunches) -> T) -> T {
    let read = || {
        let (backend, off) = (BACKEND.get(), OFF.get());
        let garbled = ALL.iter().find(|knob| knob.is_garbled()).map(|knob| knob.name);
        let number = number(&backend, &off);
        OfLaunches { number, check: CHECK.is_set(), backend, off, garbled }
    };
    let Some(now) = environment() else { return look(&read()) };
    SEEN.with_borrow_mut(|seen| {
        if seen.as_ref().is_none_or(|(state, _)| *state != now) {
            *seen = None;
        }
        look(&seen.get_or_insert_with(|| (now, read())).1)
    })
}

/// The values that were seen, each with a number of its own.
pub(crate) fn number(backend: &Option<String>, off: &Option<String>) -> u64 {
    type Values = (Option<String>, Option<String>);
    static NUMBERS: ForkLock<Vec<Values>> = ForkLock::new(Vec::new());
    let (values, mut all) = ((backend.clone(), off.clone()), NUMBERS.lock());
    let place = all.iter().position(|seen| *seen == values).unwrap_or_else(|| {
        all.push(values);
        all.len() - 1
    });
    place as u64
}

/// A number for the state of the environment. The C library never changes a variable in its place and
/// never takes its memory back: another value is another address.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn environment() -> Option<usize> {
    unsafe extern "C" {
        static environ: *const *const std::ffi::c_char;
    }
    let mut state = 0usize;
    // SAFETY: the list ends with null. It is read as `getenv` reads it, by a thread that holds Python's
    // lock, under which Python writes it.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            state = state.rotate_left(7) ^ *at as usize;
            at = at.add(1);
        }
    }
    Some(state)
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn environment() -> Option<usize> {
    None
}

/// Refuses an environment with a variable of ours that is no text: it would count as not set.
pub fn check() -> Result<(), Diagnostics> {
    let Some(name) = of_launches(|knobs| knobs.garbled) else { return Ok(()) };
    let message = format!("expected text in {name}, got bytes that are not UTF-8");
    Err(Diagnostic::new(Code::E_ARGUMENT, message).help("set it anew, or unset it").into())
}

/// Passes that the environment leaves out, and those that ranks in other processes leave out: they share no memory.
pub fn off() -> Result<Off, Diagnostics> {
    check()?;
    let off = match of_launches(|knobs| knobs.off.clone()) {
        None => Off::default(),
        Some(text) => {
            let names = text.split(',').map(str::trim).filter(|n| !n.is_empty());
            Off::named(names, OFF.name)?
        }
    };
    let apart = Off::default().with(Step::RankRows).with(Step::RankShare);
    Ok(if crate::dist::processes::world() > 1 { off.and(apart) } else { off })
}

/// Where compiled kernels are kept; nowhere if that is not said and the user has no home.
pub fn cache_dir() -> Option<PathBuf> {
    let given = CACHE_DIR.path();
    let dir = given.or_else(|| Some(std::env::home_dir()?.join(".tessera")))?;
    // The program may change its directory later.
    std::path::absolute(dir).ok()
}

/// Where the key is kept that the cache is authenticated with; nowhere if the user has no home.
pub fn config_dir() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    // By its specification a relative path is none.
    let named = named.filter(|dir| dir.is_absolute());
    let home = || std::env::home_dir().filter(|dir| dir.is_absolute());
    Some(named.or_else(|| Some(home()?.join(".config")))?.join("tessera"))
}

/// Whether the cache is one that root made for all.
pub fn cache_is_shared() -> Result<bool, Diagnostics> {
    match CACHE_SHARED.get() {
        None => Ok(false),
        Some(text) if text == "readonly" => Ok(true),
        Some(text) => {
            let message = format!("expected readonly in {}, got {text:?}", CACHE_SHARED.name);
            Err(Diagnostic::new(Code::E_ARGUMENT, message)
                .help("unset it for a cache of your own")
                .into())
        }
    }
}

/// The most bytes that kept kernels may take.
pub fn cache_bytes() -> Result<u64, Diagnostics> {
    let Some(text) = CACHE_MB.get() else { return Ok(1 << 30) };
    match text.parse::<u64>() {
        Ok(mib) => Ok(mib.saturating_mul(1 << 20)),
        Err(_) => {
            let message = format!("expected a number of MiB in {}, got {text:?}", CACHE_MB.name);
            Err(Diagnostic::new(Code::E_ARGUMENT, message).help("unset it for the default").into())
        }
    }
}

/// Ops that a kernel may have.
pub fn max_ops() -> Result<usize, Diagnostics> {
    let Some(text) = MAX_OPS.get() else { return Ok(tessera_frontend::MOST_OPS) };
    match text.parse::<usize>() {
        Ok(most) if most > 0 => Ok(most),
        _ => {
            let message =
                format!("expected a number of operations in {}, got {text:?}", MAX_OPS.name);
            Err(Diagnostic::new(Code::E_ARGUMENT, message).help("unset it for the default").into())
        }
    }
}

pub fn dump_dir() -> Option<PathBuf> {
    DUMP_DIR.path()
}

/// The warp width that the interpreter is to have.
pub fn interp_warp() -> Result<u32, Diagnostics> {
    let Some(text) = INTERP_WARP.get() else { return Ok(32) };
    match text.parse() {
        Ok(width @ (16 | 32 | 64)) => Ok(width),
        _ => {
            let message = format!("expected 16, 32 or 64 in {}, got {text:?}", INTERP_WARP.name);
            Err(Diagnostic::new(Code::E_ARGUMENT, message).help("unset it for the default").into())
        }
    }
}

/// The instruction set that the environment names.
#[cfg(feature = "cpu")]
pub fn cpu() -> Result<Option<tessera_cpu::Isa>, Diagnostics> {
    CPU.get().map(|text| isa(&text, tessera_cpu::Isa::host())).transpose()
}

#[cfg(feature = "cpu")]
fn isa(text: &str, host: tessera_cpu::Isa) -> Result<tessera_cpu::Isa, Diagnostics> {
    use tessera_cpu::Isa;
    match Isa::from_name(text) {
        Some(isa) if isa <= host => Ok(isa),
        Some(isa) => {
            let message = format!("{} requests {isa}, and this processor has {host}", CPU.name);
            Err(Diagnostic::new(Code::E_DRIVER, message).help(format!("set it to {host}")).into())
        }
        None => {
            let names: Vec<_> = Isa::ALL.iter().map(|i| i.name()).collect();
            let message =
                format!("expected one of {} in {}, got {text:?}", names.join(", "), CPU.name);
            Err(Diagnostic::new(Code::E_ARGUMENT, message).help("unset it for the default").into())
        }
    }
}

/// How many threads may be requested.
#[cfg(feature = "cpu")]
pub const THREAD_RANGE: std::ops::RangeInclusive<usize> = 1..=1024;

/// The threads that the environment allows a launch.
#[cfg(feature = "cpu")]
pub fn threads() -> Result<Option<usize>, Diagnostics> {
    let Some(text) = THREADS.get() else { return Ok(None) };
    match text.parse() {
        Ok(n) if THREAD_RANGE.contains(&n) => Ok(Some(n)),
        _ => {
            let (least, most) = (THREAD_RANGE.start(), THREAD_RANGE.end());
            let message = format!("expected {least} to {most} in {}, got {text:?}", THREADS.name);
            Err(Diagnostic::new(Code::E_ARGUMENT, message).help("unset it for the default").into())
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

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::isa;
    use tessera_cpu::Isa;
    use tessera_diag::Code;

    #[test]
    fn instructions_that_the_processor_lacks_are_distinguished_from_misspelt_ones() {
        let code = |text, host| isa(text, host).map_err(|e| e.errors().next().map(|d| d.code));
        assert_eq!(code("avx2", Isa::Avx512), Ok(Isa::Avx2));
        assert_eq!(code("amx", Isa::Avx512), Err(Some(Code::E_DRIVER)));
        assert_eq!(code("avx3", Isa::Avx512), Err(Some(Code::E_ARGUMENT)));
    }
}
