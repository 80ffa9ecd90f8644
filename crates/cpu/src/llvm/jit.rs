//! Object code in memory: what `machine.rs` emits, now or in an earlier process, made callable.

use super::build::c;
use super::machine::start;
use llvm_sys::core::*;
use llvm_sys::error::{LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage};
use llvm_sys::orc2::lljit::*;
use llvm_sys::orc2::*;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tessera_support::{Census, Counted};

/// A function of ours that object code may call by name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    pub name: &'static str,
    pub address: usize,
}

/// Object code that can be called until this is dropped.
pub struct Loaded {
    session: &'static Session,
    library: Library,
    tracker: LLVMOrcResourceTrackerRef,
    _counted: Counted,
}

static ALIVE: Census = Census::new();

/// How many pieces of object code are mapped in this process, and their bytes.
pub fn census() -> (usize, usize) {
    ALIVE.now()
}

// SAFETY: ORC allows any thread to take code out again.
unsafe impl Send for Loaded {}
unsafe impl Sync for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        // A lock of the parent's session may have been held when this process was forked.
        if self.session.process != std::process::id() {
            return;
        }
        // SAFETY: made in `new`. An error here leaves memory behind and nothing else.
        unsafe {
            let error = LLVMOrcResourceTrackerRemove(self.tracker);
            LLVMOrcReleaseResourceTracker(self.tracker);
            if !error.is_null() {
                error_text(error);
                return;
            }
        }
        self.session.lock().push(self.library.clone());
    }
}

/// The linker of this process. Making one takes longer than linking a kernel.
struct Session {
    process: u32,
    jit: LLVMOrcLLJITRef,
    /// Libraries without code. Every piece of code has one of its own, since all of them give their function the same name.
    idle: Mutex<Vec<Library>>,
}

// SAFETY: ORC's session has locks of its own.
unsafe impl Send for Session {}
unsafe impl Sync for Session {}

/// A library of the linker's, with the functions of ours that it knows.
#[derive(Clone)]
struct Library {
    raw: LLVMOrcJITDylibRef,
    symbols: Vec<Symbol>,
}

impl Session {
    /// That of this process. A child has one of its own: locks of its parent's may be held for ever.
    fn here() -> Result<&'static Session, String> {
        static HERE: AtomicPtr<Session> = AtomicPtr::new(null_mut());
        let process = std::process::id();
        loop {
            let found = HERE.load(Ordering::Acquire);
            // SAFETY: one that was stored there stays.
            if let Some(session) = unsafe { found.as_ref() }
                && session.process == process
            {
                return Ok(session);
            }
            start();
            let mut jit = null_mut();
            // SAFETY: the result is checked.
            unsafe { check(LLVMOrcCreateLLJIT(&mut jit, null_mut()))? };
            let made = Box::into_raw(Box::new(Session { process, jit, idle: Mutex::default() }));
            if HERE.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: another thread was first; nobody has seen this one.
                unsafe {
                    let error = LLVMOrcDisposeLLJIT(Box::from_raw(made).jit);
                    if !error.is_null() {
                        error_text(error);
                    }
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Library>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A library without code that knows these functions.
    fn library(&self, symbols: &[Symbol]) -> Result<Library, String> {
        let mut idle = self.lock();
        if let Some(at) = idle.iter().position(|l| l.symbols == symbols) {
            return Ok(idle.swap_remove(at));
        }
        drop(idle);
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("kernel{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        // SAFETY: every result is checked; ORC takes over the symbols and the generator.
        unsafe {
            let session = LLVMOrcLLJITGetExecutionSession(self.jit);
            let raw = LLVMOrcExecutionSessionCreateBareJITDylib(session, c(&name).as_ptr());
            let mut pairs: Vec<_> = symbols
                .iter()
                .map(|s| LLVMOrcCSymbolMapPair {
                    Name: LLVMOrcLLJITMangleAndIntern(self.jit, c(s.name).as_ptr()),
                    Sym: llvm_sys::orc2::LLVMJITEvaluatedSymbol {
                        Address: s.address as u64,
                        Flags: LLVMJITSymbolFlags { GenericFlags: 1, TargetFlags: 0 },
                    },
                })
                .collect();
            let unit = LLVMOrcAbsoluteSymbols(pairs.as_mut_ptr(), pairs.len());
            check(LLVMOrcJITDylibDefine(raw, unit))?;
            // What the code generator itself calls: memcpy, fmaf and the like.
            let mut generator = null_mut();
            let prefix = LLVMOrcLLJITGetGlobalPrefix(self.jit);
            check(LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
                &mut generator,
                prefix,
                None,
                null_mut(),
            ))?;
            LLVMOrcJITDylibAddGenerator(raw, generator);
            Ok(Library { raw, symbols: symbols.to_vec() })
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
        let session = Session::here()?;
        let library = session.library(symbols)?;
        // SAFETY: every result is checked; ORC takes over the buffer.
        unsafe {
            let tracker = LLVMOrcJITDylibCreateResourceTracker(library.raw);
            let counted = ALIVE.count(object.len());
            let loaded = Self { session, library, tracker, _counted: counted };
            let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(
                object.as_ptr().cast(),
                object.len(),
                c"kernel".as_ptr(),
            );
            check(LLVMOrcLLJITAddObjectFileWithRT(session.jit, tracker, buffer))?;
            Ok(loaded)
        }
    }

    pub fn address(&self, name: &str) -> Result<usize, String> {
        type Answer = SyncSender<Result<usize, String>>;
        extern "C" fn take(
            error: LLVMErrorRef,
            found: LLVMOrcCSymbolMapPairs,
            count: usize,
            answer: *mut libc::c_void,
        ) {
            // SAFETY: ORC calls this once, with as many pairs as it says and with what it was given below.
            unsafe {
                let at = (count == 1).then(|| (*found).Sym.Address as usize);
                let at = check(error).and_then(|()| at.ok_or_else(|| "no such function".into()));
                let answer = Box::from_raw(answer.cast::<Answer>());
                // Nobody listens any more where the caller is gone.
                let _ = answer.send(at);
            }
        }
        let (answer, answered) = sync_channel(1);
        let answer: Box<Answer> = Box::new(answer);
        // SAFETY: the library and the name are the linker's.
        unsafe {
            let jit = self.session.jit;
            let mut order = LLVMOrcCJITDylibSearchOrderElement {
                JD: self.library.raw,
                JDLookupFlags:
                    LLVMOrcJITDylibLookupFlags::LLVMOrcJITDylibLookupFlagsMatchAllSymbols,
            };
            let mut wanted = LLVMOrcCLookupSetElement {
                Name: LLVMOrcLLJITMangleAndIntern(jit, c(name).as_ptr()),
                LookupFlags: LLVMOrcSymbolLookupFlags::LLVMOrcSymbolLookupFlagsRequiredSymbol,
            };
            LLVMOrcExecutionSessionLookup(
                LLVMOrcLLJITGetExecutionSession(jit),
                LLVMOrcLookupKind::LLVMOrcLookupKindStatic,
                &mut order,
                1,
                &mut wanted,
                1,
                take,
                Box::into_raw(answer).cast(),
            );
        }
        answered.recv().unwrap_or_else(|_| Err("the linker gave no answer".into()))
    }
}

/// LLVM's version, part of what names compiled code.
pub fn version() -> String {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three places to write to.
    unsafe { LLVMGetVersion(&mut major, &mut minor, &mut patch) };
    format!("{major}.{minor}.{patch}")
}
