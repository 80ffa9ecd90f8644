//! The target machine: which instructions may be used, and from a module to an object file.

use super::build::{Ir, c};
use llvm_sys::analysis::{LLVMVerifierFailureAction, LLVMVerifyModule};
use llvm_sys::core::*;
use llvm_sys::target::*;
use llvm_sys::target_machine::*;
use llvm_sys::transforms::pass_builder::*;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::Once;

pub struct Machine(LLVMTargetMachineRef);

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: made in `new`.
        unsafe { LLVMDisposeTargetMachine(self.0) }
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
                if machine.is_null() { Err("no such machine".into()) } else { Ok(Self(machine)) }
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
            let error = LLVMRunPasses(ir.module, c(passes).as_ptr(), self.0, options);
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
            let layout = LLVMCreateTargetDataLayout(self.0);
            LLVMSetModuleDataLayout(ir.module, layout);
            LLVMDisposeTargetData(layout);
            let triple = LLVMGetTargetMachineTriple(self.0);
            LLVMSetTarget(ir.module, triple);
            LLVMDisposeMessage(triple);
            let (mut error, mut buffer) = (null_mut(), null_mut());
            let failed = LLVMTargetMachineEmitToMemoryBuffer(
                self.0,
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
