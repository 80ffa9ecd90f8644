//! Compiled code on a device.

use super::context::Handle;
use super::device::Device;
use super::error::CudaError;
use super::function::Function;
use super::graph::Relaxed;
use super::image;
use super::jit::{Jit, LoadOptions, refused};
use cudarc::driver::sys::CUmod_st;
use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::Arc;

pub struct Module {
    device: Arc<Device>,
    raw: Handle<CUmod_st>,
    log: String,
}

impl Module {
    /// Loads a cubin, or PTX that the driver assembles first.
    pub fn load(
        device: &Arc<Device>,
        image: &[u8],
        options: &LoadOptions,
    ) -> Result<Arc<Module>, CudaError> {
        let _current = device.make_current()?;
        let _relaxed = Relaxed::begin(device.context.api);
        let code = image::whole(image)?;
        let (mut jit, mut raw) = (Jit::new(options), null_mut());
        let (count, options, values) = (jit.count(), jit.options(), jit.values());
        let api = device.context.api;
        // SAFETY: the code is a whole cubin or text that ends with a zero; the options are as many
        // as said, and `jit` keeps what they point to.
        let done = unsafe {
            api.cuModuleLoadDataEx(&mut raw, code.as_ptr().cast(), count, options, values)
        };
        if let Err(failure) = done {
            return Err(jit.explain(failure.into(), image, device.info()));
        }
        let log = jit.reported();
        Ok(Arc::new(Self { device: device.clone(), raw: Handle(raw), log }))
    }

    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// What the driver's assembler reported; empty for a cubin.
    pub fn log(&self) -> &str {
        &self.log
    }

    pub fn function(self: &Arc<Self>, name: &str) -> Result<Function, CudaError> {
        let text = CString::new(name)
            .map_err(|_| CudaError::refused(refused("the name of a kernel holds a zero")))?;
        let _current = self.device.make_current()?;
        let _relaxed = Relaxed::begin(self.device.context.api);
        let mut raw = null_mut();
        let api = self.device.context.api;
        // SAFETY: the module exists, the name ends with a zero.
        unsafe { api.cuModuleGetFunction(&mut raw, self.raw.0, text.as_ptr()) }
            .map_err(|failure| CudaError::from(failure).note(format!("the kernel is `{name}`")))?;
        Function::new(self.clone(), Handle(raw), name)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: it is this one's own, and functions keep it.
        self.device.context.finally(|api| unsafe { api.cuModuleUnload(self.raw.0) });
    }
}
