//! Arrays with guards, and kernels that are run by the interpreter and by every target of a
//! subject.

use crate::subject::{Case, Failure, Promises, Runner, shown};
use std::cell::RefCell;
use std::rc::Rc;
use tessera_ir::{PassContext, PassOptions};
use tessera_lower::tile_pipeline;
use tessera_numerics::{DType, Profile, Scalar};
use tessera_target::{ArgValue, Artifact, Backend, BufferArg, CompileOptions, LaunchArgs};
use tessera_tile::{TileFunc, lane_grid, lanes_attr};

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

/// Sizes around those of vectors and groups.
pub const SIZES: [i64; 15] = [0, 1, 3, 4, 7, 8, 15, 16, 17, 33, 255, 256, 257, 1030, 2049];

pub struct Rng(pub u64);

impl Rng {
    #[allow(clippy::should_implement_trait)]
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

/// Contiguous arrays of one layout and several seeds.
pub fn arrays<const N: usize>(dims: &[i64], dtype: DType, layout: Layout) -> [Arg; N] {
    std::array::from_fn(|i| array(dims, dtype, layout, i as u64 + 1))
}

/// A row of these codes.
pub fn codes(dtype: DType, values: impl IntoIterator<Item = u64>) -> Arg {
    let values: Vec<u64> = values.into_iter().collect();
    let Arg::Array(mut a) = array(&[values.len() as i64], dtype, Layout::Rows, 1) else {
        unreachable!()
    };
    let width = dtype.bytes();
    for (to, v) in a.bytes[a.first..].chunks_exact_mut(width).zip(values) {
        to.copy_from_slice(&v.to_le_bytes()[..width]);
    }
    Arg::Array(a)
}

pub fn ints(values: &[i32]) -> Arg {
    codes(DType::I32, values.iter().map(|&v| v as u64))
}

pub fn longs(values: &[i64]) -> Arg {
    codes(DType::I64, values.iter().map(|&v| v as u64))
}

pub fn floats(values: &[f32]) -> Arg {
    codes(DType::F32, values.iter().map(|v| v.to_bits().into()))
}

pub fn scalar(x: impl Into<Scalar>) -> Arg {
    Arg::Scalar(x.into())
}

impl Array {
    /// The codes of the elements in row-major order, of these bytes.
    pub fn codes(&self, bytes: &[u8]) -> Vec<u64> {
        let mut at = vec![self.first as i64];
        for (&n, &stride) in self.dims.iter().zip(&self.strides) {
            at = at.iter().flat_map(|&a| (0..n).map(move |i| a + i * stride)).collect();
        }
        let width = self.dtype.bytes();
        at.into_iter().map(|a| code(&bytes[a as usize..][..width])).collect()
    }
}

impl Arg {
    pub fn array(&self) -> Option<&Array> {
        match self {
            Arg::Array(a) => Some(a),
            Arg::Scalar(_) => None,
        }
    }
}

/// The bytes of all arrays after a launch.
pub type Outcome = Result<Vec<Vec<u8>>, Failure>;

/// A copy of the bytes of an array, with its alignment and guards around.
struct Lent {
    memory: Vec<u8>,
    begin: usize,
}

const GUARD: u8 = 0xA5;

impl Lent {
    fn new(a: &Array) -> Self {
        let mut memory = vec![GUARD; a.bytes.len() + 64];
        let wanted = a.skew * a.dtype.bytes();
        let at = memory.as_ptr() as usize + a.first;
        let begin = (wanted + 32 - at % 16) % 16;
        memory[begin..begin + a.bytes.len()].copy_from_slice(&a.bytes);
        Self { memory, begin }
    }

