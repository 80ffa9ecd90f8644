//! What runs kernels: its name, for records, and rough figures, for the cost model.

use crate::backends::Choice;
use crate::gpu::{self, DeviceRow};
use crate::location::Location;
use crate::processor;
use tessera_diag::Diagnostics;
use tessera_tile::{TileFunc, TileOp};
use tessera_tune::rank::Machine;

/// Clocks of a second: what differs between machines cancels out, since only ratios are used.
const CLOCK: f64 = 2e9;

/// The device that a call on this backend, with arrays there, runs on.
pub fn device(choice: &Choice, location: Location) -> Result<Option<DeviceRow>, Diagnostics> {
    if !choice.is_cuda() {
        return Ok(None);
    }
    let ordinal = match location {
        Location::Cuda(ordinal) => ordinal,
        Location::Host => 0,
    };
    Ok(gpu::devices()?.into_iter().find(|d| d.ordinal == ordinal))
}

/// As its maker calls it; a processor also with the threads that launches use.
pub fn name(choice: &Choice, location: Location) -> Result<String, Diagnostics> {
    if let Some(device) = device(choice, location)? {
        return Ok(device.name);
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

/// Figures for ranking.
pub fn figures(func: &TileFunc, device: Option<&DeviceRow>) -> Result<Machine, Diagnostics> {
    let has_products = func.walk().into_iter().any(|id| func.ops[id].code == TileOp::Mma);
    let Some(device) = device else {
        let threads = processor::threads()? as f64;
        return Ok(Machine {
            slots: threads as u64,
            // Two fused vectors of eight a clock.
            flops: threads * CLOCK * 32.0,
            cache_bytes: threads * CLOCK * 16.0,
            memory_bytes: 4e10,
            // The cache of a core that is nearest, or little more.
            local_bytes: 1 << 16,
            group: 1e-8,
        });
    };
    let units = f64::from(device.multiprocessors);
    // Products a clock and multiprocessor: tensor cores by generation, else four times 32 lanes.
    let per_clock = match (has_products, device.capability.0) {
        (false, _) => 256.0,
        (true, ..8) => 1024.0,
        (true, 8) => 2048.0,
        (true, _) => 4096.0,
    };
    Ok(Machine {
        slots: device.multiprocessors.into(),
        flops: units * CLOCK * per_clock,
        cache_bytes: units * CLOCK * 64.0,
        memory_bytes: units * CLOCK * 12.0,
        // Its registers.
        local_bytes: 1 << 18,
        group: 1.5e-6,
    })
}
