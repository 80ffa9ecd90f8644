//! An estimate of a candidate's resources from its Tile IR, before anything is compiled. It is a
//! lower bound: a candidate that it refuses cannot be compiled.

use tessera_ir::{BlockId, Dim, Type};
use tessera_target::GpuCaps;
use tessera_tile::{TileFunc, TileOp};

/// Bytes of a register.
const REGISTER: u64 = 4;

/// What the tunables say of how a group runs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requested {
    pub warps: Option<i64>,
    pub stages: Option<i64>,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Threads that the candidate requests.
    pub threads: Option<u64>,
    /// Shared memory: pipeline stages for MMA operands of a loop, and buffers.
    pub shared_bytes: u64,
    /// Tiles that loops carry from iteration to iteration; they stay in registers.
    pub carried_bytes: u64,
}

/// A block of the target; zero where there is no such limit.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub warp: u64,
    pub threads: u64,
    pub shared_bytes: u64,
    /// Registers of a thread.
    pub registers: u64,
}

impl Limits {
    pub fn of(caps: &GpuCaps) -> Self {
        Self {
            warp: caps.warp_size.into(),
            threads: caps.max_threads_per_block.into(),
            shared_bytes: caps.shared_per_block.into(),
            registers: caps.registers_per_thread.into(),
        }
    }
}

pub fn need(func: &TileFunc, requested: Requested, limits: &Limits) -> Need {
    let positive = |n: i64| u64::try_from(n).ok().filter(|&n| n > 0);
    let threads = requested.warps.and_then(positive).map(|w| w.saturating_mul(limits.warp.max(1)));
    let stages = requested.stages.and_then(positive).unwrap_or(1);
    let (mut ahead, mut buffers) = (0u64, 0u64);
    for id in func.walk() {
        let op = &func.ops[id];
        if op.code == TileOp::Mma {
            // The factors; the accumulator is carried. One that is no load of this iteration was made
            // in registers, and may stay there.
            let loaded = op.operands[..2].iter().filter(|&&v| is_loaded(func, v));
            let bytes: u64 = loaded.map(|&v| bytes(func.ty(v))).sum();
            ahead = ahead.max(bytes.saturating_mul(stages));
        }
        buffers +=
            op.results.iter().map(|&r| func.ty(r)).filter(|t| is_buffer(t)).map(bytes).sum::<u64>();
    }
    Need { threads, shared_bytes: ahead.max(buffers), carried_bytes: carried(func, func.body) }
}

fn is_buffer(ty: &Type) -> bool {
    matches!(ty, Type::Buf { .. })
}

fn is_loaded(func: &TileFunc, value: tessera_ir::Value) -> bool {
    func.def(value).is_some_and(|op| op.code == TileOp::Load)
}

fn bytes(ty: &Type) -> u64 {
    let (Type::Tile { shape, dtype } | Type::Buf { shape, dtype }) = ty else { return 0 };
    let extent = |dim: &Dim| dim.as_static().and_then(|n| u64::try_from(n).ok()).unwrap_or(1);
    shape.iter().map(extent).fold(dtype.bytes() as u64, u64::saturating_mul)
}

/// The most bytes that loops carry together: a loop's own or those of the deepest loop in it.
fn carried(func: &TileFunc, block: BlockId) -> u64 {
    let mut most = 0;
    for &id in &func.blocks[block].ops {
        let op = &func.ops[id];
        let own: u64 = match op.code {
            TileOp::For | TileOp::While => op.results.iter().map(|&r| bytes(func.ty(r))).sum(),
            _ => 0,
        };
        let inner = op.regions.iter().map(|&r| carried(func, r)).max().unwrap_or(0);
        // An inner loop mostly carries the outer loop's values.
        most = most.max(own.max(inner));
    }
    most
}

/// Why the candidate cannot be, if it cannot.
pub fn refuse(need: &Need, limits: &Limits) -> Option<String> {
    if let Some(threads) = need.threads
        && limits.threads > 0
        && threads > limits.threads
    {
        return Some(format!("{threads} threads in a block, of at most {}", limits.threads));
    }
    if limits.shared_bytes > 0 && need.shared_bytes > limits.shared_bytes {
        let (needed, limit) = (need.shared_bytes, limits.shared_bytes);
        return Some(format!("at least {needed} bytes of shared memory, of at most {limit}"));
    }
    let threads = need.threads.unwrap_or(limits.threads);
    let registers = need.carried_bytes.div_ceil(REGISTER * threads.max(1));
    if limits.registers > 0 && registers > limits.registers {
        let limit = limits.registers;
        return Some(format!(
            "at least {registers} registers in each of {threads} threads for the tiles that loops carry, of at most {limit}"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: Limits = Limits { warp: 32, threads: 1024, shared_bytes: 232448, registers: 255 };
    const PRODUCT: &str = "func @f(%a: view<[m, 64], f32, read>, %b: view<[64, n], f32, read>, %c: view<[m, n], f32, write>) {kind = group, grid = [1, 1, 1]} {
  %zero = tile.const {value = 0} : i64
  %one = tile.const {value = 64} : i64
  %acc = tile.const {value = 0.0} : tile<128x256xf32>
  %sum = tile.for %zero, %one, %one init(%acc) : tile<128x256xf32> do (%k: i64, %s: tile<128x256xf32>) {
    %x = tile.load %a at(%zero, %k) {extent = [128, 64]} : tile<128x64xf32>
    %y = tile.load %b at(%k, %zero) {extent = [64, 256]} : tile<64x256xf32>
    %p = tile.mma %x, %y, %s : tile<128x256xf32>
    tile.yield %p
  }
  tile.store %c, %sum at(%zero, %zero) {extent = [128, 256]}
  tile.return
}";

    fn product() -> TileFunc {
        tessera_tile::parse(PRODUCT).unwrap_or_else(|e| panic!("{e}"))
    }

    fn reported(warps: i64, stages: i64, limits: &Limits) -> Option<String> {
        let requested = Requested { warps: Some(warps), stages: Some(stages) };
        refuse(&need(&product(), requested, limits), limits)
    }

    #[test]
    fn each_resource_is_a_reason() {
        assert_eq!(reported(8, 2, &GPU), None);
        assert_eq!(reported(64, 1, &GPU).unwrap(), "2048 threads in a block, of at most 1024");
        let shared = reported(8, 3, &GPU).unwrap();
        assert_eq!(shared, "at least 294912 bytes of shared memory, of at most 232448");
        let registers = reported(2, 1, &GPU).unwrap();
        assert!(
            registers.starts_with("at least 512 registers in each of 64 threads"),
            "{registers}"
        );
    }

    #[test]
    fn a_target_without_limits_takes_all() {
        assert_eq!(reported(64, 100, &Limits::default()), None);
    }
}
