//! The primary context of a device: the one that other libraries of the process use too, so that
//! their pointers and streams are good here. It is kept to the end of the process.

use super::api::{Api, Failure};
use super::driver;
use super::error::CudaError;
use cudarc::driver::sys::CUctx_st;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::null_mut;

/// What the driver knows a thing by.
pub(crate) struct Handle<T>(pub *mut T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Handle<T> {}
// SAFETY: nothing is read or written through a handle here; the driver takes it from any thread.
unsafe impl<T> Send for Handle<T> {}
unsafe impl<T> Sync for Handle<T> {}

#[derive(Copy, Clone)]
pub(crate) struct Context {
    pub api: &'static Api,
    pub raw: Handle<CUctx_st>,
}

impl Context {
    /// Most threads have the context already: then nothing is pushed.
    #[inline]
    pub fn make_current(self) -> Result<Current, CudaError> {
        let held = HELD.get();
        if held == self.raw.0 {
            return Ok(Current { pop: None, here: PhantomData });
        }
        let mut now = null_mut();
        // SAFETY: `now` is a place for a context.
        unsafe { self.api.cuCtxGetCurrent(&mut now) }?;
        let pushed = now != self.raw.0;
        if pushed {
            // SAFETY: the context is never released.
            unsafe { self.api.cuCtxPushCurrent_v2(self.raw.0) }?;
        }
        if pushed {
            // Another one is current than the one that is held.
            HELD.set(null_mut());
        }
        Ok(Current { pop: pushed.then_some((self.api, held)), here: PhantomData })
    }

    /// Makes the context current until the guard goes, without a question to the driver in between.
    pub fn hold(self) -> Result<Held, CudaError> {
        let current = self.make_current()?;
        Ok(Held { before: HELD.replace(self.raw.0), _current: current })
    }

    /// Runs `f` with the context current, for destructors: only where the driver may be called at
    /// all; errors are ignored.
    pub fn finally(self, f: impl FnOnce(&'static Api) -> Result<(), Failure>) {
        if driver::is_ours()
            && let Ok(_current) = self.make_current()
        {
            let _ = f(self.api);
        }
    }
}

thread_local! {
    /// The context that is current because of a guard, and that nobody else changes meanwhile; null for none.
    static HELD: Cell<*mut CUctx_st> = const { Cell::new(null_mut()) };
}

/// See [`Context::hold`].
pub(crate) struct Held {
    before: *mut CUctx_st,
    _current: Current,
}

impl tessera_target::device::Held for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(self.before);
    }
}

/// A device's context is current on this thread. Guards go in the order opposite to that in which
/// they came.
#[must_use = "the context is current only as long as the guard is"]
pub struct Current {
    /// Where this guard pushed it: the driver, and the context that was held before.
    pop: Option<(&'static Api, *mut CUctx_st)>,
    /// Of one thread.
    here: PhantomData<*const ()>,
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some((api, held)) = self.pop {
            let mut popped = null_mut();
            // SAFETY: this guard pushed the context. There is nothing to do if it fails.
            let _ = unsafe { api.cuCtxPopCurrent_v2(&mut popped) };
            HELD.set(held);
        }
    }
}
