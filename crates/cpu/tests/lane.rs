//! Lane kernels against the interpreter, bit by bit, on every set of instructions of this host.

use tessera_cpu::{Cpu, Isa};
use tessera_ir::{PassContext, PassOptions};
use tessera_lower::tile_pipeline;
use tessera_numerics::{DType, Profile, Scalar};
use tessera_target::{ArgValue, Backend, BufferArg, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

/// Elements before and behind an array that nobody may touch.
const MARGIN: usize = 40;

#[derive(Clone)]
struct Array {
    bytes: Vec<u8>,
    first: usize,
    dims: Vec<i64>,
    strides: Vec<i64>,
    dtype: DType,
}

#[derive(Clone)]
enum Arg {
    Array(Array),
    Scalar(Scalar),
}

/// How an array lies in memory.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Layout {
    Rows,
    /// Every other element of a longer one.
    Gaps,
    /// The last axis backwards.
    Back,
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = self.0 ^ (self.0 >> 33);
        x.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 7
    }
}

/// An array of random codes; floats are moderate numbers, now and then something special.
fn array(dims: &[i64], dtype: DType, layout: Layout, seed: u64) -> Arg {
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

fn code_of(dtype: DType, rng: &mut Rng) -> u64 {
    let r = rng.next();
    match dtype {
        DType::Bool => r & 1,
        DType::F32 if r % 16 != 0 => u64::from((((r >> 8) % 4001) as f32 / 97.0 - 20.0).to_bits()),
        DType::F64 if r % 16 != 0 => (((r >> 8) % 4001) as f64 / 97.0 - 20.0).to_bits(),
        DType::I32 | DType::I64 if r % 8 != 0 => ((r >> 8) % 2001).wrapping_sub(1000),
        _ if dtype.bits() < 8 => r & ((1 << dtype.bits()) - 1),
        _ => r ^ (r << 40),
    }
}

fn floats(values: &[f32]) -> Arg {
    let Arg::Array(mut a) = array(&[values.len() as i64], DType::F32, Layout::Rows, 1) else {
        unreachable!()
    };
    for (i, v) in values.iter().enumerate() {
        a.bytes[a.first + 4 * i..][..4].copy_from_slice(&v.to_le_bytes());
    }
    Arg::Array(a)
}

fn ints(values: &[i32]) -> Arg {
    let Arg::Array(mut a) = array(&[values.len() as i64], DType::I32, Layout::Rows, 1) else {
        unreachable!()
    };
    for (i, v) in values.iter().enumerate() {
        a.bytes[a.first + 4 * i..][..4].copy_from_slice(&v.to_le_bytes());
    }
    Arg::Array(a)
}

/// Runs on copies of the arguments: the bytes of all arrays afterwards, or the error.
fn run(
    backend: &dyn Backend,
    func: &TileFunc,
    profile: Profile,
    args: &[Arg],
    domain: i64,
    lanes: i64,
) -> Result<Vec<Vec<u8>>, String> {
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
    let error = |e: tessera_diag::Diagnostics| {
        let list = e.iter().map(|d| format!("{} {} {:?}", d.code, d.message, d.notes));
        list.collect::<Vec<_>>().join("\n")
    };
    let artifact = backend.compile(func, &CompileOptions::new(profile)).map_err(error)?;
    artifact.launch(&launch).map_err(error)?;
    let bytes = args.into_iter().filter_map(|arg| match arg {
        Arg::Array(a) => Some(a.bytes),
        Arg::Scalar(_) => None,
    });
    Ok(bytes.collect())
}

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|&isa| isa <= Isa::host() && isa != Isa::Amx)
}

