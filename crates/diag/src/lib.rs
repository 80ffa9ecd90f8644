//! Diagnostics: what went wrong, where in the user's source, what was expected and what to write
//! instead. Errors are collected, not thrown one at a time; rendering is here and nowhere else.
//!
//! ```
//! use tessera_diag::{Code, Diagnostic, Loc, SourceFile};
//! let file = SourceFile::new("k.py", "y[i] = x[j]\n", 10);
//! let d = Diagnostic::new(Code::E_NAME, "`j` is not defined here")
//!     .at(Loc::span(&file, 10, 10, 10, 11))
//!     .help("define `j`, or use `i`");
//! assert!(d.render().contains("k.py:10:10"));
//! assert!(d.render().contains("y[i] = x[j]"));
//! ```

mod code;
mod diagnostic;
mod json;
mod loc;
mod render;

pub use code::{Code, Kind, Severity};
pub use diagnostic::{Diagnostic, Diagnostics, Label};
pub use loc::{Loc, SourceFile};