    /// What the array has become; its guards must be as they were.
    fn back(self, a: &Array) -> Result<Vec<u8>, Failure> {
        let (n, margin) = (a.bytes.len(), MARGIN * a.dtype.bytes());
        let bytes = self.memory[self.begin..self.begin + n].to_vec();
        let mut outside = self.memory[..self.begin].iter().chain(&self.memory[self.begin + n..]);
        let kept = bytes[..margin] == a.bytes[..margin]
            && bytes[n - margin..] == a.bytes[n - margin..]
            && outside.all(|b| *b == GUARD);
        match kept {
            true => Ok(bytes),
            false => Err(Failure::Fault(format!("an array of {} was written outside", a.dtype))),
        }
    }
}

/// A number for each axis of the lanes.
pub trait Extents: Copy + std::fmt::Debug {
    fn extents(&self) -> Vec<i64>;
}

impl Extents for i64 {
    fn extents(&self) -> Vec<i64> {
        vec![*self]
    }
}

impl<const N: usize> Extents for [i64; N] {
    fn extents(&self) -> Vec<i64> {
        self.to_vec()
    }
}

impl Extents for &[i64] {
    fn extents(&self) -> Vec<i64> {
        self.to_vec()
    }
}

/// Calls `launch` on copies of the arguments.
pub fn with_args(
    args: &[Arg],
    domain: impl Extents,
    lanes: impl Extents,
    launch: impl FnOnce(&LaunchArgs) -> Result<(), Failure>,
) -> Outcome {
    let mut lent: Vec<_> = args.iter().map(|arg| arg.array().map(Lent::new)).collect();
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
    let by = lanes.extents();
    let (grid, domain) = lane_grid(&by, &domain.extents());
    let lanes = by.iter().product();
    launch(&LaunchArgs { params, dims: Default::default(), grid, domain, lanes })?;
    args.iter()
        .filter_map(Arg::array)
        .zip(lent.into_iter().flatten())
        .map(|(a, l)| l.back(a))
        .collect()
}

/// A kernel compiled for one target.
pub struct Variant {
    number: usize,
    pub name: String,
    pub profile: Profile,
    pub promises: Promises,
    runner: Result<Box<dyn Runner>, Failure>,
}

impl Variant {
    pub fn run(&self, args: &[Arg], domain: impl Extents, lanes: impl Extents) -> Outcome {
        let runner = self.runner.as_ref().map_err(Clone::clone)?;
        with_args(args, domain, lanes, |launch| runner.launch(launch))
    }
}

/// What was compiled for lanes of these extents.
type Compiled = (Vec<i64>, Rc<Vec<Variant>>);

/// A kernel of a case: as the interpreter runs it, and for every target of the subject, as it is
/// and after the tile passes.
pub struct Kernel<'a> {
    case: &'a Case<'a>,
    plain: TileFunc,
    reference: Box<dyn Artifact>,
    /// By the number of lanes that is in the code.
    compiled: RefCell<Vec<Compiled>>,
    /// One variant of all, where compiling takes long.
    only: Option<usize>,
}

pub fn parse(text: &str) -> TileFunc {
    tessera_tile::parse(text).unwrap_or_else(|e| panic!("{}\n{text}", e.render()))
}

/// After the tile passes; none where they find an error.
pub fn lowered(func: &TileFunc) -> Option<TileFunc> {
    let mut lowered = func.clone();
    let passes = tile_pipeline(PassOptions::default());
    passes.run(&mut lowered, &mut PassContext::default()).ok().map(|_| lowered)
}

pub fn with_lanes(func: &TileFunc, lanes: impl Extents) -> TileFunc {
    let mut func = func.clone();
    func.attrs.set("lanes", lanes_attr(&lanes.extents()));
    func
}

impl<'a> Kernel<'a> {
    pub fn new(case: &'a Case<'a>, text: &str) -> Self {
        let plain = parse(text);
        let reference = tessera_interp::Interp
            .compile(&plain, &CompileOptions::new(Profile::Strict))
            .unwrap_or_else(|e| panic!("{}\n{plain}", e.render()));
        Self { case, plain, reference, compiled: Default::default(), only: None }
    }

    /// One of the variants, `number` modulo how many there are.
    pub fn only(mut self, number: usize) -> Self {
        self.only = Some(number);
        self
    }

    /// Every variant, or where compiling takes long that of a number.
    pub fn rotate(self, number: usize) -> Self {
        if self.case.subject.compiles_slowly() { self.only(number) } else { self }
    }

    pub fn variants(&self, lanes: impl Extents) -> Rc<Vec<Variant>> {
        let subject = self.case.subject;
        let key = if subject.fixes_lanes() { lanes.extents() } else { Vec::new() };
        if let Some((_, there)) = self.compiled.borrow().iter().find(|(k, _)| *k == key) {
            return there.clone();
        }
        let plain = match key.is_empty() {
            true => self.plain.clone(),
            false => with_lanes(&self.plain, lanes),
        };
        let funcs = [Some(plain.clone()), lowered(&plain)];
        let targets = subject.targets();
        let chosen = self.only.map(|n| n % (2 * targets.len()));
        let mut all = Vec::new();
        for (number, target) in targets.iter().enumerate() {
            for (passes, func) in funcs.iter().flatten().enumerate() {
                let number = 2 * number + passes;
                if chosen.is_none_or(|n| n == number) {
                    all.push(Variant {
                        number,
                        name: format!("{} {}\n{func}", target.name, target.profile.name()),
                        profile: target.profile,
                        promises: subject.promises(target.profile),
                        runner: subject.compile(target, func),
                    });
                }
            }
        }
        let all = Rc::new(all);
        self.compiled.borrow_mut().push((key, all.clone()));
        all
    }

    /// What the interpreter gives.
    pub fn reference(&self, args: &[Arg], domain: impl Extents, lanes: impl Extents) -> Outcome {
        with_args(args, domain, lanes, |launch| {
            self.reference.launch(launch).map_err(|e| Failure::Stopped(shown(e)))
        })
    }

    /// Every variant gives what the interpreter gives, which is no error.
    pub fn check(&self, args: &[Arg], domain: impl Extents, lanes: impl Extents) -> Vec<Vec<u8>> {
        self.check_where(args, domain, lanes, |_| true)
    }

