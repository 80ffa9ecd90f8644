//! How WGMMA tests run: Staged text on its own interpreter, and as PTX on that of PTX; and what the
//! assembler makes of it.

use crate::gemm::form::{integers, same};
use tessera_interp::{HostArray, StagedOptions, Timing, run_staged};
use tessera_ir::Type;
use tessera_layout::{Layout, Shared};
use tessera_numerics::{DType, Profile};
use tessera_ptx::tools::Tools;
use tessera_ptx::{Code, Inst, PtxCaps, compile_staged, usual_classes};
use tessera_ptx_emulator::{Copies, Grid, Memory, Options, run};
use tessera_staged::StagedFunc;
use tessera_target::frame::Frame;
use tessera_target::{ArgValue, LaunchArgs};

/// A function, the dims and contents of its arrays. The last one is written.
pub struct Case {
    pub text: String,
    pub arrays: Vec<HostArray>,
    pub dims: Vec<(&'static str, i64)>,
    pub profile: Profile,
}

impl Case {
    fn func(&self) -> StagedFunc {
        tessera_staged::parse(&self.text).unwrap_or_else(|e| panic!("{e}\n{}", self.text))
    }

    /// The same parameters in Tile IR, from which frames are made.
    fn frame(&self) -> (Frame, tessera_tile::TileFunc) {
        let head = self.text.split_once(") {").expect("a head").0;
        let dim = |(i, (name, _)): (usize, &(&str, i64))| {
            format!("  %d{i} = tile.dim {{name = {name}}} : i64\n")
        };
        let dims: String = self.dims.iter().enumerate().map(dim).collect();
        let text = format!("{head}) {{kind = group, grid = [1]}} {{\n{dims}  tile.return\n}}");
        let func = tessera_tile::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        (Frame::new(&func).unwrap(), func)
    }

    pub fn code(&self) -> Code {
        let (frame, _) = self.frame();
        let caps = PtxCaps::of(90, true).unwrap();
        compile_staged(&self.func(), &frame, caps, self.profile, &usual_classes(&frame))
            .unwrap_or_else(|e| panic!("{e}\n{}", self.text))
    }

    fn args(&self, arrays: &mut [HostArray]) -> LaunchArgs {
        LaunchArgs {
            params: arrays.iter_mut().map(HostArray::as_arg).collect(),
            dims: self.dims.iter().map(|&(s, v)| (s.to_string(), v)).collect(),
            grid: [1, 1, 1],
            domain: [0; 3],
            lanes: 1,
        }
    }

    /// What the interpreter of Staged IR writes.
    pub fn wanted(&self) -> HostArray {
        let mut mine = self.arrays.clone();
        let args = self.args(&mut mine);
        let options = StagedOptions { timing: Timing::Late, verify: true };
        run_staged(&self.func(), &args, options).unwrap_or_else(|e| panic!("{e}\n{}", self.text));
        mine.pop().unwrap()
    }

    /// What the code writes, however late or early asynchronous operations complete.
    pub fn got(&self, code: &Code, copies: Copies) -> HostArray {
        let mut mine = self.arrays.clone();
        let args = self.args(&mut mine);
        let (frame, func) = self.frame();
        let mut words = Vec::new();
        frame.fill(&func, &args, &mut words, |_, _, _| {}).unwrap();
        let mut memory = Memory::new();
        for arg in &args.params {
            let ArgValue::Buffer(b) = arg else { continue };
            let bytes = b.dims.iter().product::<i64>() as usize * b.dtype.bytes();
            // SAFETY: the arrays live to the end of this function.
            unsafe { memory.allow(b.data, bytes, b.writable) };
        }
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let kernel = code.kernel();
        let grid = Grid { grid: [1, 1, 1], dynamic_shared: kernel.dynamic_shared };
        let options = Options { races: true, copies, ..Options::default() };
        run(&code.module, &kernel.name, &grid, &[&bytes], &memory, &options)
            .unwrap_or_else(|e| panic!("{e:?}\n{}\n{}", self.text, code.module.text()));
        mine.pop().unwrap()
    }

    /// Both agree bit by bit, and the code has `calls` WGMMAs.
    pub fn check(&self, calls: usize) -> Code {
        let code = self.code();
        assert_eq!(calls, wgmma_calls(&code), "{}\n{}", self.text, code.module.text());
        let wanted = self.wanted();
        for copies in [Copies::Late, Copies::Early] {
            same(&wanted, &self.got(&code, copies), &self.text);
        }
        code
    }
}

pub fn wgmma_calls(code: &Code) -> usize {
    code.kernel().instructions().filter(|i| matches!(i, Inst::Wgmma { .. })).count()
}

/// The assembler accepts it without a warning or spills; returns the machine code.
pub fn assembled(tools: &Tools, code: &Code) -> String {
    let got = tools.assemble(&code.module).unwrap();
    let text = code.module.text();
    let cubin = got.cubin.unwrap_or_else(|| panic!("{}\n{text}", got.words));
    let words = &got.words;
    for bad in ["warning", "(C75", "spill stores"] {
        let found = words.lines().find(|l| l.contains(bad) && !l.contains(" 0 bytes spill stores"));
        assert_eq!(found, None, "{words}\n{text}");
    }
    tools.disassemble(&cubin).unwrap()
}

pub fn array(dims: [i64; 2], dtype: DType, seed: usize) -> HostArray {
    let least = if dtype == DType::U8 { 0 } else { -3 };
    HostArray::new(&dims, dtype, &integers((dims[0] * dims[1]) as usize, seed, least))
}

/// The widest swizzled layout that WGMMA reads, for memory of this shape and order.
pub fn widest(shape: [u32; 2], order: [usize; 2], bytes: u32) -> Shared {
    let row = shape[order[0]] * bytes;
    if row == 16 {
        return Shared::ordered(&shape, &order, bytes);
    }
    let span = [128, 64, 32].into_iter().find(|span| row.is_multiple_of(*span)).unwrap_or(32);
    Shared::swizzled(&shape, &order, bytes, span)
}

pub fn smem(shape: [u32; 2], dtype: DType, shared: &Shared) -> String {
    Type::smem(&shape.map(i64::from), dtype, shared.clone()).to_string()
}

pub fn frag(shape: [u32; 2], dtype: DType, layout: &Layout) -> String {
    Type::frag(&shape.map(i64::from), dtype, layout.clone()).to_string()
}

/// A layout to load a tile in.
pub fn loads(shape: [u32; 2], dtype: DType, warps: u32) -> Layout {
    Layout::coalesced(&shape, Some(1), 16 / dtype.bytes() as u32, warps, 1, None)
}
