//! Names of passes.

use tessera_diag::Code;
use tessera_lower::stage::{Off, Step};

#[test]
fn names_are_read_as_they_are_written_and_others_refused() {
    let off = Off::named(["mma_in_flight", "epilogue"], "`off`").unwrap();
    assert!(
        off.has(Step::MmaInFlight) && off.has(Step::Epilogue) && !off.has(Step::InterleavedMmas)
    );
    assert_eq!(off.attr().unwrap().to_string(), "[epilogue, mma_in_flight]");
    assert_eq!(Off::named(["rotate"], "`off`").unwrap(), Off::default().with(Step::MmaInFlight));
    let errors = Off::named(["in_flight"], "`off`").unwrap_err();
    let error = errors.errors().next().unwrap();
    assert_eq!(error.code, Code::E_ARGUMENT);
    assert!(
        error.message.contains("\"in_flight\"")
            && error.message.contains("mma_in_flight, interleaved_mmas")
    );
}
