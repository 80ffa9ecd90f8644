//! Runs one kernel on both interpreters and compares.

use tessera_diag::Diagnostics;
use tessera_ir::{Attr, PassContext, PassOptions};
use tessera_lower::tile_pipeline;
use tessera_numerics::{DType, Profile, Scalar};
use tessera_ptx::interp::{Grid, Memory, Options};
use tessera_ptx::{ArrayClass, Classes, Code, PtxCaps, Shape, compile, interp, verify};
use tessera_target::frame::{self, Frame};
use tessera_target::{ArgValue, Artifact, Backend, BufferArg, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

/// Guard elements before and after an array.
pub const MARGIN: usize = 40;

#[derive(Clone)]
pub struct Array {
    pub bytes: Vec<u8>,
    pub first: usize,
    pub dims: Vec<i64>,
    pub strides: Vec<i64>,
    pub dtype: DType,
    /// Elements from a 16-byte aligned address to the first.
    pub skew: usize,
}

#[derive(Clone)]
pub enum Arg {
    Array(Array),
    Scalar(Scalar),
}

/// The layout of an array in memory.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Layout {
    Rows,
    /// Row-major from a misaligned address.
    Skewed,
    /// Every other element of a longer one.
    Gaps,
    /// The last axis reversed.
    Back,
}

pub const LAYOUTS: [Layout; 4] = [Layout::Rows, Layout::Skewed, Layout::Gaps, Layout::Back];

pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = self.0 ^ (self.0 >> 33);
        x.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 7
    }
}

/// An array of random codes; floats are moderate numbers, sometimes special ones.
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
    let skew = usize::from(layout == Layout::Skewed);
    Arg::Array(Array { bytes, first, dims: dims.to_vec(), strides, dtype, skew })
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

pub fn filled<T: Copy>(dtype: DType, values: &[T], bytes: impl Fn(T) -> Vec<u8>) -> Arg {
    let Arg::Array(mut a) = array(&[values.len() as i64], dtype, Layout::Rows, 1) else {
        unreachable!()
    };
    let width = dtype.bytes();
    for (i, v) in values.iter().enumerate() {
        a.bytes[a.first + width * i..][..width].copy_from_slice(&bytes(*v));
    }
    Arg::Array(a)
}

pub fn ints(values: &[i32]) -> Arg {
    filled(DType::I32, values, |v| v.to_le_bytes().to_vec())
}

pub fn longs(values: &[i64]) -> Arg {
    filled(DType::I64, values, |v| v.to_le_bytes().to_vec())
}

pub fn scalar(x: impl Into<Num>) -> Arg {
    Arg::Scalar(x.into().0)
}

pub struct Num(Scalar);
impl From<i64> for Num {
    fn from(v: i64) -> Self {
        Num(Scalar::I64(v))
    }
}
impl From<f32> for Num {
    fn from(v: f32) -> Self {
        Num(Scalar::F32(v))
    }
}

pub fn shown(errors: Diagnostics) -> String {
    let list = errors.iter().map(|d| format!("{} {} {:?}", d.code, d.message, d.notes));
    list.collect::<Vec<_>>().join("\n")
}

type Outcome = Result<Vec<Vec<u8>>, String>;

/// The bytes of an array, with its alignment.
struct Lent {
    memory: Vec<u8>,
    begin: usize,
}

impl Lent {
    fn new(a: &Array) -> Self {
        let mut memory = vec![0xA5; a.bytes.len() + 64];
        let wanted = a.skew * a.dtype.bytes();
        let at = memory.as_ptr() as usize + a.first;
        let begin = (wanted + 32 - at % 16) % 16;
        memory[begin..begin + a.bytes.len()].copy_from_slice(&a.bytes);
        Self { memory, begin }
    }

    fn back(self, a: &Array) -> Vec<u8> {
        self.memory[self.begin..self.begin + a.bytes.len()].to_vec()
    }
}

/// Runs on copies of the arguments: the bytes of all arrays afterwards, or the error.
fn with_args(
    args: &[Arg],
    domain: i64,
    lanes: i64,
    launch: impl FnOnce(&LaunchArgs) -> Result<(), String>,
) -> Outcome {
    let mut lent: Vec<Option<Lent>> = args
        .iter()
        .map(|arg| match arg {
            Arg::Array(a) => Some(Lent::new(a)),
            Arg::Scalar(_) => None,
        })
        .collect();
    let params = args.iter().zip(&mut lent).map(|(arg, lent)| match (arg, lent) {
        (Arg::Array(a), Some(lent)) => ArgValue::Buffer(BufferArg {
            data: lent.memory[lent.begin + a.first..].as_mut_ptr(),
            dims: a.dims.clone(),
            strides: a.strides.clone(),
            dtype: a.dtype,
            writable: true,
        }),
        (Arg::Scalar(x), _) => ArgValue::Scalar(*x),
        (Arg::Array(_), None) => unreachable!(),
    });
    let params = params.collect();
    let grid = [(domain + lanes - 1) / lanes, 1, 1];
    launch(&LaunchArgs { params, dims: Default::default(), grid, domain, lanes })?;
    let back = args.iter().zip(lent).filter_map(|(arg, lent)| match (arg, lent) {
        (Arg::Array(a), Some(lent)) => Some(lent.back(a)),
        _ => None,
    });
    Ok(back.collect())
}

