//! Whether there is a driver and a device. Each process finds out once.

use super::api::Api;
use super::error::{CudaError, NO_DEVICE, NOT_INITIALIZED, STUB_LIBRARY};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use tessera_diag::{Code, Diagnostic};
use tessera_support::ForkLock;

/// What there is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Present {
    pub devices: u32,
    /// The newest CUDA that the driver serves: 13000 for 13.0.
    pub version: u32,
}

/// What is missing. Its text is one sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    NoDriver,
    TooOld,
    Stub,
    NoDevice,
    /// CUDA was initialised before this process was forked.
    Forked,
    Failed {
        result: u32,
        text: String,
    },
}

pub(crate) const SPAWN: &str = "after a fork CUDA works only where it was not used before: start processes with `spawn` (`multiprocessing.get_context(\"spawn\")`)";

/// The driver of this process, initialised.
#[derive(Copy, Clone)]
pub(crate) struct Driver {
    pub api: &'static Api,
    pub present: Present,
}

static LIBRARY: ForkLock<Option<Option<&'static Api>>> = ForkLock::new(None);
static REQUESTED: ForkLock<Option<Requested>> = ForkLock::new(None);

#[derive(Clone)]
struct Requested {
    process: u32,
    answer: Result<Present, Absent>,
}

/// The number of this process, or 0 where it is not known.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The number of this process. The system reports it once, and again in each child: a launch and an allocation need it, and a
/// call of the system costs as much as either.
pub(crate) fn process() -> u32 {
    match PROCESS.load(Ordering::Relaxed) {
        0 => ask_process(),
        known => known,
    }
}

#[cold]
fn ask_process() -> u32 {
    static WATCHED: OnceLock<bool> = OnceLock::new();
    let here = std::process::id();
    if *WATCHED.get_or_init(watch_forks) {
        PROCESS.store(here, Ordering::Relaxed);
    }
    here
}

/// Lets children ask for their number; false where that cannot be arranged.
fn watch_forks() -> bool {
    #[cfg(unix)]
    {
        unsafe extern "C" fn in_child() {
            PROCESS.store(0, Ordering::Relaxed);
        }
        // SAFETY: the function does nothing but store a number, which is allowed in a child.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) == 0 }
    }
    #[cfg(not(unix))]
    false
}

/// Whether a device can be used, else what is missing. Cheap after the first call.
pub fn present() -> Result<Present, Absent> {
    driver().map(|driver| driver.present)
}

/// The driver's functions, where there is one; nothing is initialised.
pub(crate) fn library() -> Option<&'static Api> {
    *LIBRARY.lock().get_or_insert_with(Api::load)
}

pub(crate) fn driver() -> Result<Driver, Absent> {
    let api = library().ok_or(Absent::NoDriver)?;
    let here = process();
    let mut requested = REQUESTED.lock();
    let answer = match known(requested.as_ref(), here) {
        Some(answer) => answer,
        None => {
            let answer = ask(api);
            *requested = Some(Requested { process: here, answer: answer.clone() });
            answer
        }
    };
    answer.map(|present| Driver { api, present })
}

/// The answer for this process, without asking the driver again. A failure of the parent is not
/// reused: nothing was initialised there.
fn known(requested: Option<&Requested>, here: u32) -> Option<Result<Present, Absent>> {
    match requested? {
        Requested { process, answer } if *process == here => Some(answer.clone()),
        Requested { answer: Ok(_), .. } => Some(Err(Absent::Forked)),
        Requested { answer: Err(_), .. } => None,
    }
}

fn ask(api: &Api) -> Result<Present, Absent> {
    let (mut version, mut devices) = (0, 0);
    // SAFETY: the arguments are places for one number each.
    let done = unsafe {
        api.cuInit(0)
            .and_then(|()| api.cuDriverGetVersion(&mut version))
            .and_then(|()| api.cuDeviceGetCount(&mut devices))
    };
    match done.map_err(|failure| failure.result) {
        Ok(()) if devices <= 0 => Err(Absent::NoDevice),
        // Loading code with a log, graphs and the primary context are of 11.4 or older.
        Ok(()) if version < 11_040 => Err(Absent::TooOld),
        Ok(()) => Ok(Present { devices: devices.unsigned_abs(), version: version.unsigned_abs() }),
        Err(super::api::NO_FUNCTION) => Err(Absent::TooOld),
        Err(STUB_LIBRARY) => Err(Absent::Stub),
        Err(NO_DEVICE) => Err(Absent::NoDevice),
        // Another library of the parent initialised it before the fork.
        Err(NOT_INITIALIZED) => Err(Absent::Forked),
        Err(result) => {
            let text = api.words(result).map(|(name, text)| format!("{text} ({name})"));
            let text = text.unwrap_or_else(|| format!("result {result}"));
            Err(Absent::Failed { result, text })
        }
    }
}

/// Whether this process may call the driver for what was made earlier. In a child of the process
/// that made it, it may not, and what was made is the parent's.
pub(crate) fn is_ours() -> bool {
    let requested = REQUESTED.lock();
    requested.as_ref().is_none_or(|requested| requested.process == process())
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Absent::NoDriver => f.write_str("no NVIDIA driver was found (libcuda.so.1)"),
            Absent::TooOld => f.write_str("the NVIDIA driver is older than CUDA 11.4"),
            Absent::Stub => {
                f.write_str("the libcuda that was found is the toolkit's stub and not a driver")
            }
            Absent::NoDevice => f.write_str("the driver found no device"),
            Absent::Forked => f.write_str("CUDA was initialised before this process was forked"),
            Absent::Failed { text, .. } => {
                write!(f, "the NVIDIA driver could not be initialised: {text}")
            }
        }
    }
}

impl From<Absent> for CudaError {
    fn from(absent: Absent) -> Self {
        let diagnostic = Diagnostic::new(Code::E_DRIVER, absent.to_string());
        let help = match &absent {
            Absent::Forked => SPAWN,
            Absent::NoDevice => "`CUDA_VISIBLE_DEVICES` may hide devices",
            Absent::NoDriver | Absent::TooOld | Absent::Failed { .. } => {
                "`nvidia-smi` tells whether a driver is installed and works"
            }
            Absent::Stub => "take the toolkit's `stubs` folder out of the library path",
        };
        let mut error = CudaError::refused(diagnostic.help(help));
        if let Absent::Failed { result, .. } = absent {
            error.result = Some(result);
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: Present = Present { devices: 1, version: 13_000 };

    #[test]
    fn an_answer_holds_in_its_process_and_a_failure_is_requested_anew_in_a_child() {
        let of = |answer| Some(Requested { process: 7, answer });
        assert_eq!(known(None, 7), None);
        assert_eq!(known(of(Ok(FOUND)).as_ref(), 7), Some(Ok(FOUND)));
        assert_eq!(known(of(Ok(FOUND)).as_ref(), 8), Some(Err(Absent::Forked)));
        assert_eq!(known(of(Err(Absent::NoDevice)).as_ref(), 7), Some(Err(Absent::NoDevice)));
        assert_eq!(known(of(Err(Absent::NoDevice)).as_ref(), 8), None);
    }

    #[test]
    fn what_is_missing_is_one_sentence_and_a_typed_error() {
        for absent in [Absent::NoDriver, Absent::NoDevice, Absent::Forked, Absent::Stub] {
            let error = CudaError::from(absent.clone());
            assert_eq!(error.code(), Code::E_DRIVER);
            assert_eq!(error.diagnostic().message, absent.to_string());
        }
        assert!(CudaError::from(Absent::Forked).to_string().contains("spawn"));
    }
}
