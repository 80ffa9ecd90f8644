//! Random kernels through the front end, the verifier, the printer, the parser, the passes, the
//! interpreter, the CPU backend and the PTX compiler; and damaged Python source through the front end. Nothing
//! may panic or hang; what the passes made of a kernel must compute what the kernel says, bit for bit.

use crate::budget::Budget;
use crate::common;
use crate::generator::{Shape, kernel, params, shape};
use crate::random::{self, Random};
use std::collections::BTreeMap;
use tessera_cpu::{Cpu, Isa};
use tessera_diag::Code;
use tessera_frontend::Kernel;
use tessera_interp::HostArray;
use tessera_ir::{Attr, Attrs, PassContext, PassOptions};
use tessera_numerics::{DType, Profile, Scalar};
use tessera_ptx::PtxCaps;
use tessera_ptx_emulator::Emulated;
use tessera_target::{ArgValue, Backend, CompileOptions, LaunchArgs};
use tessera_tile::{KernelKind, TileFunc};

/// Arrays for one launch of a generated kernel, with ragged and empty sizes.
fn arrays(r: &mut Random, (rows, cols): Shape) -> (BTreeMap<&'static str, HostArray>, i64, i64) {
    let (rows, cols) = (rows as i64, cols as i64);
    let n = [0, 1, rows + 1, 2 * rows + 1, 4 * rows][r.below(5)];
    let m = [0, 1, rows, rows + rows / 2, 2 * rows + 1][r.below(5)];
    let mut values = |count: usize| -> Vec<f64> {
        let pick = [0.0, -0.0, 1.0, -1.5, 0.5, 3.0, 1e30, -7.0, f64::INFINITY, f64::NAN, 1e-40];
        (0..count)
            .map(|_| pick[r.below(if r.0.is_multiple_of(3) { pick.len() } else { 8 })])
            .collect()
    };
    let mut out = BTreeMap::new();
    for (name, dims, dtype) in [
        ("x", vec![n], DType::F32),
        ("h", vec![n], DType::BF16),
        ("W", vec![rows, cols], DType::F32),
        ("k", vec![n], DType::I32),
        ("y", vec![n], DType::F32),
        ("B", vec![m, cols], DType::F32),
        ("z", vec![m, cols], DType::BF16),
    ] {
        let count = dims.iter().product::<i64>() as usize;
        out.insert(name, HostArray::new(&dims, dtype, &values(count)));
    }
    (out, n, m)
}

/// Runs a function by the interpreter, or compiled; gives the bytes of every array, or the code of the error.
fn run(
    func: &TileFunc,
    mut arrays: BTreeMap<&'static str, HostArray>,
    (n, m): (i64, i64),
    on: Option<&dyn Backend>,
) -> Result<Vec<Vec<u8>>, (Code, String)> {
    let mut params = Vec::new();
    for &p in func.params() {
        let name = func.name_of(p).unwrap_or_default().to_string();
        params.push(match name.as_str() {
            "s" => ArgValue::Scalar(Scalar::F32(0.75)),
            "m" => ArgValue::Scalar(Scalar::I64(3)),
            other => arrays.get_mut(other).expect("a parameter of the kernel").as_arg(),
        });
    }
    let lane = tessera_tile::kind_of(func) == Some(KernelKind::Lane);
    let args = LaunchArgs {
        params,
        dims: [("n".to_string(), n), ("M".to_string(), m)].into(),
        grid: if lane { [3, 1, 1] } else { [2, 1, 1] },
        domain: [10, 1, 1],
        lanes: 4,
    };
    let done = match on {
        None => tessera_interp::run(func, &args),
        Some(backend) => backend
            .compile(func, &CompileOptions::new(Profile::Strict))
            .and_then(|artifact| artifact.launch(&args)),
    };
    match done {
        Ok(()) => Ok(arrays.into_values().map(|a| a.bytes).collect()),
        Err(d) => {
            let code = d.iter().next().map_or(Code::E_UNKNOWN, |d| d.code);
            Err((code, d.render()))
        }
    }
}

