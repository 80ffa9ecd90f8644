//! Runs one kernel everywhere and compares.

use tessera_cpu::{Cpu, Isa};
use tessera_diag::Diagnostics;
use tessera_ir::{PassContext, PassOptions};
use tessera_lower::tile_pipeline;
use tessera_numerics::{DType, Profile, Scalar};
use tessera_target::{ArgValue, Artifact, Backend, BufferArg, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

/// Elements before and behind an array that nobody may touch.
pub const MARGIN: usize = 40;

#[derive(Clone)]
pub struct Array {
    pub bytes: Vec<u8>,
    pub first: usize,
    pub dims: Vec<i64>,
    pub strides: Vec<i64>,
    pub dtype: DType,
}

#[derive(Clone)]
pub enum Arg {
    Array(Array),
    Scalar(Scalar),
}

/// How an array lies in memory.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Layout {
    Rows,
    /// Every other element of a longer one.
    Gaps,
    /// The last axis backwards.
    Back,
}

pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = self.0 ^ (self.0 >> 33);
        x.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 7
    }
}

/// An array of random codes; floats are moderate numbers, now and then something special.
pub fn array(dims: &[i64], dtype: DType, layout: Layout, seed: u64) -> Arg {
    let width = dtype.bytes();
    let (gap, back) = (if layout == Layout::Gaps { 2 } else { 1 }, layout == Layout::Back);
    let count = dims.iter().product::<i64>() as usize * gap as usize;
    let mut rng = Rng(seed);
    let mut bytes = vec![0u8; (count + 2 * MARGIN) * width];
    for code in bytes.chunks_exact_mut(width) {
        let bits = code_of(dtype, &mut rng);
        code.copy_from_slice(&bits.to_le_bytes()[..width]);
    }
    let mut strides = vec![width as i64 * gap; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis];
    }
    let mut first = MARGIN * width;
    if back && let (Some(stride), Some(&dim)) = (strides.last_mut(), dims.last()) {
        first += (dim - 1).max(0) as usize * width;
        *stride = -*stride;
    }
    Arg::Array(Array { bytes, first, dims: dims.to_vec(), strides, dtype })
}

pub fn code_of(dtype: DType, rng: &mut Rng) -> u64 {
    let r = rng.next();
    match dtype {
        DType::Bool => r & 1,
        DType::F32 if !r.is_multiple_of(16) => {
            u64::from((((r >> 8) % 4001) as f32 / 97.0 - 20.0).to_bits())
        }
        DType::F64 if !r.is_multiple_of(16) => (((r >> 8) % 4001) as f64 / 97.0 - 20.0).to_bits(),
        DType::I32 | DType::I64 if !r.is_multiple_of(8) => ((r >> 8) % 2001).wrapping_sub(1000),
        _ if dtype.bits() < 8 => r & ((1 << dtype.bits()) - 1),
        _ => r ^ (r << 40),
    }
}

pub fn floats(values: &[f32]) -> Arg {
    let Arg::Array(mut a) = array(&[values.len() as i64], DType::F32, Layout::Rows, 1) else {
        unreachable!()
    };
    for (i, v) in values.iter().enumerate() {
        a.bytes[a.first + 4 * i..][..4].copy_from_slice(&v.to_le_bytes());
    }
    Arg::Array(a)
}

pub fn ints(values: &[i32]) -> Arg {
    let Arg::Array(mut a) = array(&[values.len() as i64], DType::I32, Layout::Rows, 1) else {
        unreachable!()
    };
    for (i, v) in values.iter().enumerate() {
        a.bytes[a.first + 4 * i..][..4].copy_from_slice(&v.to_le_bytes());
    }
    Arg::Array(a)
}

/// A kernel as the interpreter runs it, and as it stands and after the passes for every set of
/// instructions and two profiles.
pub struct Kernel {
    wanted: Box<dyn Artifact>,
    compiled: Vec<(String, Box<dyn Artifact>)>,
}

pub fn shown(errors: Diagnostics) -> String {
    let list = errors.iter().map(|d| format!("{} {} {:?}", d.code, d.message, d.notes));
    list.collect::<Vec<_>>().join("\n")
}

