//! A PTX interpreter that runs a typed kernel, thread by thread and bit by bit, and detects faults.
//!
//! It defines the meaning of a kernel's code without a GPU. Blocks run one after another, those of
//! a cluster concurrently. Warps are scheduled in an order that `Options::seed` chooses; converged
//! lanes of a warp execute an instruction together. These end the run with a [`Fault`] that names
//! the instruction, its source location and the thread: accesses outside the memory that was given,
//! misaligned accesses, reads of uninitialised shared memory, uses of memory while a copy into it
//! is in flight, warp-collective instructions with missing lanes, deadlocks and, on request, races.
//!
//! Where hardware results are not published bit by bit there is a stand-in: approximate functions
//! are computed in f64 and rounded (`float.rs`); MMAs add exact products in ascending k, rounding
//! each time (`matrix.rs`). Everything else gives the bits of an H200: every operation and
//! conversion, copies, barriers and matrix layouts were compared.
//!
//! ```
//! use tessera_ptx_emulator::{Grid, Memory, Options, run};
//! use tessera_ptx::{Addr, Alu, Asm, Cache, Kernel, Module, Param, Space, Special, Target, Ty, Version};
//!
//! let mut kernel = Kernel::new("double", 32);
//! kernel.params.push(Param { name: "args".to_string(), bytes: 8, align: 8 });
//! let mut asm = Asm::new(kernel);
//! let base = asm.ld(Space::Param, Ty::U64, 1, Addr::name("args", 0), Cache::Usual)[0];
//! let tid = asm.special(Special::TidX);
//! let at = asm.int(Alu::MadWide, Ty::U32, &[tid.into(), 4.into(), base.into()]);
//! let x = asm.ld(Space::Global, Ty::F32, 1, Addr::reg(at, 0), Cache::Usual)[0];
//! let y = asm.float(Alu::Add, Ty::F32, &[x.into(), x.into()]);
//! asm.st(Space::Global, Ty::F32, &[y.into()], Addr::reg(at, 0), Cache::Usual);
//! let module = Module {
//!     version: Version { major: 8, minor: 0 },
//!     target: Target { sm: 80, exact: false },
//!     files: vec![],
//!     kernels: vec![asm.kernel],
//! };
//!
//! let mut data = [1.5f32; 32];
//! let mut memory = Memory::new();
//! let args = memory.lend(&mut data).to_le_bytes();
//! let grid = Grid { grid: [1, 1, 1], dynamic_shared: 0 };
//! run(&module, "double", &grid, &[&args], &memory, &Options::default()).unwrap();
//! drop(memory);
//! assert_eq!(data, [3.0; 32]);
//!
//! // One element less, and the run ends with a fault that names the thread.
//! let mut memory = Memory::new();
//! let args = memory.lend(&mut data[..31]).to_le_bytes();
//! let fault = run(&module, "double", &grid, &[&args], &memory, &Options::default()).unwrap_err();
//! assert_eq!(fault.thread, Some(31));
//! ```

mod access;
mod alu;
mod async_copy;
mod atomic;
mod backend;
mod collective;
mod copy;
mod cvt;
mod decode;
mod decode_async;
mod decode_warp;
mod exec;
mod fast;
mod fault;
mod float;
mod machine;
mod matrix;
mod mbar;
mod memory;
mod program;
mod races;
mod shared;
mod soft;
mod tensor;
mod warp;
mod wgmma;

#[doc(hidden)]
pub mod inner {
    pub mod alu {
        pub use crate::alu::{AluSpec, arity, eval, mask};
    }
    pub mod cvt {
        pub use crate::cvt::{CvtSpec, compare, eval};
    }
    pub mod fast {
        pub use crate::fast::{CmpRow, Row, alu, cmp, cvt};
    }
    pub mod float {
        pub use crate::float::{Mods, NAN_F32, NAN_F64, code, eval, value};
    }
    pub mod soft {
        pub use crate::soft::{Mode, Num, add, div, mul, round, sqrt, take_apart};
    }
}

pub use backend::{Emulated, launch, tensor_map};
pub use fault::{Fault, FaultKind, Place, Report};
pub use machine::Copies;
pub use memory::{Memory, Plain};
pub use tensor::TensorMap;

use decode::Params;
use machine::Machine;
use std::collections::BTreeMap;
use tessera_ptx::module::{Kernel, Module};

/// The grid of a launch, and the dynamic shared memory of each block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Grid {
    pub grid: [u32; 3],
    pub dynamic_shared: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Detect races in shared memory.
    pub races: bool,
    /// The most warp instructions of a run.
    pub step_limit: u64,
    /// The order in which warps are scheduled: round robin for 0, else random by this seed.
    pub seed: u64,
    /// Blocks run in a random order, by the seed.
    pub shuffled: bool,
    pub copies: Copies,
}

