//! What runs kernels: its name, for records, and rough figures, for the cost model.

use crate::backends::Choice;
use crate::device::{self, DeviceRow};
use crate::location::Location;
use crate::processor;
use tessera_diag::Diagnostics;
use tessera_target::device::DeviceId;
use tessera_target::speed::{LINE, Speed};

/// Clock rate in Hz: differences between machines cancel out, since only ratios are used.
const CLOCK: f64 = 2e9;

/// The device that a call on this backend, with arrays there, runs on.
fn id(choice: &Choice, location: Location) -> Option<DeviceId> {
    choice.is_on_device().then(|| match location {
        Location::Device(id) => id,
        Location::Host => choice.backend.device(),
    })
}

pub fn device(choice: &Choice, location: Location) -> Result<Option<DeviceRow>, Diagnostics> {
    id(choice, location).map(device::row).transpose()
}

/// What its maker calls the device, and the architecture: times are known for all devices of these. Every call that may
/// be tuned asks.
pub fn kind(choice: &Choice, location: Location) -> Result<String, Diagnostics> {
    let Some(id) = id(choice, location) else { return Ok(String::new()) };
    let device = device::open(id)?;
    Ok(format!("{}, {}", device.info().name, device.info().arch))
}

/// As its maker calls it; a processor also with the threads that launches use.
pub fn name(choice: &Choice, location: Location) -> Result<String, Diagnostics> {
    if let Some(device) = device(choice, location)? {
        return Ok(device.info.name);
    }
    let threads = processor::threads()?;
    let s = if threads == 1 { "" } else { "s" };
    Ok(format!("{}, {threads} thread{s}", brand()))
}

#[cfg(target_arch = "x86_64")]
fn brand() -> String {
    use std::arch::x86_64::__cpuid;
    const FIRST: u32 = 0x8000_0002;
    const LAST: u32 = 0x8000_0004;
    let mut text = Vec::new();
    if __cpuid(0x8000_0000).eax >= LAST {
        for leaf in FIRST..=LAST {
            let words = __cpuid(leaf);
            for word in [words.eax, words.ebx, words.ecx, words.edx] {
                text.extend(word.to_le_bytes());
            }
        }
    }
    let text = String::from_utf8_lossy(&text);
    let text = text.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    if text.is_empty() { "a processor".into() } else { text.into() }
}

#[cfg(not(target_arch = "x86_64"))]
fn brand() -> String {
    format!("a processor ({})", std::env::consts::ARCH)
}

/// What candidates are compared by: the target's own figures, or rough ones of a processor.
pub fn speed(choice: &Choice) -> Result<Speed, Diagnostics> {
    if let Some(speed) = choice.caps()?.speed() {
        return Ok(speed);
    }
    let threads = processor::threads()?.max(1) as u64;
    Ok(Speed {
        processors: threads,
        clock: CLOCK,
        matrix: 0.0,
        // Two fused multiply-adds of eight lanes a cycle.
        scalar: 16.0,
        warps: 0.0,
        // The cache of a core that is nearest, or little more.
        local_bytes: 1 << 16,
        shared_bytes: 1 << 16,
        l2_lines_per_s: threads as f64 * CLOCK * 16.0 / LINE as f64,
        memory: 4e10,
        memory_latency: 200.0,
        group: 1e-8,
        max_resident_blocks: 1,
        fetch: 0.0,
        wait: 0.0,
        epilogue_overhead: 0.0,
        launch: 5e-6,
    })
}