    /// The same where the interpreter's bits are promised.
    pub fn check_strict(&self, args: &[Arg], domain: impl Extents, lanes: impl Extents) {
        self.check_where(args, domain, lanes, |v| v.profile == Profile::Strict);
    }

    /// One of `shares` shares of the variants gives what the interpreter gives, or where compiling
    /// is quick every variant. Arguments that take all shares in turn are checked by every variant
    /// together.
    pub fn check_share(
        &self,
        args: &[Arg],
        domain: impl Extents,
        lanes: impl Extents,
        share: usize,
        shares: usize,
    ) {
        let all = !self.case.subject.compiles_slowly();
        self.check_where(args, domain, lanes, |v| all || v.number % shares == share % shares);
    }

    /// The same where variants promise it.
    pub fn check_where(
        &self,
        args: &[Arg],
        domain: impl Extents,
        lanes: impl Extents,
        which: impl Fn(&Variant) -> bool,
    ) -> Vec<Vec<u8>> {
        let wanted = self.compare(args, domain, lanes, which);
        wanted.unwrap_or_else(|e| panic!("the interpreter: {e:?}\n{}", self.plain))
    }

    /// Every variant gives what the interpreter gives, also an error.
    pub fn compare(
        &self,
        args: &[Arg],
        domain: impl Extents,
        lanes: impl Extents,
        which: impl Fn(&Variant) -> bool,
    ) -> Outcome {
        let wanted = self.reference(args, domain, lanes);
        for variant in self.variants(lanes).iter().filter(|v| which(v)) {
            let place = || format!("{domain:?} lanes by {lanes:?}, {}", variant.name);
            match (&wanted, self.got(variant, args, domain, lanes)) {
                (_, None) => {}
                (Ok(wanted), Some(Ok(got))) => {
                    if let Some(fault) = difference(args, wanted, &got, variant.promises.nan_bits) {
                        panic!("{fault}, {}", place());
                    }
                }
                (Err(Failure::Stopped(wanted)), Some(Err(Failure::Stopped(got)))) => {
                    let same = match variant.promises.exact_errors {
                        true => *wanted == got,
                        false => wanted.contains(&got),
                    };
                    assert!(same, "expected {wanted}, got {got}, {}", place());
                }
                (_, got) => panic!("expected {wanted:?}, got {got:?}, {}", place()),
            }
        }
        wanted
    }

    /// What a variant gives; none where it is refused, as the subject says.
    pub fn got(
        &self,
        variant: &Variant,
        args: &[Arg],
        domain: impl Extents,
        lanes: impl Extents,
    ) -> Option<Outcome> {
        let got = variant.run(args, domain, lanes);
        let name = &self.case.name;
        match (self.case.refused(variant.profile), &got) {
            (None, Err(Failure::Refused(code, why))) => {
                panic!("{name} is refused with {code}: {why}, {}", variant.name)
            }
            (Some(code), Err(Failure::Refused(got, _))) if code == *got => None,
            (Some(code), _) => {
                panic!("{name} is not refused with {code}, but {got:?}, {}", variant.name)
            }
            (None, _) => Some(got),
        }
    }

    /// Every variant, and the interpreter, stops with an error that contains `message`.
    pub fn stops(&self, args: &[Arg], domain: impl Extents, lanes: impl Extents, message: &str) {
        let is = |got: &Outcome| matches!(got, Err(Failure::Stopped(m)) if m.contains(message));
        assert!(is(&self.reference(args, domain, lanes)));
        for variant in self.variants(lanes).iter() {
            let got = self.got(variant, args, domain, lanes);
            assert!(
                got.as_ref().is_none_or(is),
                "expected {message}, got {got:?}, {}",
                variant.name
            );
        }
    }
}

/// The first element in which two outcomes differ.
fn difference(args: &[Arg], wanted: &[Vec<u8>], got: &[Vec<u8>], nan_bits: bool) -> Option<String> {
    let arrays = args.iter().filter_map(Arg::array);
    for (number, ((w, g), a)) in wanted.iter().zip(got).zip(arrays).enumerate() {
        let width = a.dtype.bytes();
        let differs = |(x, y): (&[u8], &[u8])| {
            x != y && (nan_bits || !is_nan(a.dtype, code(x)) || !is_nan(a.dtype, code(y)))
        };
        if let Some(at) = w.chunks(width).zip(g.chunks(width)).position(differs) {
            let (w, g) = (&w[at * width..][..width], &g[at * width..][..width]);
            let place = at as i64 - (a.first / width) as i64;
            let what = format!("array {number} ({}) element {place}", a.dtype);
            return Some(format!("{what}: expected {w:02x?}, got {g:02x?}"));
        }
    }
    None
}

/// The code in these bytes.
fn code(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b))
}

pub fn is_nan(dtype: DType, code: u64) -> bool {
    match tessera_numerics::decode(dtype, code) {
        Scalar::F32(x) => x.is_nan(),
        Scalar::F64(x) => x.is_nan(),
        _ => false,
    }
}