/// The kernel as it stands and after the passes gives on every backend what the interpreter gives.
fn check(text: &str, args: &[Arg], domain: i64, lanes: i64) {
    let plain = tessera_tile::parse(text).unwrap_or_else(|e| panic!("{}", e.render()));
    let mut lowered = plain.clone();
    let passes = tile_pipeline(PassOptions::default());
    let passed = passes.run(&mut lowered, &mut PassContext::default());
    let wanted = run(&tessera_interp::Interp, &plain, Profile::Default, args, domain, lanes);
    let forms = [Some(plain), passed.is_ok().then_some(lowered)];
    for func in forms.into_iter().flatten() {
        for isa in isas() {
            for profile in [Profile::Default, Profile::Strict] {
                let cpu = Cpu { isa, threads: 1 };
                let got = run(&cpu, &func, profile, args, domain, lanes);
                let what = format!("{isa} {} {domain} lanes by {lanes}\n{func}", profile.name());
                match (&wanted, &got) {
                    (Ok(wanted), Ok(got)) => {
                        let pairs = wanted.iter().zip(got).enumerate();
                        for (number, (w, g)) in pairs {
                            let at = w.iter().zip(g).position(|(a, b)| a != b);
                            assert!(at.is_none(), "array {number} differs at byte {at:?}: {what}");
                        }
                    }
                    _ => assert_eq!(wanted, got, "{what}"),
                }
            }
        }
    }
}

/// Sizes around those of vectors and groups.
const SIZES: [i64; 13] = [0, 1, 3, 4, 5, 15, 16, 17, 33, 255, 256, 257, 1000];

const SAXPY: &str = "
func @saxpy(%x: view<[n], f32, read>, %y: view<[n], f32, read_write>, %alpha: f32) {kind = lane} {
  %i = tile.linear_id : i64
  %n = tile.dim {name = n} : i64
  %0 = tile.lt %i, %n : bool
  tile.if %0 do {
    %1 = tile.load %x at(%i) {extent = [0]} : f32
    %2 = tile.mul %alpha, %1 : f32
    %3 = tile.load %y at(%i) {extent = [0]} : f32
    %4 = tile.add %2, %3 : f32
    tile.store %y, %4 at(%i) {extent = [0]}
    tile.yield
  } do {
    tile.yield
  }
  tile.return
}";

#[test]
fn saxpy_of_any_size_and_layout() {
    let alpha = Arg::Scalar(Scalar::F32(1.7));
    for n in SIZES {
        for layout in [Layout::Rows, Layout::Gaps, Layout::Back] {
            let x = array(&[n], DType::F32, layout, 1);
            let y = array(&[n], DType::F32, layout, 2);
            check(SAXPY, &[x, y, alpha.clone()], n, 256);
        }
        // More lanes than elements, and fewer.
        let x = array(&[n], DType::F32, Layout::Rows, 1);
        let y = array(&[n], DType::F32, Layout::Back, 2);
        check(SAXPY, &[x.clone(), y.clone(), alpha.clone()], n + 21, 32);
        check(SAXPY, &[x, y, alpha.clone()], n / 2, 7);
    }
}

#[test]
fn every_dtype_is_copied_and_doubled() {
    for &dtype in DType::ALL {
        let c = dtype.compute();
        let text = format!(
            "func @f(%x: view<[n], {dtype}, read>, %y: view<[n], {dtype}, read_write>, %z: view<[n], {dtype}, read_write>) {{kind = lane}} {{
               %i = tile.linear_id : i64
               %a = tile.load %x at(%i) {{extent = [0]}} : {dtype}
               tile.store %y, %a at(%i) {{extent = [0]}}
               %b = tile.cast %a : {c}
               %d = tile.load %z at(%i) {{extent = [0]}} : {dtype}
               %e = tile.cast %d : {c}
               %g = tile.maximum %b, %e : {c}
               %h = tile.cast %g : {dtype}
               tile.store %z, %h at(%i) {{extent = [0]}}
               tile.return
             }}"
        );
        let text = match dtype {
            d if d == c => text
                .replace(&format!("%b = tile.cast %a : {c}"), "")
                .replace(&format!("%e = tile.cast %d : {c}"), "")
                .replace(&format!("%h = tile.cast %g : {dtype}"), "")
                .replace("maximum %b, %e", "maximum %a, %d")
                .replace("%z, %h", "%z, %g"),
            _ => text,
        };
        for (n, layout) in [(37, Layout::Rows), (19, Layout::Gaps), (300, Layout::Back)] {
            let all = [1, 2, 3].map(|seed| array(&[n], dtype, layout, seed));
            check(&text, &all, n, 64);
        }
    }
}
