//! The driver's result codes: one row for each that a program can react to.

use super::api::{Failure, NO_FUNCTION};
use super::driver;
use std::fmt;
use tessera_diag::{Code, Diagnostic, Diagnostics};

/// A call of the driver that failed, or what was refused before one.
#[derive(Clone, Debug, PartialEq)]
pub struct CudaError {
    /// The driver's result code; `None` where the driver was not called.
    pub result: Option<u32>,
    /// Whether the device's context is lost: every later call on it fails, in this process.
    pub sticky: bool,
    diagnostic: Box<Diagnostic>,
}

struct Row {
    result: u32,
    name: &'static str,
    code: Code,
    sticky: bool,
    says: &'static str,
}

const fn row(result: u32, name: &'static str, code: Code, says: &'static str) -> Row {
    Row { result, name, code, sticky: false, says }
}

const fn lost(result: u32, name: &'static str, code: Code, says: &'static str) -> Row {
    Row { result, name, code, sticky: true, says }
}

pub(crate) const OUT_OF_MEMORY: u32 = 2;
pub(crate) const NOT_INITIALIZED: u32 = 3;
pub(crate) const STUB_LIBRARY: u32 = 34;
pub(crate) const NO_DEVICE: u32 = 100;
pub(crate) const NOT_READY: u32 = 600;