impl Default for Options {
    fn default() -> Self {
        Self { races: false, step_limit: 1 << 34, seed: 0, shuffled: false, copies: Copies::Late }
    }
}

/// Statistics of a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    pub blocks: u64,
    /// Instructions of warps, and of threads.
    pub warp_steps: u64,
    pub thread_steps: u64,
    /// Barriers passed.
    pub barriers: u64,
}

/// Runs a kernel of a module. `params` are the bytes of its parameters, one slice for each.
pub fn run(
    module: &Module,
    kernel: &str,
    grid: &Grid,
    params: &[&[u8]],
    memory: &Memory<'_>,
    options: &Options,
) -> Result<Stats, Fault> {
    let found = module.kernels.iter().find(|k| k.name == kernel);
    let kernel = found.ok_or_else(|| Fault::invalid(format!("no kernel is called `{kernel}`")))?;
    check_launch(kernel, grid, params)?;
    let (bytes, offsets) = place_params(kernel, params);
    let skew = bytes.as_ptr().align_offset(PARAM_ALIGN);
    let end = skew + bytes.len() - PARAM_ALIGN;
    let params = Params { bytes: &bytes[skew..end], offsets };
    let program = decode::decode(kernel, &params, grid.dynamic_shared)
        .map_err(|(stmt, message)| Fault::invalid(message).at_stmt(module, kernel, stmt))?;
    let maps = params.bytes;
    let mut machine = Machine::new(module, kernel, &program, memory, options, grid);
    machine.params = maps;
    let [x, y, z] = grid.grid;
    let cluster = kernel.cluster.max(1);
    let along = u64::from(x.div_ceil(cluster));
    let all = along * u64::from(y) * u64::from(z);
    let [start, step] = match options.shuffled {
        false => [0, 1],
        true => [machine.random() % all.max(1), coprime(machine.random(), all)],
    };
    for i in 0..all {
        let number =
            ((u128::from(start) + u128::from(i) * u128::from(step)) % u128::from(all)) as u64;
        let (first, row) = ((number % along) as u32 * cluster, number / along);
        let (at_y, at_z) = ((row % u64::from(y)) as u32, (row / u64::from(y)) as u32);
        let blocks: Vec<[u32; 3]> =
            (first..first + cluster).map(|at_x| [at_x, at_y, at_z]).collect();
        machine.run_cluster(&blocks)?;
    }
    Ok(machine.stats)
}

/// A step that visits all of `n` places before it repeats.
fn coprime(wish: u64, n: u64) -> u64 {
    let common = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (0..).map(|i| wish % n.max(1) + i).find(|&step| common(step, n) <= 1).unwrap_or(1)
}

/// The alignment of parameters: the largest that any of them requests.
const PARAM_ALIGN: usize = 128;

fn check_launch(kernel: &Kernel, grid: &Grid, params: &[&[u8]]) -> Result<(), Fault> {
    let wrong = |text: String| Err(Fault::invalid(text));
    if kernel.threads == 0 || kernel.threads > 1024 {
        return wrong(format!("expected 1 to 1024 threads, got {}", kernel.threads));
    }
    if params.len() != kernel.params.len() {
        return wrong(format!("expected {} parameters, got {}", kernel.params.len(), params.len()));
    }
    for (p, bytes) in kernel.params.iter().zip(params) {
        if p.bytes as usize != bytes.len() {
            return wrong(format!("`{}` has {} bytes, got {}", p.name, p.bytes, bytes.len()));
        }
    }
    if grid.dynamic_shared < kernel.dynamic_shared {
        let (need, got) = (kernel.dynamic_shared, grid.dynamic_shared);
        return wrong(format!("the kernel needs {need} bytes of dynamic shared memory, got {got}"));
    }
    if !grid.grid[0].is_multiple_of(kernel.cluster.max(1)) {
        let (x, c) = (grid.grid[0], kernel.cluster);
        return wrong(format!("{x} blocks along x are no whole clusters of {c}"));
    }
    Ok(())
}

/// All parameters one after another, with room to align the first.
fn place_params(kernel: &Kernel, params: &[&[u8]]) -> (Vec<u8>, BTreeMap<String, u32>) {
    let mut at = 0usize;
    let mut offsets = BTreeMap::new();
    for p in &kernel.params {
        at = at.next_multiple_of((p.align as usize).clamp(1, PARAM_ALIGN));
        offsets.insert(p.name.clone(), at as u32);
        at += p.bytes as usize;
    }
    let mut bytes = vec![0; at + PARAM_ALIGN];
    let skew = bytes.as_ptr().align_offset(PARAM_ALIGN);
    for (p, from) in kernel.params.iter().zip(params) {
        let to = skew + offsets[&p.name] as usize;
        bytes[to..to + from.len()].copy_from_slice(from);
    }
    (bytes, offsets)
}
