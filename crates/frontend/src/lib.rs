//! From Python source to Tile IR. The source is parsed here (with ruff's parser). The caller
//! resolves its free names and annotations, so that this crate knows no Python interpreter and its
//! tests need none.
//!
//! A [`Kernel`] is made at decoration: parsed, its names and structure checked, and its body
//! elaborated once with unknown sizes left open, so that every error that follows from the
//! annotations is reported then. Each configuration is then elaborated anew from the syntax tree.

mod api;
mod dim_text;
mod elab;
mod foreign;
#[doc(hidden)]
pub mod inner;
mod kernel;
mod names;
mod parsed;
mod privilege;
mod source;
mod unknown;

pub use api::{ApiRow, Style};
pub use dim_text::{is_expression, parse_dim, show_dim};
pub use kernel::Kernel;
pub use names::free_paths;
pub use source::{
    ArgType, Bundle, Capture, Config, Elaborated, FuncSource, KernelDecl, MOST_OPS, ParamKind,
    ParamSpec, Table, Tunables, axis_symbol, symbol,
};

/// What to write for a name that people know from another library and that `ts` or `ts.tile` does not have.
pub fn instead_of(name: &str) -> Option<String> {
    foreign::path(name)
}

/// The known name nearest to a misspelt one, if any is near.
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    foreign::closest(name, known)
}

/// Every function of the tile language, for stubs and documentation.
pub fn api() -> &'static [ApiRow] {
    api::all()
}
