//! The target machine: which instructions may be used, and from a module to an object file.

use super::build::{Ir, c};
use llvm_sys::analysis::{LLVMVerifierFailureAction, LLVMVerifyModule};
use llvm_sys::core::*;
use llvm_sys::target::*;
use llvm_sys::target_machine::*;
use llvm_sys::transforms::pass_builder::*;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::{Mutex, Once};

/// A target machine. Making one, with its tables of a processor's instructions, takes as long as compiling a small kernel: one
/// that is dropped waits for the next of its kind.
pub struct Machine {
    raw: LLVMTargetMachineRef,
    cpu: String,
    features: String,
}

// SAFETY: LLVM allows any thread to use it, one at a time.
unsafe impl Send for Machine {}

/// Machines that nobody uses. Nobody waits for the lock: a process that was forked while it was held makes its own.
static IDLE: Mutex<Vec<Machine>> = Mutex::new(Vec::new());

/// The most that wait.
const MOST_IDLE: usize = 8;

impl Drop for Machine {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        let raw = std::mem::replace(&mut self.raw, null_mut());
        if let Ok(mut idle) = IDLE.try_lock()
            && idle.len() < MOST_IDLE
        {
            let (cpu, features) =
                (std::mem::take(&mut self.cpu), std::mem::take(&mut self.features));
            return idle.push(Machine { raw, cpu, features });
        }
        // SAFETY: made in `new`, and nobody else has it.
        unsafe { LLVMDisposeTargetMachine(raw) }
    }
}

static START: Once = Once::new();

/// Makes the host's target known to LLVM.
pub(super) fn start() {
    START.call_once(|| {
        // SAFETY: once, before any other use.
        unsafe {
            LLVM_InitializeNativeTarget();
            LLVM_InitializeNativeAsmPrinter();
            LLVM_InitializeNativeAsmParser();
        }
    });
}

/// A message of LLVM's, freed.
///
/// # Safety
/// `raw` is null or a message that LLVM gave away.
pub(super) unsafe fn message(raw: *mut libc::c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: as the contract says.
    unsafe {
        let text = CStr::from_ptr(raw).to_string_lossy().into_owned();
        LLVMDisposeMessage(raw);
        text
    }
}

impl Machine {
    /// For this host's kind of processor; `cpu` and `features` as LLVM spells them.
    pub fn new(cpu: &str, features: &str) -> Result<Self, String> {
        start();
        if let Ok(mut idle) = IDLE.try_lock()
            && let Some(at) = idle.iter().position(|m| m.cpu == cpu && m.features == features)
        {
            return Ok(idle.swap_remove(at));
        }
        // SAFETY: strings are alive over the calls, results are checked.
        unsafe {
            let triple = LLVMGetDefaultTargetTriple();
            let (mut target, mut error) = (null_mut(), null_mut());
            let failed = LLVMGetTargetFromTriple(triple, &mut target, &mut error) != 0;
            let made = if failed {
                Err(message(error))
            } else {
                let machine = LLVMCreateTargetMachine(
                    target,
                    triple,
                    c(cpu).as_ptr(),
                    c(features).as_ptr(),
                    LLVMCodeGenOptLevel::LLVMCodeGenLevelDefault,
                    LLVMRelocMode::LLVMRelocPIC,
                    LLVMCodeModel::LLVMCodeModelSmall,
                );
                match machine.is_null() {
                    true => Err("no such machine".into()),
                    false => Ok(Self { raw: machine, cpu: cpu.into(), features: features.into() }),
                }
            };
            LLVMDisposeMessage(triple);
            made
        }
    }

    /// Runs passes over the module, named as `opt -passes=` takes them.
    pub fn run_passes(&self, ir: &Ir, passes: &str) -> Result<(), String> {
        // SAFETY: module and machine are alive.
        unsafe {
            let options = LLVMCreatePassBuilderOptions();
            let error = LLVMRunPasses(ir.module, c(passes).as_ptr(), self.raw, options);
            LLVMDisposePassBuilderOptions(options);
            if error.is_null() {
                return Ok(());
            }
            Err(super::jit::error_text(error))
        }
    }

    /// Whether the module is one that LLVM accepts.
    pub fn verify(&self, ir: &Ir) -> Result<(), String> {
        let action = LLVMVerifierFailureAction::LLVMReturnStatusAction;
        let mut why = null_mut();
        // SAFETY: the module is alive.
        unsafe {
            let bad = LLVMVerifyModule(ir.module, action, &mut why) != 0;
            let why = message(why);
            if bad { Err(why) } else { Ok(()) }
        }
    }

    pub fn object(&self, ir: &Ir) -> Result<Vec<u8>, String> {
        self.emit(ir, LLVMCodeGenFileType::LLVMObjectFile)
    }

    fn emit(&self, ir: &Ir, kind: LLVMCodeGenFileType) -> Result<Vec<u8>, String> {
        // SAFETY: module and machine are alive; the buffer is freed here.
        unsafe {
            let layout = LLVMCreateTargetDataLayout(self.raw);
            LLVMSetModuleDataLayout(ir.module, layout);
            LLVMDisposeTargetData(layout);
            let triple = LLVMGetTargetMachineTriple(self.raw);
            LLVMSetTarget(ir.module, triple);
            LLVMDisposeMessage(triple);
            let (mut error, mut buffer) = (null_mut(), null_mut());
            let failed = LLVMTargetMachineEmitToMemoryBuffer(
                self.raw,
                ir.module,
                kind,
                &mut error,
                &mut buffer,
            ) != 0;
            if failed {
                return Err(message(error));
            }
            let start: *const u8 = LLVMGetBufferStart(buffer).cast();
            let bytes = std::slice::from_raw_parts(start, LLVMGetBufferSize(buffer)).to_vec();
            LLVMDisposeMemoryBuffer(buffer);
            Ok(bytes)
        }
    }
}
