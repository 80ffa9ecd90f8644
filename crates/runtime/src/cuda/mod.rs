//! NVIDIA's driver as the rest of Tessera sees it. The library is loaded at first use. Nothing here
//! panics where it, a device or one of its functions is missing.
//!
//! ```
//! use tessera_runtime::cuda;
//! match cuda::present() {
//!     Ok(present) => println!("{} devices", present.devices),
//!     Err(absent) => println!("{absent}"),
//! }
//! ```
//!
//! A [`Device`] stands for its primary context. [`Module`]s are loaded on it, their [`Function`]s
//! launched on [`Stream`]s, whose work can be recorded as a [`Graph`]. Memory comes from the
//! device's [`Pool`]. What fails is a [`CudaError`].
//!
//! [`Cuda`] is all of it behind the traits of [`tessera_target::device`]: the driver crate uses nothing else, but for what
//! PTX alone has (tensor maps, `ptxas`).
//!
//! Handles of other libraries and addresses are numbers: what takes one is `unsafe`, since the
//! driver believes them.

mod api;
mod context;
mod copy;
mod device;
mod driver;
mod error;
mod event;
mod function;
mod graph;
mod image;
mod info;
mod jit;
mod launch;
mod link;
mod module;
mod platform;
mod pointer;
mod pool;
pub mod ptxas;
mod staging;
mod stream;
mod tensor_map;
mod wait;
mod workspace;

pub use context::Current;
pub use device::Device;
pub use driver::{Absent, Present, present};
pub use error::CudaError;
pub use event::Event;
pub use function::{Function, FunctionAttributes};
pub use graph::{Capture, Graph, GraphExec};
pub use info::{DeviceInfo, ptx_isa};
pub use jit::LoadOptions;
pub use link::to_cubin;
pub use module::Module;
pub use platform::Cuda;
pub use pointer::pointer_device;
pub use pool::{DeviceBuffer, Pool};
pub use stream::{Stream, StreamRef};
pub use tensor_map::{
    Interleave, L2Promotion, MapDType, OobFill, Swizzle, TensorMap, TensorMapFault, TensorMapSpec,
};
pub use tessera_target::device::{LaunchShape, MemoryInfo, PoolStats};
pub use workspace::WORKSPACE_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_guards_goes_between_threads() {
        fn both<T: Send + Sync>() {}
        both::<Device>();
        both::<Module>();
        both::<Function>();
        both::<Stream>();
        both::<Event>();
        both::<DeviceBuffer>();
        both::<Graph>();
        both::<GraphExec>();
        both::<TensorMap>();
        both::<CudaError>();
    }
}
