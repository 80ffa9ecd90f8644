//! Elements of arrays between host and device, and bytes on a device.

use super::{of_launch, open};
use crate::pack::{gather, is_packed, packed_bytes, reach, scatter};
use tessera_diag::Diagnostics;
use tessera_target::device::Device;
use tessera_target::{BufferArg, Queue};

/// Reads the elements of an array on a device, packed, after the stream's work so far.
pub fn read(view: &BufferArg, queue: Queue, to: &mut [u8]) -> Result<(), Diagnostics> {
    let device = open(queue.device)?;
    if packed_bytes(view) == 0 {
        return Ok(());
    }
    if is_packed(view) {
        // SAFETY: the view is memory of the device, as its owner says.
        return unsafe { device.copy_out(to, view.data as u64, queue.stream) }.map_err(of_launch);
    }
    let (low, span) = fetch_span(&*device, view, queue.stream)?;
    // SAFETY: the span covers all positions of the view, and `to` is for all elements.
    unsafe {
        let first = span.as_ptr().offset(-low as isize);
        gather(first, &view.dims, &view.strides, view.dtype.bytes(), to.as_mut_ptr());
    }
    Ok(())
}

/// Writes the elements of an array on a device; `from` has them packed. Bytes between the elements
/// keep their values, unless another stream writes them meanwhile.
pub fn write(view: &BufferArg, queue: Queue, from: &[u8]) -> Result<(), Diagnostics> {
    let device = open(queue.device)?;
    if packed_bytes(view) == 0 {
        return Ok(());
    }
    if is_packed(view) {
        // SAFETY: the view is memory of the device, as its owner says.
        return unsafe { device.copy_in(view.data as u64, from, queue.stream) }.map_err(of_launch);
    }
    let (low, mut span) = fetch_span(&*device, view, queue.stream)?;
    // SAFETY: as in `read`.
    unsafe {
        let first = span.as_mut_ptr().offset(-low as isize);
        scatter(first, &view.dims, &view.strides, view.dtype.bytes(), from.as_ptr());
        device.copy_in((view.data as u64).wrapping_add_signed(low), &span, queue.stream)?;
    }
    Ok(())
}

/// The span of bytes of a view, and the distance from its begin to the first element.
fn fetch_span(
    device: &dyn Device,
    view: &BufferArg,
    stream: u64,
) -> Result<(i64, Vec<u8>), Diagnostics> {
    let (low, high) = reach(view);
    let mut span = vec![0; (high - low) as usize];
    // SAFETY: the view is memory of the device, as its owner says.
    unsafe { device.copy_out(&mut span, (view.data as u64).wrapping_add_signed(low), stream) }
        .map_err(of_launch)?;
    Ok((low, span))
}

/// Copies bytes from one place of a device to another.
pub fn copy_on_device(to: u64, from: u64, bytes: u64, queue: Queue) -> Result<(), Diagnostics> {
    // SAFETY: both are memory that their owners keep; the binding has checked the sizes.
    Ok(unsafe { open(queue.device)?.copy(to, from, bytes, queue.stream) }?)
}
