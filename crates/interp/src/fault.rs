//! Why an execution stops early.

use tessera_diag::{Code, Diagnostic, Loc};

/// Boxed: it travels through every return value and is almost never there.
pub(crate) type Fault = Box<Diagnostic>;
pub(crate) type Outcome<T> = Result<T, Fault>;

pub(crate) fn fault(code: Code, message: impl Into<String>, loc: &Loc) -> Fault {
    Box::new(Diagnostic::new(code, message).at(loc.clone()))
}

/// The IR passed the verifier but is inconsistent: our bug, not the user's.
pub(crate) fn broken(what: &str, loc: &Loc) -> Fault {
    fault(Code::E_UNKNOWN, format!("the interpreter met {what}"), loc)
}