/// Where two results differ, in words; nothing where they do not.
fn difference(got: &Result<Vec<Vec<u8>>, (Code, String)>, expected: &[Vec<u8>]) -> Option<String> {
    let got = match got {
        Ok(got) => got,
        Err((_, text)) => return Some(text.clone()),
    };
    // As the arrays are ordered.
    for (name, (got, expected)) in
        ["B", "W", "h", "k", "x", "y", "z"].iter().zip(got.iter().zip(expected))
    {
        if let Some(at) = (0..got.len()).find(|&i| got[i] != expected[i]) {
            let at = at / 4 * 4;
            let word = |b: &[u8]| b[at..(at + 4).min(b.len())].to_vec();
            return Some(format!(
                "{name} differs from byte {at} on: {:02x?}, expected {:02x?}",
                word(got),
                word(expected)
            ));
        }
    }
    None
}

/// One of this many kernels is compiled too.
const COMPILED: u64 = 4;

/// One of this many kernels is compiled to PTX, and run by the PTX interpreter.
const EMULATED: u64 = 3;

/// What became of a case.
enum Outcome {
    Refused,
    /// And the result of the PTX compiler, where it was run.
    Ran(Option<Result<(), String>>),
    Faulted,
}

/// The GPU that a case is compiled for: the newest form of everything, or one of the older.
fn emulated(seed: u64) -> Emulated {
    let sm = [90, 80, 90, 75][(seed / EMULATED) as usize % 4];
    let mut gpu = Emulated::new(PtxCaps::of(sm, false).expect("a known target").clone());
    // In which order warps take turns.
    gpu.options.seed = seed % 5;
    gpu
}

/// Some kernels say how many warps they want, or stages.
fn tunables(seed: u64) -> &'static [(&'static str, i64)] {
    let all: [&[_]; 6] = [
        &[],
        &[],
        &[("num_warps", 1)],
        &[("num_warps", 8)],
        &[("num_stages", 2)],
        &[("num_warps", 2), ("num_stages", 3)],
    ];
    all[Random(seed.rotate_left(43) | 1).below(all.len())]
}

fn case(seed: u64) -> Outcome {
    let text = kernel(seed);
    let context = |what: &str| format!("seed {seed}: {what}\n{text}");
    let k = match Kernel::new(common::decl(&text, &params(shape(seed)), tunables(seed))) {
        Ok(k) => k,
        Err(errors) => {
            for e in errors.errors() {
                assert_ne!(e.code, Code::E_UNKNOWN, "{}", context(&errors.render()));
            }
            return Outcome::Refused;
        }
    };
    let out = match k.elaborate(&common::config(&k, &[], &[])) {
        Ok(out) => out,
        Err(errors) => {
            assert!(errors.has_errors(), "{}", context("refused without an error"));
            return Outcome::Refused;
        }
    };
    let raw = out.func;
    if let Err(e) = tessera_ir::verify(&raw) {
        panic!("{}", context(&format!("{e}\n{}", tessera_ir::render_in_place(&raw))));
    }
    let printed = raw.to_string();
    let again = tessera_tile::parse(&printed)
        .unwrap_or_else(|e| panic!("{}", context(&format!("{e}\n{printed}"))));
    assert_eq!(again.to_string(), printed, "{}", context("text changes"));
    assert_eq!(again.hash(), raw.hash(), "{}", context("hash changes"));
    let mut lowered = raw.clone();
    let pipeline = tessera_lower::tile_pipeline(PassOptions { verify_each: true, dump_dir: None });
    if let Err(errors) = pipeline.run(&mut lowered, &mut PassContext::default()) {
        for e in errors.errors() {
            assert_ne!(e.code, Code::E_UNKNOWN, "{}", context(&errors.render()));
        }
        return Outcome::Refused;
    }
    let (inputs, n, m) = arrays(&mut Random(seed.rotate_left(17) | 1), shape(seed));
    match run(&raw, inputs.clone(), (n, m), None) {
        Err((code, _)) => {
            assert_ne!(code, Code::E_UNKNOWN, "{}", context("the interpreter failed"));
            Outcome::Faulted
        }
        Ok(expected) => {
            let got = run(&lowered, inputs.clone(), (n, m), None);
            let sizes = format!("n = {n}, M = {m}");
            let show = |what: &str, lowered: &TileFunc| {
                context(&format!("{sizes}: {what}\n{printed}\n{lowered}"))
            };
            let what = "the passes changed the result";
            assert_eq!(got, Ok(expected.clone()), "{}", show(what, &lowered));
            // The passes derived bounds of positions from another grid than this one.
            for id in lowered.walk() {
                lowered.ops[id].attrs.remove("bounds");
            }
            // As the driver does.
            let mut config = Attrs::new();
            tunables(seed).iter().for_each(|&(name, v)| config.set(name, Attr::Int(v)));
            lowered.attrs.set("config", Attr::Dict(config));
            // Compiling takes longer than interpreting: some of the kernels will do.
            if seed.is_multiple_of(COMPILED) {
                let isas: Vec<_> = Isa::ALL.into_iter().filter(|&i| i <= Isa::host()).collect();
                let isa = isas[(seed / COMPILED) as usize % isas.len()];
                let got = run(&lowered, inputs.clone(), (n, m), Some(&Cpu { isa, threads: 1 }));
                let what = format!("compiled for {isa} the result is another");
                assert_eq!(got, Ok(expected.clone()), "{}", show(&what, &lowered));
            }
            let ptx = seed.is_multiple_of(EMULATED).then(|| {
                let gpu = emulated(seed);
                match run(&lowered, inputs, (n, m), Some(&gpu)) {
                    Err((Code::E_UNSUPPORTED | Code::E_TILE_LOWERING, text)) => {
                        Err(text.lines().next().unwrap_or_default().to_string())
                    }
                    got => {
                        if let Some(d) = difference(&got, &expected) {
                            let what = format!("on {} the result is another: {d}", gpu.caps.target);
                            panic!("{}", show(&what, &lowered));
                        }
                        Ok(())
                    }
                }
            });
            Outcome::Ran(ptx)
        }
    }
}

