//! How functions of Staged IR with roles are run: on the interpreter of Staged IR, and as PTX on
//! the interpreter of that; both must give the same bits. The assembler must accept the PTX,
//! without spills and without a warning about WGMMA.

use std::fmt::Write;
use std::path::Path;
use std::sync::LazyLock;
use tessera_diag::Diagnostics;
use tessera_interp::{HostArray, StagedOptions, Timing, run_staged};
use tessera_numerics::Profile;
use tessera_ptx::tools::Tools;
use tessera_ptx::{ArrayClass, Code, PtxCaps, compile_staged};
use tessera_ptx_emulator::{Copies, Options};
use tessera_staged::{StagedFunc, StagedOp};
use tessera_target::frame::Frame;
use tessera_target::{ArgValue, LaunchArgs};
use tessera_tile::{TileFunc, TileOp};

static TOOLS: LazyLock<Tools> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Tools::find(&root).unwrap_or_else(|why| panic!("{why}"))
});

/// An argument of a launch.
#[derive(Clone)]
pub enum Arg {
    Array(HostArray),
    /// With padded rows: dims, and strides in elements.
    Strided(HostArray, Vec<i64>, Vec<i64>),
    Int(i64),
}

impl Arg {
    fn value(&mut self) -> ArgValue {
        match self {
            Arg::Array(a) => a.as_arg(),
            Arg::Strided(a, dims, strides) => a.as_strided_arg(dims, strides, 0),
            Arg::Int(x) => ArgValue::Scalar(tessera_numerics::Scalar::I64(*x)),
        }
    }

    fn array(&self) -> Option<&HostArray> {
        match self {
            Arg::Array(a) | Arg::Strided(a, ..) => Some(a),
            Arg::Int(_) => None,
        }
    }
}

fn launch(args: &mut [Arg], blocks: i64) -> LaunchArgs {
    LaunchArgs {
        params: args.iter_mut().map(Arg::value).collect(),
        dims: Default::default(),
        grid: [blocks, 1, 1],
        domain: [0; 3],
        lanes: 1,
    }
}

