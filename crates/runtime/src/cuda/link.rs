//! The driver's assembler without loading, so that the cubin can be cached.

use super::device::Device;
use super::error::CudaError;
use super::graph::Relaxed;
use super::image;
use super::jit::{Jit, LoadOptions};
use super::module::Module;
use cudarc::driver::sys::{CUjitInputType::CU_JIT_INPUT_PTX, CUlinkState};
use std::ptr::null_mut;
use std::sync::Arc;
use tessera_support::{Hash128, StableHasher};
use tessera_target::ObjectStore;

/// Destroyed at the end, whatever happens.
struct Link<'a> {
    device: &'a Device,
    raw: CUlinkState,
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        // SAFETY: it is this one's own.
        self.device.context.finally(|api| unsafe { api.cuLinkDestroy(self.raw) });
    }
}

/// Assembles PTX for this device, with the driver's assembler.
pub fn to_cubin(
    device: &Arc<Device>,
    ptx: &[u8],
    options: &LoadOptions,
) -> Result<Vec<u8>, CudaError> {
    let _current = device.make_current()?;
    let api = device.context.api;
    let _relaxed = Relaxed::begin(api);
    let code = image::whole(ptx)?;
    // The driver writes to its log until the link is destroyed, so that this lives longer.
    let mut jit = Jit::new(options);
    let mut link = Link { device, raw: null_mut() };
    let (mut cubin, mut bytes) = (null_mut(), 0);
    let (count, names, values) = (jit.count(), jit.options(), jit.values());
    // SAFETY: the options are as many as said; the code is text with a zero at its end, which its
    // length includes; the rest are places for what is given.
    let done = unsafe {
        api.cuLinkCreate_v2(count, names, values, &mut link.raw)
            .and_then(|()| {
                let (state, text) = (link.raw, code.as_ptr().cast_mut().cast());
                let (name, none) = (c"kernel.ptx".as_ptr(), null_mut());
                let kind = CU_JIT_INPUT_PTX;
                api.cuLinkAddData_v2(state, kind, text, code.len(), name, 0, null_mut(), none)
            })
            .and_then(|()| api.cuLinkComplete(link.raw, &mut cubin, &mut bytes))
    };
    if let Err(failure) = done {
        return Err(jit.explain(failure.into(), ptx, device.info()));
    }
    // SAFETY: the link owns these bytes until it is destroyed.
    Ok(unsafe { std::slice::from_raw_parts(cubin.cast::<u8>(), bytes) }.to_vec())
}

impl Module {
    /// Loads PTX, assembled at most once for a driver and an architecture: the cubin is kept in
    /// the store. `about` is the store's line for people. What may not be linked is loaded as it is, and
    /// kept by the driver alone.
    pub fn load_cached(
        device: &Arc<Device>,
        ptx: &[u8],
        options: &LoadOptions,
        store: &dyn ObjectStore,
        about: &str,
    ) -> Result<Arc<Module>, CudaError> {
        if !links(ptx) {
            return Module::load(device, ptx, options);
        }
        let key = key(ptx, options, device.info().driver_version, &device.info().arch());
        if let Some(cubin) = store.get(key) {
            // One that does not load is made anew.
            if let Ok(module) = Module::load(device, &cubin, &LoadOptions::default()) {
                return Ok(module);
            }
        }
        let cubin = to_cubin(device, ptx, options)?;
        store.put(key, about, &cubin);
        Module::load(device, &cubin, &LoadOptions::default())
    }
}

/// Whether code is the same when it is linked. What is to be linked may be called from elsewhere, so
/// that the assembler ignores how threads hand registers to each other (its note C7504), and spills.
fn links(ptx: &[u8]) -> bool {
    const POOLS: &[u8] = b"setmaxnreg";
    !ptx.windows(POOLS.len()).any(|w| w == POOLS)
}

/// All that a cubin depends on.
fn key(ptx: &[u8], options: &LoadOptions, driver: u32, arch: &str) -> Hash128 {
    let mut hasher = StableHasher::new();
    hasher.write_str("cubin of the driver");
    hasher.write_str(&StableHasher::of_bytes(ptx).to_string());
    options.hash(&mut hasher);
    hasher.write_u64(driver.into());
    hasher.write_str(arch);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn register_pools_are_not_linked() {
        assert!(links(b"add.u32 %r1, %r1, 1;") && links(b""));
        assert!(!links(b"    setmaxnreg.inc.sync.aligned.u32 240;"));
    }

    #[test]
    fn the_key_covers_code_options_driver_and_architecture() {
        let plain = LoadOptions::default();
        let few = LoadOptions { max_registers: Some(32), ..plain };
        let keys = [
            key(b"a", &plain, 13_000, "sm_90"),
            key(b"b", &plain, 13_000, "sm_90"),
            key(b"a", &few, 13_000, "sm_90"),
            key(b"a", &plain, 12_090, "sm_90"),
            key(b"a", &plain, 13_000, "sm_100"),
        ];
        let different: std::collections::BTreeSet<_> = keys.into_iter().collect();
        assert_eq!(different.len(), keys.len());
    }
}