/// The address range of an array, in whole words.
fn reach(b: &BufferArg) -> Option<(*const u8, usize)> {
    if b.dims.contains(&0) {
        return None;
    }
    let (mut low, mut high) = (0i64, b.dtype.bytes() as i64);
    for (&n, &stride) in b.dims.iter().zip(&b.strides) {
        let far = (n - 1) * stride;
        low += far.min(0);
        high += far.max(0);
    }
    let begin = (b.data as i64 + low) & -4;
    let end = (b.data as i64 + high + 3) & -4;
    Some((begin as *const u8, (end - begin) as usize))
}

/// A kernel in one variant for one target.
pub struct Variant {
    pub name: String,
    func: TileFunc,
    caps: &'static PtxCaps,
    pub profile: Profile,
}

impl Variant {
    pub fn code(&self, args: &LaunchArgs) -> Result<(Code, Vec<u64>), String> {
        let frame = Frame::new(&self.func).map_err(shown)?;
        let mut words = Vec::new();
        let mut classes: Classes = vec![ArrayClass::default(); frame.params.len()];
        frame
            .fill(&self.func, args, &mut words, |place, _, b| classes[place] = ArrayClass::of(b))
            .map_err(shown)?;
        let code = compile(&self.func, self.caps, self.profile, &classes).map_err(shown)?;
        verify(&code.module).map_err(|e| format!("{}\n{}", shown(e), code.module.text()))?;
        Ok((code, words))
    }

    fn launch(&self, args: &LaunchArgs) -> Result<(), String> {
        let (code, mut words) = self.code(args)?;
        let mut memory = Memory::new();
        for arg in &args.params {
            if let ArgValue::Buffer(b) = arg
                && let Some((base, len)) = reach(b)
            {
                // SAFETY: the launch borrows the arrays until it returns.
                unsafe { memory.allow(base, len, b.writable) };
            }
        }
        let mut status = [0u32];
        words[frame::CONTEXT] = memory.lend(&mut status);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let kernel = code.kernel();
        let blocks = code.blocks(args, 4) as u32;
        let grid = Grid { grid: [blocks, 1, 1], dynamic_shared: kernel.dynamic_shared };
        let options = Options {
            races: true,
            seed: words.len() as u64,
            step_limit: 1 << 26,
            ..Options::default()
        };
        interp::run(&code.module, &kernel.name, &grid, &[&bytes], &memory, &options)
            .map_err(|f| format!("{f}\n{}", code.module.text()))?;
        match status[0].checked_sub(1) {
            None => Ok(()),
            Some(i) => Err(format!("stopped: {}", code.sites[i as usize].message)),
        }
    }
}

/// A kernel for the interpreter, and as it is and after the passes for several targets and two
/// profiles.
pub struct Kernel {
    plain: TileFunc,
    wanted: Box<dyn Artifact>,
    pub ways: Vec<Variant>,
}

fn with_lanes(func: &TileFunc, lanes: i64) -> TileFunc {
    let mut func = func.clone();
    func.attrs.set("lanes", Attr::Int(lanes));
    func
}

impl Kernel {
    /// For groups of `lanes` lanes.
    pub fn new(text: &str, lanes: i64) -> Self {
        let plain = tessera_tile::parse(text).unwrap_or_else(|e| panic!("{}\n{text}", e.render()));
        let plain = with_lanes(&plain, lanes);
        let mut lowered = plain.clone();
        let passes = tile_pipeline(PassOptions::default());
        let passed = passes.run(&mut lowered, &mut PassContext::default()).is_ok();
        let wanted = tessera_interp::Interp
            .compile(&plain, &CompileOptions::new(Profile::Strict))
            .unwrap_or_else(|e| panic!("{}\n{plain}", e.render()));
        let mut ways = Vec::new();
        let targets = [(70, Profile::Strict), (90, Profile::Strict), (90, Profile::Default)];
        for (sm, profile) in targets {
            let caps = PtxCaps::of(sm, false).unwrap();
            for func in [&plain, &lowered] {
                if std::ptr::eq(func, &lowered) && !passed {
                    continue;
                }
                let name = format!("sm_{sm} {}\n{func}", profile.name());
                ways.push(Variant { name, func: func.clone(), caps, profile });
            }
        }
        Self { plain, wanted, ways }
    }

