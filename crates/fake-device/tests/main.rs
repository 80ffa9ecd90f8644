//! The conformance suite of backends on the fake device, and what it promises of orders and failures.

mod orders;

use std::sync::Arc;
use tessera_conformance::{Failure, Promises, Runner, Subject, Target, compile_with};
use tessera_fake_device::{Fake, FakeBackend, Order};
use tessera_numerics::Profile;
use tessera_tile::TileFunc;

struct Devices;

impl Subject for Devices {
    fn targets(&self) -> Vec<Target> {
        let target = |(number, name): (usize, &str)| Target {
            number,
            name: name.into(),
            profile: Profile::Strict,
        };
        ["late", "random"].into_iter().enumerate().map(target).collect()
    }

    fn scalar_targets(&self) -> Vec<Target> {
        self.targets().drain(..1).collect()
    }

    fn compile(&self, target: &Target, func: &TileFunc) -> Result<Box<dyn Runner>, Failure> {
        let fake = Arc::new(Fake::new(1));
        let device = fake.device(0).map_err(|e| Failure::refused(e.into()))?;
        device.set_order(if target.number == 0 { Order::Late } else { Order::Random(7) });
        let backend = FakeBackend::new(&fake, 0).map_err(Failure::refused)?;
        compile_with(&backend, func, target.profile)
    }

    /// It is the interpreter that runs the code.
    fn promises(&self, profile: Profile) -> Promises {
        Promises { exact_errors: true, ..Promises::usual(profile) }
    }

    fn random_seconds(&self) -> u64 {
        2
    }
}

tessera_conformance::instantiate!(Devices);
