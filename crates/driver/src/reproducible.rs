//! `tile-check-profile`: what a profile that promises the same bits cannot run (SPEC 4.3).
//!
//! Sums of floats depend on their order, and atomic ones come in any.

use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Attr, Changed, Pass, PassContext};
use tessera_numerics::Profile;
use tessera_tile::{Tile, TileFunc, TileOp};

pub struct Reproducible(pub Profile);

impl Pass<Tile> for Reproducible {
    fn name(&self) -> &'static str {
        "tile-check-profile"
    }

    fn run(&self, func: &mut TileFunc, _: &mut PassContext) -> Result<Changed, Diagnostics> {
        let mut errors = Diagnostics::new();
        for id in func.walk() {
            let op = &func.ops[id];
            let sum = matches!(op.attr("op").and_then(Attr::as_word), Some("add" | "sub"));
            if op.code != TileOp::Atomic || !sum || !func.ty(op.operands[1]).dtype().is_float() {
                continue;
            }
            let name = func.name_of(op.operands[0]).and_then(|n| n.split('.').next());
            let name = name.unwrap_or("the array");
            let message = format!(
                "expected sums in a fixed order in the {} profile, got atomic additions of floats to `{name}`",
                self.0
            );
            let help = "fold whole slices of a `ts.Region[ts.reduce_sum]` parameter instead of single elements, or \
                        use the default profile";
            let error = Diagnostic::new(Code::E_NONDETERMINISTIC, message);
            errors.push(error.at(op.loc.clone()).help(help));
        }
        errors.into_result().map(|_| Changed::No)
    }
}
