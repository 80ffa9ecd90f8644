//! Random group kernels over shared buffers: compiled to PTX and run by the PTX interpreter, which
//! reports races, they compute what the interpreter of Tile IR computes, bit for bit. So does the
//! interpreter of Staged IR, and so do kernels after the passes.

use crate::budget::Budget;
use crate::buffer_programs::{INPUT, OUTPUT, program};
use crate::random::Random;
use tessera_diag::{Code, Diagnostics};
use tessera_interp::{HostArray, StagedOptions};
use tessera_ir::{PassContext, PassOptions};
use tessera_lower::stage::{MOST_STAGES, Staging, stage};
use tessera_numerics::{DType, Profile};
use tessera_ptx::PtxCaps;
use tessera_ptx::emulate::Emulated;
use tessera_target::arrays::ArrayClass;
use tessera_target::{Backend, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

fn arrays(seed: u64, dtypes: &[DType]) -> Vec<HostArray> {
    let mut r = Random(seed.rotate_left(17) | 1);
    let positions: Vec<f64> = (0..INPUT).map(|_| r.below(14) as f64 - 2.0).collect();
    let mut out = vec![HostArray::new(&[INPUT], DType::I32, &positions)];
    let some = [0.0, 1.0, -1.0, 2.0, 3.0, -0.0, 0.5, -1.5, 100.0, 7.0, f64::NAN, f64::INFINITY];
    // Which NaN is stored is defined in `strict` alone.
    let some = if profile_of(seed) == Profile::Default { &some[..10] } else { &some };
    for &dtype in dtypes {
        let values: Vec<f64> = (0..INPUT).map(|_| some[r.below(some.len())]).collect();
        out.push(HostArray::new(&[INPUT], dtype, &values));
        out.push(HostArray::zeros(&[OUTPUT], dtype));
    }
    out
}

type Launch<'a> = &'a dyn Fn(&LaunchArgs) -> Result<(), Diagnostics>;

/// The bytes of every array after a launch.
fn after(seed: u64, dtypes: &[DType], launch: Launch<'_>) -> Result<Vec<Vec<u8>>, Diagnostics> {
    let mut arrays = arrays(seed, dtypes);
    let params = arrays.iter_mut().map(HostArray::as_arg).collect();
    let dims = Default::default();
    launch(&LaunchArgs { params, dims, grid: [2, 1, 1], domain: 0, lanes: 0 })?;
    Ok(arrays.into_iter().map(|a| a.bytes).collect())
}

fn on_ptx(
    func: &TileFunc,
    gpu: &Emulated,
    profile: Profile,
    args: &LaunchArgs,
) -> Result<(), Diagnostics> {
    gpu.compile(func, &CompileOptions::new(profile))?.launch(args)
}

/// The kernel in Staged IR, by its interpreter.
fn staged(func: &TileFunc, gpu: &Emulated, args: &LaunchArgs) -> Result<(), Diagnostics> {
    let caps = tessera_ptx::stage_caps(&gpu.caps);
    let class = ArrayClass { contiguous: 1, align: 16, tma_compatible: false };
    let classes = vec![class; func.params().len()];
    let staging = Staging { caps: &caps, classes: &classes, profile: Profile::Strict };
    let staged = stage(func, &staging, MOST_STAGES, &mut Diagnostics::new())?;
    tessera_interp::run_staged(&staged, args, StagedOptions::default())
}

fn profile_of(seed: u64) -> Profile {
    [Profile::Strict, Profile::Strict, Profile::Default][(seed % 3) as usize]
}

fn check(seed: u64) -> bool {
    let profile = profile_of(seed);
    let made = program(seed, profile != Profile::Default);
    let context = |what: &str| format!("seed {seed}: {what}\n{}", made.text);
    let func =
        tessera_tile::parse(&made.text).unwrap_or_else(|e| panic!("{}", context(&e.to_string())));
    if let Err(e) = tessera_ir::verify(&func) {
        panic!("{}", context(&e.to_string()));
    }
    let expected = match after(seed, &made.dtypes, &|args| tessera_interp::run(&func, args)) {
        Ok(expected) => expected,
        Err(e) => panic!("{}", context(&e.render())),
    };
    let mut lowered = func.clone();
    let pipeline = tessera_lower::tile_pipeline(PassOptions { verify_each: true, dump_dir: None });
    if let Err(e) = pipeline.run(&mut lowered, &mut PassContext::default()) {
        panic!("{}", context(&e.render()));
    }
    let sm = [90, 80, 75][(seed / 3) as usize % 3];
    let mut gpu = Emulated::new(PtxCaps::of(sm, false).expect("a known target").clone());
    gpu.options.seed = seed % 5;
    let runs: [(&str, Launch<'_>); 3] = [
        ("as PTX", &|args| on_ptx(&func, &gpu, profile, args)),
        ("as PTX after the passes", &|args| on_ptx(&lowered, &gpu, profile, args)),
        ("as Staged IR", &|args| staged(&func, &gpu, args)),
    ];
    for (name, run) in runs {
        match after(seed, &made.dtypes, run) {
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
    let budget = Budget::new(8);
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
