//! Random group kernels over shared buffers: compiled to PTX and run by the PTX interpreter, which
//! reports races, they compute what the interpreter of Tile IR computes, bit for bit. So does the
//! interpreter of Staged IR, and so do kernels after the passes.

use crate::budget::Budget;
use crate::buffer_programs::{INPUT, Made, OUTPUT, program};
use crate::random::Random;
use tessera_cpu::{Cpu, Isa};
use tessera_diag::{Code, Diagnostics};
use tessera_interp::{HostArray, StagedOptions};
use tessera_ir::{Attr, Attrs, PassContext, PassOptions};
use tessera_lower::stage::{MOST_STAGES, Staging, stage};
use tessera_numerics::{DType, Profile};
use tessera_ptx::PtxCaps;
use tessera_ptx_emulator::Emulated;
use tessera_target::arrays::ArrayClass;
use tessera_target::{Backend, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

fn arrays(seed: u64, dtypes: &[DType], profile: Profile) -> Vec<HostArray> {
    let mut r = Random(seed.rotate_left(17) | 1);
    let positions: Vec<f64> = (0..INPUT).map(|_| r.below(14) as f64 - 2.0).collect();
    let mut out = vec![HostArray::new(&[INPUT], DType::I32, &positions)];
    let some = [0.0, 1.0, -1.0, 2.0, 3.0, -0.0, 0.5, -1.5, 100.0, 7.0, f64::NAN, f64::INFINITY];
    // Which NaN is stored is defined in `strict` alone.
    let some = if profile == Profile::Default { &some[..10] } else { &some };
    for &dtype in dtypes {
        let values: Vec<f64> = (0..INPUT).map(|_| some[r.below(some.len())]).collect();
        out.push(HostArray::new(&[INPUT], dtype, &values));
        out.push(HostArray::zeros(&[OUTPUT], dtype));
    }
    out
}

type Launch<'a> = &'a dyn Fn(&LaunchArgs) -> Result<(), Diagnostics>;

/// The bytes of every array after a launch.
fn after(
    seed: u64,
    made: &Made,
    profile: Profile,
    launch: Launch<'_>,
) -> Result<Vec<Vec<u8>>, Diagnostics> {
    let mut arrays = arrays(seed, &made.dtypes, profile);
    let params = arrays.iter_mut().map(HostArray::as_arg).collect();
    let dims = Default::default();
    launch(&LaunchArgs { params, dims, grid: [2, 1, 1], domain: [0; 3], lanes: 0 })?;
    Ok(arrays.into_iter().map(|a| a.bytes).collect())
}

fn on(
    backend: &dyn Backend,
    func: &TileFunc,
    profile: Profile,
    args: &LaunchArgs,
) -> Result<(), Diagnostics> {
    backend.compile(func, &CompileOptions::new(profile))?.launch(args)
}

/// The kernel in Staged IR, by its interpreter.
fn staged(func: &TileFunc, gpu: &Emulated, args: &LaunchArgs) -> Result<(), Diagnostics> {
    let class = ArrayClass { contiguous: 1, align: 16, tma_compatible: false };
    let classes = vec![class; func.params().len()];
    let staging = Staging { caps: &gpu.caps.gpu, classes: &classes, profile: Profile::Strict };
    let expanded = tessera_tile::expand_parts(func, tessera_tile::Scans::Ordered);
    let func = expanded.as_ref().unwrap_or(func);
    let staged = stage(func, &staging, MOST_STAGES, &mut Diagnostics::new())?;
    tessera_interp::run_staged(&staged, args, StagedOptions::default())
}

fn profile_of(seed: u64) -> Profile {
    [Profile::Strict, Profile::Strict, Profile::Default][(seed % 3) as usize]
}

fn check(seed: u64) -> bool {
    let profile = profile_of(seed);
    check_made(seed, &program(seed, profile != Profile::Default), profile)
}

/// Runs a kernel everywhere; false where it is too large for a target, or refused for its padding.
pub fn check_made(seed: u64, made: &Made, profile: Profile) -> bool {
    let context = |what: &str| format!("seed {seed}: {what}\n{}", made.text);
    let func =
        tessera_tile::parse(&made.text).unwrap_or_else(|e| panic!("{}", context(&e.to_string())));
    if let Err(e) = tessera_ir::verify(&func) {
        panic!("{}", context(&e.to_string()));
    }
    let expected = match after(seed, made, profile, &|args| tessera_interp::run(&func, args)) {
        Ok(expected) => expected,
        Err(e) => panic!("{}", context(&e.render())),
    };
    let mut lowered = func.clone();
    let pipeline = tessera_lower::tile_pipeline(PassOptions { verify_each: true, dump_dir: None });
    if let Err(e) = pipeline.run(&mut lowered, &mut PassContext::default()) {
        // A tile that leaves its array gives padding to a scan, which is refused.
        if e.iter().all(|d| d.code == Code::E_RAGGED) {
            return false;
        }
        panic!("{}", context(&e.render()));
    }
    // As the driver does; a kernel with stages may take one group after another.
    // Without `tile_ops`, ops on parts of tiles go through buffers, as the interpreter of Staged IR
    // has them.
    let int = |name: &'static str, n: i64| Some((name, Attr::Int(n)));
    let tunables = [
        None,
        int("num_warps", 1),
        int("num_warps", 8),
        int("num_stages", 2),
        Some(("off", Attr::words(["tile_ops"]))),
    ];
    if let Some((name, value)) = tunables[(seed / 7) as usize % tunables.len()].clone() {
        let mut config = Attrs::new();
        config.set(name, value);
        lowered.attrs.set("config", Attr::Dict(config));
    }
    let sm = [90, 80, 75][(seed / 3) as usize % 3];
    let mut gpu = Emulated::new(PtxCaps::of(sm, sm == 90).expect("a known target").clone());
    gpu.options.seed = seed % 5;
    let cpu = Cpu { isa: Isa::Generic, threads: 1 };
    let runs: [(&str, Launch<'_>); 4] = [
        ("as PTX", &|args| on(&gpu, &func, profile, args)),
        ("as PTX after the passes", &|args| on(&gpu, &lowered, profile, args)),
        ("as Staged IR", &|args| staged(&func, &gpu, args)),
        ("on the CPU", &|args| on(&cpu, &lowered, profile, args)),
    ];
    // Generating code for the CPU takes long; in `default` it may round otherwise.
    let cpu_too = seed.is_multiple_of(4) && profile == Profile::Strict;
    let runs = if cpu_too { &runs[..] } else { &runs[..3] };
    for &(name, run) in runs {
        match after(seed, made, profile, run) {
            // Tiles may be larger than this target's shared memory.
            Err(e) if e.iter().all(|d| d.code == Code::E_TILE_LOWERING) => return false,
            Err(e) => panic!("{}", context(&format!("{name} on sm_{sm}: {}", e.render()))),
            Ok(got) => {
                for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
                    let at = (0..got.len()).find(|&b| got[b] != expected[b]);
                    if let Some(at) = at {
                        let what = format!(
                            "{name} on sm_{sm}: array {i} differs at byte {at}: {}, expected {}",
                            got[at], expected[at]
                        );
                        panic!("{}", context(&what));
                    }
                }
            }
        }
    }
    true
}

#[test]
fn random_kernels_over_buffers_compute_the_same_as_ptx() {
    let budget = Budget::new(6);
    let (mut ran, mut large) = (0, 0);
    let mut seed = budget.seed;
    while budget.left() {
        match check(seed) {
            true => ran += 1,
            false => large += 1,
        }
        seed = seed.wrapping_add(1);
    }
    println!("{ran} kernels ran, {large} were too large");
    assert!(ran > large, "most kernels must fit");
}

/// The barriers of a kernel's code for sm_90.
fn barriers(text: &str) -> usize {
    let func = tessera_tile::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let caps = PtxCaps::of(90, true).expect("sm_90a");
    let class = ArrayClass { contiguous: 1, align: 16, tma_compatible: false };
    let classes = vec![class; func.params().len()];
    let code = tessera_ptx::compile(&func, caps, Profile::Strict, &classes);
    let code = code.unwrap_or_else(|e| panic!("{e}"));
    code.module.to_string().matches("bar.sync").count()
}

#[test]
fn barriers_are_only_where_threads_need_them() {
    // Two disjoint blocks are written, then all is read.
    let halves = "func @k(%y: view<[512], f32, read_write>) {kind = group} {
  %0 = tile.const {value = 0} : i64
  %h = tile.const {value = 256} : i64
  %b = tile.buf_alloc : buf<512xf32>
  %u = tile.load %y at(%0) {extent = [256]} : tile<256xf32>
  %v = tile.load %y at(%h) {extent = [256]} : tile<256xf32>
  tile.store %b, %u at(%h) {extent = [256]}
  tile.store %b, %v at(%0) {extent = [256]}
  %all = tile.load %b at(%0) {extent = [512]} : tile<512xf32>
  tile.store %y, %all at(%0) {extent = [512]}
  tile.return
}";
    // A read in the threads that wrote, twice: each thread finds its own elements.
    let own = "func @k(%y: view<[512], f32, read_write>) {kind = group} {
  %0 = tile.const {value = 0} : i64
  %b = tile.buf_alloc : buf<512xf32>
  %u = tile.load %y at(%0) {extent = [512]} : tile<512xf32>
  tile.store %b, %u at(%0) {extent = [512]}
  %v = tile.load %b at(%0) {extent = [512]} : tile<512xf32>
  tile.store %y, %v at(%0) {extent = [512]}
  tile.return
}";
    // A histogram: its atomics commute, also over iterations.
    let counts = "func @k(%x: view<[512], i32, read>, %y: view<[64], i32, write>) {kind = group} {
  %0 = tile.const {value = 0} : i64
  %4 = tile.const {value = 4} : i64
  %s = tile.const {value = 1} : i64
  %n = tile.const {value = 128} : i64
  %b = tile.buf_alloc : buf<64xi32>
  %none = tile.const {value = 0} : tile<64xi32>
  tile.store %b, %none at(%0) {extent = [64]}
  tile.for %0, %4, %s do (%i: i64) {
    %at = tile.mul %i, %n : i64
    %ix = tile.load %x at(%at) {extent = [128]} : tile<128xi32>
    %one = tile.const {value = 1} : tile<128xi32>
    %old = tile.atomic %b, %one at(%ix) {op = add} : tile<128xi32>
    tile.yield
  }
  %all = tile.load %b at(%0) {extent = [64]} : tile<64xi32>
  tile.store %y, %all at(%0) {extent = [64]}
  tile.return
}";
    assert_eq!([halves, own, counts].map(barriers), [1, 0, 2]);
}

