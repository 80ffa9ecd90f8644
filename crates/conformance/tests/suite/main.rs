//! The interpreter after the tile passes against the interpreter as written.

mod instantiated;

use tessera_conformance::{Failure, Promises, Runner, Subject, Target, compile_with};
use tessera_interp::Interp;
use tessera_numerics::Profile;
use tessera_tile::TileFunc;

struct Interpreter;

impl Subject for Interpreter {
    fn targets(&self) -> Vec<Target> {
        vec![Target { number: 0, name: "interp".into(), profile: Profile::Strict }]
    }

    fn compile(&self, target: &Target, func: &TileFunc) -> Result<Box<dyn Runner>, Failure> {
        compile_with(&Interp, func, target.profile)
    }

    fn promises(&self, profile: Profile) -> Promises {
        Promises { exact_errors: true, ..Promises::usual(profile) }
    }

    fn random_seconds(&self) -> u64 {
        3
    }

    fn fixes_lanes(&self) -> bool {
        true
    }
}

tessera_conformance::instantiate!(Interpreter);