/// A function with the same parameters and dimensions, whose frame is that of the launch.
fn shell(func: &StagedFunc) -> TileFunc {
    let mut text = format!("func @{}(", func.name);
    for (i, &v) in func.params().iter().enumerate() {
        let name = func.name_of(v).unwrap_or("x");
        write!(text, "{}%{name}: {}", if i == 0 { "" } else { ", " }, func.ty(v)).unwrap();
    }
    text += ") {kind = group} {\n";
    let mut seen = Vec::new();
    for id in func.walk() {
        let op = &func.ops[id];
        let name = op.attr("name").map(|n| n.to_string()).unwrap_or_default();
        if op.code == StagedOp::Tile(TileOp::Dim) && !seen.contains(&name) {
            writeln!(text, "  %d{} = tile.dim {{name = {name}}} : i64", seen.len()).unwrap();
            seen.push(name);
        }
    }
    text += "  tile.return\n}\n";
    tessera_tile::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

pub fn parse(text: &str) -> StagedFunc {
    tessera_staged::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

pub fn caps() -> &'static PtxCaps {
    PtxCaps::of(90, true).unwrap()
}

/// The code for arrays of these layouts.
pub fn code(func: &StagedFunc, args: &mut [Arg]) -> Result<(Code, Frame, Vec<u64>), Diagnostics> {
    let tile = shell(func);
    let frame = Frame::new(&tile)?;
    let args = launch(args, 1);
    let mut classes = vec![ArrayClass::default(); frame.params.len()];
    let mut words = Vec::new();
    frame.fill(&tile, &args, &mut words, |place, _, b| classes[place] = ArrayClass::of(b))?;
    let code = compile_staged(func, &frame, caps(), Profile::Default, &classes)?;
    Ok((code, frame, words))
}

/// The assembler accepts it.
pub fn assemble(code: &Code) -> Vec<u8> {
    let text = code.module.text();
    let said = TOOLS.assemble(&code.module).unwrap_or_else(|e| panic!("{e}"));
    assert!(said.refused.is_empty(), "{:?}\n{text}", said.refused);
    assert!(!said.words.contains("C75"), "{}\n{text}", said.words);
    let clean = said.words.contains(" 0 bytes spill stores, 0 bytes spill loads");
    assert!(clean, "{}\n{text}", said.words);
    said.cubin.unwrap_or_else(|| panic!("{}\n{text}", said.words))
}

pub fn disassemble(code: &Code) -> String {
    let cubin = assemble(code);
    TOOLS.disassemble(&cubin).unwrap_or_else(|e| panic!("{e}"))
}

/// What the interpreter of Staged IR makes of the arrays.
pub fn wanted(func: &StagedFunc, args: &[Arg], blocks: i64, timing: Timing) -> Vec<Arg> {
    let mut mine = args.to_vec();
    let launch = launch(&mut mine, blocks);
    let run = run_staged(func, &launch, StagedOptions { timing, verify: true });
    run.unwrap_or_else(|e| panic!("{e}\n{func}"));
    drop(launch);
    mine
}

fn same(wanted: &[Arg], got: &[Arg], what: &str) {
    for (place, (w, g)) in wanted.iter().zip(got).enumerate() {
        let (Some(w), Some(g)) = (w.array(), g.array()) else { continue };
        if w == g {
            continue;
        }
        let (w, g) = (w.values(), g.values());
        let differ: Vec<usize> =
            (0..w.len()).filter(|&i| w[i].to_bits() != g[i].to_bits()).collect();
        let at = differ[0];
        panic!(
            "argument {place}: {} of {} differ, the first at {at}: expected {}, got {}; {what}",
            differ.len(),
            w.len(),
            w[at],
            g[at]
        );
    }
}

/// Compiles and runs once.
pub fn launch_code(func: &StagedFunc, args: &mut [Arg], blocks: i64) -> Result<(), Diagnostics> {
    let (code, frame, _) = code(func, args)?;
    assemble(&code);
    let launch = launch(args, blocks);
    let mut words = Vec::new();
    frame.fill(&shell(func), &launch, &mut words, |_, _, _| {})?;
    let options = Options {
        shuffled: false,
        races: true,
        seed: 3,
        copies: Copies::Late,
        step_limit: 1 << 24,
    };
    tessera_ptx_emulator::launch(&code, &frame, &launch, words, blocks as u32, &options)
}

/// Compiles once, and runs with each number of blocks, in several orders of warps and copies.
pub fn check(text: &str, args: &[Arg], blocks: &[i64]) -> Code {
    let func = parse(text);
    let mut own = args.to_vec();
    let (code, frame, _) = code(&func, &mut own).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assemble(&code);
    for &n in blocks {
        let want = wanted(&func, args, n, Timing::Late);
        for timing in [Timing::Early, Timing::Random(n as u64)] {
            same(&want, &wanted(&func, args, n, timing), "in another order");
        }
        for (seed, copies) in
            [(0, Copies::Late), (0, Copies::Early), (7, Copies::Late), (11, Copies::Early)]
        {
            let mut mine = args.to_vec();
            let launch = launch(&mut mine, n);
            let mut words = Vec::new();
            frame.fill(&shell(&func), &launch, &mut words, |_, _, _| {}).unwrap();
            let options =
                Options { shuffled: false, races: true, seed, copies, step_limit: 1 << 24 };
            tessera_ptx_emulator::launch(&code, &frame, &launch, words, n as u32, &options)
                .unwrap_or_else(|e| panic!("{e}\n{n} blocks, seed {seed}\n{}", code.module.text()));
            drop(launch);
            same(&want, &mine, &format!("{n} blocks, seed {seed}\n{}", code.module.text()));
        }
    }
    code
}
