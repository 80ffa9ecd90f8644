//! The backend for NVIDIA GPUs in a build without CUDA: it is never available.

use crate::backends::{NOT_IN_BUILD, PTX, PTX_EMULATED, Target};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_target::Backend;

pub use crate::gpu::{hold_back, missing, wait_for};

pub(crate) fn to_compile(_: &Target) -> Result<Arc<dyn Backend>, Diagnostics> {
    let message = format!("the backend `{PTX}` is not available: {NOT_IN_BUILD}");
    Err(Diagnostic::new(Code::E_DRIVER, message).into())
}

pub(crate) fn on_device(device: u32, _: Option<&str>) -> Result<Arc<dyn Backend>, Diagnostics> {
    to_compile(&Target::parse(&format!("cuda:{device}")))
}

pub(crate) fn emulated(_: &Target) -> Result<Arc<dyn Backend>, Diagnostics> {
    let message = format!("the backend `{PTX_EMULATED}` is not available: {NOT_IN_BUILD}");
    Err(Diagnostic::new(Code::E_DRIVER, message).into())
}

pub fn features(_: &str) -> Vec<(&'static str, bool)> {
    Vec::new()
}
