//! Which device's memory an address is.

use super::driver::driver;
use cudarc::driver::sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST;
use cudarc::driver::sys::CUpointer_attribute::*;
use std::ffi::c_int;

/// The device that holds the memory at an address; `None` for the host's, pinned memory among it,
/// and where there is no driver.
pub fn pointer_device(address: u64) -> Option<u32> {
    let api = driver().ok()?.api;
    let (mut kind, mut ordinal): (c_int, c_int) = (0, 0);
    // SAFETY: both attributes are one number of this size; the driver only looks an address up.
    unsafe {
        let kind_at = (&raw mut kind).cast();
        api.cuPointerGetAttribute(kind_at, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address).ok()?;
        let ordinal_at = (&raw mut ordinal).cast();
        api.cuPointerGetAttribute(ordinal_at, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address).ok()?;
    }
    (kind != CU_MEMORYTYPE_HOST as c_int).then(|| u32::try_from(ordinal).ok())?
}
