//! The host's processor as the CPU backend uses it.

use crate::backends::Backends;
use tessera_diag::Diagnostics;

/// What `tessera doctor` tells of it.
#[derive(Clone, Debug)]
pub struct Processor {
    /// The instructions that code is generated for, and the most the processor has.
    pub isa: &'static str,
    pub host: &'static str,
    pub vector_bits: u32,
    pub threads: usize,
    pub llvm: String,
}

#[cfg(feature = "cpu")]
mod with_backend {
    use super::Processor;
    use crate::backends::Backends;
    use crate::knobs;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tessera_cpu::Isa;
    use tessera_diag::{Code, Diagnostic, Diagnostics};

    /// Whether the number of threads has been set: the environment is read once, and only where no
    /// call has set it before.
    static SETTLED: AtomicBool = AtomicBool::new(false);

    pub fn settle_threads() -> Result<(), Diagnostics> {
        if SETTLED.load(Ordering::Relaxed) {
            return Ok(());
        }
        let given = knobs::threads()?;
        if !SETTLED.swap(true, Ordering::Relaxed)
            && let Some(threads) = given
        {
            tessera_cpu::set_threads(threads);
        }
        Ok(())
    }

    pub fn threads() -> Result<usize, Diagnostics> {
        settle_threads()?;
        Ok(tessera_cpu::threads())
    }

    pub fn set_threads(threads: Option<i64>) -> Result<(), Diagnostics> {
        let number = match threads {
            None => 0,
            Some(n) => usize::try_from(n)
                .ok()
                .filter(|n| knobs::THREAD_RANGE.contains(n))
                .ok_or_else(|| {
                    let (least, most) = (knobs::THREAD_RANGE.start(), knobs::THREAD_RANGE.end());
                    let message = format!("expected {least} to {most} threads, got {n}");
                    Diagnostic::new(Code::E_ARGUMENT, message)
                        .help("`set_threads(None)` uses all cores")
                })?,
        };
        SETTLED.store(true, Ordering::Relaxed);
        tessera_cpu::set_threads(number);
        Ok(())
    }

    pub fn mapped_code() -> (usize, usize) {
        tessera_cpu::mapped_code()
    }

    pub fn processor(backends: &Backends) -> Result<Option<Processor>, Diagnostics> {
        let host = Isa::host();
        let caps = backends.to_compile(Some("cpu"))?.caps()?;
        let isa = Isa::from_name(&caps.arch).unwrap_or(host);
        Ok(Some(Processor {
            isa: isa.name(),
            host: host.name(),
            vector_bits: 8 * isa.vector_bytes(),
            threads: threads()?,
            llvm: tessera_cpu::llvm_version(),
        }))
    }
}

#[cfg(not(feature = "cpu"))]
mod without_backend {
    use super::Processor;
    use crate::backends::Backends;
    use tessera_diag::{Code, Diagnostic, Diagnostics};

    pub fn threads() -> Result<usize, Diagnostics> {
        Ok(1)
    }

    pub fn set_threads(threads: Option<i64>) -> Result<(), Diagnostics> {
        match threads {
            None | Some(1) => Ok(()),
            Some(n) => Err(Diagnostic::new(
                Code::E_UNSUPPORTED,
                format!("expected 1 thread, got {n}: this build has no CPU backend, and the interpreter uses one"),
            ).help("leave it at 1, or build with the CPU backend")
            .into()),
        }
    }

    pub fn mapped_code() -> (usize, usize) {
        (0, 0)
    }

    pub fn processor(_: &Backends) -> Result<Option<Processor>, Diagnostics> {
        Ok(None)
    }
}

#[cfg(feature = "cpu")]
use with_backend as inner;
#[cfg(feature = "cpu")]
pub(crate) use with_backend::settle_threads;
#[cfg(not(feature = "cpu"))]
use without_backend as inner;

/// How many threads a launch may use.
pub fn threads() -> Result<usize, Diagnostics> {
    inner::threads()
}

/// Sets how many threads launches may use from here on; `None` for as many as there are cores.
pub fn set_threads(threads: Option<i64>) -> Result<(), Diagnostics> {
    inner::set_threads(threads)
}

/// How many pieces of machine code are mapped, and their bytes.
pub(crate) fn mapped_code() -> (usize, usize) {
    inner::mapped_code()
}

/// `None` where this build has no CPU backend.
pub fn processor(backends: &Backends) -> Result<Option<Processor>, Diagnostics> {
    inner::processor(backends)
}