/// A matmul loop on sm_90a whose operands are put together in buffers: whole numbers, whose sums are
/// exact in every order.
#[test]
fn mmas_of_operands_in_buffers_are_exact() {
    let text = "func @k(%x: view<[64, 64], bf16, read>, %w: view<[64, 64], bf16, read>, %y: view<[64, 64], f32, write>) {kind = group} {
  %0 = tile.const {value = 0} : i64
  %1 = tile.const {value = 1} : i64
  %2 = tile.const {value = 2} : i64
  %h = tile.const {value = 16} : i64
  %k = tile.const {value = 32} : i64
  %a = tile.buf_alloc : buf<64x32xbf16>
  %b = tile.buf_alloc : buf<32x64xbf16>
  %zero = tile.const {value = 0.0} : tile<64x64xf32>
  %sum = tile.for %0, %2, %1 init(%zero) : tile<64x64xf32> do (%i: i64, %acc: tile<64x64xf32>) {
    %at = tile.mul %i, %k : i64
    %far = tile.add %at, %h : i64
    tile.copy_async %a, %x at(%0, %at) {extent = [64, 32]}
    %hi = tile.load %w at(%at, %0) {extent = [16, 64]} : tile<16x64xbf16>
    %lo = tile.load %w at(%far, %0) {extent = [16, 64]} : tile<16x64xbf16>
    tile.store %b, %hi at(%h, %0) {extent = [16, 64]}
    tile.store %b, %lo at(%0, %0) {extent = [16, 64]}
    %u = tile.load %a at(%0, %0) {extent = [64, 32]} : tile<64x32xbf16>
    %v = tile.load %b at(%0, %0) {extent = [32, 64]} : tile<32x64xbf16>
    %next = tile.mma %u, %v, %acc : tile<64x64xf32>
    tile.yield %next
  }
  tile.store %y, %sum at(%0, %0) {extent = [64, 64]}
  tile.return
}";
    let func = tessera_tile::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let launched = |launch: Launch<'_>| {
        let mut r = Random(7);
        let mut arrays: Vec<HostArray> = Vec::new();
        for dtype in [DType::BF16, DType::BF16, DType::F32] {
            let values: Vec<f64> = (0..64 * 64).map(|_| r.below(17) as f64 - 8.0).collect();
            arrays.push(HostArray::new(&[64, 64], dtype, &values));
        }
        let params = arrays.iter_mut().map(HostArray::as_arg).collect();
        let dims = Default::default();
        let args = LaunchArgs { params, dims, grid: [1, 1, 1], domain: [0; 3], lanes: 0 };
        launch(&args).unwrap_or_else(|e| panic!("{}", e.render()));
        arrays.pop().map(|y| y.bytes)
    };
    let expected = launched(&|args| tessera_interp::run(&func, args));
    for (sm, all) in [(75, false), (80, false), (90, true)] {
        let gpu = Emulated::new(PtxCaps::of(sm, all).expect("a known target").clone());
        for profile in [Profile::Strict, Profile::Default] {
            let got = launched(&|args| on(&gpu, &func, profile, args));
            assert!(got == expected, "sm_{sm}, {profile}");
        }
    }
}
