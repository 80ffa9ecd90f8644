//! The conformance suite, on every instruction set of this host.

mod variants;

use tessera_conformance::{Failure, Promises, Runner, Subject, Target, compile_with};
use tessera_cpu::{Cpu, Isa};
use tessera_numerics::Profile;
use tessera_tile::TileFunc;

struct Host;

/// AMX differs in matmuls only.
fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|&isa| isa <= Isa::host() && isa != Isa::Amx)
}

impl Subject for Host {
    fn targets(&self) -> Vec<Target> {
        let all = isas().flat_map(|isa| [Profile::Default, Profile::Strict].map(|p| (isa, p)));
        let target = |(number, (isa, profile)): (usize, (Isa, Profile))| Target {
            number,
            name: isa.name().into(),
            profile,
        };
        all.enumerate().map(target).collect()
    }

    fn compile(&self, target: &Target, func: &TileFunc) -> Result<Box<dyn Runner>, Failure> {
        let isa = Isa::from_name(&target.name).expect("a target of this subject");
        compile_with(&Cpu { isa, threads: 1 }, func, target.profile)
    }

    fn promises(&self, profile: Profile) -> Promises {
        let usual = Promises::usual(profile);
        // One thread runs the groups in order.
        Promises { nan_bits: true, sum_order: true, lane_order: true, exact_errors: true, ..usual }
    }

    fn compiles_slowly(&self) -> bool {
        true
    }
}

tessera_conformance::instantiate!(Host);
