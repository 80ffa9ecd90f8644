//! What a backend implements to be tested.

use crate::harness::Kernel;
use tessera_diag::Diagnostics;
use tessera_numerics::Profile;
use tessera_target::{Artifact, Backend, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

/// A backend under test.
pub trait Subject {
    /// Every way in which the backend compiles a kernel: instruction sets, architectures,
    /// profiles. The harness tries each with and without the tile passes.
    fn targets(&self) -> Vec<Target>;

    /// Those of scalar functions, which cost less to try.
    fn scalar_targets(&self) -> Vec<Target> {
        self.targets()
    }

    fn compile(&self, target: &Target, func: &TileFunc) -> Result<Box<dyn Runner>, Failure>;

    /// The cases that are refused, in which profile, and with which code. A listed case must be
    /// refused, and another must run.
    fn refusals(&self) -> Vec<Refusal> {
        Vec::new()
    }

    fn promises(&self, profile: Profile) -> Promises {
        Promises::usual(profile)
    }

    /// How many seconds random kernels are tried where nothing else is said.
    fn random_seconds(&self) -> u64 {
        6
    }

    /// Whether cases of hundreds of kernels try one target each.
    fn compiles_slowly(&self) -> bool {
        false
    }

    /// Whether the number of lanes of a group is a constant of the code.
    fn fixes_lanes(&self) -> bool {
        false
    }
}

/// One way of compiling. `number` is the backend's own.
pub struct Target {
    pub number: usize,
    pub name: String,
    pub profile: Profile,
}

/// The case, or `case/part`; the profile, or every one; the code of the error.
pub type Refusal = (String, Option<Profile>, &'static str);

/// What a backend promises beyond the language.
#[derive(Copy, Clone)]
pub struct Promises {
    /// The interpreter's bits, also of NaN.
    pub nan_bits: bool,
    /// Sums of floats over a group are in the interpreter's order.
    pub sum_order: bool,
    /// At one op, lanes come to an element that they share in the order of their numbers.
    pub lane_order: bool,
    /// A divergent barrier is an error, and an error names the group and the lane.
    pub exact_errors: bool,
    /// The largest error of functions that are not exact, in ulp.
    pub ulp: f64,
    /// An absolute error that is allowed where it is the larger one.
    pub absolute: f64,
}

impl Promises {
    /// Strict: the interpreter's bits. Otherwise the bounds of the op reference.
    pub fn usual(profile: Profile) -> Self {
        let strict = profile == Profile::Strict;
        let ulp = if strict { 0.0 } else { 2.0 };
        Self {
            nan_bits: strict,
            sum_order: strict,
            lane_order: strict,
            exact_errors: false,
            ulp,
            absolute: 0.0,
        }
    }
}

/// A compiled kernel.
pub trait Runner {
    /// Runs to the end, on arrays in host memory.
    fn launch(&self, args: &LaunchArgs) -> Result<(), Failure>;
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The backend does not compile the kernel: the code of the first error, and its message.
    Refused(&'static str, String),
    /// The kernel stopped with an error of its own, as an assertion.
    Stopped(String),
    /// The code did what it must not do: an address outside, a race.
    Fault(String),
}

impl Failure {
    pub fn refused(errors: Diagnostics) -> Self {
        let code = errors.iter().next().map_or("", |d| d.code.name());
        Failure::Refused(code, shown(errors))
    }
}

/// Codes, messages and notes.
pub fn shown(errors: Diagnostics) -> String {
    let list = errors.iter().map(|d| format!("{} {} {:?}", d.code, d.message, d.notes));
    list.collect::<Vec<_>>().join("\n")
}

struct Compiled(Box<dyn Artifact>);

impl Runner for Compiled {
    fn launch(&self, args: &LaunchArgs) -> Result<(), Failure> {
        self.0.launch(args).map_err(|e| Failure::Stopped(shown(e)))
    }
}

/// The runner of a [`Backend`] whose launches take arrays in host memory.
pub fn compile_with(
    backend: &dyn Backend,
    func: &TileFunc,
    profile: Profile,
) -> Result<Box<dyn Runner>, Failure> {
    let artifact = backend.compile(func, &CompileOptions::new(profile));
    Ok(Box::new(Compiled(artifact.map_err(Failure::refused)?)))
}

/// A named case, run on a subject.
pub struct Case<'a> {
    pub subject: &'a dyn Subject,
    pub name: String,
}

impl<'a> Case<'a> {
    pub fn new(subject: &'a dyn Subject, name: &str) -> Self {
        Self { subject, name: name.to_owned() }
    }

    /// One of several kernels of the case, so that refusals can name it.
    pub fn part(&self, name: &str) -> Case<'a> {
        Case::new(self.subject, &format!("{}/{name}", self.name))
    }

    pub fn kernel(&self, text: &str) -> Kernel<'_> {
        Kernel::new(self, text)
    }

    /// Whether a subject that compiles slowly leaves out one of hundreds of kernels: it tries every
    /// third.
    pub fn skips(&self, number: usize) -> bool {
        self.subject.compiles_slowly() && !number.is_multiple_of(3)
    }

    /// The code with which the case must be refused.
    pub fn refused(&self, profile: Profile) -> Option<&'static str> {
        let applies = |(case, only, _): &Refusal| {
            let rest = self.name.strip_prefix(case.as_str());
            rest.is_some_and(|r| r.is_empty() || r.starts_with('/'))
                && only.is_none_or(|p| p == profile)
        };
        self.subject.refusals().into_iter().find(applies).map(|(.., code)| code)
    }
}