/// Runs on copies of the arguments: the bytes of all arrays afterwards, or the error.
pub fn run(kernel: &dyn Artifact, args: &[Arg], domain: i64, lanes: i64) -> Outcome {
    let mut args = args.to_vec();
    let params = args.iter_mut().map(|arg| match arg {
        Arg::Scalar(x) => ArgValue::Scalar(*x),
        Arg::Array(a) => ArgValue::Buffer(BufferArg {
            data: a.bytes[a.first..].as_mut_ptr(),
            dims: a.dims.clone(),
            strides: a.strides.clone(),
            dtype: a.dtype,
            writable: true,
        }),
    });
    let params = params.collect();
    let grid = [(domain + lanes - 1) / lanes, 1, 1];
    let launch = LaunchArgs { params, dims: Default::default(), grid, domain, lanes };
    kernel.launch(&launch).map_err(shown)?;
    let bytes = args.into_iter().filter_map(|arg| match arg {
        Arg::Array(a) => Some(a.bytes),
        Arg::Scalar(_) => None,
    });
    Ok(bytes.collect())
}

type Outcome = Result<Vec<Vec<u8>>, String>;

impl Kernel {
    pub fn new(text: &str) -> Self {
        Self::of(text, |_| true)
    }

    /// Of three sets of instructions.
    pub const WAYS: u64 = 12;

    pub fn is_strict(way: u64) -> bool {
        way / 2 % 2 == 1
    }

    /// One of the ways only.
    pub fn some(text: &str, way: u64) -> Self {
        let mut number = 0;
        Self::of(text, |_| {
            number += 1;
            way == number - 1
        })
    }

    fn of(text: &str, mut wanted: impl FnMut(&str) -> bool) -> Self {
        let plain = tessera_tile::parse(text).unwrap_or_else(|e| panic!("{}\n{text}", e.render()));
        let mut lowered = plain.clone();
        let passes = tile_pipeline(PassOptions::default());
        let passed = passes.run(&mut lowered, &mut PassContext::default()).is_ok();
        let compile = |backend: &dyn Backend, func: &TileFunc, profile: Profile| {
            let made = backend.compile(func, &CompileOptions::new(profile));
            made.unwrap_or_else(|e| panic!("{}\n{func}", e.render()))
        };
        let interp = compile(&tessera_interp::Interp, &plain, Profile::Default);
        let mut compiled = Vec::new();
        for isa in Isa::ALL.into_iter().filter(|&isa| isa <= Isa::host() && isa != Isa::Amx) {
            for profile in [Profile::Default, Profile::Strict] {
                for func in [&plain, if passed { &lowered } else { &plain }] {
                    let what = format!("{isa} {}\n{func}", profile.name());
                    if wanted(&what) {
                        let cpu = Cpu { isa, threads: 1 };
                        compiled.push((what, compile(&cpu, func, profile)));
                    }
                }
            }
        }
        Self { wanted: interp, compiled }
    }

    /// In how many ways it is compiled.
    pub fn ways(&self) -> usize {
        self.compiled.len()
    }

    /// What the interpreter gives, and what all the others do.
    pub fn both(&self, args: &[Arg], domain: i64, lanes: i64) -> (Outcome, Vec<Outcome>) {
        let others = self.compiled.iter().map(|(_, k)| run(&**k, args, domain, lanes));
        (run(&*self.wanted, args, domain, lanes), others.collect())
    }

    /// Gives everywhere what the interpreter gives; tells whether that is an error.
    pub fn check(&self, args: &[Arg], domain: i64, lanes: i64) -> Result<(), String> {
        let wanted = run(&*self.wanted, args, domain, lanes);
        for (what, kernel) in &self.compiled {
            let got = run(&**kernel, args, domain, lanes);
            match (&wanted, &got) {
                (Ok(wanted), Ok(got)) => {
                    for (number, (w, g)) in wanted.iter().zip(got).enumerate() {
                        let at = w.iter().zip(g).position(|(a, b)| a != b);
                        assert!(
                            at.is_none(),
                            "array {number} differs at byte {at:?}, {domain} lanes by {lanes}, {what}"
                        );
                    }
                }
                _ => assert_eq!(wanted, got, "{domain} lanes by {lanes}, {what}"),
            }
        }
        wanted.map(|_| ())
    }
}

pub fn check(text: &str, args: &[Arg], domain: i64, lanes: i64) {
    Kernel::new(text).check(args, domain, lanes).unwrap();
}

/// Sizes around those of vectors and groups.
pub const SIZES: [i64; 13] = [0, 1, 3, 4, 5, 15, 16, 17, 33, 255, 256, 257, 1000];