/// In the order of their numbers. A result without a row is `E_DRIVER` with the driver's words.
#[rustfmt::skip]
static ROWS: &[Row] = &[
    row(1, "CUDA_ERROR_INVALID_VALUE", Code::E_DRIVER, "the driver was given a value it does not take"),
    row(OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", Code::E_OOM, "memory ran out"),
    row(NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", Code::E_DRIVER, "the driver is not initialised in this process"),
    row(4, "CUDA_ERROR_DEINITIALIZED", Code::E_DRIVER, "the driver is shutting down with the process"),
    row(46, "CUDA_ERROR_DEVICE_UNAVAILABLE", Code::E_DRIVER, "the device is taken by another process, or is not to be used"),
    row(NO_DEVICE, "CUDA_ERROR_NO_DEVICE", Code::E_DRIVER, "the driver found no device"),
    row(101, "CUDA_ERROR_INVALID_DEVICE", Code::E_DRIVER, "there is no device of this number"),
    row(200, "CUDA_ERROR_INVALID_IMAGE", Code::E_TARGET_CODEGEN, "the driver cannot load this code"),
    row(201, "CUDA_ERROR_INVALID_CONTEXT", Code::E_LAUNCH_DEVICE_MISMATCH, "something belongs to another device's context"),
    row(209, "CUDA_ERROR_NO_BINARY_FOR_GPU", Code::E_TARGET_CODEGEN, "the code is not for this device's architecture"),
    lost(214, "CUDA_ERROR_ECC_UNCORRECTABLE", Code::E_DRIVER, "the device's memory has an error that cannot be corrected"),
    row(218, "CUDA_ERROR_INVALID_PTX", Code::E_TARGET_CODEGEN, "the driver's assembler refused the code"),
    lost(220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", Code::E_DRIVER, "the link between devices has an error that cannot be corrected"),
    row(221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", Code::E_TARGET_CODEGEN, "the driver's assembler is not installed (libnvidia-ptxjitcompiler)"),
    row(222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", Code::E_TARGET_CODEGEN, "the code is of a newer PTX version than this driver knows"),
    row(223, "CUDA_ERROR_JIT_COMPILATION_DISABLED", Code::E_TARGET_CODEGEN, "the driver's assembler is switched off"),
    lost(226, "CUDA_ERROR_CONTAINED", Code::E_DRIVER, "the device's memory had an error that ended the kernel"),
    row(300, "CUDA_ERROR_INVALID_SOURCE", Code::E_TARGET_CODEGEN, "the driver cannot read this code"),
    row(400, "CUDA_ERROR_INVALID_HANDLE", Code::E_DRIVER, "a stream, event or function does not exist"),
    row(500, "CUDA_ERROR_NOT_FOUND", Code::E_DRIVER, "the code has nothing of this name"),
    row(NOT_READY, "CUDA_ERROR_NOT_READY", Code::E_DRIVER, "the work is not finished"),
    lost(700, "CUDA_ERROR_ILLEGAL_ADDRESS", Code::E_ILLEGAL_ADDRESS, "a kernel reached an address where it has no memory"),
    row(701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", Code::E_TILE_LOWERING, "a block needs more registers or threads than the device has"),
    lost(702, "CUDA_ERROR_LAUNCH_TIMEOUT", Code::E_TIMEOUT, "a kernel ran longer than the driver lets it"),
    lost(709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", Code::E_DRIVER, "the device's context was destroyed"),
    lost(710, "CUDA_ERROR_ASSERT", Code::E_ASSERT, "an assertion in a kernel does not hold"),
    lost(714, "CUDA_ERROR_HARDWARE_STACK_ERROR", Code::E_DRIVER, "a kernel's call stack overflowed or was damaged"),
    lost(715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", Code::E_DRIVER, "a kernel reached an instruction that the device does not have"),
    lost(716, "CUDA_ERROR_MISALIGNED_ADDRESS", Code::E_MISALIGNED_ACCESS, "a kernel reached memory at an address that is not a multiple of the access"),
    lost(717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", Code::E_ILLEGAL_ADDRESS, "a kernel reached an address of another kind of memory"),
    lost(718, "CUDA_ERROR_INVALID_PC", Code::E_DRIVER, "a kernel went on at an address where it has no code"),
    lost(719, "CUDA_ERROR_LAUNCH_FAILED", Code::E_DRIVER, "a kernel failed on the device"),
    row(720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", Code::E_TILE_LOWERING, "the blocks of a cooperative launch do not fit on the device together"),
    lost(721, "CUDA_ERROR_TENSOR_MEMORY_LEAK", Code::E_DRIVER, "a kernel ended without giving back its tensor memory"),
    row(800, "CUDA_ERROR_NOT_PERMITTED", Code::E_DRIVER, "the operation is not permitted"),
    row(801, "CUDA_ERROR_NOT_SUPPORTED", Code::E_UNSUPPORTED, "the device or its driver does not have this operation"),
    row(802, "CUDA_ERROR_SYSTEM_NOT_READY", Code::E_DRIVER, "the system is not ready (on machines with NVSwitch: is the fabric manager running?)"),
    row(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", Code::E_DRIVER, "the kernel's part of the driver is of another version than libcuda"),
    row(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", Code::E_DRIVER, "this libcuda does not work with the installed driver"),
    row(900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", Code::E_CAPTURE, "the operation cannot be recorded into a graph"),
    row(901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", Code::E_CAPTURE, "the recording of a graph was spoilt by an earlier error"),
    row(902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", Code::E_CAPTURE, "two recordings would become one graph"),
    row(903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", Code::E_CAPTURE, "the recording did not begin on this stream"),
    row(904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", Code::E_CAPTURE, "a stream that the recording went over to was not joined again"),
    row(905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", Code::E_CAPTURE, "the recording would depend on work that is not part of it"),
    row(906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", Code::E_CAPTURE, "the legacy default stream cannot be used while a graph is recorded"),
    row(907, "CUDA_ERROR_CAPTURED_EVENT", Code::E_CAPTURE, "the event stands in a recording and cannot be waited for"),
    row(908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", Code::E_CAPTURE, "the recording was begun by another thread"),
    row(909, "CUDA_ERROR_TIMEOUT", Code::E_TIMEOUT, "the driver waited for too long"),
    lost(911, "CUDA_ERROR_EXTERNAL_DEVICE", Code::E_DRIVER, "a device outside the GPU failed"),
    row(912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", Code::E_TILE_LOWERING, "a cluster of this size does not fit on the device"),
    row(999, "CUDA_ERROR_UNKNOWN", Code::E_DRIVER, "the driver failed for a reason it does not know"),
];

const ANEW: &str =
    "start the process anew: until then every call on this device fails in the same way";

impl CudaError {
    /// What was refused without asking the driver.
    pub(crate) fn refused(diagnostic: Diagnostic) -> Self {
        Self { result: None, sticky: false, diagnostic: Box::new(diagnostic) }
    }

    /// The host requested to stop while the device was waited for. The device goes on.
    pub(crate) fn interrupted() -> Self {
        Self::refused(tessera_target::interruption())
    }

    fn of(failure: Failure) -> Self {
        let Failure { call, result } = failure;
        if result == NO_FUNCTION {
            let message = format!("this NVIDIA driver has no `{call}`");
            let help = "install a newer driver";
            return Self::refused(Diagnostic::new(Code::E_DRIVER, message).help(help));
        }
        let known = ROWS.iter().find(|row| row.result == result);
        let words = driver::library().and_then(|api| api.words(result));
        let name = known.map(|row| row.name.to_string());
        let name = name.or(words.as_ref().map(|(name, _)| name.clone()));
        let name = name.unwrap_or_else(|| format!("result {result}"));
        let says = known.map_or("the driver failed", |row| row.says);
        let code = known.map_or(Code::E_DRIVER, |row| row.code);
        let mut diagnostic = Diagnostic::new(code, format!("{says} ({name})"));
        diagnostic.notes.push(match words {
            Some((_, text)) => format!("`{call}` gave {result}: {text}"),
            None => format!("`{call}` gave {result}"),
        });
        let sticky = known.is_some_and(|row| row.sticky);
        if sticky {
            diagnostic.help = Some(ANEW.into());
        } else if result == NOT_INITIALIZED {
            diagnostic.help = Some(driver::SPAWN.into());
        }
        Self { result: Some(result), sticky, diagnostic: Box::new(diagnostic) }
    }

    pub fn code(&self) -> Code {
        self.diagnostic.code
    }

    pub fn is_out_of_memory(&self) -> bool {
        self.code() == Code::E_OOM
    }

    pub fn diagnostic(&self) -> &Diagnostic {
        &self.diagnostic
    }

    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.diagnostic.notes.push(text.into());
        self
    }

    /// The diagnostic in its box.
    pub(crate) fn into_diagnostic(self) -> Box<Diagnostic> {
        self.diagnostic
    }
}

impl From<Failure> for CudaError {
    fn from(failure: Failure) -> Self {
        Self::of(failure)
    }
}

impl From<CudaError> for Diagnostic {
    fn from(error: CudaError) -> Self {
        *error.diagnostic
    }
}

impl From<CudaError> for Diagnostics {
    fn from(error: CudaError) -> Self {
        Diagnostic::from(error).into()
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.diagnostic.fmt(f)
    }
}

impl std::error::Error for CudaError {}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_diag::{Loc, SourceFile};
    use tessera_target::device::DeviceError;

    fn error(result: u32) -> CudaError {
        Failure { call: "cuStreamQuery", result }.into()
    }

    #[test]
    fn results_have_one_row_each_in_order() {
        assert!(ROWS.is_sorted_by(|a, b| a.result < b.result));
    }

    #[test]
    fn results_become_codes() {
        for (result, code, sticky) in [
            (2, Code::E_OOM, false),
            (222, Code::E_TARGET_CODEGEN, false),
            (700, Code::E_ILLEGAL_ADDRESS, true),
            (701, Code::E_TILE_LOWERING, false),
            (702, Code::E_TIMEOUT, true),
            (710, Code::E_ASSERT, true),
            (716, Code::E_MISALIGNED_ACCESS, true),
            (719, Code::E_DRIVER, true),
            (900, Code::E_CAPTURE, false),
            (123_456, Code::E_DRIVER, false),
        ] {
            let error = error(result);
            assert_eq!((error.code(), error.sticky, error.result), (code, sticky, Some(result)));
        }
    }

    #[test]
    fn a_function_that_the_driver_lacks_is_named() {
        let error = CudaError::from(Failure { call: "cuFuncLoad", result: NO_FUNCTION });
        assert_eq!(error.result, None);
        assert_eq!(error.diagnostic().message, "this NVIDIA driver has no `cuFuncLoad`");
    }

    #[test]
    fn an_error_of_a_launch_tells_kernel_place_and_arguments() {
        let file = SourceFile::new("k.py", "y[i] = x[i]\n", 3);
        let loc = Loc::span(&file, 3, 1, 3, 5);
        let error = DeviceError::from(error(700));
        assert!(error.lost);
        let text = error.at_launch("copy", &loc, "x: f32[8] on cuda:0").to_string();
        for part in [
            "error[E_ILLEGAL_ADDRESS]: a kernel reached an address where it has no memory",
            "(CUDA_ERROR_ILLEGAL_ADDRESS)",
            "k.py:3:1",
            "in the launch of `copy`",
            "its arguments: x: f32[8] on cuda:0",
            "start the process anew",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
