//! Object code in memory: what `machine.rs` emits, now or in an earlier process, made callable.

use super::build::c;
use super::machine::start;
use llvm_sys::core::*;
use llvm_sys::error::{LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage};
use llvm_sys::orc2::lljit::*;
use llvm_sys::orc2::*;
use std::ffi::CStr;
use std::ptr::null_mut;
use tessera_support::{Census, Counted};

/// A function of ours that object code may call by name.
#[derive(Copy, Clone, Debug)]
pub struct Symbol {
    pub name: &'static str,
    pub address: usize,
}

/// Object code that can be called until this is dropped.
pub struct Loaded(LLVMOrcLLJITRef, #[expect(dead_code, reason = "counts while it lives")] Counted);

static ALIVE: Census = Census::new();

/// How many pieces of object code are mapped in this process, and their bytes.
pub fn census() -> (usize, usize) {
    ALIVE.now()
}

// SAFETY: after `new` the linker is only asked for addresses, which ORC allows from any thread.
unsafe impl Send for Loaded {}
unsafe impl Sync for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: made in `new`. An error here leaves memory behind and nothing else.
        unsafe {
            let error = LLVMOrcDisposeLLJIT(self.0);
            if !error.is_null() {
                error_text(error);
            }
        }
    }
}

/// The text of an error, which is freed.
///
/// # Safety
/// `error` is an error that LLVM gave away.
pub(super) unsafe fn error_text(error: LLVMErrorRef) -> String {
    // SAFETY: as the contract says.
    unsafe {
        let raw = LLVMGetErrorMessage(error);
        let text = CStr::from_ptr(raw).to_string_lossy().into_owned();
        LLVMDisposeErrorMessage(raw);
        text
    }
}

fn check(error: LLVMErrorRef) -> Result<(), String> {
    // SAFETY: what is not null is an error to be taken.
    if error.is_null() { Ok(()) } else { Err(unsafe { error_text(error) }) }
}

impl Loaded {
    pub fn new(object: &[u8], symbols: &[Symbol]) -> Result<Self, String> {
        start();
        // SAFETY: every result is checked; ORC takes over the buffer and the symbols.
        unsafe {
            let mut jit = null_mut();
            check(LLVMOrcCreateLLJIT(&mut jit, null_mut()))?;
            let loaded = Self(jit, ALIVE.count(object.len()));
            let dylib = LLVMOrcLLJITGetMainJITDylib(jit);
            let mut pairs: Vec<_> = symbols
                .iter()
                .map(|s| LLVMOrcCSymbolMapPair {
                    Name: LLVMOrcLLJITMangleAndIntern(jit, c(s.name).as_ptr()),
                    Sym: llvm_sys::orc2::LLVMJITEvaluatedSymbol {
                        Address: s.address as u64,
                        Flags: LLVMJITSymbolFlags { GenericFlags: 1, TargetFlags: 0 },
                    },
                })
                .collect();
            let unit = LLVMOrcAbsoluteSymbols(pairs.as_mut_ptr(), pairs.len());
            check(LLVMOrcJITDylibDefine(dylib, unit))?;
            // What the code generator itself calls: memcpy, fmaf and the like.
            let mut generator = null_mut();
            let prefix = LLVMOrcLLJITGetGlobalPrefix(jit);
            check(LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
                &mut generator,
                prefix,
                None,
                null_mut(),
            ))?;
            LLVMOrcJITDylibAddGenerator(dylib, generator);
            let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(
                object.as_ptr().cast(),
                object.len(),
                c"kernel".as_ptr(),
            );
            check(LLVMOrcLLJITAddObjectFile(jit, dylib, buffer))?;
            Ok(loaded)
        }
    }

    pub fn address(&self, name: &str) -> Result<usize, String> {
        let mut address = 0;
        // SAFETY: the linker is alive.
        unsafe { check(LLVMOrcLLJITLookup(self.0, &mut address, c(name).as_ptr()))? };
        Ok(address as usize)
    }
}

/// LLVM's version, part of what names compiled code.
pub fn version() -> String {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three places to write to.
    unsafe { LLVMGetVersion(&mut major, &mut minor, &mut patch) };
    format!("{major}.{minor}.{patch}")
}