/// A store after a `while` whose body read the same array: slower warps were still reading.
#[test]
fn kernels_that_were_wrong_once_are_right() {
    assert!(matches!(case(1794833663356461750), Outcome::Ran(Some(Ok(())))));
}

#[test]
fn random_kernels_compute_the_same_before_and_after_the_passes() {
    let budget = Budget::new(15);
    let (mut refused, mut ran, mut faulted, mut on_ptx) = (0, 0, 0, 0);
    let mut left_out: BTreeMap<String, u64> = BTreeMap::new();
    let mut seed = budget.seed;
    while budget.left() {
        match case(seed) {
            Outcome::Refused => refused += 1,
            Outcome::Ran(ptx) => {
                ran += 1;
                match ptx {
                    None => {}
                    Some(Ok(())) => on_ptx += 1,
                    Some(Err(why)) => *left_out.entry(why).or_insert(0) += 1,
                }
            }
            Outcome::Faulted => faulted += 1,
        }
        seed = seed.wrapping_add(1);
    }
    println!(
        "{} kernels: {ran} ran, {refused} refused, {faulted} stopped with a typed error",
        ran + refused + faulted
    );
    println!("{on_ptx} ran as PTX; not compiled to it: {left_out:#?}");
    assert!(ran > 0, "no kernel ran: the generator no longer fits the language");
}

/// Sources to damage: generated kernels, and one that a person wrote.
fn damaged(r: &mut Random) -> String {
    let text = if r.chance(3) { common::ATTENTION.to_string() } else { kernel(r.0) };
    let pieces = [
        "(",
        ")",
        "[",
        "]",
        ":",
        ",",
        "=",
        "def ",
        "if ",
        "for ",
        "return ",
        "\n",
        "    ",
        "None",
        "ts.",
        "**",
        "9",
        "é",
        "\"",
        "#",
        "lambda x: ",
        "yield",
        "@",
        "{",
        "*",
    ];
    random::damaged(&text, &pieces, r)
}

#[test]
fn damaged_python_never_panics() {
    let budget = Budget::new(8);
    let mut r = Random(budget.seed | 1);
    let mut cases = 0u64;
    while budget.left() {
        let text = damaged(&mut r);
        let params = match r.chance(2) {
            true => params(shape(1)),
            false => "A: M,K bf16; B: K,N bf16; C: M,N f32".into(),
        };
        if let Ok(k) =
            Kernel::new(common::decl(&text, &params, &[("BM", 16), ("BN", 16), ("BK", 16)]))
            && let Ok(out) = k.elaborate(&common::config(&k, &[], &[]))
            && let Err(e) = tessera_ir::verify(&out.func)
        {
            panic!("{e}\n{text}\n{}", tessera_ir::render_in_place(&out.func));
        }
        cases += 1;
    }
    println!("{cases} sources");
}
