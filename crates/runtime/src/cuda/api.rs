//! The driver's functions that are used here, looked up by name once.
//!
//! cudarc finds the library and has the types. Its functions are not called: they panic where a
//! driver lacks a symbol, and they give results as an enum, which a newer driver's may not be in.
//! Rows are compared with cudarc's signatures when this is compiled, apart from those `by_hand`:
//! functions that give or take such an enum, those that older headers lack, and one whose name newer
//! headers have for another.

use cudarc::driver::sys::{self, *};
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::ptr::null;

/// A call that did not succeed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub call: &'static str,
    /// What the driver gave, or [`NO_FUNCTION`].
    pub result: u32,
}

/// The result of a function that this driver lacks. No driver gives it.
pub(crate) const NO_FUNCTION: u32 = u32::MAX;

macro_rules! functions {
    (
        as_cudarc { $($name:ident($($arg:ident: $ty:ty),*);)* }
        by_hand { $($other:ident($($other_arg:ident: $other_ty:ty),*);)* }
    ) => {
        functions! { table $($name($($arg: $ty),*);)* $($other($($other_arg: $other_ty),*);)* }
        const _: () = { $(let _: unsafe fn($($ty),*) -> CUresult = sys::$name;)* };
    };
    (table $($name:ident($($arg:ident: $ty:ty),*);)*) => {
        #[allow(non_snake_case)]
        pub(crate) struct Api {
            $($name: Option<unsafe extern "C" fn($($ty),*) -> u32>,)*
        }

        #[allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]
        impl Api {
            /// `None` where there is no driver. Looks for it again each time.
            pub fn load() -> Option<&'static Api> {
                // SAFETY: opening libcuda runs its initialisers, which touch no device.
                if !unsafe { sys::is_culib_present() } {
                    return None;
                }
                // SAFETY: as above. It was just found, so that this does not panic.
                let library = unsafe { sys::culib() };
                // SAFETY: a symbol of this name has this signature: NVIDIA keeps both for good.
                Some(Box::leak(Box::new(Api {
                    $($name: unsafe {
                        library.get(concat!(stringify!($name), "\0").as_bytes()).ok().map(|f| *f)
                    },)*
                })))
            }

            $(
                #[inline]
                pub unsafe fn $name(&self, $($arg: $ty),*) -> Result<(), Failure> {
                    let result = match self.$name {
                        // SAFETY: the caller keeps the function's own conditions.
                        Some(function) => unsafe { function($($arg),*) },
                        None => NO_FUNCTION,
                    };
                    if result == 0 { Ok(()) } else { Err(Failure { call: stringify!($name), result }) }
                }
            )*
        }
    };
}

functions! {
    as_cudarc {
        cuInit(flags: c_uint);
        cuDriverGetVersion(version: *mut c_int);
        cuDeviceGetCount(count: *mut c_int);
        cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
        cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
        cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
        cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
        cuCtxGetCurrent(context: *mut CUcontext);
        cuCtxPushCurrent_v2(context: CUcontext);
        cuCtxPopCurrent_v2(context: *mut CUcontext);
        cuCtxSynchronize();
        cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
        cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
        cuMemFree_v2(address: CUdeviceptr);
        cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
        cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
        cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
        cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
        cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, bytes: usize, stream: CUstream);
        cuPointerGetAttribute(value: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr);
        cuModuleLoadDataEx(
            module: *mut CUmodule, image: *const c_void,
            count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void
        );
        cuModuleUnload(module: CUmodule);
        cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
        cuFuncLoad(function: CUfunction);
        cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction);
        cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
        cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize);
        cuOccupancyMaxActiveBlocksPerMultiprocessor(
            blocks: *mut c_int, function: CUfunction, threads: c_int, shared: usize
        );
        cuOccupancyMaxActiveClusters(
            clusters: *mut c_int, function: CUfunction, config: *const CUlaunchConfig
        );
        cuLinkCreate_v2(
            count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void,
            state: *mut CUlinkState
        );
        cuLinkAddData_v2(
            state: CUlinkState, kind: CUjitInputType, data: *mut c_void, bytes: usize,
            name: *const c_char,
            count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void
        );
        cuLinkComplete(state: CUlinkState, cubin: *mut *mut c_void, bytes: *mut usize);
        cuLinkDestroy(state: CUlinkState);
        cuLaunchKernel(
            function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream,
            params: *mut *mut c_void, extra: *mut *mut c_void
        );
        cuLaunchKernelEx(
            config: *const CUlaunchConfig, function: CUfunction,
            params: *mut *mut c_void, extra: *mut *mut c_void
        );
        cuStreamCreate(stream: *mut CUstream, flags: c_uint);
        cuStreamDestroy_v2(stream: CUstream);
        cuStreamQuery(stream: CUstream);
        cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
        cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
        cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
        cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
        cuEventCreate(event: *mut CUevent, flags: c_uint);
        cuEventDestroy_v2(event: CUevent);
        cuEventRecord(event: CUevent, stream: CUstream);
        cuEventQuery(event: CUevent);
        cuGraphDestroy(graph: CUgraph);
        cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
        cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
        cuGraphExecDestroy(exec: CUgraphExec);
        cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
        cuGraphUpload(exec: CUgraphExec, stream: CUstream);
        cuTensorMapEncodeTiled(
            map: *mut CUtensorMap, dtype: CUtensorMapDataType, rank: cuuint32_t,
            address: *mut c_void, dims: *const cuuint64_t, strides: *const cuuint64_t,
            extents: *const cuuint32_t, steps: *const cuuint32_t,
            interleave: CUtensorMapInterleave, swizzle: CUtensorMapSwizzle,
            promotion: CUtensorMapL2promotion, fill: CUtensorMapFloatOOBfill
        );
    }
    by_hand {
        cuGetErrorName(result: u32, name: *mut *const c_char);
        cuGetErrorString(result: u32, text: *mut *const c_char);
        cuStreamIsCapturing(stream: CUstream, status: *mut c_uint);
        cuStreamGetId(stream: CUstream, number: *mut c_ulonglong);
        cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
        cuEventElapsedTime(milliseconds: *mut f32, from: CUevent, to: CUevent);
    }
}

impl Api {
    /// The driver's own name of a result and its words for it.
    pub fn words(&self, result: u32) -> Option<(String, String)> {
        let (mut name, mut text) = (null(), null());
        // SAFETY: both give static text, or fail for a result they do not know.
        unsafe {
            self.cuGetErrorName(result, &mut name).ok()?;
            self.cuGetErrorString(result, &mut text).ok()?;
            let own = |text| std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned();
            (!name.is_null() && !text.is_null()).then(|| (own(name), own(text)))
        }
    }
}
