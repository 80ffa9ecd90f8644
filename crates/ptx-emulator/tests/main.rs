//! Tests of the interpreter, against values made by hand and against `tessera_numerics`.

mod alu;
mod async_copy;
mod branches;
mod cvt;
mod float;
mod matrix;
mod memory;
mod speed;
mod warp;
mod wgmma;

use tessera_ptx::*;
use tessera_ptx_emulator::{
    Copies, Fault, FaultKind, Grid, Memory, Options, Place, Stats, TensorMap, run,
};

/// A kernel whose one parameter holds words.
pub fn kernel(threads: u32, words: u32) -> Asm {
    let mut k = Kernel::new("k", threads);
    k.params.push(Param { name: "args".to_string(), bytes: 8 * words, align: 8 });
    Asm::new(k)
}

pub fn module(asm: Asm) -> Module {
    Module {
        version: Version { major: 8, minor: 0 },
        target: Target { sm: 90, exact: true },
        files: vec!["k.py".to_string()],
        kernels: vec![asm.kernel],
    }
}

pub fn launch(
    asm: Asm,
    blocks: u32,
    words: &[u64],
    memory: &Memory<'_>,
    options: &Options,
) -> Result<Stats, Fault> {
    let module = module(asm);
    let dynamic_shared = module.kernels[0].dynamic_shared;
    let grid = Grid { grid: [blocks, 1, 1], dynamic_shared };
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    run(&module, "k", &grid, &[&bytes], memory, options)
}

/// A word of the parameter.
pub fn arg(asm: &mut Asm, word: i64) -> Reg {
    asm.ld(Space::Param, Ty::U64, 1, Addr::name("args", 8 * word), Cache::Usual)[0]
}

/// The address of element `thread` of an array that an argument points at.
pub fn element(asm: &mut Asm, word: i64, bytes: i64) -> Reg {
    let base = arg(asm, word);
    let tid = asm.special(Special::TidX);
    let ntid = asm.special(Special::NtidX);
    let block = asm.special(Special::CtaidX);
    let at = asm.int(Alu::MadLo, Ty::U32, &[block.into(), ntid.into(), tid.into()]);
    asm.int(Alu::MadWide, Ty::U32, &[at.into(), bytes.into(), base.into()])
}

pub fn load(asm: &mut Asm, ty: Ty, word: i64) -> Reg {
    let at = element(asm, word, ty.bits() as i64 / 8);
    asm.ld(Space::Global, ty, 1, Addr::reg(at, 0), Cache::Usual)[0]
}

pub fn store(asm: &mut Asm, ty: Ty, word: i64, value: Reg) {
    let at = element(asm, word, ty.bits() as i64 / 8);
    asm.st(Space::Global, ty, &[value.into()], Addr::reg(at, 0), Cache::Usual);
}

/// Runs `body` on one word per thread, for 32 threads.
pub fn map(input: [u32; 32], body: impl FnOnce(&mut Asm, Reg) -> Reg) -> [u32; 32] {
    try_map(input, &Options::default(), body).unwrap_or_else(|f| panic!("{f}"))
}

pub fn try_map(
    input: [u32; 32],
    options: &Options,
    body: impl FnOnce(&mut Asm, Reg) -> Reg,
) -> Result<[u32; 32], Fault> {
    let mut asm = kernel(32, 2);
    let x = load(&mut asm, Ty::B32, 0);
    let y = body(&mut asm, x);
    store(&mut asm, Ty::B32, 1, y);
    let mut out = [0u32; 32];
    let mut memory = Memory::new();
    let words = [memory.share(&input), memory.lend(&mut out)];
    launch(asm, 1, &words, &memory, options)?;
    drop(memory);
    Ok(out)
}

/// The fault of a kernel that must have one.
pub fn fault(asm: Asm, words: &[u64], memory: &Memory<'_>, options: &Options) -> Fault {
    match launch(asm, 1, words, memory, options) {
        Ok(_) => panic!("expected a fault"),
        Err(fault) => fault,
    }
}

pub struct Draw(pub u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// Often an edge case.
    pub fn word(&mut self) -> u64 {
        const EDGES: [u64; 20] = [
            0,
            1,
            2,
            31,
            32,
            33,
            63,
            64,
            0x7F,
            0x80,
            0xFF,
            0x7FFF,
            0x8000,
            0x7FFF_FFFF,
            0x8000_0000,
            0xFFFF_FFFF,
            0x7F80_0000,
            0xFF80_0000,
            0x7FF0_0000_0000_0000,
            u64::MAX,
        ];
        match self.next() % 4 {
            0 => EDGES[self.next() as usize % EDGES.len()],
            1 => EDGES[self.next() as usize % EDGES.len()].wrapping_add(self.next() % 3),
            _ => self.next(),
        }
    }
}
