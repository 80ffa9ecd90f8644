//! The options of the driver's assembler, and its log.

use super::error::CudaError;
use super::info::DeviceInfo;
use cudarc::driver::sys::{CUjit_option, CUjit_option::*};
use std::ffi::c_void;
use tessera_diag::{Code, Diagnostic};
use tessera_support::StableHasher;

/// How code is assembled and loaded.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// The most registers a thread may have; what does not fit spills to local memory.
    pub max_registers: Option<u32>,
    /// 0 to 4; the assembler's own choice is 4.
    pub optimisation: Option<u32>,
    /// Keeps which instruction came from which line, for profilers.
    pub line_info: bool,
}

impl LoadOptions {
    pub(crate) fn hash(&self, hasher: &mut StableHasher) {
        let number = |n: Option<u32>| n.map_or(u64::MAX, u64::from);
        hasher.write_u64(number(self.max_registers));
        hasher.write_u64(number(self.optimisation));
        hasher.write_u64(self.line_info.into());
    }
}

const LOG_BYTES: usize = 16 << 10;
/// More lines than these are no help.
const LOG_LINES: usize = 40;

/// Options in the form that the driver takes, with room for its logs. It must live as long as the
/// driver may write to them.
pub(crate) struct Jit {
    options: Vec<CUjit_option>,
    values: Vec<*mut c_void>,
    info: Vec<u8>,
    errors: Vec<u8>,
}

impl Jit {
    pub fn new(options: &LoadOptions) -> Self {
        let mut jit = Self {
            options: Vec::new(),
            values: Vec::new(),
            info: vec![0; LOG_BYTES],
            errors: vec![0; LOG_BYTES],
        };
        let (info, errors) = (jit.info.as_mut_ptr(), jit.errors.as_mut_ptr());
        jit.push(CU_JIT_INFO_LOG_BUFFER, info.cast());
        jit.push_number(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, LOG_BYTES);
        jit.push(CU_JIT_ERROR_LOG_BUFFER, errors.cast());
        jit.push_number(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, LOG_BYTES);
        jit.push_number(CU_JIT_LOG_VERBOSE, 1);
        if let Some(registers) = options.max_registers {
            jit.push_number(CU_JIT_MAX_REGISTERS, registers as usize);
        }
        if let Some(level) = options.optimisation {
            jit.push_number(CU_JIT_OPTIMIZATION_LEVEL, level as usize);
        }
        if options.line_info {
            jit.push_number(CU_JIT_GENERATE_LINE_INFO, 1);
        }
        jit
    }

    fn push(&mut self, option: CUjit_option, value: *mut c_void) {
        self.options.push(option);
        self.values.push(value);
    }

    /// Numbers stand in the place of the pointer.
    fn push_number(&mut self, option: CUjit_option, value: usize) {
        self.push(option, value as *mut c_void);
    }

    pub fn count(&self) -> u32 {
        self.options.len() as u32
    }

    pub fn options(&mut self) -> *mut CUjit_option {
        self.options.as_mut_ptr()
    }

    pub fn values(&mut self) -> *mut *mut c_void {
        self.values.as_mut_ptr()
    }

    /// What the assembler reported, such as registers and spills.
    pub fn reported(&self) -> String {
        text(&self.info)
    }

    /// The error with the log in its notes, and the lines of the code that it speaks of.
    pub fn explain(&self, error: CudaError, image: &[u8], info: &DeviceInfo) -> CudaError {
        let log = text(&self.errors);
        let code = String::from_utf8_lossy(image);
        let mut error = error;
        for note in notes(&log, &code) {
            error = error.note(note);
        }
        let (major, minor) = info.ptx_isa;
        match version(&code) {
            Some(wanted) if wanted > info.ptx_isa => error.note(format!(
                "the code is PTX {}.{}; this driver takes PTX up to {major}.{minor}",
                wanted.0, wanted.1
            )),
            _ => error,
        }
    }
}

fn text(log: &[u8]) -> String {
    let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end]).trim_end().to_string()
}

/// The lines of an assembler's log; one that names a line of the code is followed by it.
pub(crate) fn notes(log: &str, code: &str) -> Vec<String> {
    let mut notes = Vec::new();
    let lines: Vec<&str> = log.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
    for line in lines.iter().take(LOG_LINES) {
        notes.push(match line_number(line).and_then(|n| Some((n, code.lines().nth(n - 1)?))) {
            Some((n, source)) => format!("{line}\n  {n} | {}", source.trim()),
            None => line.to_string(),
        });
    }
    if lines.len() > LOG_LINES {
        notes.push(format!("and {} lines more", lines.len() - LOG_LINES));
    }
    notes
}

/// From `ptxas name.ptx, line 14; error   : …`.
fn line_number(line: &str) -> Option<usize> {
    let (_, rest) = line.split_once(", line ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|&n| n > 0)
}

/// From `.version 8.0`.
fn version(code: &str) -> Option<(u32, u32)> {
    let line = code.lines().find_map(|line| line.trim().strip_prefix(".version"))?;
    let (major, minor) = line.split_whitespace().next()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// An error of the assembler.
pub(crate) fn refused(message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Code::E_TARGET_CODEGEN, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_show_the_code_they_speak_of() {
        let log =
            "ptxas x.ptx, line 2; error   : Unknown symbol '%rd77'\n\nptxas fatal   : aborted\n";
        assert_eq!(
            notes(log, ".version 8.0\n  add.u64 %rd77, 1;\n"),
            [
                "ptxas x.ptx, line 2; error   : Unknown symbol '%rd77'\n  2 | add.u64 %rd77, 1;",
                "ptxas fatal   : aborted"
            ]
        );
        assert_eq!(notes("x, line 9; error", "one\n"), ["x, line 9; error"]);
        assert_eq!(notes(&"line\n".repeat(50), "").len(), LOG_LINES + 1);
    }

    #[test]
    fn the_version_is_read_from_the_code() {
        assert_eq!(version("// comment\n.version 8.7\n.target sm_90"), Some((8, 7)));
        assert_eq!(version("\u{7f}ELF"), None);
    }

    #[test]
    fn options_differ_in_their_hash() {
        let hash = |options: LoadOptions| {
            let mut hasher = StableHasher::new();
            options.hash(&mut hasher);
            hasher.finish()
        };
        let plain = LoadOptions::default();
        let some = LoadOptions { max_registers: Some(0), ..plain };
        let lines = LoadOptions { line_info: true, ..plain };
        assert!(hash(plain) != hash(some) && hash(plain) != hash(lines));
    }
}
