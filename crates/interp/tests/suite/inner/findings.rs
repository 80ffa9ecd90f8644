//! Findings.

use tessera_diag::{Code, Diagnostic, Loc};
use tessera_interp::inner::Findings;

#[test]
fn places_are_kept_once_and_no_more_than_requested() {
    let mut findings = Findings::new(1);
    let loc = Loc::unknown();
    for site in [3, 3, 4, 4] {
        let make = || Diagnostic::new(Code::E_OOB, format!("at {site}"));
        findings.report((Code::E_OOB, site, &loc), 2, make);
    }
    let (found, omitted) = findings.into_diagnostics();
    assert_eq!((found.len(), omitted), (1, 1));
    assert_eq!(found.iter().next().unwrap().notes, ["this happened 4 times in the launch"]);
}
