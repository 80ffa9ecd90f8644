//! A kernel of a module, with what it needs.

use super::api::Api;
use super::context::Handle;
use super::device::Device;
use super::error::CudaError;
use super::module::Module;
use cudarc::driver::sys::{CUfunc_st, CUfunction, CUfunction_attribute as Attribute};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tessera_diag::{Code, Diagnostic};
use tessera_support::ForkLock;

/// What the assembler made of a kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FunctionAttributes {
    pub registers: u32,
    /// Local memory of each thread, in bytes: spills and arrays.
    pub local_bytes: u32,
    pub static_shared_bytes: u32,
    pub const_bytes: u32,
    pub max_threads: u32,
    /// Where its first parameter ends, where the driver tells.
    pub param_bytes: Option<u32>,
}

pub struct Function {
    module: Arc<Module>,
    raw: Handle<CUfunc_st>,
    name: Arc<str>,
    attributes: FunctionAttributes,
    /// The most dynamic shared memory it may be launched with so far.
    shared: AtomicU32,
    raising: ForkLock<()>,
    large_clusters: AtomicBool,
}

/// Blocks in a cluster that every device with clusters takes.
pub(super) const PORTABLE_CLUSTER: u32 = 8;
/// What a kernel may have without asking, static and dynamic together.
const SHARED_UNASKED: u32 = 48 << 10;

impl Function {
    pub(super) fn new(
        module: Arc<Module>,
        raw: Handle<CUfunc_st>,
        name: &str,
    ) -> Result<Self, CudaError> {
        let api = module.device().context.api;
        // Drivers load a function lazily at its first use, which stream capture does not allow.
        // Drivers without `cuFuncLoad` load it when its attributes are read.
        // SAFETY: the function exists.
        let _ = unsafe { api.cuFuncLoad(raw.0) };
        let ask = |attribute| attribute_of(api, raw.0, attribute);
        let attributes = FunctionAttributes {
            registers: ask(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: ask(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            static_shared_bytes: ask(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            const_bytes: ask(Attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES)?,
            max_threads: ask(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            param_bytes: param_bytes(api, raw.0),
        };
        let unasked = SHARED_UNASKED.saturating_sub(attributes.static_shared_bytes);
        Ok(Self {
            module,
            raw,
            name: name.into(),
            attributes,
            shared: AtomicU32::new(unasked),
            raising: ForkLock::default(),
            large_clusters: AtomicBool::new(false),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn attributes(&self) -> &FunctionAttributes {
        &self.attributes
    }

    pub fn device(&self) -> &Arc<Device> {
        self.module.device()
    }

    /// The driver's handle, as a number.
    pub fn raw(&self) -> u64 {
        self.raw.0 as u64
    }

    pub(super) fn handle(&self) -> CUfunction {
        self.raw.0
    }

    /// Lets launches have so much dynamic shared memory. Those that need more do it themselves,
    /// once.
    #[inline]
    pub fn set_shared(&self, bytes: u32) -> Result<(), CudaError> {
        if bytes <= self.shared.load(Ordering::Acquire) { Ok(()) } else { self.raise_shared(bytes) }
    }

    #[cold]
    fn raise_shared(&self, bytes: u32) -> Result<(), CudaError> {
        let most = self.device().info().shared_per_block_opt_in;
        let fixed = self.attributes.static_shared_bytes;
        let needs = u64::from(bytes) + u64::from(fixed);
        if needs > most.into() {
            let message = format!(
                "`{}` needs {needs} bytes of shared memory, and a block of this device has {most}",
                self.name
            );
            let help = "use smaller tiles or fewer stages";
            let diagnostic = Diagnostic::new(Code::E_TILE_LOWERING, message).help(help);
            return Err(CudaError::refused(diagnostic));
        }
        // Raised only, one thread at a time: what another was granted stays.
        let _raising = self.raising.lock();
        if bytes > self.shared.load(Ordering::Acquire) {
            self.set(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes)?;
            self.shared.store(bytes, Ordering::Release);
        }
        Ok(())
    }

    /// Allows clusters of more blocks than every device takes.
    pub(super) fn allow_cluster(&self, blocks: u32) -> Result<(), CudaError> {
        if blocks <= PORTABLE_CLUSTER || self.large_clusters.load(Ordering::Acquire) {
            return Ok(());
        }
        self.set(Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
        self.large_clusters.store(true, Ordering::Release);
        Ok(())
    }

    fn set(&self, attribute: Attribute, value: u32) -> Result<(), CudaError> {
        let context = self.device().context;
        let _current = context.make_current()?;
        // SAFETY: the function exists.
        unsafe { context.api.cuFuncSetAttribute(self.raw.0, attribute, value as i32) }?;
        Ok(())
    }

    /// Occupancy: how many blocks of `threads` threads and `shared` bytes of dynamic shared memory
    /// are resident on a multiprocessor.
    pub fn occupancy(&self, threads: u32, shared: u32) -> Result<u32, CudaError> {
        self.set_shared(shared)?;
        let context = self.device().context;
        let _current = context.make_current()?;
        let mut blocks = 0;
        // SAFETY: the function exists; `blocks` is a place for one number.
        unsafe {
            context.api.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.raw.0,
                threads as i32,
                shared as usize,
            )
        }?;
        Ok(blocks.max(0).unsigned_abs())
    }
}

fn attribute_of(api: &Api, function: CUfunction, attribute: Attribute) -> Result<u32, CudaError> {
    let mut value = 0;
    // SAFETY: `value` is a place for one number; the function exists.
    unsafe { api.cuFuncGetAttribute(&mut value, attribute, function) }?;
    Ok(value.max(0).unsigned_abs())
}

/// Where the first parameter ends, which of our kernels is the only one; `None` for drivers before
/// 12.4. Asking for more than there are is an error that tools would report.
fn param_bytes(api: &Api, function: CUfunction) -> Option<u32> {
    let (mut offset, mut size) = (0, 0);
    // SAFETY: places for two numbers; the function exists.
    unsafe { api.cuFuncGetParamInfo(function, 0, &mut offset, &mut size) }.ok()?;
    u32::try_from(offset + size).ok()
}
