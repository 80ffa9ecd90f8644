//! The conformance suite on the emulator, and what is particular to lane kernels in PTX.

mod code;
mod text;

use tessera_conformance::harness::{Arg, lowered, parse, with_args, with_lanes};
use tessera_conformance::{Failure, Promises, Refusal, Runner, Subject, Target};
use tessera_numerics::{Profile, Real, ScalarFn, expansion};
use tessera_ptx::{ArrayClass, Classes, Code, PtxCaps, Shape, compile, verify};
use tessera_ptx_emulator::{Grid, Memory, Options};
use tessera_target::frame::{self, Frame};
use tessera_target::{ArgValue, BufferArg, LaunchArgs};
use tessera_tile::TileFunc;

struct Emulated;

/// The first three run every case, all of them the scalar functions.
const TARGETS: [(u32, bool, Profile); 6] = [
    (70, false, Profile::Strict),
    (90, false, Profile::Strict),
    (90, false, Profile::Default),
    (80, false, Profile::Strict),
    (80, false, Profile::Default),
    (100, true, Profile::Default),
];

impl Subject for Emulated {
    fn targets(&self) -> Vec<Target> {
        self.scalar_targets().drain(..3).collect()
    }

    fn scalar_targets(&self) -> Vec<Target> {
        let target = |(number, (sm, _, profile))| {
            let name = format!("sm_{sm}");
            Target { number, name, profile }
        };
        TARGETS.into_iter().enumerate().map(target).collect()
    }

    fn compile(&self, target: &Target, func: &TileFunc) -> Result<Box<dyn Runner>, Failure> {
        let (sm, specific, _) = TARGETS[target.number];
        let caps = PtxCaps::of(sm, specific).expect("a known architecture");
        Ok(Box::new(Variant { func: func.clone(), caps, profile: target.profile }))
    }

    fn refusals(&self) -> Vec<Refusal> {
        const STRICT: Option<Profile> = Some(Profile::Strict);
        const CODE: &str = "E_UNSUPPORTED";
        let cases = [
            ("groups_of_2000_lanes_synchronise", None),
            ("lines_come_in_the_order_of_the_ops_and_then_of_the_lanes", None),
            ("sums_of_floats_from_many_lanes", STRICT),
        ];
        let cases = cases.map(|(case, profile)| (case.to_owned(), profile, CODE));
        // Strict code of real functions is their expansion, which is of f32. The root is exact.
        let real = Real::ALL.iter().map(|&f| ScalarFn::from(f));
        let f64s = real.clone().filter(|&f| f != ScalarFn::Rsqrt).map(|f| ("f64", f));
        let f32s = real.filter(|&f| expansion(f).is_none()).map(|f| ("f32", f));
        let functions = f64s.chain(f32s);
        let functions = functions.map(|(d, f)| (format!("functions_of_{d}/{f}"), STRICT, CODE));
        cases.into_iter().chain(functions).collect()
    }

    fn promises(&self, profile: Profile) -> Promises {
        let usual = Promises::usual(profile);
        Promises { lane_order: false, ulp: 4.0, absolute: 2f64.powi(-21), ..usual }
    }

    fn fixes_lanes(&self) -> bool {
        true
    }
}

tessera_conformance::instantiate!(Emulated);

/// A kernel in one profile for one architecture. Code is generated at the launch, for the arrays.
struct Variant {
    func: TileFunc,
    caps: &'static PtxCaps,
    profile: Profile,
}

impl Variant {
    /// A kernel after the passes for sm_90.
    fn newest(text: &str, lanes: i64, profile: Profile) -> Self {
        let func = with_lanes(&parse(text), lanes);
        let func = lowered(&func).unwrap_or(func);
        Self { func, caps: PtxCaps::of(90, false).unwrap(), profile }
    }

    /// The code for these arguments.
    fn code(&self, args: &[Arg], domain: i64) -> Code {
        let mut code = None;
        let lanes = self.func.attrs.get("lanes").and_then(|a| a.as_int()).unwrap();
        let made = with_args(args, domain, lanes, |launch| {
            code = Some(self.generate(launch)?.0);
            Ok(())
        });
        code.unwrap_or_else(|| panic!("{made:?}"))
    }

    /// How many lanes a thread takes.
    fn per_thread(&self, args: &[Arg], domain: i64) -> u32 {
        match self.code(args, domain).shape {
            Shape::Lanes { per_thread, .. } => per_thread,
            _ => unreachable!(),
        }
    }

    fn generate(&self, args: &LaunchArgs) -> Result<(Code, Vec<u64>), Failure> {
        let frame = Frame::new(&self.func).map_err(Failure::refused)?;
        let mut words = Vec::new();
        let mut classes: Classes = vec![ArrayClass::default(); frame.params.len()];
        frame
            .fill(&self.func, args, &mut words, |place, _, b| classes[place] = ArrayClass::of(b))
            .map_err(Failure::refused)?;
        let code = compile(&self.func, self.caps, self.profile, &classes);
        let code = code.map_err(Failure::refused)?;
        let fault = |e| Failure::Fault(format!("{e:?}\n{}", code.module.text()));
        verify(&code.module).map_err(fault)?;
        Ok((code, words))
    }
}

impl Runner for Variant {
    fn launch(&self, args: &LaunchArgs) -> Result<(), Failure> {
        let (code, mut words) = self.generate(args)?;
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
        let seed = words.len() as u64;
        let options = Options { races: true, seed, step_limit: 1 << 26, ..Options::default() };
        tessera_ptx_emulator::run(&code.module, &kernel.name, &grid, &[&bytes], &memory, &options)
            .map_err(|f| Failure::Fault(format!("{f}\n{}", code.module.text())))?;
        match status[0].checked_sub(1) {
            None => Ok(()),
            Some(i) => Err(Failure::Stopped(code.sites[i as usize].message.clone())),
        }
    }
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