    pub fn lanes(&self) -> i64 {
        self.plain.attrs.get("lanes").and_then(Attr::as_int).unwrap_or(256)
    }

    pub fn wanted(&self, args: &[Arg], domain: i64) -> Outcome {
        self.wanted_by(args, domain, self.lanes())
    }

    /// In groups of another size than the kernel says.
    pub fn wanted_by(&self, args: &[Arg], domain: i64, lanes: i64) -> Outcome {
        with_args(args, domain, lanes, |launch| self.wanted.launch(launch).map_err(shown))
    }

    pub fn got(&self, way: &Variant, args: &[Arg], domain: i64) -> Outcome {
        self.got_by(way, args, domain, self.lanes())
    }

    pub fn got_by(&self, way: &Variant, args: &[Arg], domain: i64, lanes: i64) -> Outcome {
        with_args(args, domain, lanes, |launch| way.launch(launch))
    }

    /// Every variant gives what the interpreter gives.
    pub fn check(&self, args: &[Arg], domain: i64) {
        self.check_where(args, domain, |_| true);
    }

    /// The same where the interpreter's bits are promised.
    pub fn check_strict(&self, args: &[Arg], domain: i64) {
        self.check_where(args, domain, |way| way.profile == Profile::Strict);
    }

    fn check_where(&self, args: &[Arg], domain: i64, which: impl Fn(&Variant) -> bool) {
        let wanted = self.wanted(args, domain).unwrap_or_else(|e| panic!("{e}\n{}", self.plain));
        for way in self.ways.iter().filter(|w| which(w)) {
            let got = self.got(way, args, domain);
            let got = got.unwrap_or_else(|e| panic!("{e}\n{domain} lanes, {}", way.name));
            self.compare(way, args, &wanted, &got, domain);
        }
    }

    fn compare(
        &self,
        way: &Variant,
        args: &[Arg],
        wanted: &[Vec<u8>],
        got: &[Vec<u8>],
        domain: i64,
    ) {
        let arrays = args.iter().filter_map(|a| match a {
            Arg::Array(a) => Some(a),
            Arg::Scalar(_) => None,
        });
        for (number, ((w, g), a)) in wanted.iter().zip(got).zip(arrays).enumerate() {
            let width = a.dtype.bytes();
            let differs = |(x, y): (&[u8], &[u8])| {
                x != y
                    && !(way.profile == Profile::Default
                        && is_nan(a.dtype, x)
                        && is_nan(a.dtype, y))
            };
            let at = w.chunks(width).zip(g.chunks(width)).position(differs);
            if let Some(at) = at {
                let (w, g) = (&w[at * width..][..width], &g[at * width..][..width]);
                let place = at as i64 - (a.first / width) as i64;
                panic!(
                    "array {number} ({}) element {place}: expected {w:02x?}, got {g:02x?}, {domain} lanes by {}, {}\n{}",
                    a.dtype,
                    self.lanes(),
                    way.name,
                    self.text(way, args, domain),
                );
            }
        }
    }

    /// The PTX for these arguments.
    pub fn text(&self, way: &Variant, args: &[Arg], domain: i64) -> String {
        self.code(way, args, domain).module.text()
    }

    pub fn code(&self, way: &Variant, args: &[Arg], domain: i64) -> Code {
        let mut code = None;
        with_args(args, domain, self.lanes(), |launch| {
            code = Some(way.code(launch)?.0);
            Ok(())
        })
        .unwrap();
        code.unwrap()
    }

    /// How many lanes a thread takes.
    pub fn per_thread(&self, args: &[Arg], domain: i64) -> u32 {
        match self.code(&self.ways[0], args, domain).shape {
            Shape::Lanes { per_thread, .. } => per_thread,
            _ => unreachable!(),
        }
    }
}

fn is_nan(dtype: DType, code: &[u8]) -> bool {
    let mut bits = [0; 8];
    bits[..code.len()].copy_from_slice(code);
    match tessera_numerics::decode(dtype, u64::from_le_bytes(bits)) {
        Scalar::F32(x) => x.is_nan(),
        Scalar::F64(x) => x.is_nan(),
        _ => false,
    }
}

/// Sizes around those of vectors and groups.
pub const SIZES: [i64; 12] = [0, 1, 3, 4, 7, 8, 31, 33, 255, 256, 1030, 2049];
